"""The files of a snapshot: JSON and tensors, in which an altered byte is seen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscout.runtime import InputError, read_json, replace_files


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        InputError: if it cannot be read, or is something else.
    """
    try:
        found = read_json(path)
        if not isinstance(found, dict):
            raise TypeError("not an object")
    except (OSError, ValueError, TypeError) as error:
        raise refuse_broken(path) from error
    return found


def hash_state(state: Mapping[str, Any]) -> str:
    """Hash a state as it will be read: JSON has names alone for keys, and lists for tuples."""
    plain = json.loads(json.dumps(state))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def read_tensors(path: Path, checksum: int) -> dict[str, Tensor]:
    """Read tensors by name.

    Raises:
        InputError: if they cannot be read, or do not have this checksum.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise refuse_broken(path) from error
    # safetensors checks its header alone, so training went on from a flipped bit.
    if add_up(found) != checksum:
        raise refuse_broken(path)
    return found


def write_tensors(files: Mapping[Path, Mapping[str, Tensor]], spare: Sequence[Path]) -> None:
    """Write tensors by name into files, all of them or none, over spare files where they fit.

    Raises:
        InputError: if they cannot be written.
        OSError: if a spare file cannot be written over.
    """
    fresh = {path: part for path, part in files.items() if not _write_over(spare, path, part)}
    if not fresh:
        return
    from safetensors.torch import save_file

    with replace_files(*fresh) as temporaries:
        for temporary, part in zip(temporaries, fresh.values(), strict=True):
            plain = {name: tensor.detach().cpu().contiguous() for name, tensor in part.items()}
            save_file(plain, temporary)


def add_up(part: Mapping[str, Tensor]) -> int:
    """Add up the bytes of tensors, eight at a time; a hash would take longer than writing them."""
    total = 0
    for name in sorted(part):
        values = _bytes_of(part[name])
        whole = len(values) // 8 * 8
        added = int(values[:whole].view(np.uint64).sum()) + int(values[whole:].sum())
        total = (31 * total + added) % 2**64
    return total


def refuse_broken(path: Path) -> InputError:
    """Give the error for a file of a snapshot that cannot be read."""
    return InputError(
        f"the snapshot {path} cannot be read, so the training cannot continue; delete the folder "
        f"{path.parent} and start again"
    )


def _write_over(spare: Sequence[Path], path: Path, part: Mapping[str, Tensor]) -> bool:
    """Put tensors into a spare file that held others of the same names and shapes, if there is one.

    A new file of 400 MB took a second, a tenth of an epoch, most of it for the system to find room
    in memory; one that was in memory already was written over in a tenth of that.
    """
    kind = path.name.split("-")[0]
    for old in spare:
        if not old.name.startswith(kind):
            continue
        with old.open("r+b") as file:
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
                file.write(_bytes_of(part[name]).data)
        old.replace(path)
        return True
    return False


def _bytes_of(tensor: Tensor) -> np.ndarray:
    values: np.ndarray = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return values
