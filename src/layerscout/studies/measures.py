"""What a table or a figure may show of a grid."""

from __future__ import annotations

from collections.abc import Mapping

from layerscout.runtime import make_unknown_error
from layerscout.scores import SCORES

# What a table or a figure may show of a grid, by its verb; {score} is a key of a score.
MEASURES: Mapping[str, Mapping[str, str]] = {
    "tune": {
        "metric": "the validation metric of the chosen epoch",
        "metric_by_epoch": "the metric after every epoch",
        "loss_by_epoch": "the validation loss after every epoch",
        "majority": "the metric of always predicting the majority class",
        "epoch": "the chosen epoch",
        "seconds": "what the trial took",
        "train_seconds": "training and validation alone",
        "flops": "of the training, by count",
        "share": "of full fine-tuning's FLOPs",
        "inference_share": "of full fine-tuning's FLOPs",
        "example_seconds": "inference time of an example, measured",
        "parameters": "of the model that is left",
        "trainable": "parameters that were trained",
    },
    "scan": {
        "{score}": "the score of every state or block",
        "rank:{score}": "its rank, 1 being the best",
        "best:{score}": "its best state or block",
        "smoothness:{score}": "ζ of its curve",
        "pearson:{score}": "its correlation with the probe over states",
        "spearman:{score}": "the same of their ranks",
        "r_squared:{score}": "of the probe regressed on the score",
        "slope:{score}": "of that line",
        "deviation:{score}": "|rank now − rank at the start| averaged, at every checkpoint",
    },
    "compare": {
        "contrast": "of the best split of a model's states into two clusters",
        "split": "the last state of the lower cluster",
        "same_state": "CKA of the same state of two seeds of a model",
    },
    "evaluate": {
        "metric": "of the whole model",
        "untuned": "with every state fed to the tuned head",
        "tuned": "with the head tuned again at every state",
        "tuned_original": "with a head tuned at every state of the untuned model",
        "majority": "of the majority class",
        "inference_seconds": "one pass over the validation examples, edits included",
        "skip": "without a block, or a span of them",
    },
}

_PLAIN = [name for by in MEASURES.values() for name in by if "{score}" not in name]
_SCORED = [name for by in MEASURES.values() for name in by if name.endswith(":{score}")]
_PLACES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("metric_by_epoch", "loss_by_epoch"), ("epoch",)),
    **dict.fromkeys(("same_state", "untuned", "tuned", "tuned_original"), ("state",)),
    **dict.fromkeys(("contrast", "split"), ("at",)),  # of the models that were compared
    "skip": ("block",),
}


def check_measure(name: str) -> None:
    """Refuse a name that is not a measure.

    Raises:
        ValueError: which names those that there are.
    """
    kind, colon, key = name.rpartition(":")
    if colon:
        known = f"{kind}:{{score}}" in _SCORED and key in SCORES
    else:
        known = name in SCORES or name in _PLAIN
    if not known:
        raise ValueError(
            str(make_unknown_error("measure", name, dict.fromkeys([*_PLAIN, *_SCORED])))
        )


def list_places(name: str) -> tuple[str, ...]:
    """Name what a measure has several values for in one trial, such as states.

    Scores also have a value for every checkpoint, if the grid scans several.
    """
    kind, _, key = name.rpartition(":")
    if key in SCORES and kind in ("", "rank"):
        return (SCORES[key].of.removesuffix("s"), "checkpoint")
    return ("checkpoint",) if kind == "deviation" else _PLACES.get(name, ())
