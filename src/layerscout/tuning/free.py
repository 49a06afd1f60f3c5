"""The free head beside a training: solved from one pass, and kept by `auto` if it is as good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from layerscout.data import evaluate, find_difference, make_targets
from layerscout.errors import InputError
from layerscout.models import TrainableModel, check_formats, round_weights
from layerscout.plans import FULL, Choice, Loss, Plan
from layerscout.states import follow_first
from layerscout.tuning.judging import find_thresholds, judge_validation, load_kept
from layerscout.tuning.plan_spec import read_plan
from layerscout.tuning.resolve import RatedPlan, Tuning
from layerscout.tuning.run_options import RunOptions
from layerscout.tuning.solving import (
    Judged,
    Pooled,
    Solution,
    UnsolvableError,
    find_form,
    pool,
    solve_beside,
    solve_without,
)
from layerscout.tuning.stages import Hooks, TunedPlan, solve_plan


@dataclass(frozen=True, eq=False)
class Settled:
    """What is kept of a tuning: what was trained, or the free head in its place.

    Attributes:
        tuning: with the plan that is kept as its first.
        tuned: likewise.
        trainable, model: of that plan, see `load_kept`.
        judged: what the model says of rows; None where only the metric or the speed is measured.
        free: what `result.json` holds of the free head; None where there is none beside.
        training: what was trained and is not kept.
        pooled: what the free head was solved from, beside a training.
    """

    tuning: Tuning
    tuned: Sequence[TunedPlan]
    trainable: TrainableModel
    model: Any
    judged: Judged | None
    free: Mapping[str, Any] | None = None
    training: TunedPlan | None = None
    pooled: Pooled | None = None


@dataclass(frozen=True, eq=False)
class Ready:
    """The free head, solved before anything is trained: what there is where nothing else fits.

    Attributes:
        pooled: what it was solved from.
        tuning: with the head as its first plan.
        head: on all labelled rows.
    """

    pooled: Pooled
    tuning: Tuning
    head: TunedPlan


def solve_first(tuning: Tuning, hooks: Hooks) -> Ready | None:
    """Solve the free head; None where there can be none."""
    if not (tuning.trains and can_keep_free(tuning, hooks.running)):
        return None
    with hooks.watch.measure("states"):
        pooled = pool(tuning, hooks.show)
    free = keep_free(tuning, "no training fits the time")
    with hooks.watch.measure("solve"), suppress(UnsolvableError):
        return Ready(pooled, free, solve_plan(free, free.plans[0], pooled, hooks))
    return None


def settle_kept(
    tuning: Tuning, tuned: Sequence[TunedPlan], hooks: Hooks, ready: Ready | None = None
) -> Settled:
    """Settle what is kept: what was trained, or with `auto` the free head if that is as good.

    Of few rows, the training unless that is clearly worse; see `is_trusted`. What was asked for by
    name is kept in any case, and so is what alone can have a format, the family's classifier or a
    shorter precision that was asked for.
    """
    running, watch = hooks.running, hooks.watch
    trainable, model = load_kept(tuning, tuned[0])
    if running.measure not in ("predictions", "all"):
        round_weights(model, tuning.save_dtype)
        return Settled(tuning, tuned, trainable, model, None)
    judged = judge_validation(tuning, tuned[0], model)
    trained = Settled(tuning, tuned, trainable, model, judged)
    if running.measure != "all" or not tuning.free:
        return trained
    try:
        with watch.measure("states"):
            pooled = pool(tuning, hooks.show) if ready is None else ready.pooled
        with watch.measure("solve"):
            free = _compare(tuning, pooled, judged, tuned[0].solution)
        free = follow_first(lambda: free)  # so that all keep the same model
        trained = replace(trained, free=free, pooled=pooled)
        if free["better"] or not may_keep_free(tuning, running):
            return trained
        if _is_usual(tuning, tuned[0]) and is_trusted(
            tuning.settings.loss, free["folds"], free["interval"]
        ):
            return replace(trained, free={**free, "trusted": True})
        tuning = keep_free(tuning)
        with watch.measure("solve"):
            head = (
                solve_plan(tuning, tuning.plans[0], pooled, hooks) if ready is None else ready.head
            )
    except UnsolvableError:
        return trained
    trainable, model = load_kept(tuning, head)
    judged = judge_validation(tuning, head, model)
    free |= {"kept": True}
    return Settled(tuning, [head, *tuned[1:]], trainable, model, judged, free, tuned[0])


def may_keep_free(tuning: Tuning, running: RunOptions) -> bool:
    """Return whether the free head may be kept in place of the first plan, if that is no better."""
    auto = read_plan(tuning.request.plan).is_auto and tuning.method == FULL
    return auto and running.measure == "all" and can_keep_free(tuning, running)


def can_keep_free(tuning: Tuning, running: RunOptions) -> bool:
    """Return whether there is a free head that can have what was asked for besides the plan."""
    request = tuning.request
    if not tuning.free or request.save_dtype not in (None, "float32"):
        return False
    if request.classifier == "family" and find_form(tuning).head is None:  # which reads the mean
        return False
    try:
        check_formats(running.formats, keep_free(tuning).saves)
    except InputError:  # that the training alone can have
        return False
    return True


def keep_free(tuning: Tuning, reason: str = "no training was better") -> Tuning:
    """Return a tuning with the free head as its first plan."""
    plan = Plan((), tuning.free[0]).on(tuning.encoder.blocks)
    rated = RatedPlan(Choice(plan, "auto", reason), (), tuning.free)
    return replace(
        tuning,
        plans=[rated, *tuning.plans[1:]],
        method=FULL,
        saved_as=find_form(tuning).saved_as,
        free=(),
    )


def solve_instead(tuning: Tuning, hooks: Hooks) -> tuple[Tuning, TunedPlan] | None:
    """Return the free head in place of a first plan of which no run finished an epoch.

    None where it may not be kept, or no state tells rows apart.
    """
    if not may_keep_free(tuning, hooks.running):
        return None
    tuning = keep_free(tuning)
    with suppress(UnsolvableError):
        return tuning, solve_plan(tuning, tuning.plans[0], pool(tuning, hooks.show), hooks)
    return None


def _compare(
    tuning: Tuning, pooled: Pooled, judged: Judged, solution: Solution | None
) -> dict[str, Any]:
    """Compare what a trained model says of rows that judge it with a head that saw none of them.

    Raises:
        UnsolvableError: if no head can be solved.
    """
    from layerscout.scores import calibrate, find_losses

    started, metric = perf_counter(), tuning.settings.metric
    if solution is None or judged.dealt is None:
        solved, beside = solve_beside(tuning, pooled, tuning.free)
    else:
        parts = np.full(solution.pooled.examples, -1)
        parts[solution.solved.rows] = judged.dealt
        solved, beside = solve_without(tuning, pooled, tuning.free, parts)
    answers = make_targets(judged.split, tuning.task.kind, tuning.task.labels)
    labels, tags = answers.labels, answers.tags
    least = find_thresholds(tuning, beside), find_thresholds(tuning, judged)
    logits = beside.logits, judged.logits
    difference, interval = find_difference(metric, labels, logits, tags=tags, thresholds=least)
    # Some are surer than they should be, which says nothing of what they predict.
    exact = [each.astype(np.float64) for each in logits]
    suited = [each * calibrate(labels, each) for each in exact]
    losses = [float(find_losses(labels, each).mean()) for each in suited]
    value = evaluate(metric, labels, beside.logits, tags=tags, thresholds=least[0])
    return {
        "state": solved.state,
        "shrinkage": solved.shrinkage,
        "penalty": solved.penalty,
        "value": value,
        "trained": value + difference,
        "losses": losses,
        "difference": difference,
        "interval": interval,
        "examples": len(labels),
        "folds": judged.folds,
        "better": is_better(difference, interval, losses),
        "kept": False,
        "seconds": pooled.seconds + perf_counter() - started,
    }


def _is_usual(tuning: Tuning, tuned: TunedPlan) -> bool:
    """Return whether a training is one for which alone it was measured what to keep.

    It had its usual rate and steps, of single texts. Trainings of 64 and 256 pairs (MRPC, QQP,
    QNLI, RTE, MNLI, WiC; MiniLM) were 0.3 points behind the head on other rows in the mean, and 0.6
    where `is_trusted` would keep them.
    """
    asked, run = {"learning_rate", "epochs"} & tuning.request.given, tuned.runs[tuned.kept]
    whole = tuning.settings.max_steps is None and run.stopped is None
    return not asked and whole and tuning.task.train.pairs is None


def is_trusted(loss: Loss | None, folds: int, interval: tuple[float, float] | None) -> bool:
    """Return whether a training is kept that its halves do not show to be better.

    It is if few rows were contrasted, unless it is clearly behind. A half sees half the rows: on 24
    cells (six tasks with MiniLM, one with mpnet-base, 16 to 256 rows) the difference on halves was
    5 to 7 points, beyond the noise of their rows, from that on other rows, which was 7.4 on average
    and −0.2 at worst. What `is_better` keeps gained 6.8 points there and missed two or more in four
    cells; with this it is 7.1 and two. Nothing lost two points. Drawn about the gains of 29 cells
    with the noise of halves of 16 to 64 rows, it is 6.6 to 7.2 of 8.0 points, and 7.9.

    Args:
        loss: that the training lowered.
        folds: by which it is judged; a single one if by validation rows.
        interval: of how far its metric is above the head's; None where there is none.
    """
    return loss == "contrastive" and folds > 1 and interval is not None and interval[1] >= 0


def is_better(
    difference: float, interval: tuple[float, float] | None, losses: Sequence[float]
) -> bool:
    """Return whether a training is better than the free head on validation rows.

    It is if its metric is above beyond noise, or if it is not below and its loss is lower. Of 900
    pairs of heads on 4 to 80 validation rows (six tasks, MiniLM), where the second was up to nine
    points worse or better than the first, what this chose had 0.23 points more accuracy on other
    rows than the first, and lost two points or more in 4 %; by the metric alone −0.08 and 8 %.

    Args:
        difference: how far the training's metric is above the head's.
        interval: of that; None where there is none.
        losses: of the head and of the training, with the factor on all logits that suits each.
    """
    beyond = interval is not None and interval[0] > 0
    return beyond or (difference >= 0 and losses[1] < losses[0])
