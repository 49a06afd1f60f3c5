"""Naive float64 scores of examples with several labels each, from the formulas."""

from itertools import product

import numpy as np
from sklearn.covariance import LedoitWolf

from reference.folds import SHARES, best, fold_ids, ridge_solution, weighted_covariance
from reference.transferability import largest_log_evidence


def logme(H: np.ndarray, Y: np.ndarray) -> float:
    """You et al. 2021: the mean over the labels, as 0/1 targets, per example."""
    return float(np.mean([largest_log_evidence(H, target) / len(H) for target in Y.T * 1.0]))


def h_score(H: np.ndarray, Y: np.ndarray) -> float:
    """(1 − a) tr(Σ⁻¹ Σ_hy Σ_yy⁺ Σ_yh) with scikit-learn's covariance, shrunk by a."""
    fitted = LedoitWolf().fit(H)
    hy = (H - H.mean(axis=0)).T @ (Y - Y.mean(axis=0)) / len(H)
    yy = np.cov(Y.T.astype(float), bias=True)
    between = hy @ np.linalg.pinv(yy, rcond=1e-10, hermitian=True) @ hy.T
    return float((1 - fitted.shrinkage_) * np.trace(np.linalg.inv(fitted.covariance_) @ between))


def canonical_directions(H, Y, w, share):
    """Directions (v, w) of CCA, as many as the rank of the labels or d, best first."""
    d = H.shape[1]
    hh, yy = weighted_covariance(H, H, w), weighted_covariance(Y, Y, w)
    hy = weighted_covariance(H, Y, w)
    hh += share * np.trace(hh) / d * np.eye(d)
    variances, axes = np.linalg.eigh(yy)
    varied = variances > 1e-10
    root = (axes[:, varied] / np.sqrt(variances[varied])) @ axes[:, varied].T  # (Σ_yy⁺)^½
    solved = np.linalg.solve(hh, hy)
    _, vectors = np.linalg.eigh(root @ hy.T @ solved @ root)
    of_labels = root @ vectors[:, ::-1][:, : min(d, varied.sum())]
    return solved @ of_labels, of_labels


def mean_correlation(H, Y, v, u) -> float:
    """Average the correlations over the pairs; 0 where a side is constant."""
    found = []
    for left, right in zip((H @ v).T, (Y @ u).T, strict=True):
        flat = np.ptp(left) < 1e-10 or np.ptp(right) < 1e-10
        found.append(0.0 if flat else np.corrcoef(left, right)[0, 1])
    return float(np.mean(found))


def determination(H, Y, variances, solution) -> float:
    """Average R² over the labels, with the variance of each over all examples."""
    predicted = np.column_stack([H, np.ones(len(H))]) @ solution
    return float(np.mean(1 - ((Y - predicted) ** 2).mean(axis=0) / variances))


def fold_scores(H: np.ndarray, Y: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """As `folds.fold_scores`, with examples that weigh alike in a fold."""
    folds, Y = fold_ids(groups), Y * 1.0
    w = 1 / np.bincount(folds)[folds]
    F, variances = folds.max() + 1, Y.var(axis=0)
    correlations, shares = [], []
    for f in range(F):
        for test, develop in ((f, (f + 1) % F), ((f + 1) % F, f)):
            t, v = folds == test, folds == develop
            fit = ~t & ~v
            directions = [canonical_directions(H[fit], Y[fit], w[fit], s) for s in SHARES]
            chosen = best([mean_correlation(H[v], Y[v], *pair) for pair in directions])
            correlations.append(mean_correlation(H[t], Y[t], *directions[chosen]))
            solutions = [ridge_solution(H[fit], Y[fit], w[fit], s) for s in SHARES]
            chosen = best([determination(H[v], Y[v], variances, each) for each in solutions])
            shares.append(determination(H[t], Y[t], variances, solutions[chosen]))
    return float(np.mean(correlations)), float(np.mean(shares))


def say_as_many(Y: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Say each label of as many rows as have it, those of the highest predictions."""
    said = np.zeros_like(Y)
    for k in range(Y.shape[1]):
        rows = sorted(range(len(Y)), key=lambda row: (-predicted[row, k], row))
        said[rows[: Y[:, k].sum()], k] = True
    return said


def all_label_rows(K: int) -> np.ndarray:
    """List the 2^K rows of labels that there can be."""
    return np.array(list(product([False, True], repeat=K)))
