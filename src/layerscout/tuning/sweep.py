"""Sweeps: a plan trained with every learning rate and seed, and the run that counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from layerscout.cache import Examples, Trunk, join_team, make_accelerator
from layerscout.models import export
from layerscout.plans import Choice, Plan, rank_rate
from layerscout.runtime import LayerscoutError, Show
from layerscout.tuning.outcome import Tuned
from layerscout.tuning.setup import Part, TuneSetup
from layerscout.tuning.snapshots import Snapshots
from layerscout.tuning.tracking import tracking
from layerscout.tuning.training import Run, train


class NothingFinishedError(LayerscoutError):
    """No run of a plan came to the end of an epoch."""


@dataclass(frozen=True)
class Sweep:
    """A plan with the learning rates and seeds that it is tuned with."""

    choice: Choice
    rates: Sequence[float]
    seeds: Sequence[int]


@dataclass(frozen=True)
class Recording:
    """What is shown, written and reported while the runs of a plan train.

    Attributes:
        show: the progress bar.
        snapshots: for resuming, if they are kept.
        prefix: of the names of the runs there.
        track: the tracker that every epoch is reported to, if any.
        logs: the folder of trackers that write files.
        checkpoints: folders by epoch, where the model is saved as it is after that epoch.
        memory: bytes that all of it is expected to take, which are shown too; 0 for nothing.
    """

    show: Show
    snapshots: Snapshots | None
    prefix: str
    track: str | None
    logs: Path
    checkpoints: Mapping[int, str | Path] = field(default_factory=dict)
    memory: int = 0

    def advance(self, stage: str, done: float, total: float) -> None:
        """Show how many steps are done, and the memory that they are expected to take."""
        needs = f", needs {self.memory / 1e9:.3g} GB" if self.memory else ""
        self.show(stage, done, total, f"{done / total:.0%}{needs}")

    def save_epoch(self, setup: TuneSetup, model: Any, epoch: int) -> None:
        """Save the model after an epoch, if that was asked for."""
        if epoch in self.checkpoints and make_accelerator().is_main_process:
            encoder, folder = setup.encoder, self.checkpoints[epoch]
            card = f"{encoder.name} during training, after epoch {epoch}.\n"
            export(
                model,
                encoder.tokenizer,
                folder,
                card,
                max_length=setup.request.max_length,
                dtype=setup.save_dtype,
            )


def run_sweep(setup: TuneSetup, sweep: Sweep, recording: Recording) -> Tuned:
    """Train a plan with every rate and seed, and choose the run that counts.

    Args:
        setup: what every run starts from.
        sweep: the plan, the rates and the seeds.
        recording: what is shown and written.

    Raises:
        NothingFinishedError: if no run came to the end of an epoch with a finite loss.
    """
    plan, keep = sweep.choice.plan, setup.settings.keep
    splits = _prepare_examples(setup, plan, recording.show)
    runs: list[Run] = []
    champion: _Champion | None = None
    for rate in sweep.rates:
        values: list[float] = []
        best: _Champion | None = None
        for seed in sweep.seeds:
            name = f"{recording.prefix}run-{len(runs) + 1}"
            run, parameters = _train_run(setup, plan, splits, rate, seed, name, recording)
            if run.curve:
                values.append(run.choose_epoch(keep).value)
                if best is None or values[-1] > best.rank[1]:
                    best = _Champion((0, values[-1]), len(runs), parameters)
            runs.append(run)
        if best is not None:
            best = replace(best, rank=rank_rate(values))
            champion = best if champion is None or best.rank > champion.rank else champion
    if champion is None:
        remedy = "use a lower --learning-rate"
        if " at step 1 of " in str(runs[0].stopped):  # whose loss comes before its update
            remedy = "it overflows before any update: use another model, or --precision float32"
        raise NothingFinishedError(
            f"no run of {plan.notation} finished an epoch: with learning rate "
            f"{runs[0].learning_rate:g} {runs[0].stopped}; {remedy}"
        )
    trunks = tuple(e.trunk for e in splits if e.trunk is not None)
    return Tuned(sweep.choice, tuple(runs), champion.run, champion.parameters, trunks, splits[1])


@dataclass(frozen=True, eq=False)
class _Champion:
    """The best run of a learning rate, which ranks by how many runs finished and their mean."""

    rank: tuple[int, float]
    run: int
    parameters: Mapping[str, Tensor]


def _train_run(
    setup: TuneSetup,
    plan: Plan,
    splits: tuple[Examples, Examples],
    rate: float,
    seed: int,
    name: str,
    recording: Recording,
) -> tuple[Run, Mapping[str, Tensor]]:
    """Train a plan once; returns the run, and the trained parameters of its epoch that counts."""
    label = f"{plan.notation}, learning rate {rate:g}, seed {seed}"
    about = {"learning_rate": rate, "seed": seed, "plan": plan.notation}
    about |= {"method": setup.method.name, **asdict(setup.settings)}
    with tracking(recording.track, recording.logs, label, about) as log:
        model = setup.equip(plan, seed).model
        return train(
            setup.encoder,
            model,
            *splits,
            learning_rate=rate,
            seed=seed,
            settings=setup.settings,
            advance=partial(recording.advance, label),
            snapshots=None if recording.snapshots is None else recording.snapshots.of(name),
            log=log,
            after=partial(recording.save_epoch, setup, model),
            factors=setup.factors(model, plan, rate),
        )


def _prepare_examples(setup: TuneSetup, plan: Plan, show: Show) -> tuple[Examples, Examples]:
    """Run the trunk over both splits, or find what it gave."""
    parts = setup.training, setup.validation
    if setup.request.trunk_dropout:
        return setup.training.without_trunk(), setup.validation.without_trunk()
    total, done = sum(map(len, parts)), 0
    stage = f"blocks 1 to {plan.cut}, once" if plan.cut else "embeddings, once"

    def advance(rows: np.ndarray) -> None:
        nonlocal done
        done += len(rows)
        examples = done // setup.training.answers.choices
        show(stage, examples, total, f"{examples:,} of {total:,} examples")

    team = join_team()

    def prepare(part: Part, spare: Trunk | None) -> Examples:
        return Examples.prepare(
            setup.encoder,
            plan,
            part.tokens,
            part.answers,
            head=setup.head,
            limit=setup.cache_limit,
            spare=spare,
            progress=advance,
            team=team,
        )

    first = prepare(setup.training, None)
    return first, prepare(setup.validation, first.trunk)
