"""A label, called its tag, for every word of a text, and the spans that tags mark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerscout.data.labels import Named, find_near_duplicate_labels, name_classes, number_classes
from layerscout.data.tables import (
    Table,
    check_items,
    join_names,
    lay_out,
    name_value,
    read_lists,
)
from layerscout.errors import InputError

OUTSIDE = "O"
# Of IOB2 and BIOES: where in a span of which type a word is.
_IN_SPAN = re.compile("([BIES])(?:-(.+))?", re.DOTALL)
# The type of spans without one (B, I and O alone, as in NCBI-disease), as `seqeval` calls it.
_NO_TYPE = "_"
# Tags as other schemes write them: b-per, B_PER, U-PER, or PER-B.
_LIKE_SPANS = [
    re.compile(form, re.DOTALL | re.IGNORECASE)
    for form in ("([BIESLUM])(?:[-_:./ |–—](.+))?", "(?=.*(.)$)(.+)[-_:./ |–—][BIESLUM]")
]


@dataclass(frozen=True, eq=False)
class Tags:
    """What joins the tags of w words into spans.

    Attributes:
        names: of the tags by id, such as "B-person".
        sentences: the sentence of each word, int64 (w,), ascending; no span goes beyond its own.
    """

    names: tuple[str, ...]
    sentences: np.ndarray

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def are_spans(self) -> bool:
        """Whether the tags mark spans; plain ones, such as parts of speech, do not."""
        return mark_spans(self.names)

    @property
    def types(self) -> tuple[str, ...]:
        """The types of spans, such as "person", in alphabetical order; "_" stands for none."""
        return tuple(sorted({type_of for _, type_of in self._parts if type_of}))

    @property
    def _parts(self) -> list[tuple[str, str]]:
        """The prefix and the type of each tag; of "O", itself and nothing."""
        matches = [_IN_SPAN.fullmatch(name) for name in self.names]
        return [(one[1], one[2] or _NO_TYPE) if one else (OUTSIDE, "") for one in matches]

    def _have(self, prefixes: str) -> np.ndarray:
        """Return which tags have one of some prefixes."""
        return np.array([prefix in prefixes for prefix, _ in self._parts])


def mark_spans(names: Sequence[str]) -> bool:
    """Return whether tags of these names mark spans: B-, I-, E- or S- and a type, or "O".

    The letters alone do so, too, if there is a B, or an I beside O; S and O may be anything.
    """
    inside = [name for name in names if name != OUTSIDE]
    sure = any("-" in name for name in inside) or "B" in inside or {"I", OUTSIDE} <= {*names}
    return sure and all(map(_IN_SPAN.fullmatch, inside))


def find_other_schemes(names: Sequence[str]) -> list[str]:
    """Return the tags that mark no spans, where these or the others look as if they should.

    Others do if they begin with B- or I-, or are B, I and O. These do if they are written as in
    another scheme: all of them, or one that begins a type of span and one that continues it.
    """
    odd = [name for name in names if name != OUTSIDE and not _IN_SPAN.fullmatch(name)]
    if mark_spans(names) or any(re.match("[BI]-.", name) for name in names):
        return odd
    if {"B", "I", OUTSIDE} <= {*names}:
        return odd
    for form in _LIKE_SPANS:
        matches = [form.fullmatch(name) for name in names if name.upper() != OUTSIDE]
        parts = {(one[1].upper(), one[2]) for one in matches if one}
        begun = {type_of for part, type_of in parts if part == "B"}
        pairs = any(type_of in begun for part, type_of in parts if part in "IELM" and type_of)
        if begun and (pairs or all(matches)):
            return odd
    return []


def find_spans(tags: Tags, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the spans that tags mark, in the order of their words, as `seqeval` does by default.

    A span also begins with an I- or E- that continues nothing of its type, and ends where nothing
    continues it, so no sequence of tags is wrong: `conlleval` of CoNLL-2000 counts so.

    Args:
        tags: that mark spans.
        ids: of the tags of the words, int64 (w,).

    Returns:
        Of each of s spans its type, a number of `Tags.types`, and its first and its last word,
        counted from 0 over all sentences, int64 (s,) each.
    """
    types, inside, breaks = _read(tags, ids)
    first = np.flatnonzero(inside & breaks[:-1])
    last = np.flatnonzero(inside & breaks[1:])
    return types[first], first, last


def count_orphans(tags: Tags, ids: np.ndarray) -> int:
    """Count the spans that begin with I- or E-, read as B-: nothing of their type is before them.

    Args:
        tags, ids: as of `find_spans`.
    """
    _, _, breaks = _read(tags, ids)
    return int(np.count_nonzero(breaks[:-1] & tags._have("IE")[ids]))


def label_pieces(
    tags: Tags, labels: np.ndarray, words: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """Return the tags of pieces of words with which transformers' pipeline joins them as here.

    A piece after the first one has I- of a B- or S-, if there is one. A blank one before has the
    tag of a word that goes on, and else none: the pipeline makes a word of it.

    Args:
        tags: what the tags are.
        labels: ids of those of the words, int64 (w,).
        words: of each piece, int64 (m,).
        places: 0 of the first piece with a character of the word, −1 before it, 1 after it, (m,).
    """
    numbers = {name: number for number, name in enumerate(tags.names)}
    inner = list(numbers.values())
    for name, number in numbers.items():
        if tags.are_spans and name[0] in "BS":
            inner[number] = numbers.get(f"I{name[1:]}", numbers.get(f"E{name[1:]}", number))
    _, _, breaks = _read(tags, labels)
    own, outside = labels[words], numbers.get(OUTSIDE)
    before = own if outside is None else np.where(breaks[words], outside, own)
    pieces: np.ndarray = np.select([places < 0, places > 0], [before, np.array(inner)[own]], own)
    return pieces


def count_spans(
    tags: Tags, labels: np.ndarray, predicted: np.ndarray, groups: np.ndarray | None = None
) -> np.ndarray:
    """Count the spans of each group by their type; a span is right if its type and words are.

    Args:
        tags: that mark spans.
        labels, predicted: ids of the tags of the words (w,).
        groups: of the words, 0..G−1 (w,), the same for all of a sentence; one group if None.

    Returns:
        How many are right, predicted and true, float64 (G, types, 3).
    """
    group = np.zeros(len(tags), np.int64) if groups is None else groups
    shape = int(group.max(initial=0)) + 1, len(tags.types)
    true, predicted_spans = find_spans(tags, labels), find_spans(tags, predicted)
    # At most one span begins at a word.
    ends = np.full((2, len(tags)), -1)
    cells = []
    for side, (types, first, last) in zip(ends, (true, predicted_spans), strict=True):
        side[first] = last * shape[1] + types
        cells.append(group[first] * shape[1] + types)
    right = (ends[0] == ends[1])[predicted_spans[1]]
    return stack_counts((cells[1][right], cells[1], cells[0]), shape)


def stack_counts(cells: Sequence[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """Count how often each cell of a table of some shape occurs in each list of cells, by numbers.

    Returns:
        float64 (*shape, lists).
    """
    counts = [np.bincount(some, minlength=shape[0] * shape[1]).reshape(shape) for some in cells]
    return np.stack(counts, axis=-1).astype(np.float64)


def _read(tags: Tags, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read tags word by word.

    Returns:
        The type of each word, −1 outside spans (w,); whether it is in a span (w,); and whether no
        span goes on from the word before each one to it, and from the last one, (w + 1,).
    """
    numbers = {name: number for number, name in enumerate(tags.types)}
    types = np.array([numbers.get(name, -1) for _, name in tags._parts])[ids]
    begins, ends = tags._have("BS")[ids], tags._have("ES")[ids]
    breaks = np.ones(len(ids) + 1, dtype=bool)
    breaks[1:-1] = (np.diff(tags.sentences) != 0) | (np.diff(types) != 0) | begins[1:] | ends[:-1]
    return types, types >= 0, breaks


def read_sentences(
    table: Table, text: str, label: str, warnings: list[str]
) -> tuple[list[tuple[str, ...]], Table, np.ndarray]:
    """Read lists of words and of their tags; rows without words are left out.

    Args:
        table: the rows.
        text: the column of the words.
        label: the column of the tags.
        warnings: a line is added for rows that are left out.

    Returns:
        The words of the n rows that have any; a table of the tags of all words, as they are
        written; and the numbers of these rows, int64 (n,).

    Raises:
        InputError: if the words or tags cannot be read, or do not match.
    """
    remedy = "write one for each word, or drop the row"
    words = read_lists(table, text, "every row must have a list of words", "fill or drop the row")
    tags = read_lists(table, label, "every row must have a list of tags", remedy)
    for row, counts in enumerate(zip(map(len, words), map(len, tags), strict=True)):
        if counts[0] != counts[1]:
            actual = f"{counts[0]} words and {counts[1]} tags"
            raise table.fault("every word must have a tag", actual, label, row, "correct the row")
        for word in words[row]:
            if not isinstance(word, str):
                remedy = "write it as a string"
                raise table.fault("words must be strings", name_value(word), text, row, remedy)
    kept = np.flatnonzero(list(map(len, words)))
    if not len(kept):
        raise InputError(f"{table.name} has no words in column {text!r:.60}; it needs some")
    if len(kept) < len(words):
        count = len(words) - len(kept)
        warnings.append(
            f"{count} of {len(words)} rows of {table.name} have no words and are left out"
        )
    items = lay_out(table, label, tags)[0]
    check_items(items, label, "tags", "write its name or number")
    for place, tag in enumerate(items.columns[label]):
        if tag in (-100, "-100"):
            remedy = "write one tag for each word; words are split into tokens later"
            raise items.fault("every word must have a tag", "-100", label, place, remedy)
    return [tuple(words[row]) for row in kept], items, kept


def number_tags(
    tags: Table,
    column: str,
    named: Named,
    labels: tuple[str, ...] | None,
    warnings: list[str],
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the id of each tag, int64 (w,), and the names by id.

    Args:
        tags: a row for each of all w words.
        column: that they are in.
        named: the names that they are read with.
        labels: those of training, to which new ones are added; None if this is training.
        warnings: lines are added for what should be known.

    Raises:
        InputError: if they are no tags of a task.
    """
    name = tags.name
    names, order = name_classes(tags, column, named, warnings)
    counts = Counter(names)
    first = labels is None
    if labels is None:
        labels = tuple(tag for tag in order if tag in counts)
        warnings += [] if named[0] else find_near_duplicate_labels(labels, name, "tags")
        if absent := [tag for tag in order if tag not in counts]:
            warnings.append(f"tags without a word in {name}: {join_names(absent)}")
        if len(labels) < 2:
            raise InputError(
                f"a task needs at least 2 tags: column {column!r} of {name} has only "
                f"{labels[0]!r:.60}; name another column with --label, or add rows"
            )
    if new := [tag for tag in order if tag in counts and tag not in labels]:
        words = sum(counts[tag] for tag in new)
        warnings.append(
            f"tags of {name} that do not occur in training, on {words:,} words, and so cannot be "
            f"learnt: {join_names(new)}"
        )
        labels = (*labels, *new)
    if (first or new) and (odd := find_other_schemes(labels)):
        warnings.append(
            f"tags of {name} look like spans, but only O and names with B-, I-, E- or S- mark "
            f"them, not {join_names(odd)}; so words are evaluated one by one, not as entities"
        )
    numbers = number_classes(tags, column, names, labels, "tag")
    sentences = np.asarray(tags.rows)
    if mark_spans(labels) and (orphans := count_orphans(Tags(labels, sentences), numbers)):
        warnings.append(
            f"{orphans:,} of {len(names):,} tags of {name} continue a span that did not begin; "
            "they are read as its beginning (I- as B-)"
        )
    return numbers, labels
