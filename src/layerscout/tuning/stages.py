"""The stages of tuning a plan, each a function of values: trunk, head, training, the best run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import repeat
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from layerscout.errors import LayerscoutError
from layerscout.models import (
    Encoder,
    TrainableModel,
    export,
    locate_parameters,
    make_classifier,
    make_trainable,
)
from layerscout.plans import Choice, Classifier, Plan, rank_rate
from layerscout.progress import Show, follow_examples
from layerscout.states import (
    Examples,
    Trunk,
    fingerprint_encoder,
    is_first_process,
    join_process_group,
)
from layerscout.tuning.machine import Deadline, Watch
from layerscout.tuning.resolve import RatedPlan, Tuning
from layerscout.tuning.run_options import RunOptions, tracking
from layerscout.tuning.snapshots import RunSnapshots, Snapshots
from layerscout.tuning.solving import Pooled, Solution, list_parameters, solve
from layerscout.tuning.starting import Starts, solve_once
from layerscout.tuning.stepping import Run, pick_epoch
from layerscout.tuning.training import train

T = TypeVar("T")


class NothingFinishedError(LayerscoutError):
    """No run of a plan came to the end of an epoch."""


@dataclass(frozen=True)
class Hooks:
    """What is shown, written and reported while plans train.

    Attributes:
        show: the progress bar.
        running: what is saved and reported.
        snapshots: for resuming, if they are kept.
        memory: bytes that training is expected to take, which are shown too.
        warnings: what the reader of the result should know, added to.
        watch: measures what every phase takes.
        deadlines: of the trainings, in their order.
    """

    show: Show
    running: RunOptions
    snapshots: Snapshots | None
    memory: int
    warnings: list[str]
    watch: Watch
    deadlines: Iterator[Deadline] = field(default_factory=partial(repeat, Deadline()))

    def track(
        self, label: str, about: Mapping[str, Any]
    ) -> AbstractContextManager[Callable[[Mapping[str, float], int], None]]:
        """Return what logs values at a step to the tracker, if there is one; see `tracking`."""
        return tracking(self.running.track, self.running.logs, label, about)

    def snapshot(self, run: str) -> RunSnapshots | None:
        """Return the snapshots of a run by its name, if they are kept."""
        return None if self.snapshots is None else RunSnapshots(self.snapshots.folder / run)


@dataclass(frozen=True, eq=False)
class TunedPlan:
    """A plan after all of its runs.

    Attributes:
        choice: the plan and why.
        runs: all of them.
        kept: the number of the run that counts.
        parameters: the trained ones of that run.
        splits: what it was trained and judged on, with what the trunk computed.
        examples: of the training split, that it was trained on.
        solution: the head, where it was solved.
    """

    choice: Choice
    runs: tuple[Run, ...]
    kept: int
    parameters: Mapping[str, Tensor]
    splits: tuple[Examples, ...]
    examples: int
    solution: Solution | None = None

    @property
    def trunks(self) -> list[Trunk]:
        """Those of both splits, if they were computed apart."""
        return [split.trunk for split in self.splits if split.trunk is not None]

    def run_by(self, encoder: Encoder) -> Encoder:
        """Return the encoder as it runs the model that is saved."""
        if self.solution is None:
            return encoder
        return replace(encoder, precision="float32")  # a block that averages is exact in no other

    @property
    def left_out(self) -> bool:
        """Whether it is judged on all labelled rows, left out in folds."""
        return self.solution is not None and self.solution.judged.folds > 1


def train_plan(
    tuning: Tuning, rated: RatedPlan, splits: Sequence[Examples], hooks: Hooks, number: int
) -> TunedPlan:
    """Train a plan with every rate and seed, each from a head of its own, and keep the best run.

    Args:
        tuning: what every run starts from.
        rated: the plan, the rates and the seeds.
        splits: the training and the validation split, with what the trunk computed.
        hooks: what is shown, written and reported.
        number: of the plan, from 1.

    Raises:
        NothingFinishedError: if no run came to the end of an epoch with a finite loss.
    """
    starts: Starts = {}

    def train_one(rate: float, seed: int, name: str) -> tuple[Run, Mapping[str, Tensor]]:
        return train_run(tuning, rated.choice.plan, splits, starts, rate, seed, hooks, name)

    runs, kept, parameters = try_rates(tuning, rated, number, train_one)
    examples = tuning.task.train.examples
    return TunedPlan(rated.choice, runs, kept, parameters, tuple(splits), examples)


def try_rates(
    tuning: Tuning,
    rated: RatedPlan,
    number: int,
    run_once: Callable[[float, int, str], tuple[Run, T]],
) -> tuple[tuple[Run, ...], int, T]:
    """Run a plan with every rate and seed.

    Args:
        tuning: what every run starts from.
        rated: the plan, the rates and the seeds.
        number: of the plan, from 1.
        run_once: runs it with a rate and a seed, under a name.

    Returns:
        All runs, the number of the one that counts, and what it came to.

    Raises:
        NothingFinishedError: if no run came to the end of an epoch with a finite loss.
    """
    plan, keep = rated.choice.plan, tuning.settings.keep
    runs: list[Run] = []
    # How a rate ranks, the number of its best run, and what that came to.
    champion: tuple[tuple[int, float], int, T] | None = None
    for rate in rated.rates:
        values: list[float] = []
        best: tuple[float, int, T] | None = None
        for seed in tuning.request.seed:
            run, found = run_once(rate, seed, f"plan-{number}-run-{len(runs) + 1}")
            if run.curve:
                values.append(pick_epoch(run.curve, keep).value)
                if best is None or values[-1] > best[0]:
                    best = values[-1], len(runs), found
            runs.append(run)
        if best is not None and (champion is None or rank_rate(values) > champion[0]):
            champion = rank_rate(values), *best[1:]
    if champion is None:
        remedy = "use a lower --learning-rate"
        if "same for all texts" in str(runs[0].stopped):
            remedy += ", or a model whose tokenizer tells them apart"
        if " at step 1 of " in str(runs[0].stopped):  # whose loss comes before its update
            remedy = "it overflows before any update: use another model, or --precision float32"
        raise NothingFinishedError(
            f"no run of {plan.notation} finished an epoch: with learning rate "
            f"{runs[0].learning_rate:g} {runs[0].stopped}; {remedy}"
        )
    return tuple(runs), *champion[1:]


def solve_plan(tuning: Tuning, rated: RatedPlan, pooled: Pooled, hooks: Hooks) -> TunedPlan:
    """Solve the head of a plan that tunes nothing else, at the best of its states.

    Beside a training it is judged on the rows that this is judged on; so it is where less than all
    is measured, as in the trials of a study.

    Raises:
        UnsolvableError: if no state tells the examples apart.
    """
    assert rated.states is not None, "its head is solved"
    beside = tuning.trains or hooks.running.measure != "all"
    run, solution = solve(tuning, pooled, rated.states, beside=beside)
    choice = rated.choice
    if len(rated.states) > 1:
        state, losses = solution.solved.state, solution.solved.losses
        reason = (
            f"the head on state {state} is the best on examples left out, "
            f"with a loss of {losses[state]:.3f}"
        )
        plan = Plan((), state).on(tuning.encoder.blocks)
        choice = replace(choice, plan=plan, reason=reason)
    [epoch], label = run.curve, f"{choice.plan.notation}, solved"
    about = {"plan": choice.plan.notation, "shrinkage": solution.solved.shrinkage}
    with hooks.track(label, about) as log:
        log(epoch.track(tuning.settings.metric), 1)
    splits, examples = (tuning.training, tuning.validation), tuning.task.train.examples
    return TunedPlan(choice, (run,), 0, list_parameters(solution), splits, examples, solution)


def compute_trunk(
    tuning: Tuning, plan: Plan, splits: Sequence[Examples], show: Show
) -> list[Examples]:
    """Run the trunk over splits, or read its states from the cache."""
    if tuning.request.trunk_dropout:
        return [*splits]
    stage = f"blocks 1 to {plan.cut}, once" if plan.cut else "embeddings, once"
    lengths = np.concatenate([split.tokens.lengths for split in splits])
    advance = follow_examples(show, stage, lengths, tuning.training.choices)
    fingerprint = None  # of all weights below the cut, once for both splits
    if plan.cut is not None and tuning.cache_limit:
        fingerprint = fingerprint_encoder(tuning.encoder, plan.cut)

    prepare = partial(
        Examples.prepare,
        tuning.encoder,
        plan,
        classifier=tuning.classifier,
        limit=tuning.cache_limit,
        fingerprint=fingerprint,
        progress=advance,
        group=join_process_group(),
    )
    done: list[Examples] = []
    for split in splits:
        spare = done[-1].trunk if done else None
        done.append(prepare(split.tokens, split.answers, spare=spare))
    return done


def start_model(
    tuning: Tuning, plan: Plan, seed: int, classifier: Classifier | None = None
) -> TrainableModel:
    """Return the whole model of a plan, as a run starts from it or is put back into it."""
    model = make_classifier(
        tuning.encoder,
        plan,
        tuning.task.labels,
        seed=seed,
        fresh_head=tuning.request.draws_head,
        kind=tuning.task.kind,
        classifier=classifier or tuning.classifier,
        shares=tuning.training.answers.count_shares(tuning.task),
    )
    return make_trainable(model, plan, tuning.method, seed=seed)


def train_run(
    tuning: Tuning,
    plan: Plan,
    splits: Sequence[Examples],
    starts: Starts,
    rate: float,
    seed: int,
    hooks: Hooks,
    name: str,
) -> tuple[Run, Mapping[str, Tensor]]:
    """Train a plan once; return the run, and the trained parameters of its epoch that counts."""
    encoder, checkpoints = tuning.encoder, hooks.running.checkpoints or {}
    label = f"{plan.notation}, learning rate {rate:g}, seed {seed}"
    about = {"learning_rate": rate, "seed": seed, "plan": plan.notation}
    about |= {"method": tuning.method.name, **asdict(tuning.settings)}
    deadline = next(hooks.deadlines)

    def advance(done: int, total: int) -> bool:
        needed = f"{done / total:.0%}, needs {hooks.memory / 1e9:.3g} GB"
        hooks.show(label, done, total, needed)
        return deadline.is_over(done / total)

    def save(epoch: int) -> None:
        folder = checkpoints.get(epoch)
        if folder is not None and is_first_process():
            card = f"{encoder.name} during training, after epoch {epoch}.\n"
            length, dtype = tuning.request.max_length, tuning.save_dtype
            export(model, encoder.tokenizer, folder, card, max_length=length, dtype=dtype)

    with hooks.track(label, about) as log:
        model, started = start_model(tuning, plan, seed).model, perf_counter()
        if tuning.starts_solved:
            hooks.show("solving the head that it starts with", 0, 1)
            if not solve_once(starts, (seed,), tuning, model, splits[0]):
                apart = "no state tells the training examples apart"
                hooks.warnings.append(f"{apart}, so the head of {plan.notation} started at random")
        solving = perf_counter() - started
        run, parameters = train(
            encoder,
            model,
            splits[0].spread(),
            splits[1],
            learning_rate=rate,
            seed=seed,
            settings=tuning.settings,
            advance=advance,
            snapshots=hooks.snapshot(name),
            log=log,
            after=save,
            factors=list_rate_factors(tuning, model, plan, rate),
        )
        run.seconds["train"] += solving
        return run, parameters


def list_rate_factors(
    tuning: Tuning, model: Any, plan: Plan, learning_rate: float
) -> dict[str, float]:
    """Return what the learning rate of a parameter is multiplied by, by name, where it is."""
    factors: dict[str, float] = {}
    editing, factor = tuning.encoder.edit_spec, tuning.request.reinit_rate_factor
    if editing is not None and factor != 1:
        from layerscout.models import list_reinitialized

        factors |= dict.fromkeys(list_reinitialized(model, editing), factor)
    if plan.tuned and tuning.head_learning_rate is not None:
        head = [name for name, place in locate_parameters(model).items() if place == "head"]
        factors |= dict.fromkeys(head, tuning.head_learning_rate / learning_rate)
    return factors
