"""One state of labelled examples; what several scores need of it is computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from jaxtyping import Float, Float64, Int64

from layerscout.scores.grouping import deal_groups
from layerscout.scores.moments import Centred
from layerscout.scores.probes import USUAL_METRICS
from layerscout.scores.quality import Quality, measure_quality
from layerscout.scores.variability import Debiased, estimate_debiased

if TYPE_CHECKING:
    from layerscout.scores.folds import FoldScores

T = TypeVar("T")


class _once(Generic[T]):  # noqa: N801, a decorator
    """A property that is computed when first asked for.

    That of functools holds one lock for all instances before Python 3.12, and so keeps states from
    being scored at the same time.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __get__(self, instance: Any, _: type) -> T:
        value = instance.__dict__[self._compute.__name__] = self._compute(instance)
        return value


@dataclass(frozen=True, eq=False)
class State:
    """One state of n labelled examples; what several scores need is computed once.

    Attributes:
        states: (n, d), as the encoder gave them, all finite.
        labels: class ids, int64 (n,), or targets, float64 (n,), or which of K labels each example
            has, bool (n, K).
        groups: (n,), the groups of `grouping.deal_groups`.
        seed: of what a score draws.
        examples: (n,), or None; rows with the same number are the choices of one example.
        metric: a key of `layerscout.data.METRICS`, what a head on the state is judged by; by
            default accuracy, for numbers the mean of both correlations, for several labels
            micro-F1.
        picks: a head on the state is judged by which row of each example it takes for the right
            one, that of class 1.
        clusters: as for `mutual_information`.
    """

    states: Float[np.ndarray, "n d"]
    labels: np.ndarray
    groups: Int64[np.ndarray, " n"]
    seed: int = 0
    examples: Int64[np.ndarray, " n"] | None = None
    metric: str | None = None
    picks: bool = False
    clusters: int | None = None

    @_once
    def exact(self) -> Float64[np.ndarray, "n d"]:
        """The states in float64."""
        return np.asarray(self.states, dtype=np.float64)

    @_once
    def centred(self) -> Centred:
        """The states about their mean, sorted by group and class."""
        return Centred.of(self.states, self.labels, self.groups)

    @_once
    def scatter(self) -> Float64[np.ndarray, "d d"]:
        """The scatter of all."""
        scatter: np.ndarray = self.centred.rows.T @ self.centred.rows
        return scatter

    @_once
    def debiased(self) -> Debiased:
        """The debiased variability ratio with its jackknife replicates."""
        return estimate_debiased(self.centred)

    @_once
    def folds(self) -> FoldScores:
        """What is fitted on some folds and tested on others."""
        from layerscout.scores.folds import score_folds  # which few scores need

        return score_folds(self.centred)

    @_once
    def quality(self) -> Quality:
        """How well a head on the state does on examples left out, with jackknife replicates."""
        folds = deal_groups(self.labels, self.seed, self.examples, least=0)
        usual = USUAL_METRICS.get(self.labels.dtype.kind, "accuracy")
        picked = self.examples if self.picks else None
        return measure_quality(self.exact, self.labels, folds, self.metric or usual, picked)
