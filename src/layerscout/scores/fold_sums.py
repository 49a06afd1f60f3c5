"""Folds of examples and their weighted sums, from which those of every training set follow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from layerscout.runtime import InputError
from layerscout.scores.moments import Centred
from layerscout.scores.score import FEWEST_FOLDS

Array = NDArray[np.float64]

# Xie et al. 2022, App. C.7: eight to fit on, one to develop on, one to test on.
FOLDS = 10
# Examples of a class in a fold, on average, from which on their scatter is summed up by itself.
LARGE_PART = 64


@dataclass(frozen=True, eq=False)
class Sums:
    """Weighted sums over the examples of one fold (weights that add up to 1), or of several.

    Attributes:
        weight: Σ w.
        state: Σ w x, (d,).
        target: Σ w t, (T,); t is the one-hot label, or 1 for each label of several, or the number.
        scatter: Σ w x xᵀ, (d, d), of which only the upper triangle is there.
        cross: Σ w x tᵀ, (d, T).
        square: Σ w t tᵀ, (T, T).
    """

    weight: float
    state: Array
    target: Array
    scatter: Array
    cross: Array
    square: Array

    def less(self, first: Sums, second: Sums) -> Sums:
        """Take the examples of two folds out again."""
        scatter = self.scatter - first.scatter
        scatter -= second.scatter
        return Sums(
            self.weight - first.weight - second.weight,
            self.state - first.state - second.state,
            self.target - first.target - second.target,
            scatter,
            self.cross - first.cross - second.cross,
            self.square - first.square - second.square,
        )

    def mean_state(self) -> Array:
        """Give the mean state, (d,)."""
        return self.state / self.weight

    def mean_target(self) -> Array:
        """Give the mean target, (T,)."""
        return self.target / self.weight

    def covariance(self) -> Array:
        """Give the upper triangle of the covariance of the states."""
        mean = self.mean_state()
        covariance = self.scatter / self.weight
        covariance -= np.outer(mean, mean)
        return covariance

    def cross_covariance(self) -> Array:
        """Give the covariance of states and targets, (d, T)."""
        return self.cross / self.weight - np.outer(self.mean_state(), self.mean_target())

    def target_covariance(self) -> Array:
        """Give the covariance of the targets, (T, T)."""
        mean = self.mean_target()
        covariance: Array = self.square / self.weight - np.outer(mean, mean)
        return covariance


@dataclass(frozen=True, eq=False)
class Fold:
    """The examples of one fold.

    Attributes:
        states: less the reference, (n, d).
        labels: class ids (n,), or numbers less their mean (n,), or 0 and 1 for K labels (n, K).
        weights: (n,), adding up to 1.
        targets: w t of every example, (T, n).
        variance: of the target along a direction: 1/K with classes (see `folds.score_folds`); with
            several labels, that of each over the examples of all folds (K,).
        size: Σ w ‖x‖².
        sums: over its examples.
    """

    states: Array
    labels: np.ndarray
    weights: Array
    targets: Array
    variance: float | Array
    size: float
    sums: Sums


def _fold_of_groups(states: Centred) -> NDArray[np.int64]:
    """Give the fold of each group, (B,), in ascending order."""
    B = len(states.sizes)
    return np.arange(B) * FOLDS // B if B >= FOLDS else np.arange(B)


def count_folds(states: Centred) -> NDArray[np.int64]:
    """Count the examples of each class in each fold, (F, K).

    Raises:
        InputError: if there are fewer than 2 classes, fewer than 4 folds, or a class is missing in
            a fold.
    """
    alike = states.labels.dtype.kind in "fb"
    fold = _fold_of_groups(states)
    counts = np.add.reduceat(states.sizes, np.unique(fold, return_index=True)[1], axis=0)
    if not alike and counts.shape[1] < 2:
        raise InputError("cca and ridge need 2 or more classes, got 1; use other data")
    if len(counts) < FEWEST_FOLDS or counts.min() == 0:
        smallest = counts.sum(axis=0)
        scarce = f"class {smallest.argmin()} has {smallest.min()}"
        raise InputError(
            f"cca and ridge need {2 * FEWEST_FOLDS} or more examples"
            + (f", got {smallest.sum()}" if alike else f" of every class, and {scarce}")
            + ("; use more" if alike else "; use more, or leave rare classes out")
        )
    return counts


def make_folds(states: Centred, counts: NDArray[np.int64]) -> tuple[list[Fold], Array | None]:
    """Sum up every fold; `counts` as of `count_folds`.

    Returns:
        The folds and, if it is no detour, Σ x xᵀ over the examples of each class (K, d, d), of
        which only the upper triangles are there.
    """
    ends = np.cumsum(counts.sum(axis=1))
    rows = [slice(*pair) for pair in itertools.pairwise([0, *ends])]
    scatters, of_classes = _sum_scatters(states, rows, counts)
    folds = [_sum_up(states, own, scatter) for own, scatter in zip(rows, scatters, strict=True)]
    return folds, of_classes


def _weigh(states: Centred, own: slice) -> Array:
    """Weigh the examples of a fold: classes alike, every one of them present, or examples."""
    labels = states.labels[own]
    if labels.dtype.kind in "fb":
        return np.full(len(labels), 1 / len(labels))
    count = np.bincount(labels)
    weights: Array = (1 / (len(count) * count))[labels]
    return weights


def _sum_scatters(
    states: Centred, rows: Sequence[slice], counts: NDArray[np.int64]
) -> tuple[Array, Array | None]:
    """Sum up Σ w x xᵀ of every fold (F, d, d) and, if it is no detour, Σ x xᵀ of every class."""
    (F, K), (n, d) = counts.shape, states.rows.shape
    of_folds = np.zeros((F, d, d))
    if states.labels.dtype.kind in "fb" or n < max(LARGE_PART * F * K, K * d):
        for scatter, own in zip(of_folds, rows, strict=True):
            _add_scatter(scatter, states.rows[own] * np.sqrt(_weigh(states, own))[:, None])
        return of_folds, None
    of_classes, part = np.zeros((K, d, d)), np.empty((d, d))
    blocks = np.split(states.rows, np.cumsum(states.sizes)[:-1])  # of each class in each group
    fold = _fold_of_groups(states)
    for f, k in np.ndindex(F, K):
        part[:] = 0
        for group in np.flatnonzero(fold == f):
            _add_scatter(part, blocks[group * K + k])
        of_classes[k] += part
        part /= K * counts[f, k]
        of_folds[f] += part
    return of_folds, of_classes


def _add_scatter(scatter: Array, rows: Array) -> None:
    """Add Σ x xᵀ of some rows to the upper triangle of a matrix, in place."""
    # Transposed, it is in the column order of BLAS, which then fills the lower triangle.
    dsyrk(1.0, rows.T, beta=1.0, c=scatter.T, overwrite_c=1, lower=1)


def _sum_up(states: Centred, own: slice, scatter: Array) -> Fold:
    """Sum up a fold."""
    rows, labels, weights = states.rows[own], states.labels[own], _weigh(states, own)
    variance: float | Array
    if labels.dtype.kind == "f":
        labels = labels - states.labels.mean()
        targets = (weights * labels)[None]
        # Exactly 0 where all are the same, which rounding would hide.
        variance = float(labels.var()) if np.ptp(labels) > 0 else 0.0
        square = (targets @ labels)[:, None]
    elif labels.dtype.kind == "b":
        labels, share = labels.astype(np.float64), states.labels.mean(axis=0)
        targets, variance = weights * labels.T, share * (1 - share)
        square = targets @ labels
    else:
        K = states.sizes.shape[1]
        targets, variance = np.zeros((K, len(rows))), 1 / K
        targets[labels, np.arange(len(rows))] = weights
        square = np.diag(targets.sum(axis=1))
    sums = Sums(1.0, weights @ rows, targets.sum(axis=1), scatter, (targets @ rows).T, square)
    size = float(weights @ states.squares[own])
    return Fold(rows, labels, weights, targets, variance, size, sums)


def add_up(parts: Sequence[Sums]) -> Sums:
    """Add up the sums of several folds."""
    return Sums(
        sum(p.weight for p in parts),
        sum(p.state for p in parts[1:]) + parts[0].state,
        sum(p.target for p in parts[1:]) + parts[0].target,
        sum(p.scatter for p in parts[1:]) + parts[0].scatter,
        sum(p.cross for p in parts[1:]) + parts[0].cross,
        sum(p.square for p in parts[1:]) + parts[0].square,
    )
