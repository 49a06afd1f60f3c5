"""Cells: the points of a recipe's grids."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layerscout.plans import (
    Plan,
)
from layerscout.studies.recipe import DERIVED, Grid
from layerscout.studies.summaries import choose_rates, get_metric
from layerscout.studies.trial import DRAWING, Trial


@dataclass(frozen=True)
class Cell:
    """A point of a grid.

    Attributes:
        grid: its name.
        values: what tables call the value of each axis; and what follows from the value of one,
            such as the number of blocks that an edit keeps.
        trial: what is run for it; several points may come to the same.
        refused: why nothing can be run for it.
    """

    grid: str
    values: Mapping[str, Any]
    trial: Trial | None
    refused: str | None = None

    def without(self, *axes: str) -> tuple[Any, ...]:
        """Give what tells the cell from others but for these axes."""
        left = (*axes, *DERIVED)
        return tuple((name, value) for name, value in self.values.items() if name not in left)


@dataclass(frozen=True)
class Point:
    """A combination of the values of axes, with the arguments that it stands for."""

    grid: str
    values: Mapping[str, Any]
    arguments: Mapping[str, Any]
    number: str
    refused: str | None = None


def trials_of(cells: Iterable[Cell]) -> list[Trial]:
    """List the trials of the cells that have one."""
    return [cell.trial for cell in cells if cell.trial is not None]


def best_cells(
    cells: Iterable[Cell], read: Callable[[str], Mapping[str, Any] | None]
) -> list[Cell]:
    """Give the cells of tune with the best learning rate, where any came through."""
    known = [
        (
            cell,
            cell.without("seed", "learning_rate"),
            cell.values["learning_rate"],
            get_metric(record),
        )
        for cell in cells
        if cell.trial is not None
        for record in [read(cell.trial.key)]
    ]
    settled = {rest for _, rest, _, value in known if value is not None}
    return list(itertools.chain(*choose_rates(point for point in known if point[1] in settled)))


def group_sources(
    grid: Grid, tuned: Sequence[Cell]
) -> Iterator[tuple[Sequence[Cell], Mapping[str, Any]]]:
    """Give the tuned models that one trial reads: all that differ in model and seed, or one."""
    if grid.verb != "compare":
        for cell in tuned:
            yield [cell], cell.values
        return
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in tuned:
        groups.setdefault(cell.without("model", "seed", "learning_rate"), []).append(cell)
    for shared, cells in groups.items():
        yield cells, dict(shared)


def group_trials(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Put trials that read the same states beside each other: a group each."""

    def shared(trial: Trial) -> str:
        drawing = [trial.arguments.get(name) for name in DRAWING]
        plan = trial.arguments.get("plan")
        cut = None if plan is None else (not plan["embeddings"], Plan.from_dict(plan).cut)
        edits = trial.arguments.get("edits")
        return json.dumps([list(trial.contents), drawing, edits, cut], default=str)

    groups: dict[str, list[Trial]] = {}
    for trial in sorted(trials, key=lambda one: json.dumps(list(one.contents))):
        whole = trial.verb == "tune" and trial.arguments["plan"]["embeddings"]
        groups.setdefault(trial.key if whole else shared(trial), []).append(trial)
    return list(groups.values())
