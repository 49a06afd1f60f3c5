"""Tasks from files, folders and lists: what is read, and how bad input is refused."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import real
from layerscout.data import KNOWN, Split, Task, hold_out, length_batches, sample
from layerscout.errors import InputError

TEXTS = ["a fine film", 'he said "no", twice', "two\nlines", "naïve café 😀", "dull", "so, so"]
LABELS = ["good", "bad", "good", "good", "bad", "bad"]


def refused(words: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Check that a call is refused in one line with all of the words in it; return the line."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    line = str(caught.value)
    assert "\n" not in line and len(line) < 600
    missing = [word for word in words.split(" … ") if word not in line]
    assert not missing, f"{missing} not in {line!r}"
    return line


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Write a file of text or bytes and return its path."""

    def put(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return put


Write = Callable[[str, str | bytes], Path]


def as_csv(columns: Mapping[str, Any]) -> str:
    """Write columns as RFC 4180 says, every field quoted."""
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    quoted = [['"' + str(cell).replace('"', '""') + '"' for cell in row] for row in rows]
    return "".join(",".join(row) + "\r\n" for row in quoted)


def as_jsonl(columns: Mapping[str, Any]) -> str:
    """Write columns as one JSON object a line."""
    rows = zip(*columns.values(), strict=True)
    return "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)


def parquet(path: Path, columns: Mapping[str, Any]) -> Path:
    """Write columns as Parquet."""
    pq.write_table(pa.table(dict(columns)), path)
    return path


def many(label: str = "x,y") -> str:
    """Write a good CSV file of four rows."""
    one, other = label.split(",")
    return f"text,label\na,{one}\nb,{other}\nc,{one}\nd,{other}\n"


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
    refused("line 4 … 'label'", Task.load, write("x.jsonl", lines), label="label")


def test_a_text_of_a_megabyte_is_fine(write: Write, tmp_path: Path) -> None:
    long = "word " * 200_000
    columns = {"text": [long, "b", "c", "d"], "label": [0, 1, 0, 1]}
    paths = [write("x.csv", as_csv(columns)), write("x.jsonl", as_jsonl(columns))]
    paths += [write("x.tsv", f"text\tlabel\n{long}\t0\nb\t1\nc\t0\nd\t1\n")]
    for path in [*paths, parquet(tmp_path / "x.parquet", columns)]:
        assert Task.load(path).train.texts[0] == long


def test_the_csv_limit_of_the_process_is_put_back(write: Write) -> None:
    import csv

    before = csv.field_size_limit()
    Task.load(write("x.csv", many()))
    refused("line 2", Task.load, write("y.csv", "text,label\na\n"))
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
    path = write("x.csv", many("0.5,1"))
    refused("--task … --regression … line 2 … 0.5", Task.load, path)
    refused("0.5", Task.from_lists, ["a", "b"], [0.5, 1.0])
    task = Task.load(path, regression=True)
    assert task.kind == "regression" and task.labels == () and task.metric == "pearson_spearman"
    assert task.train.labels.dtype == np.float64 and task.train.labels.tolist() == [0.5, 1, 0.5, 1]


@pytest.mark.parametrize("value", ["x", "inf", True, math.inf, 10**400, "1.5"])
def test_regression_wants_finite_numbers(value: Any) -> None:
    labels = [1.0, 2.0, value]
    words = "finite numbers … row 2"
    refused(words, Task.from_lists, ["a", "b", "c"], labels, regression=True)


def test_regression_wants_numbers_that_differ() -> None:
    refused("differ", Task.from_lists, ["a", "b"], [1.5, 1.5], regression=True)
    words = "leave out --regression"
    refused(words, Task.load, "demo", task="sst2", text="text", regression=True)


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, [], b"x"])
def test_lists_are_no_labels(value: Any) -> None:
    line = refused("row 1", Task.from_lists, ["a", "b"], [1, value])
    assert ("multi-label is not supported" in line) == isinstance(value, list)


def test_list_columns_are_no_labels(write: Write, tmp_path: Path) -> None:
    columns = {"text": ["a", "b"], "labels": [[0], [0, 1]]}
    refused("multi-label", Task.load, parquet(tmp_path / "x.parquet", columns))
    refused("multi-label … line 1", Task.load, write("x.jsonl", as_jsonl(columns)))


@pytest.mark.parametrize("gap", [None, math.nan, "", np.nan])
def test_missing_labels_are_counted(gap: Any) -> None:
    words = "every row needs a label … 2 missing … row 1"
    refused(words, Task.from_lists, ["a", "b", "c", "d"], ["x", gap, "x", gap])


@pytest.mark.parametrize("gap", ["", "nan", "NaN"])
def test_missing_labels_in_text_files_name_the_line(write: Write, gap: str) -> None:
    content = f'text,label\n"a\nb",1\nc,{gap}\nd,{gap}\n'
    refused("2 missing … line 4", Task.load, write("x.csv", content))


def test_unlabelled_test_rows_are_missing_for_a_known_task(tmp_path: Path) -> None:
    path = parquet(tmp_path / "test.parquet", {"sentence": list("abcd"), "label": [-1] * 4})
    refused("4 missing … -1 … row 0", Task.load, path, task="sst2")


def test_labels_of_several_types_are_refused() -> None:
    refused("one type … int, str", Task.from_lists, ["a", "b"], ["1", 1])
    refused("one type … bool, int", Task.from_lists, ["a", "b"], [True, 1])


def test_one_class_or_one_example_is_too_few(write: Write) -> None:
    refused("at least 2 classes … 'x'", Task.load, write("x.csv", many("x,x")))
    line = refused(
        "at least 2 examples … 'y' … line 4",
        Task.load,
        write("y.csv", "text,label\na,x\nb,x\nc,y\n"),
    )
    assert "--regression" not in line


def test_a_class_a_row_is_refused() -> None:
    texts = [str(number) for number in range(50)]
    words = "at least 2 examples … '0' and of 49 other classes … --regression"
    refused(words, Task.from_lists, texts, list(range(50)))


def test_validation_may_have_no_new_class(write: Write) -> None:
    train = write("train.csv", many("1,2"))
    refused(
        "must occur in training … 'x' … line 2 … 1, 2",
        Task.load,
        train,
        validation=str(write("v.csv", many("x,2"))),
    )
    task = Task.load(train, validation=str(write("w.csv", "text,label\nb,2\n")))
    assert task.validation is not None and task.validation.labels.tolist() == [1]


def test_numbers_in_validation_match_strings_in_training(write: Write) -> None:
    train = write("train.csv", many("1,x"))
    task = Task.load(train, validation=str(write("v.csv", "text,label\na,1\n")))
    assert task.validation is not None and task.validation.labels.tolist() == [0]


# --- Columns -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("text,label", {"text": "text", "label": "label"}),
        ("Sentence,LABEL", {"text": "Sentence", "label": "LABEL"}),
        ("class,id,review", {"text": "review", "label": "class"}),
        ("premise,hypothesis,target", "premise+hypothesis"),
        ("sentence1,sentence2,label", "sentence1+sentence2"),
        ("Question1,question2,label", "Question1+question2"),
        ("question,passage,label", "question+passage"),
        ("text_pair,text,label", "text+text_pair"),
        ("title,words,label", None),
        ("text,sentence,label", None),
        ("sentence1,sentence2,text,label", None),
        ("text,label,category", None),
        ("text,answer", None),
    ],
)
def test_columns_are_guessed_or_asked_for(write: Write, header: str, columns: Any) -> None:
    names = header.split(",")
    ids = {"id", "label", "class", "target", "LABEL", "category"}
    rows = [
        ",".join(str(row % 2) if name in ids else f"w{row}" for name in names)
        for row in range(1, 5)
    ]
    path = write("x.csv", "\n".join([header, *rows]))
    if columns is None:
        line = refused("cannot tell which column", Task.load, path)
        assert ", ".join(names) in line and ("--label" in line or "--text" in line)
        return
    task = Task.load(path)
    if isinstance(columns, str):
        first, second = columns.split("+")
        columns = {"text": first, "text_pair": second, "label": names[-1]}
        assert task.train.pairs == ["w1", "w2", "w3", "w4"]
    assert task.columns == columns


def test_a_lone_column_of_strings_serves_as_text(write: Write, tmp_path: Path) -> None:
    lone = write("x.csv", "id,words,label\n1,a,0\n2,b,1\n3,c,0\n4,d,1\n")
    assert Task.load(lone).columns["text"] == "words"
    columns = {"id": [1, 2, 3, 4], "words": list("abcd"), "label": [0, 1, 0, 1]}
    assert Task.load(write("x.jsonl", as_jsonl(columns))).columns["text"] == "words"
    assert Task.load(parquet(tmp_path / "x.parquet", columns)).columns["text"] == "words"


def test_columns_can_be_named(write: Write) -> None:
    path = write("x.csv", "a,b,c,text,label\nk,l,0,m,1\nn,o,1,p,2\nk,l,0,m,3\nn,o,1,p,4\n")
    task = Task.load(path, text="b", text_pair="a", label="c")
    assert task.columns == {"text": "b", "text_pair": "a", "label": "c"}
    assert task.train.texts == ["l", "o"] * 2 and task.train.pairs == ["k", "n"] * 2
    refused("unknown column 'txt' … 'text' … Known: a, b", Task.load, path, text="txt")
    refused("unknown column 'lable' … 'label'", Task.load, path, label="lable")
    refused("unknown column 'd'", Task.load, path, text="a", text_pair="d")
    refused("--text-pair needs --text", Task.load, path, text_pair="a")
    refused("different columns", Task.load, path, text="a", label="a")


def test_braces_in_a_column_name_are_only_a_name(write: Write) -> None:
    path = write("x.csv", "{text},label\na,0\nb,1\nc,0\nd,1\n")
    assert Task.load(path, text="{text}").train.texts == list("abcd")


def test_numbers_are_texts_only_when_named(write: Write, tmp_path: Path) -> None:
    columns = {"text": [1, 2, 3, 4], "label": [0, 1, 0, 1]}
    for path in (parquet(tmp_path / "x.parquet", columns), write("x.jsonl", as_jsonl(columns))):
        refused("must be strings … 1 (int) … --text", Task.load, path)
        assert Task.load(path, text="text").train.texts == ["1", "2", "3", "4"]
    mixed = as_jsonl({"text": ["a", 2, "c", "d"], "label": [0, 1, 0, 1]})
    refused("2 (int) … line 2", Task.load, write("y.jsonl", mixed), text="text")
    refused("1 (int) … row 0", Task.from_lists, [1, 2, 3, 4], list("xyxy"))


# --- Texts -------------------------------------------------------------------------------------


def test_missing_texts_are_counted(write: Write, tmp_path: Path) -> None:
    columns = {"text": ["a", None, None, "d"], "label": [0, 1, 0, 1]}
    path = parquet(tmp_path / "x.parquet", columns)
    refused("every row needs a text … 2 null … row 1", Task.load, path)
    refused("2 null … line 2", Task.load, write("x.jsonl", as_jsonl(columns)))
    refused("1 null … row 1", Task.from_lists, ["a", math.nan, "c", "d"], [0, 1, 0, 1])


def test_half_a_surrogate_pair_is_refused(write: Write) -> None:
    lines = '{"text": "\\ud83d\\ude00", "label": 0}\n{"text": "a\\ud800", "label": 1}\n' * 2
    refused("surrogate … line 2", Task.load, write("x.jsonl", lines))


def test_empty_texts_are_told(write: Write) -> None:
    task = Task.load(write("x.csv", 'text,label\n"",0\n  \u3000,1\nc,0\nd,1\n'))
    assert task.warnings == (
        f"2 of 4 rows of {write('y', '').parent / 'x.csv'} have an empty text",
    )
    assert task.train.texts[:2] == ["", "  \u3000"]
    path = write("z.csv", "text,label\n ,0\n ,1\n ,0\n ,1\n")
    refused("must not all be empty … 'text'", Task.load, path)


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
        ("x.jsonl", '{"text": "a", "label": 0}\n[1]\n', "JSON object … line 2 is a list"),
        ("x.jsonl", "[\n{}]", "line 1 is not JSON"),
        ("x.jsonl", "[" * 100_000, "line 1 is not JSON"),
        ("x.jsonl", "1" * 10_000, "line 1 is not JSON"),
        ("x.jsonl", '{"text": "a", "label": 0}\n{"text": "b"}\n', "'label' … line 2 … text"),
        ("x.parquet", "", "cannot read … Parquet"),
        ("x.parquet", "PAR1 nothing PAR1", "cannot read … Parquet"),
        ("x.json", "{}", ".jsonl"),
        ("x.txt", "a", ".csv"),
        ("noend", "a", ".csv"),
    ],
)
def test_bad_files_are_refused_in_one_line(
    write: Write, name: str, content: str | bytes, words: str
) -> None:
    refused(words, Task.load, write(name, content))


def test_cut_and_duplicated_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path / "x.parquet", {"text": ["a", "b"] * 500, "label": [0, 1] * 500})
    path.write_bytes(path.read_bytes()[:-100])
    refused("cannot read … Parquet", Task.load, path)
    twice = pa.Table.from_arrays([pa.array(["a"])] * 2, names=["text", "text"])
    pq.write_table(twice, tmp_path / "y.parquet")
    refused("must differ … 'text' 2 times", Task.load, tmp_path / "y.parquet")
    parquet(tmp_path / "z.parquet", {"text": pa.array([], pa.string()), "label": []})
    refused("no rows", Task.load, tmp_path / "z.parquet")
    not_text = pa.array([b"a\xff", b"b"], pa.binary()).view(pa.string())
    parquet(tmp_path / "w.parquet", {"text": not_text, "label": [0, 1]})
    refused("cannot read … Parquet", Task.load, tmp_path / "w.parquet")


def test_a_folder_name_never_becomes_a_column(tmp_path: Path) -> None:
    folder = tmp_path / "label=1"
    folder.mkdir()
    parquet(folder / "x.parquet", {"text": ["a", "b"]})
    refused("labels: … has text;", Task.load, folder / "x.parquet")


@settings(max_examples=150)
@given(
    suffix=st.sampled_from([".csv", ".tsv", ".jsonl", ".parquet"]),
    start=st.sampled_from(
        [
            b"",
            b"text,label\n",
            b"text\tlabel\n",
            b'{"text": "a", "label": ',
            b"PAR1",
            b"\xef\xbb\xbf",
        ]
    ),
    content=st.one_of(st.binary(max_size=200), st.text(max_size=100).map(str.encode)),
    end=st.sampled_from([b"", b"\n", b"}\n", b"PAR1"]),
)
def test_random_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, start: bytes, content: bytes, end: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / f"random{suffix}"
    path.write_bytes(start + content + end)
    for regression in (False, True):
        try:
            Task.load(path, regression=regression)
        except InputError as error:
            assert "\n" not in str(error)


@settings(max_examples=150)
@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_damaged_parquet_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, place: float, byte: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.parquet"
    parquet(path, {"text": ["a", "b"] * 20, "label": [0, 1] * 20})
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] = byte
    path.write_bytes(content)
    try:
        Task.load(path)
    except InputError as error:
        assert "\n" not in str(error)


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


# --- Finding the data --------------------------------------------------------------------------


def test_missing_files_are_told_with_a_guess(write: Write, tmp_path: Path) -> None:
    write("reviews.csv", GOOD)
    refused("no such file … did you mean … reviews.csv?", Task.load, tmp_path / "reviws.csv")
    refused("no such file", Task.load, str(tmp_path / "nothing"))
    refused("no folder", Task.load, tmp_path / "a" / "b.csv")
    good = write("good.csv", many())
    refused("no such file", Task.load, good, validation=str(tmp_path / "v.csv"))


@pytest.mark.parametrize(
    "data",
    ["nope.csv", "folder/nope.parquet", "./nope", "../nope", "", "csv", "a b", "a/b/c/d", "x.y"],
)
def test_what_cannot_be_a_hub_name_is_a_path(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*arguments: Any, **options: Any) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.load_dataset", no_network)
    refused("no such file", Task.load, data)


def test_a_folder_of_splits(write: Write, tmp_path: Path) -> None:
    write("task/train.csv", many())
    assert Task.load(tmp_path / "task").validation is None
    write("task/dev.tsv", "text\tlabel\ne\ty\n")
    write("task/test.csv", "nonsense")
    write("task/validation_mismatched.csv", "nonsense")
    task = Task.load(str(tmp_path / "task"))
    assert task.name == "task" and len(task.train) == 4
    assert task.validation is not None and task.validation.texts == ["e"]
    other = write("other.csv", "text,label\nf,x\n")
    task = Task.load(tmp_path / "task", validation=str(other))
    assert task.validation is not None and task.validation.texts == ["f"]
    write("task/train.csv", many() + many().removeprefix("text,label\n"))
    task = Task.load(tmp_path / "task", validation=0.25)
    assert task.validation is not None and (len(task.train), len(task.validation)) == (6, 2)
    write("task/validation.csv", "text,label\n")
    refused("one validation file … dev.tsv, validation.csv", Task.load, tmp_path / "task")
    write("task/train.jsonl", "")
    refused("one train file … train.csv, train.jsonl", Task.load, tmp_path / "task")


def test_a_folder_without_train_says_what_is_there(write: Write, tmp_path: Path) -> None:
    write("task/validation.csv", GOOD)
    write("task/notes.md", "")
    refused("has notes.md, validation.csv", Task.load, tmp_path / "task")
    (tmp_path / "empty").mkdir()
    refused("has none", Task.load, tmp_path / "empty")


def test_validation_needs_the_same_columns(write: Write) -> None:
    train, validation = write("x.csv", many()), write("y.csv", "txt,label\na,x\n")
    refused("y.csv 'text' … 'txt'", Task.load, train, validation=str(validation))


def test_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = Task.load("demo")
    assert task.labels == ("unacceptable", "acceptable") and task.name == "demo"
    assert task.validation is not None and (len(task.train), len(task.validation)) == (2000, 500)
    assert list(Task.load("demo", seed=1).train.texts) == list(task.train.texts)
    write_here = tmp_path / "demo"
    write_here.mkdir()
    (write_here / "train.csv").write_text(many())
    assert len(Task.load("./demo").train) == 4


# --- Known tasks -------------------------------------------------------------------------------

HUB_ROWS: dict[str, tuple[dict[str, Any], str, str]] = {
    "cola": ({"sentence": "s"}, "s", ""),
    "sst2": ({"sentence": "s"}, "s", ""),
    "mrpc": ({"sentence1": "s", "sentence2": "t"}, "s", "t"),
    "qqp": ({"question1": "s", "question2": "t"}, "s", "t"),
    "stsb": ({"sentence1": "s", "sentence2": "t"}, "s", "t"),
    "mnli": ({"premise": "s", "hypothesis": "t"}, "s", "t"),
    "qnli": ({"question": "s", "sentence": "t"}, "s", "t"),
    "rte": ({"premise": "s", "hypothesis": "t"}, "s", "t"),
    "wnli": ({"sentence1": "s", "sentence2": "t"}, "s", "t"),
    "boolq": ({"question": "q", "passage": "p"}, "p", "q"),
    "cb": ({"premise": "s", "hypothesis": "t"}, "s", "t"),
    "multirc": (
        {"paragraph": "p", "question": "q", "answer": "a", "idx": {"answer": 0}}, "p", "q a"
    ),
    "wic": ({"word": "w", "sentence1": "s", "sentence2": "t", "start1": 0}, "w: s", "t"),
    "wsc": (
        {"text": "s", "span1_text": "Mark", "span2_text": "He"}, "s", '"He" refers to "Mark".'
    ),
    "yelp_polarity": ({"text": "s"}, "s", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", HUB_ROWS)
def test_known_tasks_read_the_columns_of_the_hub(tmp_path: Path, name: str) -> None:
    known = KNOWN[name]
    row, text, pair = HUB_ROWS[name]
    labels: list[Any] = [number for number in range(len(known.labels)) for _ in range(2)]
    columns = {key: [value] * (len(labels) or 2) for key, value in row.items()}
    columns["label"] = labels or [0.5, 1.5]
    task = Task.load(parquet(tmp_path / "x.parquet", columns), task=name)
    assert task.name == name and task.labels == known.labels and task.metric == known.metric
    assert task.kind == ("classification" if known.labels else "regression")
    assert task.train.texts[0] == text and (task.train.pairs or [""])[0] == pair
    assert task.train.labels.tolist() == columns["label"]


def test_the_metrics_of_known_tasks() -> None:
    others = {name: known.metric for name, known in KNOWN.items() if known.metric != "accuracy"}
    assert others == {
        "cola": "matthews_correlation",
        "mrpc": "f1",
        "qqp": "f1",
        "stsb": "pearson_spearman",
    }
    assert len(KNOWN) == 18


def test_copa_is_a_row_a_choice(write: Write) -> None:
    columns = {
        "premise": ["It rained.", "He ran. "],
        "question": ["effect", "cause"],
        "choice1": ["It was wet.", "He sat."],
        "choice2": ["It was dry.", "He was late."],
        "label": [0, 1],
    }
    task = Task.load(write("x.jsonl", as_jsonl(columns)), task="copa")
    assert task.kind == "multiple_choice" and task.labels == ("wrong", "right")
    assert task.train.texts == ["It rained so"] * 2 + ["He ran because"] * 2
    assert task.train.pairs == ["It was wet.", "It was dry.", "He sat.", "He was late."]
    assert task.train.labels.tolist() == [1, 0, 0, 1]
    assert task.train.groups is not None and task.train.groups.tolist() == [0, 0, 1, 1]
    columns["question"] = ["why", "cause"]
    refused("'cause' or 'effect'", Task.load, write("x.jsonl", as_jsonl(columns)), task="copa")
    refused("leave out --text", Task.load, write("y.csv", many()), task="copa", text="text")


def test_hellaswag_reads_lists_and_labels_as_strings(write: Write) -> None:
    endings = [["a", "b", "c", "d"], ["e", "f", "g", "h"]]
    columns: dict[str, list[Any]] = {"ctx": ["s", "t"], "endings": endings, "label": ["3", "0"]}
    task = Task.load(write("x.jsonl", as_jsonl(columns)), task="hellaswag")
    assert task.train.pairs == list("abcdefgh")
    assert task.train.labels.tolist() == [0, 0, 0, 1, 1, 0, 0, 0]
    for bad, words in (("4", "'4' … line 2"), ("", "1 missing … line 2"), (-1, "1 missing")):
        columns["label"] = ["3", bad]
        refused(words, Task.load, write("x.jsonl", as_jsonl(columns)), task="hellaswag")
    columns |= {"label": [0, 1], "endings": [["a", "b"], "x"]}
    refused(
        "list of at least 1 … 'x' … line 2",
        Task.load,
        write("x.jsonl", as_jsonl(columns)),
        task="hellaswag",
    )


def test_cosmos_qa_joins_question_and_answer(write: Write) -> None:
    columns = {f"answer{item}": [str(item)] * 2 for item in range(4)}
    columns |= {"context": ["c", "d"], "question": ["q", "r"], "label": ["1", "2"]}
    task = Task.load(write("x.csv", as_csv(columns)), task="cosmos_qa")
    assert task.train.texts[0] == "c" and task.train.pairs is not None
    assert task.train.pairs[:4] == ["q 0", "q 1", "q 2", "q 3"]
    assert task.train.labels.tolist() == [0, 1, 0, 0, 0, 0, 1, 0]


def test_labels_of_a_known_task_may_be_names(write: Write) -> None:
    content = "sentence1\tsentence2\tlabel\na\tb\tnot_entailment\nc\td\tEntailment\n" * 2
    content = content.removesuffix("\n").replace("\nsentence1\tsentence2\tlabel", "")
    task = Task.load(write("x.tsv", content), task="qnli")
    assert task.train.labels.tolist() == [1, 0, 1, 0]
    passages = {"question": list("abcd"), "passage": list("abcd"), "label": [True, False] * 2}
    task = Task.load(write("x.jsonl", as_jsonl(passages)), task="boolq")
    assert task.train.labels.tolist() == [1, 0, 1, 0]


def test_labels_outside_a_known_task_are_refused(write: Write) -> None:
    sst2 = "sentence,label\na,0\nb,1\nc,0\nd,{}\n"
    for value in ("2", "1.5", "good", "1e400"):
        path = write("x.csv", sst2.format(value))
        words = f"0 negative, 1 positive … '{value}' … line 5 … --task"
        refused(words, Task.load, path, task="sst2")
    refused("no 'positive'", Task.load, write("y.csv", "sentence,label\na,0\nb,0\n"), task="sst2")


def test_known_tasks_want_their_columns(write: Write) -> None:
    path = write("x.csv", many("0,1"))
    refused(
        "sst2 needs the columns sentence or sentence1 … text, label", Task.load, path, task="sst2"
    )
    refused("unknown task 'sst' … did you mean", Task.load, path, task="sst")
    task = Task.load(path, task="sst2", text="text")
    assert task.labels == ("negative", "positive")


def test_names_of_files_never_imply_a_task(write: Write, tmp_path: Path) -> None:
    write("sst2/train.csv", "sentence,label\na,0\nb,1\nc,0\nd,1\n")
    task = Task.load(tmp_path / "sst2")
    assert task.labels == ("0", "1") and task.name == "sst2"


# --- Lists -------------------------------------------------------------------------------------


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


def test_lists_of_different_lengths_are_refused() -> None:
    refused("3 texts and 2 labels", Task.from_lists, ["a", "b", "c"], [0, 1])
    refused("2 texts and 1 text_pairs", Task.from_lists, ["a", "b"], [0, 1], pairs=["c"])
    refused("must be a list", Task.from_lists, "abcd", [0, 1, 0, 1])
    refused("no rows", Task.from_lists, [], [])


# --- Held-out parts ----------------------------------------------------------------------------


def numbered(labels: Any, groups: Any = None) -> Split:
    """Make a split whose texts are the row numbers."""
    ids = np.asarray(labels)
    return Split([str(row) for row in range(len(ids))], None, ids, groups)


def rows_of(split: Split) -> list[int]:
    return [int(text) for text in split.texts]


def test_take_keeps_rows_together() -> None:
    split = Split(list("abc"), list("def"), np.array([0, 1, 2]), np.array([5, 5, 6]))
    taken = split.take(np.array([2, 0]))
    assert (taken.texts, taken.pairs) == (["c", "a"], ["f", "d"])
    assert taken.groups is not None and taken.groups.tolist() == [6, 5]
    assert taken.labels.tolist() == [2, 0]


@pytest.mark.parametrize("fraction", [0.25, "0.25", ".25"])
def test_validation_may_be_a_fraction(write: Write, fraction: Any) -> None:
    columns = {"text": [str(row) for row in range(80)], "label": [0, 1, 1, 1] * 20}
    path = write("x.csv", as_csv(columns))
    task = Task.load(path, validation=fraction)
    again, other = Task.load(path, validation=0.25), Task.load(path, validation=0.25, seed=1)
    assert task.validation is not None and again.validation is not None and other.validation
    assert np.bincount(task.validation.labels).tolist() == [5, 15]
    assert task.validation.texts == again.validation.texts != other.validation.texts


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, "2", "0", math.nan])
def test_fractions_are_between_0_and_1(write: Write, fraction: Any) -> None:
    refused("between 0 and 1", Task.load, write("x.csv", many()), validation=fraction)
    refused("between 0 and 1", hold_out, numbered([0, 0, 1, 1]), float(fraction), 0)


labels_of_classes = st.lists(st.integers(2, 30), min_size=2, max_size=6).flatmap(
    lambda sizes: st.permutations([c for c, size in enumerate(sizes) for _ in range(size)])
)


@given(labels_of_classes, st.floats(0.05, 0.95), st.integers(0, 5))
def test_held_out_parts_are_disjoint_complete_and_stratified(
    labels: list[int], fraction: float, seed: int
) -> None:
    split = numbered(labels)
    try:
        train, held = hold_out(split, fraction, seed)
    except InputError:
        counts = np.bincount(labels)
        assert round(fraction * len(labels)) == 0 or (counts - 2).clip(0, None).min() == 0
        return
    assert rows_of(train) == sorted(rows_of(train)) and rows_of(held) == sorted(rows_of(held))
    assert sorted(rows_of(train) + rows_of(held)) == list(range(len(labels)))
    for label, size in Counter(labels).items():
        out = int((held.labels == label).sum())
        assert out < fraction * size + 1 + 1 / size and size - out >= 2
        assert out > fraction * size - 1.5 or size - out == 2
    assert rows_of(hold_out(split, fraction, seed)[1]) == rows_of(held)


def test_groups_and_numbers_are_held_out_whole() -> None:
    groups = np.repeat(np.arange(20), 4)
    train, held = hold_out(numbered([1, 0, 0, 0] * 20, groups), 0.1, 0)
    assert held.groups is not None and train.groups is not None
    assert len(held) == 8 and not set(held.groups) & set(train.groups)
    train, held = hold_out(numbered(np.linspace(0, 1, 30)), 0.1, 0)
    assert (len(train), len(held)) == (27, 3) and held.labels.dtype == np.float64


def test_too_little_cannot_be_held_out() -> None:
    refused("leaves one part empty", hold_out, numbered([0, 0, 1, 1]), 0.5, 0)
    refused("leaves one part empty", hold_out, numbered([0, 0, 0, 1, 1, 1]), 0.01, 0)


# --- Samples -----------------------------------------------------------------------------------


def draw(split: Split, classes: int, seed: int = 0, **options: Any) -> np.ndarray:
    given = {"examples": None, "balanced": False, "per_class": None} | options
    return sample(split, classes, seed=seed, **given)


@given(labels_of_classes, st.data(), st.integers(0, 5))
def test_samples_are_class_proportional(labels: list[int], data: st.DataObject, seed: int) -> None:
    split, counts = numbered(labels), np.bincount(labels)
    examples = data.draw(st.integers(2 * len(counts), len(labels)))
    rows = draw(split, len(counts), seed, examples=examples)
    assert len(rows) == examples and (np.diff(rows) > 0).all()
    assert np.array_equal(rows, draw(split, len(counts), seed, examples=examples))
    drawn = np.bincount(split.labels[rows], minlength=len(counts))
    assert (drawn >= 2).all() and (drawn <= counts).all()
    quota = counts * examples / len(labels)
    if (quota >= 2).all():
        assert (np.abs(drawn - quota) < 1).all()


@given(labels_of_classes, st.data())
def test_balanced_and_exact_samples(labels: list[int], data: st.DataObject) -> None:
    split, counts = numbered(labels), np.bincount(labels)
    each = data.draw(st.integers(2, int(counts.min())))
    rows = draw(split, len(counts), examples=each * len(counts) + 1, balanced=True)
    assert np.bincount(split.labels[rows]).tolist() == [each] * len(counts)
    rows = draw(split, len(counts), balanced=True)
    assert np.bincount(split.labels[rows]).tolist() == [counts.min()] * len(counts)
    asked = [data.draw(st.integers(0, int(size))) for size in counts]
    rows = draw(split, len(counts), per_class=asked)
    assert np.bincount(split.labels[rows], minlength=len(counts)).tolist() == asked
    assert (np.diff(rows) > 0).all()


def test_largest_remainders_by_hand() -> None:
    split = numbered([0] * 50 + [1] * 30 + [2] * 20)
    rows = draw(split, 3, examples=11)  # quotas 5.5, 3.3, 2.2
    assert np.bincount(split.labels[rows]).tolist() == [6, 3, 2]
    rare = numbered([0] * 990 + [1] * 10)
    rows = draw(rare, 2, examples=100)  # quotas 99, 1: the rare class gets its 2
    assert np.bincount(rare.labels[rows]).tolist() == [98, 2]


def test_samples_without_a_number_are_everything() -> None:
    assert draw(numbered([0, 1, 0, 1]), 2).tolist() == [0, 1, 2, 3]
    assert len(draw(numbered(np.linspace(0, 1, 30)), 0, examples=7)) == 7
    assert draw(numbered(np.arange(40) % 2), 2, 0, examples=10).tolist() != (
        draw(numbered(np.arange(40) % 2), 2, 1, examples=10).tolist()
    )


def test_samples_keep_groups_whole() -> None:
    groups = np.repeat(np.arange(9, -1, -1), 4)
    split = numbered([1, 0, 0, 0] * 10, groups)
    rows = draw(split, 2, examples=14)
    assert len(rows) == 12 and set(Counter(groups[rows]).values()) == {4}
    assert len(draw(split, 2, examples=40)) == len(draw(split, 2)) == 40
    refused("at most 40", draw, split, 2, examples=41)
    refused("at least 8", draw, split, 2, examples=7)
    refused("--balanced", draw, split, 2, examples=4, balanced=True)


def test_samples_that_cannot_be_drawn() -> None:
    split = numbered([0, 0, 0, 1, 1, 2, 2])
    refused("at most 7 … got 8", draw, split, 3, examples=8)
    refused("at least 6 … 2 of every class … got 5", draw, split, 3, examples=5)
    refused("class 1 has 2 … got 3 of each", draw, split, 3, examples=9, balanced=True)
    refused("got 1 of each", draw, split, 3, examples=3, balanced=True)
    refused("3 classes, got 2", draw, split, 3, per_class=[1, 2])
    refused("0..2 for class 1, got 3", draw, split, 3, per_class=[1, 3, 1])
    refused("leave out", draw, split, 3, per_class=[1, 1, 1], examples=3)
    refused("--balanced", draw, numbered([0.5, 1.5]), 0, balanced=True)


# --- Batches -----------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 60), max_size=80), st.integers(1, 200))
def test_batches_cover_every_row_within_the_budget(lengths: list[int], tokens: int) -> None:
    sizes = np.array(lengths, dtype=np.int64)
    batches = length_batches(sizes, tokens)
    order = [int(row) for batch in batches for row in batch]
    assert order == sorted(range(len(lengths)), key=lambda row: -lengths[row])
    for number, batch in enumerate(batches):
        longest = max(1, int(sizes[batch].max()))
        assert len(batch) == 1 or len(batch) * longest <= tokens
        assert number == len(batches) - 1 or (len(batch) + 1) * longest > tokens
    refused("at least 1", length_batches, sizes, 0)


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


@pytest.mark.real
def test_a_real_folder_without_train_is_refused() -> None:
    refused("has validation.parquet", Task.load, real("data", "boolq"), task="boolq")
    task = Task.load(real("data", "boolq") / "validation.parquet", task="boolq", validation=0.1)
    assert task.validation is not None and (len(task.train), len(task.validation)) == (2943, 327)
