"""Files, folders and names: what is read, what is found, and how bad files are refused."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from conftest import real
from inputs import LABELS, TEXTS, Write, as_csv, as_jsonl, expect_refused, many, parquet
from layerscout.data import Task

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


@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_a_byte_order_mark_and_crlf_are_dropped(write: Write, name: str) -> None:
    comma = "," if name.endswith("csv") else "\t"
    content = many().replace(",", comma).replace("\n", "\r\n")
    task = Task.load(write(name, b"\xef\xbb\xbf" + content.encode()))
    assert task.columns["text"] == "text" and task.train.texts == ["a", "b", "c", "d"]
    assert task.labels == ("x", "y")


def test_a_byte_order_mark_before_json_is_dropped(write: Write) -> None:
    content = as_jsonl({"text": ["a", "b", "c", "d"], "label": [0, 1, 0, 1]})
    assert len(Task.load(write("x.jsonl", b"\xef\xbb\xbf" + content.encode())).train) == 4


def test_blank_lines_are_skipped_and_still_counted(write: Write) -> None:
    assert len(Task.load(write("x.csv", many() + "\n\n")).train) == 4
    assert len(Task.load(write("x.tsv", many().replace(",", "\t") + "\r\n\n")).train) == 4
    lines = '\n{"text": "a", "label": 0}\n\n{"text": "b"}\n'
    expect_refused("line 4 … 'label'", Task.load, write("x.jsonl", lines), label="label")


def test_a_text_of_a_megabyte_is_fine(write: Write, tmp_path: Path) -> None:
    long = "word " * 200_000
    columns = {"text": [long, "b", "c", "d"], "label": [0, 1, 0, 1]}
    paths = [write("x.csv", as_csv(columns)), write("x.jsonl", as_jsonl(columns))]
    paths += [write("x.tsv", f"text\tlabel\n{long}\t0\nb\t1\nc\t0\nd\t1\n")]
    for path in [*paths, parquet(tmp_path / "x.parquet", columns)]:
        assert Task.load(path).train.texts[0] == long


def test_the_csv_limit_of_the_process_is_put_back(write: Write) -> None:
    before = csv.field_size_limit()
    Task.load(write("x.csv", many()))
    expect_refused("line 2", Task.load, write("y.csv", "text,label\na\n"))
    assert csv.field_size_limit() == before


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


def test_class_names_that_datasets_wrote_are_used(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=["poor", "fine"])})
    rows = Dataset.from_dict({"text": list("abcd"), "label": [0, 1, 1, 0]}, features=features)
    rows.to_parquet(tmp_path / "x.parquet")
    task = Task.load(tmp_path / "x.parquet")
    assert task.labels == ("poor", "fine") and task.train.labels.tolist() == [0, 1, 1, 0]


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

GOOD = "text,label\na,0\nb,1\n"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", "", "is empty"),
        ("x.tsv", "", "is empty"),
        ("x.jsonl", "", "is empty"),
        ("x.jsonl", "\n\n", "is empty"),
        ("x.csv", "\n\n", "is empty"),
        ("x.csv", "text,label\n", "no rows"),
        ("x.tsv", "text\tlabel", "no rows"),
        ("x.csv", "text,text,label\na,b,1\n", "must differ … 'text' 2 times"),
        ("x.tsv", "a\tb\tb\n", "must differ … 'b' 2 times"),
        ("x.csv", GOOD + "c\n", "2 columns … 1 field … line 4"),
        ("x.csv", GOOD + '"c\nd",0\ne,f,1\n', "2 columns … 3 fields … line 6"),
        ("x.tsv", "text\tlabel\na\t0\nb\t1\tc\n", "2 columns … 3 fields … line 3"),
        ("x.csv", GOOD + '"c,0\n', "not valid CSV … line 4 … unexpected end of data"),
        ("x.csv", GOOD + '"c"d,0\n', "not valid CSV … line 4"),
        ("x.csv", GOOD.encode() + b"caf\xe9,1\n", "UTF-8 … 0xe9 … line 4 … iconv"),
        ("x.tsv", b"text\tlabel\n\xff\t1\n", "UTF-8 … 0xff … line 2"),
        ("x.jsonl", b'{"text": "\xe9"}\n', "UTF-8 … line 1"),
        ("x.csv", GOOD.encode() + b"c\0d,1\n", "NUL … line 4"),
        ("x.tsv", b"text\tlabel\na\0\t1\n", "NUL … line 2"),
        ("x.jsonl", b'{"text": "\0"}', "NUL … line 1"),
        ("x.csv", GOOD.encode("utf-16"), "UTF-16 … iconv"),
        ("x.csv", b"\xfe\xff" + GOOD.encode("utf-16-be"), "UTF-16 … iconv"),
        ("x.csv", GOOD.encode("utf-16-le"), "NUL … UTF-16"),
        ("x.csv", GOOD.encode("utf-8") + b"\xed\xa0\x80,1\n", "UTF-8 … line 4"),
        ("x.jsonl", '{"text": "a"', "JSON … line 1"),
        ("x.jsonl", '{"text": "a", "label": 0}\n[1]\n', "JSON object … line 2 is [1]"),
        ("x.jsonl", "[\n{}]", "line 1 is not JSON"),
        ("x.jsonl", "[" * 100_000, "line 1 is not JSON"),
        ("x.jsonl", "1" * 10_000, "line 1 is not JSON"),
        ("x.jsonl", '{"text": "a", "label": 0}\n{"text": "b"}\n', "'label' … line 2 … text"),
        ("x.parquet", "", "cannot read … Parquet"),
        ("x.parquet", "PAR1 nothing PAR1", "cannot read … Parquet"),
        ("x.txt", "{}", ".jsonl"),
        ("x.txt", "a", ".csv"),
        ("noend", "a", ".csv"),
    ],
)
def test_bad_files_are_refused_in_one_line(
    write: Write, name: str, content: str | bytes, words: str
) -> None:
    expect_refused(words, Task.load, write(name, content))


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
    write("reviews.csv", GOOD)
    expect_refused("no such file … did you mean … reviews.csv?", Task.load, tmp_path / "reviws.csv")
    expect_refused("no such file", Task.load, str(tmp_path / "nothing"))
    expect_refused("does not exist", Task.load, tmp_path / "a" / "b.csv")
    good = write("good.csv", many())
    expect_refused("no such file", Task.load, good, validation=str(tmp_path / "v.csv"))


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
    assert task.test is None and "the test split is not used" in task.warnings[0]
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
    write("task/validation.csv", GOOD)
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


def test_an_empty_name_is_no_file() -> None:
    expect_refused("name of the data is empty", Task.load, "")
