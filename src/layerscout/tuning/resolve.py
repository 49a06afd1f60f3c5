"""From a request to what a tuning starts from: model, examples, settings, plans and rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscout.data import (
    HELD_OUT,
    Kind,
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
    Saved,
    check_family,
    model_class,
    note_classes,
)
from layerscout.plans import (
    FULL,
    LEAST_CONTRASTED,
    Choice,
    Classifier,
    EditSpec,
    Loss,
    Settings,
    TuneRequest,
    Work,
    check_untied,
    choose_stage_loss,
    default_head_rate,
    ranges,
    share_stages,
    stage_rate,
    usual_rates,
)
from layerscout.progress import Show
from layerscout.scores import DEFAULT, SCORES
from layerscout.states import Examples, make_accelerator
from layerscout.tuning.forms import (
    Form,
    SavedAs,
    choose_form,
    is_solved,
    list_solved,
    list_states,
    solves_in_end,
)
from layerscout.tuning.plan_spec import (
    PlanSpec,
    Target,
    check_same,
    check_without_scan,
    choose_plan,
    read_plan,
    settle_plan,
)

if TYPE_CHECKING:
    from layerscout.scanning import Scan


@dataclass(frozen=True)
class RatedPlan:
    """A plan with the learning rates that it is tuned with.

    Attributes:
        choice: the plan and why.
        rates: learning rates; none where nothing is trained.
        states: those on which the head is solved, to keep the best; None where it is trained.
    """

    choice: Choice
    rates: Sequence[float]
    states: Sequence[int] | None = None


@dataclass(frozen=True, eq=False)
class Tuning(Target):
    """A tuning that can begin: what every run starts from.

    Attributes:
        available: training examples that there were before some were drawn.
        training: the training split, without states at a cut: the whole model runs on it.
        validation: the validation split, likewise.
        request: what was requested.
        settings: how runs train.
        stages: shares of its steps that each training takes whose head is solved in the end; None
            where the head is trained.
        work: how much training that is by a single one, with the states at the cut kept.
        classifier: what reads the last state where it is trained.
        form: of heads that are solved; None where none is, or can be.
        cache_limit: bytes that the cache may hold.
        saved_as: how the tuned model is written: whole, or only what was trained.
        plans: the plan, and perhaps the one to compare with, with their rates.
        free: the states on which a head can be solved beside a training; none where it cannot.
        scan_seconds: what the scan took, where it was made for this tuning.
        warnings: what the reader of the result should know.
    """

    available: int
    training: Examples
    validation: Examples
    request: TuneRequest
    settings: Settings
    stages: Sequence[float] | None
    work: Work
    classifier: Classifier
    form: Form | None
    cache_limit: int
    saved_as: SavedAs
    plans: Sequence[RatedPlan]
    free: Sequence[int]
    scan_seconds: float | None
    warnings: Sequence[str]

    @property
    def solves(self) -> bool:
        """Whether the head of the plan that is kept is solved, not trained."""
        return self.plans[0].states is not None

    @property
    def starts_solved(self) -> bool:
        """Whether a training starts with its head solved on what that is given."""
        start = self.request.head_start
        if self.settings.loss is not None or start is not None:
            return start == "solved"
        return self.solves

    @property
    def reads(self) -> Classifier:
        """What reads the last state of the model that is kept."""
        if self.solves and self.form is not None and self.form.head is None:
            return "mean-linear"
        return self.classifier

    @property
    def saves(self) -> Saved:
        """What is saved of the model, by which it can have other formats."""
        if self.saved_as != "checkpoint":
            return "mean" if self.saved_as == "sentence-transformers" else "parameters"
        if self.solves and self.form is not None and self.form.averages:
            return "averaging"
        return "choices" if self.task.kind == "multiple_choice" else "family"

    @property
    def trains(self) -> bool:
        """Whether a plan is trained, be it the one that is kept or the other."""
        return any(rated.rates for rated in self.plans)

    @property
    def save_dtype(self) -> Computed:
        """What the weights of the saved model are stored in, if it is a whole checkpoint."""
        if self.saved_as != "checkpoint" or self.solves:
            return "float32"  # an averaging block is exact in no shorter one
        return self.request.save_dtype or self.encoder.dtype

    @property
    def head_learning_rate(self) -> float | None:
        """The rate of the head where blocks are tuned too; None if it is that of the blocks.

        A head that was solved has not far to go: on CoNLL-2003 (128 sentences, MiniLM, 48 steps)
        entity F1 is 0.65 at the blocks' rate, 0.64 at the one here, and 0.60 from a random head.
        """
        rate, solved = self.settings.head_learning_rate, self.starts_solved
        if rate is not None or self.request.preset is not None or solved:
            return rate
        if self.task.kind in ("token_classification", "multi_label_classification"):
            return default_head_rate(self.shape.hidden_size)
        return None


def resolve(
    request: TuneRequest,
    encoder: Encoder | str | Path,
    task: Task | str | Path,
    scan: Scan | None,
    cache_limit: int,
    progress: bool | Show,
    *,
    halves: bool = True,
) -> Tuning:
    """Load, check and settle all that a tuning needs; what takes longest comes last.

    Of few rows, `halves` judge each other where the head of a single plan is solved in the end.

    Raises:
        InputError: if something cannot be used as requested.
    """
    specs = [read_plan(plan) for plan in (request.plan, request.against) if plan is not None]
    request = request.with_method(specs[0].method)
    _check_applicable(request, specs, scan)
    available = _set_aside(task, specs, request)
    task = draw_examples(available, request.examples, request.seed[0])
    settle = partial(
        request.settle, task.name, task.train.examples, task.metric, task.kind, task.labels
    )
    settings, classifier = settle()
    _check_settings(settings, task)
    saved_as = _choose_format(request, classifier)
    target = _aim(encoder, task, scan, request, classifier)
    warnings, scan_seconds = _check_target(target, specs), None
    if scan is None and any(spec.needs_scan or (spec.is_auto and request.score) for spec in specs):
        scan = _make_scan(specs, target, request, cache_limit, progress)
        target, scan_seconds = replace(target, scan=scan), sum(scan.seconds.values())
    settled = [None if spec.is_auto else settle_plan(spec, target) for spec in specs]
    encode = partial(encode_split, encoder=target.encoder, task=task, max_length=request.max_length)
    training, validation = encode(task.train), encode(require_validation(task))
    count = _count_work(training, validation)
    work = count(settings, cached=cache_limit > 0 and not request.trunk_dropout)
    rows = len(training) + len(validation)
    loss, few = _settle_loss(specs, request, task.kind, rows)
    choices, form, staged = _choose_plans(specs, settled, target, work, request, classifier, few)
    shares = share_stages(rows) if halves and len(specs) == 1 else (1.0,)
    # A preset may have other epochs for full fine-tuning, as Xie et al. 2022 on MNLI and QQP.
    full = choices[0].plan.tunes_all(target.shape.blocks) and target.method == FULL
    settings, _ = settle(full=full, staged=staged, loss=loss)
    plans = [*map(partial(_rate, request, target, form, staged), specs, choices)]
    warnings += _check_plans(plans, target, request, classifier)
    if plans[0].states is not None and form is not None:
        saved_as = form.saved_as
    return Tuning(
        **vars(target),
        available=available.train.examples,
        training=training,
        validation=validation,
        request=request,
        settings=settings,
        stages=shares if staged else None,
        work=count(settings),
        classifier=classifier,
        form=form,
        cache_limit=cache_limit,
        saved_as=saved_as,
        plans=plans,
        free=list_states(target) if form is not None and plans[0].rates else (),
        scan_seconds=scan_seconds,
        warnings=warnings,
    )


def _aim(
    encoder: Encoder | str | Path,
    task: Task,
    scan: Scan | None,
    request: TuneRequest,
    classifier: Classifier,
) -> Target:
    """Load the encoder, untie its blocks and edit them as requested, and say what is tuned."""
    encoder = encoder if isinstance(encoder, Encoder) else Encoder.load(encoder)
    model_class(encoder.model.config, task.kind, classifier)
    if request.untie:
        from layerscout.models import untie_blocks

        encoder = untie_blocks(encoder)
    if request.edits:
        from layerscout.models import apply_edits

        init, seed = request.weight_init, request.seed[0]
        encoder = apply_edits(encoder, EditSpec(request.edits, encoder.blocks, seed, init))
    shape = encoder.shape(len(task.labels), task.kind, classifier)
    score = request.score or (DEFAULT if scan is None else scan.leading_score())
    return Target(encoder, task, shape, request.method or FULL, scan, score)


def _choose_plans(
    specs: Sequence[PlanSpec],
    settled: Sequence[Choice | None],
    target: Target,
    work: Work,
    request: TuneRequest,
    classifier: Classifier,
    few: bool,
) -> tuple[Sequence[Choice], Form | None, bool]:
    """Return the plans, with "auto" chosen; the form of heads; and if they are solved in the end.

    The form is that of heads that are solved, of a plan or beside it; None if none can be.
    """
    choices = [c or choose_plan(target, work, request.budget, few=few) for c in settled]
    solved = any(is_solved(choice.plan, request, target.method) for choice in choices)
    form: Form | None = None
    if request.asks_solved or solved:
        form = choose_form(target.encoder, target.task, request)
    elif classifier == "family" or target.encoder.family.final_norm is None:
        form = choose_form(target.encoder, target.task, replace(request, classifier=None))
    staged = _settle_end(specs, choices, request, target, form)
    if few and not staged:  # by which alone classes are contrasted
        return _choose_plans(specs, settled, target, work, request, classifier, False)
    return choices, form, staged


def _settle_end(
    specs: Sequence[PlanSpec],
    choices: Sequence[Choice],
    request: TuneRequest,
    target: Target,
    form: Form | None,
) -> bool:
    """Return whether heads are solved in the end of what is trained: of both plans, or of none.

    Raises:
        InputError: if that was asked for and cannot be, or the second plan alone would end so.
    """
    pairs = [*zip(specs, (choice.plan for choice in choices), strict=True)]
    trained = [pair for pair in pairs if not is_solved(pair[1], request, target.method)] or pairs
    first, *others = (solves_in_end(*pair, request, target, form) for pair in trained)
    if any(others) and not first:
        written = f"{trained[1][0].written} ends with a solved head, and {trained[0][0].written}"
        raise InputError(
            f"{written} with one that is trained, so they cannot be compared; give `head_end` "
            "solved or trained, or name them the other way round"
        )
    return first


def _settle_loss(
    specs: Sequence[PlanSpec], request: TuneRequest, kind: Kind, rows: int
) -> tuple[Loss | None, bool]:
    """Return what a training lowers whose head is solved then, and if "auto" plans for few rows.

    The first plan that trains blocks decides, be it alone or beside another.
    """
    spec = next((spec for spec in specs if not spec.is_head), specs[0])
    loss = choose_stage_loss(kind, rows, request.score) if spec.is_auto else None
    few = loss is not None
    if request.loss is not None:
        return request.loss, few
    if request.batch_size < LEAST_CONTRASTED or request.head_start is not None:
        return None, False
    if "loss" in spec.content:  # of a plan.json, whose task may have been of another kind
        contrasts = spec.content["loss"] == "contrastive" and kind != "regression"
        return "contrastive" if contrasts else None, few
    return loss, few


def encode_split(split: Split, encoder: Encoder, task: Task, max_length: int) -> Examples:
    """Tokenise a split of a task; there are no states at a cut."""
    tokens = encoder.tokenize_split(split, max_length=max_length)
    return Examples(tokens, make_targets(split, task.kind, task.labels), None)


def _set_aside(task: Task | str | Path, specs: Sequence[PlanSpec], request: TuneRequest) -> Task:
    """Return the task with a validation split, set aside if it has none.

    A head that is solved takes them, too, and is judged in folds: of few rows, one will do, and of
    classes with two rows each any of these.
    """
    task, seed = task if isinstance(task, Task) else Task.load(task), request.seed[0]
    solved = request.method == FULL and not request.trains and all(spec.is_head for spec in specs)
    if task.validation is None:
        least, small = max(HELD_OUT, 1 / task.train.examples), task
        if not solved:
            with suppress(InputError):
                task = task.hold_out(HELD_OUT, seed)
        if task is small:
            task = small.hold_out(least, seed, least=1)
    return ensure_validation(task, seed)


def _check_applicable(request: TuneRequest, specs: Sequence[PlanSpec], scan: Scan | None) -> None:
    """Raise for options of a plan's choice that none depends on, or that the scan cannot serve."""
    if request.score is not None and request.score not in tuple(SCORES):
        raise make_unknown_error("score", str(request.score), SCORES)
    auto, rule = any(spec.is_auto for spec in specs), ""
    if "budget" in request.given and not auto:
        rule = "`budget` applies only to the plan auto"
    elif request.score is not None and not auto and not any(spec.needs_scan for spec in specs):
        rule = "`score` applies only to plans that follow from a scan, such as best-down:3@top"
    if rule:
        names = " and ".join(spec.written for spec in specs)
        raise InputError(f"{rule}, got {names:.80}; leave it out")
    if scan is not None and request.score is not None:
        scan.basis(request.score)


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


def _check_target(target: Target, specs: Sequence[PlanSpec]) -> list[str]:
    """Raise if the method or what the plans rest on is not for the model; return warnings."""
    check_family(target.shape.family, target.method)
    check_untied(target.shape.family, target.shape.weights, target.method)
    warnings, scan = [], target.scan
    if scan is not None:
        warnings += check_same("the scan", scan.model, scan.task, target)
        warnings += _check_data(scan, target.task)
    for spec in specs:
        model, task = spec.content.get("model"), spec.content.get("task", {})
        warnings += check_same(f"the plan {spec.written}", model, task, target)
    return warnings


def _check_data(scan: Scan, task: Task) -> list[str]:
    """Warn if what was read for a scan, with the same options, has other texts or labels now."""

    def describe(origin: Mapping[str, Any]) -> dict[str, Any]:
        read = {k: origin.get(k) for k in task.origin if k not in ("test", "validation_seed")}
        # Where a tenth is set aside, it is of the same texts.
        return read | {"validation": origin.get("validation") or HELD_OUT}

    now, before = describe(task.origin), describe(scan.settings)
    hashes = {"texts": "data_sha256", "labels": "labels_sha256"}
    pairs = {what: (now.pop(key, None), before.pop(key, None)) for what, key in hashes.items()}
    changed = [what for what, pair in pairs.items() if None not in pair and pair[0] != pair[1]]
    if not changed or now != before:
        return []
    return [
        f"the scan is for other {changed[0]} of {task.name}, which were changed since; scan them "
        "again"
    ]


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
    from layerscout import scanning

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


def _check_plans(
    plans: Sequence[RatedPlan], target: Target, request: TuneRequest, classifier: Classifier
) -> list[str]:
    """Raise for plans that the encoder cannot have; return what the reader should know of them."""
    from layerscout.models import check_method

    encoder, task, first = target.encoder, target.task, plans[0].choice.plan
    fresh = encoder.edit_spec.fresh if encoder.edit_spec is not None else frozenset()
    if above := sorted(block for block in fresh if block > first.head):
        raise InputError(
            f"the head reads state {first.head}, and blocks {ranges(above)} above it are "
            "re-initialised; leave them out of the edit"
        )
    for rated in plans:
        check_method(encoder.model.config, rated.choice.plan, target.method)
    if plans[0].states is not None and request.save_dtype not in (None, "float32"):
        raise InputError(
            f"a head that is solved is saved in float32, got `save_dtype` ({request.save_dtype}); "
            "leave it out, or give `epochs` to train the head"
        )
    warnings = []
    if frozen := ranges(sorted(fresh - set(first.tuned))):
        warnings.append(f"blocks {frozen} are re-initialised but not tuned, so they stay random")
    starts = any(rated.states is None for rated in plans) and not request.draws_head
    if classifier == "family" and starts:
        warnings += note_classes(encoder, task.labels, task.kind, request.seed[0])
    return warnings


def _count_work(training: Examples, validation: Examples) -> Callable[..., Work]:
    """Return what counts the work of training on these examples, from its settings."""
    return partial(
        Work.of,
        examples=len(training),
        texts=len(training.tokens),
        validation=len(validation.tokens),
        tokens=float(training.tokens.lengths.mean()),
    )


def _rate(
    request: TuneRequest,
    target: Target,
    form: Form | None,
    staged: bool,
    spec: PlanSpec,
    choice: Choice,
) -> RatedPlan:
    """Return a plan with its learning rates, and with the states whose heads are solved."""
    plan, method, width = choice.plan, target.method, target.shape.hidden_size
    states = list_solved(spec, plan, request, target, form)
    if states is not None:
        return RatedPlan(choice, (), states)
    if staged:
        rates = request.learning_rate or (stage_rate(plan, width, method),)
        return RatedPlan(choice, rates, [plan.head])
    usual = usual_rates(request.preset, choice.strategy, plan, method, target.task.name, width)
    return RatedPlan(choice, request.learning_rate or usual)


def _choose_format(request: TuneRequest, classifier: Classifier) -> SavedAs:
    whole: SavedAs = "checkpoint" if classifier == "family" else "sentence-transformers"
    formats: Mapping[str, SavedAs] = {
        "whole": whole,
        "merged": "peft" if request.keep_adapter else whole,
        "apart": "ours",
    }
    saved_as = formats[(request.method or FULL).saved]
    if request.save_dtype is not None and saved_as != "checkpoint":
        raise InputError(
            f"`save_dtype` ({request.save_dtype}) applies to a checkpoint of transformers, and "
            "what this tuning saves is always in float32; leave it out"
        )
    return saved_as
