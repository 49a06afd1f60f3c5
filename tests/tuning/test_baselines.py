"""Counting words beside a tuned model, on the same rows."""

import re

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from layerscout.data import Task, evaluate, find_difference
from layerscout.models import Encoder, find_linear_head
from layerscout.reporting import compare_with_free, render_result, write_card
from layerscout.scores import deal_groups, predict_from_words
from layerscout.tuning import tune
from layerscout.tuning.baselines import draw_rows
from tuned import choices_task

TRAINED = {"epochs": 1, "learning_rate": 1e-4, "progress": False}


def word_task(kind, n=60):
    """Make a task in which words decide, and the order of words nothing."""
    rng = np.random.default_rng(1)
    words = [
        str(rng.permutation(["good", "film", "fun", "dull", "late"])[:2]) for _ in range(2 * n)
    ]
    texts = [f"{text} {row}" for row, text in enumerate(words)]
    has = np.array([["good" in text, "dull" in text] for text in texts])
    labels = {
        "classes": [("no", "yes")[int(first)] for first, _ in has],
        "several": [[name for name, own in zip("ab", row, strict=True) if own] for row in has],
        "numbers": [2.0 * first - second for first, second in has],
    }[kind]
    return Task.from_lists(
        texts[:n],
        labels[:n],
        name=kind,
        validation=(texts[n:], labels[n:]),
        regression=kind == "numbers",
    )


def predict_words(texts, y, others):
    """Predict from words; each of several labels as often as the texts have it."""
    words = predict_from_words(texts, y, others)
    if y.dtype.kind == "b":
        words -= [np.quantile(words[:, k], 1 - y[:, k].mean()) for k in range(y.shape[1])]
    return words


@pytest.mark.parametrize("kind", ["classes", "several", "numbers"])
def test_words_are_judged_on_the_rows_of_the_model(bert, kind):
    task = word_task(kind)
    train, held = task.train, task.validation
    result = tune(bert, task, "top:1", **TRAINED)
    words = predict_words(train.texts, train.labels, held.texts)
    logits = np.stack(result.predictions["logits" if kind != "numbers" else "prediction"])
    pair = words, logits.reshape(len(held), -1)
    said = result.content["baselines"]["tf-idf"]
    assert said["value"] == pytest.approx(evaluate(task.metric, held.labels, words))
    difference, interval = find_difference(task.metric, held.labels, pair)
    assert (said["difference"], *said["interval"]) == pytest.approx((difference, *interval))

    y, texts = np.concatenate([train.labels, held.labels]), [*train.texts, *held.texts]
    solved = tune(bert, task, "head:best", progress=False).content
    folds = deal_groups(y, 0, groups=5, least=0)
    words = np.zeros((120, pair[0].shape[1]))
    for fold in range(5):
        rest, own = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        few = [texts[row] for row in rest], y[rest], [texts[row] for row in own]
        words[own] = predict_words(*few)
    assert solved["baselines"]["tf-idf"]["value"] == pytest.approx(evaluate(task.metric, y, words))


def embed(bert, text):
    """Embed a text as sentence-transformers would with the mean of all tokens."""
    inputs = bert.tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        state = bert.model.eval()(**inputs).last_hidden_state[0].double().mean(0)
    return (state / state.norm()).numpy()


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_of_pairs_the_cosine_of_embeddings_is_judged_too(bert, kind, monkeypatch):
    words = np.array(["good", "film", "fun", "dull", "late", "a", "the"])
    rng = np.random.default_rng(0)
    texts, pairs = ([" ".join(rng.choice(words, 3)) for _ in range(90)] for _ in range(2))
    near = np.array([embed(bert, a) @ embed(bert, b) for a, b in zip(texts, pairs, strict=True)])
    y = near + rng.normal(0, near.std(), 90)
    y = y if kind == "numbers" else (y > np.median(y)).astype(int)
    rows, held = slice(0, 60), slice(60, 90)
    held_out = texts[held], y[held].tolist(), pairs[held]
    task = Task.from_lists(
        texts[rows],
        y[rows].tolist(),
        pairs=pairs[rows],
        regression=kind == "numbers",
        validation=held_out,
    )
    result = tune(bert, task, "top:1", **TRAINED)
    said = result.content["baselines"]["cosine"]
    X = ((near - near[rows].mean()) / near[rows].std())[:, None]
    if kind == "classes":
        logits = LogisticRegression().fit(X[rows], y[rows]).predict_log_proba(X[held])
    else:
        logits = Ridge().fit(X[rows], y[rows]).predict(X[held])[:, None]
    assert said["value"] == pytest.approx(evaluate(task.metric, y[held], logits))
    own = np.stack(result.predictions["prediction" if kind == "numbers" else "logits"])
    gap = find_difference(task.metric, y[held], (logits, own.reshape(30, -1)))[0]
    assert said["difference"] == pytest.approx(gap) and said["examples"] == 30

    monkeypatch.setattr("layerscout.tuning.baselines.MOST_PAIRS", 20)  # of many some are drawn
    result = tune(bert, task, "top:1", **TRAINED)
    own = np.stack(result.predictions["prediction" if kind == "numbers" else "logits"])
    drawn = draw_rows(30, 20)
    pair = logits[drawn], own.reshape(30, -1)[drawn]
    said = result.content["baselines"]["cosine"]
    gap = find_difference(task.metric, y[held][drawn], pair)[0]
    assert said["difference"] == pytest.approx(gap) and said["examples"] == 20
    assert " on 20 of the 30 validation examples" in compare_with_free(result.content)[0]
    monkeypatch.undo()

    content = tune(bert, task, "head:best", progress=False).content
    assert content["baselines"]["cosine"]["value"] > 0.5 and not compare_with_free(content)[1]
    assert compare_with_free(content)[0].startswith(
        "no better than what is free: the cosine of the embeddings of both texts, untrained, reach"
    )


def test_the_rounding_of_equal_cosines_predicts_nothing(bert):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["good", "film", "fun", "dull", "late"], 3)) for _ in range(90)]
    y = rng.normal(size=90).tolist()
    held = texts[60:], y[60:], texts[60:]
    task = Task.from_lists(texts[:60], y[:60], pairs=texts[:60], regression=True, validation=held)
    assert tune(bert, task, "top:1", **TRAINED).content["baselines"]["cosine"]["value"] == 0


class OnMPS(torch.Tensor):
    """As on a Mac's GPU, which has no float64."""

    def double(self):
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")

    def cpu(self):
        return self.as_subclass(torch.Tensor)


def test_nothing_is_a_double_on_its_device(bert, monkeypatch):
    texts = ["good film", "dull film", "late fun", "a good film", "the fun", "dull fun"]
    task = Task.from_lists(texts * 2, [0, 1] * 6, pairs=texts[::-1] * 2)
    pool_each = Encoder.pool_each
    monkeypatch.setattr(Encoder, "pool_each", lambda *a: pool_each(*a).as_subclass(OnMPS))
    result = tune(bert, task, "head:best", progress=False)
    assert "cosine" in result.content["baselines"]
    monkeypatch.setattr(torch.nn.Parameter, "double", OnMPS.double)
    assert all(part.dtype == torch.float32 for part in find_linear_head(result.model))


def test_a_model_that_is_no_better_says_so_first(bert):
    result = tune(bert, word_task("classes"), "top:1", **TRAINED)
    content = result.content
    line, better = compare_with_free(content)
    assert not better and line.startswith("no better than what is free: counting words (tf-idf)")
    assert repr(result).endswith(f", {line}>")
    page, card = render_result(content, ""), write_card(content)
    first, *_ = re.findall(r"<p>(.*?)</p>", page, re.DOTALL)
    assert first.startswith("No better than what is free") and f"\n\nN{line[1:]}, on the" in card
    words = content["baselines"]["tf-idf"]
    ahead = {**content, "baselines": {"tf-idf": {**words, "interval": [0.01, 0.2]}}}
    line, better = compare_with_free(ahead)
    assert better and line == f"counting words (tf-idf) reaches accuracy {words['value']:.3f}"
    assert f"- Baseline: {line}\n" in write_card(ahead)
    rows = f" on the {content['settings']['validation_examples']} validation examples"
    assert compare_with_free({**ahead, "test": {"metrics": {}}})[0] == line + rows, "others"
    words = {**words, "difference": 0.09, "interval": [-0.01, 0.18]}
    line, better = compare_with_free({**content, "baselines": {"tf-idf": words}})
    assert not better and line.startswith("not clearly better than what is free: counting words")
    assert line.endswith("the difference is +0.090 (−0.010 to +0.180)")
    beaten = {**words, "difference": 0.08, "interval": [0.01, 0.15]}
    for pair in ({"tf-idf": words, "cosine": beaten}, {"tf-idf": beaten, "cosine": words}):
        line, better = compare_with_free({**content, "baselines": pair})
        assert not better and line.endswith("+0.090 (−0.010 to +0.180)"), "one is not beaten"
    assert compare_with_free({**content, "baselines": None}) == ("", True)


def test_choices_and_short_measures_have_no_words(bert):
    few = {"measure": "predictions"}
    assert tune(bert, word_task("classes"), "top:1", **TRAINED, **few).content["baselines"] == {}
    assert tune(bert, choices_task(), "top:1", **TRAINED).content["baselines"] == {}


@pytest.mark.parametrize("plan", ["top:1", "head:best"])
def test_words_that_have_labels_are_counted_with_their_neighbours(bert, plan):
    rng = np.random.default_rng(0)
    rows = [[str(word) for word in rng.choice(["the", "cat", "sat", "down"], 6)] for _ in range(60)]
    tags = [
        ["N" if before == "the" else "V" for before in ("", *words[:-1])] for words in rows
    ]  # so that the word alone says nothing
    task = Task.from_lists(rows[:40], tags[:40], validation=(rows[40:], tags[40:]))
    options = TRAINED if plan == "top:1" else {"progress": False}
    content = tune(bert, task, plan, **options).content
    assert content["baselines"]["tf-idf"]["value"] > 0.99
    line, better = compare_with_free(content)
    assert not better and "counting words and their neighbours (tf-idf) reaches accuracy" in line
