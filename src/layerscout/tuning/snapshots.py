"""Snapshots of trainings: after every epoch, all that a killed one needs to go on.

Tensors are safetensors, everything else is JSON. `state.json` names the files that belong to it and
is replaced last, so whenever a run is killed there is the new snapshot or the one before. Tensors
of older ones stay until the run is over: the next snapshot is written over them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscout.runtime import (
    InputError,
    is_half_written,
    make_output_folder,
    read_json,
    remove_folder,
    replace_files,
    write_files,
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
        surroundings: Mapping[str, Any] | None = None,
    ) -> Snapshots:
        """Make the folder, or find the snapshots of a tuning that was stopped.

        Args:
            folder: where they go; it holds nothing else.
            about: what is trained on what and how, by names that users know; what JSON can hold.
            resume: go on with what is there, if anything is.
            surroundings: what may differ, but is worth a note; like `about`.

        Raises:
            InputError: if there are snapshots and `resume` is not asked for, or they are of another
                tuning or broken, or the folder cannot be written or holds something else.
        """
        path = folder / ABOUT
        around = dict(surroundings or {})
        if not any(folder.glob(f"*/{STATE}")) or not path.exists():  # nothing that could be lost
            others = folder.is_dir() and not all(map(is_half_written, folder.iterdir()))
            if not path.exists() and others:
                raise InputError(
                    f"snapshots need a folder of their own, got {folder}, which holds something "
                    "else; name another"
                )
            make_output_folder(folder)
            written = json.dumps({**about, _AROUND: around}, indent=1)
            write_files({path: f"{written}\n"})
            none = f"there was nothing to resume in {folder}, so the training began anew"
            return cls(folder, (none,) if resume else ())
        if not resume:
            raise InputError(
                f"{folder} holds a training that was not finished; go on with it (--resume), or "
                "delete the folder"
            )
        before, now = _read(path), json.loads(json.dumps(about))
        for name in now:
            if before.get(name) != now[name]:
                raise InputError(
                    f"what is resumed must be the same training: the one in {folder} has {name} "
                    f"{_short(before.get(name))}, and {_short(now[name])} was asked for; ask for "
                    "the same, or delete the folder"
                )
        earlier = before.get(_AROUND)
        earlier = earlier if isinstance(earlier, dict) else {}
        return cls(
            folder,
            tuple(
                f"the training went on with {name} {_short(value)} after "
                f"{_short(earlier.get(name))}, so the last digits may differ from a training in one"
                for name, value in around.items()
                if earlier.get(name) != value
            ),
        )

    def of(self, run: str) -> RunSnapshots:
        """Give those of a run by its name, which is that of its folder."""
        return RunSnapshots(self.folder / run)

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
        state = _read(path)
        try:
            if state.pop("sha256") != _sha256(state):
                raise ValueError("altered")
            files, sums = state.pop("files"), state.pop("checksums")
            named = {part: files[part] for part in ("parameters", "optimizer", "kept")}
            if not all(name is None or _FILE.fullmatch(name) for name in named.values()):
                raise ValueError("a name that is none of ours")
            parts = {
                part: {} if name is None else _tensors(path.parent / name, sums[name])
                for part, name in named.items()
            }
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise _broken(path) from error
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
            InputError: if it cannot be written.
        """
        folder = make_output_folder(self.folder)
        parts = {f"parameters-{epoch}": parameters, f"optimizer-{epoch}": optimizer}
        written = {f"{name}.safetensors": part for name, part in parts.items() if part}
        files = {
            "parameters": _name(f"parameters-{epoch}", parameters),
            "optimizer": _name(f"optimizer-{epoch}", optimizer),
            "kept": None if kept is None else f"parameters-{kept}.safetensors",
        }
        before = _read(folder / STATE) if (folder / STATE).exists() else {}
        try:
            sums = before.get("checksums", {}) | {
                name: _checksum(part) for name, part in written.items()
            }
            named = {name: sums[name] for name in files.values() if name is not None}
            state = {**state, "files": files, "checksums": named}
            state["sha256"] = _sha256(state)
            unnamed = self._unnamed()
            anew = {k: v for k, v in written.items() if not _reused(unnamed, folder / k, v)}
            _write_tensors(folder, anew)
            write_files({folder / STATE: json.dumps(state) + "\n"})
        except (InputError, OSError) as error:
            rest = "the snapshot before is still there: make room and go on with it (--resume)"
            raise InputError(
                f"{error}; {rest if before else 'make room and begin again'}"
            ) from error
        if not optimizer:  # the run is over
            for path in self._unnamed():
                path.unlink()

    def _unnamed(self) -> list[Path]:
        """List tensors that the snapshot does not name."""
        path = self.folder / STATE
        named = set(_read(path)["files"].values()) if path.exists() else set()
        return [found for found in self.folder.glob("*.safetensors") if found.name not in named]


def _name(stem: str, part: Mapping[str, Tensor]) -> str | None:
    return f"{stem}.safetensors" if part else None


def _reused(unnamed: Sequence[Path], path: Path, part: Mapping[str, Tensor]) -> bool:
    """Put tensors into a file that held others of the same names and shapes, if there is one.

    What is in the system's memory already is overwritten several times faster than a new file is
    written, whose room in memory has to be found first.
    """
    kind = path.name.split("-")[0]
    for spare in unnamed:
        if not spare.name.startswith(kind):
            continue
        with spare.open("r+b") as file:
            size = int.from_bytes(file.read(8), "little")
            try:
                header = json.loads(file.read(size))
                spans = {name: header[name]["data_offsets"] for name in part}
                fits = all(end - start == part[k].nbytes for k, (start, end) in spans.items())
            except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
                continue  # it is broken, or of something else
            if not fits or len(header.keys() - {"__metadata__"}) != len(part):
                continue
            for name, (start, _) in spans.items():
                file.seek(8 + size + start)
                values = part[name].detach().cpu().contiguous().view(-1)
                file.write(values.view(torch.uint8).numpy().data)
        spare.replace(path)
        return True
    return False


def _write_tensors(folder: Path, written: Mapping[str, Mapping[str, Tensor]]) -> None:
    if not written:
        return
    from safetensors.torch import save_file

    with replace_files(*(folder / name for name in written)) as temporaries:
        for temporary, part in zip(temporaries, written.values(), strict=True):
            plain = {name: tensor.detach().cpu().contiguous() for name, tensor in part.items()}
            save_file(plain, temporary)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
        if not isinstance(found, dict):
            raise TypeError("not an object")
    except (OSError, ValueError, TypeError) as error:
        raise _broken(path) from error
    return found


def _sha256(state: Mapping[str, Any]) -> str:
    """Hash a state as it will be read: JSON has names alone for keys, and lists for tuples."""
    plain = json.loads(json.dumps(state))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _checksum(part: Mapping[str, Tensor]) -> int:
    """Add up the bytes of tensors, eight at a time; a hash would take longer than writing them."""
    total = 0
    for name in sorted(part):
        values = part[name].detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
        whole = len(values) // 8 * 8
        added = int(values[:whole].view(np.uint64).sum()) + int(values[whole:].sum())
        total = (31 * total + added) % 2**64
    return total


def _tensors(path: Path, checksum: int) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise _broken(path) from error
    if _checksum(found) != checksum:
        raise _broken(path)
    return found


def _broken(path: Path) -> InputError:
    return InputError(
        f"the snapshot {path} cannot be read, so the training cannot go on; delete the folder "
        f"{path.parent} and start again"
    )


def _short(value: Any) -> str:
    written = value if isinstance(value, str) else json.dumps(value)
    return written if len(written) <= 60 else f"{written[:57]}..."
