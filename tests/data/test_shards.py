"""Data in many files: what one file gives, and what is no such data is refused."""

import json

import pytest

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
    for number, rows in enumerate((GOOD, [*GOOD, *bad])):
        (tmp_path / f"part-{number}.jsonl").write_text("\n".join(rows))
    if not bad:
        assert len(Task.load(tmp_path).train) == 4
    elif "label" in bad[0]:
        assert len(Task.load(tmp_path, drop_missing=True).train) == 4
        with pytest.raises(InputError, match="every row needs a text: .* in a row, column 'text'"):
            Task.load(tmp_path)
    else:
        with pytest.raises(InputError, match="must have the column 'label': .*part-1.jsonl"):
            Task.load(tmp_path)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "must be .parquet or .jsonl: .* has none"),
        ({"a.csv": "text,label\n"}, "must be .parquet or .jsonl: .* has a.csv"),
        ({"a.jsonl": "{}", "b.parquet": ""}, "must be of one kind"),
        ({"a.parquet": "no"}, "cannot read .*a.parquet"),
        ({"a.jsonl": "1\n"}, "one JSON object per line, line 1 is a number"),
        ({"a.jsonl": "{\n"}, "line 1 is not JSON"),
        ({"a.jsonl": "\n".join([*GOOD, '{"text": 3, "label": 1}', *GOOD])}, "line 4"),
        ({"a.jsonl": ""}, "cannot tell which column"),
        ({"a.jsonl": json.dumps({"text": "a", "label": 7})}, "at least 2"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, files, reason):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=reason):
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
