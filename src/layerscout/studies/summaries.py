"""What the records of a study say: tidy rows, means over seeds, tables and paired comparisons.

Nothing here runs anything; it reads what `study.json` and the records of trials hold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from statistics import mean, stdev
from typing import Any

import pandas as pd
from scipy import stats

from layerscout.scores import ranks
from layerscout.studies.recipe import DERIVED, label_value

# Columns of `summary.csv` that are no axes.
FIXED = ("measure", "at", "value", "selected", "trial", "status")

# Measures that are whole numbers.
COUNTED = ("best:", "rank:", "epoch", "parameters", "trainable", "split")


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


def mean_of(values: Sequence[float]) -> Mean:
    """Average values, with the interval of Student's t, as in Tamkin et al. 2020, App. C."""
    n, center = len(values), mean(values)
    if n < 2:
        return Mean(n, center)
    spread = stdev(values)
    error = spread / math.sqrt(n)
    reach = float(stats.t.ppf(0.975, n - 1)) * error
    return Mean(n, center, spread, error, center - reach, center + reach)


# --- Tidy rows -----------------------------------------------------------------------------------


def tidy(study: Mapping[str, Any], read: Callable[[str], Mapping[str, Any] | None]) -> pd.DataFrame:
    """Give a row for every value that the trials of a study measured.

    Args:
        study: the content of `study.json`.
        read: gives the record of a trial by its key, or None.

    Returns:
        `grid`, a column for every axis (and what follows from one), and `FIXED`: the measure, the
        state, block or epoch it is of, its value, whether the learning rate is the one that was
        chosen, the trial, and "done", "failed", "refused" or "waiting".
    """
    records: dict[str, Mapping[str, Any] | None] = {}
    for cell in study["cells"]:
        if cell["trial"] is not None and cell["trial"] not in records:
            records[cell["trial"]] = read(cell["trial"])
    chosen = _chosen(study["cells"], records)
    rows: list[dict[str, Any]] = []
    for number, cell in enumerate(study["cells"]):
        record = records.get(cell["trial"])
        shared = {"grid": cell["grid"], **cell["values"]}
        shared.pop("models", None)
        status = "refused" if cell["trial"] is None else "waiting"
        status = status if record is None else record["status"]
        told = {"selected": number in chosen, "trial": cell["trial"], "status": status}
        if status != "done" or record is None:
            rows.append(shared | {"measure": None, "at": None, "value": None} | told)
            continue
        values = measured(record, cell["values"])
        for measure, at, value in chain([("seconds", None, record["seconds"])], values):
            rows.append(shared | {"measure": measure, "at": at, "value": value} | told)
    axes = dict.fromkeys(["grid", *(name for row in rows for name in row if name not in FIXED)])
    return pd.DataFrame(rows, columns=[*axes, *FIXED])


def _chosen(
    cells: Sequence[Mapping[str, Any]], records: Mapping[str, Mapping[str, Any] | None]
) -> set[int]:
    """Number the cells whose learning rate has the best mean over the seeds that came through."""
    left = ("seed", "learning_rate", *DERIVED)
    points: list[Point] = []
    found = set()
    for number, cell in enumerate(cells):
        values = cell["values"]
        if "learning_rate" not in values:
            found.add(number)
            continue
        rest = (cell["grid"], *((k, v) for k, v in values.items() if k not in left))
        points.append((number, rest, values["learning_rate"], quality(records[cell["trial"]])))
    return found.union(*best_rates(points))


# What is chosen from, all that a rate is chosen for, the rate, and the metric that it gave.
Point = tuple[Any, Any, Any, float | None]


def best_rates(points: Iterable[Point]) -> list[list[Any]]:
    """Choose for everything that a rate is chosen for the one with the best mean over seeds.

    Returns:
        What was to be chosen from of the best rate, in a list each; see `best_rate`.
    """
    sweeps: dict[Any, dict[Any, list[tuple[Any, float | None]]]] = {}
    for one, rest, rate, value in points:
        sweeps.setdefault(rest, {}).setdefault(rate, []).append((one, value))
    return [
        best_rate([([one for one, _ in some], [v for _, v in some]) for some in rates.values()])
        for rates in sweeps.values()
    ]


def best_rate(rates: Sequence[tuple[Any, Sequence[float | None]]]) -> Any:
    """Give the entry of the learning rate with the best mean over seeds.

    One with which more seeds came through goes first, and of equal ones the first.

    Args:
        rates: an entry for each rate, with the metric of every seed, None where it has none.
    """

    def rank(values: Sequence[float | None]) -> tuple[int, float]:
        known = [value for value in values if value is not None]
        return len(known), mean(known) if known else 0.0

    return max(rates, key=lambda rate: rank(rate[1]))[0]


def quality(record: Mapping[str, Any] | None) -> float | None:
    """Give the metric of the epoch that counts of a trial of tune; None where it did not end."""
    if record is None or record["status"] != "done" or record["verb"] != "tune":
        return None
    result = record["result"]
    value: float | None = result[result["keep"]]["value"]
    return value


Measured = Iterator[tuple[str, Any, float | None]]


# What comes of files that lack something or hold another type.
UNLIKE_OURS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration)


def measured(record: Mapping[str, Any], values: Mapping[str, Any]) -> Measured:
    """Give what a trial that is done measured: the measure, the state or epoch, and the value.

    Args:
        record: of the trial.
        values: of the axes at its point of the grid.
    """
    return _MEASURED[record["verb"]](record, values)


def _of_tune(record: Mapping[str, Any], _: Mapping[str, Any]) -> Measured:
    result = record["result"]
    flops, seconds = result["flops"], result["seconds"]
    yield "metric", None, quality(record)
    yield "epoch", None, result[result["keep"]]["epoch"]
    yield "train_seconds", None, seconds["train"] + seconds["evaluate"]
    yield "flops", None, flops["train"]
    yield "share", None, flops["train"] / flops["full_train"]
    yield "inference_share", None, flops["inference"] / flops["full_inference"]
    yield "parameters", None, result["parameters"]["total"]
    yield "trainable", None, result["parameters"]["trainable"]
    for epoch in result["curve"]:
        yield "metric_by_epoch", epoch["epoch"], epoch["value"]
        yield "loss_by_epoch", epoch["epoch"], epoch["loss"]


def _of_scan(record: Mapping[str, Any], _: Mapping[str, Any]) -> Measured:
    result = record["result"]
    diagnostics, stability = result.get("diagnostics") or {}, result.get("stability") or {}
    for key, score in result["scores"].items():
        for at, value in enumerate(score["values"]):
            if value is not None:
                yield key, at, value
        for at, rank in enumerate(ranks(score["values"], score["better"])):
            if rank is not None:
                yield f"rank:{key}", at, rank
        yield f"best:{key}", None, result["best"].get(key)
        yield f"smoothness:{key}", None, diagnostics.get("smoothness", {}).get(key)
        for name, value in (diagnostics.get("against_probe", {}).get(key) or {}).items():
            if name in ("pearson", "spearman", "r_squared", "slope"):
                yield f"{name}:{key}", None, value
        moved = stability.get("scores", {}).get(key)
        for at, value in enumerate(moved["deviation"] if moved else ()):
            yield f"deviation:{key}", at, value


def _of_compare(record: Mapping[str, Any], values: Mapping[str, Any]) -> Measured:
    result = record["result"]
    names = values.get("models") or [model["name"] for model in result["models"]]
    for name, found in zip(names, result["clusters"], strict=True):
        if found["cka"] is not None:
            yield "contrast", name, found["cka"]["contrast"]
            yield "split", name, found["cka"]["split"]
    for one in result["maps"]:
        first, second = (names[number].partition(", seed ") for number in one["of"])
        if one["of"][0] != one["of"][1] and first[:2] == second[:2] and first[1]:
            for row, line in zip(one["rows"], one["cka"], strict=True):
                if row in one["columns"]:
                    yield "same_state", row, line[one["columns"].index(row)]


def _of_evaluate(record: Mapping[str, Any], _: Mapping[str, Any]) -> Measured:
    result = record["result"]
    yield "metric", None, result["metrics"][result["metric"]]
    yield "majority", None, result["majority"]
    for name, curve in (result["truncation"] or {}).items():
        for at, value in enumerate(curve or ()):
            if value is not None:
                yield name, at, value
    for first, line in enumerate(result["skips"] or (), start=1):
        for last, value in enumerate(line, start=1):
            if value is not None:
                yield "skip", str(first) if first == last else f"{first}-{last}", value


_MEASURED: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Measured]] = {
    "tune": _of_tune,
    "scan": _of_scan,
    "compare": _of_compare,
    "evaluate": _of_evaluate,
}


# --- Tables --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextTable:
    """A table as text: headings, and lines that start with theirs."""

    title: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Write it in Markdown."""
        rows = [self.head, ["---", *["---:"] * (len(self.head) - 1)], *self.lines]
        return "".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows
        )

    def latex(self) -> str:
        """Write it in LaTeX, with the rules of booktabs."""
        lines = [[_latex(cell) for cell in line] for line in (self.head, *self.lines)]
        head, *rest = (" & ".join(line) + r" \\" for line in lines)
        body = "\n".join(rest)
        return (
            "\\begin{tabular}{l" + "r" * (len(self.head) - 1) + "}\n\\toprule\n"
            f"{head}\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
        )


@dataclass(frozen=True)
class Summary:
    """A table of means.

    Attributes:
        rows, columns: headings.
        cells: by (row, column) numbers; what has no trial is not there.
        spread: "deviation", "error", "interval" or "none": what is shown beside a mean.
    """

    title: str
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
        text = rounded(found.mean)
        if self.spread == "none" or found.deviation is None:
            return text
        if self.spread == "interval":
            return f"{text} ({rounded(found.low)} to {rounded(found.high)})"
        return f"{text} ± {rounded(getattr(found, self.spread))}"

    def written(self) -> TextTable:
        """Give the table as text."""
        lines = [
            [name, *(self.text(r, c) for c in range(len(self.columns)))]
            for r, name in enumerate(self.rows)
        ]
        return TextTable(self.title, [self.corner, *self.columns], lines)


def _latex(text: str) -> str:
    escaped = re.sub(r"([&%$#_{}])", r"\\\1", text.replace("\\", "\0"))
    signs = {
        "\0": r"\textbackslash{}",
        "±": r"$\pm$",
        "–": "--",
        "ℓ": r"$\ell$",
        "ν": r"$\nu$",
        "ζ": r"$\zeta$",
        "−": "$-$",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
    return "".join(signs.get(sign, sign) for sign in escaped)


def rounded(value: float | None) -> str:
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


def chosen_rows(frame: pd.DataFrame, grid: str | None, where: Mapping[str, Any]) -> pd.DataFrame:
    """Give the rows of a grid with the chosen learning rates, and with these values of axes."""
    found = frame[frame["selected"] & frame["measure"].notna() & frame["value"].notna()]
    if grid is not None:
        found = found[found["grid"] == grid]
    for axis, value in where.items():
        found = found[found[axis].map(shown) == label_value(value)] if axis in found else found[:0]
    return found


def summarise(
    frame: pd.DataFrame,
    *,
    title: str,
    grid: str | None,
    value: str | Sequence[str],
    rows: str | Sequence[str],
    columns: str | Sequence[str],
    spread: str,
    where: Mapping[str, Any],
) -> Summary:
    """Average a measure over whatever is neither in the rows nor in the columns.

    Args:
        frame: as `tidy` gives it.
        title: what stands above.
        grid: which one; None for all.
        value: one measure or several.
        rows: axes; `measure` and `at` count as such.
        columns: the same.
        spread: what is shown beside the mean.
        where: only cells with these values.
    """
    wanted = [value] if isinstance(value, str) else list(value)
    found = chosen_rows(frame, grid, where)
    found = found[found["measure"].isin(wanted)]
    down, across = _listed(rows), _listed(columns)
    heads_down, heads_across = (_headings(found, axes) for axes in (down, across))
    cells: dict[tuple[int, int], list[float]] = {}
    whole: set[tuple[int, int]] = set()
    for row in found.to_dict("records"):
        at = heads_down[_heading(row, down)], heads_across[_heading(row, across)]
        cells.setdefault(at, []).append(float(row["value"]))
        if str(row["measure"]).startswith(COUNTED):
            whole.add(at)
    return Summary(
        title=title,
        corner=", ".join(down),
        rows=list(heads_down),
        columns=list(heads_across),
        cells={
            at: replace(mean_of(values), whole=at in whole and len(set(values)) == 1)
            for at, values in cells.items()
        },
        spread=spread,
    )


def _listed(axes: str | Sequence[str]) -> list[str]:
    named = [axes] if isinstance(axes, str) else list(axes)
    return ["at" if name in ("state", "block", "epoch", "checkpoint") else name for name in named]


def _heading(row: Mapping[Any, Any], axes: Sequence[str]) -> str:
    return ", ".join(shown(row.get(axis)) for axis in axes)


def _headings(frame: pd.DataFrame, axes: Sequence[str]) -> dict[str, int]:
    """Number the headings, in the order in which they come."""
    names = dict.fromkeys(_heading(row, axes) for row in frame.to_dict("records"))
    return {name: number for number, name in enumerate(names)}


def shown(value: Any) -> str:
    """Write the value of an axis."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Agreement:
    """How two values of an axis agree over another axis, with two-sided p-values."""

    pair: str
    n: int
    spearman: float
    spearman_p: float
    pearson: float
    pearson_p: float


def agreements(
    frame: pd.DataFrame, *, grid: str | None, value: str, of: str, over: str
) -> list[Agreement]:
    """Correlate the means of every two values of an axis over those of another one.

    Tamkin et al. 2020, Table 1. Pairs with fewer than 3 common values, or no spread, are left out.

    Args:
        frame: as `tidy` gives it.
        grid: which one; None for all.
        value: a measure.
        of: the axis whose values are compared, such as "task"; models are kept apart.
        over: the axis that is run over, such as "permutation".
    """
    found = chosen_rows(frame, grid, {})
    found = found[found["measure"] == value]
    means: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in found.to_dict("records"):
        at = means.setdefault((shown(row["model"]), shown(row[of])), {})
        at.setdefault(shown(row[over]), []).append(float(row["value"]))
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


# --- Which is better -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """How a value of an axis does against the baseline.

    Attributes:
        name: of the value.
        difference: from the baseline, in pairs with all else equal, averaged over seeds and then
            over the rest (models and tasks), with the interval over the rest.
        pairs: trials that were compared.
        wilcoxon: the two-sided p of the signed-rank test over the rest; None for fewer than 5,
            where nothing could be significant.
        better: in how many of the rest the difference is above 0.
    """

    name: str
    difference: Mean
    pairs: int
    wilcoxon: float | None
    better: int


def contests(frame: pd.DataFrame, grid: str, axis: str, baseline: str) -> list[Contest]:
    """Compare every value of an axis with a baseline, in pairs of trials that differ in it alone.

    Args:
        frame: as `tidy` gives it.
        grid: of tune.
        axis: such as "plan".
        baseline: a value of it.
    """
    found = chosen_rows(frame, grid, {})
    found = found[found["measure"] == "metric"]
    left = (*FIXED, *DERIVED, "grid", "seed", "learning_rate", axis)
    rest = [name for name in found if name not in left]
    by: dict[str, dict[Any, dict[str, float]]] = {}
    for row in found.to_dict("records"):
        place = tuple(shown(row[name]) for name in rest)
        by.setdefault(str(row[axis]), {}).setdefault(place, {})[str(row["seed"])] = float(
            row["value"]
        )
    base = by.get(baseline, {})
    contested = []
    for name, places in by.items():
        if name == baseline:
            continue
        differences, pairs = [], 0
        for place, seeds in places.items():
            both = [
                value - base[place][seed]
                for seed, value in seeds.items()
                if seed in base.get(place, {})
            ]
            if both:
                differences.append(mean(both))
                pairs += len(both)
        if differences:
            p = None
            if len(differences) >= 5 and any(differences):
                p = float(stats.wilcoxon(differences).pvalue)
            better = sum(one > 0 for one in differences)
            contested.append(Contest(name, mean_of(differences), pairs, p, better))
    return contested


def trials_of(
    frame: pd.DataFrame, measures: Sequence[str] = ("metric", "seconds")
) -> list[dict[str, Any]]:
    """Give a row for every point of the grids: its axes, status, and these measures of it."""
    axes = [name for name in frame.columns if name not in ("measure", "at", "value")]
    found: dict[Any, dict[str, Any]] = {}
    for row in frame.to_dict("records"):
        key = tuple(shown(row[name]) for name in axes)
        point = found.setdefault(key, {name: row[name] for name in axes})
        if row["measure"] in measures:
            point[row["measure"]] = row["value"]
    return list(found.values())
