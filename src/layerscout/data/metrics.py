"""What a tuned model is judged by: the numbers of scikit-learn and SciPy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isfinite
from typing import Any

import numpy as np
from jaxtyping import Float64

from layerscout.runtime import make_unknown_error


def tabulate(
    labels: np.ndarray, predicted: np.ndarray, classes: int, groups: np.ndarray | None = None
) -> Float64[np.ndarray, "G K K"]:
    """Count the examples of each group by their class and the one predicted; one group if None."""
    group = np.zeros(len(labels), np.int64) if groups is None else groups
    cells = (group * classes + labels) * classes + predicted
    count = int(group.max(initial=0)) + 1
    found = np.bincount(cells.astype(np.int64), minlength=count * classes**2)
    return found.reshape(count, classes, classes).astype(np.float64)


# Metrics of classes are computed from their table of counts, (..., K, K), many tables at a time: a
# call of scikit-learn takes 4 ms, and the intervals of a scan need 21 of them for every state.


def accuracy(table: Float64[np.ndarray, "*G K K"]) -> Float64[np.ndarray, "*G"]:
    """Give the share of right predictions."""
    return _divide(_diagonal(table).sum(axis=-1), table.sum(axis=(-2, -1)))


def f1(table: Float64[np.ndarray, "*G K K"]) -> Float64[np.ndarray, "*G"]:
    """Give F1 of class 1 where there are two classes, else the mean over those that occur.

    It is 0 where it is undefined, as when the class neither occurs nor is predicted.
    """
    either = table.sum(axis=-1) + table.sum(axis=-2)
    by_class = _divide(2 * _diagonal(table), either)
    if table.shape[-1] == 2:
        return by_class[..., 1]
    return _divide(by_class.sum(axis=-1), (either > 0).sum(axis=-1))


def matthews_correlation(table: Float64[np.ndarray, "*G K K"]) -> Float64[np.ndarray, "*G"]:
    """Give Matthews' correlation coefficient, for any number of classes; 0 where undefined.

    R_K of Gorodkin 2004, the correlation of the indicators of the classes with those predicted.
    """
    own, predicted = table.sum(axis=-1), table.sum(axis=-2)
    total, right = table.sum(axis=(-2, -1)), _diagonal(table).sum(axis=-1)
    spread = (total**2 - (own**2).sum(axis=-1)) * (total**2 - (predicted**2).sum(axis=-1))
    return _divide(right * total - (own * predicted).sum(axis=-1), np.sqrt(spread))


def _diagonal(table: np.ndarray) -> np.ndarray:
    return np.diagonal(table, axis1=-2, axis2=-1)


def _divide(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)
    return found


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


OfTable = Callable[[Float64[np.ndarray, "*G K K"]], Float64[np.ndarray, "*G"]]


def _judge_classes(
    metric: OfTable, labels: np.ndarray, predicted: np.ndarray, classes: int
) -> float:
    return float(metric(tabulate(labels, predicted, classes))[0])


_OF_TABLES: Mapping[str, OfTable] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews_correlation": matthews_correlation,
}
_OF_CLASSES = {name: partial(_judge_classes, metric) for name, metric in _OF_TABLES.items()}

# By the kind of task and the names that tasks use, of labels, predicted labels (or numbers, never
# logits) and the number of classes. The best epoch is the one of the highest value, so more must be
# better.
METRICS_OF: Mapping[str, Mapping[str, Callable[[np.ndarray, np.ndarray, int], float]]] = {
    "classification": _OF_CLASSES,
    "regression": {
        "pearson_spearman": pearson_spearman,
        "pearson": pearson,
        "spearman": spearman,
    },
    "multiple_choice": {"accuracy": _OF_CLASSES["accuracy"]},
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
    _check_for(metric, labels)
    return METRICS[metric](labels, predict_labels(labels, logits), logits.shape[1])


def evaluate_without(
    metric: str, labels: np.ndarray, logits: np.ndarray, groups: np.ndarray
) -> Float64[np.ndarray, " B"]:
    """Judge what the logits say of all examples but those of a group, for each of the groups.

    Args:
        metric: as for `evaluate`, and so are the labels and the logits.
        groups: of each example, 0..B−1 (n,).

    Raises:
        InputError: as `evaluate`.
    """
    _check_for(metric, labels)
    predicted, classes = predict_labels(labels, logits), logits.shape[1]
    if metric in _OF_TABLES:
        tables = tabulate(labels, predicted, classes, groups)
        return _OF_TABLES[metric](tables.sum(axis=0) - tables)
    return _judge_each(metric, labels, predicted, (groups != g for g in _count_up(groups)))


def evaluate_groups(
    metric: str, labels: np.ndarray, predicted: np.ndarray, classes: int, groups: np.ndarray
) -> Float64[np.ndarray, " G"]:
    """Judge what was predicted of the examples of each group.

    Args:
        metric: as for `evaluate`, and so are the labels.
        predicted: class ids or numbers (n,).
        classes: how many there are.
        groups: of each example, 0..G−1 (n,).

    Raises:
        InputError: as `evaluate`.
    """
    _check_for(metric, labels)
    if metric in _OF_TABLES:
        return _OF_TABLES[metric](tabulate(labels, predicted, classes, groups))
    return _judge_each(metric, labels, predicted, (groups == g for g in _count_up(groups)))


def _count_up(groups: np.ndarray) -> range:
    return range(int(groups.max()) + 1)


def _judge_each(
    metric: str, labels: np.ndarray, predicted: np.ndarray, parts: Iterable[np.ndarray]
) -> Float64[np.ndarray, " G"]:
    """Judge numbers, which have no table of counts, part by part."""
    return np.array([METRICS[metric](labels[rows], predicted[rows], 0) for rows in parts])


def pick_choices(
    labels: np.ndarray, logits: np.ndarray, examples: np.ndarray
) -> tuple[np.ndarray, Float64[np.ndarray, "m C"]]:
    """Turn what is said of each choice into a pick among the choices of each example.

    Args:
        labels: 1 for the right row of an example, 0 for its others (n,).
        logits: (n, 2), of being wrong and of being right.
        examples: (n,); rows with the same number are the choices of one example.

    Returns:
        For the examples in the order of their numbers, the right choice (m,), counted from 0 in
        the order of the rows, and how much says that each one is right, −∞ where there is none.
    """
    example = np.unique(examples, return_inverse=True)[1].reshape(-1)
    order = np.argsort(example, kind="stable")
    counts = np.bincount(example)
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    margins = np.full((len(counts), counts.max()), -np.inf)
    right = np.zeros(margins.shape, np.int64)
    margins[example[order], place] = (logits[:, 1] - logits[:, 0])[order]
    right[example[order], place] = labels[order]
    return right.argmax(axis=1), margins


def _check_for(metric: str, labels: np.ndarray) -> None:
    """Refuse a metric that there is not, or that is for other labels."""
    numbers = labels.dtype.kind == "f"
    kinds = ("regression",) if numbers else ("classification", "multiple_choice")
    known = dict.fromkeys(name for kind in kinds for name in METRICS_OF[kind])
    if metric not in known:
        raise make_unknown_error("metric", metric, known)


def evaluate_all(kind: str, labels: np.ndarray, logits: np.ndarray) -> dict[str, float]:
    """Judge what the logits say by every metric of a kind of task, a key of `METRICS_OF`.

    For regression the mean squared error comes besides, of which less is better.
    """
    found = {metric: evaluate(metric, labels, logits) for metric in METRICS_OF[kind]}
    if kind == "regression":
        errors = predict_labels(labels, logits).astype(np.float64) - labels
        found["mean_squared_error"] = float(np.mean(errors**2))
    return found
