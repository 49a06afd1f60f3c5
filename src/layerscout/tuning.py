"""Tuning what a plan says, from the states of a trunk that is computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from layerscout import scanning
from layerscout.choosing import Ground, check, needs_scan, settled
from layerscout.costs import Choice, Work, checked_budget, cost
from layerscout.data import Task
from layerscout.encoder import Encoder, Tokens
from layerscout.errors import InputError, LayerscoutError, unknown
from layerscout.metrics import METRICS, evaluate
from layerscout.plans import Plan, make_plan, real, whole
from layerscout.progress import Show
from layerscout.progress import progress as progress_line
from layerscout.results import Result
from layerscout.sampling import Split, length_batches, sample
from layerscout.scans import Scan
from layerscout.scores import DEFAULT, SCORES
from layerscout.surgery import classifier, own, untied
from layerscout.training import (
    Examples,
    Keep,
    Run,
    Settings,
    plain_accelerator,
    predict,
    train,
)
from layerscout.trunks import DEFAULT_LIMIT, Trunk

Number = TypeVar("Number", int, float)

# On how many validation rows, and how often, the speed of the tuned and the full model is measured.
SPEED_ROWS, SPEED_REPEATS = 128, 3


@dataclass(frozen=True, eq=False)
class _Material:
    """What every run starts from."""

    encoder: Encoder
    task: Task
    available: int
    training: Tokens
    validation: Tokens
    settings: Settings
    trunk_dropout: bool
    fresh_head: bool
    cache_limit: int


@dataclass(frozen=True, eq=False)
class _Tuned:
    """A plan after all of its runs; `parameters` are the trained ones of the run that counts."""

    choice: Choice
    runs: tuple[Run, ...]
    kept: int
    parameters: Mapping[str, Tensor]
    trunks: tuple[Trunk, ...]
    validation: Examples

    @property
    def plan(self) -> Plan:
        return self.choice.plan


def tune(
    encoder: Encoder | str | Path,
    task: Task | str | Path,
    plan: Plan | str | Path = "auto",
    *,
    scan: Scan | str | Path | None = None,
    score: str | None = None,
    budget: float = 0.5,
    learning_rate: float | Sequence[float] | None = None,
    seed: int | Sequence[int] = 0,
    epochs: int = 5,
    batch_size: int = 32,
    keep: Keep = "best",
    patience: int | None = None,
    warmup: float = 0.06,
    weight_decay: float = 0.0,
    max_grad_norm: float | None = None,
    metric: str | None = None,
    examples: int | Literal["all"] = "all",
    max_length: int = 128,
    trunk_dropout: bool = False,
    fresh_head: bool = False,
    untie: bool = False,
    against: Plan | str | Path | None = None,
    cache_limit: int = DEFAULT_LIMIT,
    progress: bool = True,
) -> Result:
    """Tune the blocks of a plan and the head; what lies below is computed once and kept.

    Every combination of `learning_rate` and `seed` is trained from the same start. Counted is the
    rate with the best mean over the seeds, and of its runs the best.

    Args:
        encoder: an `Encoder`, or what `Encoder.load` takes.
        task: a `Task`, or what `Task.load` takes. Without a validation split a tenth of the
            training rows is set aside.
        plan: a `Plan`, its notation, a strategy, or a plan.json.
        scan: what strategies such as "best-down:3@top" and "auto" go by, or its folder; without
            it, the training examples are scanned first.
        score: the score that says which state is the best; unless it is given, that of the scan,
            or the debiased variability ratio.
        budget: of "auto": training FLOPs as a share of those of full fine-tuning.
        learning_rate: one or several peaks; None for what `default_learning_rate` gives.
        seed: one or several, of the head's start, the order of examples and dropout; the first
            one also of rows set aside or drawn.
        epochs: passes over the training examples.
        batch_size: examples of a step.
        keep: keep the model of the best epoch or of the last one.
        patience: stop a run after so many epochs without a better one.
        warmup: share of the steps in which the learning rate rises.
        weight_decay: of AdamW.
        max_grad_norm: clip the gradient's norm to this; not by default.
        metric: a key of `layerscout.metrics.METRICS`; None for the task's own.
        examples: train on so many of the training examples, drawn in proportion to the classes,
            or on "all".
        max_length: tokens kept of an input.
        trunk_dropout: run frozen blocks below the tuned ones at every step and with dropout, as
            the papers did, instead of once.
        fresh_head: draw the whole head anew, whatever the checkpoint brings of it.
        untie: give blocks that share weights (ALBERT) copies of their own.
        against: a second plan, such as "full", that is tuned in the same way to compare with.
        cache_limit: bytes that the cache may hold once new states are added; 0 keeps none.
        progress: show a bar on the terminal.

    Raises:
        InputError: if something cannot be used as asked.
        LayerscoutError: if no run came to the end of an epoch with a finite loss.
    """
    # What can be refused is refused before any work.
    seeds = _several("seed", seed, lambda one: whole("seed", one, 0, 2**63 - 1))
    rates = None
    if learning_rate is not None:
        rates = _several("learning_rate", learning_rate, _rate)
    budget, max_length = checked_budget(budget), whole("max_length", max_length, 1)
    if examples != "all":
        examples = whole("examples", examples, 1, remedy="'all' takes every one")
    rule, remedy = "a number of bytes, 0 or more", "20 * 10**9 is 20 GB"
    cache_limit = int(real("cache_limit", cache_limit, rule, lambda size: size >= 0, remedy))
    scan = Scan.load(scan) if isinstance(scan, str | Path) else scan
    if score is None:
        score = DEFAULT if scan is None else scan.leading()
    if score not in tuple(SCORES):
        raise unknown("score", str(score), SCORES)
    settings = Settings(
        epochs=epochs,
        batch_size=batch_size,
        warmup=warmup,
        weight_decay=weight_decay,
        max_grad_norm=max_grad_norm,
        patience=patience,
        keep=keep,
        metric="accuracy" if metric is None else metric,
    )
    plain_accelerator()
    available = _classification(task, seeds[0])
    task = _drawn(available, examples, seeds[0])
    settings = replace(settings, metric=task.metric) if metric is None else settings
    encoder = encoder if isinstance(encoder, Encoder) else Encoder.load(encoder)
    encoder = untied(encoder) if untie else encoder
    wanted = [plan] if against is None else [plan, against]
    ground = Ground(encoder, task, scan, score, budget)
    for one in wanted:
        check(one, ground)
    if scan is None and any(map(needs_scan, wanted)):
        scan = scanning.scan(
            encoder,
            task,
            scores=(score,) if SCORES[score].of == "states" else (score, DEFAULT),
            max_length=max_length,
            seed=seeds[0],
            cache_limit=cache_limit,
            progress=progress,
        )
        ground = replace(ground, scan=scan)
    training, validation = task.train, _validation(task)
    material = _Material(
        encoder=encoder,
        task=task,
        available=len(available.train),
        training=encoder.tokenize(training.texts, training.pairs, max_length=max_length),
        validation=encoder.tokenize(validation.texts, validation.pairs, max_length=max_length),
        settings=settings,
        trunk_dropout=trunk_dropout,
        fresh_head=fresh_head,
        cache_limit=cache_limit,
    )
    work = _work(material, cached=cache_limit > 0 and not trunk_dropout)
    choices = [settled(one, ground, work) for one in wanted]
    recorded = {
        "max_length": max_length,
        "budget": budget,
        "score": score,
        "best": None if scan is None or score not in scan.scores else scan.basis(score)[0],
        "untie": untie,
        "cache_limit": cache_limit,
    }
    warned = [warning for _, warnings in choices for warning in warnings]
    with progress_line(progress) as show:
        tuned = [_tuned(material, choice, rates, seeds, show) for choice, _ in choices]
        show("measuring the speed", 0, 1)
        return _result(material, tuned, recorded, warned)


def _classification(task: Task | str | Path, seed: int) -> Task:
    """Give the task, which is one of classification, with a validation split."""
    task = task if isinstance(task, Task) else Task.load(task)
    if task.kind != "classification":
        raise InputError(
            f"tuning needs a classification task, and {task.name} is one of "
            f"{task.kind.replace('_', ' ')}; choose another"
        )
    return task.held_out(scanning.HELD_OUT, seed) if task.validation is None else task


def _drawn(task: Task, examples: int | Literal["all"], seed: int) -> Task:
    """Give the task with so many of its training examples."""
    if examples == "all":
        return task
    rows = sample(
        task.train,
        len(task.labels),
        examples=examples,
        balanced=False,
        per_class=None,
        seed=seed,
    )
    return replace(task, train=task.train.take(rows))


def _work(material: _Material, cached: bool) -> Work:
    return Work(
        examples=len(material.training),
        validation=len(material.validation),
        tokens=float(material.training.lengths.mean()),
        epochs=material.settings.epochs,
        cached=cached,
    )


def _validation(task: Task) -> Split:
    if task.validation is None:
        raise InputError(f"{task.name} has no validation split; set some rows aside")
    return task.validation


def _rate(given: Any) -> float:
    return real("learning_rate", given, "above 0", lambda rate: rate > 0)


def _several(name: str, given: Any, checked: Callable[[Any], Number]) -> list[Number]:
    """Give one or several numbers as a list, each of them checked."""
    several = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
    numbers = [checked(one) for one in (given if several else [given])]
    if not numbers or len(set(numbers)) < len(numbers):
        raise InputError(
            f"`{name}` takes one number or several different ones, got {numbers}; leave out what "
            "is there twice"
        )
    return numbers


# --- Runs --------------------------------------------------------------------------------------


def _tuned(
    material: _Material,
    choice: Choice,
    rates: Sequence[float] | None,
    seeds: Sequence[int],
    show: Show,
) -> _Tuned:
    """Train a plan with every rate and seed, and choose the run that counts."""
    plan = choice.plan
    training, validation = _examples(material, plan, show)
    settings, width = material.settings, material.encoder.model.config.hidden_size
    runs: list[Run] = []
    champion: _Champion | None = None
    for rate in rates or [default_learning_rate(plan, width)]:
        values: list[float] = []
        best: _Champion | None = None
        for seed in seeds:
            label = f"{plan.notation}, learning rate {rate:g}, seed {seed}"
            model = _classifier(material, plan, seed)
            run, parameters = train(
                material.encoder,
                model,
                training,
                validation,
                learning_rate=rate,
                seed=seed,
                settings=settings,
                advance=partial(show, label),
            )
            if run.curve:
                values.append(run.kept(settings.keep).value)
                if best is None or values[-1] > best.rank[1]:
                    best = _Champion((0, values[-1]), len(runs), parameters)
            runs.append(run)
        if best is not None:
            best = replace(best, rank=(len(values), mean(values)))
            champion = best if champion is None or best.rank > champion.rank else champion
    if champion is None:
        raise LayerscoutError(
            f"no run of {plan.notation} finished an epoch: with learning rate "
            f"{runs[0].learning_rate:g} {runs[0].stopped}; use a lower --learning-rate"
        )
    trunks = tuple(e.trunk for e in (training, validation) if e.trunk is not None)
    return _Tuned(choice, tuple(runs), champion.run, champion.parameters, trunks, validation)


@dataclass(frozen=True, eq=False)
class _Champion:
    """The best run of a learning rate, which ranks by how many runs came through and their mean."""

    rank: tuple[int, float]
    run: int
    parameters: Mapping[str, Tensor]


def default_learning_rate(plan: Plan, hidden_size: int) -> float:
    """Give a peak learning rate for a plan and a width.

    At 1,024 features it is 1e-3 where the head alone is tuned, 2e-5 for full fine-tuning and 5e-5
    for all else, rates that Xie et al. 2022 (Tables 3 and 4) used or searched for RoBERTa-large.
    That narrower models want more, as 1 / width, is ours.
    """
    wide = 2e-5 if plan.embeddings else 5e-5 if plan.tuned else 1e-3
    return float(f"{wide * 1024 / hidden_size:.1e}")


def _classifier(material: _Material, plan: Plan, seed: int) -> Any:
    labels = material.task.labels
    return classifier(material.encoder, plan, labels, seed=seed, fresh_head=material.fresh_head)


def _examples(material: _Material, plan: Plan, show: Show) -> tuple[Examples, Examples]:
    """Run the trunk over both splits, or find what it gave."""
    training, validation = material.task.train, _validation(material.task)
    if material.trunk_dropout:
        return (
            Examples(material.training, training.labels, None),
            Examples(material.validation, validation.labels, None),
        )
    total, done = len(training) + len(validation), 0
    stage = f"blocks 1 to {plan.cut}, once" if plan.cut else "embeddings, once"

    def advance(rows: np.ndarray) -> None:
        nonlocal done
        done += len(rows)
        show(stage, done, total, f"{done:,} of {total:,} examples")

    def prepare(tokens: Tokens, split: Split, spare: Trunk | None) -> Examples:
        return Examples.prepare(
            material.encoder,
            plan,
            tokens,
            split.labels,
            limit=material.cache_limit,
            spare=spare,
            progress=advance,
        )

    first = prepare(material.training, training, None)
    return first, prepare(material.validation, validation, first.trunk)


# --- Results -----------------------------------------------------------------------------------


def _result(
    material: _Material,
    tuned: Sequence[_Tuned],
    recorded: Mapping[str, Any],
    warned: Sequence[str],
) -> Result:
    """Put together all that is known of a tuned plan, and of the one it is compared with."""
    ours = tuned[0]
    encoder, task, settings = material.encoder, material.task, material.settings
    run = ours.runs[ours.kept]
    model = own(_classifier(material, ours.plan, run.seed))
    model.load_state_dict(ours.parameters, strict=False)
    found = predict(encoder, model, ours.validation).numpy()
    split = _validation(task)
    content = {
        "layerscout": version("layerscout"),
        "verb": "tune",
        "method": "full",
        "model": scanning.described_model(encoder, task),
        "task": {
            **scanning.described_task(task, task.train, material.training.lengths),
            "examples_available": material.available,
        },
        "metric": settings.metric,
        **_described(material, ours),
        "metrics": {name: evaluate(name, split.labels, found) for name in METRICS},
        "examples_per_second": _speeds(material, model),
        "against": _described(material, tuned[1]) if len(tuned) > 1 else None,
        "settings": {
            **task.origin,
            **asdict(settings),
            "examples": len(task.train),
            "validation_examples": len(split),
            **recorded,
            "precision": encoder.precision,
            "device": encoder.device.type,
            "trunk_dropout": material.trunk_dropout,
            "fresh_head": material.fresh_head,
            "threads": torch.get_num_threads(),
            "versions": {name: version(name) for name in ("torch", "transformers", "accelerate")},
        },
        "warnings": [
            *task.warnings,
            *warned,
            *_warnings(material, tuned, recorded["max_length"]),
        ],
    }
    predictions = {
        "row": np.arange(len(split)) if split.origin is None else split.origin,
        "label": [task.labels[number] for number in split.labels],
        "prediction": [task.labels[number] for number in found.argmax(axis=1)],
        "logits": list(found),
    }
    return Result(model, encoder.tokenizer, content, predictions)


def _described(material: _Material, tuned: _Tuned) -> dict[str, Any]:
    """Give what `result.json` holds of one plan and its runs."""
    keep, labels = material.settings.keep, len(material.task.labels)
    shape = material.encoder.shape(labels)
    kept = all(trunk.kept for trunk in tuned.trunks) and not material.trunk_dropout
    work = _work(material, cached=kept)
    costs = cost(tuned.plan, shape, work)
    full = cost(make_plan("full", shape.blocks), shape, work)
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
            "inference": costs.inference,
            "full_inference": full.inference,
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


def _speeds(material: _Material, model: Any) -> dict[str, float]:
    """Measure how many examples the kept model and the encoder take in a second, in turns.

    The encoder stands for the full model, whose head adds next to nothing.
    """
    encoder, tokens = material.encoder, material.validation
    rows = np.linspace(0, len(tokens) - 1, min(SPEED_ROWS, len(tokens))).astype(np.int64)
    batches = length_batches(tokens.lengths[rows], encoder.token_budget)
    inputs = [encoder.batch(tokens, rows[batch]) for batch in batches]
    models = {"kept_model": model, "full_model": encoder.model}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    with torch.inference_mode():
        for _ in range(1 + SPEED_REPEATS):
            for name, one in models.items():
                started = perf_counter()
                for batch in inputs:
                    with encoder.autocast():  # which keeps some casts of weights while it lasts
                        one(**batch)
                if encoder.device.type == "cuda":
                    torch.cuda.synchronize(encoder.device)
                seconds[name].append(perf_counter() - started)
    return {name: len(rows) / median(found[1:]) for name, found in seconds.items()}


def _warnings(material: _Material, tuned: Sequence[_Tuned], max_length: int) -> list[str]:
    """Say what the reader of the figures should know, each thing once."""
    found = []
    for name, tokens in (("training", material.training), ("validation", material.validation)):
        if tokens.truncated:
            found.append(
                f"{tokens.truncated:,} of {len(tokens):,} {name} inputs were longer than "
                f"{max_length} tokens and were cut (--max-length)"
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
