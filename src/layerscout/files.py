"""Files and folders: written and replaced as a whole or not at all, locked, checked before work."""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from layerscout.errors import DiskError, InputError

# A temporary file that nobody has written to for so many seconds was left by a killed run.
STALE = 24 * 60 * 60

# What temporary files and folders have in their names. It names layerscout, so that clearing up
# never takes another program's files. A folder that makes way for a new one ends in EARLIER.
MARK, EARLIER = ".layerscout-part", ".earlier"
_HALF_WRITTEN = re.compile(rf"\.(.+)-\w{{8}}{re.escape(MARK)}(\.\w+)?", re.DOTALL)


@contextmanager
def replace_files(*paths: Path) -> Iterator[list[Path]]:
    """Yield a temporary path beside each of `paths`; move them into place when the block succeeds.

    When the block or a move raises (Ctrl-C too), the temporary files are removed and earlier files
    stay. Files that belong together always come from one write: a kill while they are moved may
    leave some of them missing, and the first one is there only if all are.

    Raises:
        InputError: if a path cannot be written to (no permission, it is a folder, ...).
        DiskError: if the machine fails on the way (full disk, ...).
    """
    temporaries: list[Path] = []
    try:
        for path in paths:
            with _explaining_faults(path):
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, "there is a folder of that name")
                handle, name = tempfile.mkstemp(
                    dir=path.parent, prefix=f".{path.stem}-", suffix=f"{MARK}{path.suffix}"
                )
                os.close(handle)
                temporaries.append(Path(name))
        with _explaining_faults(paths[-1]):
            yield temporaries
            for temporary in temporaries:
                _set_default_mode(temporary)
            # One file is replaced at once; of several, nobody must read some of each write.
            with set_aside(*paths) if len(paths) > 1 else nullcontext():
                for path, temporary in reversed([*zip(paths, temporaries, strict=True)]):
                    temporary.replace(path)
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


@contextmanager
def set_aside(*paths: Path) -> Iterator[None]:
    """Move files away for the time of the block; when it raises, all is as it was before.

    A kill in the block leaves none of them in its place. A folder is put back a day later.
    """
    away = {}
    for path in paths:
        suffix = EARLIER if path.is_dir() else ".before"
        away[path] = path.with_name(f".{path.name}-{secrets.token_hex(4)}{MARK}{suffix}")
    new = {path for path in paths if not path.exists()}
    try:
        for path, place in away.items():
            if path not in new:
                with suppress(OSError):  # another user may own it
                    os.utime(path)  # its age counts from now
                path.rename(place)
        yield
    except BaseException:
        for path, place in away.items():
            if path in new:
                path.unlink(missing_ok=True)
            elif place.exists():
                place.replace(path)
        raise
    for place in away.values():
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)


def _set_default_mode(path: Path) -> None:
    """Set the permissions of an ordinary new file or folder; tempfile's are private."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


@contextmanager
def _explaining_faults(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses in the block into the error for `path`."""
    try:
        yield
    except Exception as error:
        # safetensors and tokenizers raise their own errors, with the system's in the message.
        if not (isinstance(error, OSError) or "(os error " in str(error)):
            raise
        raise _make_unwritable_error(path, error) from error


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


def _make_unwritable_error(path: Path, error: Exception) -> InputError | DiskError:
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
    """Return in words how much is free on the disk of a path, if that can be found out."""
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


def format_json(content: Any) -> str:
    """Write JSON as layerscout's files hold it."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


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


def remove_stale_temporaries(folder: Path) -> None:
    """Remove what killed runs left half-written in a folder, once it is a day old.

    A folder that was being replaced when the run was killed is put back, unless a new one is there.
    """
    try:
        leftovers = [path for path in folder.iterdir() if is_half_written(path)]
    except OSError:
        return
    for left in leftovers:
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
    status = path.stat()
    return _sha256(path, status.st_ino, status.st_mtime_ns)


@cache
def _sha256(path: Path, inode: int, changed: int) -> str:
    """Hash a file; its inode and the time of its last change stand for its content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# What sentence-transformers and ONNX have in the folder of a checkpoint.
FORMAT_FOLDERS = ("0_Transformer", "1_Pooling", "2_Dense", "onnx")


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
    """Make the folder `path`, with its parents, remove stale temporaries, and return it.

    Raises:
        InputError, DiskError: if it cannot be made; see `replace_files`.
    """
    with _explaining_faults(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError as error:  # a place such as /proc, where no folder can be made
            reason = f"{error.strerror}; choose another"
            raise InputError(f"cannot make the folder {path}: {reason}") from error
    remove_stale_temporaries(path)
    return path


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; the lock ends with the process, even if it is killed.

    The file of the lock stays: if it were removed, a process that had opened it before and one that
    makes it anew could both hold the lock.

    Raises:
        InputError: if another process has the lock, or the parent folder cannot be written.
    """
    from filelock import FileLock, Timeout

    path = make_output_folder(folder.parent) / f".{folder.name}.lock"
    with _explaining_faults(path):
        try:
            lock = FileLock(path).acquire(timeout=0)
        except Timeout as error:
            raise InputError(
                f"another process is using {folder}; wait until it is done, or name another folder"
            ) from error
    with lock:
        yield


def remove_folder(folder: Path) -> None:
    """Remove a folder and its content; if killed on the way, nothing is left under its name."""
    gone = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}{MARK}")
    with suppress(OSError):
        os.utime(folder)  # its age counts from now
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
    folder = folder.expanduser().resolve()
    with _explaining_faults(folder), ExitStack() as stack:
        check_checkpoint_folder(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(folder.parent)
        name = tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-", suffix=MARK)
        temporary = Path(name)
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        yield temporary
        for path in (temporary, *temporary.iterdir()):
            _set_default_mode(path)
        with set_aside(folder):
            temporary.rename(folder)


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
