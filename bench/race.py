"""Set a race of plans against the plan of `auto`: the same budget, examples, epochs and seeds.

    python bench/race.py --model all-MiniLM-L6-v2 --data glue --write docs/measured/race.md

Results are kept beside this file, one line each; those that are there are not computed again.
"""

import argparse
import json
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from textwrap import fill

from scipy.special import stdtrit

import layerscout as ls
from layerscout.data.sampling import hold_out

KEPT = Path(__file__).with_suffix(".jsonl")
TASKS = ("cola", "sst2", "wic", "mrpc", "mnli")
SEEDS = (0, 1)
WAYS = ("auto", "race")
# As the trials of docs/measured/advice.md, so that both can be read side by side.
EXAMPLES, EPOCHS, BATCH, BUDGET = 640, 3, 8, 0.5
# MNLI has 9,815 validation examples, which take longer than the tuning.
MOST_VALIDATION = 1100


def measure(model: str, data: Path, task: str, seed: int, way: str) -> dict[str, object]:
    """Tune once, and give what it came to."""
    loaded = ls.Task.load(data / task, task=task)
    if loaded.validation is not None and len(loaded.validation) > MOST_VALIDATION:
        share = MOST_VALIDATION / len(loaded.validation)
        loaded = replace(loaded, validation=hold_out(loaded.validation, share, seed)[1])
    result = ls.tune(
        model,
        loaded,
        way,
        budget=BUDGET,
        examples=EXAMPLES,
        epochs=EPOCHS,
        batch_size=BATCH,
        seed=seed,
        keep="last",
        measure="predictions",
        progress=False,
    )
    content = result.content
    flops, metric = content["flops"], content["metric"]
    return {
        "model": Path(model).name,
        "task": task,
        "seed": seed,
        "way": way,
        "metric": metric,
        "value": content["metrics"][metric],
        "plan": content["plan"]["notation"],
        "share": flops["train"] / flops["full_train"],
    }


def write_page(found: list[dict[str, object]]) -> str:
    """Write what was measured, by task, and the mean difference with its interval."""
    by_key = {(r["model"], r["task"], r["seed"], r["way"]): r for r in found}
    rows, gaps = [], []
    for model, task in dict.fromkeys((r["model"], r["task"]) for r in found):
        cells = {}
        for way in WAYS:
            some = [r for seed in SEEDS if (r := by_key.get((model, task, seed, way)))]
            cells[way] = 100 * mean(float(str(r["value"])) for r in some)
            rows.append(
                f"| {model} | {task} | {way} | {cells[way]:.1f} | "
                f"{', '.join(str(r['plan']) for r in some)} | "
                f"{mean(float(str(r['share'])) for r in some):.0%} |"
            )
        gaps.append(cells["race"] - cells["auto"])
    half = float(stdtrit(len(gaps) - 1, 0.975)) * stdev(gaps) / sqrt(len(gaps))
    text = f"""A race tries two or three plans for an epoch and finishes one, within the same budget
    ({BUDGET:.0%} of full fine-tuning, the scan included) as the plan of `auto`, which is trained
    alone. {EXAMPLES}
    examples, {EPOCHS} epochs, batches of {BATCH}, seeds {" and ".join(map(str, SEEDS))}; the metric
    is that of the last epoch, in points. Over {len(gaps)} pairs of a model and a task, the race
    differed by {mean(gaps):+.1f} ± {half:.1f} points from `auto` (95 %, Student's t over the
    pairs). The budget that it spends on trying plans is missing for tuning blocks, and the result
    after one epoch says little about the final one. So `auto` does not race; `layerscout tune
    --plan race` does. The cost is that of the training; the scan takes some 8 % on top. On the six
    blocks of all-MiniLM-L6-v2, this budget is too small for a race and its scan, so it is
    refused."""
    head = ["| model | task | plan | points | plans that were kept | cost |", "|" + "---|" * 6]
    command = "python bench/race.py --model MODEL --data FOLDER --write docs/measured/race.md"
    lines = [
        "# A race of plans",
        "",
        f"Written by `{command}`, from the records in",
        "`bench/race.jsonl`.",
    ]
    return "\n".join([*lines, "", fill(" ".join(text.split()), 108), "", *head, *rows, ""])


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="to measure; the records alone without it")
    parser.add_argument("--data", type=Path, help="a folder with a folder of each task")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, help="all unless given")
    parser.add_argument("--write", type=Path, help="the page")
    asked = parser.parse_args()
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    found = [json.loads(line) for line in lines]
    known = {(r["model"], r["task"], r["seed"], r["way"]) for r in found}
    if asked.model is not None:
        for task in asked.tasks or TASKS:
            for seed in SEEDS:
                for way in WAYS:
                    if (Path(asked.model).name, task, seed, way) in known:
                        continue
                    found.append(measure(asked.model, asked.data, task, seed, way))
                    with KEPT.open("a") as kept:
                        kept.write(json.dumps(found[-1]) + "\n")
    if asked.write is not None:
        asked.write.write_text(write_page(found))


if __name__ == "__main__":
    main()
