"""Tunings: from a point of a grid of tune to trials, by way of the scan that its plan needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerscout.data import check_metric
from layerscout.models import check_family
from layerscout.plans import (
    Method,
    ModelShape,
    Plan,
    apply_method,
    arrange,
    check_tied,
    check_tunes_blocks,
    check_untied,
    default_learning_rate,
    make_edits,
    make_method,
    make_plan,
)
from layerscout.runtime import InputError
from layerscout.scores import DEFAULT, SCORES
from layerscout.studies.context import TrialContext
from layerscout.studies.grid import Cell
from layerscout.studies.points import Point
from layerscout.studies.recipe import Grid
from layerscout.studies.trial import DRAWING, Trial
from layerscout.studies.trial_arguments import (
    check_readable,
    list_rates,
    make_trial,
    spell_out,
)


def make_scan(point: Point, context: TrialContext) -> Trial:
    """Make the scan that a plan depends on: of all training examples of the trial.

    Raises:
        InputError: if its model or task cannot be loaded.
    """
    given = point.arguments
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
    return make_trial(context, "scan", (given["model"],), given["task"], arguments, given["seed"])


def make_tunings(
    point: Point, grid: Grid, metrics: Mapping[str, str], context: TrialContext, *, keep: bool
) -> list[Cell]:
    """Make a cell for each learning rate of a point, or one that says why it cannot be run.

    Args:
        point: a point of a grid of tune, whose scan has run.
        grid: that grid.
        metrics: the metric by task, where it is not the task's own.
        context: of the study.
        keep: keep the tuned model for grids that read it.
    """
    if point.refused is not None:
        return [Cell(point.grid, point.values, None, point.refused)]
    try:
        return _make_tunings(point, grid, metrics, context, keep)
    except InputError as error:
        return [Cell(point.grid, point.values, None, str(error))]


def _make_tunings(
    point: Point, grid: Grid, metrics: Mapping[str, str], context: TrialContext, keep: bool
) -> list[Cell]:
    given = dict(point.arguments)
    task = context.task(given["task"])
    method = make_method(given.get("method", "full"), **given.get("method_options", {}))
    shape = context.shape(given["model"])
    blocks = shape.blocks
    if given.get("edits"):
        blocks = len(arrange(make_edits(given["edits"]), blocks).order)
    plan, best = _resolve_plan(point, blocks, context)
    plan = apply_method(plan.on(blocks), method, blocks)
    given["metric"] = given.get("metric", metrics.get(task.name, task.metric))
    check_metric(given["metric"], task)
    _check_method(given, plan, shape, method)
    rates = list_rates(grid, given, plan, method, task.name)
    given = spell_out(given, task, method, full=plan.tunes_all(blocks) and method.name == "full")
    if keep:
        check_readable(given, method)
    if plan.cut is None:  # nothing below it is frozen: trials with and without are the same
        given.pop("trunk_dropout", None)
    given["plan"] = plan.as_dict() | {"embeddings": bool(plan.embeddings)}
    values = {**point.values, "resolved": plan.notation, "blocks": len(plan.tuned)}
    if best is not None:
        values["best"] = best
    model, name = given.pop("model"), given.pop("task")
    cells = []
    for rate in rates or [default_learning_rate(plan, shape.hidden_size, method)]:
        arguments = given | {"learning_rate": float(rate)}
        trial = make_trial(context, "tune", (model,), name, arguments, given["seed"], keep=keep)
        cells.append(Cell(point.grid, values | {"learning_rate": f"{rate:g}"}, trial))
    return cells


def _check_method(given: Mapping[str, Any], plan: Plan, shape: ModelShape, method: Method) -> None:
    check_family(shape.family, method)
    check_untied(shape.family, shape.weights, method)
    check_tunes_blocks(plan, method)
    if not given.get("untie") and not given.get("edits"):
        check_tied(plan, shape.weights)


def _resolve_plan(point: Point, blocks: int, context: TrialContext) -> tuple[Plan, int | None]:
    """Turn a strategy into a plan by the record of its scan, or by the middle before it has run."""
    strategy = point.arguments["plan"]
    if point.scan is None:
        return make_plan(strategy, blocks), None
    if point.arguments.get("edits"):
        raise InputError(
            f"{strategy} depends on a scan of the model, which edits change; write the plan out, "
            "such as (1, 3, 6)"
        )
    record = context.store.read(point.scan.key)
    if record is None:
        ranking: list[Any] = [None, *range(blocks)]
        return make_plan(strategy, blocks, best=blocks // 2 + 1, ranking=ranking), None
    if record["status"] == "failed":
        raise InputError(f"the scan that it needs failed: {record['error']}")
    score = point.arguments.get("score", DEFAULT)
    of_blocks = SCORES[score].of == "blocks"
    best = record["result"]["best"].get(DEFAULT if of_blocks else score)
    values = record["result"]["scores"][score]["values"] if of_blocks else None
    return make_plan(strategy, blocks, best=best, ranking=values), best
