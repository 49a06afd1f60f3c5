"""`layerscout report`: one page from what the verbs wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from layerscout.cli.console import loading, say, say_wrapped
from layerscout.cli.groups import Figures, Quiet, interruptible


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Output folders of verbs, including studies."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for report.html.",
            show_default="DIR, or ./report for several",
        ),
    ] = None,
    figures: Figures = None,
    quiet: Quiet = False,
) -> None:
    """Write one self-contained page about studies or the output of any verb.

    Two results of the same command are compared: what changed, and which predictions flip.
    """
    with interruptible(), loading(quiet):
        from layerscout import studies

        report = studies.write_report(folders, output, figures=figures)
    if not quiet:
        console = Console()
        say_wrapped(console, report.lines)
        say(console, f"wrote {', '.join(map(str, report.written))}")
