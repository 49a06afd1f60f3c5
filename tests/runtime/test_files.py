"""Files are whole or not there, whatever happens in between."""

import errno
import hashlib
import json
import os
import shutil
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from layerscout.runtime import (
    CacheError,
    DiskError,
    InputError,
    cache_folder,
    cache_path,
    check_output_folder,
    clear_cache,
    count_unfinished,
    find_cached,
    is_half_written,
    list_cache,
    lock_folder,
    make_output_folder,
    make_unknown_error,
    remove_folder,
    replace_files,
    tidy,
    write_entry,
    write_files,
)
from layerscout.runtime.files import STALE
from layerscout.studies import Store


def test_writes_what_it_is_given(tmp_path):
    write_files({tmp_path / "a.txt": "ν ✓\n"})
    assert (tmp_path / "a.txt").read_bytes() == "ν ✓\n".encode()
    write_files({tmp_path / "a.txt": b"new"})
    assert (tmp_path / "a.txt").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_new_files_get_ordinary_permissions(tmp_path):
    mask = os.umask(0o027)
    try:
        write_files({tmp_path / "a.txt": ""})
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ValueError, SystemExit])
def test_a_stop_in_the_middle_keeps_the_old_file_and_leaves_nothing(tmp_path, fault):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(fault), replace_files(path) as (temporary,):
        temporary.write_text("half")
        raise fault
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


FAILURES = {
    "full": (
        OSError(errno.ENOSPC, "No space left"),
        r"No space left .*\(1\.5 MB are free\); make room",
    ),
    "full, by pyarrow": (
        OSError(errno.ENOSPC, "Error\nDetail"),
        r"txt: No space left on device \(1",
    ),
    "full, by safetensors": (
        Exception("I/O error: full (os error 28)"),
        "make room and run it again",
    ),
    "broken": (OSError(errno.EIO, "Input/output error"), "check the disk and run it again"),
    "gone": (FileNotFoundError(errno.ENOENT, "No such file"), "it was removed meanwhile; run it"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_of_the_machine_is_one_line(failure, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_500_000))
    error, told = FAILURES[failure]
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(DiskError, match=told) as caught, replace_files(path) as (t,):
        t.write_text("half")
        raise error
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_that_vanishes_during_work(tmp_path):
    with pytest.raises(DiskError, match="removed meanwhile"):
        write_files({tmp_path / "gone" / "a.txt": "text"})


def test_a_path_that_is_at_fault_is_the_users(tmp_path):
    with (
        pytest.raises(InputError, match="Permission denied; choose another place"),
        replace_files(tmp_path / "a.txt"),
    ):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_a_folder_in_the_way_is_one_line(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot write .*there is a folder of that name"):
        write_files({tmp_path / "file": "text", tmp_path / "folder": "text"})
    assert os.listdir(tmp_path) == ["folder"]


def test_files_that_belong_together_are_of_one_write(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    write_files(dict.fromkeys(paths, "old"))
    with pytest.raises(DiskError, match="cannot write"), replace_files(*paths) as (first, second):
        first.write_text("new")
        second.write_text("half")
        raise OSError(28, "No space left on device")
    assert [path.read_text() for path in paths] == ["old", "old"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("changes", range(5))
def test_a_kill_while_files_are_moved_mixes_no_two_writes(tmp_path, monkeypatch, changes):
    """Some may be missing then; the first one is there only if all are."""
    paths, true = [tmp_path / name for name in "abc"], Path.replace
    write_files(dict.fromkeys(paths, "old"))

    def killed(self, target):
        if len([path for path in paths if path.exists()]) == changes:
            raise KeyboardInterrupt
        return true(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    with suppress(KeyboardInterrupt):
        write_files(dict.fromkeys(paths, "new"))
    contents = [path.read_text() for path in paths if path.exists()]
    assert contents == ["new"] * min(changes, 3)
    assert paths[0].exists() == (len(contents) == 3)


LOCKS = {
    "folder": lambda place: lock_folder(place / "work"),
    "trial": lambda place: Store(place).lock("work"),
}


@pytest.mark.parametrize("kind", LOCKS)
def test_a_lock_has_one_holder(tmp_path, kind):
    """Also where another process opened its file before it was released, and asks only now."""
    fcntl = pytest.importorskip("fcntl")
    with LOCKS[kind](tmp_path):
        [path] = tmp_path.rglob("*.lock")
        early = path.open("r+b")
    with early, LOCKS[kind](tmp_path), pytest.raises(BlockingIOError):
        fcntl.flock(early, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("kind", LOCKS)
def test_threads_that_want_a_lock_have_it_one_at_a_time(tmp_path, kind):
    holders, most = [], []

    def hold(number):
        for _ in range(50):
            with suppress(InputError), LOCKS[kind](tmp_path) as ours:
                if ours is False:
                    continue
                holders.append(number)
                most.append(len(holders))
                holders.remove(number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(hold, range(4)))
    assert set(most) == {1}


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match=r"cannot write to .* is a file; choose another"):
            check_output_folder(folder)
        with pytest.raises(InputError, match=r"cannot write .*; choose another"):
            make_output_folder(folder)
    if Path("/proc").is_dir():  # where nothing can be made, and running again does not help
        with pytest.raises(InputError, match=r"cannot make the folder /proc/.*; choose another"):
            make_output_folder(Path("/proc/none"))
    check_output_folder(tmp_path / "new" / "deep")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(InputError, match="is a link to nothing; choose another"):
        check_output_folder(tmp_path / "link")
    (tmp_path / "out" / "b.json").mkdir(parents=True)
    check_output_folder(tmp_path / "out", "a.json")
    with pytest.raises(InputError, match=r"b\.json: it is a folder; choose another"):
        check_output_folder(tmp_path / "out", "a.json", "b.json")
    assert not (tmp_path / "new").exists()  # a question leaves nothing behind
    assert make_output_folder(tmp_path / "new" / "deep").is_dir()
    assert os.listdir(tmp_path / "new" / "deep") == []


def test_a_read_only_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(InputError, match="is read-only; choose another"):
        check_output_folder(tmp_path / "out")


def test_unknown_names_come_with_a_guess():
    assert str(make_unknown_error("column", "lable", ["text", "label"])) == (
        "unknown column 'lable', did you mean 'label'? known: text, label"
    )
    assert str(make_unknown_error("column", "x", [])) == "unknown column 'x'; known: none"


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """Give what puts an entry of 100 bytes into a cache, made now or at some time."""
    monkeypatch.setenv("LAYERSCOUT_CACHE", str(tmp_path / "cache"))

    def put(letter, used=None, limit=10**6):
        path = cache_path("kind", letter * 64)
        content = letter.encode() * 100
        about = {"sha256": hashlib.sha256(content).hexdigest(), "seconds": 0.5, "of": letter}
        with write_entry(path, 100, limit) as (data, sidecar):
            data.write_bytes(content)
            sidecar.write_text(json.dumps(about))
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


def test_what_killed_runs_left_in_a_folder_goes_after_a_day(tmp_path):
    old = [".scan-ab12cd_4.layerscout-part.json", ".mo\ndel-ab12cd_4.layerscout-part"]
    earlier = [f".{name}-ab12cd_4.layerscout-part.earlier" for name in ("model", "other")]
    kept = ["mine", ".mine-settings.layerscout.yaml", ".a-b.layerscout-part"]
    fresh = ".plan-ab12cd_4.layerscout-part.json"
    for name in (old[0], fresh, *kept):
        (tmp_path / name).write_text("{")
    for name in (old[1], *earlier, "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(name)
    for name in (*old, *kept, *earlier):
        os.utime(tmp_path / name, (0, 0))
    make_output_folder(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, fresh, "model", "other"])
    # A kill between two renames had left no model; there was another one of the other name.
    assert (tmp_path / "model" / "config.json").read_text() == earlier[0]
    assert (tmp_path / "other" / "config.json").read_text() == "other"
    tidy(tmp_path / "nowhere")


def test_a_folder_that_is_removed_is_gone_at_once(tmp_path, monkeypatch):
    folder = tmp_path / "training"
    for _ in range(2):
        folder.mkdir()
        (folder / "training.json").touch()
        os.utime(folder, (0, 0))
        remove_folder(folder)
        assert not folder.exists()
        monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # a kill comes first
    [left] = tmp_path.iterdir()
    assert is_half_written(left) and time.time() - left.stat().st_mtime < STALE
    remove_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ValueError, InputError])
def test_a_stop_while_caching_is_no_fault_of_the_cache(cached, fault):
    path = cached("a")
    with pytest.raises(fault), write_entry(cache_path("kind", "b" * 64), 100, 10**6) as (data, _):
        data.write_bytes(b"half")
        raise fault
    assert [e.path for e in list_cache()] == [path]
    assert len(os.listdir(path.parent)) == 2
