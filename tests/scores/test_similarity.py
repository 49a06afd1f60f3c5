"""CKA against its definitions, and what must not change it."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from layerscout.runtime import InputError
from layerscout.scores.cka import (
    cka,
    cka_change,
    cka_debiased,
    similarity,
    small_sample_warning,
)
from reference import similarity as naive

SEEDS = st.integers(0, 10**6)


def related(seed, n, d1, d2, shared=2, condition=1.0):
    """Two states far from the origin that have some directions in common, skewed."""
    rng = np.random.default_rng(seed)
    common = rng.exponential(size=(n, shared))

    def state(d):
        mixed = common @ rng.normal(size=(shared, d)) + rng.standard_t(5, size=(n, d))
        return mixed * np.logspace(0, -condition, d) + 5 * rng.normal(size=d)

    return state(d1), state(d2)


@given(
    seed=SEEDS,
    n=st.sampled_from([4, 5, 12, 40, 41, 90]),
    d1=st.sampled_from([1, 3, 20]),
    d2=st.sampled_from([1, 20, 30]),
    condition=st.sampled_from([0.0, 6.0]),
)
def test_equals_the_definitions(seed, n, d1, d2, condition):
    X, Y = related(seed, n, d1, d2, condition=condition)
    assert cka(X, Y) == pytest.approx(naive.cka(X, Y), rel=1e-8)
    expected = naive.cka(X, Y, naive.hsic_unbiased)
    assert cka_debiased(X, Y) == pytest.approx(expected, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("n", [4, 5, 7])
def test_the_debiased_one_takes_four_examples_at_a_time(n):
    X, Y = related(n, n, 3, 5)
    expected = naive.cka(X, Y, naive.hsic_by_tuples)
    assert cka_debiased(X, Y) == pytest.approx(expected, rel=1e-9)


@given(seed=SEEDS, n=st.sampled_from([10, 200]), scale=st.sampled_from([1e-140, 1e-3, 37.5, 1e140]))
def test_invariant_under_rotation_one_scale_shift_order_and_exchange(seed, n, scale):
    X, Y = related(seed, n, 6, 9)
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    order = rng.permutation(n)
    expected = similarity(X, Y)
    for changed, other in (
        (X @ rotation, Y),
        (X * scale, Y),
        (X + 100 * rng.normal(size=6), Y),
        (X[order], Y[order]),
        (Y, X),
    ):
        found = similarity(changed, other)
        assert found.biased == pytest.approx(expected.biased, rel=1e-8)
        assert found.debiased == pytest.approx(expected.debiased, rel=1e-8, abs=1e-9)


def test_not_invariant_under_a_stretch():
    X, Y = related(0, 200, 6, 9)
    assert cka(X * np.array([30, 1, 1, 1, 1, 1]), Y) != pytest.approx(cka(X, Y), rel=0.01)


@pytest.mark.parametrize(("n", "d"), [(4, 3), (30, 100), (500, 8)])
def test_a_state_is_like_itself_and_its_image(n, d):
    X, _ = related(3, n, d, 1)
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))
    for Y in (X, -3 * X @ rotation + 1):
        assert cka(X, Y) == pytest.approx(1, abs=1e-12)
        assert cka_debiased(X, Y) == pytest.approx(1, abs=1e-9)
        assert cka(X, Y) <= 1


def test_unrelated_states_look_alike_only_to_the_biased_one():
    rng = np.random.default_rng(0)
    found = [similarity(rng.normal(size=(60, 768)), rng.normal(size=(60, 768))) for _ in range(30)]
    assert np.mean([f.biased for f in found]) == pytest.approx(0.93, abs=0.005)
    debiased = np.array([f.debiased for f in found])
    assert abs(debiased.mean()) < 3 * debiased.std() / 30**0.5
    assert debiased.std() < 0.05
    # A negative value is an answer: without those the mean would not be 0.
    assert (debiased < 0).any()


def test_undefined_where_a_state_does_not_vary():
    X, _ = related(0, 50, 6, 1)
    for still in (np.full((50, 6), 0.1), np.zeros((50, 6)), np.full((50, 6), 1e100)):
        assert similarity(X, still) == similarity(still, X)
        assert (cka(X, still), cka_debiased(X, still)) == (None, None)
    # What float32 cannot tell apart does not vary either.
    wobbling = np.float32(0.7) * (1 + np.float32(1e-7) * X.astype(np.float32).clip(-1, 1))
    assert cka(X, wobbling) is None
    assert cka(X, X + 1e5) == pytest.approx(1)


def test_undefined_for_few_examples():
    X, Y = related(0, 3, 6, 6)
    assert cka(X, Y) == pytest.approx(naive.cka(X, Y))
    assert cka_debiased(X, Y) is None
    assert similarity(X[:1], Y[:1]) == similarity(X[:0], Y[:0])
    assert cka(X[:1], Y[:1]) is None
    assert cka(X[:, :0], Y) is None


def test_debiased_undefined_where_every_pair_is_alike():
    X, Y = np.eye(20), related(0, 20, 6, 6)[0]
    assert cka(X, Y) is not None
    assert cka_debiased(X, Y) is None


def test_constant_and_duplicated_features_and_one_feature():
    X, Y = related(0, 80, 6, 4)
    constant = np.column_stack([X, np.full(80, 7.0)])
    assert cka(constant, Y) == pytest.approx(cka(X, Y), rel=1e-12)
    twice = np.column_stack([X, X])
    assert cka_debiased(twice, Y) == pytest.approx(cka_debiased(X, Y), rel=1e-12)
    assert cka(X[:, :1], Y[:, :1]) == pytest.approx(
        np.corrcoef(X[:, 0], Y[:, 0])[0, 1] ** 2, rel=1e-9
    )


def test_whole_numbers_will_do():
    X, Y = (np.round(10 * state).astype(np.int64) for state in related(0, 20, 3, 3))
    assert cka(X, Y.tolist()) == pytest.approx(naive.cka(X * 1.0, Y * 1.0))


def test_refuses_what_does_not_fit():
    X, Y = related(0, 20, 3, 3)
    with pytest.raises(InputError, match=r"same n examples, got \(20, 3\) and \(19, 3\)"):
        cka(X, Y[1:])
    with pytest.raises(InputError, match="one row per example"):
        cka(X[0], Y)
    for bad in (np.nan, np.inf):
        X[3, 1] = bad
        with pytest.raises(InputError, match="finite"):
            cka(X, Y)


@pytest.mark.parametrize(("n", "d"), [(30, 20), (200, 20)])
def test_change_compares_neighbours(tmp_path, n, d):
    rng = np.random.default_rng(n)
    kept = np.memmap(tmp_path / "states", dtype=np.float32, mode="w+", shape=(5, n, d))
    kept[0] = rng.normal(size=(n, d))
    for i in range(1, 5):
        kept[i] = kept[i - 1] @ rng.normal(size=(d, d)) / d**0.5 + i * rng.normal(size=(n, d))
    kept[2] = 3 * kept[1] + 1
    change = cka_change(kept)
    assert change.values[0] is change.debiased[0] is None
    for i in range(1, 5):
        before, after = (kept[j].astype(np.float64) for j in (i - 1, i))
        assert change.values[i] == pytest.approx(1 - naive.cka(before, after), rel=1e-6, abs=1e-9)
        expected = 1 - naive.cka(before, after, naive.hsic_unbiased)
        assert change.debiased[i] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert change.values[2] == pytest.approx(0, abs=1e-9)
    assert change.values[3] > 0.1


def test_change_around_a_state_that_does_not_vary():
    rng = np.random.default_rng(0)
    states = rng.normal(size=(5, 40, 3)).astype(np.float32)
    states[2] = 0.3
    change = cka_change(list(states))
    assert [v is None for v in change.values] == [True, False, True, True, False]
    assert [v is None for v in change.debiased] == [True, False, True, True, False]


def test_change_refuses_states_of_several_shapes():
    with pytest.raises(InputError, match="one shape"):
        cka_change([np.zeros((4, 3)), np.zeros((4, 2))])
    assert cka_change([]).values == ()


@pytest.mark.parametrize(("n", "d", "noise"), [(60, 768, "0.93"), (499, 50, "0.09")])
def test_warns_when_examples_are_few(n, d, noise):
    warning = small_sample_warning(n, d)
    assert f"{n} examples of {d} features, independent noise scores {noise};" in warning
    assert small_sample_warning(10 * d, d) is None


@pytest.mark.parametrize(("n", "d"), [(60, 200), (300, 50)])
def test_the_warning_tells_what_noise_scores(n, d):
    rng = np.random.default_rng(0)
    found = np.mean([cka(rng.normal(size=(n, d)), rng.normal(size=(n, d))) for _ in range(10)])
    told = small_sample_warning(n, d).split("scores ")[1].split(";")[0]
    assert float(told) == pytest.approx(found, abs=0.01)
