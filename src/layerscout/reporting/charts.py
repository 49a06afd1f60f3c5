"""How all charts are drawn: their colours, axes and layers, and how they become files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from layerscout.errors import InputError
from layerscout.files import write_files

# Both read well on white and on near-black.
CURVE, BEST, THIRD = "#3f7fc4", "#e0701a", "#3f9c6b"
MUTED, RULE = "#5b6470", "#d3d8de"
# Colours of up to twelve things; they read well on white and on near-black.
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
    "#4f9a5f",
    "#b07aa1",
)
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
# A title that is wider than the figure ends in an ellipsis.
LIMITED = {**LOOK["title"].to_dict(), "limit": {"expr": "width && containerSize()[0] - 10"}}
ON_PAGE = alt.Config(
    font="system-ui, sans-serif", autosize=FIT_WIDTH, **(LOOK | {"title": LIMITED})
).to_dict()


def layer_rows(
    rows: Sequence[Mapping[str, Any]], layers: Sequence[alt.Chart], description: str, **more: Any
) -> alt.LayerChart:
    """Put layers over the same rows, which stand in one place.

    A layer that is made from another one copies its data, so the chart has the rows and not they.

    Args:
        rows: of all layers that have no data of their own.
        layers: from the back to the front.
        description: for those who cannot see the chart.
        more: further properties of the chart.
    """
    data = alt.InlineData(values=list(rows))
    chart = alt.LayerChart(data=data, description=description, **more)
    chart.layer = list(layers)  # given before, all are copied in search of selections
    return chart


class Picture(alt.ConcatChart):
    """Charts in one picture, which a notebook shows without a network."""

    def draw_svg(self) -> str:
        """Return it as SVG."""
        svg: str = vl_convert.vegalite_to_svg(self.to_dict(validate=False), allowed_base_urls=[])
        return svg

    def _repr_mimebundle_(self, *args: Any, **kwds: Any) -> Any:
        """Return it as SVG, and as text."""
        if alt.renderers.active != "default":  # the user chose one
            return super()._repr_mimebundle_(*args, **kwds)
        return {"text/plain": "<Picture>", "image/svg+xml": self.draw_svg()}


def place_side_by_side(charts: Sequence[alt.LayerChart], columns: int, **more: Any) -> Picture:
    """Put charts into one picture."""
    look: dict[str, Any] = {"columns": columns, "background": "white", "spacing": 28}
    styled: Picture = Picture(concat=list(charts), **look | more).configure(**LOOK)
    return styled


def fit_page(chart: alt.LayerChart) -> dict[str, Any]:
    """Specify a chart that takes the width of the page it stands in, unless it has its own."""
    # To check a dozen specifications against the schema takes longer than to write them.
    spec = chart.to_dict(validate=False)
    del spec["$schema"]  # the page holds no address, not even one that nothing loads
    look = ON_PAGE | {"view": spec["config"]["view"] | ON_PAGE["view"]}
    width = {"width": "container"}
    if "width" in spec:  # of cells, which stay square
        width, look = {}, look | {"autosize": "pad"}
    return spec | width | {"background": "transparent", "config": look}


def place_ticks(start: int, end: int, steps: int) -> list[int]:
    """Choose whole numbers for an axis, about so many steps; the last one is `end`."""
    step = max(1, math.ceil((end - start) / steps))
    return [*range(start, end - step // 2, step), end]


def encode_values(field: str, name: str, padding: int = 16, values: Sequence[float] = ()) -> alt.Y:
    """Lay out an axis of values upwards, from the least to the largest.

    Args:
        field: of the rows.
        name: the title.
        padding: pixels below and above.
        values: all of them, if they may be equal: the only tick of 0.850 alone would read 1.
    """
    if values and max(values) - min(values) < 1e-3 * abs(max(values)):
        middle, around = max(values), 0.1 * abs(max(values)) or 0.1
        scale = alt.Scale(domain=[middle - around, middle + around], nice=False)
        return alt.Y(f"{field}:Q", title=name, scale=scale)
    return alt.Y(f"{field}:Q", title=name, scale=tight_scale(padding))


def tight_scale(padding: int = 16) -> alt.Scale:
    """Span just the values, with some pixels around them."""
    return alt.Scale(zero=False, nice=False, padding=padding)


def lay_out_entries(field: str, name: str, start: int, end: int, *, small: bool = False) -> alt.X:
    """Lay out states or blocks to the right, with a tick at the last, however many they are."""
    return alt.X(
        f"{field}:Q",
        title=name,
        scale=alt.Scale(domain=[start, end], nice=False, padding=10),
        axis=alt.Axis(format="d", values=place_ticks(start, end, 6 if small else 12), grid=False),
    )


def encode_colour(field: str, names: Sequence[str]) -> alt.Color:
    """Colour by a field, in order of appearance, with a legend where there are several colours."""
    domain = list(dict.fromkeys(names))
    known = [COLOURS[number % len(COLOURS)] for number in range(len(domain))]
    several = len(domain) > 1
    legend = alt.Legend(orient="bottom", columns=2, labelLimit=220, symbolOpacity=1)
    scale = alt.Scale(domain=domain, range=known)
    return alt.Color(f"{field}:N", title=None, scale=scale, legend=legend if several else None)


def list_ends(field: str, title: str | None = None, style: str = ".3f") -> list[alt.Tooltip]:
    """List a mean and the ends of its interval."""
    return [
        alt.Tooltip(f"{field}:Q", title=title or field, format=style),
        alt.Tooltip("low:Q", format=".3f"),
        alt.Tooltip("high:Q", format=".3f"),
    ]


def draw_intervals(base: alt.Chart, rows: Sequence[Mapping[str, Any]]) -> list[alt.Chart]:
    """Draw the intervals of those rows that have one."""
    known = [row for row in rows if row["low"] is not None]
    if not known:
        return []
    bars = base.properties(data=alt.InlineData(values=known)).mark_rule(opacity=0.45)
    return [bars.encode(alt.Y("low:Q"), alt.Y2("high:Q"))]


def draw_cells(
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
    across, upward = (
        alt.Axis(
            values=place_ticks(entries[0], entries[-1], 12),
            labelAngle=0,
            grid=False,
            domain=False,
            ticks=False,
        )
        for entries in (columns, lines)
    )
    cells = (
        alt.Chart()
        .mark_rect(aria=False)
        .encode(
            alt.X("column:O", title=title_right, axis=across, scale=alt.Scale(domain=columns)),
            alt.Y("row:O", title=title_up, axis=upward, scale=alt.Scale(domain=lines[::-1])),
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
    )
    return layer_rows(rows, [cells], description)


def check_plot(path: Path) -> None:
    """Raise if no chart can be written to a file of this name, before any work is done for it.

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
    writers: dict[str, Callable[..., str | bytes]] = {
        ".png": partial(vl_convert.vegalite_to_png, scale=2),
        ".svg": vl_convert.vegalite_to_svg,
        ".pdf": vl_convert.vegalite_to_pdf,
    }
    content = writers[path.suffix.lower()](chart.to_dict(), allowed_base_urls=[])
    write_files({path: content})
