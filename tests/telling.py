"""Tasks whose texts tell the classes apart, for scans in which something is decided."""

from typing import Any

import numpy as np

import layerscout as ls
from tiny import SENTENCES

# Words that the tiny tokenizers know as one piece, so that each has an embedding of its own.
WORDS = np.array(sorted({w for w in " ".join(SENTENCES).split() if w.isalpha() and len(w) < 7}))


def texts_of(classes: np.ndarray, signal: float, seed: int) -> list[str]:
    """Write a text for each class id; a share of its words are those of its class alone."""
    rng = np.random.default_rng(seed)
    own = np.array_split(np.random.default_rng(2).permutation(WORDS), int(classes.max()) + 1)
    texts = []
    for label in classes:
        length = rng.integers(3, 12)
        words = np.where(
            rng.random(length) < signal, rng.choice(own[label], length), rng.choice(WORDS, length)
        )
        texts.append(" ".join(words))
    return texts


def telling_task(
    n: int = 300, classes: int = 2, signal: float = 1.0, seed: int = 0, **options: Any
) -> ls.Task:
    """Make a task of n examples, the classes in turn."""
    labels = np.arange(n) % classes
    names = [f"class {label}" for label in labels]
    return ls.Task.from_lists(texts_of(labels, signal, seed), names, name="telling", **options)


def numbers_task(n: int = 200, seed: int = 0, **options: Any) -> ls.Task:
    """Make a task of numbers: the share of a text's words that are of the first of two classes."""
    rng = np.random.default_rng(seed)
    first, second = np.array_split(np.random.default_rng(2).permutation(WORDS), 2)
    texts, numbers = [], []
    for share in rng.random(n):
        length = rng.integers(4, 12)
        of_first = rng.random(length) < share
        words = np.where(of_first, rng.choice(first, length), rng.choice(second, length))
        texts.append(" ".join(words))
        numbers.append(float(of_first.mean()))
    return ls.Task.from_lists(texts, numbers, regression=True, name="numbers", **options)
