"""Files are whole or not there, whatever happens in between."""

import errno
import os
import shutil
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from layerscout.errors import DiskError, InputError, make_unknown_error
from layerscout.files import (
    STALE,
    check_output_folder,
    is_half_written,
    lock_folder,
    make_output_folder,
    remove_folder,
    remove_stale_temporaries,
    replace_files,
    write_files,
)
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


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt, ""),
        (ValueError(), ValueError, ""),
        (SystemExit(), SystemExit, ""),
        (FULL, DiskError, r"No space left .*\(1\.5 MB are free\); make room"),
        # Of pyarrow and of safetensors.
        (OSError(errno.ENOSPC, "Error\nDetail"), DiskError, r"txt: No space left on device \(1"),
        (Exception("I/O error: full (os error 28)"), DiskError, "make room and run it again"),
        (OSError(errno.EIO, "Input/output error"), DiskError, "check the disk and run it again"),
        (FileNotFoundError(errno.ENOENT, "No such file"), DiskError, "removed meanwhile; run it"),
        (
            PermissionError(errno.EACCES, "Permission denied"),
            InputError,
            "Permission denied; choose another place",
        ),
    ],
)
@pytest.mark.parametrize("names", [["a.txt"], ["a.txt", "b.txt"]])
def test_a_stop_in_the_middle_keeps_the_old_files_and_is_one_line(
    fault, error, words, names, tmp_path, monkeypatch
):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_500_000))
    paths = [tmp_path / name for name in names]
    write_files(dict.fromkeys(paths, "old"))
    with pytest.raises(error, match=words or None) as caught, replace_files(*paths) as temporaries:
        temporaries[0].write_text("half")
        raise fault
    if words:
        assert "\n" not in str(caught.value) and str(paths[-1]) in str(caught.value)
    assert [path.read_text() for path in paths] == ["old"] * len(paths)
    assert sorted(os.listdir(tmp_path)) == names


def test_a_folder_that_vanishes_during_work(tmp_path):
    with pytest.raises(DiskError, match="removed meanwhile"):
        write_files({tmp_path / "gone" / "a.txt": "text"})


def test_a_folder_in_the_way_is_one_line(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot write .*there is a folder of that name"):
        write_files({tmp_path / "file": "text", tmp_path / "folder": "text"})
    assert os.listdir(tmp_path) == ["folder"]


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


@pytest.mark.parametrize("failing", ["a", "b", "c"])
@pytest.mark.parametrize("earlier", [True, False])
def test_a_move_that_fails_leaves_all_files_as_they_were(tmp_path, monkeypatch, failing, earlier):
    paths, true = [tmp_path / name for name in "abc"], Path.replace
    for path in paths[: 3 if earlier else 1]:
        path.write_text("old")
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}

    def full(self, target):
        if target.name == failing and not self.name.endswith(".before"):
            raise FULL
        return true(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DiskError, match="make room"):
        write_files(dict.fromkeys(paths, "new"))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


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
    if Path("/proc").is_dir():  # where no folder can be made
        with pytest.raises(InputError, match="cannot make the folder /proc/x: .*; choose another"):
            make_output_folder(Path("/proc/x"))
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
    remove_stale_temporaries(tmp_path / "nowhere")


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
