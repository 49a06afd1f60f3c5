"""Parts held out, samples drawn, and batches: what they hold, and what cannot be had."""

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from inputs import expect_refused
from layerscout.data import Split, Task, batch_by_length, sample, shuffle_batches
from layerscout.errors import InputError


def numbered(labels: Any, groups: Any = None) -> Split:
    """Make a split whose texts are the row numbers."""
    ids = np.asarray(labels)
    return Split([str(row) for row in range(len(ids))], None, ids, groups)


def hold_out(split: Split, fraction: float, seed: int) -> tuple[Split, Split]:
    held = Task("rows", "classification", (), "accuracy", split, None, {}).hold_out(fraction, seed)
    assert held.validation is not None
    return held.train, held.validation


def rows_of(split: Split) -> list[int]:
    return [int(text) for text in split.texts]


def test_take_keeps_rows_together() -> None:
    split = Split(list("abc"), list("def"), np.array([0, 1, 2]), np.array([5, 5, 6]))
    taken = split.take(np.array([2, 0]))
    assert (taken.texts, taken.pairs) == (["c", "a"], ["f", "d"])
    assert taken.groups is not None and taken.groups.tolist() == [6, 5]
    assert taken.labels.tolist() == [2, 0]


# --- Held-out parts ----------------------------------------------------------------------------


labels_of_classes = st.lists(st.integers(2, 30), min_size=2, max_size=6).flatmap(
    lambda sizes: st.permutations([c for c, size in enumerate(sizes) for _ in range(size)])
)


@given(labels_of_classes, st.floats(0.05, 0.95), st.integers(0, 5))
def test_held_out_parts_are_disjoint_complete_and_stratified(
    labels: list[int], fraction: float, seed: int
) -> None:
    split = numbered(labels)
    try:
        train, held = hold_out(split, fraction, seed)
    except InputError:
        counts = np.bincount(labels)
        assert round(fraction * len(labels)) == 0 or (counts - 2).clip(0, None).min() == 0
        return
    assert rows_of(train) == sorted(rows_of(train)) and rows_of(held) == sorted(rows_of(held))
    assert sorted(rows_of(train) + rows_of(held)) == list(range(len(labels)))
    for label, size in Counter(labels).items():
        out = int((held.labels == label).sum())
        assert out < fraction * size + 1 + 1 / size and size - out >= 2
        assert out > fraction * size - 1.5 or size - out == 2
    assert rows_of(hold_out(split, fraction, seed)[1]) == rows_of(held)


def test_groups_and_numbers_are_held_out_whole() -> None:
    groups = np.repeat(np.arange(20), 4)
    train, held = hold_out(numbered([1, 0, 0, 0] * 20, groups), 0.1, 0)
    assert held.groups is not None and train.groups is not None
    assert len(held) == 8 and not set(held.groups) & set(train.groups)
    train, held = hold_out(numbered(np.linspace(0, 1, 30)), 0.1, 0)
    assert (len(train), len(held)) == (27, 3) and held.labels.dtype == np.float64


# --- Samples -----------------------------------------------------------------------------------


def draw(split: Split, classes: int, seed: int = 0, **options: Any) -> np.ndarray:
    given = {"examples": None, "balanced": False, "per_class": None} | options
    return sample(split, classes, seed=seed, **given)


@given(labels_of_classes, st.data(), st.integers(0, 5))
def test_samples_are_class_proportional(labels: list[int], data: st.DataObject, seed: int) -> None:
    split, counts = numbered(labels), np.bincount(labels)
    examples = data.draw(st.integers(2 * len(counts), len(labels)))
    rows = draw(split, len(counts), seed, examples=examples)
    assert len(rows) == examples and (np.diff(rows) > 0).all()
    assert np.array_equal(rows, draw(split, len(counts), seed, examples=examples))
    drawn = np.bincount(split.labels[rows], minlength=len(counts))
    assert (drawn >= 2).all() and (drawn <= counts).all()
    quota = counts * examples / len(labels)
    if (quota >= 2).all():
        assert (np.abs(drawn - quota) < 1).all()


@given(labels_of_classes, st.data())
def test_balanced_and_exact_samples(labels: list[int], data: st.DataObject) -> None:
    split, counts = numbered(labels), np.bincount(labels)
    each = data.draw(st.integers(2, int(counts.min())))
    rows = draw(split, len(counts), examples=each * len(counts) + 1, balanced=True)
    assert np.bincount(split.labels[rows]).tolist() == [each] * len(counts)
    rows = draw(split, len(counts), balanced=True)
    assert np.bincount(split.labels[rows]).tolist() == [counts.min()] * len(counts)
    asked = [data.draw(st.integers(2, int(size))) for size in counts]
    rows = draw(split, len(counts), per_class=asked)
    assert np.bincount(split.labels[rows], minlength=len(counts)).tolist() == asked
    assert (np.diff(rows) > 0).all()


def test_largest_remainders_by_hand() -> None:
    split = numbered([0] * 50 + [1] * 30 + [2] * 20)
    rows = draw(split, 3, examples=11)  # quotas 5.5, 3.3, 2.2
    assert np.bincount(split.labels[rows]).tolist() == [6, 3, 2]
    rare = numbered([0] * 990 + [1] * 10)
    rows = draw(rare, 2, examples=100)  # quotas 99, 1: the rare class gets its 2
    assert np.bincount(rare.labels[rows]).tolist() == [98, 2]


def test_samples_without_a_number_are_everything() -> None:
    assert draw(numbered([0, 1, 0, 1]), 2).tolist() == [0, 1, 2, 3]
    assert len(draw(numbered(np.linspace(0, 1, 30)), 0, examples=7)) == 7
    assert draw(numbered(np.arange(40) % 2), 2, 0, examples=10).tolist() != (
        draw(numbered(np.arange(40) % 2), 2, 1, examples=10).tolist()
    )


def test_samples_keep_groups_whole() -> None:
    groups = np.repeat(np.arange(9, -1, -1), 4)
    split = numbered([1, 0, 0, 0] * 10, groups)
    rows = draw(split, 2, examples=14)
    assert len(rows) == 12 and set(Counter(groups[rows]).values()) == {4}
    assert len(draw(split, 2, examples=40)) == len(draw(split, 2)) == 40
    expect_refused("at most 40", draw, split, 2, examples=41)
    expect_refused("at least 8", draw, split, 2, examples=7)
    expect_refused("--balanced", draw, split, 2, examples=4, balanced=True)


def test_samples_that_cannot_be_drawn() -> None:
    split = numbered([0, 0, 0, 1, 1, 2, 2])
    expect_refused("at most 7 … got 8", draw, split, 3, examples=8)
    expect_refused("at least 6 … 2 of every class … got 5", draw, split, 3, examples=5)
    expect_refused("class 1, has 2 … got 3 for each", draw, split, 3, examples=9, balanced=True)
    expect_refused("got 1 for each", draw, split, 3, examples=3, balanced=True)
    expect_refused("3 classes, got 2", draw, split, 3, per_class=[1, 2])
    expect_refused("2..2 for class 1, got 3", draw, split, 3, per_class=[2, 3, 2])
    expect_refused("2..3 for class 0, got 1", draw, split, 3, per_class=[1, 2, 2])
    expect_refused("2..2 for class 2, got 0", draw, split, 3, per_class=[2, 2, 0])
    expect_refused("leave out", draw, split, 3, per_class=[1, 1, 1], examples=3)
    expect_refused("--balanced", draw, numbered([0.5, 1.5]), 0, balanced=True)


# --- Batches -----------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 60), max_size=80), st.integers(1, 200))
def test_batches_cover_every_row_within_the_budget(lengths: list[int], tokens: int) -> None:
    sizes = np.array(lengths, dtype=np.int64)
    batches = batch_by_length(sizes, tokens)
    order = [int(row) for batch in batches for row in batch]
    assert order == sorted(range(len(lengths)), key=lambda row: -lengths[row])
    for number, batch in enumerate(batches):
        longest = max(1, int(sizes[batch].max()))
        assert len(batch) == 1 or len(batch) * longest <= tokens
        assert number == len(batches) - 1 or (len(batch) + 1) * longest > tokens


BUCKET_ROWS = 50 * 32  # which are sorted by length together


def drawn_batches(lengths: Any, size: int, seed: int = 0) -> list[list[int]]:
    batches = shuffle_batches(np.asarray(lengths), size, np.random.default_rng(seed))
    return [batch.tolist() for batch in batches]


@given(st.lists(st.integers(0, 60), max_size=120), st.integers(1, 50), st.integers(0, 9))
def test_shuffled_batches_hold_every_row_once(lengths: list[int], size: int, seed: int) -> None:
    batches = drawn_batches(np.array(lengths, dtype=np.int64), size, seed)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    short = [len(batch) for batch in batches if len(batch) != size]
    assert short == ([len(lengths) % size] if len(lengths) % size else [])
    assert batches == drawn_batches(np.array(lengths, dtype=np.int64), size, seed)


def test_shuffled_batches_differ_between_epochs_and_seeds() -> None:
    lengths, generator = np.full(300, 7), np.random.default_rng(3)
    epochs = [shuffle_batches(lengths, 8, generator) for _ in range(3)]
    orders = [tuple(np.concatenate(epoch).tolist()) for epoch in epochs]
    others = [tuple(row for batch in drawn_batches(lengths, 8, s) for row in batch) for s in (3, 4)]
    assert orders[0] == others[0] and len({*orders, *others}) == 4


def test_shuffled_batches_pad_little_and_keep_to_their_buckets() -> None:
    # As skewed as SST-2: 13 tokens in the mean, half of the rows below 10, a few above 50.
    rng = np.random.default_rng(5)
    lengths = np.clip(np.round(rng.lognormal(2.3, 0.75, 20_000)), 3, 66).astype(np.int64)
    assert 12 < lengths.mean() < 14.5
    batches = shuffle_batches(lengths, 32, np.random.default_rng(7))
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert padded <= 1.1 * lengths.sum()
    place = np.empty(len(lengths), np.int64)
    place[np.random.default_rng(7).permutation(len(lengths))] = np.arange(len(lengths))
    assert all(len(set(place[batch] // (BUCKET_ROWS))) == 1 for batch in batches)
    # The batches of all buckets are mixed, and not in the order of their lengths.
    buckets = [place[batch[0]] // (BUCKET_ROWS) for batch in batches]
    longest = [lengths[batch].max() for batch in batches]
    assert np.mean(np.diff(buckets) != 0) > 0.5
    assert abs(np.corrcoef(longest, np.arange(len(batches)))[0, 1]) < 0.15


# --- Where rows come from ----------------------------------------------------------------------


def test_rows_know_where_they_come_from() -> None:
    split = numbered(np.arange(60) % 3)
    assert split.origin is None
    rest, held = hold_out(split, 0.3, 0)
    assert rest.origin is not None and held.origin is not None
    assert (rest.origin.tolist(), held.origin.tolist()) == (rows_of(rest), rows_of(held))
    again = held.take(np.array([4, 1, 4]))
    assert again.origin is not None
    assert again.origin.tolist() == rows_of(again) == [rows_of(held)[row] for row in (4, 1, 4)]
