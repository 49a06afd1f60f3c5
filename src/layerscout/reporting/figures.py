"""The figures of the verbs: curves, ranks and heat maps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import altair as alt

from layerscout.errors import InputError, make_unknown_error
from layerscout.files import make_output_folder
from layerscout.reporting.charts import (
    BEST,
    CURVE,
    MUTED,
    THIRD,
    Picture,
    draw_cells,
    encode_values,
    lay_out_entries,
    layer_rows,
    list_ends,
    place_side_by_side,
    place_ticks,
    save_chart,
)
from layerscout.reporting.comparison import ESTIMATES, choose_estimate, name_maps, shorten_names
from layerscout.reporting.evaluation import TRUNCATIONS
from layerscout.reporting.scores import (
    find_tied,
    get_band,
    get_details,
    needs_log,
    title_score,
)
from layerscout.reporting.words import (
    format_entries,
    format_number,
    name_constant_answer,
    name_examples,
    name_measure,
    read_calibration,
    start_line,
)
from layerscout.scores import name_score


def draw_panel(scan: Mapping[str, Any], key: str, *, small: bool = False) -> alt.LayerChart:
    """Draw one score: curve, points, shaded interval where it has one, and the best marked.

    States that cannot be told apart from the best have hollow points.
    """
    score, best, top = scan["scores"][key], scan["best"].get(key), scan["model"]["blocks"]
    rows, tooltips = _collect_rows(scan, key)
    name = score["of"][:-1]
    title, start = ("state (0: embeddings)", 0) if name == "state" else (name, 1)
    at = alt.Chart().encode(lay_out_entries("index", title, start, top, small=small))
    base = at.encode(_lay_out_score(score, rows))
    size = 36 if len(rows) <= 25 else 14
    points = base.mark_point(color=CURVE, filled=True, opacity=1, size=size)
    layers = [base.mark_line(color=CURVE), points]
    if tied := find_tied(scan, key):
        data = alt.InlineData(values=[rows[entry] for entry in tied])
        # The style sheet of a page gives them the colour of what lies behind.
        rings = base.properties(data=data, name="hollow").mark_point(
            filled=False, stroke=CURVE, fill="white", opacity=1, size=1.4 * size, strokeWidth=1.5
        )
        layers.append(rings)
    if "low" in rows[0]:
        ends = (alt.Y("low:Q"), alt.Y2("high:Q"))
        area = base.mark_area(color=CURVE, opacity=0.2, aria=False).encode(*ends)
        # An entry between undefined ones has no area.
        bars = base.mark_rule(color=CURVE, opacity=0.4, aria=False).encode(*ends)
        layers = [area, bars, *layers]
    if best is not None:
        of_best = base.properties(data=alt.InlineData(values=[rows[best]]))
        layers += _mark_best(of_best, f"best: {name} {best}", best / top, small)
    # A finger or a pointer need not hit a point: an invisible column answers for each.
    columns = at.mark_rule(opacity=0, strokeWidth=max(6, 260 // top), aria=False)
    layers.append(columns.encode(tooltip=tooltips))
    height = 150 if small else 220
    description = _describe_panel(scan, key)
    return layer_rows(rows, layers, description, title=title_score(key), height=height)


def _collect_rows(
    scan: Mapping[str, Any], key: str
) -> tuple[list[dict[str, Any]], list[alt.Tooltip]]:
    """Return a row for each entry, and the tooltips that show what the rows hold."""
    score = scan["scores"][key]
    rows: list[dict[str, Any]] = [{"index": i, "value": v} for i, v in enumerate(score["values"])]
    name = score["of"][:-1]
    tooltips = [alt.Tooltip("index:Q", title=name), alt.Tooltip("value:Q", format=".5~g")]
    low, high = get_band(score)
    if low:
        rows = [row | {"low": a, "high": b} for row, a, b in zip(rows, low, high, strict=True)]
        tooltips += [alt.Tooltip(f"{end}:Q", format=".5~g") for end in ("low", "high")]
    if fractions := get_details(score).get("signal_fraction"):
        rows = [row | {"signal": share} for row, share in zip(rows, fractions, strict=True)]
        tooltips.append(alt.Tooltip("signal:Q", title="signal fraction", format=".0%"))
    if tied := find_tied(scan, key):
        best = scan["best"][key]
        for row in rows:
            row["apart"] = f"not from {best}" if row["index"] in tied else None
        tooltips.append(alt.Tooltip("apart:N", title="differs from the best"))
    return rows, tooltips


def _mark_best(at_best: alt.Chart, name: str, share: float, small: bool) -> list[alt.Chart]:
    """Mark the best entry with a diamond and its name, written where the panel has room."""
    edge, text, size = (0.2, 11, 100) if small else (0.15, 12, 150)
    align: Literal["left", "center", "right"] = "center"
    if not edge < share < 1 - edge:
        align = "left" if share < 0.5 else "right"
    look: dict[str, Any] = {"dy": -9, "color": BEST, "fontWeight": "bold", "fontSize": text}
    label = at_best.mark_text(text=name, align=align, baseline="bottom", **look)
    diamond = at_best.mark_point(shape="diamond", filled=True, opacity=1, size=size, color=BEST)
    return [diamond, label]


def _lay_out_score(score: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> alt.Y:
    """Choose the value scale: better is up, logarithmic where one entry would flatten the rest."""
    ends = [row[end] for row in rows for end in ("value", "low", "high") if end in row]
    known = [value for value in ends if value is not None]
    turned = score["better"] == "lower"
    name = "lower is better (axis reversed)" if turned else "higher is better"
    if not needs_log(known):
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
        title=name.replace("reversed)", "reversed, log)") if turned else f"{name} (log)",
        scale=alt.Scale(type="log", nice=False, padding=26, reverse=turned),
        axis=alt.Axis(values=[10.0**power for power in powers], format="~g"),
    )


def _describe_panel(scan: Mapping[str, Any], key: str) -> str:
    """Say in one sentence what a panel shows, for those who cannot see it."""
    score, best = scan["scores"][key], scan["best"].get(key)
    text = f"{title_score(key)} of {score['of']} 0 to {scan['model']['blocks']}; "
    if best is None:
        return f"{text}no {score['of'][:-1]} could be scored."
    value = format_number(score["values"][best])
    text = f"{text}{score['better']} is better, {best} is best with {value}"
    tied = find_tied(scan, key)
    return f"{text}; tied with it within noise: {format_entries(tied)}." if tied else f"{text}."


def draw_moves(scan: Mapping[str, Any]) -> list[alt.LayerChart]:
    """Draw for each score how the ranks move over the checkpoints of a scan."""
    stability = scan["stability"]
    return [
        _draw_ranks(scan, key, stability["checkpoints"], score["ranks"])
        for key, score in stability["scores"].items()
        if any(map(any, score["ranks"]))
    ]


def _draw_ranks(
    scan: Mapping[str, Any],
    key: str,
    checkpoints: Sequence[str],
    ranks: Sequence[Sequence[int | None]],
) -> alt.LayerChart:
    """Draw a line for each state (or block) through its ranks; those that were best stand out."""
    name, top = scan["scores"][key]["of"][:-1], scan["model"]["blocks"]
    rows: list[dict[str, Any]] = [
        {"checkpoint": place, "name": checkpoint, "entry": entry, "rank": rank}
        for place, (checkpoint, row) in enumerate(zip(checkpoints, ranks, strict=True), start=1)
        for entry, rank in enumerate(row)
        if rank is not None
    ]
    ever_best = sorted({row["entry"] for row in rows if row["rank"] == 1})
    stands_out = alt.FieldOneOfPredicate("entry", oneOf=ever_best)
    base = alt.Chart().encode(
        alt.X("checkpoint:O", title="checkpoint", axis=alt.Axis(labelAngle=0, grid=False)),
        alt.Y(
            "rank:Q",
            title="rank (1 is best)",
            scale=alt.Scale(domain=[1, top], reverse=True, nice=False, padding=8),
            axis=alt.Axis(format="d", values=place_ticks(1, top, 12)),
        ),
        color=alt.condition(stands_out, alt.value(BEST), alt.value(CURVE)),
        opacity=alt.condition(stands_out, alt.value(1), alt.value(0.75)),
        detail="entry:N",
    )
    last = [row for row in rows if row["checkpoint"] == len(checkpoints)]
    names = base.properties(data=alt.InlineData(values=last)).mark_text(
        align="left", dx=8, fontSize=10
    )
    tooltips = [
        alt.Tooltip("entry:Q", title=name),
        alt.Tooltip("name:N", title="checkpoint"),
        alt.Tooltip("rank:Q"),
    ]
    layers = [
        base.mark_line(strokeWidth=2),
        base.mark_point(filled=True, size=40).encode(tooltip=tooltips),
        names.encode(text="entry:N"),
    ]
    return layer_rows(
        rows,
        layers,
        f"Ranks of the {name}s by the {name_score(key)} at {len(checkpoints)} checkpoints; "
        f"best at some checkpoint: {format_entries(ever_best)}.",
        height=max(150, 11 * top),
        title=title_score(key),
    )


def draw_epochs(content: Mapping[str, Any]) -> alt.LayerChart:
    """Draw the metric of the kept run by epoch, with that of always predicting the same."""
    curve = content["runs"][content["kept"]]["curve"]
    name, kept = name_measure(content), content[content["keep"]]["epoch"]
    rows = [{"epoch": epoch["epoch"], "value": epoch["value"]} for epoch in curve]
    shown = [epoch["value"] for epoch in curve if epoch["value"] is not None]
    shown += [] if content.get("majority") is None else [content["majority"]]
    base = alt.Chart().encode(
        lay_out_entries("epoch", "epoch", 1, max(2, len(rows))),
        encode_values("value", f"{name} on validation", 20, shown),
        tooltip=[alt.Tooltip("epoch:Q"), alt.Tooltip("value:Q", title=name, format=".3f")],
    )
    of_kept = base.properties(data=alt.InlineData(values=[r for r in rows if r["epoch"] == kept]))
    layers = [
        *_rule_majority(content),
        base.mark_line(color=CURVE, strokeWidth=2),
        base.mark_point(color=CURVE, filled=True, size=50, opacity=1),
        of_kept.mark_point(color=BEST, filled=True, size=110, opacity=1),
    ]
    always = name_constant_answer(content["task"]["kind"])
    description = (
        f"{name} by epoch; the kept epoch has a larger point; dashed: always predicting {always}."
    )
    return layer_rows(rows, layers, description, height=220)


def draw_reliability(content: Mapping[str, Any]) -> list[alt.LayerChart]:
    """Draw how often predictions came true by their probability, where that is known."""
    if (known := read_calibration(content)) is None:
        return []
    name, measured = known
    rows = [{"logits": when, **each} for when, one in measured.items() for each in one["bins"]]
    share = alt.Scale(domain=[0, 1], nice=False)
    scale = alt.Scale(domain=list(measured), range=[MUTED, CURVE][-len(measured) :])
    base = alt.Chart().encode(
        alt.X("confidence:Q", title=f"probability, mean of a bin ({name})", scale=share),
        alt.Y("accuracy:Q", title="share that came true", scale=share),
        alt.Color("logits:N", title=None, scale=scale, legend=alt.Legend(orient="top")),
        tooltip=[
            alt.Tooltip("logits:N", title="calibration"),
            *(alt.Tooltip(f"{part}:Q", format=".3f") for part in ("confidence", "accuracy")),
            alt.Tooltip("count:Q"),
        ],
    )
    ends = alt.Chart(alt.InlineData(values=[{"at": 0}, {"at": 1}]))
    layers = [
        ends.mark_line(color=MUTED, strokeDash=[4, 4]).encode(alt.X("at:Q"), alt.Y("at:Q")),
        base.mark_line(strokeWidth=2),
        base.mark_point(filled=True, opacity=1).encode(alt.Size("count:Q", legend=None)),
    ]
    text = "Share of predictions that came true by their probability; dashed: as many as it says."
    return [layer_rows(rows, layers, text, height=300)]


def draw_more(content: Mapping[str, Any]) -> list[alt.LayerChart]:
    """Draw the learning curve of the free head and where it leads, where that is known."""
    if (more := (content.get("more") or {}).get("texts")) is None:
        return []
    name, examples = name_measure(content), name_examples(content["task"]["kind"])
    solved, ahead = more["curve"], more["ahead"]
    shown = [
        row[end] for row in [*solved, *ahead] for end in ("value", "low", "high") if end in row
    ]
    base = alt.Chart().encode(
        alt.X("examples:Q", title=f"labelled {examples}", axis=alt.Axis(grid=False, tickCount=6)),
        encode_values("value", f"{name} on {examples} left out", 20, shown),
    )
    line, led = (
        base.properties(data=alt.InlineData(values=rows)) for rows in ([solved[-1], *ahead], ahead)
    )
    tooltips = [alt.Tooltip("examples:Q", format=",.0f"), *list_ends("value", name)]
    layers = [
        led.mark_area(color=BEST, opacity=0.2, aria=False).encode(alt.Y("low:Q"), alt.Y2("high:Q")),
        line.mark_line(color=BEST, strokeDash=[6, 4], strokeWidth=2),
        base.mark_line(color=CURVE, strokeWidth=2),
        base.mark_point(color=CURVE, filled=True, size=50, opacity=1).encode(tooltip=tooltips[:2]),
        led.mark_point(opacity=0, size=300).encode(tooltip=tooltips),
    ]
    text = (
        f"{name} of heads that were solved on a quarter, half and all of the {examples} of the "
        f"other folds; dashed: from {more['examples']:,} on, where that leads, with its interval."
    )
    return [layer_rows(solved, layers, text, height=220)]


def draw_truncation(content: Mapping[str, Any]) -> alt.LayerChart:
    """Draw the metric over the state that the head reads, with the majority baseline."""
    curves = content["truncation"]
    top = max(map(len, curves.values())) - 1  # the untuned model may be deeper
    colours = dict(zip(TRUNCATIONS, (CURVE, BEST, THIRD), strict=True))
    shown = [key for key in TRUNCATIONS if curves.get(key)]
    rows = [
        {"state": state, "value": value, "head": TRUNCATIONS[key]}
        for key in shown
        for state, value in enumerate(curves[key])
        if value is not None
    ]
    name, heads = name_measure(content), [TRUNCATIONS[key] for key in shown]
    scale = alt.Scale(domain=heads, range=[colours[key] for key in shown])
    legend = alt.Legend(orient="top", direction="vertical", labelLimit=400)
    base = alt.Chart().encode(
        lay_out_entries("state", "state that the head reads", 0, top),
        encode_values("value", name, 20, [row["value"] for row in rows]),
        alt.Color("head:N", title=None, scale=scale, legend=legend),
        tooltip=[
            alt.Tooltip("state:Q"),
            alt.Tooltip("head:N"),
            alt.Tooltip("value:Q", title=name, format=".3f"),
        ],
    )
    lines = base.mark_line(strokeWidth=2)
    # Points lie above all else, so that they answer to a pointer.
    layers = [*_rule_majority(content), lines, base.mark_point(filled=True, size=50, opacity=1)]
    always = name_constant_answer(content["task"]["kind"])
    description = f"{name} by the state that the head reads; dashed: always predicting {always}."
    return layer_rows(rows, layers, description, height=280)


def _rule_majority(content: Mapping[str, Any]) -> list[alt.Chart]:
    """Draw what always predicting the same reaches as a dashed line, if that is known."""
    if content.get("majority") is None:
        return []
    ruled = alt.Chart(alt.InlineData(values=[{"value": content["majority"]}]))
    return [ruled.mark_rule(color=MUTED, strokeDash=[4, 4]).encode(alt.Y("value:Q"))]


# Values closer together than this do not span all colours: 0.49 and 0.51 are much the same.
LEAST_SPAN = 0.1


def draw_similarity(content: Mapping[str, Any], key: str) -> list[alt.LayerChart]:
    """Draw the maps of one comparison, by "cka" or "cka_debiased".

    States are counted from the lower left; those that do not vary stay blank.
    """
    charts, names, estimate = [], shorten_names(content), start_line(ESTIMATES[key])
    for title, similarity in zip(name_maps(content), content["maps"], strict=True):
        first, second = (names[number] for number in similarity["of"])
        rows = [
            {"row": row, "column": column, "value": value}
            for row, line in zip(similarity["rows"], similarity[key], strict=True)
            for column, value in zip(similarity["columns"], line, strict=True)
            if value is not None
        ]
        chart = draw_cells(
            rows,
            (similarity["columns"], f"state of {second}"),
            (similarity["rows"], f"state of {first}"),
            alt.Scale(domain=[0, 1], scheme="viridis", clamp=True),
            estimate,
            f"{estimate} of the states of {first} (vertical axis) and {second} (horizontal axis).",
        )
        side = 280 / max(len(similarity["rows"]), len(similarity["columns"]))
        width, height = (round(side * len(similarity[end])) for end in ("columns", "rows"))
        charts.append(chart.properties(title=title, width=width, height=height))
    return charts


def draw_skips(content: Mapping[str, Any]) -> alt.LayerChart:
    """Draw what is left of the metric when a span of blocks is skipped."""
    blocks = list(range(1, content["model"]["blocks"] + 1))
    rows = [
        {"row": last, "column": first, "value": value}
        for first, line in enumerate(content["skips"], start=1)
        for last, value in enumerate(line, start=1)
        if value is not None
    ]
    name = name_measure(content)
    known = [row["value"] for row in rows] or [0.0]
    low, high = min(known), max(known)
    more = max(0.0, LEAST_SPAN - (high - low)) / 2
    return draw_cells(
        rows,
        (blocks, "first skipped block"),
        (blocks, "last skipped block"),
        alt.Scale(domain=[low - more, high + more], scheme="viridis"),
        name,
        f"{name} of the model without a span of blocks.",
    ).properties(width=280, height=280)


if TYPE_CHECKING:

    class _Result(Protocol):
        """The result of a verb."""

        def as_dict(self) -> dict[str, Any]:
            """Return the content of its JSON file."""


def plot(
    result: _Result | Sequence[_Result],
    path: str | Path | None = None,
    *,
    score: str | None = None,
    size: tuple[int, int] | None = None,
    title: str | None = None,
) -> Picture:
    """Draw what a verb found; in a notebook the chart shows itself.

    Args:
        result: a scan (the curve of every score), one or several comparisons (their maps, in one
            colour scale) or an evaluation (its truncation curves, and its map of skipped spans).
        path: a .png, .svg or .pdf to write the chart to as well.
        score: the keys of the scores of a scan that are drawn, with commas between them.
        size: width and height of each panel or map, in pixels.
        title: of the chart, in place of the usual one.

    Raises:
        InputError: if there is nothing to draw, or `path` has another suffix or cannot be written.
    """
    several = result if isinstance(result, Sequence) else [result]
    contents = [one.as_dict() for one in several]
    verbs = {content["verb"] for content in contents}
    chart: Picture
    if verbs == {"compare"}:
        chart = _draw_comparisons(contents)
    elif len(contents) == 1 and verbs == {"scan"}:
        chart = draw_all_scores(contents[0], score)
    elif len(contents) == 1 and verbs == {"evaluate"}:
        chart = _draw_evaluation(contents[0])
    else:
        raise InputError(
            "plot takes one scan, one evaluation, or one or several comparisons, got "
            f"{len(contents)} of {', '.join(sorted(verbs)) or 'nothing'}; plot them one by one, "
            "and let a tuned result show itself"
        )
    if score is not None and verbs != {"scan"}:
        raise InputError(f"`score` ({score}) is for a scan; leave it out")
    if size is not None:
        panels: Any = chart.concat
        for panel in panels:
            panel.width, panel.height = size
    if title is not None:
        chart = chart.properties(title=title)
    if path is not None:
        save_chart(chart, make_output_folder(Path(path).parent) / Path(path).name)
    return chart


def draw_all_scores(scan: Mapping[str, Any], score: str | None = None) -> Picture:
    """Draw every score of a scan (the content of `scan.json`), or these, one panel each.

    Up is better in all of them: the axis of a score that is better when lower is turned.
    """
    scores = scan["scores"]
    for key in (named := score.split(",") if score else []):
        if key not in scores:
            raise make_unknown_error("score of this scan", key, scores)
    # Without a value there is nothing to draw, unless nothing at all could be scored.
    known = [key for key in scores if scan["best"].get(key) is not None]
    keys = named or known or list(scores)
    columns = 1 if len(keys) <= 3 else 2 if len(keys) <= 8 else 3
    width, height = {1: (560, 240), 2: (380, 190), 3: (300, 160)}[columns]
    panels = [
        draw_panel(scan, key, small=columns > 1).properties(width=width, height=height)
        for key in keys
    ]
    name = alt.TitleParams(
        scan["model"]["name"], subtitle=scan["task"]["name"], fontSize=16, limit=620, offset=16
    )
    return place_side_by_side(panels, columns, title=name)


def _draw_comparisons(comparisons: Sequence[Mapping[str, Any]]) -> Picture:
    """Draw the maps of comparisons (the content of `compare.json`) in one scale of colours."""
    few = "cka_debiased" in map(choose_estimate, comparisons)
    maps = [
        chart.properties(width=220 * chart.width / 280, height=220 * chart.height / 280)
        for content in comparisons
        for chart in draw_similarity(content, "cka_debiased" if few else "cka")
    ]
    return place_side_by_side(maps, min(3, len(maps)))


def _draw_evaluation(content: Mapping[str, Any]) -> Picture:
    """Draw an evaluation (the content of `evaluate.json`): its curves and its map of spans."""
    charts = []
    if content["truncation"]:
        charts.append(draw_truncation(content).properties(width=440, height=280))
    if content["skips"]:
        charts.append(draw_skips(content))
    if not charts:
        raise InputError(
            "only the edits truncate and skip are drawn, and this evaluation has neither; add one"
        )
    both = place_side_by_side(charts, 2, spacing=36)
    separate: Picture = both.resolve_scale(color="independent")
    return separate
