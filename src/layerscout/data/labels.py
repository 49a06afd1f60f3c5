"""Labels as they are written, read as numbers to predict, classes or right choices."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from layerscout.data.known_tasks import Known
from layerscout.data.tables import FILL, NUMBER, Table, is_list, join_names, name_some, name_value
from layerscout.errors import InputError
from layerscout.files import read_json

# What people write where there is no label, in any case; a CSV's "NaN" and "nan" are missing ones.
ABSENT = ("na", "n/a", "nan", "none", "null", "-", "?")
# Numbers are trained on in float32, which holds up to 3e38: this leaves room for their squares, the
# sums of these, and the squares of gradients.
LARGEST = 1e15
# Cyrillic and Greek letters, dashes and apostrophes, and what they or their capitals look like.
_TWINS = str.maketrans(
    "авеѕіјкмнорстухαικορτχ\u2010\u2011‒–—−‘’ʼ", "abesijkmhopctyxaikoptx------'''"
)
# What stands between several labels in a string.
SEPARATORS = ("|", ";", ",")
# The share of the rows from which on those that are alone in their class make it no column of
# classes: numbers, texts and ids.
MOST_SINGLE = 0.5
INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
# What libraries call classes whose names they do not know.
_NUMBERED = re.compile(r"(?:label|class)?[ _-]?(\d{1,6})", re.ASCII | re.IGNORECASE)
CODE = re.compile(r"[+-]?0\d", re.ASCII)
SEVERAL = (
    "for several labels per text write a list in every row, and leave out --task and --regression"
)


# Class names that a table is read with, where the task brings some, and those of the table's own
# ids, where it brings them: see `reading._choose_names`.
Named = tuple[tuple[str, ...] | None, tuple[str, ...] | None]


def _list_values(table: Table, column: str, *, unlabelled: bool = False) -> list[Any]:
    """Return a column of labels after refusing lists and missing ones.

    Args:
        unlabelled: whether -1 too stands for a missing label, as in public test splits.
    """
    values = table.columns[column]
    for row, value in enumerate(values):
        listed = is_list(value, table.all_strings)
        if listed or not (value is None or isinstance(value, str | int | float | Decimal)):
            rule = "a label must be one string or number"
            remedy = SEVERAL if listed else "name another with --label"
            raise table.fault(rule, name_value(value), column, row, remedy)
    if missing := table.find_missing(column, (-1, "-1") if unlabelled else ()):
        actual = f"{len(missing)} missing{' (empty or -1)' if unlabelled else ''}, the first"
        remedy = FILL + offer_separator(list(dict.fromkeys(map(str, values))))
        raise table.fault("every row needs a label", actual, column, missing[0], remedy)
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
    if (large := np.flatnonzero(np.abs(targets) > LARGEST)).size:
        rule = f"numbers to predict must be at most {LARGEST:g} in size, for float32"
        actual, remedy = f"{targets[large[0]]:g}", "correct it, or scale the column"
        raise table.fault(rule, actual, column, int(large[0]), remedy)
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


def name_classes(
    table: Table,
    column: str,
    named: Named,
    warnings: list[str],
) -> tuple[list[str], tuple[str, ...]]:
    """Return the class name of every row (n,) and the distinct names in the order of their ids.

    Args:
        named: what it is read with; where the task brings names, labels are all ids, or all names.
        warnings: a line is added where they could be either.
    """
    fixed, numbered = named
    values = _list_values(table, column, unlabelled=fixed is not None and "-1" not in fixed)
    distinct = dict.fromkeys(values)
    names: dict[Any, str | None]
    if fixed is not None:
        known = join_names(f"{number} {name}" for number, name in enumerate(numbered or fixed))
        rule = f"labels must be all ids or all names of the task's classes ({known})"
        remedy = "correct it, or leave out --task"
        names, order = _read_known(table, column, distinct, (fixed, numbered), warnings), fixed
    else:
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
        rule = "classes must be strings or integers"
        remedy = "for numbers to predict use --regression, for a known task --task"
        numbers = {value: _find_integer(value) for value in distinct}
        names = {value: None if n is None else str(n) for value, n in numbers.items()}
        order = tuple(map(str, sorted({n for n in numbers.values() if n is not None})))
    if wrong := [row for row, value in enumerate(values) if names[value] is None]:
        raise table.fault(rule, f"{values[wrong[0]]!r:.60}", column, wrong[0], remedy)
    return [str(names[value]) for value in values], order


def _read_known(
    table: Table,
    column: str,
    distinct: Iterable[Any],
    named: tuple[tuple[str, ...], tuple[str, ...] | None],
    warnings: list[str],
) -> dict[Any, str | None]:
    """Return the class that each label of a column stands for; None if it is none of them.

    All are names, or all are ids, where names are numbers: `datasets` writes the ids of the names
    1, 2, 3 as 0, 1, 2 into a CSV, where 1 and 2 are names as well.

    Args:
        distinct: labels of the column; for all else see `name_classes`.
    """
    fixed, numbered = named
    find = _index(fixed)
    own = range(len(fixed)) if numbered is None else [find(name) for name in numbered]
    by_name, by_id = dict[Any, int | None](), dict[Any, int | None]()
    for value in distinct:
        number, place = _find_integer(value), find(str(value))
        by_name[value] = find(str(number)) if place is None else place
        by_id[value] = own[number] if number is not None and 0 <= number < len(own) else None
    if all(_find_integer(name) is None for name in fixed):
        by_name = by_id = {v: by_id[v] if place is None else place for v, place in by_name.items()}
    written = any(isinstance(value, str | bool) for value in by_name)
    kinds = {"names": by_name, "ids": by_id} if written else {"ids": by_id, "names": by_name}
    unread = {kind: list(places.values()).count(None) for kind, places in kinds.items()}
    kind, other = kinds
    if not any(unread.values()) and by_name != by_id and (written or numbered is None):
        shown = join_names(
            f"{value} is {fixed[n]!r}" for value, n in kinds[kind].items() if n is not None
        )
        warnings.append(
            f"labels of {table.name} in column {column!r:.60} may be names or ids of classes, and "
            f"are read as {kind} ({shown}); if they are {other}, write names that are no numbers"
        )
    places = kinds[min(kinds, key=lambda kind: unread[kind])]
    return {value: None if place is None else fixed[place] for value, place in places.items()}


def are_ids(names: Sequence[str]) -> bool:
    """Return whether class names are their ids: 0, 1, 2, or LABEL_0, LABEL_1 and the like."""
    return _read_numbers(names) == [*range(len(names))]


def _read_numbers(names: Sequence[str]) -> list[int]:
    """Return the number that each class is called by, such as LABEL_2; -1 of others."""
    written = map(_NUMBERED.fullmatch, names)
    return [-1 if match is None else int(match[1]) for match in written]


def pair_classes(theirs: Sequence[str], ours: Sequence[str]) -> tuple[list[int] | None, bool]:
    """Find the classes of a task among as many others of a model or another table.

    Names meet names, and numbers such as LABEL_1 and 1 each other, in any order; ids meet others by
    position, which should be said.

    Returns:
        The place of each of ours among theirs, None where they are others; and whether that rests
        on positions alone.
    """
    if len(theirs) != len(ours):
        return None, False
    if (places := find_places(theirs, ours)) is not None:
        return places, False
    numbers, wanted = _read_numbers(theirs), _read_numbers(ours)
    if sorted(numbers) == sorted(wanted) and len({*numbers} - {-1}) == len(ours):
        return [numbers.index(number) for number in wanted], False
    by_position = are_ids(theirs) or are_ids(ours)
    return ([*range(len(ours))] if by_position else None), by_position


def find_places(names: Sequence[str], wanted: Sequence[str]) -> list[int] | None:
    """Return the place of each wanted class among others: by name, be it in another case.

    None if one of them is not there, or two of them are the same.
    """
    find = _index(names)
    places = [place for place in map(find, wanted) if place is not None]
    return places if len({*places}) == len(wanted) else None


def _index(names: Sequence[str]) -> Callable[[str], int | None]:
    """Return what finds the place of a name; in another case, where that is no other's."""
    exact, folded = ({w(name): n for n, name in enumerate(names)} for w in (str, _fold))
    if len(folded) < len(names):
        return exact.get
    return lambda name: exact.get(name, folded.get(_fold(name)))


def _find_integer(value: Any) -> int | None:
    """Return the integer that a label is, be it written as a string or a float; None of others."""
    if isinstance(value, str):
        if INTEGER.fullmatch(value) and len(value) < 1000:
            return int(value)
        if not NUMBER.fullmatch(value):
            return None
    number = value if isinstance(value, int) else float(value)
    return int(number) if isinstance(number, int) or number.is_integer() else None


def read_classes(model: str | Path) -> tuple[str, ...]:
    """Read the classes of a tuned model, by id, from its folder; empty if it has none."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        config = read_json(Path(model) / "config.json")
        if "layerscout" in config:  # what was trained apart from its base
            return tuple(map(str, config["labels"]))
        names = config["id2label"]
        return tuple(str(names[str(number)]) for number in range(len(names)))
    return ()


def settle_classes(
    table: Table,
    column: str,
    names: list[str],
    order: tuple[str, ...],
    known: Known | None,
    warnings: list[str],
    *,
    rare: bool,
) -> tuple[str, ...]:
    """Check the classes of the training split and return them in the order of their ids.

    Args:
        table: has a row for each name.
        column: of the labels.
        names: n class names.
        order: the distinct ones, in the order of their ids.
        known: the known task, or None.
        warnings: lines are added.
        rare: there may be any number of classes of one example, which are left out or merged.
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
    single = [*counts.values()].count(1)
    if not rare and (len(counts) - single < 2 or single > MOST_SINGLE * len(names)):
        raise _refuse_single(table, column, names, order)
    settled = tuple(name for name in order if name in counts)
    if known:
        return settled
    warnings += find_near_duplicate_labels(settled, table.name, "classes")
    if none := [name for name in settled if _fold(name) in ABSENT]:
        warnings.append(
            f"{none[0]!r} is read as a class of {table.name}; if it means a missing label, leave "
            "the label empty and use --drop-missing"
        )
    if _are_stars(column, settled):
        warnings.append(
            f"the classes of {table.name} are numbers, as of ratings; --regression predicts the "
            "number instead, so that being off by one counts less than being off by four"
        )
    if joined := _find_joined(settled):
        warnings.append(
            f"{joined[0]!r:.60} is read as one class of {table.name}; for several labels per text "
            f"use --label-separator {joined[1]!r}"
        )
    return settled


def _are_stars(column: str, names: Sequence[str]) -> bool:
    """Return whether the classes of a column are ratings: 1 to 5, or some numbers to 10 by name."""
    numbers = sorted(int(name) for name in names if name.isdecimal() and len(name) < 3)
    if len(numbers) < max(3, len(names)):
        return False
    rated = column.strip().lower() in ("stars", "rating")
    return numbers == [1, 2, 3, 4, 5] or (rated and numbers[-1] <= 10)


def _refuse_single(
    table: Table, column: str, names: list[str], order: tuple[str, ...]
) -> InputError:
    """Build the error for classes of a single example, guessing what they are.

    Args:
        table, column, names, order: as for `settle_classes`.
    """
    counts = Counter(names)
    alone, *others = (name for name in order if counts[name] == 1)
    rule = "most examples need a class that others have too"
    remedy = "--drop-rare 2 leaves such classes out, --merge-rare 2 makes one of them"
    if len(order) - len(others) < 3:
        rule = "two or more classes need at least 2 examples"
        remedy = "add some, or name another column with --label"
    if offer := offer_separator(order):
        remedy += offer
    elif all(map(NUMBER.fullmatch, counts)):
        remedy += "; for numbers to predict use --regression"
    elif len(counts) > 0.9 * counts.total():  # as texts and ids have
        remedy = "is it the column of labels? name another with --label"
    more = f" and of {len(others)} other classes" if others else ""
    actual = f"1 of {alone!r:.60}{more}"
    return table.fault(rule, actual, column, names.index(alone), remedy)


def find_near_duplicate_labels(names: Sequence[str], source: str, what: str) -> list[str]:
    """List the names of classes, tags or labels that were written in several ways, or badly.

    Args:
        names: all of them.
        source: where they are from, in words.
        what: they are, in words.
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(_fold(name), []).append(name)
    lines = []
    for spellings in alike.values():
        if len(spellings) == 1:
            continue
        visible = len({" ".join(name.split()).casefold() for name in spellings}) == 1
        how = "differ only in case or spaces" if visible else "look the same"
        shown = name_some(spellings, write=repr if visible else ascii)
        lines.append(f"{what} of {source} {how}: {shown}; write them alike if they are the same")
    odd = [name for (name, *others) in alike.values() if not others and _is_odd(name)]
    if odd:
        lines.append(
            f"{what} of {source} begin or end with spaces or quotes, or have characters that are "
            f"not shown: {name_some(odd, write=ascii)}; remove these if they are not meant"
        )
    return lines


def _is_odd(name: str) -> bool:
    """Return whether a name looks as if it was not read as it was meant."""
    quoted = len(name) > 1 and name[0] == name[-1] and name[0] in "\"'"
    return quoted or name != name.strip() or not name.replace("\u200d", "").isprintable()


def _fold(name: str) -> str:
    """Return what a name looks like, but for case and spaces.

    Forms of Unicode, characters without a width and selectors of variants do not show, nor does
    the alphabet of a letter.
    """
    shown = (
        character
        for character in unicodedata.normalize("NFKC", name)
        if unicodedata.category(character) != "Cf" and not "\ufe00" <= character <= "\ufe0f"
    )
    return " ".join("".join(shown).split()).casefold().translate(_TWINS)


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


def offer_separator(names: Sequence[str]) -> str:
    """Return the end of an error where some classes may join several labels, else ""."""
    joined = _find_joined(names)
    return f"; for several labels per text use --label-separator {joined[1]!r}" if joined else ""


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
            actual = f"{name!r:.60}"
            remedy = f"leave such rows out, or give training some: it has {join_names(labels)}"
            if alike := [label for label in labels if _fold(label) == _fold(name)]:
                actual, remedy = f"{name!a:.60}", f"training has {alike[0]!a:.60}"
            raise table.fault(rule, actual, column, row, remedy)
    return np.array([numbers[name] for name in names], dtype=np.int64)
