"""The terminal as a renderer, by `rich`: sentences, tables, and what frames every report."""

from __future__ import annotations

import gc
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from layerscout.cli.clock import read_begin
from layerscout.errors import escape_controls

if TYPE_CHECKING:
    from layerscout.cli.groups import Printing
    from layerscout.reporting import Table

# What stands for a character that a terminal's encoding lacks.
PLAIN = {"ν": "nu", "τ": "tau", "±": "+-", "ℓ": "l"}
PLAIN |= dict(zip("–−·≈◀◆↑↓▁▂▃▄▅▆▇█░▒▓", "---~<*^v.:-=+*%#.:+", strict=True))


def say(console: Console, line: str, style: str = "") -> None:
    """Print a line as it is: no markup, and no breaks inside a path or because of one."""
    console.print(Text(encode(console, line), style=style), soft_wrap=True)


def say_wrapped(console: Console, lines: Iterable[str]) -> None:
    """Print sentences, each wrapped to the width of the terminal."""
    for line in lines:
        encoded, width = encode(console, line), console.width
        for part in textwrap.wrap(encoded, width, subsequent_indent="  ", break_on_hyphens=False):
            say(console, part)


def warn(warnings: Iterable[str]) -> None:
    """Print warnings, which always reach the person."""
    errors = Console(stderr=True)
    for warning in warnings:
        say(errors, f"warning: {warning}", "yellow")


def encode(console: Console, text: str) -> str:
    """Write what the terminal has no character for in another way."""
    text = escape_controls(text)
    if console.encoding.startswith("utf"):
        return text
    return "".join(PLAIN.get(sign, sign) for sign in text)


def print_table(console: Console, table: Table) -> None:
    """Print a table, the rows with a marked cell in bold."""
    if table.caption:
        say_wrapped(console, [table.caption])
    marked = frozenset(row for row, _ in table.marked)
    print_rows(console, table.columns, table.rows, table.words, marked, table.mark)


def print_rows(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Collection[int] = (),
    marked: Collection[int] = (),
    mark: str = "",
) -> None:
    """Print rows under headings; `words` are columns of words, `marked` rows stand out."""
    # Many columns fit in 80 characters only with one space between them.
    grid = Grid(box=None, header_style="bold", pad_edge=False, collapse_padding=len(columns) > 6)
    counted = all(row[0].isdigit() for row in rows)
    for number, name in enumerate(columns):
        left = number in words or (number == 0 and not counted)
        heading = Text(encode(console, name), overflow="fold")
        grid.add_column(heading, justify="left" if left else "right", overflow="fold")
    if marked and mark:
        grid.add_column("")
    for number, row in enumerate(rows):
        cells = [Text(encode(console, cell)) for cell in row]
        if number in marked and mark:
            cells.append(Text(encode(console, f"◀ {mark}")))
        style = "bold green" if number in marked else "" if any(row[1:]) else "dim"
        grid.add_row(*cells, style=style)
    console.print(grid)


@contextmanager
def loading(quiet: bool) -> Iterator[None]:
    """Show a spinner while libraries, data and model load."""
    console = Console(stderr=True, quiet=quiet)
    status = console.status("loading the data and the model")
    gc.disable()  # it went through all that is imported again and again: 0.8 s of a processor
    try:
        with status if console.is_terminal else nullcontext():
            yield
    finally:
        gc.enable()


def open_report(
    content: Mapping[str, Any], path: Path, printing: Printing, said: Collection[str] = ()
) -> Console | None:
    """Print warnings that are not yet, and the JSON file if asked; return a console for more."""
    warn(each for each in content.get("warnings", ()) if each not in said)
    if printing.json:
        print(path.read_text(encoding="utf-8"), end="", flush=True)
    return None if printing.json or printing.quiet else Console()


def finish(
    result: Any,
    folder: Path,
    names: Sequence[str],
    printing: Printing,
    show: Callable[[Console, Mapping[str, Any]], None],
    plot: Path | None = None,
) -> None:
    """Save what a verb gave and its chart, and print it, for a person or as JSON for a program.

    Args:
        result: of the verb.
        folder: which it is saved into.
        names: of the files that are written there, the JSON first.
        printing: what is printed.
        show: prints the content of the JSON.
        plot: the picture of the chart, if one is wanted.
    """
    from layerscout import reporting

    result.save(folder)
    if plot is not None:
        reporting.plot(result, plot)
    content = result.as_dict()
    console = open_report(content, folder / names[0], printing)
    if console is not None:
        show(console, content)
        files = [*(folder / name for name in names), *([] if plot is None else [plot])]
        seconds = perf_counter() - read_begin()
        say(console, f"{seconds:.1f} s; wrote {', '.join(map(str, files))}")
        if content["verb"] == "evaluate":
            print_uses(console, content, folder)
        say_next(console, reporting.suggest_step(content, str(folder)))


def say_next(console: Console, step: tuple[str, str] | None) -> None:
    """Print what to do next and what to type for it, the last line of a verb, if it has one."""
    if step is not None:
        say(console, f"next, {_begin_small(step[0])} {step[1]}")


def say_heading(console: Console, content: Mapping[str, Any]) -> None:
    """Say which model and which task it is about."""
    model, task = content["model"], content["task"]
    say(console, f"{model['name']} ({model['blocks']} blocks) on {task['name']}")


def _begin_small(sentence: str) -> str:
    """Return a sentence as it stands after other words."""
    return f"{sentence[:1].lower()}{sentence[1:]}"


def print_by_name(console: Console, content: Mapping[str, Any]) -> None:
    """Print how well a model does on every label by itself, and which it takes for which."""
    from layerscout.reporting import tabulate_by_name, tabulate_confusion

    confusion = tabulate_confusion(content)
    if confusion is not None:  # a page shades the shares; a terminal may be too narrow for it
        caption = confusion.caption.partition(" Shading")[0]
        cells = [confusion.columns, *confusion.rows]
        width = sum(2 + max(map(len, column)) for column in zip(*cells, strict=True))
        confusion = replace(confusion, caption=caption) if width <= console.width else None
    for table in (tabulate_by_name(content), confusion):
        if table is not None:
            console.print()
            print_table(console, table)


def print_uses(console: Console, content: Mapping[str, Any], folder: Path) -> None:
    """Print what to do with a model, but for what comes next anyway."""
    from layerscout.reporting import list_uses, suggest_step

    following = suggest_step(content, str(folder))
    for use in list_uses(content, str(folder)):
        if use != following:
            say(console, f"{_begin_small(use[0])} {use[1]}")


def report_formats(folder: Path, formats: Sequence[str], *, quiet: bool) -> None:
    """Say which formats a checkpoint has besides its own; on standard error, as --json asks."""
    if not quiet:
        say(Console(stderr=True), f"added to {folder}: {', '.join(formats)}")
