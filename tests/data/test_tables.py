"""Files, folders and names: what is read, what is found, and how bad files are refused."""

import gzip
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, strategies as st

from conftest import real
from inputs import LABELS, TEXTS, Write, as_csv, as_jsonl, expect_refused, many, parquet
from layerscout.data import KNOWN, Task, join_names, write_parquet

# --- How names are listed ------------------------------------------------------------------------


def test_names_are_listed_whole_and_none_is_invisible() -> None:
    assert join_names(["", "date", "a\nb"]) == r"'', date, 'a\nb'"
    assert join_names([]) == "none" and join_names(map(str, range(30))).endswith("19, ...")


# --- What is read ------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "ndjson", "parquet", "CSV"])
def test_every_format_gives_back_what_was_written(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"reviews.{suffix}"
    columns = {"id": list(range(6)), "text": TEXTS, "label": LABELS}
    if suffix == "parquet":
        parquet(path, columns)
    else:
        content = as_csv(columns) if suffix.lower() == "csv" else as_jsonl(columns)
        path.write_bytes(content.encode())
    task = Task.load(path)
    assert list(task.train.texts) == TEXTS
    assert [task.labels[number] for number in task.train.labels] == LABELS
    assert task.labels == ("bad", "good") and task.train.labels.dtype == np.int64
    assert (task.name, task.kind, task.metric) == ("reviews", "classification", "accuracy")
    assert task.columns == {"text": "text", "label": "label"}
    assert task.validation is None and task.warnings == ()
    assert task.train.pairs is None and task.train.groups is None and len(task.train) == 6


def test_quotes_in_tsv_are_text(write: Write) -> None:
    path = write("x.tsv", 'text\tlabel\n"\t0\nsay "a\t1\n"b"\t0\r\nc, d\t1\n')
    assert Task.load(path).train.texts == ['"', 'say "a', '"b"', "c, d"]


def test_other_line_separators_are_text(write: Write) -> None:
    path = write("x.tsv", "text\tlabel\na\u2028b\x85c\x0bd\t0\ne\rf\t1\ng\t0\nh\t1\n")
    assert Task.load(path).train.texts[:2] == ["a\u2028b\x85c\x0bd", "e\rf"]
    path = write("x.csv", "text,label\na\u2028b\x85c\x0bd,0\ne,1\ng,0\nh,1\n")
    assert Task.load(path).train.texts[0] == "a\u2028b\x85c\x0bd"


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.jsonl"])
def test_a_byte_order_mark_and_crlf_are_dropped(write: Write, name: str) -> None:
    content = many().replace(",", "," if name == "x.csv" else "\t")
    if name == "x.jsonl":
        content = as_jsonl({"text": list("abcd"), "label": list("xyxy")})
    content = content.replace("\n", "\r\n")
    task = Task.load(write(name, b"\xef\xbb\xbf" + content.encode()))
    assert task.columns["text"] == "text" and task.train.texts == ["a", "b", "c", "d"]
    assert task.labels == ("x", "y")


def test_blank_lines_are_skipped_and_still_counted(write: Write) -> None:
    assert len(Task.load(write("x.csv", many() + "\n\n")).train) == 4
    assert len(Task.load(write("x.tsv", many().replace(",", "\t") + "\r\n\n")).train) == 4


def test_a_text_of_a_megabyte_is_fine(write: Write, tmp_path: Path) -> None:
    long = "word " * 200_000
    columns = {"text": [long, "b", "c", "d"], "label": [0, 1, 0, 1]}
    paths = [write("x.csv", as_csv(columns)), write("x.jsonl", as_jsonl(columns))]
    paths += [write("x.tsv", f"text\tlabel\n{long}\t0\nb\t1\nc\t0\nd\t1\n")]
    for path in [*paths, parquet(tmp_path / "x.parquet", columns)]:
        assert Task.load(path).train.texts[0] == long


def test_only_the_needed_keys_must_be_there(write: Write) -> None:
    lines = ['{"text": "a", "label": 0, "extra": [1]}', '{"label": 1, "text": "b"}'] * 2
    assert Task.load(write("x.jsonl", "\n".join(lines))).train.texts == ["a", "b", "a", "b"]


def test_dictionaries_and_large_strings_are_text(tmp_path: Path) -> None:
    columns = {
        "body": pa.array(["a", "b", "a", "b"]).dictionary_encode(),
        "label": pa.array(["x", "y", "x", "y"], pa.large_string()),
    }
    assert Task.load(parquet(tmp_path / "x.parquet", columns)).train.texts == ["a", "b", "a", "b"]


@given(
    rows=st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
                  st.sampled_from("xy")),
        min_size=1,
    ).map(lambda rows: [*rows, ("a", "x"), ("b", "x"), ("c", "y"), ("d", "y")])
)  # fmt: skip
def test_any_text_comes_back_from_csv_and_json(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    texts, labels = (list(column) for column in zip(*rows, strict=True))
    folder = tmp_path_factory.getbasetemp()
    columns = {"text": texts, "label": labels}
    for name, content in (("any.csv", as_csv(columns)), ("any.jsonl", as_jsonl(columns))):
        (folder / name).write_bytes(content.encode())
        task = Task.load(folder / name)
        assert task.train.texts == texts
        assert [task.labels[number] for number in task.train.labels] == labels


TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
TOKENS = [["Ann", "Lee", "left"], ["Bonn"], ["we", "saw", "Ann"]]
EMOTIONS = list(KNOWN["go_emotions"].labels)
CLASSES: dict[str, tuple[Any, list[str], list[Any], Any, list[Any]]] = {
    "one label": (list("abcd"), ["poor", "fine"], [0, 1, 1, 0], ("poor", "fine"), [0, 1, 1, 0]),
    "several": (list("abcd"), ["y", "x"], [[0], [1, 0], [], [1]], ("y", "x"),
                [[1, 0], [1, 1], [0, 0], [0, 1]]),
    "known": (list("abcd"), EMOTIONS, [[27], [0, 2], [], [0]], ("admiration", "anger", "neutral"),
              [[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 0, 0]]),
    "words": (TOKENS, TAGS, [[1, 2, 0], [3], [0, 0, 1]], ("O", "B-PER", "I-PER", "B-LOC"),
              [1, 2, 0, 3, 0, 0, 1]),
}  # fmt: skip


@pytest.mark.parametrize("case", CLASSES)
def test_class_names_that_datasets_wrote_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

    texts, names, ids, labels, marks = CLASSES[case]
    feature, text = ClassLabel(names=names), "tokens" if case == "words" else "text"
    features = Features(
        {
            text: List(Value("string")) if case == "words" else Value("string"),
            "labels": feature if case == "one label" else List(feature),
        }
    )
    rows = Dataset.from_dict({text: texts, "labels": ids}, features=features)
    rows.to_parquet(tmp_path / "x.parquet")
    monkeypatch.setattr("datasets.load_dataset", lambda *_: DatasetDict(train=rows))
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **__: None)
    hubs = ["someone/else", "google-research-datasets/go_emotions/simplified"]
    for data in (tmp_path / "x.parquet", *hubs[: 1 + (case == "known")]):
        task = Task.load(data)
        assert task.labels == labels and task.train.labels.tolist() == marks
        assert task.origin["task"] == ("go_emotions" if data == hubs[1] else None)
        assert task.origin["hub"] == (data if data in hubs else None)
        absent = [name for name in names if name not in labels]
        assert len(task.warnings) == bool(absent)
        assert not absent or f": {', '.join(absent[:20])}" in task.warnings[0]


@pytest.mark.parametrize(
    "features",
    [
        None,
        [],
        {"label": "ClassLabel"},
        {"label": {"_type": "ClassLabel"}},
        {"label": {"_type": "ClassLabel", "names": "xy"}},
        {"label": {"_type": "ClassLabel", "names": []}},
        {"label": {"_type": "ClassLabel", "names": ["x", 1]}},
        {"label": {"_type": "Value", "names": ["x", "y"]}},
    ],
)
def test_other_class_names_in_parquet_are_ignored(tmp_path: Path, features: Any) -> None:
    table = pa.table({"text": list("abcd"), "label": [0, 1, 0, 1]})
    whole = json.dumps({"info": {"features": features}}).encode()
    for note in (whole, b"", b"{", b"[]", b"null", b'{"info": 1}', b"\xff", b"[" * 100_000):
        noted = table.replace_schema_metadata({b"huggingface": note})
        pq.write_table(noted, tmp_path / "x.parquet")
        assert Task.load(tmp_path / "x.parquet").labels == ("0", "1")


# --- Bad files ---------------------------------------------------------------------------------


def test_cut_and_duplicated_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path / "x.parquet", {"text": ["a", "b"] * 500, "label": [0, 1] * 500})
    path.write_bytes(path.read_bytes()[:-100])
    expect_refused("cannot read … Parquet", Task.load, path)
    twice = pa.Table.from_arrays([pa.array(["a"])] * 2, names=["text", "text"])
    pq.write_table(twice, tmp_path / "y.parquet")
    expect_refused("must differ … 'text' 2 times", Task.load, tmp_path / "y.parquet")
    parquet(tmp_path / "z.parquet", {"text": pa.array([], pa.string()), "label": []})
    expect_refused("no rows", Task.load, tmp_path / "z.parquet")
    not_text = pa.array([b"a\xff", b"b"], pa.binary()).view(pa.string())
    parquet(tmp_path / "w.parquet", {"text": not_text, "label": [0, 1]})
    expect_refused("cannot read … Parquet", Task.load, tmp_path / "w.parquet")


def test_a_folder_name_never_becomes_a_column(tmp_path: Path) -> None:
    folder = tmp_path / "label=1"
    folder.mkdir()
    parquet(folder / "x.parquet", {"text": ["a", "b"]})
    expect_refused("labels: … has text;", Task.load, folder / "x.parquet")


# --- Finding the data --------------------------------------------------------------------------


def test_missing_files_are_told_with_a_guess(write: Write, tmp_path: Path) -> None:
    write("reviews.csv", many())
    expect_refused("no such file … did you mean … reviews.csv?", Task.load, tmp_path / "reviws.csv")
    expect_refused("no such file", Task.load, str(tmp_path / "nothing"))
    expect_refused("does not exist", Task.load, tmp_path / "a" / "b.csv")
    good = write("good.csv", many())
    expect_refused("no such file", Task.load, good, validation=str(tmp_path / "v.csv"))
    expect_refused("name of the data is empty", Task.load, "")
    (tmp_path / "gone.csv").symlink_to("nowhere.csv")
    for odd in (str(tmp_path / "gone.csv"), "/dev/null"):
        expect_refused("neither a file nor a folder", Task.load, odd)


@pytest.mark.parametrize(
    "data",
    ["nope.csv", "folder/nope.parquet", "./nope", "../nope", "csv", "a b", "a/b/c/d", "x.y"],
)
def test_what_cannot_be_a_hub_name_is_a_path(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*arguments: Any, **options: Any) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.load_dataset", no_network)
    expect_refused("no such file", Task.load, data)


def test_a_folder_of_splits(write: Write, tmp_path: Path) -> None:
    write("task/train.csv", many())
    assert Task.load(tmp_path / "task").validation is None
    write("task/dev.tsv", "text\tlabel\ne\ty\n")
    write("task/test.csv", "nonsense")
    write("task/validation_mismatched.csv", "nonsense")
    task = Task.load(str(tmp_path / "task"))
    assert task.name == "task" and len(task.train) == 4
    assert task.validation is not None and task.validation.texts == ["e"]
    assert task.test is None and "the test split is not used" in task.warnings[1]
    assert "not read: validation_mismatched.csv" in task.warnings[0]
    other = write("other.csv", "text,label\nf,x\n")
    task = Task.load(tmp_path / "task", validation=str(other))
    assert task.validation is not None and task.validation.texts == ["f"]
    write("task/train.csv", many() + many().removeprefix("text,label\n"))
    task = Task.load(tmp_path / "task", validation=0.25)
    assert task.validation is not None and (len(task.train), len(task.validation)) == (6, 2)
    write("task/validation.csv", "text,label\n")
    expect_refused("one validation file … dev.tsv, validation.csv", Task.load, tmp_path / "task")
    write("task/train.jsonl", "")
    expect_refused("one train file … train.csv, train.jsonl", Task.load, tmp_path / "task")


def test_a_folder_without_train_says_what_is_there(write: Write, tmp_path: Path) -> None:
    write("task/validation.csv", many())
    write("task/notes.md", "")
    expect_refused("has notes.md, validation.csv", Task.load, tmp_path / "task")
    (tmp_path / "empty").mkdir()
    expect_refused("has none", Task.load, tmp_path / "empty")


def test_the_demo_is_the_word_and_not_a_folder_of_that_name(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("demo/train.csv", many())
    monkeypatch.chdir(tmp_path)
    task = Task.load("demo")
    assert task.name == "demo" and len(task.train) == 2000
    assert list(Task.load("demo", seed=1).train.texts) == list(task.train.texts)
    assert len(Task.load("./demo").train) == 4


@pytest.mark.real
def test_a_real_folder_without_train_is_refused() -> None:
    expect_refused("has validation.parquet", Task.load, real("data", "boolq"), task="boolq")
    task = Task.load(real("data", "boolq") / "validation.parquet", task="boolq", validation=0.1)
    assert task.validation is not None and (len(task.train), len(task.validation)) == (2943, 327)


# --- Data as people have it --------------------------------------------------------------------

COLUMNS = {"text": TEXTS, "label": LABELS}


def same(task):
    named = [task.labels[number] for number in task.train.labels]
    return list(task.train.texts) == TEXTS and named == LABELS


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_fields_may_be_separated_by_what_spreadsheets_write(write, delimiter):
    path = write("data.csv", as_csv(COLUMNS).replace('","', f'"{delimiter}"'))
    assert same(Task.load(path))
    plain = write("plain.csv", many().replace(",", delimiter))
    assert Task.load(plain).train.texts == ["a", "b", "c", "d"]


def test_commas_go_first(write):
    path = write("data.csv", 'text,"a;b"\na;1,x\nb,y\nc,x\nd,y\n')
    assert Task.load(path, text="text", label="a;b").train.texts == ["a;1", "b", "c", "d"]


@pytest.mark.parametrize("name", ["data.csv.gz", "data.jsonl.gz", "data.json.gz"])
def test_text_files_may_be_compressed(write, name):
    text = as_csv(COLUMNS) if "csv" in name else as_jsonl(COLUMNS)
    path = write(name, gzip.compress(text.encode()))
    assert same(Task.load(path)) and Task.load(path).name == "data"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    expect_refused("not a complete gzip file", Task.load, path)
    train = write("task/train.csv.gz", gzip.compress(many().encode()))
    write("task/validation.csv.gz", gzip.compress(b"text,label\ne,x\n"))
    assert Task.load(train.parent).validation.texts == ["e"]


def test_an_array_of_objects(write):
    rows = [json.loads(line) for line in as_jsonl(COLUMNS).splitlines()]
    assert same(Task.load(write("data.json", json.dumps(rows, indent=2))))
    assert same(Task.load(write("lines.json", as_jsonl(COLUMNS))))


def test_rows_without_text_or_label_may_be_left_out(write):
    path = write("data.csv", "text,label\na,x\nb,\n,y\nc,y\nd,x\ne,nan\nf,y\n")
    line = expect_refused("every row needs a label … line 3 … --drop-missing", Task.load, path)
    assert "--label-separator" not in line
    task = Task.load(path, drop_missing=True)
    assert task.train.texts == ["a", "c", "d", "f"]
    assert task.train.origin.tolist() == [0, 3, 4, 6]  # rows of the file
    [line] = task.warnings
    assert "3 of 7 rows" in line and "left out" in line
    assert task.origin["drop_missing"] is True
    gap = write("gap.csv", "text,label\n,x\n,y\n")
    expect_refused("every row of", Task.load, gap, drop_missing=True)
    several = write("several.jsonl", as_jsonl({"text": ["a", None, "c"], "label": [["x"], [], []]}))
    assert Task.load(several, drop_missing=True).train.texts == ["a", "c"]


def test_held_out_rows_of_training_are_told(write):
    texts = [f"text {n}" for n in range(40)]
    labels = ["x", "y"] * 20
    task = Task.from_lists(texts, labels, validation=([*texts[:2], "new"], ["x", "y", "x"]))
    [line] = task.warnings
    assert "2 of 3 validation rows are also training rows" in line and task.repeated == line
    assert not Task.from_lists(texts, labels, validation=0.1).warnings
    held = (["new", "newer"], ["x", "y"])
    [line] = Task.from_lists(texts, labels, validation=held, test=held).warnings
    assert "2 of 2 test rows are also validation rows" in line
    assert Task.from_lists(texts, labels, validation=held, test=held).repeated is None
    twice = Task.from_lists(texts * 2, labels * 2, validation=0.5, seed=1)
    assert twice.repeated is None and len(twice.validation) == 40  # both rows of a text
    alone = Task.from_lists(["one", "two"] * 4, ["x", "y"] * 4, validation=0.25)
    assert "2 of 2 validation rows are also training rows" in alone.warnings[1] == alone.repeated
    assert np.isin(twice.validation.origin, twice.train.origin).sum() == 0


VALUES = st.sampled_from(
    [
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    ]
)
NULLABLE = VALUES.flatmap(
    lambda value: st.sampled_from(
        [
            value,
            value | st.none(),
            st.lists(value, max_size=3),
            st.lists(value | st.none()) | st.none(),
        ]
    )
).flatmap(lambda value: st.lists(value, max_size=20))


@given(NULLABLE)
@example([True, False, False, True])
@example([None, True])
@example([None, "é", ""])
@example([[None, 1], None, []])
def test_what_is_written_as_parquet_is_read_back(column: list[Any]) -> None:
    buffer = BytesIO()
    write_parquet({"column": column}, buffer)
    table = pq.read_table(buffer)
    table.validate(full=True)
    assert table["column"].to_pylist() == column
    read = pd.read_parquet(buffer)["column"]
    assert read.isna().tolist() == [value is None for value in column]


def test_arrays_of_truths_are_written_as_truths() -> None:
    buffer, truths = BytesIO(), np.arange(21).reshape(7, 3) % 4 == 0
    write_parquet({"one": truths[:, 0], "each": list(truths)}, buffer)
    table = pq.read_table(buffer)
    assert table["one"].to_pylist() == truths[:, 0].tolist()
    assert table["each"].to_pylist() == truths.tolist()
