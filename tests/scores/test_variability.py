"""The debiased variability ratio: against loops, against the truth, and what it decides."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from layerscout.errors import InputError
from layerscout.scores import (
    Debiased,
    Decision,
    deal_groups,
    decide_best,
    find_rare,
    find_separable,
)
from layerscout.scores.moments import Centred
from layerscout.scores.variability import (
    average_groups,
    estimate_debiased,
    multiply_covariances,
    multiply_means,
)
from reference import debiased as loops, naive


def debiased(H, y, groups):
    return estimate_debiased(Centred.of(H, y, groups))


def examples(seed, counts=(30, 30, 30), d=6, signal=1.0):
    """Return skewed states with class covariances of their own, far from the origin."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    mixing = rng.normal(size=(len(counts), d, d)) / np.sqrt(d)
    centres = signal * rng.normal(size=(len(counts), d))
    noise = np.einsum("nd,nde->ne", rng.exponential(size=(len(y), d)) - 1, mixing[y])
    return noise + centres[y] + 10 * rng.normal(size=d), y


def made_up(value, spread=0.0, seed=0, B=20):
    """Return a result whose logarithm has a jackknife standard error of about `spread`."""
    if value is None:
        return Debiased(None, None, None)
    noise = np.random.default_rng(seed).normal(size=B)
    return Debiased(value, np.log(value) + spread * noise / np.sqrt(B), 1.0)


@given(
    seed=st.integers(0, 10**6),
    counts=st.sampled_from([(8, 8), (30, 9), (12, 20, 31), (9, 10, 11, 12)]),
    d=st.sampled_from([1, 2, 6, 40]),
    signal=st.sampled_from([0.3, 1.0, 3.0]),
)
def test_equals_the_loops(seed, counts, d, signal):
    H, y = examples(seed, counts, max(d, len(counts) - 1), signal)
    groups = deal_groups(y, seed, groups=6)
    value, fraction, without = loops.debiased(H, y, groups)
    found = debiased(H, y, groups)
    assert found.signal_fraction == pytest.approx(fraction, rel=1e-7, abs=1e-9)
    if value is None or None in without:
        assert (found.value, found.replicates) == (None, None)
    else:
        assert found.value == pytest.approx(value, rel=1e-7)
        np.testing.assert_allclose(np.exp(found.replicates), without, rtol=1e-6)


def test_a_replicate_is_the_estimate_from_the_other_groups():
    H, y = examples(1, (300, 200, 100))
    groups = deal_groups(y, 0)
    found = debiased(H, y, groups)
    assert len(found.replicates) == 20
    for left_out in (0, 7, 19):
        kept = groups != left_out
        without = debiased(H[kept], y[kept], np.unique(groups[kept], return_inverse=True)[1])
        assert found.replicates[left_out] == pytest.approx(np.log(without.value), rel=1e-9)


def test_both_matrices_are_unbiased_for_few_skewed_imbalanced_examples():
    counts, d, draws = np.array([8, 14, 30]), 6, 3000
    K, rng = len(counts), np.random.default_rng(0)
    y = np.repeat(np.arange(K), counts)
    mixing, centres = rng.normal(size=(K, d, d)), rng.normal(size=(K, d))
    means = (centres - centres.mean(axis=0)).T
    true_G = np.trace(means.T @ means)
    # The covariance of mixed independent exponential variables, which have variance 1.
    true_H = np.trace(means.T @ np.mean(mixing.transpose(0, 2, 1) @ mixing, axis=0) @ means)
    seen = np.empty((draws, 4))
    for draw in range(draws):
        noise = rng.exponential(size=(len(y), d)) - 1
        H = np.einsum("nd,nde->ne", noise, mixing[y]) + centres[y]
        states = Centred.of(H, y, deal_groups(y, draw))
        class_means, M_g, M = average_groups(states)
        G, within = multiply_means(M_g), multiply_covariances(states, class_means, M_g)
        plug_in = np.mean([np.cov(H[y == k], rowvar=False) for k in range(K)], axis=0)
        seen[draw, :2] = np.trace(G[0]), np.trace(within[0])
        seen[draw, 2:] = np.trace(M.T @ M), np.trace(M.T @ plug_in @ M)
    off = (seen.mean(axis=0) - [true_G, true_H] * 2) / (seen.std(axis=0) / np.sqrt(draws))
    assert (abs(off[:2]) < 4).all(), off
    assert (off[2:] > 15).all(), off


def test_equals_the_published_ratio_where_the_class_means_have_no_noise():
    rng = np.random.default_rng(0)
    K, d, B, m = 3, 8, 5, 6
    centres, mixing = 3 * rng.normal(size=(K, d)), rng.normal(size=(d, d))
    block = np.concatenate([c + rng.normal(size=(m, d)) @ mixing for c in centres])
    H, y = np.tile(block, (B, 1)), np.tile(np.arange(K).repeat(m), B)
    found = debiased(H, y, np.arange(B).repeat(K * m))
    published = naive.variability_ratio(H, y)  # divides by m where the unbiased one does by m − 1
    assert found.value == pytest.approx(published * m / (m - 1), rel=1e-10)
    assert found.signal_fraction == pytest.approx(1, rel=1e-12)
    low, high = found.interval()
    assert low == pytest.approx(high, rel=1e-9)


@pytest.mark.filterwarnings("error")
def test_does_not_fall_with_fewer_examples_as_the_published_ratio_does():
    def medians(n):
        ratios = []
        for seed in range(60):
            rng = np.random.default_rng(seed)
            y = np.arange(n) % 2
            H = rng.normal(size=(n, 60))
            H[:, 0] += 1.2 * y
            found = debiased(H, y, deal_groups(y, seed))
            ratios.append((naive.variability_ratio(H, y), found.value or np.inf))
        return np.median(ratios, axis=0)

    truth = 1 / 2 / (2 * 0.6**2 / 2)  # (1/K) σ² over the between-class variance, along the means
    (published, honest), (_, honest_of_more) = medians(240), medians(960)
    assert published < 0.7 * truth
    assert honest == pytest.approx(truth, rel=0.2)
    assert honest_of_more == pytest.approx(truth, rel=0.1)


def test_interval_covers_the_truth():
    rng = np.random.default_rng(0)
    d, counts, covered = 10, (60, 120), []
    y = np.repeat([0, 1], counts)
    scale = np.linspace(0.5, 1.5, d)
    centre = 1.5 * np.ones(d) / np.sqrt(d)
    truth = (centre * scale**2) @ centre / (centre @ centre) ** 2 * 2
    for draw in range(200):
        H = (rng.exponential(size=(len(y), d)) - 1) * scale + np.outer(y, centre)
        low, high = debiased(H, y, deal_groups(y, draw)).interval()
        covered.append(low <= truth <= high)
    assert 0.90 <= np.mean(covered) < 1


def test_interval_is_the_jackknife_of_the_logarithm():
    replicates = np.log(2.0) + np.array([-0.1, 0.1, -0.1, 0.1])
    low, high = Debiased(2.0, replicates, 1.0).interval()
    error = np.sqrt(3 / 4 * 4 * 0.01)
    assert high == pytest.approx(2 * np.exp(3.18244630528 * error))  # t of 3 degrees of freedom
    assert low * high == pytest.approx(4)
    assert Debiased(None, None, -0.1).interval() == (None, None)
    assert np.isfinite(Debiased(2.0, np.array([0.0, 1e4, 0.0, 1e4]), 1.0).interval()).all()


@pytest.mark.parametrize("seed", range(5))
def test_classes_that_cannot_be_told_apart_are_undefined(seed):
    rng = np.random.default_rng(seed)
    y = np.arange(90) % 3
    found = debiased(rng.normal(size=(90, 20)), y, deal_groups(y, 0))
    assert (found.value, found.replicates) == (None, None)
    assert abs(found.signal_fraction) < 0.7


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_states_that_differ_by_rounding_alone_are_undefined(dtype):
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    groups = deal_groups(y, 0)
    vector = rng.normal(size=30)
    same = np.tile(vector, (200, 1)).astype(dtype)
    for constant in (same, np.zeros_like(same)):
        found = debiased(constant, y, groups)
        assert (found.value, found.signal_fraction) == (None, None)
    # Another rounding in each class, as from batches of another size: a distance, but no signal.
    nudged = same * (1 + y[:, None] * np.finfo(dtype).eps).astype(dtype)
    assert debiased(nudged, y, groups).value is None
    # No spread within the classes: the ratio is 0, which has no logarithm.
    collapsed = same * (1 + y[:, None]).astype(dtype)
    assert debiased(collapsed, y, groups).value is None


def test_means_on_a_line_are_undefined_for_three_classes():
    H, y = examples(6, (40, 40, 40), d=1, signal=5.0)
    with pytest.raises(InputError, match="1 features and 3 classes; use --score variability_ratio"):
        debiased(H, y, deal_groups(y, 0))
    flat = np.concatenate([H, np.zeros((120, 1))], axis=1)
    assert debiased(flat, y, deal_groups(y, 0)).value is None


@pytest.mark.parametrize(
    ("y", "rule"),
    [
        ([0] * 7 + [1] * 20, "needs 2 or more .* 8 in all, .*class 0 has 7; .*--score"),
        (range(9), "needs 2 or more .* 8 in all, .*has 1; .*--score"),
        ([0] * 20, "2 or more classes"),
    ],
)
def test_too_few_classes_or_examples_of_them_are_refused(y, rule):
    y = np.array(y)
    with pytest.raises(InputError, match=rule):
        debiased(np.eye(len(y)), y, deal_groups(y, 0))


@given(
    seed=st.integers(0, 10**6),
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    numbers=st.booleans(),
)
def test_groups_hold_every_class_in_proportion(seed, counts, numbers):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    groups = deal_groups(y.astype(np.float64) if numbers else y, seed)
    B = max(1, min(20, (sum(counts) if numbers else min(counts)) // 2))
    assert groups.dtype == np.int64
    sizes = np.bincount(groups)
    assert len(sizes) == B
    assert np.ptp(sizes) <= 1
    if not numbers:
        each = np.array([np.bincount(groups[y == k], minlength=B) for k in range(len(counts))])
        assert np.ptp(each, axis=1).max() <= 1


def test_groups_are_drawn_by_the_seed():
    y = np.arange(100) % 2
    first, again, other = (deal_groups(y, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    # By chance, not by position: neighbours of one class are not dealt in order.
    assert len(np.unique((first[2::2] - first[:-2:2]) % 20)) > 3


def test_choices_of_one_example_stay_together():
    question = np.random.default_rng(0).permutation(np.arange(50).repeat(4)) + 1000
    y = np.zeros(200, np.int64)
    y[np.unique(question, return_index=True)[1]] = 1  # one of four choices is right
    groups = deal_groups(y, 0, question)
    assert groups.max() + 1 == 20
    assert all(len(set(groups[question == q])) == 1 for q in question)
    assert set(np.bincount(groups)) == {8, 12}
    numbers = deal_groups(y.astype(np.float64), 0, question)
    assert all(len(set(numbers[question == q])) == 1 for q in question)


def test_rare_classes_are_those_with_fewer_examples():
    y = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 3, 4], [20, 7, 8, 3, 30]))
    assert find_rare(y, None, 8) == (1, 3)
    assert find_rare(y, None, 20) == (1, 2, 3)
    assert find_rare(y, None, 0) == find_rare(y.astype(np.float64), None, 8) == ()
    # One class alone is told from nothing: then none is left out, and the score refuses.
    assert find_rare(y, None, 21) == find_rare(np.repeat([0, 1], [50, 7]), None, 8) == ()
    # A class without any rows is rare, too.
    assert find_rare(np.repeat([0, 2], 8), None, 8) == (1,)
    # Rows of one example count once.
    y, example = np.repeat([0, 1, 2], 40), np.r_[np.arange(80), np.arange(40) // 8]
    assert (find_rare(y, None, 8), find_rare(y, example, 8)) == ((), (2,))
    both = np.r_[np.arange(40), np.arange(40), np.arange(40) // 8]  # examples with several classes
    assert (find_rare(y, both, 8), find_rare(y, both + 5, 5)) == ((2,), ())


def test_a_class_within_few_examples_limits_the_groups():
    # 16 rows of class 1, but in 4 examples: no more than 2 groups can have it twice.
    question = np.concatenate([np.arange(4).repeat(4), np.arange(4, 44)])
    y = np.concatenate([np.ones(16, np.int64), np.zeros(40, np.int64)])
    groups = deal_groups(y, 0, question)
    assert groups.max() + 1 == 2
    assert (np.bincount(groups[:16]) == 8).all()


def test_separable_is_paired():
    # Both intervals are wide, but the two move together: the difference is certain.
    best, together = made_up(1.0, 0.5), made_up(1.2, 0.5)
    apart = made_up(1.2, 0.5, seed=1)
    assert together.interval()[0] < best.interval()[1]
    assert find_separable([None, best, together, apart], 1) == [None, False, True, False]


def test_separable_is_adjusted_for_states_and_looks():
    noise = np.array([-1.0, 1.0] * 10)

    def pair(t):
        """Return two results whose paired difference is t standard errors."""
        differences = 0.01 * noise
        error = np.sqrt(19 / 20 * (differences**2).sum())
        second = np.log(2) + t * error
        return Debiased(2.0, np.full(20, np.log(2)), 1.0), Debiased(
            float(np.exp(second)), second + differences, 1.0
        )

    unscored, far = made_up(None), made_up(1e6)
    # Two-sided t of 19 degrees of freedom: 2.093 at 5 %, 2.433 at 2.5 %, 3.883 at 0.1 %.
    best, other = pair(2.2)
    assert find_separable([unscored, best, other], 1) == [None, False, True]
    assert find_separable([unscored, best, other, unscored], 1) == [None, False, True, None]
    # State 0 is not a candidate.
    assert find_separable([far, best, other], 1) == [True, False, True]
    assert find_separable([unscored, best, other, far], 1) == [None, False, False, True]
    assert find_separable([unscored, best, other], 1, looks=2) == [None, False, False]
    best, other = pair(2.5)
    assert find_separable([unscored, best, other], 1, looks=2) == [None, False, True]
    assert find_separable([unscored, other, best], 2, looks=50) == [None, False, False]
    best, other = pair(4.0)
    assert find_separable([unscored, other, best], 2, looks=50) == [None, True, False]


def test_separable_from_an_undefined_state_is_refused():
    with pytest.raises(InputError, match="state 1 has no value"):
        find_separable([made_up(1.0), made_up(None)], 1)


def test_decision():
    low, same, near, far = made_up(1.0, 0.05), made_up(1.0), made_up(1.01, 0.05, 1), made_up(9.0)
    none, apart = made_up(None), made_up(1.2, 0.05, 1)
    for results, options, expected in (
        ([low, far, near], {}, (2, True, True, ())),  # state 0 never wins, however low
        ([none, near, low, far], {}, (2, False, True, (1,))),
        ([None, low, none, far], {}, (1, False, False, ())),
        ([None, low, None, far], {}, (1, True, True, ())),
        ([none, near, low, far], {"tolerance": 0.001}, (2, False, False, (1,))),
        ([low, none, None], {}, (None, False, False, ())),
        ([None, low, apart], {}, (1, True, True, ())),
        ([None, low, apart], {"looks": 100}, (1, False, False, (2,))),
    ):
        assert decide_best(results, "lower", **{"tolerance": 0.02} | options) == Decision(*expected)
    assert decide_best([none, low, same], "lower").best == 1  # a tie goes to the lower state
