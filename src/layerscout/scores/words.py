"""What counting words comes to, beside which every model is judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float64

# Training texts that are read, which takes up to some seconds.
MOST_TEXTS = 20_000
# The log-probability of a class that no training text has.
NEVER = -100.0
# The largest slope of a mean loss where a regression ends: as scikit-learn has it, and of numbers.
SLOPE, FLAT = 1e-4, 1e-10


def predict_from_words(
    texts: Sequence[str],
    y: np.ndarray,
    others: Sequence[str],
    *,
    classes: int | None = None,
    most: int = MOST_TEXTS,
) -> Float64[np.ndarray, "m K"] | None:
    """Return what regression on tf-idf of words says of other texts.

    It is what scikit-learn's `TfidfVectorizer` and `LogisticRegression`, or `Ridge` for numbers,
    find as they come, but that words may have one letter; several labels have a regression each.
    To import these takes longer than all of this.

    Args:
        texts: n of them.
        y: class ids (n,), which labels each text has, bool (n, K), or numbers (n,).
        others: m of them.
        classes: K, where there may be classes without a text.
        most: texts that are read; of more, so many are drawn.

    Returns:
        Logits, or numbers, (m, K); None if the texts have no word, or all one class.
    """
    from scipy.special import log_expit, log_softmax

    if len(texts) > most:
        rows = np.random.default_rng(0).choice(len(texts), most, replace=False)
        texts, y = [texts[row] for row in rows], y[rows]
    words = [_split(text) for text in texts]
    numbers = {word: number for number, word in enumerate(dict.fromkeys(chain(*words)))}
    if not numbers:
        return None
    X, rest = _count(words, numbers), _count(map(_split, others), numbers)
    weights = np.log((1 + len(texts)) / (1 + np.bincount(X.indices))) + 1
    for counts in (X, rest):
        counts.data *= weights[counts.indices]
        lengths = np.sqrt(counts.power(2).sum(axis=1))
        counts.data /= np.repeat(lengths, np.diff(counts.indptr))
    if y.dtype.kind == "f":
        mean, scale = y.mean(), y.std() or 1.0
        Y = ((y - mean) / scale)[:, None]
        predicted: np.ndarray = mean + scale * _regress(X, Y, _square, rest, FLAT)
        return predicted
    if y.dtype.kind == "b":
        some = y.any(axis=0) & ~y.all(axis=0)
        logits = np.where(y.all(axis=0), -NEVER, NEVER) * np.ones((len(others), 1))
        logits[:, some] = _regress(X, y[:, some].astype(np.float64), _divide, rest)
        return logits
    present, y = np.unique(y, return_inverse=True)
    if len(present) < 2:
        return None
    logits = np.full((len(others), classes or int(present[-1]) + 1), NEVER)
    if len(present) == 2:
        said = _regress(X, y[:, None].astype(np.float64), _divide, rest)
        found = log_expit(said * [-1, 1])
    else:
        found = log_softmax(_regress(X, np.eye(len(present))[y], _share, rest), axis=1)
    logits[:, present] = found.clip(NEVER)
    return logits


def _split(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _count(texts: Iterable[Sequence[str]], numbers: dict[str, int]) -> Any:
    """Count how often texts have each word that has a number, as a sparse matrix."""
    from scipy.sparse import csr_array

    known = [[numbers[word] for word in words if word in numbers] for words in texts]
    bounds = np.cumsum([0, *map(len, known)])
    columns = np.fromiter(chain(*known), np.int64, bounds[-1])
    counts = csr_array((np.ones(len(columns)), columns, bounds), shape=(len(known), len(numbers)))
    counts.sum_duplicates()
    return counts


# From linear predictions and targets: the sum of the losses, and what is predicted.
_Link = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]


def _square(Z: np.ndarray, Y: np.ndarray) -> tuple[float, np.ndarray]:
    return 0.5 * float(((Z - Y) ** 2).sum()), Z


def _divide(Z: np.ndarray, Y: np.ndarray) -> tuple[float, np.ndarray]:
    from scipy.special import expit

    return float((np.logaddexp(0, Z) - Z * Y).sum()), expit(Z)


def _share(Z: np.ndarray, Y: np.ndarray) -> tuple[float, np.ndarray]:
    from scipy.special import log_softmax

    logs = log_softmax(Z, axis=1)
    return -float((logs * Y).sum()), np.exp(logs)


def _regress(
    X: Any, Y: np.ndarray, link: _Link, rest: Any, slope: float = SLOPE
) -> Float64[np.ndarray, "m T"]:
    """Return what weights and a bias say of `rest` that have the least loss on X, (n, w).

    That is the sum of the rows' losses, and half the square of the weights.
    """
    from scipy.optimize import minimize

    shape = X.shape[1] + 1, Y.shape[1]

    def find_loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        *_, bias = both = flat.reshape(shape)
        weights = both[:-1]
        loss, said = link(X @ weights + bias, Y)
        slopes = np.vstack([X.T @ (said - Y) + weights, (said - Y).sum(axis=0)])
        loss += 0.5 * float((weights**2).sum())
        return loss / len(Y), slopes.ravel() / len(Y)

    start, ends = np.zeros(shape[0] * shape[1]), {"gtol": slope, "ftol": 0, "maxiter": 1000}
    found = minimize(find_loss, start, jac=True, method="L-BFGS-B", options=ends)
    *_, bias = both = found.x.reshape(shape)
    said: np.ndarray = rest @ both[:-1] + bias
    return said
