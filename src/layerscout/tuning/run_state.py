"""How far a run has come, and how that goes into a snapshot and comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from torch import Tensor

from layerscout.plans import Keep
from layerscout.runtime import InputError, first_line
from layerscout.tuning.runs import Epoch, pick_epoch
from layerscout.tuning.snapshots import RunSnapshots, Snapshot
from layerscout.tuning.stepping import Stepper


@dataclass(eq=False)
class RunState:
    """How far a run has come; with the stepper's tensors, all that it needs to continue.

    Attributes:
        order: draws the order of the examples.
        epoch, done: epochs and steps that were finished.
        kept: the trained parameters after the epoch that counts.
        spent: seconds, as those of `Run`.
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
        """End the run, of which the epochs so far count."""
        self.stopped, self.diverged = why, True


def save_state(
    state: RunState, stepper: Stepper, snapshots: RunSnapshots, keep: Keep, *, over: bool
) -> None:
    """Write a snapshot of a run; `over` says that no further epoch comes.

    Raises:
        InputError: if it cannot be written.
    """
    kept = pick_epoch(state.curve, keep).epoch if state.curve else None
    random = _random_states(stepper)
    if not stepper.accelerator.is_main_process:
        return
    content = {
        "epoch": state.epoch,
        "done": state.done,
        "curve": [asdict(epoch) for epoch in state.curve],
        "stopped": state.stopped,
        "diverged": state.diverged,
        "seconds": state.spent,
        "over": over,
        "order": state.order.bit_generator.state,
        "random": random,
        "scaler": stepper.scaler.state_dict(),
    }
    # The parameters of a run that diverged have changed since the epoch that counts.
    parameters = state.kept if kept == state.epoch else {} if over else stepper.trained
    snapshots.save(state.epoch, kept, content, parameters, {} if over else _moments(stepper))


def restore_state(state: RunState, stepper: Stepper, snapshot: Snapshot) -> None:
    """Put a run, and what takes its steps, back to where a snapshot was taken.

    Raises:
        InputError: if the snapshot is not one of such a run.
    """
    content = snapshot.state
    try:
        state.epoch, state.done = content["epoch"], content["done"]
        state.curve = [Epoch(**epoch) for epoch in content["curve"]]
        state.stopped, state.diverged = content["stopped"], content["diverged"]
        state.spent, state.kept = dict(content["seconds"]), dict(snapshot.kept)
        if len(state.curve) != state.epoch or bool(state.curve) != bool(state.kept):
            raise ValueError("its epochs are not complete")
        if state.curve:
            _check_parameters(state.kept, stepper)
        if not content["over"]:
            state.order.bit_generator.state = content["order"]
            _restore_tensors(snapshot, stepper)
            _restore_random_state(content["random"], stepper)
            if stepper.scaler.is_enabled():
                stepper.scaler.load_state_dict(content["scaler"])
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"a snapshot cannot be used, {first_line(error)}; delete the snapshots and start again"
        ) from error


def _moments(stepper: Stepper) -> dict[str, Tensor]:
    """Give what the optimizer keeps of each parameter."""
    state = stepper.optimizer.state
    return {
        f"{name}/{key}": value
        for name, p in stepper.trained.items()
        for key, value in state[p].items()
    }


def _restore_tensors(snapshot: Snapshot, stepper: Stepper) -> None:
    _check_parameters(snapshot.parameters, stepper)
    with torch.no_grad():
        for name, p in stepper.trained.items():
            p.copy_(snapshot.parameters[name])
            keys = ("step", "exp_avg", "exp_avg_sq")
            values = {key: snapshot.optimizer[f"{name}/{key}"] for key in keys}
            stepper.optimizer.state[p] = {k: v.to(p.device) for k, v in values.items()}


def _check_parameters(parameters: Mapping[str, Tensor], stepper: Stepper) -> None:
    ours, theirs = (
        {name: tensor.shape for name, tensor in tensors.items()}
        for tensors in (stepper.trained, parameters)
    )
    if ours != theirs:
        raise ValueError("its parameters are not the trained ones")


def _random_states(stepper: Stepper) -> list[dict[str, str]]:
    """Give the states of torch's random numbers in every process, in hexadecimal.

    accelerate's `save_state` writes them as pickles, which run code when they are read.
    """
    own = {"cpu": torch.get_rng_state().numpy().tobytes().hex()}
    if stepper.encoder.device.type == "cuda":
        state = torch.cuda.get_rng_state(stepper.encoder.device)
        own["cuda"] = state.numpy().tobytes().hex()
    if stepper.accelerator.num_processes == 1:
        return [own]
    from accelerate.utils import gather_object

    every: list[dict[str, str]] = gather_object([own])
    return every


def _restore_random_state(random: Sequence[Mapping[str, str]], stepper: Stepper) -> None:
    states = {
        kind: torch.frombuffer(bytearray.fromhex(written), dtype=torch.uint8)
        for kind, written in random[stepper.accelerator.process_index].items()
    }
    torch.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], stepper.encoder.device)
