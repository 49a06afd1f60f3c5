"""Requests of tune and plan: what is tuned, how, and what goes with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from layerscout.errors import InputError
from layerscout.plans.edits import Edit, format_edits, make_edits, split_edits
from layerscout.plans.methods import FULL, METHODS, LoRA, Method, check_method_name, make_method
from layerscout.plans.options import (
    BUDGET,
    COUNT,
    COUNT_OR_ALL,
    MAX_LENGTH,
    RATE,
    RATES,
    SEED,
    Options,
    check_duration,
    check_known,
    check_several,
    option,
    options_of,
)
from layerscout.plans.papers import PRESETS, Classifier, WeightInit, preset
from layerscout.plans.plan import Plan
from layerscout.plans.strategies import require_text
from layerscout.plans.training import (
    LEAST_CONTRASTED,
    STAGE_EXAMPLES,
    Loss,
    Settings,
    choose_epochs,
)

# The options that say how to train.
TRAINING = (options_of(Settings).keys() - {"metric", "threshold", "class_weights"}) | {
    *("learning_rate", "preset", "fresh_head", "head_start", "trunk_dropout")
}


@dataclass(frozen=True)
class PlanRequest(Options):
    """What a choice of plan is asked for; see `layerscout.Scan.planning`."""

    strategy: str = option("auto", lambda name, value: require_text(value))
    """A strategy such as best-down:3@top, or a plan such as "(6, 8, 12)"."""
    budget: float | None = option(None, BUDGET, shown="0.5; all with few examples")
    """Share of the FLOPs of full fine-tuning that auto may use."""
    score: str | None = option(None)
    """Score that ranks states or blocks; by default the scan's."""
    epochs: int | None = option(None, COUNT, shown="as tune: 5, or more with few examples")
    """Passes over the training examples; by default as many as a tuning has."""
    method: Method = option(FULL, check_method_name, takes="Method | str", shown="full")
    """Tune all weights of the blocks, or a few new ones: full, adapter, lora or prefix-tuning."""
    method_options: Mapping[str, Any] | None = option(
        None, lambda name, value: dict(value), nested=METHODS
    )
    """Options of the method, by name."""

    def __post_init__(self) -> None:
        """Check the values, and make the method."""
        super().__post_init__()
        method = make_method(self.method, **self.method_options or {})
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "method_options", None)


def _check_plan(name: str, value: Any) -> Any:
    """Check that it may be a plan; which one it is shows with a model."""
    return value if isinstance(value, Plan | Path) else require_text(value)


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
    budget: float | None = option(None, BUDGET, shown="0.5; all with few examples")
    """Share of the FLOPs of full fine-tuning that auto may use."""
    method: Method | None = option(
        None, check_method_name, takes="Method | str | None", shown="full, or what a plan.json says"
    )
    """Tune all weights of the blocks, or a few new ones: full, adapter, lora or prefix-tuning."""
    method_options: Mapping[str, Any] | None = option(
        None, lambda name, value: dict(value), nested=METHODS
    )
    """Options of the method, by name."""
    time: float | None = option(None, check_duration, takes="float | str | None")
    """How long all may take, such as 90s, 10m or 2h: a training that would take longer is planned
    with fewer steps, and the free head is kept where none fits."""
    keep_adapter: bool = option(False)
    """Save LoRA as a peft adapter instead of merging it."""
    classifier: Classifier | None = option(None, shown="family")
    """What reads the last state: the family's own head, or one linear layer on the mean of the
    tokens (mean-linear)."""
    preset: str | None = option(None, partial(check_known, known=PRESETS))
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
    max_length: int = option(MAX_LENGTH, COUNT)
    """Maximum number of tokens per input."""
    save_dtype: Literal["float32", "bfloat16", "float16"] | None = option(
        None, shown="the checkpoint's"
    )
    """Data type of the weights of the saved model."""
    trunk_dropout: bool = option(False)
    """Run frozen blocks at every step, with dropout, as the papers did."""
    fresh_head: bool = option(False)
    """Re-initialise the whole head, including parts that the checkpoint has weights for."""
    head_start: Literal["solved", "random"] | None = option(
        None, shown="random, or solved where the head ends so"
    )
    """Where training starts the output layer: solved on what it is given, or drawn at random."""
    head_end: Literal["solved", "trained"] | None = option(
        None, shown="solved for the plan auto and the contrastive loss, else trained"
    )
    """How training ends: with the output layer solved on what it is given then, or as trained."""
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
        """Part edits from the plan, check each value, and then what goes with what."""
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
        super().__post_init__()
        if self.method is not None:
            method = make_method(self.method, **self.method_options or {})
            object.__setattr__(self, "method", method)
            object.__setattr__(self, "method_options", None)
        self._check_together()

    @property
    def reinitialises(self) -> bool:
        """Whether an edit re-initialises blocks."""
        return any(edit.name in ("reinit", "preserve") for edit in self.edits)

    @property
    def weight_init(self) -> WeightInit:
        """How blocks are re-initialised."""
        return WeightInit(self.keep_layer_norm, self.as_released)

    @property
    def draws_head(self) -> bool:
        """Whether the whole head is re-initialised: with blocks too, unless as released."""
        return self.fresh_head or (self.reinitialises and not self.as_released)

    @property
    def asks_solved(self) -> bool:
        """Whether the head of a training was asked to be solved in the end."""
        return self.loss is not None or self.head_end == "solved"

    @property
    def trains(self) -> bool:
        """Whether an option says how to train: a head alone is solved unless one does."""
        ends = self.head_end == "trained"
        return ends or bool(TRAINING & self.given) or len(self.seed) > 1

    def _check_together(self) -> None:
        """Raise for options that do not go with each other."""
        if {"epochs", "max_steps"} <= self.given:
            raise InputError(
                f"`epochs` and `max_steps` both set how long to train, got {self.epochs} and "
                f"{self.max_steps}; give only one of them"
            )
        if self.loss is not None and self.head_end == "trained":
            raise InputError(
                f"`loss` ({self.loss}) leaves a head that has to be solved, got `head_end` "
                "(trained); leave one of them out"
            )
        trained = {"keep", "patience", "head_learning_rate", "preset"} & self.given
        trained |= {"head_start"} & self.given if self.loss is not None else set()
        if self.asks_solved and trained:
            raise InputError(
                f"`{min(trained)}` applies to a head that is trained to the end, and this one is "
                "solved then; leave one of them out"
            )
        if self.loss is not None and self.batch_size < LEAST_CONTRASTED:
            raise InputError(
                f"`batch_size` must be {LEAST_CONTRASTED} or more with `loss` ({self.loss}), two "
                f"examples of two classes, got {self.batch_size}"
            )
        if self.reinitialises and len(self.seed) > 1:
            raise InputError(
                f"blocks are re-initialised once, with a single seed, got seeds {list(self.seed)}; "
                "run tune once for each seed"
            )
        if not self.reinitialises and (self.keep_layer_norm or self.reinit_rate_factor != 1):
            raise InputError(
                "`keep_layer_norm` and `reinit_rate_factor` apply only to re-initialised blocks, "
                "and there are none; add an edit such as reinit:9-12"
            )
        if self.as_released and self.preset is None and not self.reinitialises:
            raise InputError(
                "`as_released` applies only to presets and re-initialised blocks, and there are "
                "neither; name a preset or add an edit such as reinit:9-12"
            )
        if self.method is None:
            return
        lora = isinstance(self.method, LoRA)
        if self.keep_adapter and not lora:
            raise InputError(
                f"`keep_adapter` applies only to the method lora, got {self.method.name}; leave it "
                "out"
            )
        if self.keep_adapter and (self.untie or self.edits):
            raise InputError(
                "`keep_adapter` needs a base that transformers can load, but untied or edited "
                "blocks have none; leave it out"
            )
        if self.keep_adapter and self.classifier == "mean-linear":
            raise InputError(
                "`keep_adapter` needs a model that transformers can load, and has none with the "
                "classifier mean-linear; leave it out"
            )

    def with_method(self, written: Method | None) -> TuneRequest:
        """Return the request with its method settled: its own, or else `written`.

        Args:
            written: the method that a plan.json was written for; its options hold where no others
                were given.

        Raises:
            InputError: if the method does not take the options, or does not go with the rest.
        """
        if self.method is not None:
            return self
        written = written or FULL
        method = make_method(written.name, **asdict(written) | dict(self.method_options or {}))
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
        staged: bool = False,
        loss: Loss | None = None,
    ) -> tuple[Settings, Classifier]:
        """Return how runs train, with what the preset says filled in, and the classifier.

        Args:
            task: its name; see `preset`.
            examples: of the training split.
            metric: the task's own.
            kind: of the task; see `choose_epochs`, which decides where nothing says how long.
            labels: of the task.
            full: whether all blocks and the embeddings are tuned, with all of their weights.
            staged: whether the head is solved in the end.
            loss: what is lowered then.

        Raises:
            InputError: if the paper is not known to have trained that way.
        """
        given = {name: getattr(self, name) for name in options_of(Settings) if name in self.given}
        chosen: dict[str, Any] = {"metric": metric}
        if staged:
            chosen |= {"batch_size": STAGE_EXAMPLES, "loss": loss}
        classifier: Classifier = "family"
        if self.preset is not None:
            released = self.as_released
            paper = preset(
                self.preset, task=task, examples=examples, as_released=released, full=full
            )
            chosen, classifier = {**chosen, **paper.settings}, paper.classifier
            if "epochs" in given:
                chosen.pop("max_steps", None)
        chosen |= given
        settings = Settings(**chosen)
        if not {"epochs", "max_steps"} & chosen.keys():
            epochs = choose_epochs(settings, examples, kind, labels, staged=staged)
            settings = replace(settings, epochs=epochs)
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
