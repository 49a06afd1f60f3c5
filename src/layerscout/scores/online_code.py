"""How many nats the labels take if a classifier on the state is learnt while they are sent."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from jaxtyping import Float64, Int64
from scipy.special import log_softmax

# Ends of the portions, as shares of the examples: Voita & Titov 2020, §4.1.
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
# Steps of L-BFGS. The penalty makes the problem easy: a fit takes some twenty.
STEPS = 200


def codelength(
    H: Float64[np.ndarray, "n d"],
    y: Int64[np.ndarray, " n"],
    seed: int = 0,
    examples: Int64[np.ndarray, " n"] | None = None,
) -> float | None:
    """Online code length of the labels given the states, in nats an example; lower is better.

    The labels are sent in portions. The first takes log K nats a label; each of the others takes
    −log p by a classifier that was fitted to all before it. Voita & Titov 2020, "Information-
    Theoretic Probing with Minimum Description Length", §2.2.2. The classifier is ours: softmax
    regression on features of deviation 1, with N(0, 1/d) as prior of the weights and N(0, 1) of the
    biases, so that no stopping rule and no further examples are needed.

    Args:
        H: states (n, d).
        y: class ids (n,), all of 0..K−1.
        seed: draws the order in which the labels are sent.
        examples: ids (n,); rows of one example follow each other.

    Returns:
        None if all states are the same.
    """
    deviation = H.std(axis=0)
    usable = deviation > 1e-6 * np.abs(H.mean(axis=0))  # as for probes: less is rounding
    if not usable.any():
        return None
    order = _draw_order(len(H), seed, examples)
    features, labels = H[order][:, usable], y[order]
    features = (features - features.mean(axis=0)) / deviation[usable] / np.sqrt(usable.sum())
    classes = int(y.max()) + 1
    ends = np.unique(np.ceil(np.multiply(PORTIONS, len(H))).astype(int))
    total = float(ends[0] * np.log(classes))
    for end, following in pairwise(ends.tolist()):
        logs = fit_softmax(features[:end], labels[:end], classes, features[end:following])
        total -= float(logs[np.arange(following - end), labels[end:following]].sum())
    return total / len(H)


def fit_softmax(
    X: Float64[np.ndarray, "m d"],
    y: Int64[np.ndarray, " m"],
    classes: int,
    others: Float64[np.ndarray, "o d"],
) -> Float64[np.ndarray, "o K"]:
    """Fit softmax regression with N(0, 1) priors, and give log p of other rows.

    Args:
        X: features (m, d).
        y: class ids (m,); not all classes need occur.
        classes: how many there are, K.
        others: rows to predict (o, d).
    """
    from scipy.optimize import minimize

    if len(X) < X.shape[1]:  # the weights are sums of the rows, so m coordinates will do
        basis, _ = np.linalg.qr(X.T)
        X, others = X @ basis, others @ basis
    X, others = (np.column_stack([rows, np.ones(len(rows))]) for rows in (X, others))
    targets = np.eye(classes)[y]

    def lose(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(-1, classes)
        logs = log_softmax(X @ weights, axis=1)
        loss = -float((logs * targets).sum()) + float(flat @ flat) / 2
        return loss, (X.T @ (np.exp(logs) - targets)).ravel() + flat

    start = np.zeros(X.shape[1] * classes)
    fit = minimize(lose, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    logs: np.ndarray = log_softmax(others @ fit.x.reshape(-1, classes), axis=1)
    return logs


def _draw_order(
    n: int, seed: int, examples: Int64[np.ndarray, " n"] | None
) -> Int64[np.ndarray, " n"]:
    rng = np.random.default_rng(seed)
    if examples is None:
        return rng.permutation(n)
    unit = np.unique(examples, return_inverse=True)[1].reshape(-1)
    return np.argsort(rng.permutation(unit.max() + 1)[unit], kind="stable")
