"""Transferability scores that one decomposition of a state answers: LogME, H-score, numerical rank.

All three are functions of one state of n examples, without folds and without anything to train.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array

from layerscout.errors import InputError

Array = NDArray[np.float64]

# Keeps Σ invertible where Ledoit and Wolf would not shrink it; too little to be seen elsewhere.
LEAST_SHRINKAGE = 1e-10
# What of a target cannot be told from a perfect fit: a residual of a millionth of its size.
LEAST_RESIDUAL = 1e-12
# log10 of the least and the largest α/β that is tried, relative to the largest eigenvalue of HHᵀ.
LEAST_RATIO, LARGEST_RATIO = -16.0, 12.0
# The evidence has no detail finer than a factor e in α/β; a quarter of a decade sees all maxima.
STEP = 0.25
GOLDEN = (np.sqrt(5) - 1) / 2


def centred_scatter(H: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "d d"]:
    """Give Σ_i (h_i − mean)(h_i − mean)ᵀ, which `logme` and `h_score` take to share its cost."""
    centred = H - H.mean(axis=0)
    scatter: Array = centred.T @ centred
    return scatter


def logme(
    H: Float64[np.ndarray, "n d"],
    y: np.ndarray,
    *,
    scatter: Float64[np.ndarray, "d d"] | None = None,
) -> float | None:
    """Log evidence per example of Bayesian linear regression on the labels; higher is better.

    y ~ N(Hw, β⁻¹I) and w ~ N(0, α⁻¹I), uncentred and without an intercept; the evidence
    N(y | 0, β⁻¹I + α⁻¹HHᵀ) at its maximum over α and β. With classes the mean over one against
    the rest, as 0/1 targets. LogME of You et al. 2021.

    The maximum over β is known given the ratio α/β, which leaves one number to look for. It is
    looked for over 28 decades: the fixed-point iteration of the paper ends at the same maximum
    where there is one, but slowly for n < d, and without end where the fit is perfect. There a
    residual of 1e-6 of the target counts, since what is below is rounding.

    Args:
        H: states (n, d).
        y: class ids, int64 (n,), or targets, float64 (n,).
        scatter: `centred_scatter(H)`, if it is there already; not used for n < d.

    Returns:
        None if all states are the same, or all targets are 0.
    """
    if _same(H):
        return None
    n, d = H.shape
    membership = _membership(y) if y.dtype.kind != "f" else None
    squares = np.array([y @ y]) if membership is None else membership.sum(axis=1)
    if not squares.all():
        return None
    if n < d:
        eigenvalues, vectors = np.linalg.eigh(H @ H.T)
        along = vectors.T @ y[:, None] if membership is None else (membership @ vectors).T
    else:
        eigenvalues, vectors = np.linalg.eigh(_uncentred(H, scatter))
        sums = H.T @ y[:, None] if membership is None else (membership @ H).T
        along = vectors.T @ sums
    # What eigenvalues lie below this is rounding, and so is what a target has along them.
    kept = eigenvalues > d * np.finfo(float).eps * eigenvalues[-1]
    eigenvalues = eigenvalues[kept]
    explained = along[kept] ** 2 if n < d else along[kept] ** 2 / eigenvalues[:, None]
    residual = np.maximum(squares - explained.sum(axis=0), LEAST_RESIDUAL * squares)
    if len(eigenvalues) == n:
        residual = np.zeros_like(squares)
    return _finite(float(_best_evidence(eigenvalues, explained, residual, n).mean()) / n)


def h_score(
    H: Float64[np.ndarray, "n d"],
    y: np.ndarray,
    *,
    scatter: Float64[np.ndarray, "d d"] | None = None,
) -> float | None:
    """H-score (1 − a) trace(Σ⁻¹ Σ_b): the share of the variance between classes; higher is better.

    Σ is the covariance of all examples (divided by n), shrunk towards a multiple of the identity
    by the share a that Ledoit and Wolf 2004 say; Σ_b is the covariance of the class mean of each
    example, so large classes count more. It is shrunk by the same share: otherwise a state would
    gain by being shrunk. Bao et al. 2019, regularised as by Ibrahim et al. 2021.

    Args:
        H: states (n, d).
        y: class ids (n,).
        scatter: `centred_scatter(H)`, if it is there already.

    Returns:
        None if all states are the same.

    Raises:
        InputError: if `y` are numbers.
    """
    _only_classes("h_score", y)
    if _same(H):
        return None
    n, d = H.shape
    mean = H.mean(axis=0)
    centred = H - mean
    covariance = (centred.T @ centred if scatter is None else scatter) / n
    lengths = np.einsum("ij,ij->i", centred, centred)
    variance = float(np.trace(covariance)) / d
    squared = float((covariance**2).sum())
    # Σ_i ‖x_i x_iᵀ − Σ‖² / n² against ‖Σ − variance · I‖², both without an n × n matrix.
    noise = max(float(lengths @ lengths) / n - squared, 0.0) / n
    structure = squared - d * variance**2
    shrinkage = max(min(noise / structure, 1.0) if structure > 0 else 0.0, LEAST_SHRINKAGE)
    covariance *= 1 - shrinkage
    covariance.flat[:: d + 1] += shrinkage * variance
    membership = _membership(y)
    count = membership.sum(axis=1)
    between = (membership @ centred) / np.sqrt(n * count)[:, None]  # Σ_b = betweenᵀ between
    factor = np.linalg.cholesky(covariance)
    whitened = solve_triangular(factor, between.T, lower=True, check_finite=False)
    return _finite((1 - shrinkage) * float((whitened**2).sum()))


def numerical_rank(H: Float64[np.ndarray, "n d"], y: np.ndarray) -> float | None:
    """Mean over classes of ‖H_k‖_*² / ‖H_k‖_F², not centred; lower is better.

    The squared sum of the singular values over the sum of their squares: between 1 and the rank,
    so between 1 and n_k for a small class, whatever its states are. Xie et al. 2022, §4.3.

    Args:
        H: states (n, d).
        y: class ids (n,).

    Returns:
        None if all states are the same, or those of one class are all zero.

    Raises:
        InputError: if `y` are numbers.
    """
    _only_classes("numerical_rank", y)
    if _same(H):
        return None
    ranks = []
    for rows in np.split(np.argsort(y, kind="stable"), np.cumsum(np.bincount(y))[:-1]):
        states = H[rows]
        gram = states @ states.T if len(rows) < H.shape[1] else states.T @ states
        eigenvalues = np.maximum(np.linalg.eigvalsh(gram), 0)
        total = float(eigenvalues.sum())
        if total == 0:
            return None
        ranks.append(float(np.sqrt(eigenvalues).sum()) ** 2 / total)
    return _finite(float(np.mean(ranks)))


def _best_evidence(eigenvalues: Array, explained: Array, residual: Array, n: int) -> Array:
    """Maximise the log evidence of every target over α and β.

    With ρ = α/β the evidence is that of y ~ N(0, β⁻¹(I + HHᵀ/ρ)), and 1/β = yᵀ(I + HHᵀ/ρ)⁻¹y / n
    is best.

    Args:
        eigenvalues: of HHᵀ, those that are not zero, (r,).
        explained: what the targets have along the eigenvectors, squared, (r, K).
        residual: what is left of their squares, (K,).
        n: examples.

    Returns:
        The log evidence of each target, (K,).
    """

    def evidence(log_ratio: Array) -> Array:
        odds = eigenvalues[:, None] / 10**log_ratio  # (r, K), or (r, 1)
        quadratic = (explained / (1 + odds)).sum(axis=0) + residual
        determinant = np.log1p(odds).sum(axis=0)
        value: Array = -(n * np.log(2 * np.pi * quadratic / n) + n + determinant) / 2
        return value

    scale = np.log10(eigenvalues[-1])
    grid = np.arange(LEAST_RATIO, LARGEST_RATIO + STEP / 2, STEP) + scale
    best = np.stack([evidence(ratio[None]) for ratio in grid]).argmax(axis=0)
    # Golden-section search between the neighbours of the best, until they are as good as one:
    # 30 steps narrow half a decade to 3e-7, which no longer changes a maximum.
    low = grid[np.maximum(best - 1, 0)]
    high = grid[np.minimum(best + 1, len(grid) - 1)]
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = evidence(left), evidence(right)
    for _ in range(30):
        leftwards = at_left > at_right
        low, high = np.where(leftwards, low, left), np.where(leftwards, right, high)
        left, right = (
            np.where(leftwards, high - GOLDEN * (high - low), right),
            np.where(leftwards, left, low + GOLDEN * (high - low)),
        )
        new = evidence(np.where(leftwards, left, right))
        at_left, at_right = (
            np.where(leftwards, new, at_right),
            np.where(leftwards, at_left, new),
        )
    return np.maximum(at_left, at_right)


def _uncentred(H: Array, scatter: Array | None) -> Array:
    """Give HᵀH, from the scatter about the mean where that is there."""
    mean = H.mean(axis=0)
    product: Array = H.T @ H if scatter is None else scatter + len(H) * np.outer(mean, mean)
    return product


def _membership(y: NDArray[np.int64]) -> csr_array:
    """Make the K × n matrix that is 1 where example i is of class k."""
    ends = np.concatenate([[0], np.cumsum(np.bincount(y))])
    return csr_array((np.ones(len(y)), np.argsort(y, kind="stable"), ends))


def _same(H: Array) -> bool:
    return bool((H[-1] == H[0]).all() and (H[0] == H).all())


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _only_classes(key: str, y: np.ndarray) -> None:
    if y.dtype.kind == "f":
        raise InputError(
            f"`{key}` needs classes, got numbers; for numbers use cca, logme, ridge, probe or "
            "fisher"
        )
