"""Progress of long work: a bar on the terminal, lines in a log, or a function of the caller."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Timer
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

if TYPE_CHECKING:
    import numpy as np

# Seconds between two lines where there is no terminal.
LOG_SECONDS = 60.0

# Seconds between two states of the line of a notebook.
NOTEBOOK_SECONDS = 0.5

# Seconds after which it is said what is awaited.
WAIT_SECONDS = 10.0

_logger = logging.getLogger(__name__)

# Called with the lengths of texts that are done, (b,).
Advance = Callable[["np.ndarray"], None]


class Show(Protocol):
    """A function that shows `done` of `total` of a stage of the work, with a note."""

    def __call__(self, stage: str, done: float, total: float, note: str = "") -> None:
        """Show it; the remaining time is estimated from the beginning of the stage."""


@contextmanager
def show_progress(progress: bool | Show) -> Iterator[Show]:
    """Yield a function that shows progress on standard error, or does nothing if it is False.

    A terminal and a notebook get one line, which is removed at the end; anything else, such as a
    log, gets a plain line every minute. A function is called in place of all that, from the thread
    that works.
    Otherwise every stage is also logged, at INFO, as it begins.
    """
    if callable(progress):
        yield progress
        return
    console = Console(stderr=True)
    notebook = progress and console.is_jupyter  # where a bar of rich needs ipywidgets
    terminal = console.is_terminal and not console.is_jupyter
    written, wait = monotonic(), NOTEBOOK_SECONDS if notebook else LOG_SECONDS
    write = _open_cell() if notebook else partial(print, file=sys.stderr, flush=True)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True)),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (progress and terminal),
    ) as bar:

        def show(stage: str, done: float, total: float, note: str = "") -> None:
            nonlocal written
            if progress and not terminal and monotonic() - written >= wait:
                written = monotonic()
                write(f"{stage}: {note or (f'{done / total:.0%}' if total else '')}")
            if not bar.tasks or bar.tasks[-1].description != stage:
                _logger.info("%s", stage)
                for task in bar.task_ids:
                    bar.remove_task(task)
                bar.add_task(stage, total=total, note=note)
            bar.update(bar.task_ids[-1], completed=done, note=note)

        yield show
    if notebook:
        write("")


def _open_cell() -> Callable[[str], None]:
    """Return what writes a line below a cell in place of the one before, in what is saved, too."""
    from IPython.display import DisplayHandle

    handle = DisplayHandle()
    handle.display({"text/plain": ""}, raw=True)
    return lambda line: handle.update({"text/plain": line}, raw=True)


def follow_examples(show: Show, stage: str, lengths: np.ndarray, choices: int = 1) -> Advance:
    """Return what shows the examples done and their rate.

    The bar counts tokens: the longest texts come first, so texts would promise too late an end.

    Args:
        show: shows it.
        stage: of the work.
        lengths: tokens of each text.
        choices: texts of an example.
    """
    total, examples, started = int(lengths.sum()), len(lengths) // choices, perf_counter()
    done = passed = 0

    def advance(lengths: np.ndarray) -> None:
        nonlocal done, passed
        done += int(lengths.sum())
        passed += len(lengths)
        rate = passed / choices / (perf_counter() - started)
        note = f"{passed // choices:,} of {examples:,} examples, {rate:,.0f}/s"
        show(stage, done, total, note)

    return advance


def write_duration(seconds: float) -> str:
    """Write how long something takes, about."""
    if seconds < 90:
        return f"{max(1.0, seconds):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:,.0f} days"


def say(line: str) -> None:
    """Print a line on standard error, quiet or not."""
    print(f"layerscout: {line}", file=sys.stderr, flush=True)


@contextmanager
def announce_waiting(line: str) -> Iterator[None]:
    """Say a line if the block takes more than some seconds.

    Args:
        line: what is awaited outside of this process, and what to do if it never comes.
    """
    timer = Timer(WAIT_SECONDS, say, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def log_warnings(name: str, warnings: Iterable[str]) -> None:
    """Log the warnings of a result, for callers that do not print them."""
    for warning in warnings:
        logging.getLogger(name).warning("%s", warning)
