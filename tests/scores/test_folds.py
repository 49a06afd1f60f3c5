"""Canonical correlation and ridge regression over folds, against the procedure written out."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from layerscout.errors import InputError
from layerscout.scores import folds
from layerscout.scores.moments import Centred
from reference import folds as naive

pytestmark = pytest.mark.filterwarnings("error")


def fold_scores(H, y, groups, **settings):
    return folds.score_folds(Centred.of(H, y, groups), **settings)


def deal(y, groups, seed=0):
    """Deal every class, or all numbers, evenly into groups."""
    rng = np.random.default_rng(seed)
    alike = np.zeros(len(y), np.int64) if y.dtype.kind == "f" else y
    dealt = np.empty(len(y), np.int64)
    for k in np.unique(alike):
        rows = np.flatnonzero(alike == k)
        dealt[rows] = rng.permutation(np.arange(len(rows)) + k) % groups
    return dealt


def examples(seed, n=120, d=5, K=3, signal=1.0, conditioned=0.0, skew=False, B=20):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(K).repeat(B), rng.integers(0, K, max(0, n - B * K))])
    if skew:
        y[B * K :] = 0
    y = rng.permutation(y)
    centres = signal * rng.normal(size=(K, d))
    noise = rng.standard_t(4, size=(len(y), d)) @ rng.normal(size=(d, d))
    H = (noise + centres[y]) * np.logspace(0, -conditioned, d) + rng.normal(size=d)
    return H, y.astype(np.int64), deal(y, B, seed)


def numbers(seed, n=120, d=5, B=20):
    H, _, _ = examples(seed, n, d, K=2, B=B)
    rng = np.random.default_rng(seed)
    y = H @ rng.normal(size=d) / d + rng.standard_t(4, size=len(H)) + 10
    return H, y, deal(y, B, seed)


@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([60, 150]),
    d=st.sampled_from([1, 2, 5, 40, 70]),
    K=st.sampled_from([2, 3, 4]),
    B=st.sampled_from([4, 7, 10, 13, 20]),
    skew=st.booleans(),
    signal=st.sampled_from([0.0, 1.0, 5.0]),
    conditioned=st.sampled_from([0.0, 3.0]),
)
def test_equals_the_procedure_written_out(seed, n, d, K, B, skew, signal, conditioned):
    H, y, groups = examples(seed, n, d, K, signal, conditioned, skew, B)
    found = fold_scores(H, y, groups)
    cca, ridge = naive.fold_scores(H, y, groups)
    assert found.cca == pytest.approx(cca, abs=1e-6)
    assert found.ridge == pytest.approx(ridge, abs=1e-9)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("B", [4, 13])
def test_equals_it_where_the_scatter_of_a_class_is_summed_up_by_itself(K, B):
    H, y, groups = examples(0, n=64 * min(B, 10) * K, K=K, skew=True, B=B)
    found = fold_scores(H, y, groups)
    assert found == pytest.approx(naive.fold_scores(H, y, groups), abs=1e-6)


@given(st.integers(0, 10**6), st.sampled_from([1, 5, 70]), st.sampled_from([4, 9, 20]))
def test_equals_the_procedure_written_out_for_numbers(seed, d, B):
    H, y, groups = numbers(seed, d=d, B=B)
    assert fold_scores(H, y, groups) == pytest.approx(naive.fold_scores(H, y, groups), abs=1e-6)


@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 5, 12]),
    st.sampled_from([2, 3, 7]),
    st.booleans(),
)
def test_without_ridge_term_it_is_plain_cca(seed, d, K, skew):
    H, y, _ = examples(seed, n=150, d=d, K=K, skew=skew)
    # Where all folds hold the same examples, the test folds are the training set.
    groups = np.arange(4).repeat(len(y))
    found = fold_scores(np.tile(H, (4, 1)), np.tile(y, 4), groups, ridge_terms=(1e-12,))
    weights = naive.row_weights(y, np.zeros(len(y)))
    expected = naive.canonical_correlations(H, y, weights)[: min(d, K - 1)]
    assert found.cca == pytest.approx(expected.mean(), rel=1e-6)


def test_without_ridge_term_it_is_plain_least_squares():
    H, y, _ = numbers(0)
    groups = np.arange(4).repeat(len(y))
    found = fold_scores(np.tile(H, (4, 1)), np.tile(y, 4), groups, ridge_terms=(1e-12,))
    X = np.column_stack([H, np.ones(len(H))])
    rest = y - X @ np.linalg.lstsq(X, y)[0]
    determination = 1 - rest @ rest / ((y - y.mean()) ** 2).sum()
    assert found.ridge == pytest.approx(determination, rel=1e-9)
    assert found.cca == pytest.approx(np.sqrt(determination), rel=1e-9)


@given(st.integers(0, 10**6), st.sampled_from([2, 3]))
def test_cca_without_ridge_term_is_invariant_under_invertible_affine_maps(seed, K):
    H, y, groups = examples(seed, n=300, K=K)
    rng = np.random.default_rng(seed)
    turns = [np.linalg.qr(rng.normal(size=(5, 5)))[0] for _ in range(2)]
    changed = H @ turns[0] * np.array([30, 10, 1, 0.3, 0.1]) @ turns[1] + rng.normal(size=5)
    plain, after = (
        fold_scores(states, y, groups, ridge_terms=(1e-13,)).cca for states in (H, changed)
    )
    assert after == pytest.approx(plain, abs=1e-5)


def test_labels_without_any_relation_score_chance_with_either_sign():
    found = [fold_scores(*examples(seed, n=200, d=20, K=2, signal=0.0)) for seed in range(30)]
    correlations = np.array([scores.cca for scores in found])
    # Fitted and tested on the same rows it would be above 0.3.
    assert abs(correlations.mean()) < 0.05
    assert (correlations < 0).any()
    assert np.mean([scores.ridge for scores in found]) == pytest.approx(0.5, abs=0.03)


@given(st.integers(0, 10**6))
def test_classes_weigh_alike(seed):
    H, y, groups = examples(seed)
    rows = np.repeat(np.arange(len(y)), np.where(y == 0, 5, 1))
    more, expected = fold_scores(H[rows], y[rows], groups[rows]), fold_scores(H, y, groups)
    assert more == pytest.approx(expected, abs=1e-9)


def test_classes_apart_score_one():
    H, y, groups = examples(0, K=3, signal=1e4)
    found = fold_scores(H, y, groups)
    assert found.cca == pytest.approx(1, abs=1e-3)
    assert found.ridge == 1


def test_examples_of_a_group_stay_together():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    H = rng.normal(size=(200, 300))
    # Twins share a group: knowing one would give the other away.
    twins, labels = np.repeat(H, 2, axis=0), np.repeat(y, 2)
    together = np.repeat(deal(y, 20), 2)
    apart = deal(labels, 20)
    assert fold_scores(twins, labels, together).ridge < 0.65
    assert fold_scores(twins, labels, apart).ridge > 0.7


def test_a_pair_that_the_states_do_not_have_counts_nothing():
    H, y, groups = examples(0, K=4, signal=1e4)
    line = fold_scores(np.repeat(H[:, :1], 3, axis=1), y, groups)
    assert line.cca == pytest.approx(fold_scores(H[:, :1], y, groups).cca / 3, abs=1e-6)


def test_a_fold_whose_numbers_are_all_the_same_is_left_out():
    H, y, groups = numbers(0)
    y = np.where(groups // 2 == 4, 10.0, y)
    found = fold_scores(H, y, groups)
    assert np.isfinite(found.cca)
    assert np.isfinite(found.ridge)


@pytest.mark.parametrize(
    ("y", "groups", "rule"),
    [
        (np.zeros(40, np.int64), np.arange(40) % 20, "2 or more classes, got 1"),
        (np.arange(40) % 2, np.arange(40) // 14, "of every class, and class 0 has 20; use more"),
        (np.r_[0, 0, 0, np.ones(37, np.int64)], np.arange(40) % 4, "class 0 has 3; use more"),
        (np.arange(40), np.arange(40) % 20, "8 or more examples of every class, and class 0 has 1"),
        (np.arange(6.0), np.arange(6) % 3, "8 or more examples, got 6; use more"),
    ],
)
def test_refuses_too_few_examples(y, groups, rule):
    with pytest.raises(InputError, match=rule):
        fold_scores(np.random.default_rng(0).normal(size=(len(y), 3)), y, groups)
