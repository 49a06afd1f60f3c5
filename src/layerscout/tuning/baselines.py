"""What was free beside a tuned model, judged on the same rows."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from layerscout.data import Split, evaluate, find_difference, settle_thresholds
from layerscout.plans import OF_TEXTS
from layerscout.scores import MOST_TEXTS, predict_from_words
from layerscout.tuning.resolve import Tuning
from layerscout.tuning.solving import Judged


def judge_words(
    tuning: Tuning, judged: Judged, thresholds: np.ndarray | None
) -> dict[str, Any] | None:
    """Judge counting words on the rows that a model is judged on, and compare the two.

    They are regressed on the same rows as the model: without each of its folds, or on training.

    Args:
        tuning: what the model comes from.
        judged: what it says of the rows.
        thresholds: of its labels.

    Returns:
        The metric, how far the model is above it, with the interval of that, and seconds; None
        where words say nothing.
    """
    if tuning.task.kind not in OF_TEXTS:
        return None
    metric, labels, started = tuning.settings.metric, judged.split.labels, perf_counter()
    logits = np.zeros_like(judged.logits, np.float64)
    dealt = np.zeros(len(labels), int) if judged.dealt is None else judged.dealt
    for fold in np.unique(dealt):
        own, training = dealt == fold, tuning.task.train
        if judged.dealt is not None:
            training = judged.split.take(np.flatnonzero(~own))
        words = predict_from_words(
            _join_pairs(training),
            training.labels,
            _join_pairs(judged.split.take(np.flatnonzero(own))),
            classes=logits.shape[1],
            most=MOST_TEXTS // judged.folds,
        )
        if words is None:
            return None
        logits[own] = words
    least = settle_thresholds(tuning.settings.threshold, labels, logits)
    seconds = perf_counter() - started
    difference, interval = find_difference(
        metric, labels, (logits, judged.logits), thresholds=(least, thresholds)
    )
    return {
        "value": evaluate(metric, labels, logits, thresholds=least),
        "difference": difference,
        "interval": interval,
        "seconds": seconds,
    }


def _join_pairs(split: Split) -> list[str]:
    if split.pairs is None:
        return list(split.texts)
    return [f"{first}\n{second}" for first, second in zip(split.texts, split.pairs, strict=True)]
