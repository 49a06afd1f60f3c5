"""What counting words comes to, beside which every model is judged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

# Training texts that are read, which takes up to some seconds.
MOST_TEXTS = 20_000
# The log-probability of a class that no training text has.
NEVER = -100.0


def predict_from_words(
    texts: Sequence[str],
    y: np.ndarray,
    others: Sequence[str],
    *,
    classes: int | None = None,
    most: int = MOST_TEXTS,
) -> Float64[np.ndarray, "m K"] | None:
    """Return what regression on tf-idf of words says of other texts.

    scikit-learn's `TfidfVectorizer` and `LogisticRegression`, or `Ridge` for numbers, as they come,
    but that words may have one letter; several labels have a regression each.

    Args:
        texts: n of them.
        y: class ids (n,), which labels each text has, bool (n, K), or numbers (n,).
        others: m of them.
        classes: K, where there may be classes without a text.
        most: texts that are read; of more, so many are drawn.

    Returns:
        Logits, or numbers, (m, K); None if the texts have no word, or all one class.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge

    if len(texts) > most:
        rows = np.random.default_rng(0).choice(len(texts), most, replace=False)
        texts, y = [texts[row] for row in rows], y[rows]
    vectorizer = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b")
    try:
        X = vectorizer.fit_transform(texts)
    except ValueError:  # none has a word
        return None
    rest = vectorizer.transform(others)
    if y.dtype.kind == "f":
        numbers: np.ndarray = Ridge().fit(X, y).predict(rest)[:, None]
        return numbers
    if y.dtype.kind == "b":
        logits = np.where(y.all(axis=0), -NEVER, NEVER) * np.ones((len(others), 1))
        for k in np.flatnonzero(y.any(axis=0) & ~y.all(axis=0)):
            fitted = LogisticRegression(max_iter=1000).fit(X, y[:, k])
            logits[:, k] = fitted.decision_function(rest)
        return logits
    present = np.unique(y)
    if len(present) < 2:
        return None
    logits = np.full((len(others), classes or int(present[-1]) + 1), NEVER)
    fitted = LogisticRegression(max_iter=1000).fit(X, y)
    logits[:, present] = fitted.predict_log_proba(rest).clip(NEVER)
    return logits
