"""Write the page of what is reproduced of the four papers, from the recipes.

python bench/coverage.py --write docs/papers.md
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

from layerscout.studies import list_recipes, load_recipe
from results import BASE_KEPT, KEPT, PAPERS, read_runs
from writing import table

# How many figures and tables each paper has.
COUNTS: Mapping[str, tuple[int, int]] = {
    "xie2022": (17, 12),
    "phang2021": (7, 0),
    "tamkin2020": (8, 2),
    "lodha2023": (7, 5),
}

# What is no experiment, and where it is here.
OTHERS: Mapping[tuple[str, str], str] = {
    ("xie2022", "Figure 1"): "drawing",
    ("xie2022", "Figure 2"): "drawing; [plans](plan.md)",
    ("xie2022", "Table 3"): "rates of probes; `--probe family`",
    ("xie2022", "Table 4"): "rates of fine-tuning; `--preset xie2022`",
    ("xie2022", "Table 5"): "rates of adapters; `--preset xie2022 --method adapter`",
    ("tamkin2020", "Figure 1"): "drawing; [edits](edits.md)",
    ("tamkin2020", "Table 2"): "sizes of the data",
    ("lodha2023", "Table 1"): "how models were trained; `--preset lodha2023`",
    ("lodha2023", "Table 2"): "sizes of the data",
    ("lodha2023", "Table 3"): "sizes of the data",
}

INTRODUCTION = """# The four papers, figure by figure

Every figure and table of the four papers, the recipe that reproduces it, and how the recipe differs
from the paper. `layerscout study RECIPE` runs it with the paper's models, tasks and seeds,
`--dry-run` estimates the cost, and `--small` runs it on one small encoder. [The papers'
claims](measured/results.md) shows which claims held on models that fit a laptop.

This page is made from the recipes by `python bench/coverage.py --write docs/papers.md`.
"""


def list_items(paper: str) -> list[str]:
    """Name the figures and tables of a paper."""
    figures, tables = COUNTS[paper]
    return [f"Figure {n + 1}" for n in range(figures)] + [f"Table {n + 1}" for n in range(tables)]


def list_rows(paper: str) -> list[list[str]]:
    """Return a row for each figure and table of a paper and each recipe that makes it."""
    kept = [read_runs(folder) for folder in (KEPT, BASE_KEPT) if (folder / "studies.json").exists()]
    recipes = {name: load_recipe(name) for name in list_recipes() if name.startswith(paper)}
    items = list_items(paper)
    items += sorted({one for recipe in recipes.values() for one in recipe.shows} - {*items})
    rows = []
    for item in items:
        if (paper, item) in OTHERS:
            rows.append([item, "", OTHERS[paper, item], *("" for _ in kept)])
        for name, recipe in recipes.items():
            if item in recipe.shows:
                done = [str(runs[name]["trials"]) if name in runs else "none" for runs in kept]
                rows.append([item, f"`{name}`", recipe.shows[item], *done])
    return rows


def write() -> str:
    """Write the page."""
    parts = []
    for paper, title in PAPERS.items():
        rows = list_rows(paper)
        headings = ["", "recipe", "how", "trials, small variant", "trials, base size"][
            : len(rows[0])
        ]
        parts.append(f"## {title}\n\n{table(headings, rows)}")
    return INTRODUCTION + "\n" + "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", type=Path, required=True)
    parser.parse_args().write.write_text(write(), encoding="utf-8")


if __name__ == "__main__":
    main()
