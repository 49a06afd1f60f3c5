"""The rows behind the charts of a study: chosen, grouped into panels, and named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from layerscout.pages import title_score
from layerscout.scores import SCORES
from layerscout.studies.recipe import DERIVED, DashedSpec
from layerscout.studies.tables import (
    average,
    collect_trials,
    format_value,
    name_column,
    select_rows,
)

Row = Mapping[str, Any]


def list_rows(
    frame: pd.DataFrame, grid: str | None, measures: Sequence[str], where: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Give the rows of measures, as JSON can hold them."""
    return [
        _convert_row(row) for row in select_rows(frame, grid, measures, where).to_dict("records")
    ]


def list_strategies(
    frame: pd.DataFrame, grid: str, cost: str
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Give for each model and task the means of every strategy, those of the front marked.

    The front are those that nothing cheaper reaches. Strategies of no known cost are left out.

    Args:
        frame: as `layerscout.studies.summaries.tidy_records` gives it.
        grid: its name.
        cost: a measure of training or of use, such as "share" or "example_seconds".
    """
    measures = tuple(dict.fromkeys(("metric", "share", "seconds", cost)))
    trials = collect_trials(select_rows(frame, grid, measures), measures)
    panels = []
    for name, rows in group_rows([_convert_row(row) for row in trials], ("model", "task")):
        points: list[dict[str, Any]] = []
        for plan, some in group_rows(rows, _list_varying(rows)):
            some = [row for row in some if row.get(cost) is not None]
            if not some:
                continue
            metric, paid, seconds, share = (
                average([row[key] for row in some]) for key in ("metric", cost, "seconds", "share")
            )
            points.append(
                {
                    "name": plan,
                    "family": name_family(str(some[0].get("plan", ""))),
                    "plan": format_value(some[0].get("resolved")),
                    "metric": metric.mean,
                    "low": metric.low,
                    "high": metric.high,
                    "cost": paid.mean,
                    "share": share.mean,
                    "seconds": seconds.mean,
                    "n": metric.n,
                }
            )
        best = float("-inf")
        for point in sorted(points, key=lambda one: (one["cost"], -one["metric"])):
            point["front"] = point["metric"] > best
            best = max(best, point["metric"])
        if points:
            panels.append((name, points))
    return panels


def list_means(
    rows: Sequence[Row],
    x: str | None,
    color: str | None,
    by: Sequence[str],
    spread: str = "interval",
) -> list[Row]:
    """Average rows that agree in the axes `by`, with their place and colour in a chart."""
    means: list[Row] = []
    for _, some in group_rows(rows, by):
        one, first = average([float(row["value"]) for row in some]), some[0]
        low, high = one.ends(spread)
        means.append(
            {
                "x": None if x is None else first.get(x),
                "color": name_color(first, color),
                "label": format_value(first.get("plan")),
                "plan": format_value(first.get("resolved")),
                "value": one.mean,
                "low": low,
                "high": high,
                "n": one.n,
            }
        )
    return means


def subtract_plan(rows: Sequence[Row], plan: str) -> list[dict[str, Any]]:
    """Give the differences of values from those of a plan, in pairs with all else equal."""
    left = ("plan", "learning_rate", "value", "selected", "trial", *DERIVED)

    def name(row: Row) -> tuple[Any, ...]:
        return tuple(sorted((key, format_value(v)) for key, v in row.items() if key not in left))

    base = {name(row): row["value"] for row in rows if row.get("plan") == plan}
    return [
        {**row, "value": row["value"] - base[name(row)]}
        for row in rows
        if row.get("plan") != plan and name(row) in base
    ]


def list_dashed(rows: Sequence[Row], spec: DashedSpec) -> list[Row]:
    """Average what a figure shows in dashes, each line or level with a name."""
    x = None if spec.x is None else name_column(spec.x)
    by = [*([x] if x else []), *([name_column(spec.color)] if spec.color else [])]
    means = list_means(rows, x, spec.color, by, spec.spread)
    alone = name_values(rows)
    return [
        {**row, "color": f"{spec.color} {row['color']}" if spec.color else alone} for row in means
    ]


def estimate_density(values: Sequence[float]) -> list[dict[str, float]]:
    """Estimate the density of values by Gaussian kernels, as a share of its peak.

    The kernels have the width of Scott's rule. Empty for fewer than two different values, which
    have no width.
    """
    if len(set(values)) < 2:
        return []
    reach = 3 * float(np.std(values, ddof=1)) * len(values) ** -0.2
    places = np.linspace(min(values) - reach, max(values) + reach, 60)
    density = stats.gaussian_kde(values)(places)
    shares = density / density.max()
    return [{"value": float(v), "x": float(d)} for v, d in zip(places, shares, strict=True)]


def group_rows(rows: Sequence[Row], axes: Sequence[str]) -> list[tuple[str, list[Row]]]:
    """Group rows by axes, in order of appearance; an axis with one value is not named."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(axis) for axis in axes), []).append(row)
    several = [n for n, _ in enumerate(axes) if len({key[n] for key in groups}) > 1]
    named = several or range(len(axes))
    return [(", ".join(format_value(key[n]) for n in named), some) for key, some in groups.items()]


def _list_varying(rows: Sequence[Row]) -> list[str]:
    """Name the axes that tell the strategies of a panel apart."""
    axes = ["plan", "method", "edits", "examples", "reinit_rate_factor", "keep_layer_norm"]
    return [axis for axis in axes if any(axis in row for row in rows)]


def _convert_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Give what JSON can hold: whole numbers as such, and null for what is missing."""
    return {str(name): _convert_value(value) for name, value in row.items()}


def _convert_value(value: Any) -> Any:
    if not isinstance(value, float):
        return value.item() if hasattr(value, "item") else value
    if value != value:
        return None
    return int(value) if value == int(value) and abs(value) < 1e9 else value


def name_family(plan: str) -> str:
    """Name the kind of a strategy, however many blocks it tunes."""
    head, _, rest = plan.partition(":")
    place = rest.partition("@")[2]
    return f"{head}@{place}" if place else head


def name_color(row: Row, color: str | None) -> str:
    """Name what the colour of a row stands for; empty where colours mean nothing."""
    if color is None:
        return ""
    if color == "family":
        return name_family(str(row.get("plan", "")))
    return (
        name_measure(row["measure"])
        if color == "measure"
        else format_value(row.get(name_column(color)))
    )


def name_measure(measure: str) -> str:
    """Name a measure on an axis, such as "rank of Fisher information"."""
    kind, _, key = measure.rpartition(":")
    name = title_score(key) if key in SCORES else key.replace("_", " ")
    return f"{kind} of {name}" if kind else name


def name_values(rows: Sequence[Row]) -> str:
    """Name the axis of the values."""
    measures = list(dict.fromkeys(str(row["measure"]) for row in rows))
    return name_measure(measures[0]) if len(measures) == 1 else "value"


def name_place(rows: Sequence[Row]) -> str:
    """Say what the column "at" of rows counts."""
    measure = str(rows[0]["measure"])
    if measure.endswith("_by_epoch"):
        return "epoch"
    if measure.startswith("deviation"):
        return "checkpoint"
    key = measure.rpartition(":")[2]
    return "block" if key == "skip" or (key in SCORES and SCORES[key].of == "blocks") else "state"
