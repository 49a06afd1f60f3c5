"""Scores that one decomposition of a state answers, without folds and without anything to train.

LogME, H-score and numerical rank.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from layerscout.scores.grouping import whiten_labels
from layerscout.scores.moments import Centred

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


def logme(states: Centred, scatter: Float64[np.ndarray, "d d"]) -> float | None:
    """Log evidence per example of Bayesian linear regression on the labels; higher is better.

    y ~ N(Hw, β⁻¹I) and w ~ N(0, α⁻¹I), uncentred and without an intercept; the evidence
    N(y | 0, β⁻¹I + α⁻¹HHᵀ) at its maximum over α and β. With classes the mean over one against
    the rest, as 0/1 targets; with several labels for an example the mean over those that occur.
    LogME of You et al. 2021.

    The maximum over β is known given the ratio α/β, which leaves one number to look for. It is
    looked for over 28 decades: the fixed-point iteration of the paper ends at the same maximum
    where there is one, but slowly for n < d, and without end where the fit is perfect. There a
    residual of 1e-6 of the target counts, since what is below is rounding.

    Args:
        states: of n examples.
        scatter: Σ_i (h_i − mean)(h_i − mean)ᵀ; not used for n < d.

    Returns:
        None if all states are the same, or all targets are 0.
    """
    (n, d), y, mean = states.rows.shape, states.labels, states.mean
    numbers, several = y.dtype.kind == "f", y.dtype.kind == "b"
    if several:
        y = y[:, y.any(axis=0)].astype(np.float64)
    count = y.sum(axis=0) if several else states.sizes.sum(axis=0)
    squares = np.array([y @ y]) if numbers else count.astype(np.float64)
    if states.same or not squares.all() or not squares.size:
        return None
    if n < d:
        # Published implementations are wrong here, two that are widely used among them; the tests
        # compare with the evidence of a dense n × n covariance.
        H = states.rows + mean
        eigenvalues, vectors = np.linalg.eigh(H @ H.T)
        if not several:
            y = y[:, None] if numbers else np.equal.outer(y, np.arange(len(count)))
        along = vectors.T @ y
    else:
        if numbers:
            sums = (y @ states.rows + y.sum() * mean)[:, None]
        else:
            of_class = y.T @ states.rows if several else states.sums.sum(axis=0)
            sums = (of_class + np.outer(count, mean)).T
        eigenvalues, vectors = np.linalg.eigh(scatter + n * np.outer(mean, mean), "U")  # of HᵀH
        along = vectors.T @ sums
    # What eigenvalues lie below this is rounding, and so is what a target has along them.
    kept = eigenvalues > d * np.finfo(float).eps * eigenvalues[-1]
    eigenvalues = eigenvalues[kept]
    explained = along[kept] ** 2 if n < d else along[kept] ** 2 / eigenvalues[:, None]
    residual = np.maximum(squares - explained.sum(axis=0), LEAST_RESIDUAL * squares)
    if len(eigenvalues) == n:
        residual = np.zeros_like(squares)
    return float(_best_evidence(eigenvalues, explained, residual, n).mean() / n)


def h_score(states: Centred, scatter: Float64[np.ndarray, "d d"]) -> float | None:
    """H-score (1 − a) trace(Σ⁻¹ Σ_b): the share of the variance between classes; higher is better.

    Σ is the covariance of all examples (divided by n), shrunk towards a multiple of the identity
    by the share a that Ledoit and Wolf 2004 say; Σ_b is the covariance of the class mean of each
    example, so large classes count more. It is shrunk by the same share: otherwise a state would
    gain by being shrunk. Bao et al. 2019, regularised as by Ibrahim et al. 2021. With several
    labels for an example, Σ_b = Σ_hy Σ_yy⁺ Σ_yh, which with one for each is the same.

    Args:
        states: of n examples.
        scatter: as for `logme`.

    Returns:
        None if all states are the same.
    """
    if states.same:
        return None
    n, d = states.rows.shape
    covariance = scatter / n
    diagonal = covariance.diagonal().copy()
    variance = float(diagonal.mean())
    squared = 2 * float((np.triu(covariance) ** 2).sum()) - float(diagonal @ diagonal)
    # Σ_i ‖x_i x_iᵀ − Σ‖² / n² against ‖Σ − variance · I‖², both without an n × n matrix.
    noise = max(float(states.squares @ states.squares) / n - squared, 0.0) / n
    structure = squared - d * variance**2
    shrinkage = max(min(noise / structure, 1.0) if structure > 0 else 0.0, LEAST_SHRINKAGE)
    covariance *= 1 - shrinkage
    covariance.flat[:: d + 1] += shrinkage * variance
    if states.labels.dtype.kind == "b":
        Y = states.labels - states.labels.mean(axis=0)
        between = whiten_labels(Y.T @ Y / n).T @ (Y.T @ states.rows / n)
    else:
        count = states.sizes.sum(axis=0)
        between = states.sums.sum(axis=0) / np.sqrt(n * count)[:, None]
    # Σ_b = betweenᵀ between
    factor = np.linalg.cholesky(covariance, upper=True)
    whitened = solve_triangular(factor, between.T, trans=1, check_finite=False)
    return (1 - shrinkage) * float((whitened**2).sum())


def numerical_rank(states: Centred) -> float | None:
    """Mean over classes of ‖H_k‖_*² / ‖H_k‖_F², not centred; lower is better.

    The squared sum of the singular values over the sum of their squares: between 1 and the rank,
    so between 1 and n_k for a small class, whatever its states are. Xie et al. 2022, §4.3.

    Returns:
        None if all states are the same, or those of one class are all zero.
    """
    if states.same:
        return None
    ranks = []
    for k in range(states.sizes.shape[1]):
        H = states.rows[states.labels == k] + states.mean
        H = H if len(H) >= len(states.mean) else H.T
        # A matrix times itself is half the work.
        eigenvalues = np.linalg.eigvalsh(H.T @ H, "U").clip(min=0)
        total = float(eigenvalues.sum())
        if total == 0:
            return None
        ranks.append(float(np.sqrt(eigenvalues).sum()) ** 2 / total)
    return float(np.mean(ranks))


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

    def largest(quadratic: Array, determinant: Array) -> Array:
        value: Array = -(n * np.log(2 * np.pi * quadratic / n) + n + determinant) / 2
        return value

    def evidence(log_ratio: Array) -> Array:
        odds = eigenvalues[:, None] / 10**log_ratio  # (r, K)
        quadratic = (explained / (1 + odds)).sum(axis=0) + residual
        return largest(quadratic, np.log1p(odds).sum(axis=0))

    scale = np.log10(eigenvalues[-1])
    grid = np.arange(LEAST_RATIO, LARGEST_RATIO + STEP / 2, STEP) + scale
    odds = eigenvalues[:, None] / 10**grid  # the same for every target, (r, G)
    quadratic = explained.T @ (1 / (1 + odds)) + residual[:, None]
    best = largest(quadratic, np.log1p(odds).sum(axis=0)).argmax(axis=1)
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
