"""What is shown to people, whatever shows it: page, terminal, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class Table:
    """Cells as text under `columns`.

    Attributes:
        caption: what stands above the table.
        columns: the headings.
        rows: of cells, one for each column.
        marked: the (row, column) of the cells that stand out.
        words: the columns that hold words, not numbers; the first one always may.
        below: what stands below the first cell of each row, if anything does.
        shades: how much colour lies behind a (row, column), from −1 to 1.
        folded: whether the page hides it until it is opened.
        sortable: whether a click on a heading sorts the rows.
        mark: why the marked cells stand out.
        texts: whether the last column holds texts, which a narrow page shows below their rows.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: frozenset[tuple[int, int]] = frozenset()
    words: frozenset[int] = frozenset()
    below: Sequence[str] = ()
    shades: Mapping[tuple[int, int], float] = field(default_factory=dict)
    folded: bool = False
    sortable: bool = False
    mark: str = "best"
    texts: bool = False


@dataclass(frozen=True)
class Section:
    """One part of a page, shown in the order of the fields; empty fields are left out.

    Attributes:
        title: the heading.
        paragraphs: plain text.
        charts: charts, each with a `description` for those who cannot see it.
        table: a table.
        commands: commands to type, each after a sentence that says what it does; they stand above
            the charts.
        facts: names and values.
        small: whether several charts fit side by side.
        code: text that is shown verbatim.
        heading: whether it opens a new part of the page; it is then shown even if it is empty.
    """

    title: str
    paragraphs: Sequence[str] = ()
    charts: Sequence[alt.LayerChart] = ()
    table: Table | None = None
    commands: Sequence[tuple[str, str]] = ()
    facts: Sequence[tuple[str, str]] = ()
    small: bool = False
    code: str = ""
    heading: bool = False


@cache
def load_template(name: str, **filters: Callable[..., Any]) -> Any:
    """Return a template of this room with these filters; a page escapes what is put into it."""
    import jinja2

    page = name.endswith(".html")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("layerscout.reporting", "."),
        autoescape=page,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not page,
    )
    environment.filters |= filters
    return environment.get_template(name)


# What LaTeX writes in another way.
SIGNS = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "–": "--",
    "ℓ": r"$\ell$",
    "ν": r"$\nu$",
    "ζ": r"$\zeta$",
    "−": "$-$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
} | {sign: rf"\{sign}" for sign in "&%$#_{}"}


def write_markdown(table: Table) -> str:
    """Write a table in Markdown."""
    rows = [table.columns, ["---", *["---:"] * (len(table.columns) - 1)], *table.rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows
    )


def write_latex(table: Table) -> str:
    """Write a table in LaTeX, with the rules of booktabs."""
    lines = [
        " & ".join("".join(SIGNS.get(sign, sign) for sign in cell) for cell in row) + r" \\"
        for row in (table.columns, *table.rows)
    ]
    head, body = lines[0], "\n".join(lines[1:])
    return (
        "\\begin{tabular}{l" + "r" * (len(table.columns) - 1) + "}\n\\toprule\n"
        f"{head}\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
    )
