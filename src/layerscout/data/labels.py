"""Labels as they are written, read as numbers to predict, classes or right choices."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from layerscout.data.columns import SURROGATE
from layerscout.data.known_tasks import Known
from layerscout.data.tables import FILL, NUMBER, Table, join_names
from layerscout.errors import InputError
from layerscout.files import read_json

# What people write where there is no label; "NaN" is refused as missing.
ABSENT = ("na", "n/a", "none", "null", "-", "?")
# What stands between several labels in a string.
SEPARATORS = ("|", ";", ",")
INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
CODE = re.compile(r"[+-]?0\d", re.ASCII)
SEVERAL = (
    "for several labels per text write a list in every row, and leave out --task and --regression"
)


def _list_values(table: Table, column: str, *, unlabelled: bool = False) -> list[Any]:
    """Return a column of labels after refusing lists and missing ones.

    Args:
        unlabelled: whether -1 too stands for a missing label, as in public test splits.
    """
    values = table.columns[column]
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, str | int | float | Decimal):
            plural = isinstance(value, list | tuple | set | np.ndarray)
            remedy = SEVERAL if plural else "name another with --label"
            rule = "a label must be one string or number"
            raise table.fault(rule, f"a {type(value).__name__}", column, row, remedy)
        if isinstance(value, str) and not value.isascii() and SURROGATE.search(value):
            actual = "half of a surrogate pair"
            raise table.fault("labels must be valid Unicode", actual, column, row, "repair it")
        if table.all_strings and value is not None and re.fullmatch(r"\[.*\]", str(value)):
            rule = "a label must be one string or number"
            raise table.fault(rule, "a list", column, row, SEVERAL)
    if missing := table.find_missing(column, (-1, "-1") if unlabelled else ()):
        actual = f"{len(missing)} missing{' (empty or -1)' if unlabelled else ''}, the first"
        raise table.fault("every row needs a label", actual, column, missing[0], FILL)
    return values


def read_numbers(table: Table, column: str) -> np.ndarray:
    """Return the labels as finite numbers, float64 (n,)."""
    values = _list_values(table, column)
    targets = np.array([_target(value, table.all_strings) for value in values])
    wrong = np.flatnonzero(~np.isfinite(targets))
    if wrong.size:
        actual = f"{values[wrong[0]]!r:.60}"
        remedy = "correct it, or leave out --regression for classes"
        rule = "regression needs finite numbers as labels"
        raise table.fault(rule, actual, column, int(wrong[0]), remedy)
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


def check_varied(table: Table, column: str, targets: np.ndarray) -> None:
    """Raise if all targets are the same."""
    if (targets == targets[0]).all():
        raise InputError(
            f"regression needs labels that differ: column {column!r} of {table.name} is "
            f"{targets[0]:g} in every row; name another column with --label"
        )


def name_classes(
    table: Table, column: str, fixed: tuple[str, ...] | None
) -> tuple[list[str], tuple[str, ...]]:
    """Return the class name of every row (n,) and the distinct names in the order of their ids.

    Args:
        fixed: class names by id where the task brings them; labels are then ids or names.
    """
    values = _list_values(table, column, unlabelled=fixed is not None)
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


def read_classes(model: str | Path) -> tuple[str, ...]:
    """Read the classes of a tuned model, by id, from its folder; empty if it has none."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        config = read_json(Path(model) / "config.json")
        if "layerscout" in config:  # what was trained apart from its base
            return tuple(map(str, config["labels"]))
        names = config["id2label"]
        return tuple(str(names[str(number)]) for number in range(len(names)))
    return ()


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
    if value in names:
        return names.index(value)
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
        known = join_names(f"{number} {name}" for number, name in enumerate(names))
        rule = f"labels must be ids or names of the task's classes ({known})"
        remedy = "correct it, or leave out --task"
        raise table.fault(rule, f"{value!r:.60}", column, row, remedy)
    return number


def mark_choices(table: Table, column: str, count: int) -> np.ndarray:
    """Return 1 for the right and 0 for each wrong choice, (n * count,), example by example."""
    numbers = tuple(str(number) for number in range(count))
    right = np.array(name_classes(table, column, numbers)[0], dtype=np.int64)
    return np.eye(count, dtype=np.int64)[right].reshape(-1)


def settle_classes(
    table: Table,
    column: str,
    names: list[str],
    order: tuple[str, ...],
    known: Known | None,
    warnings: list[str],
) -> tuple[str, ...]:
    """Check the classes of the training split and return them in the order of their ids.

    Args:
        table: has a row for each name.
        column: of the labels.
        names: n class names.
        order: the distinct ones, in the order of their ids.
        known: the known task, or None.
        warnings: lines are added.
    """
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
    if 1 in counts.values():
        raise _refuse_single(table, column, names, order)
    settled = tuple(name for name in order if name in counts)
    if known:
        return settled
    rows = {name: counts[name] for name in settled}
    warnings += find_near_duplicate_labels(rows, table.name, "classes")
    if none := [name for name in settled if _fold(name) in ABSENT]:
        warnings.append(
            f"{none[0]!r} is read as a class of {table.name}; if it means a missing label, leave "
            "the label empty and use --drop-missing"
        )
    if joined := _find_joined(settled):
        warnings.append(
            f"{joined[0]!r:.60} is read as one class of {table.name}; for several labels per text "
            f"use --label-separator {joined[1]!r}"
        )
    return settled


def _refuse_single(
    table: Table, column: str, names: list[str], order: tuple[str, ...]
) -> InputError:
    """Build the error for classes of a single example, guessing what they are.

    Args:
        table, column, names, order: as for `settle_classes`.
    """
    counts = Counter(names)
    alone, *others = (name for name in order if counts[name] == 1)
    numeric = all(map(NUMBER.fullmatch, counts))
    joined = _find_joined(order)
    rule = "every class needs at least 2 examples"
    # Nearly every row has a value of its own, as texts and ids have.
    if not numeric and not joined and len(counts) > 0.9 * counts.total():
        return InputError(
            f"{rule}: column {column!r:.60} of {table.name} has "
            f"{len(counts):,} different values in {counts.total():,} rows; is it the column of "
            "labels? name another with --label"
        )
    twins = [name for name in order if name != alone and _fold(name) == _fold(alone)]
    remedy = ""
    if twins:
        remedy = f"; it differs from {twins[0]!r:.60} only in case or spaces"
    elif joined:
        remedy = f"; for several labels per text use --label-separator {joined[1]!r}"
    elif numeric:
        remedy = "; for numbers to predict use --regression"
    quoted = repr(alone) if len(alone) <= 60 else f"{alone[:57]!r}..."
    more = f" and of {len(others)} other classes" if others else ""
    actual = f"1 of {quoted}{more}"
    remedy = f"drop or merge such classes{remedy}"
    return table.fault(rule, actual, column, names.index(alone), remedy)


def find_near_duplicate_labels(
    names: Sequence[str] | Mapping[str, int], source: str, what: str
) -> list[str]:
    """List the names of classes, tags or labels that were written in several ways.

    Args:
        names: all of them, perhaps with their numbers of rows.
        source: where they are from, in words.
        what: they are, in words.
    """
    rows = names if isinstance(names, Mapping) else {}
    alike: dict[str, list[str]] = {}
    for name in names:
        spelling = f"{name!r} ({rows[name]:,} rows)" if rows else repr(name)
        alike.setdefault(_fold(name), []).append(spelling)
    return [
        f"{what} of {source} differ only in case or spaces: {', '.join(spellings):.120}; "
        "write them alike if they are the same"
        for spellings in alike.values()
        if len(spellings) > 1
    ]


def _fold(name: str) -> str:
    return " ".join(name.split()).casefold()


def _find_joined(names: Sequence[str]) -> tuple[str, str] | None:
    """Find a class that joins several others, and the separator between them; None without any.

    Each of its parts must be a class, or a part of another one: names may have commas of their own.
    """
    for separator in SEPARATORS:
        parts = [{part.strip() for part in name.split(separator)} for name in names]
        seen = Counter(part for own in parts for part in own)
        for name, own in zip(names, parts, strict=True):
            if len(own) > 1 and "" not in own and all(seen[part] > 1 for part in own):
                return name, separator
    return None


def number_classes(
    table: Table, column: str, names: list[str], labels: tuple[str, ...], what: str = "class"
) -> np.ndarray:
    """Return class ids, int64 (n,); every name must be one of the training split's.

    Args:
        table: has a row for each name.
        column: of the labels.
        names: n class names.
        labels: class names by id.
        what: they are, in words.
    """
    numbers = {name: number for number, name in enumerate(labels)}
    for row, name in enumerate(names):
        if name not in numbers:
            rule = f"every {what} must occur in training"
            remedy = f"training has {join_names(labels)}"
            raise table.fault(rule, f"{name!r:.60}", column, row, remedy)
    return np.array([numbers[name] for name in names], dtype=np.int64)
