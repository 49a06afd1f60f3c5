"""What logits say of examples: labels, certainty, picks, and thresholds of several labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Float64

from layerscout.data.known_tasks import Kind
from layerscout.data.tables import name_some

# Examples that have a label, from which on it gets a threshold of its own: with fewer the best one
# on these examples says little about others.
ENOUGH = 10
# Logits beyond are as good as certain; their probabilities would round to 0 or 1.
LARGEST = 30.0


def settle_thresholds(
    threshold: float | Literal["tuned"] | None,
    labels: Bool[np.ndarray, "n K"] | np.ndarray,
    logits: Float[np.ndarray, "n K"],
    factor: float = 1.0,
) -> Float64[np.ndarray, " K"] | None:
    """Return the probability from which on an example has each label; None for 0.5.

    Args:
        threshold: the same for all labels, or "tuned" for the best of each label on these examples.
        labels: which labels the n examples have.
        logits: of the same.
        factor: by which the logits are larger than those that `threshold` is for; it moves with
            them, so that it says the same.
    """
    if threshold is None or threshold == "tuned":
        return None if threshold is None else tune_thresholds(labels, logits)
    has, lacks = threshold**factor, (1 - threshold) ** factor  # a factor of 1 changes no digit
    edge = 1 / (1 + np.exp(LARGEST))
    return np.full(logits.shape[1], np.clip(has / (has + lacks), edge, 1 - edge))


def tune_thresholds(
    labels: Bool[np.ndarray, "n K"], logits: Float[np.ndarray, "n K"]
) -> Float64[np.ndarray, " K"]:
    """Find the thresholds with the highest F1 of each label on these examples.

    Labels that fewer than `ENOUGH` of them have share the threshold with the highest micro-F1 over
    all labels. Thresholds lie midway between two logits; of equally good ones the one nearest to
    0.5 is taken.
    """
    exact = np.clip(logits.astype(np.float64), -LARGEST, LARGEST)
    common = _find_best(labels.ravel(), exact.ravel())
    best_logits = [
        _find_best(own, scores) if np.count_nonzero(own) >= ENOUGH else common
        for own, scores in zip(labels.T, exact.T, strict=True)
    ]
    thresholds: Float64[np.ndarray, " K"] = 1 / (1 + np.exp(-np.array(best_logits)))
    return thresholds


def _find_best(labels: Bool[np.ndarray, " n"], logits: Float64[np.ndarray, " n"]) -> float:
    """Find the logit above which a label is predicted, for the highest F1."""
    order = np.argsort(-logits, kind="stable")
    ranked = logits[order]
    right = np.cumsum(labels[order])
    f1 = 2 * right / (np.arange(1, len(ranked) + 1) + right[-1])
    # A cut after entry i lies between two different logits, or below all of them.
    below = np.append(ranked[1:], -LARGEST - 1)
    middle = np.clip((ranked + below) / 2, -LARGEST, LARGEST)
    possible = (ranked > below) & (f1 > 0)
    if not possible.any():  # nobody has the label
        return 0.0
    best = np.flatnonzero(possible & (f1 >= f1[possible].max() - 1e-12))
    return float(middle[best[np.abs(middle[best]).argmin()]])


def predict_labels(
    labels: np.ndarray, logits: np.ndarray, thresholds: np.ndarray | None = None
) -> np.ndarray:
    """Return what the logits (n, K) say, (n,): the number where labels are numbers, else the class.

    Classes are ids, or numbers of choices; ties go to the lower one. Where an example may have
    several labels, which ones it has, bool (n, K): those above their threshold.

    Args:
        labels: only their type counts.
        logits: (n, K).
        thresholds: probabilities (K,) of several labels; None for 0.5.
    """
    if labels.dtype.kind == "b":
        least = 0.0 if thresholds is None else np.log(thresholds / (1 - thresholds))
        above: np.ndarray = logits > least
        return above
    predicted: np.ndarray = logits[:, 0] if labels.dtype.kind == "f" else logits.argmax(axis=1)
    return predicted


def find_certainty(logits: np.ndarray, *, several: bool = False) -> Float64[np.ndarray, " n"]:
    """Return the probability of what the logits (n, K) say of each example.

    Args:
        logits: of classes, or of choices.
        several: whether an example may have several labels; then that of all answers together.
    """
    from scipy.special import log_expit, softmax

    exact = logits.astype(np.float64)
    certainty: np.ndarray
    if several:
        certainty = np.exp(log_expit(np.abs(exact)).sum(axis=1))
    else:
        certainty = softmax(exact, axis=1).max(axis=1)
    return certainty


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


def warn_of_answers(
    kind: Kind, names: Sequence[str], labels: np.ndarray, predicted: np.ndarray
) -> list[str]:
    """Warn if all predictions are the same though the labels are not, or some are never made.

    Args:
        kind: of the task; choices and numbers have no answer that could be the same.
        names: of the classes.
        labels: class ids (n,), or which labels each example has, bool (n, K).
        predicted: the same of the predictions.
    """
    if kind in ("regression", "multiple_choice") or not len(labels):
        return []
    what = "words" if kind == "token_classification" else "validation examples"
    if (predicted != predicted[0]).any() or (labels == labels[0]).all():
        return _warn_of_never(names, labels, predicted, what)
    if kind != "multi_label_classification":
        return [
            f"the model predicts one class only: {names[int(predicted[0])]!r:.60} for all "
            f"{len(labels):,} {what}; train longer, at another learning rate or with "
            "--class-weights balanced"
        ]
    if predicted[0].any():
        chosen = [name for name, has in zip(names, predicted[0], strict=True) if has]
        listed = name_some(chosen, write=str)
        return [f"the model predicts the same labels for all {len(labels):,} {what}: {listed}"]
    return [
        f"the model predicts no label for any of {len(labels):,} {what}: no probability is above "
        "its threshold; tuning with --threshold tuned finds better ones, or train longer"
    ]


def _warn_of_never(
    names: Sequence[str], labels: np.ndarray, predicted: np.ndarray, what: str
) -> list[str]:
    """Warn of classes, or labels, that examples have and none is predicted to have."""
    several = labels.dtype.kind == "b"
    counts = [
        each.sum(axis=0) if several else np.bincount(each, minlength=len(names))
        for each in (labels, predicted)
    ]
    never = [names[k] for k in np.flatnonzero((counts[0] > 0) & (counts[1] == 0)).tolist()]
    if not never:
        return []
    remedy = "--threshold tuned" if several else "--class-weights balanced"
    return [
        f"the model never predicts {len(never)} of its {len(names)} "
        f"{'labels' if several else 'classes'}, which some of {len(labels):,} {what} have: "
        f"{name_some(never)}; more training examples of them may help, or tuning with {remedy}"
    ]
