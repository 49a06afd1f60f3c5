"""Files of rows: CSV, TSV, JSON and Parquet."""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from layerscout.data.columns import WORD_NAMES
from layerscout.data.delimited import check_unique
from layerscout.data.lines import File, read_lines, reading
from layerscout.data.tables import GLANCE, Content, Source, Table, join_names, tell_content
from layerscout.errors import InputError, first_line

# How the names of files end that hold one JSON object a line, and of Parquet.
JSON_LINES, PARQUET = (".jsonl", ".ndjson"), (".parquet",)

# The rows of a text file, each with its line and its values by column.
Records = Callable[[File], Iterator[tuple[int, dict[str, Any]]]]


def json_records(file: File) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, values by key) of a file with one JSON object a line; blank ones are skipped.

    The file may also be one value that holds all rows; then yield the number of the row.
    """
    rule = f"{file.name} must hold one JSON object per line"
    rule += " or an array of them" if file.suffix == ".json" else ""
    lines = ((number, line) for number, line in read_lines(file) if line.strip())
    head = list(islice(lines, 2))
    start = head[0][1].strip() if head else ""
    texts: Iterable[tuple[int, str]] = (
        (number, line.strip()) for number, line in chain(head, lines)
    )
    if whole := file.suffix == ".json" and (start == "{" or start.startswith("[")):
        texts = [(head[0][0], "".join(line for _, line in chain(head, lines)))]
    for number, text in texts:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            place = number + getattr(error, "lineno", 1) - 1
            reason = getattr(error, "msg", type(error).__name__)
            raise InputError(f"{rule}, line {place} is not JSON: {reason}; correct it") from error
        rows = None
        if whole or len(head) == 1:
            rows = _find_rows(content, rule)
        for place, record in [(number, content)] if rows is None else enumerate(rows, 1):
            if not isinstance(record, dict):
                what = "line" if rows is None else "item"
                raise InputError(f"{rule}, {what} {place} is {record!r:.60}; correct it")
            yield place, record


def _is_array(value: Any) -> bool:
    """Return whether a value is a list of objects."""
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _find_rows(content: Any, rule: str) -> list[Any] | None:
    """Return the rows that one value of JSON holds; None where it is itself a row.

    It is an array, an object with an array as "data" or alone, or what pandas' to_json writes with
    an `orient` of "columns" (the default), "index", "split" or "table", or a list by column.

    Raises:
        InputError: if it holds several arrays; it begins with the rule that is broken.
    """
    if not isinstance(content, dict) or not content:
        return content if isinstance(content, list) else None
    values = list(content.values())
    if len(values) > 1 and all(map(_is_array, values)):
        raise InputError(
            f"{rule}, and has several: {join_names(content)}; write a file for each, such as "
            "train.json and test.json in a folder"
        )
    rows = content.get("data", values[0] if len(values) == 1 else None)
    if isinstance(rows, list) and _is_array(rows):
        return rows
    names = content.get("columns")
    if isinstance(names, list) and isinstance(rows, list):
        fits = all(isinstance(row, list) and len(row) == len(names) for row in rows)
        return [dict(zip(map(str, names), row, strict=True)) for row in rows] if fits else None
    first = values[0]
    if isinstance(first, dict) and first and len(values) > 1:
        if any(not isinstance(value, dict) or value.keys() != first.keys() for value in values):
            return None
        if all(map(str.isdecimal, content)):
            return values
        return [{name: content[name][key] for name in content} for key in first]
    if len(values) < 2 or not all(isinstance(value, list) for value in values):
        return None
    words = [content[name] for name in content.keys() & set(WORD_NAMES)]  # of one sentence
    if len(set(map(len, values))) > 1 or any(
        isinstance(word, str) for some in words for word in some
    ):
        return None
    return [dict(zip(content, row, strict=True)) for row in zip(*values, strict=True)]


def open_records(file: File, records: Records) -> Source:
    """Open a text file whose rows a function reads."""

    def read(wanted: Sequence[str]) -> Table:
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
        return Table(file.name, columns, lines, notes=tuple(file.notes))

    def stream(size: int) -> Iterator[Table]:
        rows = records(file)
        while some := list(islice(rows, size)):
            names = dict.fromkeys(chain(present, *(record for _, record in some)))
            columns = {name: [record.get(name) for _, record in some] for name in names}
            yield Table(file.name, columns, [line for line, _ in some], notes=tuple(file.notes))

    present: dict[str, list[Any]] = {}
    for _, record in islice(records(file), GLANCE):
        for name, value in record.items():  # any object may bring new keys or leave some out
            present.setdefault(name, []).extend([] if value is None else [value])
    if not present:
        what = "a text on each line" if records is text_records else "one JSON object per line"
        raise InputError(f"{file.name} is empty; it must hold {what}")
    columns = {name: tell_content(some) for name, some in present.items()}
    return Source(file.name, columns, read, stream=stream)


def text_records(file: File) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, its text by the name "text") of a file that has nothing but texts."""
    for number, line in read_lines(file):
        yield number, {"text": line.rstrip("\r\n")}


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
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise InputError(f"cannot read {file.name} as Parquet: {first_line(error)}") from error

    def read(wanted: Sequence[str]) -> Table:
        with opened() as parquet:
            table = parquet.read(columns=list(wanted))
            return Table(file.name, {name: table[name].to_pylist() for name in wanted})

    def stream(size: int) -> Iterator[Table]:
        start = 0
        with opened() as parquet:
            for batch in parquet.iter_batches(size):
                rows = range(start, start := start + len(batch))
                yield Table(file.name, batch.to_pydict(), rows=rows, arrow=batch)

    with opened() as parquet:
        schema = parquet.schema_arrow
    check_unique(file.name, schema.names)
    columns = {column.name: content_of(column.type) for column in schema}
    return Source(file.name, columns, read, _class_names_in(schema.metadata), stream)


def write_parquet(columns: Mapping[str, Any], path: Path) -> None:
    """Write columns of numbers, truths, texts, or lists of one of them into a Parquet file.

    None is a value that is missing.
    """
    import pyarrow as pa
    from pyarrow.parquet import write_table

    names, arrays = list(columns), [_make_array(pa, values) for values in columns.values()]
    write_table(pa.Table.from_arrays(arrays, names), path)


def _make_array(pa: Any, values: Sequence[Any] | np.ndarray) -> Any:
    """Do what `pyarrow.array` does, which imports pandas first: 0.4 s of a processor."""
    count, there = len(values), None
    first = next((value for value in values if value is not None), 0.0)
    if not isinstance(values, np.ndarray) and any(value is None for value in values):
        there = _pack(pa, [value is not None for value in values])
        values = [type(first)() if value is None else value for value in values]
    if isinstance(first, str):
        encoded = [text.encode() for text in values]
        bounds = pa.py_buffer(np.cumsum([0, *map(len, encoded)]))
        buffers = [there, bounds, pa.py_buffer(b"".join(encoded))]
        return pa.Array.from_buffers(pa.large_string(), count, buffers)
    if isinstance(first, Sequence | np.ndarray):
        buffers = [there, pa.py_buffer(np.cumsum([0, *map(len, values)]))]
        items = _make_array(pa, list(chain(*values)))
        return pa.Array.from_buffers(pa.large_list(items.type), count, buffers, children=[items])
    numbers = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(numbers.dtype)
    held = _pack(pa, numbers) if numbers.dtype == bool else pa.py_buffer(numbers)
    return pa.Array.from_buffers(kind, count, [there, held])


def _pack(pa: Any, truths: Sequence[bool] | np.ndarray) -> Any:
    """Pack truths into bits, as Arrow has them."""
    return pa.py_buffer(np.packbits(truths, bitorder="little"))


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
