"""Compare where trainings start: with a head that is drawn, or solved on what it is given.

    python bench/starts.py --records FILE --hours 1
    python bench/starts.py --records FILE --write docs/measured/starts.md

A plan is trained from each start in the same steps and with two learning rates, one of which the
validation rows choose for each start. A line of JSON for each run, with what it predicts; what has
one is not run again. One thread; seconds are of the processor.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import layerscout as ls
from layerscout.data import Task, evaluate, find_difference
from layerscout.models import Encoder, norm_means
from layerscout.scores import find_losses, solve_head
from layerscout.states import DEFAULT_LIMIT, pool_states, predict
from layerscout.tuning import starting
from layerscout.tuning.resolve import encode_split
from layerscout.tuning.solving import deal
from measuring import Section, grid_options, list_models, read_records, run_grid, spread, write_page
from writing import table

RECORDS = Path(__file__).parent / "starts" / "records.jsonl"
PLANS = {"MiniLM": "(3,4,4)", "mpnet-base": "(9,10,10)"}
# By what is reported of it.
TASKS = {
    "cr": "accuracy",
    "trec6": "accuracy",
    "cola": "matthews_correlation",
    "emotion6": "accuracy",
}
ROWS, SEEDS, HEADS = (256, 64, 1000), (0, 1), ("mean-linear", "family")
# The larger model, of which a run takes four times as long, is asked whether it agrees.
GRIDS = {
    "MiniLM": [*product(SEEDS, ROWS, TASKS)],
    "mpnet-base": [*product(SEEDS[:1], ROWS[:2], ("trec6", "cr"))],
}
VALIDATION, TEST, LENGTH, BATCH, STEPS = 100, 500, 40, 16, 100


@dataclass(frozen=True)
class Start:
    """What `--head-start` says, how far logits go of those of the solved head, and the rates."""

    option: str
    share: float
    rates: tuple[float, float]


STARTS = {
    "random": Start("random", 1.0, (1.3e-4, 4e-4)),
    "softly solved": Start("solved", 0.3, (1.3e-4, 4e-4)),
    "solved": Start("solved", 1.0, (3e-5, 1.3e-4)),
}
# Tasks on which steps, batches and rate are also the tool's own.
BY_DEFAULT = ("trec6", "emotion6")
# Those of every cell; all are compared where there are so many rows, with the first seed.
COMPARED, ALL = ("random", "softly solved"), (ROWS[0], SEEDS[0])


@dataclass(frozen=True, order=True)
class Cell:
    """A model, a task, and the rows that are drawn of it."""

    model: str
    task: str
    rows: int
    seed: int


# Of each cell the run of each contender.
Cells = Mapping[Cell, Mapping[str, Mapping[str, Any]]]


def list_cells(models: Sequence[str]) -> Iterator[Cell]:
    """List all of them, so that the first ones say something of every task."""
    for model in models:
        for seed, rows, task in GRIDS[model]:
            yield Cell(model, task, rows, seed)


def list_works(cell: Cell) -> Iterator[tuple[str, str, float]]:
    """List plan, contender and learning rate of each run of a cell."""
    yield "head:best", "free", 0.0
    starts = STARTS if (cell.rows, cell.seed) == ALL else COMPARED
    for head, start in product(HEADS, starts):
        for rate in STARTS[start].rates:
            yield PLANS[cell.model], f"{head}, {start}", rate
    if (cell.rows, cell.seed) == ALL and cell.task in BY_DEFAULT:
        for start in COMPARED:
            yield PLANS[cell.model], f"family, {start}, by default", 0.0


def load(shared: Path, cell: Cell) -> Task:
    """Draw the rows of a cell; those that judge are the same in all cells of a task."""
    folder, drawing = shared / "data" / cell.task, np.random.default_rng(0)
    train, held = (pd.read_parquet(folder / f"{name}.parquet") for name in ("train", "validation"))
    held = held.iloc[drawing.permutation(len(held))]
    validation, test = held[:VALIDATION], held[VALIDATION:]
    if (path := folder / "test.parquet").exists():
        test = pd.read_parquet(path)
        test = test.iloc[drawing.permutation(len(test))]
    # In proportion to the classes, but for rounding.
    share = min(1.0, 1.2 * cell.rows / len(train))
    drawn = train.groupby("label", group_keys=False).sample(frac=share, random_state=cell.seed)
    drawn = drawn.sample(cell.rows, random_state=cell.seed)
    counts = drawn["label"].value_counts()
    if len(counts) < train["label"].nunique() or counts.min() < 2:  # two of every class
        drawn = pd.concat([train.groupby("label").sample(2, random_state=cell.seed), drawn])
        drawn = drawn[~drawn.index.duplicated()][: cell.rows]
    column = "text" if "text" in train else "sentence1"
    own, validated, tested = (
        (list(rows[column]), [str(label) for label in rows["label"]])
        for rows in (drawn, validation, test[:TEST])
    )
    return Task.from_lists(*own, name=cell.task, validation=validated, test=tested)


def judge(task: Task, metric: str, outputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return metric, loss, predictions and labels of the rows of each split."""
    found: dict[str, Any] = {"metric": metric}
    for name, logits in outputs.items():
        y = getattr(task, name).labels
        found[name] = evaluate(metric, y, logits)
        found[f"{name}_loss"] = float(find_losses(y, logits.astype(float)).mean())
        found[f"{name}_predictions"] = "".join(map(str, logits.argmax(axis=1)))
        found[f"{name}_labels"] = "".join(map(str, y))
    return found


def solve_free(encoder: Encoder, task: Task, metric: str) -> dict[str, Any]:
    """Solve the head of `head:best` on the training rows alone."""
    states = {}
    for name in ("train", "validation", "test"):
        tokens = encoder.tokenize_split(getattr(task, name), max_length=LENGTH)
        pooled = pool_states(encoder, tokens, ("mean-all",), limit=DEFAULT_LIMIT)
        kept = pooled.states["mean-all"]
        states[name] = [norm_means(kept[s]) for s in range(1, encoder.blocks + 1)]
    y, classes = task.train.labels, len(task.labels)
    folds = deal(y, np.arange(len(y)))
    solved = solve_head(states["train"], y, folds, metric=metric, classes=classes)
    assert solved is not None, "texts differ"
    outputs = {name: solved.head(states[name][solved.state]) for name in ("validation", "test")}
    return {"state": solved.state + 1, **judge(task, metric, outputs)}


def train(
    encoder: Encoder, task: Task, plan: str, metric: str, contender: str, rate: float
) -> dict[str, Any]:
    """Tune a plan from a start."""
    head, start = contender.split(", ")[:2]
    starting.SHARE, options = STARTS[start].share, {}
    if rate:
        epochs = max(1, round(STEPS * BATCH / task.train.examples))
        options = {"learning_rate": rate, "batch_size": BATCH, "epochs": epochs}
    result = ls.tune(
        encoder,
        task,
        plan,
        classifier=head,
        head_start=STARTS[start].option,
        metric=metric,
        max_length=LENGTH,
        measure="metric",
        progress=False,
        **options,
    )
    outputs, run = {}, result.content["runs"][0]
    for name in ("validation", "test"):
        examples = encode_split(getattr(task, name), encoder, task, LENGTH)
        outputs[name] = predict(encoder, result.model, examples).numpy()
    curve = [
        [round(epoch[key], 4) for key in ("training_loss", "loss", "value")]
        for epoch in run["curve"]
    ]
    found = {"epochs": len(curve), "kept": run["best"]["epoch"], "curve": curve}
    return found | judge(task, metric, outputs)


def run_all(given: argparse.Namespace) -> None:
    """Run what is not among the records, until the time is over."""
    until, records = time.time() + 3600 * given.hours, given.records
    models = list_models(given, *PLANS)
    names = ("model", "task", "rows", "seed", "plan", "contender", "rate")
    done = {tuple(one[name] for name in names) for one in read_records(records)}
    encoders: dict[str, Encoder] = {}
    for cell in list_cells([*models]):
        works = [work for work in list_works(cell) if (*astuple(cell), *work) not in done]
        if not works:
            continue
        if cell.model not in encoders:
            encoders[cell.model] = Encoder.load(models[cell.model])
        encoder, metric, task = encoders[cell.model], TASKS[cell.task], load(given.shared, cell)
        for plan, contender, rate in works:
            if time.time() > until:
                return
            started = time.process_time()
            if contender == "free":
                found = solve_free(encoder, task, metric)
            else:
                found = train(encoder, task, plan, metric, contender, rate)
            record = dict(zip(names, (*astuple(cell), plan, contender, rate), strict=True)) | found
            record["seconds"] = round(time.process_time() - started, 2)
            with records.open("a") as file:
                file.write(json.dumps(record) + "\n")
            values = (round(record[key], 3) for key in ("validation", "test", "test_loss"))
            print(*astuple(cell), contender, rate, *values, file=sys.stderr, flush=True)


def gather(records: Path) -> Cells:
    """Return of each cell, in order, the run of each contender with the rate that was chosen."""
    found: dict[Cell, dict[str, list[dict[str, Any]]]] = {}
    for run in read_records(records):
        cell = Cell(run["model"], run["task"], run["rows"], run["seed"])
        found.setdefault(cell, {}).setdefault(run["contender"], []).append(run)
    return {
        cell: {
            name: max(runs, key=lambda run: (run["validation"], -run["validation_loss"]))
            for name, runs in found[cell].items()
            if not runs[0]["rate"] or len(runs) == len(STARTS[name.split(", ")[1]].rates)
        }
        for cell in sorted(found)
    }


def differ(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return how far the second run is above the first on the test rows, and its interval."""
    texts = (first["test_labels"], first["test_predictions"], second["test_predictions"])
    y, *pair = (np.array([*map(int, text)]) for text in texts)
    one_hot = np.eye(1 + max(part.max() for part in (y, *pair)))
    difference, interval = find_difference(first["metric"], y, (one_hot[pair[0]], one_hot[pair[1]]))
    assert interval is not None, "there are several rows"
    return difference, *interval


def say(difference: tuple[float, float, float]) -> str:
    """Write a difference in points."""
    middle, low, high = (f"{100 * value:+.1f}" for value in difference)
    return f"{middle} ({low} to {high})"


def count_ahead(cells: Cells) -> dict[str, int]:
    """Count the pairs of a cell and a head in which the solved start is ahead."""
    found = [
        differ(*(own[f"{head}, {start}"] for start in COMPARED))
        for own in cells.values()
        for head in HEADS
        if all(f"{head}, {start}" in own for start in COMPARED)
    ]
    return {
        "pairs": len(found),
        "ahead": sum(difference > 0 for difference, *_ in found),
        "above": sum(low > 0 for _, low, _ in found),
        "below": sum(high < 0 for *_, high in found),
    }


def find_gaps(cells: Cells) -> tuple[float, float]:
    """Return how far a head on the mean is above the family's, the least and the most by size."""
    gaps = []
    for size in ROWS:
        own = [
            100 * (runs["mean-linear, random"]["test"] - runs["family, random"]["test"])
            for cell, runs in cells.items()
            if (cell.model, cell.rows) == ("MiniLM", size)
            and TASKS[cell.task] == "accuracy"
            and {"mean-linear, random", "family, random"} <= runs.keys()
        ]
        gaps.append(float(np.mean(own)))
    return min(gaps), max(gaps)


def tabulate_cells(cells: Cells, head: str) -> str:
    """Write the metric of each contender in each cell, and the paired differences."""
    rows = []
    for cell, own in cells.items():
        runs = [own.get(name) for name in ("free", *(f"{head}, {start}" for start in STARTS))]
        if runs[1] is None or runs[2] is None:
            continue
        values = ["" if run is None else f"{100 * run['test']:.1f}" for run in runs]
        gains = ["" if run is None else say(differ(runs[1], run)) for run in runs[2:]]
        rows.append([cell.task, f"{cell.rows:,}", str(cell.seed), *values, *gains])
    others = [f"{start} − random" for start in [*STARTS][1:]]
    return table(["task", "rows", "seed", "head:best", *STARTS, *others], rows) if rows else ""


def tabulate_defaults(cells: Cells) -> str:
    """Write what the two starts come to with the tool's own settings."""
    rows = []
    for cell, own in cells.items():
        names = [f"family, {start}, by default" for start in COMPARED]
        if not all(name in own for name in names):
            continue
        runs = [own[name] for name in names]
        values = [f"{100 * run['test']:.1f}" for run in (own["free"], *runs)]
        losses = [f"{run['test_loss']:.3f}" for run in runs]
        rows.append([cell.task, f"{cell.rows:,}", *values, say(differ(*runs)), *losses])
    columns = ["task", "rows", "head:best", *COMPARED, "difference"]
    return table([*columns, *(f"loss: {start}" for start in COMPARED)], rows) if rows else ""


def tabulate_means(cells: Cells) -> str:
    """Average accuracy and loss over the cells of a size that have a start."""
    rows = []
    for size, head, start in product(sorted(ROWS), HEADS, [*STARTS][1:]):
        names = "free", f"{head}, random", f"{head}, {start}"
        own = [
            [found[name] for name in names]
            for cell, found in cells.items()
            if cell.rows == size
            and TASKS[cell.task] == "accuracy"
            and all(name in found for name in names)
        ]
        if not own:
            continue
        tests = np.array([[run["test"] for run in runs] for runs in own])
        losses = np.array([[run["test_loss"] for run in runs] for runs in own])
        # What is kept where the training must be better than the free head on validation rows.
        kept = [
            [max(runs[0], run, key=lambda each: each["validation"])["test"] for run in runs[1:]]
            for runs in own
        ]
        gain, loss = 100 * (tests[:, 2] - tests[:, 1]), losses[:, 2] - losses[:, 1]
        rows.append(
            [
                *(f"{size:,}", head, start, str(len(own))),
                *(f"{100 * value:.1f}" for value in tests.mean(axis=0)),
                spread(gain, 1),
                *(f"{value:.3f}" for value in losses.mean(axis=0)),
                spread(loss, 3),
                " and ".join(f"{100 * value:.1f}" for value in np.mean(kept, axis=0)),
            ]
        )
    columns = ["rows", "head", "start", "cells", "head:best", "random", "solved", "difference"]
    columns += ["loss: head:best", "random", "solved", "difference", "the better by validation"]
    return table(columns, rows)


INTRODUCTION = """# Where a training starts

Written by `python bench/starts.py --write docs/measured/starts.md`, from the records in
`bench/starts`. A plan is trained from each start in the same {steps} steps of {batch} texts of at
most {length} tokens, with two learning rates, one of which {validation} validation rows choose for
each start and cell (a task, so many training rows, and the seed that draws them, their order and
the random head). Figures are of {test} other rows, in percent: accuracy, of CoLA Matthews'
correlation. `head:best` is the solved head of the state with the least loss on training rows left
out, without any training.

*Softly solved* is `--head-start solved`: logits go 0.3 of the way from how frequent the classes are
to those of the solved head. *Solved* goes all the way, and has lower rates to choose from ({full};
the others {rates}). `mean-linear` is one linear layer on the mean of the tokens; `family` is the
family's head on its token, a dense layer and tanh before the last one. Differences of two runs have
paired 95 % intervals over the rows, averages (without CoLA) 95 % t-intervals over the cells. The
last column of the averages is what the training, from random and from solved, comes to where it is
kept only if it is better than `head:best` on the validation rows.

Of the grids, {done} runs were made, one draw of rows for each seed. Softly
solved is ahead of random in {ahead} of {pairs} pairs of a cell and a head, clearly (the interval is
above 0) in {above}, and clearly behind in {below}.

- What is read matters more than the start: at the same steps, from a random start, a head on the
  mean is {mean} points above the family's own on average over the sizes of MiniLM.
- A softly solved start is worth most for the family's head on MiniLM. For a head on the mean the
  two are level. Solved wholly it is no better than random, and up to 2.9 points behind on average:
  the features have no reason to move. With mpnet-base nothing tells random and softly solved apart.
- In the steps that a named plan has by default, 200 or more, the solved start is not ahead on
  average: there a head is drawn unless `--head-start solved` is given. `auto` trains a head on the
  mean in few steps, from a softly solved start."""


def write(records: Path, path: Path) -> None:
    """Write the page."""
    sections, found = [], gather(records)
    counts = [sum(run["model"] == model for run in read_records(records)) for model in PLANS]
    introduction = INTRODUCTION.format(
        **count_ahead(found),
        steps=STEPS,
        batch=BATCH,
        length=LENGTH,
        validation=VALIDATION,
        test=TEST,
        full=" and ".join(f"{rate:g}" for rate in STARTS["solved"].rates),
        rates=" and ".join(f"{rate:g}" for rate in STARTS["random"].rates),
        mean=" to ".join(f"{gap:.1f}" for gap in find_gaps(found)),
        done=" and ".join(
            f"{n} of {sum(len([*list_works(cell)]) for cell in list_cells([model]))} ({model})"
            for n, model in zip(counts, PLANS, strict=True)
        ),
    )
    for model, plan in PLANS.items():
        cells = {cell: runs for cell, runs in found.items() if cell.model == model}
        if cells:
            if defaults := tabulate_defaults(cells):
                title = f"{model}, {plan}, family: steps, batches and rate by default"
                sections.append(Section(title, defaults))
            sections.append(Section(f"{model}, {plan}: averages", tabulate_means(cells)))
            sections += [
                Section(f"{model}, {plan}: {head}", text)
                for head in HEADS
                if (text := tabulate_cells(cells, head))
            ]
    write_page(introduction, sections, path)


def main() -> None:
    run_grid(grid_options(__doc__, RECORDS, hours=6.0), run_all, write)


if __name__ == "__main__":
    main()
