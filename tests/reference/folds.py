"""Naive float64 versions of the fold scores: explicit rows, weights and ridge terms everywhere."""

import numpy as np
from scipy.linalg import eigh

SHARES = [1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6]
SHARES_OF_TARGETS = [1.0, 1e-3, 1e-6]


def fold_ids(groups: np.ndarray) -> np.ndarray:
    B = groups.max() + 1
    return np.array([g * 10 // B if B >= 10 else g for g in groups])


def row_weights(y: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """In every fold, classes weigh alike; with numbers, examples do."""
    alike = np.zeros(len(y)) if y.dtype.kind == "f" else y
    K = len(np.unique(alike))
    return np.array(
        [1 / (K * ((folds == f) & (alike == k)).sum()) for f, k in zip(folds, alike, strict=True)]
    )


def target_columns(y: np.ndarray) -> np.ndarray:
    return y[:, None] if y.dtype.kind == "f" else (y[:, None] == np.unique(y)).astype(float)


def weighted_covariance(A: np.ndarray, B: np.ndarray, w: np.ndarray) -> np.ndarray:
    w = w / w.sum()
    return (A - w @ A).T @ ((B - w @ B) * w[:, None])


def canonical_directions(H, Y, w, share_h, share_y):
    """Directions (v, w) of CCA with both covariances regularised, all but the last pair."""
    d, T = H.shape[1], Y.shape[1]
    hh, yy = weighted_covariance(H, H, w), weighted_covariance(Y, Y, w)
    hy = weighted_covariance(H, Y, w)
    hh += share_h * np.trace(hh) / d * np.eye(d)
    yy += share_y * np.trace(yy) / T * np.eye(T)
    solved = np.linalg.solve(hh, hy)
    product = hy.T @ solved
    _, vectors = eigh((product + product.T) / 2, yy)
    vectors = vectors[:, ::-1][:, : 1 if T == 1 else min(d, T - 1)]
    return solved @ vectors, vectors


def mean_correlation(H, Y, w, v, u) -> float:
    pairs = zip((H @ v).T, (Y @ u).T, strict=True)
    correlations = []
    for left, right in pairs:
        covariance = np.cov(left, right, aweights=w)
        correlations.append(covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]))
    return float(np.mean(correlations))


def ridge_solution(H, Y, w, share) -> np.ndarray:
    """Weighted ridge regression with a column of ones that is not penalised, (d + 1, T)."""
    d = H.shape[1]
    epsilon = share * np.trace(weighted_covariance(H, H, w)) / d
    X = np.column_stack([H, np.ones(len(H))])
    w = w / w.sum()
    penalty = np.diag([epsilon] * d + [0.0])
    return np.linalg.solve(X.T @ (X * w[:, None]) + penalty, X.T @ (Y * w[:, None]))


def success(H, y, w, solution) -> float:
    """Share of right examples of a class, averaged over classes; R² with numbers."""
    predicted = np.column_stack([H, np.ones(len(H))]) @ solution
    if y.dtype.kind == "f":
        return 1 - ((y - predicted[:, 0]) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    right = predicted.argmax(axis=1) == y
    return float(np.mean([right[y == k].mean() for k in np.unique(y)]))


def best(values) -> int:
    return int(np.argmax(np.round(values, 9)))


def fold_scores(H: np.ndarray, y: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """Xie et al. 2022, App. C.7, with both ridge terms chosen on the fold kept for it."""
    folds = fold_ids(groups)
    w, Y = row_weights(y, folds), target_columns(y)
    F = folds.max() + 1
    correlations, hits = [], []
    for f in range(F):
        for test, develop in ((f, (f + 1) % F), ((f + 1) % F, f)):
            t, v = folds == test, folds == develop
            fit = ~t & ~v
            directions = [
                canonical_directions(H[fit], Y[fit], w[fit], share_h, share_y)
                for share_h in SHARES
                for share_y in SHARES_OF_TARGETS
            ]
            chosen = best([mean_correlation(H[v], Y[v], w[v], *pair) for pair in directions])
            correlations.append(mean_correlation(H[t], Y[t], w[t], *directions[chosen]))
            solutions = [ridge_solution(H[fit], Y[fit], w[fit], share) for share in SHARES]
            chosen = best([success(H[v], y[v], w[v], solution) for solution in solutions])
            hits.append(success(H[t], y[t], w[t], solutions[chosen]))
    return float(np.mean(correlations)), float(np.mean(hits))


def canonical_correlations(H: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Canonical correlations without any ridge term: the cosines between two column spaces."""

    def orthonormal(columns: np.ndarray) -> np.ndarray:
        centred = columns - w @ columns / w.sum()
        basis, sizes, _ = np.linalg.svd(centred * np.sqrt(w)[:, None], full_matrices=False)
        return basis[:, sizes > 1e-12 * sizes[0]]

    left, _ = np.linalg.qr((H - w @ H / w.sum()) * np.sqrt(w)[:, None])
    return np.linalg.svd(left.T @ orthonormal(target_columns(y)), compute_uv=False)
