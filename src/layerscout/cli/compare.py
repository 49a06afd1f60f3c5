"""`layerscout compare`: compare the states of models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerscout.cli.groups import (
    Caching,
    Columns,
    Machine,
    Plot,
    Printing,
    check_outputs,
    interruptible,
)
from layerscout.plans import CompareRequest
from layerscout.runtime import InputError


def compare(
    models_and_data: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... DATA",
            help="One or several model folders or hub ids, such as a tuned model and the untuned "
            "one; then the data.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for compare.json and compare.html.")
    ] = Path("compare"),
    *,
    request: CompareRequest,
    columns: Columns,
    machine: Machine,
    caching: Caching,
    plot: Plot = None,
    printing: Printing,
) -> None:
    """Compare the hidden states of one or several models by linear CKA."""
    from layerscout.cli import terminal

    *models, data = models_and_data
    if not models:
        raise InputError(f"compare takes models and then the data, got only {data!r}; add a model")
    limit = caching.bytes
    with interruptible(), terminal.loading(printing.quiet):
        check_outputs(output, "compare.json", "compare.html", plot=plot)
        task = columns.load(data, request.seed)
        # Heavy imports come after what may be refused.
        from layerscout import analysis, pages
        from layerscout.models import Encoder

        machine.settle_threads(quiet=printing.quiet)
        encoders = [
            Encoder.load(model, device=machine.device, precision=machine.precision)
            for model in models
        ]
    with interruptible():
        result = analysis.compare(
            encoders, task, request=request, cache_limit=limit, progress=not printing.quiet
        )
        result.save(output)
        if plot is not None:
            pages.plot(result, plot)
    terminal.report_comparison(result, output, plot, as_json=printing.json, quiet=printing.quiet)
