"""Files of rows: CSV, TSV, JSON and Parquet."""

import csv
import gzip
import json
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from layerscout.data.tables import Content, Source, Table, join_names, tell_content
from layerscout.errors import InputError, first_line


@dataclass(frozen=True)
class File:
    """A file on this machine, in memory or wherever fsspec reaches.

    Attributes:
        name: what messages call it.
        suffix: the ending of its name in lower case; ".csv" also of a compressed x.csv.gz.
        open_bytes: opens it for reading.
        compressed: whether gzip packed it.
    """

    name: str
    suffix: str
    open_bytes: Callable[[], IO[bytes]]
    compressed: bool = False

    @classmethod
    def at(cls, path: Path) -> "File":
        """Return the file at a path."""
        packed = path.suffix.lower() == ".gz"
        return cls(str(path), find_suffix(path), lambda: path.open("rb"), packed)


@contextmanager
def reading(name: str | Path) -> Iterator[None]:
    """Turn what the system says about an unreadable path into one line."""
    try:
        yield
    except (EOFError, zlib.error) as error:
        raise InputError(f"cannot read {name}: it is not a complete gzip file ({error})") from error
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror or error}") from error


def find_suffix(path: Path) -> str:
    """Return the ending of a file's name in lower case; ".csv" also for a compressed x.csv.gz."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


def read_lines(file: File) -> Iterator[tuple[int, str]]:
    """Yield (line number, line with its end) of a text file that must be clean UTF-8."""
    with reading(file.name), file.open_bytes() as raw:
        for number, line in enumerate(gzip.GzipFile(fileobj=raw) if file.compressed else raw, 1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            try:
                decoded = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"text files must be UTF-8, {file.name} has the byte "
                    f"0x{line[error.start]:02x} in line {number}; convert it, for example with "
                    "`iconv -f CP1252 -t UTF-8`, or `-f UTF-16` if it begins with 0xff or 0xfe"
                ) from error
            if "\0" in decoded:
                raise InputError(
                    f"text files must not hold NUL bytes, {file.name} has one in line {number}; "
                    "remove it, or convert the file to UTF-8 if it is UTF-16"
                )
            yield number, decoded


# How the names of files of JSON end, with one object a line or an array of them, and of Parquet.
JSON_LINES, PARQUET = (".jsonl", ".ndjson"), (".parquet",)
DELIMITED = (".csv", ".tsv")

# What may stand between the fields of a CSV file; the first one that its first line has.
DELIMITERS = (",", ";", "\t", "|")

# How many rows are looked at to tell columns of text from columns of numbers.
GLANCE = 100

# The rows of a text file, each with its line and its values by column.
Records = Callable[[File], Iterator[tuple[int, dict[str, Any]]]]


def read_separator(sep: str) -> str:
    """Read what stands between fields: one character, or the tab by its name.

    Raises:
        InputError: if it is anything else.
    """
    separator = "\t" if sep in ("tab", "\\t") else sep
    if len(separator) != 1 or separator in '"\r\n':
        raise InputError(f"`sep` must be one character such as ;, or tab, got {sep!r:.60}")
    return separator


def tell_separator(header: str) -> str:
    """Return what stands between the names in the first line of a CSV file."""
    unquoted = re.sub(r'"[^"]*"', "", header)
    return next((mark for mark in DELIMITERS if mark in unquoted), ",")


def _csv_rows(file: File, sep: str | None) -> Iterator[tuple[int, list[str]]]:
    """Yield (first line, cells) of each row, quoted as RFC 4180 says; blank lines are skipped.

    Spreadsheets of some languages write semicolons between the fields.
    """
    csv.field_size_limit(2**31 - 1)  # of the whole process, and 128 KiB unless it is set
    delimiter = sep or tell_separator(next((line for _, line in read_lines(file)), ""))
    lines = (line for _, line in read_lines(file))
    reader = csv.reader(lines, strict=True, delimiter=delimiter)
    start = 1
    try:
        for cells in reader:
            if cells:
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{file.name} is not valid CSV in the row that begins in line {start}: {error}; "
            'quote a field as "...", and a quote in it as ""'
        ) from error


def _tsv_rows(file: File, sep: str | None) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of each row; quotes are ordinary text, blank lines are skipped."""
    for number, line in read_lines(file):
        line = line.removesuffix("\n").removesuffix("\r")
        if line:
            yield number, line.split(sep or "\t")


def cell_records(file: File, sep: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, cells by column) of each row of a CSV or TSV file.

    Args:
        file: the file.
        sep: what stands between its fields; by default that is told from its first line.
    """
    rows = (_tsv_rows if file.suffix == ".tsv" else _csv_rows)(file, sep)
    names = next(rows, (0, []))[1]
    if not names:
        raise InputError(f"{file.name} is empty; its first line must name the columns")
    _check_unique(file.name, names)
    line = 0
    for line, cells in rows:
        if len(cells) != len(names):
            lone = len(names) == 1
            remedy = "give the separator of the fields (--sep)" if lone else "correct the line"
            raise InputError(
                f"every row must have as many fields as the header: {file.name} has {len(names)} "
                f"column{'s'[: not lone]}, but {len(cells)} field{'s'[: len(cells) != 1]} in line "
                f"{line}; {remedy}"
            )
        yield line, dict(zip(names, cells, strict=True))
    if not line:
        raise InputError(f"{file.name} has no rows; it needs some below the column names")


def json_records(file: File) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, values by key) of a file with one JSON object a line; blank ones are skipped.

    A .json file may also be an array of objects; then yield the number of the item.
    """
    rule = f"{file.name} must hold one JSON object per line"
    rule += " or an array of them" if file.suffix == ".json" else ""
    lines = ((number, line) for number, line in read_lines(file) if line.strip())
    for number, line in lines:
        is_array = file.suffix == ".json" and line.lstrip().startswith("[")
        text = "".join([line, *(more for _, more in lines)]) if is_array else line.strip()
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            place = number + getattr(error, "lineno", 1) - 1
            reason = getattr(error, "msg", type(error).__name__)
            raise InputError(f"{rule}, line {place} is not JSON: {reason}; correct it") from error
        for place, record in enumerate(content, 1) if is_array else [(number, content)]:
            if not isinstance(record, dict):
                what = "item" if is_array else "line"
                raise InputError(f"{rule}, {what} {place} is {record!r:.60}; correct it")
            yield place, record


def read_records(file: File, records: Records, wanted: Sequence[str], *, cells: bool) -> Table:
    """Read some columns of a text file.

    Args:
        file: the file.
        records: reads its rows.
        wanted: names of the columns.
        cells: whether numbers and lists come as strings.
    """
    columns: dict[str, list[Any]] = {name: [] for name in wanted}
    lines = array("q")
    for line, record in records(file):
        for name, values in columns.items():
            if name not in record:
                raise InputError(
                    f"every object must have the key {name!r}: {file.name} lacks it in line "
                    f"{line}, which has {join_names(record)}; correct the line"
                )
            values.append(record[name])
        lines.append(line)
    return Table(file.name, columns, lines, all_strings=cells)


def open_records(file: File, records: Records, *, cells: bool = False) -> Source:
    """Open a text file whose rows a function reads; for the arguments see `read_records`."""
    present: dict[str, list[Any]] = {}
    empty = True
    for _, record in islice(records(file), GLANCE):
        empty = False
        for name, value in record.items():  # any object may bring new keys or leave some out
            present.setdefault(name, []).extend([] if value is None else [value])
    if empty:
        raise InputError(f"{file.name} is empty; it must hold one JSON object per line")
    columns = {name: tell_content(values, cells) for name, values in present.items()}
    read = partial(read_records, file, records, cells=cells)
    return Source(file.name, columns, read)


def open_parquet(file: File) -> Source:
    """Open a Parquet file."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    @contextmanager
    def opened() -> Iterator[Any]:
        with reading(file.name):  # the system's own words where it will not open
            raw = file.open_bytes()
        try:
            with raw, ParquetFile(raw) as parquet:
                yield parquet
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(f"cannot read {file.name} as Parquet: {first_line(error)}") from error

    def read(wanted: Sequence[str]) -> Table:
        with opened() as parquet:
            table = parquet.read(columns=list(wanted))
            return Table(file.name, {name: table[name].to_pylist() for name in wanted})

    with opened() as parquet:
        schema = parquet.schema_arrow
    _check_unique(file.name, schema.names)
    columns = {column.name: content_of(column.type) for column in schema}
    return Source(file.name, columns, read, _class_names_in(schema.metadata))


def _class_names_in(metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """Return the class names that the `datasets` library notes in a schema, where it wrote it."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"].items()
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return {}
    return find_names(dict(features))


def find_names(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the class names of columns, or of the items of their lists.

    Args:
        features: of the columns, as the `datasets` library writes them.
    """
    class_names = {}
    for column, feature in features.items():
        if isinstance(feature, dict) and feature.get("_type") in ("List", "LargeList", "Sequence"):
            feature = feature.get("feature")
        if not isinstance(feature, dict) or feature.get("_type") != "ClassLabel":
            continue
        names = feature.get("names")
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            class_names[column] = tuple(names)
    return class_names


def content_of(arrow: Any) -> Content:
    """Return what a column of an Arrow type holds."""
    import pyarrow.types as types

    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return "words" if content_of(arrow.value_type) == "text" else "list"
    kind = arrow.value_type if types.is_dictionary(arrow) else arrow
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return "text" if text else "other"


def _check_unique(name: str, columns: Sequence[str]) -> None:
    """Raise if column names occur twice."""
    for column, count in Counter(columns).items():
        if count > 1:
            raise InputError(
                f"column names must differ, {name} has {column!r} {count} times; "
                "rename one (the first line must be a header)"
            )
