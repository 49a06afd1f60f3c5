"""The stages of tuning a plan, each a function of values: trunk, head, training, the best run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from layerscout.errors import InputError, LayerscoutError, make_unknown_error
from layerscout.models import (
    TrainableModel,
    export,
    list_reinitialized,
    locate_parameters,
    make_classifier,
    make_trainable,
)
from layerscout.plans import Choice, Plan, rank_rate
from layerscout.progress import Show
from layerscout.states import (
    Examples,
    Trunk,
    fingerprint_encoder,
    join_process_group,
    make_accelerator,
)
from layerscout.tuning.resolve import Sweep, Tuning
from layerscout.tuning.runs import Run, pick_epoch
from layerscout.tuning.snapshots import RunSnapshots, Snapshots
from layerscout.tuning.training import train

# The trackers, and the option of each that names a run.
TRACKERS: Mapping[str, str | None] = {
    "tensorboard": None,
    "mlflow": "run_name",
    "wandb": "name",
    "trackio": "name",
}

Log = Callable[[Mapping[str, float], int], None]


class NothingFinishedError(LayerscoutError):
    """No run of a plan came to the end of an epoch."""


@dataclass(frozen=True)
class RunHooks:
    """What is shown, written and reported while the runs of a plan train.

    Attributes:
        show: the progress bar.
        snapshots: for resuming, if they are kept.
        track: the tracker that every epoch is reported to, if any.
        logs: the folder of trackers that write files.
        checkpoints: folders by epoch, where the model is saved as it is after that epoch.
        memory: bytes that all of it is expected to take, which are shown too.
        prefix: of the names of the runs among the snapshots.
    """

    show: Show
    snapshots: Snapshots | None
    track: str | None
    logs: Path
    checkpoints: Mapping[int, str | Path]
    memory: int
    prefix: str

    def advance(self, stage: str, done: float, total: float) -> None:
        """Show how many steps are done, and the memory that they are expected to take."""
        self.show(stage, done, total, f"{done / total:.0%}, needs {self.memory / 1e9:.3g} GB")

    def save_epoch(self, tuning: Tuning, model: Any, epoch: int) -> None:
        """Save the model after an epoch, if that was requested."""
        if epoch in self.checkpoints and make_accelerator().is_main_process:
            encoder, folder = tuning.encoder, self.checkpoints[epoch]
            card = f"{encoder.name} during training, after epoch {epoch}.\n"
            export(
                model,
                encoder.tokenizer,
                folder,
                card,
                max_length=tuning.request.max_length,
                dtype=tuning.save_dtype,
            )


@dataclass(frozen=True, eq=False)
class TunedPlan:
    """A plan after all of its runs.

    Attributes:
        choice: the plan and why.
        runs: all of them.
        kept: the number of the run that counts.
        parameters: the trained ones of that run.
        trunks: of both splits, if they were computed apart.
        validation: what it was judged on.
    """

    choice: Choice
    runs: tuple[Run, ...]
    kept: int
    parameters: Mapping[str, Tensor]
    trunks: tuple[Trunk, ...]
    validation: Examples


def train_plan(
    tuning: Tuning, sweep: Sweep, splits: tuple[Examples, Examples], hooks: RunHooks
) -> TunedPlan:
    """Train a plan with every rate and seed, each from a head of its own, and keep the best run.

    Args:
        tuning: what every run starts from.
        sweep: the plan, the rates and the seeds.
        splits: the training and the validation split, with what the trunk computed.
        hooks: what is shown, written and reported.

    Raises:
        NothingFinishedError: if no run came to the end of an epoch with a finite loss.
    """
    plan, keep = sweep.choice.plan, tuning.settings.keep
    runs: list[Run] = []
    # How a rate ranks, the number of its best run, and the parameters of that.
    champion: tuple[tuple[int, float], int, Mapping[str, Tensor]] | None = None
    for rate in sweep.rates:
        values: list[float] = []
        best: tuple[float, int, Mapping[str, Tensor]] | None = None
        for seed in tuning.request.seed:
            run, parameters = train_run(tuning, plan, splits, rate, seed, len(runs) + 1, hooks)
            if run.curve:
                values.append(pick_epoch(run.curve, keep).value)
                if best is None or values[-1] > best[0]:
                    best = values[-1], len(runs), parameters
            runs.append(run)
        if best is not None and (champion is None or rank_rate(values) > champion[0]):
            champion = rank_rate(values), *best[1:]
    if champion is None:
        remedy = "use a lower --learning-rate"
        if " at step 1 of " in str(runs[0].stopped):  # whose loss comes before its update
            remedy = "it overflows before any update: use another model, or --precision float32"
        raise NothingFinishedError(
            f"no run of {plan.notation} finished an epoch: with learning rate "
            f"{runs[0].learning_rate:g} {runs[0].stopped}; {remedy}"
        )
    trunks = tuple(split.trunk for split in splits if split.trunk is not None)
    return TunedPlan(sweep.choice, tuple(runs), *champion[1:], trunks, splits[1])


def compute_trunk(tuning: Tuning, plan: Plan, show: Show) -> tuple[Examples, Examples]:
    """Run the trunk over both splits, or read its states from the cache."""
    splits = tuning.training, tuning.validation
    if tuning.request.trunk_dropout:
        return splits
    total, done = sum(map(len, splits)), 0
    stage = f"blocks 1 to {plan.cut}, once" if plan.cut else "embeddings, once"

    def advance(rows: np.ndarray) -> None:
        nonlocal done
        done += len(rows)
        examples = done // tuning.training.answers.choices
        show(stage, examples, total, f"{examples:,} of {total:,} examples")

    fingerprint = None  # of all weights below the cut, once for both splits
    if plan.cut is not None and tuning.cache_limit:
        fingerprint = fingerprint_encoder(tuning.encoder, plan.cut)

    prepare = partial(
        Examples.prepare,
        tuning.encoder,
        plan,
        head=tuning.head,
        limit=tuning.cache_limit,
        fingerprint=fingerprint,
        progress=advance,
        group=join_process_group(),
    )
    training, validation = splits
    first = prepare(training.tokens, training.answers)
    return first, prepare(validation.tokens, validation.answers, spare=first.trunk)


def start_head(tuning: Tuning, plan: Plan, seed: int) -> TrainableModel:
    """Make what a run of a plan trains; see `make_classifier` and `make_trainable`."""
    model = make_classifier(
        tuning.encoder,
        plan,
        tuning.task.labels,
        seed=seed,
        fresh_head=tuning.request.draws_head,
        kind=tuning.task.kind,
        head=tuning.head,
        shares=tuning.training.answers.count_shares(tuning.task),
    )
    return make_trainable(model, plan, tuning.method, seed=seed)


def train_run(
    tuning: Tuning,
    plan: Plan,
    splits: tuple[Examples, Examples],
    rate: float,
    seed: int,
    number: int,
    hooks: RunHooks,
) -> tuple[Run, Mapping[str, Tensor]]:
    """Train a plan once; return the run, and the trained parameters of its epoch that counts."""
    label = f"{plan.notation}, learning rate {rate:g}, seed {seed}"
    about = {"learning_rate": rate, "seed": seed, "plan": plan.notation}
    about |= {"method": tuning.method.name, **asdict(tuning.settings)}
    snapshots = None
    if hooks.snapshots is not None:
        snapshots = RunSnapshots(hooks.snapshots.folder / f"{hooks.prefix}run-{number}")
    with tracking(hooks.track, hooks.logs, label, about) as log:
        model = start_head(tuning, plan, seed).model
        return train(
            tuning.encoder,
            model,
            *splits,
            learning_rate=rate,
            seed=seed,
            settings=tuning.settings,
            advance=partial(hooks.advance, label),
            snapshots=snapshots,
            log=log,
            after=partial(hooks.save_epoch, tuning, model),
            factors=_list_rate_factors(tuning, model, plan, rate),
        )


def _list_rate_factors(
    tuning: Tuning, model: Any, plan: Plan, learning_rate: float
) -> dict[str, float]:
    """Return what the learning rate of a parameter is multiplied by, by name, where it is."""
    factors: dict[str, float] = {}
    editing, factor = tuning.encoder.edit_spec, tuning.request.reinit_rate_factor
    if editing is not None and factor != 1:
        factors |= dict.fromkeys(list_reinitialized(model, editing), factor)
    if plan.tuned and tuning.head_learning_rate is not None:
        head = [name for name, place in locate_parameters(model).items() if place == "head"]
        factors |= dict.fromkeys(head, tuning.head_learning_rate / learning_rate)
    return factors


def check_tracker(name: str) -> None:
    """Show that a tracker can be used here.

    Raises:
        InputError: if there is no such tracker, or it is not installed.
    """
    if name not in TRACKERS:
        raise make_unknown_error("tracker", str(name), TRACKERS)
    from accelerate.tracking import get_available_trackers

    if name not in {str(kind.value) for kind in get_available_trackers()}:
        raise InputError(f"the tracker {name} is not installed; run: pip install {name}")


@contextmanager
def tracking(name: str | None, folder: Path, run: str, config: Mapping[str, Any]) -> Iterator[Log]:
    """Return what logs values at a step to a run of a tracker, which begins with the first of them.

    Args:
        name: a key of `TRACKERS`; None for no tracker.
        folder: where those that write files write them.
        run: what the run is called.
        config: facts about the run, by name.
    """
    if name is None:
        yield lambda values, step: None
        return
    from accelerate import Accelerator

    option = TRACKERS[name]
    # TensorBoard names runs by their folders.
    own = folder if option else folder / re.sub(r"[^\w.=+-]+", "_", run)
    opened: list[Any] = []  # a run that was finished before has nothing to log

    def log(values: Mapping[str, float], step: int) -> None:
        if not opened:
            own.mkdir(parents=True, exist_ok=True)
            options: dict[str, Any] = {"log_with": name, "project_dir": str(own)}
            accelerator = Accelerator(device_placement=False, mixed_precision="no", **options)
            plain = {k: v for k, v in config.items() if isinstance(v, bool | int | float | str)}
            try:
                own_options = {name: {option: run}} if option else {}
                accelerator.init_trackers("layerscout", plain, own_options)
            except Exception as error:  # of whatever kind the tracker's own are
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise LayerscoutError(
                    f"the tracker {name} cannot start a run: {reason}; check its settings and "
                    "continue with --resume, or leave out --track"
                ) from error
            opened.append(accelerator)
        opened[0].log(dict(values), step=step)

    try:
        yield log
    finally:
        for accelerator in opened:
            for tracker in accelerator.trackers:
                tracker.finish()
