"""Values of states with the replicates that say how sure they and their differences are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.special import stdtrit

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a score says of one state, and what it would have said without each group of examples.

    Attributes:
        value: None where it is undefined.
        replicates: (B,), the `position` without group g; None where `value` is.
    """

    value: float | None
    replicates: Float64[np.ndarray, " B"] | None

    @property
    def position(self) -> float | None:
        """Where it lies on the scale on which states are compared by differences."""
        return self.value

    def interval(self, level: float = 0.95) -> tuple[float | None, float | None]:
        """Give the ends of a confidence interval; (None, None) where the value is undefined."""
        if self.value is None or self.replicates is None:
            return None, None
        half = half_width(self.replicates, level)
        return self.value - half, self.value + half


def half_width(replicates: Array, level: float) -> float:
    """Give half the width of a delete-a-group jackknife's interval, by Student's t of B − 1."""
    return float(stdtrit(len(replicates) - 1, (1 + level) / 2)) * standard_error(replicates)


def standard_error(replicates: Array) -> float:
    """Give the standard error that B leave-one-group-out values (B,) show."""
    B = len(replicates)
    return float(np.sqrt((B - 1) * replicates.var()))
