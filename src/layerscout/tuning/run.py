"""Tuning what a plan says, from the states of a trunk that is computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, get_args

import torch

from layerscout.cache import DEFAULT_LIMIT, make_accelerator
from layerscout.data import Task
from layerscout.models import Encoder
from layerscout.plans import Plan, TuneRequest, add_options, resolve_request
from layerscout.runtime import (
    InputError,
    Show,
    check_checkpoint_folder,
    check_integer,
    check_number,
    check_output_folder,
    lock_folder,
    log_warnings,
    make_unknown_error,
    show_progress,
)
from layerscout.scanning import Scan
from layerscout.tuning.memory import MemoryGauge
from layerscout.tuning.outcome import Measure, Tuned, make_result
from layerscout.tuning.preparation import Prepared, prepare
from layerscout.tuning.result import Result, check_earlier_result, name_training
from layerscout.tuning.snapshots import Snapshots
from layerscout.tuning.sweep import NothingFinishedError, Recording, run_sweep
from layerscout.tuning.tracking import check_tracker

if TYPE_CHECKING:
    from layerscout.plans import TuneOptions


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
        scan: what strategies such as "best-down:3@top" and "auto" rest on, or its folder; without
            it, the training examples are scanned first.
        cache_limit: bytes that the cache may hold once new states are added; 0 keeps none.
        checkpoints: folders by epoch, where the model is saved as it is after that epoch, such as
            for the `checkpoints` of a scan.
        snapshots: a folder where the state of training is saved after every epoch, until the
            result is saved; None for none.
        resume: continue a training that was stopped, from its snapshots.
        track: report every epoch to "tensorboard", "mlflow", "wandb" or "trackio".
        logs: the folder of trackers that write files.
        output: where the result will be saved: refused before any training if it holds the result
            of another one.
        overwrite: do not refuse that, and drop `snapshots` that are not to be resumed.
        measure: what is found out about the kept model: only the "metric" that counts, which needs
            no further pass; also its "speed"; also its "predictions" and every other metric; or
            "all", the test split too.
        progress: show a bar on the terminal; or a function, which is called in its place with the
            stage of the work, how much of it is done, of how much, and a note.
        **options: everything else that may be asked for, such as `epochs` or `learning_rate`: the
            attributes of `layerscout.plans.TuneRequest`.

    Raises:
        InputError: if something cannot be used as asked.
        AlreadyDoneError: if `resume` is asked for and `output` has the result of this training.
        LayerscoutError: if no run came to the end of an epoch with a finite loss.
    """
    # What can be refused is refused before any work.
    request = resolve_request(TuneRequest, plan, options, "plan")
    rule, remedy = "a number of bytes, 0 or more", "20 * 10**9 is 20 GB"
    cache_limit = int(
        check_number("cache_limit", cache_limit, rule, lambda size: size >= 0, remedy)
    )
    _check_checkpoints(checkpoints or {}, request)
    if measure not in get_args(Measure):
        raise make_unknown_error("value of `measure`", str(measure), get_args(Measure))
    if resume and snapshots is None:
        raise InputError("`resume` continues from `snapshots`, and none are given; name the folder")
    if track is not None:
        check_tracker(track)
        check_output_folder(Path(logs))
    accelerator = make_accelerator()
    progress = progress if accelerator.is_main_process else False
    prepared = prepare(request, encoder, task, scan, cache_limit, progress)
    if checkpoints:
        prepared.check_whole_checkpoints()
    # It reads all weights and examples, which every trial of a study would pay for.
    compared = snapshots is not None or output is not None
    about = prepared.describe() if compared else {}
    training = name_training(about) if compared else None
    if output is not None and training is not None and not overwrite:
        check_earlier_result(Path(output), training, resume=resume)
    with ExitStack() as holding:
        show = holding.enter_context(show_progress(progress))
        gauge = MemoryGauge.start(prepared.setup, prepared.sweeps)
        opened, notes = None, [*prepared.warnings, *gauge.list_warnings()]
        if snapshots is not None:
            if accelerator.is_main_process:
                holding.enter_context(lock_folder(Path(snapshots)))
            opened = _open_snapshots(Path(snapshots), prepared, about, resume, overwrite)
            notes += opened.notes
        recording = Recording(
            show, opened, "plan-1-", track, Path(logs), checkpoints or {}, gauge.predicted
        )
        tuned, failures = _run_sweeps(prepared, recording)
        show("done" if measure == "metric" else "measuring the speed", 0, 1)
        result = make_result(
            prepared.setup,
            tuned,
            {**prepared.recorded, "training": training},
            [*notes, *failures],
            gauge.as_dict,
            measure=measure,
        )
        log_warnings(__name__, result.warnings)
        return replace(result, snapshots=opened)


def _check_checkpoints(checkpoints: Mapping[int, str | Path], request: TuneRequest) -> None:
    rates = request.learning_rate or ()
    several = len(request.seed) > 1 or len(rates) > 1 or request.against is not None
    if checkpoints and several:
        raise InputError(
            "`checkpoints` need a single training; give one plan, one learning rate and one seed"
        )
    for epoch, folder in checkpoints.items():
        check_integer("checkpoints", epoch, 1, remedy="epochs count from 1")
        check_checkpoint_folder(Path(folder))


def _open_snapshots(
    folder: Path, prepared: Prepared, about: Mapping[str, Any], resume: bool, overwrite: bool
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
                "cache_limit": prepared.setup.cache_limit,
            },
        )


def _run_sweeps(prepared: Prepared, recording: Recording) -> tuple[Sequence[Tuned], list[str]]:
    """Tune the plan, and the one to compare with; the comparison may fail, with a warning."""
    first, *others = prepared.sweeps
    try:
        tuned = [run_sweep(prepared.setup, first, recording)]
    except NothingFinishedError:
        if recording.snapshots is not None:  # nothing in them is worth continuing
            recording.snapshots.discard()
        raise
    failures = []
    for sweep in others:
        try:
            beside = replace(recording, prefix="plan-2-", checkpoints={})
            tuned.append(run_sweep(prepared.setup, sweep, beside))
        except NothingFinishedError as error:  # the first plan has come through
            failures.append(f"the plan to compare with failed: {error}")
    return tuned, failures
