"""What all contenders of the board do, in whatever environment: a model from rows, and predictions.

    python setfit_pairs.py MODEL train.csv test.csv FOLDER --seed 0

A contender's file says in its first lines which packages it needs (PEP 723), and gives `compete` a
function that makes a saved model in FOLDER and one that loads it. A line of JSON comes back. Files
have the columns `text` and `label`; seconds are of the processor, from the start of the command to
the saved model, imports included.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

BATCH, LENGTH = 32, 128


@dataclass(frozen=True, eq=False)
class Given:
    """What a contender starts from.

    Attributes:
        model: folder of the pretrained model.
        train: rows with `text` and `label`.
        path: of the file with these rows.
        folder: where the model is saved.
        seed: of whatever is drawn.
        rest: options of its own.
    """

    model: str
    train: pd.DataFrame
    path: Path
    folder: Path
    seed: int
    rest: Sequence[str]

    @property
    def names(self) -> list[str]:
        """The classes, in order."""
        return sorted(set(self.train["label"]))


# Texts to probabilities (n, K) of the classes in order, or to their names.
Predict = Callable[[list[str]], Any]


def compete(make: Callable[[Given], Any], load: Callable[[Given], Predict]) -> None:
    """Make a model, load it, predict, and print what it took and what it says."""
    parser = argparse.ArgumentParser()
    for name in ("model", "train", "test", "folder"):
        parser.add_argument(name)
    parser.add_argument("--seed", type=int, default=0)
    asked, rest = parser.parse_known_args()
    train, test = (
        pd.read_csv(path, keep_default_na=False, dtype=str) for path in (asked.train, asked.test)
    )
    path, folder = Path(asked.train).absolute(), Path(asked.folder).absolute()
    given = Given(asked.model, train, path, folder, asked.seed, rest)
    answers, sys.stdout = sys.stdout, sys.stderr  # where packages write what they like
    make(given)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    predict = load(given)
    started = time.process_time()
    said = predict(list(test["text"]))
    taken = time.process_time() - started
    probabilities = None if isinstance(said[0], str) else np.asarray(said, np.float64)
    if probabilities is not None:
        said = [given.names[k] for k in probabilities.argmax(axis=1)]
    right = np.array(said) == test["label"].to_numpy()
    record: dict[str, Any] = {
        "seconds": round(sum(one.ru_utime + one.ru_stime for one in used), 2),
        "peak_mb": round(max(one.ru_maxrss for one in used) / 1024),
        "inference_ms": round(1000 * taken / len(test), 2),
        "value": float(right.mean()),
        "predictions": list(said),
    }
    if probabilities is not None:
        record |= {"probabilities": probabilities.tolist()}
    print(json.dumps(record), file=answers)
