"""Scans that machines share: what one machine gives, for every score, task and option."""

import os
import pickle
import shutil
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from inputs import as_csv
from layerscout.cluster import Cluster
from layerscout.data import Task
from layerscout.errors import InputError
from layerscout.models import Encoder
from layerscout.scanning import scan
from layerscout.scores import SCORES
from sharded import shards
from telling import numbers_task
from tuned import choices_task

SUMS = ["variability_ratio", "nc1"]


@pytest.fixture
def parts(monkeypatch):
    """Let this process stand in for the machines of a cluster; give how many rows parts had."""
    rows = []

    def run(_, work, items, **__):
        for item in items:
            rows.append(len(item[1]))
            sent = pickle.loads(pickle.dumps((work, item)))
            yield pickle.loads(pickle.dumps(sent[0](sent[1])))

    monkeypatch.setattr(Cluster, "join", lambda _: nullcontext())
    monkeypatch.setattr(Cluster, "gpus_of_task", lambda *_: 0)
    monkeypatch.setattr("layerscout.cluster.run_on_cluster", run)
    return rows


def both(model, task, **options):
    """Scan on a cluster and here; the forward pass rounds otherwise in other batches."""
    spread, local = (
        scan(str(model), task, cluster=cluster, progress=False, **options)
        for cluster in (Cluster(), None)
    )
    for key, score in local.scores.items():
        pair = [np.array(one.values, float) for one in (spread.scores[key], score)]
        # An AMD EPYC came to 1.06e-5 on a ratio.
        np.testing.assert_allclose(*pair, rtol=1e-4, atol=1e-5, err_msg=key)
    assert spread.task == local.task and spread.model == local.model
    assert spread.settings == local.settings
    return spread, local


def test_scores_of_every_source_are_what_one_machine_computes(tiny, tmp_path, parts):
    folder, whole = shards(tmp_path / "shards", "parquet", [70, 0, 30, 120, 1, 0])
    options = {"examples": 150, "probe_seeds": 1, "head_seeds": 1}
    of_each_source = {row.source: key for key, row in SCORES.items() if not row.fewest}
    assert len(of_each_source) == 6
    scores = ["head_quality", *of_each_source.values()]
    spread, _ = both(tiny, Task.load(whole, validation=0.2), scores=scores, **options)
    assert parts[:3] == [64, 64, 22]
    assert not [key for key, score in spread.scores.items() if "refused" in score.details]
    of_files = scan(str(tiny), folder, cluster=Cluster(), scores=SUMS, progress=False)
    of_file = scan(str(tiny), whole, scores=SUMS, progress=False)
    assert of_files.scores["nc1"].values == pytest.approx(of_file.scores["nc1"].values, rel=1e-4)
    assert of_files.task["examples_per_class"] == of_file.task["examples_per_class"]
    of_files.save(tmp_path / "out")


@pytest.mark.parametrize(
    "options", [{}, {"balanced": True}, {"per_class": (30, 50, 60)}, {"examples": "all"}]
)
def test_more_and_more_rows_are_read_until_there_are_enough(
    tiny, tmp_path, parts, options, monkeypatch
):
    monkeypatch.setattr("layerscout.scanning.sampling.FIRST_LOOK", 100)
    _, whole = shards(tmp_path / "shards", "jsonl", [220])
    both(tiny, whole, **options)


def test_rows_without_a_text_or_a_label_are_left_out(tiny, write, parts):
    rows = {"text": ["good", "", "bad film", "fine"] * 20, "label": ["a", "b", "b", ""] * 20}
    task = Task.load(write("gaps.csv", as_csv(rows)), drop_missing=True)
    spread, _ = both(tiny, task, scores=SUMS)
    assert spread.task["examples_used"] == 40
    assert any("40 of 80 rows" in warning for warning in spread.warnings)


@pytest.mark.parametrize("kind", ["numbers", "choices", "words", "several"])
def test_tasks_of_other_kinds_are_scanned(tiny, parts, kind):
    words = [["good", "film", "very"], ["bad", "plot"]] * 40
    tasks = {
        "numbers": numbers_task,
        "choices": lambda: choices_task(n=30, held=9),
        "words": lambda: Task.from_lists(words, [["A", "O", "O"], ["O", "B"]] * 40),
        "several": lambda: Task.from_lists(
            ["good", "bad film", "good film", "plot"] * 30, [["x"], ["y"], ["x", "y"], []] * 30
        ),
    }
    both(tiny, tasks[kind](), examples=70 if kind == "words" else "all")


def test_checkpoints_are_spread_too(tiny, tmp_path, parts):
    _, whole = shards(tmp_path / "shards", "jsonl", [100])
    spread, local = both(tiny, whole, scores=SUMS, checkpoints=[str(tiny)])
    assert spread.stability["checkpoints"] == local.stability["checkpoints"]


def test_sums_of_parts_are_the_sums_of_all(tiny, tmp_path, parts, monkeypatch):
    def pool(self, tokens, rows, pooling="mean"):
        """Return states that no rounding of other batches changes."""
        sums = np.array([tokens.ids[a:b].sum() for a, b in pairwise(tokens.offsets)])[rows]
        waves = np.arange(1, 17) * (1 + np.arange(5)[:, None, None])
        return torch.from_numpy(np.sin(sums[None, :, None] * waves).astype(np.float32))

    monkeypatch.setattr(Encoder, "pool", pool)
    _, whole = shards(tmp_path / "shards", "jsonl", [221])
    spread, local = both(tiny, whole, scores=SUMS, examples="all")
    assert len(parts) == 4
    for key in SUMS:
        assert spread.scores[key].values == pytest.approx(local.scores[key].values, rel=1e-9)


def test_states_that_are_not_kept_are_sent(tiny, tmp_path, parts):
    _, whole = shards(tmp_path / "shards", "jsonl", [100])
    both(tiny, whole, scores="ridge", cache_limit=0)


def test_a_cluster_whose_cache_is_not_seen_here_is_told(tiny, tmp_path, parts, monkeypatch):
    def run(_, work, items, **__):
        for sent in map(work, items):
            shutil.rmtree(os.environ["LAYERSCOUT_CACHE"])
            yield sent

    monkeypatch.setattr("layerscout.cluster.run_on_cluster", run)
    _, whole = shards(tmp_path / "shards", "jsonl", [100])
    options = {"scores": "h_score", "cluster": Cluster(), "progress": False}
    with pytest.raises(InputError, match="must be visible here.*LAYERSCOUT_CACHE"):
        scan(str(tiny), whole, **options)


def test_what_a_cluster_cannot_load_is_refused(tiny, tmp_path, parts):
    _, whole = shards(tmp_path / "shards", "jsonl", [100])
    with pytest.raises(InputError, match="load the model by its name"):
        scan(Encoder.load(tiny), whole, cluster=Cluster(), progress=False)


def test_machines_that_settle_on_other_precisions_are_told(tiny, tmp_path, parts, monkeypatch):
    _, whole = shards(tmp_path / "shards", "jsonl", [200])
    settled, closed = iter(["bfloat16", "float32"]), []

    def run(_, work, items, **__):
        try:
            for item in items:
                yield replace(work(item), machines=frozenset([("cpu", next(settled))]))
        finally:
            closed.append(True)

    monkeypatch.setattr("layerscout.cluster.run_on_cluster", run)
    with pytest.raises(InputError, match="chose bfloat16, float32 on different ones"):
        scan(str(tiny), whole, cluster=Cluster(), scores=SUMS, precision="auto", progress=False)
    assert closed == [True], "other machines go on"
