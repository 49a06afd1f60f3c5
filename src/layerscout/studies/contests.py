"""How the values of an axis compare with a baseline, and how they correlate with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import mean
from typing import Any

import pandas as pd
from scipy import stats

from layerscout.data import find_row_interval
from layerscout.studies.recipe import DERIVED
from layerscout.studies.summaries import FIXED
from layerscout.studies.tables import Mean, average, format_value, select_rows


@dataclass(frozen=True)
class Agreement:
    """How two values of an axis agree over another axis, with two-sided p-values."""

    pair: str
    n: int
    spearman: float
    spearman_p: float
    pearson: float
    pearson_p: float


def correlate_values(
    frame: pd.DataFrame, *, grid: str | None, value: str, of: str, over: str
) -> list[Agreement]:
    """Correlate the means of every two values of an axis over those of another one.

    Tamkin et al. 2020, Table 1. Pairs with fewer than 3 common values, or no spread, are left out.

    Args:
        frame: as `tidy_records` gives it.
        grid: which one; None for all.
        value: a measure.
        of: the axis whose values are compared, such as "task"; models are kept apart.
        over: the axis that is run over, such as "permutation".
    """
    found = select_rows(frame, grid, [value])
    means: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in found.to_dict("records"):
        at = means.setdefault((format_value(row["model"]), format_value(row[of])), {})
        at.setdefault(format_value(row[over]), []).append(float(row["value"]))
    agreed = []
    several = len({model for model, _ in means}) > 1
    for (model, a), (other, b) in combinations(means, 2):
        common = [key for key in means[model, a] if key in means[other, b]]
        x = [mean(means[model, a][key]) for key in common]
        y = [mean(means[other, b][key]) for key in common]
        if model != other or len(common) < 3 or min(len(set(x)), len(set(y))) < 2:
            continue
        name = f"{a}, {b}" + (f" ({model})" if several else "")
        rank, line = stats.spearmanr(x, y), stats.pearsonr(x, y)
        agreed.append(
            Agreement(
                name,
                len(common),
                float(rank.statistic),
                float(rank.pvalue),
                float(line.statistic),
                float(line.pvalue),
            )
        )
    return agreed


@dataclass(frozen=True)
class Contest:
    """How a value of an axis does against the baseline.

    Attributes:
        name: of the value.
        difference: from the baseline, in pairs with all else equal, averaged over seeds and then
            over the rest (models and tasks), with the interval over the rest. Where the rest is a
            single one, over its seeds, with the wider of their interval and that over validation
            examples.
        pairs: trials that were compared.
        wilcoxon: the two-sided p of the signed-rank test over the same; None for fewer than 5,
            where nothing could be significant.
        better: in how many of the same the difference is above 0.
        over: what the interval is over, such as "3 tasks".
        rows: whether validation examples are among that.
    """

    name: str
    difference: Mean
    pairs: int
    wilcoxon: float | None
    better: int
    over: str
    rows: bool


# A value of a metric, and the trial that it is of.
_Trial = tuple[float, str]


def compare_with_baseline(
    frame: pd.DataFrame,
    grid: str,
    axis: str,
    baseline: str,
    records: Mapping[str, Mapping[str, Any] | None] | None = None,
) -> list[Contest]:
    """Compare every value of an axis with a baseline, in pairs of trials that differ in it alone.

    Args:
        frame: as `tidy_records` gives it.
        grid: of tune.
        axis: such as "plan".
        baseline: a value of it.
        records: of the trials, by their keys; they may hold predictions.
    """
    found = select_rows(frame, grid, ["metric"])
    left = (*FIXED, *DERIVED, "grid", "seed", "learning_rate", axis)
    rest = [str(name) for name in found if name not in left]
    by: dict[str, dict[tuple[str, ...], dict[str, _Trial]]] = {}
    for row in found.to_dict("records"):
        place = tuple(format_value(row[name]) for name in rest)
        trial = float(row["value"]), str(row["trial"])
        by.setdefault(str(row[axis]), {}).setdefault(place, {})[str(row["seed"])] = trial
    base = by.get(baseline, {})
    contested = []
    for name, places in by.items():
        paired = {
            place: [(base[place][s], one) for s, one in seeds.items() if s in base[place]]
            for place, seeds in places.items()
            if place in base
        }
        paired = {place: pairs for place, pairs in paired.items() if pairs}
        if name != baseline and paired:
            contested.append(_make_contest(name, rest, paired, records or {}))
    return contested


def _make_contest(
    name: str,
    rest: Sequence[str],
    paired: Mapping[tuple[str, ...], Sequence[tuple[_Trial, _Trial]]],
    records: Mapping[str, Mapping[str, Any] | None],
) -> Contest:
    """Compare a value with the baseline, in pairs of trials for every combination of `rest`."""
    gains = [[one - base for (base, _), (one, _) in pairs] for pairs in paired.values()]
    interval = None
    if len(gains) > 1:
        differences = [mean(seeds) for seeds in gains]
        varying = [axis for axis, *values in zip(rest, *paired, strict=True) if len({*values}) > 1]
        over = f"{len(gains)} combinations of {' and '.join(varying)}".replace("_", " ")
        if len(varying) == 1:
            over = f"{len(gains)} {varying[0].replace('_', ' ')}s"
    else:
        ((pairs,), (differences,)) = list(paired.values()), gains
        over = f"{len(pairs)} seeds" if len(pairs) > 1 else "one seed"
        interval = _average_rows([[records.get(trial) for _, trial in pair] for pair in pairs])
    difference = average(differences)
    if interval is not None:
        # Either alone is too narrow: seeds that are judged on the same examples share their luck.
        ends = [difference.low, difference.high], interval
        low, high = ([end for end in (a, b) if end is not None] for a, b in zip(*ends, strict=True))
        difference = replace(difference, low=min(low), high=max(high))
        over += " and the validation examples"
    p = None
    if len(differences) >= 5 and any(differences):
        p = float(stats.wilcoxon(differences).pvalue)
    better, pairs_in_all = sum(one > 0 for one in differences), sum(map(len, gains))
    return Contest(name, difference, pairs_in_all, p, better, over, interval is not None)


def _average_rows(
    pairs: Sequence[Sequence[Mapping[str, Any] | None]],
) -> tuple[float, float] | None:
    """Average the intervals over validation examples of some pairs of trials, one for each seed.

    A mean over seeds varies no more with the examples than one of them does, on average. None where
    a pair has no such interval.
    """
    found = []
    for records in pairs:
        first, second = (record["result"] if record else {} for record in records)
        if (interval := find_row_interval(first, second)) is None:
            return None
        found.append(interval)
    low, high = zip(*found, strict=True)
    return mean(low), mean(high)
