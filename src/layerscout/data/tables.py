"""One split of labelled data before and after it is read, whatever it comes from.

A `Source` knows the columns of one split and reads some of them into a `Table`; columns that are
not in use are never kept. Files, folders of splits, the hub, the demo and Python lists all become
sources here. This is the only module that knows of pyarrow and `datasets`.
"""

import csv
import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from layerscout.runtime import InputError

Rows = Sequence[Any] | np.ndarray  # an entry a row, as Python users bring it

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

# Names from before the hub's data sets had owners.
OLD_HUB_NAMES = {
    "glue": "nyu-mll/glue",
    "super_glue": "aps/super_glue",
    "yelp_polarity": "fancyzhx/yelp_polarity",
    "hellaswag": "Rowan/hellaswag",
    "cosmos_qa": "allenai/cosmos_qa",
}
VALIDATION_NAMES = ("validation", "validation_matched", "dev", "dev_matched", "valid", "val")

# How many rows are looked at to tell columns of text from columns of numbers.
GLANCE = 100


@dataclass(frozen=True)
class Table:
    """Columns of one split, read.

    Attributes:
        name: what messages call the split.
        columns: a list of n values each, by name.
        lines: where the n rows start in a text file, counted from 1; None where there are no lines.
        all_strings: whether numbers come as strings, because CSV and TSV do not tell 1 from "1".
        located: whether a row's number says where it is; it does not for a piece of many files.
    """

    name: str
    columns: Mapping[str, list[Any]]
    lines: Sequence[int] | None = None
    all_strings: bool = False
    located: bool = True

    def fault(self, rule: str, found: str, column: str, row: int, remedy: str) -> InputError:
        """Build the error for a value that breaks a rule, saying where it is in the file."""
        where = f"line {self.lines[row]}" if self.lines else f"row {row} (counted from 0)"
        where = where if self.located else "a row"
        return InputError(
            f"{rule}: {self.name} has {found} in {where}, column {column!r}; {remedy}"
        )


@dataclass(frozen=True)
class Source:
    """One split before it is read.

    Attributes:
        name: what messages call the split.
        columns: whether each column, by name, holds text.
        read: reads the columns of the given names.
        classes: the class names by id that the data bring along, for columns that have them.
    """

    name: str
    columns: Mapping[str, bool]
    read: Callable[[Sequence[str]], Table]
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def join_names(names: Iterable[str]) -> str:
    """List names in one line of bounded length, whatever is in them."""
    first = [name if name.isprintable() else repr(name) for name in islice(names, 21)]
    return ", ".join(f"{name:.60}" for name in first[:20]) + ", ..." * (len(first) > 20) or "none"


# --- Finding the splits ------------------------------------------------------------------------


def find(data: str | Path) -> tuple[str, str | None, dict[str, Source]]:
    """Find the splits of a file, a folder, the word "demo" or a data set on the hub.

    Returns:
        What to call the data; the hub's `owner/name[/config]`, None for what is not from the hub;
        and the source of each split, "train" first and perhaps "validation".

    Raises:
        InputError: if there is no such thing, or it cannot be read.
    """
    if data == "demo":
        return "demo", None, _demo()
    if not str(data):
        raise InputError("the name of the data is empty; give a file, a folder or a hub data set")
    path = Path(data)
    with _reading(path):
        if path.is_dir():
            return path.resolve().name, None, _folder(path)
        if path.is_file():
            return path.stem, None, {"train": open_file(path)}
    hub = None if isinstance(data, Path) else _hub_name(data)
    if hub is None:
        raise _no_such_file(path)
    return str(data), hub, _hub(hub)


def _no_such_file(path: Path) -> InputError:
    """Build the error for a path that does not exist, guessing what was meant."""
    if not path.parent.is_dir():
        return InputError(f"no such file: {path}; there is no folder {path.parent} either")
    close = get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=1)
    guess = f"did you mean {path.parent / close[0]}?" if close else "check the spelling"
    return InputError(f"no such file: {path}; {guess}")


def _folder(path: Path) -> dict[str, Source]:
    """Open the splits of a folder with `train.*` and perhaps `validation.*`."""
    entries = sorted(path.iterdir())
    files = [entry for entry in entries if entry.suffix.lower() in OPENERS]
    found = {
        "train": [file for file in files if file.stem.lower() == "train"],
        "validation": [file for file in files if file.stem.lower() in VALIDATION_NAMES],
    }
    if not found["train"]:
        raise InputError(
            f"a folder of data needs one train.csv, .tsv, .jsonl or .parquet: {path} has "
            f"{join_names(entry.name for entry in entries)}; name a file to use it alone"
        )
    for split, matches in found.items():
        if len(matches) > 1:
            raise InputError(
                f"a folder of data needs one {split} file: {path} has "
                f"{join_names(file.name for file in matches)}; remove all but one"
            )
    return {split: open_file(matches[0]) for split, matches in found.items() if matches}


def _demo() -> dict[str, Source]:
    """Return the splits of the task that ships with the package: always the same rows."""
    from layerscout.data.demo import LABELS, sentences

    texts, labels = zip(*sentences(2500, seed=0), strict=True)
    splits = {
        "train": from_memory("demo", texts[:2000], labels[:2000]),
        "validation": from_memory("demo (validation)", texts[2000:], labels[2000:]),
    }
    return {which: replace(split, classes={"label": LABELS}) for which, split in splits.items()}


def _hub_name(data: str) -> str | None:
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


def _hub(hub: str) -> dict[str, Source]:
    """Return the splits of a data set on the hub, downloaded or from the library's cache."""
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HTTPError

    try:
        with _cache_if_unreachable(hub):
            found = _download(hub.split("/"))
    except (OSError, ValueError, RuntimeError, HTTPError, DatasetsError) as error:
        raise _hub_error(hub, error) from error
    name = "/".join(hub.split("/")[:2])
    if "train" not in found:
        raise InputError(f"a data set needs a split `train`: {name} has {join_names(found)}")
    splits = {"train": _hub_split(f"{name} (train)", found["train"])}
    validation = next((split for split in VALIDATION_NAMES if split in found), None)
    if validation is not None:
        splits["validation"] = _hub_split(f"{name} ({validation})", found[validation])
    return splits


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

    try:
        return load_dataset("/".join(parts[:2]), *parts[2:])
    except DatasetNotFoundError as not_found:
        if len(parts) != 2:
            raise
        try:  # old names have no owner, so what looks like owner/name may be name/config
            return load_dataset(*parts)
        except DatasetNotFoundError:
            raise not_found from None


def _hub_error(name: str, error: Exception) -> InputError:
    """Tell in one line why a data set on the hub could not be had, and what to do."""
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

    columns = {column.name: holds_text(column.type) for column in split.features.arrow_schema}
    labels = {name: label for name, label in split.features.items() if hasattr(label, "names")}
    classes = {name: tuple(label.names) for name, label in labels.items()}
    return Source(name, columns, read, classes)


# --- Files and lists ---------------------------------------------------------------------------


def open_file(path: Path) -> Source:
    """Open one .csv, .tsv, .jsonl, .ndjson or .parquet file.

    Raises:
        InputError: if it does not exist, is of another kind, or cannot be read.
    """
    with _reading(path):
        if not path.exists():
            raise _no_such_file(path)
    if path.suffix.lower() not in OPENERS:
        raise InputError(
            f"data files must be {', '.join(OPENERS)}, got {path}; convert or rename it"
        )
    return OPENERS[path.suffix.lower()](path)


def from_memory(name: str, texts: Rows, labels: Rows, pairs: Rows | None = None) -> Source:
    """Make the source of n texts and labels; columns are "text", "text_pair" if given, "label".

    Raises:
        InputError: if one is no list, or they differ in length.
    """
    columns: dict[str, list[Any]] = {}
    for column, values in {"text": texts, "text_pair": pairs, "label": labels}.items():
        if values is None:
            continue
        if isinstance(values, str):
            raise InputError(f"{column}s of {name} must be a list with an entry a row, got a str")
        plain = values.tolist() if hasattr(values, "tolist") else values
        columns[column] = [
            value.item() if isinstance(value, np.generic) else value for value in plain
        ]
        if len(columns[column]) != len(columns["text"]):
            raise InputError(
                f"every row of {name} needs a text and a label: "
                f"got {len(columns['text'])} texts and {len(columns[column])} {column}s"
            )
    return Source(name, dict.fromkeys(columns, True), lambda wanted: Table(name, columns))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what the system says about an unreadable path into one line."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, line with its end) of a text file that must be clean UTF-8."""
    with _reading(path), path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise InputError(
                    f"text files must be UTF-8, {path} is UTF-16; "
                    "convert it, for example with `iconv -f UTF-16 -t UTF-8`"
                )
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if b"\0" in line:
                raise InputError(
                    f"text files must not hold NUL bytes, {path} has one in line {number}; "
                    "remove it, or convert the file to UTF-8 if it is UTF-16"
                )
            try:
                decoded = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"text files must be UTF-8, {path} has the byte 0x{line[error.start]:02x} in "
                    f"line {number}; convert it, for example with `iconv -f CP1252 -t UTF-8`"
                ) from error
            yield number, decoded


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (first line, cells) of each row, quoted as RFC 4180 says; blank lines are skipped."""
    reader = csv.reader((line for _, line in _lines(path)), strict=True)
    start = 1
    try:
        for cells in reader:
            if cells:
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path} is not valid CSV in the row of line {start}: {error}; "
            'quote a field as "...", and a quote in it as ""'
        ) from error


def _tsv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of each row; quotes are ordinary text, blank lines are skipped."""
    for number, line in _lines(path):
        line = line.removesuffix("\n").removesuffix("\r")
        if line:
            yield number, line.split("\t")


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let csv read fields of any length: its limit is 128 KiB, and one for the whole process."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _cell_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, cells by column) of each row of a CSV or TSV file."""
    rows = (_tsv_rows if path.suffix.lower() == ".tsv" else _csv_rows)(path)
    names = next(rows, (0, []))[1]
    if not names:
        raise InputError(f"{path} is empty; its first line must name the columns")
    _check_unique(path, names)
    if len(names) == 1 and re.search(r"[;\t]", names[0]):
        raise InputError(
            f"columns must be separated by commas (.csv) or tabs (.tsv), the first line of {path} "
            f"is {names[0]!r:.60}; save it so, or rename a file of tabs to .tsv"
        )
    line = 0
    for line, cells in rows:
        if len(cells) != len(names):
            raise InputError(
                f"every row must have as many fields as the header: {path} has {len(names)} "
                f"columns, but {len(cells)} field{'s'[: len(cells) != 1]} in line {line}; "
                "mend the line"
            )
        yield line, dict(zip(names, cells, strict=True))
    if not line:
        raise InputError(f"{path} has no rows; it needs some below the column names")


def json_record(line: str | bytes, path: str | Path, number: int) -> dict[str, Any]:
    """Read a line of a file with one JSON object a line.

    Raises:
        InputError: if it is not one.
    """
    rule = f"{path} must hold one JSON object a line, line {number} is"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise InputError(f"{rule} not JSON: {reason}") from error
    if not isinstance(record, dict):
        raise InputError(f"{rule} a {type(record).__name__}")
    return record


def _json_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, values by key) of a file with one JSON object a line; blank ones are skipped."""
    for number, line in _lines(path):
        if not line.strip():
            continue
        yield number, json_record(line, path, number)


def _open_text(path: Path) -> Source:
    """Open a CSV, TSV or JSONL file."""
    is_json = path.suffix.lower() in (".jsonl", ".ndjson")
    records = _json_records if is_json else _cell_records

    def is_text(values: list[Any]) -> bool:
        strings = bool(values) and all(isinstance(value, str) for value in values)
        return strings and (is_json or not all(map(NUMBER.fullmatch, values)))

    def read(wanted: Sequence[str]) -> Table:
        columns: dict[str, list[Any]] = {name: [] for name in wanted}
        lines = array("q")
        with _long_fields():
            for line, record in records(path):
                for name, values in columns.items():
                    if name not in record:
                        raise InputError(
                            f"every object must have the key {name!r}: {path} lacks it in line "
                            f"{line}, which has {join_names(record)}"
                        )
                    values.append(record[name])
                lines.append(line)
        return Table(str(path), columns, lines, all_strings=not is_json)

    with _long_fields():
        glance = [record for _, record in islice(records(path), GLANCE)]
    present: dict[str, list[Any]] = {}
    for record in glance:  # any object may bring new keys or leave some out
        for name, value in record.items():
            present.setdefault(name, []).extend([] if value is None else [value])
    if not glance:
        raise InputError(f"{path} is empty; it must hold one JSON object a line")
    return Source(str(path), {name: is_text(values) for name, values in present.items()}, read)


def _open_parquet(path: Path) -> Source:
    """Open a Parquet file; one file at a time, so that folder names never become columns."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    @contextmanager
    def opened() -> Iterator[Any]:
        with _reading(path), path.open("rb"):  # the system's own words where it will not open
            pass
        try:
            with ParquetFile(path) as file:
                yield file
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"cannot read {path} as Parquet: {reason}") from error

    def read(wanted: Sequence[str]) -> Table:
        with opened() as file:
            table = file.read(columns=list(wanted))
            return Table(str(path), {name: table[name].to_pylist() for name in wanted})

    with opened() as file:
        schema = file.schema_arrow
    _check_unique(path, schema.names)
    columns = {column.name: holds_text(column.type) for column in schema}
    return Source(str(path), columns, read, class_names_in(schema.metadata))


def class_names_in(metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """Return the class names that the `datasets` library notes in a schema, where it wrote it."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"].items()
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return {}
    return {
        column: tuple(names)
        for column, feature in features
        if isinstance(feature, dict)
        and feature.get("_type") == "ClassLabel"
        and isinstance(names := feature.get("names"), list)
        and names
        and all(isinstance(name, str) for name in names)
    }


def holds_text(arrow: Any) -> bool:
    """Tell whether an Arrow type holds strings."""
    import pyarrow.types as types

    kind = arrow.value_type if types.is_dictionary(arrow) else arrow
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _check_unique(path: Path, names: Sequence[str]) -> None:
    """Refuse column names that occur twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(
                f"column names must differ, {path} has {name!r} {count} times; "
                "rename one (the first line must be a header)"
            )


OPENERS: Mapping[str, Callable[[Path], Source]] = {
    **dict.fromkeys((".csv", ".tsv", ".jsonl", ".ndjson"), _open_text),
    ".parquet": _open_parquet,
}
