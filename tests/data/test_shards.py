"""Data in many files, and from standard input: what one file gives, or refused."""

import gzip
import io
import json
import sys

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from inputs import expect_refused
from layerscout.data import Task
from layerscout.errors import InputError
from sharded import shards

GOOD = ['{"text": "a", "label": 0}', "", '{"text": "b", "label": 1}']


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_many_files_are_what_one_file_is(tmp_path, kind):
    folder, whole = shards(tmp_path / kind, kind, [70, 0, 30, 120, 1, 0])
    (folder / "other.csv").touch()  # those named train... are taken alone
    one = Task.load(whole, validation=0.2)
    for data in (f"file://{folder}", f"{folder}/train-*.{kind}"):
        many = Task.load(data, validation=0.2)
        assert many.train.texts == one.train.texts
        assert many.train.labels.tolist() == one.train.labels.tolist()
        assert many.labels == one.labels and many.columns == one.columns
    (folder / "other.csv").unlink()
    assert Task.load(folder).train.texts == Task.load(whole).train.texts


@pytest.mark.parametrize("bad", [[], ['{"text": "c"}'], ['{"text": null, "label": 1}']])
def test_rows_of_all_files_are_checked(tmp_path, bad):
    for number, rows in enumerate((GOOD, [*GOOD, *bad], GOOD)):
        (tmp_path / f"part-{number}.jsonl").write_text("\n".join(rows))
    if not bad:
        assert len(Task.load(tmp_path).train) == 6
    elif "label" in bad[0]:
        assert len(Task.load(tmp_path, drop_missing=True).train) == 6
        with pytest.raises(InputError, match="every row needs a text: .*part-1.jsonl .* in line 4"):
            Task.load(tmp_path)
    else:
        with pytest.raises(InputError, match="must have the key 'label': .*part-1.jsonl"):
            Task.load(tmp_path)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "must be .parquet or .jsonl: .* has none"),
        ({"a.csv": "text,label\n"}, "must be .parquet or .jsonl: .* has a.csv"),
        ({"a.jsonl": "{}", "b.parquet": ""}, "must be of one kind"),
        ({"a.parquet": "no"}, "cannot read .*a.parquet"),
        ({"a.jsonl": "1\n"}, "one JSON object per line, line 1 is 1"),
        ({"a.jsonl": "{\n"}, "line 1 is not JSON"),
        ({"a.jsonl": "\n".join([*GOOD, '{"text": 3, "label": 1}', *GOOD])}, "line 4"),
        ({"a.jsonl": ""}, "is empty"),
        ({"a.jsonl": json.dumps({"text": "a", "label": 7})}, "at least 2"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, files, reason):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=reason):
        Task.load(f"file://{tmp_path}")


def test_a_fault_in_a_row_of_parquet_names_its_file_and_its_row(tmp_path):
    good = pa.table({"text": ["a", "b"], "label": [0, 1]})
    bad = pa.table({"text": ["c", None], "label": [0, 1]})
    for number, table in enumerate((good, good.slice(0, 0), bad, good)):
        write_table(table, tmp_path / f"part-{number}.parquet")
    with pytest.raises(InputError, match="part-2.parquet has .* in row 1 .counted from 0."):
        Task.load(tmp_path)


def test_files_whose_classes_have_other_numbers_are_refused(tmp_path):
    from datasets import ClassLabel, Dataset, Features, Value

    for number, names in enumerate((["no", "yes"], ["yes", "no"])):
        features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
        rows = {"text": ["a", "b"], "label": [0, 1]}
        Dataset.from_dict(rows, features).to_parquet(str(tmp_path / f"part-{number}.parquet"))
    with pytest.raises(InputError, match="classes of 'label' must be the same.*part-1.* has yes"):
        Task.load(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ["validation.parquet", "test.parquet"],
        ["validation-0.parquet", "test-0.parquet"],
        ["dev.jsonl"],
        ["a.jsonl", "b.jsonl.gz"],
        ["a.parquet", "b.csv"],
    ],
)
def test_a_folder_with_files_of_other_splits_or_kinds_is_not_read_as_training(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("\n".join(GOOD))
    with pytest.raises(InputError, match="a folder of data needs one train file"):
        Task.load(tmp_path)
    if names[0][:3] in ("val", "dev"):
        with pytest.raises(InputError, match="are one training split: .* has"):
            Task.load(f"file://{tmp_path}")


class OddError(Exception):
    """What a file system may raise."""


@pytest.mark.parametrize(("method", "what"), [("open", "part-0.jsonl"), ("isdir", "file://")])
def test_whatever_a_file_system_raises_is_told_in_a_line(tmp_path, monkeypatch, method, what):
    from fsspec.implementations.local import LocalFileSystem

    def fails(*_, **__):
        raise OddError("no credentials")

    (tmp_path / "part-0.jsonl").write_text("\n".join(GOOD))
    monkeypatch.setattr(LocalFileSystem, method, fails)
    with pytest.raises(InputError, match=rf"cannot read .*{what}.*: no credentials"):
        Task.load(f"file://{tmp_path}")


# --- Standard input, and separators that nobody would guess ------------------------------------

ROWS = [("good; fine, really", "yes"), ('a "quoted" word', "no"), ("bad\ttab", "no"), ("ok", "yes")]
FRAME = pd.DataFrame(ROWS, columns=["text", "label"])


def parquet():
    file = io.BytesIO()
    FRAME.to_parquet(file, index=False)
    return file.getvalue()


CONTENTS = {
    "csv": FRAME.to_csv(index=False).encode(),
    "csv with a mark": b"\xef\xbb\xbf" + FRAME.to_csv(index=False).encode(),
    "jsonl": FRAME.to_json(orient="records", lines=True).encode(),
    "json": b"\n " + json.dumps(FRAME.to_dict("records"), indent=1).encode(),
    "parquet": parquet(),
    "compressed": gzip.compress(FRAME.to_json(orient="records", lines=True).encode()),
}


@pytest.fixture
def pipe(monkeypatch):
    """Return what is piped in."""
    return lambda content: monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii")
    )


@pytest.mark.parametrize("kind", CONTENTS)
def test_the_kind_shows_in_the_content(pipe, kind):
    pipe(CONTENTS[kind])
    task = Task.load("-")
    assert task.name == "stdin" and task.origin["data"] == "-"
    assert [*task.train.texts] == [text for text, _ in ROWS]
    assert [task.labels[one] for one in task.train.labels] == [label for _, label in ROWS]


def test_tabs_that_are_piped_in_are_read_as_tsv(pipe):
    # As from a .tsv file, where a quote is text; words that a CSV quotes would not be read at all.
    for sep in (None, "tab"):
        pipe(b'text\tlabel\n"a lone quote\tyes\nfine\tno\ngood\tyes\nbad\tno\n')
        assert Task.load("-", sep=sep).train.texts[0] == '"a lone quote'


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "standard input is empty; its first line must name the columns"),
        (b"text,label\na,b,c\n", "standard input has 2 columns, but 3 fields in line 2"),
        (b"text,label\na,\nb,no\nc,yes\n", "standard input has 1 missing, the first in line 2"),
        (
            b'{"text": "a"',
            "standard input must hold one JSON object per line or an array of them, line 1 is … ; "
            "correct it",
        ),
        (b"\x1f\x8b\x08broken", "cannot read standard input"),
        (b"PAR1broken", "cannot read standard input as Parquet"),
    ],
)
def test_messages_name_standard_input_and_no_file(pipe, content, line):
    pipe(content)
    assert "/" not in expect_refused(line, Task.load, "-")


def test_a_terminal_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    expect_refused("nothing is piped in", Task.load, "-")


@pytest.mark.parametrize(("sep", "char"), [("^", "^"), ("tab", "\t"), (r"\t", "\t"), (";", ";")])
def test_fields_may_be_separated_by_any_character(write, pipe, sep, char):
    # Commas, which a header may have, are not what was asked for.
    text = f"text, as typed{char}label\ngood, fine{char}yes\nbad{char}no\n"
    text += f"better{char}yes\nworse{char}no\n"
    for name in ("a.csv", "a.tsv"):
        task = Task.load(write(name, text), sep=sep, text="text, as typed")
        assert task.train.texts[0] == "good, fine" and task.labels == ("no", "yes")
    pipe(text.encode())
    assert Task.load("-", sep=sep, text="text, as typed").train.texts == task.train.texts


def test_data_without_fields_have_no_separator(pipe):
    for data in ("demo", "glue/sst2", "-"):
        pipe(b'{"text": "a"}')
        expect_refused("`sep` is for fields of CSV and TSV files, got", Task.load, data, sep=";")


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.csv", "review-text\ngood\n"), ("a.tsv", "text\na\n"), ("a.jsonl", '{"text": "a"}')],
)
def test_a_lone_column_has_no_separator_to_give(write, name, text):
    refused = expect_refused("text; add a column of labels", Task.load, write(name, text))
    assert "--sep" not in refused
