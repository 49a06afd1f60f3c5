"""Data from standard input, and separators that nobody would guess."""

import gzip
import io
import json
import sys

import pandas as pd
import pytest

from inputs import expect_refused
from layerscout.data import Task

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
