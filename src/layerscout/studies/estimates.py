"""What a study will cost, before it runs: FLOPs by counting, and time as this machine works."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from layerscout.analysis import HEAD_EXAMPLES
from layerscout.cache import DEFAULT_LIMIT
from layerscout.data import Task, require_validation
from layerscout.plans import (
    ModelShape,
    Plan,
    Settings,
    Work,
    block_flops,
    cost,
    make_method,
    trunk_flops,
)
from layerscout.scanning import GRADIENT_EXAMPLES
from layerscout.scores import SCORES
from layerscout.studies.context import TrialContext
from layerscout.studies.grid import Cell
from layerscout.studies.opening import check_any_runs, open_study
from layerscout.studies.planner import Planner
from layerscout.studies.recipe import Recipe
from layerscout.studies.stand_ins import TASKS
from layerscout.studies.trial import DRAWING, Trial

# Texts that the mean length is taken of.
SAMPLE = 500

# A step is timed for so many seconds.
TIMED = 1.0


@dataclass(frozen=True)
class Price:
    """What a trial takes.

    Attributes:
        flops: of all but the trunk.
        trunk: of the trunk, which trials with the same `shared` pay once; every epoch's where it is
            not kept.
        shared: names the states of the trunk.
        again: FLOPs of the trial if every epoch ran the trunk anew.
    """

    flops: float
    trunk: float = 0.0
    shared: Any = None
    again: float = 0.0


def price(trial: Trial, context: TrialContext) -> Price:
    """Count the FLOPs of a trial.

    Raises:
        InputError: if its model or task is not to be had.
    """
    drawing = {name: trial.arguments[name] for name in DRAWING if name in trial.arguments}
    task = context.examples(trial.task, drawing)
    model = context.origin(trial.models[0])
    tokens = mean_tokens(context, model, trial, task)
    rows = len(task.train), len(require_validation(task))
    if trial.verb == "tune":
        return _tune(trial, context.shape(model, task), task, tokens)
    shape = context.shape(model, task)
    forward = shape.blocks * block_flops(shape, tokens)
    match trial.verb:
        case "scan":
            sources = {SCORES[key].source for key in trial.arguments.get("scores", [])}
            states = bool(sources & {"moments", "state", "states", "probes"})
            read = (rows[0] if states else 0) + (rows[1] if "probes" in sources else 0)
            read += 3 * GRADIENT_EXAMPLES * ("gradients" in sources)
            return Price(forward * read, again=forward * read)
        case "compare":
            total = len(trial.models) * rows[1] * forward
            return Price(total, again=total)
    L, edits = shape.blocks, trial.arguments.get("edits", "truncate")
    passes = 1.0 + ("skip" in edits) * ((L**3 - L) / 6 + L) / L
    total = rows[1] * forward * passes
    read = min(rows[0], HEAD_EXAMPLES)
    total += (len(trial.models) > 1) * (read + rows[1]) * forward
    total += bool(trial.arguments.get("tune_heads")) * read * forward
    return Price(total, again=total)


def _tune(trial: Trial, shape: ModelShape, task: Task, tokens: float) -> Price:
    given = dict(trial.arguments)
    plan = Plan.from_dict(given["plan"])
    method = make_method(given.get("method", "full"), **given.get("method_options", {}))
    n = task.train.examples
    lengths = ("epochs", "max_steps", "batch_size")
    settings = Settings(**{name: given[name] for name in lengths if name in given})
    work = Work(
        examples=len(task.train),
        validation=len(require_validation(task)),
        tokens=tokens,
        epochs=settings.steps(n) / settings.steps_per_epoch(n),
        cached=not given.get("trunk_dropout", False),
    )
    total, once = cost(plan, shape, work, method).train, trunk_flops(plan, shape, work)
    again = cost(plan, shape, Work(**{**vars(work), "cached": False}), method).train
    if not work.cached:
        return Price(total, again=again)
    states = [trial.contents, [given.get(name) for name in (*DRAWING, "edits", "max_length")]]
    return Price(total - once, once, repr([states, plan.cut]), again)


def total_flops(prices: Iterable[Price]) -> float:
    """Add up prices, every shared trunk once."""
    found, trunks = 0.0, {}
    for one in prices:
        found += one.flops
        if one.trunk:
            trunks[one.shared] = one.trunk
    return found + sum(trunks.values())


def mean_tokens(context: TrialContext, model: Any, trial: Trial, task: Task) -> float:
    """Give the mean number of tokens of some of a task's texts, for the tokenizer of a model."""
    if context.stands_in(trial.task):
        return float(min(TASKS[task.name][2], trial.arguments.get("max_length", 128)))
    rows = np.linspace(0, len(task.train) - 1, min(SAMPLE, len(task.train))).astype(int)
    some = task.train.take(rows)
    if context.stands_in(model):  # its tokenizer is not here: a word is about 1.3 tokens
        texts = [" ".join(both) for both in zip(some.texts, some.pairs or some.texts, strict=True)]
        words = [len(text.split()) for text in (texts if some.pairs else some.texts)]
        return float(np.minimum(1.3 * np.array(words) + 3, 128).mean())
    length = trial.arguments.get("max_length", 128)
    tokens = context.encoder(model).tokenize(some.texts, some.pairs, max_length=length)
    return float(tokens.lengths.mean())


def measured_speed(shape: ModelShape, tokens: float, device: str = "cpu") -> float:
    """Time training steps of a block of this size, in FLOPs a second.

    Args:
        shape: of the model.
        tokens: mean length of a text.
        device: as torch knows it.
    """
    batch, length = 32, max(2, round(tokens))
    layer = torch.nn.TransformerEncoderLayer(
        shape.hidden_size,
        max(1, shape.hidden_size // 64),
        shape.feed_forward,
        batch_first=True,
        device=device,
    )
    states = torch.randn(batch, length, shape.hidden_size, device=device, requires_grad=True)
    weights = torch.randn_like(states)  # the plain sum of normed states has no gradient at all

    def step() -> None:
        (layer(states) * weights).sum().backward()
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)

    step()
    started, steps = perf_counter(), 0
    while steps < 3 or perf_counter() - started < TIMED:
        step()
        steps += 1
    return 3 * batch * steps * block_flops(shape, length) / (perf_counter() - started)


def recorded_speed(
    context: TrialContext, trials: Sequence[Trial], prices: Sequence[Price]
) -> float | None:
    """Give the FLOPs a second of the trials of tune that have a record; None where none has."""
    flops = seconds = 0.0
    for trial, one in zip(trials, prices, strict=True):
        record = context.store.read(trial.key) if trial.verb == "tune" else None
        if record is not None and record["status"] == "done":
            flops += one.flops
            seconds += record["seconds"]
    return flops / seconds if seconds > 1 else None


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
    recipe, context = open_study(recipe, output, small, changes, data, DEFAULT_LIMIT)
    context.pretend = True
    trials: dict[str, Trial] = {}
    planner = Planner(recipe, context, lambda some: trials.update({one.key: one for one in some}))
    planner.work()
    check_any_runs(recipe, planner)
    cells = tuple(cell for name in recipe.grids for cell in planner.cells[name])
    found = {key: price(trial, context) for key, trial in trials.items()}
    done = frozenset(
        key for key, trial in trials.items() if context.store.finished(trial) is not None
    )
    speed, because = recorded_speed(context, list(trials.values()), list(found.values())), "so far"
    if speed is None and trials:
        first = next(iter(trials.values()))
        task, model = context.task(first.task), context.origin(first.models[0])
        shape, tokens = context.shape(model, task), mean_tokens(context, model, first, task)
        speed = measured_speed(shape, tokens)
        because = "one block timed"
    return Estimate(recipe, cells, found, done, speed or 1.0, because, context.assumed)
