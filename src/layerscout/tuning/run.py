"""Tuning what a plan says, from the states of a trunk that is computed once."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Unpack

from layerscout.data import Task
from layerscout.errors import InputError
from layerscout.models import Encoder
from layerscout.plans import Plan, TuneRequest, add_options, resolve_request, take_options
from layerscout.progress import Show, log_warnings, say, show_progress, write_duration
from layerscout.states import is_first_process, make_accelerator
from layerscout.tuning.free import settle_kept, solve_instead
from layerscout.tuning.judging import judge
from layerscout.tuning.learning_curve import learn_more
from layerscout.tuning.limiting import Fitted, check_limit, fit_trainings
from layerscout.tuning.machine import (
    Watch,
    expect_memory,
    measure_memory,
    warn_of_memory,
)
from layerscout.tuning.resolve import RatedPlan, Tuning, resolve
from layerscout.tuning.result import Result, make_result
from layerscout.tuning.run_options import RunOptions
from layerscout.tuning.snapshots import keeping_trained
from layerscout.tuning.solving import UnsolvableError, pool
from layerscout.tuning.stages import (
    Hooks,
    NothingFinishedError,
    TunedPlan,
    compute_trunk,
    solve_plan,
    train_plan,
)
from layerscout.tuning.staging import stage_plan
from layerscout.tuning.timing import Forecast

if TYPE_CHECKING:
    from layerscout.plans import TuneOptions
    from layerscout.scanning import Scan


@add_options(RunOptions, TuneRequest)
def tune(
    encoder: Encoder | str | Path,
    task: Task | str | Path,
    plan: Plan | str | Path | TuneRequest = "auto",
    *,
    scan: Scan | str | Path | None = None,
    progress: bool | Show = True,
    **options: Unpack[TuneOptions],
) -> Result:
    """Tune the blocks of a plan and the head; what lies below is computed once and kept.

    Every combination of `learning_rate` and `seed` is trained from the same start. What counts is
    the rate with the best mean over the seeds, and of its runs the best. Under `accelerate launch`
    several processes share every batch; the first one has the result to save.

    Args:
        encoder: an `Encoder`, or what `Encoder.load` takes.
        task: a `Task`, or what `Task.load` takes. Without a validation split a tenth of the
            training rows is set aside.
        plan: a `Plan`, its notation, a strategy, or a plan.json; or a whole `TuneRequest`, in place
            of its attributes in `options`.
        scan: what strategies such as "best-down:3@top" rest on, or its folder; without it, the
            training examples are scanned first. "auto" uses it, and makes one only for a `score`.
        progress: show a bar on the terminal; or a function, which is called in its place with the
            stage of the work, how much of it is done, of how much, and a note.
        **options: what is trained and how, such as `epochs` or `learning_rate`: the attributes of
            `layerscout.plans.TuneRequest`; and what is kept, saved, reported and measured, such as
            `snapshots` or `cache_limit`: see `TuneOptions` for both.

    Raises:
        InputError: if something cannot be used as requested.
        AlreadyDoneError: if `resume` is requested and `output` has the result of this training.
        LayerscoutError: if no run came to the end of an epoch with a finite loss.
        UnfinishedError: if all is trained, and then something failed; `resume` finishes it.
    """
    started = perf_counter()
    # What can be refused is refused before any work.
    running, given = take_options(RunOptions, options)
    request = running.settle(resolve_request(TuneRequest, plan, given, "plan"))
    watch = Watch(started if running.since is None else running.since, request.time or inf)
    alone = make_accelerator().num_processes == 1
    if request.time is not None and not alone:
        raise InputError(
            f"`time` ({request.time:g} s) is for a single process, and this is one of several; "
            "leave it out, or give `epochs`"
        )
    progress = progress if is_first_process() else False
    if isinstance(scan, str | Path):
        from layerscout.scanning import Scan

        scan = Scan.load(scan)
    halves = running.measure == "all"
    tuning = resolve(request, encoder, task, scan, running.cache_limit, progress, halves=halves)
    running.check_saving(tuning)
    about, name = running.identify(tuning)
    with show_progress(progress) as show, ExitStack() as lock:
        watch.seconds["load"] = watch.elapsed
        # Of several processes each would time other steps, and wait for those of the others.
        told = alone and progress is True and sys.stderr.isatty()
        forecast = None
        if told or request.time is not None:
            forecast = _forecast(tuning, running, show, watch, told=told)
        device, predicted = tuning.encoder.device, expect_memory(tuning)
        memory = {"predicted": predicted, "before": measure_memory(device)}
        snapshots = running.open_snapshots(about, lock)
        warnings = [*tuning.warnings, *warn_of_memory(device, predicted)]
        warnings += snapshots.notes if snapshots is not None else ()
        hooks = Hooks(show, running, snapshots, predicted, warnings, watch)
        fitted = Fitted(tuning, tuning)
        if forecast is not None and request.time is not None:
            fitted = fit_trainings(tuning, forecast, hooks)
            warnings += fitted.notes
        tuning, tuned = _tune_plans(fitted, hooks)
        with keeping_trained(snapshots, "judging it"), watch.measure("judge"):
            settled = settle_kept(tuning, tuned, hooks, fitted.ready)
            texts = learn_more(settled) if running.measure == "all" else None
            # Before what only measures the model.
            memory["used"] = measure_memory(device, before=memory["before"])
            show("done" if running.measure == "metric" else "judging it", 0, 1)
            judgement = judge(
                settled.tuning, settled.tuned, settled.model, settled.judged, running.measure
            )
            estimate = None if forecast is None else forecast.seconds
            time = {"limit": request.time, "estimate": estimate, "seconds": watch.seconds}
            more = {"texts": texts, "time": fitted.more}
            result = make_result(settled, judgement, more, memory, name, warnings, time)
        log_warnings(__name__, result.warnings)
        # Locked until the result is saved.
        kept = None if snapshots is None else replace(snapshots, lock=lock.pop_all())
        return replace(result, snapshots=kept)


def _forecast(
    tuning: Tuning, running: RunOptions, show: Show, watch: Watch, *, told: bool
) -> Forecast:
    """Estimate what the work that is ahead takes, and say so if asked.

    Raises:
        InputError: if that does not fit the time, whatever is done.
    """
    show("timing parts of the work", 0, 1)
    with watch.measure("timing"):
        forecast = Forecast.of(tuning, running)
    check_limit(tuning, forecast, watch, running)
    if told:
        expected = min(sum(forecast.seconds.values()), watch.limit - watch.elapsed)
        say(f"this takes about {write_duration(expected)}")
    return forecast


def _tune_plans(fitted: Fitted, hooks: Hooks) -> tuple[Tuning, list[TunedPlan]]:
    """Tune each plan that is not yet; the free head stands in for a first one that fails."""
    tuning, tuned = fitted.tuning, [*fitted.tuned]
    hooks = replace(hooks, deadlines=fitted.deadlines)
    for number, rated in enumerate(tuning.plans[len(tuned) :], start=1):
        try:
            trained = fitted.part if rated.rates else tuning
            tuned.append(_tune_plan(trained, rated, hooks, number))
        except (NothingFinishedError, UnsolvableError) as error:
            if tuned:
                hooks.warnings.append(f"the plan to compare with failed: {error}")
            elif (instead := solve_instead(tuning, hooks)) is not None:
                tuning, head = instead
                tuned.append(head)
                hooks.warnings.append(f"the training failed, so the free head is kept: {error}")
            else:
                if hooks.snapshots is not None:  # nothing in them is worth continuing
                    hooks.snapshots.discard()
                raise
    hooks.warnings.extend(hooks.running.warn_of_unsaved())
    return tuning, tuned


def _tune_plan(tuning: Tuning, rated: RatedPlan, hooks: Hooks, number: int) -> TunedPlan:
    """Find the parameters of a plan, with whatever stage that takes."""
    plan, show, watch = rated.choice.plan, hooks.show, hooks.watch
    if not rated.rates:
        with watch.measure("states"):
            pooled = pool(tuning, show)
        with watch.measure("solve"):
            return solve_plan(tuning, rated, pooled, hooks)
    with watch.measure("train"):
        if rated.states is not None:
            return stage_plan(tuning, rated, hooks, number)
        with watch.measure("trunk"):
            splits = compute_trunk(tuning, plan, (tuning.training, tuning.validation), show)
        return train_plan(tuning, rated, splits, hooks, number)
