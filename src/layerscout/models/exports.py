"""Checkpoints that load without layerscout: of tuned models, and of encoders cut short."""

from __future__ import annotations

import copy
import re
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from layerscout.models.architecture import (
    base_of,
    cut_config,
    keep_family,
    shared_weights,
    usable_positions,
)
from layerscout.models.checkpoints import Checkpoint, load_checkpoint, load_pretrained
from layerscout.models.devices import Computed
from layerscout.models.places import head_modules, locate_parameters
from layerscout.models.quiet import quiet_transformers
from layerscout.models.untying import copy_shared_weights
from layerscout.plans import Plan, check_tied
from layerscout.runtime import (
    InputError,
    check_integer,
    check_no_tuning,
    first_line,
    replace_folder,
)


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
        InputError: if it cannot be written, or `folder` holds anything but a checkpoint.
    """
    stored = getattr(torch, dtype)
    with quiet_transformers(), replace_folder(Path(folder)) as temporary:
        weights = {
            name: tensor.to(stored) if tensor.is_floating_point() else tensor
            for name, tensor in model.state_dict().items()
        }
        model.save_pretrained(temporary, state_dict=weights)
        config = copy.deepcopy(model.config)
        config.dtype = stored
        config.save_pretrained(temporary)
        save_tokenizer(tokenizer, model, temporary, max_length=max_length)
        (temporary / "README.md").write_text(card, encoding="utf-8")


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
    from transformers import AutoConfig

    place = Path(folder).expanduser()
    if place.exists():
        check_no_tuning(place.parent, f"{place.name}/")
    loaded = load_checkpoint(str(model))
    blocks = int(loaded.model.config.num_hidden_layers)
    head = check_integer("head", head, 1, blocks - 1, remedy=f"{model} has {blocks} blocks")
    local = loaded.revision is None
    if local and place.resolve() == Path(loaded.source).resolve():
        raise InputError(f"{folder} holds the model to truncate; choose another folder")
    # As the file says it, which is not how `load_checkpoint` computes.
    config = load_pretrained(AutoConfig, loaded.source, revision=loaded.revision)
    config.pad_token_id = loaded.model.config.pad_token_id  # which may be a borrowed one
    dtype = config.dtype
    if not untie:
        check_tied(Plan((), head), shared_weights(config))
        config = cut_config(config, head)
    short, missing, warnings = _load_whole(str(model), loaded, config)
    if untie:
        copy_shared_weights(str(model), base_of(short)[0], loaded.family, head)
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
    with quiet_transformers(), replace_folder(Path(folder)) as temporary:
        weights = {k: v for k, v in short.state_dict().items() if k not in missing}
        short.save_pretrained(temporary, state_dict=weights)
        short.config.dtype = dtype  # what the model asks to be computed in, if anything
        short.config.save_pretrained(temporary)
        save_tokenizer(loaded.tokenizer, short, temporary)
    return tuple(warnings)


def _load_whole(name: str, loaded: Checkpoint, config: Any) -> tuple[Any, set[str], list[str]]:
    """Load a checkpoint with its own head, as `config` shortens it and in the dtype of its file.

    Returns:
        The model; the tensors that it has and the file does not, which are random; warnings.
    """
    wanted, warnings = _architecture(name, config)
    config = copy.deepcopy(config)
    config.dtype = None  # so that the weights themselves are asked
    try:
        model, report = load_pretrained(
            wanted,
            loaded.source,
            revision=loaded.revision,
            config=config,
            dtype="auto",
            output_loading_info=True,
        )
    except Exception as error:  # a broken file makes the libraries raise errors of all kinds
        raise InputError(f"cannot load the weights of {name}: {first_line(error)}") from error
    keep_family(model, loaded.family)
    missing = set(report["missing_keys"])
    lost = sorted(key for key in missing if "pooler." not in key)
    if lost:
        raise InputError(
            f"the weights of {name} lack {len(lost)} tensors of a {type(model).__name__}, such as "
            f"{lost[0]}; the checkpoint is incomplete"
        )
    dropped = re.compile(rf"(^|\.){re.escape(loaded.family.blocks)}\.")
    others = sorted(key for key in report["unexpected_keys"] if not dropped.search(key))
    if others:
        warnings.append(
            f"{len(others)} tensors that a {type(model).__name__} does not have were left out, "
            f"such as {others[0]}"
        )
    return model, missing, warnings


def _architecture(name: str, config: Any) -> tuple[Any, list[str]]:
    """Find the class of a checkpoint among transformers' own; the bare model's for want of it."""
    import transformers

    asked = (config.architectures or [None])[0]
    if asked is None:
        return transformers.AutoModel, []
    found: Any = getattr(transformers, asked, None)
    is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    if is_model and getattr(found.config_class, "model_type", None) == config.model_type:
        return found, []
    return transformers.AutoModel, [
        f"{name} is of the class {asked}, which transformers does not have; it is saved as the "
        "bare encoder"
    ]


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
    tokenizer.save_pretrained(folder)
