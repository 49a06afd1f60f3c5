"""The variability ratio without the noise of the class means, and how sure it is.

The published ratio is tr(G⁻¹ G⁻¹ H) of two small matrices: with the class means M (d × K) in an
orthonormal basis of the space orthogonal to the vector of ones, G = MᵀM and H = MᵀΣ_wM. Their
plug-in values count the noise of the class means as distance between classes. Here they are
averaged over different groups of examples instead.

Products of means and covariances that come from different examples carry no noise of the means,
for any distribution with second moments: the examples are dealt into groups, and the products are
averaged over all choices of different groups. Leaving out a group is then a subtraction, so the
same sums give a jackknife.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert

from layerscout.data import half_width
from layerscout.errors import InputError
from layerscout.scores.estimates import LEVEL, Estimate
from layerscout.scores.moments import Centred
from layerscout.scores.score import FEWEST_GROUPS

Array = NDArray[np.float64]

# As for the plug-in ratio: singular values below 1e-6 of the largest are no direction.
WEAKEST = 1e-12
# Half the width of an interval of the logarithm, at most: its end must not overflow.
WIDEST = 500.0


@dataclass(frozen=True, eq=False)
class Debiased(Estimate):
    """The variability ratio of one state, estimated without the noise of the class means.

    States are compared by the logarithm of the ratio, so that is what the replicates hold.

    Attributes:
        value: the ratio; None where G or H is not positive definite, be it with all groups or
            with one of them left out: the classes are then too hard to tell apart for so few
            examples.
        signal_fraction: tr G over its plug-in value: the share of the distance between the class
            means that is not noise. 0 or less where nothing is seen of it; None where all class
            means are the same.
    """

    signal_fraction: float | None = None

    @property
    def position(self) -> float | None:
        """The logarithm of the ratio."""
        return None if self.value is None else float(np.log(self.value))

    def interval(self) -> tuple[float | None, float | None]:
        """Return the ends of a 95 % interval of the ratio; (None, None) where undefined."""
        if self.value is None or self.replicates is None:
            return None, None
        factor = float(np.exp(min(half_width(self.replicates, LEVEL), WIDEST)))
        return self.value / factor, self.value * factor


def estimate_debiased(states: Centred) -> Debiased:
    """Estimate the variability ratio ν = (1/K) trace(Σ_w Σ_b†) without the noise of the means.

    Every class counts alike. The definition is that of Xie et al. 2022, §3.1, equation 3. Costs
    n · d · B · (K−1) multiplications; no d × d matrix is made.

    Args:
        states: of examples whose groups are as `deal_groups` deals them. Examples of
            different groups must be independent.

    Raises:
        InputError: if there are fewer than two classes, fewer than four groups, fewer than two
            examples of a class in a group, or more than d + 1 classes.
    """
    class_means, means, mean = average_groups(states)
    _, d, J = means.shape
    if d < J:
        raise InputError(
            f"the debiased ratio needs at least as many features as classes less one, got {d} "
            f"features and {J + 1} classes; use --score variability_ratio"
        )
    G = multiply_means(means)
    # Class means, or examples of a class, that differ by no more than rounding are the same.
    rounding = (16 * states.resolution) ** 2 * float(states.mean @ states.mean)
    plug_in = float((mean**2).sum())
    fraction = float(np.trace(G[0])) / plug_in if plug_in > rounding else None
    weights, vectors = np.linalg.eigh(G)
    if not _positive(weights, np.full(len(G), rounding)):
        return Debiased(None, None, fraction)
    within = multiply_covariances(states, class_means, means)
    if not _positive(np.linalg.eigvalsh(within), rounding * weights[:, 0]):
        return Debiased(None, None, fraction)
    # tr(G⁻¹ G⁻¹ H), in the basis of the eigenvectors of G.
    along = np.einsum("rji,rjk,rki->ri", vectors, within, vectors, optimize=True)
    ratios = (along / weights**2).sum(axis=1)
    return Debiased(float(ratios[0]), np.log(ratios[1:]), fraction)


def _positive(eigenvalues: NDArray[np.floating[Any]], least: Array) -> bool:
    """Return whether all matrices are positive definite, by more than rounding.

    Args:
        eigenvalues: in ascending order, (R, J).
        least: what is rounding in each of them, (R,).
    """
    floor = np.maximum(WEAKEST * eigenvalues[:, -1], least)
    return bool((eigenvalues[:, 0] > floor).all())


def average_groups(states: Centred) -> tuple[Array, Array, Array]:
    """Average the examples of each class in each of B groups.

    The class means are about their mean, so that states far from the origin lose no digits, and in
    an orthonormal basis of the space orthogonal to the vector of ones: J = K − 1.

    Returns:
        The class means of the groups about the mean of all examples (B, K, d), the same in that
        basis, M_g (B, d, J), and M of all examples (d, J).

    Raises:
        InputError: as `estimate_debiased`.
    """
    sizes, (B, K) = states.sizes, states.sizes.shape
    if K < 2:
        raise InputError("the variability ratio needs 2 or more classes, got 1; use other data")
    if B < FEWEST_GROUPS or sizes.min() < 2:
        of_class = sizes.sum(axis=0)
        raise InputError(
            "the debiased variability ratio needs 2 or more examples of every class in each of "
            f"{FEWEST_GROUPS} or more groups, so {2 * FEWEST_GROUPS} in all, and class "
            f"{of_class.argmin()} has {of_class.min()}; use more examples, or --score "
            "variability_ratio, which needs only 2"
        )
    class_means = states.sums / sizes[:, :, None]
    basis = helmert(K).T  # (K, J)
    mean = (states.sums.sum(axis=0) / sizes.sum(axis=0)[:, None]).T @ basis
    return class_means, class_means.transpose(0, 2, 1) @ basis, mean


def multiply_means(means: Array) -> Array:
    """Average M_gᵀM_h over two different groups, in all ways: (1 + B, J, J).

    The first is over all groups, the others are without each.
    """
    B = len(means)
    products = _multiply_with_others(means)
    total = products.sum(axis=0)
    without = (total - 2 * products) / ((B - 1) * (B - 2))
    return np.concatenate([total[None] / (B * (B - 1)), without])


def multiply_covariances(states: Centred, class_means: Array, means: Array) -> Array:
    """Average M_gᵀS_lM_h over three different groups, in all ways: (1 + B, J, J).

    S_l is the mean of the unbiased class covariances of group l. The first is over all groups,
    the others are without each.
    """
    B, d, J = means.shape
    directions = means.transpose(1, 0, 2).reshape(d, B * J)
    total, without = np.zeros((J, J)), np.zeros((B, J, J))
    averages = class_means @ directions  # (B, K, B·J)
    groups = np.split(states.rows, np.cumsum(states.sizes.sum(axis=1))[:-1])
    for own, (rows, count) in enumerate(zip(groups, states.sizes, strict=True)):
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


def _multiply_with_others(parts: Array) -> Array:
    """Multiply each part with the sum of all others: B matrices m × J to B of J × J, symmetric.

    They add up to the sum of AᵀC over all ordered pairs of different parts A and C; the pairs
    that a part enters are twice its own product.
    """
    rest = parts.sum(axis=0) - parts
    products = rest.transpose(0, 2, 1) @ parts
    symmetric: Array = (products + products.swapaxes(1, 2)) / 2
    return symmetric
