"""A scan that the machines of a cluster share: each adds up its part, and the parts are merged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from uuid import uuid4

import numpy as np
import torch

from layerscout.data import (
    KNOWN,
    Inputs,
    Shards,
    Split,
    Table,
    Task,
    choose_inputs,
    count_classes,
    join_names,
    render,
)
from layerscout.models import Encoder, Pooling, Precision
from layerscout.runtime import (
    InputError,
    check_resources,
    choose_gpus,
    join_cluster,
    run_on_cluster,
    show_progress,
    unknown,
)
from layerscout.scanning.result import Scan
from layerscout.scanning.run import (
    Options,
    described_model,
    described_task,
    diagnostics_of,
    score_moments,
)
from layerscout.scanning.sampling import Reader, cut_inputs, summed
from layerscout.scores import SCORES, Moments, applicable, class_weights

# What can be computed from sums that machines share.
SCORED = tuple(key for key, score in SCORES.items() if score.source == "moments")

# Rows that are read at once.
ROWS = 8192


def scan_shards(
    model: str | Path,
    data: str | Path,
    *,
    task: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    scores: str | Sequence[str] | None = None,
    pooling: Pooling = "mean",
    max_length: int = 128,
    precision: Precision = "float32",
    device: str = "auto",
    address: str | None = None,
    cpus: int | None = None,
    gpus: float | None = None,
    progress: bool = True,
) -> Scan:
    """Score every state of an encoder on all examples in many files, on a Ray cluster.

    The files are read twice, the labels first, some rows at a time. Processes that have the encoder
    add up the moments of a file each, which are merged in the order of the files: whichever machine
    dies on the way, the result is the same. It is that of `layerscout.scan` with `examples="all"`,
    but for the rounding of the forward pass, which computes other batches.

    Args:
        model: as for `Encoder.load`; machines must find it under that name.
        data: a folder, a pattern or a URL of .parquet or .jsonl files; see `Shards.find`.
        task: as for `Task.load`, and so are `text`, `text_pair` and `label`.
        text: see there.
        text_pair: see there.
        label: see there.
        scores: of `SCORED`; all of them by default.
        pooling: as for `scan`.
        max_length: as for `scan`.
        precision: as for `Encoder.load`.
        device: "auto", "cpu" or "cuda".
        address: see `layerscout.runtime.ray.join_cluster`.
        cpus: cores of such a process; see `layerscout.runtime.ray.run_on_cluster`.
        gpus: accelerators of such a process; None for one where there are any.
        progress: show a bar on the terminal.

    Raises:
        InputError: if the model or the data cannot be used as asked.
    """
    if pooling not in ("mean", "cls"):
        raise unknown("pooling", pooling, ("mean", "cls"))
    keys = applicable(scores or SCORED, numbers=False)
    if beyond := [key for key in keys if key not in SCORED]:
        raise InputError(
            f"a cluster computes the scores {', '.join(SCORED)}, which sums give, got {beyond[0]}; "
            "leave out --backend ray for the others"
        )
    if task is not None and task not in KNOWN:
        raise unknown("task", task, KNOWN)
    check_resources(cpus, gpus, device)
    found = Shards.find(data)
    inputs = choose_inputs(found.source, task, text, text_pair, label)
    if len(inputs.templates) > 2 or (task is not None and not KNOWN[task].labels):
        raise InputError(f"a cluster scans tasks with classes, got {task}; leave out --backend ray")
    encoder = Encoder.load(model, device="cpu")
    seconds: dict[str, float] = {}
    with join_cluster(address) as ray, show_progress(progress) as show:
        given = choose_gpus(ray, gpus, device)
        started = perf_counter()
        counts: Counter[str] = Counter()
        count = partial(_counted, found, inputs.label)
        with closing(run_on_cluster(ray, count, found.paths, cpus=1, in_order=True)) as labels:
            for done, part in enumerate(labels, 1):
                counts.update(part)
                show("counting labels", done, len(found.paths))
        if not counts:
            raise InputError(f"{found.name} has no rows; name files that have some")
        values = [json.loads(written) for written in counts]
        counted = list(zip(values, counts.values(), strict=True))
        classes = count_classes(counted, found.source, inputs.label, task)
        seconds["labels"] = perf_counter() - started
        total = sum(classes.counts)
        work = _Work(
            key=uuid4().hex,
            shards=found,
            model=str(model),
            device="cpu" if given == 0 and device == "auto" else device,
            precision=precision,
            inputs=inputs,
            ids=dict(zip(counts, classes.ids, strict=True)),
            weights=class_weights(torch.tensor(classes.counts)),
            pooling=pooling,
            max_length=max_length,
        )
        moments, read = None, _Read()
        started = perf_counter()
        sums_of = partial(_sums, work)
        with closing(
            run_on_cluster(ray, sums_of, found.paths, cpus=cpus, gpus=given, in_order=True)
        ) as parts:
            for sums, more in parts:
                if sums is not None:
                    moments = sums if moments is None else moments + sums
                read += more
                if len(read.precisions) > 1:
                    raise InputError(
                        "machines of the cluster compute in one precision: `auto` came to "
                        f"{join_names(sorted(read.precisions))} on different ones; name one with "
                        "--precision"
                    )
                rate = read.examples / (perf_counter() - started)
                note = f"{read.examples:,} of {total:,} examples, {rate:,.0f}/s"
                show("scanning", read.examples, total, note)
        seconds["forward"] = perf_counter() - started
    assert moments is not None, "there are rows"
    if read.blank == read.examples:
        raise InputError(
            f"texts must not all be empty: those of {found.name} are; name another column with "
            "--text"
        )
    results, broken = score_moments(moments, keys, pooling)
    described = Task(
        task or found.name,
        "classification",
        classes.labels,
        KNOWN[task].metric if task else "accuracy",
        Split([], None, np.empty(0, np.int64)),
        None,
        inputs.written,
    )
    return Scan(
        model=described_model(encoder, described),
        task={
            **described_task(described, described.train, np.array([read.tokens / total])),
            "examples_used": total,
            "examples_available": total,
            "examples_per_class": list(classes.counts),
        },
        settings={
            **{"data": str(data), "validation": None, "task": task},
            **{"text": text, "text_pair": text_pair, "label": label, "regression": False},
            "pooling": pooling,
            "max_length": max_length,
            "precision": ", ".join(read.precisions),
            "device": ", ".join(sorted(read.devices)),
            "examples": "all",
            "examples_because": None,
            "balanced": False,
            "per_class": None,
            "seed": 0,
            **asdict(Options()),
            "files": len(found.paths),
            "versions": {name: version(name) for name in ("torch", "transformers", "ray")},
        },
        scores=results,
        warnings=(*classes.warnings, *_warnings(found.name, read, broken, max_length)),
        seconds={"tokenize": 0.0, "scores": 0.0} | seconds,
        diagnostics=diagnostics_of(results),
    )


# --- On the machines -----------------------------------------------------------------------------


def _counted(shards: Shards, column: str, path: str) -> Counter[str]:
    """Count the labels of a file, written as JSON."""
    counts: Counter[str] = Counter()
    for table in shards.tables(path, [column], ROWS):
        counts.update(_written(table, column))
    return counts


def _written(table: Table, column: str) -> list[str]:
    """Write labels as JSON, which tells 1 from true and from "1"."""
    found = []
    for row, value in enumerate(table.columns[column]):
        if isinstance(value, Decimal):
            value = int(value) if value == int(value) else float(value)
        if value is not None and not isinstance(value, str | int | float):
            rule, remedy = "a label must be one string or number", "name another with --label"
            raise table.fault(rule, f"a {type(value).__name__}", column, row, remedy)
        found.append(json.dumps(value))
    return found


@dataclass(frozen=True)
class _Work:
    """What it takes to add up the moments of a file.

    Attributes:
        key: of the scan.
        ids: of classes, by labels as `_written` writes them.
        weights: as of `Moments`.
    """

    key: str
    shards: Shards
    model: str
    device: str
    precision: Precision
    inputs: Inputs
    ids: Mapping[str, int]
    weights: torch.Tensor
    pooling: Pooling
    max_length: int


@dataclass(frozen=True)
class _Read:
    """What was read, summed over parts.

    Attributes:
        examples: rows.
        tokens: of all of them.
        truncated, empty: as in `Tokens`.
        blank: rows with an empty text.
        devices, precisions: what was computed on and in.
    """

    examples: int = 0
    tokens: int = 0
    truncated: int = 0
    empty: int = 0
    blank: int = 0
    devices: frozenset[str] = frozenset()
    precisions: frozenset[str] = frozenset()

    def __add__(self, other: _Read) -> _Read:
        """Add up two parts."""
        return _Read(
            self.examples + other.examples,
            self.tokens + other.tokens,
            self.truncated + other.truncated,
            self.empty + other.empty,
            self.blank + other.blank,
            self.devices | other.devices,
            self.precisions | other.precisions,
        )


# The scan that this process works for, and its reader: files of a scan share an encoder.
_ready: tuple[str, Reader] | None = None


def _sums(work: _Work, path: str) -> tuple[Moments | None, _Read]:
    """Add up the moments of a file; None if it has no rows."""
    global _ready
    if _ready is None or _ready[0] != work.key:
        encoder = Encoder.load(work.model, device=work.device, precision=work.precision)
        _ready = work.key, Reader(encoder, (work.pooling,), work.max_length, 0, _silent)
    moments, read = None, _Read()
    for table in work.shards.tables(path, work.inputs.columns, ROWS):
        sums, more = _sums_of(work, _ready[1], table)
        moments = sums if moments is None else moments + sums
        read += more
    return moments, read


def _sums_of(work: _Work, reader: Reader, table: Table) -> tuple[Moments, _Read]:
    encoder, inputs = reader.encoder, work.inputs
    texts, *pairs = (render(table, one, inputs.numbers_as_text) for one in inputs.templates)
    tokens = encoder.tokenize(texts, pairs[0] if pairs else None, max_length=work.max_length)
    ids = np.array([work.ids[one] for one in _written(table, inputs.label)])
    read = _Read(
        len(texts),
        int(tokens.lengths.sum()),
        tokens.truncated,
        tokens.empty,
        sum(any(not one.strip() for one in row) for row in zip(texts, *pairs, strict=True)),
        frozenset([encoder.device.type]),
        frozenset([encoder.precision]),
    )
    moments = summed(reader, tokens, ids, work.weights)
    tensors = ("reference", "weights", "count", "total", "scatter")
    return replace(moments, **{name: getattr(moments, name).cpu() for name in tensors}), read


def _silent(stage: str, done: float, total: float, note: str = "") -> None:
    """Show no progress: a machine of a cluster has no terminal."""


def _warnings(name: str, read: _Read, broken: Sequence[int], max_length: int) -> Iterator[str]:
    if read.blank:
        yield f"{read.blank:,} of {read.examples:,} rows of {name} have an empty text"
    yield from cut_inputs(read.truncated, read.examples, max_length)
    if read.empty:
        yield (
            f"{read.empty:,} of {read.examples:,} inputs have no token of their own; the "
            "tokenizer's special tokens stand in for them"
        )
    if broken:
        yield f"states {list(broken)} hold values that are not finite and have no score"
