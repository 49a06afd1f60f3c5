"""Canonical correlation and ridge regression, fitted on some folds and tested on others.

Both need (Σ_hh + εI)⁻¹ Σ_hy of every training set and ridge term ε. The sums of a training set are
those of all folds less two, and its Σ_hh is made tridiagonal once, for all ridge terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from layerscout.scores.fold_sums import Fold, Sums, add_up, count_folds, make_folds
from layerscout.scores.indicators import whiten_labels
from layerscout.scores.moments import Centred
from layerscout.scores.tridiagonal import Tridiagonal

Array = NDArray[np.float64]

# Shares of trace(Σ_hh)/d, Xie et al. 2022, App. C.7. The strongest first, so that it wins ties. A
# coarser grid was tried to save time and changed the best state on CoLA and MRPC.
RIDGE_TERMS = tuple(10.0**exponent for exponent in range(0, -7, -1))
# Canonical correlations are found as squares; below this share of the largest they are rounding.
WEAKEST = 1e-12
# Variances below this share of what they are computed from are rounding.
ROUNDING = 1e-14


@dataclass(frozen=True, eq=False)
class FoldScores:
    """The scores of one state that are fitted and tested on different folds.

    Attributes:
        cca: mean canonical correlation on the test folds; None where it is undefined.
        ridge: class-balanced accuracy of ridge regression on the test folds, R² with numbers or
            several labels; None where it is undefined.
        class_scatters: Σ x xᵀ over the examples of each class, about the mean of all, (K, d, d),
            of which only the upper triangles are there: what was summed up on the way and other
            scores need, too. None where it was not.
    """

    cca: float | None
    ridge: float | None
    class_scatters: Float64[np.ndarray, "K d d"] | None = None


@dataclass(frozen=True, eq=False)
class _Fit:
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
    matrices (d, d) of all folds and, with large classes, of those.

    Args:
        states: of n examples, in groups that stay together. Ten folds from ten groups on, below
            that as many folds as groups.
        ridge_terms: the ε to choose from, as shares of trace(Σ_hh)/d; of equally good ones the
            first is taken.

    Returns:
        None for both where all states or all targets are the same.

    Raises:
        InputError: as `count_folds`.
    """
    counts = count_folds(states)
    if states.same or (states.labels == states.labels[0]).all():
        return FoldScores(None, None)
    folds, of_classes = make_folds(states, counts)
    everything = add_up([fold.sums for fold in folds])
    correlations: list[float] = []
    hits: list[float] = []
    for first, second in zip(folds, folds[1:] + folds[:1], strict=True):
        train = everything.less(first.sums, second.sums)
        several = states.labels.dtype.kind == "b"
        fit = _fit(
            train, ridge_terms, whiten_labels(train.target_covariance()) if several else None
        )
        for found, on_first, on_second in zip(
            (correlations, hits), _test(first, fit), _test(second, fit), strict=True
        ):
            # Numbers that are all the same in a fold test nothing.
            if np.any(first.variance):
                found.append(on_first[_best(on_second)])
            if np.any(second.variance):
                found.append(on_second[_best(on_first)])
    return FoldScores(_mean(correlations), _mean(hits), of_classes)


def _fit(train: Sums, ridge_terms: Sequence[float], axes: Array | None) -> _Fit:
    """Solve for ridge regression and for the canonical directions, with every ridge term.

    Args:
        train: the sums of the training set.
        ridge_terms: as of `score_folds`.
        axes: along which several labels are alike, as of `whiten_labels`; others are already.
    """
    covariance, cross = train.covariance(), train.cross_covariance()
    (d, T), E = cross.shape, len(ridge_terms)
    J = 1 if T == 1 else min(d, T - 1)
    if axes is not None:
        J = max(1, min(d, axes.shape[1]))
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
    intercepts = train.mean_target() - solutions @ train.mean_state()
    return _Fit(solutions, intercepts, directions, lengths)


def _find_directions(whitened: Array, J: int) -> Array:
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


def _test(fold: Fold, fit: _Fit) -> tuple[Array, Array]:
    """Test on a fold what was fitted with every ridge term.

    Returns:
        The mean correlation of the canonical pairs (E,), and the class-balanced accuracy, or R²
        (E,).
    """
    E, T, d = fit.coefficients.shape
    found = (fit.coefficients.reshape(E * T, d) @ fold.states.T).reshape(E, T, -1)
    return _correlate(fold, fit, found), _measure_ridge(fold, found + fit.intercepts[:, :, None])


def _correlate(fold: Fold, fit: _Fit, found: Array) -> Array:
    variates = fit.directions @ found  # vᵀx, (E, J, n)
    variates -= (variates @ fold.weights)[:, :, None]
    variance = variates**2 @ fold.weights  # (E, J)
    covariance = ((variates @ fold.targets.T) * fit.directions).sum(axis=2)
    seen = variance > ROUNDING * fold.size * fit.lengths
    if isinstance(fold.variance, np.ndarray):
        spread = ((fit.directions @ fold.sums.target_covariance()) * fit.directions).sum(axis=2)
        seen &= spread > ROUNDING
        variance = variance * spread
    else:  # w has length 1 and is orthogonal to the vector of ones, or it is one number
        variance = variance * (fold.variance or 1.0)
    deviations = np.sqrt(np.where(seen, variance, 1.0))
    correlations: Array = np.where(seen, covariance / deviations, 0.0).clip(-1, 1).mean(axis=1)
    return correlations


def _measure_ridge(fold: Fold, predictions: Array) -> Array:
    if isinstance(fold.variance, np.ndarray):
        errors = (predictions - fold.labels.T) ** 2 @ fold.weights  # (E, T)
        varied = fold.variance > 0
        shares: Array = 1 - (errors[:, varied] / fold.variance[varied]).mean(axis=1)
        return shares
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
