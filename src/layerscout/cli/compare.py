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

        machine.settle_threads(quiet=printing.quiet)
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
    """Print a comparison: its maps, and how the states cluster."""
    from layerscout import reporting

    say(console, f"{reporting.count_compared(content)} of {content['task']['name']}")
    key = reporting.choose_estimate(content)
    for name, similarity in zip(reporting.name_maps(content), content["maps"], strict=True):
        console.print()
        say(console, f"{name}: {reporting.ESTIMATES[key]}", "bold")
        _print_map(console, similarity, key)
    console.print()
    say_wrapped(console, reporting.describe_clusters(content))


def _print_map(console: Console, similarity: Mapping[str, Any], key: str) -> None:
    """Draw a map in shades, its states counted from the lower left, if it is not too wide."""
    shades = " ░▒▓█"
    if 2 * len(similarity["columns"]) + 6 > console.width:
        say(console, "too wide for this terminal; see the page")
        return
    for state, line in reversed(list(zip(similarity["rows"], similarity[key], strict=True))):
        cells = (2 * ("·" if v is None else shades[min(4, int(5 * max(v, 0)))]) for v in line)
        say(console, f"{state:>3} {''.join(cells)}")
    marks = "".join(f"{column:<4}" for column in similarity["columns"][::2])
    say(console, f"    {marks.rstrip()}")
    listed = (f"{shade} {at / 5}" for at, shade in enumerate(shades[1:], start=1))
    say(console, f"    from: {', '.join(listed)}; · undefined", "dim")
