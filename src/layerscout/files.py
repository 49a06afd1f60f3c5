"""Writing files so that a reader sees the old one or the whole new one, never a part."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from layerscout.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` and move it there when the block ends well.

    When the block raises (Ctrl-C too), the temporary file is removed and an earlier `path` stays.

    Raises:
        InputError: if the file cannot be written (no permission, full disk, ...).
    """
    try:
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.stem}-", suffix=f".tmp{path.suffix}"
        )
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            # mkstemp makes private files; give this one what an ordinary new file would have.
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, whole or not at all.

    Raises:
        InputError: if the file cannot be written.
    """
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8, whole or not at all.

    Raises:
        InputError: if the file cannot be written.
    """
    write_bytes(path, text.encode("utf-8"))


def check_output_folder(path: Path) -> None:
    """Show, before any work is done, that the folder `path` can be made or written into.

    Raises:
        InputError: if it cannot.
    """
    existing = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not existing.is_dir():
        raise InputError(f"cannot write into {path}: {existing} is a file; choose another")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(
            f"cannot write into {path}: {existing} is read-only; choose another folder"
        )


def output_folder(path: Path) -> Path:
    """Make the folder `path`, with those above it, and give it back.

    Raises:
        InputError: if it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder {path}: {error.strerror or error}; choose another"
        ) from error
    return path
