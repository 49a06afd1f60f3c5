"""Some labelled rows of a task."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Split:
    """Some labelled rows of a task, in the order of the file.

    Attributes:
        texts: n strings.
        pairs: the second texts of the same n rows, or None.
        labels: class ids, int64 (n,), or targets, float64 (n,), for regression.
        groups: int64 (n,), or None; rows with the same number are the choices of one example.
        origin: int64 (n,), the rows that these were taken from; None for 0..n-1.
    """

    texts: Sequence[str]
    pairs: Sequence[str] | None
    labels: np.ndarray
    groups: np.ndarray | None = None
    origin: np.ndarray | None = None

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.texts)

    @property
    def examples(self) -> int:
        """How many examples the rows are: the rows of a group are the choices of one."""
        return len(self) if self.groups is None else len(np.unique(self.groups))

    def __repr__(self) -> str:
        """Show how much there is: a task may hold a million texts."""
        return f"Split({len(self):,} {'rows' if self.pairs is None else 'pairs'})"

    def take(self, rows: np.ndarray) -> "Split":
        """Return the given rows, in the given order.

        Args:
            rows: row numbers (m,), counted from 0.
        """
        return Split(
            texts=[self.texts[row] for row in rows],
            pairs=None if self.pairs is None else [self.pairs[row] for row in rows],
            labels=self.labels[rows],
            groups=None if self.groups is None else self.groups[rows],
            origin=rows if self.origin is None else self.origin[rows],
        )
