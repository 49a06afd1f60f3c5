"""Examples dealt into groups, and products of the class means of different groups.

Products of means and covariances that come from different examples carry no noise of the means,
for any distribution with second moments: the examples are dealt into groups, and the products are
averaged over all choices of different groups. Leaving out a group is then a subtraction, so the
same sums give a jackknife.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert

from layerscout.data import deal_labels, stratify
from layerscout.runtime import InputError
from layerscout.scores.moments import Centred
from layerscout.scores.score import FEWEST_GROUPS

Array = NDArray[np.float64]

GROUPS = 20


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
        examples: (n,); rows with the same number stay together. Where their classes are not the
            same in all of them, as those of words in a sentence, `deal_labels` deals them.
        groups: how many at most.
        least: of every class in each group; 0 if a class may be missing from some.

    Returns:
        The group of each row, 0..B−1, (n,).
    """
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
    found: NDArray[np.int64] = dealt[example]
    return found


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
        found = np.zeros((groups, indicators.shape[1]), np.int64)
        np.add.at(found, dealt, indicators)
        if found[:, indicators.any(axis=0)].min() >= least:
            break
    return dealt


def _share_rows(rows: int, groups: int) -> NDArray[np.int64]:
    """Give the sizes of groups that are as large as each other."""
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

    Those without an example are always among them: a task of words knows tags that a sample lacks.

    Args:
        y: class ids (n,), or targets as floats or labels (n, K), which have no classes.
        examples: as of `count_examples`.
        fewest: what is enough.
    """
    if y.dtype.kind in "fb":
        return ()
    counts = count_examples(y, examples)
    rare = np.flatnonzero(counts < max(1, fewest))
    return tuple(rare.tolist()) if len(counts) - len(rare) >= 2 else ()


@dataclass(frozen=True, eq=False)
class Grouped:
    """States of examples that were dealt into B groups, and their class means in each.

    The class means are about their mean, so that states far from the origin lose no digits, and in
    an orthonormal basis of the space orthogonal to the vector of ones: J = K − 1.

    Attributes:
        states: of the examples, sorted by group.
        class_means: (B, K, d), about the mean of all examples.
        means: M_g, (B, d, J).
        mean: M of all examples, (d, J).
    """

    states: Centred
    class_means: Array
    means: Array
    mean: Array

    @classmethod
    def of(cls, states: Centred) -> Grouped:
        """Average the examples of each class in each group.

        Raises:
            InputError: as `variability.estimate_debiased`.
        """
        _check_sizes(states)
        sizes = states.sizes
        class_means = states.sums / sizes[:, :, None]
        basis = helmert(sizes.shape[1]).T  # (K, J)
        means = class_means.transpose(0, 2, 1) @ basis
        mean = (states.sums.sum(axis=0) / sizes.sum(axis=0)[:, None]).T @ basis
        return cls(states, class_means, means, mean)

    def between(self) -> Array:
        """Average M_gᵀM_h over two different groups, in all ways: (1 + B, J, J).

        The first is over all groups, the others are without each.
        """
        B = len(self.means)
        products = _multiply_with_others(self.means)
        total = products.sum(axis=0)
        without = (total - 2 * products) / ((B - 1) * (B - 2))
        return np.concatenate([total[None] / (B * (B - 1)), without])

    def within(self) -> Array:
        """Average M_gᵀS_lM_h over three different groups, in all ways: (1 + B, J, J).

        S_l is the mean of the unbiased class covariances of group l. The first is over all groups,
        the others are without each.
        """
        B, d, J = self.means.shape
        directions = self.means.transpose(1, 0, 2).reshape(d, B * J)
        total, without = np.zeros((J, J)), np.zeros((B, J, J))
        averages = self.class_means @ directions  # (B, K, B·J)
        groups = np.split(self.states.rows, np.cumsum(self.states.sizes.sum(axis=1))[:-1])
        for own, (rows, count) in enumerate(zip(groups, self.states.sizes, strict=True)):
            along = rows @ directions  # (m, B·J)
            along -= np.repeat(averages[own], count, axis=0)
            along *= np.repeat(1 / np.sqrt((count - 1) * len(count)), count)[:, None]
            parts = along.reshape(-1, B, J).transpose(1, 0, 2)
            parts[own] = 0
            products = _multiply_with_others(parts)
            of_group = products.sum(axis=0)
            total += of_group
            remaining = of_group - 2 * products
            remaining[own] = 0
            without += remaining
        pairs = (B - 1) * (B - 2)
        return np.concatenate([total[None] / (B * pairs), without / (pairs * (B - 3))])


def _check_sizes(states: Centred) -> None:
    """Check that there are enough examples of each class in each group."""
    if states.labels.dtype.kind == "f":
        raise InputError("the variability ratio needs classes, got numbers; use --score ridge")
    counts, (B, K) = states.sizes, states.sizes.shape
    if K < 2:
        raise InputError("the variability ratio needs 2 or more classes, got 1; use other data")
    if B < FEWEST_GROUPS or counts.min() < 2:
        of_class = counts.sum(axis=0)
        raise InputError(
            f"the debiased variability ratio needs 2 or more examples of every class in each of "
            f"{FEWEST_GROUPS} or more groups, so {2 * FEWEST_GROUPS} in all, and class "
            f"{of_class.argmin()} has {of_class.min()}; use more examples, or --score "
            "variability_ratio, which needs only 2"
        )


def _multiply_with_others(parts: Array) -> Array:
    """Multiply each part with the sum of all others: B matrices m × J to B of J × J, symmetric.

    They add up to the sum of AᵀC over all ordered pairs of different parts A and C; the pairs
    that a part enters are twice its own product.
    """
    rest = parts.sum(axis=0) - parts
    products = rest.transpose(0, 2, 1) @ parts
    symmetric: Array = (products + products.swapaxes(1, 2)) / 2
    return symmetric
