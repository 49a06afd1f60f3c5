"""The trunk cache: states at a cut are computed once, and training starts from there.

Blocks below the lowest tuned one never change, so neither do the states that they give (the cache
that Xie et al. 2022 leave to future work in App. C.1).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor
from torch.nn.functional import embedding

from layerscout.data import batch_by_length
from layerscout.errors import InputError
from layerscout.models import Encoder, Tokens, eval_mode, run_in_halves, take_tokens
from layerscout.plans import ReadToken
from layerscout.progress import Advance
from layerscout.states.fingerprints import fingerprint_encoder, hash_content
from layerscout.states.store import (
    DEFAULT_LIMIT,
    CacheError,
    cache_path,
    find_cached,
    write_entry,
)

# The one state of a text that is kept, where a head reads no more: a token's, or the mean of all.
HeadToken = ReadToken | Literal["mean"]


@dataclass(frozen=True)
class ProcessGroup:
    """Processes that run a trunk together and share a file system; by default a single one.

    Attributes:
        own: the number of this process, from 0.
        size: how many there are.
        gather: sends a value and returns those of all processes, in their order; waits for all.
    """

    own: int = 0
    size: int = 1
    gather: Callable[[Any], list[Any]] = lambda value: [value]


@dataclass(frozen=True, eq=False)
class Trunk:
    """States at a cut for n tokenised texts.

    Attributes:
        cut: the state, 0 to L.
        reads: the one token of a text whose state is kept, since the head reads no other, or "mean"
            if that of all tokens is; None if all states are kept.
        cached: found in the cache; nothing was computed.
        kept: they are in the cache; otherwise `states` computes them again each time.
        seconds: that computing them took, when they were computed.
        bytes: of the states on disk.
        warning: why they could not be kept.
        states: returns the states of the texts at some rows, (b, T, d), on the encoder's device. T
            is the length of the longest, or 1 where one state of each is kept. Values beyond
            the end of a text are finite, and otherwise arbitrary.
        path: where they are kept.
    """

    cut: int
    reads: HeadToken | None
    cached: bool
    kept: bool
    seconds: float
    bytes: int
    warning: str | None
    states: Callable[[Int64[np.ndarray, " b"]], Tensor] = field(repr=False)
    path: Path | None = None


@dataclass(frozen=True, eq=False)
class TrunkSource:
    """What a trunk's states are computed from, and how they lie in a file.

    The file holds (t, d) numbers and nothing else: the kept states of one text after another, the
    longest text first, equal ones in their order, which is the order of the encoder's batches.
    """

    encoder: Encoder
    tokens: Tokens
    cut: int
    reads: HeadToken | None

    @property
    def kept(self) -> Int64[np.ndarray, " n"]:
        """The number of states that are kept of each text."""
        lengths = self.tokens.lengths
        return lengths if self.reads is None else np.ones_like(lengths)

    @cached_property
    def _places(self) -> Int64[np.ndarray, " n"] | None:
        """Where in each text the token stands that is kept; None where it is not one token."""
        # Once for all batches: it looks at every token of every text.
        if self.reads is None or self.reads == "mean":
            return None
        return self.encoder.find_head_tokens(self.tokens, self.reads)

    @property
    def dtype(self) -> torch.dtype:
        """What the numbers are stored in."""
        dtype: torch.dtype = getattr(torch, self.encoder.precision)
        return dtype

    @property
    def shape(self) -> tuple[int, int]:
        """(t, d) of the file."""
        return int(self.kept.sum()), self.encoder.model.config.hidden_size

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return self.size_of(np.arange(len(self.tokens)))

    def size_of(self, rows: Int64[np.ndarray, " b"]) -> int:
        """Count the bytes of the states of some texts."""
        return int(self.kept[rows].sum()) * self.shape[1] * self.dtype.itemsize

    def states(self, rows: Int64[np.ndarray, " b"]) -> Float32[Tensor, "b T d"]:
        """Compute what `reader` would read, with the same rounding."""
        state = self._compute(rows) if self.reads is None else self._compute_read(rows)
        return state.to(self.dtype).float()

    def _compute_read(self, rows: Int64[np.ndarray, " b"]) -> Float[Tensor, "b 1 d"]:
        """Compute the states that the head reads, one of each text.

        In batches: a caller counts one token per text.
        """
        parts = batch_by_length(self.tokens.lengths[rows], self.encoder.token_budget)
        state = torch.cat([self._compute(rows[part]) for part in parts])
        return state[torch.from_numpy(np.argsort(np.concatenate(parts))).to(state.device)]

    def _compute(self, rows: Int64[np.ndarray, " b"]) -> Float[Tensor, "b T d"]:
        with eval_mode(self.encoder.model):
            state = self.encoder.cut(self.encoder.batch(self.tokens, rows), self.cut)
        if self.reads == "mean":
            real = torch.from_numpy(self.tokens.pad(rows)[1]).to(state.device)[:, :, None]
            return (state * real).sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True)
        if self._places is None:
            return state
        return take_tokens(state, self._places[rows])[:, None]

    def numbers(self, rows: Int64[np.ndarray, " b"]) -> np.ndarray:
        """Compute what is kept of the texts as it is stored, its bytes, (t of `rows`, _).

        If the device runs out of memory, the texts are run in two halves.
        """

        def compute(rows: np.ndarray) -> np.ndarray:
            state = self._compute(rows)
            real = np.arange(state.shape[1]) < self.kept[rows][:, None]
            flat = state[torch.from_numpy(real).to(state.device)].to(self.dtype).cpu()
            return flat.view(torch.uint8).numpy()

        lengths, device = self.tokens.lengths, self.encoder.device
        return np.concatenate(run_in_halves(compute, rows, lengths, device))

    def reader(self, path: Path) -> Callable[[Int64[np.ndarray, " b"]], Tensor]:
        """Map the file and return a function that reads the states of some rows from it."""
        # Copied on writing, which nobody does: torch has no tensors that can only be read.
        numbers = torch.from_numpy(np.memmap(path, mode="c")).view(self.dtype).view(self.shape)
        kept, device = self.kept, self.encoder.device
        order = np.argsort(-self.tokens.lengths, kind="stable")
        starts = np.empty_like(kept)
        starts[order] = np.cumsum(kept[order]) - kept[order]

        def read(rows: Int64[np.ndarray, " b"]) -> Float32[Tensor, "b T d"]:
            # Padding reads the tokens of the next text, or the last token at the end of the file.
            at = starts[rows][:, None] + np.arange(kept[rows].max())
            np.minimum(at, len(numbers) - 1, out=at)
            return embedding(torch.from_numpy(at), numbers).to(device).float()

        return read


def run_trunk(
    encoder: Encoder,
    tokens: Tokens,
    cut: int,
    *,
    reads: HeadToken | None = None,
    limit: int = DEFAULT_LIMIT,
    spare: Trunk | None = None,
    fingerprint: str | None = None,
    progress: Advance | None = None,
    group: ProcessGroup | None = None,
) -> Trunk:
    """Run the trunk, blocks 1..`cut`, once over all texts, or find its states in the cache.

    It runs in eval mode and without autograd, whatever mode the model is in. States that cannot be
    kept are computed each time they are needed.

    Args:
        encoder: its blocks above `cut` may change afterwards, the rest must not.
        tokens: the n texts.
        cut: 0 (the embedding output) to L.
        reads: keep only the state of the token that the head reads, or the mean of all tokens; None
            keeps all.
        limit: bytes that all entries of the cache may take together; 0 keeps nothing.
        spare: a trunk that must not be removed to make room for this one.
        fingerprint: `fingerprint_encoder(encoder, cut)`, if already known.
        progress: called with the lengths of the texts of each computed batch.
        group: processes that all make this call, and compute a part each.

    Raises:
        InputError: if a single text is more than the device's memory can hold.
    """
    source = TrunkSource(encoder, tokens, cut, reads)
    uncached_trunk = partial(Trunk, cut, reads, False, False, 0.0, 0, states=source.states)
    if limit == 0:
        return uncached_trunk(None)
    fingerprint = fingerprint or fingerprint_encoder(encoder, cut)
    path = cache_path("trunks", hash_content(fingerprint, tokens, {"reads": reads}))
    spared = () if spare is None or spare.path is None else (spare.path,)
    group = group or ProcessGroup()
    about = find_cached(path, source.bytes)
    cached = all(group.gather(about is not None))
    try:
        if not cached or about is None:
            about = _store(group, source, path, limit, spared, progress)
        states = source.reader(path)
    except (CacheError, OSError) as error:
        return uncached_trunk(f"the states at the cut are computed again in every epoch: {error}")
    return Trunk(cut, reads, cached, True, about["seconds"], source.bytes, None, states, path)


def _store(
    group: ProcessGroup,
    source: TrunkSource,
    path: Path,
    limit: int,
    spare: Collection[Path],
    progress: Advance | None,
) -> Mapping[str, Any]:
    """Compute the states, each process its batches; the first one keeps the file.

    Every process meets the others equally often, whatever fails: a missing one would hang them.
    """
    start, data, about = time.perf_counter(), None, dict[str, Any]()
    fault: CacheError | InputError | OSError | None = None
    with ExitStack() as stack:
        try:
            if group.own == 0:
                data, about = stack.enter_context(write_entry(path, source.bytes, limit, spare))
                with data.open("wb") as file:
                    file.truncate(source.bytes)
        except (CacheError, OSError) as error:
            data, fault = None, error
        data = group.gather(data)[0]
        try:
            if data is not None:
                _write_part(group, source, data, progress)
        except (InputError, OSError) as error:
            fault = error
        faults = group.gather(None if fault is None else str(fault))
        if fault is not None:
            raise fault
        if any(faults):
            raise CacheError(
                f"another process could not compute its part: {max(filter(None, faults))}"
            )
        about |= {
            "kind": "trunk",
            "model": source.encoder.name,
            "cut": source.cut,
            "reads": source.reads,
            "texts": len(source.tokens),
            "shape": source.shape,
            "dtype": source.encoder.precision,
            "seconds": time.perf_counter() - start,
        }
        try:
            stack.close()  # moves the files into place
        finally:
            group.gather(None)
    kept = find_cached(path, source.bytes)
    if kept is None:
        raise CacheError("the computed states are not in the cache")
    return kept


def _write_part(
    group: ProcessGroup,
    source: TrunkSource,
    path: Path,
    progress: Advance | None,
) -> None:
    """Write the batches of this process into their places in the file."""
    place = 0
    with path.open("r+b") as file:
        for number, rows in enumerate(source.encoder.batches(source.tokens)):
            if number % group.size == group.own:
                file.seek(place)
                file.write(source.numbers(rows).data)
            place += source.size_of(rows)
            if progress:
                progress(source.tokens.lengths[rows])
