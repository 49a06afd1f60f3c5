"""Scoring every state and block of an encoder on a task, from one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from layerscout.data import HELD_OUT, Task, describe_task
from layerscout.errors import InputError
from layerscout.models import (
    Encoder,
    Precision,
    describe_model,
    hash_base,
    warn_of_cut_inputs,
    warn_of_dropped_words,
)
from layerscout.plans import (
    Pooling,
    ScanRequest,
    add_options,
    options_of,
    resolve_request,
    usual_pooling,
)
from layerscout.progress import Show, log_warnings, show_progress
from layerscout.reporting import name_labels
from layerscout.scanning.extraction import Extractor, ReadingForecast
from layerscout.scanning.model_scores import (
    score_gradients,
    score_weights,
    train_probes,
)
from layerscout.scanning.result import Scan
from layerscout.scanning.sampling import Sampled, ScanContext, draw_sample
from layerscout.scanning.scoring import (
    refuse_score,
    score_moments,
    score_states,
    warn_of_rare_classes,
)
from layerscout.scores import (
    SCORES,
    Score,
    Source,
    against_probe,
    agreement,
    list_usual_scores,
    rank_movement,
    read_score_keys,
    smoothness,
)
from layerscout.states import DEFAULT_LIMIT

if TYPE_CHECKING:
    from layerscout.cluster import Cluster
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
    cluster: Cluster | None = None,
    precision: Precision = "float32",
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
        request: the options as one value, in place of `options`.
        checkpoints: further checkpoints of the same model, in the order of its training; their
            scores show how the ranks of states and blocks move.
        cluster: whose machines share the forward pass. They load the encoder by its name, and
            keep states in a cache that all of them, and this machine, must see.
        precision: as for `Encoder.load`, where an encoder is loaded.
        cache_limit: bytes that the cache may take on disk; 0 keeps nothing there.
        progress: show a bar on the terminal; or a function, which is called in its place with the
            stage of the work, how much of it is done, of how much, and a note.
        **options: all other options, such as `scores` or `examples`: the attributes of
            `layerscout.plans.ScanRequest`.

    Raises:
        InputError: if the model or the data cannot be used as requested.
    """
    request = resolve_request(ScanRequest, request, options)
    task = task if isinstance(task, Task) else Task.load(task)
    numbers = task.kind == "regression"
    keys = read_score_keys(request.scores or list_usual_scores(numbers=numbers), numbers=numbers)
    if task.validation is None and any(SCORES[key].held_out for key in keys):
        with suppress(InputError):  # the scores that do without are computed all the same
            task = task.hold_out(HELD_OUT, request.seed)
    first = _load_first(encoder, precision, on_cluster=cluster is not None)
    for checkpoint in checkpoints:  # before the work that one of them could spoil
        _load_checkpoint(checkpoint, first)
    scans: list[Scan] = []
    with show_progress(progress) as show, _join(cluster, precision) as extract:
        for model in (first, *checkpoints):
            encoder = first if model is first else _load_checkpoint(model, first)
            poolings = _choose_poolings(encoder, task, keys, request)
            watch = ReadingForecast(show) if progress is True and not scans else show
            extractor = extract(encoder, poolings, request.max_length, cache_limit, watch)
            context = ScanContext(task, keys, replace(request, pooling=poolings[0]), extractor)
            sampled = draw_sample(context)
            scores, broken = _compute_scores(context, sampled)
            scans.append(_conclude(context, sampled, scores, broken))
            log_warnings(__name__, scans[-1].warnings)
            if checkpoints and len(scans) == 1:  # the others read as many examples
                used = scans[0].task.get("words_used", scans[0].task["examples_used"])
                request = replace(request, examples="all" if request.per_class else used)
    return replace(scans[0], stability=_compare_ranks(scans, keys)) if checkpoints else scans[0]


def _load_first(
    encoder: Encoder | str | Path, precision: Precision, *, on_cluster: bool
) -> Encoder:
    """Load the first model; where a cluster reads the rows, what is left is done on a processor."""
    if not on_cluster:
        return (
            encoder if isinstance(encoder, Encoder) else Encoder.load(encoder, precision=precision)
        )
    if isinstance(encoder, Encoder):
        raise InputError(
            "the machines of a cluster load the model by its name, got an Encoder; give its folder "
            "or hub id"
        )
    return Encoder.load(encoder, device="cpu")


def _load_checkpoint(checkpoint: Encoder | str | Path, first: Encoder) -> Encoder:
    """Load another checkpoint of a model as the first one was loaded."""
    other = checkpoint
    if not isinstance(other, Encoder):
        other = Encoder.load(other, device=str(first.device), precision=first.precision)
    kinds = [f"{each.model.config.model_type}, {each.blocks} blocks" for each in (first, other)]
    if kinds[0] != kinds[1]:
        raise InputError(
            f"checkpoints must be of one model, got {first.name} ({kinds[0]}) and {other.name} "
            f"({kinds[1]}); scan them one by one"
        )
    return other


def _join(
    cluster: Cluster | None, precision: Precision
) -> AbstractContextManager[Callable[..., Extractor]]:
    """Join a cluster, if there is one; what is entered makes the extractor of an encoder."""
    if cluster is None:
        return nullcontext(Extractor)
    from layerscout.scanning.cluster import join_cluster

    return join_cluster(cluster, precision)


def _choose_poolings(
    encoder: Encoder, task: Task, keys: Sequence[str], request: ScanRequest
) -> tuple[Pooling, ...]:
    """Choose how states are pooled for the scores, and last for probes if that is another way.

    Raises:
        InputError: if the family's head is to be trained, and cannot be on the state of one token.
    """
    words = task.kind == "token_classification"
    pooling = request.pooling or usual_pooling(encoder.family.reads, words=words)
    probed = pooling
    if any(SCORES[key].source == "probes" for key in keys):
        if request.probe == "family":
            from layerscout.models import choose_head_pooling

            probed = choose_head_pooling(encoder, task.kind)
        probed = request.probe_pooling or probed
    return (pooling,) if probed == pooling else (pooling, probed)


def _compute_scores(context: ScanContext, sampled: Sampled) -> tuple[dict[str, Score], list[int]]:
    """Compute all scores; one that refuses leaves the others alone, unless it is alone.

    Returns:
        The scores, and the states that hold values that are not finite.

    Raises:
        InputError: if every score refuses.
    """
    extractor, extracted = context.extractor, sampled.extracted
    keys, pooling = context.select("moments", "state", "states"), extractor.poolings[0]
    scores: dict[str, Score] = {}
    broken: list[int] = []
    with extractor.timed("scores"):
        if sampled.sample is not None:
            scores, broken = score_states(
                extracted.states[pooling],
                sampled.sample,
                keys,
                looks=sampled.looks,
                known=sampled.known,
                progress=lambda done, total: extractor.show("scoring", done, total, "states"),
            )
        elif extracted.moments is not None:
            scores, broken = score_moments(extracted.moments, keys, pooling, sampled.left_out)
    for source, compute in WITH_MODEL.items():
        if keys := context.select(source):
            with extractor.timed(source):
                try:
                    scores |= compute(context, sampled)
                except InputError as reason:
                    blocks = extractor.encoder.blocks
                    scores |= {key: refuse_score(key, blocks, reason) for key in keys}
    reasons = [score.details.get("refused") for score in scores.values()]
    if all(reasons):
        raise InputError(str(reasons[0]))
    return {key: scores[key] for key in context.keys}, broken


def _conclude(
    context: ScanContext, sampled: Sampled, scores: Mapping[str, Score], broken: Sequence[int]
) -> Scan:
    task, request, extractor = context.task, context.request, context.extractor
    devices, precisions = zip(*sorted(sampled.extracted.machines), strict=True)
    options = {name: getattr(request, name) for name in options_of(ScanRequest) if name != "scores"}
    return Scan(
        model={
            **describe_model(extractor.encoder, task),
            "weights_sha256": hash_base(extractor.encoder, extractor.encoder.blocks),
        },
        task=describe_task(task, sampled.split, sampled.extracted.lengths),
        settings={
            **task.origin,
            **{name: list(v) if isinstance(v, tuple) else v for name, v in options.items()},
            "precision": precisions[0],
            "device": ", ".join(devices),
            "examples_because": sampled.reason,
            "examples_available": context.available,
            "versions": {name: version(name) for name in ("torch", "transformers")},
        },
        scores=scores,
        warnings=(
            *extractor.encoder.notes,
            *task.warnings,
            *_collect_warnings(context, sampled, scores, broken),
        ),
        seconds={"tokenize": 0.0, "forward": 0.0, "scores": 0.0} | extractor.seconds,
        diagnostics=_diagnose(scores),
        passed=dict(zip(("texts", "seconds"), sampled.extracted.passed, strict=True)),
    )


def _collect_warnings(
    context: ScanContext, sampled: Sampled, scores: Mapping[str, Score], broken: Sequence[int]
) -> list[str]:
    extracted, used = sampled.extracted, len(sampled.split)
    warnings = [*extracted.warnings, *warn_of_dropped_words(extracted.dropped)]
    warnings += warn_of_cut_inputs(
        extracted.cut, extracted.lengths, context.extractor.encoder, context.extractor.max_length
    )
    if extracted.empty:
        warnings.append(
            f"{extracted.empty:,} of {used:,} inputs have no ordinary token; the tokenizer's "
            "special tokens are read instead"
        )
    if broken:
        warnings.append(f"states {broken} hold values that are not finite and have no score")
    warnings += warn_of_rare_classes(scores, context.task.labels, name_labels(context.task.kind))
    for key, score in scores.items():
        if "refused" in score.details:
            warnings.append(f"{key} was left out: {score.details['refused']}")
        warnings += [f"{key}: {note}" for note in score.details.get("warnings", ())]
    plug_in = [scores[key] for key in context.select("moments")]
    if not broken and any(
        not any(value is not None for value in score.values[1:]) and "refused" not in score.details
        for score in plug_in
    ):
        warnings.append(
            "the class means are the same at every state, so no state separates the classes; "
            "check the labels and the column that is read as text"
        )
    return warnings


def _diagnose(scores: Mapping[str, Score]) -> dict[str, Any]:
    """Return how smooth the curves are, and how the scores agree with each other and the probe."""
    of_states = {key: score for key, score in scores.items() if score.of == "states"}
    diagnostics: dict[str, Any] = {
        "smoothness": {key: smoothness(score.values) for key, score in of_states.items()}
    }
    for of in ("states", "blocks"):
        if sum(score.of == of for score in scores.values()) > 1:
            diagnostics[f"agreement_of_{of}"] = asdict(agreement(scores, of))
    if "probe" in scores:
        diagnostics["against_probe"] = {
            key: asdict(against_probe(score.values, scores["probe"].values))
            for key, score in of_states.items()
            if key != "probe"
        }
    return diagnostics


def _compare_ranks(scans: Sequence[Scan], keys: Sequence[str]) -> dict[str, Any]:
    """Return how the ranks move over scans of several checkpoints of a model."""
    by_key = {key: [scan.scores[key].values for scan in scans] for key in keys}
    return {
        "checkpoints": [scan.model["name"] for scan in scans],
        "scores": {
            key: {
                "values": [list(each) for each in values],
                **asdict(rank_movement(values, SCORES[key].better)),
            }
            for key, values in by_key.items()
        },
    }
