"""What a tuned model is judged by, as scikit-learn and SciPy compute it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import numpy as np

from layerscout.runtime import make_unknown_error


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


def pearson(targets: np.ndarray, predicted: np.ndarray, _: int = 0) -> float:
    """Give Pearson's correlation; 0 where undefined, as when either side is constant."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, targets, predicted)


def spearman(targets: np.ndarray, predicted: np.ndarray, _: int = 0) -> float:
    """Give Spearman's correlation of ranks; 0 where undefined, as for Pearson's."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, targets, predicted)


def pearson_spearman(targets: np.ndarray, predicted: np.ndarray, _: int = 0) -> float:
    """Give the mean of Pearson's and Spearman's correlation, as GLUE judges STS-B."""
    return (pearson(targets, predicted) + spearman(targets, predicted)) / 2


def _correlation(of: Callable[..., Any], targets: np.ndarray, predicted: np.ndarray) -> float:
    sides = [np.asarray(side, dtype=np.float64) for side in (targets, predicted)]
    if len(targets) < 2 or any(np.ptp(side) == 0 for side in sides):
        return 0.0
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # all but constant
        warnings.simplefilter("ignore")
        found = float(of(*sides).statistic)
    return found if isfinite(found) else 0.0


# By the kind of task and the names that tasks use, of labels, predicted labels (or numbers, never
# logits) and the number of classes. The best epoch is the one of the highest value, so more must be
# better.
METRICS_OF: Mapping[str, Mapping[str, Callable[[np.ndarray, np.ndarray, int], float]]] = {
    "classification": {
        "accuracy": accuracy,
        "f1": f1,
        "matthews_correlation": matthews_correlation,
    },
    "regression": {
        "pearson_spearman": pearson_spearman,
        "pearson": pearson,
        "spearman": spearman,
    },
    "multiple_choice": {"accuracy": accuracy},
}
METRICS = {name: metric for metrics in METRICS_OF.values() for name, metric in metrics.items()}


def predict_labels(labels: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Give what the logits (n, K) say, (n,): the number where labels are numbers, else the class.

    Classes are ids, or numbers of choices; ties go to the lower one.
    """
    found: np.ndarray = logits[:, 0] if labels.dtype.kind == "f" else logits.argmax(axis=1)
    return found


def evaluate(metric: str, labels: np.ndarray, logits: np.ndarray) -> float:
    """Judge what the logits say by a metric.

    Args:
        metric: a key of `METRICS`.
        labels: class ids or right choices, integers (n,), or numbers, floats (n,).
        logits: (n, K); see `predict_labels`.

    Raises:
        InputError: if there is no such metric, or it is for other labels.
    """
    numbers = labels.dtype.kind == "f"
    kinds = ("regression",) if numbers else ("classification", "multiple_choice")
    known = {name: one for kind in kinds for name, one in METRICS_OF[kind].items()}
    if metric not in known:
        raise make_unknown_error("metric", metric, known)
    return known[metric](labels, predict_labels(labels, logits), logits.shape[1])


def evaluate_all(kind: str, labels: np.ndarray, logits: np.ndarray) -> dict[str, float]:
    """Judge what the logits say by every metric of a kind of task, a key of `METRICS_OF`.

    For regression the mean squared error comes besides, of which less is better.
    """
    found = {metric: evaluate(metric, labels, logits) for metric in METRICS_OF[kind]}
    if kind == "regression":
        errors = predict_labels(labels, logits).astype(np.float64) - labels
        found["mean_squared_error"] = float(np.mean(errors**2))
    return found
