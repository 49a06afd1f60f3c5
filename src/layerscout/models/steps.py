"""What models keep of a step of training, as their configuration and the device decide."""

from __future__ import annotations

from typing import Any

from layerscout.models.encoder import Encoder
from layerscout.plans import Step


def describe_step(
    encoder: Encoder, texts: int, tokens: int, *, scored: int = 0, copies: int = 1
) -> Step:
    """Describe a step of training on models that are made from an encoder; see `Step`."""
    config, device = encoder.model.config, encoder.device
    drops = _list_dropout(config)
    # native_dropout, on CUDA, keeps booleans; elsewhere it is a product with a mask of numbers,
    # and the fused attention of CPUs has no dropout at all (torch 2.13).
    short = device.type == "cuda"
    weighs_apart = any("att" in name for name in drops)
    fused = config._attn_implementation == "sdpa" and (short or not weighs_apart)
    return Step(
        texts=texts,
        tokens=tokens,
        scored=scored,
        copies=copies,
        # The mask; or, for every head, the weights, and with dropout its mask and what it leaves.
        matrices=1 if fused else config.num_attention_heads * (3 if weighs_apart else 1),
        fused=fused,
        activation=4 if _name_activation(config) == "gelu_new" else 1,  # it is written out
        mask=(1 if short else 4) if any("att" not in name for name in drops) else 0,
    )


def _list_dropout(config: Any) -> list[str]:
    """List the settings by which blocks drop numbers: not those of embeddings and heads."""
    apart = ("emb", "classif", "summary")
    return [
        name
        for name, value in config.to_dict().items()
        if "drop" in name
        and isinstance(value, float)
        and value > 0
        and not any(part in name for part in apart)
    ]


def _name_activation(config: Any) -> str | None:
    names = ("hidden_act", "activation_function", "hidden_activation", "activation")
    return next((getattr(config, name) for name in names if hasattr(config, name)), None)
