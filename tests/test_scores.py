"""Scores against the formulas, and what must not change them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layerscout import scores
from layerscout.errors import InputError
from layerscout.moments import Moments, class_weights
from layerscout.scores import SCORES, Score
from reference import naive

KEYS = sorted(SCORES)


def examples(seed, n=60, d=6, K=3, skew=False, signal=1.0):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(K).repeat(2), rng.integers(0, K, n - 2 * K)])
    if skew:
        y[2 * K :] = np.where(rng.random(n - 2 * K) < 0.9, 0, y[2 * K :])
    centres = signal * rng.normal(size=(K, d))
    noise = rng.standard_t(4, size=(n, d)) @ rng.normal(size=(d, d))
    return noise + centres[y] + 10 * rng.normal(size=d), y


def by_key(key, H, y):
    return getattr(scores, key)(H, y)


@pytest.mark.parametrize("key", KEYS)
@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([30, 60, 200]),
    d=st.sampled_from([1, 2, 6, 40]),
    K=st.sampled_from([2, 3, 7]),
    skew=st.booleans(),
    signal=st.sampled_from([0.0, 0.1, 3.0]),
)
def test_equals_the_formula(key, seed, n, d, K, skew, signal):
    H, y = examples(seed, n, d, K, skew, signal)
    expected = getattr(naive, key)(H, y)
    assert by_key(key, H, y) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("key", KEYS)
@given(seed=st.integers(0, 10**6), K=st.sampled_from([2, 4]))
def test_invariant_under_rotation_shift_one_scale_order_and_names(key, seed, K):
    H, y = examples(seed, K=K)
    rng = np.random.default_rng(seed)
    expected = by_key(key, H, y)
    rotation, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    order = rng.permutation(len(y))
    names = rng.permutation(K)
    for changed, labels in (
        (H @ rotation, y),
        (H + rng.normal(size=6), y),
        (H * 37.5, y),
        (H[order], y[order]),
        (H, names[y]),
        (H, np.array(list("abcd"))[y]),
    ):
        assert by_key(key, changed, labels) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("key", KEYS)
def test_not_invariant_under_other_linear_maps(key):
    H, y = examples(0)
    stretched = H * np.array([100, 1, 1, 1, 1, 1])
    assert by_key(key, stretched, y) != pytest.approx(by_key(key, H, y), rel=0.01)


@given(st.integers(0, 10**6), st.sampled_from([2, 3, 5]))
def test_balanced_classes_make_both_ratios_equal(seed, K):
    H, _ = examples(seed, n=60, K=K)
    y = np.arange(60) % K
    assert scores.nc1(H, y) == pytest.approx(scores.variability_ratio(H, y), rel=1e-9)


def test_imbalance_moves_the_pooled_form_only():
    rng = np.random.default_rng(0)
    # Class 1 is five times as wide; making it rare must not change what counts classes alike.
    wide, narrow = 5 * rng.normal(size=(20000, 3)) + 4, rng.normal(size=(20000, 3))

    def ratio(score, rare):
        H = np.concatenate([narrow, wide[:rare]])
        return score(H, np.repeat([0, 1], [20000, rare]))

    assert ratio(scores.variability_ratio, 2000) == pytest.approx(
        ratio(scores.variability_ratio, 20000), rel=0.15
    )
    assert ratio(scores.nc1, 2000) < 0.5 * ratio(scores.nc1, 20000)


@pytest.mark.parametrize("key", KEYS)
def test_weak_directions_are_kept_and_none_are_invented(key):
    rng = np.random.default_rng(3)
    # Three class means, the third direction 1e-4 as long as the first: its square is near the
    # rounding of float32, and the remaining 297 directions of Σ_b are rounding alone.
    centres = np.zeros((3, 300))
    centres[0, 0], centres[1, 0], centres[2, 1] = 1, -1, 1e-4
    y = np.arange(90) % 3
    H = centres[y] + 1e-5 * rng.normal(size=(90, 300))
    assert by_key(key, H, y) == pytest.approx(getattr(naive, key)(H, y), rel=1e-6)


@pytest.mark.parametrize("key", KEYS)
def test_undefined_where_the_class_means_are_one(key):
    assert by_key(key, np.full((8, 3), 0.1), np.arange(8) % 2) is None
    assert by_key(key, np.tile([[1.0, 5.0], [3.0, -1.0]], (4, 1)), np.arange(8) // 4) is None


@pytest.mark.parametrize("key", KEYS)
def test_classes_without_spread_are_perfectly_apart(key):
    y = np.arange(8) % 2
    assert by_key(key, np.eye(2)[y], y) == pytest.approx(0.0, abs=1e-14)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("H", "y", "rule"),
    [
        (np.zeros((4, 2)), [0, 0, 0, 0], "2 or more classes"),
        (np.zeros((4, 2)), [0, 0, 0, 1], "the smallest of 1"),
        (np.zeros((4, 2)), [0, 1], r"\(n,\), got \(4, 2\) and \(2,\)"),
        (np.zeros((4, 2)), [[0], [0], [1], [1]], r"got \(4, 2\) and \(4, 1\)"),
        (np.zeros((4, 2)), [0, 0, 1, np.nan], "got NaN"),
        (np.zeros(4), [0, 0, 1, 1], r"\(n, d\)"),
        (np.array([[0.0], [np.nan], [1], [2]]), [0, 0, 1, 1], "finite"),
    ],
)
def test_refuses_what_has_no_answer(key, H, y, rule):
    with pytest.raises(InputError, match=rule):
        by_key(key, H, y)


def test_tensors_are_taken_as_they_come():
    H, y = examples(0)
    low = torch.from_numpy(H).to(torch.bfloat16).requires_grad_()
    expected = naive.variability_ratio(low.detach().double().numpy(), y)
    assert scores.variability_ratio(low, y) == pytest.approx(expected)


def test_states_that_are_not_finite_are_undefined_and_leave_the_others_alone():
    H, y = examples(0)
    states = torch.from_numpy(np.stack([H, H * np.where(np.arange(60) == 7, np.inf, 1)[:, None]]))
    labels = torch.from_numpy(y)
    moments = Moments.empty(states[:, :5].mean(dim=1), class_weights(torch.bincount(labels)))
    moments.add_(states, labels)
    values = SCORES["variability_ratio"].score(moments).values
    assert values[0] == pytest.approx(naive.variability_ratio(H, y))
    assert values[1] is None


def test_best_is_among_the_blocks_and_ties_go_down():
    assert Score("states", "lower", (0.1, 3.0, 2.0, 2.0)).best() == 2
    assert Score("states", "higher", (9.0, 3.0, 5.0, 5.0)).best() == 2
    assert Score("states", "lower", (0.1, None, 7.0)).best() == 2
    assert Score("states", "lower", (0.1, None, None)).best() is None
