"""What all charts share: colours, axes, and how they stand in a page or side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

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
    return alt.LayerChart(data=data, layer=list(layers), description=description, **more)


def place_side_by_side(
    charts: Sequence[alt.LayerChart], columns: int, **more: Any
) -> alt.ConcatChart:
    """Put charts into one picture."""
    chart = alt.concat(*charts, columns=columns, background="white", **{"spacing": 28} | more)
    styled: alt.ConcatChart = chart.configure(**LOOK)
    return styled


def fit_page(chart: alt.LayerChart) -> dict[str, Any]:
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


def place_ticks(start: int, end: int, steps: int) -> list[int]:
    """Choose whole numbers for an axis, about so many steps; the last one is `end`."""
    step = max(1, math.ceil((end - start) / steps))
    return [*range(start, end - step // 2, step), end]


def lay_out_values(field: str, name: str, padding: int = 16, values: Sequence[float] = ()) -> alt.Y:
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
