"""Charts of studies, drawn from tidy rows: a panel for each task, or whatever a recipe says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from layerscout.pages import BEST, CURVE, MUTED, THIRD, title_score
from layerscout.scores import SCORES, against_probe
from layerscout.studies.recipe import FigureSpec
from layerscout.studies.summaries import chosen_rows, mean_of, shown, trials_of

# Colours of up to ten things; they read well on white and on near-black.
COLOURS = (
    CURVE,
    BEST,
    THIRD,
    "#a05fbf",
    "#c2456b",
    "#8a7a2e",
    "#3aa0a8",
    "#7a6a5a",
    "#6f7fd0",
    "#9a9a9a",
)


def pareto(frame: pd.DataFrame, grid: str) -> list[alt.LayerChart]:
    """Draw quality over training cost, a panel for each model and task.

    A point is the mean over seeds; those that nothing cheaper reaches are joined.
    """
    found = chosen_rows(frame, grid, {})
    measures = ("metric", "share", "seconds")
    trials = trials_of(found[found["measure"].isin(measures)], measures)
    wide = [{name: _plain(entry) for name, entry in row.items()} for row in trials]
    charts = []
    for name, rows in _split(wide, ("model", "task")):
        points: list[dict[str, Any]] = []
        for plan, some in _split(rows, _varying(rows, "plan")):
            values = {key: mean_of([row[key] for row in some]) for key in measures}
            metric = values["metric"]
            points.append(
                {
                    "name": plan,
                    "family": family_of(str(some[0].get("plan", ""))),
                    "plan": shown(some[0].get("resolved")),
                    "metric": metric.mean,
                    "low": metric.low,
                    "high": metric.high,
                    "share": values["share"].mean,
                    "seconds": values["seconds"].mean,
                    "n": metric.n,
                }
            )
        best = float("-inf")
        for point in sorted(points, key=lambda one: (one["share"], -one["metric"])):
            point["front"] = point["metric"] > best
            best = max(best, point["metric"])
        charts.append(_pareto(name, points))
    return charts


def _pareto(name: str, points: Sequence[Mapping[str, Any]]) -> alt.LayerChart:
    families = list(dict.fromkeys(point["family"] for point in points))
    base = alt.Chart().encode(
        alt.X(
            "share:Q",
            title="training FLOPs, share of full fine-tuning",
            scale=alt.Scale(nice=False, padding=12),
            axis=alt.Axis(format="~%", grid=False),
        ),
        alt.Y("metric:Q", title="metric", scale=alt.Scale(zero=False, nice=False, padding=16)),
    )
    told = [
        alt.Tooltip("name:N", title="strategy"),
        alt.Tooltip("plan:N"),
        alt.Tooltip("metric:Q", format=".3f"),
        alt.Tooltip("low:Q", format=".3f"),
        alt.Tooltip("high:Q", format=".3f"),
        alt.Tooltip("seconds:Q", title="seconds a trial", format=",.1f"),
        alt.Tooltip("share:Q", title="FLOPs", format=".0%"),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    front = base.transform_filter("datum.front").mark_line(
        color=MUTED, strokeDash=[4, 3], interpolate="step-after"
    )
    coloured = base.encode(_colour("family", families))
    dots = coloured.mark_point(filled=True, opacity=1, size=70).encode(tooltip=told)
    return alt.LayerChart(
        data=alt.InlineData(values=list(points)),
        layer=[front, *_intervals(coloured, points), dots],
        title=name,
        description=f"{name}: metric over training cost for {len(points)} strategies.",
    )


def _intervals(base: alt.Chart, rows: Sequence[Mapping[str, Any]]) -> list[alt.Chart]:
    """Draw the intervals of those rows that have one."""
    known = [row for row in rows if row["low"] is not None]
    if not known:
        return []
    bars = base.properties(data=alt.InlineData(values=known)).mark_rule(opacity=0.45)
    return [bars.encode(alt.Y("low:Q"), alt.Y2("high:Q"))]


def family_of(plan: str) -> str:
    """Name the kind of a strategy, whatever number of blocks it tunes."""
    head, _, rest = plan.partition(":")
    place = rest.partition("@")[2]
    return f"{head}@{place}" if place else head


def figure(frame: pd.DataFrame, spec: FigureSpec, panels: Sequence[str]) -> list[alt.LayerChart]:
    """Draw a figure of a recipe, other than maps.

    Args:
        frame: as `layerscout.studies.summaries.tidy` gives it.
        spec: what it shows.
        panels: axes, each combination of which has a panel.
    """
    wanted = [spec.value] if isinstance(spec.value, str) else list(spec.value)
    measures = [spec.x, wanted[0]] if spec.kind == "fit" else wanted
    found = _measured(frame, spec.grid, measures, spec.where)
    split = _split([row for row in found if spec.kind != "fit" or row["at"] != 0], panels)
    match spec.kind:
        case "strip":
            return [_strip(name, rows, spec.x, spec.color) for name, rows in split]
        case "fit":
            return [_fit(name, rows, spec.x, wanted[0]) for name, rows in split]
    x, line = _column(spec.x), spec.kind == "lines"
    return [_means(name, rows, x, spec.color, line=line) for name, rows in split]


def _means(
    name: str, rows: Sequence[Mapping[str, Any]], x: str, color: str | None, *, line: bool
) -> alt.LayerChart:
    by = [x, *([color] if color else [])]
    if not line and "plan" in rows[0] and "plan" not in by:
        by.append("plan")
    summed: list[dict[str, Any]] = []
    for _, some in _split(rows, by):
        one = mean_of([float(row["value"]) for row in some])
        first = some[0]
        summed.append(
            {
                "x": first.get(x),
                "color": _named(first, color) if color else "",
                "label": shown(first.get("plan")),
                "plan": shown(first.get("resolved")),
                "value": one.mean,
                "low": one.low,
                "high": one.high,
                "n": one.n,
            }
        )
    numeric = all(isinstance(row["x"], int | float) for row in summed)
    order = list(dict.fromkeys(row["x"] for row in summed))
    place = _place(rows) if x == "at" else x.replace("_", " ")
    colors = list(dict.fromkeys(row["color"] for row in summed))
    kind = "Q" if numeric and line else "O"
    if numeric and line:
        scale, axis = alt.Scale(nice=False, padding=12), alt.Axis(grid=False, tickMinStep=1)
    else:  # side by side where several stand at one place
        scale, axis = alt.Scale(), alt.Axis(grid=False, labelAngle=0 if numeric else -40)
    base = alt.Chart().encode(
        alt.X(
            f"x:{kind}",
            title=place,
            scale=scale,
            sort=sorted(order) if numeric else list(map(str, order)),
            axis=axis,
        ),
        alt.Y("value:Q", title=_title(rows), scale=alt.Scale(zero=False, nice=False, padding=16)),
        _colour("color", colors),
        *([] if line else [alt.XOffset("color:N", scale=alt.Scale(domain=colors))]),
    )
    told = [
        alt.Tooltip(f"x:{kind}", title=place),
        *([alt.Tooltip("color:N", title=color)] if color else []),
        *(
            [alt.Tooltip("label:N", title="strategy"), alt.Tooltip("plan:N")]
            if summed[0]["plan"] != "–"
            else []
        ),
        alt.Tooltip("value:Q", title=_title(rows), format=".4~f"),
        alt.Tooltip("low:Q", format=".3f"),
        alt.Tooltip("high:Q", format=".3f"),
        alt.Tooltip("n:Q", title="trials"),
    ]
    layers = _intervals(base, summed)
    layers += [base.mark_line(strokeWidth=2)] if line else []
    layers.append(base.mark_point(filled=True, opacity=1, size=50).encode(tooltip=told))
    return alt.LayerChart(
        data=alt.InlineData(values=summed),
        layer=layers,
        title=name,
        description=f"{name}: {_title(rows)} over {x}, means and 95 % intervals.",
    )


def _strip(
    name: str, rows: Sequence[Mapping[str, Any]], x: str, color: str | None
) -> alt.LayerChart:
    """Draw every trial as a point, and the means."""
    at = _column(x)
    values = [
        {
            "x": row.get(at),
            "value": row["value"],
            "seed": shown(row.get("seed")),
            "color": _named(row, color) if color else "",
        }
        for row in rows
    ]
    numeric = all(isinstance(row["x"], int | float) for row in values)
    order = list(dict.fromkeys(row["x"] for row in values))
    base = alt.Chart().encode(
        alt.X(
            "x:O",
            title=x.replace("_", " "),
            sort=sorted(order) if numeric else order,
            axis=alt.Axis(grid=False, labelAngle=0 if numeric else -40),
        ),
    )
    colors = list(dict.fromkeys(row["color"] for row in values))
    up = alt.Scale(zero=False, nice=False, padding=16)
    dots = base.mark_point(filled=True, opacity=0.5, size=40).encode(
        alt.Y("value:Q", title=_title(rows), scale=up),
        _colour("color", colors),
        tooltip=[
            alt.Tooltip("x:O", title=x),
            alt.Tooltip("value:Q", format=".3f"),
            alt.Tooltip("seed:N"),
        ],
    )
    means = base.mark_tick(thickness=3, size=22, color=BEST).encode(
        alt.Y("mean(value):Q", scale=up)
    )
    return alt.LayerChart(
        data=alt.InlineData(values=values),
        layer=[means, dots],  # points on top, so that they answer to a pointer
        title=name,
        description=f"{name}: {_title(rows)} of every trial by {x}; the bars are means.",
    )


def _fit(name: str, rows: Sequence[Mapping[str, Any]], x: str, wanted: str) -> alt.LayerChart:
    """Draw a measure of every state over another one, with the line that fits best."""
    pairs = {
        m: {row["at"]: row["value"] for row in rows if row["measure"] == m} for m in (x, wanted)
    }
    states = sorted(pairs[x].keys() & pairs[wanted].keys())
    values = [{"state": s, "x": pairs[x][s], "y": pairs[wanted][s]} for s in states]
    line = against_probe(
        [None, *(row["x"] for row in values)], [None, *(row["y"] for row in values)]
    )
    told = "" if line.pearson is None else f"ρ = {line.pearson:.2f}, R² = {line.r_squared:.2f}"
    base = alt.Chart().encode(
        alt.X(
            "x:Q",
            title=_name(x),
            scale=alt.Scale(zero=False, nice=False, padding=16),
            axis=alt.Axis(grid=False),
        ),
        alt.Y("y:Q", title=_name(wanted), scale=alt.Scale(zero=False, nice=False, padding=16)),
    )
    dots = base.mark_point(filled=True, opacity=1, color=CURVE, size=50).encode(
        tooltip=[
            alt.Tooltip("state:Q"),
            alt.Tooltip("x:Q", title=_name(x), format=".4~g"),
            alt.Tooltip("y:Q", title=_name(wanted), format=".3f"),
        ]
    )
    layers: list[Any] = []
    if line.slope is not None and line.intercept is not None and values:
        ends = [min(row["x"] for row in values), max(row["x"] for row in values)]
        drawn = [{"x": end, "y": line.intercept + line.slope * end} for end in ends]
        layers.append(base.properties(data=alt.InlineData(values=drawn)).mark_line(color=BEST))
    layers.append(dots)  # on top, so that they answer to a pointer
    return alt.LayerChart(
        data=alt.InlineData(values=values),
        layer=layers,
        title=alt.TitleParams(name, subtitle=told),
        description=f"{name}: {_name(wanted)} over {_name(x)} of every state; {told}.",
    )


# --- Rows ----------------------------------------------------------------------------------------


def _measured(
    frame: pd.DataFrame, grid: str | None, wanted: Sequence[str], where: Mapping[str, Any]
) -> list[dict[str, Any]]:
    found = chosen_rows(frame, grid, where)
    rows = found[found["measure"].isin(wanted)].to_dict("records")
    return [{str(name): _plain(entry) for name, entry in row.items()} for row in rows]


def _plain(entry: Any) -> Any:
    """Give what JSON can hold: whole numbers as such, and nothing for what is missing."""
    if isinstance(entry, float):
        return (
            None
            if entry != entry
            else int(entry)
            if entry == int(entry) and abs(entry) < 1e9
            else entry
        )
    return entry.item() if hasattr(entry, "item") else entry


def _split(
    rows: Sequence[Mapping[str, Any]], axes: Sequence[str]
) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Group rows by axes, in the order in which they come; an axis with one value is not named."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(axis) for axis in axes), []).append(row)
    varied = [n for n, _ in enumerate(axes) if len({key[n] for key in groups}) > 1] or range(
        len(axes)
    )
    return [(", ".join(shown(key[n]) for n in varied), some) for key, some in groups.items()]


def _varying(rows: Sequence[Mapping[str, Any]], first: str) -> list[str]:
    """Name the axes that tell the strategies of a panel apart."""
    axes = [first, "method", "edits", "examples", "reinit_rate_factor", "keep_layer_norm"]
    return [axis for axis in axes if any(axis in row for row in rows)]


def _column(x: str) -> str:
    return "at" if x in ("state", "epoch", "block", "checkpoint") else x


def _named(row: Mapping[str, Any], color: str) -> str:
    if color == "family":
        return family_of(str(row.get("plan", "")))
    return _name(row["measure"]) if color == "measure" else shown(row.get(color))


def _name(measure: str) -> str:
    kind, _, key = measure.rpartition(":")
    told = title_score(key) if key in SCORES else key.replace("_", " ")
    return f"{kind} of {told}" if kind else told


def _place(rows: Sequence[Mapping[str, Any]]) -> str:
    measure = str(rows[0]["measure"])
    if measure.endswith("_by_epoch"):
        return "epoch"
    if measure.startswith("deviation"):
        return "checkpoint"
    key = measure.rpartition(":")[2]
    return "block" if key == "skip" or (key in SCORES and SCORES[key].of == "blocks") else "state"


def _title(rows: Sequence[Mapping[str, Any]]) -> str:
    measures = list(dict.fromkeys(str(row["measure"]) for row in rows))
    return _name(measures[0]) if len(measures) == 1 else "value"


def _colour(field: str, names: Sequence[str]) -> alt.Color:
    known = [COLOURS[number % len(COLOURS)] for number in range(len(names))]
    legend = (
        alt.Legend(orient="bottom", columns=2, labelLimit=220, symbolOpacity=1)
        if len(names) > 1
        else None
    )
    return alt.Color(
        f"{field}:N", title=None, scale=alt.Scale(domain=list(names), range=known), legend=legend
    )
