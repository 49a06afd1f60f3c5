"""`layerscout study`: run a grid of trials."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from layerscout.cli.options import (
    Caching,
    Figures,
    Json,
    Placement,
    Quiet,
    interruptible,
)
from layerscout.runtime import InputError, LayerscoutError


def _recipes(begun: str) -> list[str]:
    """Complete the name of a recipe."""
    from layerscout.studies import list_recipes

    return [name for name in list_recipes() if name.startswith(begun)]


def study(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="[RECIPE]",
            help="A recipe that ships (see --list), or a YAML file.",
            autocompletion=_recipes,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder of the study.", show_default="the recipe's name"
        ),
    ] = None,
    *,
    listing: Annotated[
        bool, typer.Option("--list", help="List the recipes that ship, with what they reproduce.")
    ] = False,
    show: Annotated[
        str | None,
        typer.Option("--show", metavar="NAME", help="Print a recipe.", autocompletion=_recipes),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="The recipe's variant for a laptop.")
    ] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Change the recipe, such as model=bert-base-cased or axes.seed=[0,1]. "
            "May be given several times.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder with the known tasks in folders of their names; without it they come "
            "from the hub.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would run, its FLOPs and its time.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run trials again that failed.")
    ] = False,
    placement: Placement,
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, cuda:1, mps, ...; several with commas.")
    ] = "auto",
    figures: Figures = None,
    caching: Caching,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a grid of trials, each once, and write its tables, figures and report.

    If a study stops, rerun the same command to continue.
    """
    from layerscout.cli import study_terminal, terminal
    from layerscout.studies import list_recipes, load_recipe, read_value, recipe_text

    if listing:
        study_terminal.report_recipes(
            [(name, load_recipe(name)) for name in list_recipes()], as_json=json
        )
        return
    if show is not None:
        typer.echo(recipe_text(show), nl=False)
        return
    if recipe is None:
        raise InputError("name a recipe; layerscout study --list shows those that ship")
    limit, wanted = caching.bytes, dict(_change(one) for one in changes or [])
    wanted = {path: read_value(value) for path, value in wanted.items()}
    loaded = load_recipe(recipe, small=small, changes=wanted)
    folder = output or Path(Path(recipe).stem + ("-small" if small else ""))
    if dry_run:
        with interruptible(), terminal.loading(quiet):
            from layerscout.studies import estimate

            found = estimate(loaded, folder, data=data)
        study_terminal.report_estimate(found, as_json=json)
        return
    with interruptible(remedy="; rerun the same command to continue"):
        from layerscout import studies

        where: studies.Backend | None = None
        if placement.backend == "ray":
            where = studies.Ray(placement.cluster(device))
        result = studies.study(
            loaded,
            folder,
            data=data,
            device=device,
            backend=where,
            retry_failed=retry_failed,
            cache_limit=limit,
            progress=not quiet,
            told=None if quiet else study_terminal.trial_line,
        )
        studies.report(folder, figures=figures)
    failed = study_terminal.report_study(result, as_json=json, quiet=quiet)
    if failed:
        raise LayerscoutError(
            f"{failed} trials failed, whose records in {folder / 'trials'} say why; the others are "
            "done, and --retry-failed runs these again"
        )


def _change(written: str) -> tuple[str, Any]:
    path, equals, value = written.partition("=")
    if not equals or not path.strip():
        raise InputError(f"--set takes PATH=VALUE, such as axes.seed=[0,1], got {written!r:.60}")
    return path.strip(), value
