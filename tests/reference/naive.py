"""Naive float64 versions of every score, written from the formulas with loops over examples."""

import numpy as np


def class_means(H: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.stack([H[y == k].mean(axis=0) for k in np.unique(y)])


def outer_sum(rows: np.ndarray) -> np.ndarray:
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for row in rows:
        total += np.outer(row, row)
    return total


def pseudo_inverse(matrix: np.ndarray) -> np.ndarray:
    """Invert the directions whose standard deviation is above 1e-6 of the largest."""
    return np.linalg.pinv(matrix, rcond=1e-12, hermitian=True)


def variability_ratio(H: np.ndarray, y: np.ndarray) -> float:
    """Xie et al. 2022, §3.1, equation 3."""
    H = np.asarray(H, dtype=np.float64)
    classes, means = np.unique(y), class_means(H, y)
    K = len(classes)
    centre = means.mean(axis=0)
    within = (
        sum(outer_sum(H[y == k] - m) / (y == k).sum() for k, m in zip(classes, means, strict=True))
        / K
    )
    between = outer_sum(means - centre) / K
    return float(np.trace(within @ pseudo_inverse(between)) / K)


def nc1(H: np.ndarray, y: np.ndarray) -> float:
    """Xie et al. 2022, App. A.1: every example alike."""
    H = np.asarray(H, dtype=np.float64)
    classes, means = np.unique(y), class_means(H, y)
    K, N = len(classes), len(H)
    centre = H.mean(axis=0)
    within = sum(outer_sum(H[y == k] - m) for k, m in zip(classes, means, strict=True)) / N
    between = outer_sum(means - centre) / K
    return float(np.trace(within @ pseudo_inverse(between)) / K)
