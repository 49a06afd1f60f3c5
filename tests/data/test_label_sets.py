"""Several labels for a text: how they are written, what they become, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import real
from inputs import Write, as_csv, as_jsonl, expect_refused, parquet
from layerscout.data import KNOWN, Task

TEXTS = ["a", "b", "c", "d"]
LISTS = [["joy", "fear"], [], ["joy"], ["anger", "joy"]]
MARKS = [[0, 1, 1], [0, 0, 0], [0, 0, 1], [1, 0, 1]]  # anger, fear, joy


def check(task: Task, names: Any = ("anger", "fear", "joy"), marks: Any = MARKS) -> None:
    assert (task.kind, task.metric) == ("multi_label_classification", "micro_f1")
    assert task.labels == tuple(names) and task.train.labels.dtype == np.bool_
    assert task.train.labels.tolist() == np.array(marks, dtype=bool).tolist()
    assert task.train.texts == TEXTS and task.warnings == ()


# --- What is read ------------------------------------------------------------------------------


def test_lists_of_every_source(write: Write, tmp_path: Path) -> None:
    columns = {"text": TEXTS, "labels": LISTS}
    check(Task.load(parquet(tmp_path / "x.parquet", columns)))
    check(Task.load(write("x.jsonl", as_jsonl(columns))))
    check(Task.from_lists(TEXTS, LISTS))
    check(Task.from_lists(TEXTS, [tuple(row) for row in LISTS]))
    check(Task.from_lists(TEXTS, [set(row) for row in LISTS]))
    check(Task.from_lists(TEXTS, [np.array(row, dtype=str) for row in LISTS]))


def test_lists_in_cells_are_json_or_as_python_writes_them(write: Write) -> None:
    json_cells = ['["joy", "fear"]', "[]", ' ["joy"]', '["anger","joy"]']
    python_cells = ["['joy', 'fear']", "[]", "['joy']", "['anger', 'joy']"]
    for number, cells in enumerate((json_cells, python_cells)):
        check(Task.load(write(f"{number}.csv", as_csv({"text": TEXTS, "label": cells}))))
    rows = "".join(f"{text}\t{cell}\n" for text, cell in zip(TEXTS, json_cells, strict=True))
    check(Task.load(write("x.tsv", f"text\tlabel\n{rows}")))


def test_numbers_in_lists_are_sorted_as_numbers(write: Write, tmp_path: Path) -> None:
    lists = [[10, 9], [], [10], [2, 10]]
    names, marks = ("2", "9", "10"), MARKS
    columns = {"text": TEXTS, "labels": lists}
    check(Task.load(parquet(tmp_path / "x.parquet", columns)), names, marks)
    check(Task.load(write("x.csv", as_csv(columns))), names, marks)
    check(Task.from_lists(TEXTS, [np.array(row, np.int64) for row in lists]), names, marks)
    joined = ["|".join(map(str, row)) for row in lists]
    path = write("y.csv", as_csv({"text": TEXTS, "label": joined}))
    check(Task.load(path, label_separator="|"), names, marks)


def test_strings_are_split_at_the_separator(write: Write, tmp_path: Path) -> None:
    written = ["joy | fear", None, "joy|", "anger|| joy"]
    columns = {"text": TEXTS, "label": written}
    check(Task.load(parquet(tmp_path / "x.parquet", columns), label_separator="|"))
    check(Task.load(write("x.jsonl", as_jsonl(columns)), label_separator="|"))
    cells = write("x.csv", as_csv({"text": TEXTS, "label": [cell or "" for cell in written]}))
    check(Task.load(cells, label_separator="|"))


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


def test_class_names_that_datasets_wrote_number_the_items(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset, Features, List, Value

    features = Features({"text": Value("string"), "labels": List(ClassLabel(names=["y", "x"]))})
    rows = Dataset.from_dict({"text": TEXTS, "labels": [[0], [1, 0], [], [1]]}, features=features)
    rows.to_parquet(tmp_path / "x.parquet")
    check(Task.load(tmp_path / "x.parquet"), ("y", "x"), [[1, 0], [1, 1], [0, 0], [0, 1]])


def test_lists_on_the_hub_bring_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

    names = list(KNOWN["go_emotions"].labels)
    features = Features({"text": Value("string"), "labels": List(ClassLabel(names=names))})
    rows = Dataset.from_dict({"text": TEXTS, "labels": [[27], [0, 2], [], [0]]}, features=features)
    monkeypatch.setattr("datasets.load_dataset", lambda *_: DatasetDict(train=rows))
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **__: None)
    for hub in ("google-research-datasets/go_emotions/simplified", "someone/else"):
        task = Task.load(hub)
        assert task.labels == ("admiration", "anger", "neutral")
        assert task.train.labels.tolist() == [[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 0, 0]]
        assert task.origin["task"] == (None if hub == "someone/else" else "go_emotions")
        assert task.origin["hub"] == hub
        assert [warning[:22] for warning in task.warnings] == ["labels without an exam"]


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


def test_validation_has_labels_of_training(write: Write) -> None:
    train = write("t.jsonl", as_jsonl({"text": TEXTS, "label": LISTS}))
    held = write("v.jsonl", as_jsonl({"text": ["e", "f"], "label": [["fear"], []]}))
    task = Task.load(train, validation=held)
    assert task.validation is not None
    assert task.validation.labels.tolist() == [[False, True, False], [False] * 3]
    new = write("w.jsonl", as_jsonl({"text": ["e", "f"], "label": [[], ["joy", "hope"]]}))
    expect_refused(
        f"every label must occur in training: {new} has 'hope' in line 2, column 'label'; training "
        "has anger, fear, joy",
        Task.load,
        train,
        validation=new,
    )


def test_pairs_may_have_several_labels() -> None:
    task = Task.from_lists(TEXTS, LISTS, pairs=list("efgh"), validation=(["i"], [["joy"]], ["j"]))
    assert task.train.pairs == list("efgh") and task.validation is not None
    assert task.validation.labels.tolist() == [[False, False, True]]


# --- What should be known ----------------------------------------------------------------------


def test_what_teaches_nothing_is_told(write: Write) -> None:
    lists = [["all", "x", "x"], ["all"], ["x", "all", "all"]]
    task = Task.from_lists(["a", "b", "c"], lists)
    assert task.labels == ("all", "x")
    assert task.warnings == (
        "2 of 3 rows of task repeat a label; it counts once",
        "labels that every row of task has, so that nothing can be learnt from them: all",
    )
    flags = {"text": ["a", "b"], "x": [1, 0], "y": [0, 0], "z": [1, 1]}
    path = write("x.csv", as_csv(flags))
    task = Task.load(path, label="x,y,z")
    assert task.labels == ("x", "z") and task.train.labels.tolist() == [[1, 1], [0, 1]]
    assert task.warnings == (
        f"labels without an example in {path}: y",
        f"labels that every row of {path} has, so that nothing can be learnt from them: z",
    )


def test_labels_that_are_written_in_two_ways_are_told() -> None:
    task = Task.from_lists(["a", "b", "c"], [["joy", "fear"], ["Joy "], []])
    told = "labels of task differ only in case or spaces: 'Joy ', 'joy'; write them alike if they"
    assert task.warnings == (f"{told} are the same",)


def test_a_separator_that_separates_nothing_is_told(write: Write) -> None:
    path = write("x.csv", as_csv({"text": ["a", "b", "c"], "label": ["x;y", "y", ""]}))
    assert Task.load(path, label_separator=";").warnings == ()
    assert Task.load(path, label_separator="|").warnings == (
        f"no row of {path} has the separator '|' in column 'label', so each row has one label at "
        "most; correct --label-separator if they have more",
    )


@pytest.mark.parametrize("separator", ["|", ";", ","])
def test_several_labels_in_a_string_are_not_taken_for_a_class_silently(
    write: Write, separator: str
) -> None:
    labels = ["x", "y", f"x{separator} y", f"y{separator}z", "a, b"]
    twice = {"text": list("abcdefghij"), "label": labels * 2}
    path = write("twice.csv", as_csv(twice))
    (told,) = Task.load(path).warnings
    named = f"'x{separator} y' is read as one class of {path}; for several labels per text use "
    assert told == f"{named}--label-separator {separator!r}"
    once = write("once.csv", as_csv({"text": list("abcde"), "label": labels}))
    remedy = f"for several labels per text use --label-separator {separator!r}"
    expect_refused(f"every class needs at least 2 … {remedy}", Task.load, once)


def test_classes_may_have_commas(write: Write) -> None:
    labels = ["Smith, John", "Smith, Ann", "Doe", "a | b"]
    path = write("x.csv", as_csv({"text": list("abcdefgh"), "label": labels * 2}))
    assert Task.load(path).warnings == ()


# --- What is refused ---------------------------------------------------------------------------

NAMES = "write the names of its labels, or name columns of 0 and 1 with --label joy,fear"
ITEMS = "labels in lists must be strings or integers: task has "
EVERY = "every row must have a list of labels: task has "
NEEDED = (
    "a task needs a label that some rows have and others lack: of the labels in 'label' of task, "
)
WRONG = {
    "mixed": ([["x"], "y"], f"{EVERY}'y' (str) beside ['x'] in row 1 (counted from 0), column "
              "'label'; write all of them as lists"),
    "missing": ([["x"], None, None], f"{EVERY}2 missing, the first in row 1 (counted from 0), "
                "column 'label'; write [] for a text without labels"),
    "nested": ([["x"], ["y", ["x"]]], f"{ITEMS}['x'] (list) in row 1 (counted from 0), "
               f"column 'label'; {NAMES}"),
    "not a number": ([["x"], [float("nan")]], f"{ITEMS}nan (float) in row 1 (counted "
                     f"from 0), column 'label'; {NAMES}"),
    "null": ([[None], ["x"]], f"{ITEMS}None (NoneType) in row 0 (counted from 0), column "
             f"'label'; {NAMES}"),
    "flags": ([[True, False], [False, True]], f"{ITEMS}True (bool) in row 0 (counted "
              f"from 0), column 'label'; {NAMES}"),
    "marks": ([[1, 0, 0], [0, 1, 1]], "lists must name the labels of a text: task has 3 times 0 or "
              f"1 in row 0 (counted from 0), column 'label'; {NAMES}"),
    "no name": ([["x"], ["y", " "]], "labels in lists must have a name: task has ' ' in "
                f"row 1 (counted from 0), column 'label'; {NAMES}"),
    "several types": ([["1"], [1]], "labels must be of one type: column 'label' of task mixes int, "
                      "str; write them all as strings"),
    "empty": ([[], []], f"{NEEDED}no row has any; name another column with --label, or add rows"),
    "alike": ([["x"], ["x"]], f"{NEEDED}each row has all of them; name another column with "
              "--label, or add rows"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_lists_that_are_no_labels(wrong: str) -> None:
    lists, line = WRONG[wrong]
    texts = list("abc")[: len(lists)]
    assert expect_refused(line, Task.from_lists, texts, lists) == line


def test_arrays_of_marks_are_refused() -> None:
    for dtype in (bool, int):
        marks = np.array([[1, 0, 0], [1, 1, 0]], dtype=dtype)
        expect_refused(NAMES, Task.from_lists, ["a", "b"], marks)


def test_cells_that_are_no_lists_name_their_line(write: Write) -> None:
    rule = "every row must have a list of labels"
    for cell, words in {
        "joy": f"{rule} … 'joy' (str) beside '[\"x\"]' in line 3",
        "": f"{rule} … 1 missing, the first in line 3 … write [] for a text without labels",
        "[joy]": f'{rule} … \'[joy]\' in line 3 … write it as JSON, such as ["joy", "fear"]',
        "[1.5]": "1.5 (float) in line 3",
    }.items():
        path = write("x.csv", as_csv({"text": ["a", "b"], "label": ['["x"]', cell]}))
        expect_refused(words, Task.load, path)


def test_flags_that_are_none(write: Write, tmp_path: Path) -> None:
    rule = "columns of one label each must hold 0 or 1"
    remedy = "correct it, or name one column that holds all labels"
    for value in (2, None, "yes"):
        path = write("x.jsonl", as_jsonl({"text": ["a", "b"], "x": [0, 1], "y": [1, value]}))
        line = f"{rule}: {path} has {value!r} in line 2, column 'y'; {remedy}"
        assert expect_refused(line, Task.load, path, label="x,y") == line
    cells = write("x.csv", as_csv({"text": ["a", "b"], "x": [0, 1], "y": [1, ""]}))
    expect_refused(f"{rule} … '' in line 3 … 'y'", Task.load, cells, label="x,y")
    expect_refused("unknown column 'z'", Task.load, cells, label="x,z")
    expect_refused("must be different columns, got x, x", Task.load, cells, label=["x", "x"])
    expect_refused("different columns", Task.load, cells, text="text", label="x,text")


def test_separators_that_do_not_fit(write: Write, tmp_path: Path) -> None:
    flags = write("x.csv", as_csv({"text": ["a", "b"], "x": [0, 1], "y": [1, 0]}))
    rule = "--label-separator must be the separator of labels in one column, such as '|', got "
    for options, reason in (
        ({"label": "x", "label_separator": ""}, "an empty string"),
        ({"label": "x,y", "label_separator": "|"}, "2 columns of labels"),
    ):
        line = f"{rule}{reason}; leave it out"
        assert expect_refused(line, Task.load, flags, **options) == line
    numbers = write("n.jsonl", as_jsonl({"text": ["a", "b"], "label": ["x|y", 3]}))
    line = (
        f"--label-separator splits strings: {numbers} has 3 (int) in line 2, column 'label'; leave "
        "out --label-separator, or write strings"
    )
    assert expect_refused(line, Task.load, numbers, label_separator="|") == line


def test_kinds_of_one_label_refuse_several(write: Write) -> None:
    path = write("x.csv", as_csv({"sentence": ["a", "b"], "label": ["x|y", ""], "y": [0, 1]}))
    for options, words in (
        (
            {"task": "cola", "label_separator": "|"},
            "cola needs one label in each row … split at '|'",
        ),
        ({"regression": True, "label_separator": "|"}, "--regression needs one label in each row"),
        ({"regression": True, "label": "label,y"}, "are read from several columns"),
    ):
        expect_refused(words, Task.load, path, **options)
    lists = [["x"], []]
    words = "leave out --task and --regression"
    expect_refused(words, Task.from_lists, ["a", "b"], lists, regression=True)


# --- Real tasks --------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("name", [None, "go_emotions"])
def test_emotions_load_whole(name: str | None) -> None:
    task = Task.load(real("data", "go_emotions"), task=name)
    assert task.validation is not None and task.warnings == ()
    assert (task.kind, task.metric) == ("multi_label_classification", "micro_f1")
    assert task.train.labels.shape == (12_000, 28) and task.validation.labels.shape == (5426, 28)
    known = KNOWN["go_emotions"].labels
    assert task.labels == (known if name else tuple(sorted(known)))
    counts = dict(zip(task.labels, task.train.labels.sum(axis=0).tolist(), strict=True))
    assert (counts["neutral"], counts["admiration"], counts["grief"]) == (4021, 1160, 24)
