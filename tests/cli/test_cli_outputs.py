"""Places that cannot be written are refused before a verb works, not after."""

import json
from pathlib import Path

import pytest

from layerscout import models, scanning, studies, tuning
from scan_content import scan

# A command that writes into OUT, and what is in the way there: a folder (with a /) or a file.
STUDY = "study phang2021-cka -o OUT --data ."
CASES = [
    ("plan SCAN -o OUT", "plan.json/"),
    ("plan OUT", "plan.json/"),
    ("plan SCAN -o OUT/below", "below"),
    ("tune demo demo -o OUT", "result.json/"),
    ("tune demo demo -o OUT", "predictions.parquet/"),
    ("tune demo demo -o OUT", "model/thesis/"),
    ("truncate demo --head 2 -o OUT/model", "model"),
    ("truncate demo --head 2 -o OUT/model", "model/thesis/"),
    (STUDY, "report.html/"),
    (STUDY, "summary.csv/"),
    (STUDY, "trials"),
    (f"{STUDY} --figures svg", "figures"),
    ("demo -o OUT", "plan.json/"),
    ("demo -o OUT", "result.json/"),
    ("demo -o OUT", "model"),
    ("demo -o OUT --plot OUT/file/x.png", "file"),
]


@pytest.mark.parametrize(("command", "blocked"), CASES)
def test_what_is_in_the_way_is_seen_before_any_work(command, blocked, run, tmp_path, monkeypatch):
    def work(*_, **__):
        raise AssertionError("work was done")

    monkeypatch.setattr(scanning, "scan", work)
    monkeypatch.setattr(scanning.Scan, "load", work)
    monkeypatch.setattr(models, "truncate", work)
    monkeypatch.setattr(tuning, "tune", work)
    monkeypatch.setattr(studies, "study", work)
    path = tmp_path / blocked
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(parents=True) if blocked.endswith("/") else path.touch()
    words = [word.replace("OUT", str(tmp_path)) for word in command.split()]
    code, printed, errors = run(*words)
    assert (code, printed, errors.count("\n")) == (2, "", 1)
    assert "cannot write" in errors and blocked.split("/")[0] in errors


@pytest.mark.parametrize(
    ("command", "blocked"),
    [
        ("report OUT/scan -o OUT", "report.html/"),
        ("report OUT/scan", "scan/report.html/"),
        ("report OUT/scan -o OUT --figures svg", "figures"),
    ],
)
def test_what_is_in_the_way_of_a_report_is_seen_before_any_is_written(
    command, blocked, run, tmp_path
):
    (tmp_path / "scan").mkdir()
    (tmp_path / "scan" / "scan.json").write_text(json.dumps(scan()))
    path = tmp_path / blocked
    path.mkdir() if blocked.endswith("/") else path.touch()
    before = sorted(tmp_path.rglob("*"))
    code, printed, errors = run(*(word.replace("OUT", str(tmp_path)) for word in command.split()))
    assert (code, printed, errors.count("\n")) == (2, "", 1)
    assert "cannot write" in errors and Path(blocked).name in errors
    assert sorted(tmp_path.rglob("*")) == before


def test_a_report_of_a_file_is_told_what_it_reads(run, tmp_path):
    (tmp_path / "scan.json").touch()
    code, _, errors = run("report", tmp_path / "scan.json")
    assert code == 2 and "name an output folder of layerscout" in errors
