"""What is right for each example: rows, choices, and examples drawn or held out whole."""

from dataclasses import replace

import numpy as np
import pytest

from inputs import expect_refused
from layerscout.data import (
    Split,
    check_metric,
    draw_examples,
    expand_choices,
    make_targets,
    tabulate_predictions,
)
from telling import numbers_task
from tuned import choices_task, several_task, task_of, words_task


def test_classes_and_numbers_stand_row_by_row():
    task = task_of(n=9, held=0, classes=3)
    part = task.train.take(np.array([7, 2, 5]))
    targets = make_targets(part, "classification")
    assert (targets.choices, targets.rows.tolist()) == (1, [7, 2, 5])
    assert targets.labels.tolist() == [7 % 3, 2, 2] and len(targets) == 3
    numbers = numbers_task(5)
    targets = make_targets(numbers.train, "regression")
    assert targets.labels.dtype == np.float64 and targets.rows.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("choices", [2, 4])
def test_the_right_choice_of_each_example(choices):
    task = choices_task(n=7, choices=choices)
    targets = make_targets(task.train, "multiple_choice")
    assert targets.choices == choices and targets.rows.tolist() == list(range(7))
    at = np.arange(7) * choices + targets.labels
    assert task.train.labels[at].tolist() == [1] * 7 and task.train.labels.sum() == 7
    # A part of the examples has the rows of the file that they came from.
    some = task.train.take(expand_choices(np.array([5, 1]), choices))
    again = make_targets(some, "multiple_choice")
    assert again.rows.tolist() == [5, 1]
    assert again.labels.tolist() == targets.labels[[5, 1]].tolist()


def with_groups(groups, labels=(1, 0, 1, 0, 1, 0)):
    return Split(["a"] * 6, ["b"] * 6, np.array(labels), np.array(groups))


@pytest.mark.parametrize(
    ("split", "words"),
    [
        (with_groups([0, 0, 1, 1, 2, 2], (1, 0, 1, 1, 0, 1)), "one choice … 1 of 3"),
        (with_groups([0, 0, 1, 1, 2, 2], (1, 0, 0, 0, 1, 1)), "one choice … 2 of 3"),
        (with_groups([0, 1, 0, 1, 2, 2]), "in consecutive rows … 6 rows of 3"),
        (with_groups([0, 0, 0, 1, 1, 1]), "one choice"),
        (with_groups([0, 0, 0, 0, 1, 1]), "the same number … 6 rows of 2"),
        (with_groups([0, 0, 1, 1, 2, 3]), "the same number … 6 rows of 4"),
        (with_groups([0, 1, 2, 3, 4, 5]), "2 or more … 6 rows of 6"),
        (Split(["a"] * 6, None, np.zeros(6, dtype=np.int64)), "2 or more … 6 rows of 6"),
    ],
)
def test_rows_that_are_not_choices(split, words):
    expect_refused(words, make_targets, split, "multiple_choice")


def test_rows_of_another_kind():
    numbers, classes = numbers_task(6).train, task_of(held=0).train
    words, several = words_task(), several_task()
    for split, kind, line in (
        (classes, "regression", "regression … with one label"),
        (numbers, "classification", "classification … with numbers"),
        (numbers, "multiple_choice", "multiple choice … with numbers"),
        (words.train, "classification", "given rows with words"),
        (several.train, "classification", "given rows with several labels"),
        (classes, words.kind, "given rows with one label"),
    ):
        expect_refused(line, make_targets, split, kind)


def test_examples_are_drawn_whole():
    task = choices_task(n=20, choices=3)
    few = draw_examples(task, 5, seed=1)
    targets = make_targets(few.train, "multiple_choice")
    assert len(few.train) == 15 and len(targets) == 5 and len(set(targets.rows)) == 5
    everything = make_targets(task.train, "multiple_choice").labels
    assert targets.labels.tolist() == everything[targets.rows].tolist()
    others = make_targets(draw_examples(task, 5, seed=2).train, "multiple_choice").rows
    assert others.tolist() != targets.rows.tolist()
    assert draw_examples(task, "all", seed=1) is task
    expect_refused("at most 20 … got 21", draw_examples, task, 21, 0)
    expect_refused("at least 2 … got 1", draw_examples, task, 1, 0)


def test_numbers_and_classes_are_drawn():
    numbers = numbers_task(30)
    assert len(draw_examples(numbers, 7, seed=0).train) == 7
    expect_refused("at most 30 … got 31", draw_examples, numbers, 31, 0)
    classes = draw_examples(task_of(n=30, held=0, classes=3), 12, seed=0).train.labels
    assert np.bincount(classes).tolist() == [4, 4, 4]


def of_kind(kind):
    return replace(task_of(), kind=kind)


def test_metrics_that_do_not_fit():
    for metric, kind in (
        ("accuracy", "regression"),
        ("pearson", "classification"),
        ("f1", "multiple_choice"),
        ("mean_squared_error", "regression"),  # of which less is better
    ):
        line = expect_refused(metric, check_metric, metric, of_kind(kind))
        assert kind.replace("_", " ") in line
    numbers = of_kind("regression")
    expect_refused("known: pearson_spearman, pearson, spearman", check_metric, "x", numbers)
    check_metric("pearson_spearman", numbers)
    check_metric("accuracy", of_kind("multiple_choice"))
    words = words_task()
    check_metric("entity_f1", words)
    plain = replace(words, labels=("noun", "verb", "other"))
    expect_refused("accuracy, macro_f1 … mark no spans", check_metric, "entity_f1", plain)
    check_metric("accuracy", plain)


def test_the_table_of_predictions():
    task = task_of(n=4, held=0)
    logits = np.array([[0.0, 1.0], [2.0, 1.0], [0.0, 0.0], [0.0, 3.0]])
    table = tabulate_predictions(task, task.train, make_targets(task.train, task.kind), logits)
    assert table["label"] == ["bad", "fair", "bad", "fair"]
    assert table["text"] == task.train.texts and "text_pair" not in table
    assert table["prediction"] == ["fair", "bad", "bad", "fair"]
    numbers = numbers_task(4)
    table = tabulate_predictions(
        numbers, numbers.train, make_targets(numbers.train, numbers.kind), logits[:, 1:]
    )
    assert table["label"].tolist() == numbers.train.labels.tolist()
    assert table["prediction"].tolist() == [1.0, 1.0, 0.0, 3.0]
    choices = choices_task(n=4, choices=2)
    table = tabulate_predictions(
        choices, choices.train, make_targets(choices.train, choices.kind), logits
    )
    assert table["prediction"].tolist() == [1, 0, 0, 1]
    assert table["text"] == choices.train.texts[::2]
    assert table["choices"][1] == list(choices.train.pairs[2:4])
    assert all(
        one.tolist() == other.tolist() for one, other in zip(table["logits"], logits, strict=True)
    )
