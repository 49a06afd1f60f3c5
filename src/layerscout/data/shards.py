"""Data in many files, here or wherever fsspec reaches, read as one split."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from layerscout.data.files import (
    JSON_LINES,
    PARQUET,
    json_records,
    open_parquet,
    open_records,
    read_records,
)
from layerscout.data.lines import File
from layerscout.data.tables import Source, Table, join_names
from layerscout.errors import InputError, first_line

# How the names of files begin that no training split is read from.
_HELD_OUT = re.compile("(test|dev|val|valid|validation)(?![a-z])", re.IGNORECASE)


def is_held_out(name: str) -> bool:
    """Return whether a file is a part of a validation or test split, by its name."""
    return _HELD_OUT.match(name) is not None


def find_shards(data: str | Path) -> Source:
    """Find the files of a folder, a pattern or a URL that fsspec knows: one split in many parts.

    Where some files are named train..., those are taken alone. The columns, and the names of their
    classes, are those of the first file.

    Args:
        data: such as `folder`, `folder/train-*.parquet` or `s3://bucket/folder`.

    Raises:
        InputError: if there are none, they are of several kinds or of other splits, or the first
            cannot be read.
    """
    import fsspec

    name = str(data)
    with _reading(name, "; check the address"):
        filesystem, path = fsspec.core.url_to_fs(name)
        if is_folder := filesystem.isdir(path):
            files = filesystem.find(path, maxdepth=1)
        else:
            files = filesystem.glob(path) if "*" in path else [path]
            files = [file for file in files if filesystem.isfile(file)]
    names = {file: file.rpartition("/")[2] for file in files}
    readable = [file for file in files if file.lower().endswith((*PARQUET, *JSON_LINES))]
    training = [file for file in readable if names[file].lower().startswith("train")]
    paths = sorted(training or readable)
    if not paths:
        raise InputError(
            f"data in many files must be .parquet or .jsonl: {name} has "
            f"{join_names(names.values())}; convert the data"
        )
    are_parquet = [file.lower().endswith(PARQUET) for file in paths]
    if len(set(are_parquet)) > 1:
        raise InputError(
            f"files must be of one kind: {name} has .parquet and .jsonl; name some, such as "
            f"{name.rstrip('/')}/*.parquet"
        )
    held_out = [names[file] for file in paths if is_held_out(names[file])]
    if is_folder and held_out:
        raise InputError(
            f"data in many files are one training split: {name} has {join_names(held_out)}; name "
            "the training files, or one file to use it alone"
        )
    suffix = PARQUET[0] if are_parquet[0] else JSON_LINES[0]
    parts = [File(path, suffix, partial(filesystem.open, path, "rb")) for path in paths]
    short = name.rstrip("/").rpartition("/")[2]
    with _reading(paths[0]):
        first = open_parquet(parts[0]) if are_parquet[0] else open_records(parts[0], json_records)

    def read(wanted: Sequence[str]) -> Table:
        columns: dict[str, list[Any]] = {column: [] for column in wanted}
        lines: list[int] = []
        starts = {}
        for part in parts:
            starts[part.name] = len(columns[wanted[0]])
            with _reading(part.name):
                if are_parquet[0]:
                    source = open_parquet(part)
                    _check_alike(first, source, wanted)
                    table = source.read(wanted)
                else:
                    table = read_records(part, json_records, wanted, cells=False)
            for column, values in columns.items():
                values += table.columns[column]
            lines += table.lines or ()
        return Table(short, columns, lines or None, files=starts)

    return Source(short, first.columns, read, first.classes)


def _check_alike(first: Source, source: Source, wanted: Sequence[str]) -> None:
    """Raise unless a file has the columns and the class names of the first one."""
    for column in wanted:
        if column not in source.columns:
            raise InputError(
                f"every row must have the column {column!r}: {source.name} has "
                f"{join_names(source.columns)}; name files of one kind"
            )
        names, others = source.classes.get(column, ()), first.classes.get(column, ())
        if names != others:
            raise InputError(
                f"the classes of {column!r} must be the same in all files: {source.name} has "
                f"{join_names(names)}, {first.name} has {join_names(others)}; name files of one "
                "kind"
            )


@contextmanager
def _reading(path: str, remedy: str = "") -> Iterator[None]:
    """Turn errors, of many kinds as formats and file systems have their own, into one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"cannot read {path}: {first_line(error):.200}{remedy}") from error
