"""Measure estimates and limits of time beside what tunings take, and cross-validation.

    python bench/tune.py --times MODEL    # MiniLM and this one
    python bench/tune.py --folds head:best head:2 head:4 head:6

The docs have the figures that this prints. Run it alone on the machine.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold, cross_val_score

import layerscout as ls
from layerscout.states import clear_cache
from measuring import drawn, given, options
from writing import table

LAYERSCOUT = (sys.executable, "-m", "layerscout")
# Texts of the smallest run whose head is solved.
FEW = 64
# Rows that are cross-validated, and in how many folds.
FOLDED, FOLDS = 400, 5
# Plans whose time is estimated, and how long those train that have 200 steps or more by default;
# on longer texts the larger model has the first three.
STEPS = ("--max-steps", "40")
TIMED = (("head:best",), ("top:1", *STEPS), ("top:3", *STEPS), ("auto",), ("full", *STEPS))


def timing(models: Sequence[str], shared: Path, folder: Path) -> str:
    """Compare what tunings are estimated to take with what they take, and limits with that."""
    texts, out = folder / "texts.parquet", folder / "out"
    ratios, overruns, rows = [], [], []

    def run(model: str, plan: str, *more: str) -> tuple[float, Mapping[str, Mapping[str, float]]]:
        clear_cache()
        tune = [*LAYERSCOUT, "tune", model, str(texts), "--plan", plan, "--overwrite"]
        started = time.perf_counter()
        subprocess.run([*tune, "-o", str(out), *more], check=True, stdout=subprocess.DEVNULL)
        took = time.perf_counter() - started
        return took, json.loads((out / "result.json").read_text())["time"]

    for name, examples in (("trec6", 64), ("ag_news", 100)):
        task = ls.Task.load(shared / "data" / name)
        split = drawn(task, examples)
        labels = [task.labels[label] for label in split.labels]
        pd.DataFrame({"text": split.texts, "label": labels}).to_parquet(texts)
        for model in models:
            dear = model == models[-1] and name != "trec6"
            for plan, *more in TIMED[: 3 if dear else None]:
                took, spent = run(model, plan, *more, "--time", "10h")  # nothing is stopped
                expected = spent["estimate"]
                share = sum(expected.values()) / sum(
                    spent["seconds"].get(phase, 0.0) for phase in expected
                )
                limit = 0.7 * took
                within = ""
                if plan != "head:best":  # which has nothing to shorten
                    within = "refused"  # where that is too short for a free head
                    with suppress(subprocess.CalledProcessError):
                        limited, _ = run(model, plan, *more, "--time", f"{limit:.1f}s")
                        overruns.append(limited / limit)
                        within = f"{overruns[-1]:.2f}"
                ratios.append(share)
                each = f"{name}, {examples}", Path(model).name, plan, f"{took:.1f} s"
                rows.append([*each, f"{share:.2f}", within])
                print(*rows[-1], sep=", ", file=sys.stderr, flush=True)
    near = sum(0.75 <= share <= 1.25 for share in ratios)
    return (
        f"The estimates of {near} of {len(ratios)} runs are within 25 % of what these took, the "
        f"median is {statistics.median(ratios):.2f} of it. With 0.7 of its time as the limit, a "
        f"run took at most {max(overruns):.2f} of that. Target: 90 %, and 1.10.\n\n"
        + table(["texts", "model", "plan", "took", "estimate / took", "limited / limit"], rows)
    )


def folding(shared: Path, plans: Sequence[str]) -> str:
    """Cross-validate plans with `TextClassifier`, and with tunings that share nothing."""
    task = ls.Task.load(shared / "data" / "amazon_counterfactual_en")
    base, split = shared / "models" / "all-MiniLM-L6-v2", drawn(task, FOLDED)
    X, y = np.array(split.texts, dtype=object), np.array(task.labels)[split.labels]
    deal = StratifiedKFold(FOLDS)

    def tune_apart(plan: str) -> list[float]:
        reached = []
        for training, held_out in deal.split(X, y):
            clear_cache()
            own = ls.Task.from_lists(X[training], y[training])
            said = ls.tune(base, own, plan, progress=False).predict(X[held_out])
            reached.append(float(np.mean(said == y[held_out])))
        return reached

    def cross_validate(plan: str) -> list[float]:
        return list(cross_val_score(ls.TextClassifier(base, plan), X, y, cv=deal))

    def spend(way: Callable[[str], list[float]], plan: str) -> tuple[float, list[float]]:
        started = time.process_time()
        reached = way(plan)
        return time.process_time() - started, reached

    # The first tuning of a process takes seconds more than others.
    ls.tune(base, ls.Task.from_lists(X[:FEW], y[:FEW]), "head:2", progress=False)
    apart = [spend(tune_apart, plan) for plan in plans]
    clear_cache()
    shared_work = [spend(cross_validate, plan) for plan in plans]
    rows = [
        [
            plan,
            *(f"{before:.1f} s", f"{after:.1f} s", f"{before / after:.1f}"),
            f"{np.mean(said):.3f}",
            f"{max(np.abs(np.subtract(said, expected))):.3f}",
        ]
        for plan, (before, expected), (after, said) in zip(plans, apart, shared_work, strict=True)
    ]
    before, after = (sum(seconds for seconds, _ in some) for some in (apart, shared_work))
    return (
        f"{FOLDED} rows of amazon_counterfactual_en, MiniLM, {FOLDS} folds, by the processor's "
        f"time: {before / after:.1f} times as fast as tunings with an empty cache each.\n\n"
        + table(["plan", "apart", "together", "ratio", "accuracy", "a fold's differs by"], rows)
    )


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--times", metavar="MODEL", help="beside MiniLM")
    parser.add_argument("--folds", nargs="+", metavar="PLAN", help="beside tunings apart")
    arguments = given(parser)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LAYERSCOUT_CACHE"] = str(Path(folder) / "cache")
        if arguments.times:
            models = str(arguments.shared / "models" / "all-MiniLM-L6-v2"), arguments.times
            print(timing(models, arguments.shared, Path(folder)))
        if arguments.folds:
            print(folding(arguments.shared, arguments.folds))


if __name__ == "__main__":
    main()
