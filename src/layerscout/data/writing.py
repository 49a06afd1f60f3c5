"""Rows written as they were read, with more columns: CSV, TSV, JSONL, Parquet and CoNLL."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np

from layerscout.data.tables import Table, is_missing
from layerscout.errors import InputError, first_line

# A column for each name: an array of numbers, or a list of texts or of lists of texts.
Added = Mapping[str, Any]
Write = Callable[[Table, Added], None]

# How files are named whose rows are written, by the ending of the file that they were read from.
WRITTEN = {
    **{suffix: suffix for suffix in (".csv", ".tsv", ".jsonl", ".parquet", ".conll")},
    **dict.fromkeys((".json", ".ndjson"), ".jsonl"),
    **dict.fromkeys((".iob", ".bio", ".conllu"), ".conll"),
}


@contextmanager
def writing_rows(
    file: Path | IO[str], suffix: str, names: Sequence[str], schema: Any = None
) -> Iterator[Write]:
    """Yield a function that writes some rows at a time, with columns that are added to theirs.

    Args:
        file: where they go.
        suffix: one of `WRITTEN`, which says how.
        names: of the columns that the rows have.
        schema: of them in Parquet, as `join_schemas` returns it.
    """
    if suffix == ".parquet":
        with _writing_parquet(file, schema) as write:
            yield write
        return
    texts = {".jsonl": _write_records, ".conll": _write_words}
    stream = (  # JSON has halves of surrogate pairs escaped, as in names of columns
        file.open("w", encoding="utf-8", errors="backslashreplace", newline="")
        if isinstance(file, Path)
        else file
    )
    try:
        yield (
            texts[suffix](stream, names)
            if suffix in texts
            else _write_cells(stream, names, "\t" if suffix == ".tsv" else ",")
        )
        stream.flush()
    finally:
        if stream is not file:
            stream.close()


def _write_cells(stream: IO[str], names: Sequence[str], delimiter: str) -> Write:
    """Write CSV or TSV; lists are JSON in their cells."""
    # Before Python 3.13 a CR is quoted only where lines end in one.
    lines = SimpleNamespace(write=lambda line: stream.write(f"{line[:-2]}\n"))
    writer = csv.writer(lines, delimiter=delimiter, lineterminator="\r\n")
    headed = False

    def write(table: Table, added: Added) -> None:
        nonlocal headed
        if not headed:
            writer.writerow([*names, *added])
            headed = True
        gaps = [None] * len(table)
        columns = [table.columns.get(name, gaps) for name in names]
        cells = [map(_write_cell, column) for column in [*columns, *map(_list, added.values())]]
        writer.writerows(zip(*cells, strict=True))

    return write


def _write_cell(value: Any) -> str:
    if is_missing(value):
        return ""
    return _write_json(value) if isinstance(value, list | dict) else str(value)


def _write_json(value: Any) -> str:
    """Write a value as JSON in a line, with null for numbers that are not finite."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        written = json.dumps(value, default=str)
        plain = json.loads(written, parse_constant=lambda name: None)
        return json.dumps(plain, ensure_ascii=False)


def _list(column: Any) -> list[Any]:
    """List what is added; numbers with the digits that float32 has."""
    if not isinstance(column, np.ndarray):
        return list(column)
    values = column.tolist()
    return [float(f"{value:.7g}") for value in values] if column.dtype.kind == "f" else values


def _write_records(stream: IO[str], names: Sequence[str]) -> Write:
    """Write a JSON object a line."""

    def write(table: Table, added: Added) -> None:
        columns = dict(table.columns) | {name: _list(column) for name, column in added.items()}
        for row in zip(*columns.values(), strict=True):
            stream.write(_write_json(dict(zip(columns, row, strict=True))) + "\n")

    return write


def _write_words(stream: IO[str], names: Sequence[str]) -> Write:
    """Write a word a line, which is added first, with its tags, the predicted one last."""

    def write(table: Table, added: Added) -> None:
        own = [table.columns[name] for name in names if name in table.columns.keys() - added]
        words, predicted = added.values()
        for row, *lists, tags in zip(words, *own, predicted, strict=True):
            alike = [some for some in lists if isinstance(some, list) and len(some) == len(tags)]
            lines = ("\t".join(map(str, word)) for word in zip(row, *alike, tags, strict=True))
            stream.write("\n".join(lines) + "\n\n")

    return write


def join_schemas(before: Any, table: Table) -> Any:
    """Return the schema of Parquet that fits some rows and those before; None where none are.

    Raises:
        InputError: if none does.
    """
    import pyarrow as pa

    with _fitting(table):
        own = pa.table(dict(table.columns)).schema if table.arrow is None else table.arrow.schema
        if before is None or own.equals(before):
            return own
        return pa.unify_schemas([before, own], promote_options="permissive")


@contextmanager
def _fitting(table: Table) -> Iterator[None]:
    """Turn what Arrow says of rows that it cannot hold into one line."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InputError(
            f"the rows of {table.name} do not fit into Parquet: {first_line(error)}; name a "
            ".jsonl file with --output"
        ) from error


@contextmanager
def _writing_parquet(path: Any, schema: Any) -> Iterator[Write]:
    """Write Parquet; what is of Parquet keeps its types."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    writer: Any = None

    def write(table: Table, added: Added) -> None:
        nonlocal writer
        gaps = [None] * len(table)
        with _fitting(table):
            if table.arrow is not None and table.arrow.schema.equals(schema):
                rows = pa.Table.from_batches([table.arrow])
            else:
                columns = [pa.array(table.columns.get(f.name, gaps), f.type) for f in schema]
                rows = pa.table(columns, schema=schema)
            for name, column in added.items():
                kind = None
                if not isinstance(column, np.ndarray):
                    kind = pa.list_(pa.string()) if isinstance(column[0], list) else pa.string()
                rows = rows.append_column(name, pa.array(column, kind))
            writer = writer or ParquetWriter(path, rows.schema)
            writer.write_table(rows)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
