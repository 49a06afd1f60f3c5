"""Cells: the points of a recipe's grids."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from layerscout.plans import (
    Plan,
)
from layerscout.studies.recipe import DERIVED
from layerscout.studies.summaries import choose_rates, get_metric
from layerscout.studies.trial import DRAWING, Trial


@dataclass(frozen=True)
class Cell:
    """A point of a grid.

    Attributes:
        grid: the name of the grid.
        values: what tables show for each axis; and what follows from the value of one, such as the
            number of blocks that an edit keeps.
        trial: what is run for it; several points may share one.
        refused: why nothing can be run for it.
    """

    grid: str
    values: Mapping[str, Any]
    trial: Trial | None
    refused: str | None = None

    def without(self, *axes: str) -> tuple[Any, ...]:
        """Give the values by which the cell differs from others, without these axes."""
        left = (*axes, *DERIVED)
        return tuple((name, value) for name, value in self.values.items() if name not in left)


def list_trials(cells: Iterable[Cell]) -> list[Trial]:
    """List the trials of the cells that have one."""
    return [cell.trial for cell in cells if cell.trial is not None]


def select_best_cells(
    cells: Iterable[Cell], read: Callable[[str], Mapping[str, Any] | None]
) -> list[Cell]:
    """Give the cells of tune with the best learning rate, where any succeeded."""
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


def group_trials(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Group trials that read the same states; a group runs in one place, one after another."""
    groups: dict[str, list[Trial]] = {}
    for trial in sorted(trials, key=lambda one: json.dumps(list(one.contents))):
        groups.setdefault(_name_states(trial), []).append(trial)
    return list(groups.values())


def _name_states(trial: Trial) -> str:
    """Name the states that a trial reads: a model's on some examples, up to a cut."""
    plan = trial.arguments.get("plan")
    if trial.verb == "tune" and trial.arguments["plan"]["embeddings"]:
        return trial.key  # which trains all, so shares none
    cut = None if plan is None else (not plan["embeddings"], Plan.from_dict(plan).cut)
    drawing = [trial.arguments.get(name) for name in DRAWING]
    edits = trial.arguments.get("edits")
    return json.dumps([list(trial.contents), drawing, edits, cut], default=str)
