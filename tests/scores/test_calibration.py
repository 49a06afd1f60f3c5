"""What is said of probabilities, against the formulas in plain Python and scikit-learn."""

from math import ceil, exp, log

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import brier_score_loss

from layerscout.scores import calibrate, find_losses, measure_calibration


def judge_plainly(pairs):
    """Return ECE and bins of pairs of a probability and whether it came true, in 15 bins."""
    bins = [[] for _ in range(15)]
    for p, right in pairs:
        bins[max(0, ceil(p * 15) - 1)].append((p, right))
    means = [
        (len(b), sum(p for p, _ in b) / len(b), sum(r for _, r in b) / len(b)) for b in bins if b
    ]
    return sum(n * abs(c - a) for n, c, a in means) / len(pairs), means


def share(row):
    return [exp(z) / sum(exp(other) for other in row) for z in row]


def check(measured, pairs, nll, brier):
    ece, bins = judge_plainly(pairs)
    assert measured["ece"] == pytest.approx(ece)
    for one, expected in zip(measured["bins"], bins, strict=True):
        assert tuple(one.values()) == pytest.approx(expected)
    assert measured["nll"] == pytest.approx(nll)
    assert measured["brier"] == pytest.approx(brier)


def test_classes_are_judged_by_the_one_predicted():
    rng = np.random.default_rng(0)
    logits, y = rng.normal(size=(200, 4)) * 3, rng.integers(0, 4, 200)
    rows = [share(row) for row in logits.tolist()]
    pairs = [(max(p), p.index(max(p)) == k) for p, k in zip(rows, y, strict=True)]
    nll = sum(-log(p[k]) for p, k in zip(rows, y, strict=True)) / 200
    brier = sum(
        sum((q - (k == own)) ** 2 for k, q in enumerate(p)) for p, own in zip(rows, y, strict=True)
    )
    measured = measure_calibration(y, logits.astype(np.float32))
    check(measured, pairs, nll, brier / 200)
    assert measured["brier"] == pytest.approx(brier_score_loss(y, rows, scale_by_half=False))


def test_labels_are_judged_one_by_one():
    rng = np.random.default_rng(1)
    logits, y = rng.normal(size=(60, 5)) * 3, rng.random((60, 5)) < 0.3
    pairs = [(1 / (1 + exp(-z)), bool(b)) for z, b in zip(logits.flat, y.flat, strict=True)]
    nll = sum(-log(p if right else 1 - p) for p, right in pairs) / 300
    brier = sum((p - right) ** 2 for p, right in pairs) / 300
    check(measure_calibration(y, logits), pairs, nll, brier)


def test_what_has_no_probabilities_and_the_surest_of_all():
    assert measure_calibration(np.zeros(3), np.ones((3, 1))) is None
    assert measure_calibration(np.array([0, 1]), np.array([[1.0, np.nan], [0, 1]])) is None
    sure = measure_calibration(np.array([0, 1]), np.array([[1e30, -1e30], [1e30, -1e30]]))
    assert (sure["ece"], sure["brier"], [b["count"] for b in sure["bins"]]) == (0.5, 1.0, [2])


class _Logits(ClassifierMixin, BaseEstimator):
    """Features are logits."""

    classes_ = np.arange(3)

    def __sklearn_is_fitted__(self):
        return True

    def fit(self, X, y):
        return self

    def decision_function(self, X):
        return X

    def predict(self, X):
        return X.argmax(axis=1)


@pytest.mark.filterwarnings("ignore:Since FrozenEstimator")
def test_the_factor_is_that_of_scikit_learn_and_changes_no_prediction():
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, 1000)
    logits = 8 * rng.normal(size=(1000, 3)) + 4 * np.eye(3)[y]
    factor = calibrate(y, logits)
    theirs = CalibratedClassifierCV(FrozenEstimator(_Logits()), method="temperature")
    # A 1,001st of each row has the other two labels.
    weights = np.full((1000, 3), 1 / 1001 / 2)
    weights[np.arange(1000), y] = 1000 / 1001
    rows, labels = logits.repeat(3, axis=0), np.tile(np.arange(3), 1000)
    fitted = theirs.fit(rows, labels, sample_weight=weights.ravel())
    fitted = fitted.calibrated_classifiers_[0].calibrators[0]
    assert factor == pytest.approx(fitted.beta_, rel=2e-3)
    assert ((logits * factor).argmax(axis=1) == logits.argmax(axis=1)).all()
    before, after = (measure_calibration(y, logits * f) for f in (1, factor))
    assert all(after[name] < before[name] for name in ("nll", "ece", "brier"))
    # All right: the last of n + 1 rows may be wrong.
    for n in (9, 999):
        sure = 9.0 * calibrate(y[:n], 9.0 * np.eye(3)[y[:n]])
        assert 1 / (1 + 2 * np.exp(-sure)) == pytest.approx(n / (n + 1), rel=1e-3)
    having = rng.random((99, 2)) < 0.3
    sure = 7.0 * calibrate(having, np.where(having, 7.0, -7.0))
    assert 1 / (1 + np.exp(-sure)) == pytest.approx(0.99, rel=1e-3)
    assert calibrate(y.astype(float), logits) == 1


def test_logits_of_any_size_can_be_brought_to_chance():
    y, sure = np.array([0, 1, 0, 1]), np.array([[0.0, 9e4], [9e4, 0.0], [9e4, 0.0], [0.0, 9e4]])
    assert find_losses(y, sure * calibrate(y, sure)).mean() == pytest.approx(np.log(2), abs=0.01)
