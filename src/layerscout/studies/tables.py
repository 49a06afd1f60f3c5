"""Tables of a study: means over trials by the values of axes, and how these values compare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import mean, stdev
from typing import Any

import pandas as pd
from scipy import stats

from layerscout.data import find_row_interval
from layerscout.reporting import Table
from layerscout.studies.recipe import DERIVED, TableSpec, label_value, list_names
from layerscout.studies.summaries import FIXED

# Measures that are whole numbers.
COUNTED = ("best:", "rank:", "epoch", "parameters", "trainable", "split")
# What stands beside a mean.
SPREADS = {
    "deviation": " ± standard deviation",
    "error": " ± standard error",
    "double": " ± two standard deviations",
    "interval": " with the 95 % interval",
    "none": "",
}


@dataclass(frozen=True)
class Mean:
    """A mean over n trials, with what goes with it; None where n is too small.

    Attributes:
        deviation: standard deviation, of the sample.
        error: standard error of the mean.
        low, high: the ends of the 95 % interval by Student's t.
    """

    n: int
    mean: float
    deviation: float | None = None
    error: float | None = None
    low: float | None = None
    high: float | None = None

    def ends(self, spread: str) -> tuple[float | None, float | None]:
        """Return the ends of an error bar: of the "interval", or "double" the deviation away."""
        if spread != "double" or self.deviation is None:
            return self.low, self.high
        return self.mean - 2 * self.deviation, self.mean + 2 * self.deviation


def average(values: Sequence[float]) -> Mean:
    """Average values, with the interval of Student's t, as in Tamkin et al. 2020, App. C."""
    n, center = len(values), mean(values)
    if n < 2:
        return Mean(n, center)
    spread = stdev(values)
    error = spread / math.sqrt(n)
    reach = float(stats.t.ppf(0.975, n - 1)) * error
    return Mean(n, center, spread, error, center - reach, center + reach)


def format_rounded(value: float | None) -> str:
    """Write a number as tables show it: three decimals, or fewer where it is large."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if size == int(size) and size >= 10:
        text = f"{int(value):,}"
    elif size >= 1e6 or 0 < size < 5e-4:
        text = f"{value:.2g}"
    else:
        text = f"{value:.3f}" if size < 10 else f"{value:,.1f}"
    return text.replace("-", "−", 1) if value < 0 else text


def select_rows(
    frame: pd.DataFrame,
    grid: str | None,
    measures: Sequence[str],
    where: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Select the values of measures with the chosen learning rates.

    Args:
        frame: as `tidy_records` returns it.
        grid: the grid; None for all.
        measures: what was measured.
        where: axes, and the value that each must have.
    """
    rows = frame[frame["selected"] & frame["measure"].isin(measures) & frame["value"].notna()]
    if grid is not None:
        rows = rows[rows["grid"] == grid]
    for axis, value in (where or {}).items():
        if axis not in rows:
            return rows[:0]
        rows = rows[rows[axis].map(format_value) == label_value(value)]
    return rows


def summarise(frame: pd.DataFrame, spec: TableSpec) -> Table:
    """Average a measure over all that is neither in the rows nor in the columns.

    The caption says over how many trials.

    Args:
        frame: as `tidy_records` returns it.
        spec: of means; `measure` and `at` count as axes.
    """
    selected = select_rows(frame, spec.grid, list_names(spec.value), spec.where)
    down, across = (
        [name_column(axis) for axis in list_names(axes)] for axes in (spec.rows, spec.columns)
    )
    titles = [pd.Series(join_values(selected, axes), selected.index) for axes in (down, across)]
    counts: set[int] = set()
    cells: dict[Any, str] = {}
    for place, group in selected.groupby(titles, sort=False):
        mean = average(group["value"].astype(float).tolist())
        counted = group["measure"].str.startswith(COUNTED).any()
        whole = counted and not mean.deviation
        cells[place] = write_mean(mean, "whole" if whole else spec.spread)
        counts.add(mean.n)
    caption = "One trial each." if counts == {1} else "No trials."
    if max(counts, default=0) > 1:
        numbers = " to ".join(map(str, sorted({min(counts), max(counts)})))
        caption = f"Means of {numbers} trials{SPREADS[spec.spread]}."
    names, headings = (list(title.unique()) for title in titles)
    lines = [[name, *(cells.get((name, head), "–") for head in headings)] for name in names]
    return Table(caption, [", ".join(down), *headings], lines, sortable=True)


def write_mean(mean: Mean, spread: str) -> str:
    """Write a mean with what stands beside it, of `SPREADS`; or as a "whole" number."""
    text = format_rounded(mean.mean)
    if spread == "whole":
        return f"{mean.mean:,.0f}"
    if spread == "none" or mean.deviation is None:
        return text
    if spread == "interval":
        return f"{text} ({format_rounded(mean.low)} to {format_rounded(mean.high)})"
    beside = 2 * mean.deviation if spread == "double" else getattr(mean, spread)
    return f"{text} ± {format_rounded(beside)}"


def name_column(axis: str) -> str:
    """Name the column of the tidy rows that holds an axis."""
    return "at" if axis in ("state", "block", "epoch") else axis


def join_values(rows: pd.DataFrame, axes: Sequence[str]) -> list[str]:
    """Return the values of these axes of each row as one text."""
    values = rows.reindex(columns=list(axes)).to_numpy(dtype=object)
    return [", ".join(map(format_value, row)) for row in values]


def format_value(value: Any) -> str:
    """Write the value of an axis."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


def collect_trials(
    frame: pd.DataFrame, measures: Sequence[str] = ("metric", "seconds")
) -> pd.DataFrame:
    """Return a row for every point of the grids: its axes, status, and these measures of it."""
    points = frame[~frame.index.duplicated()]
    points = points.drop(columns=["measure", "at", "checkpoint", "value"])
    return points.assign(**{m: frame.loc[frame["measure"] == m, "value"] for m in measures})


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
        frame: as `tidy_records` returns it.
        grid: which one; None for all.
        value: a measure.
        of: the axis whose values are compared, such as "task"; models are kept apart.
        over: the axis that is run over, such as "permutation".
    """
    rows = select_rows(frame, grid, [value])
    axes = {"model": "model", "of": of, "over": over}
    labels = {name: rows[axis].map(format_value) for name, axis in axes.items()}
    means = pd.DataFrame({**labels, "value": rows["value"].astype(float)}).pivot_table(
        "value", "over", ["model", "of"], aggfunc=mean, sort=False
    )
    several = rows["model"].nunique() > 1
    agreements = []
    columns: list[Any] = means.columns.tolist()
    for (model, a), (other, b) in combinations(columns, 2):
        common = means[[(model, a), (other, b)]].dropna()
        if model != other or len(common) < 3 or common.nunique().min() < 2:
            continue
        x, y = (common[column] for column in common)
        rank, line = stats.spearmanr(x, y), stats.pearsonr(x, y)
        numbers = (rank.statistic, rank.pvalue, line.statistic, line.pvalue)
        name = f"{a}, {b}" + (f" ({model})" if several else "")
        agreements.append(Agreement(name, len(common), *map(float, numbers)))
    return agreements


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


def compare_with_baseline(
    frame: pd.DataFrame,
    grid: str,
    axis: str,
    baseline: str,
    records: Mapping[str, Mapping[str, Any] | None] | None = None,
) -> list[Contest]:
    """Compare every value of an axis with a baseline, in pairs of trials that differ in it alone.

    Args:
        frame: as `tidy_records` returns it.
        grid: of tune.
        axis: such as "plan".
        baseline: a value of it.
        records: of the trials, by their keys; they may hold predictions.
    """
    rows = select_rows(frame, grid, ["metric"])
    apart = (*FIXED, *DERIVED, "grid", "seed", "learning_rate", axis)
    rest = [str(name) for name in rows if name not in apart]
    trials = rows[["value", "trial"]].assign(
        name=rows[axis].map(str),
        seed=rows["seed"].map(str) if "seed" in rows else "",
        **{name: rows[name].map(format_value) for name in rest},
    )
    trials = trials.drop_duplicates(["name", "seed", *rest], keep="last")
    base = trials[trials["name"] == baseline].drop(columns="name")
    others = trials[trials["name"] != baseline]
    pairs = others.merge(base, on=["seed", *rest], suffixes=("", "_base"))
    return [
        _make_contest(str(name), rest, trials, records or {})
        for name, trials in pairs.groupby("name", sort=False)
    ]


def _make_contest(
    name: str,
    rest: Sequence[str],
    pairs: pd.DataFrame,
    records: Mapping[str, Mapping[str, Any] | None],
) -> Contest:
    """Compare a value with the baseline, in pairs of trials for every combination of `rest`."""
    gains = pairs["value"] - pairs["value_base"]
    by_place = [
        mean(place) for _, place in gains.groupby([pairs[axis] for axis in rest], sort=False)
    ]
    interval = None
    if len(by_place) > 1:
        differences = by_place
        varying = [axis.replace("_", " ") for axis in rest if pairs[axis].nunique() > 1]
        over = f"{len(by_place)} combinations of {' and '.join(varying)}"
        if len(varying) == 1:
            over = f"{len(by_place)} {varying[0]}s"
    else:
        differences = list(gains)
        over = f"{len(pairs)} seeds" if len(pairs) > 1 else "one seed"
        # A mean over seeds varies no more with the examples than one of them does, on average.
        intervals = [
            find_row_interval(*((records.get(key) or {}).get("result", {}) for key in keys))
            for keys in zip(pairs["trial_base"], pairs["trial"], strict=True)
        ]
        if None not in intervals:
            interval = tuple(map(mean, zip(*intervals, strict=True)))
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
    better = sum(gain > 0 for gain in differences)
    return Contest(name, difference, len(pairs), p, better, over, interval is not None)
