"""`layerscout tune`: tune what a plan names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from layerscout.cli.options import (
    Caching,
    Columns,
    Data,
    Machine,
    Model,
    Printing,
    check_outputs,
    interruptible,
)
from layerscout.plans import TRAINING, TuneRequest, check_counts, check_options, option


@dataclass(frozen=True)
class Running:
    """What is read, saved and reported while training; see `layerscout.tune`.

    Attributes:
        scan: the scan to plan by; without it, one is made first.
        test: test file for the final figures; by default the data's own test split, if it has one.
        save_epochs: also save the model after these epochs, under epochs/.
        resume: continue a training that was stopped.
        overwrite: replace the result of another training in the output folder.
        track: report to tensorboard, mlflow, wandb or trackio.
    """

    scan: str | None = option(None, metavar="DIR")
    test: str | None = option(None, metavar="FILE")
    save_epochs: tuple[int, ...] = option((), check_counts, panel=TRAINING, metavar="N[,N...]")
    resume: bool = option(False, panel=TRAINING)
    overwrite: bool = option(False)
    track: str | None = option(None, panel=TRAINING)

    def __post_init__(self) -> None:
        """Check the values."""
        check_options(self)


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
    printing: Printing,
) -> None:
    """Tune the blocks that a plan names; what lies below them is computed once."""
    from layerscout.cli import terminal

    limit = caching.bytes
    with interruptible(), terminal.loading(printing.quiet):
        check_outputs(output, "result.json", "predictions.parquet")
        task = columns.load(data, request.seed[0], test=running.test)
        # Heavy imports come after what may be refused.
        from layerscout import tuning
        from layerscout.cache import is_first_process
        from layerscout.models import Encoder
        from layerscout.runtime import check_checkpoint_folder
        from layerscout.scanning import Scan

        check_checkpoint_folder(output / "model")
        scanned = None if running.scan is None else Scan.load(running.scan)
        encoder = Encoder.load(model, device=machine.device, precision=machine.precision)
    with interruptible(output / "snapshots"):
        try:
            result = tuning.tune(
                encoder,
                task,
                request,
                scan=scanned,
                cache_limit=limit,
                checkpoints={n: output / "epochs" / str(n) for n in running.save_epochs},
                snapshots=output / "snapshots",
                resume=running.resume,
                track=running.track,
                logs=output / "logs",
                output=output,
                overwrite=running.overwrite,
                progress=not printing.quiet,
            )
        except tuning.AlreadyDoneError as done:
            typer.echo(f"layerscout: {done}", err=True)
            return
        if not is_first_process():
            return
        result.save(output)
    terminal.report_tuning(result, output, as_json=printing.json, quiet=printing.quiet)
