"""What was free beside a tuned model, judged on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from layerscout.data import Split, Targets, evaluate, find_difference, settle_thresholds
from layerscout.scores import MOST_TEXTS, predict_from_words
from layerscout.tuning.resolve import Tuning
from layerscout.tuning.solving import Judged


def judge_words(
    tuning: Tuning, judged: Judged, answers: Targets, thresholds: np.ndarray | None
) -> dict[str, Any] | None:
    """Judge counting words on the rows that a model is judged on, and compare the two.

    They are regressed on the same rows as the model: without each of its folds, or on training.
    Each of several labels is predicted as often as these have it.

    Args:
        tuning: what the model comes from.
        judged: what it says of the rows.
        answers: what is right for these.
        thresholds: of its labels.

    Returns:
        The metric, how far the model is above it, with the interval of that, and seconds; None
        where words say nothing.
    """
    if tuning.task.kind == "multiple_choice":
        return None
    metric, labels, started = tuning.settings.metric, answers.labels, perf_counter()
    logits, rows = np.zeros_like(judged.logits, np.float64), judged.split
    starts = rows.bounds[:-1]  # the words of a row are in one fold
    dealt = np.zeros(len(rows), int) if judged.dealt is None else judged.dealt[starts]
    for fold in np.unique(dealt):
        own, training = dealt == fold, tuning.task.train
        if judged.dealt is not None:
            training = rows.take(np.flatnonzero(~own))
        words = predict_from_words(
            _list_texts(training),
            training.labels,
            _list_texts(rows.take(np.flatnonzero(own))),
            classes=logits.shape[1],
            most=MOST_TEXTS // judged.folds,
        )
        if words is None:
            return None
        if labels.dtype.kind == "b":  # of few texts it finds no label likely, only likelier
            shares = training.labels.mean(axis=0)
            words = words - [np.quantile(*pair) for pair in zip(words.T, 1 - shares, strict=True)]
        logits[own[rows.sentences]] = words
    least = settle_thresholds(tuning.settings.threshold, labels, logits)
    seconds = perf_counter() - started
    difference, interval = find_difference(
        metric, labels, (logits, judged.logits), tags=answers.tags, thresholds=(least, thresholds)
    )
    return {
        "value": evaluate(metric, labels, logits, tags=answers.tags, thresholds=least),
        "difference": difference,
        "interval": interval,
        "seconds": seconds,
    }


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
