"""Several labels for a text and a label for every word: metrics, thresholds, drawing."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn import metrics as sklearn_metrics

from inputs import expect_refused
from layerscout.data import (
    METRICS_OF,
    Split,
    Tags,
    deal_labels,
    draw_words,
    evaluate,
    evaluate_all,
    evaluate_by_name,
    evaluate_without,
    find_exchange,
    make_targets,
    sample,
    settle_thresholds,
    tabulate_predictions,
    tune_thresholds,
    warn_of_answers,
    warn_of_exchange,
)
from tuned import several_task, words_task

NAMES = METRICS_OF["multi_label_classification"]


def drawn(n=40, labels=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, labels)) < 0.35, rng.normal(size=(n, labels)).round(1)


@pytest.mark.filterwarnings("ignore")
@given(st.integers(2, 30), st.integers(2, 6), st.integers(0, 999))
@settings(max_examples=60)
def test_metrics_of_several_labels_equal_scikit_learns(n, labels, seed):
    own, logits = drawn(n, labels, seed)
    predicted = logits > 0

    def f1(average, zero_division=0.0):
        return sklearn_metrics.f1_score(
            own, predicted, average=average, zero_division=zero_division
        )

    seen = own.any(axis=0) | predicted.any(axis=0)
    expected = {
        "micro_f1": f1("micro"),
        # Ours is the mean over the labels that occur or are predicted.
        "macro_f1": f1("macro") * labels / max(1, seen.sum()),
        "samples_f1": f1("samples", 1.0),
        "lrap": sklearn_metrics.label_ranking_average_precision_score(own, logits),
        "subset_accuracy": (own == predicted).all(axis=1).mean(),
    }
    values = evaluate_all("multi_label_classification", own, logits)
    assert values == pytest.approx(expected, abs=1e-12)
    by_name = evaluate_by_name([str(k) for k in range(labels)], own, logits)
    reference = sklearn_metrics.precision_recall_fscore_support(
        own, predicted, average=None, zero_division=0.0
    )
    rows = [list(row.values()) for row in by_name.values()]
    np.testing.assert_allclose(np.array(rows).T, np.array(reference), atol=1e-12)


KINDS = ("classification", "multi_label_classification", "regression")


@pytest.mark.parametrize(
    ("kind", "metric"), [(kind, metric) for kind in KINDS for metric in METRICS_OF[kind]]
)
def test_groups_are_left_out_as_if_the_rest_were_alone(kind, metric):
    rng, groups = np.random.default_rng(1), np.arange(40) % 5
    labels, logits = drawn()
    if kind == "classification":
        labels, predicted = rng.integers(0, 4, (2, 40))
        logits = np.eye(4)[predicted]
    elif kind == "regression":
        labels, predicted = rng.normal(size=(2, 40))
        logits = predicted[:, None]
    without = evaluate_without(metric, labels, logits, groups)
    for group in range(5):
        own = groups == group
        rest = evaluate(metric, labels[~own], logits[~own])
        assert without[group] == pytest.approx(rest, abs=1e-12)


def test_sentences_are_left_out_whole():
    task = words_task(n=30)
    targets = make_targets(task.train, task.kind, task.labels)
    logits = np.random.default_rng(0).normal(size=(len(targets), 3))
    groups = targets.tags.sentences % 4
    values = evaluate_without("entity_f1", targets.labels, logits, groups, tags=targets.tags)
    for group in range(4):
        rows = groups != group
        tags = Tags(task.labels, targets.tags.sentences[rows])
        alone = evaluate("entity_f1", targets.labels[rows], logits[rows], tags=tags)
        assert values[group] == pytest.approx(alone)


def test_metrics_that_are_not_for_these_labels():
    labels, logits = drawn()
    expect_refused("accuracy … micro_f1", evaluate, "accuracy", labels, logits)
    expect_refused("micro_f1 … accuracy", evaluate, "micro_f1", np.array([0, 1]), np.eye(2))
    plain = Tags(("noun", "verb"), np.zeros(2, np.int64))
    expect_refused(
        "known: accuracy, macro_f1", evaluate, "entity_f1", np.array([0, 1]), np.eye(2), tags=plain
    )
    values = evaluate_all("token_classification", np.array([0, 1]), np.eye(2), tags=plain)
    assert values == {"accuracy": 1.0, "macro_f1": 1.0}
    two = Tags(("B-x", "O"), np.zeros(4, np.int64))
    values = evaluate("macro_f1", np.array([0, 1, 1, 1]), np.eye(2)[[1, 1, 1, 1]], tags=two)
    assert values == pytest.approx((0 + 6 / 7) / 2)  # not F1 of O alone


@given(st.integers(0, 500), st.integers(8, 40))
@settings(max_examples=40)
def test_thresholds_are_the_best_there_are(seed, n):
    labels, logits = drawn(n, 3, seed)
    labels[:, 2] &= np.arange(n) < 9  # too rare for one of its own
    thresholds = tune_thresholds(labels, logits)
    assert ((thresholds > 0) & (thresholds < 1)).all()
    predicted = logits > np.log(thresholds / (1 - thresholds))
    cuts = [-99.0, *np.unique(logits)]

    def f1(own, said):
        return 2 * (own & said).sum() / max(1, own.sum() + said.sum())

    rare = labels.sum(axis=0) < 10
    for k in np.flatnonzero(~rare):
        best = max(f1(labels[:, k], logits[:, k] > cut) for cut in cuts)
        assert f1(labels[:, k], predicted[:, k]) == pytest.approx(best)
    if rare.all() and labels.any():
        best = max(f1(labels, logits > cut) for cut in cuts)
        assert f1(labels, predicted) == pytest.approx(best)
    assert len(set(thresholds[rare])) <= 1


def test_thresholds_that_are_given():
    labels, logits = drawn()
    assert settle_thresholds(None, labels, logits) is None
    assert settle_thresholds(0.3, labels, logits).tolist() == [0.3] * 4
    assert tune_thresholds(labels & False, logits).tolist() == [0.5] * 4
    certain = np.where(labels, 200.0, -200.0)
    assert evaluate("micro_f1", labels, certain, thresholds=tune_thresholds(labels, certain)) == 1


@pytest.mark.parametrize("sizes", [[90, 10], [25] * 4, [5] * 20])
def test_labels_are_dealt_in_proportion(sizes):
    rng = np.random.default_rng(1)
    indicators = rng.random((100, 6)) < np.array([0.5, 0.3, 0.2, 0.1, 0.05, 0.02])
    dealt = deal_labels(indicators, np.array(sizes), 0)
    assert np.bincount(dealt).tolist() == sizes
    for k in range(6):
        wanted = indicators[:, k].sum() * np.array(sizes) / 100
        counts = np.bincount(dealt, indicators[:, k], len(sizes))
        assert abs(counts - wanted).max() <= 2
    again = deal_labels(indicators, np.array(sizes), 0)
    other = deal_labels(indicators, np.array(sizes), 1)
    assert (dealt == again).all() and (dealt != other).any()


def test_a_label_with_two_rows_stays_in_training():
    task = several_task(n=60)
    labels = np.zeros((60, 3), dtype=bool)
    labels[[4, 9], 0] = labels[::2, 1] = True
    task = replace(task, train=Split(task.train.texts, None, labels)).hold_out(0.2, 0)
    kept, held = task.train, task.validation
    assert len(held) == 12 and kept.labels[:, 0].sum() == 2
    assert 5 <= held.labels[:, 1].sum() <= 7
    assert sorted([*kept.origin, *held.origin]) == list(range(60))


def test_more_examples_contain_the_fewer():
    task = several_task(n=80)
    rows = [set(sample_of(task.train, size)) for size in (10, 20, 45, 80)]
    assert [len(some) for some in rows] == [10, 20, 45, 80]
    assert rows[0] < rows[1] < rows[2] < rows[3]
    share = task.train.labels.mean(axis=0)
    few = task.train.labels[sorted(rows[2])].mean(axis=0)
    np.testing.assert_allclose(few, share, atol=0.06)


def sample_of(split, size, **options):
    usual = {"balanced": False, "per_class": None, "seed": 0}
    return sample(split, 3, examples=size, **(usual | options)).tolist()


def test_what_cannot_be_drawn():
    split = several_task(n=20).train
    expect_refused("2..20, got 30", sample_of, split, 30)
    expect_refused("--balanced", sample_of, split, None, balanced=True)
    expect_refused("--per-class", sample_of, words_task().train, None, per_class=(2, 2, 2))


def test_sentences_are_held_out_with_their_tags():
    task = words_task(n=40)
    parts = task.hold_out(0.25, 0)
    kept, held = parts.train, parts.validation
    assert (len(kept), len(held)) == (30, 10)
    assert len(held.labels) == sum(map(len, held.words))
    for part in (kept, held):
        rows = part.origin
        assert [task.train.words[row] for row in rows] == list(part.words)
        bounds = task.train.bounds
        tags = [task.train.labels[bounds[row] : bounds[row + 1]] for row in rows]
        assert part.labels.tolist() == np.concatenate(tags).tolist()


def test_words_are_drawn_with_a_balance_over_tags():
    tags = np.repeat([0, 1, 2], [900, 60, 5])
    np.random.default_rng(0).shuffle(tags)
    words = [tuple("word" for _ in range(5)) for _ in range(193)]
    split = Split([" ".join(row) for row in words], None, tags, words=words)
    drawn_ = {size: draw_words(split, size, 0) for size in (12, 60, 300)}
    counts = {size: np.bincount(tags[rows]).tolist() for size, rows in drawn_.items()}
    assert counts == {12: [4, 4, 4], 60: [28, 27, 5], 300: [235, 60, 5]}
    assert set(drawn_[12]) < set(drawn_[60]) < set(drawn_[300])
    assert draw_words(split, None, 0).tolist() == list(range(965))
    expect_refused("2..965", draw_words, split, 1000, 0)


def test_predictions_are_listed_by_name():
    task = several_task(n=4, held=0)
    task.train.labels[:] = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]], dtype=bool)
    logits = np.where(task.train.labels, 1.0, -1.0)
    table = tabulate_predictions(task, task.train, make_targets(task.train, task.kind), logits)
    assert table["label"] == [["label 0"], [], ["label 0", "label 1", "label 2"], ["label 1"]]
    assert table["prediction"] == table["label"]
    none = tabulate_predictions(
        task, task.train, make_targets(task.train, task.kind), logits, np.array([0.9, 0.9, 0.9])
    )
    assert none["prediction"] == [[], [], [], []]


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        empty = np.zeros((5, 3), dtype=bool)
        values = evaluate_all("multi_label_classification", empty, np.full((5, 3), -1.0))
    assert values["samples_f1"] == values["subset_accuracy"] == values["lrap"] == 1.0
    assert values["micro_f1"] == values["macro_f1"] == 0.0


IDS, ONES, MARKS = np.array([0, 1, 2, 1]), np.ones(4, dtype=np.int64), np.eye(3, dtype=bool)
ONE_CLASS = "one class only: 'fear' for all 4 {} … --class-weights balanced"


@pytest.mark.parametrize(
    ("kind", "labels", "predicted", "words"),
    [
        ("classification", IDS, ONES, ONE_CLASS.format("validation examples")),
        ("token_classification", IDS, ONES, ONE_CLASS.format("words")),
        (
            "classification",
            IDS,
            np.array([1, 1, 1, 0]),
            "never predicts 1 of its 3 classes … of 4 validation examples have: 'anger'; more",
        ),
        ("classification", IDS, np.array([1, 2, 0, 0]), None),
        (
            "multi_label_classification",
            MARKS,
            np.diag([True, False, True]),
            "never predicts 1 of its 3 labels … 'fear'; … --threshold tuned",
        ),
        ("classification", ONES, ONES, None),  # then it is right
        ("regression", IDS / 2, ONES / 2, None),
        (
            "multi_label_classification",
            MARKS,
            MARKS & False,
            "no label for any of 3 validation examples … --threshold tuned",
        ),
        (
            "multi_label_classification",
            MARKS,
            np.tile([True, False, True], (3, 1)),
            "the same labels for all 3 validation examples: joy, anger",
        ),
        ("multi_label_classification", MARKS, MARKS, None),
    ],
)
def test_one_answer_to_everything_is_told(kind, labels, predicted, words):
    lines = warn_of_answers(kind, ("joy", "fear", "anger"), labels, predicted)
    assert len(lines) == (words is not None)
    assert all(word in lines[0] for word in (words.split(" … ") if words else ()))


@pytest.mark.parametrize(
    ("confusion", "exchanged"),
    [
        ([[0, 30], [30, 0]], {0: 1, 1: 0}),
        ([[0, 2], [2, 0]], {}),  # as chance would have it
        ([[15, 15], [16, 14]], {}),
        # Accuracy of 0.4: below one half, and not below the share of the rarer class.
        ([[40, 50], [7, 3]], {}),
        ([[0, 90], [10, 0]], {0: 1, 1: 0}),
        ([[5, 85], [1, 9]], {}),  # nearly always the rarer class
        ([[1, 29, 0], [28, 2, 0], [0, 1, 29]], {0: 1, 1: 0}),  # a third is right, as by chance
        ([[0, 30, 0], [0, 0, 30], [30, 0, 0]], {0: 1, 1: 2, 2: 0}),
        ([[8, 12, 10], [10, 8, 12], [12, 10, 8]], {}),
        ([[20, 10, 0], [14, 16, 0], [0, 13, 17]], {}),
        ([[0, 30, 0], [30, 0, 0], [0, 0, 0]], {0: 1, 1: 0}),  # no example of the last
        ([[0, 5], [0, 0]], {}),
    ],
)
def test_exchanged_classes_are_told_from_untaught_ones(confusion, exchanged):
    assert find_exchange(confusion) == exchanged
    lines = warn_of_exchange(("bad", "fair", "good"), confusion)
    assert len(lines) == bool(exchanged)
    assert not exchanged or f"(bad as {('bad', 'fair', 'good')[exchanged[0]]}, " in lines[0]
    assert warn_of_exchange(("bad", "good"), None) == []
