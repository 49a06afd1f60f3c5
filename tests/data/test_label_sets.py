"""Several labels for a text: how they are written, what they become, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inputs import Write, as_csv, as_jsonl, expect_refused, parquet
from layerscout.data import Task

TEXTS = ["a", "b", "c", "d"]
LISTS = [["joy", "fear"], [], ["joy"], ["anger", "joy"]]
MARKS = [[0, 1, 1], [0, 0, 0], [0, 0, 1], [1, 0, 1]]  # anger, fear, joy


def check(task: Task, names: Any = ("anger", "fear", "joy"), marks: Any = MARKS) -> None:
    assert (task.kind, task.metric) == ("multi_label_classification", "micro_f1")
    assert task.labels == tuple(names) and task.train.labels.dtype == np.bool_
    assert task.train.labels.tolist() == np.array(marks, dtype=bool).tolist()
    assert task.train.texts == TEXTS and task.warnings == ()


# --- What is read ------------------------------------------------------------------------------


NUMBERS = [[10, 9], [], [10], [2, 10]]
STRINGS = ["joy | fear", None, "joy|", "anger|| joy"]
JSON_CELLS = ['["joy", "fear"]', "[]", ' ["joy"]', '["anger","joy"]']
PYTHON_CELLS = ["['joy', 'fear']", "[]", "['joy']", "['anger', 'joy']"]


@pytest.mark.parametrize(
    ("written", "separator", "formats"),
    [
        (LISTS, None, ["parquet", "jsonl"]),
        (JSON_CELLS, None, ["csv", "tsv"]),
        (PYTHON_CELLS, None, ["csv"]),
        (NUMBERS, None, ["parquet", "csv"]),  # sorted as numbers
        (STRINGS, "|", ["parquet", "jsonl"]),
        ([cell or "" for cell in STRINGS], "|", ["csv"]),
        (["|".join(map(str, row)) for row in NUMBERS], "|", ["csv"]),
    ],
)
def test_labels_of_every_source(
    write: Write, tmp_path: Path, written: list[Any], separator: str | None, formats: list[str]
) -> None:
    columns = {"text": TEXTS, "label": written}
    names = ("2", "9", "10") if "9" in str(written) else ("anger", "fear", "joy")
    tsv = "".join(f"{text}\t{cell}\n" for text, cell in zip(TEXTS, written, strict=True))
    contents = {"csv": as_csv(columns), "tsv": f"text\tlabel\n{tsv}"}
    for kind in formats:
        if kind == "parquet":
            path = parquet(tmp_path / "x.parquet", columns)
        else:
            path = write(f"x.{kind}", contents.get(kind) or as_jsonl(columns))
        check(Task.load(path, label_separator=separator), names)


@pytest.mark.parametrize("kind", [list, tuple, set, lambda row: np.array(row, dtype=str)])
def test_lists_of_python(kind: Any) -> None:
    check(Task.from_lists(TEXTS, [kind(row) for row in LISTS]))
    numbers = [np.array(row, np.int64) for row in NUMBERS]
    check(Task.from_lists(TEXTS, numbers), ("2", "9", "10"))


@pytest.mark.parametrize("label", ["joy,fear,anger", "joy, fear, anger", ["joy", "fear", "anger"]])
def test_columns_of_flags_keep_their_order(write: Write, tmp_path: Path, label: Any) -> None:
    marks = [[1, 1, 0], [0, 0, 0], [1, 0, 0], [1, 0, 1]]
    by_column = dict(zip(("joy", "fear", "anger"), np.array(marks).T, strict=True))
    for number, write_flag in enumerate((int, bool, float)):
        flags = {name: list(map(write_flag, column)) for name, column in by_column.items()}
        columns = {"text": TEXTS, "label": TEXTS, **flags}
        loaded = [
            Task.load(parquet(tmp_path / f"{number}.parquet", columns), label=label),
            Task.load(write(f"{number}.csv", as_csv(columns)), label=label),
        ]
        for task in loaded:
            check(task, ("joy", "fear", "anger"), marks)
            assert task.columns["label"] == "joy, fear, anger"
            assert task.origin["label"] == (label if isinstance(label, str) else "joy,fear,anger")


def test_a_column_whose_name_has_commas_goes_first(write: Write) -> None:
    columns = {"text": TEXTS, "a,b": [0, 1, 0, 1], "a": [1, 0, 0, 0], "b": [0, 1, 1, 1]}
    task = Task.load(write("x.csv", as_csv(columns)), label="a,b")
    assert task.kind == "classification" and task.train.labels.tolist() == [0, 1, 0, 1]


def test_names_of_columns_may_differ_in_case_alone(write: Write) -> None:
    task = Task.load(write("x.csv", "text,Joy,joy\na,1,0\nb,0,1\n"), label="Joy, joy")
    assert task.labels == ("Joy", "joy")
    assert task.train.labels.tolist() == [[True, False], [False, True]]


def test_known_labels_come_as_names_or_numbers(write: Write) -> None:
    columns = {"text": TEXTS, "labels": ["0,27", "27", "Anger", ""]}
    path = write("x.csv", as_csv(columns))
    task = Task.load(path, task="go_emotions", label_separator=",")
    assert task.labels == ("admiration", "anger", "neutral") and task.name == "go_emotions"
    assert task.train.labels.tolist() == [[1, 0, 1], [0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert task.warnings[0].startswith(f"labels without an example in {path}: amusement, annoyance")
    expect_refused(
        "go_emotions needs lists of labels, or --label-separator for strings of several: the "
        f"labels of {path} are read from column 'labels'; name others with --text and --label, or "
        "read them as another kind of task",
        Task.load,
        path,
        task="go_emotions",
    )


def test_validation_has_labels_of_training() -> None:
    validation = (["e", "f"], [["fear"], []])
    task = Task.from_lists(TEXTS, LISTS, validation=validation)
    assert task.validation is not None
    assert task.validation.labels.tolist() == [[False, True, False], [False] * 3]
    words = (
        "every label must occur in training … has 'hope' in row 1 … give training some: it has "
        "anger, fear, joy"
    )
    new = (["e", "f"], [[], ["joy", "hope"]])
    expect_refused(words, Task.from_lists, TEXTS, LISTS, validation=new)


def test_pairs_may_have_several_labels() -> None:
    task = Task.from_lists(TEXTS, LISTS, pairs=list("efgh"), validation=(["i"], [["joy"]], ["j"]))
    assert task.train.pairs == list("efgh") and task.validation is not None
    assert task.validation.labels.tolist() == [[False, False, True]]


# --- What should be known ----------------------------------------------------------------------


def test_what_teaches_nothing_is_told(write: Write) -> None:
    flags = {"text": ["a", "b"], "x": [1, 0], "y": [0, 0], "z": [1, 1]}
    path = write("x.csv", as_csv(flags))
    task = Task.load(path, label="x,y,z")
    assert task.labels == ("x", "z") and task.train.labels.tolist() == [[1, 1], [0, 1]]
    assert task.warnings == (
        f"labels without an example in {path}: y",
        f"labels that every row of {path} has, so that nothing can be learnt from them: z",
    )


def test_a_separator_that_separates_nothing_is_told(write: Write) -> None:
    path = write("x.csv", as_csv({"text": ["a", "b", "c"], "label": ["x;y", "y", ""]}))
    assert Task.load(path, label_separator=";").warnings == ()
    assert Task.load(path, label_separator="|").warnings == (
        f"no row of {path} has the separator '|' in column 'label', so each row has one label at "
        "most; correct --label-separator if they have more",
    )


def test_who_forgets_the_option_is_told_of_it(write: Write) -> None:
    path = write("joined.csv", "text,labels\na,joy|fear\nb,joy\nc,\nd,fear\n")
    expect_refused("every row needs a label … --label-separator '|'", Task.load, path)
    path = write("flags.csv", "text,number,joy,my fear\na,3,0,1\nb,1,1,true\n")
    words = "which column holds the labels … several columns of 0 and 1 with --label 'joy,my fear'"
    expect_refused(words, Task.load, path)
    path = write("flag.csv", "text,joy\na,0\nb,1\n")
    assert not expect_refused("name it with --label", Task.load, path).count("several")
