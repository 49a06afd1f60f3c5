"""The trunk cache: states at a cut are computed once, and training starts from there.

Blocks below the lowest tuned one never change, so neither do the states that they give (the cache
that Xie et al. 2022 leave to future work in App. C.1).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor

from layerscout.cache.processes import Team
from layerscout.cache.trunk_source import Reads, TrunkSource
from layerscout.models import Encoder, Tokens
from layerscout.runtime import (
    CacheError,
    InputError,
    LayerscoutError,
    cache_path,
    find_cached,
    sha256_of,
    write_entry,
)

# Default size of the cache in bytes.
DEFAULT_LIMIT = 20 * 10**9


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
        path: where they are kept.
    """

    cut: int
    reads: Reads | None
    cached: bool
    kept: bool
    seconds: float
    bytes: int
    warning: str | None
    _read: Callable[[Int64[np.ndarray, " b"]], Tensor] = field(repr=False)
    path: Path | None = None

    def states(self, rows: Int64[np.ndarray, " b"]) -> Float[Tensor, "b T d"]:
        """Return the states of the texts at `rows` on the encoder's device.

        T is the length of the longest of them, or 1 where one state of each is kept. Values beyond
        the end of a text are finite, and otherwise arbitrary.
        """
        return self._read(rows)


def run_trunk(
    encoder: Encoder,
    tokens: Tokens,
    cut: int,
    *,
    reads: Reads | None = None,
    limit: int = DEFAULT_LIMIT,
    spare: Trunk | None = None,
    progress: Callable[[Int64[np.ndarray, " b"]], None] | None = None,
    team: Team | None = None,
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
        progress: called with the rows of each computed batch.
        team: processes that all make this call, and compute a part each.

    Raises:
        InputError: if `cut` or `limit` is out of range, or a single text is more than the
            device's memory can hold.
    """
    if not 0 <= cut <= encoder.blocks:
        raise InputError(f"a cut of {encoder.name} must be in 0..{encoder.blocks}, got {cut}")
    if limit < 0:
        raise InputError(f"`limit` must be 0 bytes or more, got {limit}; 0 switches the cache off")
    source = TrunkSource(encoder, tokens, cut, reads)
    lost = partial(Trunk, cut, reads, False, False, 0.0, 0, _read=source.states)
    if limit == 0:
        return lost(None)
    path = cache_path("trunks", source.key())
    spared = spare.path if spare is not None else None
    team = team or Team()
    about = find_cached(path, source.bytes)
    cached = all(team.meet(about is not None))
    try:
        if not cached or about is None:
            about = _store(team, source, path, limit, spared, progress)
        read = source.reader(path)
    except (CacheError, OSError) as error:
        return lost(f"the states at the cut are computed again in every epoch: {error}")
    return Trunk(cut, reads, cached, True, about["seconds"], source.bytes, None, read, path)


def _store(
    team: Team,
    source: TrunkSource,
    path: Path,
    limit: int,
    spare: Path | None,
    progress: Callable[[Int64[np.ndarray, " b"]], None] | None,
) -> Mapping[str, Any]:
    """Compute the states, each process its batches; the first one keeps the file.

    Every process meets the others equally often, whatever fails: a missing one would hang them.
    """
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
                about = source.describe(sha256_of(data), time.perf_counter() - start)
                sidecar.write_text(json.dumps(about, indent=1), encoding="utf-8")
            held.close()  # moves the files into place
        finally:
            team.meet(None)
    found = find_cached(path, source.bytes)
    if found is None:
        raise CacheError("the computed states are not in the cache")
    return found


def _write_part(
    team: Team,
    source: TrunkSource,
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
