"""What a kind of task asks of a model: which rows are an example, and what is right for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from layerscout.data.known_tasks import Kind
from layerscout.data.metrics import METRICS_OF, list_metrics, predict_labels
from layerscout.data.sampling import Split, sample
from layerscout.data.task import Task
from layerscout.data.words import Tags
from layerscout.errors import InputError, make_unknown_error

# What the rows of a kind have, where it is not one label.
FORMS: Mapping[Kind, str] = {
    "regression": "numbers",
    "multi_label_classification": "several labels",
    "token_classification": "words",
}
# What is set aside where held-out examples are needed and the data has none.
HELD_OUT = 0.1


@dataclass(frozen=True, eq=False)
class Targets:
    """What is right for each of n examples, which are C rows of a split each, or words of a row.

    Attributes:
        labels: class ids, int64 (n,), or targets, float64 (n,), or which labels an example has,
            bool (n, K), or the numbers of the right choices, int64 (n,), from 0.
        choices: C, 1 but for multiple choice.
        rows: where the examples stand in their file, int64 (n,), counted from 0.
        tags: what joins the labels of words into spans; None where examples are not words.
        shares: how much each counts in training, (n,); None if all count alike.
    """

    labels: np.ndarray
    choices: int
    rows: np.ndarray
    tags: Tags | None = None
    shares: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def count_shares(self, task: Task) -> np.ndarray | None:
        """Return how often each label or tag of a task occurs, (K,), none of them 0 or 1.

        None of other tasks, where published trainings start from biases of 0.
        """
        if task.kind not in ("multi_label_classification", "token_classification"):
            return None
        return smooth_shares(self.labels, len(task.labels))

    @classmethod
    def of(cls, labels: np.ndarray) -> Targets:
        """Make those of n examples of one row each, which are all of their file."""
        return cls(labels, 1, np.arange(len(labels)))


def smooth_shares(labels: np.ndarray, classes: int) -> np.ndarray:
    """Return how often each class or label occurs, (K,), as if half a row more had it."""
    several = labels.dtype.kind == "b"
    counts = labels.sum(axis=0) if several else np.bincount(labels, minlength=classes)
    shares: np.ndarray = (counts + 0.5) / (len(labels) + 1.0)
    return shares


def check_choices(labels: np.ndarray) -> None:
    """Raise unless just one choice of each example is right.

    Args:
        labels: of n examples with as many choices each, (n, choices).

    Raises:
        InputError: if there are some.
    """
    wrong = np.count_nonzero((labels == 1).sum(axis=1) != 1)
    if wrong:
        raise InputError(
            "one choice of every example must be right (labelled 1, the others 0), got "
            f"{wrong} of {len(labels)} examples with none or several; correct them"
        )


def make_targets(split: Split, kind: Kind, names: Sequence[str] = ()) -> Targets:
    """Return what is right for each example of a split.

    Args:
        split: the rows.
        kind: of the task.
        names: of the classes, which say where spans of words begin and end.

    Raises:
        InputError: if the rows are not those of this kind.
    """
    forms = {"f": "numbers", "b": "several labels"}
    form = forms.get(split.labels.dtype.kind, "one label" if split.words is None else "words")
    if form != FORMS.get(kind, "one label"):
        raise InputError(f"a task of {describe_kind(kind)} was given rows with {form}")
    if kind != "multiple_choice":
        rows = np.arange(len(split)) if split.origin is None else split.origin
        if split.words is None:
            return Targets(split.labels, 1, rows)
        sentences = split.sentences
        return Targets(split.labels, 1, rows[sentences], Tags(tuple(names), sentences))
    groups = np.arange(len(split)) if split.groups is None else split.groups
    starts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    n = len(np.unique(groups))
    choices = len(split) // n
    if choices < 2 or not np.array_equal(starts, np.arange(n) * choices) or len(split) % n:
        raise InputError(
            "the choices of an example must be in consecutive rows, the same number (2 or more) "
            f"for every example, got {len(split)} rows of {n} examples; put them in order"
        )
    right = split.labels.reshape(n, choices)
    check_choices(right)
    return Targets(right.argmax(axis=1), choices, groups[starts])


def ensure_validation(task: Task | str | Path, seed: int) -> Task:
    """Return a task with a validation split, set aside if it has none, and check its rows.

    Raises:
        InputError: if it cannot be loaded or split, or its rows are not those of its kind.
    """
    task = task if isinstance(task, Task) else Task.load(task)
    task = task.hold_out(HELD_OUT, seed) if task.validation is None else task
    for split in (task.train, require_validation(task)):
        make_targets(split, task.kind)
    return task


def require_validation(task: Task) -> Split:
    """Return the validation split.

    Raises:
        InputError: if there is none.
    """
    if task.validation is None:
        raise InputError(f"{task.name} has no validation split; set some rows aside")
    return task.validation


def check_metric(metric: str, task: Task) -> None:
    """Raise unless a metric is one of the task.

    Raises:
        InputError: if it is not.
    """
    known = list_metrics(task.kind, task.labels)
    if metric not in known:
        error = make_unknown_error("`metric`", str(metric), known)
        plain = " whose tags mark no spans" if len(known) < len(METRICS_OF[task.kind]) else ""
        raise InputError(f"{error} ({describe_kind(task.kind)}{plain})")


def draw_examples(task: Task, examples: int | Literal["all"], seed: int) -> Task:
    """Return the task with so many of its training examples, in proportion to the classes.

    Raises:
        InputError: if there are not so many, or they would be too few.
    """
    if examples == "all":
        return task
    if task.kind in ("multi_label_classification", "token_classification"):
        rows = sample(task.train, 0, examples=examples, seed=seed)
        return replace(task, train=task.train.take(rows))
    targets = make_targets(task.train, task.kind)
    by_class = task.kind == "classification"
    # One row for each example; which of the choices is right says nothing about an example.
    strata = targets.labels if by_class else np.zeros(len(targets), dtype=np.float64)
    one = Split([""] * len(targets), None, strata)
    classes = len(task.labels) if by_class else 0
    rows = sample(one, classes, examples=examples, seed=seed)
    return replace(task, train=task.train.take(expand_choices(rows, targets.choices)))


def expand_choices(examples: np.ndarray, choices: int) -> np.ndarray:
    """Return the rows of examples that are C = `choices` rows each, int64 (m C,)."""
    return (examples[:, None] * choices + np.arange(choices)).reshape(-1)


def tabulate_predictions(
    task: Task,
    split: Split,
    targets: Targets,
    logits: np.ndarray,
    thresholds: np.ndarray | None = None,
) -> dict[str, Any]:
    """Return the columns of `predictions.parquet`: row, text, label, prediction and logits.

    Where words are labelled, each is a row, whose text is the word, with its number in the sentence
    as "word". Of several labels there is a list of names, of several choices one of their texts.

    Args:
        task: names the classes.
        split: the rows.
        targets: what is right for its n examples.
        logits: (n, K).
        thresholds: as for `predict_labels`.
    """
    columns: list[Any] = [targets.labels, predict_labels(targets.labels, logits, thresholds)]
    if task.kind in ("classification", "token_classification"):
        columns = [[task.labels[number] for number in ids] for ids in columns]
    if task.kind == "multi_label_classification":
        columns = [
            [[task.labels[k] for k in np.flatnonzero(row)] for row in rows] for rows in columns
        ]
    label, prediction = columns
    texts: dict[str, Any] = {"text": list(split.texts[:: targets.choices])}
    if targets.tags is not None:
        assert split.words is not None, "its words have tags"
        starts = np.searchsorted(targets.tags.sentences, targets.tags.sentences)
        texts = {
            "word": np.arange(len(targets)) - starts,
            "text": [word for words in split.words for word in words],
        }
    elif split.pairs is not None and targets.choices == 1:
        texts["text_pair"] = list(split.pairs)
    elif split.pairs is not None:
        ends = range(targets.choices, len(split) + 1, targets.choices)
        texts["choices"] = [list(split.pairs[end - targets.choices : end]) for end in ends]
    return {
        "row": targets.rows,
        **texts,
        "label": label,
        "prediction": prediction,
        "logits": list(logits),
    }


def describe_task(task: Task, split: Split, lengths: np.ndarray) -> dict[str, Any]:
    """Return what the JSON files hold of a task of which `split` was read, in so many tokens.

    Where words are labelled, the examples are sentences, and the split may be of single words.
    """
    words = {}
    if task.kind == "token_classification":
        words = {"words_used": len(split.labels), "words_available": len(task.train.labels)}
    counts: np.ndarray
    if task.kind == "regression":
        counts = np.empty(0)
    elif task.kind == "multi_label_classification":
        counts = split.labels.sum(axis=0)
    else:
        counts = np.bincount(split.labels, minlength=len(task.labels))
    used = len(split) if split.groups is None or not words else len(np.unique(split.groups))
    return {
        "name": task.name,
        "kind": task.kind,
        "labels": list(task.labels),
        "metric": task.metric,
        "columns": dict(task.columns),
        "examples_used": used,
        "examples_available": len(task.train),
        **words,
        "validation_examples": None if task.validation is None else len(task.validation),
        "examples_per_class": [int(count) for count in counts],
        "tokens_per_example": float(lengths.mean()),
    }


def describe_kind(kind: Kind) -> str:
    """Return the words for a kind of task."""
    return kind.replace("_", " ").replace("multi label", "multi-label")
