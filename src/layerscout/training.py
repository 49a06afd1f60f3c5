"""Training what a plan tunes, from the states that its trunk left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from math import isfinite
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.encoder import Encoder, Tokens, resuming
from layerscout.errors import InputError, unknown
from layerscout.metrics import METRICS, evaluate
from layerscout.plans import Plan, real, whole
from layerscout.sampling import shuffled_batches
from layerscout.surgery import base_of, reads_first_token, seeded
from layerscout.trunks import DEFAULT_LIMIT, Trunk, trunk

Keep = Literal["best", "last"]


@dataclass(frozen=True)
class Settings:
    """How every run of a tuning trains.

    Attributes:
        epochs: passes over the training examples at the most.
        batch_size: examples of a step.
        warmup: share of the steps in which the learning rate rises to its peak.
        weight_decay: of AdamW, on matrices only.
        max_grad_norm: what the gradient's norm is clipped to; None for no clipping.
        patience: epochs without a better one after which a run stops; None to go on.
        keep: whether the best or the last epoch counts.
        metric: what is better when it is higher; a key of `METRICS`.
    """

    epochs: int = 5
    batch_size: int = 32
    warmup: float = 0.06
    weight_decay: float = 0.0
    max_grad_norm: float | None = None
    patience: int | None = None
    keep: Keep = "best"
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        """Check the ranges; numbers of other libraries become Python's, which JSON can hold."""
        rules: dict[str, tuple[str, Callable[[float], bool], str]] = {
            "warmup": ("from 0 to below 1", lambda share: 0 <= share < 1, ""),
            "weight_decay": ("0 or more", lambda decay: decay >= 0, ""),
            "max_grad_norm": ("above 0", lambda norm: norm > 0, "leave it out not to clip"),
        }
        for name in ("epochs", "batch_size", "patience", *rules):
            value = getattr(self, name)
            if value is None and name in ("patience", "max_grad_norm"):
                continue
            number = real(name, value, *rules[name]) if name in rules else whole(name, value, 1)
            object.__setattr__(self, name, number)
        for name, known in (("keep", ("best", "last")), ("metric", METRICS)):
            if getattr(self, name) not in tuple(known):
                raise unknown(f"`{name}`", str(getattr(self, name)), known)


@dataclass(frozen=True, eq=False)
class Examples:
    """Tokenised examples with their class ids (n,), and their states at the cut, if there is one.

    Where the head alone is tuned, `tokens` are those that it reads.
    """

    tokens: Tokens
    labels: np.ndarray
    trunk: Trunk | None

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def prepare(
        cls,
        encoder: Encoder,
        plan: Plan,
        tokens: Tokens,
        labels: np.ndarray,
        *,
        limit: int = DEFAULT_LIMIT,
        spare: Trunk | None = None,
        progress: Callable[[np.ndarray], None] | None = None,
    ) -> Examples:
        """Run the trunk of a plan over examples, or find in the cache what it gave.

        Args:
            encoder: the model before the cut.
            plan: for this encoder; see `Plan.on`.
            tokens: the n examples.
            labels: their class ids.
            limit: see `trunk`.
            spare: see `trunk`.
            progress: see `trunk`.
        """
        if plan.cut is None:
            return cls(tokens, labels, None)
        first_only = not plan.tuned and reads_first_token(encoder.model)
        states = trunk(
            encoder,
            tokens,
            plan.cut,
            first_only=first_only,
            limit=limit,
            spare=spare,
            progress=progress,
        )
        return cls(tokens.first() if first_only else tokens, labels, states)


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
        """The epoch with the highest metric; the earlier of equal ones."""
        return max(self.curve, key=lambda epoch: epoch.value)

    @property
    def last(self) -> Epoch:
        """The last epoch."""
        return self.curve[-1]

    def kept(self, keep: Keep) -> Epoch:
        """Give the epoch that counts."""
        return self.best if keep == "best" else self.last

    def as_dict(self) -> dict[str, Any]:
        """Give what `result.json` holds of the run."""
        ends = (("best", self.best), ("last", self.last)) if self.curve else ()
        return {
            "learning_rate": self.learning_rate,
            "seed": self.seed,
            **{name: {"epoch": epoch.epoch, "value": epoch.value} for name, epoch in ends},
            "curve": [asdict(epoch) for epoch in self.curve],
            "stopped": self.stopped,
            "diverged": self.diverged,
            "seconds": dict(self.seconds),
        }


def learning_rate_at(step: int, steps: int, warmup: float) -> float:
    """Give the share of the peak rate at a step: a linear rise, then a linear fall to 0.

    Args:
        step: from 0.
        steps: all of them.
        warmup: share of the steps in which it rises.
    """
    rising = int(warmup * steps + 0.5)
    if step < rising:
        return step / rising
    return max(0.0, (steps - step) / max(1, steps - rising))


def logits(encoder: Encoder, model: Any, examples: Examples, rows: np.ndarray) -> Tensor:
    """Run a classifier of `encoder` on the examples at `rows`, from the cut on where there is one.

    Returns:
        (b, K), float32 or more precise.
    """
    inputs = encoder.batch(examples.tokens, rows)
    trunk = examples.trunk
    resumed = (
        nullcontext()
        if trunk is None
        else resuming(base_of(model)[0], encoder.family, trunk.states(rows), trunk.cut)
    )
    with encoder.autocast(), resumed:
        found: Tensor = model(**inputs).logits
    return found.to(torch.promote_types(found.dtype, torch.float32))


def predict(encoder: Encoder, model: Any, examples: Examples) -> Tensor:
    """Give the logits of all examples in their order, (n, K) float32 on the CPU, in eval mode."""
    model.eval()
    found = torch.empty(len(examples), model.config.num_labels)
    with torch.no_grad():
        for rows in encoder.batches(examples.tokens):
            found[rows] = logits(encoder, model, examples, rows).float().cpu()
    return found


def train(
    encoder: Encoder,
    model: Any,
    training: Examples,
    validation: Examples,
    *,
    learning_rate: float,
    seed: int,
    settings: Settings,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Run, dict[str, Tensor]]:
    """Train those parameters of `model` that ask for gradients, and validate after every epoch.

    AdamW under a linear schedule; cross-entropy. Dropout is as the model's configuration says
    wherever a step computes anything, so not in a trunk that ran before.

    Args:
        encoder: what the model is a classifier of.
        model: changed in place.
        training: what is learnt from.
        validation: what every epoch is judged on.
        learning_rate: the peak.
        seed: of the order of the examples, and of dropout.
        settings: everything else.
        advance: called after every step with how many are done, and of how many.

    Returns:
        The run, and a copy of the trained parameters after the epoch that counts. A loss or logits
        that are not finite end the run (`stopped`); the epochs before count, if there are any.
    """
    steps = settings.epochs * -(-len(training) // settings.batch_size)
    order = np.random.default_rng(seed)
    curve: list[Epoch] = []
    kept: dict[str, Tensor] = {}
    patience = settings.patience or settings.epochs
    stopped, diverged, spent = None, False, {"train": 0.0, "evaluate": 0.0}
    with seeded(seed):
        step = _stepper(encoder, model, training, learning_rate, steps, settings)
        done = 0
        for epoch in range(1, settings.epochs + 1):
            started = perf_counter()
            model.train()
            losses = []
            for rows in shuffled_batches(training.tokens.lengths, settings.batch_size, order):
                losses.append(step(rows) * len(rows))
                if not isfinite(losses[-1]):
                    break
                done += 1
                advance(done, steps)
            spent["train"] += perf_counter() - started
            if not isfinite(losses[-1]):
                stopped = f"the loss was {losses[-1]} at step {done + 1} of {steps}"
                diverged = True
                break
            started = perf_counter()
            found = predict(encoder, model, validation)
            spent["evaluate"] += perf_counter() - started
            if not found.isfinite().all():  # the epoch's last step went too far
                stopped = f"the logits were not finite after step {done} of {steps}"
                diverged = True
                break
            curve.append(_judged(epoch, sum(losses) / len(training), found, validation, settings))
            best = max(curve, key=lambda epoch: epoch.value)
            if curve[-1] is best or settings.keep == "last":
                kept = trained_parameters(model)
            if epoch < settings.epochs and epoch - best.epoch >= patience:
                stopped = f"no epoch was better than epoch {best.epoch}"
                break
    return Run(learning_rate, seed, tuple(curve), stopped, diverged, spent), kept


def trained_parameters(model: Any) -> dict[str, Tensor]:
    """Copy the parameters that are trained."""
    named = model.named_parameters()
    return {name: p.detach().clone() for name, p in named if p.requires_grad}


def _stepper(
    encoder: Encoder,
    model: Any,
    training: Examples,
    learning_rate: float,
    steps: int,
    settings: Settings,
) -> Callable[[np.ndarray], float]:
    """Make the function that takes one step on the examples at `rows` and gives their mean loss.

    A loss that is not finite changes nothing.
    """
    accelerator = plain_accelerator()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer, schedule = _optimizer(trained, learning_rate, steps, settings)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    labels = torch.from_numpy(training.labels).to(encoder.device)

    def step(rows: np.ndarray) -> float:
        found = logits(encoder, model, training, rows)
        loss = nn.functional.cross_entropy(found, labels[torch.from_numpy(rows)])
        value = loss.item()
        if isfinite(value):
            accelerator.backward(loss)
            if settings.max_grad_norm is not None:
                accelerator.clip_grad_norm_(trained, settings.max_grad_norm)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        return value

    return step


def plain_accelerator() -> Any:
    """Make the accelerator, which leaves placement and precision to the encoder.

    Raises:
        InputError: if this is one of several processes, or mixed precision was set elsewhere.
    """
    from accelerate import Accelerator

    try:
        accelerator = Accelerator(device_placement=False, mixed_precision="no")
    except ValueError as error:
        raise InputError(
            "another Accelerator of this process uses mixed precision; tune in a process of its "
            'own, with precision="bfloat16" if that is wanted'
        ) from error
    accelerator.gradient_accumulation_steps = 1  # whatever the environment says
    if accelerator.num_processes > 1:
        raise InputError("layerscout tunes in one process; start it without accelerate launch")
    return accelerator


def _optimizer(
    trained: Sequence[nn.Parameter], learning_rate: float, steps: int, settings: Settings
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    groups = [  # biases and norms are left out of weight decay, as is usual
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_at(step, steps, settings.warmup)
    )
    return optimizer, schedule


def _judged(
    epoch: int, training_loss: float, found: Tensor, validation: Examples, settings: Settings
) -> Epoch:
    return Epoch(
        epoch,
        training_loss,
        nn.functional.cross_entropy(found, torch.from_numpy(validation.labels)).item(),
        evaluate(settings.metric, validation.labels, found.numpy()),
    )
