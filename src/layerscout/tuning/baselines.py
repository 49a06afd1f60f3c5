"""What was free beside a tuned model, judged on the same rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from layerscout.data import Split, Tags, Targets, evaluate, find_difference, settle_thresholds
from layerscout.scores import MOST_TEXTS, predict_from_words, predict_linearly
from layerscout.tuning.resolve import Tuning
from layerscout.tuning.solving import Judged

# Pairs whose embeddings are compared, of those that judge and of those that are fitted on: each is
# two more passes of a text, and one slope wants no more. And how far apart cosines are that differ
# by more than rounding.
MOST_PAIRS, FITTED_PAIRS, APART = 500, 200, 1e-6

# What some rows say of others; None where they say nothing.
Predict = Callable[[Split, Split], np.ndarray | None]


def judge_baselines(
    tuning: Tuning, judged: Judged, answers: Targets, thresholds: np.ndarray | None
) -> dict[str, Any]:
    """Judge what is free on the rows that a model is judged on, and compare the two.

    It is fitted on the same rows as the model: without each of its folds, or on training. Each of
    several labels is predicted as often as these have it.

    Args:
        tuning: what the model comes from.
        judged: what it says of the rows.
        answers: what is right for these.
        thresholds: of its labels.

    Returns:
        By name, where it says something: the metric, how far the model is above it, with the
        interval of that, on how many rows, and seconds. Counting words is "tf-idf"; with pairs of
        texts "cosine" is that of their embeddings, on some of the rows where they are many.
    """
    if tuning.task.kind == "multiple_choice":
        return {}
    classes, most = judged.logits.shape[1], MOST_TEXTS // judged.folds
    found: dict[str, dict[str, Any] | None] = {}

    def count_words(training: Split, others: Split) -> np.ndarray | None:
        texts, rest = _list_texts(training), _list_texts(others)
        return predict_from_words(texts, training.labels, rest, classes=classes, most=most)

    judge = partial(_judge, tuning, tags=answers.tags, thresholds=thresholds)
    found["tf-idf"] = judge(judged, answers.labels, lambda _: count_words)
    if judged.split.pairs is not None:
        rows = draw_rows(len(judged.split), MOST_PAIRS)
        dealt = None if judged.dealt is None else judged.dealt[rows]
        split, logits = judged.split.take(rows), judged.logits[rows]
        some = replace(judged, split=split, logits=logits, dealt=dealt)
        found["cosine"] = judge(some, answers.labels[rows], partial(_compare_embeddings, tuning))
    return {name: each for name, each in found.items() if each is not None}


def _judge(
    tuning: Tuning,
    judged: Judged,
    labels: np.ndarray,
    prepare: Callable[[Judged], Predict],
    tags: Tags | None,
    thresholds: np.ndarray | None,
) -> dict[str, Any] | None:
    """Judge one of what is free, prepared for the rows that are judged; None if it says nothing."""
    started, metric = perf_counter(), tuning.settings.metric
    logits = _predict_apart(tuning, judged, prepare(judged))
    if logits is None:
        return None
    least = settle_thresholds(tuning.settings.threshold, labels, logits)
    seconds = perf_counter() - started
    difference, interval = find_difference(
        metric, labels, (logits, judged.logits), tags=tags, thresholds=(least, thresholds)
    )
    return {
        "value": evaluate(metric, labels, logits, tags=tags, thresholds=least),
        "difference": difference,
        "interval": interval,
        "examples": len(judged.split),
        "seconds": seconds,
    }


def draw_rows(rows: int, most: int) -> np.ndarray:
    """Draw so many rows, in order; the same every time."""
    return np.sort(np.random.default_rng(0).permutation(rows)[:most])


def _predict_apart(tuning: Tuning, judged: Judged, predict: Predict) -> np.ndarray | None:
    """Predict the rows that are judged from others: each fold from the rest, or from training."""
    logits, rows = np.zeros_like(judged.logits, np.float64), judged.split
    starts = rows.bounds[:-1]  # the words of a row are in one fold
    dealt = np.zeros(len(rows), int) if judged.dealt is None else judged.dealt[starts]
    for fold in np.unique(dealt):
        own, training = dealt == fold, tuning.task.train
        if judged.dealt is not None:
            training = rows.take(np.flatnonzero(~own))
        said = predict(training, rows.take(np.flatnonzero(own)))
        if said is None:
            return None
        if training.labels.dtype.kind == "b":  # few rows make no label likely, only likelier
            shares = training.labels.mean(axis=0)
            said = said - [np.quantile(*pair) for pair in zip(said.T, 1 - shares, strict=True)]
        logits[own[rows.sentences]] = said
    return logits


def _compare_embeddings(tuning: Tuning, judged: Judged) -> Predict:
    """Return what predicts from the cosine of the embeddings of both texts, before training.

    That of a text is the mean of its tokens at the top.
    """
    most = draw_rows(len(tuning.task.train), FITTED_PAIRS)
    fitted, length = tuning.task.train.take(most), tuning.request.max_length
    parts = [judged.split] if judged.dealt is not None else [judged.split, fitted]
    texts = sorted({text for part in parts for text in (*part.texts, *(part.pairs or ()))})
    means = tuning.encoder.states(texts, pooling="mean-all", max_length=length)[-1].double().numpy()
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    units = np.divide(means, lengths, out=np.zeros_like(means), where=lengths > 0)
    embedded = dict(zip(texts, units, strict=True))

    def measure(split: Split) -> np.ndarray:
        pairs = zip(split.texts, split.pairs or (), strict=True)
        return np.array([[embedded[first] @ embedded[second]] for first, second in pairs])

    def predict(training: Split, others: Split) -> np.ndarray | None:
        training = training if judged.dealt is not None else fitted
        cosines, rest = measure(training), measure(others)
        if not (np.isfinite(cosines).all() and np.isfinite(rest).all()):
            return None
        mean, scale = cosines.mean(), cosines.std()
        scale = scale if scale > APART else 1.0
        near, rest = (cosines - mean) / scale, (rest - mean) / scale
        return predict_linearly(near, training.labels, rest, judged.logits.shape[1])

    return predict


def _list_texts(split: Split) -> Sequence[str] | Sequence[tuple[str, ...]]:
    """Return what is counted for each label: a text with its pair, or a word and its neighbours.

    Of the word itself its ending, and whether it begins with a capital, count as well.
    """
    if split.words is not None:
        return [
            (word, f"< {before}", f"> {after}", f"- {word[-3:]}", f"^ {word[:1].isupper()}")
            for words in split.words
            for before, word, after in zip(("", *words), words, (*words[1:], ""), strict=False)
        ]
    if split.pairs is None:
        return list(split.texts)
    return [f"{first}\n{second}" for first, second in zip(split.texts, split.pairs, strict=True)]
