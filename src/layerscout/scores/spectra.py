"""Scores of blocks that need their weights alone: signal to noise in the singular values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from layerscout.errors import InputError


def weight_snr(matrix: ArrayLike) -> float | None:
    """Signal to noise of a weight matrix, by a noise edge from random-matrix theory.

    With the singular values s, σ̂ = IQR(s) / 1.349 and β the shorter over the longer side, what
    lies above σ̂(1 + √β) counts as signal and the rest as noise: the sum of the signal over the sum
    of the noise, divided by the largest singular value. So it is 0 where nothing is above the edge,
    and 1/c times as large for a matrix c times as large. None where nothing but rounding is below
    the edge, for then there is no noise to compare with: matrices of exactly low rank, with all
    singular values alike, or of one row. Hartford et al. 2024 (Spectrum).

    Args:
        matrix: weights (m, k).

    Raises:
        InputError: if a value is not finite.
    """
    given = np.asarray(matrix)
    W = np.asarray(given, dtype=np.float64)
    scale = float(np.abs(W).max(initial=0.0))
    if not np.isfinite(scale):
        raise InputError("weights must be finite, got NaN or infinity; check the checkpoint")
    if scale == 0:
        return None
    # The rounding of the type that the weights come in: float64 cannot undo it.
    eps = float(np.finfo(given.dtype if given.dtype.kind == "f" else np.float64).eps)
    signal, noise = _parts(W / scale, eps)
    return None if noise is None else signal / noise / scale


def score_spectra(
    matrices: Mapping[tuple[int, str], ArrayLike],
) -> tuple[list[float | None], dict[str, Any]]:
    """Rank blocks by `weight_snr`, each type of matrix by itself, and average the standings.

    Ratios of different types do not compare: shapes and scales differ. A block's standing in a
    type is 1 − (blocks with a higher ratio) / (other blocks with a ratio), so blocks that share
    their weights stand alike. Hartford et al. 2024 (Spectrum) rank within a type too, and tune
    different matrices in different blocks; the mean over types is what makes it one per block.

    Args:
        matrices: weights (m, k) by block, 1..L, and type, such as (3, "attention.query").

    Returns:
        For entries 0..L the mean over the types of the block's standing, from 0 (lowest ratio of
        all blocks) to 1 (highest), None where no matrix of the block has a ratio; and the ratios
        by type.

    Raises:
        InputError: as `weight_snr`.
    """
    L = max((block for block, _ in matrices), default=0)
    ratios: dict[str, list[float | None]] = {kind: [None] * (L + 1) for _, kind in matrices}
    before: dict[str, int] = {}
    for block, kind in sorted(matrices):
        of_type, last = ratios[kind], before.get(kind)
        # Shared weights are worked out once, and tie to the last digit.
        if last is not None and np.array_equal(matrices[block, kind], matrices[last, kind]):
            of_type[block] = of_type[last]
        else:
            of_type[block] = weight_snr(matrices[block, kind])
        before[kind] = block
    values: list[float | None] = [None] * (L + 1)
    for block in range(1, L + 1):
        standings = []
        for of_type in ratios.values():
            own, others = of_type[block], [ratio for ratio in of_type if ratio is not None]
            if own is not None:
                higher = sum(ratio > own for ratio in others)
                standings.append(1 - higher / max(len(others) - 1, 1))
        if standings:
            values[block] = float(np.mean(standings))
    return values, {"by_type": ratios}


def _parts(W: Float64[np.ndarray, "m k"], eps: float) -> tuple[float, float | None]:
    """Return the sum of the signal over the largest singular value, and that of the noise.

    None for noise that is no more than the rounding of the weights.
    """
    gram = W @ W.T if W.shape[0] <= W.shape[1] else W.T @ W
    s = np.sqrt(np.linalg.eigvalsh(gram).clip(min=0))
    edge, double = _edge(s, W.shape), float(np.finfo(np.float64).eps)
    # Eigenvalues are several times faster than an SVD, but a root takes an error of ε s_max² in s²
    # to ε s_max² / s in s. Where that shows in the noise, the SVD it is.
    error = 16 * double * s.max() ** 2 / s.clip(min=double**0.5 * s.max())
    if error[s <= edge].sum() > 1e-7 * s[s <= edge].sum():
        s = np.linalg.svd(W, compute_uv=False)
        edge = _edge(s, W.shape)
    noise = s[s <= edge]
    rounding = 16 * eps * float(np.linalg.norm(s)) * len(noise)
    signal = float(s[s > edge].sum() / s.max())
    return signal, float(noise.sum()) if noise.sum() > rounding else None


def _edge(s: Float64[np.ndarray, " r"], shape: tuple[int, ...]) -> float:
    lower, upper = np.percentile(s, [25, 75])
    return float((upper - lower) / 1.349 * (1 + (min(shape) / max(shape)) ** 0.5))
