"""Rows of CSV and TSV files, as the programs that write such files mean them."""

import csv
import re
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice
from typing import TypeVar

from layerscout.data.lines import File, read_lines
from layerscout.data.tables import GLANCE, Source, Table, join_names, tell_content
from layerscout.errors import InputError

T = TypeVar("T")

DELIMITED = (".csv", ".tsv")

# What may stand between the fields of a CSV file; the first one that its first line has.
DELIMITERS = (",", ";", "\t", "|")

# What nobody sees: spaces, the end of a file in DOS, and marks of the byte order.
BLANK = " \t\r\n\xa0\u200b\ufeff\x1a"

# Where Excel writes what stands between the fields.
DIRECTIVE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)

# A field in quotes, with others in it as "" or as \\".
ENCLOSED = re.compile(r'''"[^"]*(?:""[^"]*)*"|"[^"\\]*(?:\\.[^"\\]*)*"''')

# The name of a column after a space.
SPACED = re.compile(r" +\S")

# What is said of a file that is written in a way which not every program reads so.
NOTES = {
    "spaced": "the spaces after the separators of {} are not read",
    "escaped": 'quotes in fields of {} are written as \\" and read as quotes',
    "row_names": "the rows of {} begin with a {} that the header does not name: row names",
}


@dataclass(frozen=True)
class Dialect:
    """How the fields of a file are written.

    Attributes:
        delimiter: what stands between them.
        above: how many lines above the header are no rows.
        quoted: whether quotes enclose fields, as RFC 4180 says; else they are text.
        spaced: whether spaces after a delimiter are not part of a field.
        escaped: whether a quote in a quoted field is \\", as Spark and R's write.table have it.
        row_names: what rows begin with that the header has no name for, as in R: a "number", or a
            "name", other in each row; else nothing.
        sure: whether it is read so even where the file looks as if another dialect were meant.
    """

    delimiter: str
    above: int = 0
    quoted: bool = True
    spaced: bool = False
    escaped: bool = False
    row_names: str = ""
    sure: bool = False


class _MisfitError(InputError):
    """Raised where a file is not written in a dialect."""


def open_cells(file: File, sep: str | None = None) -> Source:
    """Open a CSV or TSV file, which is read in the first way in which all of it can be.

    Args:
        file: the file.
        sep: what stands between its fields; by default that is told from its first line.
    """
    ways = list_dialects(file, sep)

    def attempt(read: Callable[[Dialect], T]) -> T:
        for way in ways:
            try:
                return read(way)
            except _MisfitError as error:
                misfit = error
        raise misfit

    def read(wanted: Sequence[str] | None = None, most: int | None = None) -> Table:
        [table] = attempt(lambda way: list(_stream_cells(file, way, wanted, most)))
        return replace(table, notes=tuple(file.notes))

    @cache
    def find_way(size: int) -> Dialect:
        def try_all(way: Dialect) -> Dialect:
            deque(_stream_cells(file, way, size=size), maxlen=0)
            return way

        return attempt(try_all)

    def stream(size: int) -> Iterator[Table]:
        yield from _stream_cells(file, find_way(size), size=size)

    columns = read(most=GLANCE).columns
    contents = {name: tell_content(some, True) for name, some in columns.items()}
    return Source(file.name, contents, read, stream=stream)


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


def list_dialects(file: File, sep: str | None = None) -> list[Dialect]:
    """List how a file may be written, the most usual way first; for `sep` see `open_cells`."""
    above = 0
    header = ""
    for _, header in read_lines(file, universal=True):
        # A name of a column may begin with #, but not with a space after it, or as the only one.
        if not header.startswith("#") or (
            header[1:2] != " " and any(mark in header for mark in (*DELIMITERS, sep or ","))
        ):
            break
        above += 1
    if above:
        file.note(f"lines above the header of {file.name} that begin with # are not read: {above}")
    told = DIRECTIVE.fullmatch(header.rstrip("\r\n"))
    usual = "\t" if file.suffix == ".tsv" else tell_separator(header)
    mark = read_separator(sep) if sep is not None else told[1] if told else usual
    plain = Dialect(mark, above + bool(told))
    ways = [plain, replace(plain, spaced=True), replace(plain, escaped=True)]
    if file.suffix == ".tsv":
        ways = [replace(plain, quoted=False), plain, ways[2]]
    # R encloses names in quotes; a header without any may be one of texts with separators.
    unnamed = ["number", "name"] if header.startswith('"') else ["number"]
    named = [replace(way, row_names=what) for what in unnamed for way in ways]
    return [*ways, *named, replace(ways[0], sure=True)]


def _split_lines(file: File, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield (first line, cells) of each row."""
    last = 0
    mark = re.escape(dialect.delimiter)
    # A text in quotes may begin with a space and a quote as well, which is then doubled.
    spaced = re.compile(rf'{mark} +"(?!"|{mark}|\r|\n|$)')
    watched = dialect.quoted and not dialect.spaced and not dialect.sure

    def fed() -> Iterator[str]:
        nonlocal last
        for last, line in read_lines(file, universal=dialect.quoted):
            if last <= dialect.above:
                continue
            if watched and ' "' in line and spaced.search(dialect.delimiter + line):
                raise _MisfitError
            yield re.sub(r'(?<!\\)\\"', '""', line) if dialect.escaped else line

    if not dialect.quoted:
        for line in fed():
            yield last, line.rstrip("\r\n").split(dialect.delimiter)
        return
    csv.field_size_limit(2**31 - 1)  # of the whole process, and 128 KiB unless it is set
    reader = csv.reader(
        fed(), strict=True, delimiter=dialect.delimiter, skipinitialspace=dialect.spaced
    )
    start = 1
    try:
        for cells in reader:
            yield start, cells
            start = last + 1
    except csv.Error as error:
        raise _MisfitError(
            f"{file.name} is not valid CSV in the row that begins in line {start}: {error}; "
            'quote a field as "...", and a quote in it as ""'
        ) from error


def _read_rows(file: File, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of the header and of each row, which has as many.

    Rows without anything are left out: spreadsheets write some below a table. So are headers of
    files that were joined to one, and empty fields beyond those of the header.
    """
    names: list[str] = []
    seen: set[str] = set()
    empty = repeated = 0
    for line, cells in _split_lines(file, dialect):
        if not "".join(cells).strip(BLANK):
            empty += len(cells) > 1 or cells == [""]  # "" alone, and no blank line
            continue
        if not names:
            header = cells
            names = [""] * bool(dialect.row_names) + cells
            wanted = len(names)
            yield line, names
            continue
        if cells == header:
            repeated += 1
            continue
        if len(cells) != wanted:
            named = max(place for place, name in enumerate(names, 1) if name.strip())
            if len(cells) < named or any(cells[wanted:]):
                raise _refuse_row(file, wanted - bool(dialect.row_names), len(cells), line)
            cells = [*cells, *[""] * (wanted - len(cells))][:wanted]
        if dialect.row_names:
            number = dialect.row_names == "number"
            if not cells[0].isdecimal() if number else cells[0] in seen:
                raise _MisfitError
            seen.add(cells[0])
        yield line, cells
    if repeated:
        file.note(f"rows of {file.name} that repeat its header are left out: {repeated:,}")
    if empty:
        file.note(f"rows of {file.name} with nothing in any field are left out: {empty:,}")


def _refuse_row(file: File, columns: int, fields: int, line: int) -> InputError:
    """Build the error for a row that has not as many fields as the header."""
    lone = columns == 1
    remedy = "correct the line"
    if lone:
        remedy = "give the separator of the fields (--sep), or remove what stands above the header"
    return _MisfitError(
        f"every row must have as many fields as the header: {file.name} has {columns} "
        f"column{'s'[: not lone]}, but {fields} field{'s'[: fields != 1]} in line {line}; {remedy}"
    )


def _stream_cells(
    file: File,
    dialect: Dialect,
    wanted: Sequence[str] | None = None,
    most: int | None = None,
    size: int | None = None,
) -> Iterator[Table]:
    """Yield `most` rows of a file, `size` at a time; whether all fit a dialect shows in the end."""
    every = _read_rows(file, dialect)
    names = next(every, (0, []))[1]
    rows = islice(every, most)
    if not names:
        raise InputError(f"{file.name} is empty; its first line must name the columns")
    if (
        dialect.quoted
        and not (dialect.spaced or dialect.sure)
        and any(map(SPACED.match, names[1:]))
    ):
        raise _MisfitError
    check_unique(file.name, [name for name in names if name.strip()])
    # The first column may be row names, or texts; others without a name are leftovers.
    left = [place for place, name in enumerate(names) if place and not name.strip()]
    places = {name: place for place, name in enumerate(names) if place not in left}
    if absent := [name for name in wanted or () if name not in places]:
        raise _MisfitError(f"{file.name} must have the column {absent[0]!r}: {join_names(places)}")
    read = spilled = 0
    quoted = [name for name in names if '"' in name]
    wanted = list(places) if wanted is None else wanted
    while True:
        columns: dict[str, list[str]] = {name: [] for name in wanted}
        chosen = [(values.append, places[name]) for name, values in columns.items()]
        lines = array("q")
        for line, cells in islice(rows, size):
            lines.append(line)
            for append, place in chosen:
                append(cells[place])
            if left:
                spilled += any(cells[place].strip() for place in left)
        if not lines:
            break
        if not dialect.quoted:
            quoted += [field for field in chain(*columns.values()) if '"' in field]
        read += len(lines)
        yield Table(file.name, columns, lines, all_strings=True, notes=tuple(file.notes))
    if not read:
        raise InputError(f"{file.name} has no rows; it needs some below the column names")
    example = ""
    if not dialect.quoted:
        enclose, example = _find_quotes(names, quoted, read)
        if enclose and not dialect.sure:
            raise _MisfitError
    if most is None:
        _note_reading(file, dialect, example, spilled)


def _note_reading(file: File, dialect: Dialect, example: str, spilled: int) -> None:
    """Note how a file was read, where not every program reads it so."""
    for attribute, note in NOTES.items():
        if value := getattr(dialect, attribute):
            file.note(note.format(file.name, value))
    if dialect.quoted and file.suffix == ".tsv":
        file.note(f"the quotes around fields of {file.name} are not read, as in CSV")
    if example:
        file.note(
            f"quotes at both ends of fields of {file.name} are read as text, such as "
            f"{example!r:.60}; rename the file to .csv if they only enclose fields"
        )
    if spilled:
        file.note(
            f"columns of {file.name} without a name are not read, and have something in "
            f"{spilled:,} row{'s'[: spilled != 1]}"
        )


def _find_quotes(names: Sequence[str], fields: Sequence[str], rows: int) -> tuple[bool, str]:
    """Return whether quotes in fields enclose them for certain, and an example if most do.

    All that are in fields must, and there must be more in these, or in the header, or in half of
    the rows.
    """
    whole = list(filter(ENCLOSED.fullmatch, fields))
    sure = any(map(ENCLOSED.fullmatch, names)) or any('"' in field[1:-1] for field in whole)
    certain = 0 < len(whole) == len(fields) and (sure or 2 * len(whole) > rows)
    return certain, whole[0] if 2 * len(whole) > len(fields) else ""


def check_unique(name: str, columns: Sequence[str]) -> None:
    """Raise if column names occur twice."""
    for column, count in Counter(columns).items():
        if count > 1:
            raise InputError(
                f"column names must differ, {name} has {column!r} {count} times; "
                "rename one (the first line must be a header)"
            )
