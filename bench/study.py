"""Measure studies: the work that shared trunks save, and what running and reading trials costs.

Every speed is a ratio of two things done in this one run. Run it alone on the machine:

    python bench/study.py --shared ../shared --write docs/measured/benchmarks-study.md
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers.models.bert.modeling_bert import BertAttention

from layerscout.plans import make_plan
from layerscout.states import DEFAULT_LIMIT, clear_cache
from layerscout.studies import (
    Recipe,
    Study,
    Trial,
    TrialContext,
    estimate,
    make_recipe,
    report,
    runners,
    study,
)
from measuring import Section, given, options, ratio, table, write_page

MODEL, BEST, BLOCKS = "stacked-minilm-12", 8, 12
STRATEGIES = (
    "best-down:1@best",
    "best-down:1@top",
    "top:1",
    "best-down:2@best",
    "best-down:2@top",
    "top:2",
    "best-down:3@best",
    "best-down:3@top",
    "top:3",
    "best-up",
    "best-down:all@best",
    "full",
)
TRIVIAL, RECORDS, TURNS = 2_000, 10_000, 2


def recipe(shared: Path, **settings: Any) -> Recipe:
    """Make the grid of twelve strategies with ℓ* = 8, each plan written out."""
    # (1, 12, 12) would stand for full fine-tuning too.
    plans = {name: make_plan(name, BLOCKS, best=BEST).notation for name in STRATEGIES}
    grid = {
        "axes": {"model": [str(shared / "models" / MODEL)], "task": ["sst2"], "plan": plans},
        "settings": {"learning_rate": 1e-4, "sample_seed": 0, **settings},
    }
    return make_recipe({"title": "twelve strategies", "grids": {"tuned": grid}})


@contextmanager
def counting() -> Iterator[list[int]]:
    """Count forward passes of blocks, one for each example and block."""
    passes, forward = [0], BertAttention.forward

    def counted(module: Any, states: Any, *rest: Any, **more: Any) -> Any:
        passes[0] += len(states)
        return forward(module, states, *rest, **more)

    BertAttention.forward = counted
    try:
        yield passes
    finally:
        BertAttention.forward = forward


def work(shared: Path, device: str) -> Section:
    """Count the passes of a small study, with the trunk kept and without."""
    counts, epochs, n, held = {}, 2, 16, 16
    wanted = recipe(shared, examples=n, validation_examples=held, epochs=epochs)
    for kept in (True, False):
        with tempfile.TemporaryDirectory() as folder, counting() as passes:
            found = run(wanted, folder, shared, kept, device)
        counts[kept] = passes[0]
    plans = [cell.trial.arguments["plan"] for cell in found.cells if cell.trial is not None]
    cuts = [0 if plan["embeddings"] else min(plan["tuned"]) - 1 for plan in plans]
    above = sum(plan["head"] - cut for plan, cut in zip(plans, cuts, strict=True))
    expected = (n + held) * (epochs * above + sum(set(cuts)))
    long = recipe(shared, examples=1000, validation_examples="all", epochs=20)
    with tempfile.TemporaryDirectory() as folder:
        priced = estimate(long, folder, data=shared / "data")
    share = priced.flops(priced.trials) / sum(one.uncached for one in priced.trials.values())
    rows = [
        ["forward passes of blocks, trunks kept", f"{counts[True]:,}"],
        ["the same by count, every shared trunk once", f"{expected:,}"],
        ["ratio (limit 1.02)", f"{counts[True] / expected:.4f}"],
        ["forward passes without kept trunks", f"{counts[False]:,}"],
        ["FLOPs by count over those without kept trunks, 20 epochs", f"{share:.2f}"],
    ]
    text = (
        f"The twelve strategies of Xie et al. 2022, Table 6, on {MODEL} with ℓ* = {BEST}: {n} "
        f"examples to train on, {held} to validate on, {epochs} epochs; a pass is one block on one "
        "example."
    )
    return Section("Work", f"{text}\n\n{table(['', ''], rows)}")


def run(wanted: Recipe, folder: str, shared: Path, kept: bool, device: str) -> Study:
    """Run a study with trunks kept or without, and refuse to measure trials that failed."""
    limit = DEFAULT_LIMIT if kept else 0
    found = study(
        wanted, folder, data=shared / "data", device=device, cache_limit=limit, progress=False
    )
    records = [found.store.read(cell.trial.key) for cell in found.cells if cell.trial is not None]
    failed = [record["error"] for record in records if record and record["status"] != "done"]
    if failed:
        raise SystemExit(f"a trial failed: {failed[0]}")
    return found


def wall(shared: Path, examples: int, held_out: int, device: str) -> Section:
    """Time the same study with the trunk kept and without, in turns, start-up apart."""
    wanted = recipe(shared, examples=examples, validation_examples=held_out, epochs=3)
    seconds: dict[bool, list[list[float]]] = {True: [], False: []}
    startup: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(TURNS):
        for kept in (True, False):
            clear_cache()
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                found = run(wanted, folder, shared, kept, device)
                whole = time.perf_counter() - started
                records = [found.store.read(c.trial.key) for c in found.cells if c.trial]
            each = [record["seconds"] for record in records if record is not None]
            seconds[kept].append(each)
            startup[kept].append(whole - sum(each))
            print(f"  trunks kept {kept}: {whole:.0f} s", file=sys.stderr, flush=True)
    all_of = {kept: [sum(each) for each in turns] for kept, turns in seconds.items()}
    single = [
        statistics.median(with_it) / statistics.median(without)
        for with_it, without in zip(
            zip(*seconds[True], strict=True), zip(*seconds[False], strict=True), strict=True
        )
    ]
    rows = [
        [
            name,
            f"{statistics.median(all_of[kept]):.0f} s",
            f"{min(map(min, seconds[kept])):.0f}–{max(map(max, seconds[kept])):.0f} s",
            f"{statistics.median(startup[kept]):.1f} s",
        ]
        for kept, name in ((True, "trunks kept"), (False, "every epoch runs the trunk"))
    ]
    text = (
        f"The same strategies, {examples:,} examples of SST-2 to train on and {held_out} to "
        f"validate on, 3 epochs, {TURNS} times each. All of it with kept trunks takes "
        f"{ratio(all_of[True], all_of[False])} of the time without; a single trial "
        f"{min(single):.2f} to {max(single):.2f}. Start-up is what the study takes besides its "
        "trials: loading, hashing, storing."
    )
    columns = ["", "all trials", "a trial", "start-up"]
    return Section("Time", f"{text}\n\n{table(columns, rows)}")


def canned(_: TrialContext, trial: Trial) -> dict[str, Any]:
    """Return a result of the usual size at once."""
    curve = [{"epoch": e, "training_loss": 0.5, "loss": 0.5, "value": 0.7} for e in range(1, 6)]
    return {
        "plan": trial.arguments["plan"],
        "metric": "accuracy",
        "keep": "best",
        "best": curve[0],
        "last": curve[-1],
        "curve": curve,
        "stopped": None,
        "diverged": False,
        "parameters": {"total": 22_713_986, "trainable": 3_697_538},
        "flops": {"train": 1e12, "full_train": 2e12, "inference": 1e8, "full_inference": 1e8},
        "seconds": {"trunk": 1.0, "train": 1.0, "evaluate": 1.0},
        "warnings": [],
        "precision": "float32",
        "device": "cpu",
        "threads": 2,
    }


def many(shared: Path, number: int, folder: Path) -> tuple[float, float, float]:
    """Return the seconds for a trivial trial, for reading all records, and for the whole report."""
    grid = {
        "axes": {
            "model": [str(shared / "models" / MODEL)],
            "task": ["sst2"],
            "seed": list(range(number)),
        },
        "settings": {"plan": "top:1"},
    }
    wanted = make_recipe(
        {"title": "many", "grids": {"tuned": grid}, "tables": [{"title": "means"}]}
    )
    runs = runners.RUN
    runners.RUN = {**runs, "tune": canned}
    try:
        started = time.perf_counter()
        found = study(wanted, folder, data=shared / "data", device="cpu", progress=False)
        each = (time.perf_counter() - started) / number
    finally:
        runners.RUN = runs
    started = time.perf_counter()
    for cell in found.cells:
        if cell.trial is not None:
            found.store.read(cell.trial.key)
    reading = time.perf_counter() - started
    started = time.perf_counter()
    report(folder)
    return each, reading, time.perf_counter() - started


def bookkeeping(shared: Path) -> Section:
    """Time what running and reading trials takes besides the trials."""
    with tempfile.TemporaryDirectory() as folder:
        each, _, _ = many(shared, TRIVIAL, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        _, reading, whole = many(shared, RECORDS, Path(folder))
        content = json.loads(next((Path(folder) / "trials").glob("[!.]*.json")).read_text())
        size = len(json.dumps(content))
    rows = [
        [
            f"scheduling and storing one of {TRIVIAL:,} trivial trials (limit 10 ms)",
            f"{1000 * each:.1f} ms",
        ],
        [f"reading {RECORDS:,} records of {size:,} bytes (limit 5 s)", f"{reading:.1f} s"],
        ["the whole report of them", f"{whole:.1f} s"],
    ]
    return Section("Bookkeeping", table(["", ""], rows))


def main() -> None:
    parser = options(__doc__ or "")
    found = given(parser)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["LAYERSCOUT_CACHE"] = cache
        sections = [work(found.shared, found.device), bookkeeping(found.shared)]
        examples, held_out = (24, 24) if found.brief else (1000, 436)
        sections.append(wall(found.shared, examples, held_out, found.device))
    write_page(
        "# Benchmarks of studies\n\nWritten by `python bench/study.py`. Studies are described in "
        "[study.md](../study.md).",
        sections,
        found.write,
        found.device,
    )


if __name__ == "__main__":
    main()
