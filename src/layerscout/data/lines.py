"""Lines of text files."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from layerscout.runtime import InputError


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
    """Give the ending of a file's name in lower case; ".csv" also for a compressed x.csv.gz."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


def _open_bytes(path: Path) -> IO[bytes] | gzip.GzipFile:
    """Open a file, compressed by gzip if its name says so."""
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rb")
    return path.open("rb")


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, line with its end) of a text file that must be clean UTF-8."""
    with reading(path), _open_bytes(path) as file:
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
