"""`layerscout plan`: list the strategies after a scan, and choose one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from layerscout.cli.groups import Printing, check_outputs, interruptible
from layerscout.plans import PlanRequest


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
    from layerscout.cli import terminal

    output = output or (folder.parent if folder.is_file() else folder)
    with interruptible(), terminal.loading(printing.quiet):
        check_outputs(output, "plan.json")
        from layerscout.scanning import Scan

        result = Scan.load(folder).planning(request)
        result.save(output)
    terminal.report_planning(result, output, as_json=printing.json, quiet=printing.quiet)
