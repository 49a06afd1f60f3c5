"""Points: the combinations of the values of a grid's axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from layerscout.runtime import InputError
from layerscout.studies.context import TrialContext
from layerscout.studies.recipe import MOST_POINTS, Grid, label_value
from layerscout.studies.sweeps import expand_sweep
from layerscout.studies.trial import Trial


@dataclass(frozen=True)
class Point:
    """A combination of the values of axes, with the arguments that it stands for.

    Attributes:
        grid: the name of the grid.
        values: what tables show for each axis.
        arguments: values of the axes and settings, for the verb.
        scan: the scan that its plan depends on.
        refused: why it cannot be run.
    """

    grid: str
    values: Mapping[str, Any]
    arguments: Mapping[str, Any]
    scan: Trial | None = None
    refused: str | None = None


def expand_points(name: str, grid: Grid, context: TrialContext) -> Iterator[Point]:
    """Give every combination of the axes but the learning rate, sweeps written out."""
    axes = {axis: grid.label_values(axis) for axis in grid.axes}
    count = math.prod(map(len, axes.values()))
    axes.pop("learning_rate", None)
    if count > MOST_POINTS:
        raise InputError(
            f"a grid has at most {MOST_POINTS:,} points, {name} has "
            f"{count:,}; split it into studies"
        )
    for labels in itertools.product(*axes.values()):
        values: dict[str, Any] = dict(zip(axes, labels, strict=True))
        given = {axis: axes[axis][label] for axis, label in values.items()}
        arguments = dict(grid.settings) | {k: v for k, v in given.items() if v is not None}
        arguments.setdefault("seed", 0)
        if isinstance(arguments.get("scores"), str):
            arguments["scores"] = arguments["scores"].split(",")
        values.setdefault("model", label_value(arguments.get("model")))
        values.setdefault("task", label_value(arguments.get("task")))
        values.setdefault("seed", str(arguments["seed"]))
        point = Point(name, values, arguments)
        if grid.verb == "tune" and "edits" in arguments:
            yield from _expand_edits(point, context, seeded="seed" in (*grid.axes, *grid.settings))
        else:
            yield point


def _expand_edits(point: Point, context: TrialContext, *, seeded: bool) -> Iterator[Point]:
    """Give a point for each edit that a sweep stands for on the model of this one.

    Unless seeds are given, every order of blocks has its own, and so its own examples: "we randomly
    sample a different dataset for each trial index" (Tamkin et al. 2020, App. C).
    """
    try:
        blocks = context.shape(point.arguments["model"]).blocks
        edits = expand_sweep(point.arguments["edits"], blocks)
    except InputError as error:
        yield replace(point, refused=str(error))
        return
    for edit, more in edits.items():
        values = {**point.values, "edits": edit or "none", **more} if more else point.values
        arguments = {**point.arguments, "edits": edit}
        if "permutation" in more and not seeded:
            arguments["seed"] = more["permutation"]
            values = {**values, "seed": str(more["permutation"])}
        yield replace(point, values=values, arguments=arguments)
