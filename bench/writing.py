"""Tables of the pages, and those that they have no room for: CSV files beside the scripts."""

import csv
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
ONLINE = "https://github.com/layerscout/layerscout/blob/main"


def link(path: Path) -> str:
    """Return a Markdown link to a file of the repository, wherever the page is read."""
    place = path.resolve().relative_to(REPOSITORY).as_posix()
    return f"[{place}]({ONLINE}/{place})"


def write_rows(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Write a table that a page has no room for as CSV, and return the link to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])
    return link(path)


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read such a table; one that is not there yet has no rows."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
