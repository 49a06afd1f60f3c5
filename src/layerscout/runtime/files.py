"""Writing files so that a reader sees the old one or the whole new one, never a part."""

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from layerscout.runtime.errors import DiskError, InputError

# A temporary file that nobody has written to for so many seconds was left by a killed run.
STALE = 24 * 60 * 60

# What temporary files and folders have in their names. It names layerscout, so that clearing up
# never takes another program's files. A folder that makes way for a new one ends in EARLIER.
MARK, EARLIER = ".layerscout-part", ".earlier"
_HALF_WRITTEN = re.compile(rf"\.(.+)-\w{{8}}{re.escape(MARK)}(\.\w+)?", re.DOTALL)


@contextmanager
def replace_files(*paths: Path) -> Iterator[list[Path]]:
    """Yield a temporary path beside each of `paths`; move them into place when the block succeeds.

    When the block raises (Ctrl-C too), the temporary files are removed and earlier files stay, so
    files that belong together always come from one write.

    Raises:
        InputError: if a path cannot be written to (no permission, it is a folder, ...).
        DiskError: if the machine fails on the way (full disk, ...).
    """
    temporaries: list[Path] = []
    path = paths[0]
    try:
        for path in paths:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "there is a folder of that name")
            handle, name = tempfile.mkstemp(
                dir=path.parent, prefix=f".{path.stem}-", suffix=f"{MARK}{path.suffix}"
            )
            os.close(handle)
            temporaries.append(Path(name))
        yield temporaries
        for path, temporary in zip(paths, temporaries, strict=True):
            set_default_mode(temporary)
            temporary.replace(path)
    except Exception as error:
        if not is_from_system(error):
            raise
        raise make_unwritable_error(path, error) from error
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


def set_default_mode(path: Path) -> None:
    """Give a file or folder the permissions of an ordinary new one; tempfile's are private."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def is_from_system(error: Exception) -> bool:
    """Return whether the operating system refused something, for example because a disk is full."""
    # safetensors and tokenizers raise their own errors, with the system's in the message.
    return isinstance(error, OSError) or "(os error " in str(error)


# What is wrong with a path, as against what is wrong with the machine.
_OF_A_PATH = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EILSEQ,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOTDIR,
        errno.ENOTEMPTY,
        errno.EPERM,
        errno.EROFS,
    }
)
# safetensors and tokenizers write the system's number into their messages.
_NUMBER = re.compile(r"\(os error (\d+)\)")


def make_unwritable_error(path: Path, error: Exception) -> InputError | DiskError:
    """Build the error for a path that cannot be written: whose fault it is, and what to do."""
    written = _NUMBER.search(str(error))
    number = error.errno if isinstance(error, OSError) else written and int(written[1])
    if number in _OF_A_PATH:
        reason = getattr(error, "strerror", None) or error
        return InputError(f"cannot write {path}: {reason}; choose another place")
    # Not its own words: pyarrow's take two lines.
    start = f"cannot write {path}: {error if number is None else os.strerror(number)}"
    if number == errno.ENOENT:
        return DiskError(f"{start}, it was removed meanwhile; run it again")
    if number not in (errno.ENOSPC, errno.EDQUOT):
        return DiskError(f"{start}; check the disk and run it again")
    return DiskError(f"{start}{_count_free(path)}; make room and run it again")


def _count_free(path: Path) -> str:
    """Say how much is free on the disk of a path, if that can be found out."""
    with suppress(OSError, StopIteration):
        existing = next(at for at in (path, *path.absolute().parents) if at.exists())
        return f" ({shutil.disk_usage(existing).free / 1e6:,.1f} MB are free)"
    return ""


def write_files(contents: Mapping[Path, str | bytes]) -> None:
    """Write each content to its path, all of them or none; text as UTF-8.

    Raises:
        InputError, DiskError: if a file cannot be written; see `replace_files`.
    """
    with replace_files(*contents) as temporaries:
        for temporary, content in zip(temporaries, contents.values(), strict=True):
            with temporary.open("wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())


def read_json(path: Path) -> Any:
    """Read JSON as layerscout writes it, in which every number is finite.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is not such JSON.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors write a byte-order mark
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is too deeply nested") from error


def _finite(written: str) -> float:
    number = float(written)
    if not isfinite(number):
        raise ValueError(f"{written} is not finite")
    return number


def is_half_written(path: Path) -> bool:
    """Return whether a file or folder has the name of one that is not completely written."""
    return _HALF_WRITTEN.fullmatch(path.name) is not None


def tidy(folder: Path) -> None:
    """Remove what killed runs left half-written in a folder, once it is a day old.

    A folder that was being replaced when the run was killed is put back, unless a new one is there.
    """
    try:
        found = [path for path in folder.iterdir() if is_half_written(path)]
    except OSError:
        return
    for left in found:
        with suppress(OSError):  # what cannot be removed does no harm
            if time.time() - left.lstat().st_mtime <= STALE:
                continue
            whole = left.with_name(_HALF_WRITTEN.sub(r"\1", left.name))
            if left.suffix == EARLIER and not whole.exists():
                left.rename(whole)
            elif left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """Hash a file, once per process as long as it does not change.

    Raises:
        OSError: if it cannot be read.
    """
    found = path.stat()
    return _sha256(path, found.st_ino, found.st_mtime_ns)


@cache
def _sha256(path: Path, inode: int, changed: int) -> str:
    """Hash a file; its inode and the time of its last change stand for its content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
