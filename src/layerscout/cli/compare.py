"""`layerscout compare`: compare the states of models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from layerscout.cli.console import finish, loading, say, say_wrapped
from layerscout.cli.groups import (
    Caching,
    Columns,
    Machine,
    Plot,
    Printing,
    check_outputs,
    interruptible,
)
from layerscout.errors import InputError
from layerscout.plans import CompareRequest

FILES = ("compare.json", "compare.html")


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
    *models, data = models_and_data
    if not models:
        raise InputError(f"compare takes models and then the data, got only {data!r}; add a model")
    limit = caching.bytes
    with interruptible(), loading(printing.quiet):
        check_outputs(output, *FILES, plot=plot)
        task = columns.load(data, request.seed)
        # Heavy imports come after what may be refused.
        from layerscout import comparing
        from layerscout.models import Encoder

        machine.settle_threads()
        encoders = [
            Encoder.load(model, device=machine.device, precision=machine.precision)
            for model in models
        ]
    with interruptible():
        result = comparing.compare(
            encoders, task, request=request, cache_limit=limit, progress=not printing.quiet
        )
        finish(result, output, FILES, printing, _show, plot)


def _show(console: Console, content: Mapping[str, Any]) -> None:
    """Print how the states of models cluster; the maps are on the page."""
    from layerscout import reporting

    say(console, f"{reporting.count_compared(content)} of {content['task']['name']}")
    say_wrapped(console, reporting.describe_clusters(content))
