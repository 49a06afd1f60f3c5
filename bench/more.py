"""How right the learning curve of the free head is: predicted and measured at twice the texts.

    python bench/more.py --mpnet FOLDER --write docs/measured/more.md

A line of JSON for each cell (model, task, texts, draw); what has one is not done again.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import t

import layerscout as ls
from board import TEST, pool_classes, read_task
from layerscout.data import Targets, standard_error
from layerscout.models import Encoder, can_average, norm_means
from layerscout.scores import solve_head, solve_path
from layerscout.states import DEFAULT_LIMIT, pool_states
from layerscout.tuning.learning_curve import GROUPS, LEVEL, PARTS, WIDER, find_curve
from layerscout.tuning.solving import deal
from measuring import machine, read_records
from writing import table

RECORDS = Path(__file__).parent / "more.jsonl"
TASKS = ("cr", "sst5", "trec6", "emotion6", "ag_news", "amazon_counterfactual_en")
SIZES, DRAWS = (32, 64, 128, 256, 512, 1024), {"MiniLM-L6": range(3), "mpnet-base": range(1)}


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts of a task: some of each class that draws are taken from, then those to predict."""

    names: Sequence[str]
    texts: Sequence[str]
    y: np.ndarray

    @classmethod
    def read(cls, folder: Path) -> "Texts":
        rows, test = read_task(folder)
        frame, names = pd.concat([*pool_classes(rows), test]), sorted(rows["label"].unique())
        return cls(names, list(frame["text"]), frame["label"].map(names.index).to_numpy(np.int64))


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


def fit(shape: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """Return what takes the values at three sizes to the gain from n to 2n, by least squares."""

    def weigh(sizes: np.ndarray) -> np.ndarray:
        at = shape(sizes) - shape(sizes).mean()
        rise = shape(np.array([2.0])) - shape(np.array([1.0]))
        return at / (at**2).sum() * rise

    return weigh


# By name, the weights of the values at sizes that are shares of n.
FORMS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "log n": fit(np.log),
    "1/n^¼": fit(lambda n: -(n**-0.25)),
    "1/√n": fit(lambda n: -(n**-0.5)),
    "1/n": fit(lambda n: -1 / n),
    "last doubling, halved": lambda sizes: np.array([0, -0.5, 0.5]),
}
# The one that `tune` has, and how many standard errors its jackknife's interval reaches.
TAKEN, SURE = "1/√n", t.ppf((1 + LEVEL) / 2, GROUPS - 1)


def order(task: Texts, draw: int) -> np.ndarray:
    """Order the texts that draws are taken from, so that the first ones are of all classes."""
    rng, y = np.random.default_rng(draw), task.y[:-TEST]
    rank = np.zeros(len(y), np.int64)
    for k in range(len(task.names)):
        rank[y == k] = rng.permutation(np.count_nonzero(y == k))
    return np.lexsort((rng.random(len(y)), rank))


def measure(read: Read, draw: int) -> list[dict[str, Any]]:
    """Solve heads on more and more texts, and predict the next from the curve of each."""
    task, rows = read.task, order(read.task, draw)
    y, classes = task.y, len(task.names)
    sizes = [n for n in SIZES if n <= len(rows)]
    right, found = [], []
    for n in sizes:
        few = rows[:n]
        own = pd.factorize(np.array([task.texts[row] for row in few]))[0]
        folds, states = deal(y[few], own), read.normed[:, few]
        solved = solve_head(states, y[few], folds, metric="accuracy", classes=classes)
        assert solved is not None
        right.append(solved.head(read.normed[solved.state]).argmax(axis=1) == y)
        if n == sizes[-1]:
            break
        started = time.process_time()
        parts, predict = deal(y[few], own, groups=PARTS), solve_with(solved.shrinkage, classes)
        given = states[solved.state], Targets.of(y[few]), folds, parts
        curve = find_curve(*given, predict, metric="accuracy")
        assert curve is not None
        forms = {}
        for name, weigh in FORMS.items():
            gains = weigh(curve.sizes / n) @ curve.values
            forms[name] = [float(gains[0]), standard_error(gains[1:])]
        seconds = time.process_time() - started
        said = {"texts": n, "draw": draw, "state": solved.state + 1, "seconds": seconds}
        found.append(said | {"forms": forms})
    for record, twice, before, after in zip(found, sizes[1:], right, right[1:], strict=False):
        # What neither head has seen, with the shares of the classes that were drawn.
        others = np.setdiff1d(np.arange(len(y)), rows[:twice])
        drawn = np.bincount(y[rows[: record["texts"]]], minlength=classes)
        weights = (drawn / np.maximum(np.bincount(y[others], minlength=classes), 1))[y[others]]
        weights /= weights.sum()
        rise = after[others].astype(float) - before[others]
        record["measured"] = float(weights @ rise)
        record["noise"] = float(np.sqrt(weights**2 @ (rise - weights @ rise) ** 2))
    return found


def solve_with(shrinkage: float, classes: int) -> Callable[..., np.ndarray]:
    """Return what solves a head on rows and gives the logits of others."""
    options: dict[str, Any] = {"classes": classes, "shrinkages": (shrinkage,)}
    return lambda H, y, others: solve_path(H, y, **options)[0](others)


def run(given: argparse.Namespace) -> None:
    """Measure what has no record yet, each draw of all tasks before the next."""
    done = {(one["model"], one["task"], one["draw"]) for one in read_records(given.records)}
    for model, path in (("MiniLM-L6", "demo"), ("mpnet-base", given.mpnet)):
        if path is None:
            continue
        encoder = ls.Encoder.load(str(path))
        for draw, task in product(DRAWS[model], TASKS):
            if (model, task, draw) in done:
                continue
            read = Read(encoder, Texts.read(given.shared / "data" / task))
            records = [{"model": model, "task": task, **one} for one in measure(read, draw)]
            with given.records.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(record) + "\n" for record in records)
            print(model, task, draw, flush=True)


INTRODUCTION = """\
# What more labelled texts would bring

Written by `python bench/more.py --mpnet FOLDER --write docs/measured/more.md` from its records in
`bench/solved/more.jsonl`.

[`tune`](../tune.md#what-more-would-bring) leads the learning curve of the free head on: to no more
than twice the texts. Is it right? Heads are solved (`head:best`, as in
[the board](board.md), with its tasks, models and texts) on 32, 64, ... texts of a
draw, as many of each class, and on twice as many, which contain them. Measured is by how many
points the second is more often right about texts that neither has seen, with the classes in equal
shares; predicted is the same from the first texts alone: heads on a fifth, two fifths and four
fifths of them, judged on those left out.

"""

FORMS_TOLD = """\
By form of the curve, in points. "The other tasks" is no curve, but the mean that was measured there
with as many texts. What is measured is itself only that true: two heads, on one draw each, and some
hundred texts that judge them."""

INTERVAL_TOLD = """\
Of 1/√n, which has little bias. The jackknife's error is of the texts that judge the heads; that
others could have been drawn to solve them on is not in it. Its 95 % interval ("× 1") alone is
therefore too short, and the one that is reported {wider} times as wide. A curve is called flat
where it rises no more than the former. "In it, with noise" is how often what was measured is in the
interval that allows for its own standard error as well."""


def tabulate_forms(frame: pd.DataFrame) -> str:
    """Tabulate bias and root mean square error of each form, by the number of texts."""
    predicted = {
        name: frame["forms"].map(lambda forms, name=name: forms[name][0]) for name in FORMS
    }
    predicted["the other tasks"] = frame.apply(
        lambda one: frame[(frame["texts"] == one["texts"]) & (frame["task"] != one["task"])][
            "measured"
        ].mean(),
        axis=1,
    )
    columns = ["texts", "cells", "measured", *predicted]
    rows = []
    for name, some in list_sizes(frame):
        errors = [100 * (each - frame["measured"])[some] for each in predicted.values()]
        told = [f"{each.mean():+.1f}, {np.sqrt((each**2).mean()):.1f}" for each in errors]
        rows.append([name, str(some.sum()), f"{100 * frame['measured'][some].mean():+.1f}", *told])
    return table([*columns[:3], *(f"{name}: bias, error" for name in columns[3:])], rows)


def tabulate_intervals(frame: pd.DataFrame) -> str:
    """Tabulate how often what was measured is in the interval of the form that `tune` has."""
    gains = np.stack(frame["forms"].map(lambda forms: forms[TAKEN]).to_list())
    half, off = SURE * gains[:, 1], np.abs(gains[:, 0] - frame["measured"])
    rows = []
    for name, some in list_sizes(frame):
        noisy = np.hypot(WIDER * half, 1.96 * frame["noise"])
        shares = [(off < each)[some].mean() for each in (half, WIDER * half, noisy)]
        flat = (gains[:, 0] <= half)[some]
        rows.append(
            [
                name,
                f"±{100 * WIDER * half[some].mean():.1f}",
                *(f"{share:.0%}" for share in shares),
                f"{flat.mean():.0%}",
                f"{frame['seconds'][some].mean():.2f}",
            ]
        )
    columns = ["texts", "interval", "in × 1", f"in × {WIDER:g}", "in it, with noise", "flat"]
    return table([*columns, "seconds"], rows)


def list_sizes(frame: pd.DataFrame) -> list[tuple[str, pd.Series]]:
    """List which records are of each model and size, and all."""
    of = [(f"{n}", frame["texts"] == n) for n in SIZES[:-1]]
    models = [(model, frame["model"] == model) for model in frame["model"].unique()]
    return [*of, *models, ("all", frame["texts"] > 0)]


def write(frame: pd.DataFrame, path: Path) -> None:
    parts = [
        machine(),
        "## Forms of the curve",
        FORMS_TOLD,
        tabulate_forms(frame),
        "## The interval",
        INTERVAL_TOLD.format(wider=f"{WIDER:g}"),
        tabulate_intervals(frame),
    ]
    path.write_text(INTRODUCTION + "\n\n".join(parts) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--mpnet", type=Path, help="folder of all-mpnet-base-v2")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    run(given)
    if given.write:
        write(pd.DataFrame(read_records(given.records)), given.write)


if __name__ == "__main__":
    main()
