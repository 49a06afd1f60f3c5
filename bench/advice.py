"""Write the board of advice: what following each adviser lost, from the records of its trials.

    python bench/advice.py --write docs/measured/advice.md

The records are those of `layerscout study advice`; `bench/advice/trials` holds the ones of the
page. To make more of them, run the study into `bench/advice`: it goes on from what lies there.

    python bench/advice.py --emotions go_emotions emotions27

makes the task of many classes: the rows of GoEmotions with one label that is not neutral.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import altair as alt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layerscout.data import METRICS
from layerscout.pages.plotting import save_chart
from layerscout.studies.regrets import (
    AUTO,
    BUDGETS,
    ELSEWHERE,
    RULES,
    CellRecord,
    Pair,
    collect_pairs,
    tabulate_regrets,
)

COMMAND = "python bench/advice.py --write docs/measured/advice.md"
TRIALS = Path(__file__).parent / "advice" / "trials"
SHOWN = 0.5  # the budget of the picture, which is the default of `auto`


def read_records(folder: Path) -> tuple[list[CellRecord], list[CellRecord]]:
    """Give what was tuned and what was scanned."""
    tuned: list[CellRecord] = []
    scanned: list[CellRecord] = []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        values = {"model": record["models"][0], "task": record["task"]}
        cell = {"values": values | {"seed": record["arguments"].get("seed", 0)}}
        (tuned if record["verb"] == "tune" else scanned).append((cell, record))
    return tuned, scanned


def read_interval(cell: str) -> tuple[float, float, float] | None:
    """Read what a cell of the table says."""
    found = re.fullmatch(r"(\S+) \((\S+) to (\S+)\)", cell)
    return None if found is None else (float(found[1]), float(found[2]), float(found[3]))


def draw(rows: list[list[str]], path: Path) -> None:
    """Draw the points lost at one budget with their intervals."""
    column = 1 + BUDGETS.index(SHOWN)
    values = [
        {"adviser": row[0], "lost": lost[0], "low": lost[1], "high": lost[2]}
        for row in rows
        if (lost := read_interval(row[column])) is not None
    ]
    base = alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y("adviser:N", sort=alt.EncodingSortField("lost"), title=None)
    )
    title = f"points lost against the best plan at {SHOWN:.0%} of full fine-tuning"
    bars = base.mark_rule().encode(x=alt.X("low:Q", title=title), x2="high:Q")
    points = base.mark_point(filled=True, size=60).encode(x="lost:Q")
    save_chart((bars + points).properties(width=420), path)


def list_pairs(pairs: Sequence[Pair]) -> tuple[list[list[str]], list[float]]:
    """List what `auto`, the top and full fine-tuning reached, and the first less the last.

    The metric is that of all validation examples, averaged over the seeds, in points.
    """
    rows, gaps = [], []
    for pair in sorted(pairs, key=lambda pair: pair.name):
        classes, metric = int(pair.labels.max()) + 1, METRICS[pair.metric]
        reached = [
            100
            * np.mean([metric(pair.labels, found, classes) for found in plan.predictions.values()])
            for plan in pair.plans
        ]
        states = {seed: pair.best[AUTO][seed] or pair.blocks for seed in pair.seeds()}
        plans = [pair.choose(state, SHOWN - pair.scan_share) for state in states.values()]
        top = pair.choose(RULES["the top"](pair.blocks), SHOWN)
        full = max(range(len(pair.plans)), key=lambda i: pair.plans[i].share)
        assert top is not None
        own = float(np.mean([reached[i] for i in plans if i is not None]))
        heads = ", ".join(str(state) for state in dict.fromkeys(states.values()))
        gaps.append(own - reached[full])
        told = [f"{value:.1f}" for value in (own, reached[top], reached[full])]
        rows.append([*pair.name, pair.metric.replace("_", " "), heads, *told])
    return rows, gaps


def make_emotions(source: Path, target: Path) -> None:
    """Write the rows of GoEmotions that have one label, which is not neutral."""
    target.mkdir(parents=True, exist_ok=True)
    for split in ("train", "validation"):
        rows = [
            {"text": row["text"], "label": row["labels"][0]}
            for row in pq.read_table(source / f"{split}.parquet").to_pylist()
            if len(row["labels"]) == 1 and row["labels"] != ["neutral"]
        ]
        pq.write_table(pa.Table.from_pylist(rows), target / f"{split}.parquet")


def write_page(rows: list[list[str]], columns: list[str], pairs: Sequence[Pair]) -> str:
    """Write the page."""
    lost = {row[0]: row[1 + BUDGETS.index(SHOWN)] for row in rows}
    tasks: dict[str, list[str]] = {}
    for model, task in sorted(pair.name for pair in pairs):
        tasks.setdefault(model, []).append(task)
    listed = "; ".join(f"{model}: {', '.join(some)}" for model, some in tasks.items())
    table = "\n".join(f"| {' | '.join(row)} |" for row in [columns, ["---"] * len(columns), *rows])
    counts = sorted({len(pair.plans) for pair in pairs})
    parts = [
        f"""Written by `{COMMAND}`, from the records in `bench/advice/trials`.""",
        f"""{" or ".join(map(str, counts))} plans of different depth and width were tuned on 640
        examples for three epochs, with two seeds, on {len(pairs)} pairs of a model and a task
        ({listed}). An adviser names a state; its plan is the one within the budget whose head is
        nearest to that state, and of those the widest. A point of regret is a point of the task's
        metric that this plan is behind the best plan of the grid. The scan that an adviser needs
        counts towards the budget. The best plan is chosen on one half of the validation examples
        and one seed, and both are judged on the other half and the other seed. The intervals (95 %)
        hold the chance of pairs, examples and seeds.""",
        f"""**What `auto` does.** It puts the head at two thirds of the depth; or above, at a state
        where a cross-fitted head reads more, if a scan tells that apart. It scans if that takes no
        more than a quarter of the budget. At half
        of full fine-tuning that lost {lost["auto"]} points, the best state by `head_quality`
        {lost["held-out quality of a head"]}, by the debiased ν
        {lost["debiased variability ratio ν"]}, by the published ν {lost["variability ratio ν"]},
        the top {lost["the top"]}, the middle {lost["the middle"]} and a random plan
        {lost["any plan"]}.""",
        f"""**Why not the best state by a score.** Two thirds of the depth, a rule that looks at no
        example, lost {lost["two thirds"]}: no score lost less, and with less to spend a scan takes
        too much of the budget. So the rule is the default. What a head reads below two thirds does
        not move it: scores that point further down lost by that. No pair has a state above that a
        scan told apart, so they say nothing of the second half of the rule, which is for tasks such
        as those with many classes. `auto` was made when most of these pairs had been seen;
        "{ELSEWHERE}" was not: for each pair it follows the adviser that lost the
        fewest points on other models and other tasks, and it lost {lost[ELSEWHERE]}. With so few
        pairs the intervals are several points wide. A task of many classes is not among them, nor
        is a decoder.""",
        """**What else was seen.** MiniLM on CoLA stays at chance with nearly every plan, so that
        pair tells no adviser from another. A head by itself does the same on models whose states
        were averaged when they were trained: the tables of `layerscout study advice` show the
        quality of every plan.""",
    ]
    made, what, auto, limits, more = (fill(" ".join(part.split()), 108) for part in parts)
    picture = f"![points lost at {SHOWN:.0%} of full fine-tuning](advice.svg)"
    return (
        "\n\n".join(
            ["# Whose advice to follow", made, what, picture, table, auto, limits, more, ""]
        ).rstrip("\n")
        + "\n"
    )


def main() -> None:
    """Read the records, and write the page and its picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, required=True, help="the page")
    path = parser.parse_args().write
    tuned, scanned = read_records(TRIALS)
    found = tabulate_regrets(tuned, scanned)
    rows = [list(map(str, row)) for row in found.rows]
    pairs = collect_pairs(tuned, scanned)
    draw(rows, path.with_suffix(".svg"))
    path.write_text(write_page(rows, list(map(str, found.columns)), pairs))


if __name__ == "__main__":
    main()
