"""Configurations of checkpoints: what is wrong in one, and which architectures cannot be done."""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def read_config(name: str, folder: Path) -> Any:
    """Read the transformers configuration of a checkpoint.

    Raises:
        InputError: if it cannot be read, a value in it cannot be, or its architecture cannot be
            done.
    """
    from transformers import CONFIG_MAPPING, AutoConfig

    path = folder / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        content = None
    if isinstance(content, dict) and "layerscout" in content:
        raise InputError(
            f"{name} holds only what a method trained; load it with layerscout.load, or give its "
            "base"
        )
    if not isinstance(content, dict) or not isinstance(content.get("model_type"), str):
        raise InputError(
            f"cannot read the configuration of {name}: {path} must be a JSON object whose "
            "model_type names a family such as bert"
        )
    if fault := _find_fault(content):
        raise InputError(f"{name} {fault}")
    # transformers takes some sizes that no model has, and fails on others without naming them.
    named = CONFIG_MAPPING[content["model_type"]].attribute_map
    sizes = {name for size in _SIZES for name in (size, named.get(size, size))}
    for key, value in content.items():
        wanted = None
        single = isinstance(value, str | int | float)  # some families list a size for each block
        if key in sizes and single and not (type(value) is int and value >= 1):
            wanted = "a whole number of 1 or more"
        elif "drop" in key and isinstance(value, int | float) and not 0 <= value <= 1:
            wanted = "in 0..1"
        if wanted is not None:
            raise InputError(
                f"{key:.60} in {path} must be {wanted}, got {json.dumps(value):.60}; correct it, "
                "or fetch the checkpoint again"
            )
    try:
        with quiet_transformers():
            return AutoConfig.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True
            )
    except Exception as error:  # transformers raises errors of all kinds
        raise InputError(
            f"cannot read the configuration of {name}: {first_line(error)}; correct {path}"
        ) from error


def _find_fault(content: Mapping[str, Any]) -> str | None:
    """Say why a model is no single stack of blocks with weights in floating point, if it is not."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING

    family = content["model_type"]
    if content.get("quantization_config"):
        return (
            "has quantised weights, and states and gradients need floating point; use the "
            "checkpoint that it was made from"
        )
    if family in FAMILIES:
        return None
    if family not in CONFIG_MAPPING and "auto_map" in content:
        return (
            "needs its own code, which layerscout never runs; use a checkpoint of a family that "
            "transformers has"
        )
    if family not in CONFIG_MAPPING:
        return (
            f"is of the family {family!r:.60}, whose code is not in transformers "
            f"{version('transformers')}; if it is a newer one, upgrade transformers"
        )
    kind = CONFIG_MAPPING[family]
    if content.get("is_encoder_decoder", getattr(kind, "is_encoder_decoder", False)):
        return (
            f"is an encoder–decoder ({family}), which has two stacks of blocks, and scores and "
            "plans count the blocks of one; use a model that is an encoder, or save its encoder "
            "alone where transformers has a class for that"
        )
    if isinstance(content.get("text_config"), Mapping) or "text_config" in kind.sub_configs:
        return (
            f"reads more than text ({family}); save its language model as a checkpoint of its own "
            "with save_pretrained, and use that"
        )
    if kind not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        return (
            f"is of the family {family}, for which transformers has no head for classes, so it "
            "could be neither tuned nor saved as a model that gives classes; use one of another "
            "family"
        )
    return None
