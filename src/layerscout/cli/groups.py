"""Arguments and groups of options that mean the same for every verb."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from layerscout.cli.threads import limit_threads
from layerscout.errors import DiskError, InputError, UnfinishedError, escape_controls
from layerscout.plans import COUNT, Options, option

if TYPE_CHECKING:
    from layerscout.cluster import Cluster

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model folder, a hub id, or 'demo'.")]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A CSV, TSV, JSON, JSONL, Parquet or CoNLL file (text also as .gz), - for standard "
        "input, a folder with train.* (and validation.*), a hub data set (NAME or NAME/CONFIG), or "
        "'demo'.",
    ),
]
Plot = Annotated[
    Path | None, typer.Option(help="Also save the chart as this .png, .svg or .pdf file.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", metavar="", help="Print errors and warnings only.")
]
Figures = Annotated[
    Literal["svg", "png", "pdf"] | None,
    typer.Option(help="Also save every figure as a file of this type."),
]


@dataclass(frozen=True)
class Printing:
    """What is printed."""

    json: bool = option(False)
    """Print the result as JSON, and nothing else."""
    quiet: bool = option(False, flag="--quiet -q")
    """Print errors and warnings only."""


@dataclass(frozen=True)
class Columns:
    """How the data are read; see `layerscout.Task.load`."""

    text: str | None = option(None)
    """Column of texts, or of words."""
    text_pair: str | None = option(None)
    """Column of second texts."""
    label: str | None = option(None)
    """Column of labels, or of lists of labels or tags; or several 0/1 columns, one per label,
    separated by commas."""
    label_separator: str | None = option(None)
    """Separator between the labels of a text that are written as one string, such as |."""
    task: str | None = option(None)
    """Known task, such as cola, whose columns and labels are used."""
    regression: bool = option(False)
    """Treat the labels as numbers to predict."""
    drop_missing: bool = option(False)
    """Leave out rows without a text or label."""
    drop_rare: int | None = option(None)
    """Leave out classes with fewer training rows than this."""
    merge_rare: int | None = option(None)
    """Make one class, "other", of those with fewer training rows than this."""
    sep: str | None = option(None)
    """Separator of the fields in a CSV or TSV file: a character, or tab; by default it is detected
    from the first line."""
    encoding: str | None = option(None)
    """Encoding of text files, such as cp1252 or utf-16; by default it is detected."""
    validation: str | None = option(None)
    """Validation file, or the fraction of training rows to set aside."""

    def load(
        self,
        data: str,
        seed: int,
        *,
        test: str | Literal[False] | None = False,
        judged: str | None = None,
    ) -> Any:
        """Load the task; rows that are set aside are drawn by the seed.

        Rows on which a tuned model is judged need not have all of its classes.
        """
        from layerscout.data import Task, read_classes

        classes = () if judged is None else read_classes(judged)
        return Task.load(data, **asdict(self), test=test, seed=seed, classes=classes)


@dataclass(frozen=True)
class Machine(Options):
    """What models run on."""

    precision: Literal["float32", "bfloat16", "float16", "auto"] = option("float32")
    """Precision of the forward pass; auto uses bfloat16 where it is faster."""
    device: str = option("auto")
    """Device for models: auto, cpu, cuda, cuda:1, mps, ..."""
    threads: int | None = option(None, COUNT, shown="one per core")
    """Number of CPU threads."""

    def settle_threads(self) -> None:
        """Limit the threads, if that was asked for."""
        if self.threads is not None:
            limit_threads(self.threads)


@dataclass(frozen=True)
class Caching:
    """What is kept on disk."""

    cache_limit: str = option("20GB")
    """Maximum size of the cache; 0 for no cache."""

    @property
    def bytes(self) -> int:
        """The limit in bytes, read from text such as 20GB, 500 MB or 0."""
        units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
        written = self.cache_limit.strip().upper()
        size = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([KMGT]?B?)", written)
        if size is None or size[2] not in units:
            raise InputError(
                f"--cache-limit takes a size such as 20GB or 500MB, got {self.cache_limit!r}"
            )
        return int(float(size[1]) * units[size[2]])


@dataclass(frozen=True)
class Placement:
    """Where the work is done."""

    backend: Literal["local", "ray"] = option("local")
    """Work on this machine, or on a Ray cluster."""
    address: str | None = option(None)
    """Ray cluster to join, or auto; by default that in RAY_ADDRESS, or a new local one."""
    cpus: int | None = option(None, shown="4, or all of a machine's")
    """CPU cores per job on a cluster."""
    gpus: float | None = option(None, shown="1 if any")
    """GPUs per job on a cluster, such as 0.5."""

    def __post_init__(self) -> None:
        """Raise for options of a cluster where there is none."""
        given = [name for name in ("address", "cpus", "gpus") if getattr(self, name) is not None]
        if self.backend != "ray" and given:
            raise InputError(f"--{given[0]} requires --backend ray; add it, or leave this out")

    def cluster(self, device: str, threads: int | None = None) -> Cluster | None:
        """Describe the cluster that is asked for, if one is; its tasks set their own threads."""
        if self.backend != "ray":
            return None
        if threads is not None:
            raise InputError("--threads cannot be combined with --backend ray; use --cpus N")
        from layerscout.cluster import Cluster

        return Cluster(self.address, self.cpus, self.gpus, device)


@contextmanager
def interruptible(snapshots: Path | None = None, *, resume: bool = False) -> Iterator[None]:
    """Turn what stops a run on its way into one line, with the command that continues.

    Files are moved into place only when they are whole.

    Args:
        snapshots: of a training that can be continued, once there are any.
        resume: there is a training to continue, or its result.
    """
    try:
        yield
    except (KeyboardInterrupt, DiskError, UnfinishedError) as error:
        resume = resume or (snapshots is not None and any(snapshots.glob("*/state.json")))
        command = _write_command(resume)
        if not isinstance(error, KeyboardInterrupt):
            raise type(error)(f"{error}: {command}") from error
        typer.echo(
            f"layerscout: stopped; no file was left incomplete; to continue, run: {command}",
            err=True,
        )
        raise typer.Exit(130) from None


def _write_command(resume: bool) -> str:
    """Write the command that was given, with --resume if asked; the demo resumes by itself."""
    words = sys.argv[1:]
    if resume and words[:1] == ["tune"] and "--resume" not in words:
        words.insert(words.index("--") if "--" in words else len(words), "--resume")
    return escape_controls(shlex.join(["layerscout", *words]))


def check_outputs(folder: Path, *names: str, plot: Path | None = None) -> None:
    """Raise for folders and pictures that could not be written, before any work.

    Raises:
        InputError: if one of them cannot be written.
    """
    from layerscout.files import check_output_folder

    check_output_folder(folder, *names)
    if plot is not None:
        from layerscout.reporting import check_plot

        check_plot(plot)
        check_output_folder(plot.parent, plot.name)


def check_checkpoint(folder: Path) -> None:
    """Raise for a folder that a checkpoint could not be written to, before any work.

    Raises:
        InputError: if it cannot be made, or holds something else.
    """
    from layerscout.files import check_checkpoint_folder, check_output_folder

    check_output_folder(folder)
    check_output_folder(folder.absolute().parent)
    check_checkpoint_folder(folder)
