"""Pooled states, read from where they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

# Rows of a state that are read at once, so that little memory is used beside the result.
CHUNK = 4096


@dataclass(frozen=True, eq=False)
class States:
    """Pooled states of n texts, which stay on disk or in memory until one of them is read.

    Attributes:
        parts: arrays (S, m, d), of different texts each.
        rows: (n,), the index of each text in the concatenation of all parts.
    """

    parts: tuple[Float32[np.ndarray, "S _ d"], ...]
    rows: Int64[np.ndarray, " n"]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(S, n, d), S = L + 1."""
        S, _, d = self.parts[0].shape
        return S, len(self.rows), d

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, s: int) -> Float32[np.ndarray, "n d"]:
        """Read state s, 0 to L, of all texts in their order; threads may read concurrently."""
        found = np.empty(self.shape[1:], dtype=np.float32)
        order = np.argsort(self.rows, kind="stable")  # reads files from front to back
        ends = np.cumsum([part.shape[1] for part in self.parts])
        bounds = np.searchsorted(self.rows, ends, sorter=order)
        for part, end, here in zip(self.parts, ends, np.split(order, bounds[:-1]), strict=True):
            for start in range(0, len(here), CHUNK):
                at = here[start : start + CHUNK]
                found[at] = part[s, self.rows[at] - end]  # counted from the part's end
        return found

    def __iter__(self) -> Iterator[Float32[np.ndarray, "n d"]]:
        return (self[s] for s in range(len(self)))

    def take(self, rows: Int64[np.ndarray, " m"]) -> States:
        """Return the states of the texts at `rows`, in that order, without reading them."""
        return States(self.parts, self.rows[rows])

    def __add__(self, other: States) -> States:
        """Return the states of these texts followed by the others', without reading them."""
        (S, _, d), (T, _, e) = self.shape, other.shape
        if (S, d) != (T, e):
            raise ValueError(f"{S} states of width {d} cannot go with {T} states of width {e}")
        before = sum(part.shape[1] for part in self.parts)
        return States(self.parts + other.parts, np.concatenate([self.rows, other.rows + before]))
