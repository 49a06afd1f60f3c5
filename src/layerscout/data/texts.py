"""The texts of a task, made of columns."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from layerscout.data.columns import Template
from layerscout.data.tables import FILL, Table, is_missing
from layerscout.runtime import InputError

SURROGATE = re.compile("[\ud800-\udfff]")


def _clause(text: str) -> str:
    """Take the full stop from a sentence that goes on."""
    return text.rstrip(" .")


def _choose_words(question: str, cause: str, effect: str) -> str:
    """Turn the question of COPA, cause or effect, into words."""
    words = {"cause": cause, "effect": effect}
    if question not in words:
        raise InputError(f"`question` must be 'cause' or 'effect', got {question!r}")
    return words[question]


FILTERS: Mapping[str, Callable[[str], str]] = {
    "clause": _clause,
    # Between premise and choice.
    "connective": partial(_choose_words, cause="because", effect="so"),
    # As the code of Lodha et al. 2023 asks.
    "asked": partial(
        _choose_words,
        cause="What was the cause of this?",
        effect="What was the effect of this?",
    ),
}


def render(table: Table, template: Template, numbers: bool) -> list[str]:
    """Fill a template for every row (n,).

    Args:
        table: n rows with the template's columns.
        template: what to fill.
        numbers: whether columns of numbers may be texts.

    Raises:
        InputError: if a value is missing or no text.
    """
    slots = []
    for name, item, chosen in template.slots:
        values = table.columns[name] if item is None else _items(table, name, item)
        texts = _texts(table, name, values, numbers)
        slots.append(list(map(FILTERS[chosen], texts)) if chosen else texts)
    if template.form == "{}":
        return slots[0]
    return [template.form.format(*row) for row in zip(*slots, strict=True)]


def _items(table: Table, column: str, item: int) -> list[Any]:
    """Take one item of every list of a column."""
    values = table.columns[column]
    for row, value in enumerate(values):
        if not isinstance(value, list) or len(value) <= item:
            rule = f"the choices must be a list of at least {item + 1} texts"
            raise table.fault(rule, f"{value!r:.60}", column, row, "correct or drop the row")
    return [value[item] for value in values]


def _texts(table: Table, column: str, values: list[Any], numbers: bool) -> list[str]:
    """Check that the values of a column are whole texts."""
    missing = [row for row, value in enumerate(values) if is_missing(value)]
    if missing:
        found = f"{len(missing)} null, the first"
        raise table.fault("every row needs a text", found, column, missing[0], FILL)
    kinds = set(map(type, values))
    if numbers and kinds <= {int, float}:
        return list(map(str, values))
    if kinds != {str}:
        values = [str(value) if isinstance(value, str) else value for value in values]
    for row, value in enumerate(values):
        if not isinstance(value, str):
            found = f"{value!r:.60} ({type(value).__name__})"
            remedy = (
                "name another column with --text (a column of numbers is accepted if you name it)"
            )
            raise table.fault("texts must be strings", found, column, row, remedy)
        if not value.isascii() and SURROGATE.search(value):
            found = "half of a surrogate pair"
            raise table.fault("texts must be valid Unicode", found, column, row, "repair the text")
    return values
