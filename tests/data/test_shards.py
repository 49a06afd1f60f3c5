"""Data in many files: what one file gives, and what is no such data is refused."""

import json

import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

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
        ["train-0.parquet", "test-0.parquet"],
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
