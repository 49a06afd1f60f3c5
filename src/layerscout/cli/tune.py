"""`layerscout tune`: tune what a plan names."""

from __future__ import annotations

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
from layerscout.plans import TRAINING, TuneRequest, read_numbers


def tune(
    model: Model,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for model/ and result.json.")
    ] = Path("tuned"),
    *,
    scan_folder: Annotated[
        Path | None,
        typer.Option(
            "--scan", metavar="DIR", help="The scan to plan by; without it, one is made first."
        ),
    ] = None,
    request: TuneRequest,
    columns: Columns,
    save_epochs: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N...]",
            help="Also save the model after these epochs, under epochs/.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue a training that was stopped.", rich_help_panel=TRAINING
        ),
    ] = False,
    track: Annotated[
        str | None,
        typer.Option(
            help="Report to tensorboard, mlflow, wandb or trackio.", rich_help_panel=TRAINING
        ),
    ] = None,
    machine: Machine,
    caching: Caching,
    printing: Printing,
) -> None:
    """Tune the blocks that a plan names; what lies below them is computed once."""
    from layerscout.cli import terminal

    limit = caching.bytes
    epochs = () if save_epochs is None else read_numbers("save_epochs", save_epochs)
    with interruptible(), terminal.loading(printing.quiet):
        from layerscout import tuning
        from layerscout.cache import is_first_process
        from layerscout.models import Encoder
        from layerscout.runtime import check_checkpoint_folder
        from layerscout.scanning import Scan

        check_outputs(output, "result.json", "predictions.parquet")
        check_checkpoint_folder(output / "model")
        scanned = None if scan_folder is None else Scan.load(scan_folder)
        task = columns.load(data, request.seed[0])
        encoder = Encoder.load(model, device=machine.device, precision=machine.precision)
    with interruptible(output / "snapshots"):
        result = tuning.tune(
            encoder,
            task,
            request,
            scan=scanned,
            cache_limit=limit,
            checkpoints={epoch: output / "epochs" / str(epoch) for epoch in epochs},
            snapshots=output / "snapshots",
            resume=resume,
            track=track,
            logs=output / "logs",
            progress=not printing.quiet,
        )
        if not is_first_process():
            return
        result.save(output)
    terminal.report_tuning(result, output, as_json=printing.json, quiet=printing.quiet)
