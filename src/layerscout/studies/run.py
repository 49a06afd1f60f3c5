"""Studies: what a recipe asks for, as trials that are run once, stopped and gone on with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from layerscout.cache import DEFAULT_LIMIT
from layerscout.models import (
    resolve_device,
)
from layerscout.runtime import (
    make_output_folder,
    read_json,
    show_progress,
    write_files,
)
from layerscout.studies.backends import Backend, Local, Told
from layerscout.studies.grid import Cell, group_trials
from layerscout.studies.opening import check_any_runs, open_study
from layerscout.studies.planner import Planner
from layerscout.studies.recipe import Recipe
from layerscout.studies.store import Store
from layerscout.studies.trial import Trial


@dataclass(frozen=True)
class Study:
    """A study as far as it has come.

    Attributes:
        recipe: what was asked for.
        cells: the points of its grids.
        store: the records of their trials.
    """

    recipe: Recipe
    cells: tuple[Cell, ...]
    store: Store

    def as_dict(self) -> dict[str, Any]:
        """Give what `study.json` holds: the recipe, and which trial each point of a grid is."""
        return {
            "layerscout": version("layerscout"),
            "verb": "study",
            "recipe": self.recipe.model_dump(exclude_defaults=True),
            "cells": [
                {
                    "grid": cell.grid,
                    "values": dict(cell.values),
                    "trial": None if cell.trial is None else cell.trial.key,
                    **({} if cell.refused is None else {"refused": cell.refused}),
                }
                for cell in self.cells
            ],
        }


def study(
    recipe: Recipe | str | Path,
    output: str | Path,
    *,
    small: bool = False,
    changes: Mapping[str, Any] | None = None,
    data: str | Path | None = None,
    device: str = "auto",
    backend: Backend | None = None,
    retry_failed: bool = False,
    cache_limit: int = DEFAULT_LIMIT,
    progress: bool = True,
    told: Told | None = None,
) -> Study:
    """Run a grid of trials, each once, whatever recipe asks for it and however often it is stopped.

    Every trial leaves a record in the folder, named by all that the result depends on: contents of
    the model and the data, plan, settings and seed. What has a record is not run again. Several
    processes may work on one folder. A trial that fails is recorded with its traceback, and the
    others go on.

    Args:
        recipe: a `Recipe`, the name of a shipped one, or a YAML file.
        output: the folder of the study.
        small: the small variant of the recipe.
        changes: of the recipe, by path; see `layerscout.studies.recipe.changed`.
        data: a folder with the known tasks in folders of their names, such as `cola`; without
            it they come from the hub.
        device: as for `Encoder.load`; several, with commas between, get a process each.
        backend: where trials run, such as `Ray`; without one here, on `device`.
        retry_failed: run trials again that failed.
        cache_limit: bytes that the cache may hold once new states are added.
        progress: show a bar on the terminal.
        told: called for every trial that ended.

    Raises:
        InputError: if the recipe, a model or data cannot be used as asked, or a record cannot be
            written.
    """
    recipe, context = open_study(recipe, output, small, changes, data, cache_limit)
    if backend is None:
        backend = Local(tuple(device.split(",")))
        for name in backend.devices:
            resolve_device(name)
    context.store.tidy()
    known: dict[str, Trial] = {}
    ended = 0
    with show_progress(progress) as show, backend.ready():

        def tell(trial: Trial, record: Mapping[str, Any], before: bool) -> None:
            nonlocal ended
            ended += 1
            show("trials", ended, len(known), f"{ended:,} of {len(known):,}")
            if told is not None:
                told(trial, record, before)

        def run(trials: Sequence[Trial]) -> None:
            if not trials:
                return
            fresh = {trial.key: trial for trial in trials if trial.key not in known}
            known.update(fresh)
            if retry_failed:
                context.store.forget_failed(fresh)
            show("trials", ended, len(known), f"{ended:,} of {len(known):,}")
            written(on_the_way=True)
            backend.run(context, group_trials(fresh.values()), tell)

        def written(*, on_the_way: bool = False) -> Study:
            # On the way too, so that a report can be made at any time, unless there was more.
            cells = (cell for name in recipe.grids for cell in planner.cells.get(name, ()))
            found = Study(recipe, tuple(cells), context.store)
            path = make_output_folder(context.store.folder) / "study.json"
            content = found.as_dict()
            if not (on_the_way and _points(content) <= _points_in(path, content["recipe"])):
                write_files({path: json.dumps(content, allow_nan=False) + "\n"})
            return found

        planner = Planner(recipe, context, run)
        planner.work()
        check_any_runs(recipe, planner)
        return written()


def _points(content: Mapping[str, Any]) -> set[tuple[str, str | None]]:
    """Give the points of the grids of a `study.json`: the grid and the trial."""
    return {(cell["grid"], cell["trial"]) for cell in content["cells"]}


def _points_in(path: Path, recipe: Mapping[str, Any]) -> set[tuple[str, str | None]]:
    """Give those of a file, none if it is of another recipe or cannot be read."""
    try:
        content = read_json(path)
        return _points(content) if content["recipe"] == recipe else set()
    except (OSError, ValueError, LookupError, TypeError):
        return set()
