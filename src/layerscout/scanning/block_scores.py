"""Scores of blocks that need no states: from gradients of a classifier, and from weights alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from layerscout.data import Split, sample
from layerscout.models import Encoder, fisher, gradient_scores
from layerscout.plans import weight_sets
from layerscout.scanning.context import ScanContext
from layerscout.scanning.sampling import Sampled
from layerscout.scores import SCORES, BlockScores, Score

# Held-out examples that scores of gradients read (Lodha et al. 2023, §3.1; the code that was
# published reads one example a hundred times).
GRADIENT_EXAMPLES = 100


def score_gradients(context: ScanContext, _: Sampled) -> dict[str, Score]:
    """Score blocks by gradients on held-out examples, drawn once for all such scores."""
    keys, task, encoder = context.select("gradients"), context.task, context.extractor.encoder
    split = _draw(context.held_out(), len(task.labels), context.request.seed)
    seeds = range(context.request.seed, context.request.seed + context.request.head_seeds)
    found: dict[str, BlockScores] = {}
    if "fisher" in keys:
        found["fisher"] = fisher(
            encoder,
            split,
            task.labels,
            kind=task.kind,
            mode=context.request.fisher_mode,
            as_released=context.request.as_released,
            seeds=seeds,
            parts=context.request.fisher_parts,
            max_length=context.extractor.max_length,
            progress=lambda done, total: context.extractor.show("Fisher information", done, total),
        )
    if set(keys) - {"fisher"}:
        found |= gradient_scores(
            encoder,
            split,
            task.labels,
            kind=task.kind,
            seeds=seeds,
            max_length=context.extractor.max_length,
            progress=lambda done, total: context.extractor.show("gradients", done, total),
        )
    scores = {key: _make_score(key, found[key], len(split)) for key in keys}
    if "fisher" in scores:
        mode = "as_released" if context.request.as_released else context.request.fisher_mode
        details = {"mode": mode, **scores["fisher"].details}
        scores["fisher"] = replace(scores["fisher"], details=details)
    return scores


def score_weights(context: ScanContext, _: Sampled) -> dict[str, Score]:
    """Score blocks by their weight matrices."""
    matrices = _read_matrices(context.extractor.encoder)
    return {key: SCORES[key].of_weights(matrices) for key in context.select("weights")}


def _draw(split: Split, classes: int, seed: int) -> Split:
    """Draw the held-out examples that scores of gradients read; all choices of each."""
    examples = len(split) if split.groups is None else len(np.unique(split.groups))
    if examples <= GRADIENT_EXAMPLES:
        return split
    rows = max(GRADIENT_EXAMPLES * len(split) // examples, min(2 * classes, len(split)))
    return split.take(
        sample(split, classes, examples=rows, balanced=False, per_class=None, seed=seed)
    )


def _make_score(key: str, found: BlockScores, rows: int) -> Score:
    details: dict[str, Any] = {
        "rows": rows,
        "spread": list(found.spread),
        "by_seed": [list(values) for values in found.by_seed],
        "notes": list(found.notes),
        "warnings": list(found.warnings),
    }
    if found.parts is not None:
        details["parts"] = {part: list(values) for part, values in found.parts.items()}
    return SCORES[key].score(found.values, details)


def _read_matrices(encoder: Encoder) -> dict[tuple[int, str], np.ndarray]:
    """Give the weight matrices of every block, by block and name within it."""
    modules = list(encoder.model.get_submodule(encoder.family.blocks))
    return {
        (block, name.removesuffix(".weight")): parameter.detach().cpu().numpy()
        for block, module in enumerate(weight_sets(encoder.blocks, len(modules)), start=1)
        for name, parameter in modules[module].named_parameters()
        if parameter.ndim == 2
    }
