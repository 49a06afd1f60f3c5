"""Classifiers cut and frozen as a plan says, for our own training and for others'."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from layerscout.data import Kind
from layerscout.models.checkpoints import (
    model_class,
    quiet_transformers,
    shared_weights,
)
from layerscout.models.encoder import Encoder
from layerscout.plans import (
    FAMILIES,
    Classifier,
    Family,
    Plan,
    check_tied,
    make_plan,
    ranges,
    weight_sets,
)
from layerscout.runtime import InputError, check_integer, first_line, unknown

# Options of peft's LoraConfig that say what is adapted or trained, which is what a plan says.
DECIDED = (
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    *("target_parameters", "trainable_token_indices", "modules_to_save", "layer_replication"),
)

Place = str | tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Frozen:
    """What `freeze` did to a model.

    Attributes:
        trained: names of the parameters that are trained, each tensor once.
        frozen: names of the others.
        summary: the same in one line: how many, and which parts of the model they are.
    """

    trained: tuple[str, ...]
    frozen: tuple[str, ...]
    summary: str

    def __str__(self) -> str:
        return self.summary

    def __repr__(self) -> str:
        return f"<Frozen: {self.summary}>"


def freeze(model: Any, plan: Plan | str) -> Frozen:
    """Make a transformers model train what the plan tunes, and nothing else.

    The model may be bare or have any head, which is trained. Weights that the head shares with
    the embeddings, as the output of a masked-language model does, are treated as embeddings.

    Args:
        model: of a supported family, with as many blocks as the plan's head says; nothing but
            `requires_grad` of its parameters is changed.
        plan: a plan, or a strategy that needs no scan, such as "top:3" or "(7, 9, 12)".

    Returns:
        What is trained and what is frozen.

    Raises:
        InputError: if the plan does not fit the model, or nothing would be trained.
    """
    plan, found = _fitted(model, plan)
    named = dict(model.named_parameters())
    trained = tuple(name for name in named if _tunes(plan, found[name]))
    if not trained:
        raise InputError(
            f"{plan.notation} tunes only the head, and {type(model).__name__} has none; tune "
            "blocks too, or take a model with a head"
        )
    for name, parameter in named.items():
        parameter.requires_grad_(_tunes(plan, found[name]))
    parts = ["embeddings"] if plan.embeddings else []
    parts += [f"blocks {ranges(plan.tuned)}"] if plan.tuned else []
    parts += ["head"] if any(found[name] == "head" for name in trained) else []
    sizes = sum(named[name].numel() for name in trained), sum(p.numel() for p in named.values())
    tied = _tied(model, found)
    return Frozen(
        trained,
        tuple(name for name in named if name not in set(trained)),
        f"trains {len(trained)} of {len(named)} tensors, {sizes[0]:,} of {sizes[1]:,} parameters: "
        + ", ".join(parts)
        + (f"; {tied[0]} is tied to the frozen embeddings" if tied and not plan.embeddings else ""),
    )


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
    names = _label_names(num_labels, labels)
    encoder = model if isinstance(model, Encoder) else Encoder.load(model, device="cpu")
    if untie:
        encoder = untie_blocks(encoder)
    plan = plan if isinstance(plan, Plan) else make_plan(plan, encoder.blocks)
    return unshare_weights(make_classifier(encoder, plan, names, seed=seed, fresh_head=fresh_head))


def lora_config(model: Any, plan: Plan | str, r: int = 8, **options: Any) -> Any:
    """Make the configuration with which peft adapts the blocks that the plan tunes.

    Every linear layer of these blocks is named in full. The modules of the head are trained whole,
    the embeddings never.

    Args:
        model: as for `freeze`; it is not changed.
        plan: a plan, or a strategy that needs no scan, such as "top:3" or "(7, 9, 12)".
        r: rank of the adapters.
        options: what else `peft.LoraConfig` takes, such as `lora_alpha`; `task_type` is "SEQ_CLS"
            unless it is given.

    Returns:
        The `peft.LoraConfig`, for `peft.get_peft_model`.

    Raises:
        InputError: if the plan does not fit the model or tunes no block, an option would change
            what is trained, the head shares weights with the embeddings, or there is no peft.
    """
    try:
        from peft import LoraConfig
    except ImportError as error:
        raise InputError(
            "lora_config needs peft, which is not installed; run: pip install 'layerscout[peft]'"
        ) from error
    plan, found = _fitted(model, plan)
    _check_lora(model, plan, found, r, options)
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    places_of = {name: found.get(f"{name}.weight") for name in linear}
    try:
        return LoraConfig(
            r=int(r),
            target_modules=[
                name
                for name, place in places_of.items()
                if isinstance(place, tuple) and _tunes(plan, place)
            ],
            modules_to_save=head_modules(model, found) or None,
            **({"task_type": "SEQ_CLS"} | options),
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"peft refuses these options: {first_line(error)}") from error


def make_classifier(
    encoder: Encoder,
    plan: Plan,
    labels: Sequence[str],
    *,
    seed: int = 0,
    fresh_head: bool = False,
    kind: Kind = "classification",
    head: Classifier = "family",
) -> Any:
    """Make the model of a plan for a kind of task: cut at its head, frozen where it does not tune.

    What is frozen shares its memory with the encoder; what is tuned is a copy. The head starts as
    `from_pretrained` loads it: from the checkpoint as far as that brings one, the rest random.

    Args:
        encoder: where embeddings and blocks come from.
        plan: for this encoder; see `Plan.on`.
        labels: class names, in the order of their ids; a single one is that of the number which
            regression predicts, "score" unless it is given. Multiple choice takes none.
        seed: draws the random part of the head.
        fresh_head: draw the whole head, whatever the checkpoint brings.
        kind: of the task.
        head: "mean-linear" for a linear layer on the mean of the tokens, drawn by `seed`.

    Returns:
        The transformers model, in float32, on the encoder's device and in eval mode.

    Raises:
        InputError: if the plan does not fit the encoder, or its family has no head for this kind.
    """
    from accelerate import init_empty_weights

    plan = plan.on(encoder.blocks)
    check_tied(plan, shared_weights(encoder.model.config))
    config = _labelled(cut_config(encoder.model.config, plan.head), labels, kind)
    auto = model_class(config, kind, head)
    with init_empty_weights(include_buffers=False), quiet_transformers():
        model = auto.from_config(config)
    trained = {name for name, place in locate_parameters(model).items() if _tunes(plan, place)}
    prefix = base_of(model)[1]
    bodies = {f"{prefix}{name}": tensor for name, tensor in encoder.model.state_dict().items()}
    heads = _heads(encoder, auto, config, seed, fresh_head or head == "mean-linear")
    # A final norm counts as head: it is the checkpoint's unless all of the head is to be new.
    start = heads | bodies if head == "mean-linear" and not fresh_head else bodies | heads
    model.load_state_dict(
        {
            name: start[name].clone() if name in trained else start[name]
            for name in model.state_dict()
        },
        assign=True,
    )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)
    return model.to(encoder.device).eval()


def untie_blocks(encoder: Encoder) -> Encoder:
    """Give each of ALBERT's blocks its own copy of the weights that they share.

    Raises:
        InputError: if the blocks of the encoder share nothing.
    """
    model = copy.deepcopy(encoder.model)
    untie_shared(encoder.name, model, encoder.family, encoder.blocks)
    return replace(encoder, model=model)


def locate_parameters(model: Any) -> dict[str, Place]:
    """Tell where each parameter of a transformers model lies.

    Returns:
        By name: "embeddings", "head", or the numbers of the blocks (several in ALBERT) it is of.
        Weights that the head is tied to lie where the encoder has them.

    Raises:
        InputError: if it is not a transformers model of a supported family.
    """
    family = family_of(model)
    base, prefix = base_of(model)
    heads = tuple(f"{part}." for part in family.head_parts)
    sets = weight_sets(_block_count(model), len(_blocks(base, family)))
    named = list(model.named_parameters(remove_duplicate=False))
    found: dict[str, Place] = {}
    for name, _ in named:
        inner = name.removeprefix(prefix)
        if not name.startswith(prefix) or inner.startswith(heads):
            found[name] = "head"
        elif inner.startswith(f"{family.blocks}."):
            group = int(inner.removeprefix(f"{family.blocks}.").split(".")[0])
            found[name] = tuple(i for i, theirs in enumerate(sets, start=1) if theirs == group)
        else:
            found[name] = "embeddings"
    inside = {id(parameter): found[name] for name, parameter in named if found[name] != "head"}
    return {name: inside.get(id(parameter), "head") for name, parameter in named}


def family_of(model: Any) -> Family:
    """Look up the family of a transformers model.

    Raises:
        InputError: if it is not a transformers model of a supported family.
    """
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):  # a wrapper, such as peft's, has other names
        raise InputError(
            f"the model must be one of transformers, got {type(model).__name__}; pass the model "
            "itself, before anything is wrapped around it"
        )
    if model.config.model_type not in FAMILIES:
        raise unknown("model family", str(model.config.model_type), FAMILIES)
    return FAMILIES[model.config.model_type]


def base_of(model: Any) -> tuple[Any, str]:
    """Give the bare model inside one with a head, and what its parameters' names begin with."""
    prefix = model.base_model_prefix
    if hasattr(model, prefix):
        return getattr(model, prefix), f"{prefix}."
    return model, ""


@contextmanager
def use_seed(seed: int) -> Iterator[None]:
    """Draw by `seed` within, and leave torch's random state of all devices as it was."""
    with ExitStack() as stack:
        devices = list(range(torch.cuda.device_count()))
        stack.enter_context(torch.random.fork_rng(devices=devices))
        if torch.backends.mps.is_available():
            stack.enter_context(torch.random.fork_rng(devices=[0], device_type="mps"))
        torch.manual_seed(seed)
        yield


def unshare_weights(model: Any) -> Any:
    """Give a model that shares its frozen weights with an encoder copies of them."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()
    return model


def reads_first_token(model: Any) -> bool:
    """Tell whether the family's head reads nothing but the first token's state."""
    return getattr(model.config, "classifier_pooling", "cls") == "cls"


def cut_config(config: Any, head: int) -> Any:
    """Give a copy of a transformers configuration for the model cut at state `head`."""
    config = copy.deepcopy(config)
    if groups := getattr(config, "num_hidden_groups", None):  # ALBERT's sets of weights
        config.num_hidden_groups = weight_sets(config.num_hidden_layers, groups)[head - 1] + 1
    config.num_hidden_layers = head
    if getattr(config, "layer_types", None):  # ModernBERT's: which blocks attend to everything
        config.layer_types = config.layer_types[:head]
    return config


def head_modules(model: Any, found: Mapping[str, Place]) -> list[str]:
    """Name the modules that make up the head, in full."""
    prefix = base_of(model)[1]
    names = [name for name, place in found.items() if place == "head"]
    starts = [prefix if name.startswith(prefix) else "" for name in names]
    modules = [
        f"{start}{name.removeprefix(start).split('.')[0]}"
        for name, start in zip(names, starts, strict=True)
    ]
    return list(dict.fromkeys(modules))


def untie_shared(name: str, model: Any, family: Family, head: int) -> None:
    """Replace the shared weights of a bare model by copies for each of its blocks 1..`head`."""
    groups, blocks = getattr(model.config, "num_hidden_groups", None), _block_count(model)
    if groups is None or groups == blocks:
        raise InputError(f"the blocks of {name} share no weights; leave out untie")
    shared = _blocks(model, family)
    copies = [copy.deepcopy(shared[i]) for i in weight_sets(blocks, groups)[:head]]
    path, attribute = family.blocks_place
    setattr(model.get_submodule(path), attribute, nn.ModuleList(copies))
    model.config.num_hidden_layers = model.config.num_hidden_groups = head


def _fitted(model: Any, plan: Plan | str) -> tuple[Plan, dict[str, Place]]:
    """Settle a plan for a whole model; tell where its parameters lie."""
    found = locate_parameters(model)
    blocks = _block_count(model)
    plan = (plan if isinstance(plan, Plan) else make_plan(plan, blocks)).on(blocks)
    if plan.head != blocks:
        raise InputError(
            f"the head must be on the model's top block, {blocks}, got a plan with the head at "
            f"{plan.head}; cut the model with layerscout.build, or load it with num_hidden_layers="
            f"{plan.head}"
        )
    tuned, matched = set(plan.tuned), set[int]()
    for place in found.values():
        if isinstance(place, tuple) and not tuned.isdisjoint(place):
            matched.update(place)
    if tuned < matched:
        raise InputError(
            f"blocks that share their weights must be tuned together, got {plan.notation}, which "
            f"leaves out {ranges(sorted(matched - tuned))}; give each its own with "
            "layerscout.build(..., untie=True)"
        )
    if matched != tuned:
        raise InputError(f"blocks {ranges(sorted(tuned - matched))} have no parameters to tune")
    return plan, found


def _tunes(plan: Plan, place: Place) -> bool:
    if place == "head":
        return True
    if place == "embeddings":
        return bool(plan.embeddings)
    return not set(plan.tuned).isdisjoint(place)


def _check_lora(
    model: Any, plan: Plan, found: Mapping[str, Place], r: int, options: Mapping[str, Any]
) -> None:
    if not plan.tuned:
        raise InputError(
            f"LoRA adapts the blocks of a plan, and {plan.notation} tunes none; use "
            "layerscout.freeze, or tune blocks"
        )
    check_integer("r", r, 1, remedy="it is the rank of the adapters")
    decided = [
        name for name in options if name in DECIDED or (name, options[name]) == ("bias", "all")
    ]
    if decided:
        raise InputError(
            f"what is trained follows from the plan, got {decided[0]}="
            f"{options[decided[0]]!r}; leave it out"
        )
    if tied := _tied(model, found):
        raise InputError(
            f"peft cannot train a head that is tied to the embeddings, got {tied[0]} of "
            f"{type(model).__name__}; use layerscout.freeze"
        )


def _tied(model: Any, found: Mapping[str, Place]) -> list[str]:
    """List the head's parameters that are the embeddings' too."""
    prefix = base_of(model)[1]
    return [n for n, place in found.items() if not n.startswith(prefix) and place != "head"]


def _blocks(base: Any, family: Family) -> Any:
    try:
        return base.get_submodule(family.blocks)
    except AttributeError as error:
        raise InputError(
            f"{type(base).__name__} does not keep its blocks in {family.blocks}, as its family "
            "does; use one of transformers' own classes"
        ) from error


def _block_count(model: Any) -> int:
    if getattr(model.config, "num_hidden_groups", None):
        return int(model.config.num_hidden_layers)
    return len(_blocks(base_of(model)[0], family_of(model)))


def _label_names(count: int | None, labels: Sequence[str] | None) -> list[str]:
    names = [
        f"LABEL_{i}" for i in range(2 if count is None else check_integer("num_labels", count, 1))
    ]
    if labels is not None:
        if isinstance(labels, str) or not all(isinstance(label, str) for label in labels):
            raise InputError(f"`labels` must be a list of names, got {labels!r}")
        if count not in (None, len(labels)):
            raise InputError(
                f"`num_labels` must be the number of `labels`, {len(labels)}, got {count}; leave "
                "it out"
            )
        names = list(labels)
    if not names or len(set(names)) < len(names):
        raise InputError(f"`labels` must be at least one name and all different, got {names}")
    return names


def _labelled(config: Any, labels: Sequence[str], kind: Kind) -> Any:
    choices = kind == "multiple_choice"  # whose head has no labels: the library's own stand there
    labels = ("LABEL_0", "LABEL_1") if choices else labels or ("score",)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: number for number, label in enumerate(labels)}
    config.problem_type = "regression" if len(labels) == 1 else "single_label_classification"
    if choices:
        config.problem_type = None
    return config


def _heads(encoder: Encoder, auto: Any, config: Any, seed: int, fresh: bool) -> dict[str, Tensor]:
    """Load the head of a classifier by way of its smallest model, which has a single block."""
    config = cut_config(config, 1)
    with use_seed(seed), quiet_transformers():
        if fresh:
            model = auto.from_config(config, dtype=torch.float32)
        else:
            model = auto.from_pretrained(
                encoder.source,
                revision=encoder.revision,
                config=config,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
                trust_remote_code=False,
                local_files_only=True,
            )
    wanted = {name for name, place in locate_parameters(model).items() if place == "head"}
    return {name: tensor for name, tensor in model.state_dict().items() if name in wanted}
