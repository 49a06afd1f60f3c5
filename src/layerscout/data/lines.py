"""Lines of text files, whatever their encoding and their line ends are."""

import codecs
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import IO

from layerscout.errors import InputError


@dataclass(frozen=True)
class Format:
    """What the user says of text files; what is None is told from each file.

    Attributes:
        sep: what stands between the fields of CSV and TSV files.
        encoding: of all text files, as Python calls it.
    """

    sep: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        """Raise if there is no such encoding."""
        if self.encoding is None:
            return
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError) as error:
            raise InputError(
                f"`encoding` must be one that Python knows, such as cp1252, latin-1 or utf-16, got "
                f"{self.encoding!r:.60}"
            ) from error

    def refuse(self, data: str | Path) -> None:
        """Raise if anything is said of data that are no text files."""
        if self.sep is not None:
            raise InputError(f"`sep` is for fields of CSV and TSV files, got {data}; leave it out")
        if self.encoding is not None:
            raise InputError(f"`encoding` is for text files, got {data}; leave it out")


@dataclass(frozen=True)
class File:
    """A file on this machine, in memory or wherever fsspec reaches.

    Attributes:
        name: what messages call it.
        suffix: the ending of its name in lower case; ".csv" also of a compressed x.csv.gz.
        open_bytes: opens it for reading.
        compressed: whether gzip packed it.
        encoding: of its text; by default it is told from its bytes.
        notes: what should be known of how it was read; lines are added while it is.
    """

    name: str
    suffix: str
    open_bytes: Callable[[], IO[bytes]]
    compressed: bool = False
    encoding: str | None = None
    notes: dict[str, None] = field(default_factory=dict, compare=False)

    @classmethod
    def at(cls, path: Path) -> "File":
        """Return the file at a path."""
        packed = path.suffix.lower() == ".gz"
        return cls(str(path), find_suffix(path), lambda: path.open("rb"), packed)

    def note(self, line: str) -> None:
        """Add a line to the notes, once, however often the file is read."""
        self.notes[line] = None


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


def read_lines(file: File, *, universal: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line number, line with its end) of a text file.

    Lines end in LF, after any number of CR: Python's csv writes CR CR LF on Windows where a file
    was opened without newline="". They end in CR alone, as in Excel's "CSV (Macintosh)", where the
    first one does.

    Args:
        file: the file.
        universal: whether a CR is the end of a line in any case, as where quotes protect texts.
    """
    number = 0
    for chunk in _read_text(file):
        pieces = [chunk]
        if (universal or not number) and "\r" in (body := chunk.rstrip("\r\n")):
            universal = True
            *pieces, last = body.split("\r")
            pieces = [*(f"{piece}\r" for piece in pieces), last + chunk[len(body) :]]
        for line in pieces:
            number += 1
            if "\0" in line:
                raise InputError(
                    f"text files must not hold NUL bytes, {file.name} has one in line {number}; "
                    "remove it, or give the encoding of the file with --encoding"
                )
            yield number, line


# How files begin in which encodings; what Python calls UTF-16 begins with a mark itself.
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


# How files begin that are no text, and what to do about each.
ARCHIVES = {
    b"PK\3\4": "a spreadsheet or another ZIP archive; save it as CSV, or unpack it",
    b"\x1f\x8b": "packed by gzip; add .gz to its name",
    b"PAR1": "Parquet; let its name end in .parquet",
}


def tell_encoding(start: bytes) -> str:
    """Return the encoding of a text by how it begins: UTF-8, or UTF-16 or -32."""
    for mark, encoding in MARKS.items():
        if start.startswith(mark):
            return encoding
    # Letters of Latin scripts have a NUL as one of their two bytes.
    shares = [some.count(0) / max(len(some), 1) for some in (start[::2], start[1::2])]
    if min(shares) == 0 and max(shares) > 0.5:
        return "utf-16-be" if shares[0] else "utf-16-le"
    return "utf-8"


def _read_text(file: File) -> Iterator[str]:
    """Yield what stands up to each LF, decoded, without a byte order mark."""
    number = 0
    with reading(file.name), file.open_bytes() as raw:
        stream = gzip.GzipFile(fileobj=raw) if file.compressed else raw
        start = stream.read(10_000)
        for mark, remedy in ARCHIVES.items():
            if start.startswith(mark):
                raise InputError(f"text files must hold text, {file.name} is {remedy}")
        told = tell_encoding(start)
        stream.seek(0)
        encoding = file.encoding or told
        if told.startswith(encoding.lower().replace("_", "-")):
            encoding = told  # UTF-16 without a mark
        detected = file.encoding is None
        escape = "surrogateescape" if detected and encoding == "utf-8" else "strict"
        with TextIOWrapper(stream, encoding, escape, newline="\n") as text:
            lines: Iterable[str] = text
            if escape != "strict":
                lines = _decode_western(file, text)
            elif detected:
                file.note(
                    f"{file.name} is read as {encoding.upper()} (--encoding names another one)"
                )
            try:
                for number, line in enumerate(lines, 1):
                    yield line if number > 1 else line.lstrip("\ufeff")
            except UnicodeError as error:
                reason = getattr(error, "reason", error)
                raise InputError(
                    f"{file.name} is not {encoding.upper()} after line {number}: {reason}; give "
                    "its encoding with --encoding"
                ) from error


def _is_surrogates(content: bytes) -> bool:
    """Return whether a text would be UTF-8 if halves of surrogate pairs were characters."""
    with suppress(UnicodeDecodeError):
        return bool(content.decode("utf-8", "surrogatepass"))
    return False


# What Python makes of a byte that is no UTF-8.
ESCAPED = re.compile("[\udc80-\udcff]")
WORD = re.compile(r"""[^\s,;"]*[^\x00-\x7f][^\s,;"]*""")


def _decode_western(file: File, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines of UTF-8; those of a file that is none as Windows-1252, the usual one of old.

    Up to its first other byte such a file is ASCII, which is the same in both. Latin-1 is a part of
    Windows-1252 but for control characters.

    Raises:
        InputError: if it is neither of the two, or both.
    """
    western: list[str] = []
    utf8 = ascii_letters = others = 0
    for number, line in enumerate(lines, 1):
        if line.isascii():
            yield line
            continue
        try:
            line.encode()  # ten times as fast as a search
            utf8, decoded = number, line
        except UnicodeEncodeError as error:
            byte = f"0x{ord(line[error.start]) - 0xDC00:02x}"
            place = f"text files must be UTF-8, {file.name} has the byte {byte} in line {number}"
            content = line.encode("utf-8", "surrogateescape")
            try:
                decoded = content.decode("cp1252")
            except UnicodeDecodeError:
                raise InputError(
                    f"{place}; give its encoding with --encoding, such as cp1251, mac-roman or "
                    "gb18030"
                ) from None
            western = western or [place, str(number), WORD.findall(decoded)[0]]
            if not ESCAPED.sub("", line).isascii() or _is_surrogates(content):
                utf8 = number
            letters = [character for character in decoded if character.isalpha()]
            ascii_letters += sum(map(str.isascii, letters))
            others += len(letters) - sum(map(str.isascii, letters))
        if western and utf8:
            raise InputError(
                f"{western[0]}, and UTF-8 in line {utf8}; convert one of them, or give the "
                "encoding of all with --encoding"
            )
        yield decoded
    if others > ascii_letters:
        raise InputError(
            f"{western[0]}, and is not of a Western language; give its encoding with --encoding, "
            "such as cp1251, gb18030 or shift-jis"
        )
    if western:
        file.note(
            f"{file.name} is not UTF-8 and is read as Windows-1252, such as {western[2]!r:.40} in "
            f"line {western[1]} (--encoding names another one)"
        )
