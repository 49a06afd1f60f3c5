"""What scoring the states or blocks of a model gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

Better = Literal["lower", "higher"]

# Says which state is best unless the user names another score: none led to clearly better plans,
# see docs/measured/advice.md, and it is in points of the task's own metric.
DEFAULT = "head_quality"

# Folds of examples: one to test on, one to develop on, two or more to fit on.
FEWEST_FOLDS = 4
# A product of three different groups must be left when one group is left out.
FEWEST_GROUPS = 4
# Two rows of every class are held out; of 20 that follow each other a tenth is always two.
FEWEST_ROWS = 20
# Variances below this share of what they are computed from are rounding.
ROUNDING = 1e-14


@dataclass(frozen=True)
class Score:
    """One number per state (or block), with its direction.

    Attributes:
        of: "states" (entries 0..L) or "blocks" (entries 0..L, entry 0 always None).
        better: which direction is better.
        values: None where the score is undefined.
        low, high: the ends of an interval around each value, where the score comes with one.
        details: what else the score has to tell.
    """

    of: Literal["states", "blocks"]
    better: Better
    values: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def best(self) -> int | None:
        """Return the best entry among 1..L; ties go to the lower one.

        None if fewer than half of them are defined: the others may be better. State 0, the
        embeddings, is never the best: Xie et al. 2022 do not even score it.
        """
        sign = 1.0 if self.better == "lower" else -1.0
        defined = [(sign * v, i) for i, v in enumerate(self.values) if v is not None and i > 0]
        few = 2 * len(defined) < len(self.values) - 1
        return None if few or not defined else min(defined)[1]

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Score:
        """Read back what `dataclasses.asdict` and JSON made of a score."""
        lists = {name: tuple(v) for name, v in written.items() if isinstance(v, list)}
        return cls(**{**written, **lists})

    def without_embeddings(self) -> Score:
        """Return the same score with entry 0 undefined."""

        def blank(entries: tuple[float | None, ...]) -> tuple[float | None, ...]:
            return (None, *entries[1:])

        return replace(self, values=blank(self.values), low=blank(self.low), high=blank(self.high))


@runtime_checkable
class StatesLike(Protocol):
    """States (S, n, d) that are read one at a time: an array, or what reads them from files."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """(S, n, d)."""

    def __len__(self) -> int: ...

    def __getitem__(self, s: int, /) -> np.ndarray: ...
