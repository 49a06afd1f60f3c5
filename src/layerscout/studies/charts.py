"""Charts of studies, drawn from tidy rows: a panel for each task, or as the recipe says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from scipy import stats

from layerscout.reporting import (
    BEST,
    CURVE,
    MUTED,
    draw_intervals,
    encode_colour,
    encode_values,
    layer_rows,
    list_ends,
    tight_scale,
)
from layerscout.scores import against_probe
from layerscout.studies.recipe import DERIVED, DashedSpec, FigureSpec, list_names
from layerscout.studies.summaries import name_family, name_measure, name_place, name_values
from layerscout.studies.tables import (
    average,
    collect_trials,
    format_value,
    name_column,
    select_rows,
)

# The axes that tell the strategies of a panel apart.
APART = ("plan", "method", "edits", "examples", "reinit_rate_factor", "keep_layer_norm")
# What quality is drawn over: the title of its axis, how its ticks are written, and its name.
COSTS = {
    "share": ("training FLOPs, share of full fine-tuning", "~%", "training cost"),
    "example_seconds": ("seconds per example in use, measured", "~s", "inference time"),
}


def draw_strategies(frame: pd.DataFrame, grid: str, cost: str) -> list[alt.LayerChart]:
    """Draw quality over a cost, one of `COSTS`, for each model and task of a grid.

    A point is the mean over seeds; those that nothing cheaper reaches are joined.
    """
    measures = list(dict.fromkeys(["metric", "share", "seconds", cost]))
    trials = collect_trials(select_rows(frame, grid, measures), measures)
    panels = group_rows(list_rows(trials[trials[cost].notna()]), ("model", "task"))
    return [
        _draw_front(name, _list_strategies(rows, measures, cost), cost) for name, rows in panels
    ]


def _draw_front(name: str, points: Sequence[Row], cost: str) -> alt.LayerChart:
    title, ticks, called = COSTS[cost]
    base = alt.Chart().encode(
        alt.X(
            "cost:Q",
            title=title,
            scale=alt.Scale(nice=False, padding=12),
            axis=alt.Axis(format=ticks, grid=False),
        ),
        encode_values("metric", "metric", values=[point["metric"] for point in points]),
    )
    tooltips = [
        alt.Tooltip("name:N", title="strategy"),
        alt.Tooltip("plan:N"),
        *list_ends("metric"),
        alt.Tooltip("seconds:Q", title="seconds per trial", format=",.1f"),
        alt.Tooltip("share:Q", title="training FLOPs", format=".0%"),
        *([] if cost == "share" else [alt.Tooltip("cost:Q", title=called, format=".3s")]),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    front = base.transform_filter("datum.front").mark_line(
        color=MUTED, strokeDash=[4, 3], interpolate="step-after"
    )
    coloured = base.encode(encode_colour("family", [point["family"] for point in points]))
    dots = coloured.mark_point(filled=True, opacity=1, size=70).encode(tooltip=tooltips)
    return layer_rows(
        points,
        [front, *draw_intervals(coloured, points), dots],
        f"{name}: metric over {called} for {len(points)} strategies.",
        title=name,
    )


def draw_figure(
    frame: pd.DataFrame, spec: FigureSpec, panels: Sequence[str]
) -> list[alt.LayerChart]:
    """Draw a figure of a recipe, other than maps.

    Args:
        frame: as `layerscout.studies.summaries.tidy_records` gives it.
        spec: what it shows.
        panels: axes, each combination of which has a panel.
    """
    wanted = list_names(spec.value)
    fits = spec.kind == "fit"
    measures = [spec.x, wanted[0]] if fits else wanted
    rows = list_rows(select_rows(frame, spec.grid, measures, spec.where))
    rows = [row for row in rows if not fits or row["at"] != 0]
    if spec.against is not None:
        rows = subtract_plan(rows, spec.against)
    if spec.dashed is not None:
        more = list_rows(select_rows(frame, spec.dashed.grid, list_names(spec.dashed.value)))
        rows += [{**row, "dashed": True} for row in more]
    charts = []
    for name, some in group_rows(rows, panels):
        own = [row for row in some if "dashed" not in row]
        others = [row for row in some if "dashed" in row]
        dashed = list_dashed(others, spec.dashed) if spec.dashed and others else []
        if not own:
            continue
        match spec.kind:
            case "strip":
                charts.append(_draw_strip(name, own, spec.x, spec.color))
            case "fit":
                charts.append(_draw_fit(name, own, spec.x, wanted[0]))
            case "density":
                charts.append(_draw_density(name, own, spec.x, dashed))
            case _:
                charts.append(_draw_means(name, own, dashed, spec))
    return charts


def _draw_means(
    name: str, rows: Sequence[Row], dashed: Sequence[Row], spec: FigureSpec
) -> alt.LayerChart:
    """Draw the mean over trials at each place, with its error bar."""
    color, line = spec.color, spec.kind == "lines"
    x, title = name_column(spec.x), name_values(rows)
    title += f" minus that of {spec.against}" if spec.against else ""
    by = [x, *([name_column(color)] if color else [])]
    if not line and "plan" in rows[0] and "plan" not in by:
        by.append("plan")
    means = list_means(rows, x, color, by, spec.spread)
    if dashed and color is None:
        means = [{**row, "color": title} for row in means]
    colors = list(dict.fromkeys(row["color"] for row in (*means, *dashed)))
    place = name_place(rows) if x == "at" else x.replace("_", " ")
    right = _lay_out_places(means, place, line=line)
    shown = [
        row[end]
        for row in (*means, *dashed)
        for end in ("value", "low", "high")
        if row[end] is not None
    ]
    base = alt.Chart().encode(
        right,
        encode_values("value", title, values=shown),
        encode_colour("color", colors),
        *([] if line else [alt.XOffset("color:N", scale=alt.Scale(domain=colors))]),
    )
    tooltips = [alt.Tooltip(right["shorthand"], title=place)]
    tooltips += [alt.Tooltip("color:N", title=color)] if color else []
    if means[0]["plan"] != "–":
        tooltips += [alt.Tooltip("label:N", title="strategy"), alt.Tooltip("plan:N")]
    tooltips += [*list_ends("value", title, ".4~f"), alt.Tooltip("n:Q", title="trials")]
    layers = draw_intervals(base, means) + _draw_dashed(base, dashed, colors)
    layers += [base.mark_line(strokeWidth=2)] if line else []
    layers.append(base.mark_point(filled=True, opacity=1, size=50).encode(tooltip=tooltips))
    spread = "two standard deviations" if spec.spread == "double" else "95 % intervals"
    return layer_rows(means, layers, f"{name}: {title} over {x}, means and {spread}.", title=name)


def _draw_dashed(base: alt.Chart, rows: Sequence[Row], colors: Sequence[str]) -> list[alt.Chart]:
    """Draw rows with a place as dashed lines, and those without as levels across the chart."""
    if not rows:
        return []
    data = alt.InlineData(values=list(rows))
    if rows[0]["x"] is not None:
        lines = base.properties(data=data).mark_line(strokeWidth=2, strokeDash=[5, 4])
        return [*draw_intervals(base, rows), lines]
    levels = alt.Chart(data).encode(alt.Y("value:Q"), encode_colour("color", colors))
    known = alt.InlineData(values=[row for row in rows if row["low"] is not None])
    bands = levels.properties(data=known).mark_rect(opacity=0.12)
    tooltips = [alt.Tooltip("color:N", title="level"), *list_ends("value")]
    return [
        bands.encode(alt.Y("low:Q"), alt.Y2("high:Q")),
        levels.mark_rule(strokeWidth=2, strokeDash=[5, 4]).encode(tooltip=tooltips),
    ]


def _draw_density(
    name: str, rows: Sequence[Row], axis: str, dashed: Sequence[Row]
) -> alt.LayerChart:
    """Draw every trial as a point, the density of all beside them, and their mean across.

    As Tamkin et al. 2020, Figure 4.
    """
    x, title = name_column(axis), name_values(rows)
    numbers = [float(row["value"]) for row in rows]
    points = [{"x": -0.15, "value": row["value"], "label": row.get(x)} for row in rows]
    right = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.35, 1.05], nice=False))
    base = alt.Chart().encode(right, encode_values("value", title, values=numbers))
    # The band of the interval of a mean, and the mean, over all of the width.
    mean = [{**row, "color": "mean"} for row in list_means(rows, None, None, [])]
    colors = list(dict.fromkeys(row["color"] for row in (*mean, *dashed)))
    [band, line] = _draw_dashed(base, mean, colors)
    curve = alt.InlineData(values=estimate_density(numbers))
    area = base.properties(data=curve).mark_area(orient="horizontal", opacity=0.25, color=CURVE)
    dots = base.mark_point(filled=True, opacity=0.6, size=40, color=CURVE).encode(
        tooltip=[alt.Tooltip("label:N", title=axis), alt.Tooltip("value:Q", format=".3f")]
    )
    solid = line.mark_rule(strokeWidth=2)
    return layer_rows(
        points,
        [area, band, *_draw_dashed(base, dashed, colors), solid, dots],
        f"{name}: {title} of every trial, their density and mean with its 95 % interval.",
        title=name,
    )


def _lay_out_places(rows: Sequence[Row], title: str, *, line: bool) -> alt.X:
    """Lay out places to the right: a scale under a line of numbers, else side by side."""
    places = list(dict.fromkeys(row["x"] for row in rows))
    numeric = all(isinstance(place, int | float) for place in places)
    if numeric and line:
        scale, axis = alt.Scale(nice=False, padding=12), alt.Axis(grid=False, tickMinStep=1)
        return alt.X("x:Q", title=title, scale=scale, sort=sorted(places), axis=axis)
    axis = alt.Axis(grid=False, labelAngle=0 if numeric else -40)
    order = sorted(places) if numeric else list(map(str, places))
    return alt.X("x:O", title=title, scale=alt.Scale(), sort=order, axis=axis)


def _draw_strip(name: str, rows: Sequence[Row], axis: str, color: str | None) -> alt.LayerChart:
    """Draw every trial as a point, and the means."""
    x, title = name_column(axis), name_values(rows)
    values = [
        {
            "x": row.get(x),
            "value": row["value"],
            "seed": format_value(row.get("seed")),
            "color": name_color(row, color),
        }
        for row in rows
    ]
    base = alt.Chart().encode(_lay_out_places(values, axis.replace("_", " "), line=False))
    dots = base.mark_point(filled=True, opacity=0.5, size=40).encode(
        encode_values("value", title, values=[row["value"] for row in values]),
        encode_colour("color", [row["color"] for row in values]),
        tooltip=[
            alt.Tooltip("x:O", title=axis),
            alt.Tooltip("value:Q", format=".3f"),
            alt.Tooltip("seed:N"),
        ],
    )
    means = base.mark_tick(thickness=3, size=22, color=BEST).encode(
        alt.Y("mean(value):Q", scale=tight_scale())
    )
    return layer_rows(
        values,
        [means, dots],  # points on top, so that they answer to a pointer
        f"{name}: {title} of every trial by {axis}; the bars are means.",
        title=name,
    )


def _draw_fit(name: str, rows: Sequence[Row], x: str, y: str) -> alt.LayerChart:
    """Draw a measure of every state over another one, with the line that fits best."""
    pairs = {m: {row["at"]: row["value"] for row in rows if row["measure"] == m} for m in (x, y)}
    states = sorted(pairs[x].keys() & pairs[y].keys())
    values = [{"state": s, "x": pairs[x][s], "y": pairs[y][s]} for s in states]
    line = against_probe([None, *(v["x"] for v in values)], [None, *(v["y"] for v in values)])
    fit = "" if line.pearson is None else f"ρ = {line.pearson:.2f}, R² = {line.r_squared:.2f}"
    titles = name_measure(x), name_measure(y)
    right = alt.X("x:Q", title=titles[0], scale=tight_scale(), axis=alt.Axis(grid=False))
    base = alt.Chart().encode(right, encode_values("y", titles[1], values=[v["y"] for v in values]))
    dots = base.mark_point(filled=True, opacity=1, color=CURVE, size=50).encode(
        tooltip=[
            alt.Tooltip("state:Q"),
            alt.Tooltip("x:Q", title=titles[0], format=".4~g"),
            alt.Tooltip("y:Q", title=titles[1], format=".3f"),
        ]
    )
    layers = [dots]  # on top, so that they answer to a pointer
    if line.slope is not None and line.intercept is not None and values:
        ends = [min(row["x"] for row in values), max(row["x"] for row in values)]
        drawn = [{"x": end, "y": line.intercept + line.slope * end} for end in ends]
        fitted = base.properties(data=alt.InlineData(values=drawn)).mark_line(color=BEST)
        layers = [fitted, dots]
    return layer_rows(
        values,
        layers,
        f"{name}: {titles[1]} over {titles[0]} of every state; {fit}.",
        title=alt.TitleParams(name, subtitle=fit),
    )


Row = Mapping[str, Any]


def list_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as JSON can hold them, with null for what is missing."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")  # type: ignore[return-value]


def _list_strategies(rows: Sequence[Row], measures: Sequence[str], cost: str) -> Sequence[Row]:
    """Return the means of every strategy; those that nothing cheaper reaches are the front."""
    points: list[dict[str, Any]] = []
    for name, some in group_rows(rows, [axis for axis in APART if axis in rows[0]]):
        means = {measure: average([row[measure] for row in some]) for measure in measures}
        points.append(
            {
                "name": name,
                "family": name_family(str(some[0].get("plan", ""))),
                "plan": format_value(some[0].get("resolved")),
                "low": means["metric"].low,
                "high": means["metric"].high,
                "n": means["metric"].n,
                "cost": means[cost].mean,
                **{key: means[key].mean for key in ("metric", "share", "seconds")},
            }
        )
    best = float("-inf")
    for point in sorted(points, key=lambda one: (one["cost"], -one["metric"])):
        point["front"] = point["metric"] > best
        best = max(best, point["metric"])
    return points


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
    """Return the differences of values from those of a plan, in pairs with all else equal."""
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


def name_color(row: Row, color: str | None) -> str:
    """Name what the colour of a row stands for; empty where colours mean nothing."""
    match color:
        case None:
            return ""
        case "family":
            return name_family(str(row.get("plan", "")))
        case "measure":
            return name_measure(row["measure"])
    return format_value(row.get(name_column(color)))
