"""Training what a plan tunes, from the states that its trunk left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.cache import Examples, compute_logits, compute_loss, make_accelerator, predict
from layerscout.data import evaluate, shuffle_batches
from layerscout.models import Encoder, seeded
from layerscout.plans import Keep, Settings, learning_rate_at
from layerscout.runtime import InputError, first_line
from layerscout.tuning.snapshots import RunSnapshots, Snapshot


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
        return counted(self.curve, "best")

    @property
    def last(self) -> Epoch:
        """The last epoch."""
        return self.curve[-1]

    def kept(self, keep: Keep) -> Epoch:
        """Give the epoch that counts."""
        return counted(self.curve, keep)

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


def counted(curve: Sequence[Epoch], keep: Keep) -> Epoch:
    """Give the epoch that counts: the best, which is the earlier of equal ones, or the last."""
    return max(curve, key=lambda epoch: epoch.value) if keep == "best" else curve[-1]


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
    snapshots: RunSnapshots | None = None,
    log: Callable[[Mapping[str, float], int], None] = lambda values, step: None,
    after: Callable[[int], None] = lambda epoch: None,
    factors: Mapping[str, float] | None = None,
) -> tuple[Run, dict[str, Tensor]]:
    """Train those parameters of `model` that ask for gradients, and validate after every epoch.

    AdamW; the loss is `compute_loss`. Dropout is as the model's configuration says wherever a step
    computes anything, so not in a trunk that ran before.

    Args:
        encoder: what the model was made from.
        model: changed in place.
        training: what is learnt from.
        validation: what every epoch is judged on.
        learning_rate: the peak.
        seed: of the order of the examples, and of dropout.
        settings: everything else.
        advance: called after every step with how many are done, and of how many.
        snapshots: where every epoch is written down, and where to go on from, if anything is there.
        log: called after every epoch with what a tracker shows, and the steps done.
        after: called after every epoch with its number.
        factors: what the learning rate of a parameter is multiplied by, by name; 1 for others.

    Returns:
        The run, and a copy of the trained parameters after the epoch that counts. A loss or logits
        that are not finite end the run (`stopped`); the epochs before count, if there are any.
    """
    steps, epochs = settings.steps(len(training)), settings.passes(len(training))
    with seeded(seed):
        stepper = _Stepper.make(
            encoder, model, training, learning_rate, steps, settings, factors or {}
        )
        at = _Standing(np.random.default_rng(seed))
        if snapshots is not None:
            at.restore(snapshots.load(), stepper)
        while at.stopped is None and at.epoch < epochs:
            _one_epoch(stepper, validation, at, advance)
            if at.stopped is None and at.epoch < epochs:
                best = counted(at.curve, "best")
                if at.epoch - best.epoch >= (settings.patience or epochs):
                    at.stopped = f"no epoch was better than epoch {best.epoch}"
            if snapshots is not None:
                over = at.stopped is not None or at.epoch == epochs
                at.write(snapshots, stepper, settings.keep, over=over)
            if not at.diverged:
                last = at.curve[-1]
                log(
                    {
                        "training_loss": last.training_loss,
                        "validation_loss": last.loss,
                        settings.metric: last.value,
                    },
                    at.done,
                )
                after(at.epoch)
    return (
        Run(learning_rate, seed, tuple(at.curve), at.stopped, at.diverged, dict(at.spent)),
        at.kept,
    )


@dataclass(eq=False)
class _Standing:
    """How far a run has come, which a snapshot holds whole.

    Attributes:
        order: draws the order of the examples.
        epoch, done: epochs and steps that were finished.
        kept: the trained parameters after the epoch that counts.
    """

    order: np.random.Generator
    epoch: int = 0
    done: int = 0
    curve: list[Epoch] = field(default_factory=list)
    kept: dict[str, Tensor] = field(default_factory=dict)
    stopped: str | None = None
    diverged: bool = False
    spent: dict[str, float] = field(default_factory=lambda: {"train": 0.0, "evaluate": 0.0})

    def diverge(self, why: str) -> None:
        self.stopped, self.diverged = why, True

    def write(self, snapshots: RunSnapshots, stepper: _Stepper, keep: Keep, *, over: bool) -> None:
        kept = counted(self.curve, keep).epoch if self.curve else None
        random = stepper.random_states()
        if not stepper.accelerator.is_main_process:
            return
        state = {
            "epoch": self.epoch,
            "done": self.done,
            "curve": [asdict(epoch) for epoch in self.curve],
            "stopped": self.stopped,
            "diverged": self.diverged,
            "seconds": self.spent,
            "over": over,
            "order": self.order.bit_generator.state,
            "random": random,
            "scaler": stepper.scaler.state_dict(),
        }
        # A run that diverged has gone on since the epoch that counts.
        parameters = self.kept if kept == self.epoch else {} if over else stepper.trained
        snapshots.save(self.epoch, kept, state, parameters, {} if over else stepper.moments())

    def restore(self, snapshot: Snapshot | None, stepper: _Stepper) -> None:
        """Stand where a snapshot was taken.

        Raises:
            InputError: if it is not one of such a run.
        """
        if snapshot is None:
            return
        state = snapshot.state
        try:
            self.epoch, self.done = state["epoch"], state["done"]
            self.curve = [Epoch(**epoch) for epoch in state["curve"]]
            self.stopped, self.diverged = state["stopped"], state["diverged"]
            self.spent, self.kept = dict(state["seconds"]), dict(snapshot.kept)
            if len(self.curve) != self.epoch or bool(self.curve) != bool(self.kept):
                raise ValueError("its epochs are not complete")
            stepper.check(self.kept if self.curve else stepper.trained)
            if not state["over"]:
                self.order.bit_generator.state = state["order"]
                stepper.restore(snapshot, state["random"])
                if stepper.scaler.is_enabled():
                    stepper.scaler.load_state_dict(state["scaler"])
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"a snapshot cannot be used, {first_line(error)}; delete the snapshots and start "
                "again"
            ) from error


def _one_epoch(
    stepper: _Stepper, validation: Examples, at: _Standing, advance: Callable[[int, int], None]
) -> None:
    """Pass once over the training examples, and judge what came of it."""
    started, steps, settings = perf_counter(), stepper.steps, stepper.settings
    stepper.model.train()
    loss = seen = 0.0
    for rows in shuffle_batches(stepper.training.lengths, settings.batch_size, at.order):
        if at.done == steps:
            break
        value = stepper.step(rows, at.done)
        if not isfinite(value):
            at.diverge(f"the loss was {value} at step {at.done + 1} of {steps}")
            break
        loss, seen = loss + value * len(rows), seen + len(rows)
        at.done += 1
        advance(at.done, steps)
    at.spent["train"] += perf_counter() - started
    if at.diverged:
        return
    started = perf_counter()
    found = predict(stepper.encoder, stepper.model, validation)
    at.spent["evaluate"] += perf_counter() - started
    if not found.isfinite().all():  # the epoch's last step went too far
        at.diverge(f"the logits were not finite after step {at.done} of {steps}")
        return
    at.epoch += 1
    at.curve.append(_judged(at.epoch, loss / seen, found, validation, settings))
    if counted(at.curve, settings.keep) is at.curve[-1]:
        at.kept = stepper.parameters()


@dataclass(frozen=True, eq=False)
class _Stepper:
    """Takes the steps of a run, each of several processes its part of every batch.

    Attributes:
        steps: of the whole run.
        run: the model, as the accelerator wants it called.
        trained: the parameters that are trained, by name.
        scaler: keeps the gradients of float16 from vanishing; does nothing in other precisions.
    """

    encoder: Encoder
    model: Any
    training: Examples
    learning_rate: float
    steps: int
    settings: Settings
    accelerator: Any
    run: Any
    trained: Mapping[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler

    @classmethod
    def make(
        cls,
        encoder: Encoder,
        model: Any,
        training: Examples,
        learning_rate: float,
        steps: int,
        settings: Settings,
        factors: Mapping[str, float],
    ) -> _Stepper:
        accelerator = make_accelerator()
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        members: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, p in trained.items():
            # Biases and norms are left out of weight decay, as is usual.
            decay = settings.weight_decay if p.ndim > 1 else 0.0
            members.setdefault((decay, factors.get(name, 1.0)), []).append(p)
        groups = [
            {"params": params, "weight_decay": decay, "factor": factor}
            for (decay, factor), params in members.items()
        ]
        optimizer = torch.optim.AdamW(groups, lr=learning_rate, fused=True)
        run = accelerator.prepare(model) if accelerator.num_processes > 1 else model
        if accelerator.process_index:  # dropout of its own, and of no other seed's
            seeds = np.random.SeedSequence([torch.initial_seed(), accelerator.process_index])
            torch.manual_seed(int(seeds.generate_state(1)[0]))
        return cls(
            encoder,
            model,
            training,
            learning_rate,
            steps,
            settings,
            accelerator,
            run,
            trained,
            optimizer,
            torch.amp.GradScaler(encoder.device.type, enabled=encoder.precision == "float16"),
        )

    def step(self, rows: np.ndarray, done: int) -> float:
        """Take one step on the examples at `rows` and give their mean loss.

        A loss that is not finite changes nothing.
        """
        settings, accelerator = self.settings, self.accelerator
        share = learning_rate_at(done, self.steps, settings.warmup, settings.schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * share * group["factor"]
        processes = accelerator.num_processes
        part = np.array_split(rows, processes)[accelerator.process_index]
        # Where there are too few for all, gradients of nothing still take part in the sum.
        weight = len(part) / len(rows)
        part = part if len(part) else rows[:1]
        found = compute_logits(self.encoder, self.model, self.training, part, run=self.run)
        loss = compute_loss(found, torch.from_numpy(self.training.labels[part])) * weight
        value = self._sum(loss.detach())
        if isfinite(value):
            # Gradients are averaged over the processes.
            accelerator.backward(self.scaler.scale(loss * processes))
            if settings.max_grad_norm is not None:
                self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.trained.values(), settings.max_grad_norm)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
        return value

    def _sum(self, loss: Tensor) -> float:
        if self.accelerator.num_processes > 1:
            loss = self.accelerator.reduce(loss.to(self.accelerator.device), "sum")
        return float(loss.item())

    def parameters(self) -> dict[str, Tensor]:
        """Copy the trained parameters."""
        return {name: p.detach().clone() for name, p in self.trained.items()}

    def moments(self) -> dict[str, Tensor]:
        """Give what the optimizer keeps of each parameter."""
        state = self.optimizer.state
        return {
            f"{name}/{key}": value
            for name, p in self.trained.items()
            for key, value in state[p].items()
        }

    def random_states(self) -> list[dict[str, str]]:
        """Give the states of torch's random numbers in every process, in hexadecimal."""
        own = {"cpu": torch.get_rng_state().numpy().tobytes().hex()}
        if self.encoder.device.type == "cuda":
            state = torch.cuda.get_rng_state(self.encoder.device)
            own["cuda"] = state.numpy().tobytes().hex()
        if self.accelerator.num_processes == 1:
            return [own]
        from accelerate.utils import gather_object

        every: list[dict[str, str]] = gather_object([own])
        return every

    def check(self, parameters: Mapping[str, Tensor]) -> None:
        """Show that parameters are those that are trained, by their names and shapes."""
        if {k: v.shape for k, v in parameters.items()} != {
            k: v.shape for k, v in self.trained.items()
        }:
            raise ValueError("its parameters are not those that are trained")

    def restore(self, snapshot: Snapshot, random: Sequence[Mapping[str, str]]) -> None:
        """Put back the parameters, the optimizer and the random states of a snapshot."""
        self.check(snapshot.parameters)
        with torch.no_grad():
            for name, p in self.trained.items():
                p.copy_(snapshot.parameters[name])
                keys = ("step", "exp_avg", "exp_avg_sq")
                values = {key: snapshot.optimizer[f"{name}/{key}"] for key in keys}
                self.optimizer.state[p] = {k: v.to(p.device) for k, v in values.items()}
        states = {
            kind: torch.frombuffer(bytearray.fromhex(written), dtype=torch.uint8)
            for kind, written in random[self.accelerator.process_index].items()
        }
        torch.set_rng_state(states["cpu"])
        if "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], self.encoder.device)


def _judged(
    epoch: int, training_loss: float, found: Tensor, validation: Examples, settings: Settings
) -> Epoch:
    return Epoch(
        epoch,
        training_loss,
        compute_loss(found, torch.from_numpy(validation.labels)).item(),
        evaluate(settings.metric, validation.labels, found.numpy()),
    )
