"""Judging the logits of a model by the metrics of a task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layerscout.data import Targets, Task, evaluate, evaluate_all
from layerscout.runtime import InputError
from layerscout.scores import Metric, majority


@dataclass(frozen=True, eq=False)
class Judge:
    """Judges the logits of a model on n examples.

    Attributes:
        right: the targets of the examples.
        metric: a key of `METRICS_OF` for the task's kind.
        columns: of the logits, in the order of the task's classes.
    """

    task: Task
    right: Targets
    metric: str
    columns: list[int] | slice

    def value(self, logits: np.ndarray) -> float | None:
        """Judge by the metric; None where logits are not finite."""
        if not np.isfinite(logits).all():
            return None
        return evaluate(self.metric, self.right.labels, logits[:, self.columns])

    def metrics(self, logits: np.ndarray) -> dict[str, float | None]:
        """Judge by every metric."""
        numbers = np.nan_to_num(logits[:, self.columns])
        found = evaluate_all(self.task.kind, self.right.labels, numbers)
        return {k: v if np.isfinite(logits).all() else None for k, v in found.items()}

    def majority(self) -> float | None:
        """Judge what always predicts the commonest class, or the mean; None for multiple choice."""
        if self.task.kind == "multiple_choice":
            return None
        return majority(self.task.train.labels, self.right.labels, judge_by(self.metric))

    def check(self, name: str, logits: np.ndarray) -> None:
        """Refuse a model whose own logits are not finite."""
        broken = len(logits) - int(np.isfinite(logits).all(axis=1).sum())
        if broken:
            raise InputError(
                f"the logits of {name} are not finite for {broken:,} of {len(logits):,} examples; "
                "use --precision float32, or another checkpoint"
            )


def judge_by(metric: str) -> Metric:
    """Give what judges logits (n, K) or, for regression, numbers (n,), by a metric."""
    return lambda right, found: evaluate(metric, right, found.reshape(len(right), -1))
