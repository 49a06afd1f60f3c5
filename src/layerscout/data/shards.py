"""Data in many files, here or wherever fsspec reaches, read as one split."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from layerscout.data.files import (
    GLANCE,
    JSON_LINES,
    PARQUET,
    class_names_in,
    content_of,
    json_record,
)
from layerscout.data.tables import Content, Source, Table, join_names, tell_content
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
            files = [one for one in files if filesystem.isfile(one)]
    kinds = {
        ending: sorted(one for one in files if one.lower().endswith(ending))
        for ending in (PARQUET, JSON_LINES)
    }
    training = {
        ending: [one for one in some if one.rpartition("/")[2].lower().startswith("train")]
        for ending, some in kinds.items()
    }
    kinds = training if any(training.values()) else kinds
    if not any(kinds.values()):
        names = join_names(one.rpartition("/")[2] for one in files)
        raise InputError(
            f"data in many files must be .parquet or .jsonl: {name} has {names}; convert the data"
        )
    if all(kinds.values()):
        raise InputError(
            f"files must be of one kind: {name} has .parquet and .jsonl; name some, such as "
            f"{name.rstrip('/')}/*.parquet"
        )
    [(ending, paths)] = [(ending, some) for ending, some in kinds.items() if some]
    glance, read_file = (
        (_glance_parquet, _read_parquet) if ending == PARQUET else (_glance_lines, _read_lines)
    )
    held_out = [file for path in paths if is_held_out(file := path.rpartition("/")[2])]
    if is_folder and held_out:
        raise InputError(
            f"data in many files are one training split: {name} has {join_names(held_out)}; name "
            "the training files, or one file to use it alone"
        )
    short = name.rstrip("/").rpartition("/")[2]

    def read(wanted: Sequence[str]) -> Table:
        columns: dict[str, list[Any]] = {column: [] for column in wanted}
        lines: list[int] = []
        starts = {}
        for path in paths:
            starts[path] = len(columns[wanted[0]])
            with _reading(path), filesystem.open(path, "rb") as file:
                part, numbers, names = read_file(file, path, wanted)
            for column, values in part.items():
                if values and names.get(column) != classes.get(column):
                    raise InputError(
                        f"the classes of {column!r} must be the same in all files: {path} has "
                        f"{join_names(names.get(column, ()))}, {paths[0]} has "
                        f"{join_names(classes.get(column, ()))}; name files of one kind"
                    )
                columns[column] += values
            lines += numbers
        return Table(short, columns, lines or None, files=starts)

    with _reading(paths[0]), filesystem.open(paths[0], "rb") as file:
        contents, classes = glance(file, paths[0])
    return Source(short, contents, read, classes)


@contextmanager
def _reading(path: str, remedy: str = "") -> Iterator[None]:
    """Turn errors, of many kinds as formats and file systems have their own, into one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"cannot read {path}: {first_line(error):.200}{remedy}") from error


Classes = Mapping[str, tuple[str, ...]]
Columns = tuple[Mapping[str, Content], Classes]
Values = tuple[Mapping[str, list[Any]], list[int], Classes]  # columns, lines, class names


def _glance_parquet(file: Any, _: str) -> Columns:
    """Return what the columns hold, and the class names that the data bring along."""
    from pyarrow.parquet import read_schema

    schema = read_schema(file)
    return {one.name: content_of(one.type) for one in schema}, class_names_in(schema.metadata)


def _read_parquet(file: Any, path: str, wanted: Sequence[str]) -> Values:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as opened:
        _check_columns(path, wanted, opened.schema_arrow.names)
        table = opened.read(columns=list(wanted))
        classes = class_names_in(opened.schema_arrow.metadata)
        return {column: table[column].to_pylist() for column in wanted}, [], classes


def _glance_lines(file: Any, path: str) -> Columns:
    first = islice(enumerate(file, 1), GLANCE)
    rows = [json_record(line, path, number) for number, line in first if line.strip()]
    names = dict.fromkeys(name for row in rows for name in row)
    contents = {name: tell_content([r.get(name) for r in rows if r], False) for name in names}
    return contents, {}


def _read_lines(file: Any, path: str, wanted: Sequence[str]) -> Values:
    columns: dict[str, list[Any]] = {column: [] for column in wanted}
    lines = []
    for number, line in enumerate(file, 1):
        if line.strip():
            row = json_record(line, path, number)
            _check_columns(path, wanted, row)
            lines.append(number)
            for column, values in columns.items():
                values.append(row[column])
    return columns, lines, {}


def _check_columns(path: str, wanted: Sequence[str], there: Iterable[str]) -> None:
    for column in wanted:
        if column not in there:
            raise InputError(
                f"every row must have the column {column!r}: {path} has {join_names(there)}; name "
                "files of one kind"
            )
