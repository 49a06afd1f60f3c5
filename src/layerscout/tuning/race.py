"""A race: plans are tried for an epoch, compared on the same examples, and one is finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from layerscout.cache import predict
from layerscout.data import evaluate, evaluate_without, settle_thresholds
from layerscout.plans import TRIED, price_race
from layerscout.scores import Gap, Quality, deal_groups, majority, measure_gaps
from layerscout.tuning.outcome import Tuned, load_kept
from layerscout.tuning.setup import TuneSetup
from layerscout.tuning.snapshots import Snapshots
from layerscout.tuning.sweep import NothingFinishedError, Recording, Sweep, run_sweep

RACE = "race"


def run_race(setup: TuneSetup, sweeps: Sequence[Sweep], recording: Recording) -> Tuned:
    """Try plans for an epoch, finish the one that is chosen, and say what was tried.

    The first plan is the one that the guide names. Another takes its place if it is better on the
    validation examples beyond their noise, by paired jackknife, adjusted for the number of plans,
    and above always predicting the majority class: after an epoch some plans are at chance.
    What is finished continues from its first epoch, and comes to what it would have come to alone.

    Args:
        setup: what every run starts from.
        sweeps: the plans, each with one learning rate and one seed.
        recording: what is shown and written; without snapshots they go to a folder that is removed.

    Raises:
        NothingFinishedError: if no plan came to the end of an epoch with a finite loss.
    """
    with ExitStack() as holding:
        if recording.snapshots is None:
            folder = Path(holding.enter_context(TemporaryDirectory())) / RACE
            recording = replace(recording, snapshots=Snapshots.open(folder, {}, resume=False))
        assert recording.snapshots is not None
        record = recording.snapshots.recall(RACE)
        if record is None:
            record = _try_all(setup, sweeps, recording)
            recording.snapshots.remember(RACE, record)
        won = record["won"]
        tuned = run_sweep(setup, sweeps[won], replace(recording, prefix=_prefix(won)))
        return replace(tuned, choice=replace(tuned.choice, reason=record["reason"]), race=record)


def _prefix(number: int) -> str:
    return f"race-{number + 1}-"


def _try_all(setup: TuneSetup, sweeps: Sequence[Sweep], recording: Recording) -> dict[str, Any]:
    """Train every plan for `TRIED` epochs, and choose one.

    Returns:
        What `result.json` holds of the race.
    """
    found: list[Quality | None] = [None]  # from 1 on, as states are
    failure: NothingFinishedError | None = None
    for number, sweep in enumerate(sweeps):
        beside = replace(recording, prefix=_prefix(number))
        try:
            found.append(_judge(setup, run_sweep(setup, sweep, beside, until=TRIED)))
        except NothingFinishedError as error:
            found.append(None)
            failure = error
    values = {number: one.value or 0.0 for number, one in enumerate(found) if one is not None}
    if not values:
        assert failure is not None, "a race has plans"
        raise failure
    guide = next(iter(values))
    gaps = measure_gaps(found, guide)
    better = [
        number
        for number, (one, gap) in enumerate(zip(found, gaps, strict=True))
        if one is not None and gap is not None and _is_better(one, gap)
    ]
    won = max(better, key=values.__getitem__, default=guide)
    tried = [
        {
            "plan": sweep.choice.plan.as_dict(),
            "value": None if one is None else one.value,
            "behind": None if gap is None else [gap.difference, gap.half_width],
        }
        for sweep, one, gap in zip(sweeps, found[1:], gaps[1:], strict=True)
    ]
    return {
        "epochs": TRIED,
        "tried": tried,
        "won": won - 1,
        "reason": _explain(sweeps, tried, guide - 1, won - 1),
        "flops": _count(setup, sweeps, won - 1),
    }


def _is_better(one: Quality, gap: Gap) -> bool:
    low, _ = one.interval()
    above = one.majority is None or (low is not None and low > one.majority)
    return above and -gap.difference > gap.half_width


def _judge(setup: TuneSetup, tuned: Tuned) -> Quality:
    """Judge what a plan has come to on the validation examples, with jackknife replicates."""
    metric, answers = setup.settings.metric, tuned.validation.answers
    labels, tags = answers.labels, answers.tags
    logits = predict(setup.encoder, load_kept(setup, tuned)[1], tuned.validation).numpy()
    folds = deal_groups(labels, 0, None if tags is None else tags.sentences, least=0)
    thresholds = settle_thresholds(setup.settings.threshold, labels, logits)
    without = evaluate_without(metric, labels, logits, folds, tags=tags, thresholds=thresholds)

    def judge(labels: np.ndarray, outputs: np.ndarray) -> float:
        found = outputs.reshape(len(labels), -1)
        return evaluate(metric, labels, found, tags=tags, thresholds=thresholds)

    return Quality(judge(labels, logits), without, majority(labels, labels, judge))


def _count(setup: TuneSetup, sweeps: Sequence[Sweep], won: int) -> float:
    """Count the training FLOPs of the whole race."""
    task = setup.task
    shape = setup.encoder.shape(len(task.labels), task.kind, setup.head)
    work = setup.work(cached=setup.cache_limit > 0 and not setup.request.trunk_dropout)
    plans = [sweep.choice.plan for sweep in sweeps]
    return price_race(plans, shape, work, setup.method, plans[won])


def _explain(
    sweeps: Sequence[Sweep], tried: Sequence[Mapping[str, Any]], guide: int, won: int
) -> str:
    """Say in a sentence what was tried and why one was chosen."""
    told = [
        f"{one['plan']['notation']} {'–' if one['value'] is None else format(one['value'], '.3f')}"
        for one in tried
    ]
    after = f"after {TRIED} epoch{'s' if TRIED > 1 else ''}"
    listed = f"a race of {len(tried)} plans, {after}: {', '.join(told)}"
    if won == guide:
        return f"{listed}; none clearly beat {sweeps[won].choice.plan.notation}"
    difference, half = tried[won]["behind"]
    return (
        f"{listed}; {sweeps[won].choice.plan.notation} beat "
        f"{sweeps[guide].choice.plan.notation} by {-difference:.3f} ± {half:.3f}"
    )
