"""`layerscout evaluate`: evaluate a tuned model under edits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from layerscout.cli.console import (
    finish,
    loading,
    print_by_name,
    print_table,
    say,
    say_heading,
    say_wrapped,
)
from layerscout.cli.groups import (
    Caching,
    Columns,
    Data,
    Machine,
    Model,
    Plot,
    Printing,
    check_outputs,
    interruptible,
)
from layerscout.cli.options import Config
from layerscout.errors import InputError
from layerscout.files import check_no_tuning
from layerscout.plans import EvaluateRequest

FILES = ("evaluate.json", "evaluate.html", "predictions.parquet")


def evaluate(
    model: Model,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for evaluate.json and evaluate.html.")
    ] = Path("evaluate"),
    *,
    original: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Untuned model, whose head is also tuned at every state."
        ),
    ] = None,
    request: EvaluateRequest,
    columns: Columns,
    machine: Machine,
    caching: Caching,
    plot: Plot = None,
    config: Config = None,
    printing: Printing,
) -> None:
    """Evaluate a tuned MODEL truncated at each layer, with blocks skipped, or under other edits."""
    limit = caching.bytes
    if plot is not None and not {"truncate", "skip"} & set(request.edits):
        raise InputError(
            "--plot draws only the edits truncate and skip; add one of them, or leave out --plot"
        )
    with interruptible(), loading(printing.quiet):
        check_outputs(output, *FILES, plot=plot)
        check_no_tuning(output, "predictions.parquet")
        task = columns.load(data, request.seed, judged=model)
        # Heavy imports come after what may be refused.
        from layerscout import evaluating

        machine.settle_threads()
    with interruptible():
        result = evaluating.evaluate(
            model,
            task,
            request=request,
            original=original,
            device=machine.device,
            precision=machine.precision,
            cache_limit=limit,
            progress=not printing.quiet,
        )
        finish(result, output, FILES, printing, _show, plot)


def _show(console: Console, content: Mapping[str, Any]) -> None:
    """Print an evaluation: a table for each kind of edit, and what follows."""
    from layerscout import reporting

    say_heading(console, content)
    say(console, f"judged on {reporting.count_examples(content['task'])}")
    found, *others = reporting.describe_evaluation(content)
    say_wrapped(console, [found])
    print_by_name(console, content)
    if content["truncation"]:
        console.print()
        print_table(console, reporting.tabulate_truncation(content))
    if content["edits"]:
        console.print()
        print_table(console, reporting.tabulate_edits(content))
    console.print()
    say_wrapped(console, others)
