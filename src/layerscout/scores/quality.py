"""How well a linear head on each state does on examples that it was not fitted to.

Ridge regression on the one-hot label (or on several labels as 0 and 1, or on the number), cross-
fitted: every example is predicted from a fit to the other folds. The fits without a fold follow
from the one with all examples, by the block form of the leave-one-out identity for linear smoothers
(Cook & Weisberg 1982, §2.2): with the hat matrix H and residuals e, those of fold k without fold k
are (I − H_kk)⁻¹ e_k. H comes from the eigenvectors of the features' scatter, or of the rows' inner
products where there are fewer of these. A fit for each fold would cost more than the forward pass,
unless folds have more rows than a state has features, as with words; then there is a fit for each.

States are compared on the same examples. What makes an example hard is then in both of two states
and leaves their difference: that tells states apart where the intervals around each overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.linalg.lapack import dpocon, dpotrf, dpotrs

from layerscout.data import SIGNED, evaluate_without, pick_choices
from layerscout.scores.estimates import Estimate
from layerscout.scores.probes import majority, make_judge
from layerscout.scores.score import ROUNDING

# Shares of the mean variance of a feature; the strongest first.
RIDGE_TERMS = tuple(10.0**exponent for exponent in range(1, -7, -1))
# How much more a weaker term errs before no weaker one is tried: by then 115 states of two base
# models and three tasks had had their least error, after 3.5 terms on average. A few directions of
# huge variance, such as those of an attention sink, are fitted first and make it rise by less.
WORSE = 1.05
# I − H_kk is singular where a fold holds the only examples of a direction and nothing shrinks it.
SINGULAR = 1e-10
# Rows of a fold, in features, from which on a fit for each fold costs less: 0.36 s against 0.46 at
# 200 rows of 384 features, 0.40 against 1.2 at 400; 1.6 against 0.6 at 100 rows of 768.
LARGE = 0.5


@dataclass(frozen=True, eq=False)
class Quality(Estimate):
    """How good a linear head on a state is, on examples that it was not fitted to.

    Attributes:
        majority: the metric of always predicting the majority class (or the mean, or of several
            labels those that half of the examples have).
        metric: a key of `layerscout.data.METRICS`.
    """

    majority: float | None = None
    metric: str | None = None

    def interval(self) -> tuple[float | None, float | None]:
        """Return the ends of a 95 % interval, within what the metric can be.

        Folds are dealt by class, so it holds for examples of which each class has the same share,
        as the majority's metric does. Of two examples per class, the jackknife alone said −0.65 to
        1.65 for macro-F1.
        """
        low, high = super().interval()
        if low is None or high is None:
            return low, high
        least = -1.0 if self.metric in SIGNED else 0.0
        return max(least, low), min(1.0, high)


def measure_quality(
    H: Float64[np.ndarray, "n d"],
    y: np.ndarray,
    folds: Int64[np.ndarray, " n"],
    metric: str,
    examples: Int64[np.ndarray, " n"] | None = None,
) -> Quality:
    """Judge a cross-fitted linear head on a state by a metric.

    Args:
        H: states (n, d).
        y: class ids or targets (n,), or which labels each row has, bool (n, K).
        folds: of each row, 0..B−1 (n,); rows that depend on each other are in the same one.
        metric: a key of `layerscout.data.METRICS`.
        examples: (n,), where the rows are choices: those with the same number are one example, and
            what is judged is the choice that the head picks. None where each row is an example.

    Returns:
        The metric on the predictions of examples left out, and without those of each fold;
        undefined where all states are the same, or there is one fold.
    """
    predicted = cross_fit(H, y, folds)
    if predicted is None:
        return Quality(None, None)
    if y.dtype.kind == "b":
        predicted = _set_thresholds(y, predicted)
    if examples is not None:
        folds = folds[np.unique(examples, return_index=True)[1]]
        y, predicted = pick_choices(y, predicted, examples)
    judge, without = make_judge(metric), evaluate_without(metric, y, predicted, folds)
    return Quality(judge(y, predicted), without, majority(y, y, judge), metric)


def cross_fit(
    H: Float64[np.ndarray, "n d"], y: np.ndarray, folds: Int64[np.ndarray, " n"]
) -> Float64[np.ndarray, "n T"] | None:
    """Predict every row by ridge regression on the rows of the other folds, with an intercept.

    The ridge term is the one whose held-out predictions have the least squared error over all
    rows, from the strongest of eight on until a weaker one errs clearly more; that choice is all
    that the predictions owe to their own rows.

    Args:
        H: states (n, d).
        y: class ids or targets (n,), or which labels each row has, bool (n, K).
        folds: as for `measure_quality`; two or more.

    Returns:
        A column for each class or label 0..K−1, or the number (T = 1); None where all states are
        the same, or there is one fold.
    """
    parts = [np.flatnonzero(folds == fold) for fold in range(int(folds.max()) + 1)]
    centred = H - H.mean(axis=0)
    spread = float(np.einsum("nd,nd->", centred, centred))
    if len(parts) < 2 or spread <= ROUNDING * float(np.einsum("nd,nd->", H, H)):
        return None
    if y.dtype.kind == "i":
        y = np.eye(int(y.max()) + 1)[y]
    targets = y.reshape(len(y), -1).astype(np.float64)
    mean = targets.mean(axis=0)
    targets -= mean
    large = max(map(len, parts)) > LARGE * H.shape[1]
    leave_out = _fit_without if large else _correct_one_fit
    least, best = np.inf, None
    for predicted in leave_out(centred, targets, parts, spread / H.shape[1]):
        error = float(((targets - predicted) ** 2).sum())
        if error < least * (1 - 1e-9):
            least, best = error, predicted
        elif error > WORSE * least:
            break
    return None if best is None else best + mean


def _correct_one_fit(
    centred: Float64[np.ndarray, "n d"],
    targets: Float64[np.ndarray, "n T"],
    parts: Sequence[Int64[np.ndarray, " _"]],
    scale: float,
) -> Iterator[Float64[np.ndarray, "n T"]]:
    """Predict rows without those of their fold, from one fit to all, for each ridge term.

    One eigendecomposition serves all terms: of the scatter XᵀX, or of K = XXᵀ where there are fewer
    rows than features. Then I − H is λ (K + λI)⁻¹, with nothing to subtract but the intercept. Rows
    that are less their mean have K1 = 0, so it is 1 along 1; with a weak λ all of 8 rows of noise
    were predicted right by what rounding left of 1 − 1. A multiple of 11ᵀ is therefore added to K,
    which leaves little to subtract. States and targets are less their means.
    """
    n, d = centred.shape
    by_rows = n < d
    if by_rows:
        products = centred @ centred.T
        lift = float(np.trace(products)) / n
        values, basis = np.linalg.eigh(products + lift / n)
    else:
        values, vectors = np.linalg.eigh(centred.T @ centred)
        basis = centred @ vectors
    along = basis.T @ targets
    for term in RIDGE_TERMS:
        ridge = term * scale
        # I − H without the intercept is start · I + basis · diag(weights) · basisᵀ.
        if by_rows:
            start, weights, intercept = 0, ridge / (values + ridge), ridge / (ridge + lift)
        else:
            start, weights, intercept = 1, -1 / (values + ridge), 1.0
        residuals = start * targets + basis @ (weights[:, None] * along)
        for rows in parts:
            own = basis[rows]
            missing = start * np.eye(len(rows)) + (own * weights) @ own.T - intercept / n
            factor, failed = dpotrf(missing)
            # All eigenvalues are in (0, 1], so the reciprocal condition number bounds the least
            # one: rows that alone decide a direction take a stronger ridge term.
            if failed or dpocon(factor, np.abs(missing).sum(axis=0).max())[0] < SINGULAR:
                return
            residuals[rows], _ = dpotrs(factor, residuals[rows])
        yield targets - residuals


def _fit_without(
    centred: Float64[np.ndarray, "n d"],
    targets: Float64[np.ndarray, "n T"],
    parts: Sequence[Int64[np.ndarray, " _"]],
    scale: float,
) -> Iterator[Float64[np.ndarray, "n T"]]:
    """Predict the same, from a fit without each fold, whose sums are those of all less its own.

    It costs products of d × d, and holds one for each fold.
    """
    (n, d), T = centred.shape, targets.shape[1]
    both = np.concatenate([centred, targets], axis=1)
    of_folds = [centred[rows].T @ both[rows] for rows in parts]
    everything, fits = sum(of_folds, np.zeros((d, d + T))), []
    for rows, own in zip(parts, of_folds, strict=True):
        # All rows sum up to 0, so those outside of the fold to the negative of those inside.
        total, count = -both[rows].sum(axis=0), n - len(rows)
        fits.append((rows, everything - own - np.outer(total[:d], total) / count, total / count))
    for term in RIDGE_TERMS:
        predicted = np.empty_like(targets)
        for rows, moments, mean in fits:
            scatter = moments[:, :d].copy().T  # symmetric, and so in the column order of LAPACK
            scatter[np.diag_indices(d)] += term * scale
            factor, failed = dpotrf(scatter, overwrite_a=True)
            if failed:
                return
            weights, _ = dpotrs(factor, moments[:, d:])
            predicted[rows] = (centred[rows] - mean[:d]) @ weights + mean[d:]
        yield predicted


def _set_thresholds(
    Y: Bool[np.ndarray, "n K"], predicted: Float64[np.ndarray, "n K"]
) -> Float64[np.ndarray, "n K"]:
    """Turn predictions of each label into logits that say it of as many rows as have it.

    Those are the rows of the highest predictions, the first ones of equal ones: least squares
    hardly ever predicts a half for a rare label. A logit is above 0 where the label is said.
    """
    count = Y.sum(axis=0)
    order = np.argsort(-predicted, axis=0, kind="stable")
    said = np.argsort(order, axis=0) < count  # by their places in that order
    ordered = np.take_along_axis(predicted, order, axis=0)
    ends = np.stack([count - 1, count]).clip(0, len(Y) - 1)
    logits = predicted - np.take_along_axis(ordered, ends, axis=0).mean(axis=0)
    least = np.finfo(np.float64).tiny  # where a prediction is equal to the threshold
    signed: np.ndarray = np.where(said, np.maximum(logits, least), np.minimum(logits, 0.0))
    return signed
