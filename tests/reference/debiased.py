"""The debiased variability ratio by loops over every choice of groups, written from its meaning."""

from itertools import permutations

import numpy as np


def group_mean(H: np.ndarray, y: np.ndarray, groups: np.ndarray, g: int) -> np.ndarray:
    """Return the class means within a group, about their mean: the rows of a K × d matrix."""
    means = np.stack([H[(groups == g) & (y == k)].mean(axis=0) for k in range(y.max() + 1)])
    return means - means.mean(axis=0)


def group_covariance(H: np.ndarray, y: np.ndarray, groups: np.ndarray, g: int) -> np.ndarray:
    """Average the unbiased class covariances within a group, d × d."""
    K, d = y.max() + 1, H.shape[1]
    total = np.zeros((d, d))
    for k in range(K):
        total += np.cov(H[(groups == g) & (y == k)], rowvar=False).reshape(d, d) / K
    return total


def products(
    H: np.ndarray, y: np.ndarray, groups: np.ndarray, kept: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Average M_gᵀM_h and M_gᵀS_lM_h over different groups among those kept: two K × K matrices."""
    M = {g: group_mean(H, y, groups, g).T for g in kept}
    S = {g: group_covariance(H, y, groups, g) for g in kept}
    G = [M[g].T @ M[h] for g, h in permutations(kept, 2)]
    within = [M[g].T @ S[m] @ M[h] for g, h, m in permutations(kept, 3)]
    return np.mean(G, axis=0), np.mean(within, axis=0)


def plug_in(H: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Multiply the class means about their mean, all examples' ones, with each other: K × K."""
    means = group_mean(H, y, np.zeros_like(y), 0)
    return means @ means.T


def ratio(G: np.ndarray, within: np.ndarray) -> float | None:
    """Compute tr(G† G† H); None where either has a direction, but for (1, ..., 1), not above 0."""
    K = len(G)
    for matrix in (G, within):
        # (1, ..., 1) is in the null space: put the largest eigenvalue there.
        filled = matrix + np.linalg.norm(matrix) * np.ones((K, K))
        if np.linalg.eigvalsh(filled).min() <= 1e-12 * np.linalg.norm(matrix):
            return None
    inverse = np.linalg.pinv(G, rcond=1e-13, hermitian=True)
    return float(np.trace(inverse @ inverse @ within))


def debiased(
    H: np.ndarray, y: np.ndarray, groups: np.ndarray
) -> tuple[float | None, float, list[float | None]]:
    """Compute the ratio, the signal fraction, and the ratio with each group thrown away."""
    every = [int(g) for g in np.unique(groups)]
    G, within = products(H, y, groups, every)
    fraction = np.trace(G) / np.trace(plug_in(H, y))
    without = [ratio(*products(H, y, groups, [h for h in every if h != g])) for g in every]
    return ratio(G, within), float(fraction), without
