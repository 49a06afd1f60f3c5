"""How far the work is: one line on the terminal, or now and then a line in a log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

# Where there is no terminal, a line is written when so many seconds have passed since the last.
LOG_SECONDS = 60.0


class Show(Protocol):
    """Shows `done` of `total` of a stage of the work, with a note beside it."""

    def __call__(self, stage: str, done: float, total: float, note: str = "") -> None:
        """Show it; the time left is reckoned from the beginning of the stage."""


@contextmanager
def show_progress(shown: bool) -> Iterator[Show]:
    """Yield what shows the progress, on standard error; it does nothing unless `shown`.

    On a terminal there is one line, which is gone at the end. Elsewhere, as in a log, there is a
    plain line a minute.
    """
    console = Console(stderr=True)
    terminal = console.is_terminal or console.is_jupyter
    written = monotonic()
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True)),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (shown and terminal),
    ) as bar:

        def show(stage: str, done: float, total: float, note: str = "") -> None:
            nonlocal written
            if shown and not terminal and monotonic() - written >= LOG_SECONDS:
                written = monotonic()
                share = f"{done / total:.0%}" if total else ""
                print(f"{stage}: {note or share}", file=sys.stderr, flush=True)
            if not bar.tasks or bar.tasks[-1].description != stage:
                for task in bar.task_ids:
                    bar.remove_task(task)
                bar.add_task(stage, total=total, note=note)
            bar.update(bar.task_ids[-1], completed=done, note=note)

        yield show
