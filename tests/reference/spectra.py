"""Naive signal to noise of weight matrices, by a full SVD."""

import numpy as np


def weight_snr(W: np.ndarray) -> float:
    s = sorted(np.linalg.svd(np.asarray(W, dtype=np.float64))[1])
    sigma = (np.quantile(s, 0.75) - np.quantile(s, 0.25)) / 1.349
    m, k = W.shape
    beta = m / k if m < k else k / m
    edge = sigma * (1 + np.sqrt(beta))
    signal = sum(value for value in s if value > edge)
    noise = sum(value for value in s if value <= edge)
    return float(signal / noise / s[-1])


def block_snr(matrices: dict) -> dict[int, float]:
    """For matrices that all have a ratio: the mean share of the others that are not above."""
    ratios = {key: weight_snr(W) for key, W in matrices.items()}
    standings: dict[int, list[float]] = {}
    for (block, kind), ratio in ratios.items():
        others = [r for (b, k), r in ratios.items() if k == kind and b != block]
        above = sum(other > ratio for other in others)
        standings.setdefault(block, []).append(1 - above / max(len(others), 1))
    return {block: float(np.mean(each)) for block, each in standings.items()}
