"""Snapshots of trainings: after every epoch, all that one needs to continue after a kill.

Tensors are safetensors, in files named after epochs; everything else is JSON. `state.json` is
replaced after the tensors that it needs are there, and before those of the epoch before are
removed, so whenever a run is killed there is the new snapshot or the one before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscout.errors import DiskError, InputError, first_line
from layerscout.files import (
    is_half_written,
    make_output_folder,
    read_json,
    remove_folder,
    replace_files,
    write_files,
)
from layerscout.plans import Keep
from layerscout.tuning.runs import Epoch, Stepper, pick_epoch

ABOUT = "training.json"
STATE = "state.json"
_AROUND = "surroundings"


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of one tuning, in a folder for each of its runs.

    Attributes:
        folder: where they are.
        notes: what differs from when it was stopped and may show in the last digits.
        lock: held until they are discarded, or nothing refers to them.
    """

    folder: Path
    notes: tuple[str, ...] = ()
    lock: ExitStack = field(default_factory=ExitStack, compare=False)

    @classmethod
    def open(
        cls,
        folder: Path,
        about: Mapping[str, Any],
        *,
        resume: bool,
        overwrite: bool = False,
        surroundings: Mapping[str, Any] | None = None,
    ) -> Snapshots:
        """Make the folder, or find the snapshots of a tuning that was stopped.

        Args:
            folder: where they go; it holds nothing else.
            about: what is trained on what and how, by names that users know; what JSON can hold.
            resume: continue with what is there, if anything is.
            overwrite: otherwise drop what is there.
            surroundings: what may differ, but is worth a note; like `about`.

        Raises:
            InputError: if there are snapshots and neither is requested, or those to resume are of
                another tuning or broken, or the folder cannot be written or holds something else.
        """
        path, around = folder / ABOUT, dict(surroundings or {})
        if overwrite and not resume and path.exists():
            remove_folder(folder)
        if not any(folder.glob(f"*/{STATE}")) or not path.exists():  # nothing that could be lost
            others = folder.is_dir() and not all(map(is_half_written, folder.iterdir()))
            if others and not path.exists():
                raise InputError(
                    f"snapshots need a folder of their own, got {folder}, which holds something "
                    "else; name another"
                )
            make_output_folder(folder)
            write_files({path: json.dumps({**about, _AROUND: around}, indent=1) + "\n"})
            note = f"there was nothing to resume in {folder}, so the training started from scratch"
            return cls(folder, (note,) if resume else ())
        before = _read_object(path)
        _check_same(folder, before, json.loads(json.dumps(about)), resume=resume)
        return cls(folder, _note_changes(before.get(_AROUND), around))

    def discard(self) -> None:
        """Remove all of them: the tuning is done."""
        remove_folder(self.folder)
        self.lock.close()


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

    def diverge(self, reason: str) -> None:
        """End the run, of which the epochs so far count."""
        self.stopped, self.diverged = reason, True


@dataclass(frozen=True)
class RunSnapshots:
    """The snapshots of one run, of which the last one is kept.

    Attributes:
        folder: where it is.
    """

    folder: Path

    def save(self, state: RunState, stepper: Stepper, keep: Keep, *, over: bool) -> None:
        """Write how far a run has come; `over` says that no further epoch comes.

        Raises:
            InputError, DiskError: if it cannot be written.
        """
        from safetensors.torch import save_file

        kept = pick_epoch(state.curve, keep).epoch if state.curve else None
        content = {
            "epoch": state.epoch,
            "kept": kept,
            "over": over,
            "done": state.done,
            "curve": [asdict(epoch) for epoch in state.curve],
            "stopped": state.stopped,
            "diverged": state.diverged,
            "seconds": state.spent,
            "order": state.order.bit_generator.state,
            "random": _collect_random_states(stepper),
            "scaler": stepper.scaler.state_dict(),
        }
        if not stepper.accelerator.is_main_process:
            return
        parts = {} if over else {"parameters": stepper.trained, "optimizer": _moments(stepper)}
        if kept is not None and kept == state.epoch:  # those of a diverged run have changed since
            parts["parameters"] = state.kept
        files = {f"{part}-{state.epoch}.safetensors": parts[part] for part in parts}
        resumable = (self.folder / STATE).exists()
        try:
            make_output_folder(self.folder)
            for name, tensors in files.items():
                plain = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
                with replace_files(self.folder / name) as (temporary,):
                    save_file(plain, temporary)
            write_files({self.folder / STATE: json.dumps(content) + "\n"})
        except DiskError as error:
            rest = ", resuming from the snapshot before, which is complete" if resumable else ""
            raise DiskError(f"{error}{rest}") from error
        for path in self.folder.glob("*.safetensors"):
            if path.name not in (*files, f"parameters-{kept}.safetensors"):
                path.unlink()

    def restore(self, state: RunState, stepper: Stepper) -> None:
        """Put a run, and what takes its steps, back to its last snapshot, if there is one.

        Raises:
            InputError: if the snapshot cannot be read, or is not one of such a run.
        """
        if not (self.folder / STATE).exists():
            return
        content = _read_object(self.folder / STATE)
        try:
            state.epoch, state.done = content["epoch"], content["done"]
            state.curve = [Epoch(**epoch) for epoch in content["curve"]]
            state.stopped, state.diverged = content["stopped"], content["diverged"]
            state.spent = dict(content["seconds"])
            if len(state.curve) != state.epoch:
                raise ValueError("its epochs are not complete")
            if state.curve:
                state.kept = self._read_parameters(content["kept"], stepper)
            if not content["over"]:
                self._restore_training(content, state, stepper)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"a snapshot cannot be used, {first_line(error)}; delete the snapshots and start "
                "again"
            ) from error

    def _restore_training(
        self, content: Mapping[str, Any], state: RunState, stepper: Stepper
    ) -> None:
        """Put back what the next step needs: tensors, random numbers and the scale of gradients."""
        state.order.bit_generator.state = content["order"]
        parameters = self._read_parameters(state.epoch, stepper)
        moments = _read_tensors(self.folder / f"optimizer-{state.epoch:d}.safetensors")
        with torch.no_grad():
            for name, p in stepper.trained.items():
                p.copy_(parameters[name])
                stepper.optimizer.state[p] = {
                    key: moments[f"{name}/{key}"].to(p.device)
                    for key in ("step", "exp_avg", "exp_avg_sq")
                }
        random = content["random"][stepper.accelerator.process_index]
        states = {
            kind: torch.frombuffer(bytearray.fromhex(written), dtype=torch.uint8)
            for kind, written in random.items()
        }
        torch.set_rng_state(states["cpu"])
        if "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], stepper.encoder.device)
        if stepper.scaler.is_enabled():
            stepper.scaler.load_state_dict(content["scaler"])

    def _read_parameters(self, epoch: int, stepper: Stepper) -> dict[str, Tensor]:
        """Read what was trained up to the end of an epoch."""
        parameters = _read_tensors(self.folder / f"parameters-{epoch:d}.safetensors")
        shapes = {name: tensor.shape for name, tensor in stepper.trained.items()}
        if {name: tensor.shape for name, tensor in parameters.items()} != shapes:
            raise ValueError("its parameters are not the trained ones")
        return parameters


def _moments(stepper: Stepper) -> dict[str, Tensor]:
    """Return what the optimizer keeps of each parameter."""
    state = stepper.optimizer.state
    return {
        f"{name}/{key}": value
        for name, p in stepper.trained.items()
        for key, value in state[p].items()
    }


def _collect_random_states(stepper: Stepper) -> Sequence[Mapping[str, str]]:
    """Return the states of torch's random numbers in every process, in hexadecimal.

    accelerate's `save_state` writes them as pickles, which run code when they are read.
    """
    own = {"cpu": torch.get_rng_state().numpy().tobytes().hex()}
    if stepper.encoder.device.type == "cuda":
        state = torch.cuda.get_rng_state(stepper.encoder.device)
        own["cuda"] = state.numpy().tobytes().hex()
    if stepper.accelerator.num_processes == 1:
        return [own]
    from accelerate.utils import gather_object

    states: list[dict[str, str]] = gather_object([own])
    return states


def _read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise _make_broken_error(path) from error
    return tensors


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise _make_broken_error(path) from error
    if not isinstance(content, dict):
        raise _make_broken_error(path)
    return content


def _make_broken_error(path: Path) -> InputError:
    return InputError(
        f"the snapshot {path} cannot be read, so the training cannot continue; delete the folder "
        f"{path.parent} and start again"
    )


def _check_same(
    folder: Path, before: Mapping[str, Any], now: Mapping[str, Any], *, resume: bool
) -> None:
    """Raise if another training would be resumed, or an unfinished one dropped unasked."""
    for name, value in now.items():
        if before.get(name) != value:
            rule = f"{folder} holds another training, which was not finished, with"
            remedy = "drop it with --overwrite, or name another folder with -o"
            if resume:
                rule = f"only the same training can be resumed: the one in {folder} has"
                remedy = "give the same, or drop it with --overwrite in place of --resume"
            values = f"{_shorten(before.get(name))}, got {_shorten(value)}"
            raise InputError(f"{rule} {name} {values}; {remedy}")
    if not resume:
        raise InputError(
            f"{folder} holds this training, which was not finished; continue it with --resume, or "
            "start again with --overwrite"
        )


def _note_changes(before: Any, around: Mapping[str, Any]) -> tuple[str, ...]:
    before = before if isinstance(before, dict) else {}
    return tuple(
        f"the training was resumed with {name} {_shorten(value)} after "
        f"{_shorten(before.get(name))}, so its results may differ in the last digits from those of "
        "an uninterrupted training"
        for name, value in around.items()
        if before.get(name) != value
    )


def _shorten(value: Any) -> str:
    written = value if isinstance(value, str) else json.dumps(value)
    return written if len(written) <= 60 else f"{written[:57]}..."
