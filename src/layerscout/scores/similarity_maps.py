"""Linear CKA of all states of one model with all states of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, Int64

from layerscout.runtime import InputError
from layerscout.scores.cka import estimate_cka
from layerscout.scores.state import StatesLike

# Bytes of float64 products that are held at once while all states are compared.
TILE_BYTES = 2**25

# Examples whose states are read at once while products of features are added up.
CHUNK = 1024

Matrix = tuple[tuple[float | None, ...], ...]


@runtime_checkable
class SampledStates(StatesLike, Protocol):
    """States (S, n, d) of which some texts at a time are read."""

    def take(self, rows: Int64[np.ndarray, " m"], /) -> StatesLike:
        """Give the states of the texts at `rows`."""


@dataclass(frozen=True)
class SimilarityMap:
    """Linear CKA of every one of S states with every one of T others, by both estimators.

    Attributes:
        biased, debiased: S rows of T entries, each as in `Similarity`.
    """

    biased: Matrix
    debiased: Matrix


def cka_map(
    rows: SampledStates,
    columns: SampledStates | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> SimilarityMap:
    """Compare all states of one model with all of another, or with each other.

    Memory does not grow with n but for 8 n (S + T) bytes: products of features are added up over
    chunks of examples, or, where n is small and that costs less, products of examples over tiles
    of their Gram matrices. Both give the same numbers.

    Args:
        rows: states (S, n, d1).
        columns: states (T, n, d2) of the same examples; None for `rows` again.
        progress: told how many parts are done, and of how many.

    Returns:
        The map, undefined at states that do not vary or are not finite.

    Raises:
        InputError: if the numbers of examples differ.
    """
    sides = [_Side.of(rows)] + ([] if columns is None else [_Side.of(columns)])
    n = sides[0].n
    if n != sides[-1].n:
        raise InputError(
            f"CKA compares states of the same examples, got {n} and {sides[-1].n} of them; read "
            "the same examples with both models"
        )
    S, T = len(sides[0].means), len(sides[-1].means)
    by_features = n * S * T * sides[0].d * sides[-1].d
    by_examples = n * n * (sum(len(side.means) * side.d for side in sides) + S * T) / 2
    add_up = _by_examples if by_examples < by_features else _by_features
    own, both = add_up(sides, progress or (lambda done, total: None))
    kernels = [
        [
            (float(product), squares) if norm else None
            for product, squares, norm in zip(products, side.squares, side.norms, strict=True)
        ]
        for side, products in zip(sides, own, strict=True)
    ]
    found = [
        [estimate_cka(float(value), a, b) for b, value in zip(kernels[-1], line, strict=True)]
        for a, line in zip(kernels[0], both, strict=True)
    ]
    return SimilarityMap(
        tuple(tuple(one.biased for one in line) for line in found),
        tuple(tuple(one.debiased for one in line) for line in found),
    )


@dataclass(frozen=True, eq=False)
class _Side:
    """The states of one model, as far as they are centred and scaled.

    Attributes:
        states: (S, n, d).
        means: (S, d).
        norms: (S,), ‖X‖_F of the centred states; 0 where the examples differ by rounding only, or a
            value is not finite.
        squares: (S, n), ‖x_i‖² of the centred and scaled states.
    """

    states: SampledStates
    means: Float64[np.ndarray, "S d"]
    norms: Float64[np.ndarray, " S"]
    squares: Float64[np.ndarray, "S n"]

    @property
    def n(self) -> int:
        return int(self.states.shape[1])

    @property
    def d(self) -> int:
        return int(self.states.shape[2])

    @classmethod
    def of(cls, states: SampledStates) -> _Side:
        """Read the states twice: for their means, and for the lengths about them."""
        S, n, d = states.shape
        means, squares = np.zeros((S, d)), np.zeros((S, n))
        rounding = np.zeros(S)
        with np.errstate(over="ignore", invalid="ignore"):
            for s, _, part in _parts(states, CHUNK):
                rounding[s] = np.finfo(part.dtype if part.dtype.kind == "f" else float).eps
                means[s] += part.sum(axis=0, dtype=np.float64) / max(n, 1)
            for s, rows, part in _parts(states, CHUNK):
                centred = part - means[s]
                squares[s, rows] = np.einsum("ij,ij->i", centred, centred)
            total = squares.sum(axis=1)
            norms = np.sqrt(total)
            # Float64 cannot bring back what states of a shorter type have lost.
            flat = norms <= 16 * rounding * np.linalg.norm(means, axis=1) * n**0.5
        norms[flat | ~np.isfinite(total)] = 0.0
        scale = np.where(norms > 0, norms, 1.0)
        return cls(states, means, norms, squares / scale[:, None] ** 2)

    def read(
        self, rows: Int64[np.ndarray, " m"], states: Sequence[int] | np.ndarray | None = None
    ) -> Float64[np.ndarray, "s m d"]:
        """Read some examples of some states, or of all, centred and scaled."""
        wanted = np.arange(len(self.means)) if states is None else np.asarray(states)
        some = self.states.take(rows)
        found = np.empty((len(wanted), len(rows), self.d))
        for into, s in zip(found, wanted, strict=True):
            if self.norms[s]:
                into[:] = some[int(s)]
                into -= self.means[s]
                into /= self.norms[s]
            else:  # it is compared with none
                into[:] = 0.0
        return found


def _parts(states: SampledStates, size: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    for rows in _spans(states.shape[1], size):
        some = states.take(rows)
        for s in range(states.shape[0]):
            yield s, rows, some[s]


def _spans(n: int, size: int) -> list[Int64[np.ndarray, " m"]]:
    return np.array_split(np.arange(n), max(1, -(-n // size)))


# ‖X_sᵀX_s‖_F² of each state on each side, and ‖X_sᵀY_t‖_F² of each pair.
_Products = tuple[list[np.ndarray], Float64[np.ndarray, "S T"]]


def _by_examples(sides: Sequence[_Side], progress: Callable[[int, int], None]) -> _Products:
    """Add up products of Gram matrices, tile by tile: ‖XᵀY‖_F² = ⟨XXᵀ, YYᵀ⟩_F."""
    counts = [len(side.means) for side in sides]
    spans = _spans(sides[0].n, max(64, int((TILE_BYTES / 8 / sum(counts)) ** 0.5)))
    own, both = [np.zeros(count) for count in counts], np.zeros((counts[0], counts[-1]))
    done, total = 0, len(spans) * (len(spans) + 1) // 2
    for i, upper in enumerate(spans):
        held = [side.read(upper) for side in sides]
        for lower in spans[i:]:
            others = held if lower is upper else [side.read(lower) for side in sides]
            tiles = [
                (a @ b.transpose(0, 2, 1)).reshape(len(a), -1)
                for a, b in zip(held, others, strict=True)
            ]
            times = 1.0 if lower is upper else 2.0  # beyond the diagonal lies the same tile again
            both += times * (tiles[0] @ tiles[-1].T)
            for products, tile in zip(own, tiles, strict=True):
                products += times * np.einsum("sp,sp->s", tile, tile)
            done += 1
            progress(done, total)
    return own, both


def _by_features(sides: Sequence[_Side], progress: Callable[[int, int], None]) -> _Products:
    """Add up XᵀY over chunks of examples, for as many pairs of states at once as may be held."""
    size = max(1, int((TILE_BYTES / 8) ** 0.5) // max(side.d for side in sides))
    left, right = sides[0], sides[-1]
    both = np.zeros((len(left.means), len(right.means)))
    groups = [_spans(len(side.means), size) for side in (left, right)]
    pairs = [(a, b) for a, b in product(*groups) if left is not right or a[0] <= b[0]]
    spans = _spans(left.n, CHUNK)
    for done, (a, b) in enumerate(pairs):
        total = np.zeros((len(a) * left.d, len(b) * right.d))
        for number, rows in enumerate(spans):
            x = _wide(left.read(rows, a))
            total += x.T @ (x if left is right and a[0] == b[0] else _wide(right.read(rows, b)))
            progress(done * len(spans) + number + 1, len(pairs) * len(spans))
        found = np.square(total).reshape(len(a), left.d, len(b), right.d).sum(axis=(1, 3))
        both[np.ix_(a, b)] = found
        if left is right:
            both[np.ix_(b, a)] = found.T
    if left is right:
        return [np.diagonal(both)], both
    return [_square_norms(side, spans) for side in sides], both


def _wide(states: Float64[np.ndarray, "s m d"]) -> Float64[np.ndarray, "m sd"]:
    return states.transpose(1, 0, 2).reshape(states.shape[1], -1)


def _square_norms(side: _Side, spans: Sequence[np.ndarray]) -> Float64[np.ndarray, " S"]:
    """Give ‖XᵀX‖_F² of every state."""
    found = []
    for s in range(len(side.means)):
        total = np.zeros((side.d, side.d))
        for rows in spans:
            (x,) = side.read(rows, [s])
            total += x.T @ x
        found.append(float(np.vdot(total, total)))
    return np.array(found)
