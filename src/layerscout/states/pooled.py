"""Pooled states of texts: computed once, then found in the cache and read from where they are.

An entry of the cache holds the states of the outputs that one pass computed, and behind them the
name of each, a hash of what it was computed from. So any other examples find those they share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from time import perf_counter

import numpy as np
from jaxtyping import Float32, Int64

from layerscout.data import batch_by_length
from layerscout.errors import InputError
from layerscout.models import Encoder, Tokens
from layerscout.plans import Pooling
from layerscout.progress import Show, follow_examples
from layerscout.states.fingerprints import NAME, Names, fingerprint_encoder, name_outputs
from layerscout.states.store import (
    CacheEntry,
    CacheError,
    cache_path,
    find_cached,
    list_cache,
    write_entry,
)

# A pass for one of them keeps both: what is scored is what an averaging block or a sentence
# embedding computes, but for the tokens that the tokenizer adds.
MEANS: tuple[Pooling, ...] = ("mean", "mean-all")

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
        cached: the poolings of which all were found in the cache.
        warning: why states are held in memory and not in the cache.
        passed: texts and seconds of the passes, now or before, that those of the first pooling
            come from.
    """

    states: Mapping[Pooling, States]
    cached: frozenset[Pooling]
    warning: str | None
    passed: tuple[int, float]


@dataclass(frozen=True, eq=False)
class _Kept:
    """What is kept of some outputs in one pooling.

    Attributes:
        arrays: the states, and those that are computed now behind them.
        entries: of the cache that they come from.
        rows: of each output, as in `States`; −1 where there is none.
    """

    arrays: list[Float32[np.ndarray, "S _ d"]]
    entries: list[CacheEntry]
    rows: Int64[np.ndarray, " o"]

    def add(
        self, array: Float32[np.ndarray, "S _ d"], at: Int64[np.ndarray, " m"], rows: np.ndarray
    ) -> None:
        """Add an array, `rows` of which are the outputs `at`."""
        self.rows[at] = rows + sum(each.shape[1] for each in self.arrays)
        self.arrays.append(array)

    def sum_passes(self) -> tuple[int, float]:
        """Return the texts and the seconds of the passes that its entries come from."""
        abouts = [entry.about for entry in self.entries]
        return sum(about["texts"] for about in abouts), sum(about["seconds"] for about in abouts)


def pool_states(
    encoder: Encoder,
    tokens: Tokens,
    poolings: Sequence[Pooling] = ("mean",),
    *,
    limit: int,
    fingerprint: str | None = None,
    show: Show | None = None,
    stage: str = "all states, once",
) -> PooledStates:
    """Pool all S = L + 1 states of n texts, or of n words, or find them in the cache.

    Those that are not cached are computed in one forward pass for all poolings, in eval mode and
    without autograd, and written into the cache, so that each takes memory only while it is read;
    if the cache cannot keep them, they are held in memory. Equal texts are computed once. Values
    that are not finite stay so.

    Args:
        encoder: the encoder, in any mode.
        tokens: the n texts, or texts in which n words are labelled.
        poolings: the ways to pool. Of texts both of `MEANS` are kept where one is computed.
        limit: bytes that all entries of the cache may take together; 0 switches the cache off.
        fingerprint: `fingerprint_encoder(encoder, encoder.blocks)`, if already known.
        show: shows the progress of the pass.
        stage: what the progress calls it.

    Raises:
        InputError: if the states fit neither into the cache nor into memory, or a single text is
            more than the device's memory can hold.
    """
    names, owners = name_outputs(tokens)
    unique, firsts, inverse = np.unique(names, return_index=True, return_inverse=True)
    entries, fingerprint = list[CacheEntry](), fingerprint or ""
    if limit:
        fingerprint = fingerprint or fingerprint_encoder(encoder, encoder.blocks)
        entries = _list_entries(fingerprint)
    kept = {pooling: _find(entries, pooling, unique) for pooling in poolings}
    lacking = {pooling: each.rows < 0 for pooling, each in kept.items()}
    missing = [pooling for pooling in kept if lacking[pooling].any()]
    warning, passed = None, kept[poolings[0]].sum_passes()
    if missing:
        needed = np.any([lacking[pooling] for pooling in missing], axis=0)
        texts = np.unique(owners[firsts[needed]])
        parts = batch_by_length(tokens.lengths[texts], encoder.token_budget)
        source = _Pass(encoder, tokens, [texts[part] for part in parts], show, stage)
        computed = names[source.outputs]
        spare = [entry.path for each in kept.values() for entry in each.entries]
        others = [pooling for pooling in MEANS if pooling not in kept and tokens.words is None]
        both = (*missing, *(others if set(MEANS) & set(missing) else ()))
        reason: object = "the cache is off; raise --cache-limit"
        # Where there is no room for both means, the one that is asked for.
        for wanted in dict.fromkeys([both, (*missing,)]) if limit else ():
            try:
                arrays, seconds = _compute_in_cache(
                    source, fingerprint, wanted, computed, limit, spare
                )
                break
            except (CacheError, OSError) as error:
                reason = error
        else:
            arrays, seconds = _compute_in_memory(source, missing, str(reason))
            warning = f"the states are held in memory and not kept: {reason}" if limit else None
        if poolings[0] in missing:
            passed = passed[0] + len(texts), passed[1] + seconds
        for pooling in missing:
            at, rows = np.searchsorted(unique, computed), np.arange(len(computed))
            kept[pooling].add(arrays[pooling], at, rows)
    states = {
        pooling: States(tuple(each.arrays), each.rows[inverse]) for pooling, each in kept.items()
    }
    return PooledStates(states, frozenset(kept) - frozenset(missing), warning, passed)


def find_states(
    fingerprint: str, tokens: Tokens, pooling: Pooling
) -> tuple[Int64[np.ndarray, " m"], States]:
    """Find what the cache has of the pooled states of n texts, or of n words; compute nothing.

    Args:
        fingerprint: `fingerprint_encoder(encoder, encoder.blocks)`.
        tokens: the n texts, or texts in which n words are labelled.
        pooling: the way to pool.

    Returns:
        Which of them have states, in their order, and the states of these.
    """
    unique, inverse = np.unique(name_outputs(tokens)[0], return_inverse=True)
    kept = _find(_list_entries(fingerprint), pooling, unique)
    rows = kept.rows[inverse]
    (found,) = np.nonzero(rows >= 0)
    return found, States(tuple(kept.arrays), rows[found])


def _list_entries(fingerprint: str) -> list[CacheEntry]:
    """List the entries of an encoder."""
    return [entry for entry in list_cache() if entry.about.get("encoder") == fingerprint]


def _find(entries: Sequence[CacheEntry], pooling: Pooling, names: Names) -> _Kept:
    """Find outputs, named in order, among the entries of an encoder."""
    kept = _Kept([], [], np.full(len(names), -1))
    for entry in entries:
        if entry.about.get("pooling") != pooling:
            continue
        with suppress(OSError, ValueError):  # another process has just removed it, or it is cut
            shape = tuple(entry.about["shape"])
            array = _map_file(entry.path, shape)
            named = np.fromfile(entry.path, NAME, shape[1], offset=array.nbytes)
            at = np.searchsorted(names, named).clip(max=len(names) - 1)
            (rows,) = np.nonzero((names[at] == named) & (kept.rows[at] < 0))
            # Its content is checked only if it is used.
            if len(rows) and find_cached(entry.path, array.nbytes + named.nbytes):
                kept.add(array, at[rows], rows)
                kept.entries.append(entry)
    return kept


def _map_file(path: Path, shape: tuple[int, int, int]) -> Float32[np.ndarray, "S n d"]:
    return np.memmap(path, dtype=np.float32, mode="r", shape=shape)


@dataclass(frozen=True, eq=False)
class _Pass:
    """A forward pass over some texts.

    Attributes:
        encoder, tokens, show, stage: as for `pool_states`.
        batches: rows of the texts, the longest first, equal ones in their order. States are stored
            in that order too, so that a batch is contiguous within each state.
    """

    encoder: Encoder
    tokens: Tokens
    batches: Sequence[Int64[np.ndarray, " b"]]
    show: Show | None
    stage: str

    @cached_property
    def outputs(self) -> Int64[np.ndarray, " m"]:
        """The outputs of these texts, in the order of the pass."""
        return np.concatenate([self.tokens.find_outputs(rows) for rows in self.batches])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(S, m, d)."""
        encoder = self.encoder
        return encoder.blocks + 1, len(self.outputs), encoder.model.config.hidden_size

    def run(self, poolings: Sequence[Pooling]) -> Iterator[Batch]:
        """Pool every state of every batch."""
        start, seconds, lengths = 0, 0.0, self.tokens.lengths
        advance = None
        if self.show:
            every = lengths[np.concatenate(self.batches)]
            advance = follow_examples(self.show, self.stage, every)
        for rows in self.batches:
            started = perf_counter()
            pooled = self.encoder.pool_each(self.tokens, rows, poolings).cpu().numpy()
            seconds += perf_counter() - started
            yield start, pooled, seconds
            start += pooled.shape[2]
            if advance:
                advance(lengths[rows])


def _compute_in_cache(
    source: _Pass,
    fingerprint: str,
    poolings: Sequence[Pooling],
    names: Names,
    limit: int,
    spare: Collection[Path],
) -> tuple[dict[Pooling, Float32[np.ndarray, "S m d"]], float]:
    """Compute the states directly into files of the cache; return them and the seconds.

    Raises:
        CacheError: if there is no room or a file cannot be written.
        OSError: if a file was removed meanwhile.
    """
    S, m, d = shape = source.shape
    seconds = 0.0
    size, paths = 4 * S * m * d, dict[Pooling, Path]()
    with ExitStack() as stack:
        files, abouts = [], []
        for number, pooling in enumerate(poolings):
            key = sha256(f"{fingerprint} {pooling} ".encode() + names.tobytes()).hexdigest()
            paths[pooling] = cache_path("states", key)
            # The first entry makes room for all: `write_entry` counts only what is in place, and
            # these are moved there together at the end.
            room = (size + names.nbytes) * (len(poolings) - number)
            data, about = stack.enter_context(write_entry(paths[pooling], room, limit, spare))
            files.append(stack.enter_context(data.open("wb")))
            about |= {"kind": "states", "model": source.encoder.name, "encoder": fingerprint}
            about |= {"pooling": pooling, "texts": sum(map(len, source.batches))}
            about |= {"shape": shape, "dtype": "float32"}
            abouts.append(about)
        for start, pooled, seconds in source.run(poolings):
            for file, states, about in zip(files, pooled, abouts, strict=True):
                for s, state in enumerate(states):
                    file.seek(4 * d * (s * m + start))
                    file.write(state.data)
                file.flush()  # a full disk is seen now, not after the last batch
                about["seconds"] = seconds
        for file in files:
            file.seek(size)
            file.write(names.tobytes())
    return {pooling: _map_file(path, shape) for pooling, path in paths.items()}, seconds


def _compute_in_memory(
    source: _Pass, poolings: Sequence[Pooling], reason: str
) -> tuple[dict[Pooling, Float32[np.ndarray, "S m d"]], float]:
    """Compute the states into memory; return them and the seconds.

    Raises:
        InputError: if they are larger than `MEMORY`.
    """
    (S, m, d), seconds = source.shape, 0.0
    size = 4 * len(poolings) * S * m * d
    if size > MEMORY:
        raise InputError(
            f"the states take {size / 1e9:.3g} GB ({S} states of {m:,} examples, {d} numbers each)"
            f", more than the {MEMORY / 1e9:.3g} GB that memory may hold, and the cache "
            f"cannot keep them: {reason}, or read fewer --examples"
        )
    held = np.empty((len(poolings), S, m, d), dtype=np.float32)
    for start, pooled, seconds in source.run(poolings):  # noqa: B007 (the last counts)
        held[:, :, start : start + pooled.shape[2]] = pooled
    held.flags.writeable = False
    return dict(zip(poolings, held, strict=True)), seconds
