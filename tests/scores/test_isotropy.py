"""LOES and the entropy of states against the formulas, and what must not change them."""

import numpy as np
import pytest

from layerscout.scores import isotropy
from layerscout.scores.moments import Centred
from layerscout.scores.transferability import centred_scatter
from reference import rivals


def by_key(key, H, y):
    states = Centred.of(H, y)
    return getattr(isotropy, key)(states, np.triu(centred_scatter(states)))


def examples(n, d, K, seed=0):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(K), rng.integers(0, K, n - K)]).astype(np.int64)
    H = rng.normal(size=(n, d)) * np.logspace(0, -2, d) + rng.normal(size=(K, d))[y] + 3
    return H, y


@pytest.mark.parametrize("shape", [(60, 8, 2), (60, 8, 5), (20, 30, 3)])
def test_equals_the_formula(shape):
    H, y = examples(*shape)
    assert by_key("loes", H, y) == pytest.approx(rivals.loes(H, y), rel=1e-8)
    assert by_key("entropy", H, y) == pytest.approx(rivals.entropy(H), rel=1e-8)
    numbers = H @ np.arange(shape[1]) + np.random.default_rng(1).normal(size=shape[0])
    assert by_key("loes", H, numbers) == pytest.approx(rivals.loes(H, numbers), rel=1e-6)


def test_what_they_do_not_see():
    H, y = examples(80, 6, 3)
    turn = np.linalg.qr(np.random.default_rng(2).normal(size=(6, 6)))[0]
    for key in ("loes", "entropy"):
        assert by_key(key, H @ turn, y) == pytest.approx(by_key(key, H, y), rel=1e-8)
    assert by_key("loes", H + 5, y) == pytest.approx(by_key("loes", H, y), rel=1e-6)
    assert by_key("entropy", 7 * H, y) == pytest.approx(by_key("entropy", H, y), rel=1e-8)
    # n directions that are alike hold log n; one holds nothing.
    assert by_key("entropy", np.eye(9), np.arange(9) % 2) == pytest.approx(np.log(9), rel=1e-8)
    assert by_key("entropy", np.outer(np.arange(9.0), [1, 2]), np.arange(9) % 2) == pytest.approx(0)


def test_labels_that_fit_better_are_better_by_loes():
    H, y = examples(200, 6, 3)
    assert by_key("loes", H, y) < by_key("loes", H, np.random.default_rng(3).permutation(y))


def test_without_a_value():
    y = np.arange(10) % 2
    assert by_key("loes", np.ones((10, 3)), y) is None
    assert by_key("loes", np.arange(10.0)[:, None], y) is None
    assert by_key("loes", np.eye(10)[:, :4], np.full(10, 0.1)) is None
    assert by_key("entropy", np.zeros((10, 3)), y) is None
    assert by_key("entropy", np.ones((10, 3)), y) is None
