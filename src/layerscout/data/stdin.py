"""Data from standard input, whose kind shows in how they begin."""

import gzip
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from layerscout.data.files import open_file, read_separator, tell_separator
from layerscout.data.lines import reading
from layerscout.data.tables import Source, Table
from layerscout.runtime import InputError

# What messages call it.
NAME = "standard input"


def open_stdin(sep: str | None = None) -> Source:
    """Read standard input to its end: CSV, TSV, JSON or Parquet, told apart by how it begins.

    Raises:
        InputError: if nothing is piped in, or it cannot be read as one of these.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(
            "DATA - is standard input, and nothing is piped in; write `... | layerscout` or "
            "add `< reviews.csv`"
        )
    with reading(Path(NAME)):
        content = sys.stdin.buffer.read()
    suffix = _tell_suffix(content, sep)

    def read(wanted: Sequence[str]) -> Table:
        with _as_file(content, suffix) as path:
            return replace(open_file(path, sep).read(wanted), name=NAME)

    with _as_file(content, suffix) as path:
        return replace(open_file(path, sep), name=NAME, read=read)


def _tell_suffix(content: bytes, sep: str | None) -> str:
    """Tell how the name of a file with this content would end."""
    packed = ""
    if content.startswith(b"\x1f\x8b"):
        with reading(Path(NAME)), gzip.GzipFile(fileobj=BytesIO(content)) as file:
            content, packed = file.read(10_000), ".gz"
    if content.startswith(b"PAR1"):
        return ".parquet"
    start = content[:10_000].decode("utf-8-sig", "replace").lstrip()
    if start[:1] in ("{", "["):
        return ".json" + packed
    used = tell_separator(start.partition("\n")[0]) if sep is None else read_separator(sep)
    return (".tsv" if used == "\t" else ".csv") + packed


@contextmanager
def _as_file(content: bytes, suffix: str) -> Iterator[Path]:
    """Write it to a file for as long as that is read; what is said of the file is said of NAME."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"stdin{suffix}"
        path.write_bytes(content)
        try:
            yield path
        except InputError as error:
            raise InputError(*(str(one).replace(str(path), NAME) for one in error.args)) from error
