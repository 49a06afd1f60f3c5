"""Judging the kept model of a tuning: on the validation rows, on the test rows, and its speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerscout.data import Split, require_validation, settle_thresholds
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
from layerscout.tuning.run_options import Measure
from layerscout.tuning.stages import TunedPlan, start_model
from layerscout.tuning.stepping import pick_epoch


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a kept model reaches.

    Attributes:
        content: what `result.json` holds of it: metrics, interval and so on of the validation rows,
            the same of the test rows, thresholds and speeds.
        other_test: the test rows judged by the plan that is compared with.
        predictions: columns of `predictions.parquet`, with a row for each example of both splits.
        warnings: what the reader of the figures should know.
    """

    content: Mapping[str, Any]
    other_test: Mapping[str, Any] | None
    predictions: Mapping[str, Any]
    warnings: Sequence[str]


def load_kept(tuning: Tuning, tuned: TunedPlan) -> tuple[TrainableModel, Any]:
    """Return what was trained, with the parameters that count, and the model saved of it."""
    trainable = start_model(tuning, tuned.choice.plan, tuned.runs[tuned.kept].seed)
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
    first, task, metric = tuned[0], tuning.task, tuning.settings.metric
    run = first.runs[first.kept]
    round_weights(model, tuning.save_dtype)
    value = pick_epoch(run.curve, tuning.settings.keep).value
    result, thresholds, speeds = EvaluationResult({metric: value}), None, None
    test = other_test = None
    predictions: dict[str, Any] = {}
    if measure in ("predictions", "all"):
        logits, thresholds = _predict_validation(tuning, first, model)
        answers, validation = tuning.validation.answers, require_validation(task)
        result = EvaluationResult.of(metric, task, validation, answers, logits, thresholds)
        keep_thresholds(model, thresholds)
        predictions = {"split": ["validation"] * len(answers), **result.predictions}
    if measure == "all" and task.test is not None:
        test, more = _judge_test(tuning, task.test, model, thresholds)
        predictions = {name: [*column, *more[name]] for name, column in predictions.items()}
        if len(tuned) > 1:
            _, other = load_kept(tuning, tuned[1])
            round_weights(other, tuning.save_dtype)
            _, thresholds_there = _predict_validation(tuning, tuned[1], other)
            other_test, _ = _judge_test(tuning, task.test, other, thresholds_there)
    if measure != "metric":
        with make_accelerator().main_process_first():  # so that it is alone
            full = tuning.encoder.model if measure == "all" else None
            speeds = measure_speeds(tuning, model, full, sum(run.seconds.values()))
    content = {
        **_describe(tuning, tuning.validation, result),
        "test": test,
        "thresholds": None
        if thresholds is None
        else dict(zip(task.labels, thresholds.tolist(), strict=True)),
        "examples_per_second": speeds,
    }
    return Judgement(content, other_test, predictions, result.warnings)


def _predict_validation(
    tuning: Tuning, tuned: TunedPlan, model: Any
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the saved model's logits of the validation rows, and the thresholds settled on them.

    It starts from cached states only if what is below the cut is saved unrounded: they are those of
    the weights before.
    """
    exact = holds_exactly(tuning.encoder.model, tuning.save_dtype)
    examples = tuned.splits[1] if exact else tuning.validation
    logits = predict(tuning.encoder, model, examples).numpy()
    labels = tuning.validation.answers.labels
    return logits, settle_thresholds(tuning.settings.threshold, labels, logits)


def _judge_test(
    tuning: Tuning, split: Split, model: Any, thresholds: np.ndarray | None
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Judge a saved model on the test rows, by which nothing was chosen.

    Returns:
        What `result.json` holds of them, and more rows of `predictions.parquet`.
    """
    task, metric = tuning.task, tuning.settings.metric
    encoded = encode_split(split, tuning.encoder, task, tuning.request.max_length)
    logits = predict(tuning.encoder, model, encoded).numpy()
    result = EvaluationResult.of(metric, task, split, encoded.answers, logits, thresholds)
    described = {"examples": split.examples, **_describe(tuning, encoded, result)}
    return described, {"split": ["test"] * len(encoded.answers), **result.predictions}


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
