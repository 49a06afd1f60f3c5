"""What every run of a tuning starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from layerscout.cache import Examples
from layerscout.data import Targets, Task
from layerscout.models import (
    Computed,
    Encoder,
    Equipped,
    Tokens,
    equip,
    list_reinitialized,
    locate_parameters,
    make_classifier,
)
from layerscout.plans import (
    Classifier,
    Method,
    Plan,
    Settings,
    TuneRequest,
    Work,
    default_head_rate,
)


@dataclass(frozen=True, eq=False)
class Part:
    """A split as runs read it: its tokenised texts, and what is right for its examples."""

    tokens: Tokens
    answers: Targets

    def __len__(self) -> int:
        """Count the examples: where words are labelled, sentences or windows of long ones."""
        return len(self.tokens) // self.answers.choices

    def without_trunk(self) -> Examples:
        """Give its examples without states at a cut, so that the whole model runs on them."""
        return Examples(self.tokens, self.answers, None)


@dataclass(frozen=True, eq=False)
class TuneSetup:
    """What every run starts from.

    Attributes:
        encoder: what is tuned, with its blocks edited as the request says.
        task: with the training examples that are used.
        available: training examples that there were before some were drawn.
        training: the training split.
        validation: the validation split.
        request: what was asked for, its method settled.
        settings: how runs train.
        head: what reads the last state.
        cache_limit: bytes that the cache may hold.
    """

    encoder: Encoder
    task: Task
    available: int
    training: Part
    validation: Part
    request: TuneRequest
    settings: Settings
    head: Classifier
    cache_limit: int

    @property
    def method(self) -> Method:
        """How the blocks are tuned."""
        method = self.request.method
        assert not isinstance(method, str | None), "the method is settled"
        return method

    @property
    def fresh_head(self) -> bool:
        """Whether the whole head is re-initialised: with blocks too, unless as released."""
        return self.request.draws_head

    @property
    def saved_as(self) -> Literal["checkpoint", "peft", "ours"]:
        """How the tuned model is written: only what was trained, or a whole checkpoint."""
        match self.method.saved:
            case "whole":
                return "checkpoint" if self.head == "family" else "ours"
            case "merged":
                return "peft" if self.request.keep_adapter else "checkpoint"
            case "apart":
                return "ours"

    @property
    def save_dtype(self) -> Computed:
        """What the weights of the saved model are stored in, if it is a whole checkpoint."""
        asked = self.request.save_dtype or self.encoder.dtype
        return asked if self.saved_as == "checkpoint" else "float32"

    def equip(self, plan: Plan, seed: int) -> Equipped:
        """Make what a run of a plan trains; see `make_classifier` and `equip`."""
        model = make_classifier(
            self.encoder,
            plan,
            self.task.labels,
            seed=seed,
            fresh_head=self.fresh_head,
            kind=self.task.kind,
            head=self.head,
            shares=self.training.answers.count_shares(self.task),
        )
        return equip(model, plan, self.method, seed=seed)

    @property
    def head_learning_rate(self) -> float | None:
        """The rate of the head where blocks are tuned too; None if it is that of the blocks."""
        given = self.settings.head_learning_rate
        if given is not None or self.request.preset is not None:
            return given
        if self.task.kind in ("token_classification", "multi_label_classification"):
            return default_head_rate(self.encoder.model.config.hidden_size)
        return None

    def factors(self, model: Any, plan: Plan, learning_rate: float) -> dict[str, float]:
        """Give what the learning rate of a parameter is multiplied by, by name, where it is."""
        found: dict[str, float] = {}
        editing, factor = self.encoder.edit_spec, self.request.reinit_rate_factor
        if editing is not None and factor != 1:
            found |= dict.fromkeys(list_reinitialized(model, editing), factor)
        if plan.tuned and self.head_learning_rate is not None:
            head = [name for name, place in locate_parameters(model).items() if place == "head"]
            found |= dict.fromkeys(head, self.head_learning_rate / learning_rate)
        return found

    def work(self, cached: bool) -> Work:
        """Say how much training there is; each choice of an example counts as one."""
        n = len(self.training)
        return Work(
            examples=len(self.training.tokens),
            validation=len(self.validation.tokens),
            tokens=float(self.training.tokens.lengths.mean()),
            epochs=self.settings.steps(n) / self.settings.steps_per_epoch(n),
            cached=cached,
        )
