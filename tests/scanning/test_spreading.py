"""Scans of many files: what one file gives, and what is no such data is refused."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from layerscout.data import Shards
from layerscout.models import Encoder
from layerscout.runtime import Cluster, InputError
from layerscout.scanning import cluster as spreading, shard_moments
from layerscout.scanning.cluster import scan_shards
from layerscout.scanning.run import scan
from sharded import shards


@pytest.fixture
def here(monkeypatch):
    """Let this process stand in for the machines of a cluster."""

    def spread(_, work, items, **__):
        yield from map(work, items)

    monkeypatch.setattr(Cluster, "join", lambda _: nullcontext())
    monkeypatch.setattr(Cluster, "gpus_of_task", lambda *_: 0)
    monkeypatch.setattr(spreading, "run_on_cluster", spread)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_shards_give_what_one_file_gives(tiny, tmp_path, here, monkeypatch, kind):
    monkeypatch.setattr(shard_moments, "ROWS", 40)
    folder, whole = shards(tmp_path / kind, kind, [70, 0, 30, 120, 1, 0])
    found = scan_shards(tiny, f"file://{folder}", progress=False)
    wanted = scan(
        tiny, whole, scores=spreading.SCORED, examples="all", cache_limit=0, progress=False
    )
    # The forward pass rounds otherwise in other batches; an AMD EPYC came to 1.06e-5.
    for key in spreading.SCORED:
        assert found.scores[key].values == pytest.approx(wanted.scores[key].values, rel=1e-4)
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
    def pool(self, tokens, rows, pooling="mean"):
        """Give states that no rounding of other batches changes."""
        sums = np.array([tokens.ids[a:b].sum() for a, b in pairwise(tokens.offsets)])[rows]
        waves = np.arange(1, 17) * (1 + np.arange(5)[:, None, None])
        return torch.from_numpy(np.sin(sums[None, :, None] * waves).astype(np.float32))

    monkeypatch.setattr(Encoder, "pool", pool)
    monkeypatch.setattr(shard_moments, "ROWS", 40)
    folder, whole = shards(tmp_path / "shards", "jsonl", [70, 0, 30, 120, 1])
    found = scan_shards(tiny, folder, progress=False)
    wanted = scan(
        tiny, whole, scores=spreading.SCORED, examples="all", cache_limit=0, progress=False
    )
    for key in spreading.SCORED:
        assert found.scores[key].values == pytest.approx(wanted.scores[key].values, rel=1e-9)


def test_machines_that_settle_on_other_precisions_are_told(tiny, tmp_path, here, monkeypatch):
    folder, _ = shards(tmp_path / "shards", "jsonl", [40, 40])
    sums, settled = spreading.sum_moments, iter(["bfloat16", "float32"])

    def mixed(work, path):
        moments, read = sums(work, path)
        return moments, replace(read, precisions=frozenset([next(settled)]))

    monkeypatch.setattr(spreading, "sum_moments", mixed)
    closed = []

    def spread(_, work, items, **__):
        try:
            yield from map(work, items)
        finally:
            closed.append(True)

    monkeypatch.setattr(spreading, "run_on_cluster", spread)
    with pytest.raises(InputError, match="chose bfloat16, float32 on different ones"):
        scan_shards(tiny, folder, precision="auto", progress=False)
    assert closed == [True] * 2, "other machines go on, and a cluster starts to stop them"


class OddError(Exception):
    """What a file system may raise."""


def test_whatever_a_file_system_raises_is_told_in_a_line(tiny, tmp_path, here, monkeypatch):
    from fsspec.implementations.local import LocalFileSystem

    def fails(*_, **__):
        raise OddError("no credentials")

    folder, _ = shards(tmp_path / "shards", "jsonl", [40])
    found = Shards.find(folder)
    monkeypatch.setattr(LocalFileSystem, "open", fails)
    for work in (lambda: found.source, lambda: list(found.tables(found.paths[0], ["text"], 9))):
        with pytest.raises(InputError, match=r"cannot read .*train-0.jsonl: no credentials"):
            work()
    monkeypatch.setattr(LocalFileSystem, "isdir", fails)
    with pytest.raises(InputError, match="cannot read .*shards: no credentials"):
        Shards.find(folder)


@pytest.mark.parametrize(
    ("files", "options", "told"),
    [
        ({}, {}, "reads .parquet and .jsonl files: .* has none"),
        ({"a.csv": "text,label\n"}, {}, "reads .parquet and .jsonl files: .* has a.csv"),
        ({"a.jsonl": "{}", "b.parquet": ""}, {}, "must be of one kind"),
        ({"a.parquet": "no"}, {}, "cannot read .*a.parquet"),
        ({"a.jsonl": "1\n"}, {}, "one JSON object per line, line 1 is a number"),
        ({"a.jsonl": "{\n"}, {}, "line 1 is not JSON"),
        ({"a.jsonl": '{"text": "a", "label": 1}'}, {"label": "lable"}, "did you mean 'label'"),
        ({"a.jsonl": '{"text": "a", "label": 1}'}, {"scores": "cca"}, "a cluster computes"),
        ({"a.jsonl": '{"text": "a", "label": 1}'}, {"task": "stsb"}, "stsb needs the columns"),
        (
            {"a.jsonl": '{"sentence1": "a", "sentence2": "a", "label": 1}'},
            {"task": "stsb"},
            "scans only classification",
        ),
        ({"a.jsonl": '{"text": "a", "label": 1}'}, {"pooling": "max"}, "unknown pooling"),
        (
            {"a.jsonl": '{"text": "a", "labels": ["x"]}'},
            {},
            "a cluster scans texts with one label each, got lists in column 'labels' of shards; "
            "leave out --backend ray for several labels per text and for labels of words",
        ),
        (
            {"a.jsonl": '{"tokens": ["a"], "tags": [1]}'},
            {},
            "one label each, got lists in column 'tokens'",
        ),
        (
            {"a.jsonl": '{"text": "a", "x": 1, "y": 0}'},
            {"label": "x,y"},
            "one label each, got columns x, y of shards",
        ),
        (
            {"a.jsonl": '{"text": "a", "labels": ["joy"]}'},
            {"task": "go_emotions"},
            "scans only classification, got go_emotions",
        ),
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
