"""Checkpoints that load without layerscout."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerscout.errors import (
    InputError,
    check_integer,
)
from layerscout.files import (
    check_no_tuning,
    replace_folder,
)
from layerscout.models.architecture import (
    base_of,
    cut_config,
    has_averaging,
    head_modules,
    locate_parameters,
    shared_weights,
    usable_positions,
)
from layerscout.models.configurations import read_config
from layerscout.models.devices import Computed, quiet_transformers
from layerscout.models.encoder import Encoder
from layerscout.models.hub import locate_checkpoint
from layerscout.models.versions import name_tokenizer, save_config
from layerscout.plans import Plan, check_tied


def export(
    model: Any,
    tokenizer: Any,
    folder: str | Path,
    card: str,
    *,
    max_length: int,
    dtype: Computed = "float32",
) -> None:
    """Write a model as an ordinary checkpoint, which loads without layerscout.

    Args:
        model: any transformers model of a supported family.
        tokenizer: its tokenizer.
        folder: where it goes; a checkpoint that is there is replaced once the new one is whole.
        card: the model card, in Markdown.
        max_length: tokens of an input that it was tuned on at the most, where `truncation=True`
            of a pipeline then cuts.
        dtype: what its weights are stored in.

    Raises:
        InputError: if it cannot be written, `folder` holds anything but a checkpoint, or the model
            has a block that averages and `dtype` is a short one.
    """
    if dtype != "float32" and has_averaging(model):
        raise InputError(
            f"a model whose top block averages must be saved in float32, got {dtype}, in which it "
            "would compute something else; use --save-dtype float32"
        )
    stored = getattr(torch, dtype)
    weights = {
        name: tensor.to(stored) if tensor.is_floating_point() else tensor
        for name, tensor in model.state_dict().items()
    }
    with _write_model(model, weights, stored, folder) as temporary:
        save_tokenizer(tokenizer, model, temporary, max_length=max_length)
        (temporary / "README.md").write_text(card, encoding="utf-8")


@contextmanager
def _write_model(
    model: Any, weights: Mapping[str, Tensor], dtype: torch.dtype | None, folder: str | Path
) -> Iterator[Path]:
    """Write weights and the configuration into a folder that replaces `folder` once it is whole."""
    with quiet_transformers(), replace_folder(Path(folder)) as temporary:
        write_weights(model, weights, dtype, temporary)
        yield temporary


def write_weights(
    model: Any, weights: Mapping[str, Tensor], dtype: torch.dtype | None, folder: Path
) -> None:
    """Write weights and the configuration, which says what they are stored in."""
    model.save_pretrained(folder, state_dict=weights)
    config = copy.deepcopy(model.config)
    config.dtype = dtype  # as it is stored, and not as the library holds it
    save_config(config, folder)


def round_weights(model: Any, dtype: Computed) -> None:
    """Round a model's weights, which stay in float32, to what a dtype can hold."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(getattr(torch, dtype)))


def truncate(
    model: str | Path, head: int, folder: str | Path, *, untie: bool = False
) -> tuple[str, ...]:
    """Write the checkpoint that ends after block `head`: same architecture, same dtype, shorter.

    Args:
        model: a folder, a hub id, or "demo".
        head: the blocks that are kept, 1 to L − 1.
        folder: where it goes; a checkpoint that is there is replaced once the new one is whole.
        untie: give each block its own copy of weights that blocks share, as in ALBERT.

    Returns:
        Warnings: what was trained on state L and now reads state `head`, and what was left out.

    Raises:
        InputError: if there is no such model, it cannot be cut there, or `folder` cannot be
            written.
    """
    place = Path(folder).expanduser()
    if place.exists():
        check_no_tuning(place.parent, f"{place.name}/")
    encoder = Encoder.load(model, device="cpu")
    blocks = encoder.blocks
    head = check_integer("head", head, 1, blocks - 1, remedy=f"{model} has {blocks} blocks")
    local = encoder.revision is None
    source = Path(encoder.source).resolve()
    if local and place.resolve() == (source if encoder.dense is None else source.parent):
        raise InputError(f"{folder} holds the model to truncate; choose another folder")
    # As the file says it, which is not how an encoder computes.
    config = read_config(encoder.name, locate_checkpoint(encoder.name))
    config.pad_token_id = encoder.model.config.pad_token_id  # which may be a borrowed one
    if encoder.averages:
        config.architectures = None  # the head reads nothing but what the block above gives
    dtype = config.dtype
    if not untie:
        check_tied(Plan((), head), shared_weights(config))
        config = cut_config(config, head)
    short, missing, warnings = _load_whole(encoder, config)
    if untie:
        from layerscout.models.edits import copy_shared_weights

        copy_shared_weights(str(model), base_of(short)[0], encoder.family, head)
    if encoder.dense is not None:
        warnings.append(f"the linear head of {model} on the mean of the tokens was left out")
    heads = [
        name
        for name in head_modules(short, locate_parameters(short))
        if not any(key.startswith(f"{name}.") for key in missing)
    ]
    if heads:
        warnings.append(
            f"the head ({', '.join(heads)}) was trained on state {blocks} and now reads state "
            f"{head}; tune it again"
        )
    weights = {k: v for k, v in short.state_dict().items() if k not in missing}
    with _write_model(short, weights, dtype, folder) as temporary:
        save_tokenizer(encoder.tokenizer, short, temporary)
    return tuple(warnings)


def _load_whole(encoder: Encoder, config: Any) -> tuple[Any, set[str], list[str]]:
    """Load a checkpoint with its own head, as `config` shortens it and in the dtype of its file.

    Returns:
        The model; the tensors that it has and the file does not, which are random; warnings.
    """
    import transformers

    name, warnings = encoder.name, list(encoder.notes)
    named = (config.architectures or ["AutoModel"])[0]
    kind: Any = getattr(transformers, named, None)
    family = getattr(getattr(kind, "config_class", None), "model_type", None)
    if named != "AutoModel" and family != config.model_type:
        kind = transformers.AutoModel
        warnings.append(
            f"{name} is of the class {named}, which transformers does not have; it is saved as the "
            "bare encoder"
        )
    config = copy.deepcopy(config)
    config.dtype = None  # so that the weights themselves are asked
    model, report = encoder.load_as(kind, config, dtype="auto")
    missing = set(report["missing_keys"])
    if encoder.reads_mean:  # BERT's pooler is a part of the head
        missing |= {key for key in model.state_dict() if key.startswith("pooler.")}
    lacking = sorted(key for key in missing if "pooler." not in key)
    if lacking:
        raise InputError(
            f"the weights of {name} lack {len(lacking)} tensors of a {type(model).__name__}, such "
            f"as {lacking[0]}; the checkpoint is incomplete"
        )
    dropped = re.compile(rf"(^|\.){re.escape(encoder.family.blocks)}\.")
    others = sorted(key for key in report["unexpected_keys"] if not dropped.search(key))
    if others:
        warnings.append(
            f"{len(others)} tensors that a {type(model).__name__} does not have were left out, "
            f"such as {others[0]}"
        )
    return model, missing, warnings


def save_tokenizer(
    tokenizer: Any, model: Any, folder: Path, *, max_length: int | None = None
) -> None:
    """Save a tokenizer such that every version of transformers makes this model's inputs.

    Args:
        tokenizer: of the model.
        model: any transformers model.
        folder: where it goes.
        max_length: tokens of an input that the model was tuned on at the most; by default the
            tokenizer's own limit.
    """
    _prepare_tokenizer(tokenizer, model, max_length).save_pretrained(folder)
    name_tokenizer(folder)


def _prepare_tokenizer(tokenizer: Any, model: Any, max_length: int | None) -> Any:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.backend_tokenizer.no_truncation()  # of the last call, which would be saved
    tokenizer.backend_tokenizer.no_padding()
    longest = tokenizer.model_max_length if max_length is None else max_length
    tokenizer.model_max_length = min(longest, usable_positions(model.config))
    tokenizer.padding_side = "right"  # GPT-2 counts positions from the padding on
    for name in ("is_local", "local_files_only"):  # how it was loaded is not how it should be
        tokenizer.init_kwargs.pop(name, None)
    taken = signature(model.forward).parameters  # DistilBERT's offer types that no model takes
    names = [name for name in tokenizer.model_input_names if name in taken]
    tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names = names
    return tokenizer
