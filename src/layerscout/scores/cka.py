"""How alike two states are: linear centred kernel alignment (CKA), biased and debiased."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float64, Shaped
from numpy.typing import ArrayLike

from layerscout.runtime import InputError
from layerscout.scores.diagnostics import small_sample_warning
from layerscout.scores.state import StatesLike


@dataclass(frozen=True)
class Similarity:
    """Linear CKA of two states, by both estimators.

    Attributes:
        biased: in [0, 1], as published; None where one of the states does not vary.
        debiased: in [−1, 1], about 0 for unrelated states however few the examples; None below
            4 examples and where a state does not vary, or every pair of its examples is alike.
    """

    biased: float | None
    debiased: float | None


@dataclass(frozen=True)
class Change:
    """What each block does to its input: 1 − CKA of the states before and after it.

    Attributes:
        values: entries 0..L from the biased CKA; entry 0 is None.
        debiased: the same from the debiased CKA.
    """

    values: tuple[float | None, ...]
    debiased: tuple[float | None, ...]


def cka(X: ArrayLike, Y: ArrayLike) -> float | None:
    """Linear CKA, HSIC(X, Y) / √(HSIC(X, X) HSIC(Y, Y)), biased as in the papers.

    HSIC = tr(KHLH) / (n − 1)² with K = XXᵀ, L = YYᵀ and the centring H. The bias is large unless
    n ≫ d: see `small_sample_warning`. None where a state does not vary, so that its HSIC is 0.
    Kornblith et al. 2019; Phang et al. 2021, App. A.

    Args:
        X: states (n, d1).
        Y: states (n, d2) of the same examples.

    Raises:
        InputError: if the shapes do not fit or a value is not finite.
    """
    return similarity(X, Y).biased


def cka_debiased(X: ArrayLike, Y: ArrayLike) -> float | None:
    """Linear CKA from the unbiased estimate of HSIC, which leaves out each example with itself.

    Unrelated states give about 0 on both sides of it, so a small negative value is an answer; None
    where there are fewer than 4 examples, or where HSIC(X, X) or HSIC(Y, Y) is not above 0.
    Song et al. 2012, equation 5, for HSIC.

    Args:
        X: states (n, d1).
        Y: states (n, d2) of the same examples.

    Raises:
        InputError: as `cka`.
    """
    return similarity(X, Y).debiased


def similarity(X: ArrayLike, Y: ArrayLike) -> Similarity:
    """Give both estimates of linear CKA at the price of one.

    Args:
        X: states (n, d1).
        Y: states (n, d2) of the same examples.

    Raises:
        InputError: as `cka`.
    """
    X, Y = np.asarray(X), np.asarray(Y)
    if X.ndim != 2 or Y.ndim != 2 or len(X) != len(Y):
        raise InputError(
            f"CKA needs states (n, d1) and (n, d2) of the same n examples, got {X.shape} and "
            f"{Y.shape}; give one row per example"
        )
    by_gram = _gram_is_cheaper(len(X), X.shape[1], Y.shape[1])
    return _compare(_kernel(X, by_gram), _kernel(Y, by_gram))


def cka_change(states: Iterable[Float[np.ndarray, "n d"]]) -> Change:
    """Compare the input and output of every block: 1 − CKA(state ℓ − 1, state ℓ).

    The states are read one after the other, and two at a time are held in float64.

    Args:
        states: S = L + 1 states (n, d) of the same examples, from state 0 on.

    Raises:
        InputError: if the states are not all (n, d), or a value is not finite.
    """
    values: list[float | None] = []
    debiased: list[float | None] = []
    before: _Kernel | None = None
    shape: tuple[int, ...] | None = None
    for state in states:
        shape = shape or np.shape(state)
        if len(shape) != 2 or np.shape(state) != shape:
            raise InputError(
                f"the change over a block needs states of one shape (n, d), got {shape} and "
                f"{np.shape(state)}; pool every state alike"
            )
        after = _kernel(state, _gram_is_cheaper(len(state), shape[1], shape[1]))
        alike = _compare(before, after)
        values.append(None if alike.biased is None else 1 - alike.biased)
        debiased.append(None if alike.debiased is None else 1 - alike.debiased)
        before = after
    return Change(tuple(values), tuple(debiased))


def score_changes(states: StatesLike, first: int) -> tuple[list[float | None], dict[str, Any]]:
    """Give the values and the details of the score `cka_change`.

    Args:
        states: (L + 1, n, d), all finite.
        first: the first state that counts; before it the states are the same for every example,
            so that no block there has a change.
    """
    _, n, d = states.shape
    change = cka_change(states[s] for s in range(len(states)))
    blank: list[float | None] = [None] * (first + 1)
    biased, debiased = ([*blank, *each[len(blank) :]] for each in (change.values, change.debiased))
    note = small_sample_warning(n, d)
    return biased, {"debiased": debiased} | ({} if note is None else {"warnings": [note]})


@dataclass(frozen=True, eq=False)
class _Kernel:
    """A centred state scaled to ‖X‖_F = 1, as far as CKA depends on it.

    Attributes:
        matrix: the features X (n, d), or their Gram matrix XXᵀ (n, n).
        is_gram: which of the two.
        squares: (n,), ‖x_i‖².
        own: ‖XᵀX‖_F².
    """

    matrix: Float64[np.ndarray, "n m"]
    is_gram: bool
    squares: Float64[np.ndarray, " n"]
    own: float


def _gram_is_cheaper(n: int, d1: int, d2: int) -> bool:
    # Multiplications by features: n d1² / 2 + n d2² / 2 + n d1 d2; by Gram matrices, of which only
    # the two themselves cost anything: n² d1 / 2 + n² d2 / 2.
    return n <= d1 + d2


def _kernel(states: Shaped[np.ndarray, "n d"], by_gram: bool) -> _Kernel | None:
    """Prepare a state; None if its examples differ by no more than rounding."""
    given = states.dtype if states.dtype.kind == "f" else np.dtype(np.float64)
    X = np.array(states, dtype=np.float64)
    if 0 in X.shape:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        mean = X.mean(axis=0)
        X -= mean
        norm = float(np.linalg.norm(X))
    if not np.isfinite(norm):
        raise InputError("states must be finite, got NaN or infinity; drop those rows")
    # Float64 cannot bring back what states of a shorter type have lost.
    rounding = 16 * float(np.finfo(given).eps) * float(np.linalg.norm(mean)) * len(X) ** 0.5
    if norm <= rounding or norm == 0:
        return None
    X /= norm
    product = X @ X.T if by_gram else X.T @ X
    squares = np.einsum("ij,ij->i", X, X)
    return _Kernel(product if by_gram else X, by_gram, squares, float(np.vdot(product, product)))


def _compare(a: _Kernel | None, b: _Kernel | None) -> Similarity:
    if a is None or b is None:
        return Similarity(None, None)
    if a.is_gram:
        both = float(np.vdot(a.matrix, b.matrix))
    else:
        product = a.matrix.T @ b.matrix
        both = float(np.vdot(product, product))
    return estimate_cka(both, (a.own, a.squares), (b.own, b.squares))


# ‖XᵀX‖_F² of a centred and scaled state, and the lengths of its examples, ‖x_i‖².
_Own = tuple[float, Float64[np.ndarray, " n"]]


def estimate_cka(both: float, a: _Own | None, b: _Own | None) -> Similarity:
    """Give both estimates from ‖XᵀY‖_F²; None stands for a state that does not vary."""
    if a is None or b is None:
        return Similarity(None, None)
    biased = both / float(np.sqrt(a[0] * b[0]))
    # Both are cosines; only rounding takes them out of their ranges.
    return Similarity(min(biased, 1.0), _debias(both, a, b))


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
