"""`layerscout cache`: the states that are kept on disk."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from json import dumps
from typing import Annotated, Any

import typer
from rich.console import Console

from layerscout.cli.console import print_rows, say
from layerscout.cli.groups import Quiet
from layerscout.states import cache_folder, clear_cache, count_unfinished, list_cache

cache = typer.Typer(
    name="cache",
    help="Manage the states that are cached on disk.",
    no_args_is_help=True,
    add_completion=False,
)


@cache.command("list")
def list_entries(
    json: Annotated[
        bool, typer.Option("--json", metavar="", help="Print JSON, and nothing else.")
    ] = False,
) -> None:
    """List what is cached, most recently used first."""
    entries = list_cache()
    if json:
        listed = [
            {"path": str(e.path), "bytes": e.bytes, "used": e.used, **e.about} for e in entries
        ]
        print(dumps(listed, indent=1), flush=True)
        return
    console = Console()
    rows = [
        [
            datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M"),
            f"{entry.bytes / 1e6:,.1f}",
            str(entry.about.get("kind", "?")),
            _describe_entry(entry.about),
            str(entry.about.get("model", "?")),
        ]
        for entry in entries
    ]
    if rows:
        columns = ["used", "MB", "kind", "what", "of"]
        print_rows(console, columns, rows, words=(2, 3, 4))
    total = sum(entry.bytes for entry in entries) / 1e6
    counted = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
    files, size = count_unfinished()
    left = "1 unfinished file" if files == 1 else f"{files} unfinished files"
    more = f" and {left}, {size / 1e6:,.1f} MB," if files else ""
    say(console, f"{counted}, {total:,.1f} MB,{more} in {cache_folder()}")


@cache.command("clear")
def clear(quiet: Quiet = False) -> None:
    """Empty the cache; later runs compute again what they need."""
    freed = clear_cache()
    if not quiet:
        typer.echo(f"removed {freed / 1e6:,.1f} MB from {cache_folder()}")


def _describe_entry(about: Mapping[str, Any]) -> str:
    """Say in a few words what an entry of the cache holds."""
    texts = f"{about['texts']:,} texts" if isinstance(about.get("texts"), int) else "? texts"
    match about.get("kind"):
        case "trunk":
            return f"state {about.get('cut', '?')}, {texts}"
        case "states":
            return f"{about.get('pooling', '?')} of all states, {texts}"
        case _:
            return "?"
