"""Values of states with the replicates that say how sure they and their differences are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from layerscout.data import half_width


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
