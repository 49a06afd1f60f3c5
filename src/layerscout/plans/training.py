"""How a run trains: its settings, and the learning rate at every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from layerscout.data import METRICS
from layerscout.runtime import check_integer, check_number, unknown

Keep = Literal["best", "last"]
Schedule = Literal["linear", "constant"]

# What reads the last state: the family's own head, or one linear layer on the mean of the tokens.
Classifier = Literal["family", "mean-linear"]


@dataclass(frozen=True)
class Settings:
    """How every run of a tuning trains.

    Attributes:
        epochs: passes over the training examples at the most.
        max_steps: steps of the whole training, whatever `epochs` says; None to go by `epochs`.
        batch_size: examples of a step.
        warmup: steps in which the learning rate rises to its peak; below 1 as a share of all.
        schedule: whether it then falls to 0 in a line, or stays.
        weight_decay: of AdamW, on matrices only.
        max_grad_norm: what the gradient's norm is clipped to; None for no clipping.
        patience: epochs without a better one after which a run stops; None to go on.
        keep: whether the best or the last epoch counts.
        metric: what is better when it is higher; a key of `METRICS` that fits the task.
    """

    epochs: int = 5
    max_steps: int | None = None
    batch_size: int = 32
    warmup: float = 0.06
    schedule: Schedule = "linear"
    weight_decay: float = 0.0
    max_grad_norm: float | None = None
    patience: int | None = None
    keep: Keep = "best"
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        """Check the ranges; numbers of other libraries become Python's, which JSON can hold."""
        rules: dict[str, tuple[str, Callable[[float], bool], str]] = {
            "warmup": (
                "0 or more",
                lambda steps: 0 <= steps < 1 or steps % 1 == 0,
                "below 1 it is a share of all steps, else a whole number of them",
            ),
            "weight_decay": ("0 or more", lambda decay: decay >= 0, ""),
            "max_grad_norm": ("above 0", lambda norm: norm > 0, "leave it out not to clip"),
        }
        optional = ("max_steps", "patience", "max_grad_norm")
        for name in ("epochs", "max_steps", "batch_size", "patience", *rules):
            value = getattr(self, name)
            if value is None and name in optional:
                continue
            number = (
                check_number(name, value, *rules[name])
                if name in rules
                else check_integer(name, value, 1)
            )
            object.__setattr__(self, name, number)
        choices = {"keep": ("best", "last"), "schedule": ("linear", "constant"), "metric": METRICS}
        for name, known in choices.items():
            if getattr(self, name) not in tuple(known):
                raise unknown(f"`{name}`", str(getattr(self, name)), known)

    def steps_per_epoch(self, examples: int) -> int:
        """Give the steps of a pass over so many examples."""
        return -(-examples // self.batch_size)

    def steps(self, examples: int) -> int:
        """Give the steps of a whole training on so many examples."""
        return self.max_steps or self.epochs * self.steps_per_epoch(examples)

    def passes(self, examples: int) -> int:
        """Give the epochs of a whole training; the last one may be cut short by `max_steps`."""
        return -(-self.steps(examples) // self.steps_per_epoch(examples))


def learning_rate_at(step: int, steps: int, warmup: float, schedule: Schedule = "linear") -> float:
    """Give the share of the peak rate at a step: a linear rise, then a linear fall to 0, or none.

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
