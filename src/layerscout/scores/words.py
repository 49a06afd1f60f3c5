"""What counting words comes to, beside which every model is judged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float64

from layerscout.scores.regression import predict_linearly

# Training texts that are read, which takes up to some seconds.
MOST_TEXTS = 20_000
# Weights that are found at once, of a word and a class each: finding them takes 30 times the room.
MOST_WEIGHTS = 4_000_000


def predict_from_words(
    texts: Sequence[str] | Sequence[tuple[str, ...]],
    y: np.ndarray,
    others: Sequence[str] | Sequence[tuple[str, ...]],
    *,
    classes: int | None = None,
    most: int = MOST_TEXTS,
) -> Float64[np.ndarray, "m K"] | None:
    """Return what regression on tf-idf of words says of other texts.

    It is what scikit-learn's `TfidfVectorizer` and `LogisticRegression`, or `Ridge` for numbers,
    find as they come, but that words may have one letter; several labels have a regression each.
    With many classes the most frequent words count alone, as by `max_features`. To import these
    takes longer than all of this.

    Args:
        texts: n of them, or the words of each.
        y: class ids (n,), which labels each text has, bool (n, K), or numbers (n,).
        others: m of them.
        classes: K, where there may be classes without a text.
        most: texts that are read; of more, so many are drawn.

    Returns:
        Logits, or numbers, (m, K); None if the texts have no word, or all one class.
    """
    if len(texts) > most:
        rows = np.random.default_rng(0).choice(len(texts), most, replace=False)
        texts, y = [texts[row] for row in rows], y[rows]
    words, weighed = [_split(text) for text in texts], y.max() + 1 if y.dtype.kind == "i" else 1
    often = Counter(chain(*words)).most_common(MOST_WEIGHTS // weighed)
    numbers = {word: number for number, (word, _) in enumerate(often)}
    if not numbers:
        return None
    X, rest = _count(words, numbers), _count(map(_split, others), numbers)
    weights = np.log((1 + len(texts)) / (1 + np.bincount(X.indices))) + 1
    for counts in (X, rest):
        counts.data *= weights[counts.indices]
        lengths = np.sqrt(counts.power(2).sum(axis=1))
        counts.data /= np.repeat(lengths, np.diff(counts.indptr))
    return predict_linearly(X, y, rest, classes)


def _split(text: str | tuple[str, ...]) -> Sequence[str]:
    return re.findall(r"\w+", text.lower()) if isinstance(text, str) else text


def _count(texts: Iterable[Sequence[str]], numbers: dict[str, int]) -> Any:
    """Count how often texts have each word that has a number, as a sparse matrix."""
    from scipy.sparse import csr_array

    known = [[numbers[word] for word in words if word in numbers] for words in texts]
    bounds = np.cumsum([0, *map(len, known)])
    columns = np.fromiter(chain(*known), np.int64, bounds[-1])
    counts = csr_array((np.ones(len(columns)), columns, bounds), shape=(len(known), len(numbers)))
    counts.sum_duplicates()
    return counts
