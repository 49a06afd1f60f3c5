"""Data as people have it: compressed, with semicolons, as JSON arrays, with gaps and doubles."""

import gzip
import json

import numpy as np
import pytest

from inputs import LABELS, TEXTS, as_csv, as_jsonl, expect_refused, many
from layerscout.data import Task

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
    expect_refused("every row needs a label … line 3 … --drop-missing", Task.load, path)
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


def test_doubtful_names_of_classes_are_told(write):
    rows = "".join(f"text {n},{name}\n" for n in range(2) for name in (" cat ", "cat", "Cat", "NA"))
    first, second = Task.load(write("data.csv", "text,label\n" + rows)).warnings
    assert "only in case or spaces: ' cat ', 'Cat', 'cat'; " in first
    assert "'NA' is read as a class" in second and "--drop-missing" in second


def test_held_out_rows_of_training_are_told(write):
    texts = [f"text {n}" for n in range(40)]
    labels = ["x", "y"] * 20
    task = Task.from_lists(texts, labels, validation=([*texts[:2], "new"], ["x", "y", "x"]))
    [line] = task.warnings
    assert "2 of 3 validation rows are also training rows" in line
    assert not Task.from_lists(texts, labels, validation=0.1).warnings
    held = (["new", "newer"], ["x", "y"])
    [line] = Task.from_lists(texts, labels, validation=held, test=held).warnings
    assert "2 of 2 test rows are also validation rows" in line
    twice = Task.from_lists(texts * 2, labels * 2, validation=0.5, seed=1)
    assert "validation rows are also training rows" in twice.warnings[0]
    assert np.isin(twice.validation.origin, twice.train.origin).sum() == 0
