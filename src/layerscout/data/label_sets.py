"""Any number of labels for a text: lists, strings with a separator, or a column for each label."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from layerscout.data.columns import Inputs, is_missing
from layerscout.data.labels import Named, find_near_duplicate_labels, name_classes, number_classes
from layerscout.data.tables import (
    Table,
    check_items,
    join_names,
    lay_out,
    name_value,
    read_flag,
    read_lists,
)
from layerscout.errors import InputError

NAMES = "write the names of its labels, or name columns of 0 and 1 with --label joy,fear"


def read_label_sets(
    table: Table,
    inputs: Inputs,
    named: Named,
    labels: tuple[str, ...] | None,
    warnings: list[str],
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return which labels each row has, bool (n, K), and the K labels.

    Args:
        table: n rows.
        inputs: what is read of them.
        named: the names that they are read with.
        labels: those of training; None if this is training.
        warnings: lines are added for what should be known.

    Raises:
        InputError: if the labels cannot be read, or teach nothing.
    """
    items, rows = _read_items(table, inputs)
    if inputs.flags and named[0] is None:
        named = inputs.flags, ()  # no ids stand for them
    names, order = name_classes(items, inputs.label, named, warnings)
    ids = number_classes(items, inputs.label, names, labels or order, "label")
    marks = np.zeros((len(table), len(labels or order)), dtype=bool)
    marks[rows, ids] = True
    if labels is not None:
        return marks, labels
    counts: np.ndarray = marks.sum(axis=0)
    _check_counts(table, inputs.label, dict(zip(order, counts.tolist(), strict=True)), warnings)
    if named[0] is None:
        warnings += find_near_duplicate_labels(order, table.name, "labels")
    if inputs.separator is not None and len(marks) > 1 and marks.sum(axis=1).max() < 2:
        warnings.append(
            f"no row of {table.name} has the separator {inputs.separator!r} in column "
            f"{inputs.label!r:.60}, so each row has one label at most; correct --label-separator "
            "if they have more"
        )
    return marks[:, counts > 0], tuple(np.array(order, dtype=object)[counts > 0])


def _check_counts(table: Table, label: str, counts: Mapping[str, int], warnings: list[str]) -> None:
    """Raise if the labels, with so many rows each, teach nothing, and warn of those that do not."""
    absent = [name for name, count in counts.items() if count == 0]
    common = [name for name, count in counts.items() if count == len(table)]
    if len(absent) + len(common) == len(counts):
        each = "each row has all of them" if common else "no row has any"
        raise InputError(
            "a task needs a label that some rows have and others lack: of the labels in "
            f"{label!r:.60} of {table.name}, {each}; name another column with --label, or add rows"
        )
    if absent:
        warnings.append(f"labels without an example in {table.name}: {join_names(absent)}")
    if common:
        warnings.append(
            f"labels that every row of {table.name} has, so that nothing can be learnt from them: "
            f"{join_names(common)}"
        )


def _read_items(table: Table, inputs: Inputs) -> tuple[Table, np.ndarray]:
    """Read the labels of all rows; return a table with a row for each, and the row of each."""
    label = inputs.label
    if inputs.flags:
        return lay_out(table, label, _read_flags(table, inputs.flags))
    if inputs.separator is not None:
        lists = _split_strings(table, label, inputs.separator)
        return lay_out(table, label, lists, cells=table.all_strings)
    rule = "every row must have a list of labels"
    lists = read_lists(table, label, rule, "write [] for a text without labels")
    items, rows = lay_out(table, label, lists)
    check_items(items, label, "labels in lists", NAMES)
    # A 0 or 1 for each label would be read as labels 0 and 1.
    count = len(lists[0])
    alike = all(len(row) == count and {0, 1}.issuperset(row) for row in lists)
    if alike and any(len(set(row)) < count for row in lists):
        rule, actual = "lists must name the labels of a text", f"{count} times 0 or 1"
        raise table.fault(rule, actual, label, 0, NAMES)
    return items, rows


def _split_strings(table: Table, column: str, separator: str) -> list[list[Any]]:
    """Split strings at a separator; missing and empty ones have no labels."""
    lists = []
    for row, value in enumerate(table.columns[column]):
        if not isinstance(value, str) and not is_missing(value):
            rule = "--label-separator splits strings"
            remedy = "leave out --label-separator, or write strings"
            raise table.fault(rule, name_value(value), column, row, remedy)
        parts = [] if is_missing(value) else value.split(separator)
        lists.append([part.strip() for part in parts if part.strip()])
    return lists


def _read_flags(table: Table, columns: Sequence[str]) -> list[list[Any]]:
    """Return the names of the columns that each row has a 1 in."""
    lists: list[list[Any]] = [[] for _ in range(len(table))]
    for column in columns:
        for row, value in enumerate(table.columns[column]):
            if (flag := read_flag(value, table.all_strings)) is None:
                rule, actual = "columns of one label each must hold 0 or 1", f"{value!r:.60}"
                remedy = "correct it, or name one column that holds all labels"
                raise table.fault(rule, actual, column, row, remedy)
            if flag:
                lists[row].append(column)
    return lists
