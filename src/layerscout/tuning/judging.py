"""Judging the kept model of a tuning: on the validation rows, on the test rows, and its speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from layerscout.data import require_validation, settle_thresholds
from layerscout.models import (
    TrainableModel,
    holds_exactly,
    keep_thresholds,
    round_weights,
    unshare_weights,
)
from layerscout.scores import EvaluationResult, judge_majority
from layerscout.states import Examples, make_accelerator, predict
from layerscout.tuning.machine import measure_speeds
from layerscout.tuning.resolve import Tuning, encode_split
from layerscout.tuning.runs import pick_epoch
from layerscout.tuning.stages import TunedPlan, start_head

# What is measured of a tuned model: the metric that counts, which its training has computed; also
# its speed; also its predictions and all metrics; also those of the test split.
Measure = Literal["metric", "speed", "predictions", "all"]


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a kept model reaches, as `result.json` and `predictions.parquet` hold it.

    Attributes:
        validation: metrics, interval and so on, on the validation rows.
        test: the same on the test rows; None without any, or where they are not judged.
        other_test: that of the plan that is compared with.
        thresholds: above which each label is predicted, where texts have several.
        predictions: columns with a row for each example of both splits.
        speeds: in examples per second; None where they are not measured.
        warnings: what the reader of the figures should know.
    """

    validation: Mapping[str, Any]
    test: Mapping[str, Any] | None = None
    other_test: Mapping[str, Any] | None = None
    thresholds: np.ndarray | None = None
    predictions: Mapping[str, Any] = field(default_factory=dict)
    speeds: Mapping[str, float] | None = None
    warnings: Sequence[str] = ()


def load_kept(tuning: Tuning, tuned: TunedPlan) -> tuple[TrainableModel, Any]:
    """Return what was trained, with the parameters that count, and the model saved of it."""
    trainable = start_head(tuning, tuned.choice.plan, tuned.runs[tuned.kept].seed)
    # Not strict, since what was frozen is not among the parameters: it starts the same every time.
    unshare_weights(trainable.model).load_state_dict(tuned.parameters, strict=False)
    as_checkpoint = tuning.method.saved == "merged" and tuning.saved_as == "checkpoint"
    return trainable, trainable.wrapper.merge_and_unload() if as_checkpoint else trainable.model


def judge(tuning: Tuning, tuned: Sequence[TunedPlan], model: Any, measure: Measure) -> Judgement:
    """Judge the model that is saved, with its weights rounded as they are saved.

    Args:
        tuning: what the runs started from.
        tuned: the plan, and perhaps the other one.
        model: of the first of them; see `load_kept`.
        measure: what is measured.
    """
    first, task = tuned[0], tuning.task
    run = first.runs[first.kept]
    round_weights(model, tuning.save_dtype)
    value = pick_epoch(run.curve, tuning.settings.keep).value
    result, thresholds, speeds = EvaluationResult({tuning.settings.metric: value}), None, None
    test: dict[str, Any] | None = None
    predictions: dict[str, Any] = {}
    if measure in ("predictions", "all"):
        logits, thresholds = _predict_validation(tuning, first, model)
        answers, validation = tuning.validation.answers, require_validation(task)
        metric = tuning.settings.metric
        result = EvaluationResult.of(metric, task, validation, answers, logits, thresholds)
        keep_thresholds(model, thresholds)
        predictions = {"split": ["validation"] * len(answers), **result.predictions}
    if measure == "all" and task.test is not None:
        test, more = _judge_test(tuning, model, thresholds)
        predictions = {name: _join(column, more[name]) for name, column in predictions.items()}
    if measure != "metric":
        with make_accelerator().main_process_first():  # so that it is alone
            full = tuning.encoder.model if measure == "all" else None
            speeds = measure_speeds(tuning, model, full, sum(run.seconds.values()))
    return Judgement(
        validation=_describe(tuning, tuning.validation, result),
        test=test,
        other_test=_judge_other(tuning, tuned[1]) if test and len(tuned) > 1 else None,
        thresholds=thresholds,
        predictions=predictions,
        speeds=speeds,
        warnings=result.warnings,
    )


def _predict_validation(
    tuning: Tuning, tuned: TunedPlan, model: Any
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the saved model's logits of the validation rows, and the thresholds settled on them.

    It starts from cached states only if what is below the cut is saved unrounded: they are those of
    the weights before.
    """
    exact = holds_exactly(tuning.encoder.model, tuning.save_dtype)
    examples = tuned.validation if exact else tuning.validation
    logits = predict(tuning.encoder, model, examples).numpy()
    labels = tuning.validation.answers.labels
    return logits, settle_thresholds(tuning.settings.threshold, labels, logits)


def _judge_test(
    tuning: Tuning, model: Any, thresholds: np.ndarray | None
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Judge a saved model on the test rows, by which nothing was chosen.

    Returns:
        What `result.json` holds of them, and more rows of `predictions.parquet`.
    """
    task, split = tuning.task, tuning.task.test
    assert split is not None, "there is a test split"
    encoded = encode_split(split, tuning.encoder, task, tuning.request.max_length)
    answers, metric = encoded.answers, tuning.settings.metric
    logits = predict(tuning.encoder, model, encoded).numpy()
    result = EvaluationResult.of(metric, task, split, answers, logits, thresholds)
    described = {"examples": split.examples, **_describe(tuning, encoded, result)}
    return described, {"split": ["test"] * len(answers), **result.predictions}


def _judge_other(tuning: Tuning, tuned: TunedPlan) -> Mapping[str, Any]:
    """Judge the plan that the first one is compared with on the test rows."""
    _, model = load_kept(tuning, tuned)
    round_weights(model, tuning.save_dtype)
    _, thresholds = _predict_validation(tuning, tuned, model)
    return _judge_test(tuning, model, thresholds)[0]


def _describe(tuning: Tuning, split: Examples, result: EvaluationResult) -> dict[str, Any]:
    kind, metric, training = tuning.task.kind, tuning.settings.metric, tuning.training.answers
    return {
        "metrics": result.metrics,
        "interval": result.interval,
        "majority": judge_majority(kind, metric, training.labels, split.answers),
        "by_name": result.by_name,
        "confusion": result.confusion,
        "errors": result.errors,
    }


def _join(column: Any, more: Any) -> Any:
    arrays = isinstance(column, np.ndarray)
    return np.concatenate([column, more]) if arrays else [*column, *more]
