"""Judging the kept model of a tuning: on the validation rows, on the test rows, and its speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from layerscout.data import (
    Split,
    Targets,
    make_targets,
    require_validation,
    settle_thresholds,
)
from layerscout.models import (
    TrainableModel,
    base_of,
    holds_exactly,
    keep_thresholds,
    make_averaging_classifier,
    round_weights,
    scale_logits,
    unshare_weights,
)
from layerscout.plans import Classifier
from layerscout.scores import EvaluationResult, judge_majority
from layerscout.states import make_accelerator, predict
from layerscout.tuning.baselines import judge_baselines
from layerscout.tuning.calibration import calibrate_trained, describe_calibration
from layerscout.tuning.machine import measure_speeds, measures_speed
from layerscout.tuning.resolve import Tuning, encode_split
from layerscout.tuning.run_options import Measure
from layerscout.tuning.solving import Judged
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
    """Return what was trained, with the parameters that count, and the model saved of it.

    Its weights are rounded as they are saved.
    """
    plan, solution = tuned.choice.plan, tuned.solution
    if solution is None:
        return _put_back(tuning, tuned, tuning.classifier)
    if not solution.form.averages:
        return _put_back(tuning, tuned, solution.form.classifier)
    encoder = tuning.encoder
    if plan.tuned or plan.embeddings:
        encoder = replace(encoder, model=base_of(_put_back(tuning, tuned, "mean-linear")[1])[0])
    head, state = solution.solved.head, solution.solved.state
    labels, kind = tuning.task.labels, tuning.task.kind
    model = make_averaging_classifier(encoder, state, labels, kind, head.weights, head.bias)
    return TrainableModel(model, plan, tuning.method), model


def _put_back(
    tuning: Tuning, tuned: TunedPlan, classifier: Classifier
) -> tuple[TrainableModel, Any]:
    """Return a model with the parameters that count, and with what a method adds merged."""
    trainable = start_model(tuning, tuned.choice.plan, tuned.runs[tuned.kept].seed, classifier)
    # Not strict, since what was frozen is not among the parameters: it starts the same every time.
    unshare_weights(trainable.model).load_state_dict(tuned.parameters, strict=False)
    merged = tuning.method.saved == "merged" and tuning.saved_as != "peft"
    return trainable, trainable.wrapper.merge_and_unload() if merged else trainable.model


def judge(
    tuning: Tuning,
    tuned: Sequence[TunedPlan],
    model: Any,
    judged: Judged | None,
    measure: Measure,
) -> Judgement:
    """Judge the model that is saved.

    Args:
        tuning: what the runs started from.
        tuned: the plan, and perhaps the other one.
        model: of the first of them; see `load_kept`.
        judged: what it says; None where only the metric is measured, or the speed.
        measure: what is measured.
    """
    first, task, metric = tuned[0], tuning.task, tuning.settings.metric
    run = first.runs[first.kept]
    value = pick_epoch(run.curve, tuning.settings.keep).value
    result, thresholds, speeds = EvaluationResult({metric: value}), None, None
    test = other_test = calibration = tested = None
    predictions: dict[str, Any] = {}
    baselines: dict[str, Any] = {}
    answers = tuning.validation.answers
    if judged is not None:
        answers = make_targets(judged.split, task.kind, task.labels)
        logits, thresholds = judged.logits, find_thresholds(tuning, judged)
        shown = judged.split, answers, logits, thresholds, judged.which, judged.folds
        result = EvaluationResult.of(metric, task, *shown)
        keep_thresholds(model, thresholds)
        if measure == "all":
            baselines = judge_baselines(tuning, judged, answers, thresholds)
        predictions = dict(result.predictions)
    if measure == "all" and task.test is not None:
        test, more, tested = _judge_test(tuning, first, task.test, model, thresholds)
        predictions = {name: [*column, *more[name]] for name, column in predictions.items()}
        if len(tuned) > 1:
            _, other = load_kept(tuning, tuned[1])
            least = find_thresholds(tuning, judge_validation(tuning, tuned[1], other))
            other_test, *_ = _judge_test(tuning, tuned[1], task.test, other, least)
    if judged is not None:
        calibration = describe_calibration(answers.labels, judged, tested)
    if measures_speed(measure, run.learning_rate is None):
        with make_accelerator().main_process_first():  # so that it is alone
            full = tuning.encoder.model if measure == "all" else None
            speeds = measure_speeds(tuning, model, full, sum(run.seconds.values()))
    content = {
        **_describe(tuning, first, answers, result),
        "baselines": baselines,
        "test": test,
        "calibration": calibration,
        "thresholds": None
        if thresholds is None
        else dict(zip(task.labels, thresholds.tolist(), strict=True)),
        "examples_per_second": speeds,
    }
    return Judgement(content, other_test, predictions, result.warnings)


def judge_validation(tuning: Tuning, tuned: TunedPlan, model: Any) -> Judged:
    """Return the saved model's logits of the validation rows, or what is reported where it saw all.

    One that was trained is calibrated first, and its weights are rounded as they are saved.
    """
    if tuned.solution is not None:
        judged = tuned.solution.judged
        return replace(judged, logits=judged.logits.astype(np.float32))
    examples = tuned.splits[1]
    logits = predict(tuning.encoder, model, examples).numpy()
    raw = logits.astype(np.float64)
    factor, factors = calibrate_trained(tuning.validation.answers, raw)
    scale_logits(model, factor)
    logits *= factor
    if tuning.save_dtype != "float32":
        round_weights(model, tuning.save_dtype)
        # States at the cut are those of the weights before.
        if not holds_exactly(tuning.encoder.model, tuning.save_dtype):
            examples = tuning.validation
        logits = predict(tuning.encoder, model, examples).numpy()
    rows = require_validation(tuning.task), ["validation"] * len(logits)
    return Judged(*rows, logits, 1, raw, factor, factors, trained=True)


def find_thresholds(tuning: Tuning, judged: Judged) -> np.ndarray | None:
    """Settle the thresholds of several labels on the rows that are judged.

    One that a training went by moves with its factor, so that it predicts the same.
    """
    factor = judged.factor if judged.trained else 1.0
    threshold, labels = tuning.settings.threshold, judged.split.labels
    return settle_thresholds(threshold, labels, judged.logits, factor)


def _judge_test(
    tuning: Tuning, tuned: TunedPlan, split: Split, model: Any, thresholds: np.ndarray | None
) -> tuple[dict[str, Any], Mapping[str, Any], tuple[np.ndarray, np.ndarray]]:
    """Judge a saved model on the test rows, by which nothing was chosen.

    Returns:
        What `result.json` holds of them, more rows of `predictions.parquet`, and labels and logits.
    """
    task, metric, encoder = tuning.task, tuning.settings.metric, tuned.run_by(tuning.encoder)
    encoded = encode_split(split, encoder, task, tuning.request.max_length)
    logits = predict(encoder, model, encoded).numpy()
    answers, which = encoded.answers, ["test"] * len(encoded.answers)
    result = EvaluationResult.of(metric, task, split, answers, logits, thresholds, which)
    described = {"examples": split.examples, **_describe(tuning, tuned, answers, result)}
    return described, result.predictions, (answers.labels, logits)


def _describe(
    tuning: Tuning, tuned: TunedPlan, answers: Targets, result: EvaluationResult
) -> dict[str, Any]:
    kind, metric, fitted = tuning.task.kind, tuning.settings.metric, tuning.training.answers.labels
    if tuned.left_out:
        fitted = np.concatenate([fitted, tuning.validation.answers.labels])
    return {
        "metrics": result.metrics,
        "interval": result.interval,
        "majority": judge_majority(kind, metric, fitted, answers),
        "by_name": result.by_name,
        "confusion": result.confusion,
        "errors": result.errors,
    }
