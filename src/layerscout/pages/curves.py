"""Curves over states or blocks: scores, their ranks over checkpoints, and truncated models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt

from layerscout.pages.axes import (
    BEST,
    CURVE,
    MUTED,
    THIRD,
    lay_out_entries,
    lay_out_values,
    layer_rows,
    place_ticks,
)
from layerscout.pages.formats import format_entries, format_number
from layerscout.pages.naming import name_majority, name_measure
from layerscout.pages.scores import (
    find_tied,
    get_band,
    get_details,
    name_entry,
    name_score,
    needs_log,
    title_score,
)

# What a truncation curve shows: UNTUNED, TUNED and TUNEDORIG of Phang et al. 2021. Their first
# name is that of the head alone, and beside an untuned model it misleads.
TRUNCATIONS: Mapping[str, str] = {
    "untuned": "tuned head, unchanged",
    "tuned": "head tuned again at each state",
    "tuned_original": "untuned model, head tuned at each state",
}


def draw_moves(scan: Mapping[str, Any]) -> list[alt.LayerChart]:
    """Draw for each score how the ranks move over the checkpoints of a scan."""
    stability = scan["stability"]
    return [
        _draw_ranks(scan, key, stability["checkpoints"], found["ranks"])
        for key, found in stability["scores"].items()
        if any(map(any, found["ranks"]))
    ]


def draw_truncation(content: Mapping[str, Any]) -> alt.LayerChart:
    """Draw the metric over the state that the head reads, with the majority baseline."""
    found = content["truncation"]
    top = max(map(len, found.values())) - 1  # the untuned model may be deeper
    shown = [(TRUNCATIONS[key], found[key]) for key in TRUNCATIONS if found.get(key)]
    rows = [
        {"state": state, "value": value, "head": name}
        for name, values in shown
        for state, value in enumerate(values)
        if value is not None
    ]
    name = name_measure(content)
    colours = dict(zip(TRUNCATIONS.values(), (CURVE, BEST, THIRD), strict=True))
    names = [name for name, _ in shown]
    scale = alt.Scale(domain=names, range=[colours[name] for name in names])
    legend = alt.Legend(orient="top", direction="vertical", labelLimit=400)
    base = alt.Chart().encode(
        lay_out_entries("state", "state that the head reads", 0, top),
        lay_out_values("value", name, 20, [row["value"] for row in rows]),
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
    always = name_majority(content["task"]["kind"])
    description = f"{name} by the state that the head reads; dashed: always predicting {always}."
    return layer_rows(rows, layers, description, height=280)


def draw_panel(scan: Mapping[str, Any], key: str, *, small: bool = False) -> alt.LayerChart:
    """Draw one score: curve, points, shaded interval where it has one, and the best marked.

    States that cannot be told apart from the best have hollow points.
    """
    score, best, top = scan["scores"][key], scan["best"].get(key), scan["model"]["blocks"]
    rows, shaded = _collect_rows(scan, key)
    name = name_entry(score)
    title, start = ("state (0: embeddings)", 0) if name == "state" else (name, 1)
    at = alt.Chart().encode(lay_out_entries("index", title, start, top, small=small))
    ends = [row[end] for row in rows for end in ("value", "low", "high") if end in row]
    base = at.encode(_lay_out_score(score, ends))
    layers = [base.mark_line(color=CURVE), *_draw_points(base, rows, find_tied(scan, key))]
    if shaded:
        ends_of = (alt.Y("low:Q"), alt.Y2("high:Q"))
        area = base.mark_area(color=CURVE, opacity=0.2, aria=False).encode(*ends_of)
        # An entry between undefined ones has no area.
        bars = base.mark_rule(color=CURVE, opacity=0.4, aria=False).encode(*ends_of)
        layers = [area, bars, *layers]
    if best is not None:
        of_best = base.properties(data=alt.InlineData(values=[rows[best]]))
        layers += _mark_best(of_best, f"best: {name} {best}", best / top, small)
    # A finger or a pointer need not hit a point: an invisible column answers for each.
    columns = at.mark_rule(opacity=0, strokeWidth=max(6, 260 // top), aria=False)
    layers.append(columns.encode(tooltip=_list_tooltips(rows, name)))
    height = 150 if small else 220
    description = _describe_panel(scan, key)
    return layer_rows(rows, layers, description, title=title_score(key), height=height)


def _collect_rows(scan: Mapping[str, Any], key: str) -> tuple[list[dict[str, Any]], bool]:
    """Give a row for each entry, with all that the tooltip shows, and whether there is a band."""
    score = scan["scores"][key]
    rows: list[dict[str, Any]] = [{"index": i, "value": v} for i, v in enumerate(score["values"])]
    low, high = get_band(score)
    if low:
        rows = [row | {"low": a, "high": b} for row, a, b in zip(rows, low, high, strict=True)]
    if fractions := get_details(score).get("signal_fraction"):
        rows = [row | {"signal": share} for row, share in zip(rows, fractions, strict=True)]
    if tied := find_tied(scan, key):
        best = scan["best"][key]
        rows = [
            row | {"apart": f"not from {best}" if row["index"] in tied else None} for row in rows
        ]
    return rows, bool(low)


def _list_tooltips(rows: Sequence[Mapping[str, Any]], name: str) -> list[alt.Tooltip]:
    tooltips = [alt.Tooltip("index:Q", title=name)]
    tooltips += [
        alt.Tooltip(f"{end}:Q", format=".5~g") for end in ("value", "low", "high") if end in rows[0]
    ]
    if "signal" in rows[0]:
        tooltips.append(alt.Tooltip("signal:Q", title="signal fraction", format=".0%"))
    if "apart" in rows[0]:
        tooltips.append(alt.Tooltip("apart:N", title="differs from the best"))
    return tooltips


def _draw_points(
    base: alt.Chart, rows: Sequence[Mapping[str, Any]], hollow: Sequence[int]
) -> list[alt.Chart]:
    size = 36 if len(rows) <= 25 else 14
    layers = [base.mark_point(color=CURVE, filled=True, opacity=1, size=size)]
    if hollow:
        chosen = [row for row in rows if row["index"] in hollow]
        rings = base.properties(data=alt.InlineData(values=chosen), name="hollow")
        # The style sheet of a page gives them the colour of what lies behind.
        outline = rings.mark_point(
            filled=False, stroke=CURVE, fill="white", opacity=1, size=1.4 * size, strokeWidth=1.5
        )
        layers.append(outline)
    return layers


def _mark_best(at_best: alt.Chart, name: str, share: float, small: bool) -> list[alt.Chart]:
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


def _lay_out_score(score: Mapping[str, Any], ends: Sequence[float | None]) -> alt.Y:
    """Choose the value scale: better is up, logarithmic where one entry would flatten the rest."""
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
        return f"{text}no {name_entry(score)} could be scored."
    value = format_number(score["values"][best])
    text = f"{text}{score['better']} is better, {best} is best with {value}"
    tied = find_tied(scan, key)
    return f"{text}; tied with it within noise: {format_entries(tied)}." if tied else f"{text}."


def _draw_ranks(
    scan: Mapping[str, Any],
    key: str,
    checkpoints: Sequence[str],
    ranks: Sequence[Sequence[int | None]],
) -> alt.LayerChart:
    """Draw a line for each state (or block) through its ranks; those that were best stand out."""
    name, top = name_entry(scan["scores"][key]), scan["model"]["blocks"]
    rows: list[dict[str, Any]] = [
        {"checkpoint": place, "name": checkpoint, "entry": entry, "rank": rank}
        for place, (checkpoint, found) in enumerate(zip(checkpoints, ranks, strict=True), start=1)
        for entry, rank in enumerate(found)
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
