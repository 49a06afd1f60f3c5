"""Predictions that are the same for every example: a model that has learnt nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layerscout.data.known_tasks import Kind


def warn_of_one_answer(
    kind: Kind, names: Sequence[str], labels: np.ndarray, predicted: np.ndarray
) -> list[str]:
    """Warn if all predictions are the same though the labels are not.

    Args:
        kind: of the task; choices and numbers have no answer that could be the same.
        names: of the classes.
        labels: class ids (n,), or which labels each example has, bool (n, K).
        predicted: the same of the predictions.
    """
    if kind in ("regression", "multiple_choice") or not len(labels):
        return []
    if (predicted != predicted[0]).any() or (labels == labels[0]).all():
        return []
    what = "words" if kind == "token_classification" else "validation examples"
    if kind != "multi_label_classification":
        return [
            f"the model predicts one class only: {names[int(predicted[0])]!r:.60} for all "
            f"{len(labels):,} {what}; train longer, at another learning rate or with "
            "--class-weights balanced"
        ]
    if predicted[0].any():
        listed = ", ".join(name for name, chosen in zip(names, predicted[0], strict=True) if chosen)
        return [f"the model predicts the same labels for all {len(labels):,} {what}: {listed:.60}"]
    return [
        f"the model predicts no label for any of {len(labels):,} {what}: no probability is above "
        "its threshold; use --threshold tuned to find better ones, or train longer"
    ]
