"""Scans of tasks with a label for every word: what a row is, and what it is judged by."""

from dataclasses import replace

import numpy as np
import pytest

from inputs import expect_refused
from layerscout.data import draw_words
from layerscout.scanning import scan
from tuned import TAGS, load, words_task

USUAL = ("head_quality", "variability_ratio")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return load(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def task():
    return words_task(n=120, held=40)


def quietly(encoder, task, **options):
    return scan(encoder, task, progress=False, **options)


def test_rows_are_words_in_balance(bert, task):
    result = quietly(bert, task, examples=150)
    read = draw_words(task.train, 150, 0)
    assert result.task["words_used"] == 150
    assert result.task["words_available"] == len(task.train.labels)
    assert result.task["examples_used"] == len(np.unique(task.train.sentences[read]))
    assert result.task["examples_available"] == 120
    assert result.task["examples_per_class"] == np.bincount(task.train.labels[read]).tolist()
    assert tuple(result.scores) == USUAL
    assert all(value is not None for value in result.scores["head_quality"].values)


def test_sums_and_kept_states_of_words_agree(bert, task):
    options = {"examples": "all", "scores": ("variability_ratio", "nc1", "h_score")}
    streamed = quietly(bert, task, examples="all", scores=("variability_ratio", "nc1"))
    kept = quietly(bert, task, **options)
    for key in ("variability_ratio", "nc1"):
        np.testing.assert_allclose(streamed.scores[key].values, kept.scores[key].values, rtol=1e-5)


def test_single_words_are_judged_by_every_tag_alike(bert, task):
    with_probe = quietly(bert, task, scores=("probe", "head_quality"), examples=150)
    assert with_probe.scores["probe"].details["metric"] == "macro_f1"
    plain = replace(task, labels=("short", "long", "longer"), metric="accuracy")
    result = quietly(bert, plain, scores=("probe",), examples=150)
    assert result.scores["probe"].details["metric"] == "accuracy"


def test_the_poolings_of_words(bert, task):
    options = {"examples": 150, "scores": ("h_score",)}
    result = {
        pooling: quietly(bert, task, pooling=pooling, **options).scores["h_score"].values
        for pooling in ("mean", "first", "last")
    }
    assert quietly(bert, task, **options).scores["h_score"].values == result["mean"]
    assert len(set(result.values())) == 3
    expect_refused("cls … mean, first or last", quietly, bert, task, pooling="cls")


def test_the_familys_head_probes_the_first_token_of_words(bert, task):
    result = quietly(bert, task, examples=60, scores=("probe",), probe="family", probe_seeds=1)
    assert result.scores["probe"].values[1] is not None


def test_sentences_stay_together(bert, task, monkeypatch):
    from layerscout.scanning import sampling

    seen = []
    deal = sampling.deal_groups
    monkeypatch.setattr(
        sampling,
        "deal_groups",
        lambda y, seed, examples: seen.append((deal(y, seed, examples), examples)) or seen[-1][0],
    )
    quietly(bert, task, examples=150)
    groups, sentences = seen[-1]
    assert all(len(set(groups[sentences == s])) == 1 for s in np.unique(sentences))
    assert len(set(groups)) >= 4


@pytest.mark.parametrize("scores", [("variability_ratio", "nc1"), ("variability_ratio", "knn")])
def test_tags_that_are_not_there_are_left_out(bert, task, scores):
    more = replace(task, labels=(*TAGS[:1], "B-none", *TAGS[1:]))
    ids = np.array([0, 2, 3])
    more = replace(more, train=replace(task.train, labels=ids[task.train.labels]))
    expected = quietly(bert, task, scores=scores, examples="all")
    result = quietly(bert, more, scores=scores, examples="all")
    for key in scores:
        np.testing.assert_allclose(result.scores[key].values, expected.scores[key].values)


def test_words_that_cannot_be_drawn(bert, task):
    expect_refused("balance over their tags", quietly, bert, task, balanced=True)
    expect_refused("words, got", quietly, bert, task, examples=10_000)


def test_gradients_of_words(bert, task):
    result = quietly(bert, task, scores=("fisher", "gradient_norm"), examples=60)
    assert all(value > 0 for value in result.scores["fisher"].values[1:])


def test_words_that_are_dropped_are_counted(bert, task):
    words = [("\u200b", *row[1:]) for row in task.train.words]
    odd = replace(task, train=replace(task.train, words=words))
    for options in ({"examples": 150}, {"examples": "all", "scores": ("nc1",)}):
        (told,) = (w for w in quietly(bert, odd, **options).warnings if "dropped" in w)
        assert "unknown token" in told


def test_a_probe_is_judged_on_tags_that_training_lacks(bert, task):
    ids = np.array([0, 1, 3])
    held = replace(task.validation, labels=ids[task.validation.labels])
    train = replace(task.train, labels=np.minimum(task.train.labels, 1))
    more = replace(task, labels=(*TAGS, "I-x"), train=train, validation=held)
    result = quietly(bert, more, scores=("probe", "head_quality"), examples=60)
    assert result.scores["probe"].values[1] is not None
