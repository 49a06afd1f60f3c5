"""Tables of a study: means over trials, by the values of axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

import pandas as pd
from scipy import stats

from layerscout.pages import Table
from layerscout.studies.recipe import label_value

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
        whole: whether it is of whole numbers, such as states, and all are the same.
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
    whole: bool = False

    def ends(self, spread: str) -> tuple[float | None, float | None]:
        """Give the ends of an error bar: of the "interval", or "double" the deviation away."""
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


@dataclass(frozen=True)
class Summary:
    """A table of means.

    Attributes:
        corner: what the rows are.
        rows, columns: headings.
        cells: by (row, column) numbers; cells without a trial are missing.
        spread: what is shown beside a mean, of `SPREADS`.
    """

    corner: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[tuple[int, int], Mean]
    spread: str

    def text(self, row: int, column: int) -> str:
        """Write a cell."""
        found = self.cells.get((row, column))
        if found is None:
            return "–"
        if found.whole:
            return f"{found.mean:,.0f}"
        text = format_rounded(found.mean)
        if self.spread == "none" or found.deviation is None:
            return text
        if self.spread == "interval":
            return f"{text} ({format_rounded(found.low)} to {format_rounded(found.high)})"
        if self.spread == "double":
            return f"{text} ± {format_rounded(2 * found.deviation)}"
        return f"{text} ± {format_rounded(getattr(found, self.spread))}"

    def as_table(self) -> Table:
        """Give the table as text, saying how many trials a mean is over."""
        rows = [
            [name, *(self.text(r, c) for c in range(len(self.columns)))]
            for r, name in enumerate(self.rows)
        ]
        n = sorted({cell.n for cell in self.cells.values()})
        caption = "One trial each." if n == [1] else "No trials."
        if n and n[-1] > 1:
            trials = f"{n[0]}" if len(n) == 1 else f"{n[0]} to {n[-1]}"
            caption = f"Means of {trials} trials{SPREADS[self.spread]}."
        return Table(caption, [self.corner, *self.columns], rows, sortable=True)


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
        frame: as `layerscout.studies.summaries.tidy_records` gives it.
        grid: the grid; None for all.
        measures: what was measured.
        where: axes, and the value that each must have.
    """
    found = frame[frame["selected"] & frame["measure"].isin(measures) & frame["value"].notna()]
    if grid is not None:
        found = found[found["grid"] == grid]
    for axis, value in (where or {}).items():
        found = (
            found[found[axis].map(format_value) == label_value(value)]
            if axis in found
            else found[:0]
        )
    return found


def summarise(
    frame: pd.DataFrame,
    *,
    grid: str | None,
    value: str | Sequence[str],
    rows: str | Sequence[str],
    columns: str | Sequence[str],
    spread: str,
    where: Mapping[str, Any],
) -> Summary:
    """Average a measure over all that is neither in the rows nor in the columns.

    Args:
        frame: as `layerscout.studies.summaries.tidy_records` gives it.
        grid: the grid; None for all.
        value: one measure or several.
        rows: axes; `measure` and `at` count as such.
        columns: the same.
        spread: what is shown beside the mean.
        where: only cells with these values.
    """
    down, across = ([name_column(axis) for axis in list_names(axes)] for axes in (rows, columns))
    found = select_rows(frame, grid, list_names(value), where).to_dict("records")
    down_titles, across_titles = (
        {
            title: n
            for n, title in enumerate(dict.fromkeys(_join_values(row, axes) for row in found))
        }
        for axes in (down, across)
    )
    cells: dict[tuple[int, int], list[float]] = {}
    whole: set[tuple[int, int]] = set()
    for row in found:
        at = down_titles[_join_values(row, down)], across_titles[_join_values(row, across)]
        cells.setdefault(at, []).append(float(row["value"]))
        if str(row["measure"]).startswith(COUNTED):
            whole.add(at)
    return Summary(
        corner=", ".join(down),
        rows=list(down_titles),
        columns=list(across_titles),
        cells={
            at: replace(average(values), whole=at in whole and len(set(values)) == 1)
            for at, values in cells.items()
        },
        spread=spread,
    )


def list_names(names: str | Sequence[str]) -> list[str]:
    """Give one name or several as a list."""
    return [names] if isinstance(names, str) else list(names)


def name_column(axis: str) -> str:
    """Name the column of the tidy rows that holds an axis."""
    return "at" if axis in ("state", "block", "epoch") else axis


def _join_values(row: Mapping[Any, Any], axes: Sequence[str]) -> str:
    return ", ".join(format_value(row.get(axis)) for axis in axes)


def format_value(value: Any) -> str:
    """Write the value of an axis."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


def collect_trials(
    frame: pd.DataFrame, measures: Sequence[str] = ("metric", "seconds")
) -> list[dict[str, Any]]:
    """Give a row for every point of the grids: its axes, status, and these measures of it."""
    axes = [name for name in frame.columns if name not in ("measure", "at", "checkpoint", "value")]
    found: dict[Any, dict[str, Any]] = {}
    for row in frame.to_dict("records"):
        key = tuple(format_value(row[name]) for name in axes)
        point = found.setdefault(key, {name: row[name] for name in axes})
        if row["measure"] in measures:
            point[row["measure"]] = row["value"]
    return list(found.values())
