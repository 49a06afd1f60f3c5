"""Tasks with several labels for a text: which labels count, and coordinates in which all are alike.

Such labels are an indicator matrix, bool (n, K): which of K labels each of n examples has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float64, Int64

from layerscout.scores.grouping import count_examples

# Variances of the indicators below this share of the largest are rounding: of 10⁸ examples, one.
LEAST_VARIANCE = 1e-10


def find_rare_labels(
    Y: Bool[np.ndarray, "n K"], examples: Int64[np.ndarray, " n"] | None, fewest: int
) -> tuple[int, ...]:
    """Find the labels that fewer than `fewest` examples have, or lack; fewer than 2 always.

    Args:
        Y: which labels each row has.
        examples: (n,), or None; rows with the same number are one example.
        fewest: what is enough.
    """
    counts = np.stack([count_examples(column, examples, 2) for column in Y.T.astype(np.int64)])
    return tuple(np.flatnonzero(counts.min(axis=1) < max(2, fewest)).tolist())


def average_labels(
    by_state: Sequence[Mapping[int, float | None] | None],
) -> tuple[list[float | None], list[int], list[int]]:
    """Average a score over the labels, the same ones at every state.

    Args:
        by_state: the value of each label, None where it is undefined; None for a state that is not
            scored.

    Returns:
        The means, None without any label; the labels that have a value at every state; the others.
    """
    scored = [values for values in by_state if values is not None]
    labels = list(scored[0]) if scored else []
    defined = [label for label in labels if all(values[label] is not None for values in scored)]
    means: list[float | None] = [None] * len(by_state)
    for state, values in enumerate(by_state):
        if values is not None and defined:
            means[state] = float(np.mean([values[label] for label in defined]))
    return means, defined, [label for label in labels if label not in defined]


def whiten_labels(covariance: Float64[np.ndarray, "K K"]) -> Float64[np.ndarray, "K r"]:
    """Give directions along which the labels are uncorrelated and of variance 1.

    The matrix A has AAᵀ = Σ⁺ for the covariance Σ of the labels, whose rank is r: a label that all
    examples have, or none, takes no part, nor does what follows from the other labels.
    """
    variances, vectors = np.linalg.eigh(covariance)
    kept = variances > LEAST_VARIANCE * max(variances[-1], 0.0)
    axes: np.ndarray = vectors[:, kept] / np.sqrt(variances[kept])
    return axes
