"""How far a metric may lie from what it would be on endlessly many examples like these."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from layerscout.data.metrics import evaluate, evaluate_without
from layerscout.data.tags import Tags

# Groups of a jackknife, and cells that the tables of all of them may have together.
GROUPS, CELLS = 200, 4_000_000
# Metrics that begin at −1; all others begin at 0.
SIGNED = frozenset({"matthews_correlation", "pearson", "spearman", "pearson_spearman"})


def find_interval(
    metric: str,
    labels: np.ndarray,
    logits: np.ndarray,
    *,
    tags: Tags | None = None,
    thresholds: np.ndarray | None = None,
    level: float = 0.95,
) -> tuple[float, float]:
    """Give a confidence interval of a metric that never leaves the metric's range.

    Wilson's score interval (1927) with the effective number of examples that a delete-a-group
    jackknife shows (Korn and Graubard 1998; Dean and Pagano 2015). Of six right answers to six
    questions it is 0.61 to 1, where the jackknife alone says 1 to 1. Words of a sentence stay
    together.

    Args:
        metric: as for `evaluate`, and so is all else.
        level: of confidence.

    Raises:
        InputError: as `evaluate`.
    """
    value = evaluate(metric, labels, logits, tags=tags, thresholds=thresholds)
    low, width = (-1.0, 2.0) if metric in SIGNED else (0.0, 1.0)
    units = np.arange(len(labels)) if tags is None else tags.sentences
    count = int(np.unique(units).size)
    share, effective = min(1.0, max(0.0, (value - low) / width)), float(count)
    if count > 1 and 0 < share < 1:
        groups = _deal(units, min(GROUPS, count, max(2, CELLS // logits.shape[1] ** 2)))
        without = evaluate_without(metric, labels, logits, groups, tags=tags, thresholds=thresholds)
        variance = int(groups.max()) * float(without.var()) / width**2
        effective = max(1.0, share * (1 - share) / variance) if variance else effective
    middle, half = _score_interval(share, effective, float(ndtri((1 + level) / 2)))
    ends = (max(0.0, middle - half), min(1.0, middle + half))
    return low + width * ends[0], low + width * ends[1]


def _deal(units: np.ndarray, groups: int) -> np.ndarray:
    """Deal units into groups of like size at random, always the same for as many."""
    place = np.unique(units, return_inverse=True)[1].reshape(-1)
    dealt = np.random.default_rng(0).permutation(int(place.max()) + 1) % groups
    found: np.ndarray = dealt[place]
    return found


def _score_interval(share: float, examples: float, z: float) -> tuple[float, float]:
    """Give the middle and half the width of Wilson's interval."""
    scale = 1 / (1 + z**2 / examples)
    middle = scale * (share + z**2 / (2 * examples))
    spread = share * (1 - share) / examples + z**2 / (4 * examples**2)
    return middle, scale * z * float(np.sqrt(spread))
