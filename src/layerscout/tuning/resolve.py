"""From a request to what a tuning starts from: model, examples, settings, plans and rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from layerscout import scanning
from layerscout.data import (
    Split,
    Task,
    check_metric,
    describe_kind,
    draw_examples,
    ensure_validation,
    make_targets,
    require_validation,
)
from layerscout.errors import InputError, make_unknown_error
from layerscout.models import (
    Computed,
    Encoder,
    apply_edits,
    check_family,
    check_method,
    model_class,
    untie_blocks,
)
from layerscout.plans import (
    FULL,
    Choice,
    Classifier,
    EditSpec,
    Method,
    ModelShape,
    Settings,
    TuneRequest,
    Work,
    check_untied,
    default_head_rate,
    default_learning_rate,
    preset_rates,
    ranges,
)
from layerscout.progress import Show
from layerscout.scanning import Scan
from layerscout.scores import DEFAULT, SCORES
from layerscout.states import Examples, make_accelerator
from layerscout.tuning.choice import (
    PlanFile,
    PlanSpec,
    Target,
    check_same,
    check_without_scan,
    choose_plan,
    is_auto,
    needs_scan,
    read_plan,
    settle_plan,
    write_plan,
)

# How a tuned model is written: a whole checkpoint, a peft adapter, or what was trained beside it.
SavedAs = Literal["checkpoint", "peft", "ours"]


@dataclass(frozen=True)
class Sweep:
    """A plan with the learning rates that it is tuned with."""

    choice: Choice
    rates: Sequence[float]


@dataclass(frozen=True, eq=False)
class Tuning:
    """A tuning that can begin: what every run starts from.

    Attributes:
        encoder: what is tuned, with its blocks edited as the request says.
        task: with the training examples that are used.
        available: training examples that there were before some were drawn.
        training: the training split, without states at a cut: the whole model runs on it.
        validation: the validation split, likewise.
        request: what was requested.
        method: how the blocks are tuned.
        settings: how runs train.
        work: how much training that is, with the states at the cut kept.
        head: what reads the last state.
        cache_limit: bytes that the cache may hold.
        saved_as: how the tuned model is written: a whole checkpoint, or only what was trained.
        shape: of the encoder with its head for the task.
        sweeps: the plan, and perhaps the one to compare with, with their rates.
        scan: what the plans rest on, if anything.
        score: of the scan, which says what the best state is.
        scan_seconds: what the scan took, where it was made for this tuning.
        warnings: what the reader of the result should know.
    """

    encoder: Encoder
    task: Task
    available: int
    training: Examples
    validation: Examples
    request: TuneRequest
    method: Method
    settings: Settings
    work: Work
    head: Classifier
    cache_limit: int
    saved_as: SavedAs
    shape: ModelShape
    sweeps: Sequence[Sweep]
    scan: Scan | None
    score: str
    scan_seconds: float | None
    warnings: Sequence[str]

    @property
    def save_dtype(self) -> Computed:
        """What the weights of the saved model are stored in, if it is a whole checkpoint."""
        dtype = self.request.save_dtype or self.encoder.dtype
        return dtype if self.saved_as == "checkpoint" else "float32"

    @property
    def head_learning_rate(self) -> float | None:
        """The rate of the head where blocks are tuned too; None if it is that of the blocks."""
        rate = self.settings.head_learning_rate
        if rate is not None or self.request.preset is not None:
            return rate
        if self.task.kind in ("token_classification", "multi_label_classification"):
            return default_head_rate(self.shape.hidden_size)
        return None


def resolve(
    request: TuneRequest,
    encoder: Encoder | str | Path,
    task: Task | str | Path,
    scan: Scan | str | Path | None,
    cache_limit: int,
    progress: bool | Show,
) -> Tuning:
    """Load, check and settle all that a tuning needs; what takes longest comes last.

    Raises:
        InputError: if something cannot be used as requested.
    """
    specs = [read_plan(plan) for plan in (request.plan, request.against) if plan is not None]
    request = request.with_method(specs[0].method if isinstance(specs[0], PlanFile) else None)
    method = request.method or FULL
    scan = Scan.load(scan) if isinstance(scan, str | Path) else scan
    _check_applicable(request, specs)
    available = ensure_validation(task, request.seed[0])
    task = draw_examples(available, request.examples, request.seed[0])
    settings, head = _settle(request, task)
    _check_settings(settings, task)
    saved_as = _choose_format(method, head, request)
    encoder = _load_encoder(encoder, request, task, head)
    shape = encoder.shape(len(task.labels), task.kind, head)
    check_family(shape.family, method)
    check_untied(shape.family, shape.weights, method)
    score = request.score or (DEFAULT if scan is None else scan.leading_score())
    target = Target(encoder, task, shape, method, scan, score)
    warnings, scan_seconds = _check_sources(specs, target), None
    wants_scan = any(needs_scan(spec) or (is_auto(spec) and request.score) for spec in specs)
    if scan is None and wants_scan:
        scan = _make_scan(specs, target, request, cache_limit, progress)
        target, scan_seconds = replace(target, scan=scan), sum(scan.seconds.values())
    settled = [None if is_auto(spec) else settle_plan(spec, target) for spec in specs]
    training, validation = (
        encode_split(split, encoder, task, request.max_length)
        for split in (task.train, require_validation(task))
    )
    cached = cache_limit > 0 and not request.trunk_dropout
    work = _count_work(training, validation, settings, cached=cached)
    choices = [choice or choose_plan(target, work, request.budget) for choice in settled]
    warnings += _check_choices(specs, choices, target)
    settings, notes = _settle_length(choices, request, task, shape.blocks)
    sweeps, more_notes = _list_sweeps(choices, request, target)
    return Tuning(
        encoder=encoder,
        task=task,
        available=available.train.examples,
        training=training,
        validation=validation,
        request=request,
        method=method,
        settings=settings,
        work=_count_work(training, validation, settings, cached=True),
        head=head,
        cache_limit=cache_limit,
        saved_as=saved_as,
        shape=shape,
        sweeps=sweeps,
        scan=scan,
        score=score,
        scan_seconds=scan_seconds,
        warnings=[*warnings, *notes, *more_notes],
    )


def encode_split(split: Split, encoder: Encoder, task: Task, max_length: int) -> Examples:
    """Tokenise a split of a task; there are no states at a cut."""
    tokens = encoder.tokenize_split(split, max_length=max_length)
    return Examples(tokens, make_targets(split, task.kind, task.labels), None)


def _check_applicable(request: TuneRequest, specs: Sequence[PlanSpec]) -> None:
    """Raise for options of a plan's choice that none of the plans depends on."""
    if request.score is not None and request.score not in tuple(SCORES):
        raise make_unknown_error("score", str(request.score), SCORES)
    auto = any(map(is_auto, specs))
    rule = ""
    if "budget" in request.given and not auto:
        rule = "`budget` applies only to the plan auto"
    elif request.score is not None and not auto and not any(map(needs_scan, specs)):
        rule = "`score` applies only to plans that follow from a scan, such as best-down:3@top"
    if rule:
        raise InputError(f"{rule}, got {' and '.join(map(write_plan, specs)):.80}; leave it out")


def _settle(request: TuneRequest, task: Task, *, full: bool = False) -> tuple[Settings, Classifier]:
    return request.settle(
        task.name, task.train.examples, task.metric, task.kind, task.labels, full=full
    )


def _check_settings(settings: Settings, task: Task) -> None:
    """Raise for settings that are not for the kind of task."""
    check_metric(settings.metric, task)
    if settings.threshold is not None and task.kind != "multi_label_classification":
        raise InputError(
            f"`threshold` ({settings.threshold}) applies to texts with several labels, but "
            f"{task.name} is a task of {describe_kind(task.kind)}; leave it out"
        )
    if settings.class_weights and task.kind not in ("classification", "token_classification"):
        raise InputError(
            f"`class_weights` ({settings.class_weights}) applies to a single class or tag per "
            f"answer, but {task.name} is a task of {describe_kind(task.kind)}; leave it out"
        )


def _load_encoder(
    encoder: Encoder | str | Path, request: TuneRequest, task: Task, head: Classifier
) -> Encoder:
    """Load the encoder, untie its blocks and edit them, as far as that was requested."""
    encoder = encoder if isinstance(encoder, Encoder) else Encoder.load(encoder)
    model_class(encoder.model.config, task.kind, head)
    encoder = untie_blocks(encoder) if request.untie else encoder
    if not request.edits:
        return encoder
    spec = EditSpec(request.edits, encoder.blocks, request.seed[0], request.weight_init)
    return apply_edits(encoder, spec)


def _check_sources(specs: Sequence[PlanSpec], target: Target) -> list[str]:
    """Raise for sources of another model; return warnings of another task or other weights."""
    warnings, scan = [], target.scan
    if scan is not None:
        warnings += check_same("the scan", scan.model, scan.task, target)
        if any(map(is_auto, specs)):
            scan.basis(target.score)
    for file in specs:
        if isinstance(file, PlanFile):
            model, task = file.content.get("model"), file.content.get("task", {})
            warnings += check_same(f"the plan {file.path}", model, task, target)
    return warnings


def _make_scan(
    specs: Sequence[PlanSpec],
    target: Target,
    request: TuneRequest,
    cache_limit: int,
    progress: bool | Show,
) -> Scan:
    """Scan the training examples; a score of blocks needs one of states for the best state."""
    for spec in specs:
        check_without_scan(spec, target)
    score = target.score
    with make_accelerator().main_process_first():  # the others find the states in the cache
        return scanning.scan(
            target.encoder,
            target.task,
            scores=(score,) if SCORES[score].of == "states" else (score, DEFAULT),
            max_length=request.max_length,
            seed=request.seed[0],
            cache_limit=cache_limit,
            progress=progress,
        )


def _count_work(
    training: Examples, validation: Examples, settings: Settings, *, cached: bool
) -> Work:
    """Return how much training there is; each choice of an example counts as one."""
    n = len(training)
    return Work(
        examples=len(training.tokens),
        validation=len(validation.tokens),
        tokens=float(training.tokens.lengths.mean()),
        epochs=settings.steps(n) / settings.steps_per_epoch(n),
        cached=cached,
    )


def _check_choices(
    specs: Sequence[PlanSpec], choices: Sequence[Choice], target: Target
) -> list[str]:
    """Raise for plans that the encoder cannot have; return what the reader should know of them."""
    encoder, plan, warnings = target.encoder, choices[0].plan, []
    fresh = encoder.edit_spec.fresh if encoder.edit_spec is not None else frozenset()
    if above := sorted(block for block in fresh if block > plan.head):
        raise InputError(
            f"the head reads state {plan.head}, and blocks {ranges(above)} above it are "
            "re-initialised; leave them out of the edit"
        )
    if frozen := sorted(fresh - set(plan.tuned)):
        warnings.append(
            f"blocks {ranges(frozen)} are re-initialised but not tuned, so they stay random"
        )
    warnings += [
        f"{file.path} was written for another method; {target.method.name} is used"
        for file in specs
        if isinstance(file, PlanFile) and file.method not in (None, target.method)
    ]
    for choice in choices:
        check_method(encoder.model.config, choice.plan, target.method)
    return warnings


def _settle_length(
    choices: Sequence[Choice], request: TuneRequest, task: Task, blocks: int
) -> tuple[Settings, list[str]]:
    """Return the settings with the epochs that a preset has for the plan, now that it is known.

    Xie et al. 2022 tune for half of them in full on MNLI and QQP. The plan that it is compared with
    trains for as long; the notes say so where the preset has other epochs for it.
    """
    full = [choice.plan.tunes_all(blocks) and request.method == FULL for choice in choices]
    settings, *others = (_settle(request, task, full=tunes_all)[0] for tunes_all in full)
    notes = [
        f"{request.preset} trains {choice.plan.notation} for {other.epochs} epochs; here it is "
        f"trained for {settings.epochs}, like {choices[0].plan.notation}"
        for choice, other in zip(choices[1:], others, strict=True)
        if other.epochs != settings.epochs
    ]
    return settings, notes


def _list_sweeps(
    choices: Sequence[Choice], request: TuneRequest, target: Target
) -> tuple[list[Sweep], list[str]]:
    """Return the plans with their learning rates: the request's, the preset's, or the usual one."""
    sweeps, notes = [], []
    method, preset = target.method, request.preset
    for choice in choices:
        rates: Sequence[float] | None = request.learning_rate
        if rates is None and preset is not None:
            rates = preset_rates(preset, choice.strategy, choice.plan, method, target.task.name)
            if rates is None and choice is choices[0]:
                notes.append(
                    f"{preset} has no learning rates for {method.name}; the default is used"
                )
        usual = (default_learning_rate(choice.plan, target.shape.hidden_size, method),)
        sweeps.append(Sweep(choice, rates or usual))
    return sweeps, notes


def _choose_format(method: Method, head: Classifier, request: TuneRequest) -> SavedAs:
    formats: Mapping[str, SavedAs] = {
        "whole": "checkpoint" if head == "family" else "ours",
        "merged": "peft" if request.keep_adapter else "checkpoint",
        "apart": "ours",
    }
    saved_as = formats[method.saved]
    if request.save_dtype is not None and saved_as != "checkpoint":
        raise InputError(
            f"`save_dtype` ({request.save_dtype}) applies to a whole checkpoint, but this tuning "
            "saves only the trained parameters, in float32; leave it out"
        )
    return saved_as
