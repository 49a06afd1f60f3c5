"""Snapshots of trainings: after every epoch, all that one needs to continue after a kill.

Tensors are safetensors, everything else is JSON. `state.json` names the files that belong to it and
is replaced last, so whenever a run is killed there is the new snapshot or the one before. Tensors
of older ones stay until the run is over: the next snapshot is written over them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from layerscout.runtime import (
    DiskError,
    InputError,
    is_half_written,
    make_output_folder,
    make_unwritable_error,
    remove_folder,
    write_files,
)
from layerscout.tuning.snapshot_files import (
    add_up,
    hash_state,
    read_object,
    read_tensors,
    refuse_broken,
    write_tensors,
)

ABOUT = "training.json"
STATE = "state.json"
_AROUND = "surroundings"
_FILE = re.compile(r"(parameters|optimizer)-[0-9]+\.safetensors")


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A run at the end of an epoch.

    Attributes:
        state: counters, random states and the epochs so far; what JSON can hold.
        parameters: the trained ones, by name; none where the run is over.
        optimizer: what the optimizer keeps of them, by name; none where the run is over.
        kept: the parameters of the epoch that counts, by name; none where no epoch counts.
    """

    state: Mapping[str, Any]
    parameters: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    kept: Mapping[str, Tensor]


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of one tuning, in a folder for each of its runs.

    Attributes:
        folder: where they are.
        notes: what differs from when it was stopped and may show in the last digits.
    """

    folder: Path
    notes: tuple[str, ...] = ()

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
            InputError: if there are snapshots and neither is asked for, or those to resume are of
                another tuning or broken, or the folder cannot be written or holds something else.
        """
        path, around = folder / ABOUT, dict(surroundings or {})
        if overwrite and not resume and path.exists():
            remove_folder(folder)
        if not any(folder.glob(f"*/{STATE}")) or not path.exists():  # nothing that could be lost
            _begin(path, {**about, _AROUND: around})
            none = f"there was nothing to resume in {folder}, so the training started from scratch"
            return cls(folder, (none,) if resume else ())
        before = read_object(path)
        _check_same(folder, before, json.loads(json.dumps(about)), resume=resume)
        return cls(folder, _note_changes(before.get(_AROUND), around))

    def of(self, run: str) -> RunSnapshots:
        """Give those of a run by its name, which is that of its folder."""
        return RunSnapshots(self.folder / run)

    def remember(self, name: str, content: Mapping[str, Any]) -> None:
        """Write down what was decided on the way, which a tuning that continues must not change.

        Raises:
            InputError: if it cannot be written.
        """
        write_files({self.folder / f"{name}.json": json.dumps(content, allow_nan=False) + "\n"})

    def recall(self, name: str) -> dict[str, Any] | None:
        """Give what was decided; None if nothing was yet.

        Raises:
            InputError: if it cannot be read.
        """
        path = self.folder / f"{name}.json"
        return read_object(path) if path.exists() else None

    def discard(self) -> None:
        """Remove all of them: the tuning is done."""
        remove_folder(self.folder)


@dataclass(frozen=True)
class RunSnapshots:
    """The snapshots of one run, of which the last one is kept.

    Attributes:
        folder: where it is.
    """

    folder: Path

    def load(self) -> Snapshot | None:
        """Give the snapshot of the run; None if it has none yet.

        Raises:
            InputError: if it cannot be read.
        """
        path = self.folder / STATE
        if not path.exists():
            return None
        state = read_object(path)
        try:
            if state.pop("sha256") != hash_state(state):
                raise ValueError("altered")
            files, sums = state.pop("files"), state.pop("checksums")
            named = {part: files[part] for part in ("parameters", "optimizer", "kept")}
            if not all(name is None or _FILE.fullmatch(name) for name in named.values()):
                raise ValueError("a name that is not one of a snapshot")
            parts = {
                part: {} if name is None else read_tensors(path.parent / name, sums[name])
                for part, name in named.items()
            }
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise refuse_broken(path) from error
        return Snapshot(state, **parts)

    def save(
        self,
        epoch: int,
        kept: int | None,
        state: Mapping[str, Any],
        parameters: Mapping[str, Tensor],
        optimizer: Mapping[str, Tensor],
    ) -> None:
        """Write the snapshot of the run, over tensors that no snapshot needs any more.

        Args:
            epoch: the one that has ended.
            kept: the one that counts so far, whose snapshot has its parameters; None if none does.
            state: as of `Snapshot`.
            parameters: as of `Snapshot`; where the run is over, they are needed if they are `kept`.
            optimizer: as of `Snapshot`.

        Raises:
            InputError, DiskError: if it cannot be written.
        """
        path = make_output_folder(self.folder) / STATE
        before = read_object(path) if path.exists() else {}
        files = {
            "parameters": f"parameters-{epoch}.safetensors" if parameters else None,
            "optimizer": f"optimizer-{epoch}.safetensors" if optimizer else None,
            "kept": None if kept is None else f"parameters-{kept}.safetensors",
        }
        parts = {files["parameters"]: parameters, files["optimizer"]: optimizer}
        written = {name: part for name, part in parts.items() if name is not None}
        sums = before.get("checksums", {}) | {name: add_up(part) for name, part in written.items()}
        named = {name: sums[name] for name in files.values() if name is not None}
        content = {**state, "files": files, "checksums": named}
        content["sha256"] = hash_state(content)
        try:
            spare = self._list_unnamed(before.get("files", {}))
            write_tensors({self.folder / name: part for name, part in written.items()}, spare)
            write_files({path: json.dumps(content) + "\n"})
        except (DiskError, OSError) as error:
            shown = (
                make_unwritable_error(self.folder, error) if isinstance(error, OSError) else error
            )
            rest = ", resuming from the snapshot before, which is complete" if before else ""
            raise type(shown)(f"{shown}{rest}") from error
        if not optimizer:  # the run is over
            for unnamed in self._list_unnamed(files):
                unnamed.unlink()

    def _list_unnamed(self, files: Mapping[str, str | None]) -> list[Path]:
        """List tensors that a snapshot of these files does not name."""
        named = set(files.values())
        return [found for found in self.folder.glob("*.safetensors") if found.name not in named]


def _begin(path: Path, about: Mapping[str, Any]) -> None:
    """Write what a training is into its folder, unless that holds something else."""
    folder = path.parent
    others = folder.is_dir() and not all(map(is_half_written, folder.iterdir()))
    if not path.exists() and others:
        raise InputError(
            f"snapshots need a folder of their own, got {folder}, which holds something else; name "
            "another"
        )
    make_output_folder(folder)
    write_files({path: json.dumps(about, indent=1) + "\n"})


def _check_same(
    folder: Path, before: Mapping[str, Any], now: Mapping[str, Any], *, resume: bool
) -> None:
    """Refuse to resume another training, and to drop one that was not finished unless asked to."""
    for name, value in now.items():
        if before.get(name) != value:
            rule = f"{folder} holds another training, which was not finished, with"
            remedy = "drop it with --overwrite, or name another folder with -o"
            if resume:
                rule = f"only the same training can be resumed: the one in {folder} has"
                remedy = "give the same, or drop it with --overwrite in place of --resume"
            told = f"{name} {_shorten(before.get(name))}, got {_shorten(value)}"
            raise InputError(f"{rule} {told}; {remedy}")
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
