"""Compare what `tune` returns by default with the free head, and its probabilities with others.

    python bench/auto.py --mpnet FOLDER --hours 1
    python bench/auto.py --write docs/measured/auto.md

Rows of a task are drawn and tuned with all defaults. A line of JSON for each cell, with the logits
of the test rows by the free head and by the training, be it kept or not; and another for a plan
that was asked for by name, whose head is trained. What has a line is not run again. One thread;
seconds are of the processor.
"""

import argparse
import base64
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import layerscout as ls
from layerscout.data import evaluate, find_difference
from layerscout.scores import TRAINED, calibrate, measure_calibration
from measuring import Section, grid_options, list_models, read_records, run_grid, spread, write_page
from starts import PLANS, Cell, load, say
from writing import table

RECORDS = Path(__file__).parent / "auto.jsonl"
TASKS, ROWS, METRIC = ("cr", "trec6", "emotion6", "ag_news"), 1000, "accuracy"
NAMES, AUTO, NAMED = ("model", "task", "rows", "seed"), "auto", "by name"
# What is kept of the comparison on rows that neither has seen.
COMPARED = ("examples", "value", "trained", "difference", "interval", "losses", "better", "kept")


def list_cells(models: Sequence[str]) -> Iterator[Cell]:
    """List cells: a draw of all tasks comes before the next draw of any."""
    for seed, model, task in product(range(2), models, TASKS):
        yield Cell(model, task, ROWS, seed)


def pack(logits: np.ndarray) -> str:
    """Write logits of half precision."""
    return base64.b64encode(np.asarray(logits, np.float16).tobytes()).decode()


def keep(result: ls.Result, test: bool = True) -> dict[str, Any]:
    """Return what a record holds of a saved model on the test rows, or those that judged it."""
    splits = result.predictions["split"]
    rows = [at for at, name in enumerate(splits) if (name == "test") is test]
    logits, labels = (
        [result.predictions[name][row] for row in rows] for name in ("logits", "label")
    )
    classes = result.content["task"]["labels"]
    y = "".join(str(classes.index(label)) for label in labels)
    return {"labels": y, "logits": pack(np.array(logits))}


def measure(encoder: ls.Encoder, task: ls.Task) -> dict[str, Any]:
    """Tune by default, and make what it did not keep: the free head, or the training."""
    auto = ls.tune(encoder, task, progress=False)
    free = ls.tune(encoder, task, "head:best", progress=False)
    training, compared = auto, auto.content["free"]
    if compared["kept"]:
        plan = compared["training"]["plan"]["notation"]
        loss = auto.content["settings"]["loss"]
        training = ls.tune(encoder, task, plan, head_end="solved", loss=loss, progress=False)
        again = training.content["free"]
        assert [again[name] for name in COMPARED[:-1]] == [compared[name] for name in COMPARED[:-1]]
        assert keep(auto) == keep(free)
    return {
        "plan": training.content["plan"]["notation"],
        "compared": {name: compared[name] for name in COMPARED},
        "seconds": sum(training.content["seconds"].values()),
        "free": {"factor": free.content["calibration"]["factor"], "test": keep(free)},
        "training": {
            "factor": training.content["calibration"]["factor"],
            "test": keep(training),
        },
    }


def train(encoder: ls.Encoder, task: ls.Task, plan: str) -> dict[str, Any]:
    """Train a plan with its head, which validation rows calibrate."""
    result = ls.tune(encoder, task, plan, progress=False)
    return {
        "plan": plan,
        "training": {
            "factor": result.content["calibration"]["factor"],
            "validation": keep(result, test=False),
            "test": keep(result),
        },
    }


def run_all(given: argparse.Namespace) -> None:
    """Run what is not among the records, until the time is over."""
    until, records = time.time() + 3600 * given.hours, given.records
    done = {tuple(one[name] for name in (*NAMES, "kind")) for one in read_records(records)}
    models = list_models(given, *PLANS)
    for cell, kind in product(list_cells([*models]), (AUTO, NAMED)):
        if (*astuple(cell), kind) in done:
            continue
        if time.time() > until:
            return
        started = time.process_time()
        task = replace(load(given.shared, cell), validation=None)
        encoder = ls.Encoder.load(models[cell.model])
        plan = PLANS[cell.model]
        found = measure(encoder, task) if kind == AUTO else train(encoder, task, plan)
        record = dict(zip(NAMES, astuple(cell), strict=True)) | {"kind": kind} | found
        with records.open("a") as file:
            file.write(json.dumps(record) + "\n")
        taken = round(time.process_time() - started)
        print(*astuple(cell), kind, taken, "s", file=sys.stderr, flush=True)


@dataclass(frozen=True, eq=False)
class Judged:
    """Logits of rows as a saved model gives them, and the factor in them."""

    y: np.ndarray
    logits: np.ndarray
    factor: float

    @classmethod
    def read(cls, kept: Mapping[str, Any], split: str = "test") -> "Judged":
        y = np.array([*map(int, kept[split]["labels"])])
        flat = np.frombuffer(base64.b64decode(kept[split]["logits"]), np.float16)
        return cls(y, flat.reshape(len(y), -1).astype(np.float64), kept["factor"])

    @property
    def raw(self) -> np.ndarray:
        return self.logits / self.factor

    @property
    def value(self) -> float:
        return 100 * evaluate(METRIC, self.y, self.logits)

    def find(self, factor: float) -> tuple[float, float, float]:
        """Return log loss, calibration error and Brier score with a factor."""
        found = measure_calibration(self.y, self.raw * factor)
        assert found is not None, "logits are finite"
        return found["nll"], found["ece"], found["brier"]


@dataclass(frozen=True, eq=False)
class Pair:
    """The free head and the training of a cell on its test rows, and which of them is returned."""

    cell: Cell
    record: Mapping[str, Any]
    free: Judged
    training: Judged

    @property
    def auto(self) -> Judged:
        return self.free if self.record["compared"]["kept"] else self.training

    @property
    def ahead(self) -> tuple[float, float, float]:
        """How far what is returned is above the free head, and the interval of that."""
        logits = self.free.logits, self.auto.logits
        difference, interval = find_difference(METRIC, self.free.y, logits)
        assert interval is not None, "there are several rows"
        return difference, *interval


def gather(records: Path) -> list[Pair]:
    """Read all cells."""
    found = []
    for one in read_records(records):
        if one["kind"] == AUTO:
            cell = Cell(*(one[name] for name in NAMES))
            found.append(Pair(cell, one, Judged.read(one["free"]), Judged.read(one["training"])))
    return sorted(found, key=lambda pair: pair.cell)


def group(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Return the cells of each model and size, and all."""
    found: dict[str, list[Pair]] = {}
    for pair in sorted(pairs, key=lambda pair: (pair.cell.model, pair.cell.rows)):
        found.setdefault(f"{pair.cell.model}, {pair.cell.rows:,}", []).append(pair)
    return {**found, "all": [*pairs]}


def tabulate_averages(pairs: Sequence[Pair]) -> str:
    rows = []
    for name, own in group(pairs).items():
        free, training, auto = (
            np.array([getattr(pair, which).value for pair in own])
            for which in ("free", "training", "auto")
        )
        ends = np.array([pair.ahead[1:] for pair in own])
        counts = [
            sum(pair.auto is pair.training for pair in own),
            int((ends[:, 0] > 0).sum()),
            int((ends[:, 1] < 0).sum()),
        ]
        values = [f"{each.mean():.1f}" for each in (free, training, auto)]
        gains = [spread(each - free, 1) for each in (training, auto)]
        rows.append([name, str(len(own)), *values, *gains, *map(str, counts)])
    columns = ["model, rows", "cells", "free head", "training", "auto", "training − free"]
    columns += ["auto − free", "keeps the training", "clearly ahead", "clearly behind"]
    return table(columns, rows)


# By what was compared on rows that neither has seen, whether a training is kept.
RULES: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "as it is": lambda each: not each["kept"],
    "above beyond noise": lambda each: each["interval"][0] > 0,
    "above beyond noise, or not below with a lower loss": lambda each: (
        each["interval"][0] > 0
        or (each["difference"] >= 0 and each["losses"][1] < each["losses"][0])
    ),
    "not below": lambda each: each["difference"] >= 0,
    "always": lambda _: True,
}


def tabulate_rules(pairs: Sequence[Pair]) -> str:
    rows = []
    for name, keeps in RULES.items():
        kept = np.array([keeps(pair.record["compared"]) for pair in pairs])
        gains = np.array([pair.training.value - pair.free.value for pair in pairs]) * kept
        rows.append(
            [name, str(kept.sum()), spread(gains, 1), f"{round(gains.min(), 1) + 0.0:+.1f}"]
        )
    return table(["a training is kept if it is", "kept", "auto − free", "worst"], rows)


def tabulate_cells(pairs: Sequence[Pair]) -> str:
    rows = [
        [
            f"{cell.model}, {cell.task}, {cell.rows:,}, {cell.seed}",
            *(f"{each.value:.1f}" for each in (pair.free, pair.training)),
            "the free head" if pair.auto is pair.free else pair.record["plan"],
            "" if pair.auto is pair.free else say(pair.ahead),
            f"{100 * pair.record['compared']['difference']:+.1f}",
            " and ".join(f"{loss:.2f}" for loss in pair.record["compared"]["losses"]),
        ]
        for pair in pairs
        for cell in (pair.cell,)
    ]
    columns = ["model, task, rows, draw", "free head", "training", "auto keeps", "auto − free"]
    return table([*columns, "on left-out rows", "loss there"], rows)


def compare(before: np.ndarray, after: np.ndarray) -> list[str]:
    """Write log loss, calibration error and Brier score before and after, (n, 3), and how often
    they are lower.
    """
    cells = []
    for one, other in zip(before.T, after.T, strict=True):
        cells += [f"{one.mean():.3f} → {other.mean():.3f}", f"{(other < one).mean():.0%}"]
    return cells


MEASURES = ["log loss", "lower", "calibration error", "lower", "Brier score", "lower"]


def tabulate_probabilities(pairs: Sequence[Pair]) -> str:
    rows = []
    for (title, which), (name, own) in product(
        (("trainings", "training"), ("free heads", "free")), group(pairs).items()
    ):
        models = [getattr(pair, which) for pair in own]
        before, after = (
            np.array([model.find(factor) for model, factor in zip(models, factors, strict=True)])
            for factors in ([1.0] * len(models), [model.factor for model in models])
        )
        suits = np.exp(np.mean([np.log(calibrate(each.y, each.logits)) for each in models]))
        rows.append([title, name, str(len(own)), *compare(before, after), f"{suits:.2f}"])
    columns = ["", "model, rows", "cells", *MEASURES, "what is missing"]
    return f"{PROBABILITIES}\n\n" + table(columns, rows)


# What the factor of a trained head may be taken to be before any row is seen.
PRIORS = {"as built in": TRAINED, "−0.15 and 0.4": (-0.15, 0.4), "none": None}


def tabulate_factors(records: Path) -> str:
    """Compare the factor of trained heads with those that other priors would have given."""
    kept = [one["training"] for one in read_records(records) if one["kind"] == NAMED]
    if not kept:
        return ""
    tests = [Judged.read(one) for one in kept]
    aside = [Judged.read(one, "validation") for one in kept]
    before, rows = np.array([test.find(1.0) for test in tests]), []
    for name, prior in PRIORS.items():
        after = [
            test.find(calibrate(own.y, own.raw, prior))
            for test, own in zip(tests, aside, strict=True)
        ]
        rows.append([name, *compare(before, np.array(after))])
    needed = np.log([calibrate(test.y, test.raw) for test in tests])
    return FACTORS.format(
        cells=len(kept), mean=needed.mean(), deviation=needed.std(), prior=TRAINED
    ) + table(["prior", *MEASURES], rows)


FACTORS = """The head of a plan that was asked for by name is trained. A tenth of the rows that is
set aside gives the factor, drawn towards a prior, since few rows say little. Of {cells} trainings,
(3, 4, 4) with MiniLM and (9, 10, 10) with mpnet-base, the logarithm of the factor that suits test
rows best is {mean:.2f} in the mean, with a deviation of {deviation:.2f}; the prior that is built in
has {prior[0]} and {prior[1]}.

"""


INTRODUCTION = """# What `tune` returns by default from 1,000 texts

Written by `python bench/auto.py --write docs/measured/auto.md`, from the records in
`bench/auto.jsonl`; [the board](board.md) says what comes of fewer texts.

`tune` without a plan trains the one that `auto` chooses, solves the free head beside it, compares
both on rows that neither was fitted to, and keeps the free head unless the training is better
there. Here both are judged on 500 rows of the test split: {cells} cells, each a
model, a task, so many rows, and the draw of them; all options as they are by default. Accuracy, in
percent, and differences in points. Those of two models are paired, with 95 % intervals over rows;
averages have 95 % t-intervals over cells. Where the free head is kept, the difference is none."""


def write(records: Path, path: Path) -> None:
    """Write the page."""
    pairs = gather(records)
    parts = {
        "On average": tabulate_averages,
        "What other rules would have kept": tabulate_rules,
        "Cell by cell": tabulate_cells,
        "Probabilities": tabulate_probabilities,
    }
    sections = [Section(title, tabulate(pairs)) for title, tabulate in parts.items() if pairs]
    if factors := tabulate_factors(records):
        sections.append(Section("The factor of trained heads", factors))
    write_page(INTRODUCTION.format(cells=len(pairs)), sections, path)


PROBABILITIES = """On test rows, before and after the one factor on all logits, which changes no
prediction: means, and in how many of the cells it is lower. Trainings are among them whether they
were kept or not. Before it, logits of a solved head have any size, so what counts is how good they
are after it. *What is missing* is the further factor that would suit the test rows best, as a
geometric mean: above 1 where the model is not sure enough."""


def main() -> None:
    run_grid(grid_options(__doc__, RECORDS, hours=2.0), run_all, write)


if __name__ == "__main__":
    main()
