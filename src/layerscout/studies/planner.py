"""The planner: turns the grids of a recipe into trials, and runs those that others depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from layerscout.runtime import InputError
from layerscout.studies.context import TrialContext
from layerscout.studies.grid import Cell, list_trials
from layerscout.studies.points import Point, expand_points
from layerscout.studies.readings import group_sources, make_reading, make_untuned_scan
from layerscout.studies.recipe import Grid, Recipe
from layerscout.studies.summaries import choose_rates, get_metric
from layerscout.studies.trial import Trial
from layerscout.studies.tunings import make_scan, make_tunings
from layerscout.tuning import needs_scan


@dataclass
class Planner:
    """Turns the grids of a recipe into cells, and has their trials run.

    Attributes:
        recipe: what is asked for.
        context: loads models and tasks.
        run: runs trials, or only takes note of them.
        cells: what has come of the grids so far, by their names.
    """

    recipe: Recipe
    context: TrialContext
    run: Callable[[Sequence[Trial]], None]
    cells: dict[str, list[Cell]] = field(default_factory=dict)

    def work_through(self) -> None:
        """Plan and run all grids, those of tune first.

        Raises:
            InputError: if no trial can be run.
        """
        read = {grid.of for grid in self.recipe.grids.values()}
        # Grids whose models are read go first: a trial that two grids share runs once, and must
        # keep its model then.
        grids = sorted(
            self.recipe.grids.items(), key=lambda one: (one[1].verb != "tune", one[0] not in read)
        )
        for name, grid in grids:
            if grid.verb == "tune":
                self._run_tunings(name, grid, keep=name in read)
            else:
                self._run_readings(name, grid)
        self._check_any_runs()

    def list_cells(self) -> tuple[Cell, ...]:
        """List the cells so far, in the order of the recipe's grids."""
        return tuple(cell for name in self.recipe.grids for cell in self.cells.get(name, ()))

    def _check_any_runs(self) -> None:
        cells = self.list_cells()
        reasons = dict.fromkeys(cell.refused for cell in cells if cell.refused is not None)
        if reasons and not list_trials(cells):
            raise InputError(f"nothing of {self.recipe.title!r} can be run: {'; '.join(reasons)}")

    # --- Grids of tune ---------------------------------------------------------------------------

    def _run_tunings(self, name: str, grid: Grid, *, keep: bool) -> None:
        points = [self._add_scan(point) for point in expand_points(name, grid, self.context)]
        self.run([point.scan for point in points if point.scan is not None])
        cells = [
            cell
            for point in points
            for cell in make_tunings(point, grid, self.recipe.metric, self.context, keep=keep)
        ]
        if grid.pilot:
            self._run_pilot(name, cells)
        else:
            self._run_cells(name, cells)

    def _add_scan(self, point: Point) -> Point:
        """Add the scan that the plan of a point depends on, if it does."""
        if point.refused is not None or not needs_scan(point.arguments["plan"]):
            return point
        try:
            return replace(point, scan=make_scan(point, self.context))
        except InputError as error:
            return replace(point, refused=str(error))

    def _run_cells(self, name: str, cells: Sequence[Cell]) -> None:
        self.cells[name] = [*cells]
        self.run(list_trials(cells))

    def _run_pilot(self, name: str, cells: Sequence[Cell]) -> None:
        """Run all rates with the first seed, and the best of them with the other seeds."""
        first = cells[0].values["seed"] if cells else None
        tried = [cell for cell in cells if cell.values["seed"] == first or cell.trial is None]
        self._run_cells(name, tried)
        chosen = self.select_rates(tried)
        best = {cell.without("seed") for cell in chosen}
        # Where all rates failed with the first seed, all are tried with the others.
        settled = set(map(_name_sweep, chosen))
        best |= {cell.without("seed") for cell in tried if _name_sweep(cell) not in settled}
        others = [cell for cell in cells if cell not in tried and cell.without("seed") in best]
        self.cells[name] = tried + others
        self.run(list_trials(others))

    # --- Grids of other verbs --------------------------------------------------------------------

    def _run_readings(self, name: str, grid: Grid) -> None:
        points = list(expand_points(name, grid, self.context))
        if grid.of is None:
            cells = [make_untuned_scan(point, self.context) for point in points]
        else:
            sources = list(group_sources(grid, self._select_tuned(grid.of)))
            cells = [
                make_reading(point, grid, models, shared, self.context)
                for point in points
                for models, shared in sources
            ]
        self._run_cells(name, cells)

    def _select_tuned(self, name: str) -> list[Cell]:
        """The cells of a grid whose models can be read: of the best learning rate, and done."""
        cells = self.select_rates(self.cells[name])
        if self.context.pretend:
            return cells
        read = self.context.store.read
        records = [(cell, read(trial.key)) for cell in cells for trial in list_trials([cell])]
        return [cell for cell, record in records if record and record["status"] == "done"]

    def select_rates(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells with the best learning rate, by the mean over the finished seeds.

        Left out is what no seed has finished with any rate; in an estimate the first rate stands.
        """
        read = self.context.store.read
        tried = [
            (_name_sweep(cell), cell, get_metric(read(cell.trial.key)))
            for cell in cells
            if cell.trial is not None
        ]
        settled = {sweep for sweep, _, metric in tried if metric is not None}
        known = [one for one in tried if self.context.pretend or one[0] in settled]
        rates = [(sweep, cell.values["learning_rate"], metric) for sweep, cell, metric in known]
        return [known[number][1] for number in choose_rates(rates)]


def _name_sweep(cell: Cell) -> tuple[Any, ...]:
    """Name the point of which a cell has one learning rate and one seed."""
    return cell.without("seed", "learning_rate")
