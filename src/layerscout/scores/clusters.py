"""Two clusters of states that resemble each other more than those of the other cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Clusters:
    """The best split of a model's states into a lower and an upper cluster.

    Attributes:
        split: the last state of the lower one.
        lower, upper: the mean similarity of two different states of a cluster.
        between: that of a state of one with a state of the other.
        contrast: the mean over all pairs within the clusters, less `between`. Only beside that of
            the untuned model does it say something: states that drift apart evenly have some too.
    """

    split: int
    lower: float
    upper: float
    between: float
    contrast: float


def find_clusters(similarity: Sequence[Sequence[float | None]]) -> Clusters | None:
    """Find the split of the states of one model with the largest contrast; the lower of equal ones.

    How the two blocks of Phang et al. 2021 (Figures 1 and 2), which are seen there, become a number
    is ours.

    Args:
        similarity: of all states with all, as `cka_map` gives it for one model. States that do not
            vary, whose entries are None, are left out.

    Returns:
        The clusters; None where fewer than four states vary.
    """
    S = np.array(similarity, dtype=np.float64)  # None becomes NaN
    known = np.flatnonzero(np.isfinite(np.diagonal(S)))
    S = S[np.ix_(known, known)]
    if not np.isfinite(S).all():
        return None
    best: Clusters | None = None
    for k in range(2, len(known) - 1):
        lower, upper = (part[np.triu_indices(len(part), 1)] for part in (S[:k, :k], S[k:, k:]))
        between = float(S[:k, k:].mean())
        contrast = float(np.concatenate([lower, upper]).mean()) - between
        if best is None or contrast > best.contrast:
            split = int(known[k - 1])
            best = Clusters(split, float(lower.mean()), float(upper.mean()), between, contrast)
    return best
