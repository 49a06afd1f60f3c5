"""What transformers 4 makes of a checkpoint that transformers 5 writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from layerscout.data import Kind
from layerscout.models.families import FAMILIES

_LAST_4 = "4.57"


def find_oldest(config: Any, kind: Kind) -> str:
    """Return the oldest version of transformers that is known to compute what this one does.

    Args:
        config: of the model as it is saved.
        kind: of its task.
    """
    family, layers = config.model_type, getattr(config, "layer_types", None) or []
    row, newest = FAMILIES.get(family), version("transformers")
    if row is None or row.since is None:
        return newest
    if family == "modernbert":
        every = getattr(config, "global_attn_every_n_layers", 3)  # version 4's default
        kinds = [
            "sliding_attention" if block % every else "full_attention"
            for block in range(len(layers))
        ]
        # Version 4 knows this rule alone, which edited blocks need not follow.
        if layers != kinds:
            return newest
        return _LAST_4 if kind == "multiple_choice" else row.since  # it had no such head before
    # Which blocks of Qwen see a window alone was another rule before it was listed.
    return _LAST_4 if "sliding_attention" in layers else row.since


def save_config(config: Any, folder: Path) -> None:
    """Save a configuration in which transformers 4, too, finds how positions are rotated.

    Version 5 writes it as `rope_parameters` alone, and 4 computes with its defaults without a word.
    """
    config.save_pretrained(folder)
    path = folder / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content |= _name_rotations(content)
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _name_rotations(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `rope_parameters` says under the names that transformers 4 reads."""
    family, rotations = content["model_type"], content.get("rope_parameters") or {}
    full = rotations.get("full_attention", rotations)
    if family not in FAMILIES or not full:  # a family of its own may read these names otherwise
        return {}
    windowed = rotations.get("sliding_attention") or {}
    base, base_of_windows, share = FAMILIES[family].rotations
    scaling = {k: v for k, v in full.items() if k not in ("rope_theta", "partial_rotary_factor")}
    if family == "phi3":  # it takes its two factors and the type, and refuses any more
        scaling = {k: v for k, v in scaling.items() if k.endswith("_factor")}
        scaling["type"] = full["rope_type"]
    named = {
        base: full.get("rope_theta"),
        base_of_windows: windowed.get("rope_theta"),
        share: full.get("partial_rotary_factor"),
        "rope_scaling": None if full["rope_type"] == "default" else scaling,
    }
    return {name: value for name, value in named.items() if name and value is not None}


def name_tokenizer(folder: Path) -> None:
    """Let a saved tokenizer name its class and its further tokens as transformers 4 does, too.

    Version 5 reads both. `TokenizersBackend` is its name of `PreTrainedTokenizerFast`; at a list of
    `extra_special_tokens` versions 4.47 to 4.57 raise an error.
    """
    path = folder / "tokenizer_config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["tokenizer_class"] == "TokenizersBackend":
        content["tokenizer_class"] = "PreTrainedTokenizerFast"
    if "extra_special_tokens" in content:
        content["additional_special_tokens"] = content.pop("extra_special_tokens")
    path.write_text(
        json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
