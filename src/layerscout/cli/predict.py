"""`layerscout predict`: rows with what a tuned model says of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from layerscout.cli.console import loading, say, warn
from layerscout.cli.groups import Machine, Placement, Quiet, interruptible
from layerscout.plans import PredictRequest

if TYPE_CHECKING:
    from layerscout.predicting import Predictions


def predict(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A tuned model: the folder of a tuning, of a classifier or of adapters, or a hub "
            "id.",
        ),
    ],
    texts: Annotated[
        str,
        typer.Argument(
            metavar="TEXTS",
            help="A CSV, TSV, JSON, JSONL, Parquet or CoNLL file (text also as .gz), a .txt file "
            "with a text on each line, - for standard input, a folder of files or a hub data set; "
            "labels are not needed.",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File for the rows: .csv, .tsv, .jsonl, .parquet, or .conll for words; - for CSV "
            "on standard output. By default a new file beside TEXTS.",
        ),
    ] = None,
    *,
    request: PredictRequest,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Base model of adapters, if it is not where it was in tuning."
        ),
    ] = None,
    machine: Machine,
    placement: Placement,
    quiet: Quiet = False,
) -> None:
    """Predict with a tuned MODEL: write the rows of TEXTS with their classes and probabilities."""
    cluster = placement.cluster(machine.device, machine.threads)
    with loading(quiet):
        from layerscout import predicting

        machine.settle_threads()
    with interruptible():
        result = predicting.predict(
            model,
            texts,
            output,
            request=request,
            base=base,
            cluster=cluster,
            device=machine.device,
            precision=machine.precision,
            progress=not quiet,
        )
    warn(result.warnings)
    if not quiet and result.path is not None:
        say(Console(), _describe(result))


def _describe(result: Predictions) -> str:
    """Say what was predicted, how fast, and where it is."""
    rows, rate = result.rows, result.computed / max(result.seconds, 1e-9)
    before = rows - result.computed
    earlier = f", {before:,} of them by an earlier run," if before else ""
    done = f"{rows:,} row{'s'[: rows != 1]}{earlier} in {result.seconds:.1f} s ({rate:,.0f}/s)"
    return f"{done}; wrote {result.path}"
