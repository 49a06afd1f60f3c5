"""The online code length against the formula, and what it must tell apart."""

import numpy as np
import pytest

from layerscout.scores.online_code import codelength, fit_softmax
from reference import rivals


def examples(n=640, d=5, K=2, signal=1.0, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return rng.normal(size=(n, d)) * np.arange(1, d + 1) + signal * rng.normal(size=(K, d))[y], y


@pytest.mark.parametrize("d", [5, 40])
def test_equals_the_formula(d, monkeypatch):
    """From portions that hold every class: scikit-learn's regression knows no others."""
    monkeypatch.setattr("layerscout.scores.online_code.PORTIONS", (0.0625, 0.125, 0.25, 0.5, 1.0))
    H, y = examples(d=d, K=3, n=480)
    order = np.random.default_rng(4).permutation(480)
    expected = rivals.codelength(H, y, order, [30, 60, 120, 240, 480])
    assert codelength(H, y, seed=4) == pytest.approx(expected, rel=1e-4)


def test_labels_that_cannot_be_read_take_log_k_and_readable_ones_less():
    H, y = examples(signal=0.0)
    assert codelength(H, y) == pytest.approx(np.log(2), abs=0.06)
    assert codelength(*examples(signal=6.0)) < 0.3
    sent = [codelength(*examples(signal=s)) for s in (0.0, 1.0, 3.0, 6.0)]
    assert sent == sorted(sent, reverse=True)


def test_a_class_not_seen_yet_has_a_finite_length():
    X, y = np.eye(4), np.array([0, 0, 0, 1])
    told = fit_softmax(X, y, 3, np.eye(4))
    assert np.isfinite(told).all() and (told[:, 2] < told[:, 1]).all()
    assert np.exp(told).sum(axis=1) == pytest.approx(1)


def test_scales_shifts_and_constant_features_change_nothing():
    H, y = examples(d=7)
    other = np.column_stack([H * np.logspace(-3, 3, 7) + 11, np.full(len(H), 5.0)])
    assert codelength(other, y) == pytest.approx(codelength(H, y), rel=1e-4)
    assert codelength(np.full((20, 3), 2.0), np.arange(20) % 2) is None


def test_rows_of_an_example_are_sent_together():
    """Nothing of an example's other choices is known before it is sent."""
    rng = np.random.default_rng(0)
    unique = rng.normal(size=(100, 3))
    H, y = np.repeat(unique, 2, axis=0), np.tile([0, 1], 100)
    together = codelength(H, y, examples=np.arange(200) // 2)
    assert together == pytest.approx(np.log(2), abs=0.1)
    labels = np.repeat(rng.integers(0, 2, 100), 2)  # which a row of the same example tells
    assert codelength(H * 40, labels, 1) < codelength(H * 40, labels, 1, np.arange(200) // 2)
