"""Scores from the eigenvalues of a state: how evenly it spreads, alone and beside a linear fit."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from layerscout.scores.moments import Centred

# The ridge term of Batra et al. 2026 and the weight of isotropy, as their code has them.
LOES_RIDGE, LOES_WEIGHT = 1e-3, 1.0
# Shares of the spread below this are rounding.
LEAST_SHARE = 1e-14


def loes(states: Centred, scatter: Float64[np.ndarray, "d d"]) -> float | None:
    """Training error of a linear fit plus a penalty for uneven spread; lower is better.

    The mean squared residual of ridge regression on the centred labels as 0 and 1 (or the number),
    plus 1 − I, where I is the mean over the deviation of the eigenvalues of the covariance. It is
    what LOES chooses its first layer by, with the ridge term and the weight of its code. Batra et
    al. 2026, "Uncovering the Latent Potential of Deep Intermediate Representations".

    Args:
        states: of n examples.
        scatter: `transferability.centred_scatter(states)`, or its upper triangle.

    Returns:
        None if all states are the same, or all numbers, or all eigenvalues (as with one feature).
    """
    if states.same or (states.labels == states.labels[0]).all():
        return None
    targets = _center_targets(states.labels)
    eigenvalues, vectors = np.linalg.eigh(scatter, "U")
    along = vectors.T @ (states.rows.T @ targets)
    eigenvalues = np.maximum(eigenvalues, 0)
    deviation = float(eigenvalues.std())
    if deviation <= LEAST_SHARE * eigenvalues.sum():
        return None
    shrunk = (eigenvalues + 2 * LOES_RIDGE) / (eigenvalues + LOES_RIDGE) ** 2
    explained = float((along**2 * shrunk[:, None]).sum())
    residual = max(float((targets**2).sum()) - explained, 0.0) / targets.size
    return residual + LOES_WEIGHT * (1 - float(eigenvalues.mean()) / deviation)


def entropy(states: Centred, scatter: Float64[np.ndarray, "d d"]) -> float | None:
    """Entropy (nats) of the eigenvalues of HHᵀ as shares of their sum; higher is better.

    The data-set entropy of Skean et al. 2025, "Layer by Layer", §3 (von Neumann's, α → 1), of
    states that are not centred. It never sees the labels. That more is better is RankMe's reading
    (Garrido et al. 2023), whose effective rank is the exponential of such an entropy.

    Args: as `loes`.

    Returns:
        None if all states are the same.
    """
    if states.same:
        return None
    n = len(states.rows)
    eigenvalues = np.linalg.eigvalsh(scatter + n * np.outer(states.mean, states.mean), "U")
    shares = eigenvalues / eigenvalues.sum()
    shares = shares[shares > LEAST_SHARE]
    return float(max(-(shares * np.log(shares)).sum(), 0.0))


def _center_targets(labels: np.ndarray) -> NDArray[np.float64]:
    """Give the labels as 0 and 1, or the number, less their means, (n, K) or (n, 1)."""
    if labels.dtype.kind == "i":
        labels = np.eye(int(labels.max()) + 1)[labels]
    targets = labels.reshape(len(labels), -1)
    centred: NDArray[np.float64] = targets - targets.mean(axis=0)
    return centred
