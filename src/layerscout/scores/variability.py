"""The variability ratio without the noise of the class means, and how sure it is.

The published ratio is tr(G⁻¹ G⁻¹ H) of two small matrices: with the class means M (d × K) in an
orthonormal basis of the space orthogonal to the vector of ones, G = MᵀM and H = MᵀΣ_wM. Their
plug-in values count the noise of the class means as distance between classes. Here they are
averaged over different groups of examples instead; see `grouping`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscout.data import half_width
from layerscout.runtime import InputError
from layerscout.scores.estimates import Estimate
from layerscout.scores.grouping import Grouped
from layerscout.scores.moments import Centred

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

    def interval(self, level: float = 0.95) -> tuple[float | None, float | None]:
        """Give the ends of a confidence interval of the ratio; (None, None) where undefined."""
        if self.value is None or self.replicates is None:
            return None, None
        factor = float(np.exp(min(half_width(self.replicates, level), WIDEST)))
        return self.value / factor, self.value * factor


def estimate_debiased(states: Centred, *, resolution: float | None = None) -> Debiased:
    """Estimate the variability ratio ν = (1/K) trace(Σ_w Σ_b†) without the noise of the means.

    Every class counts alike. The definition is that of Xie et al. 2022, §3.1, equation 3. Costs
    n · d · B · (K−1) multiplications; no d × d matrix is made.

    Args:
        states: of examples whose groups are as `deal_groups` deals them. Examples of
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
        return Debiased(None, None, fraction)
    within = grouped.within()
    if not _positive(np.linalg.eigvalsh(within), rounding * weights[:, 0]):
        return Debiased(None, None, fraction)
    # tr(G⁻¹ G⁻¹ H), in the basis of the eigenvectors of G.
    along = np.einsum("rji,rjk,rki->ri", vectors, within, vectors, optimize=True)
    ratios = (along / weights**2).sum(axis=1)
    return Debiased(float(ratios[0]), np.log(ratios[1:]), fraction)


def _positive(eigenvalues: NDArray[np.floating[Any]], least: Array) -> bool:
    """Tell whether all matrices are positive definite, by more than rounding.

    Args:
        eigenvalues: in ascending order, (R, J).
        least: what is rounding in each of them, (R,).
    """
    floor = np.maximum(WEAKEST * eigenvalues[:, -1], least)
    return bool((eigenvalues[:, 0] > floor).all())
