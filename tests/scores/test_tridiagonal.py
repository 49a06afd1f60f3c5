"""Matrices made tridiagonal, against NumPy's solver."""

import numpy as np
import pytest

from layerscout.scores.tridiagonal import Tridiagonal

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(params=[1, 2, 3, 40, 150])
def material(request):
    """A positive definite matrix, and as many columns as LAPACK takes in blocks, and fewer."""
    rng, d = np.random.default_rng(0), request.param
    X = rng.normal(size=(2 * d, d)) * np.logspace(0, -2, d)
    return X.T @ X, rng.normal(size=(d, 2)), rng.normal(size=(d, 200))


def test_what_is_turned_there_and_back_is_as_it_was(material):
    matrix, *both = material
    reduced = Tridiagonal.of(matrix.copy())
    for columns in both:
        before = columns.copy()
        turned = reduced.turn(columns)
        assert (columns == before).all()
        np.testing.assert_allclose(reduced.turn(turned, back=True), columns, atol=1e-12)


def test_solves_for_a_shift(material):
    matrix, few, _ = material
    reduced = Tridiagonal.of(matrix.copy())
    turned = reduced.turn(few)
    for shift in (0.0, 0.3):
        whitened, solution = reduced.solve(shift, turned)
        expected = np.linalg.solve(matrix + shift * np.eye(len(matrix)), few)
        np.testing.assert_allclose(reduced.turn(solution, back=True), expected, rtol=1e-7)
        np.testing.assert_allclose(whitened.T @ whitened, few.T @ expected, rtol=1e-7)
    assert reduced.solve(-2 * np.trace(matrix), turned) is None
