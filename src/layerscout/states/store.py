"""The cache: a folder of files named by the hash of all that their content depends on.

It knows nothing of what they hold, and so needs no torch: `layerscout cache list` answers at once.
"""

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from layerscout.errors import DiskError, InputError, LayerscoutError, check_number
from layerscout.files import read_json, remove_stale_temporaries, replace_files, sha256_of


class CacheError(LayerscoutError):
    """The cache cannot keep something, which must then be computed each time it is needed."""


@dataclass(frozen=True)
class CacheEntry:
    """A data file in the cache, and beside it a JSON file that describes it.

    Attributes:
        path: the data file.
        bytes: the size of both files.
        used: when it was last used, in seconds since 1970.
        about: the content of the JSON file; empty if it cannot be read.
    """

    path: Path
    bytes: int
    used: float
    about: Mapping[str, Any]


# Default size of the cache in bytes.
DEFAULT_LIMIT = 20 * 10**9


def check_limit(name: str, value: Any) -> int:
    """Return the bytes that a cache may hold.

    Raises:
        InputError: if it is not a number of bytes, 0 or more.
    """
    rule, remedy = "a number of bytes, 0 or more", "20 * 10**9 is 20 GB"
    return int(check_number(name, value, rule, lambda size: size >= 0, remedy))


# Exactly the names that the cache writes: LAYERSCOUT_CACHE may point to a folder with other files.
_DATA = re.compile(r"[0-9a-f]{64}\.bin")
_TEMPORARY = re.compile(
    r"\.[0-9a-f]{64}-\w+\.layerscout-part\.(bin|json|js|before)"
)  # `replace_files`
# The script of pages is small, and neither listed nor counted.
_ANY = re.compile(rf"[0-9a-f]{{64}}\.(json|js)|{_DATA.pattern}|{_TEMPORARY.pattern}")


def cache_folder() -> Path:
    """Return the cache's folder: $LAYERSCOUT_CACHE, or one in the user's cache folder."""
    named = os.environ.get("LAYERSCOUT_CACHE")
    return Path(named).expanduser() if named else user_cache_path("layerscout", appauthor=False)


def cache_path(kind: str, key: str) -> Path:
    """Return where data with this key, a sha256 in hexadecimal, are kept."""
    return cache_folder() / kind / f"{key}.bin"


def list_cache() -> list[CacheEntry]:
    """List the entries of the cache, most recently used first."""
    entries = []
    for path in _cache_files(_DATA):
        with suppress(FileNotFoundError):  # another process has just removed it
            data, about = path.stat(), path.with_suffix(".json")
            sidecar = about.stat() if about.exists() else None
            entries.append(
                CacheEntry(
                    path,
                    data.st_size + (sidecar.st_size if sidecar else 0),
                    (sidecar or data).st_mtime,
                    _read_about(path) or {},
                )
            )
    return sorted(entries, key=lambda entry: entry.used, reverse=True)


def count_unfinished() -> tuple[int, int]:
    """Return how many files in the cache are not completely written, and their size in bytes."""
    sizes = []
    for path in _cache_files(_TEMPORARY):
        with suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return len(sizes), sum(sizes)


def clear_cache() -> int:
    """Remove everything that the cache holds, temporary files too; return the bytes freed."""
    return sum(map(_remove, _cache_files(_ANY)))


def find_cached(path: Path, size: int) -> Mapping[str, Any] | None:
    """Return the description of the data at `path`, or None if they are missing or damaged.

    Data are whole if there are `size` bytes with the hash in the description. Each file is hashed
    once per process. Being found counts as use.
    """
    about = _read_about(path)
    try:
        if about is None or path.stat().st_size != size or not isinstance(about["seconds"], float):
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
    path: Path, size: int, limit: int, spare: Collection[Path] = ()
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Make room in the cache; yield a temporary path for the data, and what is written of them.

    The least recently used entries are removed. The data, and a JSON file of what is written of
    them, are moved into place when the block succeeds; the block adds at least the `seconds` that
    computing them took. Nothing is flushed to disk: the hash reveals what a power cut left
    incomplete.

    Args:
        path: from `cache_path`.
        size: to make room for, in bytes.
        limit: of all entries together, in bytes.
        spare: entries that must not be removed.

    Raises:
        CacheError: if there is no room, or the files cannot be written.
    """
    about: dict[str, Any] = {}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make_room(path, size, limit, spare)
        with replace_files(path, path.with_suffix(".json")) as (data, sidecar):
            yield data, about
            about |= {
                "bytes": data.stat().st_size,
                "sha256": sha256_of(data),
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            sidecar.write_text(json.dumps(about, indent=1), encoding="utf-8")
    except (OSError, InputError, DiskError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        raise CacheError(
            f"cannot write to the cache {path.parent}: {cause.strerror or cause}; set "
            "LAYERSCOUT_CACHE to another folder"
        ) from error


def _make_room(path: Path, size: int, limit: int, spare: Collection[Path]) -> None:
    """Remove stale files and any earlier entry, then the least recently used until `size` fits."""
    for folder in {temporary.parent for temporary in _cache_files(_TEMPORARY)}:
        remove_stale_temporaries(folder)
    _remove_entry(path)
    entries = list_cache()
    spared = sum(entry.bytes for entry in entries if entry.path in spare)
    entries = [entry for entry in entries if entry.path not in spare]
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


def _remove_entry(path: Path) -> int:
    # The data go last: as long as they exist, the entry is listed and counted.
    return _remove(path.with_suffix(".json")) + _remove(path)


def _remove(path: Path) -> int:
    """Remove a file if possible; return the bytes freed."""
    try:
        size = path.stat().st_size
        path.unlink()
    except OSError:
        return 0
    return size
