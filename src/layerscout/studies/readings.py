"""Readings: from a point of a grid of another verb to the trial that reads a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from layerscout.runtime import InputError
from layerscout.studies.context import TrialContext
from layerscout.studies.grid import Cell
from layerscout.studies.points import Point
from layerscout.studies.recipe import READ, Grid, label_value
from layerscout.studies.trial import DRAWING, Trial
from layerscout.studies.trial_arguments import make_trial


def make_untuned_scan(point: Point, context: TrialContext) -> Cell:
    """Make the cell of a scan of a model that no other grid has tuned."""
    arguments = dict(point.arguments)
    model, task, seed = (arguments.pop(name) for name in READ)
    make = partial(make_trial, context, "scan", (model,), task, arguments | {"seed": seed}, seed)
    return _make_cell(point.grid, point.values, make)


def group_sources(
    grid: Grid, tuned: Sequence[Cell]
) -> Iterator[tuple[Sequence[Cell], Mapping[str, Any]]]:
    """Give the tuned models that one trial reads, and the values that they have in common.

    `compare` reads all that differ in model and seed alone, the other verbs one at a time.
    """
    if grid.verb != "compare":
        yield from (([cell], cell.values) for cell in tuned)
        return
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in tuned:
        groups.setdefault(cell.without("model", "seed", "learning_rate"), []).append(cell)
    yield from ((cells, dict(shared)) for shared, cells in groups.items())


def make_reading(
    point: Point,
    grid: Grid,
    models: Sequence[Cell],
    shared: Mapping[str, Any],
    context: TrialContext,
) -> Cell:
    """Make the cell that reads tuned models, with the examples that they were tuned on.

    Args:
        point: a point of `grid`.
        grid: the grid that reads.
        models: the cells of the tuned models.
        shared: the values that they have in common.
        context: loads models and tasks.
    """
    given = {name: value for name, value in point.arguments.items() if name not in READ}
    trials = [cell.trial for cell in models if cell.trial is not None]
    context.remember(trials)
    first = trials[0]
    epochs, original = given.pop("checkpoints", None), given.pop("original", False)
    sources: list[Any] = [{"trial": trial.key} for trial in trials]
    if epochs is not None:  # of one training, with its start in the first place
        sources = [first.models[0], *({"trial": first.key, "epoch": e} for e in epochs)]
    originals = dict.fromkeys(trial.models[0] for trial in trials) if original else ()
    if grid.verb == "evaluate":
        # Of those that the model was tuned on, and only for heads: where none is tuned, a number
        # that a recipe sets for all of its grids (as Table 10's small variant) does not apply.
        examples = given.pop("examples", None)
        if examples is not None and (original or given.get("tune_heads")):
            given["head_examples"] = examples
    taken = [*DRAWING, "max_length", *(["metric"] if grid.verb == "evaluate" else [])]
    arguments = {name: first.arguments[name] for name in taken if name in first.arguments}
    values = {**shared, **{n: v for n, v in point.values.items() if n in grid.axes}}
    if grid.verb == "compare":
        values["models"] = [
            *map(_name_model, models),
            *(f"model {label_value(one)}, untuned" for one in originals),
        ]
    models_read = (*sources, *originals)
    make = partial(make_trial, context, grid.verb, models_read, first.task, arguments | given, 0)
    return _make_cell(point.grid, values, make)


def _make_cell(grid: str, values: Mapping[str, Any], make: Callable[[], Trial]) -> Cell:
    """Make a cell with its trial, or one that says why it cannot be run."""
    try:
        return Cell(grid, values, make())
    except InputError as error:
        return Cell(grid, values, None, str(error))


def _name_model(cell: Cell) -> str:
    named = (f"{name} {value}" for name, value in cell.values.items() if name in ("model", "seed"))
    return ", ".join(named)
