"""What a model is judged by, against scikit-learn and SciPy called directly and by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats
from sklearn import metrics as sklearn_metrics

from inputs import expect_refused
from layerscout.data import (
    METRICS_OF,
    evaluate,
    evaluate_all,
    name_metric,
    tabulate_confusion,
)

NAMES = tuple(METRICS_OF["classification"])


def one_hot(predicted, classes):
    return np.eye(classes, dtype=np.float32)[np.asarray(predicted)]


@st.composite
def judged(draw):
    """Draw the number of classes, labels and predictions."""
    classes, rows = draw(st.integers(2, 5)), draw(st.integers(1, 30))
    ids = st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows)
    return classes, np.array(draw(ids)), np.array(draw(ids))


@pytest.mark.filterwarnings("ignore:A single label was found")
@given(judged(), st.integers(0, 99))
def test_equals_scikit_learn(case, seed):
    classes, labels, predicted = case
    # Any logits whose largest is the prediction.
    logits = np.random.default_rng(seed).normal(size=(len(labels), classes))
    logits[np.arange(len(labels)), predicted] = logits.max(axis=1) + 1
    average = "binary" if classes == 2 else "macro"
    expected = {
        "accuracy": sklearn_metrics.accuracy_score(labels, predicted),
        "f1": sklearn_metrics.f1_score(labels, predicted, average=average, zero_division=0.0),
        "macro_f1": sklearn_metrics.f1_score(labels, predicted, average="macro", zero_division=0.0),
        "matthews_correlation": sklearn_metrics.matthews_corrcoef(labels, predicted),
    }
    values = {name: evaluate(name, labels, logits) for name in NAMES}
    assert values == pytest.approx(expected, abs=1e-12)
    assert all(type(value) is float and math.isfinite(value) for value in values.values())


@given(judged())
def test_confusions_equal_scikit_learn(case):
    classes, labels, predicted = case
    expected = sklearn_metrics.confusion_matrix(labels, predicted, labels=range(classes))
    assert tabulate_confusion(labels, one_hot(predicted, classes), classes) == expected.tolist()
    assert tabulate_confusion(labels / 2, one_hot(predicted, classes), classes) is None
    assert tabulate_confusion(labels, np.eye(101)[predicted], 101) is None


def test_the_name_says_which_f1():
    names = [name_metric("f1", classes) for classes in ((), ("no", "yes"), ("a", "b", "c"))]
    assert names == ["F1", "F1 of yes", "macro-F1"]
    assert name_metric("accuracy", ("no", "yes")) == "accuracy"


def test_several_classes_are_averaged_even_where_only_two_of_them_occur():
    """The metric of a task must not turn into another one by what happens to be predicted."""
    labels, predicted = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    of_0, of_1 = 2 / 3, 4 / 5
    assert evaluate("f1", labels, one_hot(predicted, 2)) == pytest.approx(of_1)
    assert evaluate("f1", labels, one_hot(predicted, 3)) == pytest.approx((of_0 + of_1) / 2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["f1", "matthews_correlation"])
def test_undefined_is_zero(name, classes):
    nothing = np.zeros(4, dtype=np.int64)
    logits = one_hot(nothing, classes)
    if name == "f1" and classes == 3:
        logits = one_hot(nothing + 1, classes)  # no class is ever right
    assert evaluate(name, nothing, logits) == 0.0


def test_ties_go_to_the_lower_id():
    logits = np.array([[0.5, 0.5, 0.1], [0.1, 0.5, 0.5], [0.0, 0.0, 0.0]])
    assert evaluate("accuracy", np.array([0, 1, 0]), logits) == 1.0
    assert evaluate("accuracy", np.array([1, 2, 2]), logits) == 0.0


@given(st.integers(2, 40), st.integers(0, 999))
def test_numbers_equal_scipy(rows, seed):
    rng = np.random.default_rng(seed)
    targets, logits = rng.integers(0, 26, rows) / 5, rng.normal(size=(rows, 1)).astype(np.float32)
    targets[0] = 9.0  # at least two that differ
    pearson = stats.pearsonr(targets, logits[:, 0].astype(np.float64)).statistic
    spearman = stats.spearmanr(targets, logits[:, 0]).statistic
    expected = {
        "pearson_spearman": (pearson + spearman) / 2,
        "pearson": pearson,
        "spearman": spearman,
        "mean_squared_error": np.square(targets - logits[:, 0]).mean(),
    }
    values = evaluate_all("regression", targets, logits)
    assert values == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert all(type(value) is float for value in values.values())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("targets", "numbers"),
    [
        ([1.0, 2.0, 3.0], [2.5, 2.5, 2.5]),
        ([2.0, 2.0, 2.0], [1.0, 2.0, 3.0]),
        ([1.0], [2.0]),
        ([1e-320, 2e-320, 3e-320], [1.0, 2.0, 2.0]),
    ],
)
def test_undefined_correlations_are_zero(targets, numbers):
    values = evaluate_all("regression", np.array(targets), np.array(numbers)[:, None])
    assert all(math.isfinite(value) for value in values.values())
    if targets[0] > 1e-300:
        assert values["pearson"] == values["spearman"] == values["pearson_spearman"] == 0.0


def test_metrics_are_those_of_the_kind():
    labels, logits = np.array([0, 1]), np.eye(2)
    assert list(evaluate_all("classification", labels, logits)) == list(NAMES)
    assert evaluate_all("multiple_choice", labels, logits[:, [1, 0]]) == {"accuracy": 0.0}
    expect_refused("metric … 'acuracy' … accuracy", evaluate, "acuracy", labels, logits)
    expect_refused("'accuracy' … pearson", evaluate, "accuracy", labels / 2, logits)
    expect_refused("'pearson' … accuracy", evaluate, "pearson", labels, logits)
