"""Regression on counted words against its formulas, and odd texts."""

import importlib
import math
import re
from collections import Counter

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from layerscout.scores import predict_from_words

TEXTS = ["a good film", "good, good fun", "a bad film", "bad and dull", "dull", "fun and a laugh"]
OTHERS = ["a good laugh", "dull film", "unheard of"]


def weigh(texts, others):
    """Counts by ln((1 + n) / (1 + df)) + 1, each row brought to length 1."""
    counts = [Counter(re.findall(r"\w+", text.lower())) for text in (*texts, *others)]
    words = sorted(set().union(*counts[: len(texts)]))
    df = [sum(word in one for one in counts[: len(texts)]) for word in words]
    idf = np.array([math.log((1 + len(texts)) / (1 + times)) + 1 for times in df])
    X = np.array([[one[word] for word in words] for one in counts]) * idf
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
    return X[: len(texts)], X[len(texts) :]


def regress(X, y, rest, classes):
    """The sum of the losses plus half the squared weights of the classes, which no bias is of."""

    def loss(flat):
        weights, bias = np.split(flat.reshape(-1, classes), [X.shape[1]])
        return (
            0.5 * (weights**2).sum()
            - log_softmax(X @ weights + bias, axis=1)[np.arange(len(y)), y].sum()
        )

    found = minimize(loss, np.zeros((X.shape[1] + 1) * classes), options={"gtol": 1e-7})
    weights, bias = np.split(found.x.reshape(-1, classes), [X.shape[1]])
    return log_softmax(rest @ weights + bias, axis=1)


def test_classes_labels_and_numbers_are_those_of_the_formulas():
    X, rest = weigh(TEXTS, OTHERS)
    three = np.array([0, 0, 2, 2, 3, 0])
    logits = predict_from_words(TEXTS, three, OTHERS, classes=5)
    expected = regress(X, np.array([0, 0, 1, 1, 2, 0]), rest, 3)
    np.testing.assert_allclose(logits[:, [0, 2, 3]], expected, atol=2e-3)
    assert (logits[:, [1, 4]] < -50).all()

    # Two classes have one weight between them: half the penalty of two that are each other's
    # negatives. A label that all have, or none, is certain.
    labels = np.stack([three == 0, three >= 0, three < 0], axis=1)
    logits = predict_from_words(TEXTS, labels, OTHERS)

    def loss(flat):
        signed = np.where(three == 0, 1, -1) * (X @ flat[:-1] + flat[-1])
        return 0.5 * (flat[:-1] ** 2).sum() + np.log1p(np.exp(-signed)).sum()

    flat = minimize(loss, np.zeros(X.shape[1] + 1), options={"gtol": 1e-7}).x
    np.testing.assert_allclose(logits[:, 0], rest @ flat[:-1] + flat[-1], atol=2e-3)
    assert (logits[:, 1] > 50).all() and (logits[:, 2] < -50).all()

    numbers = np.array([2.0, 3.0, -1.0, -2.0, -1.5, 1.0])
    centred = X - X.mean(axis=0)
    weights = np.linalg.solve(centred.T @ centred + np.eye(X.shape[1]), centred.T @ numbers)
    expected = numbers.mean() + (rest - X.mean(axis=0)) @ weights
    found = predict_from_words(TEXTS, numbers, OTHERS)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-8)


@pytest.mark.parametrize(("texts", "y"), [(["!", "?"], [0, 1]), (["a", "b"], [1, 1])])
def test_texts_without_words_or_of_one_class_say_nothing(texts, y):
    assert predict_from_words(texts, np.array(y), OTHERS) is None


def test_of_many_texts_some_are_read():
    y = np.arange(6) % 2
    few = predict_from_words(TEXTS, y, OTHERS, most=4)
    assert np.isfinite(few).all() and (few != predict_from_words(TEXTS, y, OTHERS)).any()


def test_many_classes_and_labels_take_no_more_room_than_few(monkeypatch):
    """Of many classes the most frequent words count; each of several labels is by itself."""
    rng, sizes = np.random.default_rng(0), []
    words = [f"w{n}" for n in range(40)]
    texts = [" ".join(words[k] for k in rng.geometric(0.1, 12).clip(max=40) - 1) for _ in range(90)]
    y = rng.integers(0, 6, 90)
    counts = importlib.import_module("layerscout.scores.words")
    fits = importlib.import_module("layerscout.scores.regression")
    true = fits.regress
    monkeypatch.setattr(
        fits, "regress", lambda X, Y, *a: sizes.append(X.shape[1] * Y.shape[1]) or true(X, Y, *a)
    )
    monkeypatch.setattr(counts, "MOST_WEIGHTS", 60)
    often = Counter(" ".join(texts).split()).most_common()
    assert often[9][1] > often[10][1]  # no tie between what counts and what does not
    logits = predict_from_words(texts, y, texts[:9])
    vectorizer = TfidfVectorizer(token_pattern=r"\w+", max_features=10)
    model = LogisticRegression(tol=1e-6).fit(vectorizer.fit_transform(texts), y)
    expected = model.predict_log_proba(vectorizer.transform(texts[:9]))
    np.testing.assert_allclose(logits, expected, atol=5e-3)
    several = rng.random((90, 30)) < 0.3
    logits = predict_from_words(texts, several, texts[:9])
    alone = predict_from_words(texts, several[:, [7]], texts[:9])
    np.testing.assert_allclose(logits[:, [7]], alone)
    assert max(sizes) <= 60
