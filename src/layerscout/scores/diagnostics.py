"""How far scores can be trusted: smooth, predictive, in agreement, stable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64

from layerscout.errors import InputError
from layerscout.scores.score import Better, Score

Values = Sequence[float | None]


@dataclass(frozen=True)
class ProbeFit:
    """The line probe = intercept + slope · score through the states 1..L, by least squares.

    Attributes:
        pearson: the correlation ρ of score and probe.
        r_squared: the part of the probe's variance that the line explains.
        slope, intercept: of the line.
        spearman: the correlation of their ranks.
        states: how many states have both values, and so were fitted.
    """

    pearson: float | None
    r_squared: float | None
    slope: float | None
    intercept: float | None
    spearman: float | None
    states: int


@dataclass(frozen=True)
class Agreement:
    """Whether scores choose the same layer and order the layers alike.

    Attributes:
        best: by score, its best entry among 1..L; None if none is defined.
        kendall: by two scores, Kendall's τ (τ_b, for ties) over the entries 1..L that both define,
            with directions aligned: +1 is the same order from best to worst, −1 the reverse.
    """

    best: Mapping[str, int | None]
    kendall: Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True)
class RankMovement:
    """How a score's ranks move over checkpoints of one model.

    Attributes:
        ranks: for each checkpoint, what `ranks` gives.
        deviation: for each checkpoint, |rank now − rank at the start| averaged over the blocks.
        kendall: for each checkpoint, Kendall's τ between its values and those at the start.
    """

    ranks: tuple[tuple[int | None, ...], ...]
    deviation: tuple[float | None, ...]
    kendall: tuple[float | None, ...]


def smoothness(values: Values) -> float | None:
    """Local smoothness ζ of a curve over the states 1..L; the smaller, the smoother.

    The values become z-scores by their population deviation, and ζ is the sum of their squared
    second differences. None where a state is undefined, all are the same, or L < 3.
    Xie et al. 2022, §4.4.

    Args:
        values: entries 0..L; entry 0 is not looked at.
    """
    defined = [value for value in values[1:] if value is not None]
    if len(defined) < max(len(values) - 1, 3):
        return None
    width = np.ptp(defined)
    if width == 0:
        return None
    z = (np.array(defined) - min(defined)) / width  # so that no square overflows or vanishes
    return float(np.sum(np.diff(z / z.std(), n=2) ** 2))


def against_probe(score: Values, probe: Values) -> ProbeFit:
    """Regress a probe's performance on a score, over the states 1..L where both are defined.

    None throughout for fewer than 3 such states, which any line fits, and for a constant score;
    a constant probe has a line, of slope 0, but no correlations. Xie et al. 2022, §4.1, App. C.

    Args:
        score: entries 0..L; entry 0 is not looked at.
        probe: the same of the probe.

    Raises:
        InputError: if they differ in length.
    """
    x, y = _both_defined(score, probe)
    if len(x) < 3 or np.ptp(x) == 0:
        return ProbeFit(None, None, None, None, None, len(x))
    if np.ptp(y) == 0:
        return ProbeFit(None, None, 0.0, float(y[0]), None, len(x))
    from scipy.stats import linregress, spearmanr

    # Of scores in units of their range: squares of the smallest and largest are no numbers.
    width, spearman = np.ptp(x), float(spearmanr(x, y).statistic)
    line = linregress((x - x.min()) / width, y)
    pearson, slope = float(line.rvalue), float(line.slope / width)
    intercept = float(y.mean() - slope * x.mean())
    return ProbeFit(pearson, pearson**2, slope, intercept, spearman, len(x))


def agreement(scores: Mapping[str, Score], of: Literal["states", "blocks"] = "states") -> Agreement:
    """Compare all scores of states (or blocks) with each other: best entry, and Kendall's τ.

    Args:
        scores: by name; those of anything but `of` are left out.
        of: "states" or "blocks".

    Raises:
        InputError: if two scores differ in length.
    """
    chosen = {name: score for name, score in scores.items() if score.of == of}
    signs = {name: 1 if score.better == "higher" else -1 for name, score in chosen.items()}

    def compare(a: str, b: str) -> float | None:
        x, y = _both_defined(chosen[a].values, chosen[b].values)
        return _kendall(signs[a] * x, signs[b] * y)

    return Agreement(
        {name: score.best() for name, score in chosen.items()},
        {a: {b: compare(a, b) for b in chosen} for a in chosen},
    )


def ranks(values: Values, better: Better) -> tuple[int | None, ...]:
    """Rank the entries 1..L: 1 is the best, ties go to the lower entry, undefined ones have none.

    Args:
        values: entries 0..L; entry 0 takes no part, as it never is the best.
        better: which direction is better.
    """
    sign = 1.0 if better == "lower" else -1.0
    order = sorted((sign * v, i) for i, v in enumerate(values) if v is not None and i > 0)
    rank_of = {i: rank for rank, (_, i) in enumerate(order, start=1)}
    return tuple(rank_of.get(i) for i in range(len(values)))


def rank_movement(checkpoints: Sequence[Values], better: Better) -> RankMovement:
    """Follow the ranks of the blocks (or states) from the first checkpoint through the others.

    Deviation and τ are over the blocks that both checkpoints define, ranked among themselves.
    Lodha et al. 2023, §4 and App. A.3.

    Args:
        checkpoints: for each checkpoint of one model, its entries 0..L.
        better: which direction is better.

    Raises:
        InputError: if the checkpoints differ in length.
    """
    deviation: list[float | None] = []
    kendall: list[float | None] = []
    for now in checkpoints:
        x, y = _both_defined(checkpoints[0], now)
        # A first entry to stand for entry 0, which has no rank.
        start, end = (ranks([None, *each.tolist()], better)[1:] for each in (x, y))
        moved = np.abs(np.array(start, float) - np.array(end, float))
        deviation.append(float(moved.mean()) if len(moved) else None)
        kendall.append(_kendall(x, y))
    return RankMovement(
        tuple(ranks(values, better) for values in checkpoints), tuple(deviation), tuple(kendall)
    )


def _both_defined(
    a: Values, b: Values
) -> tuple[Float64[np.ndarray, " c"], Float64[np.ndarray, " c"]]:
    """Return the entries from 1 on where both are defined."""
    if len(a) != len(b):
        raise InputError(
            f"curves of one model have as many entries each, got {len(a)} and {len(b)}; "
            "compare scores of models with the same number of blocks"
        )
    pairs = [(x, y) for x, y in zip(a[1:], b[1:], strict=True) if x is not None and y is not None]
    x, y = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    return x, y


def _kendall(x: Float64[np.ndarray, " c"], y: Float64[np.ndarray, " c"]) -> float | None:
    if len(x) < 2:
        return None
    from scipy.stats import kendalltau

    tau = float(np.round(kendalltau(x, y).statistic, 12))  # which is else just below 1
    return tau if np.isfinite(tau) else None
