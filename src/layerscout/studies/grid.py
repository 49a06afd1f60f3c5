"""Cells: the points of a recipe's grids."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from layerscout.plans import (
    Plan,
)
from layerscout.studies.summaries import list_axes
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
        """Return the values by which the cell differs from others, without these axes."""
        return list_axes(self.values, *axes)


def list_trials(cells: Iterable[Cell]) -> list[Trial]:
    """List the trials of the cells that have one."""
    return [cell.trial for cell in cells if cell.trial is not None]


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
