"""Trainable prefixes of the keys and values that attention sees: prefix-tuning."""

from __future__ import annotations

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layerscout.models.adapters import DEVIATION
from layerscout.models.architecture import count_features, usable_positions
from layerscout.models.families import FAMILIES
from layerscout.plans import PrefixTuning
from layerscout.runtime import InputError, check_integer

_ATTENTION = "layerscout_prefix"  # under which transformers knows the attention with a prefix


class Prefix(nn.Module):
    """Keys and values, (P, k) each, of P virtual tokens. Li and Liang 2021, §4."""

    def __init__(self, tokens: int, width: int) -> None:
        """Draw them."""
        super().__init__()
        self.key = nn.Parameter(DEVIATION * torch.randn(tokens, width))
        self.value = nn.Parameter(DEVIATION * torch.randn(tokens, width))


def add_prefix(config: Any, layer: Any, method: PrefixTuning) -> None:
    """Put a prefix into the attention of a layer."""
    from transformers import AttentionInterface

    attention = layer.get_submodule(FAMILIES[config.model_type].prefixed)
    device = next(attention.parameters()).device
    prefix = Prefix(method.virtual_tokens, count_features(config)[1])
    attention.prefix = prefix.to(device).train(layer.training)
    AttentionInterface.register(_ATTENTION, attend_with_prefix)
    # Of its own, since the model builds its masks by the implementation that its own one names.
    attention.config = copy.copy(attention.config)
    attention.config._attn_implementation = _ATTENTION


def attend_with_prefix(
    module: Any,
    query: Float[Tensor, "b h T s"],
    key: Float[Tensor, "b k T s"],
    value: Float[Tensor, "b k T s"],
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend to the virtual tokens of a module's prefix, and then to the text.

    transformers calls it in place of its own; the mask is true or 0 for what is seen.
    """
    from transformers import AttentionInterface

    prefix: Prefix = module.prefix
    batch, heads, _, size = key.shape

    def before(text: Tensor, virtual: Tensor) -> Tensor:
        split = virtual.to(text.dtype).view(-1, heads, size).transpose(0, 1)
        return torch.cat([split.expand(batch, -1, -1, -1), text], dim=2)

    if attention_mask is None and getattr(module, "is_causal", False):
        # The library leaves the mask to the kernel, which would count the prefix as text.
        attention_mask = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool).tril()
        attention_mask = attention_mask[None, None].to(query.device)
    if attention_mask is not None:
        seen = True if attention_mask.dtype == torch.bool else 0.0
        tokens = len(prefix.key)
        attention_mask = nn.functional.pad(attention_mask, (tokens, 0), value=seen)
    attend = AttentionInterface()["sdpa"]
    found: tuple[Tensor, Tensor | None] = attend(
        module,
        query,
        before(key, prefix.key),
        before(value, prefix.value),
        attention_mask,
        **options,
    )
    return found


def check_virtual_tokens(config: Any, method: PrefixTuning) -> None:
    """Refuse windows of attention, and more virtual tokens than a model has positions."""
    if window := getattr(config, "sliding_window", None):
        raise InputError(
            f"prefix-tuning needs attention without windows, got {config.model_type} with one of "
            f"{window} tokens; use --method full, adapter or lora"
        )
    positions = usable_positions(config)
    remedy = f"this {config.model_type} has that many positions"
    check_integer("virtual_tokens", method.virtual_tokens, 1, positions, remedy)
