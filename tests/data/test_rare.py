"""Classes with few rows, and rows whose text occurs again."""

from pathlib import Path
from typing import Any

import pytest

from inputs import Write, as_csv, expect_refused
from layerscout.data import Task

# Of a, b, c and d there are 6, 4, 2 and 1 rows; "other" is a class of its own in some.
COUNTS = {"a": 6, "b": 4, "c": 2, "d": 1}
SINGLE = (
    "1 of 4 classes of PATH has one row, which is trained on and left out of the scores: 'd'; "
    "--drop-rare 2 leaves such classes out, --merge-rare N makes one class, 'other', of those with "
    "fewer than N rows"
)


def write_rows(write: Write, counts: dict[str, int], name: str = "x.csv") -> Path:
    labels = [label for label, count in counts.items() for _ in range(count)]
    return write(name, as_csv({"text": [f"{name} {n}" for n in range(len(labels))], "y": labels}))


@pytest.mark.parametrize(
    ("counts", "options", "kept", "lines"),
    [
        (COUNTS, {}, {"a": 6, "b": 4, "c": 2, "d": 1}, [SINGLE]),
        (COUNTS, {"drop_rare": 2}, {"a": 6, "b": 4, "c": 2},
         ["1 of 4 classes of PATH with 1 of 13 training rows are left out: 'd'"]),
        (COUNTS, {"merge_rare": 3}, {"a": 6, "b": 4, "other": 3},
         ["2 of 4 classes of PATH with 3 of 13 training rows are merged into 'other': 'c', 'd'"]),
        (COUNTS, {"drop_rare": 2, "merge_rare": 5}, {"a": 6, "other": 6},
         ["1 of 4 classes of PATH with 1 of 13 training rows are left out: 'd'",
          "2 of 4 classes of PATH with 6 of 13 training rows are merged into 'other': 'b', 'c'"]),
        # A class of that name takes them in, however many rows it has.
        ({**COUNTS, "other": 5}, {"merge_rare": 4}, {"a": 6, "b": 4, "other": 8},
         ["2 of 5 classes of PATH with 3 of 18 training rows are merged into 'other': 'c', 'd'"]),
        (COUNTS, {"drop_rare": 2, "regression": False, "validation": 0.25},
         {"a": 4, "b": 3, "c": 2}, ["1 of 4 classes of PATH with 1 of 13 … 'd'"]),
        ({**COUNTS, **dict.fromkeys("efghij", 1)}, {}, {**COUNTS, **dict.fromkeys("efghij", 1)},
         ["7 of 10 classes of PATH have one row each, … 'd', 'e', 'f', 'g', 'h' and 2 more; "]),
    ],
)  # fmt: skip
def test_rare_classes_are_named_left_out_or_merged(
    write: Write, counts: Any, options: Any, kept: dict[str, int], lines: list[str]
) -> None:
    path = write_rows(write, counts)
    task = Task.load(path, **options)
    assert {name: (task.train.labels == k).sum() for k, name in enumerate(task.labels)} == kept
    assert len(task.warnings) == len(lines)
    for said, line in zip(task.warnings, lines, strict=True):
        assert all(part in said for part in line.replace("PATH", str(path)).split(" … "))


def test_other_splits_follow_training(write: Write) -> None:
    path = write_rows(write, COUNTS)
    held = write_rows(write, {"a": 1, "c": 1, "d": 2}, "held.csv")
    task = Task.load(path, validation=held, merge_rare=3)
    assert [task.labels[k] for k in task.validation.labels] == ["a", "other", "other", "other"]
    task = Task.load(path, validation=held, drop_rare=3)
    assert task.validation.texts == ["held.csv 0"] and task.origin["drop_rare"] == 3
    assert not Task.load(path, classes=("a", "b", "c", "d")).warnings  # which teaches nothing
    judged = Task.load(path, merge_rare=3, classes=("other", "b", "a"))  # by a model's order
    assert judged.labels == ("other", "b", "a") and (judged.train.labels == 2).sum() == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drop_rare": 1}, "`drop_rare` must be a whole number from 2 on, got 1"),
        ({"merge_rare": 7}, "2 classes: --merge-rare 7 leaves 1 of the 4 of … smaller number"),
        ({"drop_rare": 7}, "2 classes: --drop-rare 7 leaves 0 of the 4 of"),
        ({"drop_rare": 2, "label_separator": "|"}, "`drop_rare` is for texts of one class each"),
    ],
)
def test_refused(write: Write, options: dict[str, Any], words: str) -> None:
    expect_refused(words, Task.load, write_rows(write, COUNTS), **options)


@pytest.mark.parametrize("name", ["stars", "rating", "Kategorie", "intent", "class", "target", "y"])
def test_usual_names_of_labels(write: Write, name: str) -> None:
    rows = {"text": list("klmn"), name: ["p", "q"] * 2}
    assert Task.load(write("x.csv", as_csv(rows))).columns["label"] == name
    # One of the first choice goes before.
    both = write("y.csv", as_csv({**rows, "label": ["p", "q"] * 2}))
    assert name in ("intent", "class", "target") or Task.load(both).columns["label"] == "label"


@pytest.mark.parametrize(
    ("name", "labels", "rated"),
    [
        ("stars", [1, 2, 3], True),
        ("label", [1, 2, 3, 4, 5], True),
        ("label", [1, 2, 3, 4], False),
        ("rating", [1, 11, 12], False),
        ("stars", ["1", "2", "good"], False),
    ],
)
def test_ratings_may_be_numbers(write: Write, name: str, labels: Any, rated: bool) -> None:
    rows = {"text": [f"text {n}" for n in range(2 * len(labels))], name: labels * 2}
    said = Task.load(write("x.csv", as_csv(rows))).warnings
    assert rated == any("numbers, as of ratings; --regression predicts" in line for line in said)


SAME = "rows of task have a text that is there before; rows of one text stay together"


@pytest.mark.parametrize(
    ("texts", "labels", "lines"),
    [
        (["k", "l", "m", "n"], ["p", "q"] * 2, []),
        (["k", "l"] * 3, ["p", "q"] * 3, [f"4 of 6 {SAME}"]),
        (
            ["k", "l", "k", "m"],
            ["p", "q", "q", "p"],
            [
                f"1 of 4 {SAME}",
                "2 of 4 rows of task have a text that has another label too: 'k' as p and q; "
                "correct them, or drop one of each",
            ],
        ),
        (
            ["k", "l", "k"],
            [["p"], ["q"], ["p", "q"]],
            [f"1 of 3 {SAME}", "'k' as p and p+q; put them into"],
        ),
        (["k", "k", "m", "n"], [["p"], [], ["q"], ["p"]], [f"1 of 4 {SAME}", "as p and none"]),
        ([["k", "l"], ["k", "l"]], [["X", "Y"], ["Y", "X"]], []),
        (
            ["", "", "m", "n"],
            ["p", "q"] * 2,
            ["2 of 4 rows of task have an empty", f"1 of 4 {SAME}"],
        ),
    ],
)
def test_texts_that_occur_again(texts: Any, labels: Any, lines: list[str]) -> None:
    said = Task.from_lists(texts, labels).warnings
    assert len(said) == len(lines)
    assert all(words in line for words, line in zip(lines, said, strict=True))
