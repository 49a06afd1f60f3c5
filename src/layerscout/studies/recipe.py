"""Recipes: a study as a YAML file, checked whole before anything runs.

A recipe has one or several grids. A grid runs one verb with every combination of its axes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    WrapValidator,
    model_validator,
)

from layerscout.errors import make_unknown_error
from layerscout.scores import RETIRED, SCORES
from layerscout.studies.arguments import Metric, Rates, Strict

# What grids that read tuned models take from those.
READ = ("model", "task", "seed")

# What follows from a point of a grid, beside its axes.
DERIVED = ("resolved", "blocks", "best")

# What the rows or columns of a table may be beside axes: names of the column `at`, and checkpoints.
AT = ("at", "state", "block", "epoch")
PLACES = (*AT, "checkpoint")


# What a table or a figure may show of a grid, and what of a score, by its key. docs/study.md says
# what they are, and of which verb.
PLAIN = (
    *("metric", "metric_by_epoch", "loss_by_epoch", "majority", "epoch", "seconds"),
    *("train_seconds", "flops", "share", "inference_share", "example_seconds"),
    *("parameters", "trainable", "contrast", "split", "same_state"),
    *("untuned", "tuned", "tuned_original", "inference_seconds", "skip"),
)
SCORED = ("rank", "best", "smoothness", "pearson", "spearman", "r_squared", "slope", "deviation")

_PLACES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("metric_by_epoch", "loss_by_epoch"), ("epoch",)),
    **dict.fromkeys(("same_state", "untuned", "tuned", "tuned_original"), ("state",)),
    **dict.fromkeys(("contrast", "split"), ("at",)),  # of the models that were compared
    "skip": ("block",),
}


def list_places(name: str) -> tuple[str, ...]:
    """Name what a measure has several values for in one trial, such as states.

    Scores also have a value for every checkpoint, if the grid scans several.
    """
    kind, _, key = name.rpartition(":")
    if (key in SCORES or key in RETIRED) and kind in ("", "rank"):
        of = SCORES[key].of if key in SCORES else "states"
        return (of.removesuffix("s"), "checkpoint")
    return ("checkpoint",) if kind == "deviation" else _PLACES.get(name, ())


# Points of a grid: planning takes some milliseconds for each, and running them far longer.
MOST_POINTS = 10_000


def label_value(value: Any) -> str:
    """Return the text by which tables show the value of an axis."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list():
            return " ".join(map(label_value, value))
        case Mapping():
            return str(value.get("name") or value.get("task") or value.get("data"))
    return str(value) or "none"


def _check_axis(values: Any) -> Any:
    """Raise if an axis has no values, or one of them twice."""
    if isinstance(values, Mapping) and values:
        return values
    if not isinstance(values, list) or not values:
        raise ValueError(f"an axis is a list of one or more values, got {values!r:.60}")
    if len(values) > MOST_POINTS:
        raise ValueError(
            f"an axis has at most {MOST_POINTS:,} values, got {len(values):,}; split it into "
            "studies"
        )
    for label, times in Counter(map(label_value, values)).items():
        if times > 1:
            raise ValueError(f"{label} appears twice; remove one")
    return values


def _check_names(value: Any, handler: Callable[[Any], Any]) -> Any:
    """Raise one line for anything but names; pydantic writes one for each of two types."""
    try:
        return handler(value)
    except ValidationError as error:
        raise ValueError(f"it is a name or a list of names, got {value!r:.60}") from error


def _check_measures(value: str | list[str]) -> str | list[str]:
    """Raise an error that names all measures if one of the names is none."""
    for name in list_names(value):
        kind, colon, key = name.rpartition(":")
        known = key in SCORES or key in RETIRED  # studies that were run show these too
        if name not in PLAIN and not (known and (not colon or kind in SCORED)):
            names = (*PLAIN, *(f"{each}:{{score}}" for each in SCORED))
            raise ValueError(str(make_unknown_error("measure", name, names)))
    return value


Axis = Annotated[list[Any] | dict[str, Any], BeforeValidator(_check_axis)]
Names = Annotated[str | list[str], WrapValidator(_check_names)]
Measures = Annotated[Names, AfterValidator(_check_measures)]


class Grid(Strict):
    """One verb, run with every combination of the axes."""

    verb: Literal["tune", "scan", "compare", "evaluate"] = "tune"
    of: str | None = None
    """A grid of tune, whose models are read."""
    axes: dict[str, Axis] = Field(default_factory=dict)
    """What varies: lists of values, or names with their values."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """What does not vary."""
    rates: dict[str, list[Rates]] = Field(default_factory=dict)
    """Learning rates by plan; `other` for plans that are not named."""
    pilot: bool = False
    """Try the learning rates with the first seed alone, and only the best with all."""

    @property
    def argument_names(self) -> set[str]:
        """The names of all arguments of its verb."""
        return {*self.axes, *self.settings}

    def label_values(self, axis: str) -> dict[str, Any]:
        """Return the values of an axis by the texts by which tables show them."""
        values = self.axes[axis]
        if isinstance(values, Mapping):
            return {str(name): value for name, value in values.items()}
        return {label_value(value): value for value in values}


class TableSpec(Strict):
    """A table: means over seeds, in the shape of the paper's."""

    title: str
    grid: str | None = None
    """By default all of them."""
    kind: Literal["means", "correlations"] = "means"
    """Means, or how the values of one axis (`rows`) go together over another (`columns`)."""
    value: Measures = "metric"
    """One or several measures."""
    rows: Names = "plan"
    """Axes, or `measure` or `state`."""
    columns: Names = "task"
    spread: Literal["deviation", "error", "double", "interval", "none"] = "deviation"
    where: dict[str, Any] = Field(default_factory=dict)
    """Cells with these values only."""

    @model_validator(mode="after")
    def _check_means(self) -> TableSpec:
        """Raise for means over several measures, or over the states of a model.

        And for places where a measure has no values: their table would be empty, or a diagonal.
        """
        if self.kind != "means":
            return self
        values = list_names(self.value)
        headed = {*list_names(self.rows), *list_names(self.columns)}
        if len(values) > 1 and "measure" not in headed:
            raise ValueError(
                "a mean over several measures says nothing; add measure to rows or columns"
            )
        for value in values:
            places = list_places(value)
            if stray := sorted(headed.intersection(PLACES) - {"at", *places}):
                raise ValueError(
                    f"{value} has no value per {stray[0]}; take it out of rows and columns"
                )
            if len(headed.intersection(AT)) > 1:
                raise ValueError(f"at and {places[0]} are the same; name one of them")
            if places and places[0] != "checkpoint" and not headed.intersection(AT):
                raise ValueError(
                    f"{value} has a value per {places[0]}; add {places[0]} to rows or columns"
                )
        return self


class DashedSpec(Strict):
    """What a figure shows in dashes beside its own, such as the metric with all blocks."""

    grid: str
    value: Measures = "metric"
    x: str | None = None
    """As of the figure; without it, levels across it."""
    color: str | None = None
    spread: Literal["interval", "double"] = "interval"


class FigureSpec(Strict):
    """A figure."""

    title: str
    kind: Literal["lines", "points", "strip", "density", "fit", "maps", "skips"] = "lines"
    grid: str | None = None
    value: Measures = "metric"
    """One or several measures: up."""
    x: str = "plan"
    """An axis, `state`, or a measure: to the right."""
    color: str | None = None
    """An axis, or `measure`."""
    panels: Names = "task"
    """An axis: a panel each."""
    spread: Literal["interval", "double"] = "interval"
    """Error bars: 95 %, or two standard deviations."""
    dashed: DashedSpec | None = None
    against: str | None = None
    """A plan: shown is the difference from it."""
    where: dict[str, Any] = Field(default_factory=dict)


class Recipe(Strict):
    """A study."""

    title: str
    source: str = ""
    """The paper, and where in it."""
    shows: dict[str, str] = Field(default_factory=dict)
    """Its figures and tables: `exact`, or how this differs from them."""
    cost: str = ""
    """What the whole takes, in words."""
    grids: dict[str, Grid] = Field(min_length=1)
    metric: dict[str, Metric] = Field(default_factory=dict)
    """By task, where it is not the task's own."""
    baseline: str | None = None
    """A plan (or other value of the first axis that varies) to compare with."""
    tables: list[TableSpec] = Field(default_factory=list)
    figures: list[FigureSpec] = Field(default_factory=list)
    small: dict[str, Any] = Field(default_factory=dict)
    """What the small variant changes, as --set does."""

    @property
    def credits(self) -> str:
        """The source, with its figures and tables."""
        return ": ".join(filter(None, [self.source, ", ".join(self.shows)]))


def list_names(written: str | Sequence[str]) -> list[str]:
    """Return one name or several as a list."""
    return [written] if isinstance(written, str) else list(written)
