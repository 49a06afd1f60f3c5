"""Studies: the trials that a recipe asks for, each run once, also across stops."""

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
    InputError,
    Show,
    check_output_folder,
    make_output_folder,
    read_json,
    show_progress,
    write_files,
)
from layerscout.studies.backends import Backend, Local, OnTrial
from layerscout.studies.conclusions import conclude, load_study
from layerscout.studies.context import TrialContext
from layerscout.studies.grid import Cell, group_trials
from layerscout.studies.loading import load_recipe
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
        data: the folder of the known tasks, if one was given.
    """

    recipe: Recipe
    cells: tuple[Cell, ...]
    store: Store
    data: Path | None = None

    def as_dict(self) -> dict[str, Any]:
        """Give what `study.json` holds: the recipe, and which trial each point of a grid is.

        Once the study has ended, that also holds what it shows; see `Conclusion`.
        """
        return {
            "layerscout": version("layerscout"),
            "verb": "study",
            "recipe": self.recipe.model_dump(exclude_defaults=True),
            **({} if self.data is None else {"data": str(self.data)}),
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
    progress: bool | Show = True,
    on_trial: OnTrial | None = None,
) -> Study:
    """Run the trials of a recipe, each once, also where it is stopped and started again.

    Every trial leaves a record in the folder, named by all that the result depends on: contents of
    the model and the data, plan, settings and seed. What has a record is not run again. Several
    processes may work on one folder. A trial that fails is recorded with its traceback, and the
    others continue.

    Args:
        recipe: a `Recipe`, the name of a shipped one, or a YAML file.
        output: the folder of the study.
        small: the small variant of the recipe.
        changes: of the recipe, by path; see `layerscout.studies.loading.apply_change`.
        data: a folder with the known tasks in folders of their names, such as `cola`; without
            it they come from the hub.
        device: as for `Encoder.load`; several, separated by commas, get a process each.
        backend: where trials run, such as `Ray`; by default on this machine, on `device`.
        retry_failed: run trials that failed again.
        cache_limit: bytes that the cache may hold once new states are added.
        progress: show a bar on the terminal; or a function, which is called in its place with the
            stage of the work, how much of it is done, of how much, and a note.
        on_trial: called for every trial that ends, with its record, and whether that was there
            before.

    Raises:
        InputError: if the recipe, a model or data cannot be used as asked, or a record cannot be
            written.
    """
    recipe, context = open_study(recipe, output, small, changes, data, cache_limit=cache_limit)
    if backend is None:
        backend = Local(tuple(device.split(",")))
        for name in backend.devices:
            resolve_device(name)
    context.store.tidy()
    known: dict[str, Trial] = {}
    ended = 0
    with show_progress(progress) as show, backend.ready():

        def count(trial: Trial, record: Mapping[str, Any], before: bool) -> None:
            nonlocal ended
            ended += 1
            show("trials", ended, len(known), f"{ended:,} of {len(known):,}")
            if on_trial is not None:
                on_trial(trial, record, before)

        def run(trials: Sequence[Trial]) -> None:
            if not trials:
                return
            fresh = {trial.key: trial for trial in trials if trial.key not in known}
            known.update(fresh)
            if retry_failed:
                context.store.forget_failed(fresh)
            show("trials", ended, len(known), f"{ended:,} of {len(known):,}")
            # Before the trials too, so that a report can be made at any time.
            _write_study(make_study(), on_the_way=True)
            backend.run(context, group_trials(fresh.values()), count)

        def make_study() -> Study:
            return Study(recipe, planner.list_cells(), context.store, context.data)

        planner = Planner(recipe, context, run)
        planner.work_through()
        found = make_study()
        _write_study(found)
        return found


def open_study(
    recipe: Recipe | str | Path,
    output: str | Path,
    small: bool,
    changes: Mapping[str, Any] | None,
    data: str | Path | None,
    *,
    cache_limit: int = DEFAULT_LIMIT,
    pretend: bool = False,
) -> tuple[Recipe, TrialContext]:
    """Load a recipe and make the context of its trials; see `study` and `TrialContext`."""
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe, small=small, changes=changes)
    folder = Path(output).expanduser()
    check_output_folder(folder)
    place = None if data is None else Path(data).expanduser()
    if place is not None and not place.is_dir():
        raise InputError(f"`data` must be a folder with tasks in it, got {place}")
    return recipe, TrialContext(Store(folder), place, cache_limit=cache_limit, pretend=pretend)


def _write_study(study: Study, *, on_the_way: bool = False) -> None:
    """Write `study.json`, at the end with what the study shows.

    On the way, not over one that has more trials of the same recipe.
    """
    path = make_output_folder(study.store.folder) / "study.json"
    content = study.as_dict()
    if not on_the_way:
        folder = study.store.folder
        content |= conclude(load_study(content, folder), str(folder)).as_dict()
    if not (on_the_way and _list_points(content) <= _read_points(path, content["recipe"])):
        write_files({path: json.dumps(content, allow_nan=False) + "\n"})


def _list_points(content: Mapping[str, Any]) -> set[tuple[str, str | None]]:
    """List the points of a `study.json`: the grid and the trial of each."""
    return {(cell["grid"], cell["trial"]) for cell in content["cells"]}


def _read_points(path: Path, recipe: Mapping[str, Any]) -> set[tuple[str, str | None]]:
    """Read the points of a file; none if it has another recipe or cannot be read."""
    try:
        content = read_json(path)
        return _list_points(content) if content["recipe"] == recipe else set()
    except (OSError, ValueError, LookupError, TypeError):
        return set()
