"""Reading the splits of a task: of which kind it is, and the labels and texts of each."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from layerscout.data.columns import Inputs, column_template, render
from layerscout.data.folders import choose_splits
from layerscout.data.known_tasks import CHOICE, Kind, Known
from layerscout.data.label_sets import read_label_sets
from layerscout.data.labels import (
    Named,
    find_places,
    name_classes,
    number_classes,
    offer_separator,
    read_numbers,
    settle_classes,
)
from layerscout.data.sampling import Split
from layerscout.data.tables import Source, Table, is_list, join_names
from layerscout.data.words import mark_spans, number_tags, read_sentences
from layerscout.errors import InputError, make_unknown_error

SURROGATE = re.compile("[\\ud800-\\udfff]")

# Where Prodigy says whether a label was accepted.
ANSWER = "answer"
# Where a table of all splits says which one a row is of.
SPLIT = "split"

# What kinds of tasks need of the rows, where it is not one label in each.
NEEDS: Mapping[Kind, str] = {
    "token_classification": "a list of words and a list of their tags in each row",
    "multi_label_classification": "lists of labels, or --label-separator for strings of several",
}

# What tasks are judged by, where it is not accuracy.
USUAL_METRICS: Mapping[Kind, str] = {
    "regression": "pearson_spearman",
    "multi_label_classification": "micro_f1",
}

# Numbers of this size on average are far from what a head predicts at first, in steps of training.
LARGE = 1000

# From this share of the training rows on, the accuracy of always predicting a class looks like
# success: tasks with such a class are judged by macro-F1. Of two classes it is 2 : 1.
IMBALANCED = 2 / 3


def read_splits(
    name: str,
    sources: Mapping[str, Source],
    inputs: Inputs,
    known: Known | None,
    regression: bool,
    *,
    optional: str | None = None,
    drop_missing: bool = False,
    classes: tuple[str, ...] = (),
    rare: bool = False,
) -> tuple[Kind, tuple[str, ...], dict[str, Split], list[str]]:
    """Read every split, the training one first.

    Args:
        name: what messages call the task.
        sources: of the splits, "train" first.
        inputs: what is read of them.
        known: the known task, or None.
        regression: whether labels are numbers to predict.
        optional: a split that is left out, with a warning, if it cannot be used: benchmarks publish
            test rows without their labels.
        drop_missing: leave out rows without a text or a label, with a warning.
        classes: of a model that is judged, by id.
        rare: classes of one example are left out or merged afterwards.

    Returns:
        The kind of the task, its labels, its splits, and what should be known, as of `Task`.

    Raises:
        InputError: if they cannot be read or used.
    """
    warnings: list[str] = []
    splits: dict[str, Split] = {}
    labels: tuple[str, ...] | None = None  # until those of training are known
    for which, source in sources.items():
        noted: list[str] = []
        try:
            for column in inputs.columns:
                if column not in source.columns:
                    raise make_unknown_error(f"column of {source.name}", column, source.columns)
            table = _read_accepted(source, inputs.columns, noted)
            if not len(table):
                raise InputError(f"{source.name} has no rows; it needs some below the column names")
            check_unicode(table)
            if labels is None:
                kind = _tell_kind(name, table, inputs, known, regression)
            if drop_missing:
                table = _drop_missing(table, inputs, kind, noted)
            named = _choose_names(sources["train"], source, inputs, known, labels, noted)
            if kind == "token_classification":
                splits[which], labels = _read_words(table, inputs, named, labels, noted)
            else:
                ids, labels = _read_labels(
                    kind, table, inputs, known, named, labels or None, classes, noted, rare=rare
                )
                splits[which] = _split(table, inputs, ids, noted)
        except InputError as error:
            if which != optional:
                raise
            splits.pop(which, None)
            noted = [f"the {which} split is not used: {error}"]
        warnings += noted
    return kind, labels or (), splits, warnings


def _choose_names(
    training: Source,
    source: Source,
    inputs: Inputs,
    known: Known | None,
    labels: tuple[str, ...] | None,
    warnings: list[str],
) -> Named:
    """Choose the class names that a split is read with, and those of its ids.

    Of the training split the `labels` are None.
    """
    own = source.classes.get(inputs.label)
    # A split without class names, such as a CSV to validate on, is read with those of training.
    brought = training.classes.get(inputs.label)
    fixed = known.labels if known else brought
    if own is None:
        return fixed, None
    if find_places(fixed or labels or (), own) is not None:
        return fixed or labels, own
    if known is None or not known.labels or known.kind == "multiple_choice":
        # Where training has no class names, its labels are the names.
        return own if brought else None, None
    if list(own) != sorted(own) or not all(map(str.isdigit, own)):  # as Yelp's 1 and 2
        pairs = zip(own, known.labels, strict=False)
        warnings.append(
            f"the ids of {source.name} are read as those of the task, though it names its classes "
            f"otherwise: {join_names(f'{one} as {other}' for one, other in pairs)}; if that is "
            "wrong, leave out --task"
        )
    return fixed, None


def choose_metric(kind: Kind, labels: tuple[str, ...], training: Split, warnings: list[str]) -> str:
    """Choose the metric of a task that is not a known one.

    A line is added to the warnings where the balance of the classes decides it.
    """
    if kind == "token_classification" and mark_spans(labels):
        return "entity_f1"
    if kind == "classification":
        counts = np.bincount(training.labels)
        share = counts.max() / counts.sum()
        if share > IMBALANCED:
            # 498 of 500 are not all of them.
            exact = f"{counts.max():,} of {counts.sum():,}"
            some = f"{share:.0%} of the" if share < 0.995 else exact
            warnings.append(
                f"{some} training rows are {labels[int(counts.argmax())]!r:.60}, so "
                "always predicting it would be that accurate; the metric is macro-F1 (--metric "
                "chooses another)"
            )
            return "macro_f1"
    return USUAL_METRICS.get(kind, "accuracy")


def _read_accepted(source: Source, columns: list[str], warnings: list[str]) -> Table:
    """Read columns of the rows that were accepted, where Prodigy says of each whether it was.

    A label that was rejected stands in its row as if it were the right one. A line is added to the
    warnings, too, where a column says of which split a row is.
    """
    extra = [name for name in (ANSWER, SPLIT) if name in source.columns and name not in columns][:1]
    table = None
    if extra:
        with suppress(InputError):  # of other programs, not every row may have one
            table = source.read([*columns, *extra])
    if table is None:
        table, extra = source.read(columns), []
    warnings += table.notes
    splits = {str(name).lower() for name in table.columns[SPLIT]} if SPLIT in extra else set()
    if len(splits) > 1 and splits == {n for some in choose_splits(splits).values() for n in some}:
        warnings.append(
            f"column {SPLIT!r} of {table.name} names splits ({join_names(sorted(splits))}), and is "
            "not followed; write a file for each"
        )
    answers = table.columns[ANSWER] if ANSWER in extra else ()
    rows = [row for row, answer in enumerate(answers) if answer == "accept"]
    known = all(answer in ("accept", "reject", "ignore") for answer in answers)
    if known and 0 < len(rows) < len(answers):
        warnings.append(
            f"{len(answers) - len(rows)} of {len(answers)} rows of {table.name} have another "
            "`answer` than accept and are left out"
        )
        table = table.keep(rows)
    return replace(table, columns={column: table.columns[column] for column in columns})


def check_unicode(table: Table) -> None:
    """Raise if a string, or a string in a list, cannot be encoded."""
    for column, values in table.columns.items():
        for row, value in enumerate(values):
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str) and not text.isascii() and SURROGATE.search(text):
                    rule = "texts and labels must be valid Unicode"
                    raise table.fault(rule, "half of a surrogate pair", column, row, "repair it")


def _drop_missing(table: Table, inputs: Inputs, kind: Kind, warnings: list[str]) -> Table:
    """Leave out rows without a text or a label; of several labels none is an answer.

    Raises:
        InputError: if no row is left.
    """
    kept = table
    for column in inputs.columns:
        if kind != "multi_label_classification" or column not in (inputs.label, *inputs.flags):
            kept = kept.drop_missing(column)
    if not len(kept):
        raise InputError(f"every row of {table.name} lacks a text or a label; fill some in")
    if len(kept) < len(table):
        count = len(table) - len(kept)
        warnings.append(
            f"{count} of {len(table)} rows of {table.name} lack a text or a label and are left out"
        )
    return kept


def _tell_kind(
    name: str, table: Table, inputs: Inputs, known: Known | None, regression: bool
) -> Kind:
    """Return what kind of task the training split has."""
    if regression and known is not None and known.labels:
        raise InputError(f"{name} has classes, not numbers; leave out --regression")
    words = _holds_words(table, inputs)
    separated_sets = bool(inputs.flags) or inputs.separator is not None
    several = separated_sets or any(
        is_list(value, table.all_strings) for value in table.columns[inputs.label]
    )
    kind: Kind = "multi_label_classification" if several else "classification"
    if regression:
        kind, who = "regression", "--regression"
    elif known is not None:
        kind, who = known.kind, name
    elif words:
        kind, who = "token_classification", "a task of words"
    else:
        return kind
    fits = not separated_sets
    if kind == "token_classification":
        fits = words and not separated_sets
    elif kind == "multi_label_classification":
        fits = several
    if not fits:
        where = "several columns" if inputs.flags else f"column {inputs.label!r:.60}"
        separated = "" if inputs.separator is None else f", split at {inputs.separator!r:.20}"
        raise InputError(
            f"{who} needs {NEEDS.get(kind, 'one label in each row')}: the labels of {table.name} "
            f"are read from {where}{separated}; "
            "name others with --text and --label, or read them as another kind of task"
        )
    return kind


def _holds_words(table: Table, inputs: Inputs) -> bool:
    """Return whether rows have a list of words instead of a text."""
    text = inputs.templates[0].slots[0][0]
    if len(inputs.templates) > 1 or inputs.templates[0] != column_template(text):
        return False
    values = table.columns[text]
    if not table.all_strings:
        return any(isinstance(value, list) for value in values)
    # A text may well be in brackets, such as [deleted].
    return not inputs.flags and all(
        is_list(value, cell=True) for value in (*values, *table.columns[inputs.label])
    )


def _read_words(
    table: Table,
    inputs: Inputs,
    named: Named,
    labels: tuple[str, ...] | None,
    warnings: list[str],
) -> tuple[Split, tuple[str, ...]]:
    """Read a split of words and their tags; return it, and the tags by id."""
    text = inputs.columns[0]
    sentences, tags, kept = read_sentences(table, text, inputs.label, warnings)
    ids, labels = number_tags(tags, inputs.label, named, labels, warnings)
    texts = [" ".join(words) for words in sentences]
    _check_empty(table, {text: texts}, warnings)
    rows = kept if len(kept) < len(table) else None
    if table.rows is not None:
        rows = np.asarray(table.rows)[kept]
    return Split(texts, None, ids, origin=rows, words=sentences), labels


def _read_labels(
    kind: Kind,
    table: Table,
    inputs: Inputs,
    known: Known | None,
    named: Named,
    labels: tuple[str, ...] | None,
    classes: tuple[str, ...],
    warnings: list[str],
    *,
    rare: bool,
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the labels of the rows of a split as `Split` has them, and their names by id.

    Args:
        named: as `_choose_names` returns them.
        labels: names by id of the training split; None if this is that.
        classes: of a model that is judged, by id; they are the labels, unless the rows have none
            of them.
        rare: as for `settle_classes`.
    """
    label = inputs.label
    if kind == "regression":
        numbers = read_numbers(table, label)
        if labels is None and (numbers == numbers[0]).all():
            raise InputError(
                f"regression needs labels that differ: column {label!r} of {table.name} is "
                f"{numbers[0]:g} in every row; name another column with --label"
            )
        if labels is None and np.ptp(numbers.astype(np.float32)) == 0:
            raise InputError(
                f"regression needs labels that differ in float32: column {label!r} of {table.name} "
                f"is within {np.ptp(numbers):.2g} of {numbers[0]:.7g}; subtract the mean and scale "
                "the column"
            )
        if labels is None and (size := float(np.sqrt((numbers**2).mean()))) > LARGE:
            warnings.append(
                f"numbers in {label!r:.60} of {table.name} are about {size:.1g} in size, and "
                "a head starts near 0, so training may not reach them; subtract the mean and scale "
                "the column"
            )
        return numbers, ()
    if kind == "multiple_choice":  # 1 for the right and 0 for each wrong choice of each example
        choices = np.arange(len(inputs.templates) - 1)
        right = name_classes(table, label, (tuple(map(str, choices)), None), warnings)[0]
        return (np.array(right, np.int64)[:, None] == choices).astype(np.int64).reshape(-1), CHOICE
    if kind == "multi_label_classification":
        return read_label_sets(table, inputs, named, labels, warnings)
    names, order = name_classes(table, label, named, warnings)
    if labels is None and not set(classes).isdisjoint(names):
        for row, name in enumerate(names):
            if name not in classes:
                rule = f"every label must be a class of the model ({join_names(classes)})"
                remedy = f"correct it{offer_separator([*classes, name])}"
                raise table.fault(rule, f"{name!r:.60}", label, row, remedy)
        labels = classes
    if labels is None:
        labels = settle_classes(table, label, names, order, known, warnings, rare=rare)
    return number_classes(table, label, names, labels), labels


def _split(table: Table, inputs: Inputs, ids: np.ndarray, warnings: list[str]) -> Split:
    """Write out the texts; with several pairs, one row for each of an example's choices."""
    written = [render(table, template, inputs.numbers_as_text) for template in inputs.templates]
    texts, *choices = written
    columns = zip((template.written for template in inputs.templates), written, strict=True)
    _check_empty(table, dict(columns), warnings)
    rows = None if table.rows is None else np.asarray(table.rows)
    if len(choices) < 2:
        return Split(texts, choices[0] if choices else None, ids, origin=rows)
    return Split(
        texts=[text for text in texts for _ in choices],
        pairs=[choice for example in zip(*choices, strict=True) for choice in example],
        labels=ids,
        groups=np.repeat(np.arange(len(texts)) if rows is None else rows, len(choices)),
    )


def _check_empty(table: Table, texts: Mapping[str, list[str]], warnings: list[str]) -> None:
    """Warn of empty texts; raise if a column has no others."""
    blank = {
        name: np.array([not text or text.isspace() for text in column])
        for name, column in texts.items()
    }
    for name, rows in blank.items():
        if rows.all():
            raise InputError(
                f"texts must not all be empty: {name!r} is, in every row of "
                f"{table.name}; name another column with --text"
            )
    empty = np.logical_or.reduce(list(blank.values()))
    if empty.any():
        count = np.count_nonzero(empty)
        warnings.append(f"{count:,} of {len(empty):,} rows of {table.name} have an empty text")
