"""What a tuned model is judged by: the numbers of scikit-learn and SciPy, but for `macro_f1`.

That is a mean over the classes or labels that occur or are predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
from jaxtyping import Float64

from layerscout.data.predictions import predict_labels
from layerscout.data.words import Tags, count_spans, mark_spans, stack_counts
from layerscout.errors import make_unknown_error

# Metrics of classes, of several labels and of spans are made from counts that add up over examples
# or sentences: (..., K, 3), of each class, label or type of span what is right, what is predicted
# and what there is; of other metrics the value of each example, and 1, (..., 2). Many at a time: a
# call of scikit-learn takes 4 ms, and the intervals of a scan need 21 of them for every state.


def _count_classes(
    labels: np.ndarray, predicted: np.ndarray, classes: int, groups: np.ndarray | None
) -> Float64[np.ndarray, "G K 3"]:
    """Count the examples of each group by their class and the one predicted; one group if None."""
    group = np.zeros(len(labels), np.int64) if groups is None else groups
    cells = [(group * classes + ids).astype(np.int64) for ids in (predicted, labels)]
    right = cells[1][predicted == labels]
    return stack_counts((right, *cells), (int(group.max(initial=0)) + 1, classes))


def _conclude_f1_of_classes(sums: np.ndarray) -> np.ndarray:
    """Return F1 of class 1 where there are two classes, else the mean over those that occur.

    It is 0 where it is undefined, as when the class neither occurs nor is predicted.
    """
    return _conclude_macro(sums) if sums.shape[-2] > 2 else _conclude_f1(sums)[..., 1]


def _conclude_matthews(sums: np.ndarray) -> np.ndarray:
    """Return Matthews' correlation coefficient, for any number of classes; 0 where undefined.

    R_K of Gorodkin 2004, the correlation of the indicators of the classes with those predicted.
    """
    right, predicted, own = sums[..., 0].sum(axis=-1), sums[..., 1], sums[..., 2]
    total = own.sum(axis=-1)
    spread = (total**2 - (own**2).sum(axis=-1)) * (total**2 - (predicted**2).sum(axis=-1))
    return _divide(right * total - (own * predicted).sum(axis=-1), np.sqrt(spread))


def _divide(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    quotient: np.ndarray = np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)
    return quotient


def _correlate(targets: np.ndarray, predicted: np.ndarray) -> float:
    """Return Pearson's correlation; 0 where undefined, as when a side is constant.

    SciPy's function takes a millisecond, and an interval needs hundreds.
    """
    units = []
    for side in (targets, predicted):
        apart = np.asarray(side, dtype=np.float64)
        if len(apart) < 2 or not np.ptp(apart) > 0:
            return 0.0
        with np.errstate(all="ignore"):
            apart = apart - apart.mean()
            apart /= np.abs(apart).max()  # so that no square is too large or too small
            units.append(apart / np.linalg.norm(apart))
    correlation = float(np.clip(units[0] @ units[1], -1, 1))
    return correlation if isfinite(correlation) else 0.0


def _correlate_ranks(targets: np.ndarray, predicted: np.ndarray) -> float:
    """Return Spearman's correlation, of the ranks; equal values have the mean of theirs."""
    ranks = []
    for side in (targets, predicted):
        if np.isnan(side).any():
            return 0.0
        _, places, counts = np.unique(side, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[places])
    return _correlate(*ranks)


def pearson_spearman(targets: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean of Pearson's and Spearman's correlation, as GLUE judges STS-B."""
    both = _OF_NUMBERS["pearson"], _OF_NUMBERS["spearman"]
    return (both[0](targets, predicted) + both[1](targets, predicted)) / 2


_OF_NUMBERS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "pearson_spearman": pearson_spearman,
    "pearson": _correlate,
    "spearman": _correlate_ranks,
}

# Classes of the largest table of confusions: one of 100 has 10,000 numbers in result.json.
LARGEST = 100


def _count_labels(labels: np.ndarray, predicted: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.stack([labels & predicted, predicted, labels], axis=2).astype(np.float64)


def _count_samples_f1(labels: np.ndarray, predicted: np.ndarray, _: np.ndarray) -> np.ndarray:
    """Return F1 of each example; 1 where there is no label and none is predicted."""
    right, either = (labels & predicted).sum(axis=1), labels.sum(axis=1) + predicted.sum(axis=1)
    return _count_values(np.where(either > 0, 2 * right / np.maximum(either, 1), 1.0))


def _count_whole(labels: np.ndarray, predicted: np.ndarray, _: np.ndarray) -> np.ndarray:
    return _count_values((labels == predicted).all(axis=1))


def _count_ranking(labels: np.ndarray, _: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Return, of each example, how many of the labels down to one that it has are ones that it has.

    That is the mean over its labels; 1 where it has none. Of equal logits all count.
    """
    from scipy.stats import rankdata

    among_all = rankdata(-logits, method="max", axis=1)
    among_own = rankdata(np.where(labels, -logits, np.inf), method="max", axis=1)
    shares = np.where(labels, among_own / among_all, 0.0).sum(axis=1)
    count = labels.sum(axis=1)
    return _count_values(np.where(count > 0, shares / np.maximum(count, 1), 1.0))


def _count_values(values: np.ndarray) -> np.ndarray:
    return np.stack([values.astype(np.float64), np.ones(len(values))], axis=1)


def _conclude_mean(sums: np.ndarray) -> np.ndarray:
    return _divide(sums[..., 0], sums[..., 1])


def _conclude_micro(sums: np.ndarray) -> np.ndarray:
    return _conclude_f1(sums.sum(axis=-2))


def _conclude_macro(sums: np.ndarray) -> np.ndarray:
    """Return the mean over the labels that occur or are predicted."""
    seen = (sums[..., 1:].sum(axis=-1) > 0).sum(axis=-1)
    return _divide(_conclude_f1(sums).sum(axis=-1), seen.astype(np.float64))


def _conclude_f1(sums: np.ndarray) -> np.ndarray:
    return _divide(2 * sums[..., 0], sums[..., 1] + sums[..., 2])


def _conclude_precision(sums: np.ndarray) -> np.ndarray:
    return _divide(sums[..., 0].sum(axis=-1), sums[..., 1].sum(axis=-1))


def _conclude_recall(sums: np.ndarray) -> np.ndarray:
    return _divide(sums[..., 0].sum(axis=-1), sums[..., 2].sum(axis=-1))


# What counts labels, bool (n, K), what is predicted, bool (n, K), and logits (n, K) by example, and
# what makes the value of sums of these counts, (..., L, 3) or (..., 2).
_Count = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
_Conclude = Callable[[np.ndarray], np.ndarray]
_OF_CLASSES: Mapping[str, _Conclude] = {
    "accuracy": _conclude_recall,
    "f1": _conclude_f1_of_classes,
    "macro_f1": _conclude_macro,
    "matthews_correlation": _conclude_matthews,
}
_OF_LABELS: Mapping[str, tuple[_Count, _Conclude]] = {
    "micro_f1": (_count_labels, _conclude_micro),
    "macro_f1": (_count_labels, _conclude_macro),
    "samples_f1": (_count_samples_f1, _conclude_mean),
    "lrap": (_count_ranking, _conclude_mean),
    "subset_accuracy": (_count_whole, _conclude_mean),
}
_OF_SPANS: Mapping[str, _Conclude] = {
    "entity_f1": _conclude_micro,
    "entity_precision": _conclude_precision,
    "entity_recall": _conclude_recall,
}

# By the kind of task, the names that tasks use. The best epoch is the one of the highest value, so
# more must be better.
METRICS_OF: Mapping[str, tuple[str, ...]] = {
    "classification": tuple(_OF_CLASSES),
    "multi_label_classification": tuple(_OF_LABELS),
    "token_classification": (*_OF_SPANS, "accuracy", "macro_f1"),
    "regression": tuple(_OF_NUMBERS),
    "multiple_choice": ("accuracy",),
}
METRICS = tuple(dict.fromkeys(name for names in METRICS_OF.values() for name in names))

# Those whose names are not their keys with spaces.
_WORDS: Mapping[str, str] = {
    "f1": "F1",
    "matthews_correlation": "Matthews correlation",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "samples_f1": "F1 per text",
    "lrap": "label ranking average precision",
    "entity_f1": "entity F1",
    "pearson_spearman": "Pearson-Spearman mean",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
}


def name_metric(key: str, classes: Sequence[str] = ()) -> str:
    """Name a metric as people do: micro-F1 for `micro_f1`.

    Args:
        key: one of `METRICS`.
        classes: of the task; F1 is then named after the one it is of, or macro-F1 of several.
    """
    if key == "f1" and len(classes) > 1:
        return "macro-F1" if len(classes) > 2 else f"F1 of {classes[1]:.30}"
    return _WORDS.get(key, key.replace("_", " "))


def evaluate(
    metric: str,
    labels: np.ndarray,
    logits: np.ndarray,
    *,
    tags: Tags | None = None,
    thresholds: np.ndarray | None = None,
) -> float:
    """Judge what the logits say by a metric.

    Args:
        metric: one of `METRICS`.
        labels: class ids or right choices, integers (n,), numbers, floats (n,), or which labels
            there are, bool (n, K).
        logits: (n, K); see `predict_labels`.
        tags: what joins the labels of words into spans; metrics of spans need it.
        thresholds: as for `predict_labels`.

    Raises:
        InputError: if there is no such metric, or it is for other labels.
    """
    predicted = predict_labels(labels, logits, thresholds)
    return float(_judge(metric, labels, predicted, logits, tags)[0])


def evaluate_without(
    metric: str,
    labels: np.ndarray,
    logits: np.ndarray,
    groups: np.ndarray,
    *,
    tags: Tags | None = None,
    thresholds: np.ndarray | None = None,
) -> Float64[np.ndarray, " B"]:
    """Judge what the logits say of all examples but those of a group, for each of the groups.

    Args:
        metric: as for `evaluate`, and so is all else.
        groups: of each example, 0..B−1 (n,); words of one sentence are in one.

    Raises:
        InputError: as `evaluate`.
    """
    predicted = predict_labels(labels, logits, thresholds)
    return _judge(metric, labels, predicted, logits, tags, groups)


def _judge(
    metric: str,
    labels: np.ndarray,
    predicted: np.ndarray,
    logits: np.ndarray,
    tags: Tags | None,
    groups: np.ndarray | None = None,
) -> Float64[np.ndarray, " B"]:
    """Return a metric without each group, or of all, (1,), if `groups` is None.

    Args: as for `evaluate_without`.
    """
    if tags is not None:
        known = list_metrics("token_classification", tags.names)
    elif labels.dtype.kind == "b":
        known = METRICS_OF["multi_label_classification"]
    else:
        known = METRICS_OF["regression"] if labels.dtype.kind == "f" else tuple(_OF_CLASSES)
    if metric not in known:
        raise make_unknown_error("metric", metric, known)
    if metric in _OF_NUMBERS:  # which have no counts that add up
        parts: list[Any] = [slice(None)]
        if groups is not None:
            parts = [groups != g for g in range(int(groups.max()) + 1)]
        return np.array([_OF_NUMBERS[metric](labels[rows], predicted[rows]) for rows in parts])
    if metric in _OF_CLASSES and labels.dtype.kind != "b":
        sums = _count_classes(labels, predicted, logits.shape[1], groups)
        conclude = _OF_CLASSES[metric]
    elif metric in _OF_SPANS:
        assert tags is not None, "it was checked"
        sums, conclude = count_spans(tags, labels, predicted, groups), _OF_SPANS[metric]
    else:
        count, conclude = _OF_LABELS[metric]
        counts = count(labels, predicted, logits)
        if groups is None:
            sums = counts.sum(axis=0, keepdims=True)
        else:
            sums = np.zeros((int(groups.max()) + 1, *counts.shape[1:]))
            np.add.at(sums, groups, counts)
    return conclude(sums if groups is None else sums.sum(axis=0) - sums)


def evaluate_by_name(
    names: Sequence[str],
    labels: np.ndarray,
    logits: np.ndarray,
    *,
    tags: Tags | None = None,
    thresholds: np.ndarray | None = None,
) -> dict[str, dict[str, float]]:
    """Return precision, recall, F1 and how often it occurs of every label, or type of span.

    Args:
        names: of the labels.
        labels, logits, tags, thresholds: as for `evaluate`. Of classes every one is a label.
    """
    predicted = predict_labels(labels, logits, thresholds)
    if tags is not None and tags.are_spans:
        names, sums = tags.types, count_spans(tags, labels, predicted)[0]
    elif labels.dtype.kind == "b":
        sums = _count_labels(labels, predicted, logits).sum(axis=0)
    else:
        sums = _count_classes(labels, predicted, len(names), None)[0]
    rows = np.stack(
        [_divide(sums[:, 0], sums[:, 1]), _divide(sums[:, 0], sums[:, 2]), _conclude_f1(sums)]
    )
    return {
        name: {"precision": p, "recall": r, "f1": f, "support": int(support)}
        for name, p, r, f, support in zip(names, *rows.tolist(), sums[:, 2], strict=True)
    }


def tabulate_confusion(
    labels: np.ndarray, logits: np.ndarray, classes: int
) -> list[list[int]] | None:
    """Count the examples of each class (rows) by the one predicted (columns).

    Args:
        labels: class ids (n,); others have no such table, and neither have over `LARGEST` classes.
        logits: (n, K).
        classes: K.
    """
    if labels.dtype.kind not in "iu" or not 1 < classes <= LARGEST:
        return None
    cells = labels * classes + logits.argmax(axis=1)
    table = np.bincount(cells, minlength=classes**2).reshape(classes, classes)
    counts: list[list[int]] = table.tolist()
    return counts


def list_metrics(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """List the metrics of a kind of task, without those of spans where no tag marks one.

    Args:
        kind: a key of `METRICS_OF`.
        names: of the classes.
    """
    plain = kind == "token_classification" and not mark_spans(names)
    return tuple(name for name in METRICS_OF[kind] if not (plain and name in _OF_SPANS))


def evaluate_all(
    kind: str,
    labels: np.ndarray,
    logits: np.ndarray,
    *,
    tags: Tags | None = None,
    thresholds: np.ndarray | None = None,
) -> dict[str, float]:
    """Judge what the logits say by every metric of a kind of task, a key of `METRICS_OF`.

    For regression the mean squared error comes besides, of which less is better.
    """
    known = list_metrics(kind, () if tags is None else tags.names)
    values = {
        metric: evaluate(metric, labels, logits, tags=tags, thresholds=thresholds)
        for metric in known
    }
    if kind == "regression":
        errors = predict_labels(labels, logits).astype(np.float64) - labels
        values["mean_squared_error"] = float(np.mean(errors**2))
    return values
