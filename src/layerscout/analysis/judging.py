"""Judging the logits of a model by the metrics of a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from layerscout.data import (
    Targets,
    Task,
    evaluate,
    evaluate_all,
    evaluate_by_name,
    find_interval,
    predict_labels,
    tabulate_confusion,
    warn_of_one_answer,
)
from layerscout.runtime import InputError
from layerscout.scores import judge_majority


@dataclass(frozen=True, eq=False)
class Judge:
    """Judges the logits of a model on n examples.

    Attributes:
        right: the targets of the examples.
        metric: a key of `METRICS_OF` for the task's kind.
        columns: of the logits, in the order of the task's classes.
        thresholds: the probability from which on a text has each of several labels; None for 0.5.
    """

    task: Task
    right: Targets
    metric: str
    columns: list[int] | slice
    thresholds: np.ndarray | None = None

    @property
    def _rules(self) -> dict[str, Any]:
        return {"tags": self.right.tags, "thresholds": self.thresholds}

    def value(self, logits: np.ndarray) -> float | None:
        """Judge by the metric; None where logits are not finite."""
        if not np.isfinite(logits).all():
            return None
        return evaluate(self.metric, self.right.labels, logits[:, self.columns], **self._rules)

    def metrics(self, logits: np.ndarray) -> dict[str, float | None]:
        """Judge by every metric."""
        numbers = np.nan_to_num(logits[:, self.columns])
        found = evaluate_all(self.task.kind, self.right.labels, numbers, **self._rules)
        return {k: v if np.isfinite(logits).all() else None for k, v in found.items()}

    def interval(self, logits: np.ndarray) -> tuple[float, float]:
        """Give a 95 % interval of the metric."""
        return find_interval(self.metric, self.right.labels, logits[:, self.columns], **self._rules)

    def by_name(self, logits: np.ndarray) -> dict[str, dict[str, float]]:
        """Judge every label, or type of span, by itself; nothing where labels are not names."""
        if self.task.kind in ("regression", "multiple_choice"):
            return {}
        found = np.nan_to_num(logits[:, self.columns])
        return evaluate_by_name(self.task.labels, self.right.labels, found, **self._rules)

    def confusion(self, logits: np.ndarray) -> list[list[int]] | None:
        """Count the examples of each class by what is predicted; None without classes."""
        if self.task.kind not in ("classification", "token_classification"):
            return None
        found = np.nan_to_num(logits[:, self.columns])
        return tabulate_confusion(self.right.labels, found, len(self.task.labels))

    def warn(self, logits: np.ndarray) -> list[str]:
        """Warn if the same is predicted for every example."""
        numbers = np.nan_to_num(logits[:, self.columns])
        predicted = predict_labels(self.right.labels, numbers, self.thresholds)
        return warn_of_one_answer(self.task.kind, self.task.labels, self.right.labels, predicted)

    def majority(self) -> float | None:
        """Judge what always predicts the majority class, or the mean; None for multiple choice."""
        return judge_majority(self.task.kind, self.metric, self.task.train.labels, self.right)

    def check(self, name: str, logits: np.ndarray) -> None:
        """Refuse a model whose own logits are not finite."""
        broken = len(logits) - int(np.isfinite(logits).all(axis=1).sum())
        if broken:
            raise InputError(
                f"the logits of {name} are not finite for {broken:,} of {len(logits):,} examples; "
                "use --precision float32, or another checkpoint"
            )
