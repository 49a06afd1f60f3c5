"""How alike states are: linear centred kernel alignment (CKA), biased and debiased.

CKA is HSIC(X, Y) / √(HSIC(X, X) HSIC(Y, Y)) with HSIC = tr(KHLH) / (n − 1)², K = XXᵀ, L = YYᵀ and
the centring H (Kornblith et al. 2019; Phang et al. 2021, App. A). Its bias is large unless n ≫ d:
see `small_sample_warning`. The debiased one takes the unbiased estimate of HSIC, which leaves out
each example with itself (Song et al. 2012, equation 5), so that unrelated states give about 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, Int64, Shaped

from layerscout.errors import InputError
from layerscout.scores.state import StatesLike

# Bytes of float64 products that are held at once while all states are compared.
TILE_BYTES = 2**25

# Examples whose states are read at once while products of features are added up.
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
    values: list[float | None] = [None] * (first + 1)
    debiased: list[float | None] = [None] * (first + 1)
    before = _kernel(states[first])
    for s in range(first + 1, S):
        after = _kernel(states[s])
        biased = unbiased = None
        if before is not None and after is not None:
            biased, unbiased = _compare(before, after)
        values.append(None if biased is None else 1 - biased)
        debiased.append(None if unbiased is None else 1 - unbiased)
        before = after
    note = small_sample_warning(n, d)
    return values, {"debiased": debiased} | ({} if note is None else {"warnings": [note]})


@dataclass(frozen=True, eq=False)
class _Kernel:
    """A centred state scaled to ‖X‖_F = 1, as far as CKA depends on it.

    Attributes:
        matrix: the features X (n, d), or their Gram matrix XXᵀ (n, n).
        is_gram: which of the two, by what costs fewer multiplications: 2 n d² or n² d.
        own: ‖XᵀX‖_F², and the lengths of the examples.
    """

    matrix: Float64[np.ndarray, "n m"]
    is_gram: bool
    own: _Own


def _kernel(states: Shaped[np.ndarray, "n d"]) -> _Kernel | None:
    """Prepare a state; None if its examples differ by no more than rounding, or are not finite."""
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
    by_gram = len(X) <= 2 * X.shape[1]
    product = X @ X.T if by_gram else X.T @ X
    squares = np.einsum("ij,ij->i", X, X)
    return _Kernel(product if by_gram else X, by_gram, (float(np.vdot(product, product)), squares))


def _compare(a: _Kernel, b: _Kernel) -> tuple[float | None, float | None]:
    """Return both estimates of the CKA of two states of the same shape."""
    if a.is_gram:
        both = float(np.vdot(a.matrix, b.matrix))
    else:
        product = a.matrix.T @ b.matrix
        both = float(np.vdot(product, product))
    return _estimate(both, a.own, b.own)


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
        contrast: the mean over all pairs within the clusters, less `between`. It says something
            only next to that of the untuned model: states that drift apart evenly have some too.
    """

    split: int
    lower: float
    upper: float
    between: float
    contrast: float


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
    best: Clusters | None = None
    for k in range(2, len(known) - 1):
        lower, upper = (part[np.triu_indices(len(part), 1)] for part in (S[:k, :k], S[k:, k:]))
        between = float(S[:k, k:].mean())
        contrast = float(np.concatenate([lower, upper]).mean()) - between
        if best is None or contrast > best.contrast:
            split = int(known[k - 1])
            best = Clusters(split, float(lower.mean()), float(upper.mean()), between, contrast)
    return best


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
        chosen = np.arange(len(self.means)) if states is None else np.asarray(states)
        some = self.states.take(rows)
        scaled = np.empty((len(chosen), len(rows), self.d))
        for into, s in zip(scaled, chosen, strict=True):
            if self.norms[s]:
                into[:] = some[int(s)]
                into -= self.means[s]
                into /= self.norms[s]
            else:  # it is compared with none
                into[:] = 0.0
        return scaled


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
        norms = np.square(total).reshape(len(a), left.d, len(b), right.d).sum(axis=(1, 3))
        both[np.ix_(a, b)] = norms
        if left is right:
            both[np.ix_(b, a)] = norms.T
    if left is right:
        return [np.diagonal(both)], both
    return [_square_norms(side, spans) for side in sides], both


def _wide(states: Float64[np.ndarray, "s m d"]) -> Float64[np.ndarray, "m sd"]:
    return states.transpose(1, 0, 2).reshape(states.shape[1], -1)


def _square_norms(side: _Side, spans: Sequence[np.ndarray]) -> Float64[np.ndarray, " S"]:
    """Return ‖XᵀX‖_F² of every state."""
    norms = []
    for s in range(len(side.means)):
        total = np.zeros((side.d, side.d))
        for rows in spans:
            (x,) = side.read(rows, [s])
            total += x.T @ x
        norms.append(float(np.vdot(total, total)))
    return np.array(norms)
