"""Trainings whose head is solved in the end: blocks are trained, and a head on what they then give.

The states of rows that were trained on tell their classes apart far better than those of new rows,
so whatever is chosen or reported comes from rows that a training did not see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.data import (
    Split,
    balance_batches,
    make_targets,
    require_validation,
)
from layerscout.models import find_output, use_seed
from layerscout.plans import Classifier, Plan, Settings
from layerscout.states import Examples, follow_first, read_inputs
from layerscout.tuning.resolve import RatedPlan, Tuning
from layerscout.tuning.solving import (
    Judged,
    Pooled,
    Solution,
    UnsolvableError,
    deal_texts,
    find_form,
    judge_left_out,
    judge_solved,
    list_parameters,
)
from layerscout.tuning.stages import (
    Hooks,
    TunedPlan,
    compute_trunk,
    list_rate_factors,
    start_model,
    try_rates,
)
from layerscout.tuning.starting import Starts, solve_once
from layerscout.tuning.stepping import Epoch, Run, Stepper, draw_batches


@dataclass(frozen=True, eq=False)
class Labelled:
    """The labelled rows of a training whose head is solved in the end.

    Attributes:
        examples: training and then validation rows, with what the trunk computed.
        split: the same rows, as they were given.
        parts: of each row, which of the parts that judge it is in; −1 where it judges nothing.
        folds: of each row, for choosing among heads without the rows that judge the choice.
        whole: the stage that counts sees all rows; otherwise those of no part.
    """

    examples: Examples
    split: Split
    parts: np.ndarray
    folds: np.ndarray
    whole: bool

    @property
    def stages(self) -> list[np.ndarray]:
        """The rows that each stage sees; the last one counts."""
        seen = [np.flatnonzero(self.parts != part) for part in range(self.parts.max() + 1)]
        return [*seen, np.arange(len(self.parts))] if self.whole else seen

    def share_steps(self, steps: int) -> list[int]:
        """Return the steps of each stage: those of the last one, of fewer rows fewer."""
        sizes = [len(rows) for rows in self.stages]
        return [max(1, round(steps * size / sizes[-1])) for size in sizes]


@dataclass(frozen=True, eq=False)
class Stage:
    """What a stage came to.

    Attributes:
        run: its steps.
        parameters: those that were trained.
        features: what the output layer is given of every row, (n, d); of none if it diverged.
        output: the name of that layer.
        steps: that were taken.
    """

    run: Run
    parameters: Mapping[str, Tensor]
    features: np.ndarray
    output: str
    steps: int


def stage_plan(tuning: Tuning, rated: RatedPlan, hooks: Hooks, number: int) -> TunedPlan:
    """Train the blocks of a plan with every rate and seed, solve the head, and keep the best.

    Args:
        tuning: what every stage starts from.
        rated: the plan, the rates and the seeds.
        hooks: what is shown, written and reported.
        number: of the plan, from 1.

    Raises:
        NothingFinishedError: if no stage came to its end with a finite loss.
        UnsolvableError: if no rows can judge others.
    """
    labelled = _gather(tuning, rated.choice.plan, hooks)
    stages, starts = labelled.stages, Starts()

    def run_stages(rate: float, seed: int, name: str) -> tuple[Run, tuple[Stage, Solution] | None]:
        done: list[Stage] = []
        for rows in stages:
            run, place = Run(rate, seed), len(done) + 1
            stage = _train_stage(tuning, rated, labelled, rows, starts, run, hooks, name, place)
            done.append(stage)
            if run.diverged:
                return run, None
        run, found = _solve(tuning, rated.choice.plan, labelled, done)
        about = {"learning_rate": rate, "seed": seed, **asdict(tuning.settings)}
        with hooks.track(f"{rated.choice.plan.notation}, {name}", about) as log:
            for end in run.curve:
                log(end.track(tuning.settings.metric), done[-1].steps)
        return run, found

    runs, kept, found = try_rates(tuning, rated, number, run_stages)
    assert found is not None, "its run came to the end"
    stage, solution = found
    parameters = {**stage.parameters, **list_parameters(solution, stage.output)}
    splits, examples = (labelled.examples,), tuning.task.train.examples
    return TunedPlan(rated.choice, runs, kept, parameters, splits, examples, solution)


def _gather(tuning: Tuning, plan: Plan, hooks: Hooks) -> Labelled:
    """Run the trunk over all labelled rows, and deal them into the parts that judge."""
    training, validation = tuning.training, tuning.validation
    own = require_validation(tuning.task)
    split = tuning.task.train.join(own)
    answers = make_targets(split, tuning.task.kind, tuning.task.labels)
    rows = Examples(training.tokens + validation.tokens, answers, None)
    with hooks.watch.measure("trunk"):
        (examples,) = compute_trunk(tuning, plan, (rows,), hooks.show)
    if tuning.stages is not None and len(tuning.stages) > 1:
        parts = deal_texts(split, answers, groups=2)[0]
        if {0, 1} - {*parts}:
            raise UnsolvableError(
                f"the {len(parts)} labelled examples of {tuning.task.name} have one text for each "
                "class, so they cannot judge each other; give other texts, or `head_end` trained"
            )
        return Labelled(examples, split, parts, parts, whole=True)
    parts = np.where(np.arange(len(examples)) < len(training), -1, 0)
    folds = np.full(len(parts), -1)
    folds[parts == 0] = deal_texts(own, validation.answers)[0]
    return Labelled(examples, split, parts, folds, whole=False)


def _train_stage(
    tuning: Tuning,
    rated: RatedPlan,
    labelled: Labelled,
    rows: np.ndarray,
    starts: Starts,
    run: Run,
    hooks: Hooks,
    name: str,
    place: int,
) -> Stage:
    """Train the blocks on some rows, and read what the head is given of all of them.

    The run gets what the steps come to; `place` counts the stages from 1.
    """
    rate, deadline = run.learning_rate, next(hooks.deadlines)
    assert rate is not None, "it is trained"
    plan, settings, examples = rated.choice.plan, tuning.settings, labelled.examples
    model = start_model(tuning, plan, run.seed, find_classifier(tuning)).model
    output, layer = find_output(model)
    steps = labelled.share_steps(settings.steps(len(tuning.training)))
    own, before, started = steps[place - 1], sum(steps[: place - 1]), perf_counter()
    label = f"{plan.notation}, learning rate {rate:g}, seed {run.seed}"

    def advance(done: int, _: int) -> bool:
        hooks.show(label, before + done, sum(steps))
        return deadline.is_over(done / own)

    with ExitStack() as within:
        within.enter_context(use_seed(run.seed))
        if settings.loss == "contrastive":
            layer.requires_grad_(False)
            within.enter_context(passing_on(layer))
        elif tuning.starts_solved:
            solve_once(starts, (run.seed, place), tuning, model, examples, rows)
        factors = list_rate_factors(tuning, model, plan, rate)
        stepper = Stepper(tuning.encoder, model, examples, settings, factors, run.seed)
        if (snapshots := hooks.snapshot(f"{name}-stage-{place}")) is not None:
            snapshots.restore(run, stepper)
        if not run.curve and not run.diverged:
            drawn = _draw(settings, examples, rows, stepper.order)
            losses = [loss for _, loss in stepper.take_steps(run, drawn, own, advance)]
            if not run.diverged:
                run.curve = [Epoch(1, loss := float(np.mean(losses)), loss, -loss)]
            stepper.kept = {key: p.detach().clone() for key, p in stepper.trained.items()}
            run.seconds["train"] = perf_counter() - started
            if snapshots is not None:
                snapshots.save(run, stepper, over=True)
    if run.diverged:
        return Stage(run, stepper.kept, np.empty((0, 0)), output, own)
    with torch.no_grad():
        for key, p in stepper.trained.items():
            p.copy_(stepper.kept[key])
    started, everything = perf_counter(), np.arange(len(examples))
    features = read_inputs(tuning.encoder, model, examples, everything, layer, layer)
    run.seconds["evaluate"] = perf_counter() - started
    return Stage(run, stepper.kept, features.numpy(), output, own)


def find_classifier(tuning: Tuning) -> Classifier:
    """Return the kind of model whose blocks are trained."""
    return "mean-linear" if find_form(tuning).head is None else "family"


def _draw(
    settings: Settings, examples: Examples, rows: np.ndarray, order: np.random.Generator
) -> Iterator[np.ndarray]:
    """Draw batches of some rows without end: with classes in balance where they are compared."""
    if settings.loss == "contrastive":
        groups = _group(examples.answers.labels[rows])
        yield from (rows[batch] for batch in balance_batches(groups, settings.step_size, order))
    while True:
        yield from (rows[batch] for batch in draw_batches(settings, examples.lengths[rows], order))


@contextmanager
def passing_on(layer: nn.Linear) -> Iterator[None]:
    """Make a model's output layer give what it is given."""
    layer.forward = lambda inputs: inputs  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del layer.forward


def _group(labels: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each class, or of each label and of none."""
    if labels.dtype.kind == "b":
        columns = [*labels.T, ~labels.any(axis=1)]
    else:
        columns = [labels == k for k in np.unique(labels)]
    return [np.flatnonzero(column) for column in columns]


def _solve(
    tuning: Tuning, plan: Plan, labelled: Labelled, done: Sequence[Stage]
) -> tuple[Run, tuple[Stage, Solution] | None]:
    """Solve the head on what the last stage left, and judge it by rows that a stage did not see."""
    from layerscout.scores import solve_apart

    started, last, form = perf_counter(), done[-1], find_form(tuning)
    states = [
        form.read(stage.features) if form.head is None else stage.features.astype(np.float64)
        for stage in done
    ]
    y, rows = labelled.examples.answers.labels, labelled.stages[-1]
    solve = partial(
        solve_apart,
        states[:-1] if labelled.whole else states,
        y,
        labelled.parts,
        labelled.folds,
        (states[-1][rows], y[rows]),
        classes=len(tuning.task.labels) or 1,
        bias=form.bias,
        balanced=tuning.settings.class_weights is not None,
    )
    solved = follow_first(solve)
    if solved is None:
        run = replace(last.run, curve=[])
        run.diverge("what it gives is the same for all texts, or not finite")
        return run, None
    solved = replace(solved, state=plan.head, losses={plan.head: solved.losses[0]})
    if labelled.whole:
        judged = judge_left_out(tuning, solved, labelled.split, labelled.parts)
    else:
        # By the head that is kept, so that the saved model answers the same.
        own, said = require_validation(tuning.task), solved.head(states[-1][solved.rows])
        raw, which = said / solved.factor, ["validation"] * len(said)
        judged = Judged(own, which, said, 1, raw, solved.factor, solved.factors)
    run = replace(last.run, curve=[judge_solved(tuning, judged, last.run.curve[0].training_loss)])
    seconds = {key: sum(stage.run.seconds[key] for stage in done) for key in run.seconds}
    seconds["train"] += perf_counter() - started
    run.seconds = seconds
    pooled = Pooled({}, len(rows), 0.0, False, ())
    return run, (last, Solution(solved, form, judged, pooled, ()))
