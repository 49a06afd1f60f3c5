"""Cells: from the points of a recipe's grids to the trials that are run for them."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from layerscout.data import check_metric
from layerscout.errors import InputError
from layerscout.models import check_family
from layerscout.plans import (
    Plan,
    apply_method,
    arrange,
    check_tied,
    check_tunes_blocks,
    check_untied,
    make_edits,
    make_method,
    make_plan,
    usual_rates,
)
from layerscout.scores import DEFAULT, SCORES
from layerscout.studies.arguments import expand_sweep
from layerscout.studies.context import TrialContext
from layerscout.studies.recipe import MOST_POINTS, READ, Grid, label_value
from layerscout.studies.summaries import list_axes
from layerscout.studies.trial import DRAWING, Trial, check_readable, spell_out
from layerscout.tuning import needs_scan


@dataclass(frozen=True)
class Cell:
    """A point of a grid.

    Attributes:
        grid: the name of the grid.
        values: what tables show for each axis; and what follows from the value of one, such as the
            number of blocks that an edit keeps.
        trial: what is run for it; several points may share one.
        refused: why nothing can be run for it.
        arguments: the values of axes and settings that it stands for, for the verb.
        scan: the scan that its plan depends on.
    """

    grid: str
    values: Mapping[str, Any]
    trial: Trial | None = None
    refused: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    scan: Trial | None = None

    def without(self, *axes: str) -> tuple[Any, ...]:
        """Return the values by which the cell differs from others, without these axes."""
        return list_axes(self.values, *axes)


P = ParamSpec("P")


def _refusing(make: Callable[Concatenate[Cell, P], Iterable[Cell]]) -> Callable[..., list[Cell]]:
    """Make a function of a cell return it with the reason where nothing can be run for it."""

    @wraps(make)
    def attempt(cell: Cell, *args: P.args, **options: P.kwargs) -> list[Cell]:
        if cell.refused is not None:
            return [cell]
        try:
            return list(make(cell, *args, **options))
        except InputError as error:
            return [replace(cell, refused=str(error))]

    return attempt


def list_trials(cells: Iterable[Cell]) -> list[Trial]:
    """List the trials of the cells that have one."""
    return [cell.trial for cell in cells if cell.trial is not None]


def expand_grid(name: str, grid: Grid, context: TrialContext) -> Iterator[Cell]:
    """Yield every combination of the axes but the learning rate, sweeps written out."""
    axes = {axis: grid.label_values(axis) for axis in grid.axes}
    count = math.prod(map(len, axes.values()))
    axes.pop("learning_rate", None)
    if count > MOST_POINTS:
        raise InputError(
            f"a grid has at most {MOST_POINTS:,} points, {name} has "
            f"{count:,}; split it into studies"
        )
    for labels in itertools.product(*axes.values()):
        values: dict[str, Any] = dict(zip(axes, labels, strict=True))
        given = {axis: axes[axis][label] for axis, label in values.items()}
        arguments = dict(grid.settings) | {k: v for k, v in given.items() if v is not None}
        arguments.setdefault("seed", 0)
        if isinstance(arguments.get("scores"), str):
            arguments["scores"] = arguments["scores"].split(",")
        values.setdefault("model", label_value(arguments.get("model")))
        values.setdefault("task", label_value(arguments.get("task")))
        values.setdefault("seed", str(arguments["seed"]))
        cell = Cell(name, values, arguments=arguments)
        if grid.verb == "tune" and "edits" in arguments:
            yield from _expand_edits(cell, context, seeded="seed" in grid.argument_names)
        else:
            yield cell


@_refusing
def _expand_edits(cell: Cell, context: TrialContext, *, seeded: bool) -> Iterator[Cell]:
    """Yield a cell for each edit that a sweep stands for on the model of this one.

    Unless seeds are given, every order of blocks has its own, and so its own examples: "we randomly
    sample a different dataset for each trial index" (Tamkin et al. 2020, App. C).
    """
    blocks = context.shape(cell.arguments["model"]).blocks
    for edit, more in expand_sweep(cell.arguments["edits"], blocks).items():
        values = {**cell.values, "edits": edit or "none", **more} if more else cell.values
        arguments = {**cell.arguments, "edits": edit}
        if "permutation" in more and not seeded:
            arguments["seed"] = more["permutation"]
            values = {**values, "seed": str(more["permutation"])}
        yield replace(cell, values=values, arguments=arguments)


@_refusing
def add_scan(cell: Cell, context: TrialContext) -> list[Cell]:
    """Add the scan that a plan depends on, if it does: of all training examples of the trial."""
    given = cell.arguments
    if not needs_scan(given["plan"]):
        return [cell]
    score = given.get("score", DEFAULT)
    of_states = SCORES[score].of == "states"
    kept = (*DRAWING, "seed", "max_length", "precision")
    arguments = {name: given[name] for name in kept if name in given}
    arguments["scores"] = [score] if of_states else [score, DEFAULT]
    if "scan_examples" in given:
        for name in ("per_class", "balanced", "examples"):
            arguments.pop(name, None)
        arguments["examples"] = given["scan_examples"]
    if of_states:
        arguments.pop("seed", None)  # which these scores do not depend on
    if given.get("as_released") and score == "fisher":
        arguments["as_released"] = True
    models, task, seed = (given["model"],), given["task"], given["seed"]
    return [replace(cell, scan=context.make_trial("scan", models, task, arguments, seed))]


@_refusing
def make_tunings(
    cell: Cell, grid: Grid, metrics: Mapping[str, str], context: TrialContext, *, keep: bool
) -> Iterator[Cell]:
    """Yield a cell for each learning rate.

    Args:
        cell: of a grid of tune, whose scan has run.
        grid: that grid.
        metrics: the metric by task, where it is not the task's own.
        context: of the study.
        keep: keep the tuned model for grids that read it.

    Raises:
        InputError: if it cannot be run.
    """
    given = dict(cell.arguments)
    task, shape = context.task(given["task"]), context.shape(given["model"])
    method = make_method(given.get("method", "full"), **given.get("method_options", {}))
    blocks = shape.blocks
    if given.get("edits"):
        blocks = len(arrange(make_edits(given["edits"]), blocks).order)
    plan, best = _resolve_plan(cell, blocks, context)
    plan = apply_method(plan.on(blocks), method, blocks)
    given["metric"] = given.get("metric", metrics.get(task.name, task.metric))
    check_metric(given["metric"], task)
    check_family(shape.family, method)
    check_untied(shape.family, shape.weights, method)
    check_tunes_blocks(plan, method)
    if not given.get("untie") and not given.get("edits"):
        check_tied(plan, shape.weights)
    rates = _list_rates(grid, given) or usual_rates(
        given.get("preset"), str(given["plan"]), plan, method, task.name, shape.hidden_size
    )
    given = spell_out(given, task, method, full=plan.tunes_all(blocks) and method.name == "full")
    if keep:
        check_readable(given, method)
    if plan.cut is None:  # nothing below it is frozen: trials with and without are the same
        given.pop("trunk_dropout", None)
    given["plan"] = plan.as_dict() | {"embeddings": bool(plan.embeddings)}
    values = {**cell.values, "resolved": plan.notation, "blocks": len(plan.tuned)}
    if best is not None:
        values["best"] = best
    models, name = (given.pop("model"),), given.pop("task")
    for rate in rates:
        arguments = given | {"learning_rate": float(rate)}
        trial = context.make_trial("tune", models, name, arguments, given["seed"], keep=keep)
        yield replace(cell, values=values | {"learning_rate": f"{rate:g}"}, trial=trial)


def _list_rates(grid: Grid, given: Mapping[str, Any]) -> Sequence[float]:
    """Return the learning rates that a recipe has for a cell; none for the usual ones."""
    if "learning_rate" in grid.axes:
        return list(grid.label_values("learning_rate").values())
    own = [given["learning_rate"]] if "learning_rate" in given else []
    return grid.rates.get(str(given["plan"]), grid.rates.get("other", own))


def _resolve_plan(cell: Cell, blocks: int, context: TrialContext) -> tuple[Plan, int | None]:
    """Turn a strategy into a plan by the record of its scan, or by the middle before it has run."""
    strategy = cell.arguments["plan"]
    if cell.scan is None:
        return make_plan(strategy, blocks), None
    if cell.arguments.get("edits"):
        raise InputError(
            f"{strategy} depends on a scan of the model, which edits change; write the plan out, "
            "such as (1, 3, 6)"
        )
    record = context.store.read(cell.scan.key)
    if record is None:
        ranking: list[Any] = [None, *range(blocks)]
        return make_plan(strategy, blocks, best=blocks // 2 + 1, ranking=ranking), None
    if record["status"] == "failed":
        raise InputError(f"the scan that it needs failed: {record['error']}")
    score = cell.arguments.get("score", DEFAULT)
    of_blocks = SCORES[score].of == "blocks"
    best = record["result"]["best"].get(DEFAULT if of_blocks else score)
    values = record["result"]["scores"][score]["values"] if of_blocks else None
    return make_plan(strategy, blocks, best=best, ranking=values), best


def group_sources(
    grid: Grid, tuned: Sequence[Cell]
) -> list[tuple[Sequence[Cell], Mapping[str, Any]]]:
    """Group the tuned models that one trial reads, with the values that they have in common.

    `compare` reads all that differ in model and seed alone, the other verbs one at a time.
    """
    if grid.verb != "compare":
        return [([cell], cell.values) for cell in tuned]
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in tuned:
        groups.setdefault(cell.without("model", "seed", "learning_rate"), []).append(cell)
    return [(cells, dict(shared)) for shared, cells in groups.items()]


def make_reading(
    cell: Cell,
    grid: Grid,
    models: Sequence[Cell],
    shared: Mapping[str, Any],
    context: TrialContext,
) -> list[Cell]:
    """Return the cell that reads tuned models, with the examples that they were tuned on.

    Args:
        cell: of `grid`.
        grid: the grid that reads.
        models: the cells of the tuned models.
        shared: the values that they have in common.
        context: loads models and tasks.
    """
    given = {name: value for name, value in cell.arguments.items() if name not in READ}
    trials = list_trials(models)
    first = trials[0]
    epochs, original = given.pop("checkpoints", None), given.pop("original", False)
    sources: list[Any] = [{"trial": trial.key} for trial in trials]
    if epochs is not None:  # of one training, with its start in the first place
        sources = [first.models[0], *({"trial": first.key, "epoch": e} for e in epochs)]
    originals = dict.fromkeys(trial.models[0] for trial in trials) if original else ()
    taken = [*DRAWING, "max_length"]
    if grid.verb == "evaluate":
        taken.append("metric")
        # Of those that the model was tuned on, and only for heads: where none is tuned, a number
        # that a recipe sets for all of its grids (as Table 10's small variant) does not apply.
        examples = given.pop("examples", None)
        if examples is not None and (original or given.get("tune_heads")):
            given["head_examples"] = examples
    arguments = {name: first.arguments[name] for name in taken if name in first.arguments} | given
    values = {**shared, **{n: v for n, v in cell.values.items() if n in grid.axes}}
    if grid.verb == "compare":
        values["models"] = [
            *(
                ", ".join(f"{n} {model.values[n]}" for n in model.values if n in ("model", "seed"))
                for model in models
            ),
            *(f"model {label_value(name)}, untuned" for name in originals),
        ]
    sources += originals
    cell = replace(cell, values=values)
    return _add_trial(cell, context, grid.verb, sources, first.task, arguments)


def make_untuned_scan(cell: Cell, context: TrialContext) -> list[Cell]:
    """Return the cell of a scan of a model that no other grid has tuned."""
    arguments = {name: value for name, value in cell.arguments.items() if name not in READ[:2]}
    models, task = [cell.arguments["model"]], cell.arguments["task"]
    return _add_trial(cell, context, "scan", models, task, arguments)


@_refusing
def _add_trial(
    cell: Cell, context: TrialContext, verb: str, models: list[Any], task: Any, arguments: Any
) -> list[Cell]:
    """Add its trial to a cell."""
    trial = context.make_trial(verb, tuple(models), task, arguments, arguments.get("seed", 0))
    return [replace(cell, trial=trial)]


def group_trials(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Group trials that read the same states; a group runs in one place, one after another."""
    groups: dict[str, list[Trial]] = {}
    for trial in sorted(trials, key=lambda trial: json.dumps(list(trial.contents))):
        arguments, cut = trial.arguments, None
        if trial.verb == "tune":
            cut = Plan.from_dict(arguments["plan"]).cut
        # A model's states on some examples, up to a cut.
        drawing = [arguments.get(name) for name in (*DRAWING, "edits")]
        states = json.dumps([trial.verb == "tune", trial.contents, drawing, cut], default=str)
        if trial.verb == "tune" and arguments["plan"]["embeddings"]:
            states = trial.key  # it trains all, so it shares none
        groups.setdefault(states, []).append(trial)
    return list(groups.values())
