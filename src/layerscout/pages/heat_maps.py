"""Heat maps: the similarity of states, and what skipping a span of blocks leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import altair as alt

from layerscout.pages.axes import layer_rows, place_ticks
from layerscout.pages.formats import start_line
from layerscout.pages.naming import name_measure
from layerscout.scores import small_sample_warning

# Values closer together than this do not span all colours: 0.49 and 0.51 are much the same.
LEAST_SPAN = 0.1


def name_estimate(key: str) -> str:
    """Name an estimate of CKA, "cka" or "cka_debiased", within a sentence."""
    return "CKA" if key == "cka" else "debiased CKA"


def shorten_names(content: Mapping[str, Any]) -> list[str]:
    """Name the models of a comparison by as many last parts of their names as tell them apart."""
    paths = [PurePath(str(model["name"])).parts for model in content["models"]]
    # What `tune` writes is called model; the folder around it says more.
    paths = [path[:-1] if path[-1:] == ("model",) and len(path) > 1 else path for path in paths]
    names: list[str] = []
    for parts in range(1, max(map(len, paths)) + 1):
        names = ["/".join(path[-parts:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    if len(set(names)) < len(names):  # one of them is there twice
        return [f"{number}. {name}" for number, name in enumerate(names, start=1)]
    return names


def name_maps(content: Mapping[str, Any]) -> list[str]:
    """Name the maps of a comparison."""
    names = shorten_names(content)
    pairs = [one["of"] for one in content["maps"]]
    return [names[i] if i == j else f"{names[i]} and {names[j]}" for i, j in pairs]


def choose_estimate(content: Mapping[str, Any]) -> str:
    """Choose which estimate of a comparison leads: "cka", or "cka_debiased" of few examples.

    Those are few for the width of the widest model, by the rule that also warns of the bias.
    """
    rows = content["task"].get("words_used", content["examples"])
    width = max(model["hidden_size"] for model in content["models"])
    return "cka" if small_sample_warning(rows, width) is None else "cka_debiased"


def draw_similarity(content: Mapping[str, Any], key: str) -> list[alt.LayerChart]:
    """Draw the maps of one comparison, by "cka" or "cka_debiased"."""
    return [
        _draw_map(content, one, key).properties(title=name, height=280)
        for name, one in zip(name_maps(content), content["maps"], strict=True)
    ]


def _draw_map(content: Mapping[str, Any], one: Mapping[str, Any], key: str) -> alt.LayerChart:
    """Draw a map, its states counted from the lower left; states that do not vary stay blank."""
    first, second = (shorten_names(content)[number] for number in one["of"])
    estimate = start_line(name_estimate(key))
    rows = [
        {"row": row, "column": column, "value": value}
        for row, line in zip(one["rows"], one[key], strict=True)
        for column, value in zip(one["columns"], line, strict=True)
        if value is not None
    ]
    return _draw_cells(
        rows,
        (one["columns"], f"state of {second}"),
        (one["rows"], f"state of {first}"),
        alt.Scale(domain=[0, 1], scheme="viridis", clamp=True),
        estimate,
        f"{estimate} of the states of {first} (vertical axis) and {second} (horizontal axis).",
    )


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
    return _draw_cells(
        rows,
        (blocks, "first skipped block"),
        (blocks, "last skipped block"),
        alt.Scale(domain=_span_colours(known), scheme="viridis"),
        name,
        f"{name} of the model without a span of blocks.",
    ).properties(height=340)


def _span_colours(values: Sequence[float]) -> list[float]:
    """Give the ends of a scale of colours: at least `LEAST_SPAN` apart, around the values."""
    low, high = min(values), max(values)
    more = max(0.0, LEAST_SPAN - (high - low)) / 2
    return [low - more, high + more]


def _draw_cells(
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
        shown = place_ticks(entries[0], entries[-1], 12) if len(entries) > 1 else list(entries)
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
            alt.Tooltip("row:Q", title=f"{title_up} (vertical)" if same else title_up),
            alt.Tooltip("column:Q", title=title_right),
            alt.Tooltip("value:Q", title=name, format=".3f"),
        ],
    )
    return layer_rows(rows, [cells], description)
