"""Folders: checked before work begins, locked, replaced and removed as a whole."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from layerscout.runtime.errors import InputError
from layerscout.runtime.files import (
    EARLIER,
    MARK,
    is_from_system,
    make_unwritable_error,
    set_default_mode,
    tidy,
)

# What sentence-transformers and ONNX have in the folder of a checkpoint.
FORMAT_FOLDERS = ("1_Pooling", "onnx")


def check_output_folder(path: Path, *files: str) -> None:
    """Check, before any work is done, that the folder `path` can be made or written into.

    Args:
        path: the folder.
        files: names of the files that will be written there.

    Raises:
        InputError: if it cannot.
    """
    try:
        above = (path, *path.absolute().parents)
        existing = next(p for p in above if p.exists() or p.is_symlink())
    except OSError as error:  # a name that is too long, say
        raise InputError(f"cannot write to {path}: {error.strerror or error}") from error
    if not existing.is_dir():
        what = "a file" if existing.exists() else "a link to nothing"
        raise InputError(f"cannot write to {path}: {existing} is {what}; choose another")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to {path}: {existing} is read-only; choose another folder")
    for file in files:
        if (path / file).is_dir():
            raise InputError(f"cannot write {path / file}: it is a folder; choose another place")


def make_output_folder(path: Path) -> Path:
    """Make the folder `path`, with its parents, remove old leftovers (`tidy`) and return it.

    Raises:
        InputError, DiskError: if it cannot be made; see `replace_files`.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:  # a place such as /proc, where no folder can be made
        raise InputError(
            f"cannot make the folder {path}: {error.strerror}; choose another"
        ) from error
    except OSError as error:
        raise make_unwritable_error(path, error) from error
    tidy(path)
    return path


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; the lock ends with the process, even if it is killed.

    Raises:
        InputError: if another process has the lock, or the parent folder cannot be written.
    """
    from filelock import FileLock, Timeout

    path = make_output_folder(folder.parent) / f".{folder.name}.lock"
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InputError(
            f"another process is using {folder}; wait until it is done, or name another folder"
        ) from error
    except OSError as error:
        raise make_unwritable_error(path, error) from error
    try:
        yield
    finally:
        with suppress(OSError):  # where a file in use cannot be removed
            path.unlink()
        lock.release()


def remove_folder(folder: Path) -> None:
    """Remove a folder and its content; if killed on the way, nothing is left under its name."""
    gone = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}{MARK}")
    with suppress(OSError):
        os.utime(folder)  # the age of a leftover counts from now, see `tidy`
        folder.rename(gone)
    for left in (gone, folder):
        shutil.rmtree(left, ignore_errors=True)


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `folder`; put it in its place when the block succeeds.

    When the block raises (Ctrl-C too), the temporary folder is removed and an earlier one stays.
    Only an empty folder, or one that holds a checkpoint and nothing else, is ever replaced.

    Raises:
        InputError: if it cannot be written (no permission, ...) or replaced.
        DiskError: if the machine fails on the way (full disk, ...).
    """
    temporary = None
    try:
        folder = folder.expanduser().resolve()
        check_checkpoint_folder(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        tidy(folder.parent)
        made = tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-", suffix=MARK)
        temporary = Path(made)
        yield temporary
        for path in (temporary, *temporary.iterdir()):
            set_default_mode(path)
        _exchange(temporary, folder)
    except Exception as error:
        if not is_from_system(error):
            raise
        raise make_unwritable_error(folder, error) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def check_checkpoint_folder(folder: Path) -> None:
    """Check that nothing but a checkpoint, with what a format adds to it, would be replaced.

    Raises:
        InputError: if `folder` is something else.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"cannot write {folder}: it is a file; choose a folder")
    inside = list(folder.iterdir()) if folder.exists() else []
    others = [path for path in inside if path.is_dir() and path.name not in FORMAT_FOLDERS]
    if inside and (not (folder / "config.json").is_file() or others):
        raise InputError(
            f"cannot write {folder}: it holds more than a checkpoint, and only a checkpoint is "
            "replaced; choose another folder"
        )


def check_no_tuning(folder: Path, part: str) -> None:
    """Check that a folder holds no tuning, a part of which would be replaced by something else.

    Raises:
        InputError: if it does.
    """
    if (folder / "result.json").exists():
        raise InputError(
            f"{folder} holds a tuned model, whose {part} would be replaced; choose another folder"
        )


def _exchange(new: Path, folder: Path) -> None:
    """Move the folder `new` to `folder`; an earlier one is called `new` afterwards."""
    earlier = Path(f"{new}{EARLIER}")
    try:
        if folder.exists():
            with suppress(OSError):  # another user may own it
                os.utime(folder)  # the age of a leftover counts from now, see `tidy`
            folder.rename(earlier)
        new.rename(folder)
    finally:
        if earlier.exists():  # a failed rename must not leave the only copy under this name
            earlier.rename(new if folder.exists() else folder)
