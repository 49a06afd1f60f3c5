"""Tuning what a plan says, from the states of a trunk that is computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor

from layerscout import scanning
from layerscout.cache import (
    DEFAULT_LIMIT,
    Examples,
    Trunk,
    fingerprint_encoder,
    hash_content,
    join_team,
    make_accelerator,
)
from layerscout.data import (
    Kind,
    Split,
    Task,
    check_metric,
    draw_examples,
    ensure_validation,
    make_targets,
    require_validation,
)
from layerscout.models import Encoder, apply_edits, check_method, export, model_class, untie_blocks
from layerscout.plans import (
    FULL,
    Adapter,
    Choice,
    Classifier,
    Edit,
    EditSpec,
    Keep,
    LoRA,
    Method,
    Plan,
    PrefixTuning,
    Preserve,
    Reinitialize,
    Schedule,
    Settings,
    WeightInit,
    checked_budget,
    described,
    make_edits,
    make_method,
    preset as preset_of,
    preset_rates,
    ranges,
    split_edits,
)
from layerscout.runtime import (
    InputError,
    LayerscoutError,
    Show,
    check_checkpoint_folder,
    check_integer,
    check_number,
    check_output_folder,
    lock_folder,
    show_progress,
    unknown,
)
from layerscout.scanning import Scan
from layerscout.scores import SCORES, usual_scores
from layerscout.tuning.choice import Ground, check, needs_scan, settled, written_method
from layerscout.tuning.outcome import Tuned, outcome
from layerscout.tuning.result import Result
from layerscout.tuning.setup import Part, TuneSetup
from layerscout.tuning.snapshots import Snapshots
from layerscout.tuning.tracking import check_tracker, tracking
from layerscout.tuning.training import Run, train

Number = TypeVar("Number", int, float)


def tune(
    encoder: Encoder | str | Path,
    task: Task | str | Path,
    plan: Plan | str | Path = "auto",
    *,
    scan: Scan | str | Path | None = None,
    score: str | None = None,
    budget: float = 0.5,
    method: Method | str | None = None,
    classifier: Classifier | None = None,
    preset: str | None = None,
    as_released: bool = False,
    learning_rate: float | Sequence[float] | None = None,
    seed: int | Sequence[int] = 0,
    epochs: int | None = None,
    max_steps: int | None = None,
    batch_size: int | None = None,
    keep: Keep | None = None,
    patience: int | None = None,
    warmup: float | None = None,
    schedule: Schedule | None = None,
    weight_decay: float | None = None,
    max_grad_norm: float | None = None,
    metric: str | None = None,
    examples: int | Literal["all"] = "all",
    max_length: int = 128,
    trunk_dropout: bool = False,
    fresh_head: bool = False,
    untie: bool = False,
    edits: str | Edit | Sequence[Edit] = (),
    keep_layer_norm: bool = False,
    reinit_rate_factor: float = 1.0,
    against: Plan | str | Path | None = None,
    keep_adapter: bool = False,
    cache_limit: int = DEFAULT_LIMIT,
    checkpoints: Mapping[int, str | Path] | None = None,
    snapshots: str | Path | None = None,
    resume: bool = False,
    track: str | None = None,
    logs: str | Path = "logs",
    measure: bool = True,
    progress: bool = True,
) -> Result:
    """Tune the blocks of a plan and the head; what lies below is computed once and kept.

    Every combination of `learning_rate` and `seed` is trained from the same start. Counted is the
    rate with the best mean over the seeds, and of its runs the best. Under `accelerate launch`
    several processes share every batch; the first one has the result to save.

    Args:
        encoder: an `Encoder`, or what `Encoder.load` takes.
        task: a `Task`, or what `Task.load` takes. Without a validation split a tenth of the
            training rows is set aside.
        plan: a `Plan`, its notation, a strategy, or a plan.json; or text with edits before it, such
            as "reinit:9-12 + top:3".
        scan: what strategies such as "best-down:3@top" and "auto" go by, or its folder; without
            it, the training examples are scanned first.
        score: the score that says which state is the best; unless it is given, that of the scan,
            or the debiased variability ratio, or for numbers the canonical correlation.
        budget: of "auto": training FLOPs as a share of those of full fine-tuning.
        method: a `Method` or its name: how the blocks are tuned. None for what a
            plan.json was written for, or else "full".
        classifier: what reads the last state: the "family"'s own head, or "mean-linear", a linear
            layer on the mean of the tokens. None for the preset's, or else "family".
        preset: train as a paper did, a key of `PRESETS`; what is given besides
            goes first.
        as_released: with `preset`, or where blocks are drawn anew, as the published code did where
            it differs from the text.
        learning_rate: one or several peaks; None for the preset's, or what
            `default_learning_rate` gives.
        seed: one or several, of the head's start, the order of examples and dropout; the first
            one also of rows set aside or drawn.
        epochs: passes over the training examples; 5 unless given. For this and all up to
            `max_grad_norm` see `Settings`, which has what holds by default.
        max_steps: steps of the whole training, in place of `epochs`.
        batch_size: examples of a step; 32 unless given.
        keep: keep the model of the "best" epoch or of the "last" one.
        patience: stop a run after so many epochs without a better one.
        warmup: steps in which the learning rate rises, or their share of all; 0.06 unless given.
        schedule: "linear" (down to 0) or "constant".
        weight_decay: of AdamW.
        max_grad_norm: clip the gradient's norm to this; not by default.
        metric: a key of `METRICS_OF` for the task's kind; None for the task's
            own.
        examples: train on so many of the training examples, drawn in proportion to the classes,
            or on "all"; the choices of an example are drawn together.
        max_length: tokens kept of an input.
        trunk_dropout: run frozen blocks below the tuned ones at every step and with dropout, as
            the papers did, instead of once.
        fresh_head: draw the whole head anew, whatever the checkpoint brings of it.
        untie: give blocks that share weights (ALBERT) copies of their own.
        edits: what is done to the blocks first, such as "reinit:9-12"; see
            `make_edits`. Plans count the blocks that are there then. Where blocks
            are drawn anew, by the seed, the whole head is drawn too, unless `as_released`.
        keep_layer_norm: leave the norms of blocks that are drawn anew as they are.
        reinit_rate_factor: how many times the learning rate blocks that are drawn anew have.
        against: a second plan, such as "full", that is tuned in the same way to compare with.
        keep_adapter: with LoRA, keep what it learnt apart, as a folder of peft, instead of merging.
        cache_limit: bytes that the cache may hold once new states are added; 0 keeps none.
        checkpoints: folders by epoch, where the model is written as it is after that epoch, such as
            for the `checkpoints` of a scan.
        snapshots: a folder where every epoch is written down, until the result is saved; None for
            none.
        resume: go on with a training that was stopped, from its snapshots.
        track: report every epoch to "tensorboard", "mlflow", "wandb" or "trackio".
        logs: the folder of trackers that write files.
        measure: also judge the kept model by every metric, and measure how fast it is; without
            that there are no predictions, and of the metrics only the one that counts.
        progress: show a bar on the terminal.

    Raises:
        InputError: if something cannot be used as asked.
        LayerscoutError: if no run came to the end of an epoch with a finite loss.
    """
    # What can be refused is refused before any work.
    seeds = _several("seed", seed, lambda one: check_integer("seed", one, 0, 2**63 - 1))
    rates = None
    if learning_rate is not None:
        rates = _several("learning_rate", learning_rate, _rate)
    budget, max_length = checked_budget(budget), check_integer("max_length", max_length, 1)
    if examples != "all":
        examples = check_integer("examples", examples, 1, remedy="'all' takes every one")
    rule, remedy = "a number of bytes, 0 or more", "20 * 10**9 is 20 GB"
    cache_limit = int(
        check_number("cache_limit", cache_limit, rule, lambda size: size >= 0, remedy)
    )
    scan = Scan.load(scan) if isinstance(scan, str | Path) else scan
    if score is not None and score not in tuple(SCORES):
        raise unknown("score", str(score), SCORES)
    asked: dict[str, Any] = {
        "epochs": epochs,
        "max_steps": max_steps,
        "batch_size": batch_size,
        "warmup": warmup,
        "schedule": schedule,
        "weight_decay": weight_decay,
        "max_grad_norm": max_grad_norm,
        "patience": patience,
        "keep": keep,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    Settings(**given)
    if "epochs" in given and "max_steps" in given:
        raise InputError(
            f"`epochs` and `max_steps` both say how long to train, got {epochs} and {max_steps}; "
            "give one of them"
        )
    if isinstance(plan, str) and "+" in plan and not plan.endswith(".json"):
        if edits:
            raise InputError(f"edits stand before the plan or in `edits`, got both: {plan:.80}")
        edits, plan = split_edits(plan)
    made = make_edits(edits)
    method = (written_method(plan) or FULL) if method is None else make_method(method)
    if keep_adapter and not isinstance(method, LoRA):
        raise InputError(f"`keep_adapter` is for the method lora, got {method.name}; leave it out")
    if keep_adapter and (untie or made):
        raise InputError(
            "`keep_adapter` needs a base that transformers can load, which blocks that were untied "
            "or edited are not; leave it out"
        )
    redraws = any(isinstance(one, Reinitialize | Preserve) for one in made)
    factor = check_number(
        "reinit_rate_factor", reinit_rate_factor, "above 0", lambda given: given > 0
    )
    if redraws and len(seeds) > 1:
        raise InputError(
            f"blocks are drawn anew once for a tuning, by a single seed, got seeds {seeds}; tune "
            "once for each"
        )
    if (keep_layer_norm or factor != 1) and not redraws:
        raise InputError(
            "`keep_layer_norm` and `reinit_rate_factor` are for blocks that are drawn anew, and "
            "there are none; add an edit such as reinit:9-12"
        )
    if preset is None and as_released and not redraws:
        raise InputError(
            "`as_released` says how to follow a preset or draw blocks anew, and there is neither; "
            "name a preset or add an edit such as reinit:9-12"
        )
    if checkpoints and (len(seeds) > 1 or (rates is not None and len(rates) > 1) or against):
        raise InputError(
            "`checkpoints` are of a single training; give one plan, one learning rate and one seed"
        )
    for epoch, folder in (checkpoints or {}).items():
        check_integer("checkpoints", epoch, 1, remedy="epochs count from 1")
        check_checkpoint_folder(Path(folder))
    if resume and snapshots is None:
        raise InputError("`resume` goes on from `snapshots`, and none are given; name the folder")
    if track is not None:
        check_tracker(track)
        check_output_folder(Path(logs))
    accelerator = make_accelerator()
    progress = progress and accelerator.is_main_process
    available = ensure_validation(task, seeds[0])
    metric = available.metric if metric is None else metric
    check_metric(metric, available.kind)
    task = draw_examples(available, examples, seeds[0])
    settings, usual_head = _settings(given | {"metric": metric}, preset, as_released, task)
    head = usual_head if classifier is None else classifier
    if head not in get_args(Classifier):
        raise unknown("classifier", str(head), get_args(Classifier))
    if head == "mean-linear" and isinstance(method, LoRA):
        raise InputError(
            "LoRA gives a checkpoint of the family, which has no classifier mean-linear; use "
            "another method, or the classifier family"
        )
    usual = usual_scores(numbers=task.kind == "regression")[0]
    if score is None:
        score = usual if scan is None else scan.leading()
    encoder = encoder if isinstance(encoder, Encoder) else Encoder.load(encoder)
    model_class(encoder.model.config, task.kind, head)
    encoder = untie_blocks(encoder) if untie else encoder
    if made:
        weight_init = WeightInit(keep_layer_norm, as_released)
        encoder = apply_edits(encoder, EditSpec(made, encoder.blocks, seeds[0], weight_init))
    wanted = [plan] if against is None else [plan, against]
    ground = Ground(encoder, task, scan, score, budget, method, head)
    for one in wanted:
        check(one, ground)
    if scan is None and any(map(needs_scan, wanted)):
        with accelerator.main_process_first():  # the others find the states in the cache
            scan = scanning.scan(
                encoder,
                task,
                scores=(score,) if SCORES[score].of == "states" else (score, usual),
                max_length=max_length,
                seed=seeds[0],
                cache_limit=cache_limit,
                progress=progress,
            )
        ground = replace(ground, scan=scan)
    training, validation = (
        _part(encoder, split, task.kind, max_length)
        for split in (task.train, require_validation(task))
    )
    setup = TuneSetup(
        encoder=encoder,
        task=task,
        available=len(available.train) // training.answers.choices,
        training=training,
        validation=validation,
        settings=settings,
        method=method,
        head=head,
        keep_adapter=keep_adapter,
        trunk_dropout=trunk_dropout,
        fresh_head=fresh_head or (redraws and not as_released),
        reinit_rate_factor=factor,
        cache_limit=cache_limit,
    )
    work = setup.work(cached=cache_limit > 0 and not trunk_dropout)
    choices = [settled(one, ground, work) for one in wanted]
    warned = [warning for _, warnings in choices for warning in warnings]
    warned += _drawn_in_vain(encoder, choices[0][0].plan)
    warned += [
        f"{one} was written for another method than {method.name}, which is used"
        for one in wanted
        if written_method(one) not in (None, method)
    ]
    if checkpoints and (setup.saved_as != "checkpoint" or isinstance(method, LoRA)):
        raise InputError(
            f"`checkpoints` are whole models, which {method.name} with the classifier {head} does "
            "not give; use the method full and the family's classifier"
        )
    for choice, _ in choices:
        check_method(encoder.model.config, choice.plan, method)
    recorded = {
        "max_length": max_length,
        "budget": budget,
        "score": score,
        "best": None if scan is None or score not in scan.scores else scan.basis(score)[0],
        "untie": untie,
        "cache_limit": cache_limit,
        "preset": preset,
        "as_released": as_released,
        "processes": accelerator.num_processes,
    }
    sweeps = [Sweep(choice, _rates(rates, preset, choice, setup), seeds) for choice, _ in choices]
    if preset == "xie2022" and rates is None and isinstance(method, LoRA | PrefixTuning):
        warned.append(f"xie2022 has no learning rates for {method.name}; a usual one was taken")
    opened = None
    with ExitStack() as holding:
        show = holding.enter_context(show_progress(progress))
        if snapshots is not None:
            if accelerator.is_main_process:
                holding.enter_context(lock_folder(Path(snapshots)))
            about = _about(setup, sweeps, recorded)
            with accelerator.main_process_first():
                opened = Snapshots.open(
                    Path(snapshots),
                    about,
                    resume=resume or not accelerator.is_main_process,
                    surroundings={"threads": torch.get_num_threads(), "cache_limit": cache_limit},
                )
                warned += opened.notes
        first, *others = sweeps
        try:
            aside = _Aside(show, opened, "plan-1-", track, Path(logs), checkpoints or {})
            tuned = [_tuned(setup, first, aside)]
        except _NothingFinishedError:
            if opened is not None:  # nothing in them is worth going on with
                opened.discard()
            raise
        for sweep in others:
            try:
                aside = _Aside(show, opened, "plan-2-", track, Path(logs))
                tuned.append(_tuned(setup, sweep, aside))
            except _NothingFinishedError as error:  # the first plan has come through
                warned.append(f"there is nothing to compare with: {error}")
        show("measuring the speed" if measure else "done", 0, 1)
        result = outcome(setup, tuned, recorded, warned, measure=measure)
        return replace(result, snapshots=opened)


class _NothingFinishedError(LayerscoutError):
    """No run of a plan came to the end of an epoch."""


@dataclass(frozen=True)
class Sweep:
    """A plan with the learning rates and seeds that it is tuned with."""

    choice: Choice
    rates: Sequence[float]
    seeds: Sequence[int]


@dataclass(frozen=True)
class _Aside:
    """What goes on beside the runs of a plan: what is shown, kept and reported."""

    show: Show
    snapshots: Snapshots | None
    prefix: str
    track: str | None
    logs: Path
    checkpoints: Mapping[int, str | Path] = field(default_factory=dict)

    def after(self, encoder: Encoder, model: Any, epoch: int) -> None:
        """Write the model of an epoch down, where that was asked for."""
        if epoch in self.checkpoints and make_accelerator().is_main_process:
            card = f"{encoder.name} in the course of a training, after epoch {epoch}.\n"
            export(model, encoder.tokenizer, self.checkpoints[epoch], card)


def _settings(
    given: dict[str, Any], preset: str | None, as_released: bool, task: Task
) -> tuple[Settings, Classifier]:
    """Fill in what was not given from the preset; and give its classifier."""
    if preset is None:
        return Settings(**given), "family"
    found = preset_of(preset, task=task.name, examples=task.train.examples, as_released=as_released)
    ours = dict(found.settings)
    if "epochs" in given:
        ours.pop("max_steps", None)
    return Settings(**ours | given), found.classifier


def _rates(
    given: Sequence[float] | None, preset: str | None, choice: Choice, setup: TuneSetup
) -> Sequence[float]:
    plan, method = choice.plan, setup.method
    if given is None and preset is not None:
        given = preset_rates(preset, choice.strategy, plan, method, setup.task.name)
    width = setup.encoder.model.config.hidden_size
    return given or [default_learning_rate(plan, width, method)]


def _about(
    setup: TuneSetup, sweeps: Sequence[Sweep], recorded: Mapping[str, Any]
) -> dict[str, Any]:
    """Tell what is trained on what and how: what must be the same for a training to go on."""
    encoder = setup.encoder
    fingerprint = fingerprint_encoder(encoder, encoder.blocks)
    ours, *others = sweeps
    splits = {
        f"{name} examples": hash_content(
            fingerprint, part.tokens, {"labels": part.answers.labels.tolist()}
        )
        for name, part in (("training", setup.training), ("validation", setup.validation))
    }
    return {
        "plan": ours.choice.plan.notation,
        "second plan": others[0].choice.plan.notation if others else None,
        "method": {"name": setup.method.name, **described(setup.method)},
        **asdict(setup.settings),
        "learning rates": [list(sweep.rates) for sweep in sweeps],
        "seeds": list(ours.seeds),
        "trunk dropout": setup.trunk_dropout,
        "fresh head": setup.fresh_head,
        "edits": None if encoder.edit_spec is None else encoder.edit_spec.as_dict(),
        "learning rate of blocks drawn anew, times": setup.reinit_rate_factor,
        "classifier": setup.head,
        "processes": recorded["processes"],
        "model (weights, versions and precision)": fingerprint,
        **splits,
    }


def _drawn_in_vain(encoder: Encoder, plan: Plan) -> list[str]:
    """Refuse blocks that were drawn anew and are cut off; warn of those that are not tuned."""
    fresh = encoder.edit_spec.fresh if encoder.edit_spec is not None else frozenset()
    if above := sorted(block for block in fresh if block > plan.head):
        raise InputError(
            f"the head reads state {plan.head}, and blocks {ranges(above)} above it are drawn "
            "anew; leave them out of the edit"
        )
    if frozen := sorted(fresh - set(plan.tuned)):
        return [f"blocks {ranges(frozen)} were drawn anew and are not tuned, so they stay random"]
    return []


def _part(encoder: Encoder, split: Split, kind: Kind, max_length: int) -> Part:
    tokens = encoder.tokenize(split.texts, split.pairs, max_length=max_length)
    return Part(tokens, make_targets(split, kind))


def _rate(given: Any) -> float:
    return check_number("learning_rate", given, "above 0", lambda rate: rate > 0)


def _several(name: str, given: Any, checked: Callable[[Any], Number]) -> list[Number]:
    """Give one or several numbers as a list, each of them checked."""
    several = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
    numbers = [checked(one) for one in (given if several else [given])]
    if not numbers or len(set(numbers)) < len(numbers):
        raise InputError(
            f"`{name}` takes one number or several different ones, got {numbers}; leave out what "
            "is there twice"
        )
    return numbers


# --- Runs --------------------------------------------------------------------------------------


def _tuned(setup: TuneSetup, sweep: Sweep, aside: _Aside) -> Tuned:
    """Train a plan with every rate and seed, and choose the run that counts."""
    plan, settings = sweep.choice.plan, setup.settings
    training, validation = _examples(setup, plan, aside.show)
    runs: list[Run] = []
    champion: _Champion | None = None
    for rate in sweep.rates:
        values: list[float] = []
        best: _Champion | None = None
        for seed in sweep.seeds:
            label = f"{plan.notation}, learning rate {rate:g}, seed {seed}"
            told = {"learning_rate": rate, "seed": seed, "plan": plan.notation}
            told |= {"method": setup.method.name, **asdict(settings)}
            name = f"{aside.prefix}run-{len(runs) + 1}"
            with tracking(aside.track, aside.logs, label, told) as log:
                model = setup.equipped(plan, seed).model
                run, parameters = train(
                    setup.encoder,
                    model,
                    training,
                    validation,
                    learning_rate=rate,
                    seed=seed,
                    settings=settings,
                    advance=partial(aside.show, label),
                    snapshots=None if aside.snapshots is None else aside.snapshots.of(name),
                    log=log,
                    after=partial(aside.after, setup.encoder, model),
                    factors=setup.factors(model),
                )
            if run.curve:
                values.append(run.kept(settings.keep).value)
                if best is None or values[-1] > best.rank[1]:
                    best = _Champion((0, values[-1]), len(runs), parameters)
            runs.append(run)
        if best is not None:
            best = replace(best, rank=(len(values), mean(values)))
            champion = best if champion is None or best.rank > champion.rank else champion
    if champion is None:
        raise _NothingFinishedError(
            f"no run of {plan.notation} finished an epoch: with learning rate "
            f"{runs[0].learning_rate:g} {runs[0].stopped}; use a lower --learning-rate"
        )
    trunks = tuple(e.trunk for e in (training, validation) if e.trunk is not None)
    return Tuned(sweep.choice, tuple(runs), champion.run, champion.parameters, trunks, validation)


@dataclass(frozen=True, eq=False)
class _Champion:
    """The best run of a learning rate, which ranks by how many runs came through and their mean."""

    rank: tuple[int, float]
    run: int
    parameters: Mapping[str, Tensor]


def default_learning_rate(plan: Plan, hidden_size: int, method: Method = FULL) -> float:
    """Give a peak learning rate for a plan, a width and a method.

    At 1,024 features it is 1e-3 where the head alone is tuned, 2e-5 for full fine-tuning and 5e-5
    for other plans, 3e-4 for adapters: rates that Xie et al. 2022 (Tables 3 to 5) used or searched
    for RoBERTa-large. Those for LoRA (5e-4) and prefix-tuning (1e-2), and that narrower models want
    more, as 1 / width, are ours.
    """
    match method:
        case Adapter():
            wide = 3e-4
        case LoRA():
            wide = 5e-4
        case PrefixTuning():
            wide = 1e-2
        case _:
            wide = 2e-5 if plan.embeddings else 5e-5 if plan.tuned else 1e-3
    return float(f"{wide * 1024 / hidden_size:.1e}")


def _examples(setup: TuneSetup, plan: Plan, show: Show) -> tuple[Examples, Examples]:
    """Run the trunk over both splits, or find what it gave."""
    parts = setup.training, setup.validation
    if setup.trunk_dropout:
        first, second = (
            Examples(part.tokens, part.answers.labels, None, part.answers.choices) for part in parts
        )
        return first, second
    total, done = sum(len(part.answers) for part in parts), 0
    stage = f"blocks 1 to {plan.cut}, once" if plan.cut else "embeddings, once"

    def advance(rows: np.ndarray) -> None:
        nonlocal done
        done += len(rows)
        examples = done // setup.training.answers.choices
        show(stage, examples, total, f"{examples:,} of {total:,} examples")

    team = join_team()

    def prepare(part: Part, spare: Trunk | None) -> Examples:
        return Examples.prepare(
            setup.encoder,
            plan,
            part.tokens,
            part.answers.labels,
            choices=part.answers.choices,
            head=setup.head,
            limit=setup.cache_limit,
            spare=spare,
            progress=advance,
            team=team,
        )

    first = prepare(setup.training, None)
    return first, prepare(setup.validation, first.trunk)
