"""The terminal as a renderer: sentences, tables, curves and maps, by `rich`."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from layerscout.runtime import escape_controls

if TYPE_CHECKING:
    from layerscout.pages import Table

# Characters of the longest bar, so that every curve fits in 80.
BAR = 32
# What stands for a character that a terminal's encoding lacks.
PLAIN = {"ν": "nu", "τ": "tau", "±": "+-", "ℓ": "l"}
PLAIN |= dict(zip("–−·≈◀◆↑↓▁▂▃▄▅▆▇█░▒▓", "---~<*^v.:-=+*%#.:+", strict=True))


class EscapingConsole(Console):
    """Writes control characters as escapes: names and labels come from files."""

    def __init__(self, **options: Any) -> None:
        """Take the options of `Console`; nothing is highlighted."""
        super().__init__(highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render it as rich does, but for control characters in what is not rich's own."""
        for segment in super().render(renderable, options):
            if not segment.control:
                lines = segment.text.split("\n")  # which rich put there
                segment = segment._replace(text="\n".join(map(escape_controls, lines)))
            yield segment


def say(console: Console, line: str, style: str = "") -> None:
    """Print a line as it is: no markup, and no breaks inside a path or because of one."""
    console.print(Text(_encode(console, line), style=style), soft_wrap=True)


def say_wrapped(console: Console, lines: Iterable[str]) -> None:
    """Print sentences, each wrapped to the width of the terminal."""
    for line in lines:
        encoded, width = _encode(console, line), console.width
        for part in textwrap.wrap(encoded, width, subsequent_indent="  ", break_on_hyphens=False):
            say(console, part)


def warn(warnings: Iterable[str]) -> None:
    """Print warnings, which always reach the person."""
    errors = EscapingConsole(stderr=True)
    for warning in warnings:
        say(errors, f"warning: {warning}", "yellow")


def _encode(console: Console, text: str) -> str:
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
        heading = Text(_encode(console, name), overflow="fold")
        grid.add_column(heading, justify="left" if left else "right", overflow="fold")
    if marked and mark:
        grid.add_column("")
    for number, row in enumerate(rows):
        cells = [Text(_encode(console, cell)) for cell in row]
        if number in marked and mark:
            cells.append(Text(_encode(console, f"◀ {mark}")))
        style = "bold green" if number in marked else "" if any(row[1:]) else "dim"
        grid.add_row(*cells, style=style)
    console.print(grid)


def print_curves(console: Console, scan: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Draw the curves of some scores, a row per entry, with the best marked."""
    from layerscout.pages import find_tied, format_number, get_details

    def text(line: str, style: str = "") -> Text:
        return Text(_encode(console, line), style=style)

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


def print_map(console: Console, one: Mapping[str, Any], key: str) -> None:
    """Draw a map in shades, its states counted from the lower left, if it is not too wide."""
    shades = " ░▒▓█"
    if 2 * len(one["columns"]) + 6 > console.width:
        say(console, "too wide for this terminal; see the page")
        return
    for state, line in reversed(list(zip(one["rows"], one[key], strict=True))):
        cells = (2 * ("·" if v is None else shades[min(4, int(5 * max(v, 0)))]) for v in line)
        say(console, f"{state:>3} {''.join(cells)}")
    marks = "".join(f"{column:<4}" for column in one["columns"][::2])
    say(console, f"    {marks.rstrip()}")
    listed = (f"{shade} {at / 5}" for at, shade in enumerate(shades[1:], start=1))
    say(console, f"    from: {', '.join(listed)}; · undefined", "dim")
