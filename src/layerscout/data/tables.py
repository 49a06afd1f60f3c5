"""One split of labelled data before and after it is read, and the lists in its columns."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

import numpy as np

from layerscout.errors import InputError

# What a column holds: strings, lists of strings, other lists, or anything else.
Content = Literal["text", "words", "list", "other"]

Rows = Sequence[Any] | np.ndarray  # an entry a row, as Python users bring it

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

# How many rows are looked at to tell columns of text from columns of numbers.
GLANCE = 100

# What cells hold that say yes or no.
WRITTEN_FLAGS = {"1": True, "0": False, "1.0": True, "0.0": False, "true": True, "false": False}

# What to do about missing values.
FILL = "fill them in, or leave such rows out with --drop-missing"


@dataclass(frozen=True)
class Table:
    """Columns of one split, read.

    Attributes:
        name: what messages call the split.
        columns: a list of n values each, by name.
        lines: where the n rows start in a text file, counted from 1; None where there are no lines.
        all_strings: whether numbers come as strings, because CSV and TSV do not tell 1 from "1".
        files: the first row of each file, by its path, where the rows are of several.
        rows: where each row stands in the file, counted from 0, if these are some of its rows or
            the items of its lists; None where they are all of them.
        notes: what should be known of how they were read, a line each.
        arrow: the same rows as Parquet has them, with the types of their columns; None of others.
    """

    name: str
    columns: Mapping[str, list[Any]]
    lines: Sequence[int] | None = None
    all_strings: bool = False
    files: Mapping[str, int] = field(default_factory=dict)
    rows: Sequence[int] | None = None
    notes: tuple[str, ...] = ()
    arrow: Any = None

    def __len__(self) -> int:
        """Count the rows."""
        return len(next(iter(self.columns.values())))

    def find_missing(self, column: str, others: Sequence[Any] = ()) -> list[int]:
        """Find the rows of a column that are null, blank, NaN in a text file, or in `others`."""
        gaps = (*(("nan", "NaN") if self.all_strings else ()), *others)
        return [
            row
            for row, value in enumerate(self.columns[column])
            if is_missing(value) or value in gaps or (isinstance(value, str) and not value.strip())
        ]

    def drop_missing(self, column: str) -> Table:
        """Return the rows with a value in a column: not null, not blank, no NaN in text files."""
        missing = set(self.find_missing(column))
        if not missing:
            return self
        return self.keep([row for row in range(len(self)) if row not in missing])

    def keep(self, kept: Sequence[int]) -> Table:
        """Return some of the rows, by their numbers."""
        places = range(len(self)) if self.rows is None else self.rows
        columns = {name: [some[row] for row in kept] for name, some in self.columns.items()}
        arrow = None if self.arrow is None else self.arrow.take(np.array(kept, np.int64))
        return replace(self, columns=columns, rows=[places[row] for row in kept], arrow=arrow)

    def fault(self, rule: str, actual: str, column: str, row: int, remedy: str) -> InputError:
        """Build the error for a value that breaks a rule, saying where it is in the file."""
        row = row if self.rows is None else self.rows[row]
        starts = {first: path for path, first in self.files.items() if first <= row}
        first = max(starts, default=0)
        name = starts.get(first, self.name)
        where = f"line {self.lines[row]}" if self.lines else f"row {row - first} (counted from 0)"
        return InputError(f"{rule}: {name} has {actual} in {where}, column {column!r}; {remedy}")


@dataclass(frozen=True)
class Source:
    """One split before it is read.

    Attributes:
        name: what messages call the split.
        columns: what each column, by name, holds.
        read: reads the columns of the given names.
        classes: the class names by id that the data bring along, for columns that have them.
        stream: yields all columns of at most so many rows at a time; None where the rows are in
            memory anyway.
    """

    name: str
    columns: Mapping[str, Content]
    read: Callable[[Sequence[str]], Table]
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stream: Callable[[int], Iterator[Table]] | None = None

    def read_chunks(self, size: int) -> Iterator[Table]:
        """Yield all columns, of at most `size` rows at a time."""
        if self.stream is not None:
            yield from self.stream(size)
            return
        table = self.read(list(self.columns))
        for start in range(0, len(table), size):
            yield table.keep(range(start, min(start + size, len(table))))


def name_value(value: Any) -> str:
    """Write a value, perhaps cut, and its type."""
    return f"{value!r:.60} ({type(value).__name__})"


def is_missing(value: Any) -> bool:
    """Return whether a value is null or not-a-number."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def join_names(names: Iterable[str]) -> str:
    """List names in one line of bounded length, whatever is in them."""
    plain = (name if name.strip() and name.isprintable() else repr(name) for name in names)
    first = list(islice(plain, 21))
    return ", ".join(f"{name:.60}" for name in first[:20]) + ", ..." * (len(first) > 20) or "none"


def name_some(names: Sequence[str], most: int = 5, write: Callable[[str], str] = repr) -> str:
    """Quote the first of some names, or write them in another way, and count the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"{write(name):.60}" for name in names[:most]) + more


def from_memory(name: str, texts: Rows, labels: Rows, pairs: Rows | None = None) -> Source:
    """Make the source of n texts and labels; columns are "text", "text_pair" if given, "label".

    Raises:
        InputError: if one is no list, or they differ in length.
    """
    columns: dict[str, list[Any]] = {}
    for column, values in {"text": texts, "text_pair": pairs, "label": labels}.items():
        if values is None:
            continue
        if isinstance(values, str):
            raise InputError(
                f"{column}s of {name} must be a list with one entry per row, got a single string"
            )
        columns[column] = [
            make_plain(value)
            for value in (values.tolist() if hasattr(values, "tolist") else values)
        ]
        if len(columns[column]) != len(columns["text"]):
            raise InputError(
                f"every row of {name} needs a text and a label: "
                f"got {len(columns['text'])} texts and {len(columns[column])} {column}s"
            )
    return Source(name, dict.fromkeys(columns, "text"), lambda wanted: Table(name, columns))


def make_plain(value: Any) -> Any:
    """Turn an entry of Python lists into what files give: lists and Python's own numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple | set | frozenset):
        return [make_plain(item) for item in value]
    return value


# Lists as NumPy prints them, without commas: Python would join the strings into one.
JOINED = re.compile(r"""\[\s*(['"])[^'",]*\1\s+['"]""")


def is_list(value: Any, cell: bool) -> bool:
    """Return whether a value is a list, or the cell of a text file with one in square brackets."""
    if cell and isinstance(value, str):
        bare = value.strip()
        return bare.startswith("[") and bare.endswith("]")
    return isinstance(value, list)


def tell_content(values: Sequence[Any], cells: bool = False) -> Content:
    """Return what a column holds by some of its values.

    Args:
        values: none of them missing.
        cells: whether they are cells of a text file, where numbers and lists come as strings.
    """
    if values and all(is_list(value, cells) for value in values):
        lists = [read_cell(value) if cells else value for value in values]
        items_read = [item for items in lists if items is not None for item in items]
        return "words" if all(isinstance(item, str) for item in items_read) else "list"
    if not values or not all(isinstance(value, str) for value in values):
        return "other"
    return "other" if cells and all(map(NUMBER.fullmatch, values)) else "text"


def read_flag(value: Any, cell: bool) -> bool | None:
    """Return what 0 and 1, or false and true, say; None if a value or the cell is neither."""
    if cell:
        value = WRITTEN_FLAGS.get(value.strip().lower())
    number = isinstance(value, int | float) and value in (0, 1)  # True and False too
    return bool(value) if number else None


def read_cell(cell: str) -> list[Any] | None:
    """Read a list in a cell, as JSON or Python write it; give None if it is none."""
    if JOINED.search(cell):
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            content = read(cell.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(content, list):
            return content
    return None


def read_lists(table: Table, column: str, rule: str, remedy: str) -> list[list[Any]]:
    """Return the lists of a column, of which every row must have one.

    Args:
        table: n rows.
        column: of the lists.
        rule: what every row must have.
        remedy: what to do where it is missing.

    Raises:
        InputError: if a row has no list.
    """
    values, cells = table.columns[column], table.all_strings
    if gaps := table.find_missing(column):
        actual = f"{len(gaps)} missing, the first"
        raise table.fault(rule, actual, column, gaps[0], remedy)
    first = is_list(values[0], cells)
    for row, value in enumerate(values):
        if is_list(value, cells) != first:
            actual = f"{name_value(value)} beside {values[0]!r:.60}"
            raise table.fault(rule, actual, column, row, "write all of them as lists")
    if not first:
        raise table.fault(rule, name_value(values[0]), column, 0, "name another column")
    if not cells:
        return values
    lists = []
    for row, value in enumerate(values):
        read = read_cell(value)
        if read is None:
            form = """write it as JSON, such as ["joy", "fear"]"""
            raise table.fault(rule, f"{value!r:.60}", column, row, form)
        lists.append(read)
    return lists


def lay_out(
    table: Table, column: str, lists: Sequence[list[Any]], *, cells: bool = False
) -> tuple[Table, np.ndarray]:
    """Lay the items of lists out one after the other.

    Args:
        table: n rows.
        column: of the lists.
        lists: n of them.
        cells: whether items are strings even where they are numbers.

    Returns:
        A table with a row for each of the m items, whose faults tell the row of the list; and the
        list that each item is of, int64 (m,).
    """
    rows = np.repeat(np.arange(len(lists)), list(map(len, lists)))
    places = rows if table.rows is None else np.asarray(table.rows)[rows]
    values = {column: [item for items in lists for item in items]}
    return replace(table, columns=values, all_strings=cells, rows=places.tolist()), rows


def check_items(items: Table, column: str, what: str, remedy: str) -> None:
    """Raise unless the items of lists are names or whole numbers.

    Args:
        items: a row for each.
        column: that they are in.
        what: they are, in words.
        remedy: what to do where one is none.
    """
    for row, value in enumerate(items.columns[column]):
        if isinstance(value, bool) or not isinstance(value, str | int):
            rule, actual = f"{what} must be strings or integers", name_value(value)
            raise items.fault(rule, actual, column, row, remedy)
        if isinstance(value, str) and not value.strip():
            raise items.fault(f"{what} must have a name", repr(value), column, row, remedy)
