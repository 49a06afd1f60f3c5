"""Probes on every state of an encoder: trained on the sample, judged by what is held out."""

from __future__ import annotations

from functools import partial

import numpy as np

from layerscout.cache import States
from layerscout.data import Kind, Split, Task, evaluate, pearson_spearman, pick_choices
from layerscout.models import Encoder, choose_head_pooling, make_family_head
from layerscout.plans import FAMILY_RATE, FAMILY_RATES, Pooling, ScanRequest, first_state
from layerscout.scanning.context import ScanContext
from layerscout.scanning.rows import (
    choose_row_metric,
    draw_held_out,
    take_rows,
    tokenize_rows,
)
from layerscout.scanning.sampling import Sampled
from layerscout.scores import (
    SCORES,
    Metric,
    Score,
    majority,
    train_family_probes,
    train_linear_probes,
)

# Trainings of a probe on every state; of the family's head each takes minutes on a processor.
LINEAR_SEEDS, FAMILY_SEEDS = 8, 3


def choose_probe_pooling(request: ScanRequest, encoder: Encoder, kind: Kind) -> Pooling | None:
    """Choose what probes read; None for what the other scores do.

    Raises:
        InputError: if the family's head is to be trained, and cannot be on the state of one token.
    """
    head = choose_head_pooling(encoder, kind) if request.probe == "family" else None
    return request.probe_pooling or head


def train_probes(context: ScanContext, sampled: Sampled) -> dict[str, Score]:
    """Fit probes to the training examples, and judge them by all that are held out."""
    whole, family = context.held_out(), context.request.probe == "family"
    rows = draw_held_out(whole, context.request.seed)
    held_out = take_rows(whole, rows)
    encoder, seeds = context.extractor.encoder, context.request.probe_seeds
    pooling = (
        choose_probe_pooling(context.request, encoder, context.task.kind)
        or context.extractor.poolings[0]
    )
    tokens = tokenize_rows(context.extractor, whole, rows)
    kept = context.extractor.extract(tokens, "scanning the held-out")
    judged = kept.states[pooling]
    metric = _choose_judge(context.task, held_out)
    labels = sampled.split.labels, held_out.labels
    states = sampled.states[pooling]
    show = partial(context.extractor.show, "probing")
    if family:
        names = context.task.labels or ("score",)
        found = train_family_probes(
            read_states(states),
            labels[0],
            read_states(judged),
            labels[1],
            partial(make_family_head, encoder, names, kind=context.task.kind),
            metric=metric,
            seeds=seeds or FAMILY_SEEDS,
            seed=context.request.seed,
            learning_rate=FAMILY_RATES.get(context.task.name, FAMILY_RATE),
            progress=show,
        )
    else:
        found = train_linear_probes(
            states,
            labels[0],
            judged,
            labels[1],
            metric=metric,
            examples=sampled.split.groups,
            plain=context.request.probe == "plain",
            seeds=seeds or LINEAR_SEEDS,
            seed=context.request.seed,
            progress=show,
        )
    ends = [
        (None, None) if value is None or error is None else (value - error, value + error)
        for value, error in zip(found.values, found.standard_errors, strict=True)
    ]
    details = {
        "kind": context.request.probe,
        "metric": choose_row_metric(context.task),
        "majority": majority(*labels, metric),
        "standard_error": list(found.standard_errors),
        "by_seed": [list(values) for values in found.by_seed],
        "epochs": [list(epochs) for epochs in found.epochs],
        "warnings": [kept.warning] if kept.warning else [],
    }
    low, high = zip(*ends, strict=True)
    score = SCORES["probe"].score(found.values, details, low, high)
    return {"probe": score.without_embeddings() if first_state(pooling) > 0 else score}


def _choose_judge(task: Task, held_out: Split) -> Metric:
    """Choose what judges the logits of a probe on held-out examples."""
    if task.kind == "regression":
        return pearson_spearman
    metric = choose_row_metric(task)
    if task.kind == "token_classification":
        # A sample may lack tags that others have; no probe predicts those.
        return lambda labels, logits: evaluate(metric, labels, _widen(logits, len(task.labels)))
    if task.kind != "multiple_choice" or held_out.groups is None:
        return partial(evaluate, metric)
    examples = held_out.groups

    def judge_picks(labels: np.ndarray, logits: np.ndarray) -> float:
        return evaluate(metric, *pick_choices(labels, logits, examples))

    return judge_picks


def _widen(logits: np.ndarray, classes: int) -> np.ndarray:
    """Give logits for further classes, which are never the largest."""
    return np.pad(logits, ((0, 0), (0, classes - logits.shape[1])), constant_values=-np.inf)


def read_states(states: States) -> np.ndarray:
    """Read all states, (S, n, d) float32; training them all at once reads them at random."""
    found = np.empty(states.shape, dtype=np.float32)
    for s, state in enumerate(states):
        found[s] = state
    return found
