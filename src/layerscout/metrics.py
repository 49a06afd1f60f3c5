"""What a classifier is judged by, as scikit-learn computes it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import numpy as np

from layerscout.errors import unknown


def accuracy(labels: np.ndarray, predicted: np.ndarray, _: int = 0) -> float:
    """Give the share of right predictions."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(labels, predicted))


def f1(labels: np.ndarray, predicted: np.ndarray, classes: int) -> float:
    """Give F1 of class 1 where there are two classes, else the mean over those that occur.

    It is 0 where it is undefined, as when the class neither occurs nor is predicted.
    """
    from sklearn.metrics import f1_score

    average = "binary" if classes == 2 else "macro"
    return float(f1_score(labels, predicted, average=average, zero_division=0.0))


def matthews_correlation(labels: np.ndarray, predicted: np.ndarray, _: int = 0) -> float:
    """Give Matthews' correlation coefficient, for any number of classes; 0 where undefined."""
    from sklearn.metrics import matthews_corrcoef

    with warnings.catch_warnings():  # where there is a single class, which is undefined
        warnings.filterwarnings("ignore", "A single label")
        return float(matthews_corrcoef(labels, predicted))


# By the names that tasks use, of labels, predictions and the number of classes. More is better.
METRICS: Mapping[str, Callable[[np.ndarray, np.ndarray, int], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews_correlation": matthews_correlation,
}


def evaluate(metric: str, labels: np.ndarray, logits: np.ndarray) -> float:
    """Judge the most likely classes by a metric.

    Args:
        metric: a key of `METRICS`.
        labels: class ids (n,).
        logits: (n, K); ties go to the lower class id.

    Raises:
        InputError: if there is no such metric.
    """
    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    return METRICS[metric](labels, logits.argmax(axis=1), logits.shape[1])
