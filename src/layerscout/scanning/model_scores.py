"""Scores that need the model: probes of states, and blocks by gradients or by weights."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscout.data import (
    Kind,
    Split,
    Task,
    evaluate,
    pearson_spearman,
    pick_choices,
    sample,
)
from layerscout.models import Encoder
from layerscout.plans import (
    FAMILY_RATE,
    FAMILY_RATES,
    Pooling,
    ScanRequest,
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


def choose_probe_pooling(request: ScanRequest, encoder: Encoder, kind: Kind) -> Pooling | None:
    """Choose what probes read; None for what the other scores do.

    Raises:
        InputError: if the family's head is to be trained, and cannot be on the state of one token.
    """
    head = None
    if request.probe == "family":
        from layerscout.models import choose_head_pooling

        head = choose_head_pooling(encoder, kind)
    return request.probe_pooling or head


def train_probes(context: ScanContext, sampled: Sampled) -> dict[str, Score]:
    """Fit probes to the training examples, and judge them by all that are held out."""
    task, request, extractor = context.task, context.request, context.extractor
    whole, encoder = context.held_out(), extractor.encoder
    rows = draw_held_out(whole, request.seed)
    held_out = take_rows(whole, rows)
    pooling = choose_probe_pooling(request, encoder, task.kind) or extractor.poolings[0]
    extracted = extractor.read(whole, rows, "scanning the held-out", keep=True)
    states, held_out_states = (read.states[pooling] for read in (sampled.extracted, extracted))
    labels, metric = (sampled.split.labels, held_out.labels), _choose_judge(task, held_out)
    options: dict[str, Any] = {
        "metric": metric,
        "seed": request.seed,
        "progress": partial(extractor.show, "probing"),
    }
    if request.probe == "family":
        from layerscout.models import make_family_head
        from layerscout.scores import train_family_probes

        names = task.labels or ("score",)
        probes = train_family_probes(
            read_states(states),
            labels[0],
            read_states(held_out_states),
            labels[1],
            partial(make_family_head, encoder, names, kind=task.kind),
            seeds=request.probe_seeds or FAMILY_SEEDS,
            learning_rate=FAMILY_RATES.get(task.name, FAMILY_RATE),
            **options,
        )
    else:
        from layerscout.scores import train_linear_probes

        probes = train_linear_probes(
            states,
            labels[0],
            held_out_states,
            labels[1],
            examples=sampled.split.groups,
            plain=request.probe == "plain",
            seeds=request.probe_seeds or LINEAR_SEEDS,
            **options,
        )
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

    def judge_words(labels: np.ndarray, logits: np.ndarray) -> float:
        # A sample may lack tags that others have; no probe predicts those.
        lacking = (0, len(task.labels) - logits.shape[1])
        return evaluate(metric, labels, np.pad(logits, ((0, 0), lacking), constant_values=-np.inf))

    if task.kind == "token_classification":
        return judge_words
    if task.kind != "multiple_choice" or examples is None:
        return partial(evaluate, metric)

    def judge_picks(labels: np.ndarray, logits: np.ndarray) -> float:
        return evaluate(metric, *pick_choices(labels, logits, examples))

    return judge_picks


def read_states(states: States) -> np.ndarray:
    """Read all states, (S, n, d) float32; training them all at once reads them at random."""
    read = np.empty(states.shape, dtype=np.float32)
    for s, state in enumerate(states):
        read[s] = state
    return read


def score_gradients(context: ScanContext, _: Sampled) -> dict[str, Score]:
    """Score blocks by gradients on held-out examples, drawn once for all such scores."""
    from layerscout.models import fisher, gradient_scores

    task, request, extractor = context.task, context.request, context.extractor
    keys, split = context.select("gradients"), _draw_gradient_rows(context)
    shared: dict[str, Any] = {
        "kind": task.kind,
        "seeds": range(request.seed, request.seed + request.head_seeds),
        "max_length": extractor.max_length,
    }
    by_key: dict[str, BlockScores] = {}
    if "fisher" in keys:
        by_key["fisher"] = fisher(
            extractor.encoder,
            split,
            task.labels,
            mode=request.fisher_rule,
            parts=request.fisher_parts,
            progress=partial(extractor.show, "Fisher information"),
            **shared,
        )
    if set(keys) - {"fisher"}:
        show = partial(extractor.show, "gradients")
        by_key |= gradient_scores(extractor.encoder, split, task.labels, progress=show, **shared)
    scores = {key: _make_block_score(key, by_key[key], len(split)) for key in keys}
    if "fisher" in scores:
        details = {"mode": request.fisher_rule, **scores["fisher"].details}
        scores["fisher"] = replace(scores["fisher"], details=details)
    return scores


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


def _make_block_score(key: str, scores: BlockScores, rows: int) -> Score:
    details: dict[str, Any] = {
        "rows": rows,
        "spread": list(scores.spread),
        "by_seed": [list(values) for values in scores.by_seed],
        "notes": list(scores.notes),
        "warnings": list(scores.warnings),
    }
    if scores.parts is not None:
        details["parts"] = {part: list(values) for part, values in scores.parts.items()}
    return SCORES[key].score(scores.values, details)


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
