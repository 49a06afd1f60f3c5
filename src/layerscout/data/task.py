"""A labelled task: texts, labels and splits, from a file, a folder, the hub, the demo or lists."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np

from layerscout.data.columns import (
    CHOICE,
    KNOWN,
    SURROGATE,
    Inputs,
    Known,
    choose_inputs,
    column_template,
    find_known_task,
    is_missing,
    render,
)
from layerscout.data.sampling import Split, hold_out
from layerscout.data.tables import (
    NUMBER,
    Rows,
    Source,
    Table,
    find,
    from_memory,
    join_names,
    open_file,
)
from layerscout.runtime import InputError, unknown

Kind = Literal["classification", "regression", "multiple_choice"]

INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
CODE = re.compile(r"[+-]?0\d", re.ASCII)


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
        origin: what was given to make it ("data", "validation", "task", "text", "text_pair",
            "label", "regression"), and the "validation_seed" that drew held-out rows; None where
            there was nothing.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    metric: str
    train: Split
    validation: Split | None
    columns: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    origin: Mapping[str, str | float | bool | None] = field(default_factory=dict)

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
        name, hub, sources = find(data)
        if task is not None and task not in KNOWN:
            raise unknown("task", task, KNOWN)
        if task is None and hub is not None:
            task = find_known_task(hub)
        fraction = _fraction(validation)
        if validation is not None:
            sources = {"train": sources["train"]}
            if fraction is None:
                sources["validation"] = open_file(Path(str(validation)))
        inputs = choose_inputs(sources["train"], task, text, text_pair, label)
        known = None if task is None else KNOWN[task]
        loaded = _build(task or name, sources, inputs, known, regression)
        given = None if validation is None else str(validation)
        origin: dict[str, str | float | bool | None]
        origin = {"data": str(data), "validation": given, "task": task}
        origin |= {"text": text, "text_pair": text_pair, "label": label, "regression": regression}
        loaded = replace(loaded, origin=origin)
        return loaded if fraction is None else loaded.hold_out(fraction, seed)

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
        sources = {"train": from_memory(name, texts, labels, pairs)}
        fraction = None
        if isinstance(validation, tuple):
            sources["validation"] = from_memory(f"{name} (validation)", *validation)
        else:
            fraction = _fraction(validation)
        texts_in = ("text",) if pairs is None else ("text", "text_pair")
        inputs = Inputs(tuple(map(column_template, texts_in)), "label")
        loaded = _build(name, sources, inputs, None, regression)
        return loaded if fraction is None else loaded.hold_out(fraction, seed)

    def hold_out(self, fraction: float, seed: int) -> "Task":
        """Give the task with a part of the training rows, drawn by class, as its validation split.

        Raises:
            InputError: if `fraction` is not between 0 and 1, or leaves either part empty.
        """
        train, validation = hold_out(self.train, fraction, seed)
        origin = {**self.origin, "validation": fraction, "validation_seed": seed}
        return replace(self, train=train, validation=validation, origin=origin)


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


# --- Splits ------------------------------------------------------------------------------------


def _build(
    name: str, sources: Mapping[str, Source], inputs: Inputs, known: Known | None, regression: bool
) -> Task:
    """Read every split, the training one first, and put the task together."""
    kind = _kind(name, inputs, known, regression)
    metric = "pearson_spearman" if kind == "regression" else "accuracy"
    labels: tuple[str, ...] = CHOICE if kind == "multiple_choice" else ()
    warnings: list[str] = []
    splits: dict[str, Split] = {}
    for which, source in sources.items():
        table = _read(source, inputs)
        if kind == "regression":
            ids = _targets(table, inputs.label)
            if which == "train":
                _check_varied(table, inputs.label, ids)
        elif kind == "multiple_choice":
            ids = _choices(table, inputs.label, len(inputs.templates) - 1)
        else:
            fixed = known.labels if known else _brought(sources["train"], source, inputs.label)
            names, order = _class_names(table, inputs.label, fixed)
            if which == "train":
                labels = _classes(table, inputs.label, names, order, known, warnings)
            ids = _ids(table, inputs.label, names, labels)
        splits[which] = _split(table, inputs, ids, warnings)
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


def _kind(name: str, inputs: Inputs, known: Known | None, regression: bool) -> Kind:
    """Tell what kind of task is read."""
    if regression and known is not None and known.labels:
        raise InputError(f"{name} has classes, not numbers; leave out --regression")
    if regression or (known is not None and not known.labels):
        return "regression"
    return "multiple_choice" if len(inputs.templates) > 2 else "classification"


def _brought(train: Source, source: Source, column: str) -> tuple[str, ...] | None:
    """Return the class names by id that the data bring along for a split, or None.

    A split without any, such as a CSV to validate on, is read with those of training. Where
    training has none, its labels are the names, and those of other splits would match nothing.
    """
    names = train.classes.get(column)
    return None if names is None else source.classes.get(column, names)


def _read(source: Source, inputs: Inputs) -> Table:
    """Read the columns in use, which must be there and have rows."""
    for column in inputs.columns:
        if column not in source.columns:
            raise unknown(f"column of {source.name}", column, source.columns)
    table = source.read(inputs.columns)
    if not table.columns[inputs.label]:
        raise InputError(f"{source.name} has no rows; it needs some below the column names")
    return table


def _split(table: Table, inputs: Inputs, ids: np.ndarray, warnings: list[str]) -> Split:
    """Write out the texts; with several pairs, one row for each of an example's choices."""
    written = [render(table, template, inputs.numbers_as_text) for template in inputs.templates]
    texts, *choices = written
    empty = np.zeros(len(texts), dtype=bool)
    for template, column in zip(inputs.templates, written, strict=True):
        blank = np.array([not text or text.isspace() for text in column])
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


# --- Labels ------------------------------------------------------------------------------------


def _present(table: Table, column: str, *, unlabelled: bool = False) -> list[Any]:
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
        if isinstance(value, str) and not value.isascii() and SURROGATE.search(value):
            found = "half of a surrogate pair"
            raise table.fault("labels must be valid Unicode", found, column, row, "repair it")
        if table.all_strings and value is not None and re.fullmatch(r"\[.*\]", str(value)):
            remedy = "multi-label is not supported"
            raise table.fault("a label must be one string or number", "a list", column, row, remedy)
    blank = {"nan", "NaN"} if table.all_strings else set()
    gaps = blank | {-1, "-1"} if unlabelled else blank
    missing = [
        row
        for row, value in enumerate(values)
        if is_missing(value) or value in gaps or (isinstance(value, str) and not value.strip())
    ]
    if missing:
        found = f"{len(missing)} missing{' (empty or -1)' if unlabelled else ''}, the first"
        raise table.fault("every row needs a label", found, column, missing[0], "fill or drop them")
    return values


def _targets(table: Table, column: str) -> np.ndarray:
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


def _check_varied(table: Table, column: str, targets: np.ndarray) -> None:
    """Refuse to learn a constant."""
    if (targets == targets[0]).all():
        raise InputError(
            f"regression needs labels that differ: column {column!r} of {table.name} is "
            f"{targets[0]:g} in every row; name another column with --label"
        )


def _class_names(
    table: Table, column: str, fixed: tuple[str, ...] | None
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
    # A number with a leading zero is a code, such as 01 beside 1.
    codes = table.all_strings and any(map(CODE.match, distinct))
    numeric = table.all_strings and not codes and all(map(NUMBER.fullmatch, distinct))
    if kinds <= {str, bool} and not numeric:
        return list(map(str, values)), tuple(map(str, sorted(distinct)))
    numbers = {value: _whole(table, column, value) for value in distinct}
    names = {value: str(number) for value, number in numbers.items()}
    return [names[value] for value in values], tuple(map(str, sorted(set(numbers.values()))))


@dataclass(frozen=True)
class Classes:
    """The classes of labels that were counted.

    Attributes:
        labels: class names by id.
        ids: the id of each label that was counted.
        counts: examples by id.
        warnings: what was accepted but should be known.
    """

    labels: tuple[str, ...]
    ids: tuple[int, ...]
    counts: tuple[int, ...]
    warnings: tuple[str, ...]


def count_classes(
    counted: Sequence[tuple[Any, int]], source: Source, column: str, task: str | None
) -> Classes:
    """Give the classes of labels that were counted, with the checks of `Task.load`.

    Args:
        counted: every label, and how often it occurs.
        source: where they come from.
        column: their column.
        task: a key of `KNOWN`, or None.

    Raises:
        InputError: if they are no classes of a task.
    """
    known = None if task is None else KNOWN[task]
    fixed = known.labels if known else _brought(source, source, column)
    # Two rows of a label stand for many, which is all that the checks count.
    first = [value for value, _ in counted]
    again = [value for value, count in counted if count > 1]
    table = Table(source.name, {column: first + again}, located=False)
    warnings: list[str] = []
    names, order = _class_names(table, column, fixed)
    labels = _classes(table, column, names, order, known, warnings)
    ids = _ids(table, column, names, labels)[: len(first)]
    counts = np.bincount(ids, [count for _, count in counted], len(labels))
    return Classes(labels, tuple(ids.tolist()), tuple(counts.astype(int).tolist()), tuple(warnings))


def _whole(table: Table, column: str, value: Any) -> int:
    """Return a number as the integer that it is, or refuse it as a class."""
    if isinstance(value, str) and INTEGER.fullmatch(value) and len(value) < 1000:
        return int(value)
    number = value if isinstance(value, int) else float(value)
    if isinstance(number, float) and not number.is_integer():
        row = table.columns[column].index(value)
        remedy = "for numbers to predict use --regression, for a known task --task"
        raise table.fault("classes must be strings or integers", str(value), column, row, remedy)
    return int(number)


def _number(table: Table, column: str, value: Any, names: tuple[str, ...]) -> int:
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


def _choices(table: Table, column: str, count: int) -> np.ndarray:
    """Return 1 for the right and 0 for each wrong choice, (n * count,), example by example."""
    numbers = tuple(str(number) for number in range(count))
    right = np.array(_class_names(table, column, numbers)[0], dtype=np.int64)
    return np.eye(count, dtype=np.int64)[right].reshape(-1)


def _classes(
    table: Table,
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
        warnings.append(f"classes without an example in {table.name}: {join_names(absent)}")
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


def _ids(table: Table, column: str, names: list[str], labels: tuple[str, ...]) -> np.ndarray:
    """Return class ids, int64 (n,); every name must be one of the training split's."""
    numbers = {name: number for number, name in enumerate(labels)}
    for row, name in enumerate(names):
        if name not in numbers:
            rule = "every class must occur in training"
            remedy = f"training has {join_names(labels)}"
            raise table.fault(rule, f"{name!r:.60}", column, row, remedy)
    return np.array([numbers[name] for name in names], dtype=np.int64)
