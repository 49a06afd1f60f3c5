"""Linear regression with any loss: the least sum of losses and squared weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float64

# The largest slope of a mean loss where a regression ends: as scikit-learn has it, and of numbers.
SLOPE, FLAT = 1e-4, 1e-10
# The log-probability of a class that no row has.
NEVER = -100.0

# From linear predictions and targets: the sum of the losses, and how it slopes with predictions.
Link = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]


def square(Z: np.ndarray, Y: np.ndarray) -> tuple[float, np.ndarray]:
    """Link numbers."""
    return 0.5 * float(((Z - Y) ** 2).sum()), Z - Y


def divide(Z: np.ndarray, Y: np.ndarray) -> tuple[float, np.ndarray]:
    """Link labels that a row has or has not."""
    from scipy.special import expit

    return float((np.logaddexp(0, Z) - Z * Y).sum()), expit(Z) - Y


def share(Z: np.ndarray, Y: np.ndarray) -> tuple[float, np.ndarray]:
    """Link classes, of which a row has one; its target is what it counts."""
    from scipy.special import log_softmax

    logs = log_softmax(Z, axis=1)
    return -float((logs * Y).sum()), np.exp(logs) * Y.sum(axis=1, keepdims=True) - Y


def regress(
    X: Any, Y: np.ndarray, link: Link, slope: float = SLOPE
) -> tuple[Float64[np.ndarray, "w T"], Float64[np.ndarray, " T"]]:
    """Return the weights and the bias that have the least loss on X, (n, w).

    That is the sum of the rows' losses, and half the square of the weights.
    """
    from scipy.optimize import minimize

    shape = X.shape[1] + 1, Y.shape[1]

    def find_loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        *_, bias = both = flat.reshape(shape)
        weights = both[:-1]
        loss, off = link(X @ weights + bias, Y)
        slopes = np.vstack([X.T @ off + weights, off.sum(axis=0)])
        loss += 0.5 * float((weights**2).sum())
        return loss / len(Y), slopes.ravel() / len(Y)

    start, ends = np.zeros(shape[0] * shape[1]), {"gtol": slope, "ftol": 0, "maxiter": 1000}
    found = minimize(find_loss, start, jac=True, method="L-BFGS-B", options=ends)
    *_, bias = both = found.x.reshape(shape)
    return both[:-1], bias


def predict_linearly(
    X: Any, y: np.ndarray, others: Any, classes: int | None = None
) -> Float64[np.ndarray, "m K"] | None:
    """Return what regression on features says of other rows.

    It is what scikit-learn's `LogisticRegression`, or `Ridge` for numbers, find as they come;
    several labels have a regression each.

    Args:
        X: features (n, w), as an array or sparse.
        y: class ids (n,), which labels each row has, bool (n, K), or numbers (n,).
        others: features (m, w).
        classes: K, where there may be classes without a row.

    Returns:
        Logits, or numbers, (m, K); None if all rows have one class.
    """
    from scipy.special import log_expit, log_softmax

    if y.dtype.kind == "f":
        mean, scale = y.mean(), y.std() or 1.0
        Y = ((y - mean) / scale)[:, None]
        weights, bias = regress(X, Y, square, FLAT)
        predicted: np.ndarray = mean + scale * (others @ weights + bias)
        return predicted
    if y.dtype.kind == "b":
        some = y.any(axis=0) & ~y.all(axis=0)
        logits = np.where(y.all(axis=0), -NEVER, NEVER) * np.ones((others.shape[0], 1))
        for label in np.flatnonzero(some):
            weights, bias = regress(X, y[:, [label]].astype(np.float64), divide)
            logits[:, [label]] = others @ weights + bias
        return logits
    present, y = np.unique(y, return_inverse=True)
    if len(present) < 2:
        return None
    logits = np.full((others.shape[0], classes or int(present[-1]) + 1), NEVER)
    if len(present) == 2:
        weights, bias = regress(X, y[:, None].astype(np.float64), divide)
        found = log_expit((others @ weights + bias) * [-1, 1])
    else:
        weights, bias = regress(X, np.eye(len(present))[y], share)
        found = log_softmax(others @ weights + bias, axis=1)
    logits[:, present] = found.clip(NEVER)
    return logits
