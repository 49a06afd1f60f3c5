"""Judging a tuned model under edits: cut at every state, with spans of blocks passed over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from layerscout.data import (
    REPEATED,
    Split,
    Task,
    check_metric,
    count_repeated,
    describe_task,
    ensure_validation,
    is_local,
    list_metrics,
    read_classes,
    reload_task,
    require_validation,
    write_parquet,
)
from layerscout.errors import InputError
from layerscout.evaluating.ablations import (
    ABLATIONS,
    Outputs,
    check_heads,
    draw_head_examples,
    judge_edits,
    judge_metric,
    judge_spans,
    list_warnings,
    predict_all,
    tabulate,
    tune_heads,
)
from layerscout.files import (
    check_no_tuning,
    format_json,
    make_output_folder,
    read_json,
    replace_files,
)
from layerscout.models import (
    Encoder,
    Precision,
    base_of,
    describe_model,
    is_apart,
    load_tuned,
    match_columns,
    read_names,
    read_thresholds,
)
from layerscout.plans import (
    Edit,
    EvaluateRequest,
    add_options,
    make_edits,
    resolve_request,
)
from layerscout.progress import Show, log_warnings, show_progress
from layerscout.reporting import (
    Displayed,
    describe_reached,
    describe_tuning,
    list_chosen,
    render_result,
)
from layerscout.scanning import Extractor
from layerscout.scores import EvaluationResult, judge_majority, make_judge, measure_calibration
from layerscout.states import DEFAULT_LIMIT

if TYPE_CHECKING:
    from layerscout.plans import EvaluateOptions

# What a `result.json` of another program or version may raise.
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError)


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Displayed):
    """What a tuned model reached, whole and under edits.

    Attributes:
        content: what `evaluate.json` holds.
        predictions: edit (empty for the whole model), row in the validation file, label,
            prediction and logits.
    """

    content: Mapping[str, Any]
    predictions: Mapping[str, Sequence[Any] | np.ndarray]

    def __repr__(self) -> str:
        return f"<Evaluation: {describe_reached(self.content)}>"

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric of the whole model, by name."""
        return dict(self.content["metrics"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader of the figures should know."""
        return tuple(self.content["warnings"])

    def as_dict(self) -> dict[str, Any]:
        """Return what `evaluate.json` holds."""
        return dict(self.content)

    def save(self, folder: str | Path) -> None:
        """Write `evaluate.json`, `evaluate.html` and `predictions.parquet` into `folder`.

        Raises:
            InputError: if they cannot be written.
        """
        folder, content = make_output_folder(Path(folder).expanduser()), self.as_dict()
        check_no_tuning(folder, "predictions.parquet")
        names = ("evaluate.json", "evaluate.html", "predictions.parquet")
        with replace_files(*(folder / name for name in names)) as temporary:
            temporary[0].write_text(format_json(content), encoding="utf-8")
            temporary[1].write_text(render_result(content, str(folder)), encoding="utf-8")
            write_parquet(self.predictions, temporary[2])


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
        request: the options as one value, in place of `options`. Heads that are tuned again
            count by the best epoch of any of their rates.
        original: the model before it was tuned, to train its head at every state (TUNEDORIG).
        device: as for `Encoder.load`.
        precision: as for `Encoder.load`.
        cache_limit: bytes that the cache may hold once new states are added; 0 keeps none.
        progress: show a bar on the terminal; or a function, which is called in its place with the
            stage of the work, how much of it is done, of how much, and a note.
        **options: all other options, such as `edits`: the attributes of
            `layerscout.plans.EvaluateRequest`.

    Raises:
        InputError: if the model, the data or an edit cannot be used as requested.
    """
    request = resolve_request(EvaluateRequest, request, options)
    trains = request.tune_heads or original is not None
    _check_model(model, trains=trains)
    ablations, edits = _part_edits(request.edits)
    task, origin = _choose_rows(model, task, request.seed, trains=trains)
    metric = _choose_metric(request, origin.tuning, task)
    encoder, classifier, columns, task = _load_tuned(model, task, edits, device, precision)
    if isinstance(original, str | Path):
        original = Encoder.load(original, device=device, precision=precision)
    tuned = encoder if request.tune_heads else None
    heads = [each for each in (tuned, original) if each is not None]
    check_heads(heads, task, ablations, request)
    few = draw_head_examples(task, request) if heads else task
    with show_progress(progress) as show:
        extractor = Extractor(encoder, ("cls",), request.max_length, cache_limit, show)
        thresholds = read_thresholds(classifier, columns)
        outputs = predict_all(extractor, classifier, columns, task, ablations, edits, request.seed)
        judge = partial(judge_metric, metric, outputs.targets, thresholds)
        curves = {}
        if "truncate" in ablations:
            curves["untuned"] = [judge(logits) for logits in outputs.truncated]
        by = make_judge(metric, tuned=thresholds is not None)
        if request.tune_heads:
            from layerscout.models import Head

            head = Head(classifier, encoder.family.final_norm, columns)
            curves["tuned"] = tune_heads(extractor, few, lambda _: head, by, request)
        if original is not None:
            from layerscout.models import make_family_head

            below = replace(extractor, encoder=original)
            fresh = partial(make_family_head, original, task.labels, kind=task.kind)
            curves["tuned_original"] = tune_heads(below, few, fresh, by, request)
    described, warnings = _describe_result(metric, task, outputs, thresholds)
    saved_as = "checkpoint" if encoder.dense is None else "sentence-transformers"
    known = [*encoder.notes, *origin.warn(task), *task.warnings]
    content = {
        **described,
        "saved_as": "ours" if is_apart(model) else saved_as,
        "model": describe_model(encoder, task),
        "original": None if original is None else describe_model(original, task),
        "tuning": origin.tuning,
        "seen": origin.describe_seen(),
        "truncation": curves,
        "skips": judge_spans(outputs, judge, encoder.blocks) if "skip" in ablations else None,
        "edits": judge_edits(task, outputs, edits, thresholds),
        "settings": _list_settings(extractor, task, request, few if heads else None),
        "warnings": [*known, *list_warnings(outputs, encoder, request.max_length), *warnings],
        "seconds": extractor.seconds,
    }
    log_warnings(__name__, content["warnings"])
    return Evaluation(content, tabulate(task, outputs, thresholds))


def _check_model(model: str | Path, *, trains: bool) -> None:
    """Raise if a model cannot be judged, or its heads not tuned again if that is requested."""
    if not isinstance(model, str | Path):
        raise InputError("a tuned model is given by its folder or hub id; save it first")
    if trains and is_apart(model):
        raise InputError(
            f"heads are tuned again only on whole checkpoints, but {model} holds what was trained "
            "apart from its base; leave out --tune-heads and --original"
        )


def _describe_result(
    metric: str, task: Task, outputs: Outputs, thresholds: np.ndarray | None
) -> tuple[dict[str, Any], Sequence[str]]:
    """Return what `evaluate.json` holds of the whole model, and warnings of what it predicts."""
    split, targets, training = require_validation(task), outputs.targets, task.train.labels
    result = EvaluationResult.of(metric, task, split, targets, outputs.logits[""], thresholds)
    described = {
        "layerscout": version("layerscout"),
        "verb": "evaluate",
        "task": describe_task(task, split, outputs.tokens.lengths),
        "metric": metric,
        "metrics": result.metrics,
        "interval": result.interval,
        "by_name": result.by_name,
        "majority": judge_majority(task.kind, metric, training, targets),
        "confusion": result.confusion,
        "calibration": measure_calibration(targets.labels, outputs.logits[""]),
    }
    return described, result.warnings


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
    encoder, classifier, _ = load_tuned(model, task.kind, device=device, precision=precision)
    names = read_names(classifier.config)
    may_lack = task.kind in ("token_classification", "multi_label_classification")
    if may_lack and set(task.labels) <= set(names):
        task = task.renumber(names)
    columns, note = match_columns(encoder.name, classifier.config, task.labels, task.kind)
    notes = encoder.notes if note is None else (*encoder.notes, note)
    encoder = replace(encoder, model=base_of(classifier)[0], notes=notes)
    for edits in single:  # before the work that any of them could spoil
        from layerscout.models import arrange_blocks

        arrange_blocks(encoder.model, edits)
    return encoder, classifier, columns, task


def _part_edits(edits: str | Sequence[str | Edit]) -> tuple[set[str], list[tuple[Edit, ...]]]:
    """Part the ablations from the edits that are judged one by one."""
    listed = [edits] if isinstance(edits, str) else list(edits)
    ablations = {name for name in listed if isinstance(name, str) and name.strip() in ABLATIONS}
    single = [make_edits(each) for each in listed if each not in ablations]
    if not all(single):
        raise InputError("an edit is empty; leave it out, the whole model is always judged")
    return {name.strip() for name in ablations}, list(dict.fromkeys(single))


def _list_settings(
    extractor: Extractor, task: Task, request: EvaluateRequest, few: Task | None
) -> dict[str, Any]:
    """Return the settings of `evaluate.json`; `few` has what heads were tuned on, if any were."""
    heads = None
    if few is not None:
        heads = {
            "examples": few.train.examples,
            "epochs": request.head_epochs,
            "batch_size": request.head_batch_size,
            "learning_rates": list(request.head_learning_rate),
        }
    return {
        **task.origin,
        "max_length": extractor.max_length,
        "precision": extractor.encoder.precision,
        "device": extractor.encoder.device.type,
        "seed": request.seed,
        "heads": heads,
        "versions": {name: version(name) for name in ("torch", "transformers")},
    }


@dataclass(frozen=True)
class _Origin:
    """How a model was tuned, and how many of the judged rows that has seen.

    Attributes:
        tuning: what `evaluate.json` holds of it; None where that is not known.
        training, chosen: the judged rows that it was trained on, and by which it chose the epoch
            and the like; None where its data cannot be read.
        changed: its data are not what they were, so other rows of them may have been set aside.
    """

    tuning: Mapping[str, Any] | None
    training: int | None = None
    chosen: int | None = None
    changed: bool = False

    def describe_seen(self) -> dict[str, int | None] | None:
        """Return what `evaluate.json` holds of the rows that tuning has seen."""
        if self.training is None or self.changed:
            return None
        return {"training": self.training, "chosen": self.chosen}

    def warn(self, task: Task) -> list[str]:
        """Warn where the model was, or may have been, tuned on rows that are judged now."""
        rows, warnings = len(require_validation(task)), []
        settings = {} if self.tuning is None else self.tuning["settings"]
        certain = not self.changed
        if self.training is None:
            # Rows that were set aside may be those that tuning set aside.
            drawn = {name: task.origin.get(name) for name in ("validation", "validation_seed")}
            aside = drawn["validation_seed"] is None or drawn.items() <= settings.items()
            certain = aside and task.validation is not task.train
        elif self.training > REPEATED * rows:
            warnings.append(
                f"{self.training:,} of {rows:,} rows are also training rows of the tuning, so the "
                "figures are too good; leave them out"
            )
        if not certain:
            data = settings.get("data") or "the data of its tuning"
            warnings.append(
                f"{data} could not be read here as the model was tuned on it, so it is not certain "
                "that none of its training rows are judged"
            )
        return warnings


def _choose_rows(
    model: str | Path, task: Task | str | Path, seed: int, *, trains: bool
) -> tuple[Task, _Origin]:
    """Return the task with a validation split to judge, and what the model's tuning saw of it.

    Data without such a split may be those of the tuning, which set a tenth aside. Several paths
    may lead there, so that goes by the last part of their names.

    Args:
        model: the tuned model, which may have the `result.json` of its tuning beside it.
        task: as for `evaluate`.
        seed: draws the rows that are set aside.
        trains: whether training rows are needed.
    """
    result: dict[str, Any] = {}
    with suppress(*UNREADABLE):
        result = dict(read_json(Path(model).parent / "result.json"))
    task = task if isinstance(task, Task) else Task.load(task, classes=read_classes(model))
    origin = _Origin(_describe_tuning(result, task))
    ours, tuned = (
        task.origin.get("data"),
        (origin.tuning or {"settings": {}})["settings"].get("data"),
    )
    others = ours is not None and (tuned is None or Path(tuned).name != Path(str(ours)).name)
    if task.validation is None and others and not trains:
        task = replace(task, validation=task.train)
    task = ensure_validation(task, seed)
    with suppress(*UNREADABLE):
        origin = _count_seen(origin, result, require_validation(task))
    return task, origin


def _describe_tuning(result: Mapping[str, Any], task: Task) -> dict[str, Any] | None:
    """Return how a model was tuned; None where that is not known."""
    with suppress(*UNREADABLE):
        tuning = describe_tuning(result)
        settings, names = tuning["settings"], (*task.origin, "max_length")
        here = settings.get("hub") is not None or settings.get("data") in (None, "demo")
        return tuning | {
            "settings": {name: settings[name] for name in names if name in settings},
            # As seen from here; names of files are as they were given to the tuning.
            "data_found": here or is_local(settings["data"]),
        }
    return None


def _count_seen(origin: _Origin, result: Mapping[str, Any], judged: Split) -> _Origin:
    """Count the judged rows that tuning has seen, where its data can still be read."""
    settings = result["settings"]
    before = reload_task(settings)
    if before is None:
        return origin
    trained, validation = before.train, before.validation
    solved = result.get("solved") or {}
    if validation is not None and solved.get("examples", 0) > trained.examples:  # of both
        trained, validation = trained.join(validation), None
    chosen = validation if list_chosen(result) else None
    return replace(
        origin,
        training=count_repeated(judged, trained),
        chosen=0 if chosen is None else count_repeated(judged, chosen),
        changed=settings.get("data_sha256") not in (None, before.origin["data_sha256"]),
    )


def _choose_metric(request: EvaluateRequest, tuning: Mapping[str, Any] | None, task: Task) -> str:
    """Choose the metric: as requested, or what the model was tuned by, or else the task's own.

    The task's own goes by how rare its classes are here, which may be other than in training.
    """
    if request.metric:
        check_metric(request.metric, task)
        return request.metric
    before = None if tuning is None else tuning["metric"]
    return before if before in list_metrics(task.kind, task.labels) else task.metric
