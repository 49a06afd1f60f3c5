"""`layerscout truncate`: the shorter checkpoint, nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from layerscout.cli.console import loading, report_formats, say, warn
from layerscout.cli.groups import Model, Quiet, check_checkpoint, interruptible


def truncate(
    model: Model,
    head: Annotated[
        int,
        typer.Option(help="Number of blocks to keep; the shorter encoder ends with this state."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the checkpoint.")],
    untie: Annotated[
        bool,
        typer.Option(
            "--untie",
            metavar="",
            help="First give every block its own copy of shared weights (ALBERT).",
        ),
    ] = False,
    export: Annotated[
        str,
        typer.Option(
            metavar="FORMAT[,...]", help="Also write other formats: sentence-transformers, onnx."
        ),
    ] = "",
    quiet: Quiet = False,
) -> None:
    """Remove the blocks of MODEL above a state and save the shorter checkpoint."""
    with interruptible(), loading(quiet):
        check_checkpoint(output)
        from layerscout import models

        formats = models.check_formats(export.split(",") if export else (), "family")
        warnings = models.truncate(model, head, output, untie=untie)
    warn(warnings)
    if not quiet:
        say(Console(), f"wrote {output}")
    if formats:
        with interruptible(), loading(quiet):
            warn(models.add_formats(output, formats, base=model))
        report_formats(output, formats, quiet=quiet)
