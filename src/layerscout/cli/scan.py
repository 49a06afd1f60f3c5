"""`layerscout scan`: score every layer of a model on a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from layerscout.cli.console import (
    close_report,
    encode,
    loading,
    open_report,
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
from layerscout.errors import InputError
from layerscout.plans import ScanRequest

if TYPE_CHECKING:
    from layerscout.scanning import Scan

# Characters of the longest bar, so that every curve fits in 80.
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
    limit, on_cluster = caching.bytes, placement.backend == "ray"
    if on_cluster and machine.threads is not None:
        raise InputError("--threads cannot be combined with --backend ray; use --cpus N")
    with interruptible(), loading(printing.quiet):
        check_outputs(output, "scan.json", "scan.html", plot=plot)
        task = columns.load(data, request.seed)
        # Heavy imports are part of what the spinner stands for, and come after what may be refused.
        from layerscout import reporting, scanning
        from layerscout.models import Encoder

        encoder: Encoder | str = model
        if not on_cluster:
            machine.settle_threads(quiet=printing.quiet)
            encoder = Encoder.load(model, device=machine.device, precision=machine.precision)
    with interruptible():
        result = scanning.scan(
            encoder,
            task,
            request=request,
            checkpoints=checkpoints or (),
            cluster=placement.cluster(machine.device) if on_cluster else None,
            precision=machine.precision,
            cache_limit=limit,
            progress=not printing.quiet,
        )
        result.save(output)
        if plot is not None:
            reporting.plot(result, plot)
    _report(result, output, plot, printing)


def _report(result: Scan, folder: Path, plot: Path | None, printing: Printing) -> None:
    """Print a scan for a person, or its JSON for a program."""
    from layerscout.reporting import write_advice

    content = result.as_dict()
    console = open_report(content, folder / "scan.json", printing)
    if console is not None:
        show_scan(console, content)
        written = [folder / "scan.json", folder / "scan.html", plot]
        close_report(console, content, written, write_advice(content))


def show_scan(console: Console, scan: Mapping[str, Any]) -> None:
    """Print the content of `scan.json`: curves, a row per score, and what follows from them."""
    from layerscout import reporting

    task, scores = scan["task"], scan["scores"]
    say_heading(console, scan)
    say(console, f"{reporting.count_read(task)}, {reporting.count_labels(task)}")
    drawn = reporting.list_scores(scan, "states")
    if len(scores) > 2 or drawn != list(scores) or any(scores[key].get("low") for key in drawn):
        drawn = [reporting.choose_leading(scan) or next(iter(scores))]
    _print_curves(console, scan, drawn)
    if list(scores) != drawn:
        console.print()
        print_table(console, reporting.tabulate_scores_briefly(scan))
        say(console, "↑ higher is better, ↓ lower is better; in every curve, up is better")
    if scan.get("stability"):
        console.print()
        print_table(console, reporting.tabulate_stability(scan["stability"]))
    console.print()
    say_wrapped(console, reporting.describe_scan(scan, drawn, "(≈)"))
    say_wrapped(console, reporting.describe_refusals(scan))
    say_wrapped(console, reporting.describe_advice(scan))


def _print_curves(console: Console, scan: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Draw the curves of some scores, a row per entry, with the best marked."""
    from layerscout.reporting import find_tied, format_number, get_details

    def text(line: str, style: str = "") -> Text:
        return Text(encode(console, line), style=style)

    first = "block" if scan["scores"][keys[0]]["of"] == "blocks" else "state"
    grid = Grid(box=None, header_style="bold", pad_edge=False)
    grid.add_column(first, justify="right")
    tied = {key: find_tied(scan, key) for key in keys}
    for key in keys:
        score = scan["scores"][key]
        grid.add_column("value", justify="right")
        if score.get("low"):
            level = get_details(score).get("level")
            grid.add_column(f"{level:.0%} interval" if level else "interval", justify="right")
        grid.add_column(key, no_wrap=True)
    for entry in range(scan["model"]["blocks"] + 1):
        cells = [text(str(entry))]
        for key in keys:
            score, best = scan["scores"][key], entry == scan["best"].get(key)
            style = "bold green" if best else ""
            cells.append(text(format_number(score["values"][entry]), style))
            if score.get("low"):
                ends = score["low"][entry], score["high"][entry]
                both = "" if None in ends else " – ".join(map(format_number, ends))
                cells.append(text(both, style))
            mark = " ◀ best" if best else " ≈ best" if entry in tied[key] else ""
            cells.append(text(_draw_bar(score, entry, BAR // len(keys)) + mark, style or "blue"))
        grid.add_row(*cells)
    console.print(grid)
    turned = ", ".join(key for key in keys if scan["scores"][key]["better"] == "lower")
    if first == "state":
        say_wrapped(console, ["a state is the output of its block, state 0 that of the embeddings"])
    lower = f" (for {turned}: lower values)" if turned else ""
    say_wrapped(console, [f"longer bars are better{lower}"])


def _draw_bar(score: Mapping[str, Any], entry: int, width: int) -> str:
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
    return "█" * max(1, round(width * share))
