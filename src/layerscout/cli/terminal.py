"""What a verb prints when it is done: a report for people, or its JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from layerscout.cli.console import (
    EscapingConsole,
    print_curves,
    print_map,
    print_rows,
    print_table,
    say,
    say_wrapped,
    warn,
)
from layerscout.runtime import cache_folder, count_unfinished, list_cache

if TYPE_CHECKING:
    from layerscout.analysis import Comparison, Evaluation
    from layerscout.scanning import Planning, Scan
    from layerscout.studies import Reported
    from layerscout.tuning import Result


@contextmanager
def loading(quiet: bool) -> Iterator[None]:
    """Show a spinner while libraries, data and model load."""
    console = EscapingConsole(stderr=True, quiet=quiet)
    if not console.is_terminal:
        yield
        return
    with console.status("loading the data and the model"):
        yield


def say_command(command: str) -> None:
    """Show a command as if it had been typed."""
    console = EscapingConsole()
    console.print()
    say(console, f"$ {command}", "bold")


def open_report(
    content: Mapping[str, Any], path: Path, *, as_json: bool, quiet: bool
) -> Console | None:
    """Print warnings, and the JSON file if asked; give a console unless there is no more to say."""
    warn(content.get("warnings", ()))
    if as_json:
        print(path.read_text(encoding="utf-8"), end="", flush=True)
    return None if as_json or quiet else EscapingConsole()


def _close_report(
    console: Console, content: Mapping[str, Any], written: Sequence[Path | None]
) -> None:
    """Say how long it took and what was written."""
    files = ", ".join(str(path) for path in written if path is not None)
    say(console, f"{sum(content['seconds'].values()):.1f} s; wrote {files}")


def say_next(console: Console, command: str | None) -> None:
    """Print what to type next, the last line of a verb, if anything follows."""
    if command is not None:
        say(console, f"next: {command}")


def _say_heading(console: Console, content: Mapping[str, Any]) -> None:
    model, task = content["model"], content["task"]
    say(console, f"{model['name']} ({model['blocks']} blocks) on {task['name']}")


def report_scan(
    result: Scan, folder: Path, plot: Path | None, *, as_json: bool, quiet: bool
) -> None:
    """Print a scan for a person, or its JSON for a program."""
    from layerscout.pages import write_advice

    content = result.as_dict()
    console = open_report(content, folder / "scan.json", as_json=as_json, quiet=quiet)
    if console is not None:
        show_scan(console, content)
        _close_report(console, content, [folder / "scan.json", folder / "scan.html", plot])
        say_next(console, write_advice(content))


def show_scan(console: Console, scan: Mapping[str, Any]) -> None:
    """Print the content of `scan.json`: curves, a row per score, and what follows from them."""
    from layerscout import pages

    task, scores = scan["task"], scan["scores"]
    _say_heading(console, scan)
    say(console, f"{pages.count_read(task)}, {pages.count_labels(task)}")
    drawn = pages.list_scores(scan, "states")
    if len(scores) > 2 or drawn != list(scores) or any(scores[key].get("low") for key in drawn):
        drawn = [pages.choose_leading(scan) or next(iter(scores))]
    print_curves(console, scan, drawn)
    if list(scores) != drawn:
        console.print()
        print_table(console, pages.tabulate_scores_briefly(scan))
        say(console, "↑ higher is better, ↓ lower is better; in every curve, up is better")
    if scan.get("stability"):
        console.print()
        print_table(console, pages.tabulate_stability(scan["stability"]))
    console.print()
    say_wrapped(console, pages.describe_scan(scan, drawn, "(≈)"))
    say_wrapped(console, pages.describe_refusals(scan))
    say_wrapped(console, pages.describe_advice(scan))


def report_planning(result: Planning, folder: Path, *, as_json: bool, quiet: bool) -> None:
    """Print the strategies, the plan chosen and what to type next, or the JSON for a program."""
    from layerscout import pages

    content = result.as_dict()
    console = open_report(content, folder / "plan.json", as_json=as_json, quiet=quiet)
    if console is None:
        return
    _say_heading(console, content)
    for line in pages.describe_work(content):
        say(console, line)
    print_table(console, pages.tabulate_plans(content, vars(result.full)))
    shown = result.basis.shown
    for line in pages.explain_plans(None if shown is None else shown[0]):
        say(console, line)
    say(console, f"plan {content['plan']['notation']}: {content['reason']}", "bold green")
    for line in pages.describe_untying(content):
        say(console, line)
    say(console, f"wrote {folder / 'plan.json'}")
    say_next(console, pages.write_next_command(content, result.scan))


def report_tuning(result: Result, folder: Path, *, as_json: bool, quiet: bool) -> None:
    """Print what tuning gave, or its JSON for a program."""
    from layerscout import pages
    from layerscout.tuning import summary

    content = result.content
    console = open_report(content, folder / "result.json", as_json=as_json, quiet=quiet)
    if console is None:
        return
    _say_heading(console, content)
    for line in pages.describe_training(content):
        say(console, line)
    if len(content["runs"]) > 1:
        print_table(console, pages.tabulate_runs(content))
    print_table(console, pages.tabulate_epochs(content))
    _print_by_name(console, content)
    say(console, summary(content), "bold green")
    seconds = content["seconds"]
    say(console, f"speed: {pages.describe_speed(content)}")
    say(console, f"page: {pages.write_report_command(str(folder))}")
    again = " (found in the cache)" if content["trunk"]["cached"] else ""
    say(
        console,
        f"trunk {seconds['trunk']:.1f} s{again}, training {seconds['train']:.1f} s, validation "
        f"{seconds['evaluate']:.1f} s; wrote {folder / 'model'}, {folder / 'result.json'}, "
        f"{folder / 'predictions.parquet'}, {folder / 'run.yaml'}",
    )


def report_after_tuning(result: Result, folder: Path, *, as_json: bool, quiet: bool) -> None:
    """Print what comes after a tuning, once its model is also in other formats and on the hub."""
    if not (as_json or quiet):
        from layerscout.pages import suggest_step, write_report_command

        step = suggest_step(result.content, str(folder))
        command = write_report_command(str(folder)) if step is None else step[1]
        say_next(EscapingConsole(), command)


def report_comparison(
    result: Comparison, folder: Path, plot: Path | None, *, as_json: bool, quiet: bool
) -> None:
    """Print a comparison for a person, or its JSON for a program."""
    from layerscout import pages

    content = result.as_dict()
    console = open_report(content, folder / "compare.json", as_json=as_json, quiet=quiet)
    if console is None:
        return
    say(console, f"{pages.count_compared(content)} of {content['task']['name']}")
    key = pages.choose_estimate(content)
    estimate = pages.name_estimate(key)
    for name, one in zip(pages.name_maps(content), content["maps"], strict=True):
        console.print()
        say(console, f"{name}: {estimate}", "bold")
        print_map(console, one, key)
    console.print()
    say_wrapped(console, pages.describe_clusters(content))
    _close_report(console, content, [folder / "compare.json", folder / "compare.html", plot])
    _say_step(console, content, folder)


def report_evaluation(
    result: Evaluation, folder: Path, plot: Path | None, *, as_json: bool, quiet: bool
) -> None:
    """Print an evaluation for a person, or its JSON for a program."""
    from layerscout import pages

    content = result.as_dict()
    console = open_report(content, folder / "evaluate.json", as_json=as_json, quiet=quiet)
    if console is None:
        return
    _say_heading(console, content)
    say(console, f"validation: {pages.count_examples(content['task'])}")
    if content["truncation"]:
        console.print()
        print_table(console, pages.tabulate_truncation(content))
    if content["edits"]:
        console.print()
        print_table(console, pages.tabulate_edits(content))
    _print_by_name(console, content)
    console.print()
    say_wrapped(console, pages.describe_evaluation(content))
    names = ("evaluate.json", "evaluate.html", "predictions.parquet")
    _close_report(console, content, [*(folder / name for name in names), plot])
    _say_step(console, content, folder)


def _say_step(console: Console, content: Mapping[str, Any], folder: Path) -> None:
    """Print the command that comes next, if there is one."""
    from layerscout.pages import suggest_step

    step = suggest_step(content, str(folder))
    say_next(console, None if step is None else step[1])


def _print_by_name(console: Console, content: Mapping[str, Any]) -> None:
    """Print how well a model does on every label by itself, if its answers are labels."""
    from layerscout.pages import tabulate_by_name

    if (table := tabulate_by_name(content)) is not None:
        console.print()
        print_table(console, table)


def report_truncation(folder: Path, warnings: Sequence[str], *, quiet: bool) -> None:
    """Say where the shorter checkpoint is, and what to know about it."""
    warn(warnings)
    if not quiet:
        say(EscapingConsole(), f"wrote {folder}")


def report_formats(folder: Path, formats: Sequence[str], *, quiet: bool) -> None:
    """Say which formats a checkpoint has besides its own; on standard error, as --json asks."""
    if formats and not quiet:
        say(EscapingConsole(stderr=True), f"added to {folder}: {', '.join(formats)}")


def report_push(address: str, *, quiet: bool) -> None:
    """Say where on the hub a model is now; on standard error, as --json asks."""
    if not quiet:
        say(EscapingConsole(stderr=True), f"pushed to {address}")


def report_report(found: Reported) -> None:
    """Print what a report concludes, and where it is."""
    console = EscapingConsole()
    say_wrapped(console, found.lines)
    say(console, f"wrote {', '.join(map(str, found.written))}")
    say_next(console, found.command)


def report_cache(*, as_json: bool) -> None:
    """List what the cache holds."""
    entries = list_cache()
    if as_json:
        listed = [
            {"path": str(e.path), "bytes": e.bytes, "used": e.used, **e.about} for e in entries
        ]
        print(json.dumps(listed, indent=1), flush=True)
        return
    console = EscapingConsole()
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
