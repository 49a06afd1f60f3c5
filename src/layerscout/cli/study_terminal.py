"""What `layerscout study` prints: recipes, what a study will take, its trials and its tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layerscout.cli.console import (
    EscapingConsole,
    open_report,
    print_rows,
    say,
    say_next,
    say_wrapped,
)

if TYPE_CHECKING:
    from layerscout.cli.groups import Printing
    from layerscout.studies import Estimate, Recipe, Reported, Study, Trial

# The axes that tell the rows of an estimate apart, and their headings.
AXES = {
    "model": "model",
    "task": "task",
    "plan": "plan",
    "resolved": "blocks, head",
    "method": "method",
    "edits": "edits",
}


def report_recipes(recipes: Sequence[tuple[str, Recipe]], *, as_json: bool) -> None:
    """List recipes with what they reproduce."""
    if as_json:
        listed = [
            {"name": n, "title": r.title, "source": r.source, "shows": r.shows, "cost": r.cost}
            for n, r in recipes
        ]
        print(json.dumps(listed, indent=1, ensure_ascii=False))
        return
    console = EscapingConsole()
    rows = [row for name, recipe in recipes for row in ([name, recipe.title], ["", recipe.credits])]
    print_rows(console, ["recipe", "what"], rows, words=(1,))
    console.print()
    say(console, "layerscout study RECIPE --small runs one on a laptop.")


def report_estimate(estimate: Estimate, *, as_json: bool) -> None:
    """Print what a study would run, and how much compute that takes."""
    if as_json:
        print(json.dumps(_estimate_as_dict(estimate), indent=1))
        return
    console = EscapingConsole()
    keys = list(estimate.trials)
    whole, rest = estimate.flops(keys), estimate.flops(_list_waiting(estimate))
    columns, rows = _tabulate_estimate(estimate)
    print_rows(console, columns, rows, words=range(len(columns) - 4))
    again = sum(one.uncached for one in estimate.trials.values())
    console.print()
    say(
        console,
        f"{len(keys):,} trials, {len(estimate.done):,} of them done; {whole:.3g} FLOPs, "
        f"{whole / (again or 1):.0%} of the cost without shared trunks. About "
        f"{_format_time(rest / estimate.speed)} left at {estimate.speed / 1e9:,.0f} GFLOP/s "
        f"({estimate.reason}).",
    )
    if estimate.assumed:
        say(
            console,
            f"Not available here, so published sizes are assumed: {', '.join(estimate.assumed)}.",
        )
    for why, number in Counter(str(c.refused) for c in estimate.cells if c.trial is None).items():
        say(console, f"{number} cannot be run: {why}")


def _list_waiting(estimate: Estimate) -> list[str]:
    return [key for key in estimate.trials if key not in estimate.done]


def _estimate_as_dict(estimate: Estimate) -> dict[str, Any]:
    trials = []
    for cell in estimate.cells:
        content: dict[str, Any] = {
            "grid": cell.grid,
            "values": dict(cell.values),
            "refused": cell.refused,
        }
        if cell.trial is not None:
            key = cell.trial.key
            content |= {
                "trial": key,
                "flops": estimate.trials[key].flops,
                "done": key in estimate.done,
            }
        trials.append(content)
    rest = estimate.flops(_list_waiting(estimate))
    return {
        "trials": trials,
        "flops": estimate.flops(list(estimate.trials)),
        "flops_left": rest,
        "flops_uncached": sum(one.uncached for one in estimate.trials.values()),
        "flops_per_second": estimate.speed,
        "seconds_left": rest / estimate.speed,
        "assumed": list(estimate.assumed),
    }


def _tabulate_estimate(estimate: Estimate) -> tuple[list[str], list[list[str]]]:
    """Return headings and a row for each group of trials; axes without a value are left out."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for cell in estimate.cells:
        if cell.trial is not None:
            name = (cell.grid, *(str(cell.values.get(axis, "")) for axis in AXES))
            groups.setdefault(name, []).append(cell.trial.key)
    grouped = {key for some in groups.values() for key in some}
    if others := [key for key in estimate.trials if key not in grouped]:
        groups["scans", "", "", "that plans need", "", "", ""] = others
    shown = [0, *(n for n in range(1, len(AXES) + 1) if any(name[n] for name in groups))]
    rows = []
    for name, some in groups.items():
        unique = list(dict.fromkeys(some))
        flops, done = estimate.flops(unique), sum(key in estimate.done for key in unique)
        counted = [f"{len(unique):,}", f"{done:,}", f"{flops / 1e12:,.1f}"]
        rows.append([*(name[n] for n in shown), *counted, _format_time(flops / estimate.speed)])
    headings = ["grid", *AXES.values()]
    return [*(headings[n] for n in shown), "trials", "done", "TFLOPs", "time"], rows


def _format_time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:,.0f} days"


def print_trial(trial: Trial, record: Mapping[str, Any], before: bool) -> None:
    """Print a line for a trial that ended, where no bar shows it."""
    console = EscapingConsole(stderr=True)
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


def report_study(result: Study, reported: Reported, printing: Printing) -> int:
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
            print_rows(console, table.columns, table.rows)
            console.print()
        say_wrapped(console, reported.lines)
        name = folder / "report.html"
        say(console, f"wrote {name}, summary.csv, study.json and tables beside it")
        say_next(console, reported.command)
    return failed
