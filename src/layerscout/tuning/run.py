"""Tuning what a plan says, from the states of a trunk that is computed once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, get_args

import torch

from layerscout.data import Task
from layerscout.errors import (
    InputError,
    LayerscoutError,
    check_integer,
    check_number,
    make_unknown_error,
)
from layerscout.files import check_checkpoint_folder, check_output_folder, lock_folder, read_json
from layerscout.models import Encoder
from layerscout.plans import Plan, TuneRequest, add_options, resolve_request
from layerscout.progress import Show, log_warnings, show_progress
from layerscout.scanning import Scan
from layerscout.states import DEFAULT_LIMIT, fingerprint_encoder, hash_content, make_accelerator
from layerscout.tuning.judging import Measure, judge, load_kept
from layerscout.tuning.machine import expect_memory, measure_memory, warn_of_memory
from layerscout.tuning.resolve import Tuning, resolve
from layerscout.tuning.result import Result, make_result
from layerscout.tuning.snapshots import Snapshots
from layerscout.tuning.stages import (
    NothingFinishedError,
    RunHooks,
    TunedPlan,
    check_tracker,
    compute_trunk,
    train_plan,
)

if TYPE_CHECKING:
    from layerscout.plans import TuneOptions


class AlreadyDoneError(LayerscoutError):
    """There is nothing to resume: the result of the training is there."""


@add_options(TuneRequest)
def tune(
    encoder: Encoder | str | Path,
    task: Task | str | Path,
    plan: Plan | str | Path | TuneRequest = "auto",
    *,
    scan: Scan | str | Path | None = None,
    cache_limit: int = DEFAULT_LIMIT,
    checkpoints: Mapping[int, str | Path] | None = None,
    snapshots: str | Path | None = None,
    resume: bool = False,
    track: str | None = None,
    logs: str | Path = "logs",
    output: str | Path | None = None,
    overwrite: bool = False,
    measure: Measure = "all",
    progress: bool | Show = True,
    **options: Unpack[TuneOptions],
) -> Result:
    """Tune the blocks of a plan and the head; what lies below is computed once and kept.

    Every combination of `learning_rate` and `seed` is trained from the same start. What counts is
    the rate with the best mean over the seeds, and of its runs the best. Under `accelerate launch`
    several processes share every batch; the first one has the result to save.

    Args:
        encoder: an `Encoder`, or what `Encoder.load` takes.
        task: a `Task`, or what `Task.load` takes. Without a validation split a tenth of the
            training rows is set aside.
        plan: a `Plan`, its notation, a strategy, or a plan.json; or a whole `TuneRequest`, in place
            of `options`.
        scan: what strategies such as "best-down:3@top" rest on, or its folder; without it, the
            training examples are scanned first. "auto" uses it, and makes one only for a `score`.
        cache_limit: bytes that the cache may hold once new states are added; 0 keeps none.
        checkpoints: folders by epoch, where the model is saved as it is after that epoch, such as
            for the `checkpoints` of a scan.
        snapshots: a folder where the state of training is saved after every epoch, until the
            result is saved, and which is locked until then; None for none.
        resume: continue a training that was stopped, from its snapshots.
        track: report every epoch to "tensorboard", "mlflow", "wandb" or "trackio".
        logs: the folder of trackers that write files.
        output: where the result will be saved: refused before any training if it holds the result
            of another one.
        overwrite: do not refuse that, and drop `snapshots` that are not to be resumed.
        measure: what is measured of the kept model: only the "metric" that counts, which needs
            no further pass; also its "speed"; also its "predictions" and every other metric; or
            "all", the test split too.
        progress: show a bar on the terminal; or a function, which is called in its place with the
            stage of the work, how much of it is done, of how much, and a note.
        **options: every other option, such as `epochs` or `learning_rate`: the
            attributes of `layerscout.plans.TuneRequest`.

    Raises:
        InputError: if something cannot be used as requested.
        AlreadyDoneError: if `resume` is requested and `output` has the result of this training.
        LayerscoutError: if no run came to the end of an epoch with a finite loss.
    """
    # What can be refused is refused before any work.
    request = resolve_request(TuneRequest, plan, options, "plan")
    checkpoints, cache_limit = checkpoints or {}, _check_limit_and_measure(cache_limit, measure)
    _check_places(request, checkpoints, snapshots, resume, track, Path(logs))
    progress = progress if make_accelerator().is_main_process else False
    tuning = resolve(request, encoder, task, scan, cache_limit, progress)
    _check_saved_epochs(checkpoints, tuning)
    # It reads all weights and examples, which every trial of a study would pay for.
    about = None if snapshots is None and output is None else describe_training(tuning)
    training = None if about is None else name_training(about)
    if output is not None and training is not None and not overwrite:
        check_earlier_result(Path(output), training, resume=resume)
    with show_progress(progress) as show, ExitStack() as lock:
        device, predicted = tuning.encoder.device, expect_memory(tuning)
        before = measure_memory(device)
        warnings, opened = [*tuning.warnings, *warn_of_memory(device, predicted)], None
        if snapshots is not None and about is not None:
            if make_accelerator().is_main_process:
                lock.enter_context(lock_folder(Path(snapshots)))
            opened = _open_snapshots(Path(snapshots), tuning, about, resume, overwrite)
            warnings += opened.notes
        tuned: list[TunedPlan] = []
        for number, sweep in enumerate(tuning.sweeps, start=1):
            try:
                splits = compute_trunk(tuning, sweep.choice.plan, show)
                saved, prefix = checkpoints if number == 1 else {}, f"plan-{number}-"
                hooks = RunHooks(show, opened, track, Path(logs), saved, predicted, prefix)
                tuned.append(train_plan(tuning, sweep, splits, hooks))
            except NothingFinishedError as error:
                if not tuned:
                    if opened is not None:  # nothing in them is worth continuing
                        opened.discard()
                    raise
                warnings.append(f"the plan to compare with failed: {error}")
        warnings += _list_unsaved(checkpoints)
        show("done" if measure == "metric" else "measuring the speed", 0, 1)
        trainable, model = load_kept(tuning, tuned[0])
        used = measure_memory(device, peak=True)  # before what only measures the model
        memory = {"predicted": predicted, "used": used, "before": before}
        judged = judge(tuning, tuned, model, measure)
        result = make_result(tuning, tuned, trainable, model, judged, memory, training, warnings)
        log_warnings(__name__, result.warnings)
        # Locked until the result is saved.
        kept = None if opened is None else replace(opened, lock=lock.pop_all())
        return replace(result, snapshots=kept)


def _check_limit_and_measure(cache_limit: Any, measure: str) -> int:
    """Return the cache limit as a whole number; raise if it or `measure` is invalid."""
    if measure not in get_args(Measure):
        raise make_unknown_error("value of `measure`", str(measure), get_args(Measure))
    rule, remedy = "a number of bytes, 0 or more", "20 * 10**9 is 20 GB"
    return int(check_number("cache_limit", cache_limit, rule, lambda size: size >= 0, remedy))


def _check_places(
    request: TuneRequest,
    checkpoints: Mapping[int, str | Path],
    snapshots: str | Path | None,
    resume: bool,
    track: str | None,
    logs: Path,
) -> None:
    """Raise if a place cannot be written to, or nothing would be written there."""
    rates = request.learning_rate or ()
    if checkpoints and (len(request.seed) > 1 or len(rates) > 1 or request.against is not None):
        raise InputError(
            "`checkpoints` need a single training; give one plan, one learning rate and one seed"
        )
    for epoch, folder in checkpoints.items():
        check_integer("checkpoints", epoch, 1, remedy="epochs count from 1")
        check_checkpoint_folder(Path(folder))
    if resume and snapshots is None:
        raise InputError("`resume` continues from `snapshots`, and none are given; name the folder")
    if track is not None:
        check_tracker(track)
        check_output_folder(logs)


def _check_saved_epochs(checkpoints: Mapping[int, str | Path], tuning: Tuning) -> None:
    """Raise for checkpoints of epochs that never end, or of models that are not saved whole."""
    epochs = tuning.settings.passes(len(tuning.training))
    if later := [epoch for epoch in checkpoints if epoch > epochs]:
        raise InputError(
            f"`checkpoints` must be epochs of the training, in 1..{epochs}, got "
            f"{', '.join(map(str, later))}; train for longer, or name other epochs"
        )
    if checkpoints and (tuning.saved_as != "checkpoint" or tuning.method.saved == "merged"):
        raise InputError(
            f"`checkpoints` need whole models, which {tuning.method.name} with the classifier "
            f"{tuning.head} does not save; use the method full and the family's classifier"
        )


def _list_unsaved(checkpoints: Mapping[int, str | Path]) -> list[str]:
    """Warn of epochs whose model was to be saved, and which the training never came to."""
    return [
        f"the model of epoch {epoch} was not saved: the training ended before that epoch did"
        for epoch, folder in checkpoints.items()
        if make_accelerator().is_main_process and not Path(folder).exists()
    ]


def describe_training(tuning: Tuning) -> dict[str, Any]:
    """Return what is trained on what and how: what must be the same to continue a training."""
    encoder, request = tuning.encoder, tuning.request
    fingerprint = fingerprint_encoder(encoder, encoder.blocks)
    first, *others = tuning.sweeps
    splits = {
        f"{name} examples": hash_content(
            fingerprint, split.tokens, {"labels": split.answers.labels.tolist()}
        )
        for name, split in (("training", tuning.training), ("validation", tuning.validation))
    }
    return {
        "plan": first.choice.plan.notation,
        "second plan": others[0].choice.plan.notation if others else None,
        "race": [],  # there is none any more; trainings of earlier versions have this entry
        "method": {"name": tuning.method.name, **asdict(tuning.method)},
        **asdict(tuning.settings),
        "learning rates": [list(sweep.rates) for sweep in tuning.sweeps],
        "seeds": list(request.seed),
        "trunk dropout": request.trunk_dropout,
        "fresh head": tuning.request.draws_head,
        "edits": None if encoder.edit_spec is None else encoder.edit_spec.as_dict(),
        "rate factor of re-initialised blocks": request.reinit_rate_factor,
        "classifier": tuning.head,
        "processes": make_accelerator().num_processes,
        "model (weights, versions and precision)": fingerprint,
        **splits,
    }


def name_training(about: Mapping[str, Any]) -> str:
    """Name what is trained on what and how, by its hash."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def check_earlier_result(folder: Path, training: str, *, resume: bool) -> None:
    """Raise for a folder with the result of another training, which would be lost.

    Args:
        folder: where the result of this training goes.
        training: its name; see `name_training`.
        resume: whether it is to be continued.

    Raises:
        InputError: if there is the result of another one.
        AlreadyDoneError: if `resume` is requested and its own result is there.
    """
    if not (folder / "result.json").exists():
        return
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        if read_json(folder / "result.json")["settings"]["training"] == training:
            if resume:
                raise AlreadyDoneError(
                    f"{folder} holds the result of this training; there is nothing to resume"
                )
            return
    raise InputError(
        f"{folder} holds the result of another training; --overwrite replaces it, or name another "
        "folder with -o"
    )


def _open_snapshots(
    folder: Path, tuning: Tuning, about: Mapping[str, Any], resume: bool, overwrite: bool
) -> Snapshots:
    """Open the folder of snapshots; the first process does so before the others."""
    accelerator = make_accelerator()
    with accelerator.main_process_first():
        return Snapshots.open(
            folder,
            about,
            resume=resume or not accelerator.is_main_process,
            overwrite=overwrite,
            surroundings={
                "threads": torch.get_num_threads(),
                "cache_limit": tuning.cache_limit,
            },
        )
