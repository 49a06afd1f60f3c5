"""Files are whole or not there, whatever happens in between."""

import os
import stat

import pytest

from layerscout.errors import InputError, unknown
from layerscout.files import check_output_folder, output_folder, replacing, write_files


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
    with pytest.raises(fault), replacing(path) as (temporary,):
        temporary.write_text("half")
        raise fault
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_full_disk_is_one_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(InputError, match="cannot write .*No space left"), replacing(path) as (t,):
        t.write_text("half")
        raise OSError(28, "No space left on device")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_in_the_way_is_one_line(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot write .*there is a folder of that name"):
        write_files({tmp_path / "file": "text", tmp_path / "folder": "text"})
    assert os.listdir(tmp_path) == ["folder"]


def test_files_that_belong_together_are_of_one_write(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    write_files(dict.fromkeys(paths, "old"))
    with pytest.raises(InputError, match="cannot write"), replacing(*paths) as (first, second):
        first.write_text("new")
        second.write_text("half")
        raise OSError(28, "No space left on device")
    assert [path.read_text() for path in paths] == ["old", "old"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match=r"cannot write into .* is a file; choose another"):
            check_output_folder(folder)
        with pytest.raises(InputError, match=r"cannot make the folder .*; choose another"):
            output_folder(folder)
    check_output_folder(tmp_path / "new" / "deep")
    assert not (tmp_path / "new").exists()  # a question leaves nothing behind
    assert output_folder(tmp_path / "new" / "deep").is_dir()
    assert os.listdir(tmp_path / "new" / "deep") == []


def test_a_read_only_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(InputError, match="is read-only; choose another"):
        check_output_folder(tmp_path / "out")


def test_unknown_names_come_with_a_guess():
    assert str(unknown("column", "lable", ["text", "label"])) == (
        "unknown column 'lable', did you mean 'label'? known: text, label"
    )
    assert str(unknown("column", "x", [])) == "unknown column 'x'; known: none"
