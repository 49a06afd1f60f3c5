"""The naive float64 online code length, from the formulas."""

from itertools import pairwise

import numpy as np
from sklearn.linear_model import LogisticRegression


def codelength(H: np.ndarray, y: np.ndarray, order: np.ndarray, ends: list[int]) -> float:
    """Voita & Titov 2020, §2.2.2, with scikit-learn's regression where every class was seen.

    The penalty of the weights is d/2 ‖w‖² on features of deviation 1; that of the biases comes
    from a feature of its own, which is always √d.
    """
    K, d = y.max() + 1, H.shape[1]
    X = np.column_stack([(H - H.mean(axis=0)) / H.std(axis=0), np.full(len(H), np.sqrt(d))])[order]
    y, total = y[order], ends[0] * np.log(K)
    for end, following in pairwise(ends):
        fitted = LogisticRegression(C=1 / d, fit_intercept=False, tol=1e-10, max_iter=10000)
        told = fitted.fit(X[:end], y[:end]).predict_log_proba(X[end:following])
        assert list(fitted.classes_) == list(range(K))
        total -= told[np.arange(following - end), y[end:following]].sum()
    return float(total / len(y))
