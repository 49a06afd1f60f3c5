"""Batches of rows: of similar length, plainly shuffled, or with classes in balance."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

# Batches that are sorted by length together: more would save little padding, and mix rows less.
BUCKET = 50


def batch_by_length(lengths: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Cut rows into batches of similar length that fit a budget when padded.

    Rows go longest first, equal ones in their order. A batch has rows x longest length <=
    `tokens`, or is one row.

    Args:
        lengths: tokens of each row, (n,).
        tokens: padded tokens of a batch at most, 1 or more.

    Returns:
        Row numbers of each batch; together every row once.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    batches = []
    start = 0
    while start < len(order):
        rows = max(1, tokens // max(1, int(lengths[order[start]])))
        batches.append(order[start : start + rows])
        start += rows
    return batches


def shuffle_batches(
    lengths: np.ndarray, size: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Cut rows into batches of `size`, shuffled at every call, with rows of like length together.

    Shuffled rows are taken in buckets of several batches; a bucket is sorted by length before it
    is cut, and the batches of all buckets are shuffled at the end.

    Args:
        lengths: tokens of each row, (n,).
        size: rows of a batch, 1 or more; one of them may have less.
        generator: draws the order.

    Returns:
        Row numbers of each batch; together every row once.
    """
    rows = generator.permutation(len(lengths))
    batches = []
    for start in range(0, len(rows), BUCKET * size):
        bucket = rows[start : start + BUCKET * size]
        bucket = bucket[np.argsort(-np.asarray(lengths)[bucket], kind="stable")]
        batches += [bucket[at : at + size] for at in range(0, len(bucket), size)]
    return [batches[at] for at in generator.permutation(len(batches))]


def shuffle_plainly(n: int, size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Cut n rows into batches of `size`, shuffled at every call whatever their lengths.

    Args:
        n: how many rows there are.
        size: rows of a batch, 1 or more; the last one may have less.
        generator: draws the order.

    Returns:
        Row numbers of each batch; together every row once.
    """
    rows = generator.permutation(n)
    return [rows[at : at + size] for at in range(0, n, size)]


def balance_batches(
    groups: Sequence[np.ndarray], size: int, generator: np.random.Generator
) -> Iterator[np.ndarray]:
    """Draw batches without end in which all groups that fit have as many rows, two or more.

    Groups and the rows of each come in turns, and every turn is shuffled, so those of small groups
    come more often.

    Args:
        groups: row numbers of each class or label; a row may be in several.
        size: rows of a batch; groups with a single row, or none left that is not in the batch, give
            it less.
        generator: draws the order.

    Yields:
        Row numbers of a batch, each once.
    """

    def turn(items: Sequence[np.ndarray] | np.ndarray) -> Iterator[Any]:
        while True:
            yield from (items[at] for at in generator.permutation(len(items)))

    groups = [group for group in groups if len(group)]
    chosen, queues = turn(np.arange(len(groups))), [turn(group) for group in groups]
    fitting = max(1, min(len(groups), size // 2))
    while True:
        batch: dict[int, None] = {}
        for n in range(fitting):
            number = next(chosen)
            wanted = min(size // fitting + (n < size % fitting), len(groups[number]))
            for _ in range(wanted):
                batch[int(next(queues[number]))] = None
        yield generator.permutation([*batch])  # processes share a batch by its order
