"""Keeping a tuning within a limit of time: the free head first, and as much training as fits."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from math import ceil
from time import perf_counter
from typing import Any

from layerscout.data import draw_examples
from layerscout.errors import InputError
from layerscout.plans import STAGE_ROWS
from layerscout.tuning.free import Ready, can_keep_free, keep_free, solve_first
from layerscout.tuning.machine import Deadline, Watch
from layerscout.tuning.plan_spec import read_plan
from layerscout.tuning.resolve import RatedPlan, Tuning, encode_split
from layerscout.tuning.run_options import RunOptions
from layerscout.tuning.stages import Hooks, TunedPlan
from layerscout.tuning.timing import (
    Forecast,
    RunTime,
    Speed,
    estimate,
    estimate_run,
    estimate_solving,
)

# A training is planned for this share of the limit, and stopped at the other: neither the estimates
# nor the speed of a machine that others use are exact.
PLANNED_SHARE, STOPPED_SHARE = 0.95, 0.98
# Steps below which a training is not worth beginning.
LEAST_STEPS = 10
# Rows below which it is not worth reading only some of those that there are.
LEAST_ROWS = 50
# How often a training sees the rows that it reads if it has no time to see all rows as often, and
# how many it reads at least for each class. Of 3,600 rows (MiniLM, emotion6 and trec6, two draws
# each) so many seen once or twice came to the same in the same time, and more of which half were
# seen to two points less on emotion6.
PASSES, EACH_CLASS = 2, 4
# How far in accuracy what "auto" returns is above the free head on test rows, with the interval of
# 95 % over 40 cells of docs/measured/board.md (eight tasks, two models, 16 to 4,000 rows); and for
# how many rows that is taken to hold.
GAIN, GAIN_INTERVAL, GAIN_ROWS = 0.058, (0.034, 0.083), (16, 4000)


def check_limit(tuning: Tuning, forecast: Forecast, watch: Watch, running: RunOptions) -> None:
    """Raise if the time is too short for loading the model and the least that gives another.

    Raises:
        InputError: if it is; the message says what is long enough.
    """
    rated, speed = tuning.plans[0], forecast.speeds[0]
    if rated.rates and can_keep_free(tuning, running):
        tuning = keep_free(tuning)
        rated = tuning.plans[0]
    passes = not rated.rates
    what = "one pass over the rows and its head" if passes else "a step of training"
    settings = replace(tuning.settings, max_steps=1)
    phases = estimate(tuning, rated, settings, speed, running)
    after = sum(phases.values()) - phases["trunk"] - phases["train"]
    runs = _list_runs(tuning, [(rated, speed)], running)
    seconds = Trainings(tuning, runs, phases["trunk"], after).take(1)
    loaded = watch.elapsed
    needed = loaded + seconds
    if needed > watch.limit:
        rows, held = len(tuning.training), len(tuning.validation)
        fit = int((rows + held) * (watch.limit / 1.1 - loaded) / seconds) - held
        fewer = f", or read {fit} `examples` of the {rows}" if passes and fit >= LEAST_ROWS else ""
        raise InputError(
            f"`time` ({watch.limit:g} s) is too short: it took {loaded:.1f} s until the work could "
            f"begin, and {what}, judged and saved, takes about {seconds:.1f} s more; give "
            f"{ceil(1.1 * needed)}s or more{fewer}"
        )


@dataclass(frozen=True, eq=False)
class Fitted:
    """A tuning as it fits a limit of time.

    Attributes:
        tuning: with its plans that fit, and the steps of their training.
        part: the same with the training rows that trainings read, perhaps fewer.
        tuned: those of the plans that need no more.
        ready: the free head, solved before any training; None where there is none.
        notes: what the reader should know.
        deadlines: of the trainings, in their order.
        more: the limit that a training would need which does not fit, and what it would bring, as
            `result.json` holds it; None where that was not measured.
    """

    tuning: Tuning
    part: Tuning
    tuned: Sequence[TunedPlan] = ()
    ready: Ready | None = None
    notes: Sequence[str] = ()
    deadlines: Iterator[Deadline] = field(default_factory=partial(repeat, Deadline()))
    more: dict[str, Any] | None = None


def count_read(tuning: Tuning, steps: int) -> int:
    """Count the training rows that are read for so many steps: as many as these see `PASSES` times.

    All are for the steps of a whole training, or if they are few.
    """
    settings, rows = tuning.settings, len(tuning.training)
    if steps >= settings.steps(rows):
        return rows
    passes = max(1, min(PASSES, int(settings.count_epochs(rows))))
    least = max(STAGE_ROWS, EACH_CLASS * len(tuning.task.labels))
    return min(rows, max(least, ceil(steps * settings.step_size / passes)))


@dataclass(frozen=True, eq=False)
class Trainings:
    """What the trainings of a tuning take, by the steps of each.

    Attributes:
        tuning: of the plans.
        runs: what they take, in their order.
        trunk: seconds of the states that they start from.
        after: seconds of what else is ahead.
        slower: how many times slower than expected this machine was up to now.
    """

    tuning: Tuning
    runs: Sequence[RunTime]
    trunk: float
    after: float
    slower: float = 1.0

    def shorten(self, steps: int) -> tuple[list[RunTime], list[float]]:
        """Return what each training takes on the rows that are read, and its seconds in all."""
        rows, settings = count_read(self.tuning, steps), self.tuning.settings
        settings = replace(settings, max_steps=steps)
        runs = [run.shorten(rows / len(self.tuning.training)) for run in self.runs]
        return runs, [run.take(settings, rows) for run in runs]

    def take(self, steps: int) -> float:
        """Return the seconds of all that is ahead."""
        every, held = len(self.tuning.training), len(self.tuning.validation)
        share = (count_read(self.tuning, steps) + held) / (every + held)
        trained = sum(self.shorten(steps)[1])
        return self.slower * (share * self.trunk + trained + self.after)


def fit_trainings(tuning: Tuning, forecast: Forecast, hooks: Hooks) -> Fitted:
    """Solve the free head, and fit the trainings into the time that is left, with fewer steps.

    So the learning rate falls to its end. What steps would not see is not read. A training that is
    resumed keeps the steps that it was planned with. Where there is no free head, a step is taken
    in any case.

    Args:
        tuning: of the plans.
        forecast: what they take.
        hooks: with the time that has passed.
    """
    ready, watch, phases = solve_first(tuning, hooks), hooks.watch, forecast.seconds
    after, left = phases["judge"] + phases["save"], phases["states"] + phases["solve"]
    if ready is not None:  # what is left is to solve the head that judges the training
        left = estimate_solving(tuning, forecast.speeds[0], len(tuning.free))
    slower = _compare_with(phases["states"] + phases["solve"] - left, watch)
    pairs = zip(tuning.plans, forecast.speeds, strict=True)
    runs = _list_runs(tuning, pairs, hooks.running)
    trainings = Trainings(tuning, runs, phases["trunk"], after + left, slower)
    whole, limit = tuning.settings.steps(len(tuning.training)), f"--time {watch.limit:.9g}s"
    least = min(LEAST_STEPS, whole) if ready is not None or not tuning.plans[0].rates else 1

    def plan() -> int | None:
        time = PLANNED_SHARE * watch.limit - watch.elapsed
        steps = bisect_right(range(1, whole + 1), time, key=trainings.take)
        return steps if steps >= least else (1 if least == 1 else None)

    snapshots = hooks.snapshots
    steps = plan() if snapshots is None else snapshots.plan_steps(plan)

    def ask_for(steps: int) -> int:
        return ceil((watch.elapsed + trainings.take(steps)) / PLANNED_SHARE)

    if steps is None:
        few = f"{least} of {whole:,} steps would need --time {ask_for(least)}s"
        note = f"no training fits {limit}: {few}, all of them --time {ask_for(whole)}s"
        kept, head = (tuning, []) if ready is None else (ready.tuning, [ready.head])
        more = _expect_gain(tuning, ask_for(whole)) if head else None
        kept = replace(kept, plans=kept.plans[:1])
        return Fitted(kept, kept, head, notes=[note], more=more)
    settings = tuning.settings if steps >= whole else replace(tuning.settings, max_steps=steps)
    every, there = len(tuning.training), tuning.task.train.examples
    examples = ceil(count_read(tuning, steps) * there / every)  # a long sentence is several rows
    work = replace(tuning.work, epochs=settings.count_epochs(every))
    tuning = replace(tuning, settings=settings, work=work)
    rows = "" if examples >= there else f" on {examples:,} of {there:,} rows"
    fit = f"{steps:,} of {whole:,} steps are trained{rows}, as many as fit {limit}"
    return Fitted(
        tuning,
        _read_part(tuning, examples),
        ready=ready,
        notes=[f"{fit}; all would need --time {ask_for(whole)}s"] if steps < whole else [],
        deadlines=_set_deadlines(watch.started + STOPPED_SHARE * watch.limit, trainings, steps),
    )


def _read_part(tuning: Tuning, examples: int) -> Tuning:
    """Return a tuning with so many of its training examples, drawn in proportion."""
    if examples >= tuning.task.train.examples:
        return tuning
    task = draw_examples(tuning.task, examples, tuning.request.seed[0])
    training = encode_split(task.train, tuning.encoder, task, tuning.request.max_length)
    return replace(tuning, task=task, training=training)


def _expect_gain(tuning: Tuning, seconds: int) -> dict[str, Any] | None:
    """Return what a training that takes so many seconds would bring, where that was measured."""
    rows, (few, many) = len(tuning.training) + len(tuning.validation), GAIN_ROWS
    auto = read_plan(tuning.request.plan).is_auto and tuning.task.kind == "classification"
    if not auto or tuning.settings.metric != "accuracy" or not few <= rows <= many:
        return None
    return {"seconds": seconds, "gain": GAIN, "interval": GAIN_INTERVAL}


def _list_runs(
    tuning: Tuning, plans: Iterable[tuple[RatedPlan, Speed]], running: RunOptions
) -> list[RunTime]:
    """List what the trainings of plans take, in their order."""
    runs: list[RunTime] = []
    for rated, speed in plans:
        times = len(rated.rates) * len(tuning.request.seed)
        runs += times * estimate_run(tuning, rated, speed, running) if times else []
    return runs


def _compare_with(expected: float, watch: Watch) -> float:
    """Return how many times slower than expected in seconds this machine was up to now, or 1."""
    taken = sum(watch.seconds.get(phase, 0.0) for phase in ("states", "solve"))
    return max(1.0, taken / expected) if expected else 1.0


def _set_deadlines(end: float, trainings: Trainings, steps: int) -> Iterator[Deadline]:
    """Yield the deadline of each training, which has its share of what is left when it begins."""
    runs, seconds = trainings.shorten(steps)
    for number, (run, own) in enumerate(zip(runs, seconds, strict=True)):
        share, last = own / sum(seconds[number:]), run.epoch + run.end
        after, slower = trainings.after, trainings.slower
        yield Deadline(perf_counter(), end, share, own - last, last, after, slower)
