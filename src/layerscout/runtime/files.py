"""Writing files so that a reader sees the old one or the whole new one, never a part.

The cache is a folder of such files, named by the hash of all that their content depends on.
"""

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from layerscout.runtime.errors import InputError, LayerscoutError

# A temporary file that nobody has written to for so many seconds was left by a killed run.
STALE = 24 * 60 * 60
# What temporary files and folders have in their names, and an earlier folder that makes way.
_MARK, _EARLIER = ".layerscout-part", ".earlier"
_HALF_WRITTEN = re.compile(rf"\.(.+)-\w{{8}}{re.escape(_MARK)}(\.\w+)?", re.DOTALL)


@contextmanager
def replace_files(*paths: Path) -> Iterator[list[Path]]:
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
                dir=path.parent, prefix=f".{path.stem}-", suffix=f"{_MARK}{path.suffix}"
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
    except Exception as error:
        if not _of_the_system(error):
            raise
        raise _unwritable(path, error) from error
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


def _of_the_system(error: Exception) -> bool:
    """Tell whether the system refused something, such as a full disk."""
    # The writers of weights and tokenizers raise errors of their own, with the system's words.
    return isinstance(error, OSError) or "(os error " in str(error)


def _unwritable(path: Path, error: Exception) -> InputError:
    return InputError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}")


def write_files(contents: Mapping[Path, str | bytes]) -> None:
    """Write each content to its path, all of them whole or none; text as UTF-8.

    Raises:
        InputError: if a file cannot be written.
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
        ValueError: if it is no such JSON.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors put a mark before all
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _finite(written: str) -> float:
    number = float(written)
    if not isfinite(number):
        raise ValueError(f"{written} is not finite")
    return number


def check_output_folder(path: Path, *files: str) -> None:
    """Show, before any work is done, that the folder `path` can be made or written into.

    Args:
        path: the folder.
        files: names of what will be written there.

    Raises:
        InputError: if it cannot.
    """
    try:
        above = (path, *path.absolute().parents)
        existing = next(p for p in above if p.exists() or p.is_symlink())
    except OSError as error:  # a name that is too long, say
        raise InputError(f"cannot write into {path}: {error.strerror or error}") from error
    if not existing.is_dir():
        what = "a file" if existing.exists() else "a link to nothing"
        raise InputError(f"cannot write into {path}: {existing} is {what}; choose another")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(
            f"cannot write into {path}: {existing} is read-only; choose another folder"
        )
    for file in files:
        if (path / file).is_dir():
            raise InputError(f"cannot write {path / file}: it is a folder; choose another place")


def make_output_folder(path: Path) -> Path:
    """Make the folder `path`, with those above it, and give it back, cleared as by `tidy`.

    Raises:
        InputError: if it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder {path}: {error.strerror or error}; choose another"
        ) from error
    tidy(path)
    return path


def is_half_written(path: Path) -> bool:
    """Tell by its name whether a file or folder is one that is being written, or never will be."""
    return _HALF_WRITTEN.fullmatch(path.name) is not None


def tidy(folder: Path) -> None:
    """Remove what killed runs have left half-written in a folder, once it is a day old.

    A checkpoint that a kill caught on its way out is put back where no other has come.
    """
    try:
        found = [path for path in folder.iterdir() if is_half_written(path)]
    except OSError:
        return
    for left in found:
        with suppress(OSError):  # what cannot be removed harms nobody
            if time.time() - left.lstat().st_mtime <= STALE:
                continue
            whole = left.with_name(_HALF_WRITTEN.sub(r"\1", left.name))
            if left.suffix == _EARLIER and not whole.exists():
                left.rename(whole)
            elif left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Be the only process at work on a folder; a process that is killed gives it free.

    Raises:
        InputError: if another one is at work on it, or its parent cannot be written.
    """
    from filelock import FileLock, Timeout

    path = make_output_folder(folder.parent) / f".{folder.name}.lock"
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InputError(
            f"another process is at work on {folder}; wait until it is done, or name another folder"
        ) from error
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield
    finally:
        with suppress(OSError):  # where a file in use cannot be removed
            path.unlink()
        lock.release()


class CacheError(LayerscoutError):
    """The cache cannot keep something; what it was to hold has to be made anew each time."""


@dataclass(frozen=True)
class CacheEntry:
    """One thing in the cache: a data file, and beside it a JSON file that tells what it is.

    Attributes:
        path: the data file.
        bytes: of both files.
        used: when it was used last, in seconds since 1970.
        about: what the JSON file tells; empty where it cannot be read.
    """

    path: Path
    bytes: int
    used: float
    about: Mapping[str, Any]


# What the cache writes, and nothing else: its folder may be the user's own.
_DATA = re.compile(r"[0-9a-f]{64}\.bin")
_TEMPORARY = re.compile(rf"\.[0-9a-f]{{64}}-\w+{re.escape(_MARK)}\.(bin|json)")
_ANY = re.compile(rf"[0-9a-f]{{64}}\.json|{_DATA.pattern}|{_TEMPORARY.pattern}")


def cache_folder() -> Path:
    """Give the cache's folder: $LAYERSCOUT_CACHE, or one in the user's cache folder."""
    named = os.environ.get("LAYERSCOUT_CACHE")
    return Path(named).expanduser() if named else user_cache_path("layerscout", appauthor=False)


def cache_path(kind: str, key: str) -> Path:
    """Give the place of the data whose key, a sha256 in hexadecimal, is `key`."""
    return cache_folder() / kind / f"{key}.bin"


def list_cache() -> list[CacheEntry]:
    """List what the cache holds, used last first."""
    entries = []
    for path in _cache_files(_DATA):
        with suppress(FileNotFoundError):  # another process has just removed it
            data, about = path.stat(), path.with_suffix(".json")
            told = about.stat() if about.exists() else None
            entries.append(
                CacheEntry(
                    path,
                    data.st_size + (told.st_size if told else 0),
                    (told or data).st_mtime,
                    _read_about(path) or {},
                )
            )
    return sorted(entries, key=lambda entry: entry.used, reverse=True)


def count_unfinished() -> tuple[int, int]:
    """Count what runs have not finished writing into the cache, or never will; and its bytes."""
    sizes = []
    for path in _cache_files(_TEMPORARY):
        with suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return len(sizes), sum(sizes)


def clear_cache() -> int:
    """Remove all that the cache holds, temporary files too; returns the bytes freed."""
    return sum(map(_remove, _cache_files(_ANY)))


def find_cached(path: Path, size: int) -> Mapping[str, Any] | None:
    """Give what was told about the data at `path` if they are there and whole.

    They are when there are `size` bytes with the hash that was told. Each file is hashed once a
    process. Being found counts as use.
    """
    about = _read_about(path)
    try:
        found = path.stat()
        if about is None or found.st_size != size or not isinstance(about["seconds"], float):
            return None
        if about["sha256"] != sha256_of(path):
            return None
    except (OSError, KeyError):
        return None
    with suppress(OSError):  # a cache may be read-only
        os.utime(path.with_suffix(".json"))
    return about


@contextmanager
def write_entry(
    path: Path, size: int, limit: int, spare: Path | None = None
) -> Iterator[tuple[Path, Path]]:
    """Make room in the cache, and yield temporary paths for the data and the JSON about them.

    Entries that were used least recently make way. Both files are moved to their place when the
    block ends well. The JSON has to tell the data's `sha256` and the `seconds` that making them
    took. Nothing waits for the disk: what a power cut leaves is found out by the hash.

    Args:
        path: as `cache_path` gives it.
        size: of the data, in bytes.
        limit: what all entries together may take, in bytes.
        spare: an entry that does not make way.

    Raises:
        CacheError: if there is no room, or the files cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make_room(path, size, limit, spare)
        with replace_files(path, path.with_suffix(".json")) as (data, about):
            yield data, about
    except (OSError, InputError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        raise CacheError(
            f"cannot write into the cache {path.parent}: {cause.strerror or cause}; set "
            "LAYERSCOUT_CACHE to another folder"
        ) from error


def _make_room(path: Path, size: int, limit: int, spare: Path | None) -> None:
    """Remove what is stale or in the way, then the least recently used until `size` fits in."""
    for folder in {temporary.parent for temporary in _cache_files(_TEMPORARY)}:
        tidy(folder)
    _remove_entry(path)
    entries = list_cache()
    spared = sum(entry.bytes for entry in entries if entry.path == spare)
    entries = [entry for entry in entries if entry.path != spare]
    held, free = sum(entry.bytes for entry in entries), shutil.disk_usage(path.parent).free
    if spared + size > limit:
        raise CacheError(
            f"the cache may hold {limit / 1e9:.3g} GB, and {(spared + size) / 1e9:.3g} GB are "
            "needed; raise --cache-limit"
        )
    if size > held + free:
        raise CacheError(
            f"{size / 1e9:.3g} GB are needed in the cache {path.parent}, and {free / 1e9:.3g} GB "
            "are free; set LAYERSCOUT_CACHE to a folder on a larger disk"
        )
    excess = held + size - min(limit - spared, held + free)
    while excess > 0 and entries:
        excess -= _remove_entry(entries.pop().path)


def _cache_files(name: re.Pattern[str]) -> list[Path]:
    return [path for path in cache_folder().glob("*/*") if name.fullmatch(path.name)]


def _read_about(path: Path) -> dict[str, Any] | None:
    try:
        about = read_json(path.with_suffix(".json"))
    except (OSError, ValueError):
        return None
    return about if isinstance(about, dict) else None


def sha256_of(path: Path) -> str:
    """Hash a file, once a process as long as it does not change.

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


def _remove_entry(path: Path) -> int:
    # The data last: while they are there, the entry is listed and counted.
    return _remove(path.with_suffix(".json")) + _remove(path)


def _remove(path: Path) -> int:
    """Remove a file if that can be done; returns the bytes freed."""
    try:
        size = path.stat().st_size
        path.unlink()
    except OSError:
        return 0
    return size


def remove_folder(folder: Path) -> None:
    """Remove a folder and what is in it; a kill on the way leaves nothing of its name."""
    gone = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}{_MARK}")
    with suppress(OSError):
        os.utime(folder)  # or it would be stale from the start
        folder.rename(gone)
    for left in (gone, folder):
        shutil.rmtree(left, ignore_errors=True)


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `folder`; put it in its place when the block ends well.

    When the block raises (Ctrl-C too), the temporary folder is removed and an earlier one stays.
    Only a folder that is empty, or a checkpoint and nothing else, is ever replaced.

    Raises:
        InputError: if it cannot be written (no permission, full disk, ...) or replaced.
    """
    temporary = None
    try:
        folder = folder.expanduser().resolve()
        check_checkpoint_folder(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        tidy(folder.parent)
        made = tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-", suffix=_MARK)
        temporary = Path(made)
        yield temporary
        _open_to_others(temporary)
        _exchange(temporary, folder)
    except Exception as error:
        if not _of_the_system(error):
            raise
        raise _unwritable(folder, error) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def check_checkpoint_folder(folder: Path) -> None:
    """Show that nothing but a checkpoint, which is a folder of files, would be replaced.

    Raises:
        InputError: if `folder` is something else.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"cannot write {folder}: it is a file; choose a folder")
    inside = list(folder.iterdir()) if folder.exists() else []
    if inside and (not (folder / "config.json").is_file() or any(path.is_dir() for path in inside)):
        raise InputError(
            f"cannot write {folder}: it holds more than a checkpoint, which alone is replaced; "
            "choose another folder"
        )


def _open_to_others(folder: Path) -> None:
    """Give what was made private the permissions that ordinary new files and folders have."""
    mask = os.umask(0)
    os.umask(mask)
    folder.chmod(0o777 & ~mask)
    for path in folder.iterdir():
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def _exchange(new: Path, folder: Path) -> None:
    """Put a folder in the place of another one, which is called `new` afterwards."""
    earlier = Path(f"{new}{_EARLIER}")
    try:
        if folder.exists():
            with suppress(OSError):  # it may be somebody else's
                os.utime(folder)  # or it would be stale from the start
            folder.rename(earlier)
        new.rename(folder)
    finally:
        if earlier.exists():  # under this name it is the only copy
            earlier.rename(new if folder.exists() else folder)
