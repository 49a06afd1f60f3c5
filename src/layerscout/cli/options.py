"""Arguments and options of the command line that mean the same for every verb."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import typer

from layerscout.runtime import InputError


def _completing(module: str, table: str) -> Callable[[str], list[str]]:
    """Make what completes the last of some keys of a table, separated by commas.

    The module is imported when somebody presses the key.
    """

    def complete(begun: str) -> list[str]:
        before, comma, last = begun.rpartition(",")
        known = getattr(import_module(f"layerscout.{module}"), table)
        return [f"{before}{comma}{key}" for key in known if key.startswith(last)]

    return complete


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
    str | None,
    typer.Option(
        "--task",
        help="A known task, such as cola: its columns and labels.",
        autocompletion=_completing("data", "KNOWN"),
    ),
]
Regression = Annotated[
    bool, typer.Option("--regression", help="The labels are numbers to predict.")
]
Validation = Annotated[
    str | None,
    typer.Option(help="Validation file, or the fraction of the training rows to set aside."),
]
Examples = Annotated[
    str,
    typer.Option(
        help="How many to read: a number, 'all', or 'auto', which reads more and more until the "
        "best state is decided."
    ),
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
    Literal["float32", "bfloat16", "float16", "auto"],
    typer.Option(help="Of the forward pass; auto: bfloat16 where it is faster."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps, ...")]
Seed = Annotated[int, typer.Option(help="Of every random choice.")]
Scores = Annotated[
    str | None,
    typer.Option(
        "--score",
        metavar="KEY,KEY,...",
        autocompletion=_completing("scores", "SCORES"),
        help="Scores to compute, or 'all'; by default the variability ratios, or cca, ridge and "
        "logme for numbers.",
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="accuracy, f1 or matthews_correlation; for numbers pearson, spearman or "
        "pearson_spearman."
    ),
]
CacheLimit = Annotated[
    str,
    typer.Option(
        metavar="SIZE", help="What the cache may hold once new states are added; 0: no cache."
    ),
]
Epochs = Annotated[int, typer.Option(help="Passes over the training examples.")]
BestScore = Annotated[
    str | None,
    typer.Option(
        "--score",
        metavar="KEY",
        help="The score that says which state is best, or ranks blocks; by default the scan's.",
    ),
]
Budget = Annotated[
    float, typer.Option(help="For auto: the share of full fine-tuning's FLOPs to stay within.")
]
Bottleneck = Annotated[
    int | None,
    typer.Option(
        help="Features of an adapter between down and up; 256 unless given.",
        rich_help_panel="Method",
    ),
]
Rank = Annotated[
    int | None, typer.Option(help="Of LoRA's changes; 8 unless given.", rich_help_panel="Method")
]
LoraAlpha = Annotated[
    float | None,
    typer.Option(help="LoRA's scale times its rank; 16 unless given.", rich_help_panel="Method"),
]
VirtualTokens = Annotated[
    int | None,
    typer.Option(
        help="Of prefix-tuning, in each block; 16 unless given.", rich_help_panel="Method"
    ),
]
Untie = Annotated[
    bool, typer.Option("--untie", help="Copy the weights that blocks share (ALBERT) first.")
]
Plot = Annotated[
    Path | None, typer.Option(help="Also draw the curve into this .png, .svg or .pdf.")
]
Backend = Annotated[
    Literal["local", "ray"],
    typer.Option(help="Where the work is done: on this machine, or on a Ray cluster."),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Ray cluster to join, or auto; without it that of RAY_ADDRESS, or a new one here.",
    ),
]
Cpus = Annotated[
    int | None,
    typer.Option(
        help="Cores of a piece of work on a cluster.", show_default="4, or all of a machine's"
    ),
]
Gpus = Annotated[
    float | None,
    typer.Option(
        help="GPUs of a piece of work on a cluster, such as 0.5.", show_default="1 if any"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and warnings only.")]


@contextmanager
def interruptible(snapshots: Path | None = None, remedy: str = "") -> Iterator[None]:
    """Turn Ctrl-C into one line; files are moved into place only when they are whole.

    Args:
        snapshots: of a training that can be gone on with.
        remedy: what else the user may do next.
    """
    try:
        yield
    except KeyboardInterrupt:
        resumable = snapshots is not None and any(snapshots.glob("*/state.json"))
        hint = "; --resume goes on after the last whole epoch" if resumable else remedy
        typer.echo(f"layerscout: stopped; nothing was half-written{hint}", err=True)
        raise typer.Exit(130) from None


def size_in_bytes(written: str) -> int:
    """Read a size such as 20GB, 500 MB or 0."""
    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    size = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([KMGT]?B?)", written.strip().upper())
    if size is None or size[2] not in units:
        raise InputError(f"--cache-limit takes a size such as 20GB or 500MB, got {written!r}")
    return int(float(size[1]) * units[size[2]])


def on_cluster(backend: str, **given: object) -> bool:
    """Tell whether a cluster is asked for; refuse what is said of it where none is.

    Raises:
        InputError: if it is said without `--backend ray`.
    """
    told = [name for name, value in given.items() if value is not None]
    if backend != "ray" and told:
        raise InputError(f"--{told[0]} is of a cluster; add --backend ray, or leave it out")
    return backend == "ray"
