"""Tasks: labels, splits and lists, and how bad ones are refused."""

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import real
from inputs import Write, as_jsonl, expect_refused, many, parquet
from layerscout.data import KNOWN, Task

# --- Labels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["b", "a", "b", "a"], ("a", "b")),
        ([10, 9, 10, 9], ("9", "10")),
        (["9", "10", "9", "10"], ("10", "9")),
        ([1, -1, 1, -1], ("-1", "1")),
        ([True, False, True, False], ("False", "True")),
        ([2.0, 0.0, 2.0, 0.0], ("0", "2")),
        ([2.0, 0, 2, 0.0], ("0", "2")),
        (np.array([3, 1, 3, 1], np.int8), ("1", "3")),
        (np.array(["b", "a", "b", "a"]), ("a", "b")),
        ([np.float32(1), np.float32(0), 1, 0], ("0", "1")),
        ([Decimal(2), Decimal(1), Decimal(2), Decimal(1)], ("1", "2")),
    ],
)
def test_class_names_are_sorted_by_what_they_are(values: Any, names: tuple[str, ...]) -> None:
    task = Task.from_lists(["a", "b", "c", "d"], values)
    assert task.labels == names
    assert task.train.labels.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("label", "names"),
    [
        ("10,9", ("9", "10")),
        ("1.0,0.0", ("0", "1")),
        ("+1,-1", ("-1", "1")),
        ("10,b", ("10", "b")),
        ("True,False", ("False", "True")),
    ],
)
def test_numbers_in_text_files_are_recognised(
    write: Write, label: str, names: tuple[str, ...]
) -> None:
    assert Task.load(write("x.csv", many(label))).labels == names


def test_other_floats_need_regression(write: Write) -> None:
    task = Task.load(write("x.csv", many("0.5,1")), regression=True)
    assert task.kind == "regression" and task.labels == () and task.metric == "pearson_spearman"
    assert task.train.labels.dtype == np.float64 and task.train.labels.tolist() == [0.5, 1, 0.5, 1]


def test_unlabelled_test_rows_are_missing_for_a_known_task(tmp_path: Path) -> None:
    path = parquet(tmp_path / "test.parquet", {"sentence": list("abcd"), "label": [-1] * 4})
    expect_refused("4 missing … -1 … row 0", Task.load, path, task="sst2")
    options = {"task": "sst2", "text": "text", "regression": True}
    expect_refused("leave out --regression", Task.load, "demo", **options)


@pytest.mark.parametrize(("rare", "metric"), [(4, "accuracy"), (3, "macro_f1")])
def test_one_class_that_prevails_is_no_success(rare: int, metric: str) -> None:
    # Always predicting a class of over two thirds would look like a good accuracy.
    labels = ["good"] * 8 + ["bad"] * rare
    task = Task.from_lists([f"text {n}" for n in range(len(labels))], labels)
    assert task.metric == metric
    assert [line for line in task.warnings if "macro-F1" in line] == list(task.warnings)
    assert len(task.warnings) == (metric == "macro_f1")
    assert not task.warnings or "73% of the training rows are 'good'" in task.warnings[0]
    nearly = Task.from_lists([f"text {n}" for n in range(500)], ["good"] * 498 + ["bad"] * 2)
    assert nearly.warnings[0].startswith("498 of 500 training rows are 'good'")


def test_labels_of_a_known_task_may_be_names(write: Write) -> None:
    content = "sentence1\tsentence2\tlabel\na\tb\tnot_entailment\nc\td\tEntailment\n" * 2
    content = content.removesuffix("\n").replace("\nsentence1\tsentence2\tlabel", "")
    task = Task.load(write("x.tsv", content), task="qnli")
    assert task.train.labels.tolist() == [1, 0, 1, 0]
    passages = {"question": list("abcd"), "passage": list("abcd"), "label": [True, False] * 2}
    task = Task.load(write("x.jsonl", as_jsonl(passages)), task="boolq")
    assert task.train.labels.tolist() == [1, 0, 1, 0]


def test_names_of_files_never_imply_a_task(write: Write, tmp_path: Path) -> None:
    write("sst2/train.csv", "sentence,label\na,0\nb,1\nc,0\nd,1\n")
    task = Task.load(tmp_path / "sst2")
    assert task.labels == ("0", "1") and task.name == "sst2"


# --- Validation --------------------------------------------------------------------------------


def test_validation_may_have_no_new_class(write: Write) -> None:
    train = write("train.csv", many("1,2"))
    expect_refused(
        "must occur in training … 'x' … line 2 … 1, 2",
        Task.load,
        train,
        validation=str(write("v.csv", many("x,2"))),
    )
    task = Task.load(train, validation=str(write("w.csv", "text,label\nb,2\n")))
    assert task.validation is not None and task.validation.labels.tolist() == [1]
    mixed = write("mixed.csv", many("1,x"))  # a number in one, a string in the other
    task = Task.load(mixed, validation=str(write("v.csv", "text,label\na,1\n")))
    assert task.validation is not None and task.validation.labels.tolist() == [0]
    other = write("y.csv", "txt,label\na,x\n")
    expect_refused("y.csv 'text' … 'txt'", Task.load, train, validation=str(other))


def named_parquet(path: Path, names: list[str] | None, labels: list[int]) -> Path:
    """Write ids, and the class names that `datasets` notes, as Parquet."""
    features = {"label": {"_type": "ClassLabel", "names": names}}
    note = json.dumps({"info": {"features": features}}).encode()
    table = pa.table({"text": [f"row {n}" for n in range(len(labels))], "label": labels})
    pq.write_table(table.replace_schema_metadata({b"huggingface": note}), path)
    return path


STARS = ["1", "2", "3"]


@pytest.mark.parametrize(
    ("training", "validation", "names", "words"),
    [
        # Ids for a whole column, or names for all of it.
        (STARS, "text,label\na,0\nb,1\nc,2\n", "123", ""),
        (STARS, "text,label\na,1\nb,2\nc,3\n", "123", ""),
        (STARS, "text,label\na,1.0\nb,2.0\nc,3.0\n", "123", ""),
        (STARS, "text,label\na,1\nb,2\n", "12", "read as names (1 is '1', 2 is '2')"),
        (STARS, '{"text": "a", "label": 0}\n{"text": "b", "label": 2}\n', "13", ""),
        (STARS, '{"text": "a", "label": 3}\n{"text": "b", "label": 1}\n', "31", ""),
        (STARS, '{"text": "a", "label": 1}\n', "2", "read as ids (1 is '2')"),
        (STARS, '{"text": "a", "label": "1"}\n{"text": "b", "label": "3"}\n', "13", ""),
        (STARS, "text,label\na,0\nb,3\n", None, "all ids or all names"),
        # -1 is no missing label where it is a name.
        (["-1", "0", "1"], "text,label\na,-1\nb,0\nc,1\n", "-101", ""),
        (STARS, (["3", "1", "2"], [0, 1, 2, 0]), "3123", ""),
        (STARS, (["3", "1", "2"], [1, 2]), "12", ""),
        (["x", "y", "z"], (["Z", "X", "Y"], [0, 1, 2, 0]), "zxyz", ""),
        # Names that are no numbers may stand beside ids.
        (["x", "y", "z"], "text,label\na,Z\nb,0\nc,y\n", "zxy", ""),
        # Training has names, and no ids.
        ("x y z", (["z", "y", "x"], [0, 1, 2]), "zyx", ""),
        ("1 2 3", (STARS, [0, 1, 2]), "123", ""),
        ("1 2 3", (STARS, [1, 2]), "23", ""),
        ("0 1 2", (STARS, [1, 2]), "12", ""),
    ],
)
def test_names_and_ids_are_not_mixed_in_a_column(
    write: Write,
    tmp_path: Path,
    training: Any,
    validation: Any,
    names: str | None,
    words: str,
) -> None:
    if isinstance(training, str):
        train = write("t.csv", "text,label\n" + "".join(f"c,{n}\n" for n in 2 * training.split()))
    else:
        train = named_parquet(tmp_path / "t.parquet", training, [0, 1, 2] * 2)
    if isinstance(validation, str):
        held = write("v.csv" if validation.startswith("text,") else "v.jsonl", validation)
    else:
        held = named_parquet(tmp_path / "v.parquet", *validation)
    if names is None:
        expect_refused(words, Task.load, train, validation=str(held))
        return
    task = Task.load(train, validation=str(held))
    assert task.validation is not None
    assert "".join(task.labels[n] for n in task.validation.labels) == names
    told = [line for line in task.warnings if "may be names or ids" in line]
    assert [words in line for line in told] == [True] * bool(words)


@pytest.mark.parametrize(
    ("names", "ids", "read", "words"),
    [
        (["negative", "positive"], [0, 1, 0, 1], [0, 1, 0, 1], ""),
        (["Positive", "Negative"], [0, 1, 0, 1], [1, 0, 1, 0], ""),
        (["1", "2"], [0, 1, 0, 1], [0, 1, 0, 1], ""),  # as on the hub
        (["pos", "neg"], [0, 1, 0, 1], [0, 1, 0, 1], "pos as negative, neg as positive"),
    ],
)
def test_names_of_a_known_task_meet_those_of_the_data(
    tmp_path: Path, names: list[str], ids: list[int], read: list[int], words: str
) -> None:
    task = Task.load(named_parquet(tmp_path / "x.parquet", names, ids), task="yelp_polarity")
    assert task.labels == ("negative", "positive") and task.train.labels.tolist() == read
    assert [words in line for line in task.warnings] == [True] * bool(words)


def test_validation_shares_the_class_names_of_training(write: Write, tmp_path: Path) -> None:
    def noted(name: str, names: list[str] | None, labels: list[int]) -> Path:
        return named_parquet(tmp_path / name, names, labels)

    def validated(train: Path, validation: Path) -> list[int]:
        split = Task.load(train, validation=str(validation)).validation
        assert split is not None
        return split.labels.tolist()

    named = noted("named.parquet", ["no", "yes"], [0, 1, 0, 1])
    plain = noted("plain.parquet", None, [0, 1, 0, 1])
    assert validated(named, write("ids.csv", "text,label\na,1\nb,0\n")) == [1, 0]
    assert validated(named, write("names.csv", "text,label\na,yes\nb,no\n")) == [1, 0]
    assert validated(named, plain) == validated(plain, named) == [0, 1, 0, 1]
    assert validated(named, noted("turned.parquet", ["yes", "no"], [0, 1, 0, 1])) == [1, 0, 1, 0]


# --- Lists -------------------------------------------------------------------------------------


def test_a_folder_may_bring_a_test_split(write: Write) -> None:
    folder = write("data/train.csv", many()).parent
    write("data/test.csv", "text,label\ne,x\n")
    assert Task.load(folder).test.texts == ["e"]
    assert Task.load(folder, validation=folder / "test.csv").test.texts == ["e"]
    assert Task.load(folder, test=False).test is None
    other = write("other.csv", "text,label\nf,y\ng,x\n")
    assert Task.load(folder, test=other).test.texts == ["f", "g"]
    assert Task.load(folder, test=other).renumber(("y", "x")).test.labels.tolist() == [0, 1]
    write("data/test.csv", "text,id\ne,1\n")  # as benchmarks publish them
    task = Task.load(folder)
    assert task.test is None and "the test split is not used: unknown column" in task.warnings[0]
    expect_refused("label", Task.load, folder, test=folder / "test.csv")


def test_lists_become_a_task() -> None:
    task = Task.from_lists(("a", "b", "c", "d"), ["x", "y", "x", "y"], pairs=list("efgh"))
    assert task.train.pairs == list("efgh") and task.name == "task"
    assert task.columns == {"text": "text", "text_pair": "text_pair", "label": "label"}
    task = Task.from_lists(np.array(["a", "b"]), [1.5, 2], regression=True, name="n")
    assert task.kind == "regression" and task.name == "n"
    given = Task.from_lists(list("abcd"), [0, 1, 0, 1], validation=(["e"], [1]))
    assert given.validation is not None and given.validation.labels.tolist() == [1]
    held = Task.from_lists(list("abcdef"), [0, 1, 0, 1, 0, 1], validation=0.34)
    assert held.validation is not None and len(held.validation) == 2


# --- Real tasks --------------------------------------------------------------------------------

REAL = {
    "cola": (8551, 1043), "sst2": (67349, 872), "mrpc": (3668, 408), "rte": (2490, 277),
    "wnli": (635, 71), "stsb": (5749, 1500), "qnli": (10475, 5463), "qqp": (20000, 3497),
    "mnli": (12988, 9815), "boolq_devsplit": (2500, 770), "cb": (250, 56), "copa": (800, 200),
    "wic": (5428, 638), "wsc": (554, 104), "multirc": (27243, 4848),
}  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize("folder", REAL)
def test_real_tasks_load_whole(folder: str) -> None:
    name = folder.removesuffix("_devsplit")
    task = Task.load(real("data", folder), task=name)
    assert task.validation is not None
    assert (len(task.train), len(task.validation)) == REAL[folder]
    assert task.warnings == () and task.labels == KNOWN[name].labels
    for split in (task.train, task.validation):
        assert len(split.texts) == len(split.labels) == len(split.pairs or split.texts)
        assert len(split.labels) and (not task.labels or split.labels.max() < len(task.labels))


# Rows of both splits, and how often some labels occur in training.
COUNTS: dict[str, tuple[list[int], dict[str, int]]] = {
    "go_emotions": ([12_000, 5426], {"neutral": 4021, "admiration": 1160, "grief": 24}),
    "wnut17": ([62_730, 15_733], {"B-person": 660, "I-corporation": 46}),
}


@pytest.mark.real
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", COUNTS)
def test_real_tasks_of_several_labels_and_of_words_load_whole(name: str, known: bool) -> None:
    task = Task.load(real("data", name), task=name if known else None)
    sizes, expected = COUNTS[name]
    assert task.validation is not None
    assert all("have a text that has other labels too" in line for line in task.warnings)
    assert (task.kind, task.metric) == (KNOWN[name].kind, KNOWN[name].metric)
    assert [len(task.train.labels), len(task.validation.labels)] == sizes
    assert task.labels == (KNOWN[name].labels if known else tuple(sorted(KNOWN[name].labels)))
    labels = task.train.labels
    counts = labels.sum(axis=0) if labels.dtype == bool else np.bincount(labels)
    assert {label: counts[task.labels.index(label)] for label in expected} == expected


def test_codes_with_leading_zeros_stay_as_they_are(write: Write) -> None:
    rows = "".join(f"text {row},{('01', '1', '10')[row % 3]}\n" for row in range(12))
    assert Task.load(write("codes.csv", f"text,label\n{rows}")).labels == ("01", "1", "10")


# --- Rows held out -----------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", [0.25, "0.25", ".25"])
def test_rows_are_held_out_of_training(write: Write, fraction: Any) -> None:
    rows = "".join(f"text {row},{'yyn'[row % 3]}\n" for row in range(60))
    path = write("held.csv", f"text,label\n{rows}")
    task = Task.load(path)
    assert task.validation is None and task.origin["validation"] is None
    held = task.hold_out(0.25, 7)
    assert held.validation is not None and (len(held.train), len(held.validation)) == (45, 15)
    assert np.bincount(held.validation.labels).tolist() == [5, 10]
    assert not {*held.train.texts} & {*held.validation.texts}
    assert {*held.train.texts, *held.validation.texts} == {*task.train.texts}
    expected = {**task.origin, "validation": 0.25, "validation_seed": 7}
    assert held.origin == expected and task.validation is None
    drawn = [Task.load(path, validation=fraction, seed=seed) for seed in (7, 0)]
    texts = [split.validation.texts for split in (held, *drawn) if split.validation is not None]
    assert texts[0] == texts[1] != texts[2]
    assert drawn[0].origin["data_sha256"] == task.origin["data_sha256"], "whatever is held out"
    longer = Task.load(write("held.csv", f"text,label\n{rows}text 60,y\n"))
    assert longer.origin["data_sha256"] != task.origin["data_sha256"]


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, "2", "0", math.nan, 0.001, 0.01])
def test_rows_that_cannot_be_held_out(write: Write, fraction: Any) -> None:
    words = "leaves one part empty" if fraction in (0.001, 0.01) else "between 0 and 1"
    expect_refused(words, Task.load, write("x.csv", many()), validation=fraction)
    task = Task.from_lists(list("abcdef"), [0, 1, 0, 1, 0, 1])
    expect_refused(words, task.hold_out, float(fraction), 0)
