"""Pooled states of texts: computed once, then found in the cache and read from where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from layerscout.errors import InputError
from layerscout.models import Encoder, Tokens
from layerscout.plans import Pooling
from layerscout.states.fingerprints import fingerprint_encoder, hash_content
from layerscout.states.store import CacheError, cache_path, find_cached, write_entry

# Bytes of states that may be held in memory if the cache cannot keep them.
MEMORY = 4 * 10**9

# Of a batch of texts: where it starts, its states in P poolings, and the seconds up to its end.
Batch = tuple[int, Float32[np.ndarray, "P S b d"], float]

# Rows of a state that are read at once, so that little memory is used beside the result.
CHUNK = 4096


@dataclass(frozen=True, eq=False)
class States:
    """Pooled states of n texts, which stay on disk or in memory until one of them is read.

    Attributes:
        parts: arrays (S, m, d), of different texts each.
        rows: (n,), the index of each text in the concatenation of all parts.
    """

    parts: tuple[Float32[np.ndarray, "S _ d"], ...]
    rows: Int64[np.ndarray, " n"]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(S, n, d), S = L + 1."""
        S, _, d = self.parts[0].shape
        return S, len(self.rows), d

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, s: int) -> Float32[np.ndarray, "n d"]:
        """Read state s, 0 to L, of all texts in their order; threads may read concurrently."""
        state = np.empty(self.shape[1:], dtype=np.float32)
        order = np.argsort(self.rows, kind="stable")  # reads files from front to back
        ends = np.cumsum([part.shape[1] for part in self.parts])
        bounds = np.searchsorted(self.rows, ends, sorter=order)
        for part, end, here in zip(self.parts, ends, np.split(order, bounds[:-1]), strict=True):
            for start in range(0, len(here), CHUNK):
                at = here[start : start + CHUNK]
                state[at] = part[s, self.rows[at] - end]  # counted from the part's end
        return state

    def __iter__(self) -> Iterator[Float32[np.ndarray, "n d"]]:
        return (self[s] for s in range(len(self)))

    def take(self, rows: Int64[np.ndarray, " m"]) -> States:
        """Return the states of the texts at `rows`, in that order, without reading them."""
        return States(self.parts, self.rows[rows])

    def __add__(self, other: States) -> States:
        """Return the states of these texts followed by the others', without reading them."""
        before = sum(part.shape[1] for part in self.parts)
        return States(self.parts + other.parts, np.concatenate([self.rows, other.rows + before]))


@dataclass(frozen=True, eq=False)
class PooledStates:
    """The states that `pool_states` returns, and where they came from.

    Attributes:
        states: by pooling.
        cached: the poolings that were found in the cache.
        warning: why states are held in memory and not in the cache.
    """

    states: Mapping[Pooling, States]
    cached: frozenset[Pooling]
    warning: str | None


def pool_states(
    encoder: Encoder,
    tokens: Tokens,
    poolings: Sequence[Pooling] = ("mean",),
    *,
    limit: int,
    fingerprint: str | None = None,
    progress: Callable[[Int64[np.ndarray, " b"]], None] | None = None,
) -> PooledStates:
    """Pool all S = L + 1 states of n texts, or of n words, or find them in the cache.

    States that are not cached are computed in one forward pass for all poolings, in eval mode and
    without autograd, and written into the cache, so that each takes memory only while it is read;
    if the cache cannot keep them, they are held in memory. Values that are not finite stay so.

    Args:
        encoder: the encoder, in any mode.
        tokens: the n texts, or texts in which n words are labelled.
        poolings: the ways to pool.
        limit: bytes that all entries of the cache may take together; 0 switches the cache off.
        fingerprint: `fingerprint_encoder(encoder, encoder.blocks)`, if already known.
        progress: called with the rows of each computed batch.

    Raises:
        InputError: if the states fit neither into the cache nor into memory, or a single text is
            more than the device's memory can hold.
    """
    shape = (encoder.blocks + 1, tokens.outputs, encoder.model.config.hidden_size)
    paths: dict[Pooling, Path] = {}
    if limit:
        fingerprint = fingerprint or fingerprint_encoder(encoder, encoder.blocks)
        for pooling in poolings:
            # Which tokens are a text's own matters to all but the one that takes the first token.
            own = {"pooled": pooling != "cls"}
            key = hash_content(fingerprint, tokens, {"pooling": pooling}, **own)
            paths[pooling] = cache_path("states", key)
    arrays = {}
    for pooling, path in paths.items():
        if find_cached(path, _size(shape)) is not None:
            with suppress(OSError):  # another process has just removed it
                arrays[pooling] = _map_file(path, shape)
    cached, warning = frozenset(arrays), None
    missing = tuple(pooling for pooling in dict.fromkeys(poolings) if pooling not in cached)
    if missing:
        forward = partial(_run_forward, encoder, tokens, missing, progress)
        try:
            if limit == 0:
                raise CacheError("the cache is off; raise --cache-limit")
            about = {"kind": "states", "model": encoder.name, "texts": len(tokens)}
            places = {pooling: paths[pooling] for pooling in missing}
            spare = next((paths[pooling] for pooling in cached), None)
            arrays |= _compute_in_cache(forward(), places, shape, about, limit, spare)
        except (CacheError, OSError) as error:
            arrays |= _compute_in_memory(forward(), missing, shape, str(error))
            warning = f"the states are held in memory and not kept: {error}" if limit else None
    order = np.argsort(
        np.concatenate([tokens.find_outputs(rows) for rows in encoder.batches(tokens)])
    )
    states = {pooling: States((array,), order) for pooling, array in arrays.items()}
    return PooledStates(states, cached, warning)


def _map_file(path: Path, shape: tuple[int, int, int]) -> Float32[np.ndarray, "S n d"]:
    return np.memmap(path, dtype=np.float32, mode="r", shape=shape)


def _size(shape: tuple[int, ...]) -> int:
    """Count the bytes of float32 numbers."""
    return 4 * int(np.prod(shape, dtype=np.int64))


def _run_forward(
    encoder: Encoder,
    tokens: Tokens,
    poolings: tuple[Pooling, ...],
    progress: Callable[[Int64[np.ndarray, " b"]], None] | None,
) -> Iterator[Batch]:
    """Run one forward pass over all texts, the longest first, equal ones in their order.

    States are stored in that order too, so that a batch is contiguous within each state.
    """
    start, seconds = 0, 0.0
    for rows in encoder.batches(tokens):
        started = perf_counter()
        pooled = encoder.pool_each(tokens, rows, poolings).cpu().numpy()
        seconds += perf_counter() - started
        yield start, pooled, seconds
        start += pooled.shape[2]
        if progress:
            progress(rows)


def _compute_in_cache(
    batches: Iterator[Batch],
    paths: Mapping[Pooling, Path],
    shape: tuple[int, int, int],
    about: Mapping[str, Any],
    limit: int,
    spare: Path | None,
) -> dict[Pooling, Float32[np.ndarray, "S n d"]]:
    """Compute the states directly into files of the cache.

    Raises:
        CacheError: if there is no room or a file cannot be written.
        OSError: if a file was removed meanwhile.
    """
    _, n, d = shape
    with ExitStack() as stack:
        files, abouts = [], []
        for number, (pooling, path) in enumerate(paths.items()):
            # The first entry makes room for all: `write_entry` counts only what is in place, and
            # these are moved there together at the end.
            room = _size(shape) * (len(paths) - number)
            data, written = stack.enter_context(write_entry(path, room, limit, spare))
            files.append(stack.enter_context(data.open("wb")))
            written |= {**about, "pooling": pooling, "shape": shape, "dtype": "float32"}
            abouts.append(written)
        for start, pooled, seconds in batches:
            for file, states, written in zip(files, pooled, abouts, strict=True):
                for s, state in enumerate(states):
                    file.seek(_size((s * n + start, d)))
                    file.write(state.data)
                file.flush()  # a full disk is seen now, not after the last batch
                written["seconds"] = seconds
    return {pooling: _map_file(path, shape) for pooling, path in paths.items()}


def _compute_in_memory(
    batches: Iterator[Batch],
    poolings: Sequence[Pooling],
    shape: tuple[int, int, int],
    reason: str,
) -> dict[Pooling, Float32[np.ndarray, "S n d"]]:
    """Compute the states into memory.

    Raises:
        InputError: if they are larger than `MEMORY`.
    """
    S, n, d = shape
    size = len(poolings) * _size(shape)
    if size > MEMORY:
        raise InputError(
            f"the states take {size / 1e9:.3g} GB ({S} states of {n:,} examples, {d} numbers each)"
            f", more than the {MEMORY / 1e9:.3g} GB that memory may hold, and the cache "
            f"cannot keep them: {reason}, or read fewer --examples"
        )
    held = np.empty((len(poolings), *shape), dtype=np.float32)
    for start, pooled, _ in batches:
        held[:, :, start : start + pooled.shape[2]] = pooled
    held.flags.writeable = False
    return dict(zip(poolings, held, strict=True))
