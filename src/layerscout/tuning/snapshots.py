"""Snapshots of trainings: after every epoch, all that one needs to continue after a kill.

Tensors are safetensors, in files named after epochs; everything else is JSON. `state.json` is
replaced after the tensors that it needs are there, and before those of the epoch before are
removed, so whenever a run is killed there is the new snapshot or the one before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from typing import Any

import torch
from torch import Tensor

from layerscout.errors import (
    DiskError,
    InputError,
    LayerscoutError,
    UnfinishedError,
    first_line,
)
from layerscout.files import (
    is_half_written,
    make_output_folder,
    read_json,
    remove_folder,
    replace_files,
    write_files,
)
from layerscout.tuning.stepping import Epoch, Run, Stepper, pick_epoch

ABOUT = "training.json"
STATE = "state.json"
PLANNED = "planned.json"
# What a training may go on with others of: its snapshots are read by any.
VERSIONS = "versions of libraries"


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of one tuning, in a folder for each of its runs.

    Attributes:
        folder: where they are.
        notes: what the reader of the result should know of them.
        lock: held until they are discarded, or nothing refers to them.
    """

    folder: Path
    notes: tuple[str, ...] = ()
    lock: ExitStack = field(default_factory=ExitStack, compare=False)

    @classmethod
    def open(
        cls, folder: Path, about: Mapping[str, Any], *, resume: bool, overwrite: bool = False
    ) -> Snapshots:
        """Make the folder, or find the snapshots of a tuning that was stopped.

        Args:
            folder: where they go; it holds nothing else.
            about: what is trained on what and how, by names that users know; what JSON can hold.
            resume: continue with what is there, if anything is.
            overwrite: otherwise drop what is there.

        Raises:
            InputError: if there are snapshots and neither is requested, or those to resume are of
                another tuning or broken, or the folder cannot be written or holds something else.
        """
        path = folder / ABOUT
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
            (folder / PLANNED).unlink(missing_ok=True)
            write_files({path: json.dumps(about, indent=1) + "\n"})
            note = f"there was nothing to resume in {folder}, so the training started from scratch"
            return cls(folder, (note,) if resume else ())
        before, notes = _read(path, read_json), []
        for name, value in json.loads(json.dumps(about)).items():
            if before.get(name) != value and name == VERSIONS:
                notes.append(
                    f"the training began with the {name} {_shorten(before.get(name))} and goes on "
                    f"with {_shorten(value)}, so its figures may differ from those of either"
                )
            elif before.get(name) != value:
                rule = f"{folder} holds another training, which was not finished, with"
                remedy = "drop it with --overwrite, or name another folder with -o"
                if resume:
                    rule = f"only the same training can be resumed: the one in {folder} has"
                    remedy = "give the same, or drop it with --overwrite in place of --resume"
                values = f"{_shorten(before.get(name))}, got {_shorten(value)}"
                raise InputError(f"{rule} {name} {values}; {remedy}")
        if not resume:
            raise InputError(
                f"{folder} holds this training, which was not finished; continue it with "
                "--resume, or start again with --overwrite"
            )
        return cls(folder, tuple(notes))

    def plan_steps(self, plan: Callable[[], int | None]) -> int | None:
        """Return the steps that were planned when the training began, or plan them now."""
        path = self.folder / PLANNED
        if path.exists():
            return int(_read(path, read_json)["steps"])
        if (steps := plan()) is not None:
            write_files({path: json.dumps({"steps": steps}) + "\n"})
        return steps

    def discard(self) -> None:
        """Remove all of them: the tuning is done."""
        remove_folder(self.folder)
        self.lock.close()


@contextmanager
def keeping_trained(snapshots: Snapshots | None, work: str) -> Iterator[None]:
    """Say of whatever fails once all is trained where the weights are, and what finishes the work.

    Args:
        snapshots: of the training; None if there are none.
        work: what is done within.

    Raises:
        UnfinishedError: for any error but a full disk's, which says the same.
    """
    try:
        yield
    except Exception as error:  # the libraries raise errors of all kinds, also while saving
        if snapshots is None:
            raise
        snapshots.lock.close()  # a notebook may hold the result, and its lock, by the traceback
        solved = not any(snapshots.folder.glob(f"*/{STATE}"))  # again in no time
        if solved or isinstance(error, DiskError):
            raise
        kind = "" if isinstance(error, LayerscoutError) else f"{type(error).__name__}: "
        raise UnfinishedError(
            f"the training is complete, but {work} failed ({kind}{first_line(error)}); its weights "
            f"stay in {snapshots.folder}, from where --resume goes straight on to {work}"
        ) from error


@dataclass(frozen=True)
class RunSnapshots:
    """The snapshots of one run, of which the last one is kept.

    Attributes:
        folder: where it is.
    """

    folder: Path

    def save(self, run: Run, stepper: Stepper, *, over: bool) -> None:
        """Write how far a run has come; `over` says that no further epoch comes.

        Raises:
            InputError, DiskError: if it cannot be written.
        """
        from safetensors.torch import save_file

        last = len(run.curve)
        kept = pick_epoch(run.curve, stepper.settings.keep).epoch if run.curve else None
        content = {
            **asdict(run),
            "epoch": last,
            "kept": kept,
            "over": over,
            "done": stepper.done,
            "order": stepper.order.bit_generator.state,
            "random": _collect_random_states(stepper),
            "scaler": stepper.scaler.state_dict(),
        }
        if not stepper.accelerator.is_main_process:
            return
        parts = {} if over else {"parameters": stepper.trained, "optimizer": _moments(stepper)}
        if kept is not None and kept == last:  # those of a diverged run have changed since
            parts["parameters"] = stepper.kept
        files = {f"{part}-{last}.safetensors": parts[part] for part in parts}

        def write(folder: Path) -> None:
            make_output_folder(folder)
            for name, tensors in files.items():
                plain = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
                with replace_files(folder / name) as (temporary,):
                    save_file(plain, temporary)
            write_files({folder / STATE: json.dumps(content) + "\n"})

        resumable = (self.folder / STATE).exists()
        try:
            write(self.folder)
        except DiskError as error:
            rest = "resuming from the snapshot before, which is complete"
            if not resumable:  # nothing else has what was trained so far
                place = Path(gettempdir(), f"layerscout-{token_hex(4)}", self.folder.name)
                try:
                    place.parent.mkdir(mode=0o700)
                    write(place)
                except (LayerscoutError, OSError):
                    remove_folder(place.parent)
                    raise error from None
                rest = (
                    f"with --resume once the files in {place}, which hold the weights, are in "
                    f"{self.folder}"
                )
            raise DiskError(f"{error}, {rest}") from error
        for path in self.folder.glob("*.safetensors"):
            if path.name not in (*files, f"parameters-{kept}.safetensors"):
                path.unlink()

    def restore(self, run: Run, stepper: Stepper) -> None:
        """Put a run, and what takes its steps, back to its last snapshot, if there is one.

        Raises:
            InputError: if the snapshot cannot be read, or is not one of such a run.
        """
        if not (self.folder / STATE).exists():
            return
        content = _read(self.folder / STATE, read_json)
        try:
            epoch, stepper.done = content["epoch"], content["done"]
            run.curve = [Epoch(**epoch) for epoch in content["curve"]]
            run.stopped, run.diverged = content["stopped"], content["diverged"]
            run.seconds = dict(content["seconds"])
            if len(run.curve) != epoch:
                raise ValueError("its epochs are not complete")
            if run.curve:
                stepper.kept = self._read_parameters(content["kept"], stepper)
            if not content["over"]:
                self._restore_training(content, stepper)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"a snapshot cannot be used, {first_line(error)}; delete the snapshots and start "
                "again"
            ) from error

    def _restore_training(self, content: Mapping[str, Any], stepper: Stepper) -> None:
        """Put back what the next step needs: tensors, random numbers and the scale of gradients."""
        from safetensors.torch import load_file

        stepper.order.bit_generator.state = content["order"]
        parameters = self._read_parameters(content["epoch"], stepper)
        moments = _read(self.folder / f"optimizer-{content['epoch']:d}.safetensors", load_file)
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
        from safetensors.torch import load_file

        parameters = _read(self.folder / f"parameters-{epoch:d}.safetensors", load_file)
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
    states = {"cpu": torch.get_rng_state()}
    if stepper.encoder.device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(stepper.encoder.device)
    own = {kind: state.numpy().tobytes().hex() for kind, state in states.items()}
    if stepper.accelerator.num_processes == 1:
        return [own]
    from accelerate.utils import gather_object

    gathered: list[dict[str, str]] = gather_object([own])
    return gathered


def _read(path: Path, load: Callable[[Path], Any]) -> dict[str, Any]:
    """Read a part of a snapshot, which is a dictionary.

    Raises:
        InputError: if it cannot be read.
    """
    from safetensors import SafetensorError

    content = None
    with suppress(OSError, ValueError, SafetensorError):
        content = load(path)
    if not isinstance(content, dict):
        raise InputError(
            f"the snapshot {path} cannot be read, so the training cannot continue; delete the "
            f"folder {path.parent} and start again"
        )
    return content


def _shorten(value: Any) -> str:
    written = value if isinstance(value, str) else json.dumps(value)
    return written if len(written) <= 60 else f"{written[:57]}..."
