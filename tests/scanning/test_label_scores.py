"""Scans of texts with several labels."""

import numpy as np
import pytest

import layerscout as ls
from layerscout.data import Split
from layerscout.errors import InputError
from layerscout.models import Encoder
from layerscout.scores import read_score_keys
from telling import WORDS

KIND = "multi_label_classification"


def task_of(n=120, m=40, seed=0):
    """Make a task whose labels each bring a word of their own."""
    rng = np.random.default_rng(seed)
    Y = rng.random((n + m, 3)) < [0.5, 0.3, 0.02]
    texts = [" ".join([*rng.choice(WORDS[3:], 4), *WORDS[:3][has]]) for has in Y]
    train, validation = (Split(texts[at], None, Y[at]) for at in (slice(n), slice(n, None)))
    names, columns = ("red", "green", "rare"), {"text": "text", "label": "labels"}
    return ls.Task("several", KIND, names, "macro_f1", train, validation, columns)


@pytest.fixture(scope="module")
def encoder(tiny):
    return Encoder.load(tiny)


def scan(encoder, task, **options):
    return ls.scan(encoder, task, progress=False, **options)


def test_a_scan_of_several_labels_has_every_score_that_reads_them(encoder, tmp_path):
    task = task_of()
    result = scan(encoder, task, scores="all", head_seeds=1)
    assert not any("refused" in score.details for score in result.scores.values())
    assert set(result.scores) == set(read_score_keys("all", "several"))
    assert result.task["examples_per_class"] == task.train.labels.sum(axis=0).tolist()
    assert result.task["kind"] == KIND
    assert result.scores["head_quality"].low[1] is not None
    assert result.scores["probe"].details["metric"] == "macro_f1"
    assert result.scores["probe"].details["majority"] is not None
    assert all(value > 0 for value in result.scores["fisher"].values[1:])
    result.save(tmp_path)
    assert ls.Scan.load(tmp_path).scores["cca"].values == result.scores["cca"].values


def test_the_usual_score_is_the_quality_of_heads(encoder):
    result = scan(encoder, task_of())
    assert list(result.scores) == ["head_quality"]
    assert isinstance(result.settings["examples_because"], str)  # the head's quality decided


def test_a_family_probe_has_an_output_for_each_label(encoder):
    result = scan(encoder, task_of(24, 8), scores="probe", probe="family", probe_seeds=1)
    assert result.scores["probe"].values[1] is not None


def test_balanced_drawing_is_refused(encoder):
    with pytest.raises(InputError, match="--balanced"):
        scan(encoder, task_of(), balanced=True)
