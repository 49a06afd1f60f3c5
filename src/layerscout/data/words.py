"""A label, called its tag, for every word of a text."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from layerscout.data.labels import list_alike, name_classes
from layerscout.data.lists import Items, lay_out, read_lists
from layerscout.data.tables import Table, join_names
from layerscout.data.tags import OUTSIDE, Tags, count_orphans, mark_spans
from layerscout.data.texts import SURROGATE
from layerscout.runtime import InputError


@dataclass(frozen=True, eq=False)
class Sentences:
    """Words and tags of the rows that have any.

    Attributes:
        words: n tuples.
        tags: of all w words, as they are written.
        rows: where the sentences stand in the file, int64 (n,); None if no row was left out.
    """

    words: list[tuple[str, ...]]
    tags: Items
    rows: np.ndarray | None


def read_sentences(table: Table, text: str, label: str, warnings: list[str]) -> Sentences:
    """Read lists of words and of their tags; rows without words are left out.

    Args:
        table: the rows.
        text: the column of the words.
        label: the column of the tags.
        warnings: a line is added for rows that are left out.

    Raises:
        InputError: if the words or tags cannot be read, or do not match.
    """
    remedy = "write one for each word, or drop the row"
    words = read_lists(table, text, "every row must have a list of words", "fill or drop the row")
    tags = read_lists(table, label, "every row must have a list of tags", remedy)
    for row, (some, theirs) in enumerate(zip(words, tags, strict=True)):
        if len(some) != len(theirs):
            found = f"{len(some)} words and {len(theirs)} tags"
            raise table.fault("every word must have a tag", found, label, row, "correct the row")
    _check_words(lay_out(table, text, words, cells=False))
    kept = np.flatnonzero([len(some) for some in words])
    if not len(kept):
        raise InputError(f"{table.name} has no words in column {text!r:.60}; it needs some")
    if len(kept) < len(words):
        count = len(words) - len(kept)
        warnings.append(
            f"{count} of {len(words)} rows of {table.name} have no words and are left out"
        )
    items = lay_out(table, label, tags, cells=False)
    _check_tags(items)
    rows = kept if len(kept) < len(words) else None
    return Sentences([tuple(words[row]) for row in kept], items, rows)


def _check_words(items: Items) -> None:
    """Refuse words that are no strings."""
    for item, value in enumerate(items.values):
        if not isinstance(value, str):
            found = f"{value!r:.60} ({type(value).__name__})"
            raise items.fault("words must be strings", found, item, "write it as a string")
        if not value.isascii() and SURROGATE.search(value):
            found = "half of a surrogate pair"
            raise items.fault("words must be valid Unicode", found, item, "repair the word")


def _check_tags(items: Items) -> None:
    """Refuse tags that are neither strings nor integers, or stand for none."""
    for item, value in enumerate(items.values):
        if isinstance(value, bool) or not isinstance(value, str | int):
            found = f"{value!r:.60} ({type(value).__name__})"
            remedy = "write its name or number"
            raise items.fault("tags must be strings or integers", found, item, remedy)
        if value in (-100, "-100"):
            remedy = "write one tag for each word; words are split into tokens later"
            raise items.fault("every word must have a tag", "-100", item, remedy)
        if value == "" or (isinstance(value, str) and value.isspace()):
            raise items.fault("every word must have a tag", repr(value), item, "write its name")


def number_tags(
    tags: Items,
    name: str,
    fixed: tuple[str, ...] | None,
    labels: tuple[str, ...] | None,
    warnings: list[str],
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the id of each tag, int64 (w,), and the names by id.

    Args:
        tags: of all w words.
        name: what messages call the split.
        fixed: names by id where the task brings them.
        labels: those of training, to which new ones are added; None if this is training.
        warnings: lines are added for what should be known.

    Raises:
        InputError: if they are no tags of a task.
    """
    names, order = name_classes(tags.table, tags.column, fixed)
    counts = Counter(names)
    if labels is None:
        labels = tuple(tag for tag in order if tag in counts)
        warnings += [] if fixed else list_alike(labels, name, "tags")
        if absent := [tag for tag in order if tag not in counts]:
            warnings.append(f"tags without a word in {name}: {join_names(absent)}")
        if len(labels) < 2:
            raise InputError(
                f"a task needs at least 2 tags: column {tags.column!r} of {name} has only "
                f"{labels[0]!r:.60}; name another column with --label, or add rows"
            )
    if new := [tag for tag in order if tag in counts and tag not in labels]:
        words = sum(counts[tag] for tag in new)
        warnings.append(
            f"tags of {name} that do not occur in training, on {words:,} words, and so cannot be "
            f"learnt: {join_names(new)}"
        )
        labels = (*labels, *new)
    odd = [tag for tag in labels if tag != OUTSIDE and not mark_spans((tag,))]
    if odd and any(tag.startswith("B-") for tag in labels):
        warnings.append(
            f"some tags of {name} mark spans (B-...), but not {join_names(odd)}; so words are "
            "evaluated one by one, not as entities"
        )
    ids = {tag: number for number, tag in enumerate(labels)}
    numbers = np.array([ids[tag] for tag in names], dtype=np.int64)
    if mark_spans(labels) and (orphans := count_orphans(Tags(labels, tags.rows), numbers)):
        warnings.append(
            f"{orphans:,} of {len(names):,} tags of {name} continue a span that did not begin; "
            "they are read as its beginning (I- as B-)"
        )
    return numbers, labels
