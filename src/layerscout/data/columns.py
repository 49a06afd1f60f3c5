"""Which columns hold texts and labels, and the texts that are made of them.

Columns are named by the user, known from a benchmark task (a row of `KNOWN`), or guessed from the
usual names.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from layerscout.data.tables import Source, Table, join_names
from layerscout.runtime import InputError, unknown


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


def find_known_task(hub: str) -> str | None:
    """Return the known task of a data set on the hub, None if it is no known one.

    Args:
        hub: `owner/name[/config]`.
    """
    hub = hub.removesuffix(".fixed")  # the hub's repaired WSC
    matches = (name for name, known in KNOWN.items() if f"{hub}/".startswith(f"{known.hub}/"))
    return next(matches, None)


# --- Which columns -----------------------------------------------------------------------------

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
SURROGATE = re.compile("[\ud800-\udfff]")


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
            raise unknown("column", name, source.columns)
    if len(set(named)) < len(named):
        raise InputError(f"text, pair and label must be different columns, got {', '.join(named)}")
    if text_pair is not None and text is None:
        raise InputError("--text-pair needs --text: name both columns")
    if label is None:
        label = _guess_label(source, named)
    if text is None and task is not None:
        return Inputs(_known_templates(source, task), label)
    if task is not None and KNOWN[task].labels == CHOICE:
        raise InputError(f"{task} reads several columns by itself; leave out --text")
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


# --- Texts -------------------------------------------------------------------------------------


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


def is_missing(value: Any) -> bool:
    """Tell whether a value is null or not-a-number."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _texts(table: Table, column: str, values: list[Any], numbers: bool) -> list[str]:
    """Check that the values of a column are whole texts."""
    missing = [row for row, value in enumerate(values) if is_missing(value)]
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
