"""How alike states are: linear centred kernel alignment (CKA), biased and debiased.

CKA is HSIC(X, Y) / √(HSIC(X, X) HSIC(Y, Y)) with HSIC = tr(KHLH) / (n − 1)², K = XXᵀ, L = YYᵀ and
the centring H (Kornblith et al. 2019; Phang et al. 2021, App. A). Its bias is large unless n ≫ d:
see `small_sample_warning`. The debiased one takes the unbiased estimate of HSIC, which leaves out
each example with itself (Song et al. 2012, equation 5), so that unrelated states give about 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, Int64, Shaped

from layerscout.errors import InputError
from layerscout.scores.score import StatesLike

# Bytes of float64 products that are held at once while all states are compared.
TILE_BYTES = 2**25

# Examples whose states are read at once for their means and lengths.
CHUNK = 1024

Matrix = tuple[tuple[float | None, ...], ...]

# ‖XᵀX‖_F² of a centred and scaled state, and the lengths of its examples, ‖x_i‖².
_Own = tuple[float, Float64[np.ndarray, " n"]]


@runtime_checkable
class SampledStates(StatesLike, Protocol):
    """States (S, n, d) of which some texts at a time are read."""

    def take(self, rows: Int64[np.ndarray, " m"], /) -> StatesLike:
        """Return the states of the texts at `rows`."""


@dataclass(frozen=True)
class SimilarityMap:
    """Linear CKA of every one of S states with every one of T others, by both estimators.

    Attributes:
        biased, debiased: S rows of T entries, biased in [0, 1], debiased in [−1, 1]. None where
            a state does not vary; debiased also below 4 examples, or where every pair of examples
            is alike.
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

    Products of examples are added up over tiles of their Gram matrices, so that memory does not
    grow with n but for 8 n (S + T) bytes; time grows with n².

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
    n, m = sides[0].squares.shape[1], sides[-1].squares.shape[1]
    if n != m:
        raise InputError(
            f"CKA compares states of the same examples, got {n} and {m} of them; read the same "
            "examples with both models"
        )
    own, both = _multiply_tiles(sides, progress or (lambda done, total: None))
    kernels = [
        [
            (float(product), squares) if norm else None
            for product, squares, norm in zip(products, side.squares, side.norms, strict=True)
        ]
        for side, products in zip(sides, own, strict=True)
    ]
    pairs = [
        [_estimate(float(value), a, b) for b, value in zip(kernels[-1], line, strict=True)]
        for a, line in zip(kernels[0], both, strict=True)
    ]
    return SimilarityMap(
        tuple(tuple(biased for biased, _ in line) for line in pairs),
        tuple(tuple(debiased for _, debiased in line) for line in pairs),
    )


def score_changes(states: StatesLike, first: int) -> tuple[list[float | None], dict[str, Any]]:
    """Return the values and the details of the score `cka_change`: 1 − CKA(state ℓ − 1, state ℓ).

    The states are read one after the other, and two at a time are held in float64.

    Args:
        states: (L + 1, n, d).
        first: the first state that counts; before it the states are the same for every example,
            so that no block there has a change.
    """
    S, n, d = states.shape
    by_gram = n <= 2 * d  # by what costs fewer multiplications: n² d or 2 n d²
    values: list[float | None] = [None] * (first + 1)
    debiased: list[float | None] = [None] * (first + 1)
    before = _kernel(states[first], by_gram)
    for s in range(first + 1, S):
        after = _kernel(states[s], by_gram)
        biased = unbiased = None
        if before is not None and after is not None:
            product = before[0] if by_gram else before[0].T @ after[0]
            both = float(np.vdot(product, after[0] if by_gram else product))
            biased, unbiased = _estimate(both, before[1], after[1])
        values.append(None if biased is None else 1 - biased)
        debiased.append(None if unbiased is None else 1 - unbiased)
        before = after
    note = small_sample_warning(n, d)
    return values, {"debiased": debiased} | ({} if note is None else {"warnings": [note]})


def _kernel(
    states: Shaped[np.ndarray, "n d"], by_gram: bool
) -> tuple[Float64[np.ndarray, "n m"], _Own] | None:
    """Return the centred state scaled to ‖X‖_F = 1, or its Gram matrix XXᵀ, and what is its own.

    None if its examples differ by no more than rounding, or are not finite.
    """
    given = states.dtype if states.dtype.kind == "f" else np.dtype(np.float64)
    X = np.array(states, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = X.mean(axis=0)
        X -= mean
        norm = float(np.linalg.norm(X))
        # Float64 cannot bring back what states of a shorter type have lost.
        rounding = 16 * float(np.finfo(given).eps) * float(np.linalg.norm(mean)) * len(X) ** 0.5
    if not np.isfinite(norm) or norm <= rounding or norm == 0:
        return None
    X /= norm
    product = X @ X.T if by_gram else X.T @ X
    squares = np.einsum("ij,ij->i", X, X)
    return (product if by_gram else X), (float(np.vdot(product, product)), squares)


def small_sample_warning(n: int, d: int) -> str | None:
    """Say so if the biased CKA of n examples of d features is mostly a matter of n; else None."""
    if n >= 10 * d:
        return None
    # Of independent Gaussians: tr(W_X W_Y) over the root of tr(W_X²) tr(W_Y²), in expectation,
    # where W are Wishart matrices with n − 1 degrees of freedom. At n = 60 and d = 768 noise was
    # seen to score 0.93.
    noise = d / (d + max(n, 1))
    return (
        f"CKA is biased upwards unless there are many more examples than features: with {n} "
        f"examples of {d} features, independent noise scores {noise:.2f}; use the debiased values"
    )


@dataclass(frozen=True)
class Clusters:
    """The best split of a model's states into a lower and an upper cluster.

    Attributes:
        split: the last state of the lower one.
        lower, upper: the mean similarity of two different states of a cluster.
        between: that of a state of one with a state of the other.
        contrast: the mean over all pairs within the clusters, less `between`.
        p: the share of maps with at least this contrast, of those whose entries are shuffled among
            states equally far apart: states that drift apart evenly have some contrast, too.
    """

    split: int
    lower: float
    upper: float
    between: float
    contrast: float
    p: float


# Maps that are shuffled for a p-value.
SHUFFLED = 999


def find_clusters(similarity: Sequence[Sequence[float | None]]) -> Clusters | None:
    """Find the split of the states of one model with the largest contrast; the lower of equal ones.

    How the two blocks of Phang et al. 2021 (Figures 1 and 2), which are seen there, become a number
    is ours.

    Args:
        similarity: of all states with all, as `cka_map` gives it for one model. States that do not
            vary, whose entries are None, are left out.

    Returns:
        The clusters; None where fewer than four states vary.
    """
    S = np.array(similarity, dtype=np.float64)  # None becomes NaN
    known = np.flatnonzero(np.isfinite(np.diagonal(S)))
    S = S[np.ix_(known, known)]
    if not np.isfinite(S).all():
        return None
    if len(known) < 4:
        return None
    contrast, k = _contrast(S)
    rng, reached = np.random.default_rng(0), 0
    for _ in range(SHUFFLED):
        shuffled = np.zeros_like(S)
        for apart in range(1, len(S)):
            at = np.arange(len(S) - apart)
            shuffled[at, at + apart] = rng.permutation(np.diagonal(S, apart))
        # Sums of the same numbers in another order differ by rounding.
        reached += _contrast(shuffled)[0] >= contrast - 1e-12
    lower, upper = (part[np.triu_indices(len(part), 1)].mean() for part in (S[:k, :k], S[k:, k:]))
    return Clusters(
        int(known[k - 1]),
        float(lower),
        float(upper),
        float(S[:k, k:].mean()),
        contrast,
        (1 + reached) / (1 + SHUFFLED),
    )


def _contrast(S: Float64[np.ndarray, "s s"]) -> tuple[float, int]:
    """Return the largest contrast of a split of s states, and how many lie below it."""
    pairs, below = np.triu(S, 1), np.arange(2, len(S) - 1)
    within = np.array([pairs[:k, :k].sum() + pairs[k:, k:].sum() for k in below])
    apart = below * (len(S) - below)  # pairs of states of different clusters
    together = len(S) * (len(S) - 1) / 2 - apart
    contrasts = within / together - (pairs.sum() - within) / apart
    best = int(contrasts.argmax())
    return float(contrasts[best]), int(below[best])


def _estimate(both: float, a: _Own | None, b: _Own | None) -> tuple[float | None, float | None]:
    """Return both estimates from ‖XᵀY‖_F²; None stands for a state that does not vary."""
    if a is None or b is None:
        return None, None
    biased = both / float(np.sqrt(a[0] * b[0]))
    # Both are cosines; only rounding takes them out of their ranges.
    return min(biased, 1.0), _debias(both, a, b)


def _debias(both: float, a: _Own, b: _Own) -> float | None:
    n = len(a[1])
    if n < 4:
        return None

    def hsic(product: float, p: Float64[np.ndarray, " n"], q: Float64[np.ndarray, " n"]) -> float:
        # n (n − 3) times the estimate, tr(K̃L̃) + 1ᵀK̃11ᵀL̃1 / (n−1)(n−2) − 2 1ᵀK̃L̃1 / (n−2), where
        # K̃ is K without its diagonal p. The features are centred, so K1 = 0 and K̃1 = −p: nothing
        # n × n is left but the product. They are scaled, so p and q sum to 1.
        return product - n / (n - 2) * float(p @ q) + 1 / ((n - 1) * (n - 2))

    own_a, own_b = hsic(a[0], a[1], a[1]), hsic(b[0], b[1], b[1])
    # A sum of squares, and 0 where all pairs of examples are alike; the rest would be rounding.
    if own_a <= 1e-12 * a[0] or own_b <= 1e-12 * b[0]:
        return None
    ratio = hsic(both, a[1], b[1]) / float(np.sqrt(own_a * own_b))
    return max(-1.0, min(ratio, 1.0))


# --- Products of all states -----------------------------------------------------------------------


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

    @classmethod
    def of(cls, states: SampledStates) -> _Side:
        """Read the states twice: for their means, and for the lengths about them."""
        S, n, d = states.shape
        means, squares = np.zeros((S, d)), np.zeros((S, n))
        rounding = np.zeros(S)
        with np.errstate(over="ignore", invalid="ignore"):
            for s, _, part in _parts(states):
                rounding[s] = np.finfo(part.dtype if part.dtype.kind == "f" else float).eps
                means[s] += part.sum(axis=0, dtype=np.float64) / max(n, 1)
            for s, rows, part in _parts(states):
                centred = part - means[s]
                squares[s, rows] = np.einsum("ij,ij->i", centred, centred)
            total = squares.sum(axis=1)
            norms = np.sqrt(total)
            # Float64 cannot bring back what states of a shorter type have lost.
            flat = norms <= 16 * rounding * np.linalg.norm(means, axis=1) * n**0.5
        norms[flat | ~np.isfinite(total)] = 0.0
        scale = np.where(norms > 0, norms, 1.0)
        return cls(states, means, norms, squares / scale[:, None] ** 2)

    def read(self, rows: Int64[np.ndarray, " m"]) -> Float64[np.ndarray, "S m d"]:
        """Read some examples of all states, centred and scaled; 0 of a state that is undefined."""
        states = self.states.take(rows)
        scaled = np.zeros((len(self.means), len(rows), self.means.shape[1]))
        for s in np.flatnonzero(self.norms).tolist():
            scaled[s] = states[s]
            scaled[s] -= self.means[s]
            scaled[s] /= self.norms[s]
        return scaled


def _parts(states: SampledStates) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    for rows in _spans(states.shape[1], CHUNK):
        part = states.take(rows)
        for s in range(states.shape[0]):
            yield s, rows, part[s]


def _spans(n: int, size: int) -> list[Int64[np.ndarray, " m"]]:
    return np.array_split(np.arange(n), max(1, -(-n // size)))


def _multiply_tiles(
    sides: Sequence[_Side], progress: Callable[[int, int], None]
) -> tuple[list[np.ndarray], Float64[np.ndarray, "S T"]]:
    """Add up products of Gram matrices, tile by tile: ‖XᵀY‖_F² = ⟨XXᵀ, YYᵀ⟩_F.

    Returns:
        ‖X_sᵀX_s‖_F² of each state on each side, and ‖X_sᵀY_t‖_F² of each pair.
    """
    counts = [len(side.means) for side in sides]
    spans = _spans(sides[0].squares.shape[1], max(64, int((TILE_BYTES / 8 / sum(counts)) ** 0.5)))
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
