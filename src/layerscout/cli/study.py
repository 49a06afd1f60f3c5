"""The subcommands that run studies and write reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from layerscout.cli.options import (
    Address,
    Backend,
    CacheLimit,
    Cpus,
    Device,
    Gpus,
    Json,
    Quiet,
    interruptible,
    on_cluster,
    size_in_bytes,
)
from layerscout.runtime import Cluster, InputError, LayerscoutError, escape_controls

Figures = Annotated[
    Literal["svg", "png", "pdf"] | None,
    typer.Option(help="Also write every figure as a file of this kind."),
]


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
    backend: Backend = "local",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    device: Device = "auto",
    figures: Figures = None,
    cache_limit: CacheLimit = "20GB",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a grid of trials, each once, and write its tables, figures and report.

    Run the same command again to go on after a stop.
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
    limit, wanted = size_in_bytes(cache_limit), dict(_change(one) for one in changes or [])
    wanted = {path: read_value(value) for path, value in wanted.items()}
    loaded = load_recipe(recipe, small=small, changes=wanted)
    folder = output or Path(Path(recipe).stem + ("-small" if small else ""))
    if dry_run:
        with interruptible(), terminal.loading(quiet):
            from layerscout.studies import estimate

            found = estimate(loaded, folder, data=data)
        study_terminal.report_estimate(found, as_json=json)
        return
    with interruptible(remedy="; the same command goes on"):
        from layerscout import studies

        where: studies.Backend | None = None
        if on_cluster(backend, address=address, cpus=cpus, gpus=gpus):
            where = studies.Ray(Cluster(address, cpus, gpus, device))
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


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="What the verbs wrote, studies too.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder for report.html.", show_default="the first DIR"
        ),
    ] = None,
    figures: Figures = None,
    quiet: Quiet = False,
) -> None:
    """Write one page that needs nothing else, of studies or of whatever the verbs wrote."""
    from layerscout.cli import terminal

    with interruptible(), terminal.loading(quiet):
        from layerscout import studies

        written = studies.report(folders, output, figures=figures)
    if not quiet:
        typer.echo(escape_controls(f"wrote {', '.join(map(str, written))}"))
