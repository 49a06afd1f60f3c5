"""Heads that are trained again at every state of an encoder, which stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from torch import nn

from layerscout.data import (
    Task,
    describe_kind,
    draw_examples,
    make_targets,
    require_validation,
)
from layerscout.models import Encoder, choose_head_pooling
from layerscout.plans import EvaluateRequest
from layerscout.runtime import InputError
from layerscout.scanning import Extractor, read_states
from layerscout.scores import Metric, train_family_probes

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


def tune_heads(
    extractor: Extractor,
    task: Task,
    factory: Callable[[int], nn.Module],
    metric: Metric,
    asked: EvaluateRequest,
) -> list[float | None]:
    """Train a head at every state of the extractor's encoder; return the best rate's metric.

    Args:
        extractor: the encoder, and how it reads.
        task: of whose training examples the heads learn, judged by its validation examples.
        factory: makes the head for a seed.
        metric: judges its logits.
        asked: the rates, epochs and batch size.
    """
    name, validation = extractor.encoder.name, require_validation(task)
    pooling = choose_head_pooling(extractor.encoder)
    extractor = replace(extractor, poolings=(pooling,))
    states = [
        read_states(extractor.read(split, None, f"reading with {name}", keep=True).states[pooling])
        for split in (task.train, validation)
    ]
    targets, right = (
        make_targets(split, task.kind, task.labels) for split in (task.train, validation)
    )
    reached: list[list[float]] = [[] for _ in states[0]]
    with extractor.timed("heads"):
        for rate in asked.head_learning_rate:
            found = train_family_probes(
                states[0],
                targets.labels,
                states[1],
                right.labels,
                factory,
                metric=metric,
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
