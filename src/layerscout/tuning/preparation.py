"""From a request to what runs start from: model, examples, settings, plans and learning rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from layerscout import scanning
from layerscout.cache import fingerprint_encoder, hash_content, make_accelerator
from layerscout.data import (
    Task,
    check_metric,
    describe_kind,
    draw_examples,
    ensure_validation,
    make_targets,
    require_validation,
)
from layerscout.models import Encoder, apply_edits, check_method, model_class, untie_blocks
from layerscout.plans import (
    FULL,
    Choice,
    Classifier,
    EditSpec,
    Plan,
    Settings,
    TuneRequest,
    Work,
    default_learning_rate,
    describe_method,
    options_of,
    preset_rates,
    ranges,
)
from layerscout.runtime import InputError, Show, make_unknown_error
from layerscout.scanning import Scan
from layerscout.scores import DEFAULT, SCORES
from layerscout.tuning.choice import (
    Asked,
    PlanContext,
    PlanFile,
    charge_scan,
    check_plan,
    is_worth_scan,
    read_plan,
    settle_plan,
)
from layerscout.tuning.setup import Part, TuneSetup
from layerscout.tuning.sweep import Sweep

# Options that `result.json` holds elsewhere: among the plan, the runs, the method and the model.
ELSEWHERE = (
    *("plan", "against", "method", "method_options", "keep_adapter", "learning_rate", "seed"),
    *("edits", "keep_layer_norm", "classifier", "metric", "examples", "fresh_head"),
)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A tuning that can begin.

    Attributes:
        setup: what every run starts from.
        sweeps: the plan, and perhaps the one to compare with, with their rates and seeds.
        recorded: what `settings` of `result.json` holds of the request.
        warnings: what the reader of the result should know.
    """

    setup: TuneSetup
    sweeps: Sequence[Sweep]
    recorded: Mapping[str, Any]
    warnings: Sequence[str]

    def check_whole_checkpoints(self) -> None:
        """Refuse to save the model of an epoch where that is not a whole checkpoint.

        Raises:
            InputError: if only what was trained is saved, or LoRA is merged at the end.
        """
        setup = self.setup
        if setup.saved_as != "checkpoint" or setup.method.saved == "merged":
            raise InputError(
                f"`checkpoints` need whole models, which {setup.method.name} with the classifier "
                f"{setup.head} does not save; use the method full and the family's classifier"
            )

    def describe(self) -> dict[str, Any]:
        """Return what is trained on what and how: what must be the same to continue a training."""
        setup, encoder = self.setup, self.setup.encoder
        fingerprint = fingerprint_encoder(encoder, encoder.blocks)
        ours, *others = self.sweeps
        splits = {
            f"{name} examples": hash_content(
                fingerprint, part.tokens, {"labels": part.answers.labels.tolist()}
            )
            for name, part in (("training", setup.training), ("validation", setup.validation))
        }
        return {
            "plan": ours.choice.plan.notation,
            "second plan": others[0].choice.plan.notation if others else None,
            "method": {"name": setup.method.name, **describe_method(setup.method)},
            **asdict(setup.settings),
            "learning rates": [list(sweep.rates) for sweep in self.sweeps],
            "seeds": list(ours.seeds),
            "trunk dropout": setup.request.trunk_dropout,
            "fresh head": setup.fresh_head,
            "edits": None if encoder.edit_spec is None else encoder.edit_spec.as_dict(),
            "rate factor of re-initialised blocks": setup.request.reinit_rate_factor,
            "classifier": setup.head,
            "processes": self.recorded["processes"],
            "model (weights, versions and precision)": fingerprint,
            **splits,
        }


def prepare(
    request: TuneRequest,
    encoder: Encoder | str | Path,
    task: Task | str | Path,
    scan: Scan | str | Path | None,
    cache_limit: int,
    progress: bool | Show,
) -> Prepared:
    """Load, check and settle all that a tuning needs; the dearest things come last.

    Raises:
        InputError: if something cannot be used as asked.
    """
    asked = [read_plan(one) for one in (request.plan, request.against) if one is not None]
    written = asked[0].method if isinstance(asked[0], PlanFile) else None
    request = request.with_method(written)
    scan = Scan.load(scan) if isinstance(scan, str | Path) else scan
    if request.score is not None and request.score not in tuple(SCORES):
        raise make_unknown_error("score", str(request.score), SCORES)
    available = ensure_validation(task, request.seed[0])
    task = draw_examples(available, request.examples, request.seed[0])
    settings, head = request.settle(
        task.name, task.train.examples, task.metric, task.kind, task.labels
    )
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
    encoder = _load_encoder(encoder, request, task, head)
    score = request.score or (DEFAULT if scan is None else scan.leading_score())
    context = PlanContext(encoder, task, scan, score, request.budget, request.method or FULL, head)
    for one in asked:
        check_plan(one, context)
    training, validation = (
        Part(
            encoder.tokenize_split(split, max_length=request.max_length),
            make_targets(split, task.kind, task.labels),
        )
        for split in (task.train, require_validation(task))
    )
    setup = TuneSetup(
        encoder=encoder,
        task=task,
        available=available.train.examples,
        training=training,
        validation=validation,
        request=request,
        settings=settings,
        head=head,
        cache_limit=cache_limit,
    )
    if request.save_dtype is not None and setup.saved_as != "checkpoint":
        raise InputError(
            f"`save_dtype` ({request.save_dtype}) applies to a whole checkpoint, but this tuning "
            "saves only the trained parameters, in float32; leave it out"
        )
    work = setup.work(cached=setup.cache_limit > 0 and not request.trunk_dropout)
    if scan is None and any(is_worth_scan(one, context, work) for one in asked):
        made = _scan_first(context, request, cache_limit, progress)
        context = replace(context, scan=made, spent=charge_scan(asked, made, context, work))
    choices, warnings = _settle_plans(asked, context, setup, work)
    setup, notes = _settle_length(choices, setup)
    warnings += notes
    listed = [_list_rates(choice, setup) for choice in choices]
    if request.preset is not None and listed[0] is None:
        warnings.append(
            f"{request.preset} has no learning rates for {setup.method.name}; the default is used"
        )
    width = encoder.model.config.hidden_size

    def make_sweep(choice: Choice, found: Sequence[float] | None) -> Sweep:
        usual = (default_learning_rate(choice.plan, width, setup.method),)
        return Sweep(choice, found or usual, request.seed)

    sweeps = [make_sweep(*pair) for pair in zip(choices, listed, strict=True)]
    return Prepared(setup, sweeps, _record(context, setup), warnings)


def _settle_plans(
    asked: Sequence[Asked], context: PlanContext, setup: TuneSetup, work: Work
) -> tuple[list[Choice], list[str]]:
    """Settle the plan and the one to compare with; and say what the reader should know."""
    choices, warnings = [], []
    for one in asked:
        choice, notes = settle_plan(one, context, work)
        choices.append(choice)
        warnings += notes
    warnings += _check_reinitialised(context.encoder, choices[0].plan)
    warnings += [
        f"{one.path} was written for another method; {setup.method.name} is used"
        for one in asked
        if isinstance(one, PlanFile) and one.method not in (None, setup.method)
    ]
    for choice in choices:
        check_method(context.encoder.model.config, choice.plan, setup.method)
    return choices, warnings


def _settle_length(choices: Sequence[Choice], setup: TuneSetup) -> tuple[TuneSetup, list[str]]:
    """Give the setup with the epochs that a preset has for the plan, now that it is known.

    Xie et al. 2022 tune for half of them in full on MNLI and QQP. The plan that it is compared with
    trains for as long, which is said where the preset has other epochs for it.
    """
    blocks, request, task = setup.encoder.blocks, setup.request, setup.task
    whole = [choice.plan.tunes_all(blocks) and setup.method.name == FULL.name for choice in choices]
    lengths = [
        request.settle(
            task.name, task.train.examples, task.metric, task.kind, task.labels, full=full
        )[0]
        for full in whole
    ]
    warnings = [
        f"{request.preset} trains {choice.plan.notation} for {settings.epochs} epochs; here it is "
        f"trained for {lengths[0].epochs}, like {choices[0].plan.notation}"
        for choice, settings in zip(choices[1:], lengths[1:], strict=True)
        if settings.epochs != lengths[0].epochs
    ]
    return replace(setup, settings=lengths[0]), warnings


def _load_encoder(
    given: Encoder | str | Path, request: TuneRequest, task: Task, head: Classifier
) -> Encoder:
    """Load the encoder, untie its blocks and edit them, as far as that was asked for."""
    encoder = given if isinstance(given, Encoder) else Encoder.load(given)
    model_class(encoder.model.config, task.kind, head)
    encoder = untie_blocks(encoder) if request.untie else encoder
    if not request.edits:
        return encoder
    spec = EditSpec(request.edits, encoder.blocks, request.seed[0], request.weight_init)
    return apply_edits(encoder, spec)


def _scan_first(
    context: PlanContext, request: TuneRequest, cache_limit: int, progress: bool | Show
) -> Scan:
    """Scan the training examples; a score of blocks needs one of states for the best state."""
    score = context.score
    with make_accelerator().main_process_first():  # the others find the states in the cache
        return scanning.scan(
            context.encoder,
            context.task,
            scores=(score,) if SCORES[score].of == "states" else (score, DEFAULT),
            max_length=request.max_length,
            seed=request.seed[0],
            cache_limit=cache_limit,
            progress=progress,
        )


def _list_rates(choice: Choice, setup: TuneSetup) -> Sequence[float] | None:
    """List the learning rates of a plan: those asked for, or the preset's, if it has some."""
    request, rates = setup.request, setup.request.learning_rate
    if rates is None and request.preset is not None:
        rates = preset_rates(
            request.preset, choice.strategy, choice.plan, setup.method, setup.task.name
        )
    return rates


def _record(context: PlanContext, setup: TuneSetup) -> dict[str, Any]:
    """Return what `settings` of `result.json` holds of the request and of what it came to."""
    request, scan, score = setup.request, context.scan, context.score
    asked = {
        name: getattr(request, name)
        for name in options_of(TuneRequest)
        if name not in ELSEWHERE and name not in options_of(Settings)
    }
    known = scan is not None and score in scan.scores
    return asked | {
        "score": score,
        "best": scan.basis(score)[0] if scan is not None and known else None,
        "cache_limit": setup.cache_limit,
        "processes": make_accelerator().num_processes,
    }


def _check_reinitialised(encoder: Encoder, plan: Plan) -> list[str]:
    """Refuse re-initialised blocks that are cut off; warn of those that are not tuned."""
    fresh = encoder.edit_spec.fresh if encoder.edit_spec is not None else frozenset()
    if above := sorted(block for block in fresh if block > plan.head):
        raise InputError(
            f"the head reads state {plan.head}, and blocks {ranges(above)} above it are "
            "re-initialised; leave them out of the edit"
        )
    if frozen := sorted(fresh - set(plan.tuned)):
        return [f"blocks {ranges(frozen)} are re-initialised but not tuned, so they stay random"]
    return []
