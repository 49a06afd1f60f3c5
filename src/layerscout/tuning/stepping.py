"""A run of a tuning: the steps that it takes, its curve over the epochs, and which epoch counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.data import (
    Targets,
    evaluate,
    settle_thresholds,
    shuffle_batches,
    shuffle_plainly,
)
from layerscout.models import Encoder
from layerscout.plans import Keep, Settings, learning_rate_at
from layerscout.states import Examples, compute_logits, make_accelerator

# τ of the contrastive loss.
TEMPERATURE = 0.1


@dataclass(frozen=True)
class Epoch:
    """What an epoch ended with: mean training loss, and loss and metric on validation."""

    epoch: int
    training_loss: float
    loss: float
    value: float

    def track(self, metric: str) -> dict[str, float]:
        """Return what a tracker shows of it."""
        return {
            "training_loss": self.training_loss,
            "validation_loss": self.loss,
            metric: self.value,
        }


@dataclass
class Run:
    """One training of a plan, with one learning rate and one seed, as far as it has come.

    Attributes:
        learning_rate: None where the head was solved, in one pass.
        curve: the epochs that were finished.
        stopped: why it ended before its last epoch; None where it did not.
        diverged: whether that was because of a loss or logits that were not finite.
        seconds: spent on training steps ("train") and on validation ("evaluate").
    """

    learning_rate: float | None
    seed: int
    curve: list[Epoch] = field(default_factory=list)
    stopped: str | None = None
    diverged: bool = False
    seconds: dict[str, float] = field(default_factory=lambda: {"train": 0.0, "evaluate": 0.0})

    def diverge(self, reason: str) -> None:
        """End the run, of which the epochs so far count."""
        self.stopped, self.diverged = reason, True

    def as_dict(self, keep: Keep) -> dict[str, Any]:
        """Return what `result.json` holds of the run, of which one epoch counts."""
        names: dict[Keep, None] = dict.fromkeys(("best", "last", keep))
        ends = {name: pick_epoch(self.curve, name) for name in names} if self.curve else {}
        return asdict(self) | {
            name: {"epoch": epoch.epoch, "value": epoch.value} for name, epoch in ends.items()
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


class Stepper:
    """Takes the steps of a run, each of several processes its part of every batch.

    Attributes:
        run: the model, as the accelerator wants it called.
        trained: the parameters that are trained, by name.
        weights: of the classes in the loss, (K,); None if all count alike.
        scaler: keeps the gradients of float16 from vanishing; does nothing in other precisions.
        order: draws the order of the examples.
        done: steps that were taken.
        kept: the trained parameters after the epoch that counts.
    """

    def __init__(
        self,
        encoder: Encoder,
        model: Any,
        training: Examples,
        settings: Settings,
        factors: Mapping[str, float],
        seed: int = 0,
    ) -> None:
        """Make the optimizer of those parameters of a model that ask for gradients."""
        self.encoder, self.model = encoder, model
        self.training, self.settings = training, settings
        self.accelerator = accelerator = make_accelerator()
        self.trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.run = accelerator.prepare(model) if accelerator.num_processes > 1 else model
        if accelerator.process_index:  # dropout of its own, and of no other seed's
            seeds = np.random.SeedSequence([torch.initial_seed(), accelerator.process_index])
            torch.manual_seed(int(seeds.generate_state(1)[0]))
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, p in self.trained.items():
            # Biases and norms are left out of weight decay, as is usual.
            decay = settings.weight_decay if p.ndim > 1 else 0.0
            groups.setdefault((decay, factors.get(name, 1.0)), []).append(p)
        options = [
            {"params": params, "weight_decay": decay, "factor": factor}
            for (decay, factor), params in groups.items()
        ]
        self.optimizer = torch.optim.AdamW(options, fused=True)
        self.weights = weigh_classes(training, model) if settings.class_weights else None
        # Not accelerate's scaler, which exists only where its mixed precision is on: here the
        # encoder casts, and one process may hold encoders of several precisions.
        half = encoder.precision == "float16"
        self.scaler = torch.amp.GradScaler(encoder.device.type, enabled=half)
        self.order, self.done = np.random.default_rng(seed), 0
        self.kept: dict[str, Tensor] = {}

    def take_steps(
        self,
        run: Run,
        batches: Iterable[np.ndarray],
        steps: int,
        advance: Callable[[int, int], bool | None],
    ) -> Iterator[tuple[np.ndarray, float]]:
        """Take those of a run's steps that are left, and yield the rows and the loss of each.

        A loss that is not finite ends the run, and so does `advance`, told how many are done and of
        how many, where it returns True.
        """
        settings, rate = self.settings, run.learning_rate
        assert rate is not None, "it is trained"
        self.model.train()
        for rows in islice(batches, steps - self.done):
            share = learning_rate_at(self.done, steps, settings.warmup, settings.schedule)
            value = self.step(rows, rate * share)
            if not isfinite(value):
                run.diverge(f"the loss was {value} at step {self.done + 1} of {steps}")
                return
            self.done += 1
            yield rows, value
            if advance(self.done, steps) and self.done < steps:
                run.stopped = f"the time was over after step {self.done} of {steps}"
                return

    def step(self, rows: np.ndarray, learning_rate: float) -> float:
        """Take one step on the examples at `rows` and return their mean loss.

        They go through the model in batches, whose gradients add up to those of the mean over all
        of them, also where the last batch is smaller. A loss that is not finite changes nothing.
        """
        # Not a LambdaLR, which multiplies the factor of a group in first: in floating point the
        # rates of re-initialised blocks would differ in the last digit, and so would their runs.
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * group["factor"]
        answers, value = self.training.weigh(rows), 0.0
        size, most = self.settings.batch_size, self.settings.max_grad_norm
        for start in range(0, len(rows), size):
            value += self._add_gradients(rows[start : start + size], answers)
            if not isfinite(value):
                break
        else:
            if most is not None:
                self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.trained.values(), most)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad()
        return value

    def _add_gradients(self, batch: np.ndarray, answers: float) -> float:
        """Add the gradients of a batch to those that are there, and return its share of the loss.

        Args:
            batch: rows; each process takes its part of them.
            answers: how much those of the whole step count, over which the loss is the mean.
        """
        accelerator, processes = self.accelerator, self.accelerator.num_processes
        part = np.array_split(batch, processes)[accelerator.process_index]
        # Where there are too few for all, gradients of nothing still take part in the sum.
        weight = self.training.weigh(part) / answers
        part = part if len(part) else batch[:1]
        outputs = compute_logits(self.encoder, self.model, self.training, part, run=self.run)
        labels, shares = self.training.labels_of(part), self.training.shares_of(part)
        if self.settings.loss == "contrastive":
            loss = contrast(outputs, labels) * weight
        else:
            loss = compute_loss(outputs, labels, self.weights, shares) * weight
        total = loss.detach()
        if processes > 1:
            total = accelerator.reduce(total.to(accelerator.device), "sum")
        value = float(total.item())
        if isfinite(value):
            # Gradients are averaged over the processes.
            accelerator.backward(self.scaler.scale(loss * processes))
        return value


def draw_batches(
    settings: Settings, lengths: np.ndarray, order: np.random.Generator
) -> list[np.ndarray]:
    """Draw the examples of an epoch's steps, which have so many tokens each."""
    if settings.batching == "shuffled":
        return shuffle_plainly(len(lengths), settings.step_size, order)
    return shuffle_batches(lengths, settings.step_size, order)


def judge_logits(settings: Settings, answers: Targets, logits: np.ndarray) -> float:
    """Return the metric that counts, with the thresholds that suit these rows."""
    thresholds = settle_thresholds(settings.threshold, answers.labels, logits)
    metric, labels, tags = settings.metric, answers.labels, answers.tags
    return evaluate(metric, labels, logits, tags=tags, thresholds=thresholds)


def contrast(features: Tensor, labels: Tensor) -> Tensor:
    """Return the supervised contrastive loss of a batch (Khosla et al. 2020, eq. 2).

    Of row i with features z of length 1 it is −Σ_j w_ij log (e^(z_i·z_j/τ) / Σ_{a≠i} e^(z_i·z_a/τ))
    over the others, with weights that sum to 1: the same for all rows of its class, and 0 for the
    rest. Of several labels the weight of two rows is the share of common ones, |A∩B|/|A∪B|.

    Args:
        features: (b, d).
        labels: class ids (b,), or which labels each has, bool (b, K).

    Returns:
        The mean over those rows whose labels others have; 0 if there are none.
    """
    z = nn.functional.normalize(features.float(), dim=1)
    own = torch.eye(len(z), dtype=torch.bool, device=z.device)
    scaled = (z @ z.T / TEMPERATURE).masked_fill(own, -torch.inf)
    logs = (scaled - scaled.logsumexp(dim=1, keepdim=True)).masked_fill(own, 0.0)
    labels = labels.to(z.device)
    if labels.dtype == torch.bool:
        A = labels.to(z)
        shared, sizes = A @ A.T, A.sum(dim=1)
        joined = sizes[:, None] + sizes - shared
        alike = torch.where(joined > 0, shared / joined.clamp(min=1), 1.0)
    else:
        alike = (labels[:, None] == labels).to(z)
    weights = alike.masked_fill(own, 0.0)
    sums = weights.sum(dim=1)
    losses = -(weights * logs).sum(dim=1)[sums > 0] / sums[sums > 0]
    return losses.sum() / max(len(losses), 1)


def compute_loss(
    outputs: Tensor, labels: Tensor, weights: Tensor | None = None, shares: Tensor | None = None
) -> Tensor:
    """Return the mean loss: cross-entropy, or the squared error if the labels are numbers.

    Args:
        outputs: logits, (b, K).
        labels: (b,), class ids or right choices, or numbers, which one output predicts; or bool
            (b, K), which labels each has: the cross-entropy is then the mean over them.
        weights: of class ids, (K,): the mean is of each example's loss times its class's weight.
        shares: of class ids, (b,): how much each counts in the mean; all alike if None.
    """
    if labels.dtype == torch.bool:
        indicators = labels.to(outputs.dtype).to(outputs.device)
        return nn.functional.binary_cross_entropy_with_logits(outputs, indicators)
    if labels.is_floating_point():
        numbers = labels.to(outputs.dtype).to(outputs.device)  # MPS has no float64
        return nn.functional.mse_loss(outputs[:, 0], numbers)
    ids = labels.to(outputs.device)
    if weights is None and shares is None:
        return nn.functional.cross_entropy(outputs, ids)
    # Not divided by the weights of the batch, as torch would: then a step over several batches, or
    # processes, would not be the one over all of their examples.
    losses = nn.functional.cross_entropy(outputs, ids, reduction="none")
    losses = losses if weights is None else losses * weights.to(losses)[ids]
    return losses.mean() if shares is None else losses @ (shares / shares.sum()).to(losses)


def weigh_classes(training: Examples, model: Any) -> Tensor:
    """Return the weights with which all classes of training count alike, (K,).

    n / (classes that occur × examples of the class), as scikit-learn's "balanced"; their mean over
    the examples is 1.
    """
    answers, classes = training.answers, model.config.num_labels
    counts = np.bincount(answers.labels, weights=answers.shares, minlength=classes)
    occurring = np.count_nonzero(counts)
    weights = counts.sum() / (occurring * np.maximum(counts, 1))
    return torch.from_numpy(np.where(counts > 0, weights, 1.0))
