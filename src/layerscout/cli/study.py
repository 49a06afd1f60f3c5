"""`layerscout study`: run a grid of trials."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from layerscout.cli.console import loading
from layerscout.cli.groups import (
    Caching,
    Figures,
    Placement,
    Printing,
    check_outputs,
    interruptible,
)
from layerscout.errors import InputError, LayerscoutError
from layerscout.plans import option


def _recipes(begun: str) -> list[str]:
    """Complete the name of a recipe."""
    from layerscout.studies import list_recipes

    return [name for name in list_recipes() if name.startswith(begun)]


@dataclass(frozen=True)
class StudyOptions:
    """What is run of a recipe, and how; see `layerscout.study`."""

    small: bool = option(False)
    """Run the recipe's variant for a laptop."""
    changes: Sequence[str] = option((), flag="--set")
    """Change the recipe, such as model=bert-base-cased or axes.seed=[0,1]; may be repeated."""
    data: str | None = option(None)
    """Folder that has a folder for each known task, named after it; by default tasks come from the
    hub."""
    overwrite: bool = option(False)
    """Write into the folder of another study; its trials are kept."""
    dry_run: bool = option(False)
    """List what would run, its FLOPs and its time."""
    retry_failed: bool = option(False)
    """Rerun trials that failed."""
    device: str = option("auto")
    """Where models run: auto, cpu, cuda, cuda:1, mps, ...; several with commas."""

    def load(self, recipe: str) -> Any:
        """Read the recipe, with its changes."""
        from layerscout.studies import load_recipe, read_value

        wanted = dict(_split_change(one) for one in self.changes)
        values = {path: read_value(value) for path, value in wanted.items()}
        return load_recipe(recipe, small=self.small, changes=values)


def study(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="[RECIPE]",
            help="A built-in recipe (see --list), or a YAML file.",
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
        bool,
        typer.Option(
            "--list", metavar="", help="List the built-in recipes and what they reproduce."
        ),
    ] = False,
    show: Annotated[
        str | None,
        typer.Option("--show", metavar="NAME", help="Print a recipe.", autocompletion=_recipes),
    ] = None,
    options: StudyOptions,
    placement: Placement,
    figures: Figures = None,
    caching: Caching,
    printing: Printing,
) -> None:
    """Run a grid of trials, each once, and write its tables, figures and report.

    If a study stops, rerun the same command to continue.
    """
    from layerscout.cli import study_terminal
    from layerscout.studies import list_recipes, load_recipe, read_recipe_text

    if listing:
        recipes = [(name, load_recipe(name)) for name in list_recipes()]
        study_terminal.report_recipes(recipes, as_json=printing.json)
    elif show is not None:
        typer.echo(read_recipe_text(show), nl=False)
    elif recipe is None:
        raise InputError("name a recipe; layerscout study --list lists the built-in ones")
    else:
        folder = output or Path(Path(recipe).stem + ("-small" if options.small else ""))
        if options.dry_run:
            _estimate(recipe, folder, options, printing)
        else:
            _run(options.load(recipe), folder, options, placement, figures, caching, printing)


def _estimate(recipe: str, folder: Path, options: StudyOptions, printing: Printing) -> None:
    from layerscout.cli import study_terminal

    with interruptible():
        with loading(printing.quiet):
            from layerscout.studies import estimate

            loaded = options.load(recipe)
        estimated = estimate(loaded, folder, data=options.data, progress=not printing.quiet)
    study_terminal.report_estimate(estimated, as_json=printing.json)


def _run(
    recipe: Any,
    folder: Path,
    options: StudyOptions,
    placement: Placement,
    figures: Figures,
    caching: Caching,
    printing: Printing,
) -> None:
    from layerscout.cli import study_terminal

    limit = caching.bytes
    if not options.overwrite:
        _check_earlier_study(folder, recipe.title)
    check_outputs(folder, "study.json", "summary.csv", "report.html")
    for inside in ("trials", "tables", *(["figures"] if figures else [])):
        check_outputs(folder / inside)
    with interruptible():
        from layerscout import studies

        on_cluster = placement.backend == "ray"
        result = studies.study(
            recipe,
            folder,
            data=options.data,
            device=options.device,
            backend=studies.Ray(placement.cluster(options.device)) if on_cluster else None,
            retry_failed=options.retry_failed,
            cache_limit=limit,
            progress=not printing.quiet,
            on_trial=None if printing.quiet else study_terminal.print_trial,
        )
        reported = studies.write_report(folder, figures=figures)
    failed = study_terminal.report_study(result, reported, printing)
    if failed:
        raise LayerscoutError(
            f"{failed} trials failed, and the others are done; see the records in "
            f"{folder / 'trials'} for the causes, and rerun the failed trials with --retry-failed"
        )


def _check_earlier_study(folder: Path, title: str) -> None:
    """Raise for the folder of another study, whose tables and report would be lost."""
    from layerscout.files import read_json

    earlier = title
    with suppress(OSError, ValueError, LookupError, TypeError):  # a broken one is told of later
        earlier = str(read_json(folder / "study.json")["recipe"]["title"])
    if earlier != title:
        raise InputError(
            f"{folder} holds another study, {earlier!r:.60}; name another folder with -o, or "
            "use --overwrite, which replaces its tables and report and keeps its trials"
        )


def _split_change(written: str) -> tuple[str, str]:
    path, equals, value = written.partition("=")
    if not equals or not path.strip():
        raise InputError(f"--set takes PATH=VALUE, such as axes.seed=[0,1], got {written!r:.60}")
    return path.strip(), value
