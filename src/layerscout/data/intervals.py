"""How far a metric may lie from what it would be on endlessly many examples like these."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from layerscout.data.metrics import evaluate, evaluate_without, predict_labels
from layerscout.data.words import Tags

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
    folds: int = 1,
) -> tuple[float, float]:
    """Return a confidence interval of a metric that never leaves the metric's range.

    Wilson's score interval (1927) with the effective number of examples that a delete-a-group
    jackknife shows (Korn and Graubard 1998; Dean and Pagano 2015). Of six right answers to six
    questions it is 0.61 to 1, where the jackknife alone says 1 to 1. Words of a sentence stay
    together.

    Args:
        metric: as for `evaluate`, and so is all else.
        level: of confidence.
        folds: that the examples were left out in, J of them, where each was judged by a model that
            was made from the others. Models of two folds share most of their examples, so that the
            variance is 1 + J / (J − 1) times as large (Nadeau and Bengio 2003, section 3: 1/J +
            n₂/n₁ in place of 1/J, where n₂ examples are left out and n₁ are not).

    Raises:
        InputError: as `evaluate`.
    """
    value = evaluate(metric, labels, logits, tags=tags, thresholds=thresholds)
    low, width = (-1.0, 2.0) if metric in SIGNED else (0.0, 1.0)
    units = np.arange(len(labels)) if tags is None else tags.sentences
    count = int(np.unique(units).size)
    share, effective = min(1.0, max(0.0, (value - low) / width)), float(count)
    if count > 1 and 0 < share < 1:
        groups = _deal(units, logits.shape[1])
        without = evaluate_without(metric, labels, logits, groups, tags=tags, thresholds=thresholds)
        variance = (standard_error(without) / width) ** 2
        effective = share * (1 - share) / variance if variance else effective
    effective = max(1.0, effective / (1 + folds / (folds - 1) if folds > 1 else 1))
    ends = find_share_interval(share, effective, level)
    return low + width * ends[0], low + width * ends[1]


def find_share_interval(share: float, count: float, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval of a share of so many independent examples."""
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    scale = 1 / (1 + z**2 / count)
    middle = scale * (share + z**2 / (2 * count))
    spread = share * (1 - share) / count + z**2 / (4 * count**2)
    half = scale * z * float(np.sqrt(spread))
    return max(0.0, middle - half), min(1.0, middle + half)


def find_difference(
    metric: str,
    labels: np.ndarray,
    pair: tuple[np.ndarray, np.ndarray],
    *,
    tags: Tags | None = None,
    thresholds: tuple[np.ndarray | None, np.ndarray | None] = (None, None),
    level: float = 0.95,
) -> tuple[float, tuple[float, float] | None]:
    """Return how far the second of two models is above the first on the same examples.

    The interval of accuracy is that of Agresti and Min (2005, section 2): half an example more in
    each cell of the table of right and wrong, so that a few flips are no certainty. Of other
    metrics, and of words, it is the delete-a-group jackknife of the paired difference.

    Args:
        metric: as for `evaluate`, and so are labels and tags.
        pair: the logits of both models, (n, K) each.
        thresholds: of both models.
        level: of confidence.

    Returns:
        The difference and its interval; None for a single example or sentence.

    Raises:
        InputError: as `evaluate`.
    """
    judged = list(zip(pair, thresholds, strict=True))
    first, second = (
        evaluate(metric, labels, logits, tags=tags, thresholds=least) for logits, least in judged
    )
    difference = second - first
    units = np.arange(len(labels)) if tags is None else tags.sentences
    if np.unique(units).size < 2:
        return difference, None
    if metric == "accuracy" and tags is None:
        right = [predict_labels(labels, logits) == labels for logits in pair]
        gained, lost = int((right[1] & ~right[0]).sum()), int((right[0] & ~right[1]).sum())
        return difference, _pair_interval(gained, lost, len(labels), level)
    groups = _deal(units, pair[0].shape[1])
    without = [
        evaluate_without(metric, labels, logits, groups, tags=tags, thresholds=least)
        for logits, least in judged
    ]
    half = half_width(without[1] - without[0], level)
    return difference, (difference - half, difference + half)


def half_width(replicates: Float64[np.ndarray, " B"], level: float) -> float:
    """Return half the width of a delete-a-group jackknife's interval, by Student's t of B − 1."""
    from scipy.special import stdtrit

    return float(stdtrit(len(replicates) - 1, (1 + level) / 2)) * standard_error(replicates)


def standard_error(replicates: Float64[np.ndarray, " B"]) -> float:
    """Return the standard error that B leave-one-group-out values (B,) show."""
    B = len(replicates)
    return float(np.sqrt((B - 1) * replicates.var()))


def _pair_interval(gained: int, lost: int, examples: int, level: float) -> tuple[float, float]:
    """Return the interval of a difference of two shares of the same examples."""
    from scipy.special import ndtri

    total = examples + 2
    middle = (gained - lost) / total
    half = float(ndtri((1 + level) / 2)) * np.sqrt(gained + lost + 1 - (gained - lost) ** 2 / total)
    return float(max(-1.0, middle - half / total)), float(min(1.0, middle + half / total))


def _deal(units: np.ndarray, classes: int) -> np.ndarray:
    """Deal units into groups of like size at random, always the same for as many."""
    place = np.unique(units, return_inverse=True)[1].reshape(-1)
    count = int(place.max()) + 1
    groups = min(GROUPS, count, max(2, CELLS // classes**2))
    dealt = np.random.default_rng(0).permutation(count) % groups
    groups_of_examples: np.ndarray = dealt[place]
    return groups_of_examples
