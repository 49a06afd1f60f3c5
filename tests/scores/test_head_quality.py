"""The held-out quality of a head against explicit refits, and what its differences guarantee."""

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import matthews_corrcoef

from layerscout.scores import Estimate, deal_groups, measure_gaps
from layerscout.scores.quality import RIDGE_TERMS, cross_fit, measure_quality

# Its name in the room is that of a score.
module = import_module("layerscout.scores.quality")


def blobs(n, d, classes, shift, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return rng.normal(size=(n, d)) * rng.uniform(0.1, 3, d) + shift * rng.normal(size=(classes, d))[
        y
    ] / np.sqrt(d), y


@pytest.mark.parametrize(
    ("n", "d", "kind"), [(60, 12, 3), (40, 90, 2), (50, 8, "numbers"), (50, 8, "several")]
)
def test_predictions_are_those_of_fits_without_the_fold(n, d, kind):
    H, y = blobs(n, d, kind if isinstance(kind, int) else 3, 6.0)
    H += 100.0  # an intercept must take this, not the ridge term
    if kind == "numbers":
        y = H @ np.linspace(-1, 1, d) + np.random.default_rng(1).normal(size=n)
        targets = y[:, None]
    elif kind == "several":
        y = np.stack([y > 0, y == 1, np.arange(n) % 3 == 0], axis=1)
        targets = y * 1.0
    else:
        targets = np.eye(kind)[y]
    folds = deal_groups(y, 0, groups=7, least=0)
    scale = ((H - H.mean(axis=0)) ** 2).sum() / d
    least, expected = np.inf, None
    for term in RIDGE_TERMS:
        predicted = np.empty_like(targets)
        for fold in range(7):
            aside = folds == fold
            fit = Ridge(alpha=term * scale, solver="svd").fit(H[~aside], targets[~aside])
            predicted[aside] = fit.predict(H[aside]).reshape(-1, targets.shape[1])
        if (error := ((targets - predicted) ** 2).sum()) < least:
            least, expected = error, predicted
    np.testing.assert_allclose(cross_fit(H, y, folds), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("n", "d"), [(3, 60), (8, 768), (40, 200), (40, 41), (40, 40), (40, 39)])
@pytest.mark.parametrize("leave_out", ["_correct_one_fit", "_fit_without"])
def test_weak_ridge_terms_leave_no_trace_of_a_row_in_its_prediction(n, d, leave_out):
    """States are as far from 0 as real ones; the reference fits each fold by singular values."""
    rng = np.random.default_rng(n)
    H = rng.normal(size=(n, d)) + 10 * rng.normal(size=d)
    H -= H.mean(axis=0)
    targets = rng.normal(size=(n, 2))
    targets -= targets.mean(axis=0)
    folds = np.arange(n) % min(n, 8)
    parts = [np.flatnonzero(folds == fold) for fold in range(folds.max() + 1)]
    scale = (H**2).sum() / d
    found = list(getattr(module, leave_out)(H, targets, parts, scale))
    # With all rows of a direction in one fold, a single fit stops at a stronger term.
    assert len(found) >= 6
    for term, predicted in zip(RIDGE_TERMS, found, strict=False):
        expected = np.empty_like(targets)
        for rows in parts:
            others = np.setdiff1d(np.arange(n), rows)
            X, mean = H[others] - H[others].mean(axis=0), targets[others].mean(axis=0)
            U, values, V = np.linalg.svd(X, full_matrices=False)
            shrunk = values / (values**2 + term * scale)
            weights = V.T @ (shrunk[:, None] * (U.T @ (targets[others] - mean)))
            expected[rows] = (H[rows] - H[others].mean(axis=0)) @ weights + mean
        np.testing.assert_allclose(predicted, expected, atol=1e-6)


@pytest.mark.parametrize(("n", "d", "huge"), [(300, 64, 1), (1000, 384, 4)])
def test_a_few_huge_directions_hide_no_class(n, d, huge):
    """Strong ridge terms fit these alone, and err a little more the weaker they are."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    H = 0.1 * rng.normal(size=(n, d))
    H[:, :8] += 0.1 * (2 * y[:, None] - 1)
    H[:, -huge:] = 1000 * rng.normal(size=(n, huge))
    found = measure_quality(H, y, deal_groups(y, 0, least=0), "accuracy")
    assert found.value > 0.95


def test_the_metric_and_its_replicates():
    H, y = blobs(80, 5, 2, 3.0)
    folds = deal_groups(y, 0, groups=8, least=0)
    found = measure_quality(H, y, folds, "matthews_correlation")
    predicted = cross_fit(H, y, folds).argmax(axis=1)
    assert found.value == pytest.approx(matthews_corrcoef(y, predicted), abs=1e-12)
    without = matthews_corrcoef(y[folds != 3], predicted[folds != 3])
    assert found.replicates[3] == pytest.approx(without, abs=1e-12) and len(found.replicates) == 8
    low, high = found.interval()
    assert low == pytest.approx(2 * found.value - high) and -1 < low < found.value
    few = replace(found, metric="macro_f1", replicates=found.replicates * 50)
    assert few.interval() == (0.0, 1.0)
    assert replace(few, metric="pearson").interval() == (-1.0, 1.0)
    numbers = measure_quality(H, H[:, 0], folds, "pearson")
    assert numbers.value > 0.99
    same = measure_quality(np.ones((80, 5)), y, folds, "accuracy")
    assert same.value is None and same.replicates is None and same.interval() == (None, None)


@pytest.mark.parametrize("choices", [2, 4])
def test_what_is_judged_of_choices_is_the_one_picked(choices):
    rng = np.random.default_rng(choices)
    m = 90
    right = rng.integers(0, choices, m)
    y = np.eye(choices, dtype=np.int64)[right].reshape(-1)
    shared = np.repeat(3 * rng.normal(size=(m, 5)), choices, axis=0)  # of all rows of an example
    H = np.hstack([y[:, None] + 0.7 * rng.normal(size=(len(y), 3)), shared])
    order = rng.permutation(len(y))
    examples = np.repeat(rng.permutation(m), choices)[order]
    H, y = H[order], y[order]
    folds = deal_groups(y, 0, examples, least=0)
    found = measure_quality(H, y, folds, "accuracy", examples)
    predicted = cross_fit(H, y, folds)
    hits = {}
    for example in range(m):
        rows = np.flatnonzero(examples == example)
        picked = max(rows, key=lambda row: predicted[row, 1] - predicted[row, 0])
        hits[example] = (int(y[picked]), folds[rows[0]])
    assert found.value == pytest.approx(np.mean([hit for hit, _ in hits.values()]))
    for fold, without in enumerate(found.replicates):
        left = [hit for hit, of in hits.values() if of != fold]
        assert without == pytest.approx(np.mean(left))
    places = [int(np.flatnonzero(y[examples == e] == 1)[0]) for e in range(m)]
    assert found.majority == pytest.approx(np.bincount(places).max() / m)
    assert found.value > found.majority + 0.2


def test_the_majority_is_what_one_answer_scores():
    H, y = blobs(60, 4, 3, 1.0)
    y[:30] = 1
    numbers = np.random.default_rng(0).normal(size=60)
    for labels, metric, expected in (
        (y, "accuracy", np.bincount(y).max() / 60),
        (numbers, "pearson", 0),
    ):
        found = measure_quality(H, labels, deal_groups(labels, 0, least=0), metric)
        assert found.majority == pytest.approx(expected)


def test_labels_without_meaning_score_chance():
    H, _ = blobs(400, 300, 2, 0.0)
    y = np.random.default_rng(5).integers(0, 2, 400)
    found = measure_quality(H, y, deal_groups(y, 0, least=0), "accuracy")
    assert abs(found.value - 0.5) < 0.08


def test_a_class_with_few_rows_refuses_nothing():
    H, y = blobs(200, 20, 10, 12.0)
    H, y = np.concatenate([H, H[:3] + 50.0]), np.concatenate([y, [10, 10, 11]])
    found = measure_quality(H, y, deal_groups(y, 0, least=0), "accuracy")
    assert found.value > 0.5 and np.isfinite(found.replicates).all()


def made_up(hits, folds):
    without = [hits[folds != fold].mean() for fold in range(folds.max() + 1)]
    return Estimate(float(hits.mean()), np.array(without))


def test_a_gap_is_the_paired_difference():
    rng = np.random.default_rng(3)
    hits = (rng.random((500, 3)) < [0.5, 0.9, 0.6]).astype(float)
    folds = np.arange(500) % 20
    states = [made_up(hits[:, s], folds) for s in range(3)]
    gaps = measure_gaps([*states, None], 1)
    by_fold = np.array([(hits[folds == f, 1] - hits[folds == f, 2]).mean() for f in range(20)])
    assert gaps[2].difference == pytest.approx(hits[:, 1].mean() - hits[:, 2].mean())
    # One other state among 1..L, so the plain two-sided 5 % of Student's t of 19: 2.093.
    assert gaps[2].half_width == pytest.approx(2.0930 * by_fold.std(ddof=1) / np.sqrt(20), rel=1e-3)
    assert gaps[1].difference == 0 and gaps[1].half_width == 0 and gaps[3] is None
