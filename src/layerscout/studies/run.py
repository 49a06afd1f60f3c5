"""Studies: the trials that a recipe asks for, each run once, also across stops."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

from layerscout.errors import InputError
from layerscout.files import check_output_folder, make_output_folder, read_json, write_files
from layerscout.progress import Show, show_progress
from layerscout.states import DEFAULT_LIMIT
from layerscout.studies.cells import (
    Cell,
    add_scan,
    expand_grid,
    group_sources,
    group_trials,
    list_trials,
    make_reading,
    make_tunings,
    make_untuned_scan,
)
from layerscout.studies.conclusions import conclude, load_study
from layerscout.studies.context import TrialContext
from layerscout.studies.loading import load_recipe
from layerscout.studies.recipe import Grid, Recipe
from layerscout.studies.runners import Backend, Local, OnTrial
from layerscout.studies.summaries import choose_rates, get_metric
from layerscout.studies.trial import Store, Trial


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
        """Return what `study.json` holds: the recipe, and which trial each point of a grid is.

        Once the study has ended, that also holds what it shows, as `conclusion`.
        """
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
        changes: of the recipe, by path; see `layerscout.studies.apply_change`.
        data: a folder with the known tasks in folders of their names, such as `cola`; without
            it they come from the hub.
        device: as for `Encoder.load`.
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
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe, small=small, changes=changes)
    context = open_study(output, data, cache_limit=cache_limit)
    backend = backend or Local(device)
    planner = Planner(recipe, context)
    context.store.remove_stale_temporaries()
    known: dict[str, Trial] = {}
    ended: list[str] = []

    def note_end(trial: Trial, record: Mapping[str, Any], before: bool) -> None:
        ended.append(trial.key)
        show_count()
        if on_trial is not None:
            on_trial(trial, record, before)

    def show_count() -> None:
        show("trials", len(ended), len(known), f"{len(ended):,} of {len(known):,}")

    def show_within(stage: str, done: float, total: float, note: str = "") -> None:
        share = f" {done / total:.0%}" if total else ""
        count = f"{len(ended):,} of {len(known):,}; {stage}{share}"
        show("trials", len(ended), len(known), count)

    context = replace(context, progress=show_within)
    with backend.ready(), show_progress(progress) as show:
        for trials in planner.plan():
            fresh = {trial.key: trial for trial in trials if trial.key not in known}
            known |= fresh
            if retry_failed:
                context.store.forget_failed(fresh)
            show_count()
            save_progress(planner.make_study())
            backend.run(context, group_trials(fresh.values()), note_end)
        finished = planner.make_study()
        content, folder = finished.as_dict(), context.store.folder
        shown = conclude(load_study(content, folder))
        _write_content(folder, content | {"conclusion": shown})
    return finished


def open_study(output: str | Path, data: str | Path | None, **options: Any) -> TrialContext:
    """Make the context of the trials of a study; see `study` and `TrialContext`."""
    folder = Path(output).expanduser()
    check_output_folder(folder)
    place = None if data is None else Path(data).expanduser()
    if place is not None and not place.is_dir():
        raise InputError(f"`data` must be a folder with tasks in it, got {place}")
    return TrialContext(Store(folder), place, **options)


def save_progress(study: Study) -> None:
    """Write `study.json` before trials run, so that a report can be made at any time.

    A file of the same recipe that already has these points stays, with what the study shows.
    """
    content = study.as_dict()
    try:
        earlier = read_json(study.store.folder / "study.json")
        if earlier["recipe"] == content["recipe"] and _list_points(content) <= _list_points(
            earlier
        ):
            return
    except (OSError, ValueError, LookupError, TypeError):
        pass  # there is none, or one that cannot be read
    _write_content(study.store.folder, content)


def _list_points(content: Mapping[str, Any]) -> set[tuple[str, str | None]]:
    """List the points of a `study.json`: the grid and the trial of each."""
    return {(cell["grid"], cell["trial"]) for cell in content["cells"]}


def _write_content(folder: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, allow_nan=False) + "\n"
    write_files({make_output_folder(folder) / "study.json": text})


@dataclass
class Planner:
    """Turns the grids of a recipe into cells, and names the trials to run.

    Attributes:
        recipe: what is studied.
        context: loads models and tasks.
        cells: what has come of the grids so far, by their names.
    """

    recipe: Recipe
    context: TrialContext
    cells: dict[str, list[Cell]] = field(default_factory=dict)

    def plan(self) -> Iterator[list[Trial]]:
        """Plan all grids, those of tune first; yield the trials to run before planning goes on.

        Raises:
            InputError: if no trial can be run.
        """
        read = {grid.of for grid in self.recipe.grids.values()}
        # Grids whose models are read go first: a trial that two grids share runs once, and must
        # keep its model then.
        grids = sorted(
            self.recipe.grids.items(),
            key=lambda item: (item[1].verb != "tune", item[0] not in read),
        )
        for name, grid in grids:
            if grid.verb == "tune":
                batches = self._plan_tunings(name, grid, keep=name in read)
            else:
                batches = self._plan_readings(name, grid)
            yield from filter(None, batches)
        cells = self.list_cells()
        reasons = dict.fromkeys(cell.refused for cell in cells if cell.refused is not None)
        if reasons and not list_trials(cells):
            raise InputError(f"nothing of {self.recipe.title!r} can be run: {'; '.join(reasons)}")

    def list_cells(self) -> tuple[Cell, ...]:
        """List the cells so far, in the order of the recipe's grids."""
        return tuple(cell for name in self.recipe.grids for cell in self.cells.get(name, ()))

    def make_study(self) -> Study:
        """Return the study as far as it is planned."""
        return Study(self.recipe, self.list_cells(), self.context.store)

    def _plan_tunings(self, name: str, grid: Grid, *, keep: bool) -> Iterator[list[Trial]]:
        context, metrics = self.context, self.recipe.metric
        points = [p for cell in expand_grid(name, grid, context) for p in add_scan(cell, context)]
        yield [point.scan for point in points if point.scan is not None]
        cells = [
            cell
            for point in points
            for cell in make_tunings(point, grid, metrics, context, keep=keep)
        ]
        if not grid.pilot:
            self.cells[name] = cells
            yield list_trials(cells)
            return
        # All rates with the first seed, and the best of them with the other seeds.
        first = cells[0].values["seed"] if cells else None
        tried = [cell for cell in cells if cell.values["seed"] == first or cell.trial is None]
        self.cells[name] = tried
        yield list_trials(tried)
        chosen = self._select_rates(tried)
        best = {cell.without("seed") for cell in chosen}
        # Where all rates failed with the first seed, all are tried with the others.
        settled = set(map(_name_point, chosen))
        best |= {cell.without("seed") for cell in tried if _name_point(cell) not in settled}
        others = [cell for cell in cells if cell not in tried and cell.without("seed") in best]
        self.cells[name] = tried + others
        yield list_trials(others)

    def _plan_readings(self, name: str, grid: Grid) -> Iterator[list[Trial]]:
        points = list(expand_grid(name, grid, self.context))
        if grid.of is None:
            made = [make_untuned_scan(point, self.context) for point in points]
        else:
            sources = group_sources(grid, self._select_tuned(grid.of))
            made = [
                make_reading(point, grid, models, shared, self.context)
                for point in points
                for models, shared in sources
            ]
        self.cells[name] = list(chain(*made))
        yield list_trials(self.cells[name])

    def _select_tuned(self, name: str) -> list[Cell]:
        """Return the cells whose models can be read: of the best learning rate, and done."""
        cells = self._select_rates(self.cells[name])
        if self.context.pretend:
            return cells
        read = self.context.store.read
        records = [(cell, read(trial.key)) for cell in cells for trial in list_trials([cell])]
        return [cell for cell, record in records if record and record["status"] == "done"]

    def _select_rates(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells with the best learning rate, by the mean over the finished seeds.

        Left out is what no seed has finished with any rate; in an estimate the first rate stands.
        """
        read = self.context.store.read
        tried = [
            (_name_point(cell), cell, get_metric(read(cell.trial.key)))
            for cell in cells
            if cell.trial is not None
        ]
        settled = {point for point, _, metric in tried if metric is not None}
        known = [trial for trial in tried if self.context.pretend or trial[0] in settled]
        rates = [(point, cell.values["learning_rate"], metric) for point, cell, metric in known]
        return [known[number][1] for number in choose_rates(rates)]


def _name_point(cell: Cell) -> tuple[Any, ...]:
    """Name the point of which a cell has one learning rate and one seed."""
    return cell.without("seed", "learning_rate")
