"""Examples dealt into groups by their labels, and labels with too few examples.

Labels are class ids, int64 (n,), or numbers, float64 (n,), or indicators of several, bool (n, K).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy.typing import NDArray

from layerscout.data import deal_labels, stratify

GROUPS = 20
# The share of examples with rows of several classes up to which those of one are dealt by class.
MIXED = 0.05
# Variances of the indicators below this share of the largest are rounding: of 10⁸ examples, one.
LEAST_VARIANCE = 1e-10


def deal_groups(
    y: NDArray[np.int64] | NDArray[np.float64] | NDArray[np.bool_],
    seed: int,
    examples: NDArray[np.int64] | None = None,
    groups: int = GROUPS,
    least: int = 2,
) -> NDArray[np.int64]:
    """Deal the examples into groups that all have every class in proportion, to within one.

    There are as many groups as leave `least` examples of every class in each, at most `groups`, at
    least 1.

    Args:
        y: class ids (n,), or targets as floats, which are dealt evenly, or which labels there are,
            bool (n, K), which `deal_labels` deals.
        seed: the same one deals the same groups.
        examples: (n,); rows with the same number stay together. Where many of them have rows of
            several classes, as sentences of words have, `deal_labels` deals them.
        groups: how many at most.
        least: of every class in each group; 0 if a class may be missing from some.

    Returns:
        The group of each row, 0..B−1, (n,).
    """
    if examples is not None:
        _, firsts, example = np.unique(examples, return_index=True, return_inverse=True)
        own, mixed = y[firsts], np.zeros(len(firsts), dtype=bool)
        if y.dtype.kind == "i":
            mixed[example[y != own[example]]] = True
        # As of texts that occur again: those of one class are dealt by it, and then the others.
        known = y.dtype.kind != "i" or np.isin(y, own[~mixed]).all()
        if mixed.mean() <= MIXED and known:
            part = np.empty(len(firsts), np.int64)
            part[~mixed] = deal_groups(own[~mixed], seed, groups=groups, least=least)
            part[mixed] = np.arange(mixed.sum()) % (part[~mixed].max() + 1)
            return part[example]
    if y.dtype.kind == "b":
        return deal_labels(y, _share_rows(len(y), min(groups, len(y))), seed)
    example, stratum = stratify(y, examples)
    classes = np.zeros(len(y), np.int64) if y.dtype.kind == "f" else y
    smallest = count_examples(classes, examples).min()
    shuffled = np.random.default_rng(seed).permutation(len(stratum))
    order = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    most = int(smallest) // least if least else len(stratum)
    count = max(1, min(groups, most))
    if y.dtype.kind == "i" and examples is not None and stratum.any():
        dealt = _deal_examples(example, y, count, least, seed)
    else:
        # The deal continues where the class before stopped: the groups are as large as each other.
        dealt = np.empty(len(stratum), np.int64)
        dealt[order] = np.arange(len(stratum)) % count
    groups_of_rows: NDArray[np.int64] = dealt[example]
    return groups_of_rows


def _deal_examples(
    example: NDArray[np.int64], y: np.ndarray, count: int, least: int, seed: int
) -> NDArray[np.int64]:
    """Deal examples whose rows have several classes into groups, (m,): `count` of them at most.

    There are fewer groups where one would have less than `least` examples of a class.
    """
    indicators = np.zeros((int(example.max()) + 1, int(y.max()) + 1), dtype=bool)
    indicators[example, y] = True
    for groups in range(count, 0, -1):
        dealt = deal_labels(indicators, _share_rows(len(indicators), groups), seed)
        counts = np.zeros((groups, indicators.shape[1]), np.int64)
        np.add.at(counts, dealt, indicators)
        if counts[:, indicators.any(axis=0)].min() >= least:
            break
    return dealt


def _share_rows(rows: int, groups: int) -> NDArray[np.int64]:
    """Return the sizes of groups that are as large as each other."""
    sizes: NDArray[np.int64] = np.bincount(np.arange(rows) % groups, minlength=groups)
    return sizes


def count_examples(
    y: np.ndarray, examples: NDArray[np.int64] | None, least: int = 0
) -> NDArray[np.int64]:
    """Count the examples that have rows of each class, (K,).

    Args:
        y: class ids (n,).
        examples: (n,), or None; rows with the same number are one example.
        least: classes that there are, even if no row is of the last ones.
    """
    if examples is None:
        return np.bincount(y, minlength=least)
    classes = int(y.max()) + 1
    return np.bincount(np.unique(examples * classes + y) % classes, minlength=least)


def find_rare(y: np.ndarray, examples: NDArray[np.int64] | None, fewest: int) -> tuple[int, ...]:
    """Find the classes with fewer than `fewest` examples; none if fewer than 2 others remain.

    Those of a single example, or none, are always among them: no example can judge another there.

    Args:
        y: class ids (n,), or targets as floats or labels (n, K), which have no classes.
        examples: as of `count_examples`.
        fewest: what is enough.
    """
    if y.dtype.kind in "fb":
        return ()
    counts = count_examples(y, examples)
    rare = np.flatnonzero(counts < max(2, fewest))
    return tuple(rare.tolist()) if len(counts) - len(rare) >= 2 else ()


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
    """Return directions along which the labels are uncorrelated and of variance 1.

    The matrix A has AAᵀ = Σ⁺ for the covariance Σ of the labels, whose rank is r: a label that all
    examples have, or none, takes no part, nor does what follows from the other labels.
    """
    variances, vectors = np.linalg.eigh(covariance)
    kept = variances > LEAST_VARIANCE * max(variances[-1], 0.0)
    axes: np.ndarray = vectors[:, kept] / np.sqrt(variances[kept])
    return axes


def tenth(
    y: np.ndarray, examples: np.ndarray | None, rng: np.random.Generator
) -> Bool[np.ndarray, " n"]:
    """Draw a tenth of the rows, evenly over the labels; of a class with one row, none.

    Rows of one example stay together; then a tenth of the examples is drawn, evenly if each has
    rows of one label. Where rows may have several labels, any of them are drawn, but of each label
    one stays.
    """
    if examples is not None:
        _, firsts, unit = np.unique(examples, return_index=True, return_inverse=True)
        own = y[firsts]
        return tenth(own if (own[unit] == y).all() else np.zeros(len(own)), None, rng)[unit]
    if y.dtype.kind == "b":
        some = tenth(np.zeros(len(y)), None, rng)
        for label in np.flatnonzero(y.any(axis=0) & ~y[~some].any(axis=0)):
            if not y[~some, label].any():  # one that stays for another label may have this, too
                some[np.flatnonzero(y[:, label])[0]] = False
        return some
    alone = y.dtype.kind != "f" and np.bincount(y)[y] == 1
    order = np.lexsort((rng.random(len(y)), y))
    order = order[~np.broadcast_to(alone, y.shape)[order]]
    drawn = np.zeros(len(y), dtype=bool)
    drawn[order[rng.integers(max(1, min(10, len(order)))) :: 10]] = True
    return drawn
