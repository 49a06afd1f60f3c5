"""What transformers 4 makes of a checkpoint that transformers 5 writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from layerscout.data import Kind
from layerscout.models.families import FAMILIES

# The first version that gives the same tokens and logits, of 4.46, 4.48, 4.51, 4.57, 5.0 and that
# in use, which stands for all other families: Gemma 2 has no caps on attention from 4.48 to
# 5.0, and OLMo 2 no head. Until 4.51 the head of a decoder reads the token before the first padding
# token, which a text may hold where the end-of-text token is used for padding.
_SINCE = {
    **dict.fromkeys(("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert"), "4.46"),
    **dict.fromkeys(("electra", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl"), "4.46"),
    "modernbert": "4.48",
    **dict.fromkeys(("gpt2", "gpt_neox", "llama", "mistral", "phi3", "qwen2", "qwen3"), "4.51"),
    "gemma3_text": "4.57",
}
_LAST_4 = "4.57"


def find_oldest(config: Any, kind: Kind) -> str:
    """Return the oldest version of transformers that is known to compute what this one does.

    Args:
        config: of the model as it is saved.
        kind: of its task.
    """
    family, layers = config.model_type, getattr(config, "layer_types", None) or []
    since = _SINCE.get(family, version("transformers"))
    if family == "modernbert":
        every = getattr(config, "global_attn_every_n_layers", 3)  # version 4's default
        kinds = [
            "sliding_attention" if block % every else "full_attention"
            for block in range(len(layers))
        ]
        # Version 4 knows this rule alone, which edited blocks need not follow.
        if layers != kinds:
            return version("transformers")
        return _LAST_4 if kind == "multiple_choice" else since  # it had no such head before
    # Which blocks of Qwen see a window alone was another rule before it was listed.
    return _LAST_4 if family in _SINCE and "sliding_attention" in layers else since


# Where transformers 4 looks for the base of the angles by which positions are rotated, of blocks
# that see everything and of those that see a window.
_BASES = {
    "gemma3_text": ("rope_theta", "rope_local_base_freq"),
    "gpt_neox": ("rotary_emb_base", ""),
    "modernbert": ("global_rope_theta", "local_rope_theta"),
}
_SHARES = {"gpt_neox": "rotary_pct"}  # of the features that are rotated


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
    base, base_of_windows = _BASES.get(family, ("rope_theta", ""))
    share = _SHARES.get(family, "partial_rotary_factor")
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
