"""Judging a tuned model under edits: cut at every state, with spans of blocks passed over."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.cache import (
    DEFAULT_LIMIT,
    Examples,
    make_batch,
    make_batches,
    predict,
    resume_from_states,
)
from layerscout.data import (
    Targets,
    Task,
    check_metric,
    draw_examples,
    ensure_validation,
    evaluate as judged,
    evaluate_all,
    expand_choices,
    make_targets,
    require_validation,
    tabulate_predictions,
)
from layerscout.models import (
    Encoder,
    Head,
    Precision,
    Tokens,
    arrange_blocks,
    base_of,
    edit,
    eval_mode,
    load_tuned_classifier,
    make_family_head,
    reads_first_token,
)
from layerscout.pages import render_result
from layerscout.plans import (
    FAMILY_RATES,
    Edit,
    EvaluateRequest,
    add_options,
    format_edits,
    make_edits,
    resolve_request,
)
from layerscout.runtime import (
    InputError,
    Show,
    make_output_folder,
    read_json,
    replace_files,
    show_progress,
)
from layerscout.scanning import Reader, cut_inputs, described_model, described_task, in_memory
from layerscout.scores import Metric, majority, train_family_probes

# Training examples that heads are tuned on again at the most, unless the user says otherwise.
HEAD_EXAMPLES = 5000

# How heads are tuned again: as Xie et al. 2022 probe (App. B.3), but at every rate of their Table 3
# and not only at the task's, because no single one suits all states.
HEAD_EPOCHS, HEAD_BATCH = 20, 8
HEAD_RATES = tuple(sorted(set(FAMILY_RATES.values())))

# The sweeps that `edits` may name: every state that the head could read, every span of blocks.
SWEEPS = ("truncate", "skip")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a tuned model reached, whole and under edits.

    Attributes:
        content: what `evaluate.json` holds.
        predictions: edit (empty for the whole model), row in the validation file, label,
            prediction and logits.
    """

    content: Mapping[str, Any]
    predictions: Mapping[str, Sequence[Any] | np.ndarray]

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric of the whole model, by name."""
        return dict(self.content["metrics"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader of the figures should know."""
        return tuple(self.content["warnings"])

    def as_dict(self) -> dict[str, Any]:
        """Give what `evaluate.json` holds."""
        return dict(self.content)

    def save(self, folder: str | Path) -> None:
        """Write `evaluate.json`, `evaluate.html` and `predictions.parquet` into `folder`.

        Raises:
            InputError: if they cannot be written.
        """
        import pandas as pd

        folder, content = make_output_folder(Path(folder).expanduser()), self.as_dict()
        names = ("evaluate.json", "evaluate.html", "predictions.parquet")
        with replace_files(*(folder / name for name in names)) as temporary:
            written = json.dumps(content, indent=1, allow_nan=False) + "\n"
            temporary[0].write_text(written, encoding="utf-8")
            temporary[1].write_text(render_result(content), encoding="utf-8")
            pd.DataFrame(self.predictions).to_parquet(temporary[2], index=False)


@add_options(EvaluateRequest)
def evaluate(
    model: str | Path,
    task: Task | str | Path,
    *,
    request: EvaluateRequest | None = None,
    original: Encoder | str | Path | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    cache_limit: int = DEFAULT_LIMIT,
    progress: bool = True,
    **options: Any,
) -> Evaluation:
    """Judge a tuned model on the validation examples, as it is and under edits.

    "truncate" in `edits` feeds the state after every block to the head (UNTUNED of Phang et al.
    2021, §4), from one forward pass. "skip" passes every span of blocks over (§4.1), each from the
    state below the span, so that a batch takes (L³ − L)/6 + L block passes.

    Args:
        model: a tuned checkpoint with its head: a folder or a hub id.
        task: a `Task`, or what `Task.load` takes. Without a validation split a tenth of the
            training rows is set aside.
        request: what is asked for, as one value in place of `options`. Heads that are tuned again
            train for 20 epochs in batches of 8 at each of `HEAD_RATES`; the best epoch of any
            counts.
        original: the model before it was tuned, to train its head at every state (TUNEDORIG).
        device: as for `Encoder.load`.
        precision: as for `Encoder.load`.
        cache_limit: bytes that the cache may hold once new states are added; 0 keeps none.
        progress: show a bar on the terminal.
        **options: everything else that may be asked for, such as `edits`: the attributes of
            `layerscout.plans.EvaluateRequest`.

    Raises:
        InputError: if the model, the data or an edit cannot be used as asked.
    """
    if not isinstance(model, str | Path):
        raise InputError("a tuned model is given by its folder or hub id; save it first")
    asked = resolve_request(EvaluateRequest, request, options)
    seed, max_length, examples = asked.seed, asked.max_length, asked.examples
    sweeps, single = _asked(asked.edits)
    task = ensure_validation(task, seed)
    metric = asked.metric or task.metric
    check_metric(metric, task.kind)
    encoder = Encoder.load(model, device=device, precision=precision)
    classifier, columns = load_tuned_classifier(encoder, task.labels, task.kind)
    encoder = replace(encoder, model=base_of(classifier)[0])
    for one in single:  # before the work that one of them could spoil
        arrange_blocks(encoder.model, one)
    if isinstance(original, str | Path):
        original = Encoder.load(original, device=device, precision=precision)
    heads = [encoder] if asked.tune_heads else []
    heads += [original] if original is not None else []
    _check_heads(heads, task, sweeps, examples)
    few = _few(task, examples, seed) if heads else task
    seconds: dict[str, float] = {}
    with show_progress(progress) as show:
        reader = Reader(encoder, ("cls",), max_length, cache_limit, show, seconds)
        tokens = reader.tokens(require_validation(task))
        right = make_targets(require_validation(task), task.kind)
        judge = _Judge(task, right, metric, columns)
        data = Examples(tokens, right.labels, None, right.choices)
        with reader.timed("evaluate"):
            swept = _swept(encoder, classifier, data, "skip" in sweeps, show)
            judge.check(encoder.name, swept.truncated[-1])
            outputs = {"": swept.truncated[-1]}
            if "truncate" in sweeps:
                outputs |= {f"truncate:{s}": swept.truncated[s] for s in range(1, encoder.blocks)}
            for number, one in enumerate(single):
                show("judging edits", number, len(single), format_edits(one))
                with edit(classifier, one, seed=seed):
                    outputs[format_edits(one)] = predict(encoder, classifier, data).numpy()
        curves: dict[str, Any] = {}
        if "truncate" in sweeps:
            curves["untuned"] = [judge.value(found) for found in swept.truncated]
        if asked.tune_heads:
            head = Head(classifier, encoder.family.final_norm, columns)
            curves["tuned"] = _heads(reader, few, metric, lambda _: head, seed)
        if original is not None:
            fresh = partial(make_family_head, original, task.labels)
            below = replace(reader, encoder=original)
            curves["tuned_original"] = _heads(below, few, metric, fresh, seed)
    return Evaluation(
        content={
            "layerscout": version("layerscout"),
            "verb": "evaluate",
            "model": described_model(encoder, task),
            "original": None if original is None else described_model(original, task),
            "task": described_task(task, require_validation(task), tokens.lengths),
            "metric": metric,
            "metrics": judge.metrics(outputs[""]),
            "majority": judge.majority(),
            "truncation": curves,
            "skips": _skips(swept, judge, encoder.blocks) if swept.skipped else None,
            "edits": [
                {"edit": format_edits(one), "metrics": judge.metrics(outputs[format_edits(one)])}
                for one in single
            ],
            "settings": {
                **task.origin,
                "max_length": max_length,
                "precision": encoder.precision,
                "device": encoder.device.type,
                "seed": seed,
                "heads": _described_heads(few) if heads else None,
                "versions": {name: version(name) for name in ("torch", "transformers")},
            },
            "warnings": [
                *task.warnings,
                *_seen_before(model, task),
                *_warnings(tokens, max_length, outputs, swept),
            ],
            "seconds": seconds,
        },
        predictions=_predictions(task, right, {k: v[:, columns] for k, v in outputs.items()}),
    )


@dataclass(frozen=True, eq=False)
class _Judge:
    """Judges the logits of a model, whose classes stand in `columns` in the order of the task's."""

    task: Task
    right: Targets
    metric: str
    columns: list[int] | slice

    def value(self, logits: np.ndarray) -> float | None:
        """Judge by the metric; None where logits are not finite."""
        if not np.isfinite(logits).all():
            return None
        return judged(self.metric, self.right.labels, logits[:, self.columns])

    def metrics(self, logits: np.ndarray) -> dict[str, float | None]:
        """Judge by every metric."""
        numbers = np.nan_to_num(logits[:, self.columns])
        found = evaluate_all(self.task.kind, self.right.labels, numbers)
        return {k: v if np.isfinite(logits).all() else None for k, v in found.items()}

    def majority(self) -> float | None:
        """Judge always giving the commonest class, or the mean."""
        if self.task.kind == "multiple_choice":
            return None
        return majority(self.task.train.labels, self.right.labels, _by(self.metric))

    def check(self, name: str, logits: np.ndarray) -> None:
        """Refuse a model whose own logits are not finite."""
        broken = len(logits) - int(np.isfinite(logits).all(axis=1).sum())
        if broken:
            raise InputError(
                f"the logits of {name} are not finite for {broken:,} of {len(logits):,} examples; "
                "use --precision float32, or mend its weights"
            )


def _asked(edits: str | Sequence[str | Edit]) -> tuple[set[str], list[tuple[Edit, ...]]]:
    """Part the sweeps from the edits that are judged one by one."""
    listed = [edits] if isinstance(edits, str) else list(edits)
    sweeps = {one for one in listed if isinstance(one, str) and one.strip() in SWEEPS}
    single = [make_edits(one) for one in listed if one not in sweeps]
    if not all(single):
        raise InputError("an edit is empty; leave it out, the whole model is always judged")
    return {one.strip() for one in sweeps}, list(dict.fromkeys(single))


def _check_heads(
    heads: Sequence[Encoder],
    task: Task,
    sweeps: Collection[str],
    examples: int | Literal["all"] | None,
) -> None:
    """Refuse what heads cannot be tuned again for; `heads` names the encoders they are on."""
    if not heads and examples is not None:
        raise InputError(
            "`examples` are what heads are tuned on, and none is; add --tune-heads or --original"
        )
    if heads and task.kind == "multiple_choice":
        raise InputError(
            "heads are tuned again for classes and numbers, not for multiple choice; leave out "
            "--tune-heads and --original"
        )
    if heads and "truncate" not in sweeps:
        raise InputError("heads are tuned again at every state; add the edit truncate")
    for encoder in heads:
        if not reads_first_token(encoder.model):
            raise InputError(
                f"the head of {encoder.name} reads all tokens, and heads are tuned again on the "
                "first one's state; leave out --tune-heads and --original"
            )


def _few(task: Task, examples: int | Literal["all"] | None, seed: int) -> Task:
    """Give the task with the training examples that heads are tuned on."""
    return draw_examples(
        task, min(HEAD_EXAMPLES, len(task.train)) if examples is None else examples, seed
    )


@dataclass(frozen=True, eq=False)
class _Swept:
    """Logits of all n examples, in the columns of the model.

    Attributes:
        truncated: (L + 1, n, K), where the head reads each state.
        skipped: by the first and the last block passed over, (n, K); where the last one is L, it is
            the head that reads the state below.
    """

    truncated: np.ndarray
    skipped: Mapping[tuple[int, int], np.ndarray]


def _swept(encoder: Encoder, model: Any, data: Examples, spans: bool, show: Show) -> _Swept:
    """Read every state with the head, and pass every span of blocks over if asked.

    One forward pass gives all states. A span is passed over by starting behind it, at the state
    below it: what lies below never runs again.
    """
    L, n, first = encoder.blocks, len(data), reads_first_token(model)
    outputs = model.config.num_labels if data.choices == 1 else data.choices
    read = replace(data, tokens=data.tokens.first()) if first else data
    truncated = np.zeros((L + 1, n, outputs), dtype=np.float32)
    inner = [(i, j) for i in range(1, L + 1) for j in range(i, L)] if spans else []
    skipped = {span: np.zeros((n, outputs), dtype=np.float32) for span in inner}
    grouped = make_batches(encoder, data)
    for done, rows in enumerate(grouped):
        show("judging", done, len(grouped))
        states: list[Tensor] = []
        with eval_mode(model), torch.inference_mode():
            flat = encoder.batch(data.tokens, expand_choices(rows, data.choices))
            # Whole states are kept for spans alone, which go on from them.
            encoder.visit(
                flat,
                lambda _, state: states.append(  # noqa: B023  (it is called here)
                    state if spans or not first else state[:, :1].clone()
                ),
            )
            inputs = make_batch(encoder, read, rows)
            for s, state in enumerate(states):
                seen = state[:, :1] if first else state
                truncated[s, rows] = (
                    resume_from_states(encoder, model, inputs, seen, L).float().cpu()
                )
            inputs = make_batch(encoder, data, rows)
            for i, j in inner:
                found = resume_from_states(encoder, model, inputs, states[i - 1], j)
                skipped[i, j][rows] = found.float().cpu()
    if spans:
        skipped |= {(i, L): truncated[i - 1] for i in range(1, L + 1)}
    return _Swept(truncated, skipped)


def _heads(
    reader: Reader, task: Task, metric: str, factory: Callable[[int], nn.Module], seed: int
) -> list[float | None]:
    """Train a head at every state of the reader's encoder; give the best of the rates at each."""
    name, validation = reader.encoder.name, require_validation(task)
    states = [
        in_memory(reader.kept(reader.tokens(split), f"reading with {name}").states["cls"])
        for split in (task.train, validation)
    ]
    reached: list[list[float]] = [[] for _ in states[0]]
    with reader.timed("heads"):
        for rate in HEAD_RATES:
            found = train_family_probes(
                states[0],
                task.train.labels,
                states[1],
                validation.labels,
                factory,
                metric=_by(metric),
                learning_rate=rate,
                epochs=HEAD_EPOCHS,
                batch_size=HEAD_BATCH,
                seed=seed,
                progress=partial(reader.show, f"tuning heads of {name} at the rate {rate:g}"),
            )
            for values, value in zip(reached, found.values, strict=True):
                if value is not None:
                    values.append(value)
    return [max(values, default=None) for values in reached]


def _by(metric: str) -> Metric:
    """Judge logits (n, K) or, of regression, numbers (n,), by a metric."""
    return lambda right, found: judged(metric, right, found.reshape(len(right), -1))


def _described_heads(few: Task) -> dict[str, Any]:
    """Tell how heads are tuned again."""
    return {
        "examples": len(few.train),
        "epochs": HEAD_EPOCHS,
        "batch_size": HEAD_BATCH,
        "learning_rates": list(HEAD_RATES),
    }


def _skips(swept: _Swept, judge: _Judge, blocks: int) -> list[list[float | None]]:
    """Judge every span: row i − 1 has those that begin with block i, by their last block."""
    numbers = range(1, blocks + 1)
    return [
        [judge.value(swept.skipped[i, j]) if i <= j else None for j in numbers] for i in numbers
    ]


def _seen_before(model: str | Path, task: Task) -> list[str]:
    """Warn where the model may have been tuned on rows that are set aside now."""
    ours = {name: task.origin.get(name) for name in ("validation", "validation_seed")}
    if ours["validation_seed"] is None:
        return []
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        theirs = read_json(Path(model).parent / "result.json")["settings"]
        if all(theirs.get(name) == value for name, value in ours.items()):
            return []
    return [
        "the data has no validation split of its own, and the rows set aside here need not be "
        "those that tuning set aside; give the same --seed and --validation, or a file"
    ]


def _warnings(
    tokens: Tokens, max_length: int, outputs: Mapping[str, np.ndarray], swept: _Swept
) -> list[str]:
    found = cut_inputs(tokens.truncated, len(tokens), max_length)
    broken = [name for name, logits in outputs.items() if not np.isfinite(logits).all()]
    broken += [
        f"skip:{first}-{last}"
        for (first, last), logits in swept.skipped.items()
        if not np.isfinite(logits).all()
    ]
    if broken:
        found.append(f"logits are not finite and have no value under {', '.join(broken)}")
    return found


def _predictions(
    task: Task, given: Targets, outputs: Mapping[str, np.ndarray]
) -> dict[str, Sequence[Any] | np.ndarray]:
    """Lay the predictions of the whole model and of each edit below one another."""
    tables = [
        {"edit": [name] * len(given), **tabulate_predictions(task, given, found)}
        for name, found in outputs.items()
    ]
    return {column: [value for table in tables for value in table[column]] for column in tables[0]}
