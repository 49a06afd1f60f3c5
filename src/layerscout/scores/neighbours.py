"""How well neighbours and clusters tell the classes from a state, without training anything.

Class ids are int64 (n,), targets of regression float64 (n,): the type of the labels decides.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from layerscout.errors import InputError
from layerscout.scores.grouping import tenth
from layerscout.scores.score import FEWEST_ROWS

# Rows that are compared at a time, so that memory does not grow with n².
CHUNK = 256

# Clusters that take minutes a state to find, and the products of rows and clusters from which on
# they are found in small batches.
MOST_CLUSTERS = 2000
MANY_DISTANCES = 500_000


def knn(
    H: Float64[np.ndarray, "n d"],
    y: np.ndarray,
    k: int = 10,
    examples: Int64[np.ndarray, " n"] | None = None,
) -> float | None:
    """Leave-one-out accuracy (or R²) of the k nearest neighbours by cosine; higher is better.

    The class with the most neighbours wins; of several such the one whose neighbours are the more
    similar in sum, then the lower id. A number is predicted by the neighbours' mean. The cosine
    with a zero vector is 0; of equally near rows any are taken. None where all states point the
    same way, or all targets are one number.

    Args:
        H: states (n, d).
        y: class ids or targets (n,).
        k: neighbours; as many as there are where that is fewer.
        examples: ids (n,); rows of one example are not each other's neighbours.

    Raises:
        InputError: if `k` is below 1, or a row has no other to compare with.
    """
    n = len(H)
    own = np.arange(n) if examples is None else examples
    k = min(k, n - int(np.unique(own, return_counts=True)[1].max(initial=0)))
    if k < 1:
        raise InputError(
            f"k nearest neighbours need k of 1 or more and rows of 2 or more examples, got k = {k} "
            f"in {n} rows; take more examples"
        )
    norms = np.linalg.norm(H, axis=1, keepdims=True)
    directions = np.divide(H, norms, out=np.zeros_like(H), where=norms > 0)
    if np.ptp(directions, axis=0).max() <= 1e-6:  # which is rounding
        return None
    predicted = np.empty(n)
    for start in range(0, n, CHUNK):
        rows = np.arange(start, min(start + CHUNK, n))
        cosine = directions[rows] @ directions.T
        cosine[own[rows, None] == own] = -np.inf
        near = np.argpartition(cosine, n - k, axis=1)[:, n - k :]
        if y.dtype.kind == "f":
            predicted[rows] = y[near].mean(axis=1)
        else:
            predicted[rows] = _vote(y[near], np.take_along_axis(cosine, near, axis=1))
    if y.dtype.kind != "f":
        return float((predicted == y).mean())
    spread = ((y - y.mean()) ** 2).sum()
    return float(1 - ((y - predicted) ** 2).sum() / spread) if np.ptp(y) > 0 else None


def _vote(labels: Int64[np.ndarray, "b k"], cosine: Float64[np.ndarray, "b k"]) -> np.ndarray:
    """Return the class (b,) of most labels; all similarities together count below one vote."""
    (b, k), classes = labels.shape, int(labels.max()) + 1
    weights = 1 + (1 + cosine) / (2 * (k + 1))
    at = np.arange(b)[:, None] * classes + labels
    votes = np.bincount(at.ravel(), weights.ravel(), minlength=b * classes)
    winners: Int64[np.ndarray, " b"] = votes.reshape(b, classes).argmax(axis=1)
    return winners


def mutual_information(
    H: Float64[np.ndarray, "n d"],
    y: np.ndarray,
    seed: int = 0,
    examples: Int64[np.ndarray, " n"] | None = None,
    clusters: int | None = None,
) -> float:
    """Mutual information of clusters and labels on held-out rows, in nats; higher is better.

    k-means finds ten clusters a class in nine tenths of the rows, the best of three starts of
    k-means++ (in small batches where rows times clusters are many); the tenth left over is put
    into the nearest ones. Both parts are cut down to as many rows of each class. The plug-in
    estimate is above 0 even where nothing is shared, by up to (K − 1)(10 K − 1) / 2 over the
    held-out rows. Xie et al. 2022, App. C.7; the number of clusters is ours.

    Args:
        H: states (n, d).
        y: class ids (n,).
        seed: of the drawing and of k-means.
        examples: ids (n,); rows of one example are held out together.
        clusters: how many k-means finds, or as many as there are different rows if that is fewer;
            by default ten for each class.

    Raises:
        InputError: if there are fewer than 20 rows of a class, or more than 2,000 clusters.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.metrics import mutual_info_score

    classes = int(y.max()) + 1
    wanted = 10 * classes if clusters is None else clusters
    if wanted > MOST_CLUSTERS:
        raise InputError(
            f"mutual_information takes at most {MOST_CLUSTERS} clusters, by default 10 for each of "
            f"the {classes} classes, got {wanted}; set fewer `clusters`, or use knn"
        )
    rng = np.random.default_rng(seed)
    aside = tenth(y, examples, rng)
    held, fitted = (_balance(np.flatnonzero(part), y, classes, rng) for part in (aside, ~aside))
    if len(held) < 2 * classes or len(fitted) < 10 * classes:
        raise InputError(
            f"mutual_information needs about {FEWEST_ROWS} rows of every class, of which it holds "
            f"out a tenth; got {np.bincount(y).min()} of the smallest; take more examples"
        )
    number = min(wanted, len(np.unique(H[fitted], axis=0)))
    kind = MiniBatchKMeans if len(fitted) * number > MANY_DISTANCES else KMeans
    model = kind(number, n_init=3, random_state=int(rng.integers(2**31))).fit(H[fitted])
    return max(float(mutual_info_score(y[held], model.predict(H[held]))), 0.0)


def _balance(
    rows: np.ndarray, y: np.ndarray, classes: int, rng: np.random.Generator
) -> Int64[np.ndarray, " b"]:
    """Draw as many of the rows of every class as there are of the rarest one among them."""
    rows = rng.permutation(rows)
    each = int(np.bincount(y[rows], minlength=classes).min())
    return np.concatenate([rows[y[rows] == label][:each] for label in range(classes)])
