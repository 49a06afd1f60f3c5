"""Squares of per-example gradients, summed over examples: what Fisher information is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn
from torch.nn.functional import layer_norm, one_hot

Rows = Int64[np.ndarray, "e C"]


def factor_fisher(p: Float64[Tensor, "e K"]) -> Float64[Tensor, "r e K"]:
    """Give r = K − 1 vectors v with Σ_r v vᵀ = diag(p) − ppᵀ, the Fisher information of logits.

    The gradient of log p_y by the logits is e_y − p, and Σ_y p_y (e_y − p)(e_y − p)ᵀ is that
    matrix, of rank K − 1: so many backward passes give the sum over all K labels. With q = √p it
    is D(I − qqᵀ)D, D = diag(q), and a reflection that takes q to an axis has its other columns
    orthogonal to q. The axis is that of the largest p, so that nothing cancels.
    """
    K = p.shape[1]
    q = p.sqrt()
    axis = one_hot(p.argmax(dim=1), K)
    w = q + axis
    largest = q.amax(dim=1)[:, None, None]
    reflection = torch.eye(K, dtype=p.dtype) - w[:, :, None] * w[:, None, :] / (1 + largest)
    columns = (q[:, :, None] * reflection).transpose(1, 2)
    return columns[axis == 0].reshape(len(p), K - 1, K).transpose(0, 1)


class _SharedCallError(Exception):
    """A layer was called once for the whole batch, so its gradient does not come apart."""


@dataclass(eq=False)
class SquaredGradientSums:
    """Sums over examples of the squares of their own gradients, for every weight of the blocks.

    Where all weights are those of linear layers and norms, a backward pass over a padded batch
    gives them. Otherwise, and where a layer is called once for the whole batch (on DeBERTa's
    relative positions), examples go one by one; the values are the same.

    Attributes:
        sums: by the weight's name.
        layers: by name, those that are watched; none where examples go one by one.
    """

    model: nn.Module
    sums: dict[str, Tensor]
    layers: Mapping[str, nn.Module]

    @classmethod
    def of(cls, model: nn.Module, names: Sequence[str]) -> SquaredGradientSums:
        """Start at zero for the weights of these names; no weight may ask for its gradient."""
        owners = {name: model.get_submodule(name) for name in _owners(names)}
        # Exactly these: what derives from them may compute something else.
        known = all(_is_known(layer) for layer in owners.values())
        sums = {name: torch.zeros_like(model.get_parameter(name)) for name in names}
        return cls(model, sums, owners if known else {})

    def add(
        self,
        forward: Callable[[Rows], Tensor],
        vectors: Callable[[Tensor, Rows], Tensor],
        rows: Rows,
    ) -> None:
        """Add Σ_r (∂ (v_r · logits)/∂θ)² of some examples.

        Args:
            forward: rows to logits (e, K).
            vectors: logits and rows to the vectors v (r, e, K).
            rows: (e, C), those of each example.
        """
        if self.layers:
            try:
                return self._add_batch(forward, vectors, rows)
            except _SharedCallError:  # comes from the forward pass: nothing has been added yet
                self.layers = {}
        weights = [self.model.get_parameter(name).requires_grad_() for name in self.sums]
        for row in rows:
            logits = forward(row[None])
            found = vectors(logits, row[None])
            for left, v in zip(reversed(range(len(found))), found, strict=True):
                gradients = torch.autograd.grad(
                    logits, weights, v, retain_graph=left > 0, allow_unused=True
                )
                for total, g in zip(self.sums.values(), gradients, strict=True):
                    if g is not None:
                        total.addcmul_(g, g)
        return None

    def _add_batch(
        self,
        forward: Callable[[Rows], Tensor],
        vectors: Callable[[Tensor, Rows], Tensor],
        rows: Rows,
    ) -> None:
        records, handles = [], []
        try:
            for name, layer in self.layers.items():
                sums = {key: self.sums[f"{name}.{key}"] for key, _ in layer.named_parameters()}
                records.append(_LayerRecord(layer, sums, *rows.shape))
                handles.append(layer.register_forward_hook(records[-1].record_call))
            logits = forward(rows)
        finally:
            for handle in handles:
                handle.remove()
        found = vectors(logits, rows)
        for left, v in zip(reversed(range(len(found))), found, strict=True):
            torch.autograd.backward(logits, v, retain_graph=left > 0)
            for record in records:
                record.add_squares()


def _is_known(layer: nn.Module) -> bool:
    from transformers.pytorch_utils import Conv1D

    return type(layer) in (nn.Linear, nn.LayerNorm, Conv1D) or _is_rms_norm(layer)


def _is_rms_norm(layer: nn.Module) -> bool:
    """Tell whether a layer scales its input to unit size and then each feature by a weight.

    Every family has a class of its own for it; Gemma's adds 1 to the weight.
    """
    weights = dict(layer.named_parameters())
    named = type(layer).__name__.endswith("RMSNorm")
    return named and list(weights) == ["weight"] and weights["weight"].ndim == 1


def _normalize(layer: nn.Module, inputs: Tensor) -> Tensor:
    """Give the derivative of an RMS norm's output by its weight: its input at unit size."""
    weight = layer.get_parameter("weight")
    with_one, with_zero = (
        torch.func.functional_call(layer, {"weight": start}, (inputs,))
        for start in (torch.ones_like(weight), torch.zeros_like(weight))
    )
    found: Tensor = with_one - with_zero
    return found


def _owners(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name.rpartition(".")[0] for name in names))


@dataclass(eq=False)
class _LayerRecord:
    """A layer during one batch: its inputs and the gradients of its outputs make the squares.

    For one example with inputs A (t, in) and gradients B (t, out) of the outputs, the gradient of
    a linear layer's weight is BᵀA; several calls (ALBERT's, of one layer in every block) stand
    below one another in A and B. Padding has B = 0.

    Attributes:
        sums: what the squares are added to: "weight", and "bias" where there is one.
        examples, choices: e and C; the layer's inputs are (e · C, T, in).
        calls: how often the layer ran.
        arrived: A and B, each (e, C · T, ...), of the calls that the backward pass has met.
    """

    layer: nn.Module
    sums: Mapping[str, Tensor]
    examples: int
    choices: int
    calls: int = 0
    arrived: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def record_call(self, _: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        """Record a call, as a hook of the forward pass."""
        inputs = args[0].detach()
        if len(inputs) != self.examples * self.choices:
            raise _SharedCallError
        if not output.requires_grad:  # in block 1, where nothing below asks for a gradient
            output.requires_grad_()
        self.calls += 1
        output.register_hook(partial(self._arrive, inputs))  # type: ignore[no-untyped-call]

    def _arrive(self, inputs: Tensor, gradients: Tensor) -> None:
        a, b = (x.reshape(self.examples, -1, x.shape[-1]) for x in (inputs, gradients))
        self.arrived.append((a, b))
        if len(self.arrived) == self.calls:  # at once, so that B need not be kept
            self.add_squares()

    @torch.no_grad()
    def add_squares(self) -> None:
        """Add the squares of what has arrived."""
        if not self.arrived:
            return
        a, b = (torch.cat(calls, dim=1) for calls in zip(*self.arrived, strict=True))
        self.arrived.clear()
        if "bias" in self.sums:
            self.sums["bias"].add_(b.sum(dim=1).square_().sum(dim=0))
        weight = self.sums["weight"]
        if isinstance(self.layer, nn.LayerNorm):
            a = layer_norm(a, self.layer.normalized_shape, eps=self.layer.eps)
            weight.add_((a * b).sum(dim=1).square_().sum(dim=0))
        elif _is_rms_norm(self.layer):
            weight.add_((_normalize(self.layer, a) * b).sum(dim=1).square_().sum(dim=0))
        else:
            if not isinstance(self.layer, nn.Linear):  # GPT-2's has its matrix the other way round
                a, b = b, a
            # One example after another: a gradient that stays in the processor's cache until it
            # is squared costs less than a batched product that goes through the memory.
            g = torch.empty_like(weight)
            for inputs, gradients in zip(a, b, strict=True):
                torch.mm(gradients.T, inputs, out=g)
                weight.addcmul_(g, g)
