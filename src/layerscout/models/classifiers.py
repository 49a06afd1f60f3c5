"""Classifiers: cut and frozen as a plan says, or loaded as they were tuned; their outputs."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from layerscout.data import Kind, are_ids, join_names, name_some, pair_classes
from layerscout.errors import InputError, check_integer
from layerscout.models.architecture import (
    AVERAGING,
    base_of,
    cut_config,
    family_of,
    has_averaging,
    keep_family,
    labels_words,
    locate_parameters,
    shared_weights,
    tunes,
)
from layerscout.models.devices import quiet_transformers, use_seed, widen
from layerscout.models.encoder import Encoder
from layerscout.models.shapes import make_unweighted, model_class
from layerscout.plans import Classifier, Plan, ReadToken, check_tied, make_plan
from layerscout.progress import log_warnings


def build(
    model: Encoder | str | Path,
    plan: Plan | str,
    *,
    num_labels: int | None = None,
    labels: Sequence[str] | None = None,
    untie: bool = False,
    fresh_head: bool = False,
    seed: int = 0,
) -> Any:
    """Make the classification model of a plan, cut and frozen, to be trained with other tools.

    It is what `AutoModelForSequenceClassification.from_pretrained` gives for as many blocks as
    the plan keeps: in float32 and, as always there, in eval mode. `transformers.Trainer` takes it.

    Args:
        model: a folder, a hub id, "demo", or an encoder, with which nothing is shared.
        plan: a plan, or a strategy that needs no scan, such as "top:3" or "(7, 9, 12)".
        num_labels: outputs of the head; 2 unless there are `labels`. One means regression.
        labels: their names; otherwise LABEL_0, LABEL_1, ...
        untie: give each block its own copy of weights that blocks share, as in ALBERT.
        fresh_head: draw the whole head, whatever the checkpoint brings.
        seed: draws the random part of the head.

    Returns:
        The transformers model.

    Raises:
        InputError: if there is no such model, or the plan or the labels do not fit.
    """
    names = _name_labels(num_labels, labels)
    encoder = model if isinstance(model, Encoder) else Encoder.load(model, device="cpu")
    if untie:
        from layerscout.models.edits import untie_blocks

        encoder = untie_blocks(encoder)
    plan = plan if isinstance(plan, Plan) else make_plan(plan, encoder.blocks)
    model = make_classifier(encoder, plan, names, seed=seed, fresh_head=fresh_head)
    if labels is not None and not fresh_head:
        log_warnings(__name__, note_classes(encoder, names, "classification", seed))
    return unshare_weights(model)


def make_classifier(
    encoder: Encoder,
    plan: Plan,
    labels: Sequence[str],
    *,
    seed: int = 0,
    fresh_head: bool = False,
    kind: Kind = "classification",
    classifier: Classifier = "family",
    shares: np.ndarray | None = None,
) -> Any:
    """Make the model of a plan for a kind of task: cut at its head, frozen where it does not tune.

    What is frozen shares its memory with the encoder; what is tuned is a copy. The head starts as
    `from_pretrained` loads it: from the checkpoint as far as that brings one, the rest random. An
    output layer for the same classes is put into their order here; one for others starts anew.

    Args:
        encoder: where embeddings and blocks come from.
        plan: for this encoder; see `Plan.on`.
        labels: class names, in the order of their ids; a single one is that of the number which
            regression predicts, "score" unless it is given. Multiple choice takes none.
        seed: draws the random part of the head.
        fresh_head: draw the whole head, whatever the checkpoint brings.
        kind: of the task.
        classifier: "mean-linear" for a linear layer on the mean of the tokens, drawn by `seed`.
        shares: how often each label occurs in training, (K,), each in (0, 1). A new output layer
            then starts with biases that predict just that, and not one half of each label, or all
            tags alike: of rare ones AdamW needs hundreds of steps to get there, during which it
            learns nothing else (Lin et al. 2017, §4.1).

    Returns:
        The transformers model, on the encoder's device and in eval mode. What is tuned is in
        float32, and what is frozen as the encoder holds it.

    Raises:
        InputError: if the plan does not fit the encoder, or its family has no head for this kind.
    """
    plan = plan.on(encoder.blocks)
    check_tied(plan, shared_weights(encoder.model.config))
    config = _label_config(cut_config(encoder.model.config, plan.head), labels, kind)
    auto = model_class(config, kind, classifier)
    model = make_unweighted(auto, config)
    keep_family(model, encoder.family)
    trained = {name for name, place in locate_parameters(model).items() if tunes(plan, place)}
    prefix = base_of(model)[1]
    bodies = {f"{prefix}{name}": tensor for name, tensor in encoder.model.state_dict().items()}
    linear = classifier == "mean-linear"
    heads, new, _ = _load_head(encoder, auto, labels, kind, seed, fresh_head or linear)
    if shares is not None:
        heads = heads | _start_biases(heads, new, shares, kind)
    # A final norm counts as head: it is the checkpoint's unless all of the head is to be new.
    start = heads | bodies if linear and not fresh_head else bodies | heads
    model.load_state_dict(
        {
            # A weight in bfloat16 has 8 bits: most steps of AdamW would leave it as it is.
            name: widen(start[name], copy=True) if name in trained else start[name]
            for name in model.state_dict()
        },
        assign=True,
    )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)
    return model.to(encoder.device).eval()


def unshare_weights(model: Any) -> Any:
    """Return a model that shares its frozen weights with an encoder copies of them, in float32."""
    for parameter in model.parameters():
        parameter.data = widen(parameter.data, copy=True)
    for buffer in model.buffers():
        buffer.data = buffer.data.clone()
    return model


def find_head_token(model: Any) -> ReadToken | None:
    """Return which single token's state a model's head reads; None if it reads all of them.

    A bare model is taken for one whose head labels texts.
    """
    if labels_words(model) or getattr(model, "reads_mean", False) or has_averaging(model):
        return None
    if getattr(model.config, "classifier_pooling", "cls") not in ("cls", "bos"):
        return None
    return family_of(model).reads


def count_averaging(config: Any) -> None:
    """Count in a configuration a block on top that averages; see `make_averaging_classifier`."""
    config.num_hidden_layers += 1
    setattr(config, AVERAGING, True)


def keep_thresholds(model: Any, thresholds: np.ndarray | None) -> None:
    """Note in a model from which probability on a text has a label, where that is not 0.5.

    It is saved in `config.json`, by name; the library itself does not look at it.
    """
    if thresholds is not None:
        names = model.config.id2label
        model.config.thresholds = {names[k]: float(p) for k, p in enumerate(thresholds)}


def read_thresholds(model: Any, columns: Sequence[int] | slice) -> np.ndarray | None:
    """Read what `keep_thresholds` noted, (K,) for these outputs; None where it is 0.5.

    Raises:
        InputError: if it is not a probability for each label.
    """
    noted = getattr(model.config, "thresholds", None)
    if noted is None:
        return None
    labels = np.array(_list_names(model.config), dtype=object)[columns]
    if not isinstance(noted, dict) or not all(
        isinstance(noted.get(label), float) and 0 < noted[label] < 1 for label in labels
    ):
        raise InputError(
            "`thresholds` in the model's config.json must be a number between 0 and 1 for every "
            f"label, got {noted!r:.60}; correct it or remove it"
        )
    return np.array([noted[label] for label in labels])


def match_columns(
    name: str, config: Any, labels: Sequence[str], kind: Kind
) -> tuple[list[int] | slice, str | None]:
    """Find the columns of a model's logits that belong to the classes of a task.

    The second is what should be known of that, if anything.

    Args:
        name: of the model.
        config: of the model.
        labels: names of the task's classes by id.
        kind: of the task.

    Raises:
        InputError: if it has other classes.
    """
    if kind == "multiple_choice":
        return slice(None), None
    columns, note = None, None
    if kind == "regression":
        columns = [0] if config.num_labels == 1 else None
    else:
        columns, note = _pair_head(name, config, labels)
    if columns is None:
        known = read_names(config)
        new = [label for label in labels if label not in known]
        raise InputError(
            f"the classes of {name} must be those of the task: it has {join_names(known)}, and not "
            f"{name_some(new or labels) or 'numbers'}; give the data that it was tuned for"
        )
    return columns, note


def _list_names(config: Any) -> list[str]:
    """List what a model calls its classes, by id."""
    return [str(label) for _, label in sorted(config.id2label.items())]


def read_names(config: Any) -> list[str]:
    """Read the class names of a model, by id, wherever it has them."""
    names = _list_names(config)
    # Some write their names for training only.
    ids = config.label2id or {}
    if are_ids(names) and sorted(ids.values(), key=str) == sorted(range(len(names)), key=str):
        return [str(label) for label, _ in sorted(ids.items(), key=lambda item: item[1])]
    return names


def _pair_head(
    name: str, config: Any, labels: Sequence[str]
) -> tuple[list[int] | None, str | None]:
    """Find the output of a model for each class of a task; see `pair_classes`.

    The second is what should be known of that, if anything.
    """
    theirs = read_names(config)
    places, by_position = pair_classes(theirs, labels)
    if places is None:
        return None, (
            f"the head of {name} is one for other classes ({join_names(theirs)}), so its output "
            "layer starts anew"
        )
    note = None
    if by_position:
        pairs = join_names(f"{one} as {other}" for one, other in zip(theirs, labels, strict=True))
        note = (
            f"the classes of {name} are taken by their order: {pairs}; if that is wrong, correct "
            "id2label in its config.json"
        )
    ids = config.label2id or {}
    if ids.keys() == {*theirs} and any(ids[one] != n for n, one in enumerate(theirs)):
        used = join_names(f"{n} is {one}" for n, one in enumerate(theirs))
        note = (
            f"label2id of {name} contradicts its id2label, which is followed ({used}); if that is "
            "wrong, correct id2label in its config.json"
        )
    return places, note


def _name_labels(count: int | None, labels: Sequence[str] | None) -> list[str]:
    """Check the labels of `build`, or make up as many names as it needs."""
    if labels is None:
        count = 2 if count is None else check_integer("num_labels", count, 1)
        return [f"LABEL_{i}" for i in range(count)]
    names = [] if isinstance(labels, str) else list(labels)
    different = len({name for name in names if isinstance(name, str)})
    if not names or different < len(names) or count not in (None, len(names)):
        raise InputError(
            "`labels` must be a list of names, at least one and all different, and `num_labels` "
            f"their number or left out, got {labels!r} and {count}"
        )
    return names


def _label_config(config: Any, labels: Sequence[str], kind: Kind) -> Any:
    """Write the labels of a task into a configuration, which is given back."""
    choices = kind == "multiple_choice"  # whose head has no labels: the library's own stand there
    labels = ("LABEL_0", "LABEL_1") if choices else labels or ("score",)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: number for number, label in enumerate(labels)}
    match kind:
        case "multi_label_classification":
            config.problem_type = kind
        case "multiple_choice" | "token_classification":  # whose classes do not ask for it
            config.problem_type = None
        case "classification" | "regression":
            one = len(labels) == 1
            config.problem_type = "regression" if one else "single_label_classification"
    return config


def _start_biases(
    heads: Mapping[str, Tensor], new: Collection[str], shares: np.ndarray, kind: Kind
) -> dict[str, Tensor]:
    """Return the biases of a new output layer, which is the last of the head, if it has any."""
    biases = [name for name in heads if name.endswith("bias") and len(heads[name]) == len(shares)]
    if not biases or biases[-1] not in new:
        return {}
    rare = 1 - shares if kind == "multi_label_classification" else np.ones(len(shares))
    return {biases[-1]: torch.from_numpy(np.log(shares / rare)).float()}


# The head that was loaded last for an encoder: a training starts with it, and what is kept of the
# training is put into the same again.
_LAST: WeakKeyDictionary[Encoder, tuple[Any, tuple[dict[str, Tensor], set[str], str | None]]]
_LAST = WeakKeyDictionary()


def note_classes(encoder: Encoder, labels: Sequence[str], kind: Kind, seed: int) -> list[str]:
    """Say how a tuned head is used for a task whose classes are not its own, by name.

    Args:
        encoder: of the checkpoint that may bring it.
        labels, kind, seed: as for `make_classifier`.
    """
    if encoder.reads_mean:
        return [
            f"the head of {encoder.name} is linear on the mean of the tokens, from which no other "
            "can start, so the whole head starts anew"
        ]
    auto = model_class(encoder.model.config, kind)
    note = _load_head(encoder, auto, labels, kind, seed, fresh=False)[2]
    return [] if note is None else [note]


def list_random(
    encoder: Encoder, labels: Sequence[str], *, seed: int, kind: Kind, fresh_head: bool
) -> set[str]:
    """Return which parameters of a head the checkpoint does not bring; see `make_classifier`."""
    auto = model_class(encoder.model.config, kind)
    heads, new, _ = _load_head(encoder, auto, labels, kind, seed, fresh_head)
    return new & heads.keys()


def _load_head(
    encoder: Encoder, auto: Any, labels: Sequence[str], kind: Kind, seed: int, fresh: bool
) -> tuple[dict[str, Tensor], set[str], str | None]:
    """Load the head of a classifier by way of its smallest model, which has a single block.

    BERT and ALBERT bring a pretrained pooler, ModernBERT the dense layer and norm of its head; in
    the other families the whole head is random.

    Returns:
        The head by name, whose tensors nobody changes; the names of what the checkpoint does not
        bring; and how its output layer is used, where the names of the classes do not tell.
    """
    fresh = fresh or encoder.reads_mean  # another function of the states
    config = _label_config(cut_config(encoder.model.config, 1), labels, kind)
    key = auto, config.to_json_string(use_diff=False), seed, fresh
    if encoder in _LAST and _LAST[encoder][0] == key:
        return _LAST[encoder][1]
    ours = range(config.num_labels)
    rows: Sequence[int] | None = ours
    theirs, note = encoder.model.config, None
    named = len(ours) > 1 and kind != "multiple_choice" and not fresh  # one number has no name
    if named and theirs.num_labels == len(ours):
        rows, note = _pair_head(encoder.name, theirs, [config.id2label[n] for n in ours])
    config.num_labels += rows is None  # of an output more, for the library to draw them all
    with use_seed(seed), quiet_transformers():
        if fresh:
            model = auto.from_config(config, dtype=torch.float32)
            missing = new = set(model.state_dict())
        else:
            model, report = encoder.load_as(auto, config, ignore_mismatched_sizes=True)
            other = (
                name if isinstance(name, str) else name[0] for name in report["mismatched_keys"]
            )
            missing = set(report["missing_keys"])
            new = {*missing, *other}
    keep_family(model, encoder.family)
    names = {name for name, place in locate_parameters(model).items() if place == "head"}
    heads = {name: t for name, t in model.state_dict().items() if name in names}
    if note is not None or rows != ours:
        outputs = _list_outputs(auto, config) & names
        brought = outputs.isdisjoint(missing if rows is None else new)
        note = note if brought else None
        if rows is None or brought:
            heads |= {name: heads[name][list(rows or ours)] for name in outputs}
    _LAST[encoder] = key, (heads, new, note)
    return _LAST[encoder][1]


def _list_outputs(auto: Any, config: Any) -> set[str]:
    """Return the names of the weights that have a row for each class."""
    wider = copy.deepcopy(config)
    wider.num_labels += 1
    one, other = (make_unweighted(auto, each).state_dict() for each in (config, wider))
    return {name for name in one if one[name].shape != other[name].shape}
