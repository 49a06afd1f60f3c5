"""What a probe, trained on a state, reaches on held-out examples, and what judges it.

Probes take class ids, int64 (n,), or which of several labels each row has, bool (n, K), or targets
of regression, float64 (n,): the type of the labels decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from layerscout.data import Kind, Tags, Targets, evaluate, tune_thresholds

# Judges predictions: of labels, (n,) or (n, K), and logits (n, K), or of targets and predictions
# (n,).
# More is better.
Metric = Callable[[np.ndarray, np.ndarray], float]

# By the kind of the type of labels that are not classes: numbers, and several labels.
USUAL_METRICS = {"f": "pearson_spearman", "b": "micro_f1"}

# Told how much is done, of how much.
Report = Callable[[float, float], None]

# Rows that are read or judged at a time, so that memory does not grow with n.
CHUNK = 256


@dataclass(frozen=True)
class Probes:
    """What the probes of S states reached on the validation split; None where undefined.

    Attributes:
        values: the mean over the seeds.
        standard_errors: of that mean, s / √seeds; None for a single seed.
        by_seed: the value of every seed; empty where undefined.
        epochs: the epoch, from 1 on, that counted for every seed; empty where undefined.
    """

    values: tuple[float | None, ...]
    standard_errors: tuple[float | None, ...]
    by_seed: tuple[tuple[float, ...], ...]
    epochs: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, by_seed: Sequence[Sequence[float]], epochs: Sequence[Sequence[int]]) -> Probes:
        """Sum up what the seeds of every state reached; one that is not finite undoes its state."""
        values = [tuple(map(float, seeds)) if np.isfinite(seeds).all() else () for seeds in by_seed]
        return cls(
            tuple(float(np.mean(seeds)) if seeds else None for seeds in values),
            tuple(
                float(np.std(seeds, ddof=1) / len(seeds) ** 0.5) if len(seeds) > 1 else None
                for seeds in values
            ),
            tuple(values),
            tuple(tuple(at) if seeds else () for at, seeds in zip(epochs, values, strict=True)),
        )


def majority(y: np.ndarray, yv: np.ndarray, metric: Metric | None = None) -> float | None:
    """Return the metric of always predicting the majority class (or the mean) of training.

    Of several labels, those are predicted that half of the training rows have, or more.

    Args:
        y: training labels, (n,) or (n, K). Ties go to the class that validation has more often:
            8 texts of each class have no majority, and the lower id reached 0.18 on test rows of
            which 0.82 are of the other class, more than any model had.
        yv: validation labels, (m,) or (m, K).
        metric: as `choose_metric` unless given.
    """
    if y.dtype.kind == "f":
        predicted = np.full(len(yv), y.mean())
    elif y.dtype.kind == "b":  # by their frequency, and of a half, too, above 0
        predicted = np.tile(y.mean(axis=0) - np.nextafter(0.5, 0), (len(yv), 1))
    else:
        classes = 1 + max(int(y.max()), int(yv.max()))  # validation may have more tags
        counts, judged = (np.bincount(labels, minlength=classes) for labels in (y, yv))
        chosen = np.lexsort((-judged, -counts))[0]
        predicted = np.tile(np.eye(classes)[chosen], (len(yv), 1))
    value = choose_metric(metric, y)(yv, predicted)
    return float(value) if np.isfinite(value) else None


def judge_majority(kind: Kind, metric: str, y: np.ndarray, answers: Targets) -> float | None:
    """Judge always predicting the majority class, or the mean; None for multiple choice.

    Args:
        kind: of the task.
        metric: a key of `METRICS_OF`.
        y: training labels, as for `majority`.
        answers: what is right for the validation examples.
    """
    if kind == "multiple_choice":
        return None
    return majority(y, answers.labels, make_judge(metric, answers.tags))


def make_judge(metric: str, tags: Tags | None = None, *, tuned: bool = False) -> Metric:
    """Return what judges logits (n, K) or, for regression, numbers (n,), by a metric.

    Args:
        metric: a key of `METRICS_OF`.
        tags: what joins the labels of words.
        tuned: find the thresholds of several labels on the logits that are judged.
    """

    def judge(right: np.ndarray, outputs: np.ndarray) -> float:
        logits = outputs.reshape(len(right), -1)
        thresholds = tune_thresholds(right, logits) if tuned else None
        return evaluate(metric, right, logits, tags=tags, thresholds=thresholds)

    return judge


def choose_metric(metric: Metric | None, y: np.ndarray) -> Metric:
    """Return the metric, or the one for these labels where there is none."""
    return metric or make_judge(USUAL_METRICS.get(y.dtype.kind, "accuracy"))


def in_chunks(rows: np.ndarray, size: int | None = None) -> list[np.ndarray]:
    """Split rows into parts of `size`, by default of `CHUNK`; views, not copies."""
    size = size or CHUNK
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def all_finite(x: np.ndarray) -> bool:
    """Return whether all values are finite, reading some rows at a time."""
    return all(np.isfinite(part).all() for part in in_chunks(x))
