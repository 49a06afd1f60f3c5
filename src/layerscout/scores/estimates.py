"""Values of states with the replicates that say how sure they are, and which state is best.

More examples may change which one it is: that is decided by differences, on the same examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.special import stdtrit

from layerscout.data import half_width, standard_error
from layerscout.errors import InputError
from layerscout.scores.score import Better

Array = NDArray[np.float64]

# What an interval holds with, and the chance that any of several that hold together misses.
LEVEL, MISS = 0.95, 0.05


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

    def interval(self) -> tuple[float | None, float | None]:
        """Return the ends of a 95 % interval; (None, None) where the value is undefined."""
        if self.value is None or self.replicates is None:
            return None, None
        half = half_width(self.replicates, LEVEL)
        return self.value - half, self.value + half


@dataclass(frozen=True)
class Decision:
    """Whether the best state is known.

    Attributes:
        best: the state among 1..L that is best; None where none has a value.
        decided: whether every other state is separable from it.
        close: whether no state that is not separable can matter, by the tolerance.
        rest: the states among 1..L that are not separable from the best.
    """

    best: int | None
    decided: bool
    close: bool
    rest: tuple[int, ...]


@dataclass(frozen=True)
class Gap:
    """How far a state falls behind the best one, on the scale on which states are compared.

    Attributes:
        difference: of the best state's position from this one's.
        half_width: of the interval around it.
    """

    difference: float
    half_width: float


def find_separable(
    results: Sequence[Estimate | None], best: int, looks: int = 1
) -> list[bool | None]:
    """Return which states differ from the best one by more than chance; None where undefined.

    Two-sided, by the intervals of `measure_gaps`.

    Args:
        results: of states 0..L, over the same groups; None for a state that is not scored.
        best: the state that the others are compared with, itself never separable.
        looks: how many times such a decision may be taken.

    Raises:
        InputError: if the best state is undefined.
    """
    gaps = measure_gaps(results, best, looks)
    return [None if gap is None else abs(gap.difference) > gap.half_width for gap in gaps]


def measure_gaps(results: Sequence[Estimate | None], best: int, looks: int = 1) -> list[Gap | None]:
    """Measure how far each state falls behind the best one; None where it is undefined.

    Paired jackknife of the difference of their positions (for a ratio, the logarithm). The
    intervals hold together, with a chance of 95 %: they are adjusted (Bonferroni) for the number of
    states among 1..L that are compared and for the number of looks at growing data.

    Args:
        results: as for `find_separable`, and so are the others.
        best: the state that the others are compared with.
        looks: how many times such gaps may be looked at.

    Raises:
        InputError: if the best state is undefined.
    """
    defined = _select_defined(results)
    if best not in defined:
        raise InputError(f"state {best} has no value to compare with; choose a defined state")
    place, without = defined[best]
    compared = sum(state not in (0, best) for state in defined)
    chance = MISS / max(1, compared * looks)
    limit = float(stdtrit(len(without) - 1, 1 - chance / 2))
    gaps: list[Gap | None] = [None] * len(results)
    for state, (other, replicates) in defined.items():
        gaps[state] = Gap(place - other, limit * standard_error(without - replicates))
    return gaps


def decide_best(
    results: Sequence[Estimate | None], better: Better, looks: int = 1, tolerance: float = 0.0
) -> Decision:
    """Find the best state among 1..L, and whether more examples could change it.

    Undefined states never win. Of a ratio more examples may define them, so nothing is decided or
    close while there are any where lower is better. Ties go to the lower state.

    Args:
        results: of states 0..L, over the same groups; None for a state that is not scored.
        better: whether the highest or the lowest position is best.
        looks: as for `find_separable`.
        tolerance: how far from the best a ratio may be to count as close, as a share of it.
    """
    places = _place_states(results)
    if not places:
        return Decision(None, decided=False, close=False, rest=())
    sign = 1 if better == "lower" else -1
    best = min(places, key=lambda state: sign * places[state])
    apart = find_separable(results, best, looks)
    rest = tuple(state for state in places if state != best and not apart[state])
    scored = sum(result is not None for result in results[1:])
    whole = better == "higher" or len(places) == scored
    close = all(abs(places[state] - places[best]) <= np.log1p(tolerance) for state in rest)
    return Decision(best, decided=whole and not rest, close=whole and close, rest=rest)


def _place_states(results: Sequence[Estimate | None]) -> dict[int, float]:
    """Return the position of each state among 1..L that has one."""
    return {state: place for state, (place, _) in _select_defined(results).items() if state > 0}


def _select_defined(results: Sequence[Estimate | None]) -> dict[int, tuple[float, Array]]:
    """Return the position and the replicates of each state that has them, in order."""
    return {
        state: (result.position, result.replicates)
        for state, result in enumerate(results)
        if result and result.position is not None and result.replicates is not None
    }
