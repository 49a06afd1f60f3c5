"""Writing files so that a reader sees the old one or the whole new one, never a part."""

import errno
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from layerscout.errors import InputError


@contextmanager
def replacing(*paths: Path) -> Iterator[list[Path]]:
    """Yield a temporary path beside each of `paths`; move all there when the block ends well.

    When the block raises (Ctrl-C too), the temporary files are removed and earlier files stay, so
    files that belong together are of one write.

    Raises:
        InputError: if a file cannot be written (no permission, full disk, ...).
    """
    temporaries: list[Path] = []
    path = paths[0]
    try:
        for path in paths:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "there is a folder of that name")
            handle, name = tempfile.mkstemp(
                dir=path.parent, prefix=f".{path.stem}-", suffix=f".tmp{path.suffix}"
            )
            os.close(handle)
            temporaries.append(Path(name))
        yield temporaries
        # mkstemp makes private files; give these what an ordinary new file would have.
        mask = os.umask(0)
        os.umask(mask)
        for path, temporary in zip(paths, temporaries, strict=True):
            temporary.chmod(0o666 & ~mask)
            temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


def write_files(contents: Mapping[Path, str | bytes]) -> None:
    """Write each content to its path, all of them whole or none; text as UTF-8.

    Raises:
        InputError: if a file cannot be written.
    """
    with replacing(*contents) as temporaries:
        for temporary, content in zip(temporaries, contents.values(), strict=True):
            with temporary.open("wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())


def check_output_folder(path: Path) -> None:
    """Show, before any work is done, that the folder `path` can be made or written into.

    Raises:
        InputError: if it cannot.
    """
    try:
        existing = next(p for p in (path, *path.absolute().parents) if p.exists())
    except OSError as error:  # a name that is too long, say
        raise InputError(f"cannot write into {path}: {error.strerror or error}") from error
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
