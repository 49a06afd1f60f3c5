"""What a tuning ends with: all that is known of its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscout.cache import Examples, Trunk, make_accelerator, make_batch, make_batches, predict
from layerscout.data import evaluate_all, tabulate_predictions
from layerscout.models import (
    Equipped,
    export,
    merged,
    own,
    save_peft,
    save_trained,
)
from layerscout.plans import (
    Choice,
    LoRA,
    Plan,
    cost,
    described,
    full_cost,
)
from layerscout.scanning import cut_inputs, described_model, described_task
from layerscout.tuning.result import Result
from layerscout.tuning.setup import TuneSetup
from layerscout.tuning.training import Run

# On how many validation examples, and how often, the speed of the tuned and the full model is
# measured.
SPEED_EXAMPLES, SPEED_REPEATS = 128, 3


@dataclass(frozen=True, eq=False)
class Tuned:
    """A plan after all of its runs; `parameters` are the trained ones of the run that counts."""

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


def outcome(
    setup: TuneSetup,
    tuned: Sequence[Tuned],
    recorded: Mapping[str, Any],
    warned: Sequence[str],
    *,
    measure: bool = True,
) -> Result:
    """Put together all that is known of a tuned plan, and of the one it is compared with.

    Args:
        setup: what the runs started from.
        tuned: the plan, and perhaps the other one.
        recorded: what else `settings` of `result.json` holds.
        warned: what the reader of the figures should know besides.
        measure: run the kept model on the validation examples once more, for its predictions and
            all metrics, and measure its speed.
    """
    ours = tuned[0]
    encoder, task, settings = setup.encoder, setup.task, setup.settings
    run = ours.runs[ours.kept]
    equipped = setup.equipped(ours.plan, run.seed)
    own(equipped.model).load_state_dict(ours.parameters, strict=False)  # all that is trained
    model = equipped.model
    if isinstance(setup.method, LoRA) and setup.saved_as == "checkpoint":
        model = merged(equipped)
    answers = setup.validation.answers
    metrics = {settings.metric: run.kept(settings.keep).value}
    speeds: dict[str, float] | None = None
    predictions: dict[str, Any] = {}
    if measure:
        found = predict(encoder, model, ours.validation).numpy()
        metrics = evaluate_all(task.kind, answers.labels, found)
        predictions = tabulate_predictions(task, answers, found)
        with make_accelerator().main_process_first():  # so that it is alone
            speeds = _speeds(setup, model)
    content = {
        "layerscout": version("layerscout"),
        "verb": "tune",
        "method": setup.method.name,
        "method_options": described(setup.method),
        "saved_as": setup.saved_as,
        "model": described_model(encoder, task),
        "task": _described_task(setup),
        "metric": settings.metric,
        **_described(setup, ours),
        "metrics": metrics,
        "examples_per_second": speeds,
        "against": _described(setup, tuned[1]) if len(tuned) > 1 else None,
        "settings": {
            **task.origin,
            **asdict(settings),
            "epochs": settings.passes(len(setup.training.answers)),
            "examples": len(setup.training.answers),
            "validation_examples": len(answers),
            **recorded,
            "precision": encoder.precision,
            "device": encoder.device.type,
            "trunk_dropout": setup.trunk_dropout,
            "fresh_head": setup.fresh_head,
            "reinit_rate_factor": setup.reinit_rate_factor,
            "classifier": setup.head,
            "threads": torch.get_num_threads(),
            "versions": {name: version(name) for name in ("torch", "transformers", "accelerate")},
        },
        "warnings": [
            *task.warnings,
            *warned,
            *_warnings(setup, tuned, recorded["max_length"]),
        ],
    }
    return Result(
        model,
        encoder.tokenizer,
        content,
        predictions,
        _writer(setup, equipped, model, recorded["max_length"]),
    )


def _writer(
    setup: TuneSetup, equipped: Equipped, model: Any, max_length: int
) -> Callable[[Path, str], None]:
    """Give what writes the tuned model into a folder, with its card."""
    encoder, kind = setup.encoder, setup.task.kind
    match setup.saved_as:
        case "checkpoint":
            return partial(export, model, encoder.tokenizer)
        case "peft":
            return partial(save_peft, equipped, encoder)
        case "ours":
            options: dict[str, Any] = {"kind": kind, "head": setup.head}
            return partial(save_trained, equipped, encoder, max_length=max_length, **options)


def _described_task(setup: TuneSetup) -> dict[str, Any]:
    """Give what `result.json` holds of the task; an example is all of its choices."""
    task, training = setup.task, setup.training
    found = described_task(task, task.train, training.tokens.lengths)
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


def _described(setup: TuneSetup, tuned: Tuned) -> dict[str, Any]:
    """Give what `result.json` holds of one plan and its runs."""
    keep, task = setup.settings.keep, setup.task
    shape = setup.encoder.shape(len(task.labels), task.kind, setup.head)
    kept = all(trunk.kept for trunk in tuned.trunks) and not setup.trunk_dropout
    work, choices = setup.work(cached=kept), setup.training.answers.choices
    costs = cost(tuned.plan, shape, work, setup.method)
    full = full_cost(shape, work)
    run = tuned.runs[tuned.kept]
    return {
        "plan": {
            **tuned.plan.as_dict(),
            "strategy": tuned.choice.strategy,
            "reason": tuned.choice.reason,
        },
        "runs": [run.as_dict() for run in tuned.runs],
        "kept": tuned.kept,
        "keep": keep,
        "best": {"epoch": run.best.epoch, "value": run.best.value},
        "last": {"epoch": run.last.epoch, "value": run.last.value},
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
        # The trunk's is what it took when it was computed, be it in an earlier run.
        "seconds": {
            "trunk": sum(trunk.seconds for trunk in tuned.trunks),
            "train": sum(run.seconds["train"] for run in tuned.runs),
            "evaluate": sum(run.seconds["evaluate"] for run in tuned.runs),
        },
    }


def _speeds(setup: TuneSetup, model: Any) -> dict[str, float]:
    """Measure how many examples the kept model and the encoder take in a second, in turns.

    The encoder stands for the full model, whose head adds next to nothing.
    """
    encoder, part = setup.encoder, setup.validation
    examples = Examples(part.tokens, part.answers.labels, None, part.answers.choices)
    rows = np.linspace(0, len(examples) - 1, min(SPEED_EXAMPLES, len(examples))).astype(np.int64)
    shaped = [make_batch(encoder, examples, some) for some in make_batches(encoder, examples, rows)]
    flat = [{name: t.reshape(-1, t.shape[-1]) for name, t in one.items()} for one in shaped]
    models = {"kept_model": (model, shaped), "full_model": (encoder.model, flat)}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    with torch.inference_mode():
        for _ in range(1 + SPEED_REPEATS):
            for name, (one, inputs) in models.items():
                started = perf_counter()
                for given in inputs:
                    with encoder.autocast():  # which keeps some casts of weights while it lasts
                        one(**given)
                if encoder.device.type == "cuda":
                    torch.cuda.synchronize(encoder.device)
                seconds[name].append(perf_counter() - started)
    return {name: len(rows) / median(found[1:]) for name, found in seconds.items()}


def _warnings(setup: TuneSetup, tuned: Sequence[Tuned], max_length: int) -> list[str]:
    """Say what the reader of the figures should know, each thing once."""
    found = []
    for name, part in (("training", setup.training), ("validation", setup.validation)):
        found += cut_inputs(
            part.tokens.truncated, len(part.tokens), max_length, what=f"{name} inputs"
        )
    steps, warmup = (
        setup.settings.steps(len(setup.training.answers)),
        setup.settings.warmup,
    )
    if warmup >= steps:
        found.append(
            f"the learning rate rises for {warmup:,.0f} steps (--warmup), and the training has "
            f"{steps:,}, so it never reached its peak"
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
