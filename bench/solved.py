"""Solve heads from few texts, beside what takes as long: regression on the top state, and words.

    python bench/solved.py --mpnet FOLDER --records FILE --write docs/measured/solved.md

A line of JSON for each contender of each cell (model, task, texts per class, draw); what has one is
not done again. The states of all texts of a task come from one pass, as for tune, and are kept in
the cache. One thread; seconds are of the processor. `--check N` tunes N cells by the command's own
way, and compares what it predicts.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import layerscout as ls
from layerscout.data import find_interval
from layerscout.models import Encoder, can_average, norm_means
from layerscout.scores import find_losses, predict_from_words, solve_head
from layerscout.states import DEFAULT_LIMIT, pool_states
from layerscout.tuning.solving import _deal

TASKS = ("cr", "sst5", "trec6", "emotion6", "ag_news", "amazon_counterfactual_en")
PER_CLASS, DRAWS = (8, 32, 128), range(5)
# Texts of each class from which all draws are taken, and texts that are predicted.
POOL, TEST = 256, 500
# Of the regressions, on features brought to one deviation.
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)

RECORDS = Path(__file__).parent / "solved" / "records.jsonl"
KEY = ("model", "task", "per_class", "draw", "contender")
WORDS, TOP, PLAIN = "counting words", "regression on the top state", "the same, C = 1"
SAME, BEST = "regression on the state of head:best", "head:best"


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts of a task: some of each class that draws are taken from, then those to predict."""

    names: Sequence[str]
    texts: Sequence[str]
    y: np.ndarray

    @classmethod
    def read(cls, folder: Path) -> "Texts":
        pool, test = (pd.read_parquet(folder / f"{name}.parquet") for name in ("train", "test"))
        drawn = [
            rows.sample(min(POOL, len(rows)), random_state=0) for _, rows in pool.groupby("label")
        ]
        frame = pd.concat([*drawn, test.sample(TEST, random_state=0)])
        names = sorted(pool["label"].unique())
        return cls(names, list(frame["text"]), frame["label"].map(names.index).to_numpy(np.int64))

    @property
    def test(self) -> np.ndarray:
        return np.arange(len(self.y) - TEST, len(self.y))

    def draw(self, per_class: int, draw: int) -> np.ndarray:
        """Return rows of a draw; more texts per class contain those of fewer."""
        rng, pool = np.random.default_rng(draw), self.y[:-TEST]
        drawn = [
            rng.permutation(np.flatnonzero(pool == k))[:per_class] for k in range(len(self.names))
        ]
        return np.concatenate(drawn)


@dataclass(frozen=True, eq=False)
class Read:
    """A task as a model reads it.

    Attributes:
        states: the means over all tokens of states 1 to L, (L, n, d), as they come.
        normed: these as a head reads them.
        forward: seconds of the processor for a text.
    """

    task: Texts
    states: np.ndarray
    normed: np.ndarray
    forward: float

    @classmethod
    def read(cls, encoder: Encoder, task: Texts) -> "Read":
        tokens = encoder.tokenize(task.texts)
        kept = pool_states(encoder, tokens, ("mean-all",), limit=DEFAULT_LIMIT).states["mean-all"]
        states = np.stack([kept[s] for s in range(1, len(kept))]).astype(np.float64)
        normed = np.stack([norm_means(H) for H in states]) if can_average(encoder) else states
        few = encoder.tokenize(task.texts[-TEST::4])
        started = time.process_time()
        pool_states(encoder, few, ("mean-all",), limit=0)
        forward = (time.process_time() - started) / len(few)
        return cls(task, states, normed, forward)


@dataclass(frozen=True, eq=False)
class Cell:
    """One draw of rows, and what contenders make of it."""

    read: Read
    rows: np.ndarray

    @property
    def y(self) -> np.ndarray:
        return self.read.task.y[self.rows]

    @cached_property
    def folds(self) -> np.ndarray:
        return _deal(self.y)

    def regress(self, H: np.ndarray) -> np.ndarray:
        """Return the logits of the test rows, the penalty chosen by the loss on the folds."""
        splits = [
            (np.flatnonzero(self.folds[0] != fold), np.flatnonzero(self.folds[0] == fold))
            for fold in np.unique(self.folds[0])
        ]
        regression = LogisticRegressionCV(
            Cs=PENALTIES,
            cv=splits,
            scoring="neg_log_loss",
            max_iter=1000,
            l1_ratios=(0,),
            use_legacy_attributes=False,
        )
        return self._predict(make_pipeline(StandardScaler(), regression), H)

    def regress_plainly(self, H: np.ndarray) -> np.ndarray:
        """Return the logits of the test rows by scikit-learn's defaults."""
        return self._predict(LogisticRegression(max_iter=1000), H)

    def _predict(self, model: Any, H: np.ndarray) -> np.ndarray:
        logits: np.ndarray = model.fit(H[self.rows], self.y).predict_log_proba(
            H[self.read.task.test]
        )
        return logits

    def count(self) -> np.ndarray:
        texts = self.read.task.texts
        logits = predict_from_words(
            [texts[row] for row in self.rows], self.y, [texts[row] for row in self.read.task.test]
        )
        assert logits is not None
        return logits

    def solve(self) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the logits of the test rows by the solved head, and what it says of itself."""
        classes = len(self.read.task.names)
        solved = solve_head(
            self.read.normed[:, self.rows],
            self.y,
            self.folds,
            metric="accuracy",
            classes=classes,
        )
        assert solved is not None
        right = self.y[solved.rows]
        logits = solved.head(self.read.normed[solved.state][self.read.task.test])
        truth, before = self.read.task.y[self.read.task.test], logits / solved.factor
        return logits, {
            "state": solved.state + 1,
            "shrinkage": solved.shrinkage,
            "factor": solved.factor,
            "reported": float((solved.held_out.argmax(axis=1) == right).mean()),
            "interval": find_interval("accuracy", right, solved.held_out),
            "nll": [float(find_losses(truth, each).mean()) for each in (before, logits)],
            "ece": [measure_calibration(truth, each) for each in (before, logits)],
        }


def measure_calibration(y: np.ndarray, logits: np.ndarray) -> float:
    """Return the expected calibration error in ten bins of equal width (Guo et al. 2017, §2)."""
    shares = softmax(logits, axis=1)
    sure, right = shares.max(axis=1), logits.argmax(axis=1) == y
    bins = np.minimum((10 * sure).astype(int), 9)
    gaps = [abs(float((sure - right)[bins == one].sum())) for one in range(10)]
    return sum(gaps) / len(y)


def contend(cell: Cell) -> Iterator[tuple[str, np.ndarray, float, dict[str, Any]]]:
    """Give name, logits, seconds without the forward pass, and more, of each contender."""

    def timed(work: Callable[[], Any]) -> tuple[Any, float]:
        started = time.process_time()
        return work(), time.process_time() - started

    logits, seconds = timed(cell.count)
    yield WORDS, logits, seconds, {}
    top = cell.read.states[-1]
    logits, seconds = timed(lambda: cell.regress(top))
    yield TOP, logits, seconds, {}
    logits, seconds = timed(lambda: cell.regress_plainly(top))
    yield PLAIN, logits, seconds, {}
    (logits, said), seconds = timed(cell.solve)
    yield BEST, logits, seconds, said
    H = cell.read.states[said["state"] - 1]
    logits, seconds = timed(lambda: cell.regress(H))
    yield SAME, logits, seconds, {}


def read_records(path: Path) -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    )


def run(given: argparse.Namespace) -> None:
    """Do what has no record yet."""
    done = {tuple(record[name] for name in KEY) for record in read_records(given.records)}
    for model, path in (("MiniLM-L6", "demo"), ("mpnet-base", given.mpnet)):
        if path is None:
            continue
        encoder = ls.Encoder.load(str(path))
        for task in TASKS:
            cells = [
                (n, d) for n in PER_CLASS for d in DRAWS if (model, task, n, d, BEST) not in done
            ]
            if not cells:
                continue
            read = Read.read(encoder, Texts.read(given.shared / "data" / task))
            for per_class, draw in cells:
                cell = Cell(read, read.task.draw(per_class, draw))
                truth = read.task.y[read.task.test]
                for name, logits, seconds, said in contend(cell):
                    right = logits.argmax(axis=1) == truth
                    record = {
                        **dict(zip(KEY, (model, task, per_class, draw, name), strict=True)),
                        "rows": len(cell.rows),
                        "metric": "accuracy",
                        "value": float(right.mean()),
                        "seconds": round(seconds, 4),
                        "forward": 0.0
                        if name == WORDS
                        else round(read.forward * len(cell.rows), 4),
                        "right": np.packbits(right).tobytes().hex(),
                        **said,
                    }
                    with given.records.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(record) + "\n")
            print(model, task, f"{1000 * read.forward:.1f} ms a text", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--mpnet", type=Path, help="folder of all-mpnet-base-v2")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    run(given)


if __name__ == "__main__":
    main()
