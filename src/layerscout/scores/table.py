"""The table of scores: what each one is, where it comes from, and how it is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from jaxtyping import Float, Float64, Int64
from numpy.typing import ArrayLike
from torch import Tensor

from layerscout.runtime import InputError, unknown, whole
from layerscout.scores.diagnostics import Better
from layerscout.scores.folds import FoldScores, fold_scores
from layerscout.scores.moments import Centred, Moments, nc1s, variability_ratios
from layerscout.scores.neighbours import knn as _knn, mutual_information as _mutual_information
from layerscout.scores.transferability import (
    centred_scatter,
    h_score as _h_score,
    logme as _logme,
    numerical_rank as _numerical_rank,
)
from layerscout.scores.variability import Debiased, debiased, stratified_groups

# What a score is computed from, the cheapest first: sums over the examples, the examples of one
# state, those of all states, held-out examples too, gradients of a classifier, or weights alone.
Source = Literal["moments", "state", "states", "probes", "gradients", "weights"]

T = TypeVar("T")

# What ℓ* goes by unless the user says otherwise.
DEFAULT = "variability_ratio_debiased"

# Products of four larger numbers, or of four whose inverses are larger, would leave float64.
LARGEST = 1e70


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

        def blank(entries: tuple[float | None, ...]) -> tuple[float | None, ...]:
            return (None, *entries[1:])

        return replace(self, values=blank(self.values), low=blank(self.low), high=blank(self.high))


class _once(Generic[T]):  # noqa: N801, a decorator
    """A property that is computed when first asked for.

    That of functools holds one lock for all instances before Python 3.12, and so keeps states from
    being scored at the same time.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, _: type) -> T:
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


@dataclass(frozen=True, eq=False)
class State:
    """One state of n labelled examples; what several scores need is computed once.

    Attributes:
        states: (n, d), as the encoder gave them, all finite.
        labels: class ids, int64 (n,), or targets, float64 (n,).
        groups: (n,), the groups of `variability.stratified_groups`.
        seed: of what a score draws.
        examples: (n,), or None; rows with the same number are the choices of one example.
    """

    states: Float[np.ndarray, "n d"]
    labels: np.ndarray
    groups: Int64[np.ndarray, " n"]
    seed: int = 0
    examples: Int64[np.ndarray, " n"] | None = None

    @_once
    def exact(self) -> Float64[np.ndarray, "n d"]:
        """The states in float64."""
        return np.asarray(self.states, dtype=np.float64)

    @_once
    def centred(self) -> Centred:
        """The states about their mean, sorted by group and class."""
        return Centred.of(self.states, self.labels, self.groups)

    @_once
    def class_scatters(self) -> Float64[np.ndarray, "K d d"] | None:
        """The scatter of each class, if the folds were scored, which needs it."""
        return self.folds.class_scatters if "folds" in vars(self) else None

    @_once
    def scatter(self) -> Float64[np.ndarray, "d d"]:
        """The scatter of all, at least its upper triangle."""
        if self.class_scatters is None:
            return centred_scatter(self.centred)
        total: np.ndarray = self.class_scatters.sum(axis=0)
        return total

    @_once
    def debiased(self) -> Debiased:
        """The debiased variability ratio with its jackknife replicates."""
        return debiased(self.centred)

    @_once
    def folds(self) -> FoldScores:
        """What is fitted on some folds and tested on others."""
        return fold_scores(self.centred)


@dataclass(frozen=True)
class Definition:
    """A row of the table of scores.

    Attributes:
        title: for people.
        of: what has a value.
        better: which direction is better.
        source: what it is computed from.
        numbers: whether it is defined for tasks whose labels are numbers.
        value: for the source "state", the value of one; None if undefined.
        from_moments: for the source "moments", the values (S,), NaN if undefined.
    """

    title: str
    of: Literal["states", "blocks"]
    better: Better
    source: Source
    numbers: bool = False
    value: Callable[[State], float | None] | None = None
    from_moments: Callable[[Moments | Centred], Float64[Tensor, " S"]] | None = None

    @property
    def held_out(self) -> bool:
        """Whether it needs held-out examples."""
        return self.source in ("probes", "gradients")

    def of_moments(self, moments: Moments) -> Score:
        """Compute the score of all S states from their sums, for the source "moments"."""
        if self.from_moments is None:
            raise TypeError(f"{self.title} is not computed from moments")
        values = self.from_moments(moments).tolist()
        return Score(self.of, self.better, tuple(v if np.isfinite(v) else None for v in values))

    def of_state(self, state: State) -> float | None:
        """Compute the value of one state, for the sources "moments" and "state"."""
        value: float | None
        if self.from_moments is not None:
            value = self.from_moments(state.centred).item()
        elif self.value is not None:
            value = self.value(state)
        else:
            raise TypeError(f"{self.title} is not computed state by state")
        return value if value is not None and np.isfinite(value) else None


def _states(title: str, better: Better, source: Source, **more: Any) -> Definition:
    return Definition(title, "states", better, source, **more)


def _blocks(title: str, source: Source, numbers: bool = True) -> Definition:
    return Definition(title, "blocks", "higher", source, numbers)


SCORES: Mapping[str, Definition] = {
    DEFAULT: _states(
        "debiased variability ratio ν", "lower", "state", value=lambda s: s.debiased.value
    ),
    "variability_ratio": _states(
        "variability ratio ν", "lower", "moments", from_moments=variability_ratios
    ),
    "nc1": _states("neural collapse NC1", "lower", "moments", from_moments=nc1s),
    "cca": _states(
        "canonical correlation", "higher", "state", numbers=True, value=lambda s: s.folds.cca
    ),
    "ridge": _states(
        "ridge regression", "higher", "state", numbers=True, value=lambda s: s.folds.ridge
    ),
    "logme": _states(
        "LogME",
        "higher",
        "state",
        numbers=True,
        value=lambda s: _logme(s.centred, scatter=s.scatter),
    ),
    "h_score": _states(
        "H-score", "higher", "state", value=lambda s: _h_score(s.centred, scatter=s.scatter)
    ),
    "numerical_rank": _states(
        "numerical rank",
        "lower",
        "state",
        value=lambda s: _numerical_rank(s.centred, scatters=s.class_scatters),
    ),
    "knn": _states(
        "nearest neighbours",
        "higher",
        "state",
        numbers=True,
        value=lambda s: _knn(s.exact, s.labels, examples=s.examples),
    ),
    "mutual_information": _states(
        "mutual information",
        "higher",
        "state",
        value=lambda s: _mutual_information(s.exact, s.labels, s.seed, s.examples),
    ),
    "probe": _states("probe", "higher", "probes", numbers=True),
    "fisher": _blocks("Fisher information", "gradients"),
    "gradient_norm": _blocks("gradient norm", "gradients"),
    "saliency": _blocks("saliency", "gradients"),
    "weight_snr": _blocks("weight signal-to-noise", "weights"),
    "cka_change": _blocks("change of the states (1 − CKA)", "states"),
}


def variability_ratio_debiased(
    H: ArrayLike | Tensor, y: ArrayLike | Tensor, *, seed: int = 0
) -> float | None:
    """Within-class over between-class variability with the noise of the class means taken out.

    As `variability_ratio`, from an unbiased estimate of either scatter, so that it does not grow
    with n where the classes are hard to tell apart. Lower is better. None where there is no
    signal beyond the noise.

    Args:
        H: states (n, d).
        y: class labels (n,), of any type.
        seed: draws the groups that are told apart from each other.

    Raises:
        InputError: if there are fewer than two classes, fewer than eight examples of one of them,
            or values that are not finite.
    """
    return _on_arrays(DEFAULT, H, y, seed)


def variability_ratio(H: ArrayLike | Tensor, y: ArrayLike | Tensor) -> float | None:
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
    return _on_arrays("variability_ratio", H, y)


def nc1(H: ArrayLike | Tensor, y: ArrayLike | Tensor) -> float | None:
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
    return _on_arrays("nc1", H, y)


def cca(
    H: ArrayLike | Tensor, y: ArrayLike | Tensor, *, regression: bool = False, seed: int = 0
) -> float | None:
    """Mean canonical correlation of states and labels on folds left out; higher is better.

    Over all canonical pairs but the last, which is noise; with numbers the only one. Xie et al.
    2022, App. C.7; see `layerscout.scores.folds.fold_scores`.

    Args:
        H: states (n, d).
        y: class labels (n,), or numbers with `regression`.
        regression: read `y` as numbers.
        seed: draws the folds.

    Raises:
        InputError: if there are too few examples of a class for the folds, or values that are not
            finite.
    """
    return _on_arrays("cca", H, y, seed, regression)


def ridge(
    H: ArrayLike | Tensor, y: ArrayLike | Tensor, *, regression: bool = False, seed: int = 0
) -> float | None:
    """Class-balanced accuracy (R² for numbers) of ridge regression on folds left out.

    Higher is better. See `layerscout.scores.folds.fold_scores`.

    Args:
        H: states (n, d).
        y: class labels (n,), or numbers with `regression`.
        regression: read `y` as numbers.
        seed: draws the folds.

    Raises:
        InputError: as `cca`.
    """
    return _on_arrays("ridge", H, y, seed, regression)


def logme(
    H: ArrayLike | Tensor, y: ArrayLike | Tensor, *, regression: bool = False
) -> float | None:
    """Log evidence per example of Bayesian linear regression on the labels; higher is better.

    Uncentred, without an intercept, maximised over both precisions; with classes the mean over
    one against the rest. You et al. 2021.

    Args:
        H: states (n, d).
        y: class labels (n,), or numbers with `regression`.
        regression: read `y` as numbers.

    Raises:
        InputError: if there are too few examples or values that are not finite.
    """
    return _on_arrays("logme", H, y, regression=regression)


def h_score(H: ArrayLike | Tensor, y: ArrayLike | Tensor) -> float | None:
    """Trace(Σ⁻¹ Σ_b) with Ledoit–Wolf shrinkage of Σ, every example alike; higher is better.

    Bao et al. 2019, with the shrinkage of Ibrahim et al. 2021.

    Args:
        H: states (n, d).
        y: class labels (n,), of any type.

    Raises:
        InputError: as `variability_ratio`.
    """
    return _on_arrays("h_score", H, y)


def numerical_rank(H: ArrayLike | Tensor, y: ArrayLike | Tensor) -> float | None:
    """Mean over the classes of ‖H_y‖_*² / ‖H_y‖_F², not centred; lower is better.

    Xie et al. 2022, §4.3 (after Zhou et al. 2022).

    Args:
        H: states (n, d).
        y: class labels (n,), of any type.

    Raises:
        InputError: as `variability_ratio`.
    """
    return _on_arrays("numerical_rank", H, y)


def knn(H: ArrayLike | Tensor, y: ArrayLike | Tensor, *, regression: bool = False) -> float | None:
    """Leave-one-out accuracy (R² for numbers) of the 10 nearest by cosine; higher is better.

    Args:
        H: states (n, d).
        y: class labels (n,), or numbers with `regression`.
        regression: read `y` as numbers.

    Raises:
        InputError: as `logme`.
    """
    return _on_arrays("knn", H, y, regression=regression)


def mutual_information(
    H: ArrayLike | Tensor, y: ArrayLike | Tensor, *, seed: int = 0
) -> float | None:
    """Mutual information (nats) of cluster and class on a held-out tenth; higher is better.

    Xie et al. 2022, App. C.7.

    Args:
        H: states (n, d).
        y: class labels (n,), of any type.
        seed: draws the rows and starts the clusters.

    Raises:
        InputError: if there are too few examples for the clusters, or values that are not finite.
    """
    return _on_arrays("mutual_information", H, y, seed)


def _on_arrays(
    key: str, H: ArrayLike | Tensor, y: ArrayLike | Tensor, seed: int = 0, regression: bool = False
) -> float | None:
    seed = whole("seed", seed, 0)
    states = _numbers("states", H)
    labels = _numbers("targets", y) if regression else _read(y)
    if states.ndim != 2 or labels.shape != states.shape[:1]:
        raise InputError(
            f"states must be (n, d) and labels (n,), got {states.shape} and {labels.shape}"
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("every row needs a label, got NaN or infinity; drop those rows")
    if not regression:
        labels = _class_ids(labels)
    if not states.size:
        raise InputError(
            f"states must have 1 or more rows and features, got {states.shape}; use other data"
        )
    if not np.isfinite(states).all():
        raise InputError("states must be finite, got NaN or infinity; drop those rows")
    for kind, found in (("states", states), ("targets", labels)):
        largest = float(np.abs(found).max())
        if largest and not 1 / LARGEST <= largest <= LARGEST:
            raise InputError(
                f"{kind} must be of a size below {LARGEST:g} and above "
                f"{1 / LARGEST:g}, got {largest:.3g}; scale them"
            )
    return SCORES[key].of_state(State(states, labels, stratified_groups(labels, seed), seed))


def _read(values: ArrayLike | Tensor) -> np.ndarray:
    if not isinstance(values, Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    found: np.ndarray = (values.double() if values.is_floating_point() else values).numpy()
    return found


def _numbers(kind: str, values: ArrayLike | Tensor) -> np.ndarray:
    try:
        found = _read(values)
        if found.dtype.kind == "c":
            raise TypeError("complex numbers")
        return found.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{kind} must be an array of real numbers: {error}") from error


def _class_ids(labels: np.ndarray) -> Int64[np.ndarray, " n"]:
    try:
        classes, ids = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise InputError(f"labels must all be of one type: {error}; convert them") from error
    count = np.bincount(ids)
    if len(classes) < 2 or count.min() < 2:
        raise InputError(
            f"a class score needs 2 or more classes of 2 or more examples each, got {len(ids)} "
            f"examples in {len(classes)} classes, the smallest of {min(count, default=0)}"
        )
    return ids.astype(np.int64)


def applicable(scores: str | Sequence[str], *, numbers: bool) -> list[str]:
    """Read the keys of scores, separated by commas or in a list, or "all" that fit the labels.

    Args:
        scores: what was asked for.
        numbers: whether the labels are numbers instead of classes.

    Raises:
        InputError: if a key is unknown, or its score needs classes and the labels are numbers.
    """
    fitting = [key for key, row in SCORES.items() if row.numbers or not numbers]
    if scores == "all":
        return fitting
    keys = [key.strip() for key in scores.split(",")] if isinstance(scores, str) else list(scores)
    for key in keys:
        if key not in SCORES:
            raise unknown("score", key, SCORES)
        if key not in fitting:
            raise InputError(
                f"{key} compares classes, but the labels are numbers; use {', '.join(fitting)}"
            )
    return list(dict.fromkeys(keys))
