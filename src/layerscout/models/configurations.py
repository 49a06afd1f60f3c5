"""Configurations of checkpoints: what is wrong in one, and which architectures cannot be done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Any

from layerscout.errors import InputError, first_line
from layerscout.models.devices import quiet_transformers
from layerscout.models.families import FAMILIES

# Sizes in a configuration, as transformers calls them; some families have names of their own.
_SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "head_dim",
    "embedding_size",
    "max_position_embeddings",
    "vocab_size",
)
# What a model reads that is no text, by the name of its input.
_READ = {"pixel_values": "images", "input_values": "sound", "input_features": "sound"}


def read_config(name: str, folder: Path) -> Any:
    """Read the transformers configuration of a checkpoint.

    Raises:
        InputError: if it cannot be read, a value in it cannot be, or its architecture cannot be
            done.
    """
    from transformers import CONFIG_MAPPING, AutoConfig

    path = folder / "config.json"
    content = _read_content(name, path)
    family = content["model_type"]
    _check_kind(name, family, content)
    kind = CONFIG_MAPPING[family]
    # transformers takes some sizes that no model has, and fails on others without naming them.
    names = {name for size in _SIZES for name in (size, kind.attribute_map.get(size, size))}
    for key, value in content.items():
        single = isinstance(value, str | int | float)  # some families list a size for each block
        whole = isinstance(value, int) and not isinstance(value, bool)
        if key in names and single and not (whole and value >= 1):
            raise InputError(
                f"{key:.60} in {path} must be a whole number of 1 or more, got {_show(value)}; "
                "correct it, or fetch the checkpoint again"
            )
        if "drop" in key and isinstance(value, int | float) and not 0 <= value <= 1:
            raise InputError(
                f"{key:.60} in {path} must be in 0..1, got {_show(value)}; correct it, or fetch "
                "the checkpoint again"
            )
    try:
        with quiet_transformers():
            return AutoConfig.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True
            )
    except Exception as error:  # transformers raises errors of all kinds
        at = _find_fault(kind, content)
        if at is None:
            reason = first_line(error)
        else:
            reason = f"its {at} cannot be {_show(content[at])}; correct it in {path}"
        raise InputError(f"cannot read the configuration of {name}: {reason}") from error


def describe_assumed(folder: Path, config: Any) -> str:
    """Say which sizes a configuration does not name, for which the family's usual ones stand."""
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = {size: config.attribute_map.get(size, size) for size in _SIZES[:5]}
    assumed = [
        f"{name} (so {getattr(config, size)} is assumed)"
        for size, name in names.items()
        if not {size, name} & content.keys() and isinstance(getattr(config, size, None), int)
    ]
    return f"; its config.json lacks {', '.join(assumed)}" if assumed else ""


def _read_content(name: str, path: Path) -> dict[str, Any]:
    start = f"cannot read the configuration of {name}: "
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{start}{first_line(error)}; {path} must be a JSON object that names the model_type"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{start}{path} must be a JSON object, got {_show(content)}")
    if "layerscout" in content:
        base = content.get("base")
        source = base.get("source") if isinstance(base, dict) else None
        raise InputError(
            f"{name} holds only what a method trained; load it with layerscout.load, or give "
            f"its base{'' if source is None else f', {source}'}"
        )
    family = content.get("model_type")
    if not isinstance(family, str) or not family:
        shown = _show(family) if "model_type" in content else "none"
        raise InputError(
            f"{start}model_type in {path} must be the name of a family such as bert, got {shown}"
        )
    return content


def _find_fault(kind: Any, content: Mapping[str, Any]) -> str | None:
    """Find the key without which a configuration can be read, and with which it cannot."""

    def fails(left_out: str | None) -> bool:
        try:
            with quiet_transformers():
                kind.from_dict({k: v for k, v in content.items() if k != left_out})
        except Exception:  # transformers raises errors of all kinds
            return True
        return False

    return next((key for key in content if not fails(key)), None) if fails(None) else None


def _show(value: Any) -> str:
    written = json.dumps(value, ensure_ascii=False)
    return written if len(written) <= 60 else f"{written[:57]}..."


def _check_kind(name: str, family: str, content: Mapping[str, Any]) -> None:
    """Raise if it is anything but a single stack of blocks with weights in floating point."""
    from transformers import (
        CONFIG_MAPPING,
        MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
        MODEL_MAPPING,
    )

    if quantized := content.get("quantization_config"):
        known = quantized.get("quant_method") if isinstance(quantized, dict) else None
        raise InputError(
            f"the weights of {name} are quantised ({known or 'an unknown method'}), and states and "
            "gradients need floating point; use the checkpoint that it was made from"
        )
    if family in FAMILIES:
        return
    if family not in CONFIG_MAPPING:
        _refuse_unknown(name, family, content)
    kind = CONFIG_MAPPING[family]
    if content.get("is_encoder_decoder", getattr(kind, "is_encoder_decoder", False)):
        raise InputError(
            f"{name} is an encoder–decoder ({family}), which has two stacks of blocks, and scores "
            "and plans count the blocks of one; use a model that is an encoder, or save its "
            "encoder alone where transformers has a class for that"
        )
    inner = content.get("text_config")
    if isinstance(inner, Mapping) or "text_config" in kind.sub_configs:
        language = inner.get("model_type") if isinstance(inner, Mapping) else None
        raise InputError(
            f"{name} reads more than text ({family}); save its language model "
            f"({language or 'text_config'}) as a checkpoint of its own with save_pretrained, and "
            "use that"
        )
    model = MODEL_MAPPING.get(kind, None)
    first = model[0] if isinstance(model, tuple) else model
    if read := _READ.get(getattr(first, "main_input_name", "")):
        raise InputError(
            f"{name} reads {read} ({family}), and layerscout scores and tunes models of text; use "
            "one that has a tokenizer"
        )
    if kind not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        raise InputError(
            f"transformers has no head for classes in the family {family}, so {name} could be "
            "neither tuned nor saved as a model that gives classes; use one of another family"
        )


def _refuse_unknown(name: str, family: str, content: Mapping[str, Any]) -> None:
    if "auto_map" in content:
        raise InputError(
            f"{name} needs its own code, which layerscout never runs; use a checkpoint of a "
            "family that transformers has"
        )
    close = get_close_matches(family, FAMILIES, n=1, cutoff=0.75)
    guess = f"did you mean {close[0]!r}? If it is newer, " if close else "if it is a newer one, "
    raise InputError(
        f"{name} is of the family {family!r:.60}, whose code is not in transformers "
        f"{version('transformers')}; {guess}upgrade transformers"
    )
