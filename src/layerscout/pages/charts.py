"""Charts of what the verbs found, drawn from the plain dicts that they write as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

import altair as alt
import vl_convert

from layerscout.pages.wording import (
    CURVES,
    band,
    counted,
    details,
    heading,
    map_names,
    number,
    short_names,
    stretched,
    tied,
    title,
    unit,
)
from layerscout.runtime import InputError, make_output_folder, write_files

# Both read well on white and on near-black.
CURVE, BEST, THIRD = "#3f7fc4", "#e0701a", "#3f9c6b"
MUTED, RULE = "#5b6470", "#d3d8de"
LOOK: dict[str, Any] = {  # in the page, the style sheet sets the colours of both schemes
    "view": alt.ViewConfig(stroke=None),
    "axis": alt.AxisConfig(
        gridColor=RULE,
        gridOpacity=0.6,
        domainColor=RULE,
        tickColor=RULE,
        labelColor=MUTED,
        titleColor=MUTED,
        titleFontWeight="normal",
    ),
    # The title of a value axis lies above it, where a small panel has room.
    "axisY": alt.AxisConfig(
        titleAngle=0, titleAlign="left", titleBaseline="bottom", titleX=0, titleY=-4
    ),
    "title": alt.TitleConfig(anchor="start", fontSize=13, offset=12, subtitleColor=MUTED),
}
FIT_WIDTH = alt.AutoSizeParams(type="fit-x", contains="padding")

# Runs in the page. The interpreter (ast) needs no eval, so the page can forbid it.
DRAW = r"""
// What a tooltip shows stays text, and what has no value is a dash.
const escapes = {"&": "&amp;", "<": "&lt;"};
const sanitize = value => {
  const text = String(value);
  return text === "null" ? "–" : text.replace(/[&<]/g, sign => escapes[sign]);
};
for (const figure of document.querySelectorAll("[data-chart]")) {
  const chart = JSON.parse(document.getElementById(figure.dataset.chart).textContent);
  const actions = {export: true, source: false, compiled: false, editor: false};
  const options = {mode: "vega-lite", renderer: "svg", ast: true, actions, tooltip: {sanitize}};
  vegaEmbed(figure, chart, options);
}
const missing = text => text === "" || text === "–";
const read = text => {
  const plain = text.replace(/,/g, "").replace("−", "-");
  const start = plain.match(/^[+-]?\d[\d.]*(e[+-]?\d+)?(?!\w)/);
  return start ? parseFloat(start[0]) : null;
};
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.firstElementChild.addEventListener("click", () => {
    const up = heading.getAttribute("aria-sort") !== "ascending";
    headings.forEach(other => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows].map(row => {
      const text = row.cells[column].textContent.replace("◆", "").trim();
      return [row, text, read(text)];
    });
    // A name may start with a number, so numbers are compared only where nothing else stands.
    const numeric = rows.every(([, text, value]) => missing(text) || value !== null);
    rows.sort(([, a, x], [, b, y]) => {
      if (missing(a) || missing(b)) return missing(a) - missing(b);
      return (up ? 1 : -1) * (numeric ? x - y : a.localeCompare(b, undefined, {numeric: true}));
    });
    table.tBodies[0].append(...rows.map(([row]) => row));
  }));
}
"""


def scan_chart(scan: Mapping[str, Any]) -> alt.ConcatChart:
    """Draw every score of a scan (the content of `scan.json`), one panel each.

    Up is better in all of them: the axis of a score that is better when lower is turned.
    """
    scores = scan["scores"]
    # Without a value there is nothing to draw, unless nothing at all could be scored.
    keys = [key for key in scores if scan["best"].get(key) is not None] or list(scores)
    columns = 1 if len(keys) <= 3 else 2 if len(keys) <= 8 else 3
    width, height = {1: (560, 240), 2: (380, 190), 3: (300, 160)}[columns]
    panels = [
        _panel(scan, key, small=columns > 1).properties(width=width, height=height) for key in keys
    ]
    name = alt.TitleParams(
        scan["model"]["name"], subtitle=scan["task"]["name"], fontSize=16, limit=620, offset=16
    )
    chart = alt.concat(*panels, columns=columns, title=name, spacing=28, background="white")
    styled: alt.ConcatChart = chart.configure(**LOOK)
    return styled


def panels(
    scan: Mapping[str, Any], keys: Sequence[str], *, small: bool = False
) -> list[dict[str, Any]]:
    """Specify a chart for each of these scores that takes the width of the page it stands in."""
    return [
        for_page(_panel(scan, key, small=small).properties(height=150 if small else 220))
        for key in keys
    ]


def moves(scan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Specify a chart for each score that follows the ranks over the checkpoints of a scan."""
    stability = scan["stability"]
    return [
        for_page(_moves(scan, key, stability["checkpoints"], found["ranks"]))
        for key, found in stability["scores"].items()
        if any(map(any, found["ranks"]))
    ]


def similarity_chart(comparisons: Sequence[Mapping[str, Any]]) -> alt.ConcatChart:
    """Draw the maps of comparisons (the content of `compare.json`) in one scale of colours."""
    found = [
        _similarity(content, one, "cka").properties(width=220, height=220, title=name)
        for content in comparisons
        for name, one in zip(map_names(content), content["maps"], strict=True)
    ]
    columns = min(3, len(found))
    return side_by_side(found, columns)


def side_by_side(charts: Sequence[alt.LayerChart], columns: int) -> alt.ConcatChart:
    """Put charts into one picture."""
    chart = alt.concat(*charts, columns=columns, spacing=28, background="white")
    styled: alt.ConcatChart = chart.configure(**LOOK)
    return styled


def similarity_maps(content: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Specify the maps of one comparison for a page."""
    return [for_page(chart.properties(height=280)) for chart in similarity_panels(content, key)]


def similarity_panels(content: Mapping[str, Any], key: str) -> list[alt.LayerChart]:
    """Draw the maps of one comparison, by "cka" or "cka_debiased"."""
    return [
        _similarity(content, one, key).properties(title=name)
        for name, one in zip(map_names(content), content["maps"], strict=True)
    ]


def evaluation_chart(content: Mapping[str, Any]) -> alt.ConcatChart:
    """Draw an evaluation (the content of `evaluate.json`): its curves and its map of spans.

    Raises:
        InputError: if it has neither.
    """
    found = (
        [_truncation(content).properties(width=440, height=280)] if content["truncation"] else []
    )
    found += [_skips(content).properties(width=280, height=280)] if content["skips"] else []
    if not found:
        raise InputError("an evaluation is drawn of the edits truncate and skip; add one of them")
    chart = alt.concat(*found, columns=2, spacing=36, background="white")
    styled: alt.ConcatChart = chart.resolve_scale(color="independent").configure(**LOOK)
    return styled


def truncation(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Specify the truncation curves of an evaluation for a page."""
    return [for_page(_truncation(content).properties(height=280))]


def skips(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Specify the map of skipped spans of an evaluation for a page."""
    return [for_page(_skips(content).properties(height=340))]


class _Result(Protocol):
    """What a verb gives."""

    def as_dict(self) -> dict[str, Any]:
        """Give what its JSON file holds."""


def plot(result: _Result | Sequence[_Result], path: str | Path | None = None) -> alt.TopLevelMixin:
    """Draw what a verb found; in a notebook the chart shows itself.

    Args:
        result: a scan (the curve of every score), a comparison or several (their maps, in one
            scale of colours) or an evaluation (its truncation curves, and its map of spans).
        path: a .png, .svg or .pdf to write it to as well.

    Raises:
        InputError: if there is nothing to draw, or `path` has another suffix or cannot be written.
    """
    several = result if isinstance(result, Sequence) else [result]
    contents = [one.as_dict() for one in several]
    verbs = {content["verb"] for content in contents}
    chart: alt.TopLevelMixin
    if verbs == {"compare"}:
        chart = similarity_chart(contents)
    elif len(contents) == 1 and verbs == {"scan"}:
        chart = scan_chart(contents[0])
    elif len(contents) == 1 and verbs == {"evaluate"}:
        chart = evaluation_chart(contents[0])
    else:
        raise InputError(
            "one scan, one evaluation, or one or several comparisons can be drawn, got "
            f"{len(contents)} of {', '.join(sorted(verbs)) or 'nothing'}"
        )
    if path is not None:
        save_chart(chart, make_output_folder(Path(path).parent) / Path(path).name)
    return chart


def check_plot(path: Path) -> None:
    """Refuse a file name that no chart can be written to, before any work is done for it.

    Raises:
        InputError: if the suffix is none of .png, .svg, .pdf.
    """
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(
            f"a plot is written as .png, .svg or .pdf, got {path.name!r}; "
            f"name it {(path.name.split('.')[0] or 'plot') + '.png'!r}"
        )


def save_chart(chart: alt.TopLevelMixin, path: Path) -> None:
    """Write a chart to `path` as .png, .svg or .pdf.

    Raises:
        InputError: if `path` has another suffix or cannot be written.
    """
    check_plot(path)
    spec = chart.to_dict()
    match path.suffix.lower():
        case ".png":
            content = vl_convert.vegalite_to_png(spec, scale=2, allowed_base_urls=[])
        case ".svg":
            content = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]).encode()
        case _:
            content = vl_convert.vegalite_to_pdf(spec, allowed_base_urls=[])
    write_files({path: content})


@cache
def script() -> str:
    """Bundle the chart libraries and the lines that draw: the one script of a page."""
    return str(vl_convert.javascript_bundle(DRAW))


def _similarity(content: Mapping[str, Any], one: Mapping[str, Any], key: str) -> alt.LayerChart:
    """Draw a map, its states counted from the lower left; states that do not vary stay blank."""
    first, second = (short_names(content)[number] for number in one["of"])
    rows = [
        {"row": row, "column": column, "value": value}
        for row, line in zip(one["rows"], one[key], strict=True)
        for column, value in zip(one["columns"], line, strict=True)
        if value is not None
    ]
    return heat_map(
        rows,
        (one["columns"], f"state of {second}"),
        (one["rows"], f"state of {first}"),
        alt.Scale(domain=[0, 1], scheme="viridis", clamp=True),
        "CKA" if key == "cka" else "CKA, debiased",
        f"CKA of the states of {first} (up) and {second} (to the right).",
    )


def _skips(content: Mapping[str, Any]) -> alt.LayerChart:
    """Draw what is left of the metric when a span of blocks is passed over."""
    blocks = list(range(1, content["model"]["blocks"] + 1))
    rows = [
        {"row": last, "column": first, "value": value}
        for first, line in enumerate(content["skips"], start=1)
        for last, value in enumerate(line, start=1)
        if value is not None
    ]
    name = content["metric"].replace("_", " ")
    known = [row["value"] for row in rows] or [0.0]
    return heat_map(
        rows,
        (blocks, "first block passed over"),
        (blocks, "last block passed over"),
        alt.Scale(domain=[min(known), max(known)], scheme="viridis"),
        name,
        f"{name} of the model without the blocks from one to another.",
    )


def heat_map(
    rows: Sequence[Mapping[str, Any]],
    right: tuple[Sequence[int], str],
    up: tuple[Sequence[int], str],
    scale: alt.Scale,
    name: str,
    description: str,
) -> alt.LayerChart:
    """Draw cells `row`, `column`, `value`; axes have their entries and a title."""
    (columns, title_right), (lines, title_up) = right, up
    same = title_right == title_up

    def axis(entries: Sequence[int]) -> alt.Axis:
        shown = _ticks(entries[0], entries[-1], 12) if len(entries) > 1 else list(entries)
        return alt.Axis(values=shown, labelAngle=0, grid=False, domain=False, ticks=False)

    cells = alt.Chart().mark_rect(aria=False)
    cells = cells.encode(
        alt.X("column:O", title=title_right, axis=axis(columns), scale=alt.Scale(domain=columns)),
        alt.Y("row:O", title=title_up, axis=axis(lines), scale=alt.Scale(domain=lines[::-1])),
        alt.Color(
            "value:Q",
            title=name,
            scale=scale,
            legend=alt.Legend(orient="bottom", gradientLength=140, gradientThickness=10),
        ),
        tooltip=[
            # Two entries of one name would be one.
            alt.Tooltip("row:Q", title=f"{title_up} (up)" if same else title_up),
            alt.Tooltip("column:Q", title=title_right),
            alt.Tooltip("value:Q", title=name, format=".3f"),
        ],
    )
    return alt.LayerChart(
        data=alt.InlineData(values=list(rows)), layer=[cells], description=description
    )


def _truncation(content: Mapping[str, Any]) -> alt.LayerChart:
    """Draw the metric over the state that the head reads, with the majority baseline."""
    found = content["truncation"]
    top = max(map(len, found.values())) - 1  # the untuned model may be deeper
    shown = [(CURVES[key], found[key]) for key in CURVES if found.get(key)]
    rows = [
        {"state": state, "value": value, "head": name}
        for name, values in shown
        for state, value in enumerate(values)
        if value is not None
    ]
    name = content["metric"].replace("_", " ")
    colours = dict(zip(CURVES.values(), (CURVE, BEST, THIRD), strict=True))
    names = [name for name, _ in shown]
    scale = alt.Scale(domain=names, range=[colours[name] for name in names])
    legend = alt.Legend(orient="top", direction="vertical", labelLimit=400)
    base = alt.Chart().encode(
        alt.X(
            "state:Q",
            title="state that the head reads",
            scale=alt.Scale(domain=[0, top], nice=False, padding=10),
            axis=alt.Axis(format="d", values=_ticks(0, top, 12), grid=False),
        ),
        alt.Y("value:Q", title=name, scale=alt.Scale(zero=False, nice=False, padding=20)),
        alt.Color("head:N", title=None, scale=scale, legend=legend),
        tooltip=[
            alt.Tooltip("state:Q"),
            alt.Tooltip("head:N"),
            alt.Tooltip("value:Q", title=name, format=".3f"),
        ],
    )
    layers: list[Any] = []
    if content["majority"] is not None:
        ruled = alt.Chart(alt.InlineData(values=[{"value": content["majority"]}]))
        layers.append(ruled.mark_rule(color=MUTED, strokeDash=[4, 4]).encode(alt.Y("value:Q")))
    # Points lie above all else, so that they answer to a pointer.
    layers.append(base.mark_line(strokeWidth=2))
    layers.append(base.mark_point(filled=True, size=50, opacity=1))
    return alt.LayerChart(
        data=alt.InlineData(values=rows),
        layer=layers,
        description=f"{name} by the state that the head reads; dashed: the commonest class.",
    )


def for_page(chart: alt.LayerChart) -> dict[str, Any]:
    """Specify a chart that takes the width of the page it stands in."""
    # A title that is wider than the figure ends in an ellipsis.
    limited = {**LOOK["title"].to_dict(), "limit": {"expr": "width && containerSize()[0] - 10"}}
    # To check a dozen specifications against the schema takes longer than to write them.
    spec = (
        chart.properties(width="container", background="transparent")
        .configure(font="system-ui, sans-serif", autosize=FIT_WIDTH, **(LOOK | {"title": limited}))
        .to_dict(validate=False)
    )
    # The page holds no address, not even one that nothing loads.
    return {name: value for name, value in spec.items() if name != "$schema"}


def _panel(scan: Mapping[str, Any], key: str, *, small: bool) -> alt.LayerChart:
    """Draw one score: curve, points, shaded interval where it has one, and the best marked.

    States that cannot be told apart from the best have hollow points.
    """
    score, best, top = scan["scores"][key], scan["best"].get(key), scan["model"]["blocks"]
    rows, shaded = _rows(scan, key)
    at = alt.Chart().encode(_entries_axis(unit(score), top, small))
    ends = [row[end] for row in rows for end in ("value", "low", "high") if end in row]
    base = at.encode(_value_axis(score, ends))
    layers = [base.mark_line(color=CURVE), *_points(base, rows, set(tied(scan, key)), top)]
    if shaded:
        ends_of = (alt.Y("low:Q"), alt.Y2("high:Q"))
        area = base.mark_area(color=CURVE, opacity=0.2, aria=False).encode(*ends_of)
        # An entry between undefined ones has no area.
        bars = base.mark_rule(color=CURVE, opacity=0.4, aria=False).encode(*ends_of)
        layers = [area, bars, *layers]
    if best is not None:
        of_best = base.properties(data=alt.InlineData(values=[rows[best]]))
        layers += _best_layers(of_best, f"best: {unit(score)} {best}", best / top, small)
    # A finger or a pointer need not hit a point: an invisible column answers for each.
    columns = at.mark_rule(opacity=0, strokeWidth=max(6, 260 // top), aria=False)
    layers.append(columns.encode(tooltip=_tooltip(rows, unit(score))))
    # The rows stand in one place: each layer that is made from another copies all that it holds.
    return alt.LayerChart(
        data=alt.InlineData(values=rows),
        layer=layers,
        title=heading(key),
        description=_description(scan, key),
    )


def _rows(scan: Mapping[str, Any], key: str) -> tuple[list[dict[str, Any]], bool]:
    """Give a row for each entry, with all that the tooltip tells, and whether there is a band."""
    score = scan["scores"][key]
    rows: list[dict[str, Any]] = [{"index": i, "value": v} for i, v in enumerate(score["values"])]
    low, high = band(score)
    if low:
        rows = [row | {"low": a, "high": b} for row, a, b in zip(rows, low, high, strict=True)]
    if fractions := details(score).get("signal_fraction"):
        rows = [row | {"signal": share} for row, share in zip(rows, fractions, strict=True)]
    if rest := tied(scan, key):
        best = scan["best"][key]
        rows = [
            row | {"apart": f"not from {best}" if row["index"] in rest else None} for row in rows
        ]
    return rows, bool(low)


def _tooltip(rows: Sequence[Mapping[str, Any]], name: str) -> list[alt.Tooltip]:
    told = [alt.Tooltip("index:Q", title=name)]
    told += [
        alt.Tooltip(f"{end}:Q", format=".5~g") for end in ("value", "low", "high") if end in rows[0]
    ]
    if "signal" in rows[0]:
        told.append(alt.Tooltip("signal:Q", title="signal fraction", format=".0%"))
    if "apart" in rows[0]:
        told.append(alt.Tooltip("apart:N", title="told apart"))
    return told


def _points(
    base: alt.Chart, rows: Sequence[Mapping[str, Any]], hollow: set[int], top: int
) -> list[alt.Chart]:
    size = 36 if top <= 24 else 14
    layers = [base.mark_point(color=CURVE, filled=True, opacity=1, size=size)]
    if hollow:
        chosen = [row for row in rows if row["index"] in hollow]
        rings = base.properties(data=alt.InlineData(values=chosen), name="hollow")
        # The style sheet of a page gives them the colour of what lies behind.
        layers.append(
            rings.mark_point(
                filled=False,
                stroke=CURVE,
                fill="white",
                opacity=1,
                size=1.4 * size,
                strokeWidth=1.5,
            )
        )
    return layers


def _best_layers(at_best: alt.Chart, name: str, share: float, small: bool) -> list[alt.Chart]:
    """Mark the best entry with a diamond and its name, written where the panel has room."""
    align: Literal["left", "center", "right"] = "center"
    edge = 0.2 if small else 0.15
    if not edge < share < 1 - edge:
        align = "left" if share < 0.5 else "right"
    label = at_best.mark_text(
        text=name,
        align=align,
        baseline="bottom",
        dy=-9,
        color=BEST,
        fontWeight="bold",
        fontSize=11 if small else 12,
    )
    diamond = at_best.mark_point(
        shape="diamond", filled=True, opacity=1, size=100 if small else 150, color=BEST
    )
    return [diamond, label]


def _entries_axis(name: str, top: int, small: bool) -> alt.X:
    """Lay out the states 0..L, or the blocks 1..L, with a tick at L, however many they are."""
    start = 0 if name == "state" else 1
    return alt.X(
        "index:Q",
        title="state (0: embeddings)" if name == "state" else name,
        scale=alt.Scale(domain=[start, top], nice=False, padding=10),
        axis=alt.Axis(format="d", values=_ticks(start, top, 6 if small else 12), grid=False),
    )


def _ticks(start: int, end: int, steps: int) -> list[int]:
    step = max(1, math.ceil((end - start) / steps))
    return [*range(start, end - step // 2, step), end]


def _value_axis(score: Mapping[str, Any], ends: Sequence[float | None]) -> alt.Y:
    """Choose the value scale: better is up, logarithmic where one entry would flatten the rest."""
    known = [value for value in ends if value is not None]
    turned = score["better"] == "lower"
    name = "lower is better (axis turned)" if turned else "higher is better"
    if not stretched(known):
        only = len(set(known)) == 1  # what lies around a single value has no scale
        axis = alt.Axis(values=known[:1], format="~g") if only else alt.Axis(tickCount=5)
        return alt.Y(
            "value:Q",
            title=name,
            scale=alt.Scale(zero=False, nice=False, padding=26, reverse=turned),
            axis=axis,
        )
    powers = range(math.floor(math.log10(min(known))), math.ceil(math.log10(max(known))) + 1)
    return alt.Y(
        "value:Q",
        title=name.replace("turned)", "turned, log)") if turned else f"{name} (log)",
        scale=alt.Scale(type="log", nice=False, padding=26, reverse=turned),
        axis=alt.Axis(values=[10.0**power for power in powers], format="~g"),
    )


def _description(scan: Mapping[str, Any], key: str) -> str:
    """Say in one sentence what a panel shows, for those who cannot see it."""
    score, best = scan["scores"][key], scan["best"].get(key)
    text = f"{heading(key)} of {score['of']} 0 to {scan['model']['blocks']}; "
    if best is None:
        return f"{text}no {unit(score)} could be scored."
    value = number(score["values"][best])
    text = f"{text}{score['better']} is better, {best} is best with {value}"
    rest = tied(scan, key)
    return f"{text}; not told apart from it: {counted(rest)}." if rest else f"{text}."


def _moves(
    scan: Mapping[str, Any],
    key: str,
    checkpoints: Sequence[str],
    ranks: Sequence[Sequence[int | None]],
) -> alt.LayerChart:
    """Draw a line for each state (or block) through its ranks; those that were best stand out."""
    name, top = unit(scan["scores"][key]), scan["model"]["blocks"]
    rows: list[dict[str, Any]] = [
        {"checkpoint": place, "name": checkpoint, "entry": entry, "rank": rank}
        for place, (checkpoint, found) in enumerate(zip(checkpoints, ranks, strict=True), start=1)
        for entry, rank in enumerate(found)
        if rank is not None
    ]
    ever_best = sorted({row["entry"] for row in rows if row["rank"] == 1})
    stands_out = alt.FieldOneOfPredicate("entry", oneOf=ever_best)
    base = alt.Chart().encode(
        alt.X(
            "checkpoint:O",
            title="checkpoint",
            axis=alt.Axis(labelAngle=0, grid=False),
        ),
        alt.Y(
            "rank:Q",
            title="rank (1 is best)",
            scale=alt.Scale(domain=[1, top], reverse=True, nice=False, padding=8),
            axis=alt.Axis(
                format="d",
                values=_ticks(1, top, 12),
            ),
        ),
        color=alt.condition(stands_out, alt.value(BEST), alt.value(CURVE)),
        opacity=alt.condition(stands_out, alt.value(1), alt.value(0.75)),
        detail="entry:N",
    )
    last = [row for row in rows if row["checkpoint"] == len(checkpoints)]
    names = base.properties(data=alt.InlineData(values=last)).mark_text(
        align="left", dx=8, fontSize=10
    )
    told = [
        alt.Tooltip("entry:Q", title=name),
        alt.Tooltip("name:N", title="checkpoint"),
        alt.Tooltip("rank:Q"),
    ]
    layers = [
        base.mark_line(strokeWidth=2),
        base.mark_point(filled=True, size=40).encode(tooltip=told),
        names.encode(text="entry:N"),
    ]
    return alt.LayerChart(
        data=alt.InlineData(values=rows),
        layer=layers,
        height=max(150, 11 * top),
        title=heading(key),
        description=(
            f"Ranks of the {name}s by the {title(key)} at {len(checkpoints)} checkpoints; "
            f"ever best: {counted(ever_best)}."
        ),
    )
