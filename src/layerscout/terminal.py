"""What a person reads in the terminal: reports as tables, and a spinner while things load."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from layerscout.files import cache_entries, cache_folder

if TYPE_CHECKING:
    from layerscout.results import Result
    from layerscout.scanning import Planning, Scan
    from layerscout.scores import Score

BAR = 32  # characters of the longest bar in a table of scores


@contextmanager
def loading(quiet: bool) -> Iterator[None]:
    """Show a spinner while libraries, data and model load."""
    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        yield
        return
    with console.status("loading the data and the model"):
        yield


def say_command(command: str) -> None:
    """Show a command as if it had been typed."""
    _say(Console(highlight=False), f"\n$ {command}", "bold")


def report_scan(
    result: Scan, folder: Path, plot: Path | None, *, as_json: bool, quiet: bool
) -> None:
    """Print a scan for a person, or its JSON for a program; warnings always reach the person."""
    _warn(result.warnings)
    if as_json:
        print((folder / "scan.json").read_text(encoding="utf-8"), end="", flush=True)
        return
    if quiet:
        return
    task, model = result.task, result.model
    console = Console(highlight=False)
    _say(console, f"{model['name']} ({model['blocks']} blocks) on {task['name']}")
    used, available = task["examples_used"], task["examples_available"]
    _say(console, f"{used:,} of {available:,} examples, {len(task['labels'])} classes")
    console.print(_scores(result, unicode=_unicode(console)))
    for key, score in result.scores.items():
        _say(console, _verdict(key, score))
    written = [folder / "scan.json", folder / "scan.html", *([plot] if plot else [])]
    _say(console, f"{sum(result.seconds.values()):.1f} s; wrote {', '.join(map(str, written))}")


def report_planning(result: Planning, folder: Path, *, as_json: bool, quiet: bool) -> None:
    """Print the strategies, the plan chosen and what to type next, or the JSON for a program."""
    if as_json:
        print((folder / "plan.json").read_text(encoding="utf-8"), end="", flush=True)
    if as_json or quiet:
        return
    scan, work, choice = result.scan, result.work, result.choice
    console = Console(highlight=False)
    mark = "◆" if _unicode(console) else "*"
    _say(console, f"{scan.model['name']} ({scan.model['blocks']} blocks) on {scan.task['name']}")
    _say(
        console,
        f"training on {work.examples:,} examples of {work.tokens:.0f} tokens for {work.epochs} "
        f"epochs, scoring {work.validation:,} after each",
    )
    console.print(_options(result, mark))
    _say(console, "train, infer: FLOPs, as a share of full fine-tuning's")
    _say(console, f"score: {result.score} @ the state that the plan is built on")
    _say(console, f"{mark} what auto takes when the budget is just that plan's cost")
    _say(console, f"plan {choice.plan.notation}: {choice.reason}", "bold green")
    if result.untie:
        _say(console, "this plan parts blocks that share weights; --untie copies those first")
    _say(console, f"next: {_next_command(result)}")
    _say(console, f"wrote {folder / 'plan.json'}")


def report_tuning(result: Result, folder: Path, *, as_json: bool, quiet: bool) -> None:
    """Print what tuning gave, or its JSON for a program; warnings always reach the person."""
    from layerscout.results import summary

    content = result.content
    _warn(content["warnings"])
    if as_json:
        print((folder / "result.json").read_text(encoding="utf-8"), end="", flush=True)
    if as_json or quiet:
        return
    console = Console(highlight=False)
    task, model = content["task"], content["model"]
    _say(console, f"{model['name']} ({model['blocks']} blocks) on {task['name']}")
    _say(console, _what_was_done(content))
    mark = "◀ kept" if _unicode(console) else "< kept"
    if len(content["runs"]) > 1:
        console.print(_runs(content, mark))
    console.print(_curve(content, mark))
    speed, seconds = content["examples_per_second"], content["seconds"]
    _say(console, summary(content), "bold green")
    _say(
        console,
        f"the model takes {speed['kept_model']:,.0f} examples/s, the full one "
        f"{speed['full_model']:,.0f}",
    )
    again = " (found in the cache)" if content["trunk"]["cached"] else ""
    _say(
        console,
        f"trunk {seconds['trunk']:.1f} s{again}, training {seconds['train']:.1f} s, validation "
        f"{seconds['evaluate']:.1f} s; wrote {folder / 'model'}, {folder / 'result.json'}, "
        f"{folder / 'predictions.parquet'}",
    )


def report_truncation(folder: Path, warnings: Sequence[str], *, quiet: bool) -> None:
    """Say where the shorter checkpoint is, and what to know about it."""
    _warn(warnings)
    if not quiet:
        _say(Console(highlight=False), f"wrote {folder}")


def report_cache(*, as_json: bool) -> None:
    """List what the cache holds."""
    entries = cache_entries()
    if as_json:
        listed = [
            {"path": str(e.path), "bytes": e.bytes, "used": e.used, **e.about} for e in entries
        ]
        print(json.dumps(listed, indent=1), flush=True)
        return
    console = Console(highlight=False)
    table = Table("used", box=None, header_style="bold", pad_edge=False)
    for heading in ("MB", "states"):
        table.add_column(heading, justify="right")
    table.add_column("of")
    for entry in entries:
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        about = entry.about
        table.add_row(
            used,
            f"{entry.bytes / 1e6:,.1f}",
            str(about.get("cut", "?")),
            Text(str(about.get("model", "?"))),
        )
    if entries:
        console.print(table)
    total = sum(entry.bytes for entry in entries) / 1e6
    _say(console, f"{len(entries)} entries, {total:,.1f} MB, in {cache_folder()}")


def _warn(warnings: Iterable[str]) -> None:
    errors = Console(stderr=True, highlight=False)
    for warning in warnings:
        _say(errors, f"warning: {warning}", "yellow")


def _what_was_done(content: Mapping[str, Any]) -> str:
    plan, parameters = content["plan"], content["parameters"]
    share = parameters["trainable"] / content["model"]["parameters"]["total"]
    line = f"plan {plan['notation']}: {plan['reason']}\n"
    line += f"{parameters['trainable']:,} parameters trained ({share:.1%})"
    cut = content["trunk"]["cut"]
    if cut and content["trunk"]["kept"]:
        line += f"; blocks 1 to {cut} ran once"
    removed = content["model"]["blocks"] - plan["head"]
    return line + (f"; {removed} blocks above the head removed" if removed else "")


def _runs(content: Mapping[str, Any], mark: str) -> Table:
    """Draw a row for each run of a grid."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("learning rate", "seed", "best", "epoch", "last"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for number, run in enumerate(content["runs"]):
        kept = number == content["kept"]
        ends = [
            f"{run['best']['value']:.4f}",
            str(run["best"]["epoch"]),
            f"{run['last']['value']:.4f}",
        ]
        table.add_row(
            f"{run['learning_rate']:g}",
            str(run["seed"]),
            *(ends if run["curve"] else ["-", "-", "-"]),
            mark if kept else "diverged" if run["diverged"] else "",
            style="bold green" if kept else "",
        )
    return table


def _curve(content: Mapping[str, Any], mark: str) -> Table:
    """Draw the epochs of the kept run."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    metric = content["metric"].replace("_", " ")
    for heading in ("epoch", "training loss", "validation loss", metric):
        table.add_column(heading, justify="right")
    table.add_column("")
    kept = content[content["keep"]]["epoch"]
    for epoch in content["runs"][content["kept"]]["curve"]:
        table.add_row(
            str(epoch["epoch"]),
            f"{epoch['training_loss']:.4f}",
            f"{epoch['loss']:.4f}",
            f"{epoch['value']:.4f}",
            mark if epoch["epoch"] == kept else "",
            style="bold green" if epoch["epoch"] == kept else "",
        )
    return table


def _say(console: Console, line: str, style: str = "") -> None:
    # Names come from the data: no markup, and no breaks inside a path.
    console.print(Text(line, style=style), soft_wrap=True)


def _unicode(console: Console) -> bool:
    return console.encoding.startswith("utf")


def _scores(result: Scan, unicode: bool) -> Table:
    """Draw the curve of every score, a row per state, with the best marked."""
    table = Table("state", box=None, header_style="bold", pad_edge=False)
    table.columns[0].justify = "right"
    block, arrow, gap = ("█", "◀", "–") if unicode else ("#", "<", "-")
    width = max(8, BAR // len(result.scores))
    for key in result.scores:
        table.add_column(key, justify="right")
        table.add_column("", min_width=width)
    for state in range(result.model["blocks"] + 1):
        cells: list[Any] = [str(state)]
        for score in result.scores.values():
            value, best = score.values[state], score.best()
            style = "bold green" if state == best else ""
            mark = f" {arrow} best" if state == best else ""
            top = max((v for v in score.values if v is not None), default=0.0)
            bar = "" if not value or value < 0 else block * max(1, round(width * value / top))
            cells += [Text(gap if value is None else f"{value:.4g}", style=style)]
            cells += [Text(bar + mark, style=style or "blue")]
        table.add_row(*cells)
    return table


def _verdict(key: str, score: Score) -> str:
    best = score.best()
    if best is None:
        return f"{key}: undefined at every state, so there is no best one"
    top = len(score.values) - 1
    value, last = score.values[best], score.values[top]
    if best == top:
        return f"{key}: the top state, {top}, is the best ({value:.4g}; {score.better} is better)"
    return (
        f"{key}: state {best} of {top} is the best "
        f"({value:.4g}, top state {'undefined' if last is None else f'{last:.4g}'}; "
        f"{score.better} is better)"
    )


def _options(result: Planning, mark: str) -> Table:
    """List the strategies, narrow enough for 80 columns; shares are of full fine-tuning."""
    table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column("strategy")
    table.add_column("plan")
    for heading in ("trained", "", "train", "cheaper", "infer", "score"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    full = next(option.cost for option in result.options if option.relative == 1)
    values = result.scan.scores[result.score].values
    for option in result.options:
        style = "bold green" if option.plan == result.choice.plan else ""
        value = values[option.state]
        table.add_row(
            Text(option.strategy),
            option.plan.notation,
            _count(option.cost.trainable),
            f"{option.cost.trainable / full.total:.0%}",
            f"{option.relative:.1%}",
            f"{1 / option.relative:.1f}x",
            f"{option.cost.inference / full.inference:.0%}",
            f"{'-' if value is None else f'{value:.3g}'} @{option.state:>2}",
            mark if option.efficient else "",
            style=style,
        )
    return table


def _count(parameters: int) -> str:
    millions = parameters / 1e6
    return f"{millions:.1f}M" if millions >= 1 else f"{1000 * millions:.0f}k"


def _next_command(result: Planning) -> str:
    from layerscout.figures import command

    more = ["--epochs", str(result.work.epochs)] if result.work.epochs != 5 else []
    more += ["--plan", result.choice.plan.notation, *(["--untie"] if result.untie else [])]
    return command("tune", result.scan.as_dict(), *more)
