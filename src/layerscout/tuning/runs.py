"""A run of a tuning: its curve over the epochs, and which epoch counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from layerscout.plans import Keep


@dataclass(frozen=True)
class Epoch:
    """What an epoch ended with: mean training loss, and loss and metric on validation."""

    epoch: int
    training_loss: float
    loss: float
    value: float


@dataclass(frozen=True)
class Run:
    """One training of a plan, with one learning rate and one seed.

    Attributes:
        curve: the epochs that were finished.
        stopped: why it ended before its last epoch; None where it did not.
        diverged: whether that was because of a loss or logits that were not finite.
        seconds: spent on training steps ("train") and on validation ("evaluate").
    """

    learning_rate: float
    seed: int
    curve: tuple[Epoch, ...]
    stopped: str | None
    diverged: bool
    seconds: Mapping[str, float]

    @property
    def best(self) -> Epoch:
        """The epoch with the highest metric; of equal ones that with the lowest loss."""
        return pick_epoch(self.curve, "best")

    @property
    def last(self) -> Epoch:
        """The last epoch."""
        return pick_epoch(self.curve, "last")

    def choose_epoch(self, keep: Keep) -> Epoch:
        """Give the epoch that counts."""
        return pick_epoch(self.curve, keep)

    def as_dict(self, keep: Keep = "best") -> dict[str, Any]:
        """Give what `result.json` holds of the run, of which one epoch counts."""
        names: dict[Keep, None] = dict.fromkeys(("best", "last", keep))
        ends = [(name, self.choose_epoch(name)) for name in names] if self.curve else []
        return {
            "learning_rate": self.learning_rate,
            "seed": self.seed,
            **{name: {"epoch": epoch.epoch, "value": epoch.value} for name, epoch in ends},
            "curve": [asdict(epoch) for epoch in self.curve],
            "stopped": self.stopped,
            "diverged": self.diverged,
            "seconds": dict(self.seconds),
        }


def pick_epoch(curve: Sequence[Epoch], keep: Keep) -> Epoch:
    """Give the epoch that counts; the earlier of equal ones, unless it is the last that counts."""
    match keep:
        case "best":
            # With few validation rows many epochs have the same metric; the loss tells them apart.
            return max(curve, key=lambda epoch: (epoch.value, -epoch.loss))
        case "lowest-loss":
            return min(curve, key=lambda epoch: epoch.loss)
        case "last":
            return curve[-1]
