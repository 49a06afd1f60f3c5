"""One line on the terminal that shows how far the work is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column


class Show(Protocol):
    """Shows `done` of `total` of a stage of the work, with a note beside it."""

    def __call__(self, stage: str, done: float, total: float, note: str = "") -> None:
        """Show it; the time left is reckoned from the beginning of the stage."""


@contextmanager
def progress(shown: bool) -> Iterator[Show]:
    """Yield what shows the progress; it does nothing unless `shown` and on a terminal.

    The line stands on standard error and is gone at the end.
    """
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True)),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (shown and (console.is_terminal or console.is_jupyter)),
    ) as bar:

        def show(stage: str, done: float, total: float, note: str = "") -> None:
            if not bar.tasks or bar.tasks[-1].description != stage:
                for task in bar.task_ids:
                    bar.remove_task(task)
                bar.add_task(stage, total=total, note=note)
            bar.update(bar.task_ids[-1], completed=done, note=note)

        yield show
