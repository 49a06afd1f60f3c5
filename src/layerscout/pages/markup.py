"""A table in the markup of other documents: Markdown and LaTeX."""

from __future__ import annotations

from layerscout.pages.content import Table

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
