"""What a study will cost, before it runs: FLOPs by counting, and how fast this machine is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from layerscout.data import Task, require_validation
from layerscout.evaluating import HEAD_EXAMPLES
from layerscout.plans import (
    MAX_LENGTH,
    ModelShape,
    Plan,
    Settings,
    Work,
    block_flops,
    cost,
    make_method,
    trunk_flops,
)
from layerscout.progress import Show, show_progress
from layerscout.scanning import GRADIENT_EXAMPLES
from layerscout.scores import DEFAULT, SCORES
from layerscout.studies.cells import Cell
from layerscout.studies.context import TrialContext
from layerscout.studies.recipe import Recipe
from layerscout.studies.run import Planner, open_study
from layerscout.studies.trial import DRAWING, Trial

# Texts whose mean length is taken.
SAMPLE = 500
# A step is timed for so many seconds.
_SECONDS = 1.0


@dataclass(frozen=True)
class TrialEstimate:
    """What a trial costs.

    Attributes:
        flops: FLOPs of all but the trunk.
        trunk: FLOPs of the trunk, which trials with the same `shared` pay once; 0 where it is not
            kept, and every epoch of `flops` has it.
        shared: names the states of the trunk.
        uncached: FLOPs of the trial if every epoch ran the trunk again.
    """

    flops: float
    trunk: float = 0.0
    shared: Any = None
    uncached: float = 0.0


def estimate_trial(
    trial: Trial, model: str, context: TrialContext, lengths: dict[str, float]
) -> TrialEstimate:
    """Count the FLOPs of a trial.

    Args:
        trial: the trial.
        model: the checkpoint that it reads, or from which the models that it reads were tuned.
        context: loads models and tasks.
        lengths: mean numbers of tokens that were counted, to which this adds.

    Raises:
        InputError: if its model or task cannot be loaded.
    """
    # Sizes do not depend on the seed that draws the examples, so one draw stands for all.
    drawing = {name: trial.arguments[name] for name in DRAWING if name in trial.arguments}
    drawing.pop("sample_seed", None)
    task = context.examples(trial.task, drawing)
    length = trial.arguments.get("max_length", MAX_LENGTH)
    name = json.dumps([model, trial.task, drawing, length], sort_keys=True)
    if name not in lengths:
        lengths[name] = mean_tokens(context, model, trial, task)
    tokens = lengths[name]
    shape = context.shape(model, task)
    if trial.verb == "tune":
        return _estimate_tuning(trial, shape, task, tokens)
    training, held_out = len(task.train), len(require_validation(task))
    forward = shape.blocks * block_flops(shape, tokens)
    if trial.verb == "scan":
        sources = {SCORES[key].source for key in trial.arguments.get("scores", [DEFAULT])}
        reads_states = bool(sources & {"moments", "state", "states", "probes"})
        passes = (training if reads_states else 0) + (held_out if "probes" in sources else 0)
        # A backward pass counts as two.
        flops = (passes + 3 * GRADIENT_EXAMPLES * ("gradients" in sources)) * forward
    elif trial.verb == "compare":
        flops = len(trial.models) * held_out * forward
    else:
        flops = held_out * forward
        if "skip" in trial.arguments.get("edits", "truncate"):
            # A pass for each span of blocks that is skipped, which costs the blocks that are left.
            blocks = shape.blocks
            flops += held_out * forward * ((blocks**3 - blocks) / 6 + blocks) / blocks
        examples = trial.arguments.get("head_examples", HEAD_EXAMPLES)
        read = training if examples == "all" else min(training, examples)
        if len(trial.models) > 1:
            flops += (read + held_out) * forward
        if trial.arguments.get("tune_heads"):
            flops += read * forward
    return TrialEstimate(flops, uncached=flops)


def _estimate_tuning(trial: Trial, shape: ModelShape, task: Task, tokens: float) -> TrialEstimate:
    given = dict(trial.arguments)
    plan = Plan.from_dict(given["plan"])
    method = make_method(given.get("method", "full"), **given.get("method_options", {}))
    lengths = ("epochs", "max_steps", "batch_size", "accumulation")
    settings = Settings(**{name: given[name] for name in lengths if name in given})
    work = Work.of(
        settings,
        examples=task.train.examples,
        texts=len(task.train),
        validation=len(require_validation(task)),
        tokens=tokens,
        cached=not given.get("trunk_dropout", False),
    )
    total, once = cost(plan, shape, work, method).train, trunk_flops(plan, shape, work)
    uncached = cost(plan, shape, replace(work, cached=False), method).train
    if not work.cached:
        return TrialEstimate(total, uncached=uncached)
    states = [trial.contents, [given.get(name) for name in (*DRAWING, "edits", "max_length")]]
    return TrialEstimate(total - once, once, repr([states, plan.cut]), uncached)


def mean_tokens(context: TrialContext, model: str, trial: Trial, task: Task) -> float:
    """Return the mean number of tokens of a sample of a task's texts, by a model's tokenizer."""
    length = trial.arguments.get("max_length", MAX_LENGTH)
    rows = np.linspace(0, len(task.train) - 1, min(SAMPLE, len(task.train))).astype(int)
    split = task.train.take(rows)
    tokens = context.encoder(model).tokenize(split.texts, split.pairs, max_length=length)
    return float(tokens.lengths.mean())


@dataclass(frozen=True)
class Estimate:
    """What a study will cost.

    Attributes:
        cells: the points of its grids. Where a scan has not run, its best state is taken to be the
            middle one; where a pilot has not, its first rate stands for the best.
        trials: the estimate of every trial, by key.
        done: keys of those that have a record.
        speed: FLOPs a second.
        reason: where the speed comes from.
    """

    cells: tuple[Cell, ...]
    trials: Mapping[str, TrialEstimate]
    done: frozenset[str]
    speed: float
    reason: str

    def flops(self, keys: Iterable[str]) -> float:
        """Add up what these trials cost, shared trunks once."""
        trials = [self.trials[key] for key in keys]
        trunks = {trial.shared: trial.trunk for trial in trials if trial.trunk}
        return sum(trial.flops for trial in trials) + sum(trunks.values())


def estimate(
    recipe: Recipe,
    output: str | Path,
    *,
    data: str | Path | None = None,
    progress: bool | Show = True,
) -> Estimate:
    """Estimate what `study` would run and how long that takes, without running any of it.

    Args:
        recipe: what is studied.
        output: what has a record there costs nothing.
        data: as for `study`.
        progress: show a bar on the terminal; or a function, which is called in its place with the
            stage of the work, how much of it is done, of how much, and a note.

    Raises:
        InputError: as `study`.
    """
    context = open_study(output, data, pretend=True)
    planner = Planner(recipe, context)
    trials: dict[str, Trial] = {}
    models: dict[str, str] = {}
    lengths: dict[str, float] = {}
    estimates: dict[str, TrialEstimate] = {}
    with show_progress(progress) as show:
        show("planning trials", 0, 1)
        for batch in planner.plan():
            trials |= {trial.key: trial for trial in batch}
        for key, trial in trials.items():
            show("estimating trials", len(estimates), len(trials))
            model = trial.models[0]
            models[key] = models[model["trial"]] if isinstance(model, Mapping) else model
            estimates[key] = estimate_trial(trial, models[key], context, lengths)
    done = frozenset(key for key, trial in trials.items() if context.store.find_finished(trial))
    flops = seconds = 0.0
    for key, trial in trials.items():
        record = context.store.read(key) if trial.verb == "tune" else None
        if record is not None and record["status"] == "done":
            flops += estimates[key].flops
            seconds += record["seconds"]
    speed, reason = 1.0, "so far"
    if seconds > 1:
        speed = flops / seconds
    elif trials:
        key, first = next(iter(trials.items()))
        task = context.task(first.task)
        tokens = mean_tokens(context, models[key], first, task)
        speed, reason = measure_speed(context.shape(models[key], task), tokens), "one block timed"
    return Estimate(planner.list_cells(), estimates, done, speed, reason)


def measure_speed(shape: ModelShape, tokens: float) -> float:
    """Return the FLOPs a second of training steps of a block of this size, timed on this CPU.

    Args:
        shape: of the model.
        tokens: mean length of a text.
    """
    batch, length = 32, max(2, round(tokens))
    heads = max(1, shape.hidden_size // 64)
    layer = torch.nn.TransformerEncoderLayer(
        shape.hidden_size, heads, shape.feed_forward, batch_first=True
    )
    states = torch.randn(batch, length, shape.hidden_size, requires_grad=True)
    weights = torch.randn_like(states)  # the plain sum of normed states has no gradient at all

    def step() -> None:
        (layer(states) * weights).sum().backward()

    step()
    started, steps = perf_counter(), 0
    while steps < 3 or perf_counter() - started < _SECONDS:
        step()
        steps += 1
    return 3 * batch * steps * block_flops(shape, length) / (perf_counter() - started)
