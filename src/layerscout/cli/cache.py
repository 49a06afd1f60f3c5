"""`layerscout cache`: the states that are kept on disk."""

from __future__ import annotations

from typing import Annotated

import typer

from layerscout.cli.groups import Quiet

cache = typer.Typer(help="Manage the states that are cached on disk.", no_args_is_help=True)


@cache.command("list")
def list_cache(
    json: Annotated[
        bool, typer.Option("--json", metavar="", help="Print JSON, and nothing else.")
    ] = False,
) -> None:
    """List what is cached, most recently used first."""
    from layerscout.cli import terminal

    terminal.report_cache(as_json=json)


@cache.command("clear")
def clear_cache(quiet: Quiet = False) -> None:
    """Empty the cache; later runs compute again what they need."""
    from layerscout.runtime import cache_folder, clear_cache

    freed = clear_cache()
    if not quiet:
        typer.echo(f"removed {freed / 1e6:,.1f} MB from {cache_folder()}")
