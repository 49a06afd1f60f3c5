"""Whole pictures of what the verbs found, for notebooks and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import altair as alt
import vl_convert

from layerscout.pages.axes import place_side_by_side
from layerscout.pages.curves import draw_panel, draw_truncation
from layerscout.pages.heat_maps import choose_estimate, draw_similarity, draw_skips
from layerscout.runtime import InputError, make_output_folder, write_files


class _Result(Protocol):
    """The result of a verb."""

    def as_dict(self) -> dict[str, Any]:
        """Give the content of its JSON file."""


def plot(result: _Result | Sequence[_Result], path: str | Path | None = None) -> alt.TopLevelMixin:
    """Draw what a verb found; in a notebook the chart shows itself.

    Args:
        result: a scan (the curve of every score), one or several comparisons (their maps, in one
            colour scale) or an evaluation (its truncation curves, and its map of skipped spans).
        path: a .png, .svg or .pdf to write the chart to as well.

    Raises:
        InputError: if there is nothing to draw, or `path` has another suffix or cannot be written.
    """
    several = result if isinstance(result, Sequence) else [result]
    contents = [one.as_dict() for one in several]
    verbs = {content["verb"] for content in contents}
    chart: alt.TopLevelMixin
    if verbs == {"compare"}:
        chart = _draw_comparisons(contents)
    elif len(contents) == 1 and verbs == {"scan"}:
        chart = draw_all_scores(contents[0])
    elif len(contents) == 1 and verbs == {"evaluate"}:
        chart = _draw_evaluation(contents[0])
    else:
        raise InputError(
            "plot takes one scan, one evaluation, or one or several comparisons, got "
            f"{len(contents)} of {', '.join(sorted(verbs)) or 'nothing'}; plot them one by one"
        )
    if path is not None:
        save_chart(chart, make_output_folder(Path(path).parent) / Path(path).name)
    return chart


def draw_all_scores(scan: Mapping[str, Any]) -> alt.ConcatChart:
    """Draw every score of a scan (the content of `scan.json`), one panel each.

    Up is better in all of them: the axis of a score that is better when lower is turned.
    """
    scores = scan["scores"]
    # Without a value there is nothing to draw, unless nothing at all could be scored.
    keys = [key for key in scores if scan["best"].get(key) is not None] or list(scores)
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


def _draw_comparisons(comparisons: Sequence[Mapping[str, Any]]) -> alt.ConcatChart:
    """Draw the maps of comparisons (the content of `compare.json`) in one scale of colours."""
    few = "cka_debiased" in map(choose_estimate, comparisons)
    maps = [
        chart.properties(width=220, height=220)
        for content in comparisons
        for chart in draw_similarity(content, "cka_debiased" if few else "cka")
    ]
    return place_side_by_side(maps, min(3, len(maps)))


def _draw_evaluation(content: Mapping[str, Any]) -> alt.ConcatChart:
    """Draw an evaluation (the content of `evaluate.json`): its curves and its map of spans."""
    found = []
    if content["truncation"]:
        found.append(draw_truncation(content).properties(width=440, height=280))
    if content["skips"]:
        found.append(draw_skips(content).properties(width=280, height=280))
    if not found:
        raise InputError(
            "only the edits truncate and skip are drawn, and this evaluation has neither; add one"
        )
    chart = place_side_by_side(found, 2, spacing=36)
    separate: alt.ConcatChart = chart.resolve_scale(color="independent")
    return separate


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
