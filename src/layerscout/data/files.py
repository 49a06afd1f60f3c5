"""Files of rows: CSV, TSV, JSON and Parquet."""

import csv
import gzip
import json
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from layerscout.data.tables import Content, Source, Table, join_names, tell_content
from layerscout.errors import InputError


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the system says about an unreadable path into one line."""
    try:
        yield
    except (EOFError, zlib.error) as error:
        raise InputError(f"cannot read {path}: it is not a complete gzip file ({error})") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def find_suffix(path: Path) -> str:
    """Return the ending of a file's name in lower case; ".csv" also for a compressed x.csv.gz."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, line with its end) of a text file that must be clean UTF-8."""
    compressed = path.suffix.lower() == ".gz"
    with reading(path), gzip.open(path, "rb") if compressed else path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise InputError(
                    f"text files must be UTF-8, {path} is UTF-16; "
                    "convert it, for example with `iconv -f UTF-16 -t UTF-8`"
                )
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if b"\0" in line:
                raise InputError(
                    f"text files must not hold NUL bytes, {path} has one in line {number}; "
                    "remove it, or convert the file to UTF-8 if it is UTF-16"
                )
            try:
                decoded = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"text files must be UTF-8, {path} has the byte 0x{line[error.start]:02x} in "
                    f"line {number}; convert it, for example with `iconv -f CP1252 -t UTF-8`"
                ) from error
            yield number, decoded


# How the names of files of JSON end, with one object a line or an array of them, and of Parquet.
JSON_LINES, PARQUET = (".jsonl", ".ndjson"), (".parquet",)
JSON = (*JSON_LINES, ".json")
DELIMITED = (".csv", ".tsv")

# What may stand between the fields of a CSV file; the first one that its first line has.
DELIMITERS = (",", ";", "\t", "|")

# How many rows are looked at to tell columns of text from columns of numbers.
GLANCE = 100


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


def _csv_rows(path: Path, sep: str | None) -> Iterator[tuple[int, list[str]]]:
    """Yield (first line, cells) of each row, quoted as RFC 4180 says; blank lines are skipped.

    Spreadsheets of some languages write semicolons between the fields.
    """
    delimiter = sep or tell_separator(next((line for _, line in read_lines(path)), ""))
    lines = (line for _, line in read_lines(path))
    reader = csv.reader(lines, strict=True, delimiter=delimiter)
    start = 1
    try:
        for cells in reader:
            if cells:
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path} is not valid CSV in the row that begins in line {start}: {error}; "
            'quote a field as "...", and a quote in it as ""'
        ) from error


def _tsv_rows(path: Path, sep: str | None) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of each row; quotes are ordinary text, blank lines are skipped."""
    for number, line in read_lines(path):
        line = line.removesuffix("\n").removesuffix("\r")
        if line:
            yield number, line.split(sep or "\t")


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let csv read fields of any length: its limit is 128 KiB, and one for the whole process."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _cell_records(path: Path, sep: str | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, cells by column) of each row of a CSV or TSV file."""
    rows = (_tsv_rows if find_suffix(path) == ".tsv" else _csv_rows)(path, sep)
    names = next(rows, (0, []))[1]
    if not names:
        raise InputError(f"{path} is empty; its first line must name the columns")
    _check_unique(path, names)
    line = 0
    for line, cells in rows:
        if len(cells) != len(names):
            lone = len(names) == 1
            remedy = "give the separator of the fields (--sep)" if lone else "correct the line"
            raise InputError(
                f"every row must have as many fields as the header: {path} has {len(names)} "
                f"column{'s'[: not lone]}, but {len(cells)} field{'s'[: len(cells) != 1]} in line "
                f"{line}; {remedy}"
            )
        yield line, dict(zip(names, cells, strict=True))
    if not line:
        raise InputError(f"{path} has no rows; it needs some below the column names")


def json_record(line: str | bytes, path: str | Path, number: int) -> dict[str, Any]:
    """Read a line of a file with one JSON object a line.

    Raises:
        InputError: if it is not one.
    """
    rule = f"{path} must hold one JSON object per line, line {number} is"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise InputError(f"{rule} not JSON: {reason}; correct the line") from error
    if not isinstance(record, dict):
        raise InputError(f"{rule} {_name_kind(record)}; correct the line")
    return record


def _json_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, values by key) of a file with one JSON object a line; blank ones are skipped."""
    lines = ((number, line) for number, line in read_lines(path) if line.strip())
    for number, line in lines:
        if find_suffix(path) == ".json" and line.lstrip().startswith("["):
            yield from _json_items("".join([line, *(more for _, more in lines)]), path)
            return
        yield number, json_record(line, path, number)


def _json_items(text: str, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number of the item, values by key) of an array of objects."""
    rule = f"{path} must hold an array of objects, or one object per line"
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"{rule}; it is not JSON{line}: {reason}") from error
    for number, item in enumerate(items, start=1):
        if not isinstance(item, dict):
            raise InputError(f"{rule}; item {number} is {_name_kind(item)}; correct it")
        yield number, item


def _name_kind(value: Any) -> str:
    """Name what JSON holds where an object is needed."""
    kinds = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _open_text(path: Path, sep: str | None = None) -> Source:
    """Open a CSV, TSV or JSON file; `sep` is for the first two."""
    is_json = find_suffix(path) in JSON
    records = _json_records if is_json else partial(_cell_records, sep=sep)

    def read(wanted: Sequence[str]) -> Table:
        columns: dict[str, list[Any]] = {name: [] for name in wanted}
        lines = array("q")
        with _long_fields():
            for line, record in records(path):
                for name, values in columns.items():
                    if name not in record:
                        raise InputError(
                            f"every object must have the key {name!r}: {path} lacks it in line "
                            f"{line}, which has {join_names(record)}; correct the line"
                        )
                    values.append(record[name])
                lines.append(line)
        return Table(str(path), columns, lines, all_strings=not is_json)

    with _long_fields():
        glance = [record for _, record in islice(records(path), GLANCE)]
    present: dict[str, list[Any]] = {}
    for record in glance:  # any object may bring new keys or leave some out
        for name, value in record.items():
            present.setdefault(name, []).extend([] if value is None else [value])
    if not glance:
        raise InputError(f"{path} is empty; it must hold one JSON object per line")
    columns = {name: tell_content(values, not is_json) for name, values in present.items()}
    return Source(str(path), columns, read)


def _open_parquet(path: Path) -> Source:
    """Open a Parquet file; one file at a time, so that folder names never become columns."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    @contextmanager
    def opened() -> Iterator[Any]:
        with reading(path), path.open("rb"):  # the system's own words where it will not open
            pass
        try:
            with ParquetFile(path) as file:
                yield file
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"cannot read {path} as Parquet: {reason}") from error

    def read(wanted: Sequence[str]) -> Table:
        with opened() as file:
            table = file.read(columns=list(wanted))
            return Table(str(path), {name: table[name].to_pylist() for name in wanted})

    with opened() as file:
        schema = file.schema_arrow
    _check_unique(path, schema.names)
    columns = {column.name: content_of(column.type) for column in schema}
    return Source(str(path), columns, read, class_names_in(schema.metadata))


def class_names_in(metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
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


def _check_unique(path: Path, names: Sequence[str]) -> None:
    """Raise if column names occur twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(
                f"column names must differ, {path} has {name!r} {count} times; "
                "rename one (the first line must be a header)"
            )
