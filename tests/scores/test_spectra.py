"""Signal to noise of weights against a full SVD, and how blocks stand by it."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from layerscout.errors import InputError
from layerscout.scores import SCORES
from layerscout.scores.spectra import weight_snr
from reference import spectra as naive


def score(matrices):
    return SCORES["weight_snr"].of_blocks(matrices)


def with_values(values, m, k, seed=0):
    """A matrix of given singular values."""
    rng = np.random.default_rng(seed)
    u, _ = np.linalg.qr(rng.normal(size=(m, m)))
    v, _ = np.linalg.qr(rng.normal(size=(k, k)))
    middle = np.zeros((m, k))
    np.fill_diagonal(middle, values)
    return u @ middle @ v


def noisy(seed, m=20, k=30, signal=3.0):
    rng = np.random.default_rng(seed)
    strong = rng.normal(size=(m, 2)) @ rng.normal(size=(2, k))
    return signal * strong + rng.normal(size=(m, k))


@given(
    seed=st.integers(0, 10**6),
    m=st.sampled_from([8, 20, 60]),
    k=st.sampled_from([8, 20, 40]),
    signal=st.sampled_from([0.0, 0.5, 5.0]),
    precision=st.sampled_from(["float32", "float64"]),
)
def test_equals_the_formula(seed, m, k, signal, precision):
    W = noisy(seed, m, k, signal).astype(precision)
    with np.errstate(divide="ignore"):
        expected = naive.weight_snr(W)
    # 20 by 8 and the like may have nothing below the edge.
    found = weight_snr(W)
    assert (found is None) == (not np.isfinite(expected))
    if found is not None:
        assert found == pytest.approx(expected, rel=1e-6)


def test_ill_conditioned():
    for lowest in (-3, -6, -12):
        W = with_values(np.logspace(0, lowest, 40), 40, 50)
        assert weight_snr(W) == pytest.approx(naive.weight_snr(W), rel=1e-6)


@pytest.mark.parametrize(("k", "edge"), [(5, 2 / 1.349 * 2), (20, 2 / 1.349 * 1.5)])
def test_where_the_edge_lies(k, edge):
    above, below = edge * 1.0001, edge * 0.9999
    found = weight_snr(with_values([1, 2, above, 4, 5], 5, k))
    assert found == pytest.approx((above + 9) / 3 / 5)
    assert weight_snr(with_values([1, 2, below, 4, 5], 5, k)) == pytest.approx(9 / (below + 3) / 5)


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([-1.0, 1e-150, 40.0, 1e150]))
def test_turning_keeps_it_and_scaling_divides_it(seed, scale):
    W = noisy(seed)
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(20, 20)))
    expected = weight_snr(W)
    assert weight_snr(W.T) == pytest.approx(expected, rel=1e-7)
    assert weight_snr(rotation @ W) == pytest.approx(expected, rel=1e-7)
    assert weight_snr(scale * W) == pytest.approx(expected / abs(scale), rel=1e-7)


@pytest.mark.parametrize(
    "W",
    [
        np.zeros((6, 4)),
        np.eye(6),
        np.ones((6, 4)),
        np.ones((1, 40)),
        np.ones((0, 4)),
        with_values([9, 9.5, 10, 10.5, 11], 5, 500),
        with_values([3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 14, 14).astype(np.float32),
    ],
    ids=["zero", "orthogonal", "rank 1", "one row", "no row", "all above", "low rank"],
)
def test_undefined_without_noise(W):
    assert weight_snr(W) is None


def test_nothing_above_the_edge_is_no_signal():
    assert weight_snr(with_values([10, 9, 8, 7, 0.1, 0.1, 0.1], 7, 7)) == 0
    assert naive.weight_snr(with_values([10, 9, 8, 7, 0.1, 0.1, 0.1], 7, 7)) == 0


def test_refuses_what_is_not_finite():
    with pytest.raises(InputError, match="finite"):
        weight_snr(np.array([[1.0, np.nan], [0.0, 1.0]]))
    with pytest.raises(InputError, match="weights must be finite"):
        score({(1, "key"): noisy(0), (2, "key"): np.full((3, 3), np.inf)})


@given(st.integers(0, 10**6))
def test_blocks_stand_as_counted(seed):
    rng = np.random.default_rng(seed)
    matrices = {
        (block, kind): noisy(rng.integers(10**6), signal=rng.random() * 3) * scale
        for block in range(1, 6)
        for kind, scale in (("query", 1.0), ("key", 1e-3), ("dense", 50.0))
    }
    found = score(matrices)
    assert found.values[0] is None
    for block, expected in naive.block_snr(matrices).items():
        assert found.values[block] == pytest.approx(expected)
    assert found.details["by_type"]["key"][3] == pytest.approx(
        naive.weight_snr(matrices[3, "key"]), rel=1e-6
    )


def test_types_count_alike_whatever_their_scale_and_shared_blocks_stand_alike():
    ordered = sorted((noisy(seed) for seed in range(3)), key=weight_snr)
    matrices = {(b, "query"): W for b, W in enumerate(ordered, start=1)}
    assert score(matrices).values == (None, 0, 0.5, 1)
    matrices |= {(b, "dense"): 1e-9 * W for b, W in enumerate(ordered[::-1], start=1)}
    assert score(matrices).values == (None, 0.5, 0.5, 0.5)
    shared = score({(block, "query"): ordered[0].copy() for block in range(1, 13)})
    assert shared.values == (None, *[1.0] * 12)
    assert len(set(shared.details["by_type"]["query"][1:])) == 1


def test_what_is_missing_or_undefined_does_not_count():
    a, b = sorted((noisy(0), noisy(1)), key=weight_snr)
    found = score({(1, "query"): a, (2, "query"): b, (4, "query"): np.eye(4), (2, "dense"): a})
    assert found.values == (None, 0, 1, None, None)
    assert found.details["by_type"]["dense"] == [None, None, weight_snr(a), None, None]
    assert score({}).values == (None,)
    assert score({(1, "query"): np.eye(3)}).values == (None, None)
