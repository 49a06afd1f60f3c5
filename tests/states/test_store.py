"""The cache: entries are whole or not there, and the least recently used make way."""

import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from layerscout.errors import InputError
from layerscout.files import STALE
from layerscout.states import (
    CacheError,
    cache_folder,
    cache_path,
    clear_cache,
    count_unfinished,
    find_cached,
    list_cache,
    write_entry,
)


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """Return what puts an entry of 100 bytes into a cache, made now or at some time."""
    monkeypatch.setenv("LAYERSCOUT_CACHE", str(tmp_path / "cache"))

    def put(letter, used=None, limit=10**6):
        path = cache_path("kind", letter * 64)
        with write_entry(path, 100, limit) as (data, about):
            data.write_bytes(letter.encode() * 100)
            about |= {"seconds": 0.5, "of": letter}
        if used:
            os.utime(path.with_suffix(".json"), (used, used))
        return path

    return put


def test_the_cache_lies_where_the_user_says(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOUT_CACHE", str(tmp_path))
    assert cache_path("kind", "0" * 64) == tmp_path / "kind" / f"{'0' * 64}.bin"
    monkeypatch.setenv("LAYERSCOUT_CACHE", "~/there")
    assert cache_folder() == Path.home() / "there"
    monkeypatch.setenv("LAYERSCOUT_CACHE", "")
    assert cache_folder().name.lower() == "layerscout"
    monkeypatch.delenv("LAYERSCOUT_CACHE")
    assert cache_folder().name.lower() == "layerscout"


def test_an_empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOUT_CACHE", str(tmp_path / "nowhere"))
    assert list_cache() == []
    assert clear_cache() == 0
    assert not (tmp_path / "nowhere").exists()


def test_entries_are_listed_by_use_and_found_when_whole(cached):
    a, b = cached("a", used=100), cached("b", used=200)
    assert [(e.path, e.used, e.about["of"]) for e in list_cache()] == [
        (b, 200, "b"),
        (a, 100, "a"),
    ]
    assert list_cache()[0].bytes == 100 + b.with_suffix(".json").stat().st_size
    assert find_cached(a, 99) is None  # and that is no use
    assert find_cached(a, 100)["of"] == "a"
    assert [e.path for e in list_cache()] == [a, b]
    a.write_bytes(b"x" * 100)
    assert find_cached(a, 100) is None


def test_room_is_made_for_the_new_by_the_least_recently_used(cached):
    a, b, c = cached("a", used=300), cached("b", used=100), cached("c", used=200)
    each = list_cache()[0].bytes
    d = cached("d", limit=2 * each + 100)
    assert [e.path for e in list_cache()] == [d, a, c]
    e = cached("e", limit=100)
    assert [entry.path for entry in list_cache()] == [e]
    with pytest.raises(CacheError, match=r"may hold 9.9e-08 GB, and 1e-07 GB are needed; raise"):
        cached("f", limit=99)
    assert [entry.path for entry in list_cache()] == [e]
    assert not b.exists()


def test_an_entry_that_is_replaced_needs_no_room_beside_itself(cached):
    cached("a", used=100)
    cached("b")
    cached("b", limit=sum(entry.bytes for entry in list_cache()))
    assert [entry.about["of"] for entry in list_cache()] == ["b", "a"]


def test_room_is_made_on_the_disk_too(cached, monkeypatch):
    cached("a", used=100)
    cached("b", used=200)
    each = list_cache()[0].bytes
    free = 100 - each
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    cached("c")
    assert [e.about["of"] for e in list_cache()] == ["c", "b"]
    free = 99 - 2 * each
    with pytest.raises(CacheError, match="set LAYERSCOUT_CACHE to a folder on a larger disk"):
        cached("d")
    assert [e.about["of"] for e in list_cache()] == ["c", "b"]


def test_data_that_nothing_is_told_about_count_and_go_first(cached):
    a, b = cached("a"), cached("b")
    a.with_suffix(".json").unlink()
    os.utime(a, (100, 100))
    assert [(e.path, dict(e.about)) for e in list_cache()][1] == (a, {})
    assert list_cache()[1].bytes == 100
    c = cached("c", limit=list_cache()[0].bytes + 150)
    assert [e.path for e in list_cache()] == [c, b]


def test_temporary_files_go_when_they_are_stale(cached):
    folder = cached("a").parent
    old, new = (folder / f".{'b' * 64}-{part}_file.layerscout-part.bin" for part in ("old", "new"))
    old.touch()
    new.touch()
    long_ago = time.time() - STALE - 1
    os.utime(old, (long_ago, long_ago))
    cached("c")
    assert (old.exists(), new.exists()) == (False, True)


def test_clearing_removes_what_the_cache_wrote_and_nothing_else(cached):
    folder = cached("a").parent
    cached("b").unlink()
    (folder / f".{'c' * 64}-x_1.layerscout-part.bin").write_bytes(b"half")
    (folder / f".{'c' * 64}-x_1.layerscout-part.json").touch()
    assert count_unfinished() == (2, 4)
    size = sum(path.stat().st_size for path in folder.iterdir())
    theirs = [
        folder / "notes.json",
        folder / ".b.layerscout-part.bin",
        folder.parent / f"{'a' * 64}.bin",
    ]
    for path in theirs:
        path.write_text("theirs")
    assert clear_cache() == size
    assert list_cache() == [] and count_unfinished() == (0, 0)
    assert sorted(p for p in folder.parent.rglob("*") if p.is_file()) == sorted(theirs)


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ValueError, InputError])
def test_a_stop_while_caching_is_no_fault_of_the_cache(cached, fault):
    path = cached("a")
    with pytest.raises(fault), write_entry(cache_path("kind", "b" * 64), 100, 10**6) as (data, _):
        data.write_bytes(b"half")
        raise fault
    assert [e.path for e in list_cache()] == [path]
    assert len(os.listdir(path.parent)) == 2
