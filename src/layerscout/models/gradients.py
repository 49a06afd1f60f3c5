"""Scores of blocks from the gradients of a classification model: Fisher, gradient norm, saliency.

All of them look at the model as fine-tuning would find it: the pretrained blocks under the head as
the library loads it, which is random in part or in whole. So is, then, the ranking of the blocks;
several seeds show by how much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import Literal

import torch
from torch import Tensor

from layerscout.data import Kind, Split
from layerscout.models.block_scores import BlockScores, score_blocks
from layerscout.models.encoder import Encoder
from layerscout.models.gradient_batches import prepare_batches, refusing_too_large
from layerscout.models.per_example_gradients import SquaredGradientSums
from layerscout.runtime import make_unknown_error

Mode = Literal["true", "empirical"]


def fisher(
    encoder: Encoder,
    split: Split,
    labels: Sequence[str],
    *,
    kind: Kind = "classification",
    mode: Mode = "true",
    as_released: bool = False,
    seeds: Sequence[int] = (0,),
    parts: bool = False,
    max_length: int = 128,
    progress: Callable[[int, int], None] | None = None,
) -> BlockScores:
    """Score blocks by the diagonal of the Fisher information, √Σ_θ F_θθ² over a block's weights.

    F_θθ = E_x E_y (∂ log p(y|x)/∂θ)²: gradients are squared example by example, then averaged.
    With mode "true", y comes from the model: the expectation is exact for up to 10 labels (and for
    regression), otherwise one label is drawn for each example. With mode "empirical", y is given.
    Regression has a Gaussian of unit variance about the output, multiple choice a softmax over the
    choices of an example. Several labels of an example are independent of each other, and exact for
    up to 32. Padding is masked. Lodha et al. 2023, §3.1.

    Args:
        encoder: not changed.
        split: the held-out examples; all of them are used.
        labels: names of the classes or labels by id; not looked at for other kinds of tasks.
        kind: of the task.
        mode: where y comes from.
        as_released: what the paper's released code computes, whatever the mode: the gradient of
            the given labels' raw logits (regression: of the output), and for a block the sum over
            its tensors of the norm of each one's diagonal. That code also let the padding take
            part, read one example all over, and gave the model no token types, so that both texts
            of a pair were read as the first one; these faults are not repeated.
        seeds: of the random part of the head, and of the labels drawn.
        parts: score the parts of each block too.
        max_length: tokens that are kept of an input.
        progress: called with how many examples are done, and of how many.

    Raises:
        InputError: if labels, targets or groups do not fit the kind of task, an argument is
            unknown, or the device's memory does not hold a batch.
    """
    if mode not in ("true", "empirical"):
        raise make_unknown_error("Fisher mode", mode, ("true", "empirical"))
    rule = "as_released" if as_released else mode
    work = prepare_batches(encoder, split, labels, kind, rule, seeds, max_length, progress)
    amounts = []
    for seed in seeds:
        model, weights = work.make_model(seed)
        sums = SquaredGradientSums.of(model, list(weights))
        draws = work.draw(seed)
        with refusing_too_large(encoder):
            for rows in work.batches:
                sums.add(partial(work.logits, model), partial(work.vectors, draws=draws), rows)
        mean_squares = {name: total / work.examples for name, total in sums.sums.items()}
        amounts.append({name: _square_sum(F) for name, F in mean_squares.items()})
    notes, most = [], max(work.options)
    if rule == "true" and most > work.most_exact:
        drawn = (
            "each is drawn for each example" if work.several else "one is drawn for each example"
        )
        if kind == "token_classification":
            drawn = "one is drawn for each word"
        notes.append(
            f"with {most} labels, {drawn}; the sum over all is taken for up to {work.most_exact}"
        )
    combine = _sum_of_roots if as_released else _root
    scores = score_blocks(model, amounts, combine, parts=parts, notes=notes)
    return replace(scores, warnings=tuple(work.explain_doubts(scores.values[1:])))


def gradient_scores(
    encoder: Encoder,
    split: Split,
    labels: Sequence[str],
    *,
    kind: Kind = "classification",
    seeds: Sequence[int] = (0,),
    parts: bool = False,
    max_length: int = 128,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, BlockScores]:
    """Score blocks by the gradient g of the mean loss over all examples, from one backward pass.

    "gradient_norm" is ‖g‖₂ over a block's weights, "saliency" Σ_θ |g_θ θ|. The loss is −log p of
    the given labels, with p as for `fisher`: cross-entropy (of several labels their sum), or half
    the squared error.

    Args:
        encoder: not changed.
        split: the held-out examples; all of them are used.
        labels: names of the classes or labels by id; not looked at for other kinds of tasks.
        kind: of the task.
        seeds: of the random part of the head.
        parts: score the parts of each block too.
        max_length: tokens that are kept of an input.
        progress: called with how many examples are done, and of how many.

    Returns:
        The scores, under "gradient_norm" and "saliency".

    Raises:
        InputError: as `fisher`.
    """
    work = prepare_batches(encoder, split, labels, kind, "empirical", seeds, max_length, progress)
    norms, saliencies = [], []
    for seed in seeds:
        model, weights = work.make_model(seed)
        for weight in weights.values():
            weight.requires_grad_()
        with refusing_too_large(encoder):
            for rows in work.batches:
                logits = work.logits(model, rows)
                (v,) = work.vectors(logits, rows)  # of log p, which the loss is the negative of
                torch.autograd.backward(logits, -v / work.examples)
        known = [(name, w.detach(), w.grad) for name, w in weights.items()]
        norms.append({name: _square_sum(g) for name, _, g in known if g is not None})
        saliencies.append({name: _sum((g * w).abs()) for name, w, g in known if g is not None})
    found = {
        "gradient_norm": score_blocks(model, norms, _root, parts=parts),
        "saliency": score_blocks(model, saliencies, sum, parts=parts),
    }
    return {
        key: replace(scores, warnings=tuple(work.explain_doubts(scores.values[1:])))
        for key, scores in found.items()
    }


def _root(squares: Sequence[float]) -> float:
    return sqrt(sum(squares))


def _sum_of_roots(squares: Sequence[float]) -> float:
    return sum(map(sqrt, squares))


def _sum(values: Tensor) -> float:
    """Sum in float64, on the CPU: some accelerators have no float64."""
    return float(values.cpu().double().sum())


def _square_sum(values: Tensor) -> float:
    return float(values.cpu().double().square().sum())
