"""LogME, H-score and numerical rank against the formulas."""

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

import layerscout as ls
from reference import transferability as naive
from reference.material import examples

pytestmark = pytest.mark.filterwarnings("error")


def by_key(key, H, y):
    numbers = {"regression": True} if y.dtype.kind == "f" else {}
    return getattr(ls.scores, key)(H, y, **numbers)


logme = partial(by_key, "logme")
h_score = partial(by_key, "h_score")
numerical_rank = partial(by_key, "numerical_rank")


cases = given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([12, 40]),
    d=st.sampled_from([1, 6, 11, 12, 13, 60]),
    K=st.sampled_from([2, 4]),
    skew=st.booleans(),
    signal=st.sampled_from([0.0, 3.0]),
    conditioned=st.sampled_from([0.0, 3.0]),
)


@pytest.mark.parametrize("key", ["h_score", "numerical_rank"])
@cases
def test_equals_the_formula(key, seed, n, d, K, skew, signal, conditioned):
    H, y = examples(seed, n, d, K, signal, skew=skew, conditioned=conditioned, shift=1.0)
    assert by_key(key, H, y) == pytest.approx(getattr(naive, key)(H, y), rel=1e-5)


@cases
# The fit is closer than what counts as perfect.
@example(seed=302, n=12, d=11, K=4, skew=False, signal=3.0, conditioned=3.0)
def test_logme_is_the_largest_evidence(seed, n, d, K, skew, signal, conditioned):
    H, y = examples(seed, n, d, K, signal, skew=skew, conditioned=conditioned, shift=1.0)
    found, expected = logme(H, y), naive.logme(H, y)
    # Where the fit is all but perfect, its residual has few digits.
    assert found == pytest.approx(expected, abs=1e-4)


@given(st.integers(0, 10**6), st.sampled_from([3, 15, 60]))
def test_logme_of_numbers_is_the_largest_evidence(seed, d):
    H, _ = examples(seed, n=30, d=d)
    rng = np.random.default_rng(seed)
    y = H[:, 0] + rng.normal(size=30) + 2.0
    assert logme(H, y) == pytest.approx(naive.logme(H, y), abs=1e-6)


def test_logme_of_numbers_that_n_features_explain_is_that_of_the_prior_alone():
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(rng.normal(size=(10, 10)))
    right, _ = np.linalg.qr(rng.normal(size=(20, 10)))
    H = left * np.logspace(0, -4, 10) @ right.T
    y = H @ rng.normal(size=20)
    # β → ∞ leaves N(y | 0, HHᵀ/α), with 1/α = yᵀ(HHᵀ)⁻¹y / n.
    spread = np.linalg.norm((left.T @ y) / np.logspace(0, -4, 10)) ** 2 / 10
    expected = -(10 * np.log(2 * np.pi * spread) + 10) / 2 - np.log(np.logspace(0, -4, 10)).sum()
    assert logme(H, y) == pytest.approx(expected / 10, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_logme_is_where_the_fixed_point_iteration_ends(seed):
    H, y = examples(seed, n=50, d=5, K=2)
    rng = np.random.default_rng(seed)
    wide = rng.normal(size=(60, 80)) * np.logspace(0, -2, 80)
    numbers = wide @ rng.normal(size=80) + 0.3 * rng.normal(size=60)
    for states, labels in ((H, y), (wide, numbers)):
        expected = naive.logme(states, labels, naive.fixed_point_log_evidence)
        assert logme(states, labels) == pytest.approx(expected, abs=1e-8)


@given(st.integers(0, 10**6), st.sampled_from([10, 30, 31, 40]))
def test_logme_does_not_see_features_that_are_zero(seed, d):
    H, y = examples(seed, n=30, d=10)
    padded = np.column_stack([H, np.zeros((30, d - 10))])
    assert logme(padded, y) == pytest.approx(logme(H, y), rel=1e-9)


def test_logme_of_numbers_without_any_relation_is_that_of_noise_alone():
    H = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    y = np.array([1.0, -1.0, 1.0, -1.0])
    assert logme(H, y) == pytest.approx(-(np.log(2 * np.pi) + 1) / 2, abs=1e-9)


def test_logme_of_perfect_fits_is_finite_and_high():
    y = np.arange(40) % 2
    H = np.eye(2)[y]
    noisy = H + 0.1 * np.random.default_rng(0).normal(size=H.shape)
    assert logme(H, y) > logme(noisy, y) + 1
    line = np.linspace(1, 2, 40)[:, None]
    assert np.isfinite(logme(line, 3 * line[:, 0]))
    wide = np.random.default_rng(1).normal(size=(10, 60))
    assert np.isfinite(logme(wide, wide @ np.ones(60)))
    assert np.isfinite(logme(np.repeat(wide, 2, axis=0), np.repeat(np.arange(10) % 2, 2)))


def test_the_rank_counts_directions():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    basis = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    line = np.outer(1 + rng.random(60), rng.normal(size=8))
    assert numerical_rank(line, y) == pytest.approx(1, rel=1e-5)
    H = np.empty((60, 30))
    H[y == 0], H[y == 1] = basis, basis[:, :1] @ np.ones((1, 30))
    assert numerical_rank(H, y) == pytest.approx((30 + 1) / 2, rel=1e-5)


def test_a_score_of_two_points_is_one():
    y = np.arange(40) % 2
    H = np.where(y == 1, 1.0, -1.0)[:, None] * np.array([3.0, 4.0, 0.0])
    assert h_score(H, y) == pytest.approx(1, rel=1e-6)
