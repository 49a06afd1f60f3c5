"""Labelled states that the tests of scores share."""

import numpy as np


def examples(seed, n=60, d=6, K=3, signal=1.0, *, skew=False, conditioned=0.0, shift=10.0):
    """Return skewed states (n, d) far from the origin, and class ids (n,), two of each or more."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(K).repeat(2), rng.integers(0, K, n - 2 * K)])
    if skew:
        y[2 * K :] = np.where(rng.random(n - 2 * K) < 0.9, 0, y[2 * K :])
    centres = signal * rng.normal(size=(K, d))
    noise = rng.standard_t(4, size=(n, d)) @ rng.normal(size=(d, d))
    return noise * np.logspace(0, -conditioned, d) + centres[y] + shift * rng.normal(size=d), y
