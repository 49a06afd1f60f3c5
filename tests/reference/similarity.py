"""Naive float64 linear CKA, from the definitions of HSIC with whole n × n kernels."""

from itertools import permutations

import numpy as np


def hsic(X: np.ndarray, Y: np.ndarray) -> float:
    """tr(KHLH) / (n − 1)²."""
    n = len(X)
    H = np.eye(n) - np.ones((n, n)) / n
    return float(np.trace(X @ X.T @ H @ Y @ Y.T @ H)) / (n - 1) ** 2


def hsic_unbiased(X: np.ndarray, Y: np.ndarray) -> float:
    """Song et al. 2012, equation 5: kernels with their diagonals set to zero."""
    n, one = len(X), np.ones(len(X))
    K, L = X @ X.T, Y @ Y.T
    np.fill_diagonal(K, 0)
    np.fill_diagonal(L, 0)
    return float(
        np.trace(K @ L)
        + (one @ K @ one) * (one @ L @ one) / ((n - 1) * (n - 2))
        - 2 / (n - 2) * (one @ K @ L @ one)
    ) / (n * (n - 3))


def hsic_by_tuples(X: np.ndarray, Y: np.ndarray) -> float:
    """E[k l] + E[k] E[l] − 2 E[k l'], each from distinct examples only, so without bias."""
    K, L = X @ X.T, Y @ Y.T
    terms = [
        K[i, j] * L[i, j] + K[i, j] * L[q, r] - 2 * K[i, j] * L[i, q]
        for i, j, q, r in permutations(range(len(X)), 4)
    ]
    return float(np.mean(terms))


def cka(X: np.ndarray, Y: np.ndarray, estimate=hsic) -> float:
    return estimate(X, Y) / np.sqrt(estimate(X, X) * estimate(Y, Y))
