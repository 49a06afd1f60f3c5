"""Recipes: a study as a YAML file, checked whole before anything runs.

A recipe has one or several grids. A grid runs one verb with every combination of its axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from layerscout.studies.arguments import VERBS, Metric, Rates, Reading, Strict

# What grids that read tuned models take from those.
READ = ("model", "task", "seed")


# What follows from a point of a grid, beside its axes.
DERIVED = ("resolved", "blocks", "best")


class Grid(Strict):
    """One verb, run with every combination of the axes."""

    verb: Literal["tune", "scan", "compare", "evaluate"] = "tune"
    of: str | None = Field(None, description="a grid of tune, whose models are read")
    axes: dict[str, list[Any] | dict[str, Any]] = Field(
        default_factory=dict,
        description="what varies: lists of values, or names with their values",
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="what does not vary")
    rates: dict[str, list[Rates]] = Field(
        default_factory=dict,
        description="learning rates by plan; `other` for plans that are not named",
    )
    pilot: bool = Field(
        False,
        description="try the learning rates with the first seed alone, and only the best with all",
    )

    @property
    def arguments(self) -> type[Reading]:
        """The model that says what the verb takes."""
        return VERBS[self.verb]

    def listed(self, axis: str) -> dict[str, Any]:
        """Give the values of an axis by what tables call them."""
        values = self.axes[axis]
        if isinstance(values, Mapping):
            return {str(name): value for name, value in values.items()}
        return {called(value): value for value in values}


class TableSpec(Strict):
    """A table: means over seeds, in the shape of the paper's."""

    title: str
    grid: str | None = Field(None, description="by default the last one")
    kind: Literal["means", "correlations"] = Field(
        "means",
        description="means, or how the values of one axis (`rows`) go together over another "
        "(`columns`)",
    )
    value: str | list[str] = Field("metric", description="one or several measures")
    rows: str | list[str] = Field("plan", description="axes, or `measure` or `state`")
    columns: str | list[str] = "task"
    spread: Literal["deviation", "error", "interval", "none"] = "deviation"
    where: dict[str, Any] = Field(default_factory=dict, description="cells with these values only")


class FigureSpec(Strict):
    """A figure."""

    title: str
    kind: Literal["lines", "points", "strip", "fit", "maps"] = "lines"
    grid: str | None = None
    value: str | list[str] = Field("metric", description="one or several measures: up")
    x: str = Field("plan", description="an axis, `state`, or a measure: to the right")
    color: str | None = Field(None, description="an axis, or `measure`")
    panels: str | list[str] = Field("task", description="an axis: a panel each")
    where: dict[str, Any] = Field(default_factory=dict)


class Recipe(Strict):
    """A study."""

    title: str
    source: str = Field("", description="the paper, and its tables and figures")
    cost: str = Field("", description="what the whole takes, in words")
    grids: dict[str, Grid] = Field(min_length=1)
    metric: dict[str, Metric] = Field(
        default_factory=dict, description="by task, where it is not the task's own"
    )
    baseline: str | None = Field(
        None, description="a plan (or other value of the first axis that varies) to compare with"
    )
    tables: list[TableSpec] = Field(default_factory=list)
    figures: list[FigureSpec] = Field(default_factory=list)
    small: dict[str, Any] = Field(
        default_factory=dict, description="what the small variant changes, as --set does"
    )


def called(value: Any) -> str:
    """Give what tables call the value of an axis."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list():
            return " ".join(map(called, value))
        case Mapping():
            return str(value.get("name") or value.get("task") or value.get("data"))
    return str(value) or "none"
