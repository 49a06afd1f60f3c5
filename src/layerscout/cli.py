"""The command line: one subcommand per verb."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from layerscout.errors import InputError, LayerscoutError

if TYPE_CHECKING:
    from rich.table import Table

    from layerscout.scanning import Scan
    from layerscout.scores import Score

app = typer.Typer(
    name="layerscout",
    help="Find out which layers of a pretrained text encoder are worth tuning, before you tune.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Arguments and options that mean the same for every verb.
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model folder, a hub id, or 'demo'.")]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A CSV, TSV, JSONL or Parquet file, a folder with train.* (and validation.*), "
        "a hub data set (NAME or NAME/CONFIG), or 'demo'.",
    ),
]
Text = Annotated[str | None, typer.Option(help="Column of the text.")]
TextPair = Annotated[str | None, typer.Option(help="Column of the second text.")]
Label = Annotated[str | None, typer.Option(help="Column of the label.")]
KnownTask = Annotated[
    str | None, typer.Option("--task", help="A known task, such as cola: its columns and labels.")
]
Regression = Annotated[
    bool, typer.Option("--regression", help="The labels are numbers to predict.")
]
Validation = Annotated[
    str | None,
    typer.Option(help="Validation file, or the fraction of the training rows to set aside."),
]
Examples = Annotated[
    str, typer.Option(help="How many to read: a number, 'all', or 'auto' (up to 5,000).")
]
Balanced = Annotated[bool, typer.Option("--balanced", help="Draw equally many of every class.")]
PerClass = Annotated[
    str | None, typer.Option(metavar="N0,N1,...", help="Draw exactly these numbers by class.")
]
Pooling = Annotated[
    Literal["mean", "cls"], typer.Option(help="Average a text's tokens, or take the first.")
]
MaxLength = Annotated[int, typer.Option(help="Tokens kept of an input.")]
Precision = Annotated[
    Literal["float32", "bfloat16", "auto"],
    typer.Option(help="Of the forward pass; auto: bfloat16 where the processor has it."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps, ...")]
Seed = Annotated[int, typer.Option(help="Of every random choice.")]
Scores = Annotated[
    str, typer.Option("--score", metavar="KEY,KEY,...", help="Scores to compute, or 'all'.")
]
Plot = Annotated[
    Path | None, typer.Option(help="Also draw the curve into this .png, .svg or .pdf.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and warnings only.")]

BAR = 32  # characters of the longest bar in a table of scores


def main() -> None:
    """Run the command line: exit 2 on input that cannot be used, 130 on Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # names from the data may not fit the encoding
            stream.reconfigure(errors="replace")
    try:
        app()
    except OSError as error:  # such as a full disk behind standard output
        typer.echo(f"layerscout: {error}", err=True)
        sys.exit(1)
    except LayerscoutError as error:
        typer.echo(f"layerscout: {error}", err=True)
        sys.exit(2 if isinstance(error, InputError) else 1)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"layerscout {version('layerscout')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Take the options that belong to no verb."""


@app.command()
def scan(
    model: Model,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for scan.json and scan.html.")
    ] = Path("scan"),
    text: Text = None,
    text_pair: TextPair = None,
    label: Label = None,
    task: KnownTask = None,
    regression: Regression = False,
    validation: Validation = None,
    scores: Scores = "variability_ratio",
    examples: Examples = "auto",
    balanced: Balanced = False,
    per_class: PerClass = None,
    pooling: Pooling = "mean",
    max_length: MaxLength = 128,
    precision: Precision = "float32",
    device: Device = "auto",
    seed: Seed = 0,
    plot: Plot = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score every layer of MODEL on DATA without training, and find the best one."""
    with _interruptible(), _loading(quiet):
        # Heavy imports are part of what the spinner stands for.
        from layerscout.data import Task
        from layerscout.encoder import Encoder
        from layerscout.figures import check_plot
        from layerscout.files import check_output_folder

        check_output_folder(output)
        if plot is not None:
            check_plot(plot)
            check_output_folder(plot.parent)
        loaded_task = Task.load(
            data,
            task=task,
            text=text,
            text_pair=text_pair,
            label=label,
            regression=regression,
            validation=validation,
            seed=seed,
        )
        encoder = Encoder.load(model, device=device, precision=precision)
    with _interruptible():
        from layerscout import scanning

        result = scanning.scan(
            encoder,
            loaded_task,
            scores=scores,
            examples=_examples(examples),
            balanced=balanced,
            per_class=None if per_class is None else _numbers("--per-class", per_class),
            pooling=pooling,
            max_length=max_length,
            seed=seed,
            progress=not quiet,
        )
        result.save(output)
        if plot is not None:
            scanning.plot(result, plot)
    _report(result, output, plot, as_json=json, quiet=quiet)


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for what the demo writes.")
    ] = Path("layerscout-demo"),
    plot: Plot = None,
    quiet: Quiet = False,
) -> None:
    """Scan a small encoder on a small task that ships with layerscout; needs no network."""
    scan("demo", "demo", output, plot=plot, quiet=quiet)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn Ctrl-C into one line; files are moved into place only when they are whole."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("layerscout: stopped; nothing was half-written", err=True)
        raise typer.Exit(130) from None


@contextmanager
def _loading(quiet: bool) -> Iterator[None]:
    """Show a spinner while libraries, data and model load."""
    from rich.console import Console

    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        yield
        return
    with console.status("loading the data and the model"):
        yield


def _examples(examples: str) -> int | Literal["all", "auto"]:
    if examples in ("all", "auto"):
        return "all" if examples == "all" else "auto"
    try:
        return int(examples)
    except ValueError as error:
        raise InputError(
            f"--examples takes a whole number, 'all' or 'auto', got {examples!r}"
        ) from error


def _numbers(option: str, written: str) -> list[int]:
    try:
        return [int(part) for part in written.split(",")]
    except ValueError as error:
        raise InputError(f"{option} takes whole numbers, got {written!r}") from error


def _report(result: Scan, folder: Path, plot: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Print a scan for a person, or its JSON for a program; warnings always reach the person."""
    from rich.console import Console
    from rich.text import Text as Line

    errors = Console(stderr=True, highlight=False)
    for warning in result.warnings:
        errors.print(Line(f"warning: {warning}", style="yellow"), soft_wrap=True)
    if as_json:
        typer.echo((folder / "scan.json").read_text(encoding="utf-8"), nl=False)
        return
    if quiet:
        return
    task, model = result.task, result.model
    console = Console(highlight=False)

    def say(line: str) -> None:
        # Names come from the data: no markup, and no breaks inside a path.
        console.print(Line(line), soft_wrap=True)

    say(f"{model['name']} ({model['blocks']} blocks) on {task['name']}")
    used, available = task["examples_used"], task["examples_available"]
    say(f"{used:,} of {available:,} examples, {len(task['labels'])} classes")
    console.print(_table(result, unicode=console.encoding.startswith("utf")))
    for key, score in result.scores.items():
        say(_verdict(key, score))
    written = [folder / "scan.json", folder / "scan.html", *([plot] if plot else [])]
    say(f"{sum(result.seconds.values()):.1f} s; wrote {', '.join(map(str, written))}")


def _table(result: Scan, unicode: bool) -> Table:
    """Draw the curve of every score, a row per state, with the best marked."""
    from rich.table import Table
    from rich.text import Text as Line

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
            cells += [Line(gap if value is None else f"{value:.4g}", style=style)]
            cells += [Line(bar + mark, style=style or "blue")]
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
