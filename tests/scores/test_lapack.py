"""Routines of LAPACK, against SciPy's own."""

import numpy as np
import pytest
from scipy.linalg import solve_triangular

from layerscout.scores.lapack import whiten


@pytest.mark.parametrize(("d", "m"), [(1, 1), (7, 3), (40, 100)])
def test_whitened_columns_have_the_inverse_for_their_products(d, m):
    rng = np.random.default_rng(d)
    root, columns = rng.normal(size=(d, d)), rng.normal(size=(d, m))
    matrix = root @ root.T
    upper = np.triu(matrix) + np.tril(np.full((d, d), 1e9), -1)  # that is not read
    for given in (columns, np.asfortranarray(columns)):
        before = given.copy()
        found = whiten(upper, 0.5, given)
        lower = np.linalg.cholesky(matrix + 0.5 * np.eye(d))
        np.testing.assert_allclose(found, solve_triangular(lower, columns, lower=True), rtol=1e-8)
        np.testing.assert_array_equal(given, before)
    assert whiten(matrix, -1e6, columns) is None
