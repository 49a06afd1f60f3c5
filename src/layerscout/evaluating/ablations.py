"""What a tuned model predicts under edits, cut at every state and without every span of blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.data import (
    Targets,
    Task,
    describe_kind,
    draw_examples,
    evaluate,
    evaluate_all,
    expand_choices,
    make_targets,
    require_validation,
    tabulate_predictions,
)
from layerscout.errors import InputError
from layerscout.models import (
    Encoder,
    Tokens,
    eval_mode,
    find_head_token,
    take_tokens,
    warn_of_tokens,
)
from layerscout.plans import Edit, EvaluateRequest, format_edits
from layerscout.progress import Show
from layerscout.scanning import Extractor
from layerscout.scores import Metric
from layerscout.states import Examples, make_batch, make_batches, predict, resume_from_states

# The ablations that `edits` may name: every state that the head could read, every span of blocks.
ABLATIONS = ("truncate", "skip")


def ablate(
    encoder: Encoder, model: Any, data: Examples, spans: bool, show: Show
) -> tuple[np.ndarray, dict[tuple[int, int], np.ndarray]]:
    """Read every state with the head, and pass every span of blocks over if `spans` says so.

    One forward pass gives all states. A span is passed over by starting behind it, at the state
    below it: what lies below never runs again.

    Returns:
        The logits of all n examples, or of all n words, in the columns of the model: (L + 1, n, K),
        where the head reads each state; and by the first and the last block passed over, (n, K);
        where the last one is L, it is the head that reads the state below.
    """
    L, n, reads = encoder.blocks, len(data.answers), find_head_token(model)
    outputs = model.config.num_labels if data.choices == 1 else data.choices
    read, places = data, None
    if reads is not None:
        places = encoder.find_head_tokens(data.tokens, reads)
        read = replace(data, tokens=data.tokens.keep(places))
    truncated = np.zeros((L + 1, n, outputs), dtype=np.float32)
    inner = [(i, j) for i in range(1, L + 1) for j in range(i, L)] if spans else []
    skipped = {span: np.zeros((n, outputs), dtype=np.float32) for span in inner}
    grouped = make_batches(encoder, data)
    for done, rows in enumerate(grouped):
        show("judging", done, len(grouped))
        states: list[Tensor] = []
        answers = data.find_answers(rows)
        with eval_mode(model), torch.inference_mode():
            texts = expand_choices(rows, data.choices)
            flat = encoder.batch(data.tokens, texts)
            pick = partial(_pick, places=None if places is None else places[texts])
            # Whole states are kept for spans alone, which go on from them.
            encoder.visit(
                flat,
                lambda _, state: states.append(  # noqa: B023  (it is called here)
                    state if spans else pick(state)  # noqa: B023
                ),
            )
            inputs = make_batch(encoder, read, rows)
            for s, state in enumerate(states):
                seen = pick(state) if spans else state
                logits = resume_from_states(encoder, model, inputs, seen, L)
                truncated[s, answers] = data.take_outputs(rows, logits).float().cpu()
            inputs = make_batch(encoder, data, rows)
            for i, j in inner:
                logits = resume_from_states(encoder, model, inputs, states[i - 1], j)
                skipped[i, j][answers] = data.take_outputs(rows, logits).float().cpu()
    if spans:
        skipped |= {(i, L): truncated[i - 1] for i in range(1, L + 1)}
    return truncated, skipped


def _pick(state: Tensor, places: np.ndarray | None) -> Tensor:
    """Return the states of the tokens at these places, one of each text; all without places."""
    return state if places is None else take_tokens(state, places)[:, None]


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a model gave for the validation examples; logits are in the order of the task's classes.

    Attributes:
        tokens: of the examples.
        targets: what is right for them.
        truncated: logits where the head reads each state; see `ablate`.
        skipped: by the first and the last block passed over, if spans were.
        logits: those of the whole model (""), and by notation of each edit that is kept apart.
    """

    tokens: Tokens
    targets: Targets
    truncated: np.ndarray
    skipped: Mapping[tuple[int, int], np.ndarray]
    logits: Mapping[str, np.ndarray]


def predict_all(
    extractor: Extractor,
    classifier: Any,
    columns: list[int] | slice,
    task: Task,
    ablations: Collection[str],
    single: Sequence[tuple[Edit, ...]],
    seed: int,
) -> Outputs:
    """Run a classifier on the validation examples, as it is and under edits.

    Raises:
        InputError: if the logits of the whole model are not finite.
    """
    encoder, split = extractor.encoder, require_validation(task)
    tokens, targets = extractor.tokenize(split), make_targets(split, task.kind, task.labels)
    data = Examples(tokens, targets, None)
    with extractor.timed("evaluate"):
        truncated, skipped = ablate(encoder, classifier, data, "skip" in ablations, extractor.show)
        if broken := int((~np.isfinite(truncated[-1])).any(axis=1).sum()):
            raise InputError(
                f"the logits of {encoder.name} are not finite for {broken:,} of {len(targets):,} "
                "examples; use --precision float32, or another checkpoint"
            )
        truncated = truncated[:, :, columns]
        skipped = {span: logits[:, columns] for span, logits in skipped.items()}
        by_edit = {"": truncated[-1]}
        if "truncate" in ablations:
            by_edit |= {f"truncate:{s}": truncated[s] for s in range(1, encoder.blocks)}
        for number, edits in enumerate(single):
            from layerscout.models import edit

            extractor.show("judging edits", number, len(single), format_edits(edits))
            with edit(classifier, edits, seed=seed):
                logits = predict(encoder, classifier, data).numpy()
            by_edit[format_edits(edits)] = logits[:, columns]
    return Outputs(tokens, targets, truncated, skipped, by_edit)


def judge_metric(
    metric: str, targets: Targets, thresholds: np.ndarray | None, logits: np.ndarray
) -> float | None:
    """Return the metric; None where logits are not finite."""
    if not np.isfinite(logits).all():
        return None
    return evaluate(metric, targets.labels, logits, tags=targets.tags, thresholds=thresholds)


def judge_edits(
    task: Task, outputs: Outputs, edits: Sequence[tuple[Edit, ...]], thresholds: np.ndarray | None
) -> list[dict[str, Any]]:
    """Judge every edit by every metric, which is None where logits are not finite."""
    judged = []
    for name in map(format_edits, edits):
        logits, targets = outputs.logits[name], outputs.targets
        rules: dict[str, Any] = {"tags": targets.tags, "thresholds": thresholds}
        metrics = evaluate_all(task.kind, targets.labels, np.nan_to_num(logits), **rules)
        finite = bool(np.isfinite(logits).all())
        judged.append({"edit": name, "metrics": metrics if finite else dict.fromkeys(metrics)})
    return judged


def list_warnings(outputs: Outputs, encoder: Encoder, max_length: int) -> list[str]:
    """Return what the reader of the figures should know of inputs and logits."""
    warnings = warn_of_tokens(outputs.tokens, encoder, max_length)
    spans = {f"skip:{i}-{j}": logits for (i, j), logits in outputs.skipped.items()}
    named = {**outputs.logits, **spans}
    if broken := [name for name, logits in named.items() if not np.isfinite(logits).all()]:
        warnings.append(f"logits are not finite and have no value under {', '.join(broken)}")
    return warnings


def tabulate(
    task: Task, outputs: Outputs, thresholds: np.ndarray | None
) -> dict[str, Sequence[Any]]:
    """Lay the predictions of the whole model and of each edit below one another."""
    table: dict[str, list[Any]] = {}
    split, targets = require_validation(task), outputs.targets
    for name, logits in outputs.logits.items():
        columns = tabulate_predictions(task, split, targets, logits, thresholds)
        for column, values in {"edit": [name] * len(targets), **columns}.items():
            table.setdefault(column, []).extend(values)
    return dict(table)


# Training examples that heads are tuned on again at the most, unless the user says otherwise.
HEAD_EXAMPLES = 5000


def check_heads(
    heads: Sequence[Encoder],
    task: Task,
    ablations: Collection[str],
    request: EvaluateRequest,
) -> None:
    """Raise if heads cannot be tuned again; `heads` are the encoders that they are on."""
    usual = EvaluateRequest()
    for name in ("examples", "head_epochs", "head_batch_size", "head_learning_rate"):
        if not heads and getattr(request, name) != getattr(usual, name):
            raise InputError(
                f"`{name}` applies only if heads are tuned; add --tune-heads or --original"
            )
    if heads and task.kind == "token_classification":
        raise InputError(
            f"heads are not tuned again for {describe_kind(task.kind)}; leave out --tune-heads and "
            "--original"
        )
    if request.tune_heads and heads[0].dense is not None:
        raise InputError(
            f"the head of {heads[0].name} reads all tokens, so it cannot be tuned on the state of "
            "a single one; leave out --tune-heads"
        )
    if heads and "truncate" not in ablations:
        raise InputError("heads are tuned again at every state; add the edit truncate")
    for encoder in heads:
        from layerscout.models import choose_head_pooling

        choose_head_pooling(encoder)


def draw_head_examples(task: Task, request: EvaluateRequest) -> Task:
    """Return the task with the training examples that heads are tuned on."""
    usual = min(HEAD_EXAMPLES, task.train.examples)
    return draw_examples(task, request.examples or usual, request.seed)


def judge_spans(
    outputs: Outputs, judge: Callable[[np.ndarray], float | None], blocks: int
) -> list[list[float | None]]:
    """Judge every span: row i − 1 has those that begin with block i, by their last block."""
    skipped, numbers = outputs.skipped, range(1, blocks + 1)
    return [[judge(skipped[i, j]) if i <= j else None for j in numbers] for i in numbers]


def tune_heads(
    extractor: Extractor,
    task: Task,
    factory: Callable[[int], nn.Module],
    metric: Metric,
    request: EvaluateRequest,
) -> list[float | None]:
    """Train a head at every state of the extractor's encoder; return the best rate's metric.

    Args:
        extractor: the encoder, and how it reads.
        task: of whose training examples the heads learn, judged by its validation examples.
        factory: makes the head for a seed.
        metric: judges its logits.
        request: the rates, epochs and batch size.
    """
    from layerscout.models import choose_head_pooling
    from layerscout.scanning import read_states
    from layerscout.scores import train_family_probes

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
    reached = []
    with extractor.timed("heads"):
        for rate in request.head_learning_rate:
            probes = train_family_probes(
                states[0],
                targets.labels,
                states[1],
                right.labels,
                factory,
                metric=metric,
                learning_rate=rate,
                epochs=request.head_epochs,
                batch_size=request.head_batch_size,
                seeds=(request.seed,),
                choices=targets.choices,
                progress=partial(extractor.show, f"tuning heads of {name} at the rate {rate:g}"),
            )
            reached.append(probes.values)
    by_state = zip(*reached, strict=True)
    return [max((v for v in values if v is not None), default=None) for values in by_state]
