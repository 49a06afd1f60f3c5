"""What a tuned model reaches on a split, by every metric of its kind of task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from layerscout.data import (
    Split,
    Targets,
    Task,
    evaluate_all,
    evaluate_by_name,
    find_certainty,
    find_interval,
    predict_labels,
    tabulate_confusion,
    tabulate_predictions,
    warn_of_answers,
    warn_of_exchange,
)

# Errors that are shown, and characters of their texts.
SHOWN, LONGEST = 20, 300


@dataclass(frozen=True)
class EvaluationResult:
    """What a model reaches on a split.

    Attributes:
        metrics: every metric of the kind of task.
        interval: of the metric that counts, 95 %; None where nothing was predicted.
        by_name: precision, recall, F1 and support of every class, label, tag or type of span.
        confusion: how many of each class were predicted as each; None where there are no classes.
        warnings: if it predicts the same of everything, or other classes than it should.
        predictions: the columns of `predictions.parquet`.
        errors: the wrong predictions that the model is surest of, `SHOWN` at the most: row, text,
            label, prediction, probability and, if known, split; of one class for each text.
    """

    metrics: dict[str, float]
    interval: tuple[float, float] | None = None
    by_name: dict[str, dict[str, float]] = field(default_factory=dict)
    confusion: list[list[int]] | None = None
    warnings: tuple[str, ...] = ()
    predictions: dict[str, Any] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        metric: str,
        task: Task,
        split: Split,
        answers: Targets,
        logits: np.ndarray,
        thresholds: np.ndarray | None,
        which: Sequence[str] = (),
        folds: int = 1,
    ) -> EvaluationResult:
        """Judge logits, (n, K), by what is right for the n examples of a split; `metric` counts.

        `which` names the split that each example is from; of `folds`, see `find_interval`.
        """
        labels = answers.labels
        rules: dict[str, Any] = {"tags": answers.tags, "thresholds": thresholds}
        predicted = predict_labels(labels, logits, thresholds)
        named = task.kind not in ("regression", "multiple_choice")
        table = tabulate_predictions(task, split, answers, logits, thresholds)
        table = ({"split": list(which)} if len(which) else {}) | table
        confusion = tabulate_confusion(labels, logits, len(task.labels)) if named else None
        doubts = warn_of_answers(task.kind, task.labels, labels, predicted)
        return cls(
            evaluate_all(task.kind, labels, logits, **rules),
            find_interval(metric, labels, logits, folds=folds, **rules),
            evaluate_by_name(task.labels, labels, logits, **rules) if named else {},
            confusion,
            (*doubts, *warn_of_exchange(task.labels, confusion)),
            table,
            _list_errors(table, logits) if task.kind == "classification" else [],
        )


def _list_errors(table: Mapping[str, Any], logits: np.ndarray) -> list[dict[str, Any]]:
    """List the wrong predictions that a model is surest of; see `EvaluationResult.errors`."""
    sure = find_certainty(logits)
    known = ("split", "text", "text_pair", "label", "prediction")
    names = [name for name in known if name in table]
    wrong = [n for n in range(len(logits)) if table["label"][n] != table["prediction"][n]]
    return [
        {
            "row": int(table["row"][n]),
            **{name: str(table[name][n])[:LONGEST] for name in names},
            "probability": float(sure[n]),
        }
        for n in sorted(wrong, key=lambda n: -sure[n])[:SHOWN]
    ]
