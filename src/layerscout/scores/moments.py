"""Moments of labelled states, summed in one pass, mergeable with `+`; ratios that need no more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64, Shaped
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over examples of K classes, for S states of d features at once, in float64.

    Everything is summed about a fixed `reference`, so that states far from the origin lose no
    digits. A scatter matrix costs d² floats for each state, so there are only as many as the
    scores at hand need: G weightings of the classes instead of K classes.

    Attributes:
        reference: (S, d), the point that the sums are taken about.
        weights: (K, G), what an example of class k counts in scatter g.
        count: (K,), examples seen.
        total: (S, K, d), Σ_{i in k} (x_i − reference).
        scatter: (S, G, d, d), Σ_k weights[k, g] Σ_{i in k} (x_i − reference)(x_i − reference)ᵀ.
        resolution: rounding error of the states, relative to their size: that of the type they
            come in, since float64 sums cannot bring back what float32 states have lost.
    """

    reference: Float64[Tensor, "S d"]
    weights: Float64[Tensor, "K G"]
    count: Float64[Tensor, " K"]
    total: Float64[Tensor, "S K d"]
    scatter: Float64[Tensor, "S G d d"]
    resolution: float

    @classmethod
    def empty(cls, reference: Float[Tensor, "S d"], weights: Float64[Tensor, "K G"]) -> Moments:
        """Make sums over nothing, about `reference` (S, d) and for `weights` (K, G).

        The `reference` is of the same type as the states that will be added.
        """
        (S, d), (K, G), exact = reference.shape, weights.shape, reference.double()
        return cls(
            exact,
            weights.to(exact.device),
            exact.new_zeros(K),
            exact.new_zeros(S, K, d),
            exact.new_zeros(S, G, d, d),
            torch.finfo(reference.dtype).eps,
        )

    def add_(self, states: Float[Tensor, "S n d"], labels: Int[Tensor, " n"]) -> None:
        """Add n examples in place: their states (S, n, d) and class ids (n,), each in 0..K−1."""
        labels = labels.to(self.reference.device)
        seen = torch.bincount(labels, minlength=len(self.count))
        self.count.add_(seen)
        chosen = []
        for weights in self.weights[labels].unbind(1):
            rows = weights.nonzero().flatten()
            chosen.append((rows, weights[rows, None]))
        # State by state: a chunk in float64 then stays small enough for the processor's cache.
        for s, state in enumerate(states.to(self.reference.device)):
            x = state.double() - self.reference[s]
            self.total[s].index_add_(0, labels, x)
            for g, (rows, weights) in enumerate(chosen):
                self.scatter[s, g].addmm_(x[rows].T, x[rows] * weights)

    def __add__(self, other: Moments) -> Moments:
        """Merge the sums over two sets of examples; the reference of the left one stays.

        Both have the same states, classes and weights.
        """
        other = other.about(self.reference)
        return Moments(
            self.reference,
            self.weights,
            self.count + other.count,
            self.total + other.total,
            self.scatter + other.scatter,
            max(self.resolution, other.resolution),
        )

    def about(self, reference: Float[Tensor, "S d"]) -> Moments:
        """Move the sums to another reference (S, d), exactly."""
        shift = self.reference - reference.double()  # x − new = (x − old) + shift
        cross = torch.einsum("kg,skd,se->sgde", self.weights, self.total, shift)
        mass = self.weights.T @ self.count
        square = torch.einsum("g,sd,se->sgde", mass, shift, shift)
        return Moments(
            reference.double(),
            self.weights,
            self.count,
            self.total + self.count[:, None] * shift[:, None, :],
            self.scatter + cross + cross.transpose(-1, -2) + square,
            self.resolution,
        )

    def within(
        self, weights: Float64[Tensor, " K"], directions: Float64[Tensor, "S J d"]
    ) -> Float64[Tensor, "S J"]:
        """Return Σ_k weights[k] Σ_{i in k} (uᵀ(x_i − m_k))² along each direction u, as (S, J).

        The d × d matrix of it is never made: J is small, and making it was half of what a scan
        cost beside its forward pass.

        Args:
            weights: (K,), a combination of the weightings that were summed.
            directions: (S, J, d), the vectors u.
        """
        spread = torch.zeros(directions.shape[:2], dtype=torch.float64, device=directions.device)
        for g, share in enumerate(self._mix(weights)):
            spread += share * ((directions @ self.scatter[:, g]) * directions).sum(dim=2)
        along = directions @ self.total.transpose(1, 2)  # (S, J, K)
        return spread - along**2 @ (weights / self.count)

    def within_trace(self, weights: Float64[Tensor, " K"]) -> Float64[Tensor, " S"]:
        """Return Σ_k weights[k] Σ_{i in k} ‖x_i − m_k‖², as (S,); `weights` as for `within`."""
        squares = self.scatter.diagonal(dim1=2, dim2=3).sum(dim=2)  # (S, G)
        return squares @ self._mix(weights) - (self.total**2).sum(dim=2) @ (weights / self.count)

    def _mix(self, weights: Float64[Tensor, " K"]) -> Float64[Tensor, " G"]:
        """Return the combination of the summed weightings that `weights` (K,) is."""
        # Balanced classes make the weightings alike; a pseudo-inverse does not mind.
        mix: Tensor = torch.linalg.pinv(self.weights) @ weights
        return mix


@dataclass(frozen=True, eq=False)
class Centred:
    """One state of n examples about their mean, in float64 and sorted by group and class.

    It answers what `Moments` do, with no d × d matrix. Sorted, the examples of a group, or of a
    class in it, are a view, and every score reads the same copy of the states.

    Attributes:
        mean: (d,), of all examples.
        rows: (n, d), the states less their mean.
        labels: (n,), class ids, or the numbers to predict, which count as one class, as do
            examples that may have several of K labels each, (n, K).
        sizes: (B, K), examples of each class in each group, in the order of the rows.
        sums: (B, K, d), of their rows.
        squares: (n,), the squared length of each row.
        same: whether all states are the same.
        resolution: rounding error of the states, as of `Moments`.
    """

    mean: Float64[np.ndarray, " d"]
    rows: Float64[np.ndarray, "n d"]
    labels: np.ndarray
    sizes: Int64[np.ndarray, "B K"]
    sums: Float64[np.ndarray, "B K d"]
    squares: Float64[np.ndarray, " n"]
    same: bool
    resolution: float

    @classmethod
    def of(
        cls,
        states: Float[np.ndarray, "n d"],
        labels: np.ndarray,
        groups: Int64[np.ndarray, " n"] | None = None,
    ) -> Centred:
        """Sort and centre examples.

        Args:
            states: (n, d).
            labels: class ids, int64 (n,), each of 0..K−1 present, or numbers, float64 (n,), or
                which labels each example has, bool (n, K).
            groups: (n,), ids 0..B−1; one group without them.
        """
        (n, d), alike = states.shape, labels.dtype.kind in "fb"
        groups = np.zeros(n, np.int64) if groups is None else groups
        B, K = int(groups.max()) + 1, 1 if alike else int(labels.max()) + 1
        part = groups if alike else groups * K + labels
        order = np.argsort(part, kind="stable")
        rows = states[order].astype(np.float64, copy=False)
        same = bool((rows[-1] == rows[0]).all() and (rows == rows[0]).all())
        mean = rows.mean(axis=0)
        rows -= mean
        sums = torch.zeros(B * K, d, dtype=torch.float64)
        sums.index_add_(0, torch.from_numpy(part[order]), torch.from_numpy(rows))
        return cls(
            mean,
            rows,
            labels[order],
            np.bincount(part, minlength=B * K).reshape(B, K),
            sums.numpy().reshape(B, K, d),
            np.einsum("ij,ij->i", rows, rows),
            same,
            float(np.finfo(states.dtype).eps),
        )

    @property
    def reference(self) -> Float64[Tensor, "1 d"]:
        """The mean, which the sums are taken about."""
        return torch.from_numpy(self.mean)[None]

    @property
    def count(self) -> Float64[Tensor, " K"]:
        """Examples of each class."""
        return torch.from_numpy(self.sizes.sum(axis=0)).double()

    @property
    def total(self) -> Float64[Tensor, "1 K d"]:
        """Σ_{i in k} (x_i − mean)."""
        return torch.from_numpy(self.sums.sum(axis=0))[None]

    def within(
        self, weights: Float64[Tensor, " K"], directions: Float64[Tensor, "1 J d"]
    ) -> Float64[Tensor, "1 J"]:
        """Return Σ_k weights[k] Σ_{i in k} (uᵀ(x_i − m_k))² along each direction u."""
        labels, across = torch.from_numpy(self.labels), directions[0].T
        means = self.total[0] / self.count[:, None]
        along = torch.from_numpy(self.rows) @ across - (means @ across)[labels]
        return (weights[labels] @ along**2)[None]

    def within_trace(self, weights: Float64[Tensor, " K"]) -> Float64[Tensor, " 1"]:
        """Return Σ_k weights[k] Σ_{i in k} ‖x_i − m_k‖², to the rounding of Σ_i ‖x_i‖²."""
        squares = weights[torch.from_numpy(self.labels)] @ torch.from_numpy(self.squares)
        return squares - (self.total**2).sum(dim=2) @ (weights / self.count)


def class_weights(count: Shaped[Tensor, " K"]) -> Float64[Tensor, "K G"]:
    """Choose the weightings (K, G) that the variability scores need, for examples counted by class.

    The scores weigh every class alike or every example alike, so more than two classes need only
    two weightings, whatever K is, of which the second is 0 for the largest class: nine in ten
    words have no entity and enter one matrix product instead of two, as do the examples of
    balanced classes. Two classes are summed apart, from which both ways of weighing follow.
    """
    if len(count) <= 2:
        return torch.eye(len(count), dtype=torch.float64)
    count = count.double()
    return torch.stack([torch.ones_like(count), count.max() / count - 1], dim=1)


def variability_ratios(moments: Moments | Centred) -> Float64[Tensor, " S"]:
    """Return ν = (1/K) trace(Σ_w Σ_b†) of every state, NaN where undefined.

    Every class counts alike, in Σ_w and in the mean of the class means. Xie et al. 2022, §3.1,
    whose covariances divide by n, not n − 1, and whose 1/K is part of the ratio. The states are
    means over a text's own tokens, without CLS as in that text, and without separators as in its
    code; `layerscout.models` pools them.
    """
    means = moments.total / moments.count[:, None]
    weights = 1 / (len(moments.count) * moments.count)
    return _trace_ratio(moments, weights, means - means.mean(dim=1, keepdim=True))


def nc1s(moments: Moments | Centred) -> Float64[Tensor, " S"]:
    """Return the same ratio with every example counting alike. Xie et al. 2022, App. A.1."""
    N = moments.count.sum()
    means = moments.total / moments.count[:, None]
    centre = moments.total.sum(dim=1, keepdim=True) / N
    return _trace_ratio(moments, (1 / N).expand(len(moments.count)), means - centre)


def _trace_ratio(
    moments: Moments | Centred, weights: Float64[Tensor, " K"], deviations: Float64[Tensor, "S K d"]
) -> Float64[Tensor, " S"]:
    """(1/K) trace(Σ_w Σ_b†) with Σ_b = (1/K) Σ_k δ_k δ_kᵀ; NaN where Σ_b = 0 or not finite.

    With the singular values s_j and right vectors u_j of the K × d deviations δ this is
    Σ_j u_jᵀ Σ_w u_j / s_j². Σ_b has at most K − 1 directions, so a pseudo-inverse of d × d would
    be slow, and wrong: in float32 it drops weak directions, with a tiny tolerance it invents some
    (1e13 was seen for a ratio of 0.34).

    Args:
        moments: of S states.
        weights: (K,), what an example of each class counts in Σ_w.
        deviations: (S, K, d), the class means about their centre.
    """
    finite = deviations.isfinite().all(dim=2).all(dim=1)
    known = deviations.where(finite[:, None, None], 0.0)
    _, s, u = torch.linalg.svd(known, full_matrices=False)
    along = moments.within(weights, u).clamp(min=0)
    largest = s[:, :1]
    ratio = torch.where(s > 1e-6 * largest, along / s**2, 0.0).sum(dim=1)
    # Class means that differ by no more than the rounding of the states are one mean, and so are
    # those that lie closer together than the means of any real sample (their distance² is about
    # the spread over n): the same texts in both classes, say, read in different batches.
    rounding = (16 * moments.resolution) ** 2 * (moments.reference**2).sum(dim=-1)
    spread = moments.within_trace(weights).clamp(min=0)
    same = largest.squeeze(1) ** 2 <= rounding + 1e-10 * spread
    return torch.where(finite & ~same, ratio, torch.nan)
