"""Requests: what a verb is asked to do, checked once, whoever asks.

The Python call, the command line, a recipe's settings and a trial's key are made from these fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

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
    describe_method,
    make_method,
)
from layerscout.plans.options import (
    check_counts,
    check_for_count_or,
    check_for_number,
    check_for_one_of,
    check_for_several,
    check_for_whole_number,
    check_metric_name,
    check_options,
    option,
    options_of,
)
from layerscout.plans.papers import FAMILY_RATES, PRESETS, WeightInit, preset
from layerscout.plans.plan import Plan, require_text
from layerscout.plans.training import Classifier, Settings, choose_epochs
from layerscout.runtime import InputError, make_unknown_error

Pooling = Literal["mean", "last", "cls", "first"]

# Which token the head of a classifier reads: the first one, or the last one that is not padding.
ReadToken = Literal["first", "last"]

# At which rates an evaluation tunes heads again: all of Table 3 of Xie et al. 2022 and not only the
# task's, because no single one suits all states.
HEAD_RATES = tuple(sorted(set(FAMILY_RATES.values())))


def first_state(pooling: Pooling) -> int:
    """Return the first state that can differ between texts.

    The first token is the same in all of them, and so is its embedding: cls has no state 0.
    """
    return 1 if pooling == "cls" else 0


def usual_pooling(reads: ReadToken | None, *, words: bool = False) -> Pooling:
    """Return the pooling that a scan has unless it is told otherwise.

    A decoder's tokens see only what stands before them, so that the last one alone has seen the
    whole text; docs/measured/decoders.md compares the poolings.

    Args:
        reads: the token that the head of the model's family reads.
        words: whether it is the tokens of a word that are pooled.
    """
    if words:
        return "mean"
    return "last" if reads == "last" else "mean"


SEED = check_for_whole_number(0, 2**63 - 1)
LENGTH = check_for_whole_number(1)
RATE = check_for_number("above 0", lambda rate: rate > 0)


def _check_plan(name: str, value: Any) -> Any:
    """Check that it may be a plan; which one it is shows with a model."""
    return value if isinstance(value, Plan | Path) else require_text(value)


def _check_method(name: str, value: Any) -> Any:
    """Check the name of a method, which becomes one together with its options."""
    if not isinstance(value, Method) and value not in METHODS:
        raise make_unknown_error("method", str(value), METHODS)
    return value


def _check_edits(name: str, value: Any) -> tuple[Edit, ...]:
    return tuple(make_edits(value))


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
        None, _check_method, takes="Method | str | None", shown="full, or what a plan.json says"
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
    preset: str | None = option(None, check_for_one_of("preset", PRESETS))
    """Train as a paper did: xie2022, phang2021, tamkin2020 or lodha2023; options that are given
    take precedence."""
    as_released: bool = option(False)
    """Follow the published code where it differs from the paper; for presets and re-initialised
    blocks."""
    learning_rate: tuple[float, ...] | None = option(
        None, check_for_several(RATE, float), takes="float | Sequence[float] | None"
    )
    """One or several peak learning rates; by default one that suits the plan."""
    seed: tuple[int, ...] = option(
        (0,), check_for_several(SEED, int), takes="int | Sequence[int]", shown="0"
    )
    """One or several random seeds; each is a run."""
    examples: int | Literal["all"] = option("all", check_for_count_or("all"))
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
        (), _check_edits, takes="str | Edit | Sequence[Edit]", flag="--edit"
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
        self._check_length()
        self._check_edits()
        if self.method is not None:
            method = make_method(self.method, **self.method_options or {})
            object.__setattr__(self, "method", method)
            object.__setattr__(self, "method_options", None)
            self._check_method(method)

    @property
    def reinitialises(self) -> bool:
        """Whether an edit re-initialises blocks."""
        return any(isinstance(one, Reinitialize | Preserve) for one in self.edits)

    @property
    def weight_init(self) -> WeightInit:
        """How blocks are re-initialised."""
        return WeightInit(self.keep_layer_norm, self.as_released)

    @property
    def draws_head(self) -> bool:
        """Whether the whole head is re-initialised: with blocks too, unless as released."""
        return self.fresh_head or (self.reinitialises and not self.as_released)

    def _check_length(self) -> None:
        if {"epochs", "max_steps"} <= self.given:
            raise InputError(
                f"`epochs` and `max_steps` both set how long to train, got {self.epochs} and "
                f"{self.max_steps}; give only one of them"
            )

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
            options = describe_method(written) | options
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


@dataclass(frozen=True)
class ScanRequest:
    """What a scan is asked for; see `layerscout.scan`."""

    scores: str | Sequence[str] | None = option(None, flag="--score")
    """Scores to compute, separated by commas, or all; by default head_quality and the variability
    ratios, or for numbers head_quality, cca, ridge and logme."""
    examples: int | Literal["all", "auto"] = option("auto", check_for_count_or("all", "auto"))
    """Number of training examples to read, all, or auto, which reads more until the best state is
    settled."""
    within: float = option(1.0, check_for_number("above 0", lambda points: points > 0), shown="1")
    """How many points of the metric the state found by "auto" may fall short of the best one."""
    balanced: bool = option(False)
    """Draw the same number of examples from every class."""
    per_class: tuple[int, ...] | None = option(None, check_counts, takes="Sequence[int] | None")
    """Draw exactly these numbers of examples, in the order of the labels."""
    pooling: Pooling | None = option(None, shown="mean; last for decoders")
    """Average the tokens of a text (mean), or take its last (last) or first one (cls); by default
    mean, and last for decoders. For labelled words: mean, last or first."""
    max_length: int = option(128, LENGTH)
    """Maximum number of tokens per input."""
    seed: int = option(0, SEED)
    """Random seed."""
    probe: Literal["linear", "plain", "family"] = option("linear")
    """Train a linear probe on the pooled state (linear; plain trains it slowly, as Tamkin et al.
    2020 did), or the family's own head on the token that it reads (Xie et al. 2022)."""
    probe_seeds: int | None = option(
        None, check_for_whole_number(1), shown="8; 3 for the family's head"
    )
    """How many times each probe is trained, with different seeds."""
    probe_pooling: Literal["mean", "cls"] | None = option(None, shown="see --probe")
    """What probes read: the average of a text's tokens (mean) or the first one (cls); by default
    the pooled state, or what the family's head reads."""
    fisher_mode: Literal["true", "empirical"] = option("true")
    """Fisher information in expectation over the model's own labels (true), or with the given
    labels (empirical)."""
    as_released: bool = option(False)
    """Compute Fisher information as the code published by Lodha et al. 2023 does."""
    fisher_parts: bool = option(False)
    """Also give the Fisher information of attention, feed-forward layers and norms within each
    block."""
    head_seeds: int = option(1, check_for_whole_number(1))
    """Number of random heads over which gradient-based scores are averaged."""
    clusters: int | None = option(None, check_for_whole_number(2), shown="10 for each class")
    """Number of clusters for mutual_information."""

    def __post_init__(self) -> None:
        """Check the values."""
        check_options(self)

    @property
    def fisher_rule(self) -> Literal["true", "empirical", "as_released"]:
        """How Fisher information is computed."""
        return "as_released" if self.as_released else self.fisher_mode


@dataclass(frozen=True)
class PlanRequest:
    """What a choice of plan is asked for; see `layerscout.Scan.planning`."""

    strategy: str = option("auto", lambda name, value: require_text(value))
    """A strategy such as best-down:3@top, or a plan such as "(6, 8, 12)"."""
    budget: float = option(0.5, lambda name, value: check_budget(value))
    """Share of the FLOPs of full fine-tuning that auto may use."""
    score: str | None = option(None)
    """Score that ranks states or blocks; by default the scan's."""
    epochs: int | None = option(
        None, check_for_whole_number(1), shown="as tune: 5, or more with few examples"
    )
    """Passes over the training examples; by default as many as a tuning has."""
    method: Method = option(FULL, _check_method, takes="Method | str", shown="full")
    """Tune all weights of the blocks, or a few new ones: full, adapter, lora or prefix-tuning."""
    method_options: Mapping[str, Any] | None = option(
        None, lambda name, value: dict(value), nested=METHODS
    )
    """Options of the method, by name."""

    def __post_init__(self) -> None:
        """Check the values."""
        check_options(self)
        method = make_method(self.method, **self.method_options or {})
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "method_options", None)


@dataclass(frozen=True)
class CompareRequest:
    """What a comparison is asked for; see `layerscout.compare`."""

    examples: int | Literal["all"] = option("all", check_for_count_or("all"))
    """Validation examples to read (or rows of a single file): a number or all."""
    pooling: Pooling | None = option(None, shown="cls; last for decoders")
    """Take the first token of a text (cls), as Phang et al. 2021 did, its last one (last), or
    average all (mean); by default cls, but last if all models are decoders and mean if some are.
    For labelled words: mean (the default), last or first."""
    max_length: int = option(128, LENGTH)
    """Maximum number of tokens per input."""
    seed: int = option(0, SEED)
    """Random seed."""

    def __post_init__(self) -> None:
        """Check the values."""
        check_options(self)


@dataclass(frozen=True)
class EvaluateRequest:
    """What an evaluation is asked for; see `layerscout.evaluate`."""

    edits: str | Sequence[str | Edit] = option(("truncate",), flag="--edit", shown="truncate")
    """Truncate (feed every state to the head), skip (leave out every span of blocks), or one edit
    such as skip:3-4, reinit:9-12 or permute:1; may be repeated."""
    tune_heads: bool = option(False)
    """Also tune the head again at every state."""
    metric: str | None = option(None, check_metric_name)
    """Metric to report first; by default that of the tuning, or else the task's own."""
    examples: int | Literal["all"] | None = option(
        None, check_for_count_or("all"), shown="at most 5,000"
    )
    """Number of training examples for tuning heads, or all."""
    head_epochs: int = option(20, check_for_whole_number(1))
    """Epochs for tuning heads; the best one is used."""
    head_batch_size: int = option(8, check_for_whole_number(1))
    """Batch size for tuning heads."""
    head_learning_rate: tuple[float, ...] = option(
        HEAD_RATES,
        check_for_several(RATE, float),
        takes="float | Sequence[float]",
        shown=",".join(f"{rate:g}" for rate in HEAD_RATES),
    )
    """One or several peak learning rates for heads; the best one is used."""
    max_length: int = option(128, LENGTH)
    """Maximum number of tokens per input."""
    seed: int = option(0, SEED)
    """Random seed."""

    def __post_init__(self) -> None:
        """Check the values."""
        check_options(self)
