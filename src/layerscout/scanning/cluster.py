"""Rows that the machines of a cluster read together, each with the extractor of one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any
from uuid import uuid4

import numpy as np

from layerscout.cluster import Cluster
from layerscout.data import Split, join_names
from layerscout.errors import InputError
from layerscout.models import Encoder, Precision
from layerscout.plans import Pooling
from layerscout.progress import follow_examples
from layerscout.scanning.extraction import Classes, Extracted, Extractor, narrow
from layerscout.states import States

# Parts that rows come in, and how many rows one has at the least and at the most: sums of a part
# take as long to send as some hundred rows to read, and its texts have to fit into memory.
PARTS, FEWEST, MOST = 64, 64, 65536


# What a machine reads, the arguments of `Extractor.read`; and how: the poolings, the longest input,
# and the limit of the cache.
Part = tuple[Split, np.ndarray, Classes | None, bool]
Options = tuple[tuple[Pooling, ...], int, int]


@dataclass(frozen=True, eq=False, kw_only=True)
class SpreadExtractor(Extractor):
    """An extractor whose rows are read by the machines of a cluster.

    Attributes:
        run: calls a function with parts, wherever there is room, and yields the results in order.
        device, precision: as for `Encoder.load`.
        key: of the scan and the model.
    """

    run: Callable[[Callable[[Part], Extracted], Sequence[Part]], Any]
    device: str
    precision: Precision
    key: str = field(default_factory=lambda: uuid4().hex)

    def read(
        self,
        split: Split,
        rows: np.ndarray | None,
        stage: str,
        *,
        classes: Classes | None = None,
        keep: bool = False,
    ) -> Extracted:
        """Read rows as `Extractor.read` does; sums are merged in the order of the rows.

        Raises:
            InputError: if machines compute in different precisions, or the states that they keep
                cannot be read here.
        """
        assert rows is not None, "a scan draws rows"
        size = min(max(-(-len(rows) // PARTS), FEWEST), MOST)
        parts: list[Part] = []
        for at in range(0, len(rows), size):
            span = slice(at, at + size)
            own = None if classes is None else (classes[0][span], classes[1])
            parts.append((*narrow(split, rows[span]), own, keep))
        options = (self.poolings, self.max_length, self.cache_limit)
        work = partial(read_part, self.key, self.encoder.name, self.device, self.precision, options)
        total: Extracted | None = None
        advance = follow_examples(self.show, stage, np.ones(len(rows), int))
        with self.timed("forward"), closing(self.run(work, parts)) as read:
            for (_, of_part, *_), sent in zip(parts, read, strict=True):
                states = {pooling: _open_states(kept) for pooling, kept in sent.states.items()}
                extracted = replace(sent, states=states)
                total = extracted if total is None else total + extracted
                precisions = {precision for _, precision in total.machines}
                if len(precisions) > 1:
                    raise InputError(
                        "all machines of a cluster must compute in one precision: `auto` chose "
                        f"{join_names(sorted(precisions))} on different ones; name one with "
                        "--precision"
                    )
                advance(np.ones(len(of_part), int))
        assert total is not None, "there are rows"
        return total


@contextmanager
def join_cluster(
    cluster: Cluster, precision: Precision
) -> Iterator[Callable[..., SpreadExtractor]]:
    """Join a cluster; yield what makes extractors that share their rows with the machines.

    Args:
        cluster: where the work is done.
        precision: that the machines compute in, as for `Encoder.load`.
    """
    with cluster.spread() as (run, device):
        yield partial(SpreadExtractor, run=run, device=device, precision=precision)


def read_part(
    key: str, model: str, device: str, precision: Precision, options: Options, part: Part
) -> Extracted:
    """Read a part on a machine of a cluster; states come as names of files where they are kept."""
    split, rows, classes, keep = part
    extractor = _load_extractor(key, model, device, precision, options)
    extracted = extractor.read(split, rows, "", classes=classes, keep=keep)
    states: Any = {pooling: _name_files(kept) for pooling, kept in extracted.states.items()}
    moments = extracted.moments
    if moments is not None:
        tensors = ("reference", "weights", "count", "total", "scatter")
        moments = replace(moments, **{name: getattr(moments, name).cpu() for name in tensors})
    return replace(extracted, states=states, moments=moments)


@lru_cache(maxsize=1)
def _load_extractor(
    key: str, model: str, device: str, precision: Precision, options: Options
) -> Extractor:
    """Load the encoder once per process and scan: Ray gives a process many parts of a scan."""
    return Extractor(
        Encoder.load(model, device=device, precision=precision), *options, _show_nothing
    )


def _show_nothing(stage: str, done: float, total: float, note: str = "") -> None:
    """Show no progress: a machine of a cluster has no terminal."""


def _name_files(states: States) -> tuple[list[Any], np.ndarray]:
    """Return states as they travel: by the name and shape of a file, or whole if there is none."""
    parts = [
        (str(part.filename), part.shape) if isinstance(part, np.memmap) else part
        for part in states.parts
    ]
    return parts, states.rows


def _open_states(sent: Any) -> States:
    """Open what `_name_files` made."""
    parts, rows = sent
    try:
        arrays = [
            np.memmap(part[0], np.float32, "r", shape=part[1]) if isinstance(part, tuple) else part
            for part in parts
        ]
    except (OSError, ValueError) as error:
        raise InputError(
            "the states that machines of a cluster keep must be visible here, and stay until they "
            f"are read: {error}; set LAYERSCOUT_CACHE to a folder that all machines share, raise "
            "--cache-limit, or set it to 0, so that states are sent instead"
        ) from error
    return States(tuple(arrays), rows)
