"""What is said of a model that predicts the same of everything."""

import numpy as np
import pytest

from layerscout.data import warn_of_one_answer

NAMES = ("joy", "fear", "anger")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("classification", "one class only: 'fear' for all 4 validation examples"),
        ("token_classification", "one class only: 'fear' for all 4 words"),
    ],
)
def test_one_class(kind, words):
    labels, same = np.array([0, 1, 2, 1]), np.ones(4, dtype=np.int64)
    [line] = warn_of_one_answer(kind, NAMES, labels, same)
    assert words in line and "--class-weights balanced" in line
    assert not warn_of_one_answer(kind, NAMES, labels, np.array([1, 1, 1, 0]))
    assert not warn_of_one_answer(kind, NAMES, same, same)  # then it is right
    assert not warn_of_one_answer("regression", (), labels / 2, same / 2)


def test_several_labels():
    labels = np.eye(3, dtype=bool)
    [none] = warn_of_one_answer("multi_label_classification", NAMES, labels, labels & False)
    assert "no label for any of 3 validation examples" in none and "--threshold tuned" in none
    always = np.tile([True, False, True], (3, 1))
    [same] = warn_of_one_answer("multi_label_classification", NAMES, labels, always)
    assert same.endswith("the same labels for all 3 validation examples: joy, anger")
    assert not warn_of_one_answer("multi_label_classification", NAMES, labels, labels)
