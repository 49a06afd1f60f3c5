"""Naive float64 versions of LogME, the H-score and the numerical rank, from the formulas."""

import numpy as np
from scipy.optimize import minimize
from sklearn.covariance import LedoitWolf


def directions(H: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues of HHᵀ and what the target has along each eigenvector, squared.

    From H itself: HHᵀ would have no digits left where the fit is close. What no feature explains
    counts as at least 1e-12 of the target.
    """
    n, d = H.shape
    left, singular, _ = np.linalg.svd(H)
    squares = (left.T @ target) ** 2
    if d < n:
        squares[d] += max(1e-12 * (target @ target) - squares[d:].sum(), 0)
    return np.append(singular**2, np.zeros(max(n - d, 0))), squares


def log_evidence(H: np.ndarray, target: np.ndarray, alpha: float, beta: float) -> float:
    """log N(target | 0, I/β + HHᵀ/α)."""
    eigenvalues, squares = directions(H, target)
    variances = 1 / beta + eigenvalues / alpha
    return float(-(np.log(2 * np.pi * variances) + squares / variances).sum() / 2)


def largest_log_evidence(H: np.ndarray, target: np.ndarray) -> float:
    """Maximise it over log α and log β, from the two best points of a grid."""
    eigenvalues, squares = directions(H, target)

    def loss(logs: np.ndarray) -> float:
        return -log_evidence(H, target, *np.exp(logs))

    def point(ratio: float) -> np.ndarray:
        beta = len(H) / (squares / (1 + eigenvalues / ratio)).sum()
        return np.log([ratio * beta, beta])

    scale = (H**2).sum()
    starts = sorted((point(scale * 10.0**power) for power in np.arange(-10, 8, 0.2)), key=loss)
    options = {"xatol": 1e-6, "fatol": 1e-9}
    # A simplex may shrink before its time: take the better of two.
    return max(
        -float(minimize(loss, start, method="Nelder-Mead", options=options).fun)
        for start in starts[:2]
    )


def fixed_point_log_evidence(H: np.ndarray, target: np.ndarray) -> float:
    """You et al. 2021, algorithm 1, with the d × d matrix A = αI + βHᵀH inverted in every step."""
    n, d = H.shape
    alpha = beta = 1.0
    for _ in range(5000):
        A = alpha * np.eye(d) + beta * H.T @ H
        m = beta * np.linalg.solve(A, H.T @ target)
        gamma = d - alpha * np.trace(np.linalg.inv(A))
        before = alpha / beta
        alpha = gamma / (m @ m)
        beta = (n - gamma) / ((target - H @ m) ** 2).sum()
        if abs(alpha / beta / before - 1) < 1e-10:
            break
    return log_evidence(H, target, alpha, beta)


def targets(y: np.ndarray) -> list[np.ndarray]:
    return [y] if y.dtype.kind == "f" else [(y == k).astype(float) for k in np.unique(y)]


def logme(H: np.ndarray, y: np.ndarray, maximum=largest_log_evidence) -> float:
    """You et al. 2021: the mean over one-against-the-rest targets, per example."""
    return float(np.mean([maximum(H, target) / len(H) for target in targets(y)]))


def h_score(H: np.ndarray, y: np.ndarray) -> float:
    """(1 − a) trace(Σ⁻¹ Σ_b) with scikit-learn's covariance of all examples, shrunk by a."""
    fitted = LedoitWolf().fit(H)
    total = fitted.covariance_
    of_class = {k: H[y == k].mean(axis=0) for k in np.unique(y)}
    means = np.stack([of_class[k] for k in y])
    between = np.zeros_like(total)
    for mean in means:
        deviation = mean - H.mean(axis=0)
        between += np.outer(deviation, deviation) / len(y)
    return float((1 - fitted.shrinkage_) * np.trace(np.linalg.inv(total) @ between))


def numerical_rank(H: np.ndarray, y: np.ndarray) -> float:
    """Xie et al. 2022, §4.3: nuclear over Frobenius norm, squared."""
    ranks = [
        np.linalg.norm(H[y == k], "nuc") ** 2 / np.linalg.norm(H[y == k], "fro") ** 2
        for k in np.unique(y)
    ]
    return float(np.mean(ranks))
