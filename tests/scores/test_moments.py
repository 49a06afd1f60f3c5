"""Moments against sums over all examples at once, and merging in any order and any chunks;
the ratios that need no more."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from layerscout.scores.moments import (
    Centred,
    Moments,
    class_weights,
    nc1s,
    variability_ratios,
)
from reference import naive


def examples(seed, S=2, n=40, d=5, K=3, offset=0.0):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(K).repeat(2), rng.integers(0, K, n - 2 * K)])
    H = rng.normal(size=(S, n, d)) * rng.uniform(0.1, 3, size=(S, 1, d)) + y[:, None] + offset
    return torch.from_numpy(H), torch.from_numpy(rng.permutation(y))


def summed(H, y, weights, reference=None, chunks=(None,)):
    moments = Moments.empty(H.mean(dim=1) if reference is None else reference, weights)
    start = 0
    for size in chunks:
        stop = len(y) if size is None else start + size
        moments.add_(H[:, start:stop], y[start:stop])
        start = stop
    return moments


def assert_equal(a: Moments, b: Moments, tolerance=1e-10):
    for name in ("reference", "weights", "count", "total", "scatter"):
        torch.testing.assert_close(
            getattr(a, name), getattr(b, name), rtol=tolerance, atol=tolerance, msg=name
        )


@given(st.integers(0, 10**6), st.integers(2, 4), st.sampled_from(["classes", "weightings"]))
def test_sums_are_those_of_the_formula(seed, K, kind):
    H, y = examples(seed, K=K)
    n = torch.bincount(y).double()
    W = torch.eye(K, dtype=torch.float64) if kind == "classes" else torch.stack([1 / n, n**0], 1)
    moments = summed(H, y, W)
    assert moments.count.tolist() == n.tolist()
    for s in range(len(H)):
        x = (H[s] - H[s].mean(0)).numpy()
        for k in range(K):
            np.testing.assert_allclose(moments.total[s, k], x[y == k].sum(0), atol=1e-12)
        for g in range(W.shape[1]):
            expected = sum(W[y[i], g].item() * np.outer(x[i], x[i]) for i in range(len(y)))
            np.testing.assert_allclose(moments.scatter[s, g], expected, atol=1e-11)


@given(st.integers(0, 10**6), st.integers(2, 4), st.sampled_from([1, 3]), st.booleans())
def test_a_centred_state_answers_what_its_moments_do(seed, K, B, single):
    H, y = examples(seed, S=1, K=K, offset=100.0)
    H = H.float() if single else H
    states, labels = H[0].numpy(), y.numpy()
    groups = np.random.default_rng(seed).permutation(np.arange(len(y)) % B)
    found, moments = Centred.of(states, labels, groups), summed(H, y, class_weights(y.bincount()))
    assert (found.same, found.resolution) == (False, moments.resolution)
    directions = torch.randn(1, 2, 5, dtype=torch.float64)
    for weights in (1 / moments.count, torch.ones(K, dtype=torch.float64)):
        for answer, expected in (
            (found.within(weights, directions), moments.within(weights, directions)),
            (found.within_trace(weights), moments.within_trace(weights)),
        ):
            torch.testing.assert_close(answer, expected, rtol=1e-9, atol=0)
    for ratios in (variability_ratios, nc1s):
        torch.testing.assert_close(ratios(found), ratios(moments), rtol=1e-9, atol=0)
    # Every part is one block of the rows, and has its own sum.
    ends, x = np.cumsum(found.sizes), states - states.mean(axis=0, dtype=np.float64)
    for part, (g, k) in enumerate(np.ndindex(B, K)):
        own = x[(groups == g) & (labels == k)]
        block = slice(ends[part] - len(own), ends[part])
        np.testing.assert_allclose(found.rows[block], own, atol=1e-12)
        assert (found.labels[block] == k).all()
        np.testing.assert_allclose(found.sums[g, k], own.sum(axis=0), atol=1e-10)
        np.testing.assert_allclose(found.squares[block], (own**2).sum(axis=1))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8])
def test_states_that_are_the_same_are_seen(value):
    states, labels = np.full((30, 4), value, np.float32), np.arange(30) % 2
    assert Centred.of(states, labels).same
    states[15, 2] = 7.0
    assert not Centred.of(states, labels).same


@given(st.integers(0, 10**6), st.lists(st.integers(1, 12), max_size=6), st.integers(2, 4))
def test_chunks_do_not_matter(seed, sizes, K):
    H, y = examples(seed, n=100, K=K)
    weights = class_weights(torch.bincount(y))
    whole = summed(H, y, weights)
    assert_equal(summed(H, y, weights, chunks=(*sizes, None)), whole)


@given(st.integers(0, 10**6), st.integers(1, 38), st.integers(2, 4))
def test_merging_equals_one_pass_in_either_order(seed, cut, K):
    H, y = examples(seed, K=K)
    weights = class_weights(torch.bincount(y))
    whole = summed(H, y, weights)
    # Each part has a reference of its own, as parts summed on two machines have.
    left = summed(H[:, :cut], y[:cut], weights)
    right = summed(H[:, cut:], y[cut:], weights)
    assert_equal((left + right).about(whole.reference), whole)
    assert_equal((right + left).about(whole.reference), whole)


@given(st.integers(0, 10**6), st.integers(2, 4))
def test_within_is_the_weighted_spread_about_the_class_means(seed, K):
    H, y = examples(seed, K=K)
    n = torch.bincount(y).double()
    moments = summed(H, y, class_weights(n))
    directions = torch.from_numpy(np.random.default_rng(seed).normal(size=(2, 4, 5)))
    for weights in (1 / n, n**0, 0.3 / n + 0.2):
        got, trace = moments.within(weights, directions), moments.within_trace(weights)
        for s in range(len(H)):
            expected = 0.0
            for k in range(K):
                x = (H[s][y == k] - H[s][y == k].mean(0)).numpy()
                expected = expected + weights[k].item() * x.T @ x
            for j, u in enumerate(directions[s].numpy()):
                assert got[s, j].item() == pytest.approx(u @ expected @ u, rel=1e-9)
            assert trace[s].item() == pytest.approx(np.trace(expected), rel=1e-9)


def test_states_far_from_the_origin_lose_no_digits():
    H, y = examples(1)
    weights = class_weights(torch.bincount(y))
    near, far = summed(H, y, weights), summed(H + 1e6, y, weights)
    n = torch.bincount(y).double()
    axes = torch.eye(5, dtype=torch.float64).expand(2, 5, 5)
    torch.testing.assert_close(far.within(1 / n, axes), near.within(1 / n, axes), rtol=1e-8, atol=0)


def test_float32_states_are_summed_in_float64():
    H, y = examples(2)
    weights = class_weights(torch.bincount(y))
    reference = H.mean(dim=1)
    moments = summed(H.float(), y, weights, reference)
    assert moments.scatter.dtype == torch.float64
    assert_equal(moments, summed(H.float().double(), y, weights, reference), 1e-12)


@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 38))
def test_ratios_of_all_states_come_from_merged_sums(seed, K, cut):
    H, y = examples(seed, S=3, K=K)
    weights = class_weights(torch.bincount(y))
    merged = summed(H[:, :cut], y[:cut], weights) + summed(H[:, cut:], y[cut:], weights)
    for ratios, key in ((variability_ratios, "variability_ratio"), (nc1s, "nc1")):
        expected = [getattr(naive, key)(state, y.numpy()) for state in H.numpy()]
        assert ratios(merged).tolist() == pytest.approx(expected, rel=1e-6)


def test_a_ratio_without_class_means_apart_or_finite_is_nan():
    H, y = examples(0, S=3)
    H[1], H[2, 0, 0] = 1.0, torch.inf
    moments = summed(H, y, class_weights(torch.bincount(y)), reference=torch.zeros(3, 5).double())
    for ratios in (variability_ratios, nc1s):
        assert ratios(moments).isnan().tolist() == [False, True, True]
