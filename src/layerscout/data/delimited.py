"""Rows of CSV and TSV files, as the programs that write such files mean them."""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from layerscout.data.lines import File, read_lines
from layerscout.errors import InputError

DELIMITED = (".csv", ".tsv")

# What may stand between the fields of a CSV file; the first one that its first line has.
DELIMITERS = (",", ";", "\t", "|")

# What nobody sees: spaces, the end of a file in DOS, and marks of the byte order.
BLANK = " \t\r\n\xa0\u200b\ufeff\x1a"

# Where Excel writes what stands between the fields.
DIRECTIVE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    """How the fields of a file are written.

    Attributes:
        delimiter: what stands between them.
        quoted: whether quotes enclose fields, as RFC 4180 says; else they are text.
        spaced: whether spaces after a delimiter are not part of a field.
        escaped: whether a quote in a quoted field is \\", as Spark and R's write.table have it.
        row_names: whether rows begin with a number that the header has no name for, as in R.
    """

    delimiter: str
    quoted: bool = True
    spaced: bool = False
    escaped: bool = False
    row_names: bool = False


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


def tell_dialect(file: File, sep: str | None = None) -> Dialect:
    """Return how a file is written: the first way in which all of it can be read.

    Args:
        file: the file.
        sep: what stands between its fields; by default that is told from its first line.
    """
    first = next((line for _, line in read_lines(file, universal=True)), "")
    told = DIRECTIVE.fullmatch(first.rstrip("\r\n"))
    usual = "\t" if file.suffix == ".tsv" else tell_separator(first)
    plain = Dialect(read_separator(sep) if sep is not None else told[1] if told else usual)
    ways = [plain, replace(plain, spaced=True), replace(plain, escaped=True)]
    example = ""
    if file.suffix == ".tsv":
        certain, example = _find_quotes(file, plain.delimiter)
        plain, quoted = replace(plain, quoted=False), ways[::2]
        # Where lines are no rows, texts have line breaks in quotes.
        ways = [*quoted, plain] if certain else [plain, *quoted]
    ways += [replace(way, row_names=True) for way in ways]
    chosen = next((way for way in ways if _fits(file, way)), plain)
    if example and not chosen.quoted:
        file.note(
            f"quotes at both ends of fields of {file.name} are read as text, such as "
            f"{example!r:.60}; rename the file to .csv if they only enclose fields"
        )
    return chosen


# A field in quotes, with others in it as "" or as \\".
ENCLOSED = re.compile(r'''"[^"]*(?:""[^"]*)*"|"[^"\\]*(?:\\.[^"\\]*)*"''')


def _find_quotes(file: File, delimiter: str) -> tuple[bool, str]:
    """Tell what quotes in a TSV file are, where they may be text.

    Returns:
        Whether they enclose fields for certain: all that are in fields do, and there are more in
        these, or in the header, or in half of the rows; and an example if at least most do.
    """
    quotes = enclosed = doubled = number = 0
    header, example = False, ""
    for number, line in read_lines(file, universal=True):
        if '"' not in line:
            continue
        fields = [field for field in line.rstrip("\r\n").split(delimiter) if '"' in field]
        whole = list(filter(ENCLOSED.fullmatch, fields))
        header |= number == 1 and bool(whole)
        example = example or "".join(whole[:1])
        quotes += len(fields)
        enclosed += len(whole)
        doubled += sum('"' in field[1:-1] for field in whole)
    certain = enclosed == quotes and (header or doubled > 0 or 2 * enclosed >= number)
    return certain, example if 2 * enclosed > quotes else ""


def _fits(file: File, dialect: Dialect) -> bool:
    """Return whether a whole file can be read in a dialect, as one that is written so."""
    spaces = False
    names: list[str] = []
    try:
        for _, cells in _read_rows(file, dialect):
            if dialect.row_names and names and not cells[0].isdecimal():
                return False
            spaces |= any(" " in cell[:1] and cell.lstrip(" ")[:1] == '"' for cell in cells)
            names = names or cells
    except InputError:
        return False
    if dialect.spaced or not dialect.quoted:
        return True
    # A text in quotes may begin with a space and a quote as well, which is then doubled.
    mark = re.escape(dialect.delimiter)
    raw = re.compile(rf'(?:^|{mark}) +"(?!"|{mark}|\r|\n|$)')
    if spaces and any(raw.search(line) for _, line in read_lines(file, universal=True)):
        return False
    return not any(name.startswith(" ") and name.strip() for name in names[1:])


def _split_lines(file: File, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield (first line, cells) of each row; a directive is no row."""
    lines = read_lines(file, universal=dialect.quoted)
    last = 0

    def fed() -> Iterator[str]:
        nonlocal last
        for last, line in lines:
            if last == 1 and DIRECTIVE.fullmatch(line.rstrip("\r\n")):
                continue
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
        raise InputError(
            f"{file.name} is not valid CSV in the row that begins in line {start}: {error}; "
            'quote a field as "...", and a quote in it as ""'
        ) from error


def _read_rows(file: File, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of the header and of each row, which has as many.

    Rows without anything are left out: spreadsheets write some below a table. So are empty fields
    beyond those of the header.
    """
    names: list[str] = []
    empty = 0
    for line, cells in _split_lines(file, dialect):
        if not "".join(cells).strip(BLANK):
            empty += len(cells) > 1
            continue
        if not names:
            names = [""] * dialect.row_names + cells
            yield line, names
            continue
        if len(cells) != len(names):
            named = max(place for place, name in enumerate(names, 1) if name.strip())
            wanted = len(names)
            if len(cells) < named or any(cells[wanted:]):
                raise _refuse_row(file, len(names) - dialect.row_names, len(cells), line)
            cells = [*cells, *[""] * (wanted - len(cells))][:wanted]
        yield line, cells
    if empty:
        file.note(f"rows of {file.name} with nothing in any field are left out: {empty:,}")


def _refuse_row(file: File, columns: int, fields: int, line: int) -> InputError:
    """Build the error for a row that has not as many fields as the header."""
    lone = columns == 1
    remedy = "give the separator of the fields (--sep)" if lone else "correct the line"
    return InputError(
        f"every row must have as many fields as the header: {file.name} has {columns} "
        f"column{'s'[: not lone]}, but {fields} field{'s'[: fields != 1]} in line {line}; {remedy}"
    )


# What is said of a file that is written in a way which not every program reads so.
NOTES = {
    "spaced": "the spaces after the separators of {} are not read",
    "escaped": 'quotes in fields of {} are written as \\" and read as quotes',
    "row_names": "the rows of {} begin with a number that the header does not name: row names",
}


def cell_records(file: File, dialect: Dialect) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, cells by column) of each row of a CSV or TSV file."""
    rows = _read_rows(file, dialect)
    names = next(rows, (0, []))[1]
    if not names:
        raise InputError(f"{file.name} is empty; its first line must name the columns")
    check_unique(file.name, [name for name in names if name.strip()])
    for attribute, note in NOTES.items():
        if getattr(dialect, attribute):
            file.note(note.format(file.name))
    if dialect.quoted and file.suffix == ".tsv":
        file.note(f"the quotes around fields of {file.name} are not read, as in CSV")
    # The first column may be row names, or texts; others without a name are leftovers.
    left = [place for place, name in enumerate(names) if place and not name.strip()]
    kept = [place for place in range(len(names)) if place not in left]
    line = spilled = 0
    for line, cells in rows:
        record = dict(zip(names, cells, strict=True))
        if left:  # their names may be that of the first
            record = {names[place]: cells[place] for place in kept}
        spilled += any(cells[place].strip() for place in left)
        yield line, record
    if not line:
        raise InputError(f"{file.name} has no rows; it needs some below the column names")
    if spilled:
        file.note(
            f"columns of {file.name} without a name are not read, and have something in "
            f"{spilled:,} row{'s'[: spilled != 1]}"
        )


def check_unique(name: str, columns: Sequence[str]) -> None:
    """Raise if column names occur twice."""
    for column, count in Counter(columns).items():
        if count > 1:
            raise InputError(
                f"column names must differ, {name} has {column!r} {count} times; "
                "rename one (the first line must be a header)"
            )
