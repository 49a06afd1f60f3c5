"""How long a tuning takes: estimated before its work begins, and measured, phase by phase.

The work ahead is counted; how fast this machine does it shows in some of the real work: a few
batches forward, and a few steps of the model that is trained, of which nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from layerscout.data import expand_choices
from layerscout.models import find_output, use_seed
from layerscout.plans import Plan, Settings, Work, block_flops, cost
from layerscout.states import Examples, Trunk, make_batches
from layerscout.tuning.baselines import FITTED_PAIRS, MOST_PAIRS
from layerscout.tuning.machine import PHASES, Phase, expect_measuring, measures_speed
from layerscout.tuning.resolve import RatedPlan, Tuning
from layerscout.tuning.run_options import RunOptions
from layerscout.tuning.solving import FOLDS, count_deals, count_folds, find_form
from layerscout.tuning.stages import start_model
from layerscout.tuning.staging import find_classifier, passing_on
from layerscout.tuning.stepping import Stepper, draw_batches

# Seconds that timing may take: a share of what is estimated, within limits.
TIMED_SHARE, LEAST_TIMED, MOST_TIMED = 0.02, 0.3, 1.0
# Where in the batches, ordered by what they cost, some are timed.
PLACES = (1 / 4, 1 / 2, 3 / 4)
# Tokens that are timed first, which shows what a batch takes whatever it holds, and then at least;
# and rows of states that a head is timed on.
FEW_TOKENS, MORE_TOKENS, TIMED_ROWS = 32, 384, 1000
# Bytes that are hashed, and written, in a second; characters of texts whose words are regressed,
# and the seconds of the imports that this takes.
HASHED, WRITTEN, REGRESSED, IMPORTED = 5e8, 8e8, 1.5e6, 0.3


@dataclass(frozen=True)
class Speed:
    """Seconds that this machine takes for the parts of a tuning.

    Attributes:
        forward: for a FLOP of a pass forward.
        batch: for a batch forward through all blocks, beside those.
        step: for a FLOP of a training step.
        update: for a step, beside those.
        start: for the model that a run starts from.
        solve: for a head with every shrinkage, on the rows of all folds but one.
        fit: for one factor on their logits.
        regress: for one by regression, where words have labels.
    """

    forward: float
    batch: float
    step: float = 0.0
    update: float = 0.0
    start: float = 0.0
    solve: float = 0.0
    fit: float = 0.0
    regress: float = 0.0


# --- How fast it is ------------------------------------------------------------------------------


def time_work(tuning: Tuning, rated: RatedPlan, running: RunOptions) -> Speed:
    """Time some batches forward and, where the plan is trained, some steps of its model.

    It takes about a second at the most, and changes nothing.
    """
    plan, trained = rated.choice.plan, bool(rated.rates)
    splits = tuning.training, tuning.validation
    flops = sum(tuning.shape.blocks * _sum_forward(tuning, split)[0] for split in splits)
    if trained:
        epochs = tuning.settings.count_epochs(len(tuning.training))
        flops += epochs * _sum_steps(tuning, plan) * sum(tuning.stages or (1.0,))
    speed = _time_forward(tuning, flops)
    if trained:
        with use_seed(0):
            speed = _time_steps(tuning, rated, speed, flops)
    if not rated.rates or tuning.free:
        speed = replace(speed, **_time_solving(tuning))
    return speed


def _time_forward(tuning: Tuning, flops: float) -> Speed:
    """Time some batches of all rows forward; `flops` are of all that is to be done."""
    encoder, tokens = tuning.encoder, tuning.training.tokens + tuning.validation.tokens
    pooling = "mean" if tuning.form is None else find_form(tuning).pooling
    batches = encoder.batches(tokens)

    def run(rows: np.ndarray) -> float:
        started = perf_counter()
        encoder.pool_each(tokens, rows, (pooling,)).cpu()
        return perf_counter() - started

    def count(rows: np.ndarray) -> float:
        T = int(tokens.lengths[rows].max())
        return len(rows) * encoder.blocks * block_flops(tuning.shape, T)

    return Speed(*_time_parts(batches, tokens.lengths, count, run, flops))


def _time_parts(
    batches: list[np.ndarray],
    lengths: np.ndarray,
    count: Callable[[np.ndarray], float],
    run: Callable[[np.ndarray], float],
    flops: float,
    rate: float = 0.0,
) -> tuple[float, float]:
    """Time a few rows of a batch, and then more of it, or of several if there is time for that.

    Args:
        batches: in the order of what they cost.
        lengths: tokens of each row.
        count: counts the FLOPs of rows.
        run: runs them and returns the seconds.
        flops: of all that is to be done, of which timing may take a share.
        rate: about the seconds of a FLOP; 0 to take that of the few rows.

    Returns:
        The seconds of a FLOP, and those of a batch beside its FLOPs.
    """

    def pick(place: float, tokens: int, most: float = 0.0) -> np.ndarray:
        """Return rows of a batch with so many tokens, or more that have no more FLOPs than that."""
        rows = batches[int(place * len(batches))]
        least = -(-tokens // int(lengths[rows].max()))
        return rows[: max(least, int(len(rows) * min(1.0, most / count(rows))))]

    few, more = (pick(0.5, tokens) for tokens in (FEW_TOKENS, MORE_TOKENS))
    run(few)  # what runs first is slower
    least, fewest = run(few), count(few)
    rate = rate or least / fewest
    # A batch may take its share of what timing may, which runs each part twice.
    whole = min(MOST_TIMED, max(LEAST_TIMED, TIMED_SHARE * rate * flops))
    most = whole / 2 / len(PLACES) / rate
    places = PLACES if most > count(more) else PLACES[1:2]
    parts = [pick(place, MORE_TOKENS, most) for place in places]
    timed = sum(map(count, parts)) / len(parts)
    seconds = sum(map(run, parts)) / len(parts)
    rate = seconds / timed
    if timed > fewest:
        rate = (seconds - least) / (timed - fewest) if seconds > least else 0.0
    return rate, max(0.0, seconds - rate * timed)


def _time_steps(tuning: Tuning, rated: RatedPlan, speed: Speed, flops: float) -> Speed:
    """Time the model of a run, and steps of it at several lengths."""
    plan, started = rated.choice.plan, perf_counter()
    classifier = None if rated.states is None else find_classifier(tuning)
    model = start_model(tuning, plan, tuning.request.seed[0], classifier).model
    start = perf_counter() - started
    examples, layer = _start_at_cut(tuning, plan), find_output(model)[1]
    contrastive = tuning.settings.loss == "contrastive"
    stepper = Stepper(tuning.encoder, model, examples, tuning.settings, {})
    model.train()

    def count(rows: np.ndarray) -> float:
        return len(rows) * _count_step(tuning, plan, int(tuning.training.lengths[rows].max()))

    def run(rows: np.ndarray) -> float:
        trunk = examples.trunk
        if trunk is not None and _keeps_trunk(tuning):
            stepper.training = replace(examples, trunk=_hold(trunk, examples, rows))
        passing = passing_on(layer) if contrastive else nullcontext()
        started = perf_counter()
        with passing:
            stepper.step(rows, 0.0)
        if tuning.encoder.device.type == "cuda":
            torch.cuda.synchronize(tuning.encoder.device)
        return perf_counter() - started

    batches = sorted(_draw_steps(tuning), key=count)
    # By the rate of a pass forward: most of what a few rows take is the optimizer's.
    parts = batches, tuning.training.lengths, count, run
    step, update = _time_parts(*parts, flops, speed.forward)
    return replace(speed, step=step, update=update, start=start)


def _hold(trunk: Trunk, examples: Examples, rows: np.ndarray) -> Trunk:
    """Hold the states of some examples, so that a step reads them and does not compute them."""
    texts = expand_choices(rows, examples.choices)
    held, places = trunk.states(texts), {int(text): at for at, text in enumerate(texts)}

    def read(asked: np.ndarray) -> Tensor:
        longest = int(examples.tokens.lengths[asked].max())
        return held[[places[int(text)] for text in asked], :longest]

    return replace(trunk, states=read)


def _start_at_cut(tuning: Tuning, plan: Plan) -> Examples:
    """Return the training examples with states at the cut that are computed when asked for."""
    examples = tuning.training.spread()
    if tuning.request.trunk_dropout:
        return examples
    classifier = tuning.classifier
    return Examples.prepare(
        tuning.encoder, plan, examples.tokens, examples.answers, classifier=classifier, limit=0
    )


def _keeps_trunk(tuning: Tuning) -> bool:
    return tuning.cache_limit > 0 and not tuning.request.trunk_dropout


def _time_solving(tuning: Tuning) -> dict[str, float]:
    """Time a head on random states of some of these answers, and a factor on its logits.

    From 500 to 64,000 rows, 384 or 768 wide, seconds grow as the rows do.
    """
    from layerscout.scores import calibrate, solve_path, solve_regression

    y, classes = tuning.training.answers.labels, len(tuning.task.labels) or None
    n, whole = min(TIMED_ROWS, len(y)), len(tuning.training.answers)
    H = np.random.default_rng(0).standard_normal((n, tuning.shape.hidden_size))
    y, choices = y[:n], tuning.training.answers.choices
    if choices > 1:
        H = np.repeat(H[:, None], choices, axis=1)

    def measure(work: Callable[[], object]) -> float:
        started = perf_counter()
        work()
        return (perf_counter() - started) * whole / n

    head = solve_path(H, y, classes)[0]
    calibrate(y, head(H))  # what runs first is slower: it imports
    found = {"solve": measure(lambda: solve_path(H, y, classes))}
    found["fit"] = measure(lambda: calibrate(y, head(H)))
    if tuning.training.answers.tags is not None:
        solve_regression(H, y, len(tuning.task.labels))
        found["regress"] = measure(lambda: solve_regression(H, y, len(tuning.task.labels)))
    return found


# --- How much there is to do ---------------------------------------------------------------------


def _count_step(tuning: Tuning, plan: Plan, tokens: int) -> float:
    """Count the FLOPs of a training step on an example of so many tokens."""
    work = Work(1, 0, tokens, 1, cached=_keeps_trunk(tuning))
    flops = cost(plan, tuning.shape, work, tuning.method).train
    if _keeps_trunk(tuning):
        flops -= (plan.cut or 0) * block_flops(tuning.shape, tokens)
    return tuning.training.choices * flops


def _draw_steps(tuning: Tuning) -> list[np.ndarray]:
    """Draw the batches of an epoch's steps; those that have classes in balance have any lengths."""
    settings = tuning.settings
    if settings.loss == "contrastive":
        settings = replace(settings, batching="shuffled")
    return draw_batches(settings, tuning.training.lengths, np.random.default_rng(0))


def _sum_steps(tuning: Tuning, plan: Plan) -> float:
    """Sum the FLOPs of a pass over the training examples, padding included."""
    count = partial(_count_step, tuning, plan)
    return _sum_padded(_draw_steps(tuning), tuning.training.lengths, count)


def _sum_padded(
    batches: Iterable[np.ndarray], lengths: np.ndarray, count: Callable[[int], float]
) -> float:
    """Sum what is counted of a row by its tokens, over batches padded to their longest."""
    rows: dict[int, int] = {}
    for batch in batches:
        longest = int(lengths[batch].max())
        rows[longest] = rows.get(longest, 0) + len(batch)
    return sum(n * count(T) for T, n in rows.items())


def _sum_forward(tuning: Tuning, examples: Examples) -> tuple[float, int]:
    """Sum the FLOPs of a block over examples, run in batches, and count these."""
    batches = make_batches(tuning.encoder, examples)
    flops = _sum_padded(batches, examples.lengths, lambda T: block_flops(tuning.shape, T))
    return examples.choices * flops, len(batches)


# --- How long that takes -------------------------------------------------------------------------


@dataclass(frozen=True)
class RunTime:
    """Seconds of a run.

    Attributes:
        start: before its first step.
        step: of a step, in the mean.
        epoch: after each epoch.
        end: after its last step.
        rows: of those of the start and of the end, what the training rows take.
    """

    start: float
    step: float
    epoch: float = 0.0
    end: float = 0.0
    rows: tuple[float, float] = (0.0, 0.0)

    def shorten(self, share: float) -> RunTime:
        """Return the seconds of a run that reads a share of the training rows."""
        start, end = ((1 - share) * each for each in self.rows)
        return replace(self, start=self.start - start, end=self.end - end)

    def take(self, settings: Settings, examples: int) -> float:
        """Return the seconds of a whole run with these settings on so many examples."""
        steps, epochs = settings.steps(examples), settings.passes(examples)
        return self.start + steps * self.step + epochs * self.epoch + self.end


def estimate_run(
    tuning: Tuning, rated: RatedPlan, speed: Speed, running: RunOptions
) -> list[RunTime]:
    """Estimate the trainings of a plan with one rate and one seed: mostly a single one."""
    plan, training, validation = rated.choice.plan, tuning.training, tuning.validation
    above = plan.head - (plan.cut or 0) if _keeps_trunk(tuning) else plan.head
    passed, judged = (
        _estimate_pass(tuning, split, above, speed) for split in (training, validation)
    )
    epoch_steps = tuning.settings.steps_per_epoch(len(training))
    step = speed.step * _sum_steps(tuning, plan) / epoch_steps + speed.update
    start, first = speed.start, 0.0
    if tuning.starts_solved:
        first = passed + estimate_solving(tuning, speed, 1)
    if tuning.stages is not None:  # the head is solved once all steps are taken, of all rows
        end = passed + judged
        return [
            RunTime(start + part * first, part * step, end=end, rows=(part * first, passed))
            for part in tuning.stages
        ]
    if running.snapshots is not None:  # parameters, two moments of each, and those that are best
        trained = cost(plan, tuning.shape, tuning.work, tuning.method).trainable
        judged += 16 * trained / WRITTEN
    return [RunTime(start + first, step, judged, rows=(first, 0.0))]


def estimate(
    tuning: Tuning, rated: RatedPlan, settings: Settings, speed: Speed, running: RunOptions
) -> dict[Phase, float]:
    """Estimate the seconds of each phase of a tuning with one plan, all rates and seeds.

    Args:
        tuning: what it starts from.
        rated: the plan.
        settings: how it trains; their steps may be others than those of the tuning.
        speed: of this machine with that plan.
        running: what is kept and measured.
    """
    seconds, plan, blocks = dict.fromkeys(PHASES, 0.0), rated.choice.plan, tuning.shape.blocks
    splits, trained = (tuning.training, tuning.validation), bool(rated.rates)
    if not trained or (tuning.free and (running.measure == "all" or tuning.request.time)):
        passed = [_estimate_pass(tuning, split, blocks, speed) for split in splits]
        seconds["states"] = sum(passed) + _sum_bytes(tuning, blocks) / HASHED
        states = len(tuning.free if trained else rated.states or ())
        if tuning.trains:  # beside it, for the rows that judge it
            seconds["solve"] = estimate_solving(tuning, speed, states)
        if tuning.request.time or not trained:
            seconds["solve"] += estimate_solving(tuning, speed, states, whole=True)
    if trained:
        runs = len(rated.rates) * len(tuning.request.seed)
        parts = estimate_run(tuning, rated, speed, running)
        once = sum(part.take(settings, len(tuning.training)) for part in parts)
        seconds["train"] = runs * once
    if trained and _keeps_trunk(tuning):
        passed = [_estimate_pass(tuning, split, plan.cut or 0, speed) for split in splits]
        tokens = sum(int(split.tokens.lengths.sum()) for split in splits) if plan.tuned else 0
        seconds["trunk"] = sum(passed) + _sum_bytes(tuning, plan.cut or 0) / HASHED
        seconds["trunk"] += 4 * tokens * tuning.shape.hidden_size / WRITTEN
    seconds["judge"] = _estimate_judging(tuning, rated, speed, running, seconds["train"])
    seconds["save"] = 0.1 + _sum_bytes(tuning, plan.head) / WRITTEN
    return seconds


def _estimate_pass(tuning: Tuning, examples: Examples, blocks: int, speed: Speed) -> float:
    """Estimate what running examples through so many blocks takes."""
    flops, batches = _sum_forward(tuning, examples)
    return blocks * (speed.forward * flops + speed.batch * batches / tuning.shape.blocks)


def estimate_solving(tuning: Tuning, speed: Speed, states: int, *, whole: bool = False) -> float:
    """Estimate what solving a head takes: each of some states without each fold of each deal.

    It is on the training rows, or on the `whole` of the labelled ones.
    """
    from layerscout.scores import SHORTLIST, SHRINKAGES

    trained, words = len(tuning.training.answers), tuning.training.answers.tags is not None
    n = trained + whole * len(tuning.validation.answers)
    deals, folds, listed = count_deals(n), FOLDS, 0.0
    if words:  # one of the states, by regression
        folds = FOLDS if whole else count_folds(n)
        listed = (deals * folds + 1) * speed.regress
    elif deals == 1 and states > SHORTLIST:  # by ridge regression, which is as dear as a fold
        states, listed = SHORTLIST, 1.25 * states * speed.solve
    each = folds * speed.solve + len(SHRINKAGES) * speed.fit
    return n / trained * (listed + states * deals * each + speed.solve)


def _estimate_judging(
    tuning: Tuning, rated: RatedPlan, speed: Speed, running: RunOptions, trained: float
) -> float:
    """Estimate what measuring the kept model takes."""
    head, validation = rated.choice.plan.head, tuning.validation
    seconds = speed.start
    passed = _estimate_pass(tuning, validation, head, speed)
    if rated.rates and running.measure in ("predictions", "all"):
        seconds += passed
    if running.measure == "all":
        characters = sum(map(len, tuning.task.train.texts))
        seconds += IMPORTED + (FOLDS if not rated.rates else 1) * characters / REGRESSED
        if tuning.task.train.pairs is not None and tuning.training.choices == 1:
            rows = len(validation) + len(tuning.training)  # whose texts are embedded, one by one
            each = _estimate_pass(tuning, validation, tuning.encoder.blocks, speed)
            seconds += each * min(rows, MOST_PAIRS + FITTED_PAIRS) / len(validation)
        if tuning.free or not rated.rates:  # the curve has three heads for each fold
            seconds += 2 * FOLDS * count_deals(len(tuning.training.answers)) * speed.solve
        if tuning.task.test is not None:
            seconds += passed * tuning.task.test.examples / len(validation)
    if measures_speed(running.measure, not rated.rates or rated.states is not None):
        blocks = head + tuning.encoder.blocks * (running.measure == "all")
        each = _estimate_pass(tuning, validation, blocks, speed) / len(validation)
        seconds += expect_measuring(each, len(validation), trained)
    return seconds


def _sum_bytes(tuning: Tuning, blocks: int) -> float:
    """Sum the bytes of the embeddings and of so many blocks."""
    counts = tuning.shape.parameters
    return 4 * (counts.embeddings + sum(counts.blocks[:blocks]))


@dataclass(frozen=True)
class Forecast:
    """What a tuning is expected to take.

    Attributes:
        speeds: of this machine with each plan.
        seconds: by phase, of all plans.
    """

    speeds: Sequence[Speed]
    seconds: Mapping[Phase, float]

    @classmethod
    def of(cls, tuning: Tuning, running: RunOptions) -> Forecast:
        """Time parts of the work, and estimate all of it."""
        speeds = [time_work(tuning, rated, running) for rated in tuning.plans]
        seconds = dict.fromkeys(PHASES, 0.0)
        for number, (rated, speed) in enumerate(zip(tuning.plans, speeds, strict=True)):
            of_plan = estimate(tuning, rated, tuning.settings, speed, running)
            for phase in PHASES if number == 0 else ("trunk", "train"):
                seconds[phase] += of_plan[phase]
        return cls(speeds, seconds)
