"""Canonical correlation and ridge regression, fitted on some folds and tested on others.

Both need (Σ_hh + εI)⁻¹ Σ_hy of every training set and ridge term ε. The sums of a training set are
those of all folds less two, and its Σ_hh is made tridiagonal once, for all ridge terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from layerscout.errors import InputError
from layerscout.scores.grouping import whiten_labels
from layerscout.scores.moments import Centred
from layerscout.scores.score import FEWEST_FOLDS, ROUNDING
from layerscout.scores.tridiagonal import Tridiagonal

Array = NDArray[np.float64]

# Xie et al. 2022, App. C.7: eight to fit on, one to develop on, one to test on.
FOLDS = 10
# Shares of trace(Σ_hh)/d, Xie et al. 2022, App. C.7. The strongest first, so that it wins ties. A
# coarser grid was tried to save time and changed the best state on CoLA and MRPC.
RIDGE_TERMS = tuple(10.0**exponent for exponent in range(0, -7, -1))
# Canonical correlations are found as squares; below this share of the largest they are rounding.
WEAKEST = 1e-12


class FoldScores(NamedTuple):
    """The scores of one state that are fitted and tested on different folds.

    Attributes:
        cca: mean canonical correlation on the test folds; None where it is undefined.
        ridge: class-balanced accuracy of ridge regression on the test folds, R² with numbers or
            several labels; None where it is undefined.
    """

    cca: float | None
    ridge: float | None


def score_folds(states: Centred, *, ridge_terms: Sequence[float] = RIDGE_TERMS) -> FoldScores:
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

    With several labels for an example, examples weigh alike, and Σ_yy is that of the training set:
    canonical directions lie where it is not singular, so labels that are constant there drop out,
    and the pairs are as many as its rank, or d. `ridge` is the mean over the labels of R². Its SST
    is that of all examples, in proportion: a test fold may hold no example of a rare label, whose
    own SST is then 0, and accuracy at a threshold would say of such a label that it never occurs.

    With F folds and 7 ridge terms it costs n d²/2 + 2F d³/3 multiplications, and about
    (15 n d + 16 F d²) K more, which matter from some tens of classes on. It holds the scatter
    matrices (d, d) of all folds.

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
    counts = _count_folds(states)
    if states.same or (states.labels == states.labels[0]).all():
        return FoldScores(None, None)
    F, K = counts.shape
    alike, several = states.labels.dtype.kind in "fb", states.labels.dtype.kind == "b"
    fold_of_row = np.repeat(np.arange(F), counts.sum(axis=1))
    weights = (1 / (K * counts))[fold_of_row, 0 if alike else states.labels]
    ends = np.cumsum(counts.sum(axis=1)).tolist()
    rows = [slice(*pair) for pair in pairwise([0, *ends])]
    folds = [_sum_up(states, own, weights[own]) for own in rows]
    sums = [fold.sums for fold in folds]
    everything = [reduce(add, parts) for parts in zip(*sums[1:], sums[0], strict=True)]
    correlations: list[float] = []
    hits: list[float] = []
    for first, second in zip(folds, folds[1:] + folds[:1], strict=True):
        parts = zip(everything, first.sums, second.sums, strict=True)
        train = _Sums(*(whole - a - b for whole, a, b in parts))
        fit = _fit(
            train, ridge_terms, whiten_labels(_target_covariance(train)) if several else None
        )
        for results, on_first, on_second in zip(
            (correlations, hits), _test(first, fit), _test(second, fit), strict=True
        ):
            # Numbers that are all the same in a fold test nothing.
            if np.any(first.variance):
                results.append(on_first[_best(on_second)])
            if np.any(second.variance):
                results.append(on_second[_best(on_first)])
    means = (float(np.mean(results)) if results else None for results in (correlations, hits))
    return FoldScores(*means)


# --- Folds and their sums ----------------------------------------------------------------------


class _Sums(NamedTuple):
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


def _target_covariance(sums: _Sums) -> Array:
    """Return the covariance of the targets, (T, T)."""
    mean = sums.target / sums.weight
    return sums.square / sums.weight - np.outer(mean, mean)


class _Fold(NamedTuple):
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
    sums: _Sums


def _count_folds(states: Centred) -> NDArray[np.int64]:
    """Return how many examples of each class a fold, of consecutive groups, has (F, K).

    Raises:
        InputError: if there are fewer than 2 classes, fewer than 4 folds, or a class is missing in
            a fold.
    """
    B, alike = len(states.sizes), states.labels.dtype.kind in "fb"
    fold_of_group = np.arange(B) * FOLDS // B if B >= FOLDS else np.arange(B)
    starts = np.unique(fold_of_group, return_index=True)[1]
    counts: NDArray[np.int64] = np.add.reduceat(states.sizes, starts, axis=0)
    if not alike and counts.shape[1] < 2:
        raise InputError("cca and ridge need 2 or more classes, got 1; use other data")
    if len(counts) < FEWEST_FOLDS or counts.min() == 0:
        total = counts.sum(axis=0)
        have = f", got {total[0]}; use more"
        if not alike:
            scarce = f"class {total.argmin()} has {total.min()}"
            have = f" of every class, and {scarce}; use more, or leave rare classes out"
        raise InputError(f"cca and ridge need {2 * FEWEST_FOLDS} or more examples{have}")
    return counts


def _sum_up(states: Centred, own: slice, weights: Array) -> _Fold:
    """Sum up a fold."""
    rows, labels = states.rows[own], states.labels[own]
    # Transposed, it is in the column order of BLAS, which then fills the lower triangle.
    scatter = dsyrk(1.0, (rows * np.sqrt(weights)[:, None]).T, lower=1).T
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
    sums = _Sums(1.0, weights @ rows, targets.sum(axis=1), scatter, (targets @ rows).T, square)
    size = float(weights @ states.squares[own])
    return _Fold(rows, labels, weights, targets, variance, size, sums)


# --- Fits and tests -----------------------------------------------------------------------------


class _Fit(NamedTuple):
    """What was fitted on a training set with each of E ridge terms.

    Attributes:
        coefficients: of ridge regression, (E, T, d).
        intercepts: of ridge regression, (E, T).
        directions: w, the canonical directions of the targets, (E, J, T), orthonormal; with
            several labels, along them these are uncorrelated and of variance 1. Those of the
            states, v, are these times the coefficients.
        lengths: ‖v‖², (E, J).
    """

    coefficients: Array
    intercepts: Array
    directions: Array
    lengths: Array


def _fit(train: _Sums, ridge_terms: Sequence[float], axes: Array | None) -> _Fit:
    """Solve for ridge regression and for the canonical directions, with every ridge term.

    Args:
        train: the sums of the training set.
        ridge_terms: as of `score_folds`.
        axes: along which several labels are alike, as of `whiten_labels`; others are already.
    """
    mean_state, mean_target = train.state / train.weight, train.target / train.weight
    covariance = train.scatter / train.weight
    covariance -= np.outer(mean_state, mean_state)
    cross = train.cross / train.weight - np.outer(mean_state, mean_target)
    (d, T), E = cross.shape, len(ridge_terms)
    J = max(1, min(d, T - 1 if axes is None else axes.shape[1]))
    scale = float(np.trace(covariance)) / d
    solutions, directions = np.zeros((E, T, d)), np.zeros((E, J, T))
    lengths = np.zeros((E, J))
    if scale * d > ROUNDING * float(np.trace(train.scatter)) / train.weight:
        reduced = Tridiagonal.of(covariance)
        cross = reduced.turn(cross)
        for e, ridge in enumerate(ridge_terms):
            solved = reduced.solve(ridge * scale, cross)
            if solved is None:  # not positive definite by rounding: as if nothing were found
                continue
            whitened, solution = solved
            solutions[e] = solution.T
            if axes is None:
                directions[e] = _find_directions(whitened, J).T
            elif axes.size:
                directions[e] = (axes @ _find_directions(whitened @ axes, J)).T
            lengths[e] = ((directions[e] @ solutions[e]) ** 2).sum(axis=1)
        turned = reduced.turn(solutions.reshape(E * T, d).T, back=True)
        solutions = turned.T.reshape(E, T, d)
    return _Fit(solutions, mean_target - solutions @ mean_state, directions, lengths)


def _find_directions(whitened: Array, J: int) -> Array:
    """Return the first J right singular vectors (T, J) of a d × T matrix; 0 where there is none."""
    d, T = whitened.shape
    gram = whitened.T @ whitened if d >= T else whitened @ whitened.T
    squares, vectors = np.linalg.eigh(gram)
    squares, vectors = squares[::-1][:J], vectors[:, ::-1][:, :J]
    if d < T:
        vectors = whitened.T @ vectors / np.sqrt(np.maximum(squares, np.finfo(float).tiny))
    return np.where(squares > WEAKEST * squares[0], vectors, 0.0)


def _test(fold: _Fold, fit: _Fit) -> tuple[Array, Array]:
    """Test on a fold what was fitted with every ridge term.

    Returns:
        The mean correlation of the canonical pairs (E,), and the class-balanced accuracy, or R²
        (E,).
    """
    E, T, d = fit.coefficients.shape
    outputs = (fit.coefficients.reshape(E * T, d) @ fold.states.T).reshape(E, T, -1)
    predictions = outputs + fit.intercepts[:, :, None]
    variates = fit.directions @ outputs  # vᵀx, (E, J, n)
    variates -= (variates @ fold.weights)[:, :, None]
    variance = variates**2 @ fold.weights  # (E, J)
    covariance = ((variates @ fold.targets.T) * fit.directions).sum(axis=2)
    seen = variance > ROUNDING * fold.size * fit.lengths
    if isinstance(fold.variance, np.ndarray):
        spread = ((fit.directions @ _target_covariance(fold.sums)) * fit.directions).sum(axis=2)
        seen &= spread > ROUNDING
        variance = variance * spread
        errors = (predictions - fold.labels.T) ** 2 @ fold.weights  # (E, T)
        varied = fold.variance > 0
        success = 1 - (errors[:, varied] / fold.variance[varied]).mean(axis=1)
    else:  # w has length 1 and is orthogonal to the vector of ones, or it is one number
        variance = variance * (fold.variance or 1.0)
        if fold.labels.dtype.kind == "f":
            errors = (predictions[:, 0] - fold.labels) ** 2 @ fold.weights
            success = 1 - errors / (fold.variance or 1.0)
        else:
            success = (predictions.argmax(axis=1) == fold.labels) @ fold.weights
    deviations = np.sqrt(np.where(seen, variance, 1.0))
    correlations = np.where(seen, covariance / deviations, 0.0).clip(-1, 1).mean(axis=1)
    return correlations, success


def _best(scores: Array) -> int:
    """Return the first of the best scores, whatever order they were summed in."""
    return int(np.round(scores, 9).argmax())
