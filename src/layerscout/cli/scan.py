"""`layerscout scan`: score every layer of a model on a task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from layerscout.cli.groups import (
    Caching,
    Columns,
    Data,
    Machine,
    Model,
    Placement,
    Plot,
    Printing,
    check_outputs,
    interruptible,
)
from layerscout.cli.options import Config
from layerscout.plans import ScanRequest
from layerscout.runtime import InputError


def scan(
    model: Model,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for scan.json and scan.html.")
    ] = Path("scan"),
    *,
    request: ScanRequest,
    columns: Columns,
    checkpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoint",
            metavar="MODEL",
            help="Later checkpoint of the same model, to see how ranks change; may be repeated.",
        ),
    ] = None,
    machine: Machine,
    placement: Placement,
    caching: Caching,
    plot: Plot = None,
    config: Config = None,
    printing: Printing,
) -> None:
    """Score every layer of MODEL on DATA without training, and find the best one."""
    from layerscout.cli import terminal

    limit = caching.bytes
    with interruptible(), terminal.loading(printing.quiet):
        check_outputs(output, "scan.json", "scan.html", plot=plot)
        if placement.backend == "local":
            task = columns.load(data, request.seed)
        # Heavy imports are part of what the spinner stands for, and come after what may be refused.
        from layerscout import pages, scanning
        from layerscout.models import Encoder

        if placement.backend == "local":
            machine.settle_threads(quiet=printing.quiet)
            encoder = Encoder.load(model, device=machine.device, precision=machine.precision)
    with interruptible():
        if placement.backend == "local":
            result = scanning.scan(
                encoder,
                task,
                request=request,
                checkpoints=checkpoints or (),
                cache_limit=limit,
                progress=not printing.quiet,
            )
        else:
            _check_cluster(columns, request, machine, checkpoints)
            result = _scan_on_cluster(
                model, data, columns, request, machine, placement, printing.quiet
            )
        result.save(output)
        if plot is not None:
            pages.plot(result, plot)
    terminal.report_scan(result, output, plot, as_json=printing.json, quiet=printing.quiet)


def _check_cluster(
    columns: Columns, request: ScanRequest, machine: Machine, checkpoints: list[str] | None
) -> None:
    """Refuse what a cluster does not do: it sums over all rows of tasks with classes."""
    others = {
        "--regression": columns.regression,
        "--label-separator": columns.label_separator,
        "--sep": columns.sep,
        "--validation": columns.validation,
        "--examples": request.examples not in ("auto", "all"),
        "--balanced": request.balanced,
        "--per-class": request.per_class,
        "--checkpoint": checkpoints,
    }
    if machine.threads is not None:
        raise InputError("--threads cannot be combined with --backend ray; use --cpus N")
    if given := [name for name, value in others.items() if value]:
        raise InputError(
            f"{given[0]} cannot be combined with --backend ray, which reads all rows of a "
            "classification task; leave one out"
        )


def _scan_on_cluster(
    model: str,
    data: str,
    columns: Columns,
    request: ScanRequest,
    machine: Machine,
    placement: Placement,
    quiet: bool,
) -> Any:
    from layerscout.scanning import scan_shards

    return scan_shards(
        model,
        data,
        task=columns.task,
        text=columns.text,
        text_pair=columns.text_pair,
        label=columns.label,
        scores=request.scores,
        pooling=request.pooling,
        max_length=request.max_length,
        precision=machine.precision,
        cluster=placement.cluster(machine.device),
        progress=not quiet,
    )
