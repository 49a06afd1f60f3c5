"""A run of a tuning: the steps that it takes, its curve over the epochs, and which epoch counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.models import Encoder
from layerscout.plans import Keep, Settings
from layerscout.states import Examples, compute_logits, make_accelerator


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

    def as_dict(self, keep: Keep) -> dict[str, Any]:
        """Return what `result.json` holds of the run, of which one epoch counts."""
        names: dict[Keep, None] = dict.fromkeys(("best", "last", keep))
        ends = [(name, pick_epoch(self.curve, name)) for name in names] if self.curve else []
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
    """Return the epoch that counts; the earlier of equal ones, unless the last counts."""
    match keep:
        case "best":
            # With few validation rows many epochs have the same metric; the loss tells them apart.
            return max(curve, key=lambda epoch: (epoch.value, -epoch.loss))
        case "lowest-loss":
            return min(curve, key=lambda epoch: epoch.loss)
        case "last":
            return curve[-1]


@dataclass(frozen=True, eq=False)
class Stepper:
    """Takes the steps of a run, each of several processes its part of every batch.

    Attributes:
        run: the model, as the accelerator wants it called.
        trained: the parameters that are trained, by name.
        batch_size: examples of the batches that a step is made of.
        max_grad_norm: what the gradient's norm is clipped to; None for no clipping.
        weights: of the classes in the loss, (K,); None if all count alike.
        scaler: keeps the gradients of float16 from vanishing; does nothing in other precisions.
    """

    encoder: Encoder
    model: Any
    training: Examples
    accelerator: Any
    run: Any
    trained: Mapping[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    batch_size: int
    max_grad_norm: float | None
    weights: Tensor | None
    scaler: torch.amp.GradScaler

    @classmethod
    def prepare(
        cls,
        encoder: Encoder,
        model: Any,
        training: Examples,
        settings: Settings,
        factors: Mapping[str, float],
    ) -> Stepper:
        """Make the optimizer of those parameters of a model that ask for gradients."""
        accelerator = make_accelerator()
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        run = accelerator.prepare(model) if accelerator.num_processes > 1 else model
        if accelerator.process_index:  # dropout of its own, and of no other seed's
            seeds = np.random.SeedSequence([torch.initial_seed(), accelerator.process_index])
            torch.manual_seed(int(seeds.generate_state(1)[0]))
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, p in trained.items():
            # Biases and norms are left out of weight decay, as is usual.
            decay = settings.weight_decay if p.ndim > 1 else 0.0
            groups.setdefault((decay, factors.get(name, 1.0)), []).append(p)
        options = [
            {"params": params, "weight_decay": decay, "factor": factor}
            for (decay, factor), params in groups.items()
        ]
        optimizer = torch.optim.AdamW(options, fused=True)
        # Not accelerate's scaler, which exists only where its mixed precision is on: here the
        # encoder casts, and one process may hold encoders of several precisions.
        half = encoder.precision == "float16"
        scaler = torch.amp.GradScaler(encoder.device.type, enabled=half)
        return cls(
            encoder,
            model,
            training,
            accelerator,
            run,
            trained,
            optimizer,
            settings.batch_size,
            settings.max_grad_norm,
            None if settings.class_weights is None else balance_classes(training, model),
            scaler,
        )

    def step(self, rows: np.ndarray, learning_rate: float) -> float:
        """Take one step on the examples at `rows` and give their mean loss.

        They go through the model in batches of `batch_size`, whose gradients add up to those of the
        mean over all of them, also where the last batch is smaller. A loss that is not finite
        changes nothing.
        """
        # Not a LambdaLR, which multiplies the factor of a group in first: in floating point the
        # rates of re-initialised blocks would differ in the last digit, and so would their runs.
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * group["factor"]
        answers, value = len(self.training.find_answers(rows)), 0.0
        for start in range(0, len(rows), self.batch_size):
            value += self._add_gradients(rows[start : start + self.batch_size], answers)
            if not isfinite(value):
                break
        else:
            if self.max_grad_norm is not None:
                self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.trained.values(), self.max_grad_norm)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad()
        return value

    def _add_gradients(self, batch: np.ndarray, answers: int) -> float:
        """Add the gradients of a batch to those that are there, and give its share of the loss.

        Args:
            batch: rows; each process takes its part of them.
            answers: of the whole step, over which the loss is the mean.
        """
        accelerator, processes = self.accelerator, self.accelerator.num_processes
        part = np.array_split(batch, processes)[accelerator.process_index]
        # Where there are too few for all, gradients of nothing still take part in the sum.
        weight = len(self.training.find_answers(part)) / answers
        part = part if len(part) else batch[:1]
        logits = compute_logits(self.encoder, self.model, self.training, part, run=self.run)
        loss = compute_loss(logits, self.training.labels_of(part), self.weights) * weight
        total = loss.detach()
        if processes > 1:
            total = accelerator.reduce(total.to(accelerator.device), "sum")
        value = float(total.item())
        if isfinite(value):
            # Gradients are averaged over the processes.
            accelerator.backward(self.scaler.scale(loss * processes))
        return value

    def copy_parameters(self) -> dict[str, Tensor]:
        """Copy the trained parameters."""
        return {name: p.detach().clone() for name, p in self.trained.items()}


def compute_loss(outputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean loss: cross-entropy, or the squared error if the labels are numbers.

    Args:
        outputs: logits, (b, K).
        labels: (b,), class ids or right choices, or numbers, which one output predicts; or bool
            (b, K), which labels each has: the cross-entropy is then the mean over them.
        weights: of class ids, (K,): the mean is of each example's loss times its class's weight.
    """
    if labels.dtype == torch.bool:
        indicators = labels.to(outputs.dtype).to(outputs.device)
        return nn.functional.binary_cross_entropy_with_logits(outputs, indicators)
    if labels.is_floating_point():
        numbers = labels.to(outputs.dtype).to(outputs.device)  # MPS has no float64
        return nn.functional.mse_loss(outputs[:, 0], numbers)
    ids = labels.to(outputs.device)
    if weights is None:
        return nn.functional.cross_entropy(outputs, ids)
    # Not divided by the weights of the batch, as torch would: then a step over several batches, or
    # processes, would not be the one over all of their examples.
    losses = nn.functional.cross_entropy(outputs, ids, reduction="none")
    return (losses * weights.to(losses)[ids]).mean()


def balance_classes(training: Examples, model: Any) -> Tensor:
    """Return the weights with which all classes of training count alike, (K,).

    n / (classes that occur × examples of the class), as scikit-learn's "balanced"; their mean over
    the examples is 1.
    """
    counts = np.bincount(training.answers.labels, minlength=model.config.num_labels)
    occurring = np.count_nonzero(counts)
    weights = counts.sum() / (occurring * np.maximum(counts, 1))
    return torch.from_numpy(np.where(counts > 0, weights, 1.0))
