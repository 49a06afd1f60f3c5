"""What every run of a tuning starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from layerscout.data import Targets, Task
from layerscout.models import Encoder, Equipped, Tokens, equip, list_reinitialized, make_classifier
from layerscout.plans import Classifier, Full, LoRA, Method, Plan, Settings, Work


@dataclass(frozen=True, eq=False)
class Part:
    """A split as runs read it: its tokenised texts, and what is right for its examples."""

    tokens: Tokens
    answers: Targets


@dataclass(frozen=True, eq=False)
class TuneSetup:
    """What every run starts from.

    Attributes:
        available: training examples that there were before some were drawn.
        reinit_rate_factor: times the learning rate that blocks have which were drawn anew.
    """

    encoder: Encoder
    task: Task
    available: int
    training: Part
    validation: Part
    settings: Settings
    method: Method
    head: Classifier
    keep_adapter: bool
    trunk_dropout: bool
    fresh_head: bool
    reinit_rate_factor: float
    cache_limit: int

    @property
    def saved_as(self) -> Literal["checkpoint", "peft", "ours"]:
        """How the tuned model is written: only what was trained, or a whole checkpoint."""
        if isinstance(self.method, LoRA):
            return "peft" if self.keep_adapter else "checkpoint"
        plain = isinstance(self.method, Full) and self.head == "family"
        return "checkpoint" if plain else "ours"

    def equipped(self, plan: Plan, seed: int) -> Equipped:
        """Make what a run of a plan trains; see `make_classifier` and `equip`."""
        model = make_classifier(
            self.encoder,
            plan,
            self.task.labels,
            seed=seed,
            fresh_head=self.fresh_head,
            kind=self.task.kind,
            head=self.head,
        )
        return equip(model, plan, self.method, seed=seed)

    def factors(self, model: Any) -> dict[str, float]:
        """Give what the learning rate of a parameter is multiplied by, by name, where it is."""
        editing, factor = self.encoder.edit_spec, self.reinit_rate_factor
        if editing is None or factor == 1:
            return {}
        return dict.fromkeys(list_reinitialized(model, editing), factor)

    def work(self, cached: bool) -> Work:
        """Say how much training there is; each choice of an example counts as one."""
        n = len(self.training.answers)
        return Work(
            examples=len(self.training.tokens),
            validation=len(self.validation.tokens),
            tokens=float(self.training.tokens.lengths.mean()),
            epochs=self.settings.steps(n) / self.settings.steps_per_epoch(n),
            cached=cached,
        )
