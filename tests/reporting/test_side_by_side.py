"""Two results on one page: what is said of them, and where the page is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from layerscout.reporting import build_side_by_side, describe_side_by_side
from layerscout.studies import write_report
from scan_content import scan, score


def tuned(speed: float = 4050.2) -> dict[str, Any]:
    flops = {"train": 1, "full_train": 2, "inference": 1, "full_inference": 2}
    return {
        "verb": "tune",
        "model": {"name": "tiny"},
        "task": {"kind": "classification", "labels": ["a", "b"], "name": "x", "examples_used": 9},
        "metric": "accuracy",
        "metrics": {"accuracy": 0.625},
        "test": None,
        "plan": {"notation": "(2, 3, 3)", "strategy": "auto"},
        "method": "full",
        "runs": [{"learning_rate": 3e-5, "seed": 0}],
        "kept": 0,
        "flops": flops,
        "parameters": {"total": 9, "trainable": 1},
        "seconds": {"train": 1.0},
        "memory": {},
        "examples_per_second": {"kept_model": speed, "full_model": speed / 2},
        "settings": {},
    }


def test_figures_that_are_not_paired_say_of_which_split_they_are():
    both = [tuned(), tuned()]
    why = {"unpaired": "the two were judged on different test rows"}
    line = describe_side_by_side(both, "ab", why)[0]
    assert line.startswith(
        "validation accuracy 0.625 (a) and validation accuracy 0.625 (b) are not"
    )
    tested = [one | {"test": {"metrics": {"accuracy": 0.425}}} for one in both]
    line = describe_side_by_side(tested, "ab", why)[0]
    assert line.startswith("test accuracy 0.425 (a) and test accuracy 0.425 (b) are not compared")


def test_two_comparisons_are_set_side_by_side():
    """Their examples are counted elsewhere than those of a scan."""
    content = {
        "verb": "compare",
        "models": [{"name": "a"}],
        "task": {"kind": "classification", "name": "x"},
        "settings": {},
    }
    both = [content | {"examples": number} for number in (30, 60)]
    (table,) = [one.table for one in build_side_by_side(both, "ab", None) if one.table]
    assert table.rows == [("Examples read", "30", "60")]


QUALITY = score([0.4, 0.5, 0.6], "higher", details={"metric": "accuracy"})
OTHER = score([0.4, 0.5, 0.6], "higher", details={"metric": "macro_f1"})


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"task": scan()["task"] | {"name": "imb"}}, "data"),
        ({"task": scan()["task"] | {"labels": ["0", "1"]}}, "data"),
        ({"settings": {"data": "other/reviews.csv"}}, "data"),
        ({"scores": {"head_quality": OTHER}}, "metrics"),
        ({"scores": {"cca": QUALITY}, "best": {"cca": 2}}, "scores"),
        ({"scores": {"head_quality": OTHER}, "settings": {"data": "o.csv"}}, "data and metrics"),
    ],
)
def test_scans_of_other_data_or_scores_come_with_a_caution(more, what):
    first = scan({"head_quality": QUALITY}, {"head_quality": 2})
    assert len(describe_side_by_side([first, first], "ab", None)) == 1
    _, caution = describe_side_by_side([first, first | more], "ab", None)
    assert caution == f"The values are of different {what}, and cannot be compared."


def test_scans_of_two_models_are_told_what_to_type_without_markup():
    other = scan(model=scan()["model"] | {"name": "large"})
    _, caution = describe_side_by_side([scan(), other], "ab", None)
    assert caution.endswith("compare the results with layerscout report A B.")


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Write two scans of one title; what is written without a place goes beside them."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scan.json").write_text(json.dumps(scan()), encoding="utf-8")
    return [tmp_path / "one", tmp_path / "two"]


def test_the_page_of_several_folders_replaces_none_of_theirs(scans, tmp_path, run):
    alone = write_report(scans[0]).written
    assert alone == [tmp_path / "one" / "report.html"]
    before = alone[0].read_text(encoding="utf-8")
    assert ">tiny on reviews</h2>" in before
    assert write_report([scans[0], scans[0] / "."]).written == alone, "it is one folder"
    code, printed, _ = run("report", *scans)
    assert (code, printed.splitlines()[-1]) == (0, "wrote report/report.html")
    assert alone[0].read_text(encoding="utf-8") == before
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "one: tiny on reviews" in page and "two: tiny on reviews" in page
    drawn = write_report(scans[0], tmp_path / "drawn", figures="svg").written
    assert drawn[1:] == [tmp_path / "drawn" / "figures" / "01-found.svg"]
    assert "best: state" in drawn[1].read_text(encoding="utf-8")


def test_what_is_in_the_way_of_the_page_of_several_folders_is_seen(scans, tmp_path, run):
    (tmp_path / "report").touch()
    code, _, errors = run("report", *scans)
    assert code == 2 and errors.startswith("layerscout: cannot write to report: ")
