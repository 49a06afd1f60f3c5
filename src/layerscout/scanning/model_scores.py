"""Scores that need the model: probes of states, and blocks by gradients or by weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscout.data import (
    Split,
    Task,
    evaluate,
    pearson_spearman,
    pick_choices,
    sample,
)
from layerscout.plans import (
    FAMILY_RATE,
    FAMILY_RATES,
    first_state,
    weight_sets,
)
from layerscout.scanning.sampling import (
    Sampled,
    ScanContext,
    choose_row_metric,
    draw_held_out,
    take_rows,
)
from layerscout.scores import SCORES, Score, majority
from layerscout.states import States

if TYPE_CHECKING:
    from layerscout.scores import BlockScores, Metric

# Trainings of a probe on every state; of the family's head each takes minutes on a processor.
LINEAR_SEEDS, FAMILY_SEEDS = 8, 3

# Held-out examples that scores of gradients read (Lodha et al. 2023, §3.1; the code that was
# published reads one example a hundred times).
GRADIENT_EXAMPLES = 100


def train_probes(context: ScanContext, sampled: Sampled) -> dict[str, Score]:
    """Fit probes to the training examples, and judge them by all that are held out."""
    task, request, extractor = context.task, context.request, context.extractor
    whole, pooling = context.held_out(), extractor.poolings[-1]
    rows = draw_held_out(whole, request.seed)
    held_out = take_rows(whole, rows)
    extracted = extractor.read(whole, rows, "scanning the held-out", keep=True)
    states: list[Any] = [read.states[pooling] for read in (sampled.extracted, extracted)]
    labels, metric = (sampled.split.labels, held_out.labels), _choose_judge(task, held_out)
    fit: Callable[..., Any]
    if request.probe == "family":
        from layerscout.models import make_family_head
        from layerscout.scores import train_family_probes

        names = task.labels or ("score",)
        states = [read_states(each) for each in states]
        fit = partial(
            train_family_probes,
            head_factory=partial(make_family_head, extractor.encoder, names, kind=task.kind),
            seeds=range(request.seed, request.seed + (request.probe_seeds or FAMILY_SEEDS)),
            learning_rate=FAMILY_RATES.get(task.name, FAMILY_RATE),
        )
    else:
        from layerscout.scores import train_linear_probes

        fit = partial(
            train_linear_probes,
            examples=sampled.split.groups,
            plain=request.probe == "plain",
            seeds=request.probe_seeds or LINEAR_SEEDS,
            seed=request.seed,
        )
    progress = partial(extractor.show, "probing")
    probes = fit(states[0], labels[0], states[1], labels[1], metric=metric, progress=progress)
    ends = [
        (None, None) if value is None or error is None else (value - error, value + error)
        for value, error in zip(probes.values, probes.standard_errors, strict=True)
    ]
    details = {
        "kind": request.probe,
        "metric": choose_row_metric(task),
        "majority": majority(*labels, metric),
        "standard_error": list(probes.standard_errors),
        "by_seed": [list(values) for values in probes.by_seed],
        "epochs": [list(epochs) for epochs in probes.epochs],
        "warnings": list(extracted.warnings),
    }
    low, high = zip(*ends, strict=True)
    score = SCORES["probe"].score(probes.values, details, low, high)
    return {"probe": score.without_embeddings() if first_state(pooling) > 0 else score}


def _choose_judge(task: Task, held_out: Split) -> Metric:
    """Choose what judges the logits of a probe on held-out examples."""
    if task.kind == "regression":
        return pearson_spearman
    metric, examples = choose_row_metric(task), held_out.groups

    def judge(labels: np.ndarray, logits: np.ndarray) -> float:
        if task.kind == "multiple_choice" and examples is not None:
            labels, logits = pick_choices(labels, logits, examples)
        elif task.kind == "token_classification":
            # A sample may lack tags that others have; no probe predicts those.
            lacking = (0, len(task.labels) - logits.shape[1])
            logits = np.pad(logits, ((0, 0), lacking), constant_values=-np.inf)
        return evaluate(metric, labels, logits)

    return judge


def read_states(states: States) -> np.ndarray:
    """Read all states, (S, n, d) float32; training them all at once reads them at random."""
    read = np.empty(states.shape, dtype=np.float32)
    for s, state in enumerate(states):
        read[s] = state
    return read


def score_gradients(context: ScanContext, _: Sampled) -> dict[str, Score]:
    """Score blocks by gradients on held-out examples, drawn once for all such scores."""
    from layerscout.models import Gradients, note_classes

    task, request, extractor = context.task, context.request, context.extractor
    keys, split = context.select("gradients"), _draw_gradient_rows(context)
    gradients = Gradients(
        extractor.encoder,
        split,
        task.labels,
        kind=task.kind,
        seeds=range(request.seed, request.seed + request.head_seeds),
        max_length=extractor.max_length,
        progress=partial(extractor.show, "gradients"),
    )
    by_key: dict[str, BlockScores] = {}
    if "fisher" in keys:
        by_key["fisher"] = gradients.score_fisher(request.fisher_rule)
    if others := [key for key in keys if key != "fisher"]:
        by_key |= gradients.score_loss(others)
    notes = {}
    if task.labels and task.kind != "multiple_choice":  # where outputs have names; said once
        notes[keys[0]] = note_classes(extractor.encoder, task.labels, task.kind, request.seed)
    return {
        key: SCORES[key].score(
            scores.values,
            {
                **({"mode": request.fisher_rule} if key == "fisher" else {}),
                "rows": len(split),
                "spread": list(scores.spread),
                "by_seed": [list(values) for values in scores.by_seed],
                "notes": list(scores.notes),
                "warnings": [*scores.warnings, *notes.get(key, ())],
            },
        )
        for key, scores in ((key, by_key[key]) for key in keys)
    }


def _draw_gradient_rows(context: ScanContext) -> Split:
    """Draw the held-out examples that scores of gradients read; all choices of each."""
    split, classes = context.held_out(), len(context.task.labels)
    if split.examples <= GRADIENT_EXAMPLES:
        return split
    rows = max(GRADIENT_EXAMPLES * len(split) // split.examples, min(2 * classes, len(split)))
    seed = context.request.seed
    return split.take(
        sample(split, classes, examples=rows, balanced=False, per_class=None, seed=seed)
    )


def score_weights(context: ScanContext, _: Sampled) -> dict[str, Score]:
    """Score blocks by their weight matrices, found by block and by name within it."""
    encoder = context.extractor.encoder
    modules = list(encoder.model.get_submodule(encoder.family.blocks))
    matrices = {
        (block, name.removesuffix(".weight")): parameter.detach().cpu().numpy()
        for block, module in enumerate(weight_sets(encoder.blocks, len(modules)), start=1)
        for name, parameter in modules[module].named_parameters()
        if parameter.ndim == 2
    }
    return {key: SCORES[key].of_blocks(matrices) for key in context.select("weights")}
