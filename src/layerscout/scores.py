"""Scores of how far apart the classes already are in each state; the table of all scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import ArrayLike
from torch import Tensor

from layerscout.errors import InputError
from layerscout.moments import Moments, class_weights

Better = Literal["lower", "higher"]


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
        """Give the best entry among 1..L; ties go to the lower one, None if all are undefined."""
        sign = 1.0 if self.better == "lower" else -1.0
        defined = [(sign * v, i) for i, v in enumerate(self.values) if v is not None and i > 0]
        return min(defined)[1] if defined else None

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Score:
        """Read back what `dataclasses.asdict` and JSON made of a score."""
        entries: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in written.items()
        }
        return cls(**entries)

    def without_embeddings(self) -> Score:
        """Give the same score with entry 0 undefined."""
        return replace(self, values=(None, *self.values[1:]))


@dataclass(frozen=True)
class Definition:
    """A row of the table of scores: how a score reads, and how it comes from `Moments`."""

    title: str
    of: Literal["states", "blocks"]
    better: Better
    from_moments: Callable[[Moments], Float64[Tensor, " S"]]

    def score(self, moments: Moments) -> Score:
        """Compute the score of all S states; what is undefined is None."""
        values = self.from_moments(moments).tolist()
        return Score(self.of, self.better, tuple(v if np.isfinite(v) else None for v in values))


def variability_ratio(H: ArrayLike | Tensor, y: ArrayLike) -> float | None:
    """Within-class over between-class variability, ν = (1/K) trace(Σ_w Σ_b†); lower is better.

    Every class counts alike, in Σ_w and in the mean of the class means. None where all class
    means are the same, so that Σ_b has no direction. Xie et al. 2022, §3.1, equation 3.

    Args:
        H: states (n, d).
        y: class labels (n,), of any type.

    Raises:
        InputError: if there are fewer than two classes, fewer than two examples of one of them,
            or values that are not finite.
    """
    return _on_arrays(SCORES["variability_ratio"], H, y)


def nc1(H: ArrayLike | Tensor, y: ArrayLike) -> float | None:
    """The same ratio with every example counting alike (neural collapse's first quantity).

    Σ_w is pooled over the examples and Σ_b is taken about the mean of all examples, so large
    classes dominate; equal to `variability_ratio` on balanced classes. Lower is better.
    Xie et al. 2022, App. A.1 (after Papyan et al. 2020).

    Args:
        H: states (n, d).
        y: class labels (n,), of any type.

    Raises:
        InputError: as `variability_ratio`.
    """
    return _on_arrays(SCORES["nc1"], H, y)


def _variability_ratios(moments: Moments) -> Float64[Tensor, " S"]:
    means = moments.means()
    weights = 1 / (len(moments.count) * moments.count)
    return _trace_ratio(moments, weights, means - means.mean(dim=1, keepdim=True))


def _nc1s(moments: Moments) -> Float64[Tensor, " S"]:
    N = moments.count.sum()
    centre = moments.total.sum(dim=1, keepdim=True) / N
    return _trace_ratio(moments, (1 / N).expand(len(moments.count)), moments.means() - centre)


def _trace_ratio(
    moments: Moments, weights: Float64[Tensor, " K"], deviations: Float64[Tensor, "S K d"]
) -> Float64[Tensor, " S"]:
    """(1/K) trace(Σ_w Σ_b†) with Σ_b = (1/K) Σ_k δ_k δ_kᵀ; NaN where Σ_b = 0 or not finite.

    With the singular values s_j and right vectors u_j of the K × d deviations δ this is
    Σ_j u_jᵀ Σ_w u_j / s_j². Σ_b has at most K − 1 directions, so a pseudo-inverse of d × d would
    be slow, and wrong: in float32 it drops weak directions, with a tiny tolerance it invents some.

    Args:
        moments: of S states.
        weights: (K,), what an example of each class counts in Σ_w.
        deviations: (S, K, d), the class means about their centre.
    """
    finite = deviations.isfinite().all(dim=2).all(dim=1)
    _, s, u = torch.linalg.svd(
        deviations.where(finite[:, None, None], 0.0),
        full_matrices=False,
    )
    along = moments.within(weights, u).clamp(min=0)
    largest = s[:, :1]
    ratio = torch.where(s > 1e-6 * largest, along / s**2, 0.0).sum(dim=1)
    # Class means that differ by no more than the rounding of the states are one mean, and so are
    # those that lie closer together than the means of any real sample (their distance² is about
    # the spread over n): the same texts in both classes, say, read in different batches.
    rounding = (16 * moments.resolution) ** 2 * (moments.reference**2).sum(dim=-1)
    same = largest.squeeze(1) ** 2 <= rounding + 1e-10 * moments.within_trace(weights)
    return torch.where(finite & ~same, ratio, torch.nan)


SCORES: Mapping[str, Definition] = {
    "variability_ratio": Definition("variability ratio ν", "states", "lower", _variability_ratios),
    "nc1": Definition("neural collapse NC1", "states", "lower", _nc1s),
}


def _on_arrays(definition: Definition, H: ArrayLike | Tensor, y: ArrayLike) -> float | None:
    if isinstance(H, Tensor):
        H = H.detach().cpu().double().numpy()
    states, labels = torch.as_tensor(np.asarray(H, dtype=np.float64)), np.asarray(y)
    if states.ndim != 2 or labels.shape != states.shape[:1]:
        raise InputError(
            f"states must be (n, d) and labels (n,), got {tuple(states.shape)} and {labels.shape}"
        )
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise InputError("every row needs a label, got NaN; drop those rows")
    classes, ids = np.unique(labels, return_inverse=True)
    count = torch.as_tensor(np.bincount(ids))
    if len(classes) < 2 or int(count.min()) < 2:
        raise InputError(
            f"a class score needs 2 or more classes of 2 or more examples each, got {len(ids)} "
            f"examples in {len(classes)} classes, the smallest of {min(count.tolist(), default=0)}"
        )
    if not bool(states.isfinite().all()):
        raise InputError("states must be finite, got NaN or infinity; drop those rows")
    moments = Moments.empty(states.mean(dim=0, keepdim=True), class_weights(count))
    moments.add_(states[None], torch.as_tensor(ids))
    return definition.score(moments).values[0]
