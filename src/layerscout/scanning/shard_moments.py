"""What a machine of a cluster does with one file of a scan: count labels, add up moments."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

import numpy as np
import torch

from layerscout.data import Inputs, Shards, Table, render
from layerscout.models import Encoder, Precision
from layerscout.plans import Pooling
from layerscout.scanning.extraction import Extractor, stream_moments
from layerscout.scores import Moments

# Rows that are read at once.
ROWS = 8192


@dataclass(frozen=True)
class Work:
    """What is needed to add up the moments of a file.

    Attributes:
        key: of the scan.
        ids: class ids by labels as `write_labels` writes them.
        weights: as in `Moments`.
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
class Read:
    """What was read, summed over parts.

    Attributes:
        examples: rows.
        tokens: of all rows.
        truncated, empty: as in `Tokens`.
        blank: rows with an empty text.
        devices, precisions: what the states were computed on and in.
    """

    examples: int = 0
    tokens: int = 0
    truncated: int = 0
    empty: int = 0
    blank: int = 0
    devices: frozenset[str] = frozenset()
    precisions: frozenset[str] = frozenset()

    def __add__(self, other: Read) -> Read:
        """Add up two parts."""
        return Read(
            self.examples + other.examples,
            self.tokens + other.tokens,
            self.truncated + other.truncated,
            self.empty + other.empty,
            self.blank + other.blank,
            self.devices | other.devices,
            self.precisions | other.precisions,
        )


def count_labels(shards: Shards, column: str, path: str) -> Counter[str]:
    """Count the labels of a file, as `write_labels` writes them."""
    counts: Counter[str] = Counter()
    for table in shards.tables(path, [column], ROWS):
        counts.update(write_labels(table, column))
    return counts


def write_labels(table: Table, column: str) -> list[str]:
    """Write labels as JSON, which distinguishes 1 from true and from "1"."""
    written = []
    for row, value in enumerate(table.columns[column]):
        if isinstance(value, Decimal):
            value = int(value) if value == int(value) else float(value)
        if value is not None and not isinstance(value, str | int | float):
            rule, remedy = "a label must be one string or number", "name another with --label"
            raise table.fault(rule, f"a {type(value).__name__}", column, row, remedy)
        written.append(json.dumps(value))
    return written


def sum_moments(work: Work, path: str) -> tuple[Moments | None, Read]:
    """Add up the moments of a file; None if it has no rows."""
    extractor = _load_reader(
        work.key, work.model, work.device, work.precision, work.pooling, work.max_length
    )
    moments, read = None, Read()
    for table in work.shards.tables(path, work.inputs.columns, ROWS):
        sums, more = _sum_table(work, extractor, table)
        moments = sums if moments is None else moments + sums
        read += more
    return moments, read


@lru_cache(maxsize=1)
def _load_reader(
    key: str, model: str, device: str, precision: Precision, pooling: Pooling, max_length: int
) -> Extractor:
    """Load the encoder once per process and scan: Ray gives a process many files of a scan."""
    encoder = Encoder.load(model, device=device, precision=precision)
    return Extractor(encoder, (pooling,), max_length, 0, _show_nothing)


def _show_nothing(stage: str, done: float, total: float, note: str = "") -> None:
    """Show no progress: a machine of a cluster has no terminal."""


def _sum_table(work: Work, extractor: Extractor, table: Table) -> tuple[Moments, Read]:
    encoder, inputs = extractor.encoder, work.inputs
    texts, *pairs = (render(table, one, inputs.numbers_as_text) for one in inputs.templates)
    tokens = encoder.tokenize(texts, pairs[0] if pairs else None, max_length=work.max_length)
    ids = np.array([work.ids[label] for label in write_labels(table, inputs.label)])
    read = Read(
        len(texts),
        int(tokens.lengths.sum()),
        tokens.truncated,
        tokens.empty,
        sum(any(not text.strip() for text in row) for row in zip(texts, *pairs, strict=True)),
        frozenset([encoder.device.type]),
        frozenset([encoder.precision]),
    )
    moments = stream_moments(extractor, tokens, ids, work.weights)
    tensors = ("reference", "weights", "count", "total", "scatter")
    return replace(moments, **{name: getattr(moments, name).cpu() for name in tensors}), read
