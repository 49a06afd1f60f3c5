"""Solve heads from few texts, beside what takes as long: regression on the top state, and words.

    python bench/solved.py --mpnet FOLDER --records FILE --write docs/measured/solved.md

A line of JSON for each contender of each cell (model, task, texts per class, draw); what has one is
not done again. The states of all texts of a task come from one pass, as for tune, and are kept in
the cache. One thread; seconds are of the processor.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import layerscout as ls
from layerscout.cli.demo import list_ways
from layerscout.data import draw_examples, find_interval, require_validation
from layerscout.models import Encoder, can_average, norm_means
from layerscout.scores import (
    SolvedHead,
    measure_calibration,
    predict_from_words,
    solve_head,
)
from layerscout.states import DEFAULT_LIMIT, pool_states
from layerscout.tuning.solving import FOLDS, deal
from measuring import machine, table

TASKS = ("cr", "sst5", "trec6", "emotion6", "ag_news", "amazon_counterfactual_en")
PER_CLASS, DRAWS = (8, 32, 128), range(5)
# Texts of each class from which all draws are taken, and texts that are predicted.
POOL, TEST = 256, 500
# Of the regressions, on features brought to one deviation: the penalty is chosen.
CHOSEN: Mapping[str, Any] = {
    "Cs": (1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    "scoring": "neg_log_loss",
    "max_iter": 1000,
    "l1_ratios": (0,),
    "use_legacy_attributes": False,
}

RECORDS = Path(__file__).parent / "solved" / "records.jsonl"
KEY = ("model", "task", "per_class", "draw", "contender")
WORDS, TOP, PLAIN = "counting words", "regression on the top state", "the same, C = 1"
SAME, BEST = "regression on the state of head:best", "head:best"
# The whole of it, for so many texts of each class in one draw.
TUNED, CHECKED, CHECKED_TASKS = "tune --plan head:best", (32, 0), ("cr", "trec6")
CONTENDERS = (WORDS, TOP, PLAIN, SAME, BEST)


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
    """A task as a model reads it."""

    encoder: Encoder
    task: Texts

    @cached_property
    def states(self) -> np.ndarray:
        """The means over all tokens of states 1 to L, (L, n, d), as they come."""
        tokens = self.encoder.tokenize(self.task.texts)
        pooled = pool_states(self.encoder, tokens, ("mean-all",), limit=DEFAULT_LIMIT)
        kept = pooled.states["mean-all"]
        return np.stack([kept[s] for s in range(1, len(kept))]).astype(np.float64)

    @cached_property
    def normed(self) -> np.ndarray:
        """The same as a head reads them."""
        if not can_average(self.encoder):
            return self.states
        return np.stack([norm_means(H) for H in self.states])

    @cached_property
    def forward(self) -> float:
        """Seconds of the processor for a text."""
        few = self.encoder.tokenize(self.task.texts[-TEST::4])
        started = time.process_time()
        pool_states(self.encoder, few, ("mean-all",), limit=0)
        return (time.process_time() - started) / len(few)


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
        texts = [self.read.task.texts[row] for row in self.rows]
        return deal(self.y, pd.factorize(np.array(texts))[0])

    def regress(self, H: np.ndarray) -> np.ndarray:
        """Return the logits of the test rows, the penalty chosen by the loss on the folds."""
        splits = [
            (np.flatnonzero(self.folds[0] != fold), np.flatnonzero(self.folds[0] == fold))
            for fold in np.unique(self.folds[0])
        ]
        regression = LogisticRegressionCV(cv=splits, **CHOSEN)
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

    @cached_property
    def solved(self) -> SolvedHead:
        classes, states = len(self.read.task.names), self.read.normed[:, self.rows]
        solved = solve_head(states, self.y, self.folds, metric="accuracy", classes=classes)
        assert solved is not None
        return solved

    def solve(self) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the logits of the test rows by the solved head, and what it says of itself."""
        solved, task = self.solved, self.read.task
        logits = solved.head(self.read.normed[solved.state][task.test])
        truth, rest = task.y[task.test], np.setdiff1d(np.arange(len(task.y) - TEST), self.rows)
        before, after = (
            measure_calibration(truth, each) or {} for each in (logits / solved.factor, logits)
        )
        others = solved.head(self.read.normed[solved.state][rest]).argmax(axis=1)
        return logits, {
            "state": solved.state + 1,
            "shrinkage": solved.shrinkage,
            "factor": solved.factor,
            "left_out": pack(solved.held_out.argmax(axis=1) == self.y[solved.rows]),
            **{name: [before[name], after[name]] for name in ("nll", "ece", "brier")},
            # Of the texts that draws are taken from, those that were not.
            "rest": float((others == task.y[rest]).mean()),
        }

    def tune(self) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the logits of the test rows by the saved model of `tune`, in place of the parts.

        Its last rows are given as validation, so that they are dealt into the same folds.
        """
        task, most = self.read.task, len(self.rows) - len(self.rows) // 10
        given = [
            ([task.texts[row] for row in rows], [task.names[task.y[row]] for row in rows])
            for rows in (self.rows[:most], self.rows[most:], task.test)
        ]
        labelled = ls.Task.from_lists(*given[0], name="draw", validation=given[1], test=given[2])
        result = ls.tune(self.read.encoder, labelled, "head:best", progress=False, cache_limit=0)
        rows = np.array(result.predictions["split"]) == "test"
        return np.stack(result.predictions["logits"])[rows], {}


def pack(right: np.ndarray) -> str:
    """Write which rows were right, and how many there are."""
    return f"{len(right)}:{np.packbits(right).tobytes().hex()}"


def unpack(text: str) -> np.ndarray:
    """Return which rows were right, as 0 and 1."""
    count, _, packed = text.partition(":")
    return np.unpackbits(np.frombuffer(bytes.fromhex(packed), np.uint8))[: int(count)]


# Logits of the test rows, or a solved head's with what it says of itself.
Work = Callable[[Cell], tuple[np.ndarray, dict[str, Any]]]
WORKS: Mapping[str, Work] = {
    WORDS: lambda cell: (cell.count(), {}),
    TOP: lambda cell: (cell.regress(cell.read.states[-1]), {}),
    PLAIN: lambda cell: (cell.regress_plainly(cell.read.states[-1]), {}),
    BEST: lambda cell: cell.solve(),
    SAME: lambda cell: (cell.regress(cell.read.states[cell.solved.state]), {}),
    TUNED: lambda cell: cell.tune(),
}


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
            left = [
                (n, d, name)
                for n in PER_CLASS
                for d in DRAWS
                for name in WORKS
                if name != TUNED or (task in CHECKED_TASKS and (n, d) == CHECKED)
                if (model, task, n, d, name) not in done
            ]
            if not left:
                continue
            read = Read(encoder, Texts.read(given.shared / "data" / task))
            cells = {
                (n, d): Cell(read, read.task.draw(n, d))
                for n, d in dict.fromkeys(one[:2] for one in left)
            }
            for per_class, draw, name in left:
                cell = cells[per_class, draw]
                started = time.process_time()
                logits, said = WORKS[name](cell)
                seconds = time.process_time() - started
                right = logits.argmax(axis=1) == read.task.y[read.task.test]
                forward = 0.0 if name in (WORDS, TUNED) else read.forward * len(cell.rows)
                record = {
                    **dict(zip(KEY, (model, task, per_class, draw, name), strict=True)),
                    "rows": len(cell.rows),
                    "metric": "accuracy",
                    "value": float(right.mean()),
                    "seconds": round(seconds, 4),
                    "forward": round(forward, 4),
                    "right": pack(right),
                    **said,
                }
                with given.records.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
            print(model, task, flush=True)


INTRODUCTION = """\
# Heads that are solved

Written by `python bench/solved.py --mpnet FOLDER --demo FOLDER --write docs/measured/solved.md`
from its records in `bench/solved/records.jsonl`; without them it takes twenty minutes of one core.

What is a model worth that takes one forward pass, and is it worth more than what everybody does in
that time? `layerscout tune MODEL data.csv --plan head:best` solves a linear head on the mean of the
tokens at every state and keeps the best. Beside it stand logistic regression on the mean of the top
state (scikit-learn; features brought to one deviation, one of five penalties by the loss on the
same folds; and as it comes, C = 1), the same regression on the state that `head:best` chose, and
counting words: tf-idf and logistic regression, as they come, without any model.

Six tasks with two models, all-MiniLM-L6-v2 (6 blocks) and all-mpnet-base-v2 (12 blocks); 8, 32 and
128 texts of each class (79 of trec6's rarest), five draws from 256 texts of each class. Accuracy,
in points, on the same 500 rows of the test split, which no contender has seen; draws have as many
texts of each class, test rows have not. Differences are paired, with 95 % intervals over test rows,
each the mean of the five draws.

"""

CONCLUSION = """\
- Most of it is the state: the same regression, on the state that `head:best` chose, is 3.8 points
  above that on the top state. Discriminant analysis is level with regression at 8 texts of each
  class, and up to a point above it from 32 on.
- Where words decide and states do not, counting words is better than any head: with MiniLM on
  amazon_counterfactual_en, at all three sizes. With mpnet-base the head is ahead there, by 5 to 8
  points. `tune` counts words beside every model, and begins its report with them where the model is
  no better.
- With MiniLM and 8 texts of each class the state is chosen from too little on four of six tasks:
  nothing is gained there, and nothing lost."""

SECONDS = """\
Of one thread, as its processor counts them, from the rows that are given: the forward pass in
float32, and choosing and solving. The machine was busy with other work, so that they are rather
long. `head:best` solves every state of less than 500 rows, some of them dealt five times, and three
states of more: it takes 0.2 to 0.4 s longer than a regression on the top state with MiniLM, 0.8 to
1.2 s with mpnet-base."""

DEMO = """\
What `layerscout demo` measures: 1,000 sentences of a grammar, 500 others, MiniLM. Which of them are
acceptable is not a matter of words, and hardly one of the top state, which was trained for meaning.
Seconds are from reading the sentences to the head or the model, on two cores."""

REPORTED = """\
"Reported" is what the result says of the head: the accuracy of rows left out, by heads that were
chosen, solved and calibrated without their fold; its interval allows for folds that share most of
their rows (Nadeau and Bengio 2003). "The rest" are those of the 256 texts of each class that were
not drawn. Test rows are of another split, with other shares of the classes, and trec6's are easier
than its training rows: they lie above the interval in all draws of 128 texts of each class."""

CALIBRATED = """\
On test rows, before and after the one factor on all logits, which changes no prediction: means, and
in how many of the cases it is lower."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Records by model, task, texts per class and contender: of each the draws."""

    records: Sequence[Mapping[str, Any]]

    @cached_property
    def groups(self) -> dict[tuple[str, str, int, str], list[Mapping[str, Any]]]:
        groups: dict[tuple[str, str, int, str], list[Mapping[str, Any]]] = {}
        for one in self.records:
            key = one["model"], one["task"], one["per_class"], one["contender"]
            groups.setdefault(key, []).append(one)
        return groups

    @cached_property
    def hits(self) -> dict[tuple[str, str, int, str], np.ndarray]:
        """In how many of the draws each test row was right, as a share."""
        return {
            key: np.mean([unpack(one["right"]) for one in draws], axis=0)
            for key, draws in self.groups.items()
        }

    def list_cells(self, model: str | None, per_class: int | None) -> list[tuple[str, str, int]]:
        """List models, tasks and texts per class; of all where one is None."""
        return [
            (m, task, n)
            for m, task, n, contender in self.groups
            if contender == BEST and model in (None, m) and per_class in (None, n)
        ]

    def reach(self, cells: Sequence[tuple[str, str, int]], contender: str) -> str:
        return f"{100 * np.mean([self.hits[*cell, contender].mean() for cell in cells]):.1f}"

    def gain(self, cells: Sequence[tuple[str, str, int]], other: str) -> tuple[float, float]:
        """Return how far head:best is above another, and half the 95 % interval, in points."""
        variance, tasks = 0.0, dict.fromkeys(task for _, task, _ in cells)
        for task in tasks:  # whose test rows are the same everywhere
            own = [cell for cell in cells if cell[1] == task]
            rows = np.sum([self.hits[*c, BEST] - self.hits[*c, other] for c in own], axis=0)
            variance += len(rows) * float(rows.var(ddof=1)) / len(rows) ** 2
        means = [(self.hits[*c, BEST] - self.hits[*c, other]).mean() for c in cells]
        return 100 * float(np.mean(means)), 196 * variance**0.5 / len(cells)

    def take(self, cells: Sequence[tuple[str, str, int]], contender: str) -> pd.DataFrame:
        return pd.DataFrame([one for cell in cells for one in self.groups[*cell, contender]])


def say_gain(gain: tuple[float, float]) -> str:
    value, half = gain
    return f"{value:+.1f} ({value - half:+.1f} to {value + half:+.1f})"


def say_same(cells: Cells) -> str:
    """Say whether `tune` makes the same of rows as its parts do here."""
    tuned = [key[:3] for key in cells.groups if key[3] == TUNED]
    same = [
        cells.groups[*key, BEST][CHECKED[1]]["right"] == cells.groups[*key, TUNED][0]["right"]
        for key in tuned
    ]
    return (
        f"Heads are solved here as `tune` solves them, from states of one pass for all draws. "
        f"`layerscout.tune` itself was run on {len(same)} of the cells, and its saved model is "
        f"right about the very same test rows in {sum(same)}."
    )


def tabulate_demo(folder: Path) -> str:
    """Tabulate what `layerscout demo` wrote into a folder, with regression on the top state."""
    content = json.loads((folder / "result.json").read_text("utf-8"))
    task = ls.Task.load("demo")
    task = draw_examples(task, content["settings"]["examples"], content["runs"][0]["seed"])
    held = require_validation(task)
    torch.set_num_threads(2)
    encoder, started = ls.Encoder.load("demo"), time.perf_counter()
    H, test = (
        np.asarray(pool_states(encoder, encoder.tokenize(split.texts), limit=0).states["mean"][-1])
        for split in (task.train, held)
    )
    regression = make_pipeline(StandardScaler(), LogisticRegressionCV(**CHOSEN))
    predicted = regression.fit(H, task.train.labels).predict(test)
    value = float((predicted == held.labels).mean())
    taken = time.perf_counter() - started
    (_, *words), *others = list_ways(content)
    ways = [(WORDS, *words), (TOP, value, taken), *others]
    rows = [[way, f"{reached:.3f}", f"{seconds:.1f}"] for way, reached, seconds in ways]
    return table(["", "accuracy", "seconds"], rows)


def list_sizes(cells: Cells) -> list[tuple[str, list[tuple[str, str, int]]]]:
    """List what is averaged over tasks, with its name: each model and size, then all."""
    models = dict.fromkeys(one["model"] for one in cells.records)
    sizes = [(f"{m}, {n}", cells.list_cells(m, n)) for m in models for n in PER_CLASS]
    return [*sizes, ("all", cells.list_cells(None, None))]


def tabulate_averages(cells: Cells) -> str:
    rows = [
        [
            name,
            *(cells.reach(some, one) for one in CONTENDERS),
            *(say_gain(cells.gain(some, other)) for other in (TOP, PLAIN)),
        ]
        for name, some in list_sizes(cells)
    ]
    columns = ["model, texts per class", *CONTENDERS, "above the top state", "above C = 1"]
    return table(columns, rows)


def tabulate_tasks(cells: Cells) -> str:
    rows = [
        [
            f"{model}, {task}, {n}",
            *(cells.reach([(model, task, n)], one) for one in CONTENDERS),
            say_gain(cells.gain([(model, task, n)], TOP)),
        ]
        for model, task, n in cells.list_cells(None, None)
    ]
    return table(["model, task, texts per class", *CONTENDERS, "above the top state"], rows)


def tabulate_seconds(cells: Cells) -> str:
    rows = []
    for name, some in list_sizes(cells)[:-1]:
        own = [cells.take(some, one).seconds.mean() for one in (WORDS, TOP, PLAIN, BEST)]
        # What ran beside a pass can only slow it down.
        passes = [cells.take(some, one).forward for one in (TOP, PLAIN, BEST)]
        forward = float(np.min(passes, axis=0).mean())
        totals = [own[0], *(forward + one for one in own[1:])]
        rows.append([name, f"{forward:.2f}", *(f"{one:.2f}" for one in totals)])
    return table(["model, texts per class", "forward pass", WORDS, TOP, PLAIN, BEST], rows)


def tabulate_reported(cells: Cells) -> str:
    rows = []
    for name, some in list_sizes(cells):
        own = cells.take(some, BEST)
        left_out = [unpack(one) for one in own.left_out]
        reported = np.array([one.mean() for one in left_out])
        # Of two classes, wrong and right.
        right = (np.eye(2)[one] for one in left_out)
        low, high = np.transpose(
            [
                find_interval("accuracy", np.ones(len(one), np.int64), one, folds=FOLDS)
                for one in right
            ]
        )
        means = (reported, own.rest, own.value)
        within = [(low <= one) & (one <= high) for one in means[1:]]
        rows.append(
            [
                name,
                *(f"{100 * one.mean():.1f}" for one in means),
                *(f"{one.mean():.0%}" for one in within),
            ]
        )
    columns = ["model, texts per class", "reported", "the rest", "test rows"]
    columns += ["the rest is in the interval", "test rows are"]
    return table(columns, rows)


def tabulate_calibration(cells: Cells) -> str:
    rows = []
    for name, some in list_sizes(cells):
        own, row = cells.take(some, BEST), [name]
        for measure in ("nll", "ece", "brier"):
            before, after = np.stack(own[measure].to_list()).T
            row += [f"{before.mean():.3f} → {after.mean():.3f}", f"{(after < before).mean():.0%}"]
        rows.append(row)
    columns = ["model, texts per class", "log-likelihood", "lower", "calibration error", "lower"]
    return table([*columns, "Brier score", "lower"], rows)


def write(records: Sequence[Mapping[str, Any]], path: Path, demo: Path | None) -> None:
    cells = Cells(records)
    behind = [cell for cell in cells.list_cells(None, None) if sum(cells.gain([cell], TOP)) < -1]
    parts = [
        machine(),
        "## On average over the tasks",
        tabulate_averages(cells),
        f"Of the {len(cells.list_cells(None, None))} cells below, the interval of the difference "
        f"lies wholly below −1 in {len(behind)}.",
        say_same(cells),
        CONCLUSION,
        *(["## The demo", DEMO, tabulate_demo(demo)] if demo else []),
        "## Seconds",
        SECONDS,
        tabulate_seconds(cells),
        "## The figure that it reports",
        REPORTED,
        tabulate_reported(cells),
        "## Probabilities",
        CALIBRATED,
        tabulate_calibration(cells),
        "## Task by task",
        tabulate_tasks(cells),
    ]
    path.write_text(INTRODUCTION + "\n\n".join(parts) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--mpnet", type=Path, help="folder of all-mpnet-base-v2")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--demo", type=Path, help="what `layerscout demo` wrote")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    run(given)
    if given.write:
        write(read_records(given.records), given.write, given.demo)


if __name__ == "__main__":
    main()
