"""`layerscout study`: run a grid of trials, and print its recipes, its cost and its tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from layerscout.cli.console import (
    loading,
    open_report,
    print_rows,
    say,
    say_wrapped,
)
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
from layerscout.progress import write_duration

if TYPE_CHECKING:
    from layerscout.studies import Cell, Estimate, Recipe, Reported, Study, Trial

# The axes that tell the rows of an estimate apart, and their headings.
AXES = {
    "model": "model",
    "task": "task",
    "plan": "plan",
    "resolved": "blocks, head",
    "method": "method",
    "edits": "edits",
}


def _complete_recipe(begun: str) -> list[str]:
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
    """Where models run: auto, cpu, cuda, cuda:1, mps, ..."""

    def load(self, recipe: str) -> Recipe:
        """Read the recipe, with its changes."""
        from layerscout.studies import load_recipe, read_value

        changes = {}
        for change in self.changes:
            path, equals, value = change.partition("=")
            if not equals or not path.strip():
                raise InputError(
                    f"--set takes PATH=VALUE, such as axes.seed=[0,1], got {change!r:.60}"
                )
            changes[path.strip()] = read_value(value)
        return load_recipe(recipe, small=self.small, changes=changes)


def study(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="[RECIPE]",
            help="A built-in recipe (see --list), or a YAML file.",
            autocompletion=_complete_recipe,
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
        typer.Option(
            "--show", metavar="NAME", help="Print a recipe.", autocompletion=_complete_recipe
        ),
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
    from layerscout.studies import read_recipe_text

    if listing:
        _print_recipes(as_json=printing.json)
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


def _print_recipes(*, as_json: bool) -> None:
    """List recipes with what they reproduce."""
    from layerscout.studies import list_recipes, load_recipe

    recipes = [(name, load_recipe(name)) for name in list_recipes()]
    if as_json:
        listed = [
            {"name": n, "title": r.title, "source": r.source, "shows": r.shows, "cost": r.cost}
            for n, r in recipes
        ]
        print(json.dumps(listed, indent=1, ensure_ascii=False))
        return
    console = Console()
    rows = [row for name, recipe in recipes for row in ([name, recipe.title], ["", recipe.credits])]
    print_rows(console, ["recipe", "what"], rows, words=(1,))
    console.print()
    say(console, "layerscout study RECIPE --small runs one on a laptop.")


def _estimate(recipe: str, folder: Path, options: StudyOptions, printing: Printing) -> None:
    """Print what a study would run, and how much compute that takes."""
    with interruptible():
        with loading(printing.quiet):
            from layerscout import studies

            loaded = options.load(recipe)
        estimate = studies.estimate(loaded, folder, data=options.data, progress=not printing.quiet)
    whole = estimate.flops(estimate.trials)
    left = estimate.flops(key for key in estimate.trials if key not in estimate.done)
    uncached = sum(trial.uncached for trial in estimate.trials.values())
    if printing.json:
        content = {
            "trials": [_describe_cell(cell, estimate) for cell in estimate.cells],
            "flops": whole,
            "flops_left": left,
            "flops_uncached": uncached,
            "flops_per_second": estimate.speed,
            "seconds_left": left / estimate.speed,
        }
        print(json.dumps(content, indent=1))
        return
    console = Console()
    columns, rows = _tabulate_estimate(estimate)
    print_rows(console, columns, rows, words=range(len(columns) - 4))
    console.print()
    say(
        console,
        f"{len(estimate.trials):,} trials, {len(estimate.done):,} of them done; {whole:.3g} FLOPs, "
        f"{whole / (uncached or 1):.0%} of the cost without shared trunks. About "
        f"{write_duration(left / estimate.speed)} left at {estimate.speed / 1e9:,.0f} GFLOP/s "
        f"({estimate.reason}).",
    )
    for why, number in Counter(str(c.refused) for c in estimate.cells if c.trial is None).items():
        say(console, f"{number} cannot be run: {why}")


def _describe_cell(cell: Cell, estimate: Estimate) -> dict[str, Any]:
    content: dict[str, Any] = {"grid": cell.grid, "values": dict(cell.values)}
    content["refused"] = cell.refused
    if cell.trial is not None:
        key = cell.trial.key
        content |= {"trial": key, "flops": estimate.trials[key].flops, "done": key in estimate.done}
    return content


def _tabulate_estimate(estimate: Estimate) -> tuple[list[str], list[list[str]]]:
    """Return headings and a row for each group of trials; axes without a value are left out."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for cell in estimate.cells:
        if cell.trial is not None:
            name = (cell.grid, *(str(cell.values.get(axis, "")) for axis in AXES))
            groups.setdefault(name, []).append(cell.trial.key)
    grouped = {key for keys in groups.values() for key in keys}
    if others := [key for key in estimate.trials if key not in grouped]:
        groups["scans", "", "", "that plans need", "", "", ""] = others
    shown = [0, *(n for n in range(1, len(AXES) + 1) if any(name[n] for name in groups))]
    rows = []
    for name, keys in groups.items():
        unique = list(dict.fromkeys(keys))
        flops, done = estimate.flops(unique), sum(key in estimate.done for key in unique)
        counted = [f"{len(unique):,}", f"{done:,}", f"{flops / 1e12:,.1f}"]
        rows.append([*(name[n] for n in shown), *counted, write_duration(flops / estimate.speed)])
    headings = ["grid", *AXES.values()]
    return [*(headings[n] for n in shown), "trials", "done", "TFLOPs", "time"], rows


def _run(
    recipe: Recipe,
    folder: Path,
    options: StudyOptions,
    placement: Placement,
    figures: Figures,
    caching: Caching,
    printing: Printing,
) -> None:
    """Run a study, and print its tables and what it shows, or its `study.json`."""
    limit = caching.bytes
    if not options.overwrite:
        _check_earlier_study(folder, recipe.title)
    check_outputs(folder, "study.json", "summary.csv", "report.html")
    for inside in ("trials", "tables", *(["figures"] if figures else [])):
        check_outputs(folder / inside)
    with interruptible():
        from layerscout import studies

        cluster = placement.cluster(options.device)
        result = studies.study(
            recipe,
            folder,
            data=options.data,
            device=options.device,
            backend=None if cluster is None else studies.Ray(cluster),
            retry_failed=options.retry_failed,
            cache_limit=limit,
            progress=not printing.quiet,
            on_trial=None if printing.quiet else _print_trial,
        )
        reported = studies.write_report(folder, figures=figures)
    failed = print_study(result, reported, printing)
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


def _print_trial(trial: Trial, record: Mapping[str, Any], before: bool) -> None:
    """Print a line for a trial that ended, where no bar shows it."""
    console = Console(stderr=True)
    if before or (console.is_terminal and record["status"] == "done"):
        return
    result, given, task = record["result"] or {}, trial.arguments, trial.task
    words = [trial.verb, str(task if isinstance(task, str) else task.get("name") or task["data"])]
    if trial.verb == "tune":
        words += [given["plan"]["notation"], str(given.get("edits", ""))]
        words += [f"rate {given['learning_rate']:g}", f"seed {given['seed']}"]
        if result:
            value = result[result["keep"]]["value"]
            words.append(f"{result['metric'].replace('_', ' ')} {value:.3f}")
    line = f"{' '.join(word for word in words if word)} ({record['seconds']:.1f} s)"
    if record["status"] == "failed":
        say(console, f"failed: {line}: {record['error']}", "yellow")
    else:
        say(console, line)


def print_study(result: Study, reported: Reported, printing: Printing) -> int:
    """Print the tables of a study and what it shows, or its `study.json`; count failed trials.

    Args:
        result: the study.
        reported: its report.
        printing: what is printed.
    """
    folder = result.store.folder
    keys = {cell.trial.key for cell in result.cells if cell.trial is not None}
    records = map(result.store.read, keys)
    failed = sum(1 for record in records if record and record["status"] == "failed")
    refused = Counter(cell.refused for cell in result.cells if cell.refused is not None)
    warnings = [f"{number} could not be run: {why}" for why, number in refused.items()]
    console = open_report({"warnings": warnings}, folder / "study.json", printing)
    if console is not None:
        for table in reported.tables:
            # "measure:score" is parted there, not within a word.
            columns = [name.replace(":", ": ") for name in table.columns]
            print_rows(console, columns, table.rows)
            console.print()
        say_wrapped(console, reported.lines)
        name = folder / "report.html"
        say(console, f"wrote {name}, summary.csv, study.json and tables beside it")
    return failed
