"""Classes with few rows: named, left out or merged; and rows whose texts occur again."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from layerscout.data.known_tasks import Kind
from layerscout.data.sampling import Split, number_texts
from layerscout.data.tables import NUMBER, name_some
from layerscout.errors import InputError, check_integer

# The share of rows that may have a text of others; published data have some (CoLA: 16 of 1,043).
REPEATED = 0.05
# Texts with several labels that are shown, and their characters.
SHOWN, LONGEST = 3, 40
# The class that rare ones are merged into.
OTHER = "other"


def settle_rare(
    name: str,
    kind: Kind,
    labels: tuple[str, ...],
    splits: Mapping[str, Split],
    drop: int | None,
    merge: int | None,
) -> tuple[tuple[str, ...], dict[str, Split], list[str]]:
    """Leave out or merge the classes that few training rows have, as far as that was asked for.

    Args:
        name: of the training rows.
        kind: of the task.
        labels: names of the classes by id.
        splits: "train" among them.
        drop: classes with fewer rows are left out, in all splits.
        merge: classes with fewer rows become one, `OTHER`, which may be there already.

    Returns:
        The classes, the splits, and what should be known.

    Raises:
        InputError: if this leaves no two classes, or examples do not have one class each.
    """
    fewest = {"drop_rare": drop, "merge_rare": merge}
    asked = {option: n for option, n in fewest.items() if n is not None}
    for option, n in asked.items():
        check_integer(option, n, 2)
        if kind != "classification":
            raise InputError(f"`{option}` is for texts of one class each; leave it out")
    if kind != "classification":
        return labels, dict(splits), []
    counts, notes = np.bincount(splits["train"].labels, minlength=len(labels)), []
    gone = counts < (drop or 0)
    joined = ~gone & (counts < (merge or 0))
    for rare, what in ((gone, "left out"), (joined, f"merged into {OTHER!r}")):
        if rare.any():
            named = name_some([labels[k] for k in np.flatnonzero(rare)])
            notes.append(
                f"{rare.sum()} of {len(labels)} classes of {name} with {counts[rare].sum():,} of "
                f"{counts.sum():,} training rows are {what}: {named}"
            )
    names = [OTHER if joined[k] else label for k, label in enumerate(labels) if not gone[k]]
    kept = tuple(sorted(dict.fromkeys(names), key=lambda label: label == OTHER and joined.any()))
    if len(kept) < 2:
        options = " and ".join(f"--{option.replace('_', '-')} {n}" for option, n in asked.items())
        raise InputError(
            f"a task needs at least 2 classes: {options} leaves {len(kept)} of the {len(labels)} "
            f"of {name}; give a smaller number"
        )
    if len(notes):
        ids = np.full(len(labels), -1)
        ids[~gone] = [kept.index(label) for label in names]
        splits = {part: _renumber(split, ids) for part, split in splits.items()}
    return kept, dict(splits), [*notes, *_warn_of_singles(name, kept, splits["train"].labels)]


def _renumber(split: Split, ids: np.ndarray) -> Split:
    """Return a split with other class ids, without the rows whose class has −1."""
    rows = np.flatnonzero(ids[split.labels] >= 0)
    part = split if len(rows) == len(split) else split.take(rows)
    return replace(part, labels=ids[part.labels])


def _warn_of_singles(name: str, labels: tuple[str, ...], own: np.ndarray) -> list[str]:
    """Name the classes of a single training row."""
    single = [labels[k] for k in np.flatnonzero(np.bincount(own) == 1)]
    if not single:
        return []
    numbers = "; --regression predicts numbers" if all(map(NUMBER.fullmatch, labels)) else ""
    have = "has one row" if len(single) == 1 else "have one row each"
    return [
        f"{len(single)} of {len(labels)} classes of {name} {have}, which is trained on and left "
        f"out of the scores: {name_some(single)}; --drop-rare 2 leaves such classes out, "
        f"--merge-rare N makes one class, {OTHER!r}, of those with fewer than N rows{numbers}"
    ]


def warn_of_repeats(name: str, kind: Kind, labels: tuple[str, ...], split: Split) -> list[str]:
    """Warn of training rows whose text occurs again: many of them, or with other labels.

    Args:
        name: of the rows.
        kind: of the task; choices and words are not compared.
        labels: names by id.
        split: the rows.
    """
    if kind in ("multiple_choice", "token_classification"):
        return []
    numbers, lines = number_texts(split), []
    again = len(numbers) - int(numbers.max()) - 1
    if again > REPEATED * len(numbers):
        lines.append(
            f"{again:,} of {len(numbers):,} rows of {name} have a text that is there before; rows "
            "of one text stay together where some are judged by others"
        )
    if kind == "regression":
        return lines
    firsts = np.unique(numbers, return_index=True)[1]
    own = split.labels.reshape(len(split), -1)
    written = np.array([bool(text.strip()) for text in split.texts])  # empty ones: said elsewhere
    other = np.flatnonzero((own != own[firsts[numbers]]).any(axis=1) & written)
    if len(other):
        shown = []
        for row in other[:SHOWN]:
            pair = (_name_labels(split.labels[n], labels) for n in (firsts[numbers[row]], row))
            text = split.texts[row]
            short = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
            shown.append(f"{short!r} as {' and '.join(pair)}")
        count, more = np.isin(numbers, numbers[other]).sum(), ", ..." * (len(other) > SHOWN)
        what, remedy = (
            ("other labels", "put them into one row, or drop the others")
            if split.labels.ndim == 2
            else ("another label", "correct them, or drop one of each")
        )
        lines.append(
            f"{count:,} of {len(numbers):,} rows of {name} have a text that has {what} too: "
            f"{', '.join(shown)}{more}; {remedy}"
        )
    return lines


def _name_labels(label: np.ndarray, labels: tuple[str, ...]) -> str:
    own = [labels[k] for k in (np.flatnonzero(label) if label.ndim else [label])]
    return "+".join(f"{name:.40}" for name in own) or "none"
