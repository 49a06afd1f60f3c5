"""Finding the splits of a file, a folder, standard input, the demo or a data set on the hub."""

import csv
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

from layerscout.data.conll import conll_records
from layerscout.data.delimited import DELIMITED, open_cells, read_separator, tell_separator
from layerscout.data.files import (
    JSON_LINES,
    PARQUET,
    content_of,
    find_names,
    json_records,
    open_parquet,
    open_records,
    text_records,
)
from layerscout.data.folders import (
    choose_config,
    choose_splits,
    follow_config,
    lay_out,
    list_files,
    read_configs,
    strip_suffix,
)
from layerscout.data.lines import File, Format, find_suffix, read_lines, reading
from layerscout.data.shards import Part, add_notes, find_shards, open_layout
from layerscout.data.tables import Source, Table, from_memory, join_names
from layerscout.errors import InputError
from layerscout.progress import announce_waiting

# Names from before the hub's data sets had owners.
OLD_HUB_NAMES = {
    "glue": "nyu-mll/glue",
    "super_glue": "aps/super_glue",
    "yelp_polarity": "fancyzhx/yelp_polarity",
    "hellaswag": "Rowan/hellaswag",
    "cosmos_qa": "allenai/cosmos_qa",
    "go_emotions": "google-research-datasets/go_emotions",
    "wnut_17": "leondz/wnut_17",
    "conll2003": "eriktks/conll2003",
    "universal_dependencies": "universal-dependencies/universal_dependencies",
}


def parse_hub_name(data: str) -> str | None:
    """Return the hub's `owner/name[/config]`, or an old bare name; None for what must be a path."""
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*){0,2}", data, re.ASCII):
        return None
    first, *rest = data.split("/")
    parts = [*OLD_HUB_NAMES.get(first, first).split("/"), *rest]
    # Names end in versions (name-v1.5) and configurations in words (wsc.fixed), files in suffixes.
    if len(parts) > 3 or (len(parts) < 3 and re.search(r"\.[A-Za-z]\w*$", data)):
        return None
    # The library takes names such as "csv" for its readers and would look in this folder.
    if "." in first or find_spec(f"datasets.packaged_modules.{first}"):
        return None
    return "/".join(parts)


def open_hub(hub: str) -> dict[str, Source]:
    """Return the splits of a data set on the hub, downloaded or from the library's cache."""
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HTTPError

    try:
        with _cache_if_unreachable(hub):
            available = _download(hub.split("/"))
    except (OSError, ValueError, RuntimeError, HTTPError, DatasetsError) as error:
        raise _hub_error(hub, error) from error
    name = "/".join(hub.split("/")[:2])
    chosen = {split: names[0] for split, names in choose_splits(available).items() if names}
    if "train" not in chosen:
        raise InputError(f"a data set needs a split `train`: {name} has {join_names(available)}")
    sources = {
        split: _hub_split(f"{name} ({own})", available[own]) for split, own in chosen.items()
    }
    if unread := [one for one in available if one not in chosen.values()]:
        note = f"splits of {name} that are not read: {join_names(unread)}"
        sources["train"] = add_notes(sources["train"], [note])
    return sources


@contextmanager
def _cache_if_unreachable(hub: str) -> Iterator[None]:
    """Send `datasets` straight to its cache where the hub does not answer: it retries for long."""
    from datasets import config
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HTTPError

    before = config.HF_HUB_OFFLINE
    try:
        HfApi().dataset_info("/".join(hub.split("/")[:2]), timeout=10)
    except HfHubHTTPError:
        pass  # it answered; what it says is told below
    except (HTTPError, OSError):
        config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE = before


def _download(parts: list[str]) -> Any:
    """Return what `datasets` has by owner, name and configuration: its splits by name."""
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError

    awaited = f"still fetching {'/'.join(parts)}, or waiting for another process that fetches it"
    try:
        with announce_waiting(awaited):
            return load_dataset("/".join(parts[:2]), *parts[2:])
    except DatasetNotFoundError as not_found:
        if len(parts) != 2:
            raise
        try:  # old names have no owner, so what looks like owner/name may be name/config
            return load_dataset(*parts)
        except DatasetNotFoundError:
            raise not_found from None


def _hub_error(name: str, error: Exception) -> InputError:
    """Build the error for a data set that the hub did not give."""
    import datasets

    reason = " ".join(str(error).split())[:300].rstrip(". ")
    if isinstance(error, datasets.exceptions.DatasetNotFoundError):
        remedy = "check the spelling; for a private or gated one run `hf auth login`"
    elif isinstance(error, ConnectionError):
        remedy = "check the network, or use a data set that was loaded before, or local files"
    elif "scripts are no longer supported" in reason:
        remedy = "code from the hub is never run; use a copy in Parquet, or local files"
    elif "config" in reason.lower():
        remedy = "write the configuration as name/config"
    else:
        remedy = "try again, or use local files"
    return InputError(f"cannot load {name!r} (no such file here) from the hub: {reason}; {remedy}")


def _hub_split(name: str, split: Any) -> Source:
    """Make the source of one split as `datasets` has it."""

    def read(wanted: Sequence[str]) -> Table:
        table = split.select_columns(list(wanted)).with_format("arrow")[:]
        return Table(name, {column: table[column].to_pylist() for column in wanted})

    columns = {column.name: content_of(column.type) for column in split.features.arrow_schema}
    return Source(name, columns, read, find_names(split.features.to_dict()))


def open_stdin(form: Format, is_header: Callable[[Sequence[str]], bool] | None = None) -> Source:
    """Read standard input to its end: CSV, TSV, JSON or Parquet, told apart by how it begins.

    Args:
        form: of text files.
        is_header: tells names of columns from the first of many lines of text, if there may be
            such lines.

    Raises:
        InputError: if nothing is piped in, or it cannot be read as one of these.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(
            "- is standard input, and nothing is piped in; write `... | layerscout` or "
            "add `< reviews.csv`"
        )
    name = "standard input"
    awaited = "waiting for the end of standard input, which - is read from"
    with reading(name), announce_waiting(awaited):
        content = sys.stdin.buffer.read()
    packed = content.startswith(b"\x1f\x8b")
    file = File(name, ".csv", partial(BytesIO, content), packed, form.encoding)
    if content.startswith(b"PAR1"):
        return _open(replace(file, suffix=".parquet"), form)
    lines = (line for _, line in read_lines(file, universal=True))
    head = next((line for line in lines if line.strip()), "")
    if head.lstrip()[:1] in ("{", "["):
        suffix = ".json"
    else:
        used = tell_separator(head) if form.sep is None else read_separator(form.sep)
        suffix = ".tsv" if used == "\t" else ".csv"
        if is_header is not None and not is_header(next(csv.reader([head], delimiter=used), [])):
            return open_records(file, text_records)
    return _open(replace(file, suffix=suffix), form)


def find(
    data: str | Path, form: Format, others: Collection[Path] = ()
) -> tuple[str, str | None, dict[str, Source]]:
    """Find the splits of a file, a folder, standard input, the demo or a data set on the hub.

    Args:
        data: as for `Task.load`.
        form: of text files.
        others: files that are read besides, wherever they are.

    Returns:
        What to call the data; the hub's `owner/name[/config]`, None for what is not from the hub;
        and the source of each split, "train" first and perhaps "validation" and "test".

    Raises:
        InputError: if there is no such thing, or it cannot be read.
    """
    if data == "demo":
        form.refuse(data)
        return "demo", None, _demo()
    if data == "-":
        return "stdin", None, {"train": open_stdin(form)}
    if not str(data):
        raise InputError("the name of the data is empty; give a file, a folder or a hub data set")
    path = Path(data)
    with reading(path):
        if path.is_dir():
            return path.resolve().name, None, _folder(path, form, others)
        if path.is_file():
            return strip_suffix(path.name), None, {"train": open_file(path, form)}
        there = path.is_symlink() or path.exists()
        if not there and is_local(path):
            return path.name, None, _folder(path.parent, form, others, path.name)
    many = not there and any(mark in str(data) for mark in ("*", "://"))
    hub = None if there or isinstance(data, Path) else parse_hub_name(data)
    if hub is None and not many:
        raise no_such_file(path)
    if hub is not None:
        form.refuse(data)
        return str(data), hub, open_hub(hub)
    sources = find_shards(str(data), is_known, partial(_open, form=form))
    return str(data).rstrip("/").rpartition("/")[2], None, sources


_SAVED = "what `save_to_disk` of datasets wrote is not read: write each split with `to_parquet`"


def is_local(data: str | Path) -> bool:
    """Return whether data are a file, a folder, or a data set that its folder's README names."""
    path = Path(data)
    return path.exists() or path.name in read_configs(path.parent, [])


def _folder(
    path: Path, form: Format, others: Collection[Path], name: str | None = None
) -> dict[str, Source]:
    """Open the splits of a folder: those that its README names, else those that files are named.

    `others` are files that are read besides; `name` is of one of several data sets of the README.
    """
    notes: list[str] = []
    files, configs = list_files(path, is_known), read_configs(path, notes)
    layout = None
    if configs:
        layout = follow_config(path, configs, name or choose_config(path, configs), is_known)
    layout = layout or lay_out(str(path), files)
    if "train" not in layout.splits:
        entries = [entry.name for entry in path.iterdir() if not entry.name.startswith(".")]
        inner, remedy = _find_inner(path), "name a file to use it alone"
        if {"dataset_dict.json", "state.json"} & {*entries}:
            remedy = _SAVED
        elif inner is not None:
            remedy = f"did you mean {inner}?"
        raise InputError(
            f"a folder of data needs one train file ({', '.join(OPENERS)}): {path} has "
            f"{join_names(sorted({*entries, *files}))}; {remedy}"
        )
    layout.notes += notes
    named = {one.resolve() for one in others}
    unnamed = [one for one in files if (path / one).resolve() not in named]

    def part(name: str) -> Part:
        file = path / name
        sep = form.sep or (layout.sep if find_suffix(file) in DELIMITED else None)
        with reading(file):
            size = file.stat().st_size
        return Part(str(file), size, partial(open_file, file, replace(form, sep=sep)))

    return open_layout(str(path), path.resolve().name, layout, unnamed, part)


def _find_inner(path: Path) -> Path | None:
    """Return a folder with a training split in another, such as the hub's cache; None without."""
    for inner in sorted([*path.glob("*"), *path.glob("snapshots/*")]):
        with suppress(InputError):
            files = list_files(inner, is_known) if inner.is_dir() else []
            if "train" in lay_out(str(inner), files).splits:
                return inner
    return None


def _demo() -> dict[str, Source]:
    """Return the splits of the task that ships with the package; bench/demo_grammar.py wrote it."""
    with Path(__file__).with_name("demo.csv").open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    texts, labels = [text for text, _ in rows], [int(label) for _, label in rows]
    splits = {
        "train": from_memory("demo", texts[:2000], labels[:2000]),
        "validation": from_memory("demo (validation)", texts[2000:], labels[2000:]),
    }
    names = {"label": ("unacceptable", "acceptable")}
    return {which: replace(split, classes=names) for which, split in splits.items()}


def open_file(path: Path, form: Format) -> Source:
    """Open a file of one of the kinds that `OPENERS` names.

    Args:
        path: the file.
        form: of text files.

    Raises:
        InputError: if it does not exist, is of another kind, or cannot be read.
    """
    with reading(path):
        if not path.is_file():
            raise no_such_file(path)
    if find_suffix(path) in (".xlsx", ".xls", ".ods"):
        raise InputError(
            f"data cannot be a spreadsheet, got {path}; save the sheet as CSV (UTF-8) and use that"
        )
    with reading(path), path.open("rb") as raw:
        if raw.read(40).startswith(b"version https://git-lfs.github.com/spec"):
            raise InputError(
                f"{path} is not the data but a pointer of Git LFS; fetch it: `git lfs pull`"
            )
    if not is_known(path):
        raise InputError(
            f"data files must be {', '.join(OPENERS)} (text files also with .gz), got {path}; "
            "convert or rename it"
        )
    return _open(File.at(path), form)


def _open(file: File, form: Format) -> Source:
    """Open a file whose suffix `OPENERS` names."""
    file = replace(file, encoding=form.encoding)
    if file.suffix in DELIMITED:
        return open_cells(file, form.sep)
    text = file.suffix not in PARQUET
    replace(form, encoding=None if text else form.encoding).refuse(file.name)
    return OPENERS[file.suffix](file)


def is_known(path: Path) -> bool:
    """Return whether a file can be read, by its name."""
    packed = path.suffix.lower() == ".gz"
    return find_suffix(path) in OPENERS and not (packed and find_suffix(path) in PARQUET)


def no_such_file(path: Path) -> InputError:
    """Build the error for a path that does not exist, guessing what was meant."""
    if path.is_symlink() or path.exists():
        return InputError(f"{path} is neither a file nor a folder; give one of them")
    if not path.parent.is_dir():
        return InputError(f"no such file: {path}; the folder {path.parent} does not exist")
    names = [*(entry.name for entry in path.parent.iterdir()), *read_configs(path.parent, [])]
    close = get_close_matches(path.name, names, n=1)
    guess = f"did you mean {path.parent / close[0]}?" if close else "check the spelling"
    return InputError(f"no such file: {path}; {guess}")


OPENERS: Mapping[str, Callable[[File], Source]] = {
    **dict.fromkeys(DELIMITED, open_cells),
    **dict.fromkeys((*JSON_LINES, ".json"), partial(open_records, records=json_records)),
    **dict.fromkeys(PARQUET, open_parquet),
    **dict.fromkeys(
        (".conll", ".iob", ".bio", ".conllu"), partial(open_records, records=conll_records)
    ),
}
