"""Bottleneck adapters in the layers of a model: Houlsby et al. 2019, placed as by Xie et al."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layerscout.models.architecture import norm_parameters
from layerscout.models.families import FAMILIES
from layerscout.plans import Adapter

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
