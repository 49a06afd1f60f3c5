"""Scoring every state and block of an encoder on a task, from one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from layerscout.cache import DEFAULT_LIMIT
from layerscout.data import HELD_OUT, Task
from layerscout.models import Encoder
from layerscout.pages import name_labels
from layerscout.plans import (
    Pooling,
    ScanRequest,
    add_options,
    options_of,
    resolve_request,
    usual_pooling,
)
from layerscout.runtime import InputError, Show, log_warnings, show_progress
from layerscout.scanning.block_scores import score_gradients, score_weights
from layerscout.scanning.context import ScanContext
from layerscout.scanning.description import describe_model, describe_task, diagnose
from layerscout.scanning.extraction import Extractor, warn_of_cut_inputs
from layerscout.scanning.probing import choose_probe_pooling, train_probes
from layerscout.scanning.result import Scan
from layerscout.scanning.sampling import (
    Sampled,
    Sampling,
    keep_sample,
    stream_sample,
    tokenize_sample,
)
from layerscout.scanning.scoring import (
    refuse_score,
    score_moments,
    score_states,
    warn_of_rare_classes,
)
from layerscout.scores import (
    LARGEST,
    SCORES,
    Score,
    Source,
    applicable,
    rank_movement,
    usual_scores,
)

if TYPE_CHECKING:
    from layerscout.plans import ScanOptions

# What computes the scores that need more than states; its time is counted under the source.
WITH_MODEL: Mapping[Source, Callable[[ScanContext, Sampled], dict[str, Score]]] = {
    "probes": train_probes,
    "gradients": score_gradients,
    "weights": score_weights,
}


@add_options(ScanRequest)
def scan(
    encoder: Encoder | str | Path,
    task: Task | str | Path,
    *,
    request: ScanRequest | None = None,
    checkpoints: Sequence[Encoder | str | Path] = (),
    cache_limit: int = DEFAULT_LIMIT,
    progress: bool | Show = True,
    **options: Unpack[ScanOptions],
) -> Scan:
    """Score every state and block of an encoder on a task, without training it.

    Scores of states read the training split. One forward pass gives all L + 1 states of an
    example, pooled at once. Scores that need no more than sums add them up as they come, so that
    memory does not grow with the examples; for the others the pooled states are kept on disk,
    where the next scan finds them. Fisher information and the other scores of gradients read
    100 held-out examples; probes are fitted to the training examples and judged by the held-out
    ones. Where the data has no validation split, a tenth is set aside.

    Args:
        encoder: an `Encoder`, or what `Encoder.load` takes.
        task: a `Task`, or what `Task.load` takes.
        request: what is asked for, as one value in place of `options`.
        checkpoints: further checkpoints of the same model, in the order of its training; their
            scores show how the ranks of states and blocks move.
        cache_limit: bytes that the cache may take on disk; 0 keeps nothing there.
        progress: show a bar on the terminal; or a function, which is called in its place with the
            stage of the work, how much of it is done, of how much, and a note.
        **options: everything else that may be asked for, such as `scores` or `examples`: the
            attributes of `layerscout.plans.ScanRequest`.

    Raises:
        InputError: if the model or the data cannot be used as asked.
    """
    asked = resolve_request(ScanRequest, request, options)
    task = task if isinstance(task, Task) else Task.load(task)
    numbers = task.kind == "regression"
    if numbers and np.abs(task.train.labels).max() > LARGEST:
        raise InputError(f"the numbers of {task.name} must be below {LARGEST:g}; scale them")
    keys = applicable(asked.scores or usual_scores(numbers=numbers), numbers=numbers)
    if task.validation is None and any(SCORES[key].held_out for key in keys):
        with suppress(InputError):  # the scores that do without are computed all the same
            task = task.hold_out(HELD_OUT, asked.seed)
    encoder = encoder if isinstance(encoder, Encoder) else Encoder.load(encoder)
    for checkpoint in checkpoints:  # before the work that one of them could spoil
        _load_checkpoint(checkpoint, encoder)
    found = _scan_encoder(encoder, task, keys, asked, cache_limit, progress)
    if not checkpoints:
        return found
    same = replace(asked, examples=found.task.get("words_used", found.task["examples_used"]))
    if asked.per_class is not None:
        same = replace(asked, examples="all")
    others = [
        _scan_encoder(_load_checkpoint(each, encoder), task, keys, same, cache_limit, progress)
        for each in checkpoints
    ]
    return replace(found, stability=_compare_ranks([found, *others], keys))


def _scan_encoder(
    encoder: Encoder,
    task: Task,
    keys: Sequence[str],
    request: ScanRequest,
    cache_limit: int,
    progress: bool | Show,
) -> Scan:
    words = task.kind == "token_classification"
    pooling = request.pooling or usual_pooling(encoder.family.reads, words=words)
    request = replace(request, pooling=pooling)
    poolings: tuple[Pooling, ...] = (pooling,)
    if any(SCORES[key].source == "probes" for key in keys):
        read = choose_probe_pooling(request, encoder, task.kind) or pooling
        poolings = tuple(dict.fromkeys((pooling, read)))
    with show_progress(progress) as show:
        extractor = Extractor(encoder, poolings, request.max_length, cache_limit, show)
        context = ScanContext(task, keys, request, extractor)
        sampled = _draw_sample(context)
        if sampled.sample is not None:
            sampled = replace(sampled, sample=replace(sampled.sample, clusters=request.clusters))
        scores, broken = _compute_scores(context, sampled)
    result = Scan(
        model=describe_model(encoder, task),
        task=describe_task(task, sampled.split, sampled.lengths),
        settings={
            **task.origin,
            **record_request(request),
            "precision": encoder.precision,
            "device": encoder.device.type,
            "examples_because": sampled.because,
            "examples_available": Sampling(task, request).available,
            "versions": {name: version(name) for name in ("torch", "transformers")},
        },
        scores=scores,
        warnings=(
            *encoder.notes,
            *task.warnings,
            *_collect_warnings(context, sampled, scores, broken),
        ),
        seconds={"tokenize": 0.0, "forward": 0.0, "scores": 0.0} | extractor.seconds,
        diagnostics=diagnose(scores),
    )
    log_warnings(__name__, result.warnings)
    return result


def record_request(request: ScanRequest) -> dict[str, Any]:
    """Return what `settings` of `scan.json` holds of a request."""
    found = {name: getattr(request, name) for name in options_of(ScanRequest) if name != "scores"}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}


def _draw_sample(context: ScanContext) -> Sampled:
    """Read the training examples as far as the scores need it."""
    sampling = Sampling(context.task, context.request)
    # Sums over classes do not tell the labels of an example apart.
    several = context.task.kind == "multi_label_classification"
    kept = ("moments",) if several else ()
    if context.select("state", "states", "probes", *kept):
        decide = next(
            (
                key
                for key in context.keys
                if SCORES[key].jackknife and (SCORES[key].together or not several)
            ),
            None,
        )
        return keep_sample(context.extractor, sampling, decide=decide)
    if context.select("moments"):
        return stream_sample(context.extractor, sampling)
    return tokenize_sample(context.extractor, sampling)


def _compute_scores(context: ScanContext, sampled: Sampled) -> tuple[dict[str, Score], list[int]]:
    """Compute all scores; one that refuses leaves the others alone, unless it is alone.

    Returns:
        The scores, and the states that hold values that are not finite.

    Raises:
        InputError: if every score refuses.
    """
    with context.extractor.timed("scores"):
        found, broken = _score_states(context, sampled)
    for source, compute in WITH_MODEL.items():
        if keys := context.select(source):
            with context.extractor.timed(source):
                try:
                    found |= compute(context, sampled)
                except InputError as reason:
                    found |= {key: refuse_score(key, context.blocks, reason) for key in keys}
    reasons = [score.details.get("refused") for score in found.values()]
    if all(reasons):
        raise InputError(str(reasons[0]))
    return {key: found[key] for key in context.keys}, broken


def _score_states(context: ScanContext, sampled: Sampled) -> tuple[dict[str, Score], list[int]]:
    pooling, keys = context.extractor.poolings[0], context.select("moments", "state", "states")
    if sampled.sample is not None:
        return score_states(
            sampled.states[pooling],
            sampled.sample,
            keys,
            looks=sampled.looks,
            known=sampled.known,
            progress=lambda done, total: context.extractor.show("scoring", done, total, "states"),
        )
    if sampled.moments is None:
        return {}, []
    return score_moments(sampled.moments, keys, pooling)


def _load_checkpoint(checkpoint: Encoder | str | Path, first: Encoder) -> Encoder:
    """Load another checkpoint of a model as the first one was loaded."""
    other = checkpoint
    if not isinstance(other, Encoder):
        other = Encoder.load(other, device=str(first.device), precision=first.precision)
    kinds = [(each.model.config.model_type, each.blocks) for each in (first, other)]
    if kinds[0] != kinds[1]:
        told = [
            f"{each.name} ({family}, {blocks} blocks)"
            for each, (family, blocks) in zip((first, other), kinds, strict=True)
        ]
        raise InputError(
            f"checkpoints must be of one model, got {told[0]} and {told[1]}; scan them one by one"
        )
    return other


def _compare_ranks(scans: Sequence[Scan], keys: Sequence[str]) -> dict[str, Any]:
    """Tell how the ranks move over scans of several checkpoints of a model."""
    moved = {
        key: rank_movement([scan.scores[key].values for scan in scans], SCORES[key].better)
        for key in keys
    }
    return {
        "checkpoints": [scan.model["name"] for scan in scans],
        "scores": {
            key: {"values": [list(scan.scores[key].values) for scan in scans], **asdict(movement)}
            for key, movement in moved.items()
        },
    }


def _collect_warnings(
    context: ScanContext, sampled: Sampled, scores: Mapping[str, Score], broken: Sequence[int]
) -> list[str]:
    found, used = list(sampled.notes), len(sampled.split)
    found += warn_of_cut_inputs(sampled.truncated, used, context.extractor.max_length)
    if sampled.empty:
        found.append(
            f"{sampled.empty:,} of {used:,} inputs have no ordinary token; the tokenizer's special "
            "tokens are read instead"
        )
    if broken:
        found.append(f"states {broken} hold values that are not finite and have no score")
    found += warn_of_rare_classes(scores, context.task.labels, name_labels(context.task.kind))
    for key, score in scores.items():
        if "refused" in score.details:
            found.append(f"{key} was left out: {score.details['refused']}")
        found += [f"{key}: {note}" for note in score.details.get("warnings", ())]
    plug_in = [scores[key] for key in context.select("moments")]
    if not broken and any(
        score.best() is None and "refused" not in score.details for score in plug_in
    ):
        found.append(
            "the class means are the same at every state, so no state separates the classes; "
            "check the labels and the column that is read as text"
        )
    return found
