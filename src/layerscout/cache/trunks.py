"""The trunk cache: states at a cut are computed once, and training starts from there.

Blocks below the lowest tuned one never change, so neither do the states that they give (the cache
that Xie et al. leave open in App. C.1).
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor
from torch.nn.functional import embedding

from layerscout.cache.fingerprints import fingerprint_encoder, hash_content
from layerscout.data import batch_by_length
from layerscout.models import Encoder, Tokens, eval_mode
from layerscout.runtime import (
    CacheError,
    InputError,
    LayerscoutError,
    cache_path,
    find_cached,
    sha256_of,
    write_entry,
)

# What the cache may hold, in bytes, unless the user says otherwise.
DEFAULT_LIMIT = 20 * 10**9

# How each precision is stored. NumPy has no bfloat16: its bits go as integers.
_STORED = {
    "float32": (torch.float32, np.float32),
    "bfloat16": (torch.bfloat16, np.uint16),
    "float16": (torch.float16, np.float16),
}


@dataclass(frozen=True, eq=False)
class Trunk:
    """States at a cut for n tokenised texts.

    Attributes:
        cut: the state, 0 to L.
        first_only: only the first token's state is kept: all that most heads read.
        cached: found in the cache; nothing was computed.
        kept: they are in the cache; otherwise `states` computes them anew each time.
        seconds: what computing them took, when they were computed.
        bytes: of the states on disk.
        warning: why they could not be kept.
        path: where they are kept.
    """

    cut: int
    first_only: bool
    cached: bool
    kept: bool
    seconds: float
    bytes: int
    warning: str | None
    _read: Callable[[Int64[np.ndarray, " b"]], Tensor] = field(repr=False)
    path: Path | None = None

    def states(self, rows: Int64[np.ndarray, " b"]) -> Float[Tensor, "b T d"]:
        """Give the states of the texts at `rows` on the encoder's device.

        T is the length of the longest of them, or 1 for the first token only. What stands behind
        the end of a text is finite, and otherwise arbitrary.
        """
        return self._read(rows)


@dataclass(frozen=True)
class Team:
    """Processes that run a trunk together and share a file system; by default one alone.

    Attributes:
        own: which of them this is, counted from 0.
        size: how many there are.
        meet: takes what this one says and gives what all say, in their order; waits for all.
    """

    own: int = 0
    size: int = 1
    meet: Callable[[Any], list[Any]] = lambda said: [said]


def run_trunk(
    encoder: Encoder,
    tokens: Tokens,
    cut: int,
    *,
    first_only: bool = False,
    limit: int = DEFAULT_LIMIT,
    spare: Trunk | None = None,
    progress: Callable[[Int64[np.ndarray, " b"]], None] | None = None,
    team: Team | None = None,
) -> Trunk:
    """Run the trunk, blocks 1..`cut`, once over all texts, or find in the cache what it gave.

    It runs in eval mode and without autograd, whatever mode the model is in. Where the states
    cannot be kept, they are computed each time that they are asked for.

    Args:
        encoder: its blocks above `cut` may change afterwards, the rest must not.
        tokens: the n texts.
        cut: 0 (the embedding output) to L.
        first_only: keep nothing but the first token's state.
        limit: bytes that all entries of the cache may take together; 0 keeps nothing.
        spare: a trunk that is not to make way for this one.
        progress: called with the rows of each batch that was computed.
        team: processes that all call this alike, and each compute a part.

    Raises:
        InputError: if `cut` or `limit` is out of range, or a single text is more than the
            device's memory can hold.
    """
    if not 0 <= cut <= encoder.blocks:
        raise InputError(f"a cut of {encoder.name} must be in 0..{encoder.blocks}, got {cut}")
    if limit < 0:
        raise InputError(f"`limit` must be 0 bytes or more, got {limit}; 0 switches the cache off")
    source = _Source(encoder, tokens, cut, first_only)
    lost = partial(Trunk, cut, first_only, False, False, 0.0, 0, _read=source.states)
    if limit == 0:
        return lost(None)
    path = cache_path("trunks", source.key())
    spared = spare.path if spare is not None else None
    team = team or Team()
    about = find_cached(path, source.bytes)
    cached = all(team.meet(about is not None))
    try:
        if not cached or about is None:
            store = _store if team.size == 1 else partial(_store_together, team)
            about = store(source, path, limit, spared, progress)
        read = source.reader(path)
    except (CacheError, OSError) as error:
        return lost(f"the states at the cut are computed anew in every epoch: {error}")
    return Trunk(cut, first_only, cached, True, about["seconds"], source.bytes, None, read, path)


@dataclass(frozen=True, eq=False)
class _Source:
    """What the states come from, and how they lie in a file.

    The file holds (t, d) numbers and nothing else: the kept tokens of one text after another, the
    longest text first, equal ones in their order. That is what the encoder's batches give.
    """

    encoder: Encoder
    tokens: Tokens
    cut: int
    first_only: bool

    @property
    def kept(self) -> Int64[np.ndarray, " n"]:
        """How many tokens are kept of each text."""
        lengths = self.tokens.lengths
        return np.ones_like(lengths) if self.first_only else lengths

    @property
    def shape(self) -> tuple[int, int]:
        """(t, d) of the file."""
        return int(self.kept.sum()), self.encoder.model.config.hidden_size

    @property
    def bytes(self) -> int:
        return self.size_of(np.arange(len(self.tokens)))

    def size_of(self, rows: Int64[np.ndarray, " b"]) -> int:
        """Count the bytes of the states of some texts."""
        numbers = int(self.kept[rows].sum()) * self.shape[1]
        return numbers * np.dtype(_STORED[self.encoder.precision][1]).itemsize

    def about(self, digest: str, seconds: float) -> dict[str, Any]:
        """Give what is told beside the file of the states with that hash."""
        return {
            "kind": "trunk",
            "model": self.encoder.name,
            "cut": self.cut,
            "first_only": self.first_only,
            "texts": len(self.tokens),
            "shape": self.shape,
            "dtype": self.encoder.precision,
            "bytes": self.bytes,
            "sha256": digest,
            "seconds": seconds,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def states(self, rows: Int64[np.ndarray, " b"]) -> Float32[Tensor, "b T d"]:
        """Compute what `reader` would read, rounded alike."""
        state = self._first(rows) if self.first_only else self._compute(rows)
        return state.to(_STORED[self.encoder.precision][0]).float()

    def _first(self, rows: Int64[np.ndarray, " b"]) -> Float[Tensor, "b 1 d"]:
        """Compute the first tokens' states; who asks for many of them means not so many tokens."""
        parts = batch_by_length(self.tokens.lengths[rows], self.encoder.token_budget)
        state = torch.cat([self._compute(rows[part]) for part in parts])
        return state[torch.from_numpy(np.argsort(np.concatenate(parts))).to(state.device)]

    def _compute(self, rows: Int64[np.ndarray, " b"]) -> Float[Tensor, "b T d"]:
        with eval_mode(self.encoder.model):
            state = self.encoder.cut(self.encoder.batch(self.tokens, rows), self.cut)
        return state[:, :1] if self.first_only else state

    def numbers(self, rows: Int64[np.ndarray, " b"]) -> np.ndarray:
        """Compute the states of the texts' kept tokens as they are stored, (t of `rows`, d).

        Where the device runs out of memory, the texts are run in two halves.
        """
        try:
            state = self._compute(rows)
        except torch.OutOfMemoryError as error:
            if len(rows) == 1:
                raise InputError(
                    f"a text of {self.tokens.lengths[rows[0]]} tokens does not fit into the "
                    f"memory of {self.encoder.device}; lower --max-length or use --device cpu"
                ) from error
        else:
            dtype, stored = _STORED[self.encoder.precision]
            real = np.arange(state.shape[1]) < self.kept[rows][:, None]
            flat = state[torch.from_numpy(real).to(state.device)].to(dtype).cpu()
            return flat.view(torch.uint8).numpy().view(stored)
        # Not in the except clause, whose traceback would keep the failed tensors alive.
        return np.concatenate([self.numbers(half) for half in np.array_split(rows, 2)])

    def reader(self, path: Path) -> Callable[[Int64[np.ndarray, " b"]], Tensor]:
        """Map the file and give what reads the states of some rows from it."""
        dtype, stored = _STORED[self.encoder.precision]
        mapped = np.memmap(path, dtype=stored, mode="r", shape=self.shape)
        with warnings.catch_warnings():  # torch knows no read-only tensors; this one is only read
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            numbers = torch.from_numpy(mapped).view(dtype)
        kept, device = self.kept, self.encoder.device
        order = np.argsort(-self.tokens.lengths, kind="stable")
        starts = np.empty_like(kept)
        starts[order] = np.cumsum(kept[order]) - kept[order]

        def read(rows: Int64[np.ndarray, " b"]) -> Float32[Tensor, "b T d"]:
            # The padding of one text reads the next one's tokens, and at the file's end the last.
            at = starts[rows][:, None] + np.arange(kept[rows].max())
            np.minimum(at, len(numbers) - 1, out=at)
            return embedding(torch.from_numpy(at), numbers).to(device).float()

        return read

    def key(self) -> str:
        """Hash all that the states depend on."""
        fingerprint = fingerprint_encoder(self.encoder, self.cut)
        return hash_content(fingerprint, self.tokens, {"first_only": self.first_only})


def _store(
    source: _Source,
    path: Path,
    limit: int,
    spare: Path | None,
    progress: Callable[[Int64[np.ndarray, " b"]], None] | None,
) -> Mapping[str, Any]:
    """Compute all states batch by batch straight into the file; returns what is told about it."""
    with write_entry(path, source.bytes, limit, spare) as (data, sidecar):
        start = time.perf_counter()
        digest = hashlib.sha256()
        with data.open("wb") as file:
            for rows in source.encoder.batches(source.tokens):
                numbers = source.numbers(rows)
                file.write(numbers.data)
                digest.update(numbers.data)
                if progress:
                    progress(rows)
        about = source.about(digest.hexdigest(), time.perf_counter() - start)
        sidecar.write_text(json.dumps(about, indent=1), encoding="utf-8")
    return about


def _store_together(
    team: Team,
    source: _Source,
    path: Path,
    limit: int,
    spare: Path | None,
    progress: Callable[[Int64[np.ndarray, " b"]], None] | None,
) -> Mapping[str, Any]:
    """Compute the states in several processes, each its batches; the first one keeps the file."""
    with ExitStack() as held:
        start = time.perf_counter()
        data = sidecar = None
        fault: LayerscoutError | OSError | None = None
        if team.own == 0:
            try:
                data, sidecar = held.enter_context(write_entry(path, source.bytes, limit, spare))
                with data.open("wb") as file:
                    file.truncate(source.bytes)
            except (CacheError, OSError) as error:
                fault = error
        place = team.meet(None if fault or data is None else str(data))[0]
        if place is None:
            raise fault or CacheError("the first process cannot keep them")
        try:
            _write_part(team, source, Path(place), progress)
        except (InputError, OSError) as error:
            fault = error
        faults = team.meet(None if fault is None else str(fault))
        if fault is not None:
            raise fault
        if any(faults):
            raise CacheError(
                f"another process could not compute its part: {max(filter(None, faults))}"
            )
        try:
            if data is not None and sidecar is not None:
                about = source.about(sha256_of(data), time.perf_counter() - start)
                sidecar.write_text(json.dumps(about, indent=1), encoding="utf-8")
            held.close()  # moves the files to their place
        finally:
            team.meet(None)
    found = find_cached(path, source.bytes)
    if found is None:
        raise CacheError("the states that were computed together are not there")
    return found


def _write_part(
    team: Team,
    source: _Source,
    path: Path,
    progress: Callable[[Int64[np.ndarray, " b"]], None] | None,
) -> None:
    """Write the batches of this process into their places in the file."""
    place = 0
    with path.open("r+b") as file:
        for number, rows in enumerate(source.encoder.batches(source.tokens)):
            if number % team.size == team.own:
                file.seek(place)
                file.write(source.numbers(rows).data)
            place += source.size_of(rows)
            if progress:
                progress(rows)
