"""Canonical correlation and ridge regression, fitted on some folds and tested on others.

Both need (Σ_hh + εI)⁻¹ Σ_hy of every training set and ridge term ε. The sums of a training set are
those of all folds less two, and its Σ_hh is made tridiagonal once, for all ridge terms.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from layerscout.runtime import InputError
from layerscout.scores.moments import Centred
from layerscout.scores.tridiagonal import Tridiagonal

Array = NDArray[np.float64]

FOLDS = 10
# One fold to test on, one to develop on, two or more to fit on.
FEWEST_FOLDS = 4
# Shares of trace(Σ_hh)/d. The strongest first, so that it wins ties.
RIDGE_TERMS = tuple(10.0**exponent for exponent in range(0, -7, -1))
# Canonical correlations are found as squares; below this share of the largest they are rounding.
WEAKEST = 1e-12
# Variances below this share of what they are computed from are rounding.
ROUNDING = 1e-14
# Examples of a class in a fold, on average, from which on their scatter is summed up by itself.
LARGE_PART = 64


@dataclass(frozen=True, eq=False)
class FoldScores:
    """The scores of one state that are fitted and tested on different folds.

    Attributes:
        cca: mean canonical correlation on the test folds; None where it is undefined.
        ridge: class-balanced accuracy of ridge regression on the test folds, R² with numbers;
            None where it is undefined.
        class_scatters: Σ x xᵀ over the examples of each class, about the mean of all, (K, d, d),
            of which only the upper triangles are there: what was summed up on the way and other
            scores need, too. None where it was not.
    """

    cca: float | None
    ridge: float | None
    class_scatters: Float64[np.ndarray, "K d d"] | None = None


@dataclass(frozen=True, eq=False)
class _Sums:
    """Weighted sums over the examples of one fold (weights that add up to 1), or of several.

    Attributes:
        weight: Σ w.
        state: Σ w x, (d,).
        target: Σ w t, (T,); t is the one-hot label, or the number.
        scatter: Σ w x xᵀ, (d, d), of which only the upper triangle is there.
        cross: Σ w x tᵀ, (d, T).
    """

    weight: float
    state: Array
    target: Array
    scatter: Array
    cross: Array

    def less(self, first: _Sums, second: _Sums) -> _Sums:
        """Take the examples of two folds out again."""
        scatter = self.scatter - first.scatter
        scatter -= second.scatter
        return _Sums(
            self.weight - first.weight - second.weight,
            self.state - first.state - second.state,
            self.target - first.target - second.target,
            scatter,
            self.cross - first.cross - second.cross,
        )

    def mean_state(self) -> Array:
        return self.state / self.weight

    def mean_target(self) -> Array:
        return self.target / self.weight

    def covariance(self) -> Array:
        """Give the upper triangle of the covariance of the states."""
        mean = self.mean_state()
        covariance = self.scatter / self.weight
        covariance -= np.outer(mean, mean)
        return covariance

    def cross_covariance(self) -> Array:
        return self.cross / self.weight - np.outer(self.mean_state(), self.mean_target())


@dataclass(frozen=True, eq=False)
class _Fold:
    """The examples of one fold.

    Attributes:
        states: less the reference, (n, d).
        labels: class ids (n,), or numbers less their mean (n,).
        weights: (n,), adding up to 1.
        targets: w t of every example, (T, n).
        variance: of the target along a direction: 1/K with classes (see `fold_scores`).
        size: Σ w ‖x‖².
        sums: over its examples.
    """

    states: Array
    labels: np.ndarray
    weights: Array
    targets: Array
    variance: float
    size: float
    sums: _Sums


@dataclass(frozen=True, eq=False)
class _Fit:
    """What was fitted on a training set with each of E ridge terms.

    Attributes:
        coefficients: of ridge regression, (E, T, d).
        intercepts: of ridge regression, (E, T).
        directions: w, the canonical directions of the targets, orthonormal, (E, J, T). Those of
            the states, v, are these times the coefficients.
        lengths: ‖v‖², (E, J).
    """

    coefficients: Array
    intercepts: Array
    directions: Array
    lengths: Array


def fold_scores(states: Centred, *, ridge_terms: Sequence[float] = RIDGE_TERMS) -> FoldScores:
    """Score one state by canonical correlation with the labels and by ridge regression on them.

    Xie et al. 2022, App. C.7. Rotation f tests on fold f, chooses the ridge term ε on fold f + 1
    and is fitted on the others. With the same training set it also tests on f + 1 and chooses on
    f, in place of the repeats of the paper. A score is the mean over all these tests.

    Every class weighs alike in every fold (1/(K n_k) for an example of class k, of which the fold
    has n_k), in place of drawing as many examples of each: the same target, and no example is
    thrown away. In every training set Σ_yy is then (I − 11ᵀ/K)/K exactly, which a ridge term of
    its own only multiplies by a number: unlike in the paper, there is none to choose, because none
    would change a direction, be it with classes or with numbers.

    `cca` is the mean of the signed correlations of vᵀh and wᵀy over all canonical pairs but the
    last, which one-hot labels do not have: the K − 1 first, or d if that is less; with numbers,
    the only one. A pair that the training set does not have (a state of low rank) counts 0.
    `ridge` regresses the one-hot label on the state, with an intercept, and takes the largest; with
    numbers it is 1 − SSE/SST, SST about the mean of the test fold.

    With F folds and 7 ridge terms it costs n d²/2 + 2F d³/3 multiplications, and about
    (15 n d + 16 F d²) K more, which matter from some tens of classes on. It holds the scatter
    matrices (d, d) of all folds and, with large classes, of those.

    Args:
        states: of n examples, in groups that stay together. Ten folds from ten groups on, below
            that as many folds as groups.
        ridge_terms: the ε to choose from, as shares of trace(Σ_hh)/d; of equally good ones the
            first is taken.

    Returns:
        None for both where all states or all targets are the same.

    Raises:
        InputError: if there are fewer than 2 classes, fewer than 4 folds, or a class is missing in
            a fold.
    """
    counts = _counts(states)
    if states.same or np.ptp(states.labels) == 0:
        return FoldScores(None, None)
    ends = np.cumsum(counts.sum(axis=1))
    rows = [slice(*pair) for pair in itertools.pairwise([0, *ends])]
    scatters, of_classes = _scatters(states, rows, counts)
    folds = [_fold(states, own, scatter) for own, scatter in zip(rows, scatters, strict=True)]
    everything = _total([fold.sums for fold in folds])
    correlations: list[float] = []
    hits: list[float] = []
    for first, second in zip(folds, folds[1:] + folds[:1], strict=True):
        fit = _fit(everything.less(first.sums, second.sums), ridge_terms)
        for found, on_first, on_second in zip(
            (correlations, hits), _tested(first, fit), _tested(second, fit), strict=True
        ):
            # Numbers that are all the same in a fold test nothing.
            if first.variance > 0:
                found.append(on_first[_best(on_second)])
            if second.variance > 0:
                found.append(on_second[_best(on_first)])
    return FoldScores(_mean(correlations), _mean(hits), of_classes)


def _fold_of_groups(states: Centred) -> NDArray[np.int64]:
    """Give the fold of each group, (B,), in ascending order."""
    B = len(states.sizes)
    return np.arange(B) * FOLDS // B if B >= FOLDS else np.arange(B)


def _counts(states: Centred) -> NDArray[np.int64]:
    """Count the examples of each class in each fold (F, K), and check that they are enough."""
    numbers = states.labels.dtype.kind == "f"
    fold = _fold_of_groups(states)
    counts = np.add.reduceat(states.sizes, np.unique(fold, return_index=True)[1], axis=0)
    if not numbers and counts.shape[1] < 2:
        raise InputError("cca and ridge need 2 or more classes, got 1; use other data")
    if len(counts) < FEWEST_FOLDS or counts.min() == 0:
        smallest = counts.sum(axis=0)
        scarce = f"class {smallest.argmin()} has {smallest.min()}"
        raise InputError(
            f"cca and ridge need {2 * FEWEST_FOLDS} or more examples"
            + (f", got {smallest.sum()}" if numbers else f" of every class, and {scarce}")
            + ("; use more" if numbers else "; use more, or leave rare classes out")
        )
    return counts


def _weights(states: Centred, own: slice) -> Array:
    """Weigh the examples of a fold: classes alike, every one of them present, or numbers."""
    labels = states.labels[own]
    if labels.dtype.kind == "f":
        return np.full(len(labels), 1 / len(labels))
    count = np.bincount(labels)
    weights: Array = (1 / (len(count) * count))[labels]
    return weights


def _scatters(
    states: Centred, rows: Sequence[slice], counts: NDArray[np.int64]
) -> tuple[Array, Array | None]:
    """Sum up Σ w x xᵀ of every fold (F, d, d) and, if it is no detour, Σ x xᵀ of every class."""
    (F, K), (n, d) = counts.shape, states.rows.shape
    of_folds = np.zeros((F, d, d))
    if states.labels.dtype.kind == "f" or n < max(LARGE_PART * F * K, K * d):
        for scatter, own in zip(of_folds, rows, strict=True):
            _add_scatter(scatter, states.rows[own] * np.sqrt(_weights(states, own))[:, None])
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


def _fold(states: Centred, own: slice, scatter: Array) -> _Fold:
    """Sum up a fold."""
    rows, labels, weights = states.rows[own], states.labels[own], _weights(states, own)
    if labels.dtype.kind == "f":
        labels = labels - states.labels.mean()
        targets = (weights * labels)[None]
        # Exactly 0 where all are the same, which rounding would hide.
        variance = float(labels.var()) if np.ptp(labels) > 0 else 0.0
    else:
        K = states.sizes.shape[1]
        targets, variance = np.zeros((K, len(rows))), 1 / K
        targets[labels, np.arange(len(rows))] = weights
    sums = _Sums(1.0, weights @ rows, targets.sum(axis=1), scatter, (targets @ rows).T)
    size = float(weights @ states.squares[own])
    return _Fold(rows, labels, weights, targets, variance, size, sums)


def _total(parts: Sequence[_Sums]) -> _Sums:
    return _Sums(
        sum(p.weight for p in parts),
        sum(p.state for p in parts[1:]) + parts[0].state,
        sum(p.target for p in parts[1:]) + parts[0].target,
        sum(p.scatter for p in parts[1:]) + parts[0].scatter,
        sum(p.cross for p in parts[1:]) + parts[0].cross,
    )


def _fit(train: _Sums, ridge_terms: Sequence[float]) -> _Fit:
    """Solve for ridge regression and for the canonical directions, with every ridge term."""
    covariance, cross = train.covariance(), train.cross_covariance()
    (d, T), E = cross.shape, len(ridge_terms)
    J = 1 if T == 1 else min(d, T - 1)
    scale = float(np.trace(covariance)) / d
    solutions, directions = np.zeros((E, T, d)), np.zeros((E, J, T))
    lengths = np.zeros((E, J))
    if scale * d > ROUNDING * float(np.trace(train.scatter)) / train.weight:
        reduced = Tridiagonal.of(covariance)
        cross = reduced.turned(cross)
        for e, ridge in enumerate(ridge_terms):
            solved = reduced.solved(ridge * scale, cross)
            if solved is None:  # not positive definite by rounding: as if nothing were found
                continue
            whitened, solution = solved
            solutions[e] = solution.T
            directions[e] = _target_directions(whitened, J).T
            lengths[e] = ((directions[e] @ solutions[e]) ** 2).sum(axis=1)
        turned = reduced.turned(solutions.reshape(E * T, d).T, back=True)
        solutions = turned.T.reshape(E, T, d)
    intercepts = train.mean_target() - solutions @ train.mean_state()
    return _Fit(solutions, intercepts, directions, lengths)


def _target_directions(whitened: Array, J: int) -> Array:
    """Give the first J right singular vectors (T, J) of a d × T matrix; 0 where there is none."""
    d, T = whitened.shape
    if d >= T:
        squares, vectors = np.linalg.eigh(whitened.T @ whitened)
        squares, vectors = squares[::-1][:J], vectors[:, ::-1][:, :J]
    else:
        squares, vectors = np.linalg.eigh(whitened @ whitened.T)
        squares, vectors = squares[::-1][:J], whitened.T @ vectors[:, ::-1][:, :J]
        vectors /= np.sqrt(np.maximum(squares, np.finfo(float).tiny))
    found: Array = np.where(squares > WEAKEST * squares[0], vectors, 0.0)
    return found


def _tested(fold: _Fold, fit: _Fit) -> tuple[Array, Array]:
    """Test on a fold what was fitted with every ridge term.

    Returns:
        The mean correlation of the canonical pairs (E,), and the class-balanced accuracy, or R²
        (E,).
    """
    E, T, d = fit.coefficients.shape
    found = (fit.coefficients.reshape(E * T, d) @ fold.states.T).reshape(E, T, -1)
    return _correlations(fold, fit, found), _hits(fold, found + fit.intercepts[:, :, None])


def _correlations(fold: _Fold, fit: _Fit, found: Array) -> Array:
    variates = fit.directions @ found  # vᵀx, (E, J, n)
    variates -= (variates @ fold.weights)[:, :, None]
    variance = variates**2 @ fold.weights  # (E, J)
    covariance = ((variates @ fold.targets.T) * fit.directions).sum(axis=2)
    seen = variance > ROUNDING * fold.size * fit.lengths
    # w has length 1 and is orthogonal to the vector of ones, or it is one number.
    deviations = np.sqrt(np.where(seen, variance, 1.0) * (fold.variance or 1.0))
    correlations: Array = np.where(seen, covariance / deviations, 0.0).clip(-1, 1).mean(axis=1)
    return correlations


def _hits(fold: _Fold, predictions: Array) -> Array:
    if fold.labels.dtype.kind == "f":
        errors = (predictions[:, 0] - fold.labels) ** 2 @ fold.weights
        determination: Array = 1 - errors / (fold.variance or 1.0)
        return determination
    hits: Array = (predictions.argmax(axis=1) == fold.labels) @ fold.weights
    return hits


def _best(scores: Array) -> int:
    """Give the first of the best scores, whatever order they were summed in."""
    return int(np.round(scores, 9).argmax())


def _mean(values: Sequence[float]) -> float | None:
    mean = float(np.mean(values)) if values else None
    return mean if mean is not None and np.isfinite(mean) else None
