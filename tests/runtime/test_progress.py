"""How far the work is, on a terminal and in a log."""

import pytest

from layerscout.runtime import progress as module
from layerscout.runtime.progress import show_progress


@pytest.fixture
def clock(monkeypatch):
    """Give seconds that pass when the test says so."""
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_plain_line_a_minute(clock, capsys):
    with show_progress(True) as show:
        for second in range(200):
            clock[0] = second
            show("training", second, 200)
        clock[0] = 1000
        show("judging", 1, 0, "1 of many")
    _, errors = capsys.readouterr()
    assert errors == "training: 30%\ntraining: 60%\ntraining: 90%\njudging: 1 of many\n"


def test_short_work_and_unwanted_lines_leave_a_log_empty(clock, capsys):
    with show_progress(True) as show:
        clock[0] = 59
        show("training", 1, 2)
    with show_progress(False) as show:
        clock[0] = 1000
        show("training", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_line_that_is_gone_at_the_end(clock, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with show_progress(True) as show:
        clock[0] = 1000
        show("training", 1, 2)
    printed, errors = capsys.readouterr()
    assert printed == "" and "training" in errors
    assert "training: 50%" not in errors and errors.endswith("\x1b[2K")
