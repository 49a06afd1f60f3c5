"""How well a linear head on each state does on examples that it was not fitted to.

Ridge regression on the one-hot label (or on the number), cross-fitted: every example is predicted
from a fit to the other folds. The fits without a fold follow from the one with all examples, by the
block form of the leave-one-out identity for linear smoothers (Cook & Weisberg 1982, §2.2): with the
hat matrix H and residuals e, those of fold k without fold k are (I − H_kk)⁻¹ e_k. So a state costs
one decomposition, where one for each fold would cost more than the forward pass.

States are compared on the same examples. What makes an example hard is then in both of two states
and leaves their difference: that tells states apart where the intervals around each overlap.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64
from scipy.linalg import eigh

from layerscout.data import evaluate
from layerscout.scores.estimates import Estimate

# Shares of the mean variance of a feature; the strongest first, so that it wins ties.
RIDGE_TERMS = tuple(10.0**exponent for exponent in range(1, -7, -1))
# Directions whose variance is below this share of the largest are rounding of float32 states.
WEAKEST = 1e-12
# I − H_kk is singular where a fold holds the only examples of a direction and nothing shrinks it.
SINGULAR = 1e-10


def measure_quality(
    H: Float64[np.ndarray, "n d"],
    y: np.ndarray,
    folds: Int64[np.ndarray, " n"],
    metric: str,
) -> Estimate:
    """Judge a cross-fitted linear head on a state by a metric.

    Args:
        H: states (n, d).
        y: class ids or targets (n,).
        folds: of each row, 0..B−1 (n,); rows that depend on each other are in the same one.
        metric: a key of `layerscout.data.METRICS`.

    Returns:
        The metric on the predictions of examples left out, and without those of each fold;
        undefined where all states are the same, or there is one fold.
    """
    predicted = cross_fit(H, y, folds)
    if predicted is None:
        return Estimate(None, None)
    value = evaluate(metric, y, predicted)
    replicates = [
        evaluate(metric, y[folds != fold], predicted[folds != fold])
        for fold in range(int(folds.max()) + 1)
    ]
    return Estimate(value, np.array(replicates))


def cross_fit(
    H: Float64[np.ndarray, "n d"], y: np.ndarray, folds: Int64[np.ndarray, " n"]
) -> Float64[np.ndarray, "n T"] | None:
    """Predict every row by ridge regression on the rows of the other folds, with an intercept.

    The ridge term is the one whose held-out predictions have the least squared error over all
    rows; a choice among eight, which is all that the predictions owe to their own rows.

    Args:
        H: states (n, d).
        y: class ids or targets (n,).
        folds: as for `measure_quality`; two or more.

    Returns:
        A column for each class 0..K−1, or the number (T = 1); None where all states are the same,
        or there is one fold.
    """
    parts = [np.flatnonzero(folds == fold) for fold in range(int(folds.max()) + 1)]
    centred = H - H.mean(axis=0)
    left, variances = _decompose(centred)
    if len(parts) < 2 or not len(variances):
        return None
    targets = y[:, None] if y.dtype.kind == "f" else np.eye(int(y.max()) + 1)[y]
    mean, scale = targets.mean(axis=0), variances.sum() / H.shape[1]
    along = left.T @ (targets - mean)
    least, best = np.inf, None
    for term in RIDGE_TERMS:
        kept = variances / (variances + term * scale)
        residuals = targets - mean - left @ (kept[:, None] * along)
        for rows in parts:
            part = left[rows]
            hat = (part * kept) @ part.T + 1 / len(H)
            missing = np.eye(len(rows)) - hat
            if np.linalg.eigvalsh(missing)[0] < SINGULAR:
                break  # these rows alone decide a direction: it takes a stronger term
            residuals[rows] = np.linalg.solve(missing, residuals[rows])
        else:
            error = float((residuals**2).sum())
            if error < least * (1 - 1e-9):
                least, best = error, targets - residuals
    return best


def _decompose(
    centred: Float64[np.ndarray, "n d"],
) -> tuple[Float64[np.ndarray, "n r"], Float64[np.ndarray, " r"]]:
    """Give the left singular vectors and the squared singular values, from the smaller product."""
    n, d = centred.shape
    product = centred @ centred.T if n <= d else centred.T @ centred
    variances, vectors = eigh(product, driver="evd", overwrite_a=True)
    kept = variances > WEAKEST * max(float(variances[-1]), np.finfo(float).tiny)
    variances, vectors = variances[kept], vectors[:, kept]
    return (vectors if n <= d else centred @ vectors / np.sqrt(variances)), variances
