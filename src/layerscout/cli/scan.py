"""`layerscout scan`: score every layer of a model on a task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from layerscout.cli.console import (
    finish,
    loading,
    print_rows,
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
    Placement,
    Plot,
    Printing,
    check_outputs,
    interruptible,
)
from layerscout.cli.options import Config
from layerscout.plans import ScanRequest

FILES = ("scan.json", "scan.html")
# Characters of the longest bar, so that the curve fits in 80.
BAR = 32


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
    limit, cluster = caching.bytes, placement.cluster(machine.device, machine.threads)
    with interruptible(), loading(printing.quiet):
        check_outputs(output, *FILES, plot=plot)
        task = columns.load(data, request.seed)
        # Heavy imports are part of what the spinner stands for, and come after what may be refused.
        from layerscout import scanning
        from layerscout.models import Encoder

        encoder: Encoder | str = model
        if cluster is None:
            machine.settle_threads()
            encoder = Encoder.load(model, device=machine.device, precision=machine.precision)
    with interruptible():
        result = scanning.scan(
            encoder,
            task,
            request=request,
            checkpoints=checkpoints or (),
            cluster=cluster,
            precision=machine.precision,
            cache_limit=limit,
            progress=not printing.quiet,
        )
        finish(result, output, FILES, printing, show_scan, plot)


def show_scan(console: Console, scan: Mapping[str, Any]) -> None:
    """Print the content of `scan.json`: a curve, a row per score, and what follows from them."""
    from layerscout import reporting

    task, scores = scan["task"], scan["scores"]
    say_heading(console, scan)
    say(console, f"{reporting.count_read(task)}, {reporting.count_labels(task)}")
    leading = reporting.choose_leading(scan) or next(iter(scores))
    _print_curve(console, scan, leading)
    if len(scores) > 1:
        console.print()
        print_table(console, reporting.tabulate_scores_briefly(scan))
        say(console, "↑ higher is better, ↓ lower is better; in every curve, up is better")
    if scan.get("stability"):
        console.print()
        print_table(console, reporting.tabulate_checkpoints(scan["stability"]))
    console.print()
    say_wrapped(console, reporting.describe_scan(scan, [leading], "(≈)"))
    say_wrapped(console, reporting.describe_undefined(scan))
    say_wrapped(console, reporting.describe_advice(scan))


def _print_curve(console: Console, scan: Mapping[str, Any], key: str) -> None:
    """Draw the curve of a score, a row per entry, with the best marked."""
    from layerscout.reporting import TIED, find_tied, format_number, get_details

    score, level = scan["scores"][key], get_details(scan["scores"][key]).get("level")
    first, tied = score["of"][:-1], find_tied(scan, key)
    columns, rows, best = [first, "value", key], [], scan["best"].get(key)
    if score.get("low"):
        columns.insert(2, f"{level:.0%} interval" if level else "interval")
    for entry, value in enumerate(score["values"]):
        mark = " ◀ best" if entry == best else " ≈ best" if entry in tied else ""
        row = [str(entry), format_number(value), _draw_bar(score, entry) + mark]
        if score.get("low"):
            ends = score["low"][entry], score["high"][entry]
            row.insert(2, "" if None in ends else " – ".join(map(format_number, ends)))
        rows.append(row)
    marked = () if best is None else (best,)
    print_rows(console, columns, rows, words=(len(columns) - 1,), marked=marked)
    if first == "state":
        say_wrapped(console, ["a state is the output of its block, state 0 that of the embeddings"])
    lower = f" (for {key}: lower values)" if score["better"] == "lower" else ""
    say_wrapped(console, [f"longer bars are better{lower}"])
    say_wrapped(console, [f"≈ best: {TIED}"] if tied else [])


def _draw_bar(score: Mapping[str, Any], entry: int) -> str:
    """Draw a value so that longer is better: where lower is, its share is that of 1 / value.

    Where some are negative, bars start at the worst value.
    """
    known: list[float] = [value for value in score["values"] if value is not None]
    value: float | None = score["values"][entry]
    if value is None:
        return ""
    worst, best = min(known), max(known)
    if score["better"] == "lower":
        worst, best = best, worst
        share = best / value if best > 0 else (worst - value) / ((worst - best) or 1.0)
    else:
        floor = min(0.0, worst)
        share = (value - floor) / ((best - floor) or 1.0)
        if value == floor == 0:
            return ""
    return "█" * max(1, round(BAR * share))
