"""From the grids of a recipe to trials."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from layerscout.data import (
    check_metric,
)
from layerscout.plans import (
    Plan,
    applied,
    arrange,
    check_family,
    check_tied,
    check_tunes_blocks,
    check_untied,
    default_learning_rate,
    make_edits,
    make_method,
    make_plan,
)
from layerscout.runtime import (
    InputError,
)
from layerscout.scores import SCORES, usual_scores
from layerscout.studies.context import TrialContext
from layerscout.studies.grid import Cell, Point, best_cells, group_sources, trials_of
from layerscout.studies.recipe import Grid, Recipe, label_value
from layerscout.studies.sweeps import expand_sweep
from layerscout.studies.trial import DRAWING, Trial
from layerscout.studies.trial_arguments import (
    check_readable,
    choose_rates,
    normalise_drawing,
    written_out,
)
from layerscout.tuning import needs_scan


@dataclass
class Planner:
    """Turns the grids of a recipe into cells, running what later ones depend on.

    Attributes:
        recipe: what is asked for.
        context: loads what trials are made of.
        run: runs trials, or pretends to.
        cells: what has come of the grids so far, by their names.
        drawn: which numbers of examples are known to be there.
    """

    recipe: Recipe
    context: TrialContext
    run: Callable[[Sequence[Trial]], None]
    cells: dict[str, list[Cell]] = field(default_factory=dict)
    drawn: set[str] = field(default_factory=set)

    def work(self) -> None:
        """Go through all grids, those of tune first."""
        read = {grid.of for grid in self.recipe.grids.values()}
        # Those whose models are read go first, so that no other grid runs their trials without.
        grids = sorted(
            self.recipe.grids.items(), key=lambda one: (one[1].verb != "tune", one[0] not in read)
        )
        for name, grid in grids:
            kept = name in read
            cells = self._tuned(name, grid, kept) if grid.verb == "tune" else self._read(name, grid)
            self.cells[name] = cells

    # --- Grids of tune ---------------------------------------------------------------------------

    def _tuned(self, name: str, grid: Grid, keep: bool) -> list[Cell]:
        points = list(self._points(name, grid))
        scans = {}
        for place, point in enumerate(points):
            if point.refused is None and needs_scan(point.arguments["plan"]):
                try:
                    scans[point.number] = self._scan_of(point)
                except InputError as error:
                    points[place] = replace(point, refused=str(error))
        self.run(list(scans.values()))
        found: list[Cell] = []
        for point in points:
            found += self._trials(point, grid, scans.get(point.number), keep)
        self.cells[name] = found
        if not grid.pilot:
            self.run(trials_of(found))
            return found
        first = found[0].values["seed"] if found else None
        tried = [cell for cell in found if cell.values["seed"] == first or cell.trial is None]
        self.cells[name] = tried
        self.run(trials_of(tried))
        best = {cell.without("seed") for cell in self.selected(tried)}
        failed = {cell.without("seed", "learning_rate") for cell in tried} - {
            cell.without("seed", "learning_rate") for cell in self.selected(tried)
        }
        best |= {c.without("seed") for c in tried if c.without("seed", "learning_rate") in failed}
        others = [c for c in found if c not in tried and c.without("seed") in best]
        self.cells[name] = tried + others
        self.run(trials_of(others))
        return tried + others

    def _points(self, name: str, grid: Grid) -> Iterator[Point]:
        """Give every combination of the axes but the learning rate, sweeps written out."""
        axes = {axis: grid.label_values(axis) for axis in grid.axes if axis != "learning_rate"}
        for number, names in enumerate(itertools.product(*axes.values())):
            values: dict[str, Any] = dict(zip(axes, names, strict=True))
            given = {axis: axes[axis][label] for axis, label in values.items()}
            arguments = dict(grid.settings) | {k: v for k, v in given.items() if v is not None}
            arguments.setdefault("seed", 0)
            if isinstance(arguments.get("scores"), str):
                arguments["scores"] = arguments["scores"].split(",")
            values.setdefault("model", label_value(arguments.get("model")))
            values.setdefault("task", label_value(arguments.get("task")))
            values.setdefault("seed", str(arguments["seed"]))
            if grid.verb != "tune" or "edits" not in arguments:
                yield Point(name, values, arguments, f"{number}")
                continue
            try:
                blocks = self.context.shape(arguments["model"]).blocks
                edits = expand_sweep(arguments["edits"], blocks)
            except InputError as error:
                yield Point(name, values, arguments, f"{number}", str(error))
                continue
            for part, (edit, more) in enumerate(edits.items()):
                found = values | {"edits": edit or "none"} | more if more else values
                yield Point(name, found, arguments | {"edits": edit}, f"{number}.{part}")

    def _scan_of(self, point: Point) -> Trial:
        """Give the scan that a plan goes by: all of the trial's training examples."""
        given = point.arguments
        score, usual = self._scores(given)
        scores = [score] if SCORES[score].of == "states" else [score, usual]
        kept = (*DRAWING, "seed", "max_length", "precision")
        arguments = {name: given[name] for name in kept if name in given} | {"scores": scores}
        if "scan_examples" in given:
            for name in ("per_class", "balanced", "examples"):
                arguments.pop(name, None)
            arguments["examples"] = given["scan_examples"]
        if SCORES[score].of == "states":
            arguments.pop("seed", None)  # which these scores do not depend on
        return self._trial("scan", (given["model"],), given["task"], arguments, given["seed"])

    def _scores(self, given: Mapping[str, Any]) -> tuple[str, str]:
        """Name the score that plans go by, and that of states which stands in for one of blocks."""
        numbers = self.context.task(given["task"]).kind == "regression"
        usual = usual_scores(numbers=numbers)[0]
        return given.get("score", usual), usual

    def _trials(self, point: Point, grid: Grid, scanned: Trial | None, keep: bool) -> list[Cell]:
        """Settle the plan and the learning rates of a point."""
        refused = partial(Cell, point.grid, point.values, None)
        if point.refused is not None:
            return [refused(point.refused)]
        given = dict(point.arguments)
        try:
            task = self.context.task(given["task"])
            method = make_method(given.get("method", "full"), **given.get("method_options", {}))
            shape = self.context.shape(given["model"])
            blocks = shape.blocks
            if given.get("edits"):
                blocks = len(arrange(make_edits(given["edits"]), blocks).order)
            plan, best = self._plan(given, scanned, blocks)
            plan = applied(plan.on(blocks), method, blocks)
            given["metric"] = given.get("metric", self.recipe.metric.get(task.name, task.metric))
            check_metric(given["metric"], task.kind)
            check_family(shape.family, method)
            check_untied(shape.family, shape.weights, method)
            check_tunes_blocks(plan, method)
            if not given.get("untie") and not given.get("edits"):
                check_tied(plan, shape.weights)
            rates = choose_rates(grid, given, plan, method, task.name)
            given = written_out(given, task, method)
            if keep:
                check_readable(given, method)
        except InputError as error:
            return [refused(str(error))]
        rates = rates or [default_learning_rate(plan, shape.hidden_size, method)]
        given["plan"] = plan.as_dict() | {"embeddings": plan.embeddings}
        values = dict(point.values) | {"resolved": plan.notation, "blocks": len(plan.tuned)}
        values |= {} if best is None else {"best": best}
        model, name = given.pop("model"), given.pop("task")
        found = []
        for rate in rates:
            arguments = given | {"learning_rate": float(rate)}
            try:
                trial = self._trial("tune", (model,), name, arguments, given["seed"], keep=keep)
            except InputError as error:
                return [refused(str(error))]
            found.append(Cell(point.grid, values | {"learning_rate": f"{rate:g}"}, trial))
        return found

    def _plan(
        self, given: Mapping[str, Any], scanned: Trial | None, blocks: int
    ) -> tuple[Plan, int | None]:
        """Turn a strategy into a plan by the record of the scan; without one, take the middle."""
        if scanned is None:
            return make_plan(given["plan"], blocks), None
        if given.get("edits"):
            raise InputError(
                f"{given['plan']} goes by a scan of the model, which edits change; write the plan "
                "out, such as (1, 3, 6)"
            )
        record = self.context.store.read(scanned.key)
        if record is None:
            ranking: list[Any] = [None, *range(blocks)]
            return make_plan(given["plan"], blocks, best=blocks // 2 + 1, ranking=ranking), None
        if record["status"] == "failed":
            raise InputError(f"the scan that it needs failed: {record['error']}")
        found, (score, usual) = record["result"], self._scores(given)
        of_blocks = SCORES[score].of == "blocks"
        best = found["best"].get(usual if of_blocks else score)
        values = found["scores"][score]["values"] if of_blocks else None
        return make_plan(given["plan"], blocks, best=best, ranking=values), best

    # --- Grids of other verbs --------------------------------------------------------------------

    def _read(self, name: str, grid: Grid) -> list[Cell]:
        points = list(self._points(name, grid))
        found = []
        if grid.of is None:
            for point in points:
                given = dict(point.arguments)
                model, task, seed = (given.pop(n) for n in ("model", "task", "seed"))
                given |= {"seed": seed} if grid.verb == "scan" else {}
                found.append(self._cell(point, grid.verb, (model,), task, given, seed))
        else:
            tuned = self.selected(self.cells[grid.of])
            if not self.context.pretend:
                tuned = [c for c in tuned if c.trial and self._done(c.trial)]
            for point in points:
                for models, cell in group_sources(grid, tuned):
                    found.append(self._of_tuned(point, grid, models, cell))
        self.cells[name] = found
        self.run(trials_of(found))
        return found

    def _of_tuned(
        self, point: Point, grid: Grid, models: Sequence[Cell], shared: Mapping[str, Any]
    ) -> Cell:
        """Make the trial that reads tuned models, with the examples that they were tuned on."""
        given = dict(point.arguments)
        trials = [cell.trial for cell in models if cell.trial is not None]
        self.context.remember(trials)
        first = trials[0]
        sources: list[Any] = [{"trial": trial.key} for trial in trials]
        names = [
            ", ".join(f"{n} {v}" for n, v in c.values.items() if n in ("model", "seed"))
            for c in models
        ]
        if grid.verb == "evaluate" and self.context.task(first.task).kind == "multiple_choice":
            for name in ("tune_heads", "original"):  # heads are not tuned there
                given.pop(name, None)
        epochs = given.pop("checkpoints", None)
        if epochs is not None:  # of one training, with its start in the first place
            sources = [first.models[0], *({"trial": first.key, "epoch": e} for e in epochs)]
        if given.pop("original", False):
            originals = list(dict.fromkeys(trial.models[0] for trial in trials))
            sources += originals
            names += [f"model {label_value(one)}, untuned" for one in originals]
        drawing = {name: first.arguments[name] for name in DRAWING if name in first.arguments}
        kept = {n: first.arguments[n] for n in ("max_length", "metric") if n in first.arguments}
        if grid.verb in ("scan", "compare"):
            kept.pop("metric", None)
        for name in ("model", "task", "seed"):
            given.pop(name, None)
        values = {**shared, **{n: v for n, v in point.values.items() if n in grid.axes}}
        values |= {"models": names} if grid.verb == "compare" else {}
        point = replace(point, values=values)
        return self._cell(point, grid.verb, tuple(sources), first.task, drawing | kept | given, 0)

    def _cell(
        self, point: Point, verb: str, models: tuple[Any, ...], task: Any, given: Any, seed: int
    ) -> Cell:
        try:
            trial = self._trial(verb, models, task, given, seed)
        except InputError as error:
            return Cell(point.grid, point.values, None, str(error))
        return Cell(point.grid, point.values, trial)

    def _trial(
        self,
        verb: str,
        models: tuple[Any, ...],
        task: Any,
        arguments: Mapping[str, Any],
        seed: int,
        *,
        keep: bool = False,
    ) -> Trial:
        drawing = normalise_drawing(arguments, seed)
        self._check(task, drawing)
        rest = {name: value for name, value in arguments.items() if name not in DRAWING}
        rest = {name: value for name, value in rest.items() if value is not None}
        contents = [*map(self.context.content, models), self.context.task_content(task)]
        return Trial(verb, models, task, rest | drawing, tuple(contents), keep)

    def _check(self, task: Any, drawing: Mapping[str, Any]) -> None:
        """Refuse more examples than there are; another seed makes no difference to that."""
        sizes = {name: value for name, value in drawing.items() if name != "sample_seed"}
        name = json.dumps([task, sizes], sort_keys=True)
        if name not in self.drawn:
            self.context.examples(task, drawing)
            self.drawn.add(name)

    def _done(self, trial: Trial) -> bool:
        record = self.context.store.read(trial.key)
        return record is not None and record["status"] == "done"

    # --- Choosing rates --------------------------------------------------------------------------

    def selected(self, cells: Iterable[Cell]) -> list[Cell]:
        """Give the cells with the best learning rate: by the mean over the seeds that finished."""
        cells = list(cells)
        found = best_cells(cells, self.context.store.read)
        if self.context.pretend:  # what has not run is stood in for by its first rate

            def sweep(cell: Cell) -> tuple[Any, ...]:
                return cell.without("seed", "learning_rate")

            settled = set(map(sweep, found))
            rest = [cell for cell in cells if cell.trial and sweep(cell) not in settled]
            first = {sweep(cell): cell.values["learning_rate"] for cell in reversed(rest)}
            found += [c for c in rest if c.values["learning_rate"] == first[sweep(c)]]
        return found
