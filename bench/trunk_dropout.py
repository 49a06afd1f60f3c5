"""Study what a trunk in eval mode, computed once, does to the result.

Every plan is tuned twice with each seed: from the cached trunk, and as the papers did, with frozen
blocks run at every step and with dropout.

    python bench/trunk_dropout.py --shared ../shared --write docs/measured/trunk-dropout.md
"""

import argparse
import statistics
import sys
import tempfile
from os import environ
from pathlib import Path
from typing import Any

from scipy.stats import t
from transformers.utils import logging

import layerscout as ls
from measuring import machine
from writing import table

SEEDS = (0, 1, 2, 3, 4)
EXAMPLES, EPOCHS = 500, 5
CASES = (("all-MiniLM-L6-v2", "sst2", "top:2"), ("all-MiniLM-L6-v2", "cola", "top:2"))


def interval(values: list[float]) -> str:
    """Write a mean with its 95 % t-interval."""
    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.4f} ± {half:.4f}"


def compared(shared: Path, model: str, task: str, plan: str) -> list[str]:
    """Tune a plan both ways; a row of the table."""
    results: list[Any] = []
    for trunk_dropout in (False, True):
        found = ls.tune(
            shared / "models" / model,
            ls.Task.load(shared / "data" / task, task=task),
            plan,
            seed=SEEDS,
            examples=EXAMPLES,
            epochs=EPOCHS,
            trunk_dropout=trunk_dropout,
            progress=False,
        )
        results.append(found.content)
        print(model, task, plan, trunk_dropout, found.content["best"], file=sys.stderr, flush=True)
    row = [model, task, plan, results[0]["metric"].replace("_", " ")]
    for which in ("best", "last"):
        cached, dropped = ([run[which]["value"] for run in one["runs"]] for one in results)
        row += [interval(cached), interval(dropped)]
        row.append(interval([a - b for a, b in zip(cached, dropped, strict=True)]))
    seconds = [one["seconds"]["trunk"] + one["seconds"]["train"] for one in results]
    return [*row, f"{seconds[1] / seconds[0]:.1f}"]


def main() -> None:
    logging.set_verbosity_error()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    columns = ["model", "task", "plan", "metric"]
    for which in ("best", "last"):
        columns += [f"{which} epoch, cached", f"{which}, trunk dropout", f"{which}, difference"]
    with tempfile.TemporaryDirectory() as folder:
        environ["LAYERSCOUT_CACHE"] = folder
        rows = [compared(arguments.shared, *case) for case in CASES]
    page = f"""# Does a trunk without dropout change the result?

No difference was seen. The trunk, all that lies below the tuned blocks, runs once, in eval mode;
the papers ran it at every step, with dropout (`--trunk-dropout`). Each plan was tuned both ways
with the same {len(SEEDS)} seeds: {EXAMPLES:,} training examples, {EPOCHS} epochs, all else as
`layerscout tune` has it. Means over the seeds with 95 % t-intervals; the difference is paired by
seed, cached minus dropout.

{table([*columns, "times faster"], rows)}

{machine()}

`make study` measures this again.
"""
    print(page)
    if arguments.write:
        arguments.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
