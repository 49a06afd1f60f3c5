"""What a person reads in the terminal: reports as tables, and a spinner while things load."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from layerscout.plans import METHODS, Full, LoRA, Method, described
from layerscout.runtime import cache_folder, count_unfinished, escape_controls, list_cache

if TYPE_CHECKING:
    from layerscout.analysis import Comparison, Evaluation
    from layerscout.scanning import Planning, Scan
    from layerscout.studies import Estimate, Recipe, Study, Trial
    from layerscout.tuning import Result

# Characters of the longest bar, and of a curve in one line, so that every table fits in 80.
BAR = 32
CURVE = 16


class _Console(Console):
    """Writes control characters as escapes: names and labels come from files."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render it as rich does, but for control characters in what is not rich's own."""
        for segment in super().render(renderable, options):
            if not segment.control:
                lines = segment.text.split("\n")  # which rich put there
                segment = segment._replace(text="\n".join(map(escape_controls, lines)))
            yield segment


@contextmanager
def loading(quiet: bool) -> Iterator[None]:
    """Show a spinner while libraries, data and model load."""
    console = _Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        yield
        return
    with console.status("loading the data and the model"):
        yield


def say_command(command: str) -> None:
    """Show a command as if it had been typed."""
    console = _Console()
    console.print()
    _say(console, f"$ {command}", "bold")


def report_scan(
    result: Scan, folder: Path, plot: Path | None, *, as_json: bool, quiet: bool
) -> None:
    """Print a scan for a person, or its JSON for a program; warnings always reach the person."""
    _warn(result.warnings)
    if _told_otherwise(folder / "scan.json", as_json, quiet):
        return
    console = _Console()
    show_scan(console, result.as_dict())
    written = [folder / "scan.json", folder / "scan.html", *([plot] if plot else [])]
    _say(console, f"{sum(result.seconds.values()):.1f} s; wrote {', '.join(map(str, written))}")


def show_scan(console: Console, scan: Mapping[str, Any]) -> None:
    """Print the content of `scan.json`: curves, a row per score, and what follows from them."""
    from layerscout.pages import leading, of_kind

    signs = UNICODE if _unicode(console) else ASCII
    task, model, scores = scan["task"], scan["model"], scan["scores"]
    _say_heading(console, model, task)
    labels = (
        "numbers as labels" if task["kind"] == "regression" else f"{len(task['labels'])} classes"
    )
    used, available = task["examples_used"], task["examples_available"]
    _say(console, f"{used:,} of {available:,} examples, {labels}")
    drawn = of_kind(scan, "states")
    if len(scores) > 2 or drawn != list(scores) or any(scores[key].get("low") for key in drawn):
        drawn = [leading(scan) or next(iter(scores))]
    console.print(_curves(scan, drawn, signs))
    if list(scores) != drawn:
        console.print()
        console.print(_summary(scan, signs))
        _say(console, f"{signs.up} higher is better, {signs.down} lower; in a curve up is better")
    if scan.get("stability"):
        console.print()
        console.print(_stability(scan["stability"], signs))
    console.print()
    for line in _verdicts(scan, drawn, signs):
        _say_wrapped(console, line)


def report_planning(result: Planning, folder: Path, *, as_json: bool, quiet: bool) -> None:
    """Print the strategies, the plan chosen and what to type next, or the JSON for a program."""
    if _told_otherwise(folder / "plan.json", as_json, quiet):
        return
    scan, work, choice = result.scan, result.work, result.choice
    console = _Console()
    mark = "◆" if _unicode(console) else "*"
    _say_heading(console, scan.model, scan.task)
    if given := _options_of(result.method):
        told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in given.items())
        _say(console, f"method {result.method.name}: {told}")
    _say(
        console,
        f"training on {work.examples:,} examples of {work.tokens:.0f} tokens for {work.epochs} "
        f"epochs, scoring {work.validation:,} after each",
    )
    console.print(_options(result, mark))
    _say(console, "train, infer: FLOPs, as a share of full fine-tuning's")
    if result.listed is not None:
        _say(console, f"score: {result.listed[0]} @ the state that the plan is built on")
    _say(console, f"{mark} what auto takes when the budget is just that plan's cost")
    _say(console, f"plan {choice.plan.notation}: {choice.reason}", "bold green")
    if result.untie:
        parting = "plan" if isinstance(result.method, Full | LoRA) else "method"
        _say(console, f"this {parting} parts blocks that share weights; --untie copies those first")
    _say(console, f"next: {_next_command(result)}")
    _say(console, f"wrote {folder / 'plan.json'}")


def report_tuning(result: Result, folder: Path, *, as_json: bool, quiet: bool) -> None:
    """Print what tuning gave, or its JSON for a program; warnings always reach the person."""
    from layerscout.tuning import summary

    content = result.content
    _warn(content["warnings"])
    if _told_otherwise(folder / "result.json", as_json, quiet):
        return
    console = _Console()
    task, model = content["task"], content["model"]
    _say_heading(console, model, task)
    plan = content["plan"]
    _say(console, f"plan {plan['notation']}: {plan['reason']}")
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


def report_comparison(
    result: Comparison, folder: Path, plot: Path | None, *, as_json: bool, quiet: bool
) -> None:
    """Print a comparison for a person, or its JSON for a program; warnings reach the person."""
    from layerscout.pages import map_names, split_lines

    _warn(result.warnings)
    if _told_otherwise(folder / "compare.json", as_json, quiet):
        return
    console, content = _Console(), result.as_dict()
    names = map_names(content)
    _say(console, f"{result.examples:,} examples of {result.task['name']}")
    for name, one in zip(names, result.maps, strict=True):
        console.print()
        _say(console, f"CKA, {name}", "bold")
        _draw(console, one)
    console.print()
    for line in split_lines(content):
        _say_wrapped(console, line)
    written = [folder / "compare.json", folder / "compare.html", *([plot] if plot else [])]
    _say(console, f"{sum(result.seconds.values()):.1f} s; wrote {', '.join(map(str, written))}")


def report_evaluation(
    result: Evaluation, folder: Path, plot: Path | None, *, as_json: bool, quiet: bool
) -> None:
    """Print an evaluation for a person, or its JSON for a program; warnings reach the person."""
    from layerscout.pages import evaluation_lines

    _warn(result.warnings)
    if _told_otherwise(folder / "evaluate.json", as_json, quiet):
        return
    console, content = _Console(), result.as_dict()
    task, model = content["task"], content["model"]
    _say_heading(console, model, task)
    _say(console, f"{task['examples_used']:,} validation examples")
    if content["truncation"]:
        console.print()
        console.print(_truncation(content))
    if content["edits"]:
        console.print()
        console.print(_edits(content))
    console.print()
    for line in evaluation_lines(content):
        _say_wrapped(console, line)
    names = ("evaluate.json", "evaluate.html", "predictions.parquet")
    written = [*(folder / name for name in names), *([plot] if plot else [])]
    seconds = sum(content["seconds"].values())
    _say(console, f"{seconds:.1f} s; wrote {', '.join(map(str, written))}")


def _truncation(content: Mapping[str, Any]) -> Table:
    """Lay out the metric of the model cut at every state, from the top one down."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    metric = content["metric"].replace("_", " ")
    heads = {"untuned": "head as tuned", "tuned": "tuned there", "tuned_original": "untuned model"}
    curves = {heads[key]: values for key, values in content["truncation"].items()}
    table.add_column("state", justify="right")
    for name in curves:
        table.add_column(f"{metric}, {name}" if name == "head as tuned" else name, justify="right")
    for state, values in reversed(list(enumerate(zip_longest(*curves.values())))):
        table.add_row(str(state), *("–" if v is None else f"{v:.3f}" for v in values))
    return table


def _edits(content: Mapping[str, Any]) -> Table:
    """Lay out the metrics under each edit."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("edit")
    for name in content["metrics"]:
        table.add_column(name.replace("_", " "), justify="right")
    whole = {"edit": "the whole model", "metrics": content["metrics"]}
    for one in [whole, *content["edits"]]:
        values = one["metrics"].values()
        table.add_row(Text(one["edit"]), *("–" if v is None else f"{v:.3f}" for v in values))
    return table


def _draw(console: Console, one: Mapping[str, Any]) -> None:
    """Draw a map in shades, its states counted from the lower left, if it is not too wide."""
    shades, none = (" ░▒▓█", "·") if _unicode(console) else (" .:#@", "-")
    if 2 * len(one["columns"]) + 6 > console.width:
        _say(console, "too wide for this terminal; the page has it")
        return
    for state, line in reversed(list(zip(one["rows"], one["cka"], strict=True))):
        cells = (2 * (none if v is None else shades[min(4, int(5 * max(v, 0)))]) for v in line)
        _say(console, f"{state:>3} {''.join(cells)}")
    marks = "".join(f"{column:<4}" for column in one["columns"][::2])
    _say(console, f"    {marks.rstrip()}")
    listed = (f"{shade} {at / 5}" for at, shade in enumerate(shades[1:], start=1))
    _say(console, f"    from: {', '.join(listed)}; {none} undefined", "dim")


def report_recipes(recipes: Sequence[tuple[str, Recipe]], *, as_json: bool) -> None:
    """List recipes with what they reproduce."""
    if as_json:
        told = [
            {"name": n, "title": r.title, "source": r.source, "cost": r.cost} for n, r in recipes
        ]
        print(json.dumps(told, indent=1, ensure_ascii=False))
        return
    table = Table("recipe", "what", box=None, pad_edge=False, header_style="bold")
    for name, recipe in recipes:
        table.add_row(Text(name, no_wrap=True), Text(f"{recipe.title}\n{recipe.source}"))
    _Console().print(table)
    _Console().print("\nlayerscout study RECIPE --small runs one on a laptop.")


def report_estimate(found: Estimate, *, as_json: bool) -> None:
    """Print what a study would run, and what that takes."""
    keys = list(found.prices)
    left = [key for key in keys if key not in found.done]
    whole, rest = found.flops(keys), found.flops(left)
    if as_json:
        content = {
            "trials": [
                {"grid": c.grid, "values": dict(c.values), "refused": c.refused}
                | (
                    {}
                    if c.trial is None
                    else {
                        "trial": c.trial.key,
                        "flops": found.prices[c.trial.key].flops,
                        "done": c.trial.key in found.done,
                    }
                )
                for c in found.cells
            ],
            "flops": whole,
            "flops_left": rest,
            "flops_uncached": sum(one.again for one in found.prices.values()),
            "flops_per_second": found.speed,
            "seconds_left": rest / found.speed,
            "assumed": list(found.assumed),
        }
        print(json.dumps(content, indent=1))
        return
    console = _Console()
    groups: dict[tuple[str, ...], list[str]] = {}
    refused: dict[str, int] = {}
    for cell in found.cells:
        if cell.trial is None:
            refused[str(cell.refused)] = refused.get(str(cell.refused), 0) + 1
            continue
        axes = ("model", "task", "plan", "resolved", "method", "edits")
        name = (cell.grid, *(str(cell.values.get(axis, "")) for axis in axes))
        groups.setdefault(name, []).append(cell.trial.key)
    others = [key for key in keys if not any(key in some for some in groups.values())]
    if others:
        groups[("scans", "", "", "that plans go by", "", "", "")] = others
    shown = [0, *(n for n in range(1, 7) if any(name[n] for name in groups))]
    titles = ("grid", "model", "task", "plan", "blocks, head", "method", "edits")
    table = Table(*(titles[n] for n in shown), box=None, pad_edge=False, header_style="bold")
    for title in ("trials", "done", "TFLOPs", "time"):
        table.add_column(title, justify="right")
    for name, some in groups.items():
        unique = list(dict.fromkeys(some))
        flops = found.flops(unique)
        ready = sum(key in found.done for key in unique)
        told = [
            f"{len(unique):,}",
            f"{ready:,}",
            f"{flops / 1e12:,.1f}",
            _time(flops / found.speed),
        ]
        table.add_row(*(Text(name[n]) for n in shown), *told)
    console.print(table)
    again = sum(one.again for one in found.prices.values())
    console.print()
    _say(
        console,
        f"{len(keys):,} trials, {len(found.done):,} of them done; {whole:.3g} FLOPs, "
        f"{whole / (again or 1):.0%} of what they take without the shared trunks. About "
        f"{_time(rest / found.speed)} left at {found.speed / 1e9:,.0f} GFLOP/s ({found.because}).",
    )
    if found.assumed:
        _say(console, f"Not at hand, so known sizes were taken: {', '.join(found.assumed)}.")
    for why, number in refused.items():
        _say(console, f"{number} cannot be run: {why}")


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:,.0f} days"


def trial_line(trial: Trial, record: Mapping[str, Any], before: bool) -> None:
    """Print a line for a trial that ended, where no bar shows it."""
    console = _Console(stderr=True)
    if before or (console.is_terminal and record["status"] == "done"):
        return
    result, given = record["result"] or {}, trial.arguments
    named = (
        trial.task if isinstance(trial.task, str) else trial.task.get("name") or trial.task["data"]
    )
    words = [trial.verb, str(named)]
    if trial.verb == "tune":
        words += [given["plan"]["notation"], str(given.get("edits", ""))]
        words += [f"rate {given['learning_rate']:g}", f"seed {given['seed']}"]
        if result:
            words.append(
                f"{result['metric'].replace('_', ' ')} {result[result['keep']]['value']:.3f}"
            )
    line = f"{' '.join(word for word in words if word)} ({record['seconds']:.1f} s)"
    if record["status"] == "failed":
        _say(console, f"failed: {line}: {record['error']}", "yellow")
    else:
        _say(console, line)


def report_study(result: Study, *, as_json: bool, quiet: bool) -> int:
    """Print the tables of a study, or what `study.json` holds; give how many trials failed."""
    folder = result.store.folder
    keys = {cell.trial.key for cell in result.cells if cell.trial is not None}
    records = (result.store.read(key) for key in keys)
    failed = sum(1 for record in records if record and record["status"] == "failed")
    refused = Counter(cell.refused for cell in result.cells if cell.refused is not None)
    _warn(f"{number} could not be run: {why}" for why, number in refused.items())
    if _told_otherwise(folder / "study.json", as_json, quiet):
        return failed
    console = _Console()
    for path in sorted((folder / "tables").glob("[0-9][0-9]-*.md")):
        lines = [
            [cell.strip() for cell in line.strip("| ").split(" | ")]
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        table = Table(box=None, pad_edge=False, header_style="bold")
        for number, name in enumerate(lines[0]):
            named = Text(name, overflow="fold")
            table.add_column(named, justify="right" if number else "left", overflow="fold")
        for line in lines[2:]:
            table.add_row(*map(Text, line))
        console.print(table)
        console.print()
    _say(console, f"wrote {folder / 'report.html'}, summary.csv, study.json and tables beside it")
    return failed


def report_truncation(folder: Path, warnings: Sequence[str], *, quiet: bool) -> None:
    """Say where the shorter checkpoint is, and what to know about it."""
    _warn(warnings)
    if not quiet:
        _say(_Console(), f"wrote {folder}")


def report_cache(*, as_json: bool) -> None:
    """List what the cache holds."""
    entries = list_cache()
    if as_json:
        listed = [
            {"path": str(e.path), "bytes": e.bytes, "used": e.used, **e.about} for e in entries
        ]
        print(json.dumps(listed, indent=1), flush=True)
        return
    console = _Console()
    table = Table("used", box=None, header_style="bold", pad_edge=False)
    table.add_column("MB", justify="right")
    for heading in ("kind", "what", "of"):
        table.add_column(heading, overflow="fold")
    for entry in entries:
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        about = entry.about
        table.add_row(
            used,
            f"{entry.bytes / 1e6:,.1f}",
            Text(str(about.get("kind", "?"))),
            Text(_cached(about)),
            Text(str(about.get("model", "?"))),
        )
    if entries:
        console.print(table)
    total = sum(entry.bytes for entry in entries) / 1e6
    counted = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
    files, size = count_unfinished()
    left = "1 unfinished file" if files == 1 else f"{files} unfinished files"
    more = f" and {left}, {size / 1e6:,.1f} MB," if files else ""
    _say(console, f"{counted}, {total:,.1f} MB,{more} in {cache_folder()}")


def _cached(about: Mapping[str, Any]) -> str:
    """Say in a few words what an entry of the cache holds."""
    texts = f"{about['texts']:,} texts" if isinstance(about.get("texts"), int) else "? texts"
    match about.get("kind"):
        case "trunk":
            return f"state {about.get('cut', '?')}, {texts}"
        case "states":
            return f"{about.get('pooling', '?')} of all states, {texts}"
        case _:
            return "?"


def _told_otherwise(path: Path, as_json: bool, quiet: bool) -> bool:
    """Print the JSON file where that is asked for; tell whether a person reads no more."""
    if as_json:
        print(path.read_text(encoding="utf-8"), end="", flush=True)
    return as_json or quiet


def _warn(warnings: Iterable[str]) -> None:
    errors = _Console(stderr=True)
    for warning in warnings:
        _say(errors, f"warning: {warning}", "yellow")


def _what_was_done(content: Mapping[str, Any]) -> str:
    plan, parameters = content["plan"], content["parameters"]
    share = parameters["trainable"] / content["model"]["parameters"]["total"]
    line = f"{parameters['trainable']:,} parameters trained ({share:.1%})"
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
        ends = ["-", "-", "-"]
        if run["curve"]:
            best, last = run["best"], run["last"]
            ends = [f"{best['value']:.4f}", str(best["epoch"]), f"{last['value']:.4f}"]
        table.add_row(
            f"{run['learning_rate']:g}",
            str(run["seed"]),
            *ends,
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
    # Names come from the data: no markup, and no breaks inside a path or because of one.
    console.print(Text(escape_controls(line), style=style), soft_wrap=True)


def _say_heading(console: Console, model: Mapping[str, Any], task: Mapping[str, Any]) -> None:
    _say(console, f"{model['name']} ({model['blocks']} blocks) on {task['name']}")


def _say_wrapped(console: Console, line: str) -> None:
    width, line = console.width, escape_controls(line)
    for part in textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False):
        _say(console, part)


def _unicode(console: Console) -> bool:
    return console.encoding.startswith("utf")


@dataclass(frozen=True)
class _Signs:
    """The characters that a terminal has for what is drawn."""

    block: str
    arrow: str
    gap: str
    near: str
    up: str
    down: str
    levels: str
    about: str
    tau: str

    def write(self, line: str) -> str:
        """Write what the terminal has no character for in another way."""
        return line if self is UNICODE else "".join(PLAIN.get(sign, sign) for sign in line)


UNICODE = _Signs("█", "◀", "–", "≈", "↑", "↓", "▁▂▃▄▅▆▇█", "±", "τ")
ASCII = _Signs("#", "<", "-", "~", "^", "v", "0123456789", "+-", "tau")
PLAIN = {"–": "-", "−": "-", "ν": "nu", "τ": "tau", "±": "+-", "≈": "~", "ℓ": "l"}


def _curves(scan: Mapping[str, Any], keys: Sequence[str], signs: _Signs) -> Table:
    """Draw the curves of some scores, a row per entry, with the best marked."""
    from layerscout.pages import tied

    table = Table("state", box=None, header_style="bold", pad_edge=False)
    if scan["scores"][keys[0]]["of"] == "blocks":
        table.columns[0].header = "block"
    table.columns[0].justify = "right"
    near = {key: tied(scan, key) for key in keys}
    for key in keys:
        table.add_column("value", justify="right")
        if scan["scores"][key].get("low"):
            level = (scan["scores"][key].get("details") or {}).get("level")
            table.add_column(f"{level:.0%} interval" if level else "interval", justify="right")
        table.add_column(key, no_wrap=True)
    for entry in range(scan["model"]["blocks"] + 1):
        cells: list[Any] = [str(entry)]
        for key in keys:
            score, best = scan["scores"][key], entry == scan["best"].get(key)
            style = "bold green" if best else ""
            mark = f" {signs.arrow} best" if best else ""
            mark = f" {signs.near} best" if entry in near[key] else mark
            cells.append(Text(_value(score["values"][entry], signs), style=style))
            if score.get("low"):
                ends = score["low"][entry], score["high"][entry]
                both = f" {signs.gap} ".join(_value(end, signs) for end in ends)
                cells.append(Text("" if None in ends else both, style=style))
            bar = _bar(score, entry, BAR // len(keys), signs)
            cells.append(Text(bar + mark, style=style or "blue"))
        table.add_row(*cells)
    return table


def _bar(score: Mapping[str, Any], entry: int, width: int, signs: _Signs) -> str:
    """Draw a value; from the lowest one on where some are negative."""
    known = [value for value in score["values"] if value is not None]
    value, floor = score["values"][entry], min([0.0, *known])
    if value is None or value == floor == 0:
        return ""
    span = max(known, default=0.0) - floor
    return signs.block * max(1, round(width * (value - floor) / span) if span else 1)


def _value(value: float | None, signs: _Signs, digits: int = 4) -> str:
    return signs.gap if value is None else f"{value:.{digits}g}"


def _summary(scan: Mapping[str, Any], signs: _Signs) -> Table:
    """Draw a row for each score, those of states and those of blocks apart."""
    from layerscout.pages import deviation, of_kind, refusal, sparkline

    table = Table("score", box=None, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column("")
    for heading in ("best", "value", "top"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("curve", no_wrap=True)
    table.add_column("", no_wrap=True)
    for of in ("states", "blocks"):
        keys = of_kind(scan, of)
        if keys and len(keys) < len(scan["scores"]):
            table.add_row(Text(f"of {of}", style="dim"))
        for key in keys:
            score, best = scan["scores"][key], scan["best"].get(key)
            error = deviation(scan, key)
            note = "" if error is None else f"{signs.about}{error:.2g}"
            if best is None:
                note = "refused" if refusal(score) else "undefined"
            table.add_row(
                key,
                signs.up if score["better"] == "higher" else signs.down,
                signs.gap if best is None else str(best),
                _value(None if best is None else score["values"][best], signs, 3),
                _value(score["values"][-1], signs, 3),
                Text(sparkline(score, CURVE, signs.levels), style="blue"),
                note,
            )
    return table


def _stability(stability: Mapping[str, Any], signs: _Signs) -> Table:
    """Draw for each score how far its ranks have moved at the last checkpoint."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(f"over {len(stability['checkpoints'])} checkpoints")
    for heading in ("best", "ranks moved", signs.tau):
        table.add_column(heading, justify="right")
    for key, score in stability["scores"].items():
        best = [str(ranks.index(1)) if 1 in ranks else signs.gap for ranks in score["ranks"]]
        table.add_row(
            key,
            " ".join(best if len(best) <= 6 else [best[0], "..", best[-1]]),
            _value(score["deviation"][-1], signs, 2),
            _value(score["kendall"][-1], signs, 2),
        )
    return table


def _verdicts(scan: Mapping[str, Any], drawn: Sequence[str], signs: _Signs) -> list[str]:
    """Say which state is best, how sure that is, what the others say, and what was refused."""
    from layerscout.pages import best_by, certainty, examples_read, no_signal, refusal

    lines = [line for key in drawn if (line := _verdict(scan, key))]
    for key in drawn:
        lines += certainty(scan, key, f" ({signs.near})")
    if nothing := no_signal(scan):
        lines.insert(0, nothing)
    if read := examples_read(scan):
        lines.append(read)
    for of in ("states", "blocks"):
        groups = best_by(scan, of)
        if sum(map(len, groups.values())) > 1 and len(drawn) < len(scan["scores"]):
            listed = ", ".join(f"{best} ({', '.join(keys)})" for best, keys in groups.items())
            lines.append(f"best {of[:-1]} by: {listed}")
    for key, score in scan["scores"].items():
        reason = refusal(score)
        if reason and not any(reason in warning for warning in scan["warnings"]):
            lines.append(f"{key}: refused: {reason}")
    return [signs.write(line) for line in lines]


def _verdict(scan: Mapping[str, Any], key: str) -> str:
    from layerscout.pages import no_signal, refusal, unit
    from layerscout.scores import DEFAULT

    score, best = scan["scores"][key], scan["best"].get(key)
    name = unit(score)
    if best is None:  # what is said of all scores says why
        said = refusal(score) or (key == DEFAULT and no_signal(scan))
        return "" if said else f"{key}: undefined at every {name}, so there is no best one"
    top = len(score["values"]) - 1
    value, last = score["values"][best], score["values"][top]
    if best == top:
        return (
            f"{key}: the top {name}, {top}, is the best ({value:.4g}; {score['better']} is better)"
        )
    return (
        f"{key}: {name} {best} of {top} is the best "
        f"({value:.4g}, top {name} {'undefined' if last is None else f'{last:.4g}'}; "
        f"{score['better']} is better)"
    )


def _options(result: Planning, mark: str) -> Table:
    """List the strategies, narrow enough for 80 columns; shares are of full fine-tuning."""
    table = Table(box=None, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column("strategy")
    table.add_column("plan")
    for heading in ("trained", "", "train", "cheaper", "infer", "score"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    values = result.listed[1] if result.listed is not None else None
    for option in result.options:
        style = "bold green" if option.plan == result.choice.plan else ""
        value = None if values is None else values[option.state]
        table.add_row(
            Text(option.strategy),
            option.plan.notation,
            _count(option.cost.trainable),
            f"{option.cost.trainable / result.full.total:.0%}",
            f"{option.relative:.1%}",
            f"{1 / option.relative:.1f}x",
            f"{option.cost.inference / result.full.inference:.0%}",
            f"{'-' if value is None else f'{value:.3g}'} @{option.state:>2}",
            mark if option.efficient else "",
            style=style,
        )
    return table


def _count(parameters: int) -> str:
    millions = parameters / 1e6
    return f"{millions:.1f}M" if millions >= 1 else f"{1000 * millions:.0f}k"


def _next_command(result: Planning) -> str:
    from layerscout.pages import command

    more = ["--epochs", str(result.work.epochs)] if result.work.epochs != 5 else []
    more += _method_options(result.method)
    more += ["--plan", result.choice.plan.notation, *(["--untie"] if result.untie else [])]
    return command("tune", result.scan.as_dict(), *more)


def _method_options(method: Method) -> list[str]:
    """Write a method as options of a command, those left out that are as usual."""
    usual = _options_of(METHODS[method.name]())
    written = [] if isinstance(method, Full) else ["--method", method.name]
    for name, value in _options_of(method).items():
        if value != usual[name]:
            written += [f"--{name.replace('_', '-')}", value]
    return written


def _options_of(method: Method) -> dict[str, str]:
    """Give the options of a method as a person writes them."""
    given = described(method).items()
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in given}
