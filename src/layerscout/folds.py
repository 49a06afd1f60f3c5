"""Canonical correlation and ridge regression, fitted on some folds and tested on others.

Both need (Σ_hh + εI)⁻¹ Σ_hy of every training set and ridge term ε, so they share every
factorisation. The sums of a training set are those of all folds less two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtrs

from layerscout.errors import InputError

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


@dataclass(frozen=True)
class FoldScores:
    """The scores of one state that are fitted and tested on different folds.

    Attributes:
        cca: mean canonical correlation on the test folds; None where it is undefined.
        ridge: class-balanced accuracy of ridge regression on the test folds, R² with numbers;
            None where it is undefined.
    """

    cca: float | None
    ridge: float | None


@dataclass(frozen=True, eq=False)
class _Sums:
    """Weighted sums over the examples of one fold (weights that add up to 1), or of several.

    Attributes:
        weight: Σ w.
        state: Σ w x, (d,).
        target: Σ w t, (T,); t is the one-hot label, or the number.
        scatter: Σ w x xᵀ, (d, d).
        cross: Σ w x tᵀ, (d, T).
    """

    weight: float
    state: Array
    target: Array
    scatter: Array
    cross: Array

    def less(self, first: _Sums, second: _Sums) -> _Sums:
        """Take the examples of two folds out again."""
        return _Sums(
            self.weight - first.weight - second.weight,
            self.state - first.state - second.state,
            self.target - first.target - second.target,
            self.scatter - first.scatter - second.scatter,
            self.cross - first.cross - second.cross,
        )

    def mean_state(self) -> Array:
        return self.state / self.weight

    def mean_target(self) -> Array:
        return self.target / self.weight

    def covariance(self) -> Array:
        mean = self.mean_state()
        return self.scatter / self.weight - np.outer(mean, mean)

    def cross_covariance(self) -> Array:
        return self.cross / self.weight - np.outer(self.mean_state(), self.mean_target())


@dataclass(frozen=True, eq=False)
class _Fold:
    """The examples of one fold.

    Attributes:
        states: less the reference, (n, d).
        labels: class ids (n,), or numbers less their mean (n,).
        weights: (n,), adding up to 1.
        variance: of the target along a direction: 1/K with classes (see `fold_scores`).
        sums: over its examples.
    """

    states: Array
    labels: np.ndarray
    weights: Array
    variance: float
    sums: _Sums


@dataclass(frozen=True, eq=False)
class _Fit:
    """What was fitted on a training set with each of E ridge terms.

    Attributes:
        coefficients: of ridge regression, (d, E, T).
        intercepts: of ridge regression, (E, T).
        of_states: v, the canonical directions of the states, (d, E, J).
        of_targets: w, those of the targets, orthonormal, (T, E, J).
    """

    coefficients: Array
    intercepts: Array
    of_states: Array
    of_targets: Array


def fold_scores(
    H: Float64[np.ndarray, "n d"],
    y: np.ndarray,
    groups: Int64[np.ndarray, " n"],
    *,
    ridge_terms: Sequence[float] = RIDGE_TERMS,
) -> FoldScores:
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

    With F folds and 7 ridge terms it costs n d²/2 + 7F d³/6 multiplications, and about
    (14 n d + 42 F d²) K more, which matter from some tens of classes on. It holds the scatter
    matrices (d, d) of all folds.

    Args:
        H: states (n, d).
        y: class ids, int64 (n,), each of 0..K−1 present, or targets, float64 (n,).
        groups: (n,), ids 0..B−1; examples of one group stay together. Ten folds from ten groups
            on, below that as many folds as groups.
        ridge_terms: the ε to choose from, as shares of trace(Σ_hh)/d; of equally good ones the
            first is taken.

    Returns:
        None for both where all states or all targets are the same.

    Raises:
        InputError: if there are fewer than 2 classes, fewer than 4 folds, or a class is missing in
            a fold.
    """
    rows = _rows_of_folds(y, groups)
    if _same(H) or _same(y):
        return FoldScores(None, None)
    # States far from the origin lose no digits when their mean is taken off first.
    reference = H.mean(axis=0)
    if y.dtype.kind == "f":
        centre = float(y.mean())
        folds = [_fold_of_numbers(H[own] - reference, y[own] - centre) for own in rows]
    else:
        folds = [_fold_of_classes(H[own] - reference, y[own]) for own in rows]
    everything = _total([fold.sums for fold in folds])
    correlations: list[float] = []
    hits: list[float] = []
    for first, second in zip(folds, folds[1:] + folds[:1], strict=True):
        fit = _fit(everything.less(first.sums, second.sums), ridge_terms)
        for score, found in ((_correlations, correlations), (_hits, hits)):
            on_first, on_second = score(first, fit), score(second, fit)
            # Numbers that are all the same in a fold test nothing.
            if first.variance > 0:
                found.append(on_first[_best(on_second)])
            if second.variance > 0:
                found.append(on_second[_best(on_first)])
    return FoldScores(_mean(correlations), _mean(hits))


def _rows_of_folds(y: np.ndarray, groups: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Give the rows of each fold, sorted by label, and check that there are enough of them."""
    numbers = y.dtype.kind == "f"
    B = int(groups.max()) + 1
    fold = groups * FOLDS // B if B >= FOLDS else groups
    F = min(B, FOLDS)
    K = 1 if numbers else int(y.max()) + 1
    if not numbers and K < 2:
        raise InputError("cca and ridge need 2 or more classes, got 1; use other data")
    label = np.zeros(len(y), np.int64) if numbers else y
    counts = np.bincount(fold * K + label, minlength=F * K).reshape(F, K)
    if F < FEWEST_FOLDS or counts.min() == 0:
        smallest = counts.sum(axis=0)
        scarce = f"class {smallest.argmin()} has {smallest.min()}"
        raise InputError(
            f"cca and ridge need {2 * FEWEST_FOLDS} or more examples"
            + (f", got {len(y)}" if numbers else f" of every class, and {scarce}")
            + ("; use more" if numbers else "; use more, or leave rare classes out")
        )
    order = np.lexsort((label, fold))
    return np.split(order, np.cumsum(counts.sum(axis=1))[:-1])


def _fold_of_classes(states: Array, labels: NDArray[np.int64]) -> _Fold:
    """Sum up a fold whose rows are sorted by class, every class present."""
    count = np.bincount(labels)
    K = len(count)
    means = np.add.reduceat(states, np.cumsum(count) - count, axis=0) / count[:, None]
    weights = 1 / (K * count[labels])
    sums = _Sums(1.0, means.mean(axis=0), np.full(K, 1 / K), _scatter(states, weights), means.T / K)
    return _Fold(states, labels, weights, 1 / K, sums)


def _fold_of_numbers(states: Array, numbers: Array) -> _Fold:
    """Sum up a fold whose targets are numbers, each example alike."""
    n = len(numbers)
    weights = np.full(n, 1 / n)
    target = numbers.mean(keepdims=True)
    cross = (numbers @ states)[:, None] / n
    sums = _Sums(1.0, states.mean(axis=0), target, _scatter(states, weights), cross)
    # Exactly 0 where all are the same, which rounding would hide.
    variance = float(numbers.var()) if np.ptp(numbers) > 0 else 0.0
    return _Fold(states, numbers, weights, variance, sums)


def _scatter(states: Array, weights: Array) -> Array:
    scaled = states * np.sqrt(weights)[:, None]
    scatter: Array = scaled.T @ scaled  # a matrix times itself is half the work
    return scatter


def _total(parts: Sequence[_Sums]) -> _Sums:
    return _Sums(
        sum(p.weight for p in parts),
        np.sum([p.state for p in parts], axis=0),
        np.sum([p.target for p in parts], axis=0),
        np.sum([p.scatter for p in parts], axis=0),
        np.sum([p.cross for p in parts], axis=0),
    )


def _fit(train: _Sums, ridge_terms: Sequence[float]) -> _Fit:
    """Solve for ridge regression and for the canonical directions, with every ridge term."""
    covariance, cross = train.covariance(), np.asfortranarray(train.cross_covariance())
    d, T = cross.shape
    J = 1 if T == 1 else min(d, T - 1)
    scale = float(np.trace(covariance)) / d
    coefficients = np.zeros((d, len(ridge_terms), T))
    of_targets = np.zeros((T, len(ridge_terms), J))
    of_states = np.zeros((d, len(ridge_terms), J))
    if scale * d > ROUNDING * float(np.trace(train.scatter)) / train.weight:
        for e, ridge in enumerate(ridge_terms):
            regularised = covariance.copy()
            regularised.flat[:: d + 1] += ridge * scale
            # Symmetric, so its transpose is the column order that the solver wants.
            factor, failed = dpotrf(regularised.T, lower=1, clean=0, overwrite_a=1)
            if failed:  # not positive definite by rounding: as if nothing were found
                continue
            whitened, _ = dtrtrs(factor, cross, lower=1)
            solution, _ = dtrtrs(factor, whitened, lower=1, trans=1)
            directions = _target_directions(whitened, J)
            coefficients[:, e] = solution
            of_targets[:, e] = directions
            of_states[:, e] = solution @ directions
    intercepts = train.mean_target() - np.tensordot(train.mean_state(), coefficients, axes=1)
    return _Fit(coefficients, intercepts, of_states, of_targets)


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


def _correlations(fold: _Fold, fit: _Fit) -> Array:
    """Give the mean correlation of the canonical pairs on a fold, for every ridge term (E,)."""
    d, E, J = fit.of_states.shape
    v = fit.of_states.reshape(d, E * J)
    sums = fold.sums
    variance = (v * (sums.scatter @ v)).sum(axis=0) - (sums.mean_state() @ v) ** 2
    variance = variance.reshape(E, J)
    along = (v.T @ sums.cross_covariance()).reshape(E, J, -1)
    covariance = np.einsum("ejt,tej->ej", along, fit.of_targets)
    lengths = (v**2).sum(axis=0).reshape(E, J)
    seen = variance > ROUNDING * float(np.trace(sums.scatter)) * lengths
    # w has length 1 and is orthogonal to the vector of ones, or it is one number.
    deviations = np.sqrt(np.where(seen, variance, 1.0) * (fold.variance or 1.0))
    correlations: Array = np.where(seen, covariance / deviations, 0.0).clip(-1, 1).mean(axis=1)
    return correlations


def _hits(fold: _Fold, fit: _Fit) -> Array:
    """Give the class-balanced accuracy, or R², on a fold, for every ridge term (E,)."""
    d, E, T = fit.coefficients.shape
    predictions = fold.states @ fit.coefficients.reshape(d, E * T)
    predictions = predictions.reshape(-1, E, T) + fit.intercepts
    if fold.labels.dtype.kind == "f":
        errors = fold.weights @ (predictions[:, :, 0] - fold.labels[:, None]) ** 2
        found: Array = 1 - errors / (fold.variance or 1.0)
    else:
        found = fold.weights @ (predictions.argmax(axis=2) == fold.labels[:, None])
    return found


def _best(scores: Array) -> int:
    """Give the first of the best scores, whatever order they were summed in."""
    return int(np.round(scores, 9).argmax())


def _mean(values: Sequence[float]) -> float | None:
    mean = float(np.mean(values)) if values else None
    return mean if mean is not None and np.isfinite(mean) else None


def _same(rows: np.ndarray) -> bool:
    return bool((rows[-1] == rows[0]).all() and (rows[0] == rows).all())
