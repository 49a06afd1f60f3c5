"""Data in many files, here or wherever fsspec reaches, of which no machine holds all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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
from layerscout.runtime import InputError, first_line


@dataclass(frozen=True)
class Shards:
    """Files with the same columns, in the order in which they are read.

    Attributes:
        name: what messages call the data.
        paths: of the files, as the file system has them.
        kind: "parquet", or "jsonl" with one object a line.
        filesystem: of fsspec.
    """

    name: str
    paths: tuple[str, ...]
    kind: str
    filesystem: Any = field(repr=False)

    @classmethod
    def find(cls, data: str | Path) -> Shards:
        """Find the files of a folder, a pattern or a URL that fsspec knows.

        Where some files are named train..., those are taken alone.

        Args:
            data: such as `folder`, `folder/train-*.parquet` or `s3://bucket/folder`.

        Raises:
            InputError: if there are none, or of several kinds.
        """
        import fsspec

        given = str(data)
        try:
            files, path = fsspec.core.url_to_fs(given)
            if files.isdir(path):
                found = files.find(path, maxdepth=1)
            else:
                found = files.glob(path) if "*" in path else [path] if files.isfile(path) else []
        except Exception as error:  # of many kinds: each file system has its own
            raise InputError(
                f"cannot read {given}: {first_line(error):.200}; check the address"
            ) from error
        kinds = {
            "parquet": sorted(one for one in found if one.lower().endswith(PARQUET)),
            "jsonl": sorted(one for one in found if one.lower().endswith(JSON_LINES)),
        }
        named = {
            kind: [one for one in some if one.rpartition("/")[2].lower().startswith("train")]
            for kind, some in kinds.items()
        }
        kinds = named if any(named.values()) else kinds
        if not any(kinds.values()):
            has = join_names(one.rpartition("/")[2] for one in found)
            raise InputError(
                f"a cluster reads .parquet and .jsonl files: {given} has {has}; convert the data, "
                "or leave out --backend ray"
            )
        if all(kinds.values()):
            raise InputError(
                f"files must be of one kind: {given} has .parquet and .jsonl; name some, such as "
                f"{given.rstrip('/')}/*.parquet"
            )
        kind = next(kind for kind, some in kinds.items() if some)
        name = given.rstrip("/").rpartition("/")[2]
        return cls(name, tuple(kinds[kind]), kind, files)

    @cached_property
    def source(self) -> Source:
        """The columns, by the first of the files; it cannot be read as a whole.

        Raises:
            InputError: if that file cannot be read.
        """
        path = self.paths[0]
        columns: Mapping[str, Content]
        try:
            with self.filesystem.open(path, "rb") as file:
                if self.kind == "parquet":
                    from pyarrow.parquet import read_schema

                    schema = read_schema(file)
                    columns = {column.name: content_of(column.type) for column in schema}
                    return Source(self.name, columns, _unread, class_names_in(schema.metadata))
                first = islice(enumerate(file, 1), GLANCE)
                rows = [json_record(line, path, number) for number, line in first if line.strip()]
        except InputError:
            raise
        except Exception as error:  # of many kinds: formats and file systems have their own
            raise InputError(f"cannot read {path}: {first_line(error):.200}") from error
        names = dict.fromkeys(name for row in rows if row for name in row)
        columns = {
            name: tell_content([row.get(name) for row in rows if row], False) for name in names
        }
        return Source(self.name, columns, _unread)

    def tables(self, path: str, wanted: Sequence[str], rows: int) -> Iterator[Table]:
        """Read columns of one of the files, some rows at a time.

        Args:
            path: of the file.
            wanted: the columns.
            rows: at a time, at the most.

        Raises:
            InputError: if it cannot be read, or lacks a column.
        """
        read = self._parquet if self.kind == "parquet" else self._lines
        try:
            with self.filesystem.open(path, "rb") as file:
                yield from read(file, path, list(wanted), rows)
        except InputError:
            raise
        except Exception as error:  # of many kinds: formats and file systems have their own
            raise InputError(f"cannot read {path}: {first_line(error):.200}") from error

    def _parquet(self, file: Any, path: str, wanted: list[str], rows: int) -> Iterator[Table]:
        from pyarrow.parquet import ParquetFile

        with ParquetFile(file) as opened:
            _check_columns(path, wanted, opened.schema_arrow.names)
            for batch in opened.iter_batches(rows, columns=wanted):
                yield Table(path, {n: batch[n].to_pylist() for n in wanted}, located=False)

    def _lines(self, file: Any, path: str, wanted: list[str], rows: int) -> Iterator[Table]:
        numbered = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        while some := list(islice(numbered, rows)):
            found = [json_record(line, path, number) for number, line in some]
            for row in found:
                _check_columns(path, wanted, row)
            columns = {name: [row[name] for row in found] for name in wanted}
            yield Table(path, columns, [number for number, _ in some])


def _unread(_: Any) -> Table:
    raise AssertionError("shards are read piece by piece")


def _check_columns(path: str, wanted: Sequence[str], there: Iterable[str]) -> None:
    for column in wanted:
        if column not in there:
            raise InputError(
                f"every row must have the column {column!r}: {path} has {join_names(there)}; name "
                "files of one kind"
            )
