"""Configurations of checkpoints: what is wrong in one, and which architectures cannot be done."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from layerscout.errors import InputError, first_line
from layerscout.models.devices import quiet_transformers
from layerscout.models.families import FAMILIES
from layerscout.models.hub import TRAINED, holds_trained

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

# transformers makes a name for each: for 10⁹ of them 24 GB of memory were not enough.
MOST_LABELS = 10**6

# Entries that no state and no logit depends on: what a forward pass gives besides, and in which
# container; how it is computed; what another library or an earlier version does with the file. They
# are left out on loading, as if the file did not have them. What some of them do in transformers
# 5.23: `output_attentions` cannot be saved beside the default attention; without `return_dict`
# models give tuples; texts whose tokens are no multiple of `chunk_size_feed_forward` fail; hidden
# states become outputs of an ONNX graph; flash and flex attention fail on a processor.
NEUTRAL = (
    *("output_attentions", "output_hidden_states", "return_dict", "use_return_dict"),
    *("torchscript", "chunk_size_feed_forward", "attn_implementation", "_attn_implementation"),
)
# The same where they say nothing: empty or null.
_NEUTRAL_EMPTY = ("pruned_heads", "quantization_config", "use_cache", "num_labels")

# Configurations within one, by which transformers takes a model for one of several parts.
_PARTS = ("text_config", "text_encoder", "decoder", "generator")


def read_config(name: str, folder: Path) -> Any:
    """Read the transformers configuration of a checkpoint, without what changes no state.

    Raises:
        InputError: if it cannot be read, a value in it cannot be, or its architecture cannot be
            done.
    """
    from transformers import CONFIG_MAPPING

    path = folder / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        content = None
    if isinstance(content, dict) and "layerscout" in content:
        if not holds_trained(folder):
            raise InputError(
                f"cannot read {folder / TRAINED}: it is missing or broken; save it again"
            )
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
    family = content["model_type"]
    named = CONFIG_MAPPING[family].attribute_map
    sizes = {name for size in _SIZES for name in (size, named.get(size, size))}
    for key, value in content.items():
        wanted = None
        single = isinstance(value, str | int | float)  # some families list a size for each block
        if key in sizes and single and not (type(value) is int and value >= 1):
            wanted = "a whole number of 1 or more"
        elif "drop" in key and isinstance(value, int | float) and not 0 <= value <= 1:
            wanted = "in 0..1"
        elif key == "num_labels" and type(value) is int and value > MOST_LABELS:
            wanted = f"{MOST_LABELS:,} at the most"
        elif key in ("dtype", "torch_dtype") and not isinstance(value, str | None):
            wanted = "a name such as float32"
        if wanted is not None:
            raise InputError(
                f"{key:.60} in {path} must be {wanted}, got {json.dumps(value):.60}; correct it, "
                "or fetch the checkpoint again"
            )
    shadowing = [key for key in content if callable(getattr(CONFIG_MAPPING[family], key, None))]
    if shadowing:
        raise InputError(
            f"{shadowing[0]} in {path} has the name of a method of transformers; remove it"
        )
    try:
        return _parse(content, folder)
    except Exception as error:  # transformers raises errors of all kinds
        culprit = _find_culprit(content, folder)
        raise InputError(
            f"cannot read the configuration of {name}{culprit}: {first_line(error)}; correct {path}"
        ) from error


def _parse(content: Mapping[str, Any], folder: Path, without: Collection[str] = NEUTRAL) -> Any:
    """Make the configuration of a folder from what its file holds, without some entries."""
    from transformers import AutoConfig

    kept = {
        key: value
        for key, value in content.items()
        if key not in without and not (key in _NEUTRAL_EMPTY and value in (None, {}, []))
    }
    if isinstance(kept.get("architectures"), str):
        kept["architectures"] = [kept["architectures"]]
    read = partial(AutoConfig.from_pretrained, trust_remote_code=False, local_files_only=True)
    with quiet_transformers():
        if kept == content:
            return read(folder)
        # Not from_dict: of some families (mistral) the library looks at the whole file first.
        with TemporaryDirectory() as clean:
            (Path(clean) / "config.json").write_text(json.dumps(kept), encoding="utf-8")
            config = read(clean)
    config.name_or_path = str(folder)
    return config


def _find_culprit(content: Mapping[str, Any], folder: Path) -> str:
    """Name the entry without which a configuration can be read, if there is one."""
    for key, value in content.items():
        if key != "model_type":
            with suppress(Exception):  # of all kinds
                _parse(content, folder, (*NEUTRAL, key))
                return f" with {key:.60} {json.dumps(value):.60}"
    return ""


def _find_fault(content: Mapping[str, Any]) -> str | None:
    """Say why a model is no single stack of blocks with weights in floating point, if it is not."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING

    family = content["model_type"]
    known = FAMILIES.get(family)
    exists = family in CONFIG_MAPPING
    kind: Any = CONFIG_MAPPING[family] if exists else None
    two = content.get("is_encoder_decoder", getattr(kind, "is_encoder_decoder", False))
    parts = any(isinstance(content.get(name), Mapping) for name in _PARTS)
    if content.get("quantization_config"):
        return (
            "has quantised weights, and states and gradients need floating point; use the "
            "checkpoint that it was made from"
        )
    gone = content.get("pruned_heads") and "pruned_heads"
    if str(content.get("position_embedding_type")).startswith("relative_key"):
        gone = "position_embedding_type"
    if gone:
        return (
            f"has {gone} {json.dumps(content[gone]):.60}, which transformers from 5 on does "
            "not compute; use another checkpoint"
        )
    if not exists and "auto_map" in content:
        return (
            "needs its own code, which layerscout never runs; use a checkpoint of a family that "
            "transformers has"
        )
    if not exists:
        return (
            f"is of the family {family!r:.60}, whose code is not in transformers "
            f"{version('transformers')}; if it is a newer one, upgrade transformers"
        )
    if two:
        return (
            f"is an encoder–decoder ({family}), which has two stacks of blocks, and scores and "
            "plans count the blocks of one; use a model that is an encoder, or save its encoder "
            "alone where transformers has a class for that"
        )
    alone = known is None or known.reads == "last"
    if content.get("add_cross_attention") or (not alone and content.get("is_decoder")):
        return (
            f"is the decoder of an encoder–decoder ({family} with is_decoder or "
            "add_cross_attention), which reads the states of another model; use an encoder, or a "
            "decoder that stands alone"
        )
    if parts or "text_config" in kind.sub_configs:
        return (
            f"reads more than text ({family}); save its language model as a checkpoint of its own "
            "with save_pretrained, and use that"
        )
    if known is None and kind not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        return (
            f"is of the family {family}, for which transformers has no head for classes, so it "
            "could be neither tuned nor saved as a model that gives classes; use one of another "
            "family"
        )
    return None
