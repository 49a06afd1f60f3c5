"""Scores that read several labels of an example at once, against the formulas written out."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.metrics import f1_score

from layerscout.scores import (
    SCORES,
    State,
    average_labels,
    deal_groups,
    find_rare,
    find_rare_labels,
    folds,
    majority,
)
from layerscout.scores.grouping import whiten_labels
from layerscout.scores.moments import Centred
from layerscout.scores.quality import _set_thresholds, cross_fit, measure_quality
from reference import several as naive, transferability as of_classes

pytestmark = pytest.mark.filterwarnings("error")


def examples(seed, n=120, d=5, K=3, shares=(0.5, 0.3, 0.15, 0.4)):
    """Return states (n, d) and labels (n, K) that they tell in part; some rows have none."""
    rng = np.random.default_rng(seed)
    Y = rng.random((n, K)) < np.array(shares[:K])
    Y[:2] = [[False] * K, [True] * K]
    return Y @ rng.normal(size=(K, d)) + rng.normal(size=(n, d)) + rng.normal(size=d), Y


def score(key, H, labels, groups=None):
    """Compute a score of a state as a scan does."""
    groups = np.zeros(len(H), np.int64) if groups is None else groups
    return SCORES[key].of_state(State(H, labels, groups))


def one_hot(seed, n=120, K=3, d=5):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % K)
    return rng.normal(size=(K, d))[y] + rng.normal(size=(n, d)), y, np.eye(K, dtype=bool)[y]


# --- LogME and H-score ---------------------------------------------------------------


@given(seed=st.integers(0, 10**6), n=st.sampled_from([20, 60]), d=st.sampled_from([3, 30]))
def test_logme_is_the_mean_over_the_labels(seed, n, d):
    H, Y = examples(seed, n, d)
    found = score("logme", H, Y)
    assert found == pytest.approx(naive.logme(H, Y), abs=1e-5)
    never = np.column_stack([Y, np.zeros(n, bool)])
    assert score("logme", H, never) == pytest.approx(found)
    assert score("logme", H, np.zeros_like(Y)) is None


@given(seed=st.integers(0, 10**6), n=st.sampled_from([20, 60]), d=st.sampled_from([1, 3, 30]))
def test_h_score_is_that_of_the_formula(seed, n, d):
    H, Y = examples(seed, n, d)
    # The last label follows from the first and one that all have, so Σ_yy is singular.
    Y = np.column_stack([Y, np.ones(n, bool), ~Y[:, 0]])
    found = score("h_score", H, Y)
    assert found == pytest.approx(naive.h_score(H, Y), rel=1e-7)


@given(seed=st.integers(0, 10**6), d=st.sampled_from([3, 200]))
def test_one_label_an_example_is_a_task_of_classes(seed, d):
    H, y, Y = one_hot(seed, d=d)
    groups = deal_groups(y, 0, groups=10)  # four rows of every class in each
    # In cca, classes of one size weigh alike whether it is they that do or the examples.
    for key, error in (("logme", 1e-9), ("h_score", 1e-9), ("cca", 1e-7)):
        expected = score(key, H, y, groups)
        assert score(key, H, Y, groups) == pytest.approx(expected, rel=error, abs=error)
    assert score("h_score", H, Y, groups) == pytest.approx(of_classes.h_score(H, y), rel=1e-7)


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_whitened_labels_are_uncorrelated_and_of_variance_one(seed, K):
    Y = np.random.default_rng(seed).random((50, K)) < 0.4
    Y = np.column_stack([Y, ~Y[:, 0], np.zeros(50, bool)])
    covariance = np.cov(Y.T.astype(float), bias=True)
    axes = whiten_labels(covariance)
    assert axes.shape[1] == np.linalg.matrix_rank(covariance)
    np.testing.assert_allclose(axes.T @ covariance @ axes, np.eye(axes.shape[1]), atol=1e-9)
    assert whiten_labels(np.zeros((3, 3))).shape == (3, 0)


# --- Folds ---------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    d=st.sampled_from([1, 2, 5, 40]),
    K=st.sampled_from([1, 2, 4]),
    B=st.sampled_from([4, 13, 20]),
)
def test_cca_and_ridge_equal_the_procedure_written_out(seed, d, K, B):
    H, Y = examples(seed, d=d, K=K)
    groups = deal_groups(Y, seed, groups=B, least=2)
    found = folds.score_folds(Centred.of(H, Y, groups))
    cca, ridge = naive.fold_scores(H, Y, groups)
    assert found.cca == pytest.approx(cca, abs=1e-6)
    assert found.ridge == pytest.approx(ridge, abs=1e-7)


def test_rare_and_dependent_labels_drop_out_where_they_do_not_vary():
    H, Y = examples(1)
    rare = np.arange(len(Y)) == 7  # in one fold only
    Y = np.column_stack([Y, rare, ~Y[:, 0]])
    groups = deal_groups(Y, 0)
    found = folds.score_folds(Centred.of(H, Y, groups))
    cca, ridge = naive.fold_scores(H, Y, groups)
    assert found.cca == pytest.approx(cca, abs=1e-6)
    assert found.ridge == pytest.approx(ridge, abs=1e-7)
    never = np.column_stack([Y, np.zeros(len(Y), bool), np.ones(len(Y), bool)])
    again = folds.score_folds(Centred.of(H, never, groups))
    assert (again.cca, again.ridge) == pytest.approx((found.cca, found.ridge), abs=1e-9)
    alone = folds.score_folds(Centred.of(H, rare[:, None], groups))
    assert abs(alone.cca) <= 1 and alone.ridge < 0.2
    constant = folds.score_folds(Centred.of(H, np.ones((len(Y), 2), bool), groups))
    assert (constant.cca, constant.ridge) == (None, None)


# --- The held-out quality of a head --------------------------------------------------------------


@pytest.mark.parametrize(("metric", "average"), [("micro_f1", "micro"), ("macro_f1", "macro")])
def test_each_label_is_said_of_as_many_rows_as_have_it(metric, average):
    H, Y = examples(4, shares=(0.5, 0.3, 0.04))
    dealt = deal_groups(Y, 0, least=0)
    found = measure_quality(H, Y, dealt, metric)
    said = naive.say_as_many(Y, cross_fit(H, Y, dealt))
    assert (said.sum(axis=0) == Y.sum(axis=0)).all()

    def judge(rows):
        return f1_score(Y[rows], said[rows], average=average, zero_division=0.0)

    assert found.value == pytest.approx(judge(slice(None)), abs=1e-12)
    without = [judge(dealt != fold) for fold in range(20)]
    np.testing.assert_allclose(found.replicates, without, atol=1e-12)
    assert State(H, Y, dealt).quality.value == measure_quality(H, Y, dealt, "micro_f1").value


def test_equal_predictions_are_taken_in_order():
    Y = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 1], [0, 0, 1]], bool)
    predicted = np.array([[0.5, 0.2, 0.1], [0.5, 0.1, 0.1], [0.5, 0.9, 0.1], [0.5, 0.9, 0.1]])
    logits = _set_thresholds(Y, predicted)
    assert ((logits > 0) == naive.say_as_many(Y, predicted)).all()
    assert ((logits > 0) == [[1, 0, 1], [1, 0, 1], [0, 0, 1], [0, 0, 1]]).all()
    # Apart from ties it is the prediction less a threshold, so it ranks the labels of a row.
    np.testing.assert_allclose(logits[:, 1], predicted[:, 1] - 0.9)


def test_the_majority_has_the_labels_of_half_of_the_rows():
    Y = np.array([[1, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]], bool)
    told = {}
    assert majority(Y, Y, lambda labels, logits: told.update(logits=logits) or 0.5) == 0.5
    assert ((told["logits"] > 0) == [[True, False, True]]).all()  # 1/2, 1/4, 1/2
    assert np.argmin(told["logits"][0]) == 1
    H, Y = examples(5, shares=(0.8, 0.3, 0.2))
    found = measure_quality(H, Y, deal_groups(Y, 0, least=0), "micro_f1")
    always = np.tile([True, False, False], (len(Y), 1))
    assert found.majority == pytest.approx(f1_score(Y, always, average="micro"))
    assert found.value > found.majority


# --- Which labels count --------------------------------------------------------------------------


def test_labels_need_examples_with_and_without():
    n = 30
    Y = np.zeros((n, 5), bool)
    for k, count in enumerate((0, 1, 8, 22, 29)):
        Y[:count, k] = True
    assert find_rare_labels(Y, None, 0) == (0, 1, 4)
    assert find_rare_labels(Y, None, 8) == (0, 1, 4)
    assert find_rare_labels(Y, None, 9) == (0, 1, 2, 3, 4)
    assert find_rare_labels(Y, np.arange(n) // 8, 2) == (0, 1, 2, 4)  # label 2: a single example
    assert find_rare(Y, None, 100) == ()  # which is of classes


def test_an_average_is_over_labels_with_a_value_at_every_state():
    rows = [None, {0: 1.0, 2: 3.0, 5: None}, {0: 2.0, 2: 6.0, 5: 1.0}]
    assert average_labels(rows) == ([None, 2.0, 4.0], [0, 2], [5])
    assert average_labels([{0: None}, {0: 1.0}]) == ([None, None], [], [0])
    assert average_labels([None, None]) == ([None, None], [], [])


def test_scores_label_by_label_refuse_the_matrix():
    H, Y = examples(0)
    with pytest.raises(TypeError, match="label by label"):
        SCORES["knn"].of_state(State(H, Y, deal_groups(Y, 0)))


def test_groups_of_labels_and_of_sentences():
    rng = np.random.default_rng(0)
    labels = rng.random((200, 5)) < 0.3
    groups = deal_groups(labels, 0)
    assert np.bincount(groups).tolist() == [10] * 20
    shares = np.array([labels[groups == g].sum(axis=0) for g in range(20)])
    assert abs(shares - labels.sum(axis=0) / 20).max() <= 2
    # Words of 60 sentences; every eighth sentence has the one rare tag.
    sentences = np.repeat(np.arange(60), 6)
    tags = rng.integers(0, 3, len(sentences))
    tags[::48] = 3
    dealt = deal_groups(tags, 0, sentences)
    assert all(len(set(dealt[sentences == s])) == 1 for s in range(60))
    groups = dealt.max() + 1
    assert groups == 4  # of 8 sentences two for each
    found = np.zeros((groups, 4))
    np.add.at(found, (dealt[::6], tags[::6]), 1)
    assert (found[:, 3] == 2).all()
