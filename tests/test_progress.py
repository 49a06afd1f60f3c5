"""How far the work is, on a terminal and in a log."""

import logging
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import ClassVar

import pytest

from layerscout import progress as module
from layerscout.progress import announce_waiting, show_progress


@pytest.fixture
def clock(monkeypatch):
    """Return seconds that pass when the test says so."""
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("progress", "seconds", "lines"),
    [
        (True, range(200), "training: 30%\ntraining: 60%\ntraining: 90%\njudging: 1 of many\n"),
        (True, [59], ""),  # short work
        (False, [1000], ""),
    ],
)
def test_a_log_gets_a_plain_line_a_minute(clock, capsys, progress, seconds, lines):
    with show_progress(progress) as show:
        for second in seconds:
            clock[0] = second
            show("training", second, 200)
        if len(seconds) > 1:
            clock[0] = 1000
            show("judging", 1, 0, "1 of many")
    assert capsys.readouterr() == ("", lines)


def test_a_terminal_gets_a_line_that_is_gone_at_the_end(clock, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with show_progress(True) as show:
        clock[0] = 1000
        show("training", 1, 2)
    printed, errors = capsys.readouterr()
    assert printed == "" and "training" in errors
    assert "training: 50%" not in errors and errors.endswith("\x1b[2K")


class Cell:
    """What is shown below a cell: a line for each handle, as a notebook that is saved holds it."""

    lines: ClassVar[list[str]] = []

    def display(self, content, raw):
        self.place = len(self.lines)
        self.lines.append(content["text/plain"])

    def update(self, content, raw):
        self.lines[self.place] = content["text/plain"]


def test_a_notebook_without_widgets_gets_one_line(clock, capsys, monkeypatch):
    shell = type("ZMQInteractiveShell", (), {})  # by whose name rich knows a notebook
    monkeypatch.setattr("builtins.get_ipython", shell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(DisplayHandle=Cell))
    monkeypatch.setattr(Cell, "lines", lines := [])
    seen = []
    with show_progress(True) as show, show_progress(False) as silent:
        for second, stage in enumerate(("training", "training", "judging")):
            clock[0] = second
            show(stage, second, 2)
            silent(stage, second, 2)
            seen.append(list(lines))
    assert seen == [[""], ["training: 50%"], ["judging: 100%"]] and lines == [""]
    assert capsys.readouterr() == ("", "")


def test_a_function_is_called_in_place_of_a_bar(clock, capsys):
    calls = []
    with show_progress(lambda *call: calls.append(call)) as show:
        clock[0] = 1000
        show("training", 1, 2, "a note")
    assert calls == [("training", 1, 2, "a note")]
    assert capsys.readouterr() == ("", "")


def test_what_is_awaited_is_said_once_it_takes_long(capsys, monkeypatch):
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.01)
    with announce_waiting("waiting for a friend"):
        time.sleep(0.5)
    monkeypatch.setattr(module, "WAIT_SECONDS", 60)
    with announce_waiting("waiting for nobody"):
        pass
    assert capsys.readouterr() == ("", "layerscout: waiting for a friend\n")


def test_stages_are_logged_once_each(caplog):
    caplog.set_level(logging.INFO, "layerscout")
    with show_progress(False) as show:
        for stage, done in (("scanning", 0), ("scanning", 1), ("training", 0)):
            show(stage, done, 2)
    assert [record.getMessage() for record in caplog.records] == ["scanning", "training"]
    assert {record.name for record in caplog.records} == {"layerscout.progress"}


def test_without_logging_set_up_a_warning_is_silent():
    code = "import layerscout, logging; logging.getLogger('layerscout.scanning').warning('!')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
