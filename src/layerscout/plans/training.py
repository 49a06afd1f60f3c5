"""How the runs of a tuning train: their settings, and the learning rate at every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from statistics import mean
from typing import Any, Literal

from layerscout.data import Kind
from layerscout.errors import InputError, check_number
from layerscout.plans.methods import Method
from layerscout.plans.options import COUNT, RATE, Options, check_metric_name, option

Keep = Literal["best", "lowest-loss", "last"]
Batching = Literal["length", "shuffled"]
Schedule = Literal["linear", "constant"]
ClassWeights = Literal["balanced"]
Loss = Literal["contrastive"]


# Steps that a training takes at least where no epochs are given, and for each class, in up to
# `MOST_EPOCHS`. MiniLM, blocks 2 to 4 tuned, batches of 32, accuracy on rows held back: 256 rows of
# SST-2 0.51 after 5 epochs (40 steps), 0.77 after 12, 0.78 after 24; 1,000 rows 0.79 after 5 (160
# steps), 0.80 after 10, 0.81 after 20; 1,000 rows of 27 emotions 0.25 after 5, 0.44 after 18 (520
# steps), 0.50 after 50; 800 rows of 6 emotions 0.79 after 5 (130 steps), 0.88 after 10.
MIN_STEPS, STEPS_PER_CLASS, MOST_EPOCHS = 200, 40, 50


# Where the head is solved in the end: examples of a step.
STAGE_EXAMPLES = 16
# Steps, steps for each class, and epochs at least of such a training, by its loss. MiniLM, 64 rows,
# (3, 4, 4), nine cells of seven tasks: 40 steps were 0.2 ± 0.7 points below 80, and 20 were further
# below where most was gained. Contrasts, 8 and 32 texts of each class, five tasks: 80 and 120 steps
# were level with 40 (eight cells); 20 with twice the rate, which `stage_rate` has, 1.0 points ahead
# of them (15 cells of MiniLM, 4 of mpnet-base). 40 with that rate were 2.3 points behind, 12 with a
# higher one 3.4. Sixty classes (massive_de) need more: contrasts on 8 texts of each 44.8 % after 60
# steps, 46.0 after 120, 48.8 after 180, 51.8 after 240; 1,000 rows, blocks 2 to 4, 62.6 after 672
# steps, where the free head has 59.4. With 151 (clinc150), 453 contrasts on 2 and 3 texts of each
# were 1.4 points behind 38 and 1.0 ahead of 58.
STAGE_TIMES: Mapping[Loss | None, tuple[int, int, int]] = {
    None: (40, 10, 4),
    "contrastive": (20, 3, 2),
}
# Of a step that contrasts classes: two examples of two.
LEAST_CONTRASTED = 4
# Labelled rows from which on the validation rows judge such a training, which sees the others
# alone. Fewer are too few to give any away: two halves judge each other, and the training that
# counts sees all of them.
STAGE_ROWS = 500
# The kinds of task whose texts have labels or numbers: heads read the mean of all tokens unless
# another is asked for, and `auto` ends with one that is solved.
OF_TEXTS: tuple[Kind, ...] = ("classification", "multi_label_classification", "regression")


def _check_threshold(name: str, value: Any) -> float | str:
    """Check a decision threshold, which may be given as text."""
    if value == "tuned":
        return "tuned"
    try:
        value = float(value) if isinstance(value, str) else value
    except ValueError:
        raise InputError(f"`{name}` must be between 0 and 1, or tuned, got {value!r:.60}") from None
    return check_number(name, value, "between 0 and 1, or tuned", lambda p: 0 < p < 1)


@dataclass(frozen=True)
class Settings(Options):
    """How every run of a tuning trains; every option is one of `TuneRequest` too."""

    loss: Loss | None = option(None, shown="of the outputs")
    """What training lowers: the loss of the head's outputs, or a supervised contrastive one, which
    brings texts of a class together; the head is then solved (contrastive)."""
    epochs: int = option(5, COUNT, shown="5, or more with few examples")
    """Passes over the training examples; by default 5, or with few examples as many as give 200
    steps and 40 for each class, up to 50."""
    max_steps: int | None = option(None, COUNT)
    """Train for this many steps, in place of epochs."""
    batch_size: int = option(32, COUNT)
    """Examples per batch."""
    accumulation: int | None = option(None, COUNT, shown="1")
    """Number of batches whose gradients are accumulated in each step, 1 by default."""
    batching: Batching | None = option(None, shown="length")
    """Put texts of similar length into a batch (length, the default), or shuffle them plainly
    (shuffled)."""
    warmup: float = option(
        0.06,
        partial(
            check_number,
            rule="0 or more",
            fits=lambda steps: steps >= 0 and (steps < 1 or steps % 1 == 0),
            remedy="below 1 it is a share of all steps, else a whole number of them",
        ),
    )
    """Warmup steps; below 1, their share of all steps."""
    schedule: Schedule = option("linear")
    """After the warmup, let the learning rate fall to 0 linearly, or keep it constant."""
    head_learning_rate: float | None = option(
        None,
        RATE,
        shown="the blocks', or a higher one for labels of words and several labels",
    )
    """Peak learning rate of the head if blocks are tuned too; by default that of the blocks, or a
    higher one for several labels per text or a label per word."""
    weight_decay: float = option(
        0.0, partial(check_number, rule="0 or more", fits=lambda decay: decay >= 0)
    )
    """Weight decay of AdamW, on matrices only."""
    class_weights: ClassWeights | None = option(None)
    """Weight the loss of each class (or tag) by how rare it is in training (balanced), so that all
    classes count alike."""
    max_grad_norm: float | None = option(None, partial(RATE, remedy="leave it out not to clip"))
    """Clip the norm of the gradient at this value."""
    patience: int | None = option(None, COUNT)
    """Stop a run after this many epochs without improvement."""
    keep: Keep = option("best")
    """Keep the model of the epoch with the best metric, that of the epoch with the lowest
    validation loss, or the last one."""
    metric: str = option("accuracy", check_metric_name, shown="")
    """Metric that decides which epoch, rate and plan is best; by default the task's own."""
    threshold: float | Literal["tuned"] | None = option(None, _check_threshold, shown="0.5")
    """For several labels per text, the probability above which a label is assigned, 0.5 by default;
    tuned finds one for each label on the validation examples."""

    @property
    def step_size(self) -> int:
        """How many examples a step takes."""
        return self.batch_size * (self.accumulation or 1)

    def steps_per_epoch(self, examples: int) -> int:
        """Return the steps of a pass over so many examples."""
        return -(-examples // self.step_size)

    def steps(self, examples: int) -> int:
        """Return the steps of a whole training on so many examples."""
        return self.max_steps or self.epochs * self.steps_per_epoch(examples)

    def count_epochs(self, examples: int) -> float:
        """Return the epochs of a whole training; the last one may be cut short by `max_steps`."""
        if self.max_steps is None:
            return self.epochs
        return self.max_steps / self.steps_per_epoch(examples)

    def passes(self, examples: int) -> int:
        """Return the same with the last one counted whole."""
        return ceil(self.count_epochs(examples))


def choose_epochs(
    settings: Settings, examples: int, kind: str, labels: Sequence[str], *, staged: bool = False
) -> int:
    """Return the epochs of a training that was given none: more than 5 with few examples.

    Args:
        settings: how it trains.
        examples: of the training split.
        kind: of the task.
        labels: of the task; their number counts where an example has one of them.
        staged: the head is solved in the end.
    """
    least = STAGE_TIMES[settings.loss] if staged else (MIN_STEPS, STEPS_PER_CLASS, settings.epochs)
    steps, for_each, epochs = least
    classes = len(labels) if kind == "classification" else 0
    needed = -(-max(steps, for_each * classes) // settings.steps_per_epoch(examples))
    return max(epochs, min(needed, MOST_EPOCHS))


def ends_solved(kind: Kind, method: Method) -> bool:
    """Return whether `auto` ends with a solved head where it trains blocks, by a method."""
    return kind in OF_TEXTS and method.saved != "apart"


def choose_stage_loss(kind: Kind, rows: int, score: str | None = None) -> Loss | None:
    """Return the loss that `auto` trains with where nothing says which and the head is solved then.

    Few rows contrast their classes, and then train other blocks; see `choose`.

    Args:
        kind: of the task.
        rows: that are labelled, of training and validation.
        score: that was asked for, by which the blocks are chosen as with many rows.
    """
    few = rows < STAGE_ROWS and score is None
    return "contrastive" if few and kind != "regression" else None


def share_stages(rows: int) -> tuple[float, ...]:
    """List the shares of its steps that each training takes whose head is solved in the end.

    Args:
        rows: that are labelled, of training and validation.
    """
    return (0.5, 0.5, 1.0) if rows < STAGE_ROWS else (1.0,)


def rank_rate(values: Sequence[float | None]) -> tuple[int, float]:
    """Return what a learning rate ranks by: how many of its runs came through, then their mean.

    Args:
        values: the metric of every run, None where it has none.
    """
    known = [value for value in values if value is not None]
    return len(known), mean(known) if known else 0.0


def learning_rate_at(step: int, steps: int, warmup: float, schedule: Schedule = "linear") -> float:
    """Return the share of the peak rate at a step: a linear rise, then a linear fall to 0, or none.

    Args:
        step: from 0.
        steps: all of them.
        warmup: steps in which it rises; below 1 their share of all.
        schedule: "linear", or "constant" to stay at the peak.
    """
    rising = int(warmup) if warmup >= 1 else int(warmup * steps + 0.5)
    if step < rising:
        return step / rising
    if schedule == "constant":
        return 1.0
    return max(0.0, (steps - step) / max(1, steps - rising))
