"""Rows of a task, drawn from a split or held out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layerscout.errors import InputError


@dataclass(frozen=True, eq=False)
class Split:
    """Some labelled rows of a task, in the order of the file.

    Attributes:
        texts: n strings; where every word has a label, the words joined by spaces.
        pairs: the second texts of the same n rows, or None.
        labels: class ids, int64 (n,); targets, float64 (n,), for regression; which of K labels a
            row has, bool (n, K), where it may have several; or the class ids of all w words, row
            after row, int64 (w,).
        groups: int64 (n,), or None; rows with the same number are the choices of one example.
        origin: int64 (n,), the rows that these were taken from; None for 0..n-1.
        words: n tuples, the words of each row; None where rows have labels, not words.
    """

    texts: Sequence[str]
    pairs: Sequence[str] | None
    labels: np.ndarray
    groups: np.ndarray | None = None
    origin: np.ndarray | None = None
    words: Sequence[tuple[str, ...]] | None = None

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.texts)

    @cached_property
    def bounds(self) -> np.ndarray:
        """Where the words of each row begin among the labels, and the last ones end, (n + 1,)."""
        counts = [1] * len(self) if self.words is None else [len(words) for words in self.words]
        return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])

    @cached_property
    def sentences(self) -> np.ndarray:
        """The row of each word, (w,); of each label, where rows have labels."""
        return np.repeat(np.arange(len(self)), np.diff(self.bounds))

    @property
    def examples(self) -> int:
        """How many examples the rows are: the rows of a group are the choices of one."""
        return len(self) if self.groups is None else len(np.unique(self.groups))

    def __repr__(self) -> str:
        """Show how much there is: a task may hold a million texts."""
        return f"Split({len(self):,} {'rows' if self.pairs is None else 'pairs'})"

    def take(self, rows: np.ndarray) -> "Split":
        """Return the given rows, in the given order.

        Args:
            rows: row numbers (m,), counted from 0.
        """
        labels, words = self.labels, None
        if self.words is None:
            labels = labels[rows]
        else:
            words = [self.words[row] for row in rows]
            starts = self.bounds[rows]
            counts = np.array(list(map(len, words)), dtype=np.int64)
            labels = labels[concatenate_ranges(starts, starts + counts)]
        return Split(
            texts=[self.texts[row] for row in rows],
            pairs=None if self.pairs is None else [self.pairs[row] for row in rows],
            labels=labels,
            groups=None if self.groups is None else self.groups[rows],
            origin=rows if self.origin is None else self.origin[rows],
            words=words,
        )

    def pair_texts(self) -> Iterator[tuple[str, str]]:
        """Yield the pair of texts of each row; a single text stands twice."""
        return zip(self.texts, self.pairs or self.texts, strict=True)

    def join(self, other: "Split") -> "Split":
        """Return these rows and then those of another split, each with its number in its file."""
        groups, pairs, words = self.groups, self.pairs, self.words
        if groups is not None and other.groups is not None:
            groups = np.concatenate([groups, other.groups + groups.max() + 1])
        rows = [
            np.arange(len(split)) if split.origin is None else split.origin
            for split in (self, other)
        ]
        return Split(
            texts=[*self.texts, *other.texts],
            pairs=None if pairs is None else [*pairs, *(other.pairs or ())],
            labels=np.concatenate([self.labels, other.labels]),
            groups=groups,
            origin=np.concatenate(rows),
            words=None if words is None else [*words, *(other.words or ())],
        )


def number_texts(split: Split, choices: int = 1) -> np.ndarray:
    """Number the texts, or pairs of texts, from 0; those that occur again have one number.

    Args:
        split: n rows.
        choices: rows of each example, whose texts count together, in any order.

    Returns:
        The number of each example, int64 (n / choices,).
    """
    texts: Sequence[tuple[object, ...]] = [*split.pair_texts()]
    if choices > 1:
        starts = range(0, len(texts), choices)
        texts = [tuple(sorted(texts[start : start + choices])) for start in starts]
    numbers: dict[tuple[object, ...], int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)


def concatenate_ranges(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return starts[0]..ends[0] − 1, then starts[1]..ends[1] − 1, and so on, int64."""
    counts = ends - starts
    before = np.cumsum(counts) - counts
    numbers: np.ndarray = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
    return numbers


def hold_out(
    split: Split, fraction: float, seed: int, *, least: int = 2, together: np.ndarray | None = None
) -> tuple[Split, Split]:
    """Cut a split in two: what stays, and a stratified part of about `fraction` held out.

    Both keep the order of the rows. Each class is held out in proportion, to within one example,
    but keeps `least` where it is. Rows of one group stay together. Several labels, and the tags of
    sentences, are shared out by `deal_labels`.

    Args:
        fraction: between 0 and 1.
        seed: the same one draws the same rows.
        least: examples of a class that are not held out.
        together: (n,), in place of groups; rows with the same number stay together.

    Raises:
        InputError: if either part would be empty, or the fraction is out of range.
    """
    if not 0 < fraction < 1:
        raise InputError(
            f"the fraction to hold out must be between 0 and 1, got {fraction}; 0.1 is a tenth"
        )
    indicators = _list_indicators(split)
    if indicators is not None:
        example = np.arange(len(split)) if together is None else together
        n = int(example.max()) + 1
        joined = np.zeros((n, indicators.shape[1]), dtype=bool)
        np.logical_or.at(joined, example, indicators)
        count = round(fraction * n)
        held = deal_labels(joined, np.array([n - count, count]), seed) == 1
    else:
        example, strata = stratify(split.labels, split.groups if together is None else together)
        counts, n = np.bincount(strata), len(strata)
        seats = np.minimum(
            _apportion(counts, round(fraction * n), floor=0), np.maximum(counts - least, 0)
        )
        held = _draw(strata, seats, seed)
    if held.all() or not held.any():
        raise InputError(
            f"holding out {fraction:g} of {n} examples leaves one part empty (at least {least} of "
            "each class always stay in training); use another fraction or more data"
        )
    held = held[example]
    return split.take(np.flatnonzero(~held)), split.take(np.flatnonzero(held))


def sample(
    split: Split,
    classes: int,
    *,
    examples: int | None = None,
    balanced: bool = False,
    per_class: Sequence[int] | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Draw examples without replacement and return their row numbers, sorted, int64 (m,).

    The rows are class-proportional (largest remainder), with at least 2 of every class that has
    them. Groups are kept whole: then as many as fit into the number of rows asked for. Rows with
    several labels, and sentences, are shared out by `deal_labels`.

    Args:
        split: what is drawn from.
        classes: the number K of classes; 0 for regression, which is drawn evenly.
        examples: how many rows; None for all, or with `balanced` for as many as the smallest class
            allows.
        balanced: equally many of every class: `examples` // K.
        per_class: exactly these numbers, 2 or more, by class id, instead of `examples`.
        seed: the same one draws the same rows.

    Raises:
        InputError: if there are not so many examples, or they would be too few.
    """
    indicators = _list_indicators(split)
    several = indicators is not None or split.groups is not None
    if (balanced or per_class is not None) and (classes == 0 or several):
        raise InputError(
            "--balanced and --per-class need one class per example, not numbers, words, several "
            "labels or several choices; use --examples"
        )
    if indicators is not None:
        return _sample_labels(indicators, examples, seed)
    example, strata = stratify(split.labels, split.groups)
    counts = np.bincount(strata, minlength=0 if split.groups is not None else classes)
    if per_class is not None:
        seats = _check_exact_counts(counts, per_class, examples, balanced)
    elif balanced:
        seats = _share_equally(counts, examples)
    else:
        seats = _share_in_proportion(counts, len(split), examples)
    return np.flatnonzero(_draw(strata, seats, seed)[example])


def _list_indicators(split: Split) -> np.ndarray | None:
    """Return which labels each row has, or which tags each sentence, bool (n, K).

    None where every row has one class or a number.
    """
    if split.words is None:
        return split.labels if split.labels.dtype.kind == "b" else None
    indicators = np.zeros((len(split), int(split.labels.max(initial=0)) + 1), dtype=bool)
    indicators[split.sentences, split.labels] = True
    return indicators


def deal_labels(indicators: np.ndarray, sizes: np.ndarray, seed: int) -> np.ndarray:
    """Deal rows with several labels into parts that have every label in proportion.

    Iterative stratification, Sechidis et al. 2011: the rows of the label that fewest undealt rows
    have go, one after another, to the part that lacks most of that label; of equal ones to the part
    that lacks most rows.

    Args:
        indicators: which labels each row has, bool (n, K).
        sizes: of the parts, (B,), adding up to n.
        seed: the same one deals alike.

    Returns:
        The part of each row, int64 (n,).
    """
    n, rng = len(indicators), np.random.default_rng(seed)
    shuffled = rng.permutation(n)
    # What each part still lacks of each label, and of rows.
    labels = np.outer(sizes / n, indicators.sum(axis=0, dtype=np.int64))
    rows = sizes.astype(np.float64)
    left = indicators[shuffled].copy()
    dealt = np.full(n, -1)

    def deal(row: int, wanted: np.ndarray) -> None:
        wanted = np.where(rows > 0, wanted, -np.inf)
        best = np.flatnonzero(wanted >= wanted.max() - 1e-9)
        part = best[rows[best].argmax()]
        dealt[row] = part
        rows[part] -= 1
        labels[part, indicators[row]] -= 1

    while True:
        counts = left.sum(axis=0)
        if not counts.any():
            break
        rarest = int(np.where(counts > 0, counts, n + 1).argmin())
        for place in np.flatnonzero(left[:, rarest]):
            deal(shuffled[place], labels[:, rarest])
        left[left[:, rarest]] = False
    for row in shuffled[dealt[shuffled] < 0]:  # those of no label
        deal(row, rows)
    return dealt


# Parts that a sample is taken from, one after another: a prefix of them has labels in proportion.
PARTS = 32


def _sample_labels(indicators: np.ndarray, examples: int | None, seed: int) -> np.ndarray:
    """Draw rows in proportion to their labels; more of them contain the fewer."""
    n = len(indicators)
    if examples is None:
        return np.arange(n)
    if not 2 <= examples <= n:
        raise InputError(f"--examples must be in 2..{n}, got {examples}")
    parts = min(PARTS, n)
    dealt = deal_labels(indicators, np.bincount(np.arange(n) % parts), seed)
    order = np.random.default_rng(seed).permutation(n)
    order = order[np.argsort(dealt[order], kind="stable")]
    return np.sort(order[:examples])


def draw_words(split: Split, size: int | None, seed: int) -> np.ndarray:
    """Draw words with a balance over their tags: equally many of each, or all where they are fewer.

    What the rare tags leave is shared among the others, so that `O` has no more than it must. More
    words contain the fewer.

    Args:
        split: sentences of labelled words.
        size: how many at the most; None for all.
        seed: the same one draws the same words.

    Returns:
        Their numbers among all words, ascending, int64.

    Raises:
        InputError: if there are not so many.
    """
    tags = split.labels
    if size is None:
        return np.arange(len(tags))
    if not 2 <= size <= len(tags):
        raise InputError(f"--examples must be in 2..{len(tags)} words, got {size}")
    order, place = _shuffle_within(tags, seed)
    # The first words of all tags, then the second ones, and so on.
    return np.sort(order[np.lexsort((tags[order], place))][:size])


def stratify(labels: np.ndarray, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the example of each row (n,) and the stratum of each example (m,).

    Examples are of one stratum when their rows have the same classes; numbers are all of one.

    Args:
        labels: class ids (n,), or targets as floats.
        groups: (n,), or None; rows with the same number are one example.
    """
    numbers = labels.dtype.kind == "f"
    classes = np.zeros(len(labels), np.int64) if numbers else labels
    if groups is None:
        return np.arange(len(labels)), classes
    example: np.ndarray = np.unique(groups, return_inverse=True)[1].reshape(-1)
    makeup = np.zeros((example.max() + 1, classes.max() + 1), np.int64)
    np.add.at(makeup, (example, classes), 1)
    return example, np.unique(makeup, axis=0, return_inverse=True)[1].reshape(-1)


def _check_exact_counts(
    counts: np.ndarray, per_class: Sequence[int], examples: int | None, balanced: bool
) -> np.ndarray:
    """Check the numbers of examples that were asked for class by class."""
    if balanced or examples is not None:
        raise InputError(
            "--per-class already sets the numbers; leave out --examples and --balanced"
        )
    if len(per_class) != len(counts):
        raise InputError(
            f"--per-class needs a number for each of {len(counts)} classes, got {len(per_class)}"
        )
    for number, (examples_wanted, available) in enumerate(zip(per_class, counts, strict=True)):
        if not 2 <= examples_wanted <= available:
            raise InputError(
                f"--per-class must be in 2..{available} for class {number}, got {examples_wanted}"
            )
    return np.array(per_class, dtype=np.int64)


def _share_equally(counts: np.ndarray, examples: int | None) -> np.ndarray:
    """Share examples out equally."""
    smallest = int(counts.min())
    each = smallest if examples is None else examples // len(counts)
    if not 2 <= each <= smallest:
        remedy = f"--examples {2 * len(counts)} to {smallest * len(counts)}"
        raise InputError(
            f"--balanced draws the same number (at least 2) from each of {len(counts)} classes; "
            f"the smallest, class {counts.argmin()}, has {smallest}, got {each} for each; use "
            f"{remedy if smallest > 1 else '--drop-rare 2'}, or leave out --balanced"
        )
    return np.full(len(counts), each)


def _share_in_proportion(counts: np.ndarray, rows: int, examples: int | None) -> np.ndarray:
    """Share examples out in proportion, at least 2 to each class that has them.

    Counts may be of groups of rows; `rows`, of all and `examples` asked for, never are.
    """
    if examples is None:
        return counts
    total = int(counts.sum())
    least = int(np.minimum(counts, 2).sum())
    smallest = least * rows // total
    if examples > rows:
        raise InputError(f"--examples must be at most {rows}, the number available; got {examples}")
    if examples < smallest:
        raise InputError(
            f"--examples must be at least {smallest}, 2 of every class; got {examples}"
        )
    return _apportion(counts, max(least, examples * total // rows), floor=2)


def _apportion(counts: np.ndarray, total: int, *, floor: int) -> np.ndarray:
    """Split `total` <= sum of `counts` in proportion by largest remainder, ties to the lower id.

    Args:
        floor: what each gets at least (or all it has); the best served ones pay for it.
    """
    whole, remainder = np.divmod(counts * total, counts.sum())
    seats: np.ndarray = whole.astype(np.int64)
    seats[np.argsort(-remainder, kind="stable")[: total - seats.sum()]] += 1
    least = np.minimum(counts, floor)
    seats = np.maximum(seats, least)
    quota = counts * (total / counts.sum())
    for _ in range(int(seats.sum()) - total):
        seats[np.argmax(np.where(seats > least, seats - quota, -np.inf))] -= 1
    return seats


def _draw(strata: np.ndarray, seats: np.ndarray, seed: int) -> np.ndarray:
    """Choose `seats[s]` examples of every stratum s; return which, bool (m,)."""
    order, place = _shuffle_within(strata, seed)
    chosen = np.zeros(len(strata), dtype=bool)
    chosen[order[place < seats[strata[order]]]] = True
    return chosen


def _shuffle_within(strata: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return examples stratum by stratum, shuffled in each, and the place of each in its own."""
    shuffled = np.random.default_rng(seed).permutation(len(strata))
    order = shuffled[np.argsort(strata[shuffled], kind="stable")]
    sizes = np.bincount(strata)
    return order, np.arange(len(strata)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
