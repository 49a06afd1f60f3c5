"""Which columns hold texts and labels, and the texts that are made of them."""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from layerscout.data.known_tasks import KNOWN
from layerscout.data.tables import (
    FILL,
    Source,
    Table,
    is_missing,
    join_names,
    name_value,
    read_flag,
)
from layerscout.errors import InputError, make_unknown_error

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
# Those that hold labels where no column has a name above.
OTHER_LABEL_NAMES = ("stars", "rating", "kategorie", "y")
WORD_NAMES = ("tokens", "words")
TAG_NAMES = ("tags", "ner_tags", "pos_tags", "upos", "xpos", "ner")
# Columns of files that other programs write and that are not read; what to do instead.
FOREIGN = {
    ("word", "tag"): "write each sentence as lines of a word and its tag, into a .conll file",
    ("annotations", "data"): "export it from Label Studio as JSON-MIN, CSV or CoNLL 2003",
    ("spans", "tokens"): "write spans of Prodigy as a tag for each word (prodigy data-to-spacy and "
    "spacy convert do so)",
    ("text", "entities"): "write spans as a tag for each word",
    ("text", "cats"): "write the name of the category that is 1 as the label",
    ("options", "accept"): "name the column of the answers with --label accept",
}
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
        flags: columns that say of one label each whether a text has it, instead of `label`.
        separator: what stands between the labels of a text, if they are one string.
    """

    templates: tuple[Template, ...]
    label: str
    numbers_as_text: bool = False
    flags: tuple[str, ...] = ()
    separator: str | None = None

    @property
    def columns(self) -> list[str]:
        """Every column in use, once."""
        slots = [slot[0] for template in self.templates for slot in template.slots]
        return list(dict.fromkeys([*slots, *(self.flags or (self.label,))]))


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
    source: Source,
    task: str | None,
    text: str | None,
    text_pair: str | None,
    label: str | Sequence[str] | None,
    separator: str | None = None,
) -> Inputs:
    """Decide what to read: columns that the user names, a known task's, or the usual ones.

    Args:
        source: the training split.
        task: a key of `KNOWN`, or None.
        text: the column of the texts, or None.
        text_pair: the column of the second texts, or None.
        label: the column of the labels, or None; or several columns with a label each, in a
            sequence or with commas between their names.
        separator: what stands between the labels of a text, if they are one string.

    Raises:
        InputError: if a column is not there, or it is not clear which one is meant.
    """
    if isinstance(label, str):
        whole = "," not in label or label in source.columns  # a comma may be part of a name
        label = [label] if whole else [part.strip() for part in label.split(",")]
    labels = tuple(label or ())
    texts = _check_named(source, text, text_pair, labels)
    if separator is not None and (not separator or len(labels) > 1):
        value = f"{len(labels)} columns of labels" if separator else "an empty string"
        raise InputError(
            "--label-separator must be the separator of labels in one column, such as '|', got "
            f"{value}; leave it out"
        )
    if task is not None and text is not None and KNOWN[task].kind == "multiple_choice":
        raise InputError(f"the task {task} fixes its columns; leave out --text")
    words = _find_words(source, text, labels) if task is None else None
    if not labels:
        labels = (_guess_label(source, task, texts, words),)
    written = ", ".join(labels)
    flags = labels if len(labels) > 1 else ()
    templates = _choose_templates(source, task, texts, words, labels)
    return Inputs(templates, written, text is not None, flags, separator)


def choose_texts(
    source: Source,
    task: str | None,
    text: str | None,
    text_pair: str | None,
    *,
    of_words: bool,
) -> tuple[Template, ...]:
    """Decide which columns hold texts, as `choose_inputs` does, in rows that need no labels.

    Args:
        source: the rows.
        task, text, text_pair: as for `choose_inputs`.
        of_words: whether words are predicted, which may be one column of lists.

    Raises:
        InputError: as `choose_inputs`.
    """
    texts = _check_named(source, text, text_pair)
    words = _list_usual(source.columns, WORD_NAMES) if of_words else []
    labels = _list_usual(source.columns, (*LABEL_NAMES, *OTHER_LABEL_NAMES, *TAG_NAMES))
    return _choose_templates(source, task, texts, words[0] if words else None, labels)


def holds_texts(names: Iterable[str]) -> bool:
    """Return whether a column of one of these names is one of texts, by its name."""
    pairs = (name for pair in PAIR_NAMES for name in pair)
    return bool(_list_usual(names, (*TEXT_NAMES, *WORD_NAMES, *pairs)))


def _check_named(
    source: Source, text: str | None, text_pair: str | None, labels: Sequence[str] = ()
) -> list[str]:
    """Return the columns of texts that the user names, all of them different and there."""
    texts = [name for name in (text, text_pair) if name is not None]
    named = [*texts, *labels]
    for name in named:
        if name not in source.columns:
            raise make_unknown_error("column", name, source.columns)
    if len(set(named)) < len(named):
        raise InputError(f"text, pair and label must be different columns, got {', '.join(named)}")
    if text_pair is not None and text is None:
        raise InputError("--text-pair needs --text: name both columns")
    return texts


def _choose_templates(
    source: Source,
    task: str | None,
    texts: Sequence[str],
    words: str | None,
    labels: Collection[str],
) -> tuple[Template, ...]:
    """Choose the texts: as named, as the known task has them, the words, or by the usual names."""
    if not texts and task is not None:
        return _known_templates(source, task)
    if texts or words is not None:
        return tuple(map(column_template, texts or [str(words)]))
    return tuple(map(column_template, _guess_texts(source, labels)))


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


def _list_usual(columns: Iterable[str], names: Iterable[str]) -> list[str]:
    """List the columns of some names, whatever their case and surrounding spaces, name by name."""
    columns = list(columns)
    return [column for name in names for column in columns if column.strip().lower() == name]


def _find_words(source: Source, text: str | None, labels: Collection[str]) -> str | None:
    """Find the column of words where these have labels, None where texts have them."""
    holding = [column for column, content in source.columns.items() if content == "words"]
    if text is not None:
        return text if text in holding else None
    # Lists of anything: what is no word among them is refused with its row.
    lists = [column for column, content in source.columns.items() if content == "list"]
    candidates = _list_usual([*holding, *lists], WORD_NAMES)
    if len(candidates) != 1:
        return None
    # Lists in a column such as "labels" may be those of a text, where there is one.
    texts = _list_usual(source.columns, TEXT_NAMES)
    names = TAG_NAMES if texts else (*TAG_NAMES, *LABEL_NAMES)
    tags = _list_usual(source.columns, names)
    if labels:
        tags = [column for column in labels if column in tags or names != TAG_NAMES]
    return candidates[0] if any(map(partial(_holds_lists, source), tags)) else None


def _holds_lists(source: Source, column: str) -> bool:
    return source.columns[column] in ("words", "list")


def _guess_label(
    source: Source, task: str | None, taken: Collection[str], words: str | None
) -> str:
    """Find the one column with a label's usual name, or with that of tags where words have them."""
    free = [column for column in source.columns if column not in taken]
    if task is not None and (known := _list_usual(free, KNOWN[task].label)):
        return known[0]
    candidates = _list_usual(free, LABEL_NAMES) or _list_usual(free, OTHER_LABEL_NAMES)
    if words is not None:
        candidates = _list_usual(free, (*TAG_NAMES, *LABEL_NAMES))
        candidates = [
            column for column in candidates if column != words and _holds_lists(source, column)
        ]
    if "upos" in candidates:  # the tags of all languages, beside those of one
        candidates = [column for column in candidates if column != "xpos"]
    if len(candidates) == 1:
        return candidates[0]
    remedy = "name it with --label"
    for foreign, instead in FOREIGN.items():
        if {name.strip().lower() for name in source.columns} >= {*foreign}:
            remedy = instead
    if len(flags := _list_flags(source, free)) > 1:
        remedy += f", or several columns of 0 and 1 with --label {shlex.quote(','.join(flags))}"
    if len(source.columns) == 1:
        remedy = "add a column of labels"
        if re.search(r"\w[^\w\s.'-]\w", "".join(source.columns)):  # a CSV with an unusual separator
            remedy = "give the separator of the columns with --sep"
    raise InputError(
        f"cannot tell which column holds the labels: {source.name} has "
        f"{join_names(source.columns)}; {remedy}"
    )


def _list_flags(source: Source, columns: Sequence[str]) -> list[str]:
    """List the columns that hold 0 and 1, or false and true, alone."""
    table = source.read(columns)
    return [
        column
        for column in columns
        if all(read_flag(value, table.all_strings) is not None for value in table.columns[column])
    ]


def _guess_texts(source: Source, labels: Collection[str]) -> list[str]:
    """Find the one column, or pair of columns, with the usual names; else the one with strings."""
    free = [column for column in source.columns if column not in labels]
    candidates = [
        [first, second]
        for names in PAIR_NAMES
        for first, second in product(*(_list_usual(free, (name,)) for name in names))
    ]
    paired = {column for pair in candidates for column in pair}
    candidates += [[column] for column in _list_usual(free, TEXT_NAMES) if column not in paired]
    if not candidates:
        candidates = [[column] for column in free if source.columns[column] == "text"]
    if len(candidates) == 1:
        return candidates[0]
    raise InputError(
        f"cannot tell which column holds the texts: {source.name} has "
        f"{join_names(source.columns)}; name it with --text, and a second one with --text-pair"
    )


def _choose_words(question: str, cause: str, effect: str) -> str:
    """Turn the question of COPA, cause or effect, into words."""
    words = {"cause": cause, "effect": effect}
    if question not in words:
        raise InputError(f"`question` must be 'cause' or 'effect', got {question!r}")
    return words[question]


FILTERS: Mapping[str, Callable[[str], str]] = {
    # A sentence that goes on has no full stop.
    "clause": lambda text: text.rstrip(" ."),
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
        values = table.columns[name]
        if item is not None:
            for row, value in enumerate(values):
                if not isinstance(value, list) or len(value) <= item:
                    rule = f"the choices must be a list of at least {item + 1} texts"
                    raise table.fault(rule, f"{value!r:.60}", name, row, "correct or drop the row")
            values = [value[item] for value in values]
        texts = _read_texts(table, name, values, numbers)
        slots.append(list(map(FILTERS[chosen], texts)) if chosen else texts)
    if template.form == "{}":
        return slots[0]
    return [template.form.format(*row) for row in zip(*slots, strict=True)]


def _read_texts(table: Table, column: str, values: list[Any], numbers: bool) -> list[str]:
    """Return the values of a column as texts, or raise if one is none."""
    missing = [row for row, value in enumerate(values) if is_missing(value)]
    if missing:
        actual = f"{len(missing)} null, the first"
        raise table.fault("every row needs a text", actual, column, missing[0], FILL)
    if numbers and set(map(type, values)) <= {int, float}:
        return list(map(str, values))
    for row, value in enumerate(values):
        if not isinstance(value, str):
            remedy = (
                "name another column with --text (a column of numbers is accepted if you name it)"
            )
            raise table.fault("texts must be strings", name_value(value), column, row, remedy)
    return values
