"""Adapters and prefixes: new modules in the layers of a model."""

from __future__ import annotations

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layerscout.errors import InputError, check_integer
from layerscout.models.architecture import norm_parameters, usable_positions
from layerscout.models.families import FAMILIES
from layerscout.models.shapes import count_features
from layerscout.plans import Adapter, PrefixTuning

# Inside an adapter, and of the normal distribution of new weights. Xie et al. 2022, App. B.2.
DROPOUT, DEVIATION = 0.1, 0.02


class Bottleneck(nn.Module):
    """x + up(dropout(relu(down(x)))), each token by itself. Houlsby et al. 2019, §2.1."""

    def __init__(self, width: int, method: Adapter) -> None:
        """Draw the weights for d = `width` features."""
        super().__init__()
        self.down = nn.Linear(width, method.bottleneck)
        self.dropout = nn.Dropout(DROPOUT)
        self.up = nn.Linear(method.bottleneck, width)
        nn.init.normal_(self.down.weight, std=DEVIATION)
        nn.init.normal_(self.up.weight, std=0.0 if method.adapter_init == "identity" else DEVIATION)
        nn.init.zeros_(self.down.bias)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """Adapt what a module gave."""
        added: Tensor = self.up(self.dropout(torch.relu(self.down(x))))
        return x + added

    def after(self, _: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor:
        """Adapt the output of a module, as a forward hook on it."""
        adapted: Tensor = self(output)
        return adapted


class Adapters(nn.Module):
    """The two adapters of a layer, and the norms as they were before they were trained with them.

    A hook is a method of a module of the model, so that a copy of the model has copies of all.
    """

    def __init__(self, layer: nn.Module, after: tuple[str, str], width: int, method: Adapter):
        """Hook new adapters to two modules of the layer."""
        super().__init__()
        self.attention = Bottleneck(width, method)
        self.feed_forward = Bottleneck(width, method)
        for number, norm in enumerate(norm_parameters(layer)):
            self.register_buffer(f"norm_{number}", norm.detach().clone(), persistent=False)
        hooks = (self.attention.after, self.feed_forward.after)
        self.handles = [
            layer.get_submodule(name).register_forward_hook(hook)
            for name, hook in zip(after, hooks, strict=True)
        ]

    def remove_from(self, layer: nn.Module) -> None:
        """Leave the layer as it was before."""
        for handle in self.handles:
            handle.remove()
        del layer.adapters
        with torch.no_grad():
            for norm, earlier in zip(
                norm_parameters(layer), self.buffers(recurse=False), strict=True
            ):
                norm.copy_(earlier)


def add_adapters(config: Any, layer: Any, method: Adapter) -> None:
    """Put two adapters into a layer, and train them with its norms."""
    norms = norm_parameters(layer)
    after = FAMILIES[config.model_type].adapted
    assert after is not None, "check_family refuses adapters then"
    adapters = Adapters(layer, after, config.hidden_size, method)
    layer.adapters = adapters.to(norms[0].device).train(layer.training)
    for norm in norms:
        norm.requires_grad_(True)


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
    attended: tuple[Tensor, Tensor | None] = attend(
        module,
        query,
        before(key, prefix.key),
        before(value, prefix.value),
        attention_mask,
        **options,
    )
    return attended


def check_virtual_tokens(config: Any, method: PrefixTuning) -> None:
    """Raise if attention has windows, or there are more virtual tokens than positions."""
    if window := getattr(config, "sliding_window", None):
        raise InputError(
            f"prefix-tuning needs attention without windows, got {config.model_type} with one of "
            f"{window} tokens; use --method full, adapter or lora"
        )
    positions = usable_positions(config)
    remedy = f"this {config.model_type} has that many positions"
    check_integer("virtual_tokens", method.virtual_tokens, 1, positions, remedy)
