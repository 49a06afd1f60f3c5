"""The outcome of a tuning: from its runs to the kept model and the content of `result.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from math import isclose
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from layerscout.cache import Examples, Trunk, make_accelerator, predict
from layerscout.data import make_targets, require_validation, settle_thresholds
from layerscout.models import (
    Equipped,
    export,
    holds_exactly,
    keep_thresholds,
    round_weights,
    save_peft,
    save_trained,
    unshare_weights,
)
from layerscout.plans import Choice, Plan, cost, describe_given, describe_method, full_cost
from layerscout.scanning import (
    describe_model,
    describe_task,
    warn_of_cut_inputs,
    warn_of_dropped_words,
)
from layerscout.scores import EvaluationResult, judge_majority
from layerscout.tuning.result import Result
from layerscout.tuning.runs import Run
from layerscout.tuning.setup import Part, TuneSetup
from layerscout.tuning.speed import measure_speeds

# What is found out about a tuned model: the metric that counts, which its training has computed;
# also its predictions and all metrics; also its speed.
Measure = Literal["metric", "speed", "predictions", "all"]


@dataclass(frozen=True, eq=False)
class Tuned:
    """A plan after all of its runs.

    Attributes:
        choice: the plan and why.
        runs: all of them.
        kept: the number of the run that counts.
        parameters: the trained ones of that run.
        trunks: of both splits, if they were computed apart.
        validation: what it was judged on.
    """

    choice: Choice
    runs: tuple[Run, ...]
    kept: int
    parameters: Mapping[str, Tensor]
    trunks: tuple[Trunk, ...]
    validation: Examples

    @property
    def plan(self) -> Plan:
        """What was tuned."""
        return self.choice.plan


def make_result(
    setup: TuneSetup,
    tuned: Sequence[Tuned],
    recorded: Mapping[str, Any],
    warned: Sequence[str],
    memory: Callable[[], Mapping[str, Any]],
    *,
    measure: Measure = "all",
) -> Result:
    """Put together all that is known of a tuned plan, and of the one it is compared with.

    Args:
        setup: what the runs started from.
        tuned: the plan, and perhaps the other one.
        recorded: what else `settings` of `result.json` holds.
        warned: what the reader of the figures should know besides.
        memory: gives what `result.json` holds of the memory that training took.
        measure: whether the speed of the kept model is measured, and whether it runs on the
            validation examples once more, for its predictions and all metrics.
    """
    ours, max_length = tuned[0], recorded["max_length"]
    equipped, model = _load_kept(setup, ours)
    used = memory()  # before what only measures the model
    round_weights(model, setup.save_dtype)
    run, keep = ours.runs[ours.kept], setup.settings.keep
    found = EvaluationResult({setup.settings.metric: run.choose_epoch(keep).value})
    speeds: dict[str, float] | None = None
    thresholds: np.ndarray | None = None
    tested: dict[str, Any] | None = None
    if measure in ("predictions", "all"):
        logits, thresholds = _predict_validation(setup, ours, model)
        answers, validation = setup.validation.answers, require_validation(setup.task)
        found = EvaluationResult.of(
            setup.settings.metric, setup.task, validation, answers, logits, thresholds
        )
        keep_thresholds(model, thresholds)
    predictions = dict(found.predictions)
    if predictions:
        predictions = {"split": ["validation"] * len(setup.validation.answers), **predictions}
    if measure == "all":
        tested, more = _test(setup, model, max_length, thresholds)
        if tested is not None:
            predictions = {
                name: np.concatenate([column, more[name]])
                if isinstance(column, np.ndarray)
                else [*column, *more[name]]
                for name, column in predictions.items()
            }
    if measure != "metric":
        with make_accelerator().main_process_first():  # so that it is alone
            full = setup.encoder.model if measure == "all" else None
            speeds = measure_speeds(setup, model, full, sum(run.seconds.values()))
    content = {
        "layerscout": version("layerscout"),
        "verb": "tune",
        "method": setup.method.name,
        "method_options": describe_method(setup.method),
        "saved_as": setup.saved_as,
        "model": describe_model(setup.encoder, setup.task),
        "task": _describe_task(setup),
        "metric": setup.settings.metric,
        **_describe_plan(setup, ours),
        "metrics": found.metrics,
        "interval": found.interval,
        "majority": _judge_majority(setup, setup.validation),
        "by_name": found.by_name,
        "confusion": found.confusion,
        "errors": found.errors,
        "test": tested,
        "thresholds": None
        if thresholds is None
        else dict(zip(setup.task.labels, thresholds.tolist(), strict=True)),
        "examples_per_second": speeds,
        "memory": used,
        "against": _describe_other(setup, tuned[1], max_length) if len(tuned) > 1 else None,
        "settings": _list_settings(setup, recorded),
        "given": describe_given(setup.request),
        "warnings": [
            *setup.encoder.notes,
            *setup.task.warnings,
            *warned,
            *_list_warnings(setup, tuned, max_length),
            *found.warnings,
        ],
    }
    counted = run.choose_epoch(keep).value
    reached = found.metrics[setup.settings.metric]
    if not isclose(reached, counted, rel_tol=1e-6, abs_tol=1e-6):
        content["warnings"].append(
            f"saving in {setup.save_dtype} changes the {setup.settings.metric} from {counted:.4g} "
            f"to {reached:.4g}; --save-dtype float32 avoids this"
        )
    write = _choose_writer(setup, equipped, model, max_length)
    return Result(model, setup.encoder.tokenizer, content, predictions, write)


def _test(
    setup: TuneSetup, model: Any, max_length: int, thresholds: np.ndarray | None
) -> tuple[dict[str, Any] | None, Mapping[str, Sequence[Any]]]:
    """Judge the saved model on the test split, by which nothing was chosen, if there is one.

    Returns:
        What `result.json` holds of it, and more rows of `predictions.parquet`.
    """
    task = setup.task
    if task.test is None:
        return None, {}
    part = Part(
        setup.encoder.tokenize_split(task.test, max_length=max_length),
        make_targets(task.test, task.kind, task.labels),
    )
    logits = predict(setup.encoder, model, part.without_trunk()).numpy()
    found = EvaluationResult.of(
        setup.settings.metric, task, task.test, part.answers, logits, thresholds
    )
    described = {
        "examples": task.test.examples,
        "metrics": found.metrics,
        "interval": found.interval,
        "majority": _judge_majority(setup, part),
        "by_name": found.by_name,
        "confusion": found.confusion,
        "errors": found.errors,
    }
    return described, {"split": ["test"] * len(part.answers), **found.predictions}


def _describe_other(setup: TuneSetup, tuned: Tuned, max_length: int) -> dict[str, Any]:
    """Describe the plan that the first one is compared with, and judge it on the test split too."""
    described = _describe_plan(setup, tuned)
    if setup.task.test is None:
        return described | {"test": None}
    _, model = _load_kept(setup, tuned)
    round_weights(model, setup.save_dtype)
    _, thresholds = _predict_validation(setup, tuned, model)
    tested, _ = _test(setup, model, max_length, thresholds)
    return described | {"test": tested}


def _predict_validation(
    setup: TuneSetup, tuned: Tuned, model: Any
) -> tuple[np.ndarray, np.ndarray | None]:
    """Give the saved model's logits of the validation rows, and the thresholds settled on them.

    It starts from cached states only if what is below the cut is saved unrounded: they are those of
    the weights before.
    """
    exact = holds_exactly(setup.encoder.model, setup.save_dtype)
    examples = tuned.validation if exact else setup.validation.without_trunk()
    logits = predict(setup.encoder, model, examples).numpy()
    labels = setup.validation.answers.labels
    return logits, settle_thresholds(setup.settings.threshold, labels, logits)


def _judge_majority(setup: TuneSetup, part: Part) -> float | None:
    training = setup.training.answers.labels
    return judge_majority(setup.task.kind, setup.settings.metric, training, part.answers)


def _load_kept(setup: TuneSetup, tuned: Tuned) -> tuple[Equipped, Any]:
    """Give what was trained, with the parameters that count, and the model that is saved of it."""
    equipped = setup.equip(tuned.plan, tuned.runs[tuned.kept].seed)
    # Not strict, since what was frozen is not among the parameters: it starts the same every time.
    unshare_weights(equipped.model).load_state_dict(tuned.parameters, strict=False)
    as_checkpoint = setup.method.saved == "merged" and setup.saved_as == "checkpoint"
    return equipped, equipped.wrapper.merge_and_unload() if as_checkpoint else equipped.model


def _choose_writer(
    setup: TuneSetup, equipped: Equipped, model: Any, max_length: int
) -> Callable[[Path, str], None]:
    """Give what writes the tuned model into a folder, with its card."""
    encoder, kind = setup.encoder, setup.task.kind
    match setup.saved_as:
        case "checkpoint":
            tokenizer, dtype = encoder.tokenizer, setup.save_dtype
            return partial(export, model, tokenizer, max_length=max_length, dtype=dtype)
        case "peft":
            return partial(save_peft, equipped, encoder, max_length=max_length)
        case "ours":
            options: dict[str, Any] = {"kind": kind, "head": setup.head}
            return partial(save_trained, equipped, encoder, max_length=max_length, **options)


def _list_settings(setup: TuneSetup, recorded: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **setup.task.origin,
        **asdict(setup.settings),
        "head_learning_rate": setup.head_learning_rate,
        "epochs": setup.settings.passes(len(setup.training)),
        "examples": setup.task.train.examples,
        "validation_examples": require_validation(setup.task).examples,
        **recorded,
        "precision": setup.encoder.precision,
        "device": setup.encoder.device.type,
        "trunk_dropout": setup.request.trunk_dropout,
        "fresh_head": setup.fresh_head,
        "save_dtype": setup.save_dtype,
        "reinit_rate_factor": setup.request.reinit_rate_factor,
        "classifier": setup.head,
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("torch", "transformers", "accelerate")},
    }


def _describe_task(setup: TuneSetup) -> dict[str, Any]:
    """Describe the task for `result.json`; an example is all of its choices."""
    task, training = setup.task, setup.training
    found = describe_task(task, task.train, training.tokens.lengths)
    found |= {"examples_available": setup.available}
    if task.kind == "multiple_choice":
        found |= {
            "choices": training.answers.choices,
            "examples_used": len(training.answers),
            "validation_examples": len(setup.validation.answers),
            "examples_per_class": [],
            "tokens_per_example": found["tokens_per_example"] * training.answers.choices,
        }
    return found


def _describe_plan(setup: TuneSetup, tuned: Tuned) -> dict[str, Any]:
    """Describe one plan and its runs for `result.json`."""
    keep, task = setup.settings.keep, setup.task
    shape = setup.encoder.shape(len(task.labels), task.kind, setup.head)
    kept = all(trunk.kept for trunk in tuned.trunks) and not setup.request.trunk_dropout
    work, choices = setup.work(cached=kept), setup.training.answers.choices
    costs = cost(tuned.plan, shape, work, setup.method)
    full = full_cost(shape, work)
    runs = [run.as_dict(keep) for run in tuned.runs]
    return {
        "plan": {
            **tuned.plan.as_dict(),
            "strategy": tuned.choice.strategy,
            "reason": tuned.choice.reason,
        },
        "runs": runs,
        "kept": tuned.kept,
        "keep": keep,
        "best": runs[tuned.kept]["best"],
        "last": runs[tuned.kept]["last"],
        keep: runs[tuned.kept][keep],
        "parameters": {"total": costs.total, "trainable": costs.trainable},
        "flops": {
            "train": costs.train,
            "full_train": full.train,
            "inference": choices * costs.inference,
            "full_inference": choices * full.inference,
        },
        "trunk": {
            "cut": tuned.plan.cut,
            "kept": kept and bool(tuned.trunks),
            "cached": bool(tuned.trunks) and all(trunk.cached for trunk in tuned.trunks),
            "bytes": sum(trunk.bytes for trunk in tuned.trunks),
        },
        # The trunk's is what it took to compute, even if an earlier tuning did that.
        "seconds": {
            "trunk": sum(trunk.seconds for trunk in tuned.trunks),
            "train": sum(run.seconds["train"] for run in tuned.runs),
            "evaluate": sum(run.seconds["evaluate"] for run in tuned.runs),
        },
    }


def _list_warnings(setup: TuneSetup, tuned: Sequence[Tuned], max_length: int) -> list[str]:
    """List what the reader of the figures should know, each thing once."""
    found = []
    for name, part in (("training", setup.training), ("validation", setup.validation)):
        truncated, inputs = part.tokens.truncated, len(part.tokens)
        found += warn_of_cut_inputs(truncated, inputs, max_length, what=f"{name} inputs")
        found += warn_of_dropped_words(part.tokens, what=f"{name} words")
    steps, warmup = setup.settings.steps(len(setup.training)), setup.settings.warmup
    if warmup >= steps:
        found.append(
            f"the warmup takes {warmup:,.0f} steps (--warmup), but the training has only "
            f"{steps:,}, so the learning rate never reached its peak"
        )
    for one in tuned:
        found += [trunk.warning for trunk in one.trunks if trunk.warning]
        found += [
            f"{one.plan.notation} with learning rate {run.learning_rate:g} and seed {run.seed} "
            f"ended early: {run.stopped}"
            for run in one.runs
            if run.diverged
        ]
    return list(dict.fromkeys(found))
