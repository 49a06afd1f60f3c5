"""Which columns hold texts and labels.

Columns are named by the user, known from a benchmark task (a row of `KNOWN`), or guessed from the
usual names.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from layerscout.data.known_tasks import CHOICE, KNOWN
from layerscout.data.tables import Source, join_names
from layerscout.runtime import InputError, make_unknown_error

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
SLOT = re.compile(r"\{(\w+)(?:\[(\d+)\])?(?::(\w+))?\}")


@dataclass(frozen=True)
class Template:
    """A text made of columns.

    Attributes:
        written: what people are shown.
        form: the text with a {} for each slot.
        slots: what fills them: a column, an item of its lists or None, one of `FILTERS` or None.
    """

    written: str
    form: str
    slots: tuple[tuple[str, int | None, str | None], ...]


@dataclass(frozen=True)
class Inputs:
    """What is read of a table.

    Attributes:
        templates: the text, then its pair if it has one, or its choices if several.
        label: the column of the labels.
        numbers_as_text: whether columns of numbers may be texts, as the user named them.
    """

    templates: tuple[Template, ...]
    label: str
    numbers_as_text: bool = False

    @property
    def columns(self) -> list[str]:
        """Every column in use, once."""
        slots = [slot[0] for template in self.templates for slot in template.slots]
        return list(dict.fromkeys([*slots, self.label]))

    @property
    def written(self) -> dict[str, str]:
        """What is read as "text", as "text_pair" where there is one, and as "label"."""
        text, *pairs = (template.written for template in self.templates)
        pair = {"text_pair": " | ".join(pairs)} if pairs else {}
        return {"text": text, **pair, "label": self.label}


def column_template(name: str) -> Template:
    """Make the template that is one column as it is."""
    return Template(name, "{}", ((name, None, None),))


def _template(written: str) -> Template:
    """Parse a template of the table of known tasks."""
    if re.fullmatch(r"\{\w+\}", written):
        return column_template(written[1:-1])
    slots = SLOT.findall(written)
    return Template(
        written,
        SLOT.sub("{}", written),
        tuple((name, int(item) if item else None, chosen or None) for name, item, chosen in slots),
    )


def choose_inputs(
    source: Source, task: str | None, text: str | None, text_pair: str | None, label: str | None
) -> Inputs:
    """Decide what to read: columns that the user names, a known task's, or the usual ones.

    Args:
        source: the training split.
        task: a key of `KNOWN`, or None.
        text: the column of the texts, or None.
        text_pair: the column of the second texts, or None.
        label: the column of the labels, or None.

    Raises:
        InputError: if a column is not there, or it is not clear which one is meant.
    """
    named = [name for name in (text, text_pair, label) if name is not None]
    for name in named:
        if name not in source.columns:
            raise make_unknown_error("column", name, source.columns)
    if len(set(named)) < len(named):
        raise InputError(f"text, pair and label must be different columns, got {', '.join(named)}")
    if text_pair is not None and text is None:
        raise InputError("--text-pair needs --text: name both columns")
    if label is None:
        label = _guess_label(source, named)
    if text is None and task is not None:
        return Inputs(_known_templates(source, task), label)
    if task is not None and KNOWN[task].labels == CHOICE:
        raise InputError(f"{task} chooses its own columns; leave out --text")
    if text is None:
        return Inputs(tuple(map(column_template, _guess_texts(source, label))), label)
    texts = (text,) if text_pair is None else (text, text_pair)
    return Inputs(tuple(map(column_template, texts)), label, numbers_as_text=True)


def _known_templates(source: Source, task: str) -> tuple[Template, ...]:
    """Return the first of a known task's alternatives whose columns are all there."""
    needs = []
    for alternative in KNOWN[task].inputs:
        templates = tuple(map(_template, alternative))
        columns = dict.fromkeys(slot[0] for template in templates for slot in template.slots)
        if columns.keys() <= source.columns.keys():
            return templates
        needs.append(", ".join(columns))
    raise InputError(
        f"{task} needs the columns {' or '.join(needs)}: {source.name} has "
        f"{join_names(source.columns)}; rename them, or leave out --task"
    )


def _by_usual_name(columns: Collection[str]) -> dict[str, list[str]]:
    """Group columns by their names without case and surrounding spaces."""
    groups: dict[str, list[str]] = {}
    for column in columns:
        groups.setdefault(column.strip().lower(), []).append(column)
    return groups


def _guess_label(source: Source, taken: Collection[str]) -> str:
    """Find the one column with a label's usual name."""
    usual = _by_usual_name([column for column in source.columns if column not in taken])
    found = [column for name in LABEL_NAMES for column in usual.get(name, [])]
    if len(found) == 1:
        return found[0]
    raise InputError(
        f"cannot tell which column holds the labels: {source.name} has "
        f"{join_names(source.columns)}; name it with --label"
    )


def _guess_texts(source: Source, label: str) -> list[str]:
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
        f"{join_names(source.columns)}; name it with --text, and a second one with --text-pair"
    )
