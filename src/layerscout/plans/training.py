"""What a tuning is asked for, how its runs train, and the learning rate at every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from layerscout.errors import InputError, check_number, make_unknown_error
from layerscout.plans.auto import check_budget
from layerscout.plans.edits import (
    Edit,
    Preserve,
    Reinitialize,
    format_edits,
    make_edits,
    split_edits,
)
from layerscout.plans.methods import (
    FULL,
    METHODS,
    LoRA,
    Method,
    check_method,
    make_method,
)
from layerscout.plans.options import (
    COUNT_OR_ALL,
    LENGTH,
    RATE,
    RATES,
    SEED,
    check_for_number,
    check_for_whole_number,
    check_metric_name,
    check_options,
    check_several,
    option,
    options_of,
)
from layerscout.plans.papers import PRESETS, Classifier, WeightInit, preset
from layerscout.plans.plan import Plan
from layerscout.plans.strategies import require_text

Keep = Literal["best", "lowest-loss", "last"]
Batching = Literal["length", "shuffled"]
Schedule = Literal["linear", "constant"]
ClassWeights = Literal["balanced"]


# Steps that a training takes at least where no epochs are given, and for each class, in up to
# `MOST_EPOCHS`. MiniLM, blocks 2 to 4 tuned, batches of 32, accuracy on rows held back: 256 rows of
# SST-2 0.51 after 5 epochs (40 steps), 0.77 after 12, 0.78 after 24; 1,000 rows 0.79 after 5 (160
# steps), 0.80 after 10, 0.81 after 20; 1,000 rows of 27 emotions 0.25 after 5, 0.44 after 18 (520
# steps), 0.50 after 50; 800 rows of 6 emotions 0.79 after 5 (130 steps), 0.88 after 10.
MIN_STEPS, STEPS_PER_CLASS, MOST_EPOCHS = 200, 40, 50


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
class Settings:
    """How every run of a tuning trains; every option is one of `TuneRequest` too."""

    epochs: int = option(5, check_for_whole_number(1), shown="5, or more with few examples")
    """Passes over the training examples; by default 5, or with few examples as many as give 200
    steps and 40 for each class, up to 50."""
    max_steps: int | None = option(None, check_for_whole_number(1))
    """Train for this many steps, in place of epochs."""
    batch_size: int = option(32, check_for_whole_number(1))
    """Examples per batch."""
    accumulation: int | None = option(None, check_for_whole_number(1), shown="1")
    """Number of batches whose gradients are accumulated in each step, 1 by default."""
    batching: Batching | None = option(None, shown="length")
    """Put texts of similar length into a batch (length, the default), or shuffle them plainly
    (shuffled)."""
    warmup: float = option(
        0.06,
        check_for_number(
            "0 or more",
            lambda steps: steps >= 0 and (steps < 1 or steps % 1 == 0),
            "below 1 it is a share of all steps, else a whole number of them",
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
    weight_decay: float = option(0.0, check_for_number("0 or more", lambda v: v >= 0))
    """Weight decay of AdamW, on matrices only."""
    class_weights: ClassWeights | None = option(None)
    """Weight the loss of each class (or tag) by how rare it is in training (balanced), so that all
    classes count alike."""
    max_grad_norm: float | None = option(
        None, check_for_number("above 0", lambda v: v > 0, "leave it out not to clip")
    )
    """Clip the norm of the gradient at this value."""
    patience: int | None = option(None, check_for_whole_number(1))
    """Stop a run after this many epochs without improvement."""
    keep: Keep = option("best")
    """Keep the model of the epoch with the best metric, that of the epoch with the lowest
    validation loss, or the last one."""
    metric: str = option("accuracy", check_metric_name, shown="")
    """Metric that decides which epoch, rate and plan is best; by default the task's own."""
    threshold: float | Literal["tuned"] | None = option(None, _check_threshold, shown="0.5")
    """For several labels per text, the probability above which a label is assigned, 0.5 by default;
    tuned finds one for each label on the validation examples."""

    def __post_init__(self) -> None:
        """Check the values."""
        check_options(self)

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

    def passes(self, examples: int) -> int:
        """Return the epochs of a whole training; the last one may be cut short by `max_steps`."""
        return -(-self.steps(examples) // self.steps_per_epoch(examples))


def _check_plan(name: str, value: Any) -> Any:
    """Check that it may be a plan; which one it is shows with a model."""
    return value if isinstance(value, Plan | Path) else require_text(value)


def _check_preset(name: str, value: Any) -> str:
    if value not in PRESETS:
        raise make_unknown_error("preset", str(value), PRESETS)
    return str(value)


@dataclass(frozen=True)
class TuneRequest(Settings):
    """What a tuning is asked for; see `layerscout.tune`.

    Attributes:
        given: the options that were set explicitly, which take precedence over those of a preset.
    """

    plan: Plan | str | Path = option("auto", _check_plan)
    """A strategy such as best-down:3@top, a plan such as "(6, 8, 12)", or a plan.json; "emb+" in
    front also tunes the embeddings, and edits may precede it, as in "reinit:9-12 + top:3"."""
    against: Plan | str | Path | None = option(None)
    """Also tune this plan, such as full, in the same way and compare the two."""
    score: str | None = option(None)
    """Score that ranks states or blocks; by default the scan's."""
    budget: float = option(0.5, lambda name, value: check_budget(value))
    """Share of the FLOPs of full fine-tuning that auto may use."""
    method: Method | None = option(
        None, check_method, takes="Method | str | None", shown="full, or what a plan.json says"
    )
    """Tune all weights of the blocks, or a few new ones: full, adapter, lora or prefix-tuning."""
    method_options: Mapping[str, Any] | None = option(
        None, lambda name, value: dict(value), nested=METHODS
    )
    """Options of the method, by name."""
    keep_adapter: bool = option(False)
    """Save LoRA as a peft adapter instead of merging it."""
    classifier: Classifier | None = option(None, shown="family")
    """What reads the last state: the family's own head, or one linear layer on the mean of the
    tokens (mean-linear)."""
    preset: str | None = option(None, _check_preset)
    """Train as a paper did: xie2022, phang2021, tamkin2020 or lodha2023; options that are given
    take precedence."""
    as_released: bool = option(False)
    """Follow the published code where it differs from the paper; for presets and re-initialised
    blocks."""
    learning_rate: tuple[float, ...] | None = option(
        None, RATES, takes="float | Sequence[float] | None"
    )
    """One or several peak learning rates; by default one that suits the plan."""
    seed: tuple[int, ...] = option(
        (0,), partial(check_several, check=SEED, read=int), takes="int | Sequence[int]", shown="0"
    )
    """One or several random seeds; each is a run."""
    examples: int | Literal["all"] = option("all", COUNT_OR_ALL)
    """Number of training examples to use, drawn in proportion to the classes, or all."""
    max_length: int = option(128, LENGTH)
    """Maximum number of tokens per input."""
    save_dtype: Literal["float32", "bfloat16", "float16"] | None = option(
        None, shown="the checkpoint's"
    )
    """Data type of the weights of the saved model."""
    trunk_dropout: bool = option(False)
    """Run frozen blocks at every step, with dropout, as the papers did."""
    fresh_head: bool = option(False)
    """Re-initialise the whole head, including parts that the checkpoint has weights for."""
    untie: bool = option(False)
    """First give every block its own copy of shared weights (ALBERT)."""
    edits: tuple[Edit, ...] = option(
        (),
        lambda name, value: make_edits(value),
        takes="str | Edit | Sequence[Edit]",
        flag="--edit",
    )
    """Edit the blocks first: reinit:9-12, preserve:1-3, permute:1, skip:3-4 or truncate:8; join
    several with +."""
    keep_layer_norm: bool = option(False)
    """Keep the layer norms of re-initialised blocks."""
    reinit_rate_factor: float = option(1.0, RATE)
    """Factor on the learning rate of re-initialised blocks."""
    given: frozenset[str] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        """Check each value, and then what goes with what."""
        different = {f.name for f in fields(self) if getattr(self, f.name) != f.default}
        object.__setattr__(self, "given", self.given | (different - {"given"}))
        if isinstance(self.plan, str) and "+" in self.plan and not self.plan.endswith(".json"):
            edits, plan = split_edits(self.plan)
            if edits and self.edits:
                raise InputError(
                    f"edits must be given before the plan or in `edits`, got both: {self.plan:.80}"
                )
            object.__setattr__(self, "edits", edits or self.edits)
            object.__setattr__(self, "given", self.given | ({"edits"} if edits else set()))
            object.__setattr__(self, "plan", plan)
        check_options(self)
        if {"epochs", "max_steps"} <= self.given:
            raise InputError(
                f"`epochs` and `max_steps` both set how long to train, got {self.epochs} and "
                f"{self.max_steps}; give only one of them"
            )
        self._check_edits()
        if self.method is not None:
            method = make_method(self.method, **self.method_options or {})
            object.__setattr__(self, "method", method)
            object.__setattr__(self, "method_options", None)
            self._check_method(method)

    @property
    def reinitialises(self) -> bool:
        """Whether an edit re-initialises blocks."""
        return any(isinstance(edit, Reinitialize | Preserve) for edit in self.edits)

    @property
    def weight_init(self) -> WeightInit:
        """How blocks are re-initialised."""
        return WeightInit(self.keep_layer_norm, self.as_released)

    @property
    def draws_head(self) -> bool:
        """Whether the whole head is re-initialised: with blocks too, unless as released."""
        return self.fresh_head or (self.reinitialises and not self.as_released)

    def _check_edits(self) -> None:
        if self.reinitialises:
            if len(self.seed) > 1:
                raise InputError(
                    "blocks are re-initialised once, with a single seed, got seeds "
                    f"{list(self.seed)}; run tune once for each seed"
                )
            return
        if self.keep_layer_norm or self.reinit_rate_factor != 1:
            raise InputError(
                "`keep_layer_norm` and `reinit_rate_factor` apply only to re-initialised blocks, "
                "and there are none; add an edit such as reinit:9-12"
            )
        if self.as_released and self.preset is None:
            raise InputError(
                "`as_released` applies only to presets and re-initialised blocks, and there are "
                "neither; name a preset or add an edit such as reinit:9-12"
            )

    def _check_method(self, method: Method) -> None:
        lora = isinstance(method, LoRA)
        if self.keep_adapter and not lora:
            raise InputError(
                f"`keep_adapter` applies only to the method lora, got {method.name}; leave it out"
            )
        if self.keep_adapter and (self.untie or self.edits):
            raise InputError(
                "`keep_adapter` needs a base that transformers can load, but untied or edited "
                "blocks have none; leave it out"
            )
        if self.classifier == "mean-linear" and lora:
            raise InputError(
                "LoRA is merged into a checkpoint of the family, which has no classifier "
                "mean-linear; use another method, or the classifier family"
            )

    def with_method(self, written: Method | None) -> TuneRequest:
        """Return the request with its method settled: the one asked for, or else `written`.

        Args:
            written: the method that a plan.json was written for; its options hold where no others
                were given.

        Raises:
            InputError: if the method does not take the options, or does not go with the rest.
        """
        if self.method is not None:
            return self
        options = dict(self.method_options or {})
        if written is not None:
            options = asdict(written) | options
        method = make_method(FULL.name if written is None else written.name, **options)
        return replace(self, method=method, method_options=None)

    def settle(
        self,
        task: str,
        examples: int,
        metric: str,
        kind: str,
        labels: Sequence[str],
        *,
        full: bool = False,
    ) -> tuple[Settings, Classifier]:
        """Return how runs train, with what the preset says filled in, and the classifier.

        Args:
            task: its name; see `preset`.
            examples: of the training split.
            metric: the task's own.
            kind: of the task; see `choose_epochs`, which decides where nothing says how long.
            labels: of the task.
            full: whether all blocks and the embeddings are tuned, with all of their weights.

        Raises:
            InputError: if the paper is not known to have trained that way.
        """
        names = options_of(Settings)
        given = {name: getattr(self, name) for name in names if name in self.given}
        paper: dict[str, Any] = {}
        classifier: Classifier = "family"
        if self.preset is not None:
            published = preset(
                self.preset,
                task=task,
                examples=examples,
                as_released=self.as_released,
                full=full,
            )
            paper, classifier = dict(published.settings), published.classifier
            if "epochs" in given:
                paper.pop("max_steps", None)
        settings = Settings(**{"metric": metric} | paper | given)
        if not {"epochs", "max_steps"} & (given.keys() | paper.keys()):
            settings = replace(settings, epochs=choose_epochs(settings, examples, kind, labels))
        return settings, self.classifier or classifier


def describe_given(request: TuneRequest) -> dict[str, Any]:
    """Return the options of a tuning that were set explicitly, as JSON holds them.

    The method and its options are left out: a plan.json may have named them.
    """
    content: dict[str, Any] = {}
    for name in sorted(request.given - {"method", "method_options"}):
        value = getattr(request, name)
        if name == "edits":
            value = format_edits(value)
        elif isinstance(value, Plan):
            value = value.notation
        elif isinstance(value, Path):
            value = str(value)
        content[name] = list(value) if isinstance(value, tuple) else value
    return content


def choose_epochs(settings: Settings, examples: int, kind: str, labels: Sequence[str]) -> int:
    """Return the epochs of a training for which none are asked: more than 5 with few examples.

    Args:
        settings: how it trains.
        examples: of the training split.
        kind: of the task.
        labels: of the task; their number counts where an example has one of them.
    """
    classes = len(labels) if kind == "classification" else 0
    steps = max(MIN_STEPS, STEPS_PER_CLASS * classes)
    needed = -(-steps // settings.steps_per_epoch(examples))
    return max(settings.epochs, min(needed, MOST_EPOCHS))


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
