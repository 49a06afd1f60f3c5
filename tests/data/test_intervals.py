"""Intervals of metrics against Wilson's formula, and against what repeated samples show."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from layerscout.data import METRICS_OF, Tags, find_difference, find_interval


def guess(right: int, of: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and logits with so many right answers."""
    labels = np.arange(of) % 2
    answers = np.where(np.arange(of) < right, labels, 1 - labels)
    return labels, np.eye(2)[answers]


def wilson(right: float, of: float) -> tuple[float, float]:
    """Solve |p − θ| = z √(θ(1 − θ)/n) for θ, the definition of the interval."""
    z, p = 1.959963984540054, right / of
    roots = np.roots([1 + z**2 / of, -(2 * p + z**2 / of), p**2])
    return float(min(roots)), float(max(roots))


@pytest.mark.parametrize(("right", "of"), [(6, 6), (0, 9), (1, 1)])
def test_a_share_at_an_end_has_wilson_s_interval(right, of):
    assert find_interval("accuracy", *guess(right, of)) == pytest.approx(
        wilson(right, of), abs=1e-9
    )


def test_accuracy_has_nearly_wilson_s_interval():
    # The jackknife's variance is p(1 − p)/(n − 1).
    assert find_interval("accuracy", *guess(70, 100)) == pytest.approx(wilson(70, 100), abs=1e-3)


@pytest.mark.parametrize(("right", "of", "folds"), [(70, 100, 5), (9, 9, 5), (40, 60, 2)])
def test_folds_widen_it_as_their_models_share_rows(right, of, folds):
    """Of J folds, n₁ = n − n / J rows in each fit: the variance times 1 + J n₂/n₁."""
    left_out = of / folds
    fewer = 1 + folds * left_out / (of - left_out)
    found = find_interval("accuracy", *guess(right, of), folds=folds)
    assert found == pytest.approx(wilson(right / fewer, of / fewer), abs=5e-3)


def test_words_of_a_sentence_are_one_observation():
    labels, logits = guess(600, 1000)
    order = np.argsort(labels != logits.argmax(axis=1), kind="stable")  # right ones lie together
    sentences = np.repeat(np.arange(50), 20)
    tags = Tags(("A", "B"), sentences)
    alone = find_interval("accuracy", labels[order], logits[order])
    together = find_interval("accuracy", labels[order], logits[order], tags=tags)
    assert together[1] - together[0] > 3 * (alone[1] - alone[0])


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(METRICS_OF["classification"]),
    st.integers(1, 300),
    st.integers(2, 5),
)
def test_an_interval_stays_in_range_and_holds_the_value(seed, metric, n, classes):
    from layerscout.data import evaluate

    rng = np.random.default_rng(seed)
    labels, logits = rng.integers(classes, size=n), rng.normal(size=(n, classes))
    value, (low, high) = evaluate(metric, labels, logits), find_interval(metric, labels, logits)
    assert -1 <= low <= value + 1e-12
    assert value - 1e-12 <= high <= 1
    if metric != "matthews_correlation":
        assert low >= 0


def test_19_of_20_samples_hold_the_true_macro_f1():
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        labels = (rng.random(n) < 0.2).astype(np.int64)
        kept = rng.random(n) < np.where(labels, 0.6, 0.92)
        return labels, np.eye(2)[np.where(kept, labels, 1 - labels)]

    # Of each class: 2 · right / (there + predicted).
    f1s = [2 * 0.8 * 0.92 / (0.8 + 0.8 * 0.92 + 0.2 * 0.4), 2 * 0.12 / (0.2 + 0.12 + 0.8 * 0.08)]
    true = sum(f1s) / 2
    held = [
        low <= true <= high
        for low, high in (find_interval("macro_f1", *draw(80)) for _ in range(300))
    ]
    assert 0.92 < np.mean(held) < 0.98


def test_numbers_have_an_interval_of_their_correlation():
    rng = np.random.default_rng(0)
    labels = rng.normal(size=400)
    low, high = find_interval("pearson", labels, (labels + rng.normal(size=400))[:, None])
    r, half = (low + high) / 2, (high - low) / 2
    assert low < 0.7071 < high
    assert half == pytest.approx(1.96 * (1 - r**2) / 20, rel=0.2)  # by the delta method


def test_the_difference_of_two_accuracies_has_the_interval_of_agresti_and_min():
    labels = np.zeros(100, np.int64)
    first, second = (np.eye(2)[wrong.astype(int)] for wrong in (np.zeros(100), np.zeros(100)))
    first[:12], second[8:12], second[60:63] = [0, 1], [0, 1], [0, 1]  # 8 gained, 3 lost
    difference, (low, high) = find_difference("accuracy", labels, (first, second))
    # p_c' = (c + 1/2) / (n + 2) in each cell; the Wald interval of p12' − p21'.
    gained, lost = 8.5 / 102, 3.5 / 102
    half = 1.959963984540054 * np.sqrt((gained + lost - (gained - lost) ** 2) / 102)
    assert difference == pytest.approx(0.05)
    assert (low, high) == pytest.approx((gained - lost - half, gained - lost + half))


def test_the_difference_of_equal_models_is_not_certain_for_a_few_examples():
    labels, logits = guess(6, 6)
    assert find_difference("accuracy", labels, (logits, logits))[1] == pytest.approx(
        (-0.245, 0.245), abs=1e-3
    )
    assert find_difference("accuracy", labels[:1], (logits[:1], logits[:1])) == (0, None)


def test_a_paired_interval_of_another_metric_is_narrower_than_of_two_samples():
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=400)
    noise = rng.normal(size=400)
    first, second = numbers + noise, numbers + 0.9 * noise
    difference, (low, high) = find_difference("pearson", numbers, (first[:, None], second[:, None]))
    alone = find_interval("pearson", numbers, first[:, None])
    assert low < difference < high
    assert low > 0
    assert high - low < (alone[1] - alone[0]) / 3
