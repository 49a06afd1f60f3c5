"""`layerscout plan`: list the strategies after a scan, and choose one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerscout.cli.console import loading, open_report, print_table, say, say_heading, say_next
from layerscout.cli.groups import Printing, check_outputs, interruptible
from layerscout.plans import PlanRequest
from layerscout.progress import write_duration

if TYPE_CHECKING:
    from layerscout.scanning import Planning


def plan(
    folder: Annotated[
        Path, typer.Argument(metavar="SCAN_DIR", help="Output folder of a scan, or its scan.json.")
    ],
    *,
    request: PlanRequest,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for plan.json.", show_default="SCAN_DIR"),
    ] = None,
    printing: Printing,
) -> None:
    """List possible plans for a scanned model, with the cost of each, and choose one."""
    output = output or (folder.parent if folder.is_file() else folder)
    with interruptible(), loading(printing.quiet):
        check_outputs(output, "plan.json")
        from layerscout.scanning import Scan

        result = Scan.load(folder).planning(request)
        result.save(output)
    _report(result, output, printing)


def _report(result: Planning, folder: Path, printing: Printing) -> None:
    """Print the strategies, the plan chosen and what to type next, or the JSON for a program."""
    from layerscout import reporting

    content = result.as_dict()
    console = open_report(content, folder / "plan.json", printing)
    if console is None:
        return
    say_heading(console, content)
    for line in reporting.describe_training_cost(content):
        say(console, line)
    print_table(console, reporting.tabulate_plans(content, vars(result.full)))
    for line in reporting.explain_plans(content, result.shown):
        say(console, line)
    seconds = content["seconds"]
    took = "" if seconds is None else f"; its training takes about {write_duration(seconds)}"
    say(console, f"plan {content['plan']['notation']}: {content['reason']}{took}", "bold green")
    for line in reporting.describe_untying(content):
        say(console, line)
    say(console, f"wrote {folder / 'plan.json'}")
    command = reporting.write_next_command(content, vars(result.scan))
    say_next(console, ("tune this plan:", command))
