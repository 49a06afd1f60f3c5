"""What stops a run on its way: Ctrl-C and a full disk name the command that continues."""

import errno
import os
import shlex
import sys

import pytest
import typer

from layerscout import files
from layerscout.cli import groups
from layerscout.errors import DiskError
from layerscout.scanning import Scan

COMMANDS = {
    "scan": (["scan", "my model", "it's.csv"], "layerscout scan 'my model' 'it'\"'\"'s.csv'"),
    "tune": (["tune", "a", "b", "-o", "out"], "layerscout tune a b -o out --resume"),
    "tune that was resumed": (["tune", "a", "b", "--resume"], "layerscout tune a b --resume"),
    "tune with names that look like options": (
        ["tune", "--", "a", "-b"],
        "layerscout tune --resume -- a -b",
    ),
    "demo, which resumes by itself": (["demo"], "layerscout demo"),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_ctrl_c_names_the_command_that_continues(case, tmp_path, monkeypatch, capsys):
    words, command = COMMANDS[case]
    (tmp_path / "run-0").mkdir()
    (tmp_path / "run-0" / "state.json").touch()
    monkeypatch.setattr(sys, "argv", ["/bin/layerscout", *words])
    snapshots = tmp_path if words[0] in ("tune", "demo") else None
    with pytest.raises(typer.Exit) as ended, groups.interruptible(snapshots):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    told = capsys.readouterr().err
    assert (
        told == f"layerscout: stopped; no file was left incomplete; to continue, run: {command}\n"
    )
    assert shlex.split(told.partition("run: ")[2])[0] == "layerscout"


def test_without_snapshots_there_is_nothing_to_resume(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["layerscout", "tune", "a", "b"])
    with pytest.raises(typer.Exit), groups.interruptible(tmp_path / "none"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err.endswith("run: layerscout tune a b\n")


def test_a_full_disk_while_tuning_says_how_to_go_on(tmp_path, monkeypatch):
    (tmp_path / "run-0").mkdir()
    (tmp_path / "run-0" / "state.json").touch()
    monkeypatch.setattr(sys, "argv", ["layerscout", "tune", "a", "b"])
    with (
        pytest.raises(DiskError, match="make room and run it again: layerscout tune a b --resume"),
        groups.interruptible(tmp_path),
    ):
        raise DiskError("make room and run it again")


def test_a_full_disk_is_no_fault_of_the_input(run, tiny, reviews, tmp_path, monkeypatch):
    out, sync = tmp_path / "out", os.fsync

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    code, printed, errors = run("scan", tiny, reviews, "-o", out, "--score", "nc1")
    assert (code, printed, errors.count("\n")) == (1, "", 1)
    assert f"cannot write {out}" in errors and "MB are free); make room and run it again" in errors
    assert errors.endswith(f"layerscout scan {tiny} {reviews} -o {out} --score nc1\n")
    assert list(out.iterdir()) == []
    monkeypatch.setattr(files.os, "fsync", sync)
    assert run("scan", tiny, reviews, "-o", out, "--score", "nc1")[0] == 0
    assert Scan.load(out)
