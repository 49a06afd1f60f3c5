"""A labelled task: texts, labels and splits, from a file, a folder, the hub, the demo or lists.

Reading goes in three steps. A `_Source` knows the columns of one split and can read some of them
into a `_Table`; the inputs (a row of `KNOWN`, names given by the user, or guesses from the usual
names) say which columns those are; labels and texts are then checked and become a `Split`. Only
the columns in use are kept. This is the only module that knows of pyarrow and `datasets`.
"""

import csv
import json
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from layerscout.errors import InputError, unknown

Kind = Literal["classification", "regression", "multiple_choice"]
Rows = Sequence[Any] | np.ndarray  # an entry a row, as Python users bring it

# --- The words that are understood -------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """A known benchmark task.

    Attributes:
        hub: the repository on the hub, with the configuration where it has several.
        inputs: alternatives (hub copies and local ones name their columns differently), each a
            template of the text and of its pair; several pairs are the choices of one example.
            `{column}` stands for the column, `{column[0]}` for an item of a list, and
            `{column:filter}` applies one of `FILTERS`.
        labels: class names by id; none for regression.
        metric: what the benchmark reports.
    """

    hub: str
    inputs: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    metric: str = "accuracy"


SENTENCE = (("{sentence}",), ("{sentence1}",))
SENTENCES = ("{sentence1}", "{sentence2}")
PREMISE = (("{premise}", "{hypothesis}"), SENTENCES)
CHOICE = ("wrong", "right")
TRUTH = ("False", "True")
ENTAILMENT = ("entailment", "not_entailment")

KNOWN: Mapping[str, Known] = {
    "cola": Known(
        "nyu-mll/glue/cola", SENTENCE, ("unacceptable", "acceptable"), "matthews_correlation"
    ),
    "sst2": Known("nyu-mll/glue/sst2", SENTENCE, ("negative", "positive")),
    "mrpc": Known("nyu-mll/glue/mrpc", (SENTENCES,), ("not_equivalent", "equivalent"), "f1"),
    "qqp": Known(
        "nyu-mll/glue/qqp",
        (("{question1}", "{question2}"), SENTENCES),
        ("not_duplicate", "duplicate"),
        "f1",
    ),
    "stsb": Known("nyu-mll/glue/stsb", (SENTENCES,), (), "pearson_spearman"),
    "mnli": Known("nyu-mll/glue/mnli", PREMISE, ("entailment", "neutral", "contradiction")),
    "qnli": Known("nyu-mll/glue/qnli", (("{question}", "{sentence}"), SENTENCES), ENTAILMENT),
    "rte": Known("nyu-mll/glue/rte", (SENTENCES, PREMISE[0]), ENTAILMENT),
    "wnli": Known("nyu-mll/glue/wnli", (SENTENCES,), ("not_entailment", "entailment")),
    "boolq": Known("aps/super_glue/boolq", (("{passage}", "{question}"), SENTENCES), TRUTH),
    "cb": Known("aps/super_glue/cb", PREMISE, ("entailment", "contradiction", "neutral")),
    "copa": Known(
        "aps/super_glue/copa",
        (("{premise:clause} {question:connective}", "{choice1}", "{choice2}"),),
        CHOICE,
    ),
    "multirc": Known(
        "aps/super_glue/multirc",
        (("{paragraph}", "{question} {answer}"), ("{sentence1}", "{question} {answer}")),
        TRUTH,
    ),
    "wic": Known("aps/super_glue/wic", (("{word}: {sentence1}", "{sentence2}"),), TRUTH),
    "wsc": Known(
        "aps/super_glue/wsc",
        (
            ("{text}", '"{span2_text}" refers to "{span1_text}".'),
            ("{sentence1}", '"{span2_text}" refers to "{span1_text}".'),
        ),
        TRUTH,
    ),
    "yelp_polarity": Known("fancyzhx/yelp_polarity", (("{text}",),), ("negative", "positive")),
    "hellaswag": Known(
        "Rowan/hellaswag", (("{ctx}", *(f"{{endings[{item}]}}" for item in range(4))),), CHOICE
    ),
    "cosmos_qa": Known(
        "allenai/cosmos_qa",
        (("{context}", *(f"{{question}} {{answer{item}}}" for item in range(4))),),
        CHOICE,
    ),
}

# Names from before the hub's data sets had owners.
OLD_HUB_NAMES = {"glue": "nyu-mll/glue", "super_glue": "aps/super_glue"} | {
    known.hub.split("/")[1]: known.hub for known in KNOWN.values() if known.hub.count("/") == 1
}

TEXT_NAMES = ("text", "sentence", "sentence1", "review", "content", "document", "comment", "tweet")
PAIR_NAMES = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "passage"),
    ("question", "sentence"),
    ("text", "text_pair"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
)
LABEL_NAMES = (
    "label",
    "labels",
    "target",
    "class",
    "sentiment",
    "category",
    "gold_label",
    "intent",
)
VALIDATION_NAMES = ("validation", "validation_matched", "dev", "dev_matched", "valid", "val")

INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
SURROGATE = re.compile("[\ud800-\udfff]")
SLOT = re.compile(r"\{(\w+)(?:\[(\d+)\])?(?::(\w+))?\}")

# How many rows are looked at to tell columns of text from columns of numbers.
GLANCE = 100

# --- The task ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Split:
    """Some labelled rows of a task, in the order of the file.

    Attributes:
        texts: n strings.
        pairs: the second texts of the same n rows, or None.
        labels: class ids, int64 (n,), or targets, float64 (n,), for regression.
        groups: int64 (n,), or None; rows with the same number are the choices of one example.
    """

    texts: Sequence[str]
    pairs: Sequence[str] | None
    labels: np.ndarray
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.texts)

    def take(self, rows: np.ndarray) -> "Split":
        """Return the given rows, in the given order.

        Args:
            rows: row numbers (m,), counted from 0.
        """
        return Split(
            texts=[self.texts[row] for row in rows],
            pairs=None if self.pairs is None else [self.pairs[row] for row in rows],
            labels=self.labels[rows],
            groups=None if self.groups is None else self.groups[rows],
        )


@dataclass(frozen=True)
class Task:
    """A labelled task.

    Attributes:
        name: the known task, or else the name of the file, folder or hub data set.
        kind: "classification", "regression" or "multiple_choice" (a row per example and choice,
            labelled wrong or right).
        labels: class names by id; none for regression.
        metric: "accuracy", "f1", "matthews_correlation" or "pearson_spearman".
        train: what is learnt from.
        validation: what is held out, or None.
        columns: what was read as "text", "text_pair" and "label": a column's name, or for known
            tasks a template.
        warnings: what was accepted but should be known, a line each.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    metric: str
    train: Split
    validation: Split | None
    columns: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(
        cls,
        data: str | Path,
        *,
        task: str | None = None,
        text: str | None = None,
        text_pair: str | None = None,
        label: str | None = None,
        regression: bool = False,
        validation: str | Path | float | int | None = None,
        seed: int = 0,
    ) -> "Task":
        """Read a task from a file, a folder of splits, the hub or the demo.

        Args:
            data: a .csv, .tsv, .jsonl, .ndjson or .parquet file; a folder with one file `train.*`
                and perhaps one `validation.*`; the word "demo" (`./demo` for a folder of that
                name); or a hub data set as `name[/config]`. A path that exists goes first.
            task: a key of `KNOWN`; data sets on the hub imply theirs, names of files never do.
            text: the column of the texts; guessed from the usual names when not given.
            text_pair: the column of the second texts; needs `text`.
            label: the column of the labels; guessed when not given.
            regression: read the labels as numbers to predict.
            validation: a file to validate on, or the fraction of the training rows to hold out;
                either goes before a validation split that the data brings along.
            seed: draws the held-out rows.

        Raises:
            InputError: if the data cannot be found, read or used; one line says why.
        """
        name, implied, sources = _find(data)
        if task is not None and task not in KNOWN:
            raise unknown("task", task, KNOWN)
        task = task or implied
        fraction = _fraction(validation)
        if validation is not None:
            sources = {"train": sources["train"]}
            if fraction is None:
                sources["validation"] = _open(Path(str(validation)))
        known = KNOWN[task] if task else None
        inputs = _inputs(sources["train"], task, text, text_pair, label)
        loaded = _build(task or name, sources, inputs, known, regression)
        return loaded if fraction is None else _held_out(loaded, fraction, seed)

    @classmethod
    def from_lists(
        cls,
        texts: Rows,
        labels: Rows,
        *,
        pairs: Rows | None = None,
        name: str = "task",
        regression: bool = False,
        validation: tuple[Rows, ...] | float | int | None = None,
        seed: int = 0,
    ) -> "Task":
        """Make a task from lists, with the same checks as for files.

        Args:
            texts: n strings.
            labels: n strings, integers or booleans; n numbers with `regression`.
            pairs: n second texts.
            name: what to call the task.
            regression: read the labels as numbers to predict.
            validation: `(texts, labels)` or `(texts, labels, pairs)` to validate on, or the
                fraction of the rows to hold out.
            seed: draws the held-out rows.

        Raises:
            InputError: if the lists cannot be used.
        """
        sources = {"train": _from_memory(name, texts, labels, pairs)}
        fraction = None
        if isinstance(validation, tuple):
            sources["validation"] = _from_memory(f"{name} (validation)", *validation)
        else:
            fraction = _fraction(validation)
        pair = None if pairs is None else "text_pair"
        inputs = replace(
            _inputs(sources["train"], None, "text", pair, "label"), numbers_as_text=False
        )
        loaded = _build(name, sources, inputs, None, regression)
        return loaded if fraction is None else _held_out(loaded, fraction, seed)


# --- Tables: some columns of one split ---------------------------------------------------------


def _listed(names: Iterable[str]) -> str:
    """List names in one line of bounded length, whatever is in them."""
    first = [name if name.isprintable() else repr(name) for name in islice(names, 21)]
    return ", ".join(f"{name:.60}" for name in first[:20]) + ", ..." * (len(first) > 20) or "none"


@dataclass(frozen=True)
class _Table:
    """Columns of one split; `lines` are the rows' line numbers when it is a text file."""

    name: str
    columns: Mapping[str, list[Any]]
    lines: Sequence[int] | None = None
    all_strings: bool = False  # CSV and TSV do not tell 1 from "1"

    def fault(self, rule: str, found: str, column: str, row: int, remedy: str) -> InputError:
        """Build the error for a value that breaks a rule, saying where it is in the file."""
        where = f"line {self.lines[row]}" if self.lines else f"row {row} (counted from 0)"
        return InputError(
            f"{rule}: {self.name} has {found} in {where}, column {column!r}; {remedy}"
        )


@dataclass(frozen=True)
class _Source:
    """One split before it is read: its columns, whether each holds text, and how to read some."""

    name: str
    columns: Mapping[str, bool]
    read: Callable[[Sequence[str]], _Table]
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # names by column


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
                    f"line {number}; convert it, for example with `iconv -f LATIN1 -t UTF-8`"
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


def _read_rows(path: Path, wanted: Sequence[str] | None, limit: int | None) -> _Table:
    """Read columns of a CSV or TSV file: the wanted or all, of the first `limit` rows or all."""
    rows = (_tsv_rows if path.suffix.lower() == ".tsv" else _csv_rows)(path)
    with _long_fields():
        names = next(rows, (0, []))[1]
        if not names:
            raise InputError(f"{path} is empty; its first line must name the columns")
        _check_unique(path, names)
        places = {name: names.index(name) for name in (names if wanted is None else wanted)}
        columns: dict[str, list[Any]] = {name: [] for name in places}
        lines = array("q")
        for line, cells in islice(rows, limit):
            if len(cells) != len(names):
                raise InputError(
                    f"every row must have as many fields as the header: {path} has {len(names)} "
                    f"columns, but {len(cells)} field{'s'[: len(cells) != 1]} in line {line}"
                )
            lines.append(line)
            for name, place in places.items():
                columns[name].append(cells[place])
    return _Table(str(path), columns, lines, all_strings=True)


def _read_json(path: Path, wanted: Sequence[str] | None, limit: int | None) -> _Table:
    """Read keys of a file with one JSON object a line, as `_read_rows` does columns."""
    lines = array("q")
    columns: dict[str, list[Any]] = {name: [] for name in wanted or ()}
    for number, line in _lines(path):
        if limit is not None and len(lines) == limit:
            break
        if not line.strip():
            continue
        record = _json_object(path, number, line)
        if wanted is None:  # a glance: any row may bring new keys or leave some out
            for name in record:
                columns.setdefault(name, [None] * len(lines))
            for name, values in columns.items():
                values.append(record.get(name))
        else:
            for name, values in columns.items():
                if name not in record:
                    raise InputError(
                        f"every object must have the key {name!r}: {path} lacks it in line "
                        f"{number}, which has {_listed(record)}"
                    )
                values.append(record[name])
        lines.append(number)
    if not lines:
        raise InputError(f"{path} is empty; it must hold one JSON object a line")
    return _Table(str(path), columns, lines)


def _json_object(path: Path, number: int, line: str) -> dict[str, Any]:
    """Parse a line that must hold one JSON object."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise InputError(
            f"{path} must hold one JSON object a line, line {number} is not JSON: {reason}"
        ) from error
    if not isinstance(record, dict):
        raise InputError(
            f"{path} must hold one JSON object a line, line {number} is a {type(record).__name__}"
        )
    return record


def _open_text(path: Path) -> _Source:
    """Open a CSV, TSV or JSONL file."""
    read = _read_json if path.suffix.lower() in (".jsonl", ".ndjson") else _read_rows
    glance = read(path, None, GLANCE)

    def is_text(values: list[Any]) -> bool:
        present = [value for value in values if value is not None]
        strings = bool(present) and all(isinstance(value, str) for value in present)
        return strings and not (glance.all_strings and all(map(NUMBER.fullmatch, present)))

    columns = {name: is_text(values) for name, values in glance.columns.items()}
    return _Source(str(path), columns, lambda wanted: read(path, wanted, None))


def _open_parquet(path: Path) -> _Source:
    """Open a Parquet file; one file at a time, so that folder names never become columns."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    @contextmanager
    def parquet_errors() -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"cannot read {path} as Parquet: {reason}") from error

    def read(wanted: Sequence[str]) -> _Table:
        with parquet_errors(), ParquetFile(path) as file:
            table = file.read(columns=list(wanted))
            return _Table(str(path), {name: table[name].to_pylist() for name in wanted})

    with _reading(path), path.open("rb"):  # the system's own words where it will not open
        pass
    with parquet_errors(), ParquetFile(path) as file:
        schema = file.schema_arrow
    _check_unique(path, schema.names)
    return _Source(str(path), {column.name: _is_text(column.type) for column in schema}, read)


def _is_text(arrow: Any) -> bool:
    """Tell whether an Arrow type holds strings."""
    import pyarrow.types as types

    kind = arrow.value_type if types.is_dictionary(arrow) else arrow
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _check_unique(path: Path, names: Sequence[str]) -> None:
    """Refuse column names that occur twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"column names must differ, {path} has {twice[0]!r} {names.count(twice[0])} times; "
            "rename one (the first line must be a header)"
        )


OPENERS: Mapping[str, Callable[[Path], _Source]] = {
    ".csv": _open_text,
    ".tsv": _open_text,
    ".jsonl": _open_text,
    ".ndjson": _open_text,
    ".parquet": _open_parquet,
}


def _open(path: Path) -> _Source:
    """Open one file, which must exist and be of a readable kind."""
    with _reading(path):
        if not path.exists():
            raise _no_such_file(path)
    if path.suffix.lower() not in OPENERS:
        raise InputError(
            f"data files must be {', '.join(OPENERS)}, got {path}; convert or rename it"
        )
    return OPENERS[path.suffix.lower()](path)


def _from_memory(
    name: str,
    texts: Rows,
    labels: Rows,
    pairs: Rows | None = None,
) -> _Source:
    """Make the source of lists, whose columns are text, text_pair and label."""
    given = {"text": texts, "text_pair": pairs, "label": labels}
    columns: dict[str, list[Any]] = {}
    for column, values in given.items():
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
    return _Source(name, dict.fromkeys(columns, True), lambda wanted: _Table(name, columns))


# --- Finding the splits ------------------------------------------------------------------------


def _find(data: str | Path) -> tuple[str, str | None, dict[str, _Source]]:
    """Return the name of `data`, the known task that it implies, and its splits."""
    if data == "demo":
        return "demo", None, _demo()
    path = Path(data)
    with _reading(path):
        if str(data) and path.is_dir():
            return path.resolve().name, None, _folder(path)
        if path.is_file():
            return path.stem, None, {"train": _open(path)}
    hub = None if isinstance(data, Path) else _hub_name(data)
    if hub is None:
        raise _no_such_file(path)
    config = "" if hub[1] is None else f"/{hub[1].removesuffix('.fixed')}"
    by_hub = {known.hub: name for name, known in KNOWN.items()}
    return str(data), by_hub.get(hub[0] + config, by_hub.get(hub[0])), _hub(*hub)


def _no_such_file(path: Path) -> InputError:
    """Build the error for a path that does not exist, guessing what was meant."""
    if not path.parent.is_dir():
        return InputError(f"no such file: {path}; there is no folder {path.parent} either")
    close = get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=1)
    guess = f"did you mean {path.parent / close[0]}?" if close else "check the spelling"
    return InputError(f"no such file: {path}; {guess}")


def _folder(path: Path) -> dict[str, _Source]:
    """Return the splits of a folder with `train.*` and perhaps `validation.*`."""
    entries = sorted(path.iterdir())
    files = [entry for entry in entries if entry.suffix.lower() in OPENERS]
    train = [file for file in files if file.stem.lower() == "train"]
    validation = [file for file in files if file.stem.lower() in VALIDATION_NAMES]
    if not train:
        raise InputError(
            f"a folder of data needs one train.csv, .tsv, .jsonl or .parquet: {path} has "
            f"{_listed(entry.name for entry in entries)}; "
            "name a file to use it alone"
        )
    for split, found in (("train", train), ("validation", validation)):
        if len(found) > 1:
            raise InputError(
                f"a folder of data needs one {split} file: {path} has "
                f"{_listed(file.name for file in found)}; remove all but one"
            )
    splits = {"train": _open(train[0])}
    return splits | ({"validation": _open(validation[0])} if validation else {})


def _demo() -> dict[str, _Source]:
    """Return the splits of the task that ships with the package: always the same rows."""
    from layerscout.sentences import LABELS, sentences

    texts, labels = zip(*sentences(2500, seed=0), strict=True)
    splits = {
        "train": _from_memory("demo", texts[:2000], labels[:2000]),
        "validation": _from_memory("demo (validation)", texts[2000:], labels[2000:]),
    }
    return {which: replace(split, classes={"label": LABELS}) for which, split in splits.items()}


def _hub_name(data: str) -> tuple[str, str | None] | None:
    """Split `name[/config]` or `owner/name[/config]`; None for what can only be a path."""
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
    return "/".join(parts[:2]), parts[2] if len(parts) == 3 else None


def _hub(name: str, config: str | None) -> dict[str, _Source]:
    """Return the splits of a data set on the hub, downloaded or from the library's cache."""
    import datasets
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        try:
            found = datasets.load_dataset(name, config)
        except datasets.exceptions.DatasetNotFoundError as not_found:
            if config is not None or "/" not in name:
                raise
            try:  # old names have no owner, so what looks like owner/name may be name/config
                found = datasets.load_dataset(*name.split("/"))
            except datasets.exceptions.DatasetNotFoundError:
                raise not_found from None
    except (
        OSError,
        ValueError,
        RuntimeError,
        HTTPError,
        datasets.exceptions.DatasetsError,
    ) as error:
        raise _hub_error(name if config is None else f"{name}/{config}", error) from error
    if "train" not in found:
        raise InputError(f"a data set needs a split `train`: {name} has {_listed(found)}")
    validation = next((split for split in VALIDATION_NAMES if split in found), None)
    splits = {"train": _hub_split(f"{name} (train)", found["train"])}
    if validation is not None:
        splits["validation"] = _hub_split(f"{name} ({validation})", found[validation])
    return splits


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


def _hub_split(name: str, split: Any) -> _Source:
    """Make the source of one split as `datasets` has it."""
    features = split.features
    classes = {
        column: tuple(feature.names)
        for column, feature in features.items()
        if hasattr(feature, "names")
    }
    schema = features.arrow_schema

    def read(wanted: Sequence[str]) -> _Table:
        table = split.select_columns(list(wanted)).with_format("arrow")[:]
        return _Table(name, {column: table[column].to_pylist() for column in wanted})

    columns = {column.name: _is_text(column.type) for column in schema}
    return _Source(name, columns, read, classes)


# --- Which columns -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Template:
    """A text made of columns: `form` has a {} for each slot (column, item, filter)."""

    written: str
    form: str
    slots: tuple[tuple[str, int | None, str | None], ...]


@dataclass(frozen=True)
class _Inputs:
    """What is read: the text, its pairs (several for multiple choice) and the label column."""

    text: _Template
    pairs: tuple[_Template, ...]
    label: str
    numbers_as_text: bool  # the user named the columns

    @property
    def columns(self) -> list[str]:
        """Every column in use, once."""
        slots = [slot[0] for template in (self.text, *self.pairs) for slot in template.slots]
        return list(dict.fromkeys([*slots, self.label]))

    @property
    def written(self) -> dict[str, str]:
        """The same for people, by the names of the options."""
        pairs = {"text_pair": " | ".join(pair.written for pair in self.pairs)} if self.pairs else {}
        return {"text": self.text.written, **pairs, "label": self.label}


def _column(name: str) -> _Template:
    """Make the template that is one column as it is."""
    return _Template(name, "{}", ((name, None, None),))


def _template(written: str) -> _Template:
    """Parse a template of the table of known tasks."""
    slots = tuple(
        (name, int(item) if item else None, chosen or None)
        for name, item, chosen in SLOT.findall(written)
    )
    form = SLOT.sub("{}", written)
    plain = form == "{}" and slots[0][1:] == (None, None)
    return _Template(slots[0][0] if plain else written, form, slots)


def _clause(text: str) -> str:
    """Take the full stop from a sentence that goes on."""
    return text.rstrip(" .")


def _connective(question: str) -> str:
    """Turn the question of COPA into the word between premise and choice."""
    words = {"cause": "because", "effect": "so"}
    if question not in words:
        raise InputError(f"`question` must be 'cause' or 'effect', got {question!r}")
    return words[question]


FILTERS: Mapping[str, Callable[[str], str]] = {"clause": _clause, "connective": _connective}


def _inputs(
    source: _Source, task: str | None, text: str | None, text_pair: str | None, label: str | None
) -> _Inputs:
    """Decide what to read: columns that the user names, a known task's, or usual names."""
    named = [column for column in (text, text_pair, label) if column is not None]
    for column in named:
        if column not in source.columns:
            raise unknown("column", column, source.columns)
    if len(set(named)) < len(named):
        raise InputError(f"text, pair and label must be different columns, got {', '.join(named)}")
    if text_pair is not None and text is None:
        raise InputError("--text-pair needs --text: name both columns")
    if label is None:
        label = _guess_label(source, named)
    if text is None and task is not None:
        first, *pairs = _known_inputs(source, task)
        return _Inputs(_template(first), tuple(map(_template, pairs)), label, False)
    if task is not None and KNOWN[task].labels == CHOICE:
        raise InputError(f"{task} reads several columns by itself; leave out --text")
    if text is not None:
        columns = [text] if text_pair is None else [text, text_pair]
    else:
        columns = _guess_texts(source, label)
    first_template, *rest = map(_column, columns)
    return _Inputs(first_template, tuple(rest), label, text is not None)


def _known_inputs(source: _Source, task: str) -> tuple[str, ...]:
    """Return the first of a known task's alternatives whose columns are all there."""
    needs = []
    for alternative in KNOWN[task].inputs:
        columns = [slot[0] for written in alternative for slot in _template(written).slots]
        if all(column in source.columns for column in columns):
            return alternative
        needs.append(", ".join(dict.fromkeys(columns)))
    raise InputError(
        f"{task} needs the columns {' or '.join(needs)}: {source.name} has "
        f"{_listed(source.columns)}; rename them, or leave out --task"
    )


def _by_usual_name(columns: Collection[str]) -> dict[str, list[str]]:
    """Group columns by their names without case and surrounding spaces."""
    groups: dict[str, list[str]] = {}
    for column in columns:
        groups.setdefault(column.strip().lower(), []).append(column)
    return groups


def _guess_label(source: _Source, taken: Collection[str]) -> str:
    """Find the one column with a label's usual name."""
    usual = _by_usual_name([column for column in source.columns if column not in taken])
    found = [column for name in LABEL_NAMES for column in usual.get(name, [])]
    if len(found) == 1:
        return found[0]
    raise InputError(
        f"cannot tell which column holds the labels: {source.name} has "
        f"{_listed(source.columns)}; name it with --label"
    )


def _guess_texts(source: _Source, label: str) -> list[str]:
    """Find the one column, or pair of columns, with the usual names; else the one with strings."""
    usual = _by_usual_name([column for column in source.columns if column != label])
    found = [
        [first, second]
        for one, other in PAIR_NAMES
        for first in usual.get(one, [])
        for second in usual.get(other, [])
    ]
    paired = {column for pair in found for column in pair}
    singles = [column for name in TEXT_NAMES for column in usual.get(name, [])]
    found += [[column] for column in singles if column not in paired]
    if not found:
        found = [[column] for column, text in source.columns.items() if text and column != label]
    if len(found) == 1:
        return found[0]
    raise InputError(
        f"cannot tell which column holds the texts: {source.name} has "
        f"{_listed(source.columns)}; name it with --text, and a second one with --text-pair"
    )


# --- From tables to splits ---------------------------------------------------------------------


def _build(
    name: str,
    sources: Mapping[str, _Source],
    inputs: _Inputs,
    known: Known | None,
    regression: bool,
) -> Task:
    """Read every split, the training one first, and put the task together."""
    if regression and known is not None and known.labels:
        raise InputError(f"{name} has classes, not numbers; leave out --regression")
    kind: Kind = "multiple_choice" if len(inputs.pairs) > 1 else "classification"
    if regression or (known is not None and not known.labels):
        kind = "regression"
    warnings: list[str] = []
    labels: tuple[str, ...] = ()
    splits: dict[str, Split] = {}
    for which, source in sources.items():
        table = _read(source, inputs)
        if kind == "regression":
            ids = _targets(table, inputs.label)
            if which == "train":
                _check_varied(table, inputs.label, ids)
        elif kind == "multiple_choice":
            ids, labels = _choices(table, inputs.label, len(inputs.pairs)), CHOICE
        else:
            fixed = known.labels if known else source.classes.get(inputs.label)
            names, order = _class_names(table, inputs.label, fixed)
            if which == "train":
                labels = _classes(table, inputs.label, names, order, known, warnings)
            ids = _ids(table, inputs.label, names, labels)
        splits[which] = _split(table, inputs, ids, warnings)
    metric = "pearson_spearman" if kind == "regression" else "accuracy"
    return Task(
        name=name,
        kind=kind,
        labels=labels,
        metric=known.metric if known else metric,
        train=splits["train"],
        validation=splits.get("validation"),
        columns=inputs.written,
        warnings=tuple(warnings),
    )


def _read(source: _Source, inputs: _Inputs) -> _Table:
    """Read the columns in use, which must be there and have rows."""
    for column in inputs.columns:
        if column not in source.columns:
            raise unknown(f"column of {source.name}", column, source.columns)
    table = source.read(inputs.columns)
    if not table.columns[inputs.label]:
        raise InputError(f"{source.name} has no rows; it needs some below the column names")
    return table


def _split(table: _Table, inputs: _Inputs, ids: np.ndarray, warnings: list[str]) -> Split:
    """Write out the texts; with several pairs, one row for each of an example's choices."""
    templates = (inputs.text, *inputs.pairs)
    texts, *choices = (_render(table, template, inputs.numbers_as_text) for template in templates)
    empty = np.zeros(len(texts), dtype=bool)
    for template, column in zip(templates, (texts, *choices), strict=True):
        blank = np.fromiter((not text or text.isspace() for text in column), bool, len(column))
        if blank.all():
            raise InputError(
                f"texts must not all be empty: {template.written!r} is, in every row of "
                f"{table.name}; name another column with --text"
            )
        empty |= blank
    if empty.any():
        count = np.count_nonzero(empty)
        warnings.append(f"{count} of {len(texts)} rows of {table.name} have an empty text")
    if len(choices) < 2:
        return Split(texts, choices[0] if choices else None, ids)
    return Split(
        texts=[text for text in texts for _ in choices],
        pairs=[choice for example in zip(*choices, strict=True) for choice in example],
        labels=ids,
        groups=np.repeat(np.arange(len(texts)), len(choices)),
    )


def _render(table: _Table, template: _Template, numbers: bool) -> list[str]:
    """Fill a template for every row."""
    slots = []
    for column, item, chosen in template.slots:
        values = table.columns[column]
        if item is not None:
            values = _items(table, column, item)
        texts = _texts(table, column, values, numbers)
        slots.append(list(map(FILTERS[chosen], texts)) if chosen else texts)
    if template.form == "{}":
        return slots[0]
    return [template.form.format(*row) for row in zip(*slots, strict=True)]


def _items(table: _Table, column: str, item: int) -> list[Any]:
    """Take one item of every list of a column."""
    values = table.columns[column]
    for row, value in enumerate(values):
        if not isinstance(value, list) or len(value) <= item:
            rule = f"the choices must be a list of at least {item + 1} texts"
            raise table.fault(rule, f"{value!r:.60}", column, row, "correct or drop the row")
    return [value[item] for value in values]


def _is_missing(value: Any) -> bool:
    """Tell whether a value is null or not-a-number."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _texts(table: _Table, column: str, values: list[Any], numbers: bool) -> list[str]:
    """Check that the values of a column are whole texts."""
    missing = [row for row, value in enumerate(values) if _is_missing(value)]
    if missing:
        found = f"{len(missing)} null, the first"
        raise table.fault("every row needs a text", found, column, missing[0], "fill or drop them")
    kinds = set(map(type, values))
    if numbers and kinds <= {int, float}:
        return list(map(str, values))
    if kinds != {str}:
        values = [str(value) if isinstance(value, str) else value for value in values]
    for row, value in enumerate(values):
        if not isinstance(value, str):
            found = f"{value!r:.60} ({type(value).__name__})"
            remedy = "name another column with --text (one of numbers is taken when named)"
            raise table.fault("texts must be strings", found, column, row, remedy)
        if not value.isascii() and SURROGATE.search(value):
            found = "half of a surrogate pair"
            raise table.fault("texts must be valid Unicode", found, column, row, "repair the text")
    return values


# --- Labels ------------------------------------------------------------------------------------


def _present(table: _Table, column: str, *, unlabelled: bool = False) -> list[Any]:
    """Return a column of labels after refusing lists and missing ones.

    Args:
        unlabelled: whether -1 too stands for a missing label, as in public test splits.
    """
    values = table.columns[column]
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, str | int | float | Decimal):
            plural = isinstance(value, list | tuple | set | np.ndarray)
            remedy = "multi-label is not supported" if plural else "name another with --label"
            rule = "a label must be one string or number"
            raise table.fault(rule, f"a {type(value).__name__}", column, row, remedy)
    blank = {"", "nan", "NaN"} if table.all_strings else {""}
    gaps = blank | {-1, "-1"} if unlabelled else blank
    missing = [row for row, value in enumerate(values) if _is_missing(value) or value in gaps]
    if missing:
        found = f"{len(missing)} missing{' (empty or -1)' if unlabelled else ''}, the first"
        raise table.fault("every row needs a label", found, column, missing[0], "fill or drop them")
    return values


def _targets(table: _Table, column: str) -> np.ndarray:
    """Return the labels as finite numbers, float64 (n,)."""
    values = _present(table, column)
    targets = np.array([_target(value, table.all_strings) for value in values])
    wrong = np.flatnonzero(~np.isfinite(targets))
    if wrong.size:
        found = f"{values[wrong[0]]!r:.60}"
        remedy = "correct it, or leave out --regression for classes"
        rule = "regression needs finite numbers as labels"
        raise table.fault(rule, found, column, int(wrong[0]), remedy)
    return targets


def _target(value: Any, numbers_are_strings: bool) -> float:
    """Return a label as a number, not-a-number if it is none."""
    if isinstance(value, bool):
        return math.nan
    if isinstance(value, str) and not (numbers_are_strings and NUMBER.fullmatch(value)):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return math.inf


def _check_varied(table: _Table, column: str, targets: np.ndarray) -> None:
    """Refuse to learn a constant."""
    if (targets == targets[0]).all():
        raise InputError(
            f"regression needs labels that differ: column {column!r} of {table.name} is "
            f"{targets[0]:g} in every row; name another column with --label"
        )


def _class_names(
    table: _Table, column: str, fixed: tuple[str, ...] | None
) -> tuple[list[str], tuple[str, ...]]:
    """Return the class name of every row (n,) and the distinct names in the order of their ids.

    Args:
        fixed: class names by id where the task brings them; labels are then ids or names.
    """
    values = _present(table, column, unlabelled=fixed is not None)
    distinct = dict.fromkeys(values)
    if fixed is not None:
        names = {value: fixed[_number(table, column, value, fixed)] for value in distinct}
        return [names[value] for value in values], fixed
    kinds = set(map(type, values))
    if len(kinds) > 1 and kinds & {str, bool}:
        raise InputError(
            f"labels must be of one type: column {column!r} of {table.name} mixes "
            f"{', '.join(sorted(kind.__name__ for kind in kinds))}; write them all as strings"
        )
    numeric = table.all_strings and all(map(NUMBER.fullmatch, distinct))
    if kinds <= {str, bool} and not numeric:
        return list(map(str, values)), tuple(map(str, sorted(distinct)))
    numbers = {value: _whole(table, column, value) for value in distinct}
    names = {value: str(number) for value, number in numbers.items()}
    return [names[value] for value in values], tuple(map(str, sorted(set(numbers.values()))))


def _whole(table: _Table, column: str, value: Any) -> int:
    """Return a number as the integer that it is, or refuse it as a class."""
    if isinstance(value, str) and INTEGER.fullmatch(value) and len(value) < 1000:
        return int(value)
    number = value if isinstance(value, int) else float(value)
    if isinstance(number, float) and not number.is_integer():
        row = table.columns[column].index(value)
        remedy = "for numbers to predict use --regression, for a known task --task"
        raise table.fault("classes must be strings or integers", str(value), column, row, remedy)
    return int(number)


def _number(table: _Table, column: str, value: Any, names: tuple[str, ...]) -> int:
    """Return the id that a label stands for, where ids and names are fixed."""
    number = -1
    if isinstance(value, str):
        lowered = [name.lower() for name in names]
        if value.strip().lower() in lowered:
            return lowered.index(value.strip().lower())
        if INTEGER.fullmatch(value) and len(value) < 1000:
            number = int(value)
    elif float(value).is_integer():
        number = int(value)
    if not 0 <= number < len(names):
        row = table.columns[column].index(value)
        known = ", ".join(f"{number} {name}" for number, name in enumerate(names))
        rule = f"labels must be ids or names of the task's classes ({known})"
        remedy = "correct it, or leave out --task"
        raise table.fault(rule, f"{value!r:.60}", column, row, remedy)
    return number


def _choices(table: _Table, column: str, count: int) -> np.ndarray:
    """Return 1 for the right and 0 for each wrong choice, (n * count,), example by example."""
    numbers = tuple(str(number) for number in range(count))
    right = np.array(_class_names(table, column, numbers)[0], dtype=np.int64)
    return np.eye(count, dtype=np.int64)[right].reshape(-1)


def _classes(
    table: _Table,
    column: str,
    names: list[str],
    order: tuple[str, ...],
    known: Known | None,
    warnings: list[str],
) -> tuple[str, ...]:
    """Check the classes of the training split and return them in the order of their ids."""
    counts = Counter(names)
    absent = [name for name in order if name not in counts]
    if absent and known is not None:
        raise InputError(
            f"every class of the task must occur: {table.name} has no {absent[0]!r}; "
            "leave out --task to use the labels as they are"
        )
    if absent:
        warnings.append(f"classes without an example in {table.name}: {_listed(absent)}")
    if len(counts) == 1:
        raise InputError(
            f"a task needs at least 2 classes: column {column!r} of {table.name} has only "
            f"{names[0]!r:.60}; name another column with --label, or add rows"
        )
    alone = [name for name in order if counts[name] == 1]
    if alone:
        numeric = all(map(NUMBER.fullmatch, counts))
        more = f" and of {len(alone) - 1} other classes" if len(alone) > 1 else ""
        remedy = "; for numbers to predict use --regression" if numeric else ""
        found = f"1 of {alone[0]!r:.60}{more}"
        remedy = f"drop or merge such classes{remedy}"
        rule = "every class needs at least 2 examples"
        raise table.fault(rule, found, column, names.index(alone[0]), remedy)
    return tuple(name for name in order if name in counts)


def _ids(table: _Table, column: str, names: list[str], labels: tuple[str, ...]) -> np.ndarray:
    """Return class ids, int64 (n,); every name must be one of the training split's."""
    numbers = {name: number for number, name in enumerate(labels)}
    for row, name in enumerate(names):
        if name not in numbers:
            rule = "every class must occur in training"
            remedy = f"training has {_listed(labels)}"
            raise table.fault(rule, f"{name!r:.60}", column, row, remedy)
    return np.array([numbers[name] for name in names], dtype=np.int64)


# --- Held-out parts, samples and batches -------------------------------------------------------


def _fraction(validation: str | Path | float | int | None) -> float | None:
    """Return the fraction that `validation` stands for, or None where it is a file or nothing."""
    if validation is None or isinstance(validation, Path):
        return None
    if isinstance(validation, str) and not NUMBER.fullmatch(validation):
        return None
    fraction = float(validation)
    if not 0 < fraction < 1:
        raise InputError(
            f"`validation` must be a file or a fraction between 0 and 1, got {validation}; "
            "0.1 holds out a tenth"
        )
    return fraction


def _held_out(task: Task, fraction: float, seed: int) -> Task:
    """Replace the validation split by a part of the training split."""
    train, validation = hold_out(task.train, fraction, seed)
    return replace(task, train=train, validation=validation)


def hold_out(split: Split, fraction: float, seed: int) -> tuple[Split, Split]:
    """Cut a split in two: what stays, and a stratified part of about `fraction` held out.

    Both keep the order of the rows. Each class is held out in proportion, to within one example,
    but keeps 2 where it is. Rows of one group stay together.

    Args:
        fraction: between 0 and 1.
        seed: the same one draws the same rows.

    Raises:
        InputError: if either part would be empty, or the fraction is out of range.
    """
    if not 0 < fraction < 1:
        raise InputError(f"`fraction` must be between 0 and 1, got {fraction}; 0.1 is a tenth")
    example, strata = _strata(split)
    counts = np.bincount(strata)
    total = round(fraction * len(strata))
    seats = np.minimum(_apportion(counts, total, floor=0), np.maximum(counts - 2, 0))
    if not 0 < seats.sum() < len(strata):
        raise InputError(
            f"holding out {fraction:g} of {len(strata)} examples leaves one part empty (2 of "
            "every class stay); use another fraction or more data"
        )
    chosen = _draw(strata, seats, seed)[example]
    return split.take(np.flatnonzero(~chosen)), split.take(np.flatnonzero(chosen))


def sample(
    split: Split,
    classes: int,
    *,
    examples: int | None,
    balanced: bool,
    per_class: Sequence[int] | None,
    seed: int,
) -> np.ndarray:
    """Draw examples without replacement and return their row numbers, sorted, int64 (m,).

    The rows are class-proportional (largest remainder), with at least 2 of every class that has
    them. Groups are kept whole: then as many as fit into the number of rows asked for.

    Args:
        split: what is drawn from.
        classes: the number K of classes; 0 for regression, which is drawn evenly.
        examples: how many rows; None for all, or with `balanced` for as many as the smallest class
            allows.
        balanced: equally many of every class: `examples` // K.
        per_class: exactly these numbers, by class id, instead of `examples`.
        seed: the same one draws the same rows.

    Raises:
        InputError: if there are not so many examples, or they would be too few.
    """
    example, strata = _strata(split)
    counts = np.bincount(strata, minlength=0 if split.groups is not None else classes)
    if (balanced or per_class is not None) and (classes == 0 or split.groups is not None):
        raise InputError(
            "--balanced and --per-class need one class an example, not numbers or several choices; "
            "use --examples"
        )
    if per_class is not None:
        seats = _exactly(counts, per_class, examples, balanced)
    elif balanced:
        seats = _equally(counts, examples)
    else:
        seats = _proportionally(counts, len(split), examples)
    return np.flatnonzero(_draw(strata, seats, seed)[example])


def _strata(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Return the example of each row (n,) and the stratum of each example (m,).

    Examples are of one stratum when their rows have the same classes; numbers are all of one.
    """
    numbers = split.labels.dtype.kind == "f"
    classes = np.zeros(len(split), np.int64) if numbers else split.labels
    if split.groups is None:
        return np.arange(len(split)), classes
    example: np.ndarray = np.unique(split.groups, return_inverse=True)[1]
    makeup = np.zeros((example.max() + 1, classes.max() + 1), np.int64)
    np.add.at(makeup, (example, classes), 1)
    return example, np.unique(makeup, axis=0, return_inverse=True)[1].reshape(-1)


def _exactly(
    counts: np.ndarray, per_class: Sequence[int], examples: int | None, balanced: bool
) -> np.ndarray:
    """Check the numbers of examples that were asked for class by class."""
    if balanced or examples is not None:
        raise InputError("--per-class says how many; leave out --examples and --balanced")
    seats = np.array(per_class, dtype=np.int64)
    if len(seats) != len(counts):
        raise InputError(
            f"--per-class needs a number for each of {len(counts)} classes, got {len(seats)}"
        )
    for number, (asked, available) in enumerate(zip(seats, counts, strict=True)):
        if not 0 <= asked <= available:
            raise InputError(
                f"--per-class must be in 0..{available} for class {number}, got {asked}"
            )
    return seats


def _equally(counts: np.ndarray, examples: int | None) -> np.ndarray:
    """Share examples out equally."""
    smallest = int(counts.min())
    each = smallest if examples is None else examples // len(counts)
    if not 2 <= each <= smallest:
        raise InputError(
            f"--balanced needs 2 or more of each of {len(counts)} classes, and class "
            f"{counts.argmin()} has {smallest}: got {each} of each; use --examples "
            f"{2 * len(counts)} to {smallest * len(counts)}, or leave out --balanced"
        )
    return np.full(len(counts), each)


def _proportionally(counts: np.ndarray, rows: int, examples: int | None) -> np.ndarray:
    """Share examples out in proportion, at least 2 to each class that has them.

    Args:
        counts: rows, or groups of rows, of each class.
        rows: all rows; more than all `counts` together where those are of groups.
        examples: the rows asked for.
    """
    if examples is None:
        return counts
    total = int(counts.sum())
    least = int(np.minimum(counts, 2).sum())
    smallest = least * rows // total
    if examples > rows:
        raise InputError(f"--examples must be at most {rows}, all there are; got {examples}")
    if examples < smallest:
        raise InputError(
            f"--examples must be at least {smallest}, 2 of every class; got {examples}"
        )
    return _apportion(counts, max(least, examples * total // rows), floor=2)


def _apportion(counts: np.ndarray, total: int, *, floor: int) -> np.ndarray:
    """Split `total` <= sum of `counts` in proportion by largest remainder, ties to the lower id.

    Args:
        floor: what each gets at least (or all it has); the best served ones pay for it.
    """
    whole, remainder = np.divmod(counts * total, counts.sum())
    seats: np.ndarray = whole.astype(np.int64)
    seats[np.argsort(-remainder, kind="stable")[: total - seats.sum()]] += 1
    least = np.minimum(counts, floor)
    seats = np.maximum(seats, least)
    quota = counts * (total / counts.sum())
    for _ in range(int(seats.sum()) - total):
        seats[np.argmax(np.where(seats > least, seats - quota, -np.inf))] -= 1
    return seats


def _draw(strata: np.ndarray, seats: np.ndarray, seed: int) -> np.ndarray:
    """Choose `seats[s]` examples of every stratum s; return which, bool (m,)."""
    shuffled = np.random.default_rng(seed).permutation(len(strata))
    order = shuffled[np.argsort(strata[shuffled], kind="stable")]
    sizes = np.bincount(strata, minlength=len(seats))
    place = np.arange(len(strata)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen = np.zeros(len(strata), dtype=bool)
    chosen[order[place < np.repeat(seats, sizes)]] = True
    return chosen


def length_batches(lengths: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Cut rows into batches of similar length that fit a budget when padded.

    Rows go longest first, equal ones in their order. A batch has rows x longest length <=
    `tokens`, or is one row.

    Args:
        lengths: tokens of each row, (n,).
        tokens: padded tokens of a batch at most.

    Returns:
        Row numbers of each batch; together every row once.

    Raises:
        InputError: if `tokens` is less than 1.
    """
    if tokens < 1:
        raise InputError(f"the token budget of a batch must be at least 1, got {tokens}")
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    batches = []
    start = 0
    while start < len(order):
        rows = max(1, tokens // max(1, int(lengths[order[start]])))
        batches.append(order[start : start + rows])
        start += rows
    return batches
