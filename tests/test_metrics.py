"""What a classifier is judged by, against scikit-learn called directly and formulas by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from inputs import expect_refused
from layerscout.metrics import METRICS, evaluate

NAMES = tuple(METRICS)


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
        "matthews_correlation": sklearn_metrics.matthews_corrcoef(labels, predicted),
    }
    found = {name: evaluate(name, labels, logits) for name in NAMES}
    assert found == pytest.approx(expected, abs=1e-12)
    assert all(type(value) is float and math.isfinite(value) for value in found.values())


def test_two_classes_by_hand():
    labels, predicted = np.array([1, 1, 1, 1, 0, 0, 0, 0]), np.array([1, 1, 1, 0, 1, 0, 0, 0])
    tp, fn, fp, tn = 3, 1, 1, 3
    logits = one_hot(predicted, 2)
    assert evaluate("accuracy", labels, logits) == (tp + tn) / 8
    assert evaluate("f1", labels, logits) == pytest.approx(2 * tp / (2 * tp + fp + fn))
    root = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert evaluate("matthews_correlation", labels, logits) == pytest.approx(
        (tp * tn - fp * fn) / root
    )


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


def test_other_metrics_are_refused():
    labels, logits = np.array([0, 1]), np.eye(2)
    expect_refused("metric … 'acuracy' … accuracy", evaluate, "acuracy", labels, logits)
