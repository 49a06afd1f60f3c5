"""Studies: what a recipe asks for, as trials that are run once, stopped and gone on with."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from layerscout.cache import DEFAULT_LIMIT
from layerscout.data import Task, answers, check_metric
from layerscout.models import checked_device
from layerscout.plans import (
    Full,
    LoRA,
    Method,
    Plan,
    Preserve,
    Reinitialize,
    Settings,
    applied,
    arranged,
    check_family,
    check_tied,
    check_tunes_blocks,
    check_untied,
    described,
    make_edits,
    make_method,
    make_plan,
    notation,
    preset as preset_of,
    preset_rates,
)
from layerscout.runtime import (
    InputError,
    check_output_folder,
    output_folder,
    progress as progress_line,
    read_json,
    write_files,
)
from layerscout.scanning import USUAL_FOR_NUMBERS
from layerscout.scores import DEFAULT, SCORES
from layerscout.studies.backends import Backend, Local, Told
from layerscout.studies.estimates import (
    Price,
    mean_tokens,
    measured_speed,
    price,
    recorded_speed,
    total_flops,
)
from layerscout.studies.recipe import DERIVED, Grid, Recipe, called, load_recipe, swept
from layerscout.studies.summaries import best_rates, quality
from layerscout.studies.trial import DRAWING, Desk, Store, Trial
from layerscout.tuning import default_learning_rate, needs_scan


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


# --- From a recipe to trials ---------------------------------------------------------------------


@dataclass
class Planner:
    """Turns the grids of a recipe into cells, running what later ones depend on.

    Attributes:
        recipe: what is asked for.
        desk: loads what trials are made of.
        run: runs trials, or pretends to.
        cells: what has come of the grids so far, by their names.
        drawn: which numbers of examples are known to be there.
    """

    recipe: Recipe
    desk: Desk
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
            self.run(_trials_of(found))
            return found
        first = found[0].values["seed"] if found else None
        tried = [cell for cell in found if cell.values["seed"] == first or cell.trial is None]
        self.cells[name] = tried
        self.run(_trials_of(tried))
        best = {cell.without("seed") for cell in self.selected(tried)}
        failed = {cell.without("seed", "learning_rate") for cell in tried} - {
            cell.without("seed", "learning_rate") for cell in self.selected(tried)
        }
        best |= {c.without("seed") for c in tried if c.without("seed", "learning_rate") in failed}
        others = [c for c in found if c not in tried and c.without("seed") in best]
        self.cells[name] = tried + others
        self.run(_trials_of(others))
        return tried + others

    def _points(self, name: str, grid: Grid) -> Iterator[_Point]:
        """Give every combination of the axes but the learning rate, sweeps written out."""
        axes = {axis: grid.listed(axis) for axis in grid.axes if axis != "learning_rate"}
        for number, names in enumerate(itertools.product(*axes.values())):
            values: dict[str, Any] = dict(zip(axes, names, strict=True))
            given = {axis: axes[axis][label] for axis, label in values.items()}
            arguments = dict(grid.settings) | {k: v for k, v in given.items() if v is not None}
            arguments.setdefault("seed", 0)
            if isinstance(arguments.get("scores"), str):
                arguments["scores"] = arguments["scores"].split(",")
            values.setdefault("model", called(arguments.get("model")))
            values.setdefault("task", called(arguments.get("task")))
            values.setdefault("seed", str(arguments["seed"]))
            if grid.verb != "tune" or "edits" not in arguments:
                yield _Point(name, values, arguments, f"{number}")
                continue
            try:
                blocks = self.desk.shape(arguments["model"]).blocks
                edits = swept(arguments["edits"], blocks)
            except InputError as error:
                yield _Point(name, values, arguments, f"{number}", str(error))
                continue
            for part, (edit, more) in enumerate(edits.items()):
                found = values | {"edits": edit or "none"} | more if more else values
                yield _Point(name, found, arguments | {"edits": edit}, f"{number}.{part}")

    def _scan_of(self, point: _Point) -> Trial:
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
        numbers = self.desk.task(given["task"]).kind == "regression"
        usual = USUAL_FOR_NUMBERS[0] if numbers else DEFAULT
        return given.get("score", usual), usual

    def _trials(self, point: _Point, grid: Grid, scanned: Trial | None, keep: bool) -> list[Cell]:
        """Settle the plan and the learning rates of a point."""
        refused = partial(Cell, point.grid, point.values, None)
        if point.refused is not None:
            return [refused(point.refused)]
        given = dict(point.arguments)
        try:
            task = self.desk.task(given["task"])
            method = make_method(given.get("method", "full"), **given.get("method_options", {}))
            shape = self.desk.shape(given["model"])
            blocks = shape.blocks
            if given.get("edits"):
                blocks = len(arranged(make_edits(given["edits"]), blocks).order)
            plan, best = self._plan(given, scanned, blocks)
            plan = applied(plan.on(blocks), method, blocks)
            given["metric"] = given.get("metric", self.recipe.metric.get(task.name, task.metric))
            check_metric(given["metric"], task.kind)
            check_family(shape.family, method)
            check_untied(shape.family, shape.weights, method)
            check_tunes_blocks(plan, method)
            if not given.get("untie") and not given.get("edits"):
                check_tied(plan, shape.weights)
            rates = _rates(grid, given, plan, method, task.name)
            given = _written_out(given, task, method)
            if keep:
                _check_readable(given, method)
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
        record = self.desk.store.read(scanned.key)
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
            if not self.desk.pretend:
                tuned = [c for c in tuned if c.trial and self._done(c.trial)]
            for point in points:
                for models, cell in _sources(grid, tuned):
                    found.append(self._of_tuned(point, grid, models, cell))
        self.cells[name] = found
        self.run(_trials_of(found))
        return found

    def _of_tuned(
        self, point: _Point, grid: Grid, models: Sequence[Cell], shared: Mapping[str, Any]
    ) -> Cell:
        """Make the trial that reads tuned models, with the examples that they were tuned on."""
        given = dict(point.arguments)
        trials = [cell.trial for cell in models if cell.trial is not None]
        self.desk.remember(trials)
        first = trials[0]
        sources: list[Any] = [{"trial": trial.key} for trial in trials]
        names = [
            ", ".join(f"{n} {v}" for n, v in c.values.items() if n in ("model", "seed"))
            for c in models
        ]
        if grid.verb == "evaluate" and self.desk.task(first.task).kind == "multiple_choice":
            for name in ("tune_heads", "original"):  # heads are not tuned there
                given.pop(name, None)
        epochs = given.pop("checkpoints", None)
        if epochs is not None:  # of one training, with its start in the first place
            sources = [first.models[0], *({"trial": first.key, "epoch": e} for e in epochs)]
        if given.pop("original", False):
            originals = list(dict.fromkeys(trial.models[0] for trial in trials))
            sources += originals
            names += [f"model {called(one)}, untuned" for one in originals]
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
        self, point: _Point, verb: str, models: tuple[Any, ...], task: Any, given: Any, seed: int
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
        drawing = _drawing(arguments, seed)
        self._check(task, drawing)
        rest = {name: value for name, value in arguments.items() if name not in DRAWING}
        rest = {name: value for name, value in rest.items() if value is not None}
        contents = [*map(self.desk.content, models), self.desk.task_content(task)]
        return Trial(verb, models, task, rest | drawing, tuple(contents), keep)

    def _check(self, task: Any, drawing: Mapping[str, Any]) -> None:
        """Refuse more examples than there are; another seed makes no difference to that."""
        sizes = {name: value for name, value in drawing.items() if name != "sample_seed"}
        name = json.dumps([task, sizes], sort_keys=True)
        if name not in self.drawn:
            self.desk.examples(task, drawing)
            self.drawn.add(name)

    def _done(self, trial: Trial) -> bool:
        record = self.desk.store.read(trial.key)
        return record is not None and record["status"] == "done"

    # --- Choosing rates --------------------------------------------------------------------------

    def selected(self, cells: Iterable[Cell]) -> list[Cell]:
        """Give the cells with the best learning rate: by the mean over the seeds that finished."""
        cells = list(cells)
        found = selected(cells, self.desk.store.read)
        if self.desk.pretend:  # what has not run is stood in for by its first rate

            def sweep(cell: Cell) -> tuple[Any, ...]:
                return cell.without("seed", "learning_rate")

            settled = set(map(sweep, found))
            rest = [cell for cell in cells if cell.trial and sweep(cell) not in settled]
            first = {sweep(cell): cell.values["learning_rate"] for cell in reversed(rest)}
            found += [c for c in rest if c.values["learning_rate"] == first[sweep(c)]]
        return found


@dataclass(frozen=True)
class _Point:
    """A combination of the values of axes, with the arguments that it stands for."""

    grid: str
    values: Mapping[str, Any]
    arguments: Mapping[str, Any]
    number: str
    refused: str | None = None


def selected(cells: Iterable[Cell], read: Callable[[str], Mapping[str, Any] | None]) -> list[Cell]:
    """Give the cells of tune with the best learning rate, where any came through."""
    known = [
        (cell, cell.without("seed", "learning_rate"), cell.values["learning_rate"], quality(record))
        for cell in cells
        if cell.trial is not None
        for record in [read(cell.trial.key)]
    ]
    settled = {rest for _, rest, _, value in known if value is not None}
    return list(itertools.chain(*best_rates(point for point in known if point[1] in settled)))


def _rates(
    grid: Grid, given: Mapping[str, Any], plan: Plan, method: Method, task: str
) -> Sequence[float] | None:
    """Give the learning rates of a point: of its grid, of its settings or of its preset."""
    strategy, preset = str(given["plan"]), given.get("preset")
    if "learning_rate" in grid.axes:
        return list(grid.listed("learning_rate").values())
    named = grid.rates.get(strategy, grid.rates.get("other"))
    if named is not None:
        return named
    if "learning_rate" in given:
        return [given["learning_rate"]]
    return None if preset is None else preset_rates(preset, strategy, plan, method, task)


# Arguments of tune with what they are where nobody says otherwise.
_USUAL: Mapping[str, Any] = {
    "classifier": "family",
    "edits": "",
    "fresh_head": False,
    "keep_layer_norm": False,
    "max_length": 128,
    "precision": "float32",
    "reinit_rate_factor": 1.0,
    "trunk_dropout": False,
    "untie": False,
}


def _written_out(given: Mapping[str, Any], task: Task, method: Method) -> dict[str, Any]:
    """Give the arguments of a tuning so that whoever means the same writes the same.

    Presets and defaults are written out, and what makes no difference is left out.
    """
    found = {name: value for name, value in given.items() if name not in ("score", "scan_examples")}
    asked = {f.name: found.pop(f.name) for f in fields(Settings) if found.get(f.name) is not None}
    edits = make_edits(found.pop("edits", None) or ())
    redraws = any(isinstance(one, Reinitialize | Preserve) for one in edits)
    preset, released = found.pop("preset", None), bool(found.pop("as_released", False))
    ours: dict[str, Any] = {}
    if preset is not None:
        n = found.get("examples", "all")
        if found.get("per_class"):
            n = sum(found["per_class"])
        elif n == "all":
            n = len(answers(task.train, task.kind))
        paper = preset_of(preset, task=task.name, examples=n, as_released=released)
        ours = dict(paper.settings)
        found.setdefault("classifier", paper.classifier)
        if "epochs" in asked:
            ours.pop("max_steps", None)
    if not redraws and (found.get("keep_layer_norm") or found.get("reinit_rate_factor", 1) != 1):
        raise InputError(
            "`keep_layer_norm` and `reinit_rate_factor` are for blocks that are drawn anew; give "
            "edits such as reinit:9-12"
        )
    if found.get("classifier") == "mean-linear" and isinstance(method, LoRA):
        raise InputError("LoRA has no classifier mean-linear; use another method or classifier")
    settings = asdict(Settings(**ours | asked))
    if settings["max_steps"] is not None:
        if "epochs" in asked:
            raise InputError("`epochs` and `max_steps` both say how long to train; give one")
        del settings["epochs"]
    found |= {name: value for name, value in settings.items() if value is not None}
    found |= {"edits": notation(edits), "method": method.name, "method_options": described(method)}
    if released and redraws:
        found["as_released"] = True
    return {name: value for name, value in found.items() if value != _USUAL.get(name, found)}


def _check_readable(given: Mapping[str, Any], method: Method) -> None:
    """Refuse a tuning that leaves no model for the grids that read it.

    Args:
        given: its arguments, written out.
        method: how blocks are tuned.

    Raises:
        InputError: if it does not leave what they ask for.
    """
    head = given.get("classifier", _USUAL["classifier"])
    if head != "family" or not isinstance(method, Full | LoRA):
        raise InputError(
            f"{method.name} with the classifier {head} leaves no whole checkpoint for the grids "
            "that read it (of); use the method full or lora and the classifier family"
        )
    epochs = given.get("checkpoints")
    if not epochs:
        return
    if isinstance(method, LoRA):
        raise InputError("LoRA keeps no checkpoints of epochs; use the method full")
    if max(epochs) > given.get("epochs", max(epochs)):
        raise InputError(
            f"the checkpoints {epochs} are to be kept of {given['epochs']} epochs; name epochs up "
            "to that"
        )


def _trials_of(cells: Iterable[Cell]) -> list[Trial]:
    return [cell.trial for cell in cells if cell.trial is not None]


def _sources(
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


def _drawing(arguments: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Say which examples are read, and nothing that makes no difference."""
    found = {name: arguments[name] for name in DRAWING if arguments.get(name) is not None}
    if found.get("examples") == "all":
        del found["examples"]
    if found.get("balanced") is False:
        del found["balanced"]
    if {"examples", "per_class", "balanced"} & found.keys():
        found.setdefault("sample_seed", seed)
    else:
        found.pop("sample_seed", None)
    return found


def grouped(trials: Iterable[Trial]) -> list[list[Trial]]:
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


# --- The verb ------------------------------------------------------------------------------------


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
    recipe, desk = _opened(recipe, output, small, changes, data, cache_limit)
    if backend is None:
        backend = Local(tuple(device.split(",")))
        for name in backend.devices:
            checked_device(name)
    desk.store.tidy()
    known: dict[str, Trial] = {}
    ended = 0
    with progress_line(progress) as show, backend.ready():

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
                desk.store.forget_failed(fresh)
            show("trials", ended, len(known), f"{ended:,} of {len(known):,}")
            written(on_the_way=True)
            backend.run(desk, grouped(fresh.values()), tell)

        def written(*, on_the_way: bool = False) -> Study:
            # On the way too, so that a report can be made at any time, unless there was more.
            cells = (cell for name in recipe.grids for cell in planner.cells.get(name, ()))
            found = Study(recipe, tuple(cells), desk.store)
            path = output_folder(desk.store.folder) / "study.json"
            content = found.as_dict()
            if not (on_the_way and _points(content) <= _points_in(path, content["recipe"])):
                write_files({path: json.dumps(content, allow_nan=False) + "\n"})
            return found

        planner = Planner(recipe, desk, run)
        planner.work()
        _check_any(recipe, planner)
        return written()


def _check_any(recipe: Recipe, planner: Planner) -> None:
    """Refuse a study of which nothing can be run."""
    cells = [cell for some in planner.cells.values() for cell in some]
    reasons = dict.fromkeys(cell.refused for cell in cells if cell.refused is not None)
    if reasons and all(cell.trial is None for cell in cells):
        raise InputError(f"nothing of {recipe.title!r} can be run: {'; '.join(reasons)}")


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


@dataclass(frozen=True)
class Estimate:
    """What a study will cost.

    Attributes:
        recipe: what is asked for.
        cells: the points of its grids. Where a scan has not run, its best state is taken to be the
            middle one; where a pilot has not, its first rate stands for the best.
        prices: of all trials, by key.
        done: keys of those that have a record.
        speed: FLOPs a second.
        because: where the speed comes from.
        assumed: models and tasks that are not at hand, whose known sizes were taken.
    """

    recipe: Recipe
    cells: tuple[Cell, ...]
    prices: Mapping[str, Price]
    done: frozenset[str]
    speed: float
    because: str
    assumed: tuple[str, ...]

    def flops(self, keys: Iterable[str]) -> float:
        """Add up what these trials take, shared trunks once."""
        return total_flops(self.prices[key] for key in keys)


def estimate(
    recipe: Recipe | str | Path,
    output: str | Path,
    *,
    small: bool = False,
    changes: Mapping[str, Any] | None = None,
    data: str | Path | None = None,
) -> Estimate:
    """Tell what `study` would run and how long that will take; nothing is run.

    Args:
        recipe: as for `study`, and so are the others.
        output: what has a record there costs nothing.
        small: as for `study`.
        changes: as for `study`.
        data: as for `study`.

    Raises:
        InputError: as `study`, but where a known task or a model of the papers is not at hand.
    """
    recipe, desk = _opened(recipe, output, small, changes, data, DEFAULT_LIMIT)
    desk.pretend = True
    trials: dict[str, Trial] = {}
    planner = Planner(recipe, desk, lambda some: trials.update({one.key: one for one in some}))
    planner.work()
    _check_any(recipe, planner)
    cells = tuple(cell for name in recipe.grids for cell in planner.cells[name])
    found = {key: price(trial, desk) for key, trial in trials.items()}
    done = frozenset(key for key, trial in trials.items() if desk.store.ended(trial) is not None)
    speed, because = recorded_speed(desk, list(trials.values()), list(found.values())), "so far"
    if speed is None and trials:
        first = next(iter(trials.values()))
        task, model = desk.task(first.task), desk.origin(first.models[0])
        shape, tokens = desk.shape(model, task), mean_tokens(desk, model, first, task)
        speed = measured_speed(shape, tokens)
        because = "one block timed"
    return Estimate(recipe, cells, found, done, speed or 1.0, because, desk.assumed)


def _opened(
    recipe: Recipe | str | Path,
    output: str | Path,
    small: bool,
    changes: Mapping[str, Any] | None,
    data: str | Path | None,
    cache_limit: int,
) -> tuple[Recipe, Desk]:
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe, small=small, changes=changes)
    folder = Path(output).expanduser()
    check_output_folder(folder)
    place = None if data is None else Path(data).expanduser()
    if place is not None and not place.is_dir():
        raise InputError(f"`data` must be a folder with tasks in it, got {place}")
    return recipe, Desk(Store(folder), place, cache_limit=cache_limit)
