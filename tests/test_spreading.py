"""Scans of many files: what one file gives, and what is no such data is refused."""

from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest
import torch

from layerscout import spreading
from layerscout.encoder import Encoder
from layerscout.errors import InputError
from layerscout.scanning import scan
from layerscout.spreading import scan_shards
from sharded import shards


@pytest.fixture
def here(monkeypatch):
    """Let this process stand in for the machines of a cluster."""

    def spread(_, work, items, **__):
        return map(work, items)

    monkeypatch.setattr(spreading, "joined", lambda _: nullcontext())
    monkeypatch.setattr(spreading, "given_gpus", lambda *_: 0)
    monkeypatch.setattr(spreading, "spread", spread)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_shards_give_what_one_file_gives(tiny, tmp_path, here, monkeypatch, kind):
    monkeypatch.setattr(spreading, "ROWS", 40)
    folder, whole = shards(tmp_path / kind, kind, [70, 0, 30, 120, 1, 0])
    found = scan_shards(tiny, f"file://{folder}", progress=False)
    wanted = scan(
        tiny, whole, scores=spreading.SCORED, examples="all", cache_limit=0, progress=False
    )
    for key in spreading.SCORED:  # the forward pass rounds otherwise in other batches
        assert found.scores[key].values == pytest.approx(wanted.scores[key].values, rel=1e-5)
    same = ("labels", "metric", "columns", "examples_used", "examples_per_class")
    assert {n: found.task[n] for n in same} == {n: wanted.task[n] for n in same}
    assert found.task["tokens_per_example"] == pytest.approx(wanted.task["tokens_per_example"])
    assert found.model == wanted.model and found.best() == wanted.best()
    assert found.settings.keys() - wanted.settings.keys() == {"files"}
    assert found.settings["device"] == "cpu" and found.settings["precision"] == "float32"
    found.save(tmp_path / "out")


def test_files_without_rows_are_refused(tiny, tmp_path, here):
    folder, _ = shards(tmp_path / "shards", "parquet", [0, 0])
    with pytest.raises(InputError, match="shards has no rows"):
        scan_shards(tiny, folder, progress=False)


def test_sums_of_parts_are_the_sums_of_all(tiny, tmp_path, here, monkeypatch):
    def pooled(self, tokens, rows, pooling="mean"):
        """Give states that no rounding of other batches changes."""
        sums = np.array([tokens.ids[a:b].sum() for a, b in pairwise(tokens.offsets)])[rows]
        waves = np.arange(1, 17) * (1 + np.arange(5)[:, None, None])
        return torch.from_numpy(np.sin(sums[None, :, None] * waves).astype(np.float32))

    monkeypatch.setattr(Encoder, "pooled", pooled)
    monkeypatch.setattr(spreading, "ROWS", 40)
    folder, whole = shards(tmp_path / "shards", "jsonl", [70, 0, 30, 120, 1])
    found = scan_shards(tiny, folder, progress=False)
    wanted = scan(
        tiny, whole, scores=spreading.SCORED, examples="all", cache_limit=0, progress=False
    )
    for key in spreading.SCORED:
        assert found.scores[key].values == pytest.approx(wanted.scores[key].values, rel=1e-9)


@pytest.mark.parametrize(
    ("files", "options", "told"),
    [
        ({}, {}, "reads .parquet and .jsonl files: .* has none"),
        ({"a.csv": "text,label\n"}, {}, "reads .parquet and .jsonl files: .* has a.csv"),
        ({"a.jsonl": "{}", "b.parquet": ""}, {}, "must be of one kind"),
        ({"a.parquet": "no"}, {}, "cannot read .*a.parquet"),
        ({"a.jsonl": "1\n"}, {}, "one JSON object a line, line 1 is a int"),
        ({"a.jsonl": "{\n"}, {}, "line 1 is not JSON"),
        ({"a.jsonl": '{"text": "a", "label": 1}'}, {"label": "lable"}, "did you mean 'label'"),
        ({"a.jsonl": '{"text": "a", "label": 1}'}, {"scores": "cca"}, "a cluster computes"),
        ({"a.jsonl": '{"text": "a", "label": 1}'}, {"task": "stsb"}, "stsb needs the columns"),
        (
            {"a.jsonl": '{"sentence1": "a", "sentence2": "a", "label": 1}'},
            {"task": "stsb"},
            "tasks with classes",
        ),
        ({"a.jsonl": '{"text": "a", "label": 1}'}, {"pooling": "max"}, "unknown pooling"),
    ],
)
def test_shards_that_cannot_be_scanned_are_refused(tiny, tmp_path, here, files, options, told):
    folder = tmp_path / "shards"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(InputError, match=told):
        scan_shards(tiny, folder, progress=False, **options)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (['{"text": "a", "label": []}'], "a label must be one string or number: .* in line 4"),
        (['{"text": "a", "label": null}'], "every row needs a label: .* in a row"),
        (['{"text": "a", "label": true}'] * 2, "labels must be of one type"),
        (['{"text": "a"}'], "every row must have the column 'label'"),
        (['{"text": 3, "label": 1}'], "line 4"),
        (['{"text": "a", "label": 7}'], "every class needs at least 2 examples"),
    ],
)
def test_rows_that_cannot_be_read_are_told(tiny, tmp_path, here, rows, told):
    folder = tmp_path / "shards"
    folder.mkdir()
    good = ['{"text": "a", "label": 0}', "", '{"text": "b", "label": 1}']
    (folder / "a.jsonl").write_text("\n".join([*good, *rows, *good]))
    with pytest.raises(InputError, match=told):
        scan_shards(tiny, folder, progress=False)
