"""Counted work on texts of all lengths: block passes, padded tokens, bytes. Never time."""

from collections import Counter

import numpy as np
import pytest
from transformers.models.bert.modeling_bert import BertLayer

import layerscout as ls
from tiny import SENTENCES

ROWS, HELD_OUT, BLOCKS, WIDTH = 400, 80, 4, 16


@pytest.fixture
def work(monkeypatch):
    """Count what passes through blocks: examples, and tokens with their padding."""
    counts = Counter()
    forward = BertLayer.forward

    def counted(self, states, *given, **more):
        counts["passes"] += states.shape[0]
        counts["tokens"] += states.shape[0] * states.shape[1]
        return forward(self, states, *given, **more)

    monkeypatch.setattr(BertLayer, "forward", counted)
    return counts


@pytest.fixture(scope="module")
def task():
    """Return texts of 3 to 60 words, most of them short."""
    draw = np.random.default_rng(0)
    words = " ".join(SENTENCES).split()
    lengths = np.clip(draw.lognormal(2.3, 0.6, ROWS + HELD_OUT), 3, 60).astype(int)
    texts = [" ".join(draw.choice(words, length)) for length in lengths]
    labels = ["good" if n % 3 else "bad" for n in range(len(texts))]
    held_out = (texts[ROWS:], labels[ROWS:])
    return ls.Task.from_lists(texts[:ROWS], labels[:ROWS], validation=held_out)


def bytes_in(folder):
    """Add up the sizes of what is kept."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_scan(tiny, task, work, cache):
    encoder = ls.Encoder.load(tiny)
    real = int(encoder.tokenize(task.train.texts).lengths.sum())
    scores = "variability_ratio_debiased,variability_ratio,cca,knn"
    ls.scan(encoder, task, scores=scores, examples="all", progress=False)
    assert work["passes"] == ROWS * BLOCKS
    assert work["tokens"] <= 1.13 * real * BLOCKS  # many rows pad less
    states = ROWS * (BLOCKS + 1) * WIDTH * 4
    # Both means of every state, which it is one pass for, and 16 bytes that name each text.
    assert 2 * (states + 16 * ROWS) <= bytes_in(cache) <= 2 * (states + 16 * ROWS) + 4096
    work.clear()
    ls.scan(encoder, task, scores=scores, examples="all", progress=False)
    assert not work


def test_a_tuning_above_a_trunk(tiny, task, work, cache):
    encoder = ls.Encoder.load(tiny)
    lengths = [encoder.tokenize(split.texts).lengths for split in (task.train, task.validation)]
    real, epochs = sum(int(one.sum()) for one in lengths), 3
    options = {"epochs": epochs, "batch_size": 16, "learning_rate": 1e-3, "measure": "metric"}
    ls.tune(encoder, task, "(3, 3, 4)", **options, progress=False)
    once = ROWS + HELD_OUT
    # The trunk once, blocks 3 and 4 in every epoch.
    assert work["passes"] == 2 * once + 2 * epochs * once
    assert work["tokens"] <= 1.16 * (2 * real + 2 * epochs * real)
    states = real * WIDTH * 4
    assert states <= bytes_in(cache) <= states + 8192
    work.clear()
    ls.tune(encoder, task, "(3, 3, 3)", **options, progress=False)
    assert work["passes"] == epochs * once
