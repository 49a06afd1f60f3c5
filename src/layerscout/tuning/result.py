"""What a tuning returns: the kept model, what it reaches, and the files that hold both."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from math import ceil, isclose
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from layerscout.data import describe_task, require_validation, write_parquet
from layerscout.files import (
    format_json,
    make_output_folder,
    replace_files,
    replace_folder,
    set_aside,
)
from layerscout.models import (
    TrainableModel,
    describe_model,
    export,
    find_oldest,
    name_empty_text,
    warn_of_tokens,
)
from layerscout.plans import (
    Cost,
    Plan,
    Settings,
    TuneRequest,
    Work,
    block_flops,
    cost,
    describe_given,
    full_cost,
    options_of,
)
from layerscout.predicting import Predictor
from layerscout.reporting import Displayed, compare_with_free, describe_reached, write_card
from layerscout.states import make_accelerator
from layerscout.tuning.free import Settled
from layerscout.tuning.judging import Judgement
from layerscout.tuning.resolve import Tuning
from layerscout.tuning.snapshots import Snapshots, keeping_trained
from layerscout.tuning.solving import Solution, recall
from layerscout.tuning.stages import TunedPlan
from layerscout.tuning.stepping import pick_epoch

# Options that `result.json` holds elsewhere: among the plan, the runs, the method and the model.
ELSEWHERE = (
    *("plan", "against", "method", "method_options", "keep_adapter", "learning_rate", "seed"),
    *("edits", "keep_layer_norm", "classifier", "metric", "examples", "fresh_head"),
)


@dataclass(frozen=True, eq=False, repr=False)
class Result(Displayed):
    """A tuned model, and all facts about it.

    Attributes:
        model: the transformers model of the epoch that counts, in eval mode.
        tokenizer: its tokenizer.
        content: what `result.json` holds.
        predictions: row in the validation file, label, prediction and logits of every example.
        write: writes the model into a folder, with this text as its card.
        predictor: predicts with the model.
        snapshots: those of the training, which are removed once the result is saved.
    """

    model: Any
    tokenizer: Any
    content: Mapping[str, Any]
    predictions: Mapping[str, Sequence[Any] | np.ndarray]
    write: Callable[[Path, str], None]
    predictor: Predictor
    snapshots: Snapshots | None = None

    def __repr__(self) -> str:
        free, better = compare_with_free(self.content)
        reached = describe_reached(self.content) + ("" if better else f", {free}")
        return f"<Result: {self.plan.notation} of {reached}>"

    def as_dict(self) -> dict[str, Any]:
        """Return what `result.json` holds."""
        return dict(plain_json(self.content))

    @property
    def plan(self) -> Plan:
        """What was tuned."""
        return Plan.from_dict(self.content["plan"])

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric of the kept model on the validation split, by name."""
        return dict(self.content["metrics"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader of the figures should know."""
        return tuple(self.content["warnings"])

    def predict(self, texts: Sequence[Any], pairs: Sequence[Any] | None = None) -> Any:
        """Predict the class of each text; see `Predictor.predict`."""
        return self.predictor.predict(texts, pairs)

    def predict_proba(self, texts: Sequence[Any], pairs: Sequence[Any] | None = None) -> Any:
        """Return the probabilities of all classes; see `Predictor.predict_proba`."""
        return self.predictor.predict_proba(texts, pairs)

    def save(self, folder: str | Path) -> None:
        """Write `model/`, `result.json` and `predictions.parquet` into `folder`.

        `model/` is an ordinary checkpoint with a model card: `from_pretrained` of transformers'
        Auto class for the task loads it, and, but for multiple choice, `pipeline`. Earlier files
        are replaced once the new ones are whole.

        Raises:
            InputError, DiskError: if something cannot be written.
            UnfinishedError: if it cannot be saved, and snapshots of the training are kept.
        """
        with keeping_trained(self.snapshots, "saving it"):
            self._write(folder)
        if self.snapshots is not None:
            self.snapshots.discard()

    def _write(self, folder: str | Path) -> None:
        """Write the files of the result."""
        folder, started = make_output_folder(Path(folder).expanduser()), perf_counter()
        # All files exist under other names before any takes its place, so that a disk that fills up
        # half-way cannot leave a new result.json beside an old model.
        with (
            replace_files(folder / "result.json", folder / "predictions.parquet") as temporary,
            ExitStack() as earlier,
            replace_folder(folder / "model") as model,
        ):
            self.write(model, write_card(self.content))
            write_parquet(self.predictions, temporary[1])
            self.content["time"]["seconds"].setdefault("save", perf_counter() - started)
            written = format_json(plain_json(self.content))
            temporary[0].write_text(written, encoding="utf-8")
            # A kill between here and the end leaves no result.json, rather than another model's.
            earlier.enter_context(set_aside(folder / "result.json"))
        (folder / "run.yaml").unlink(missing_ok=True)  # it repeats an earlier run on the terminal


def make_result(
    settled: Settled,
    judged: Judgement,
    more: Mapping[str, Any],
    memory: Mapping[str, Any],
    training: str | None,
    warned: Sequence[str],
    time: Mapping[str, Any],
) -> Result:
    """Put together all that is known of a tuned plan, and of the one it is compared with.

    Args:
        settled: what is kept.
        judged: what it reaches.
        more: what more texts, and more time, would bring.
        memory: what training took, in bytes.
        training: its name, where it may be continued.
        warned: what the reader of the figures should know besides.
        time: seconds, expected and taken.
    """
    tuning, tuned = settled.tuning, settled.tuned
    first, metric, task = tuned[0], tuning.settings.metric, tuning.task
    warnings = [
        *tuning.encoder.notes,
        *(each for each in task.warnings if not (first.left_out and each == task.repeated)),
        *dict.fromkeys(warned),
        *_list_warnings(settled),
        *judged.warnings,
        *_warn_of_rounding(tuning, first, judged.content["metrics"][metric]),
    ]
    described, free = _describe_plans(settled)
    content = {
        "layerscout": version("layerscout"),
        "verb": "tune",
        "method": tuning.method.name,
        "method_options": asdict(tuning.method),
        "saved_as": tuning.saved_as,
        "needs_transformers": find_oldest(settled.model.config, tuning.task.kind),
        "empty_text": name_empty_text(tuning.encoder.tokenizer),
        "model": describe_model(tuning.encoder, tuning.task),
        "task": _describe_task(tuning),
        "metric": metric,
        **described[0],
        **judged.content,
        "memory": memory,
        "time": time,
        "free": free,
        "more": more,
        "against": {**described[1], "test": judged.other_test} if len(tuned) > 1 else None,
        "settings": _list_settings(settled, training),
        "given": describe_given(tuning.request),
        "warnings": warnings,
    }
    write = _choose_writer(tuning, settled.trainable, settled.model)
    predictor = _make_predictor(settled)
    tokenizer = tuning.encoder.tokenizer
    return Result(settled.model, tokenizer, content, judged.predictions, write, predictor)


def _make_predictor(settled: Settled) -> Predictor:
    """Return what predicts with the kept model, and finds the states of texts that it has seen."""
    tuning, first = settled.tuning, settled.tuned[0]
    longest, solution, recalls = tuning.request.max_length, first.solution, None
    if solution is not None and (known := solution.pooled.fingerprint) is not None:
        head = solution.solved.state, solution.solved.head
        recalls = partial(recall, tuning.encoder, known, solution.form, head, longest)
    encoder = first.run_by(tuning.encoder)
    return Predictor.of(encoder, settled.model, tuning.task.kind, longest, recalls)


def _choose_writer(
    tuning: Tuning, trainable: TrainableModel, model: Any
) -> Callable[[Path, str], None]:
    """Return what writes the tuned model into a folder, with its card."""
    encoder, max_length = tuning.encoder, tuning.request.max_length
    match tuning.saved_as:
        case "checkpoint":
            tokenizer, dtype = encoder.tokenizer, tuning.save_dtype
            return partial(export, model, tokenizer, max_length=max_length, dtype=dtype)
        case "sentence-transformers":
            from layerscout.models import export_mean

            return partial(export_mean, model, encoder.tokenizer, max_length=max_length)
        case "peft":
            from layerscout.models import save_peft

            return partial(save_peft, trainable, encoder, max_length=max_length)
        case "ours":
            from layerscout.models import save_trained

            options: dict[str, Any] = {"kind": tuning.task.kind, "classifier": tuning.classifier}
            return partial(save_trained, trainable, encoder, max_length=max_length, **options)


def _list_settings(settled: Settled, training: str | None) -> dict[str, Any]:
    """Return the request and what it came to, with what it ran on."""
    tuning = settled.tuning
    epochs = [_count_work(tuning, each).epochs for each in settled.tuned]
    request, scan, score = tuning.request, tuning.scan, tuning.score
    options = options_of(TuneRequest).keys() - options_of(Settings).keys() - set(ELSEWHERE)
    known = scan is not None and score in scan.scores
    return {
        **tuning.task.origin,
        **asdict(tuning.settings),
        "head_learning_rate": tuning.head_learning_rate,
        "epochs": ceil(max(epochs)) if tuning.trains else 1,
        "examples": tuning.task.train.examples,
        "validation_examples": require_validation(tuning.task).examples,
        **{name: getattr(request, name) for name in options_of(TuneRequest) if name in options},
        "head_start": "solved" if tuning.starts_solved else "random",
        "head_end": "solved" if tuning.solves else "trained",
        "score": score,
        "best": scan.basis(score)[0] if scan is not None and known else None,
        "cache_limit": tuning.cache_limit,
        "processes": make_accelerator().num_processes,
        "training": training,
        "precision": tuning.encoder.precision,
        "device": tuning.encoder.device.type,
        "fresh_head": tuning.request.draws_head,
        "save_dtype": tuning.save_dtype,
        "classifier": tuning.reads,
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("torch", "transformers", "accelerate")},
    }


def _describe_task(tuning: Tuning) -> dict[str, Any]:
    """Describe the task for `result.json`; an example is all of its choices."""
    task, training = tuning.task, tuning.training
    described = describe_task(task, task.train, training.tokens.lengths)
    described |= {"examples_available": tuning.available}
    if task.kind == "multiple_choice":
        described |= {
            "choices": training.answers.choices,
            "examples_used": len(training.answers),
            "validation_examples": len(tuning.validation.answers),
            "examples_per_class": [],
            "tokens_per_example": described["tokens_per_example"] * training.answers.choices,
        }
    return described


def _describe_plans(settled: Settled) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Describe the plans and the free head; the first plan counts what was done beside it, too."""
    tuning, free, training = settled.tuning, None, settled.training
    described = [_describe_plan(tuning, each) for each in settled.tuned]
    flops, seconds = described[0]["flops"], described[0]["seconds"]
    if tuning.scan_seconds is not None:
        seconds["scan"] = tuning.scan_seconds
    if settled.free is not None:
        beside = None if training is None else _describe_plan(tuning, training)
        free = {**settled.free, "training": beside}
        if beside is None:
            seconds["free"] = free["seconds"]
        else:
            flops["train"] += beside["flops"]["train"]
            seconds["training"] = sum(beside["seconds"].values())
    return described, free


def _describe_plan(tuning: Tuning, tuned: TunedPlan) -> dict[str, Any]:
    """Describe one plan and its runs for `result.json`."""
    keep, choices, trunks = tuning.settings.keep, tuning.training.answers.choices, tuned.trunks
    kept = all(trunk.kept for trunk in trunks) and not tuning.request.trunk_dropout
    work = replace(_count_work(tuning, tuned), cached=kept)
    solution = tuned.solution
    if solution is None:
        costs = cost(tuned.choice.plan, tuning.shape, work, tuning.method)
    else:
        costs = _count_solved(tuning, tuned.choice.plan, solution, work)
    full = full_cost(tuning.shape, work)
    pooled, cached = 0.0, False
    if solution is not None:
        pooled, cached = solution.pooled.seconds, solution.pooled.cached
    runs = [run.as_dict(keep) for run in tuned.runs]
    return {
        "plan": {
            **tuned.choice.plan.as_dict(),
            "strategy": tuned.choice.strategy,
            "reason": tuned.choice.reason,
        },
        "runs": runs,
        "kept": tuned.kept,
        "keep": keep,
        "examples": tuned.examples,
        **{name: runs[tuned.kept][name] for name in ("best", "last", keep)},
        "parameters": {"total": costs.total, "trainable": costs.trainable},
        "flops": {
            "train": costs.train,
            "full_train": full.train,
            "inference": choices * costs.inference,
            "full_inference": choices * full.inference,
        },
        "trunk": {
            "cut": tuned.choice.plan.cut,
            "kept": kept and bool(trunks),
            "cached": all(trunk.cached for trunk in trunks) if trunks else cached,
            "bytes": sum(trunk.bytes for trunk in trunks),
        },
        "solved": None if solution is None else solution.as_dict(),
        # The trunk's is what it took to compute, even if an earlier tuning did that.
        "seconds": {
            "trunk": sum(trunk.seconds for trunk in trunks) if trunks else pooled,
            "train": sum(run.seconds["train"] for run in tuned.runs),
            "evaluate": sum(run.seconds["evaluate"] for run in tuned.runs),
        },
    }


def _count_work(tuning: Tuning, tuned: TunedPlan) -> Work:
    """Count the training of a plan, which may have read a part of the rows."""
    share = tuned.examples / tuning.task.train.examples
    if share == 1:
        return tuning.work
    texts, rows = (round(share * n) for n in (tuning.work.examples, len(tuning.training)))
    return replace(tuning.work, examples=texts, epochs=tuning.settings.count_epochs(rows))


def _count_solved(tuning: Tuning, plan: Plan, solution: Solution, work: Work) -> Cost:
    """Count what solving a head costs: one pass or stages, and a block more where one averages."""
    form = solution.form
    shape = tuning.encoder.shape(len(tuning.task.labels), tuning.task.kind, form.classifier)
    once = replace(work, epochs=1)
    kept = cost(Plan((), solution.solved.state), shape, once)
    weights = solution.solved.head
    trainable = weights.weights.size + weights.bias.size
    if tuning.stages is not None and (plan.tuned or plan.embeddings):
        passed = cost(plan, shape, work.end_solved(tuning.stages), tuning.method)
        trainable = passed.trainable
    else:
        passed = cost(Plan((), shape.blocks), shape, once)  # all states are read
    block = parameters = 0.0
    if form.averages:
        block = block_flops(shape, once.tokens)
        parameters = shape.parameters.blocks[solution.solved.state - 1]
    return Cost(
        train=passed.train,
        inference=kept.inference + block,
        trainable=trainable,
        total=kept.total + int(parameters),
    )


def _warn_of_rounding(tuning: Tuning, first: TunedPlan, reached: float) -> list[str]:
    """Warn if rounding the weights that are saved changes the metric."""
    counted = pick_epoch(first.runs[first.kept].curve, tuning.settings.keep).value
    rounded = tuning.save_dtype != "float32"
    if not rounded or isclose(reached, counted, rel_tol=1e-6, abs_tol=1e-6):
        return []
    return [
        f"saving in {tuning.save_dtype} changes the {tuning.settings.metric} from {counted:.4g} "
        f"to {reached:.4g}; --save-dtype float32 avoids this"
    ]


def _list_warnings(settled: Settled) -> list[str]:
    """List what the reader of the figures should know, each thing once."""
    tuning, tuned = settled.tuning, [*settled.tuned, *filter(None, [settled.training])]
    tokens = tuning.training.tokens + tuning.validation.tokens
    warnings = warn_of_tokens(tokens, tuning.encoder, tuning.request.max_length)
    steps, warmup = tuning.settings.steps(len(tuning.training)), tuning.settings.warmup
    if warmup >= steps and tuning.trains:
        warnings.append(
            f"the warmup takes {warmup:,.0f} steps (--warmup), but the training has only "
            f"{steps:,}, so the learning rate never reached its peak"
        )
    for tuned_plan in tuned:
        if tuned_plan.solution is not None:
            warnings += tuned_plan.solution.warnings
        warnings += [trunk.warning for trunk in tuned_plan.trunks if trunk.warning]
        warnings += [
            f"{tuned_plan.choice.plan.notation} with learning rate {run.learning_rate:g} and seed "
            f"{run.seed} ended early: {run.stopped}"
            for run in tuned_plan.runs
            if run.diverged or (run.stopped and tuning.settings.patience is None)
        ]
    return list(dict.fromkeys(warnings))


def plain_json(content: Any) -> Any:
    """Turn values into what JSON can hold: null for numbers that are not finite.

    A training must not be lost to a single number that JSON has no name for.
    """

    def simplify(value: Any) -> Any:
        if isinstance(value, Mapping):
            return dict(value)
        return value.item() if isinstance(value, np.generic) else str(value)

    written = json.dumps(content, default=simplify)
    return json.loads(written, parse_constant=lambda name: None)
