"""What is known of models and tasks that are not at hand: enough to price a study of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from layerscout.data import KNOWN, Split, Task, benchmark

# The configurations of the models in the papers: family, blocks, width, feed-forward, vocabulary.
MODELS: Mapping[str, tuple[str, int, int, int, int]] = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": ("llama", 30, 576, 1536, 49_152),
    "albert/albert-large-v2": ("albert", 24, 1024, 4096, 30_000),
    "bert-base-cased": ("bert", 12, 768, 3072, 28_996),
    "bert-base-uncased": ("bert", 12, 768, 3072, 30_522),
    "google/electra-base-discriminator": ("electra", 12, 768, 3072, 30_522),
    "microsoft/deberta-base": ("deberta", 12, 768, 3072, 50_265),
    "roberta-base": ("roberta", 12, 768, 3072, 50_265),
    "roberta-large": ("roberta", 24, 1024, 4096, 50_265),
    "sentence-transformers/all-MiniLM-L6-v2": ("bert", 6, 384, 1536, 30_522),
    "sentence-transformers/all-mpnet-base-v2": ("mpnet", 12, 768, 3072, 30_527),
}

# Examples to train on and to validate on, and the mean number of tokens of a text in round
# numbers, inputs cut at 128: the official sizes, and what WordPiece made of parts of them.
_SIZES: Mapping[str, tuple[int, int, int]] = {
    "boolq": (9_427, 3_270, 110),
    "cb": (250, 56, 75),
    "cola": (8_551, 1_043, 11),
    "copa": (400, 100, 21),
    "cosmos_qa": (25_262, 2_985, 110),
    "go_emotions": (43_410, 5_426, 19),
    "hellaswag": (39_905, 10_042, 100),
    "mnli": (392_702, 9_815, 40),
    "mrpc": (3_668, 408, 53),
    "multirc": (27_243, 4_848, 128),
    "qnli": (104_743, 5_463, 49),
    "qqp": (363_846, 40_430, 30),
    "rte": (2_490, 277, 67),
    "sst2": (67_349, 872, 13),
    "stsb": (5_749, 1_500, 29),
    "wic": (5_428, 638, 23),
    "wnut17": (3_394, 1_009, 31),
    "wnli": (635, 71, 37),
    "wsc": (554, 104, 35),
    "yelp_polarity": (560_000, 38_000, 115),
}
TASKS: Mapping[str, tuple[int, int, int]] = {
    name: _SIZES[benchmark(name)] for name in KNOWN if benchmark(name) in _SIZES
}

CHOICES: Mapping[str, int] = {"copa": 2, "cosmos_qa": 4, "hellaswag": 4}
# The mean number of words of a sentence.
WORDS: Mapping[str, int] = {"wnut17": 18}


def stand_in_task(name: str) -> Task:
    """Give a task of the size of one of `TASKS`, without its texts."""
    known, (training, validation, _) = KNOWN[name], TASKS[name]
    choices = CHOICES.get(benchmark(name), 1)
    per_row, classes = WORDS.get(name, 1), len(known.labels)

    def split(n: int) -> Split:
        labels: np.ndarray = np.arange(n * per_row) % max(1, classes)
        if known.kind == "multi_label_classification":
            labels = np.eye(classes, dtype=bool)[labels]
        if known.kind == "regression":
            labels = np.arange(n, dtype=np.float64)
        if choices > 1:
            labels = np.tile(np.arange(choices) == 0, n).astype(np.int64)
        groups = np.repeat(np.arange(n), choices) if choices > 1 else None
        words = [("",) * per_row] * n if known.kind == "token_classification" else None
        return Split([""] * (n * choices), None, labels, groups, words=words)

    splits = split(training), split(validation)
    return Task(name, known.kind, known.labels, known.metric, *splits, {})
