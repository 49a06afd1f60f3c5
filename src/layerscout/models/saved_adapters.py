"""Folders that hold what adapters, prefix-tuning or LoRA trained, without its base."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import torch

from layerscout.data import Kind, describe_kind
from layerscout.errors import InputError, first_line
from layerscout.files import read_json, replace_folder
from layerscout.models.architecture import keep_family
from layerscout.models.classifiers import make_classifier
from layerscout.models.configurations import read_config
from layerscout.models.devices import Precision, quiet_transformers
from layerscout.models.edits import apply_edits, untie_blocks
from layerscout.models.encoder import Encoder, hash_base
from layerscout.models.exports import save_tokenizer
from layerscout.models.hub import ADAPTER, TRAINED, holds_peft, holds_trained
from layerscout.models.methods import TrainableModel, make_trainable
from layerscout.models.shapes import model_class
from layerscout.models.tuned_classifiers import load_tuned_classifier, read_kind
from layerscout.models.versions import save_config
from layerscout.plans import (
    METHODS,
    Classifier,
    EditSpec,
    Full,
    Method,
    Plan,
)

FORMAT = 1  # of the folders that `save_trained` writes
CONFIG = "config.json"
# What peft calls kinds of tasks, where the name tells the kind.
_OF_PEFT: Mapping[str | None, Kind] = {"TOKEN_CLS": "token_classification"}


def save_peft(
    trainable: TrainableModel,
    encoder: Encoder,
    folder: str | Path,
    card: str = "",
    *,
    max_length: int,
) -> None:
    """Write what LoRA learnt as a folder for `peft.PeftModel.from_pretrained`.

    The model that is given to that one has as many blocks as the plan's head says.

    Args:
        trainable: a model that LoRA tuned and that is not merged.
        encoder: what it is a classifier of.
        folder: where it goes; an earlier one is replaced once the new one is whole.
        card: the model card, in Markdown.
        max_length: tokens of a text that it was trained on at the most.

    Raises:
        InputError: if the folder cannot be written.
    """
    wrapper = trainable.wrapper
    for config in wrapper.peft_config.values():
        config.base_model_name_or_path, config.revision = encoder.source, encoder.revision
    with quiet_transformers(), replace_folder(Path(folder)) as temporary:
        wrapper.save_pretrained(temporary, save_embedding_layers=False)
        save_config(trainable.model.config, temporary)  # how many blocks, and the labels
        _write_tokenizer_and_card(encoder, temporary, card, max_length)


def save_trained(
    trainable: TrainableModel,
    encoder: Encoder,
    folder: str | Path,
    card: str = "",
    *,
    kind: Kind = "classification",
    classifier: Classifier = "family",
    max_length: int,
) -> None:
    """Write what was trained, not by LoRA, and which base it belongs to.

    Args:
        trainable: the model after training.
        encoder: what it is a classifier of; its weights are hashed.
        folder: where it goes; an earlier one is replaced once the new one is whole.
        card: the model card, in Markdown.
        kind: of the task.
        classifier: what reads the last state.
        max_length: tokens of a text that it was trained on at the most.

    Raises:
        InputError: if the folder cannot be written.
    """
    from safetensors.torch import save_file

    config = trainable.model.config
    groups = getattr(encoder.model.config, "num_hidden_groups", None)
    about = {
        "layerscout": version("layerscout"),
        "format": FORMAT,
        "method": trainable.method.name,
        "options": asdict(trainable.method),
        "plan": trainable.plan.as_dict(),
        "kind": kind,
        "classifier": classifier,
        "labels": [config.id2label[i] for i in range(config.num_labels)],
        "thresholds": getattr(config, "thresholds", None),
        "max_length": max_length,
        "base": {
            "family": config.model_type,
            "name": encoder.name,
            "source": encoder.name if encoder.name == "demo" else encoder.source,
            "revision": encoder.revision,
            "untied": groups == encoder.blocks,
            "editing": encoder.editing,
            "sha256": hash_base(encoder, trainable.plan.head),
        },
    }
    tensors = {
        name: parameter.detach().cpu().contiguous()
        for name, parameter in trainable.model.named_parameters()
        if parameter.requires_grad
    }
    with replace_folder(Path(folder)) as temporary:
        save_file(tensors, temporary / TRAINED)
        text = json.dumps(about, indent=2, ensure_ascii=False, allow_nan=False)
        (temporary / CONFIG).write_text(f"{text}\n", encoding="utf-8")
        _write_tokenizer_and_card(encoder, temporary, card, max_length)


def load_tuned(
    name: str | Path,
    kind: Kind | None = None,
    base: str | Path | None = None,
    *,
    device: str = "auto",
    precision: Precision = "float32",
) -> tuple[Encoder, Any, Kind]:
    """Load a tuned model in whichever form it was saved: whole, or what was trained and its base.

    Args:
        name: a folder, or a hub id of a whole checkpoint.
        kind: of the task; by default the model's own.
        base: the folder or hub id of the base of what was trained apart from it, if it is not
            where it was then.
        device: as for `Encoder.load`.
        precision: as for `Encoder.load`.

    Returns:
        The encoder, which has the tokenizer; the transformers model, in eval mode; and the kind.

    Raises:
        InputError: if it cannot be loaded, it is not tuned for such a task, or the base is not the
            one that was tuned.
    """
    folder = Path(name).expanduser()
    apart = holds_trained(folder)
    if not apart and not holds_peft(folder):
        encoder = Encoder.load(name, device=device, precision=precision)
        own = kind or read_kind(encoder.model.config)
        return encoder, load_tuned_classifier(encoder, own), own
    load = load_trained if apart else _load_peft
    encoder, model, own = load(folder, base, device=device, precision=precision)
    if kind not in (None, own):
        raise InputError(
            f"{name} is tuned for {describe_kind(own)}, and the task is one of "
            f"{describe_kind(kind)}; give the data that it was tuned for"
        )
    with suppress(OSError, ValueError, LookupError, TypeError):  # as it was trained
        written = read_json(folder / "tokenizer_config.json")["model_max_length"]
        encoder.tokenizer.model_max_length = int(min(written, encoder.tokenizer.model_max_length))
    return replace(encoder, name=str(name)), model, own


def load_trained(
    folder: str | Path,
    base: str | Path | None = None,
    *,
    device: str = "cpu",
    precision: Precision = "float32",
) -> tuple[Encoder, Any, Kind]:
    """Load a model that adapters or prefix-tuning tuned: its base, with what was trained put in.

    Args:
        folder: where `tune` saved it.
        base: as for `load_tuned`.
        device: as for `Encoder.load`.
        precision: of the base, as for `Encoder.load`.

    Returns:
        The whole base, under the name of the folder; the transformers model, in eval mode, in which
        what was trained is in float32 and asks for gradients; and the kind of task.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(folder).expanduser()
    about, method, plan = _read_description(path)
    try:
        tensors = load_file(path / TRAINED)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"cannot read {path / TRAINED}: it is missing or broken; save it again"
        ) from error
    source = str(about["base"]["source"] if base is None else base)
    encoder = _load_base(path, source, base is not None, device, precision)
    encoder = _restore_base(encoder, about["base"], plan.head, source)
    kind = about["kind"]
    model = make_classifier(
        encoder, plan, about["labels"], kind=kind, classifier=about["classifier"]
    )
    if (thresholds := about.get("thresholds")) is not None:
        model.config.thresholds = thresholds
    make_trainable(model, plan, method)
    expected = {name: p for name, p in model.named_parameters() if p.requires_grad}
    held = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
    wanted = {name: (parameter.shape, torch.float32) for name, parameter in expected.items()}
    if held != wanted:
        differing = [n for n in sorted(held | wanted) if held.get(n) != wanted.get(n)]
        raise InputError(
            f"{path / TRAINED} does not belong to the {CONFIG} beside it: {len(differing)} tensors "
            f"are missing, unknown or of another shape or type, such as {differing[0]}"
        )
    with torch.no_grad():
        for name, parameter in expected.items():
            parameter.copy_(tensors[name])
    if method.saved == "apart":
        model.save_pretrained = _refuse_to_save
    return encoder, model, kind


def _load_base(
    folder: Path, source: str, given: bool, device: str, precision: Precision
) -> Encoder:
    """Load the base of what a folder holds; it was `given`, or the folder names it."""
    try:
        return Encoder.load(source, device=device, precision=precision)
    except InputError as error:
        if given:
            raise
        raise InputError(
            f"cannot load the base of {folder}: {error}; or give where it is now as `base` of "
            "layerscout.load"
        ) from error


def _load_peft(
    folder: Path, base: str | Path | None = None, *, device: str, precision: Precision
) -> tuple[Encoder, Any, Kind]:
    """Load what LoRA learnt into its base, as one model; see `load_trained`."""
    try:
        from peft import PeftModel
    except ImportError as error:
        raise InputError(
            f"{folder} holds an adapter of peft; to load it, run: pip install 'layerscout[peft]'"
        ) from error
    try:
        about = read_json(folder / ADAPTER)
        source = str(about["base_model_name_or_path"] if base is None else base)
        kind = _OF_PEFT.get(about["task_type"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot read {folder / ADAPTER}: {first_line(error)}") from error
    encoder = _load_base(folder, source, base is not None, device, precision)
    config = encoder.model.config
    if (folder / CONFIG).is_file():
        config = read_config(str(folder), folder)
    kind = kind or read_kind(config)
    model = encoder.load_as(model_class(config, kind), config, part="base")[0]
    try:
        with quiet_transformers():
            model = PeftModel.from_pretrained(model, folder).merge_and_unload()
    except Exception as error:  # a broken file makes the libraries raise errors of all kinds
        raise InputError(f"cannot load the adapter in {folder}: {first_line(error)}") from error
    keep_family(model, encoder.family)
    return encoder, model.to(encoder.device).eval(), kind


def _refuse_to_save(*_: Any, **__: Any) -> None:
    """Stand in for what would write a checkpoint that is read without what was trained."""
    raise InputError(
        "transformers could not load adapters or prefixes again; copy the folder that was loaded, "
        "or remove them first with layerscout.unload"
    )


def _write_tokenizer_and_card(encoder: Encoder, folder: Path, card: str, max_length: int) -> None:
    # The base's own tokenizer may lack what a decoder was trained with: padding, and what is put
    # between the texts of a pair.
    save_tokenizer(encoder.tokenizer, encoder.model, folder, max_length=max_length)
    if card:
        (folder / "README.md").write_text(card, encoding="utf-8")


def _read_description(folder: Path) -> tuple[dict[str, Any], Method, Plan]:
    """Read the JSON file of a folder: all of it, and the method and the plan that it names."""
    try:
        about = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError, RecursionError):
        about = None
    if not isinstance(about, dict) or not {"layerscout", "format", "method", "base"} <= set(about):
        raise InputError(
            f"{folder} is not a folder of adapters or prefixes that layerscout saved; a checkpoint "
            "is loaded with transformers"
        )
    if about["format"] != FORMAT:
        raise InputError(
            f"{folder} must be of format {FORMAT}, got {about['format']!r:.20}; load it with the "
            f"layerscout that saved it, {about['layerscout']!s:.20}"
        )
    try:
        about["base"] = base = dict(about["base"])
        labels = about["labels"]
        if not (
            isinstance(labels, list)
            and labels
            and all(isinstance(label, str) for label in labels)
            and {"source", "sha256", "family", "untied"} <= set(base)
            and about["kind"] in get_args(Kind)
            and about["classifier"] in get_args(Classifier)
        ):
            raise KeyError("labels, base, kind or classifier")
        kinds = {name: kind for name, kind in METHODS.items() if kind.saved != "merged"}
        plan, method = Plan.from_dict(about["plan"]), kinds[about["method"]](**about["options"])
        if base.get("editing") is not None:
            base["editing"] = EditSpec.from_dict(base["editing"])
    except (InputError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"the {CONFIG} of {folder} is broken ({error}); save it again") from error
    # Only full fine-tuning trains the embeddings, which (1, L, L) stands for elsewhere.
    return about, method, plan if isinstance(method, Full) else replace(plan, embeddings=False)


def _restore_base(encoder: Encoder, base: Mapping[str, Any], head: int, source: str) -> Encoder:
    """Do to an encoder what was done before, and show that it is the base."""
    config = encoder.model.config
    fits = config.model_type == base["family"] and encoder.blocks >= head
    if fits and base["untied"] and config.num_hidden_groups != encoder.blocks:
        encoder = untie_blocks(encoder)
    if fits and base.get("editing") is not None:
        encoder = apply_edits(encoder, base["editing"])
    if not fits or hash_base(encoder, head) != base["sha256"]:
        revision = f" at revision {base['revision']}" if base.get("revision") else ""
        raise InputError(
            f"the base must be exactly the model that was tuned, {base.get('name')}{revision}, but "
            f"{source} has other weights; give that model as `base`"
        )
    return encoder
