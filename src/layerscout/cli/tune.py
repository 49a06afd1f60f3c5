"""`layerscout tune`: tune what a plan names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from layerscout.cli.clock import read_begin
from layerscout.cli.console import (
    loading,
    open_report,
    print_by_name,
    print_table,
    print_uses,
    report_formats,
    say,
    say_heading,
    say_next,
    warn,
)
from layerscout.cli.groups import (
    Caching,
    Columns,
    Data,
    Machine,
    Model,
    Printing,
    check_checkpoint,
    check_outputs,
    interruptible,
)
from layerscout.cli.options import Config, Given, write_config
from layerscout.errors import InputError
from layerscout.plans import (
    COUNTS,
    METHODS,
    Method,
    Options,
    TuneRequest,
    option,
)

if TYPE_CHECKING:
    from layerscout.data import Task
    from layerscout.tuning import Result


@dataclass(frozen=True)
class Running(Options):
    """What is read, saved and reported while training; see `layerscout.tune`."""

    scan: str | None = option(None)
    """Scan that the plan is based on; if not given, one is made first where the plan needs it."""
    test: str | None = option(None)
    """Test file for the final figures; by default the data's own test split, if it has one."""
    save_epochs: tuple[int, ...] = option((), COUNTS)
    """Also save the model after these epochs, under epochs/."""
    resume: bool = option(False)
    """Continue a training that was interrupted."""
    overwrite: bool = option(False)
    """Replace the result of another training in the output folder, finished or not."""
    export: str | None = option(None)
    """Also write these formats into model/: sentence-transformers (the encoder alone),
    sentence-transformers-classifier (a head on the mean), onnx."""
    push_to_hub: str | None = option(None)
    """Push model/ to the hub under this name, such as me/reviews."""
    private: bool = option(False)
    """Create the repository of --push-to-hub as private."""
    track: str | None = option(None)
    """Report to tensorboard, mlflow, wandb or trackio."""

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        if self.private and self.push_to_hub is None:
            raise InputError("--private needs --push-to-hub, which is not given; leave it out")


def tune(
    model: Model,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for model/ and result.json.")
    ] = Path("tuned"),
    *,
    request: TuneRequest,
    columns: Columns,
    running: Running,
    machine: Machine,
    caching: Caching,
    config: Config = None,
    given: Given,
    printing: Printing,
) -> None:
    """Tune MODEL on DATA: its head alone, or also the blocks that a plan names."""
    limit, since = caching.bytes, read_begin()
    with interruptible(), loading(printing.quiet):
        check_outputs(output, "result.json", "predictions.parquet")
        check_checkpoint(output / "model")
        task = columns.load(data, request.seed[0], test=running.test)
        # Heavy imports come after what may be refused.
        from layerscout import models, tuning
        from layerscout.states import is_first_process

        formats = _check_publishing(running, request)
        machine.settle_threads()
        encoder = models.Encoder.load(model, device=machine.device, precision=machine.precision)
    result = None
    said = _warn_of_data(task) if is_first_process() else []
    with interruptible(output / "snapshots"):
        try:
            result = tuning.tune(
                encoder,
                task,
                request,
                scan=running.scan,
                cache_limit=limit,
                checkpoints={n: output / "epochs" / str(n) for n in running.save_epochs},
                formats=formats,
                snapshots=output / "snapshots",
                resume=running.resume,
                track=running.track,
                logs=output / "logs",
                output=output,
                overwrite=running.overwrite,
                since=since,
                progress=not printing.quiet,
            )
        except tuning.AlreadyDoneError as done:
            typer.echo(f"layerscout: {done}", err=True)
        if not is_first_process():
            return
        if result is not None:
            result.save(output)
            write_config("tune", given, output)
    if result is not None:
        _report(result, output, printing, said)
    elif printing.json:
        typer.echo((output / "result.json").read_text(encoding="utf-8"), nl=False)
    with interruptible(resume=True), loading(printing.quiet):
        _publish(output / "model", formats, model, running, quiet=printing.quiet)
    if result is not None and not (printing.json or printing.quiet):
        from layerscout import reporting

        # It comes last, once the model is also in other formats and on the hub.
        say_next(Console(), reporting.suggest_step(result.content, str(output)))


def _warn_of_data(task: Task) -> list[str]:
    """Print what is odd about the data, a reason to stop before the work; return it."""
    said = [each for each in task.warnings if each != task.repeated]  # which may yet be put right
    warn(said)
    return said


def _check_publishing(running: Running, request: TuneRequest) -> Sequence[str]:
    """Return the formats to add; raise if they, or the hub, cannot take what will be saved."""
    from layerscout import models

    method = request.method
    apart = isinstance(method, Method) and METHODS[method.name].saved == "apart"
    saved: models.Saved | None = "parameters" if apart or request.keep_adapter else None
    formats = models.check_formats(running.export.split(",") if running.export else (), saved)
    if running.push_to_hub is not None:
        models.check_push(running.push_to_hub, overwrite=running.overwrite)
    return formats


def _publish(
    folder: Path, formats: Sequence[str], base: str, running: Running, *, quiet: bool
) -> None:
    """Add further formats to a tuned model, and push it, as far as that was requested."""
    from layerscout import models

    if formats:
        warn(models.add_formats(folder, formats, base=base))
        report_formats(folder, formats, quiet=quiet)
    if running.push_to_hub is not None:
        address = models.push(folder, running.push_to_hub, private=running.private)
        if not quiet:  # on standard error, as --json asks
            say(Console(stderr=True), f"pushed to {address}")


def _report(result: Result, folder: Path, printing: Printing, said: list[str]) -> None:
    """Print what tuning gave, or its JSON for a program."""
    from layerscout import reporting

    content = result.content
    console = open_report(content, folder / "result.json", printing, said)
    if console is None:
        return
    say_heading(console, content)
    words, better = reporting.compare_with_free(content)
    if not better:
        say(console, words, "bold yellow")
    say(console, reporting.summarise_tuning(content), "bold green")
    if (free := reporting.describe_free(content)) is not None:
        say(console, free, "" if content["free"]["better"] else "bold yellow")
    if words and better:
        say(console, words)
    for offer in (reporting.offer_halves(content), reporting.offer_macro_f1(content)):
        if offer is not None:
            say(console, offer)
    print_by_name(console, content)
    console.print()
    for line in reporting.describe_training(content):
        say(console, line)
    if (stage := reporting.find_stage(content)) == "solved":
        if len(content["solved"]["losses"]) > 1:
            print_table(console, reporting.tabulate_solved(content))
    elif len(content["runs"]) > 1:
        print_table(console, reporting.tabulate_runs(content))
    if stage == "trained":
        print_table(console, reporting.tabulate_epochs(content))
    console.print()
    if (more := reporting.describe_more(content)) is not None:
        say(console, more)
    seconds = content["seconds"]
    if (calibration := reporting.describe_calibration(content)) is not None:
        say(console, calibration)
    if speed := reporting.describe_speed(content):
        say(console, f"speed: {speed}")
    again = " (found in the cache)" if content["trunk"]["cached"] else ""
    took = (
        f"trunk {seconds['trunk']:.1f} s{again}, training {seconds['train']:.1f} s, validation "
        f"{seconds['evaluate']:.1f} s"
    )
    if stage == "solved":
        took = f"states {seconds['trunk']:.1f} s{again}, solving {seconds['train']:.1f} s"
        if "training" in seconds:
            took += f", a training that was no better {seconds['training']:.1f} s"
    elif "free" in seconds:
        took += f", the free head {seconds['free']:.1f} s"
    say(
        console,
        f"{perf_counter() - read_begin():.1f} s ({took}); "
        f"wrote {folder / 'model'}, {folder / 'result.json'}, "
        f"{folder / 'predictions.parquet'}, {folder / 'run.yaml'}",
    )
    print_uses(console, content, folder)
    say(console, f"page: {reporting.write_report_command(str(folder))}")
