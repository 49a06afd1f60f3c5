"""Judging a tuned model under edits: cut at every state, with spans of blocks passed over."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.answers import (
    Answers,
    answers,
    check_metric,
    drawn,
    held_out,
    predicted,
    rows_of,
    validated,
)
from layerscout.data import Task
from layerscout.editing import edit
from layerscout.edits import Edit, make_edits, notation
from layerscout.encoder import Encoder, Precision, Tokens, eval_mode
from layerscout.errors import InputError
from layerscout.examples import Examples, batch, batches, predict, resumed
from layerscout.figures import evaluation_page
from layerscout.files import output_folder, replacing
from layerscout.heads import Head, family_head, tuned_classifier
from layerscout.metrics import evaluate as judge
from layerscout.metrics import evaluate_all
from layerscout.plans import whole
from layerscout.probes import FAMILY_RATE, FAMILY_RATES, Metric, family_probes, majority
from layerscout.progress import Show
from layerscout.progress import progress as progress_line
from layerscout.reading import Reader
from layerscout.scanning import described_model, described_task, in_memory
from layerscout.surgery import base_of, reads_first_token
from layerscout.trunks import DEFAULT_LIMIT

# Training examples that heads are tuned on again at the most, unless the user says otherwise.
HEAD_EXAMPLES = 5000

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

        folder, content = output_folder(Path(folder).expanduser()), self.as_dict()
        names = ("evaluate.json", "evaluate.html", "predictions.parquet")
        with replacing(*(folder / name for name in names)) as temporary:
            written = json.dumps(content, indent=1, allow_nan=False) + "\n"
            temporary[0].write_text(written, encoding="utf-8")
            temporary[1].write_text(evaluation_page(content), encoding="utf-8")
            pd.DataFrame(self.predictions).to_parquet(temporary[2], index=False)


def evaluate(
    model: str | Path,
    task: Task | str | Path,
    *,
    edits: str | Sequence[str | Edit] = ("truncate",),
    tune_heads: bool = False,
    original: Encoder | str | Path | None = None,
    metric: str | None = None,
    examples: int | Literal["all"] | None = None,
    max_length: int = 128,
    device: str = "auto",
    precision: Precision = "float32",
    seed: int = 0,
    cache_limit: int = DEFAULT_LIMIT,
    progress: bool = True,
) -> Evaluation:
    """Judge a tuned model on the validation examples, as it is and under edits.

    "truncate" in `edits` feeds the state after every block to the head (UNTUNED of Phang et al.
    2021, §4), from one forward pass. "skip" passes every span of blocks over (§4.1), each from the
    state below the span, so that a batch takes (L³ − L)/6 + L block passes.

    Args:
        model: a tuned checkpoint with its head: a folder or a hub id.
        task: a `Task`, or what `Task.load` takes. Without a validation split a tenth of the
            training rows is set aside.
        edits: "truncate", "skip", and edits such as "skip:3-4" or "permute:1".
        tune_heads: also train the tuned head again at every state (TUNED), with the encoder as it
            is: 20 epochs in batches of 8, the best epoch counts.
        original: the model before it was tuned, to train its head at every state (TUNEDORIG).
        metric: a key of `layerscout.metrics.METRICS_OF` for the task's kind; None for the task's.
        examples: training examples that heads are trained on, in proportion to the classes; None
            for at most `HEAD_EXAMPLES`.
        max_length: tokens kept of an input.
        device: as for `Encoder.load`.
        precision: as for `Encoder.load`.
        seed: of rows set aside or drawn, of edits, and of the training of heads.
        cache_limit: bytes that the cache may hold once new states are added; 0 keeps none.
        progress: show a bar on the terminal.

    Raises:
        InputError: if the model, the data or an edit cannot be used as asked.
    """
    seed, max_length = whole("seed", seed, 0), whole("max_length", max_length, 1)
    sweeps, single = _asked(edits)
    task = validated(task, seed)
    metric = task.metric if metric is None else metric
    check_metric(metric, task.kind)
    heads = tune_heads or original is not None
    _check_heads(heads, task, sweeps)
    encoder = Encoder.load(model, device=device, precision=precision)
    classifier, columns = tuned_classifier(encoder, task.labels, task.kind)
    encoder = replace(encoder, model=base_of(classifier)[0])
    for one in single:  # before the work that one of them could spoil
        edit(classifier, one, seed=seed).close()
    if heads and not reads_first_token(classifier):
        raise InputError(
            f"the head of {encoder.name} reads all tokens, and heads are tuned again on the first "
            "one's state; leave out --tune-heads and --original"
        )
    if isinstance(original, str | Path):
        original = Encoder.load(original, device=device, precision=precision)
    validation = held_out(task)
    given = answers(validation, task.kind)
    few = _few(task, examples, seed) if heads else task
    seconds: dict[str, float] = {}
    with progress_line(progress) as show:
        reader = Reader(encoder, ("cls",), max_length, cache_limit, show, seconds)
        tokens = reader.tokens(validation)
        data = Examples(tokens, given.labels, None, given.choices)
        with reader.timed("evaluate"):
            swept = _swept(encoder, classifier, data, "skip" in sweeps, show)
            outputs = {"": swept.truncated[-1]}
            if "truncate" in sweeps:
                outputs |= {f"truncate:{s}": swept.truncated[s] for s in range(1, encoder.blocks)}
            for number, one in enumerate(single):
                show("judging edits", number, len(single), notation(one))
                with edit(classifier, one, seed=seed):
                    outputs[notation(one)] = predict(encoder, classifier, data).numpy()
        outputs = {name: found[:, columns] for name, found in outputs.items()}
        curves: dict[str, Any] = {}
        if "truncate" in sweeps:
            curves["untuned"] = [
                judge(metric, given.labels, found[:, columns]) for found in swept.truncated
            ]
        if tune_heads:
            head = Head(classifier, encoder.family.final_norm, columns)
            curves["tuned"] = _heads(reader, few, metric, lambda _: head, seed)
        if original is not None:
            base = original
            below = replace(reader, encoder=base)
            fresh = partial(family_head, base, task.labels)
            curves["tuned_original"] = _heads(below, few, metric, fresh, seed)
    return Evaluation(
        content={
            "layerscout": version("layerscout"),
            "verb": "evaluate",
            "model": described_model(encoder, task),
            "original": None if original is None else original.name,
            "task": described_task(task, validation, tokens.lengths),
            "metric": metric,
            "metrics": evaluate_all(task.kind, given.labels, outputs[""]),
            "majority": _majority(task, given, metric),
            "truncation": curves,
            "skips": _skips(swept, metric, given.labels, columns),
            "edits": [
                {
                    "edit": notation(one),
                    "metrics": evaluate_all(task.kind, given.labels, outputs[notation(one)]),
                }
                for one in single
            ],
            "settings": {
                **task.origin,
                "max_length": max_length,
                "precision": encoder.precision,
                "device": encoder.device.type,
                "seed": seed,
                "examples": len(few.train) if heads else None,
                "versions": {name: version(name) for name in ("torch", "transformers")},
            },
            "warnings": [*task.warnings, *_warnings(tokens, max_length)],
            "seconds": seconds,
        },
        predictions=_predictions(task, given, outputs),
    )


def _asked(edits: str | Sequence[str | Edit]) -> tuple[set[str], list[tuple[Edit, ...]]]:
    """Part the sweeps from the edits that are judged one by one."""
    listed = [edits] if isinstance(edits, str) else list(edits)
    sweeps = {one for one in listed if isinstance(one, str) and one.strip() in SWEEPS}
    single = [make_edits(one) for one in listed if one not in sweeps]
    if not all(single):
        raise InputError("an edit is empty; leave it out, the whole model is always judged")
    return {one.strip() for one in sweeps}, list(dict.fromkeys(single))


def _check_heads(heads: bool, task: Task, sweeps: Collection[str]) -> None:
    if heads and task.kind == "multiple_choice":
        raise InputError(
            "heads are tuned again for classes and numbers, not for multiple choice; leave out "
            "--tune-heads and --original"
        )
    if heads and "truncate" not in sweeps:
        raise InputError("heads are tuned again at every state; add the edit truncate")


def _few(task: Task, examples: int | Literal["all"] | None, seed: int) -> Task:
    """Give the task with the training examples that heads are tuned on."""
    return drawn(task, min(HEAD_EXAMPLES, len(task.train)) if examples is None else examples, seed)


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
    grouped = batches(encoder, data)
    for done, rows in enumerate(grouped):
        show("judging", done, len(grouped))
        states: list[Tensor] = []
        with eval_mode(model), torch.inference_mode():
            flat = encoder.batch(data.tokens, rows_of(rows, data.choices))
            encoder.visit(flat, lambda _, state: states.append(state))  # noqa: B023  (called here)
            inputs = batch(encoder, read, rows)
            for s, state in enumerate(states):
                seen = state[:, :1] if first else state
                truncated[s, rows] = resumed(encoder, model, inputs, seen, L).float().cpu()
            inputs = batch(encoder, data, rows)
            for i, j in inner:
                found = resumed(encoder, model, inputs, states[i - 1], j)
                skipped[i, j][rows] = found.float().cpu()
    if spans:
        skipped |= {(i, L): truncated[i - 1] for i in range(1, L + 1)}
    return _Swept(truncated, skipped)


def _heads(
    reader: Reader, task: Task, metric: str, factory: Callable[[int], nn.Module], seed: int
) -> list[float | None]:
    """Train a head at every state of the reader's encoder, all at once, and judge each."""
    name, validation = reader.encoder.name, held_out(task)
    states = [
        in_memory(reader.kept(reader.tokens(split), f"reading with {name}").states["cls"])
        for split in (task.train, validation)
    ]
    with reader.timed("heads"):
        found = family_probes(
            states[0],
            task.train.labels,
            states[1],
            validation.labels,
            factory,
            metric=_judging(metric),
            learning_rate=FAMILY_RATES.get(task.name, FAMILY_RATE),
            seed=seed,
            progress=partial(reader.show, f"tuning the head at every state of {name}"),
        )
    return list(found.values)


def _judging(metric: str) -> Metric:
    """Judge logits (n, K) or, of regression, numbers (n,)."""
    return lambda right, found: judge(metric, right, found.reshape(len(right), -1))


def _majority(task: Task, given: Answers, metric: str) -> float | None:
    if task.kind == "multiple_choice":
        return None
    return majority(task.train.labels, given.labels, _judging(metric))


def _skips(
    swept: _Swept, metric: str, labels: np.ndarray, columns: list[int] | slice
) -> list[list[float | None]] | None:
    """Judge every span: row i − 1 has those that begin with block i, by their last block."""
    if not swept.skipped:
        return None
    L = max(last for _, last in swept.skipped)
    return [
        [
            judge(metric, labels, swept.skipped[i, j][:, columns]) if i <= j else None
            for j in range(1, L + 1)
        ]
        for i in range(1, L + 1)
    ]


def _warnings(tokens: Tokens, max_length: int) -> list[str]:
    if not tokens.truncated:
        return []
    return [
        f"{tokens.truncated:,} of {len(tokens):,} inputs were longer than {max_length} tokens and "
        "were cut (--max-length)"
    ]


def _predictions(
    task: Task, given: Answers, outputs: Mapping[str, np.ndarray]
) -> dict[str, Sequence[Any] | np.ndarray]:
    """Lay the predictions of the whole model and of each edit below one another."""
    tables = [
        {"edit": [name] * len(given), **predicted(task, given, found)}
        for name, found in outputs.items()
    ]
    return {column: [value for table in tables for value in table[column]] for column in tables[0]}
