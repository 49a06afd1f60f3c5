"""Heads that are trained again at every state of an encoder, which stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from torch import nn

from layerscout.analysis.judging import Judge
from layerscout.data import (
    Task,
    describe_kind,
    draw_examples,
    make_targets,
    require_validation,
)
from layerscout.models import Encoder, Head, choose_head_pooling, make_family_head
from layerscout.plans import EvaluateRequest
from layerscout.runtime import InputError
from layerscout.scanning import Extractor, read_states
from layerscout.scores import judge_by, train_family_probes

# Training examples that heads are tuned on again at the most, unless the user says otherwise.
HEAD_EXAMPLES = 5000


def check_heads(
    heads: Sequence[Encoder],
    task: Task,
    ablations: Collection[str],
    asked: EvaluateRequest,
) -> None:
    """Refuse what heads cannot be tuned again for; `heads` names the encoders they are on."""
    usual = EvaluateRequest()
    for name in ("examples", "head_epochs", "head_batch_size", "head_learning_rate"):
        if not heads and getattr(asked, name) != getattr(usual, name):
            raise InputError(
                f"`{name}` applies only if heads are tuned; add --tune-heads or --original"
            )
    if heads and task.kind == "token_classification":
        raise InputError(
            f"heads are not tuned again for {describe_kind(task.kind)}; leave out --tune-heads and "
            "--original"
        )
    if heads and "truncate" not in ablations:
        raise InputError("heads are tuned again at every state; add the edit truncate")
    for encoder in heads:
        choose_head_pooling(encoder)


def draw_head_examples(task: Task, examples: int | Literal["all"] | None, seed: int) -> Task:
    """Give the task with the training examples that heads are tuned on."""
    usual = min(HEAD_EXAMPLES, task.train.examples)
    return draw_examples(task, usual if examples is None else examples, seed)


def describe_heads(few: Task, asked: EvaluateRequest) -> dict[str, Any]:
    """Describe how heads are tuned again for `evaluate.json`."""
    return {
        "examples": few.train.examples,
        "epochs": asked.head_epochs,
        "batch_size": asked.head_batch_size,
        "learning_rates": list(asked.head_learning_rate),
    }


def tune_again(
    extractor: Extractor, few: Task, judge: Judge, classifier: Any, asked: EvaluateRequest
) -> list[float | None]:
    """Train the head of a classifier again at every state; give the best of the rates at each."""
    head = Head(classifier, extractor.encoder.family.final_norm, judge.columns)
    return _tune_at_states(extractor, few, judge, lambda _: head, asked)


def tune_fresh(
    extractor: Extractor, few: Task, judge: Judge, asked: EvaluateRequest
) -> list[float | None]:
    """Train the family's head from scratch at every state; give the best of the rates at each."""
    factory = partial(make_family_head, extractor.encoder, few.labels, kind=few.kind)
    return _tune_at_states(extractor, few, judge, factory, asked)


def _tune_at_states(
    extractor: Extractor,
    task: Task,
    judge: Judge,
    factory: Callable[[int], nn.Module],
    asked: EvaluateRequest,
) -> list[float | None]:
    name, validation = extractor.encoder.name, require_validation(task)
    pooling = choose_head_pooling(extractor.encoder)
    extractor = replace(extractor, poolings=(pooling,))
    states = [
        read_states(
            extractor.extract(extractor.tokenize(split), f"reading with {name}").states[pooling]
        )
        for split in (task.train, validation)
    ]
    targets = make_targets(task.train, task.kind, task.labels)
    reached: list[list[float]] = [[] for _ in states[0]]
    with extractor.timed("heads"):
        for rate in asked.head_learning_rate:
            found = train_family_probes(
                states[0],
                targets.labels,
                states[1],
                judge.right.labels,
                factory,
                metric=judge_by(judge.metric, tuned=judge.thresholds is not None),
                learning_rate=rate,
                epochs=asked.head_epochs,
                batch_size=asked.head_batch_size,
                seed=asked.seed,
                choices=targets.choices,
                progress=partial(extractor.show, f"tuning heads of {name} at the rate {rate:g}"),
            )
            for values, value in zip(reached, found.values, strict=True):
                if value is not None:
                    values.append(value)
    return [max(values, default=None) for values in reached]
