"""Which state is best by a ratio with replicates, and whether more examples could change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from layerscout.runtime import InputError
from layerscout.scores.variability import Debiased, standard_error

Array = NDArray[np.float64]


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


def find_separable(
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
    defined = _select_defined(results)
    if best not in defined:
        raise InputError(f"state {best} has no ratio to compare with; choose a defined state")
    lowest, others = defined[best]
    compared = sum(state not in (0, best) for state in defined)
    chance = level / (max(1, compared) * looks)
    limit = float(stdtrit(len(others) - 1, 1 - chance / 2))
    found: list[bool | None] = [None] * len(results)
    for state, (value, replicates) in defined.items():
        difference = abs(float(np.log(value / lowest)))
        found[state] = difference > limit * standard_error(replicates - others)
    return found


def decide_best(
    results: Sequence[Debiased | None], looks: int = 1, tolerance: float = 0.02
) -> Decision:
    """Find the best state among 1..L and whether more examples could change it.

    Undefined states never win, but more examples may define them, so nothing is decided or close
    while there are any. Ties go to the lower state.

    Args:
        results: of states 0..L, over the same groups; None for a state that is not scored.
        looks: as for `find_separable`.
        tolerance: how much larger than the best a ratio may be to count as close.
    """
    ratios = {state: value for state, (value, _) in _select_defined(results).items() if state > 0}
    if not ratios:
        return Decision(None, decided=False, close=False, rest=())
    best = min(ratios, key=lambda state: ratios[state])
    apart = find_separable(results, best, looks)
    rest = tuple(state for state in ratios if state != best and not apart[state])
    scored = sum(result is not None for result in results[1:])
    close = all(ratios[state] <= (1 + tolerance) * ratios[best] for state in rest)
    whole = len(ratios) == scored
    return Decision(best, decided=whole and not rest, close=whole and close, rest=rest)


def _select_defined(results: Sequence[Debiased | None]) -> dict[int, tuple[float, Array]]:
    """Give the ratio and the replicates of each state that has them, in order."""
    return {
        state: (result.value, result.replicates)
        for state, result in enumerate(results)
        if result and result.value is not None and result.replicates is not None
    }
