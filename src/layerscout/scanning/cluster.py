"""Rows that the machines of a cluster read together, each with the extractor of one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from time import perf_counter
from typing import Any
from uuid import uuid4

import numpy as np

from layerscout.cluster import Cluster, run_on_cluster
from layerscout.data import Split, join_names
from layerscout.errors import InputError
from layerscout.models import Encoder, Precision
from layerscout.plans import Pooling
from layerscout.scanning.extraction import Classes, Extracted, Extractor, narrow
from layerscout.scores import Moments
from layerscout.states import States

# Parts that rows come in, and how many rows one has at the least and at the most: sums of a part
# take as long to send as some hundred rows to read, and its texts have to fit into memory.
PARTS, FEWEST, MOST = 64, 64, 65536


@dataclass(frozen=True)
class Job:
    """What a machine needs to know to read parts of a scan.

    Attributes:
        key: of the scan and the model.
        model, device, precision: as for `Encoder.load`.
        poolings, max_length, cache_limit: as of `Extractor`.
    """

    key: str
    model: str
    device: str
    precision: Precision
    poolings: tuple[Pooling, ...]
    max_length: int
    cache_limit: int


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows to read; the arguments of `Extractor.read`."""

    split: Split
    rows: np.ndarray
    classes: Classes | None
    keep: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class SpreadExtractor(Extractor):
    """An extractor whose rows are read by the machines of a cluster.

    Attributes:
        job: what they need to know.
        run: runs a function on parts, wherever there is room, and yields the results in order.
    """

    job: Job
    run: Callable[[Callable[[Part], Extracted], Sequence[Part]], Any]

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
        parts = []
        for at in range(0, len(rows), size):
            span = slice(at, at + size)
            of_part = None if classes is None else (classes[0][span], classes[1])
            parts.append(Part(*narrow(split, rows[span]), of_part, keep))
        total: Extracted | None = None
        done, started = 0, perf_counter()
        with self.timed("forward"), closing(self.run(partial(read_part, self.job), parts)) as read:
            for part, sent in zip(parts, read, strict=True):
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
                done += len(part.rows)
                rate = done / (perf_counter() - started)
                note = f"{done:,} of {len(rows):,} examples, {rate:,.0f}/s"
                self.show(stage, done, len(rows), note)
        assert total is not None, "there are rows"
        return total


@contextmanager
def join_cluster(
    cluster: Cluster, precision: Precision
) -> Iterator[Callable[[Extractor], SpreadExtractor]]:
    """Join a cluster; yield what makes an extractor share its rows with the machines.

    Args:
        cluster: where the work is done.
        precision: that the machines compute in, as for `Encoder.load`.
    """
    with cluster.join() as ray:
        gpus = cluster.gpus_of_task(ray)
        device = "cpu" if gpus == 0 and cluster.device == "auto" else cluster.device
        run = partial(run_on_cluster, ray, cpus=cluster.cpus, gpus=gpus, in_order=True)

        def share(extractor: Extractor) -> SpreadExtractor:
            poolings, length = extractor.poolings, extractor.max_length
            name, limit = extractor.encoder.name, extractor.cache_limit
            job = Job(uuid4().hex, name, device, precision, poolings, length, limit)
            return SpreadExtractor(
                extractor.encoder, poolings, length, limit, extractor.show, job=job, run=run
            )

        yield share


def read_part(job: Job, part: Part) -> Extracted:
    """Read a part on a machine of a cluster; states come as names of files where they are kept."""
    extracted = _load_extractor(job).read(
        part.split, part.rows, "", classes=part.classes, keep=part.keep
    )
    states: Any = {pooling: _name_files(kept) for pooling, kept in extracted.states.items()}
    moments = extracted.moments
    return replace(extracted, states=states, moments=moments and _on_processor(moments))


@lru_cache(maxsize=1)
def _load_extractor(job: Job) -> Extractor:
    """Load the encoder once per process and scan: Ray gives a process many parts of a scan."""
    encoder = Encoder.load(job.model, device=job.device, precision=job.precision)
    return Extractor(encoder, job.poolings, job.max_length, job.cache_limit, _show_nothing)


def _show_nothing(stage: str, done: float, total: float, note: str = "") -> None:
    """Show no progress: a machine of a cluster has no terminal."""


def _on_processor(moments: Moments) -> Moments:
    tensors = ("reference", "weights", "count", "total", "scatter")
    return replace(moments, **{name: getattr(moments, name).cpu() for name in tensors})


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
