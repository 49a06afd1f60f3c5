"""Two results side by side: counted flips, one page, and what cannot be compared."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from layerscout.data import find_row_interval, pair_predictions
from layerscout.studies import write_report
from scan_content import scan, score
from tuned import cheaply, task_of

BAD = "<script>alert(1)</script>"


def content_of(kind: str = "classification", metric: str = "accuracy") -> dict[str, Any]:
    labels = [] if kind == "regression" else ["O", "B-a"]
    task = {"kind": kind, "labels": labels}
    return {"task": task, "metric": metric, "metrics": {metric: 0.5}, "thresholds": None}


def write(folder: Path, table: dict[str, Any]) -> Path:
    folder.mkdir()
    pd.DataFrame(table).to_parquet(folder / "predictions.parquet", index=False)
    return folder


def table_of(predicted: str, sure: list[float], texts: str = "abcd") -> dict[str, Any]:
    """Make predictions of four texts of class B-a, given as a string of O and B."""
    names = ["B-a" if one == "B" else "O" for one in predicted]
    signs = [1 if one == "B" else -1 for one in predicted]
    logits = [[0.0, sign * size] for sign, size in zip(signs, sure, strict=True)]
    return {
        "row": range(4),
        "text": list(texts),
        "label": ["B-a"] * 4,
        "prediction": names,
        "logits": logits,
    }


def test_flips_are_counted_and_the_surest_is_first(tmp_path):
    one = write(tmp_path / "one", table_of("BBBO", [1, 1, 3, 1]))
    two = write(tmp_path / "two", table_of("BOOB", [1, 1, 2, 1]))
    comparison = pair_predictions([one, two], [content_of(), content_of()])
    flips = comparison["flips"]
    assert (flips["gained"], flips["lost"], flips["both"], flips["neither"]) == (1, 2, 1, 0)
    assert [row["text"] for row in flips["lost_listed"]] == ["c", "b"]
    assert flips["lost_listed"][0]["probabilities"] == pytest.approx(
        [1 / (1 + np.exp(-3)), 1 / (1 + np.exp(-2))]
    )
    assert comparison["difference"] == pytest.approx(-0.25)


def test_other_rows_and_missing_files_are_not_compared(tmp_path):
    one = write(tmp_path / "one", table_of("BBBO", [1] * 4))
    two = write(tmp_path / "two", table_of("BBBO", [1] * 4, texts="abce"))
    both = [content_of(), content_of()]
    assert "different validation rows" in pair_predictions([one, two], both)["unpaired"]
    assert "has no predictions" in pair_predictions([one, tmp_path], both)["unpaired"]
    numbers = content_of("regression", "pearson")
    assert "kinds" in pair_predictions([one, one], [both[0], numbers])["unpaired"]


@pytest.mark.parametrize(
    ("validated", "tested", "split"),
    [("abcd", "efgh", "test"), ("abcd", "efgx", "validation"), ("abcx", "efgx", None)],
)
def test_validation_rows_are_compared_where_test_rows_differ(tmp_path, validated, tested, split):
    folders = [
        write(
            tmp_path / name,
            pd.concat(
                [
                    pd.DataFrame(table_of("BBBO", [1] * 4, texts=texts)).assign(split=which)
                    for which, texts in parts.items()
                ]
            ),
        )
        for name, parts in {
            "one": {"validation": "abcd", "test": "efgh"},
            "two": {"validation": validated, "test": tested},
        }.items()
    ]
    comparison = pair_predictions(folders, [content_of(), content_of()])
    if split is None:
        assert "different test rows" in comparison["unpaired"]
    else:
        assert (comparison["split"], comparison["examples"]) == (split, 4)
        assert comparison["values"] == [0.75, 0.75]


@pytest.mark.parametrize(
    "kind", ["token_classification", "multi_label_classification", "regression"]
)
def test_words_several_labels_and_numbers_are_compared(tmp_path, kind):
    given: dict[str, tuple[str, list[Any], list[Any]]] = {
        "token_classification": ("entity_f1", ["B-a", "O", "B-a"], ["B-a", "B-a", "O"]),
        "multi_label_classification": ("micro_f1", [["O"], [], ["B-a"]], [["O"], ["B-a"], []]),
        "regression": ("pearson", [1.0, 2.0, 3.0], [1.0, 3.0, 2.0]),
    }
    metric, labels, predicted = given[kind]
    table: dict[str, Any] = {"row": [0, 0, 1], "text": list("xyz"), "label": labels}
    table |= {"word": [0, 1, 0]} if kind.startswith("token") else {}
    width = 1 if kind == "regression" else 2
    folders = [
        write(
            tmp_path / str(seed),
            {
                **table,
                "prediction": said,
                "logits": list(np.random.default_rng(seed).normal(size=(3, width))),
            },
        )
        for seed, said in enumerate([predicted, labels])
    ]
    comparison = pair_predictions(folders, [content_of(kind, metric)] * 2)
    assert comparison["unpaired"] is None
    if kind == "regression":
        assert comparison["flips"] is None
    else:
        assert (comparison["flips"]["gained"], comparison["flips"]["lost"]) == (2, 0)
    json.dumps(comparison, allow_nan=False)


def kept(kind: str, metric: str, labels: list[Any], predicted: list[Any]) -> dict[str, Any]:
    names = ["O", "B-a", "I-a"]
    content = {"kind": kind, "label_names": names, "labels": labels, "predictions": predicted}
    return {"metric": metric, **content}


@pytest.mark.parametrize(
    ("kind", "metric", "right", "wrong"),
    [
        ("multi_label_classification", "subset_accuracy", [0, 2], []),
        ("token_classification", "accuracy", [0, 1], [0, 0]),
        ("classification", "accuracy", 1, 0),
        ("multiple_choice", "accuracy", 3, 0),
    ],
)
def test_predictions_of_every_kind_give_an_interval(kind, metric, right, wrong):
    # Of 40 answers, which are alike, the first model has 10 right and the second 20.
    labels = [right] * 40
    both = [kept(kind, metric, labels, [right] * hits + [wrong] * (40 - hits)) for hits in (10, 20)]
    low, high = find_row_interval(*both)
    # The standard error of the mean of 10 gains in 40; a tag in two is right anyway.
    share = 0.5 if kind == "token_classification" else 1.0
    size = 1.96 * share * np.sqrt(0.25 * 0.75 / 40)
    assert (low + high) / 2 == pytest.approx(0.25 * share, abs=0.02)
    assert (high - low) / 2 == pytest.approx(size, rel=0.4)


def test_predictions_that_do_not_make_up_a_metric_give_no_interval():
    one = kept("multi_label_classification", "lrap", [[0], [1, 2]], [[], [1]])
    assert find_row_interval(one, one) is None
    assert find_row_interval({"metric": "accuracy"}, {"metric": "accuracy"}) is None
    words = kept("token_classification", "entity_f1", [[0, 1], [1]], [[0, 0], [1]])
    assert find_row_interval(words, words) == (0, 0)


def test_a_report_of_two_tuned_runs_begins_with_the_comparison(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOUT_CACHE", str(tmp_path / "cache"))
    task = task_of(n=24, held=16)
    task.validation.texts[0] = BAD
    for plan in ("top:1", "head:1"):
        cheaply(tiny, task, plan, epochs=1).save(tmp_path / plan[:3])
    report = write_report([tmp_path / "top", tmp_path / "hea"], tmp_path / "both")
    page = (tmp_path / "both" / "report.html").read_text(encoding="utf-8")
    assert "on the same 16 validation examples" in report.lines[0]
    assert page.index("on the same 16 validation examples") < page.index("What changed")
    assert "head:1" in page
    assert BAD not in page


def test_two_scans_are_compared_and_another_pair_is_not(tmp_path):
    apart = {"separable_from_best": [True, False, False]}
    near = {"head_quality": score([0.46, 0.54, 0.55], "higher", details=apart)}
    for name, content in (("one", scan()), ("two", scan(near, {"head_quality": 2}))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scan.json").write_text(json.dumps(content), encoding="utf-8")
    two = [tmp_path / "one", tmp_path / "two"]
    report = write_report(two, tmp_path / "both")
    assert report.lines[0].startswith("one finds state")
    page = (tmp_path / "both" / "report.html").read_text(encoding="utf-8")
    assert "state 2 (tied)" in page and page.count("(tied)") == 1
    assert "Tied: others cannot be told apart from it." in page
    assert write_report(two[:1], tmp_path / "single").lines == []
