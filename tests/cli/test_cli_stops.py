"""What stops a run on its way: Ctrl-C and a full disk name the command that continues."""

import errno
import os
import shlex
import sys

import pytest
import typer

from layerscout import files
from layerscout.cli import groups
from layerscout.errors import DiskError, UnfinishedError
from layerscout.scanning import Scan

# What was typed, whether a training has begun, and what continues.
COMMANDS = [
    (["scan", "my model", "it's.csv"], True, "layerscout scan 'my model' 'it'\"'\"'s.csv'"),
    (["tune", "a", "b", "-o", "out"], True, "layerscout tune a b -o out --resume"),
    (["tune", "a", "b"], False, "layerscout tune a b"),
    (["tune", "a", "b", "--resume"], True, "layerscout tune a b --resume"),
    (["tune", "--", "a", "-b"], True, "layerscout tune --resume -- a -b"),
    (["demo"], True, "layerscout demo"),  # which resumes by itself
]


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        DiskError("make room and run it again"),
        UnfinishedError("make room and run it again"),
    ],
)
@pytest.mark.parametrize(("words", "trained", "command"), COMMANDS)
def test_what_stops_a_run_names_the_command_that_continues(
    words, trained, command, error, tmp_path, monkeypatch, capsys
):
    if trained:
        (tmp_path / "run-0").mkdir()
        (tmp_path / "run-0" / "state.json").touch()
    monkeypatch.setattr(sys, "argv", ["/bin/layerscout", *words])
    snapshots = tmp_path if words[0] in ("tune", "demo") else None
    with (
        pytest.raises((typer.Exit, DiskError, UnfinishedError)) as ended,
        groups.interruptible(snapshots),
    ):
        raise error
    if not isinstance(error, KeyboardInterrupt):
        assert str(ended.value) == f"make room and run it again: {command}"
        return
    assert ended.value.exit_code == 130
    line = f"layerscout: stopped; no file was left incomplete; to continue, run: {command}\n"
    assert capsys.readouterr().err == line
    assert shlex.split(command)[0] == "layerscout"


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
