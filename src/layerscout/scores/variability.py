"""The variability ratio without the noise of the class means, and how sure it is.

The published ratio is tr(G⁻¹ G⁻¹ H) of two small matrices: with the class means M (d × K) in an
orthonormal basis of the space orthogonal to the vector of ones, G = MᵀM and H = MᵀΣ_wM. Their
plug-in values count the noise of the class means as distance between classes. Products of means
and covariances that come from different examples do not, for any distribution with second moments:
the examples are dealt into groups, and G and H are averaged over all choices of different groups.
Leaving out a group is then a subtraction, so the same sums give a jackknife.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.linalg import helmert
from scipy.special import stdtrit

from layerscout.runtime import InputError
from layerscout.scores.moments import Centred

Array = NDArray[np.float64]

GROUPS = 20
# A product of three different groups must be left when one group is left out.
FEWEST_GROUPS = 4
# As for the plug-in ratio: singular values below 1e-6 of the largest are no direction.
WEAKEST = 1e-12
# Half the width of an interval of the logarithm, at most: its end must not overflow.
WIDEST = 500.0


@dataclass(frozen=True, eq=False)
class Debiased:
    """The variability ratio of one state, estimated without the noise of the class means.

    Attributes:
        value: the ratio; None where G or H is not positive definite, be it with all groups or
            with one of them left out: the classes are then too hard to tell apart for so few
            examples.
        signal_fraction: tr G over its plug-in value: the share of the distance between the class
            means that is not noise. 0 or less where nothing is seen of it; None where all class
            means are the same.
        replicates: (B,), the logarithm of the ratio without group g; None where `value` is.
    """

    value: float | None
    signal_fraction: float | None
    replicates: Float64[np.ndarray, " B"] | None


@dataclass(frozen=True)
class Decision:
    """Whether the best state is known.

    Attributes:
        best: the state among 1..L with the lowest ratio; None where no ratio is defined.
        decided: whether every other state is separable from it.
        close: whether every state that is not separable has a ratio within the tolerance.
        rest: the states among 1..L that are not separable from the best.
    """

    best: int | None
    decided: bool
    close: bool
    rest: tuple[int, ...]


def stratified_groups(
    y: NDArray[np.int64] | NDArray[np.float64],
    seed: int,
    examples: NDArray[np.int64] | None = None,
    groups: int = GROUPS,
) -> NDArray[np.int64]:
    """Deal the examples into groups that all have every class in proportion, to within one.

    There are as many groups as leave 2 examples of every class in each, at most `groups`, at
    least 1.

    Args:
        y: class ids (n,), or targets as floats, which are dealt evenly.
        seed: the same one deals the same groups.
        examples: (n,); rows with the same number stay together.
        groups: how many at most.

    Returns:
        The group of each row, 0..B−1, (n,).
    """
    stratum = np.zeros(len(y), np.int64) if y.dtype.kind == "f" else y.astype(np.int64)
    example, smallest = np.arange(len(y)), np.bincount(stratum).min()
    if examples is not None:
        example = np.unique(examples, return_inverse=True)[1].reshape(-1)
        makeup = np.zeros((example.max() + 1, stratum.max() + 1), np.int64)
        np.add.at(makeup, (example, stratum), 1)
        smallest = (makeup > 0).sum(axis=0).min()
        stratum = np.unique(makeup, axis=0, return_inverse=True)[1].reshape(-1)
    shuffled = np.random.default_rng(seed).permutation(len(stratum))
    order = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    # The deal goes on where the class before stopped, so the groups are as large as each other.
    dealt = np.empty(len(stratum), np.int64)
    dealt[order] = np.arange(len(stratum)) % max(1, min(groups, int(smallest) // 2))
    return dealt[example]


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
            InputError: as `debiased`.
        """
        sizes = _checked(states).sizes
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
        products = _with_others(self.means)
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
            products = _with_others(parts)
            of_group = products.sum(axis=0)
            total += of_group
            remaining = of_group - 2 * products
            remaining[own] = 0
            without += remaining
        pairs = (B - 1) * (B - 2)
        return np.concatenate([total[None] / (B * pairs), without / (pairs * (B - 3))])


def debiased(states: Centred, *, resolution: float | None = None) -> Debiased:
    """Estimate the variability ratio ν = (1/K) trace(Σ_w Σ_b†) without the noise of the means.

    Every class counts alike. The definition is that of Xie et al. 2022, §3.1, equation 3. Costs
    n · d · B · (K−1) multiplications; no d × d matrix is made.

    Args:
        states: of examples whose groups are as `stratified_groups` deals them. Examples of
            different groups must be independent.
        resolution: rounding error of the states, relative to their size; None for that of the
            type they came in.

    Raises:
        InputError: if there are fewer than two classes, fewer than four groups, fewer than two
            examples of a class in a group, or more than d + 1 classes.
    """
    grouped = Grouped.of(states)
    _, d, J = grouped.means.shape
    if d < J:
        raise InputError(
            f"the debiased ratio needs at least as many features as classes less one, got {d} "
            f"features and {J + 1} classes; use --score variability_ratio"
        )
    G = grouped.between()
    # Class means, or examples of a class, that differ by no more than rounding are the same.
    resolution = resolution or states.resolution
    rounding = (16 * resolution) ** 2 * float(states.mean @ states.mean)
    plug_in = float((grouped.mean**2).sum())
    fraction = float(np.trace(G[0])) / plug_in if plug_in > rounding else None
    weights, vectors = np.linalg.eigh(G)
    if not _positive(weights, np.full(len(G), rounding)):
        return Debiased(None, fraction, None)
    within = grouped.within()
    if not _positive(np.linalg.eigvalsh(within), rounding * weights[:, 0]):
        return Debiased(None, fraction, None)
    # tr(G⁻¹ G⁻¹ H), in the basis of the eigenvectors of G.
    along = np.einsum("rji,rjk,rki->ri", vectors, within, vectors, optimize=True)
    ratios = (along / weights**2).sum(axis=1)
    return Debiased(float(ratios[0]), fraction, np.log(ratios[1:]))


def interval(result: Debiased, level: float = 0.95) -> tuple[float | None, float | None]:
    """Give the ends of a confidence interval; (None, None) where the ratio is undefined.

    Delete-a-group jackknife of the logarithm, with Student's t of B − 1 degrees of freedom.
    """
    if result.value is None or result.replicates is None:
        return None, None
    error = _standard_error(result.replicates)
    half = stdtrit(len(result.replicates) - 1, (1 + level) / 2) * error
    factor = float(np.exp(min(half, WIDEST)))
    return result.value / factor, result.value * factor


def separable(
    results: Sequence[Debiased | None], best: int, looks: int = 1, level: float = 0.05
) -> list[bool | None]:
    """Tell which states differ from the best one by more than chance; None where undefined.

    Paired jackknife of the logarithm of the two ratios, two-sided, adjusted (Bonferroni) for the
    number of states among 1..L that are compared and for the number of looks at growing data.

    Args:
        results: of states 0..L, over the same groups; None for a state that is not scored.
        best: the state that the others are compared with, itself never separable.
        looks: how many times such a decision may be taken.
        level: the chance of any false separation.

    Raises:
        InputError: if the best state is undefined.
    """
    defined = _defined(results)
    if best not in defined:
        raise InputError(f"state {best} has no ratio to compare with; choose a defined state")
    lowest, others = defined[best]
    compared = sum(state not in (0, best) for state in defined)
    chance = level / (max(1, compared) * looks)
    limit = float(stdtrit(len(others) - 1, 1 - chance / 2))
    found: list[bool | None] = [None] * len(results)
    for state, (value, replicates) in defined.items():
        difference = abs(float(np.log(value / lowest)))
        found[state] = difference > limit * _standard_error(replicates - others)
    return found


def decision(
    results: Sequence[Debiased | None], looks: int = 1, tolerance: float = 0.02
) -> Decision:
    """Find the best state among 1..L and whether more examples could change it.

    Undefined states never win, but more examples may define them, so nothing is decided or close
    while there are any. Ties go to the lower state.

    Args:
        results: of states 0..L, over the same groups; None for a state that is not scored.
        looks: as for `separable`.
        tolerance: how much larger than the best a ratio may be to count as close.
    """
    ratios = {state: value for state, (value, _) in _defined(results).items() if state > 0}
    if not ratios:
        return Decision(None, decided=False, close=False, rest=())
    best = min(ratios, key=lambda state: ratios[state])
    apart = separable(results, best, looks)
    rest = tuple(state for state in ratios if state != best and not apart[state])
    scored = sum(result is not None for result in results[1:])
    close = all(ratios[state] <= (1 + tolerance) * ratios[best] for state in rest)
    whole = len(ratios) == scored
    return Decision(best, decided=whole and not rest, close=whole and close, rest=rest)


def _defined(results: Sequence[Debiased | None]) -> dict[int, tuple[float, Array]]:
    """Give the ratio and the replicates of each state that has them, in order."""
    return {
        state: (result.value, result.replicates)
        for state, result in enumerate(results)
        if result and result.value is not None and result.replicates is not None
    }


def _checked(states: Centred) -> Centred:
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
            "variability_ratio, which does with 2"
        )
    return states


def _with_others(parts: Array) -> Array:
    """Multiply each part with the sum of all others: B matrices m × J to B of J × J, symmetric.

    They add up to the sum of AᵀC over all ordered pairs of different parts A and C; the pairs
    that a part enters are twice its own product.
    """
    rest = parts.sum(axis=0) - parts
    products = rest.transpose(0, 2, 1) @ parts
    symmetric: Array = (products + products.swapaxes(1, 2)) / 2
    return symmetric


def _positive(eigenvalues: NDArray[np.floating[Any]], least: Array) -> bool:
    """Tell whether all matrices are positive definite, by more than rounding.

    Args:
        eigenvalues: in ascending order, (R, J).
        least: what is rounding in each of them, (R,).
    """
    floor = np.maximum(WEAKEST * eigenvalues[:, -1], least)
    return bool((eigenvalues[:, 0] > floor).all())


def _standard_error(replicates: Array) -> float:
    """Give the standard error that B leave-one-group-out values (B,) show."""
    B = len(replicates)
    return float(np.sqrt((B - 1) * replicates.var()))
