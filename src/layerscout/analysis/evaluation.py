"""Judging a tuned model under edits: cut at every state, with spans of blocks passed over."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from layerscout.analysis.ablations import ABLATIONS, Ablated, ablate
from layerscout.analysis.tuned_heads import (
    check_heads,
    describe_heads,
    draw_head_examples,
    tune_heads,
)
from layerscout.cache import DEFAULT_LIMIT, Examples, predict
from layerscout.data import (
    REPEATED,
    Targets,
    Task,
    check_metric,
    count_repeated,
    describe_kind,
    ensure_validation,
    evaluate as compute_metric,
    evaluate_all,
    list_metrics,
    make_targets,
    read_classes,
    reload_task,
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
    holds_trained,
    load_trained,
    load_tuned_classifier,
    make_family_head,
    match_columns,
    read_thresholds,
)
from layerscout.pages import describe_tuning, list_chosen, render_result
from layerscout.plans import (
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
    check_no_tuning,
    log_warnings,
    make_output_folder,
    read_json,
    replace_files,
    show_progress,
)
from layerscout.scanning import (
    Extractor,
    describe_model,
    describe_task,
    warn_of_cut_inputs,
    warn_of_dropped_words,
)
from layerscout.scores import EvaluationResult, judge_by, judge_majority

if TYPE_CHECKING:
    from layerscout.plans import EvaluateOptions

# What a `result.json` of another program or version may raise.
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError)


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
        check_no_tuning(folder, "predictions.parquet")
        names = ("evaluate.json", "evaluate.html", "predictions.parquet")
        with replace_files(*(folder / name for name in names)) as temporary:
            written = json.dumps(content, indent=1, allow_nan=False) + "\n"
            temporary[0].write_text(written, encoding="utf-8")
            temporary[1].write_text(render_result(content, str(folder)), encoding="utf-8")
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
    progress: bool | Show = True,
    **options: Unpack[EvaluateOptions],
) -> Evaluation:
    """Judge a tuned model on the validation examples, as it is and under edits.

    "truncate" in `edits` feeds the state after every block to the head (UNTUNED of Phang et al.
    2021, §4), from one forward pass. "skip" passes every span of blocks over (§4.1), each from the
    state below the span, so that a batch takes (L³ − L)/6 + L block passes.

    Args:
        model: a tuned checkpoint with its head: a folder or a hub id; or a folder of what was
            trained apart from its base, as for `layerscout.load`.
        task: a `Task`, or what `Task.load` takes. Without a validation split all rows are judged,
            unless heads are tuned, or the model was tuned on data of that name, or the data have
            none: then a tenth is set aside, as tuning does.
        request: what is asked for, as one value in place of `options`. Heads that are tuned again
            count by the best epoch of any of their rates.
        original: the model before it was tuned, to train its head at every state (TUNEDORIG).
        device: as for `Encoder.load`.
        precision: as for `Encoder.load`.
        cache_limit: bytes that the cache may hold once new states are added; 0 keeps none.
        progress: show a bar on the terminal; or a function, which is called in its place with the
            stage of the work, how much of it is done, of how much, and a note.
        **options: everything else that may be asked for, such as `edits`: the attributes of
            `layerscout.plans.EvaluateRequest`.

    Raises:
        InputError: if the model, the data or an edit cannot be used as asked.
    """
    if not isinstance(model, str | Path):
        raise InputError("a tuned model is given by its folder or hub id; save it first")
    asked = resolve_request(EvaluateRequest, request, options)
    ablations, single = _part_edits(asked.edits)
    trains = asked.tune_heads or original is not None
    if trains and holds_trained(model):
        raise InputError(
            f"heads are tuned again only on whole checkpoints, but {model} holds what was trained "
            "apart from its base; leave out --tune-heads and --original"
        )
    made = _read_result(model)
    task, all_rows = _choose_rows(model, made, task, asked.seed, trains=trains)
    tuning, seen = _describe_tuning(made, task), _count_seen(made, task)
    metric = asked.metric or _choose_metric(tuning, task)
    check_metric(metric, task)
    encoder, classifier, columns, task = _load_tuned(model, task, single, device, precision)
    if isinstance(original, str | Path):
        original = Encoder.load(original, device=device, precision=precision)
    heads = [encoder] if asked.tune_heads else []
    heads += [original] if original is not None else []
    check_heads(heads, task, ablations, asked)
    few = draw_head_examples(task, asked.examples, asked.seed) if heads else task
    with show_progress(progress) as show:
        extractor = Extractor(encoder, ("cls",), asked.max_length, cache_limit, show)
        thresholds = read_thresholds(classifier, task.labels)
        found = _predict_all(extractor, classifier, columns, task, ablations, single, asked.seed)
        judge = partial(_judge, metric, found.targets, thresholds)
        curves = {}
        if "truncate" in ablations:
            curves["untuned"] = [judge(logits) for logits in found.ablated.truncated]
        by = judge_by(metric, tuned=thresholds is not None)
        if asked.tune_heads:
            head = Head(classifier, encoder.family.final_norm, columns)
            curves["tuned"] = tune_heads(extractor, few, lambda _: head, by, asked)
        if original is not None:
            below = replace(extractor, encoder=original)
            fresh = partial(make_family_head, original, few.labels, kind=few.kind)
            curves["tuned_original"] = tune_heads(below, few, fresh, by, asked)
    split, whole = require_validation(task), found.outputs[""]
    result = EvaluationResult.of(metric, task, split, found.targets, whole, thresholds)
    skips = _judge_spans(found.ablated, judge, encoder.blocks) if "skip" in ablations else None
    tuned_heads = describe_heads(few, asked) if heads else None
    content = {
        "layerscout": version("layerscout"),
        "verb": "evaluate",
        "saved_as": "ours" if holds_trained(model) else "checkpoint",
        "model": describe_model(encoder, task),
        "tuning": tuning,
        "original": None if original is None else describe_model(original, task),
        "task": describe_task(task, require_validation(task), found.tokens.lengths),
        "metric": metric,
        "metrics": result.metrics,
        "interval": result.interval,
        "by_name": result.by_name,
        "majority": judge_majority(task.kind, metric, task.train.labels, found.targets),
        "seen": None
        if seen is None or seen.changed
        else {"training": seen.training, "chosen": seen.chosen},
        "confusion": result.confusion,
        "truncation": curves,
        "skips": skips,
        "edits": [
            {
                "edit": name,
                "metrics": _judge_by_all(task, found.targets, found.outputs[name], thresholds),
            }
            for name in map(format_edits, single)
        ],
        "settings": _list_settings(extractor, task, asked.seed, tuned_heads),
        "warnings": [
            *encoder.notes,
            *_warn_of_seen_rows(tuning, task, seen, all_rows=all_rows),
            *task.warnings,
            *_list_warnings(found, asked.max_length),
            *result.warnings,
        ],
        "seconds": extractor.seconds,
    }
    evaluation = Evaluation(content, _tabulate(task, found, thresholds))
    log_warnings(__name__, evaluation.warnings)
    return evaluation


@dataclass(frozen=True, eq=False)
class _Found:
    """What a model gave for the validation examples.

    Attributes:
        tokens: of the examples.
        targets: what is right for them.
        ablated: logits of the ablations, in the order of the task's classes, as are the others.
        outputs: those of the whole model (""), and by notation of each edit that is kept apart.
    """

    tokens: Tokens
    targets: Targets
    ablated: Ablated
    outputs: Mapping[str, np.ndarray]


def _load_tuned(
    model: str | Path,
    task: Task,
    single: Sequence[tuple[Edit, ...]],
    device: str,
    precision: Precision,
) -> tuple[Encoder, Any, list[int] | slice, Task]:
    """Load a classifier, the encoder in it, and where its logits have the task's classes.

    The task comes back with the tags or the several labels of the model: a file of few examples
    lacks rare ones, which may be predicted all the same.

    Raises:
        InputError: if it is not tuned for the task, or an edit does not fit it.
    """
    classifier = None
    if holds_trained(model):
        encoder, classifier, kind = load_trained(model, device=device, precision=precision)
        if kind != task.kind:
            raise InputError(
                f"{model} is tuned for {describe_kind(kind)}, and the task is one of "
                f"{describe_kind(task.kind)}; give the data that it was tuned for"
            )
        config = classifier.config
    else:
        encoder = Encoder.load(model, device=device, precision=precision)
        config = encoder.model.config
    names = [str(name) for _, name in sorted(config.id2label.items())]
    may_lack = task.kind in ("token_classification", "multi_label_classification")
    if may_lack and set(task.labels) <= set(names):
        task = task.renumber(names)
    if classifier is None:
        classifier, columns = load_tuned_classifier(encoder, task.labels, task.kind)
    else:
        columns = match_columns(encoder.name, config, task.labels, task.kind)
    encoder = replace(encoder, model=base_of(classifier)[0])
    for one in single:  # before the work that one of them could spoil
        arrange_blocks(encoder.model, one)
    return encoder, classifier, columns, task


def _predict_all(
    extractor: Extractor,
    classifier: Any,
    columns: list[int] | slice,
    task: Task,
    ablations: Collection[str],
    single: Sequence[tuple[Edit, ...]],
    seed: int,
) -> _Found:
    """Run a classifier on the validation examples, as it is and under edits.

    Raises:
        InputError: if the logits of the whole model are not finite.
    """
    encoder, split = extractor.encoder, require_validation(task)
    tokens, targets = extractor.tokenize(split), make_targets(split, task.kind, task.labels)
    data = Examples(tokens, targets, None)
    with extractor.timed("evaluate"):
        ablated = ablate(encoder, classifier, data, "skip" in ablations, extractor.show)
        whole = ablated.truncated[-1]
        if broken := len(whole) - int(np.isfinite(whole).all(axis=1).sum()):
            raise InputError(
                f"the logits of {encoder.name} are not finite for {broken:,} of {len(whole):,} "
                "examples; use --precision float32, or another checkpoint"
            )
        ablated = ablated.take(columns)
        cuts = range(1, encoder.blocks) if "truncate" in ablations else ()
        outputs = {"": ablated.truncated[-1]}
        outputs |= {f"truncate:{s}": ablated.truncated[s] for s in cuts}
        for number, one in enumerate(single):
            extractor.show("judging edits", number, len(single), format_edits(one))
            with edit(classifier, one, seed=seed):
                logits = predict(encoder, classifier, data).numpy()
            outputs[format_edits(one)] = logits[:, columns]
    return _Found(tokens, targets, ablated, outputs)


def _judge(
    metric: str, targets: Targets, thresholds: np.ndarray | None, logits: np.ndarray
) -> float | None:
    """Return the metric; None where logits are not finite."""
    if not np.isfinite(logits).all():
        return None
    return compute_metric(metric, targets.labels, logits, tags=targets.tags, thresholds=thresholds)


def _judge_by_all(
    task: Task, targets: Targets, logits: np.ndarray, thresholds: np.ndarray | None
) -> dict[str, float | None]:
    """Return every metric of the kind of task; None where logits are not finite."""
    rules: dict[str, Any] = {"tags": targets.tags, "thresholds": thresholds}
    metrics = evaluate_all(task.kind, targets.labels, np.nan_to_num(logits), **rules)
    return {**metrics} if np.isfinite(logits).all() else dict.fromkeys(metrics)


def _part_edits(edits: str | Sequence[str | Edit]) -> tuple[set[str], list[tuple[Edit, ...]]]:
    """Part the ablations from the edits that are judged one by one."""
    listed = [edits] if isinstance(edits, str) else list(edits)
    ablations = {one for one in listed if isinstance(one, str) and one.strip() in ABLATIONS}
    single = [make_edits(one) for one in listed if one not in ablations]
    if not all(single):
        raise InputError("an edit is empty; leave it out, the whole model is always judged")
    return {one.strip() for one in ablations}, list(dict.fromkeys(single))


def _list_settings(
    extractor: Extractor, task: Task, seed: int, heads: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        **task.origin,
        "max_length": extractor.max_length,
        "precision": extractor.encoder.precision,
        "device": extractor.encoder.device.type,
        "seed": seed,
        "heads": heads,
        "versions": {name: version(name) for name in ("torch", "transformers")},
    }


def _judge_spans(
    ablated: Ablated, judge: Callable[[np.ndarray], float | None], blocks: int
) -> list[list[float | None]]:
    """Judge every span: row i − 1 has those that begin with block i, by their last block."""
    numbers = range(1, blocks + 1)
    return [[judge(ablated.skipped[i, j]) if i <= j else None for j in numbers] for i in numbers]


def _read_result(model: str | Path) -> dict[str, Any]:
    """Read the `result.json` beside a tuned model; empty where there is none."""
    with suppress(*UNREADABLE):
        return dict(read_json(Path(model).parent / "result.json"))
    return {}


def _describe_tuning(result: Mapping[str, Any], task: Task) -> dict[str, Any] | None:
    """Say how a model was tuned; None where that is not known."""
    with suppress(*UNREADABLE):
        found = describe_tuning(result)
        settings, read = found["settings"], (*task.origin, "max_length")
        here = settings.get("hub") is not None or settings.get("data") in (None, "demo")
        return found | {
            "settings": {k: settings[k] for k in read if k in settings},
            # As seen from here; names of files are as they were given to the tuning.
            "data_found": here or Path(settings["data"]).exists(),
        }
    return None


@dataclass(frozen=True)
class _Seen:
    """How many of the judged rows a tuning has seen.

    Attributes:
        training: those that it was trained on.
        chosen: those by which it chose the epoch and the like.
        changed: its data are not what they were, so other rows of them may have been set aside.
    """

    training: int
    chosen: int
    changed: bool


def _count_seen(result: Mapping[str, Any], task: Task) -> _Seen | None:
    """Count the judged rows that tuning has seen; None where its data cannot be read."""
    judged = require_validation(task)
    with suppress(*UNREADABLE):
        was = reload_task(result["settings"])
        if was is None:
            return None
        hashed = result["settings"].get("data_sha256")
        validation = was.validation if list_chosen(result) else None
        return _Seen(
            training=count_repeated(judged, was.train),
            chosen=0 if validation is None else count_repeated(judged, validation),
            changed=hashed not in (None, was.origin["data_sha256"]),
        )
    return None


def _choose_rows(
    model: str | Path,
    result: Mapping[str, Any],
    task: Task | str | Path,
    seed: int,
    *,
    trains: bool,
) -> tuple[Task, bool]:
    """Give the task with a validation split to judge, and whether that is all of its rows.

    Data without such a split may be those of the tuning, which set a tenth aside. Several paths
    may lead there, so that goes by the last part of their names.

    Args:
        model: the tuned model.
        result: of its tuning, as of `_read_result`.
        task: as for `evaluate`.
        seed: draws the rows that are set aside.
        trains: whether training rows are needed.
    """
    task = task if isinstance(task, Task) else Task.load(task, classes=read_classes(model))
    ours, tuned = task.origin.get("data"), _read_data(_describe_tuning(result, task))
    others = ours is not None and (tuned is None or Path(tuned).name != Path(str(ours)).name)
    all_rows = task.validation is None and others and not trains
    task = replace(task, validation=task.train) if all_rows else task
    return ensure_validation(task, seed), all_rows


def _choose_metric(tuning: Mapping[str, Any] | None, task: Task) -> str:
    """Choose the metric that the model was tuned by, or else the task's own.

    The task's own goes by how rare its classes are here, which may be other than in training.
    """
    before = None if tuning is None else tuning["metric"]
    return before if before in list_metrics(task.kind, task.labels) else task.metric


def _read_data(tuning: Mapping[str, Any] | None) -> str | None:
    """Give what a model was tuned on; None if that is not known."""
    return None if tuning is None else tuning["settings"].get("data")


def _warn_of_seen_rows(
    tuning: Mapping[str, Any] | None, task: Task, seen: _Seen | None, *, all_rows: bool
) -> list[str]:
    """Warn where the model was, or may have been, tuned on rows that are judged now."""
    rows = len(require_validation(task))
    changed = f"{_read_data(tuning)} is not, or no longer, what the model was tuned on"
    if seen is not None and seen.training > REPEATED * rows:
        return [
            f"{seen.training:,} of {rows:,} rows are also training rows of the tuning, so the "
            f"figures are too good; leave them out{f' ({changed})' if seen.changed else ''}"
        ]
    if seen is not None and seen.changed:
        return [f"{changed}, so it is not certain that none of its training rows are judged"]
    if seen is not None:
        return []
    if all_rows:
        data = _read_data(tuning)
        if data is None:
            return ["all rows are judged, and the model may have been tuned on some of them"]
        return [
            f"{data}, on which the model was tuned, could not be read here, so it was not checked "
            "whether its training rows are among those that are judged"
        ]
    ours = {name: task.origin.get(name) for name in ("validation", "validation_seed")}
    if ours["validation_seed"] is None:
        return []
    if tuning is not None and all(tuning["settings"].get(name) == v for name, v in ours.items()):
        return []
    return [
        "the data has no validation split of its own, and the rows set aside here need not be "
        "those that tuning set aside; give the same --seed and --validation, or a file"
    ]


def _list_warnings(found: _Found, max_length: int) -> list[str]:
    warnings = warn_of_cut_inputs(found.tokens.truncated, len(found.tokens), max_length)
    warnings += warn_of_dropped_words(found.tokens)
    spans = {f"skip:{i}-{j}": logits for (i, j), logits in found.ablated.skipped.items()}
    outputs = {**found.outputs, **spans}
    if broken := [name for name, logits in outputs.items() if not np.isfinite(logits).all()]:
        warnings.append(f"logits are not finite and have no value under {', '.join(broken)}")
    return warnings


def _tabulate(
    task: Task, found: _Found, thresholds: np.ndarray | None
) -> dict[str, Sequence[Any] | np.ndarray]:
    """Lay the predictions of the whole model and of each edit below one another."""
    split = require_validation(task)
    tables = [
        {
            "edit": [name] * len(found.targets),
            **tabulate_predictions(task, split, found.targets, logits, thresholds),
        }
        for name, logits in found.outputs.items()
    ]
    return {column: [value for table in tables for value in table[column]] for column in tables[0]}
