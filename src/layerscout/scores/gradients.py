"""Scores of blocks from gradients of a classifier's log-probabilities: arithmetic on any module.

Fisher information is made of squares of the gradients of single examples, which a backward pass
over a padded batch gives; gradient norm and saliency of the gradient of the mean loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite, sqrt
from statistics import mean, stdev
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor, nn
from torch.nn.functional import layer_norm, one_hot

from layerscout.plans import ranges

Values = tuple[float | None, ...]
Rows = Int64[np.ndarray, "e C"]
# Which labels: in expectation over the model's own, those given, or the raw logits of those given.
Rule = Literal["true", "empirical", "as_released"]

# Above such a probability of one label, a head says nothing about blocks.
SATURATED = 1 - 1e-6


# --- Vectors whose products with the logits are derived ------------------------------------------


def label_vectors(
    z: Float64[Tensor, "e K"],
    y: Tensor,
    rule: Rule,
    *,
    exact: int,
    several: bool = False,
    draws: Float64[np.ndarray, " e"] | Float64[np.ndarray, "e K"] | None = None,
) -> tuple[Float64[Tensor, "r e K"], Bool[Tensor, " e"]]:
    """Return vectors v with E_y (∂ log p(y|x)/∂θ)² = Σ_r (∂ (v_r · logits)/∂θ)².

    The gradient of log p(y) by the logits is y − p, with y one-hot. With several labels, each is a
    Bernoulli variable of its own, so the covariance of y − p is diagonal: p_k(1 − p_k).

    Args:
        z: logits.
        y: the given labels, (e,), or which of several there are, (e, K).
        rule: which labels count.
        exact: up to how many labels the sum over all of them is taken with the rule "true";
            otherwise labels are drawn.
        several: whether an example may have several labels.
        draws: numbers from 0 to 1 that draw labels.

    Returns:
        The vectors, and of which examples a label (of several, each) is as good as certain.
    """
    K = z.shape[1]
    p = z.sigmoid() if several else z.softmax(dim=1)
    sure = torch.maximum(p, 1 - p).amin(dim=1) if several else p.amax(dim=1)
    certain = (sure > SATURATED) & (several or K > 1)
    if rule == "true" and exact >= K:
        if several:
            return torch.diag_embed((p * (1 - p)).sqrt()).transpose(0, 1), certain
        return _factor_fisher(p), certain
    if rule == "true":
        numbers = torch.from_numpy(draws)
        # A class is drawn by where a number from 0 to 1 lies among the cumulated probabilities.
        below = numbers < p if several else p.cumsum(dim=1) < numbers[:, None]
        y = below if several else below.sum(dim=1).clamp(max=K - 1)
    indicators = (y if several else one_hot(y, K)).double()
    return (indicators if rule == "as_released" else indicators - p)[None], certain


def _factor_fisher(p: Float64[Tensor, "e K"]) -> Float64[Tensor, "r e K"]:
    """Return r = K − 1 vectors v with Σ_r v vᵀ = diag(p) − ppᵀ, the Fisher information of logits.

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


# --- Squares of per-example gradients ------------------------------------------------------------


class _SharedCallError(Exception):
    """A layer was called once for the whole batch, so its gradient does not come apart."""


@dataclass(eq=False)
class SquaredGradientSums:
    """Sums over examples of the squares of their own gradients, for some weights of a module.

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
        owners = dict.fromkeys(name.rpartition(".")[0] for name in names)
        layers = {name: model.get_submodule(name) for name in owners}
        known = all(
            # Exactly these: what derives from them may compute something else.
            type(layer) in (nn.Linear, nn.LayerNorm) or _is_transposed(layer) or _is_rms_norm(layer)
            for layer in layers.values()
        )
        sums = {name: torch.zeros_like(model.get_parameter(name)) for name in names}
        return cls(model, sums, layers if known else {})

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
                logits, records = self._watch(forward, rows)
            except _SharedCallError:
                self.layers = {}
            else:
                for v, more in _mark_last(vectors(logits, rows)):
                    torch.autograd.backward(logits, v, retain_graph=more)
                    for record in records:
                        record.add_squares()
                return
        weights = [self.model.get_parameter(name).requires_grad_() for name in self.sums]
        for row in rows:
            logits = forward(row[None])
            for v, more in _mark_last(vectors(logits, row[None])):
                gradients = torch.autograd.grad(
                    logits, weights, v, retain_graph=more, allow_unused=True
                )
                for total, g in zip(self.sums.values(), gradients, strict=True):
                    if g is not None:
                        total.addcmul_(g, g)

    def _watch(
        self, forward: Callable[[Rows], Tensor], rows: Rows
    ) -> tuple[Tensor, list[_LayerRecord]]:
        """Run a batch forward; return its logits, and what was recorded of every layer."""
        records, handles = [], []
        try:
            for name, layer in self.layers.items():
                sums = {key: self.sums[f"{name}.{key}"] for key, _ in layer.named_parameters()}
                records.append(_LayerRecord(layer, sums, *rows.shape))
                handles.append(layer.register_forward_hook(records[-1].record_call))
            return forward(rows), records
        finally:
            for handle in handles:
                handle.remove()


def _mark_last(vectors: Tensor) -> Iterator[tuple[Tensor, bool]]:
    """Yield each vector, and whether another one follows."""
    return zip(vectors, (left > 0 for left in reversed(range(len(vectors)))), strict=True)


def _is_transposed(layer: nn.Module) -> bool:
    """Return whether a layer is linear with its matrix the other way round, as GPT-2's are."""
    return type(layer).__name__ == "Conv1D" and layer.get_parameter("weight").ndim == 2


def _is_rms_norm(layer: nn.Module) -> bool:
    """Return whether a layer scales its input to unit size and then each feature by a weight.

    Every family has a class of its own for it; Gemma's adds 1 to the weight.
    """
    weights = dict(layer.named_parameters())
    named = type(layer).__name__.endswith("RMSNorm")
    return named and list(weights) == ["weight"] and weights["weight"].ndim == 1


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
            # The derivative of the output by the weight is the input at unit size.
            one, zero = (
                torch.func.functional_call(self.layer, {"weight": start}, (a,))
                for start in (torch.ones_like(weight), torch.zeros_like(weight))
            )
            weight.add_(((one - zero) * b).sum(dim=1).square_().sum(dim=0))
        else:
            if _is_transposed(self.layer):
                a, b = b, a
            # One example after another: a gradient that stays in the processor's cache until it
            # is squared costs less than a batched product that goes through the memory.
            g = torch.empty_like(weight)
            for inputs, gradients in zip(a, b, strict=True):
                torch.mm(gradients.T, inputs, out=g)
                weight.addcmul_(g, g)


# --- From amounts of weights to scores of blocks -------------------------------------------------


@dataclass(frozen=True)
class BlockScores:
    """A score of every block, by one head or as the mean over several random ones.

    Attributes:
        values: L + 1 entries; entry 0, the embeddings, is None, and so is what is undefined.
        spread: the standard deviation over the seeds; None where there is a single one.
        by_seed: `values` of each seed.
        notes: how the values are to be read.
        warnings: why they may mean nothing.
    """

    values: Values
    spread: Values
    by_seed: tuple[Values, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def score_blocks(
    amounts: Sequence[Mapping[str, float]],
    blocks: Mapping[str, tuple[int, ...]],
    combine: Callable[[Sequence[float]], float],
    notes: Sequence[str] = (),
) -> BlockScores:
    """Combine the amounts of the weights of each block, and average over seeds.

    Args:
        amounts: of each seed, by the weight's name.
        blocks: those that each weight is of, several where they share it.
        combine: amounts of several weights to a score.
        notes: how the values are to be read.
    """
    by_seed = tuple(_by_block(each, blocks, combine) for each in amounts)
    shared = dict.fromkeys(several for several in blocks.values() if len(several) > 1)
    return BlockScores(
        values=_over_seeds(by_seed, mean),
        spread=_over_seeds(by_seed, lambda v: stdev(v) if len(v) > 1 else None),
        by_seed=by_seed,
        notes=(
            *(f"blocks {ranges(s)} share their weights and have one value" for s in shared),
            *notes,
        ),
    )


def sum_squares(values: Tensor) -> float:
    """Sum squares in float64, on the CPU: some accelerators have no float64."""
    return float(values.cpu().double().square().sum())


def root_of_sum(squares: Sequence[float]) -> float:
    """Return the root of the sum of several squares."""
    return sqrt(sum(squares))


def sum_of_roots(squares: Sequence[float]) -> float:
    """Return the sum of the roots of several squares."""
    return sum(map(sqrt, squares))


def _by_block(
    amounts: Mapping[str, float],
    blocks: Mapping[str, tuple[int, ...]],
    combine: Callable[[Sequence[float]], float],
) -> Values:
    """Combine the amounts of one seed for every block; None where there are none, or not finite."""
    lists: list[list[float]] = [[] for _ in range(max(map(max, blocks.values())) + 1)]
    for name, amount in amounts.items():
        for block in blocks[name]:
            lists[block].append(amount)
    values = [combine(several) if several else None for several in lists]
    return tuple(v if v is not None and isfinite(v) else None for v in values)


def _over_seeds(
    by_seed: Sequence[Values], statistic: Callable[[Sequence[float]], float | None]
) -> Values:
    """Apply a statistic to each entry; undefined where one of the seeds is."""
    entries = []
    for several in zip(*by_seed, strict=True):
        defined = [v for v in several if v is not None]
        entries.append(statistic(defined) if len(defined) == len(several) else None)
    return tuple(entries)
