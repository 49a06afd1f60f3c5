"""Write the board of advice: what following each adviser lost, from the records of its trials.

    python bench/advice.py --write docs/measured/advice.md

The records are those of `layerscout study bench/advice/recipe.yaml`; `bench/advice/trials` holds
the ones of the page. To make more of them, run the study into `bench/advice`: it goes on from what
lies there.

    python bench/advice.py --emotions go_emotions emotions27

makes the task of many classes: the rows of GoEmotions with one label that is not neutral.
"""

import argparse
import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill

import altair as alt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layerscout.data import evaluate_groups
from layerscout.reporting import save_chart
from regrets import (
    AUTO,
    BUDGETS,
    ELSEWHERE,
    CellRecord,
    Pair,
    collect_pairs,
    tabulate_regrets,
)

TOP = "the top"
MANY = "emotions27"  # the task of many classes
BASE = "sentence-transformers/all-mpnet-base-v2"
COMMAND = "python bench/advice.py --write docs/measured/advice.md"
TRIALS = Path(__file__).parent / "advice" / "trials"
SHOWN = 0.5  # the budget of the picture, which is the default of `auto`


def read_records(folder: Path) -> tuple[list[CellRecord], list[CellRecord]]:
    """Return what was tuned and what was scanned."""
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


def draw(rows: Sequence[Sequence[str]], path: Path) -> None:
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


def came_after(name: tuple[str, str]) -> bool:
    """Say whether a pair was measured after the rule of `auto` was made."""
    return name[1] == MANY or name in ((BASE, "mnli"), (BASE, "mrpc"))


def list_pairs(pairs: Sequence[Pair]) -> tuple[list[list[str]], list[float]]:
    """List what `auto`, the top and full fine-tuning reached, and the first less the last.

    The metric is that of all validation examples, averaged over the seeds, in points.
    """
    rows, gaps = [], []
    for pair in sorted(pairs, key=lambda pair: pair.name):
        everything = np.zeros(len(pair.labels), np.int64)
        metric = partial(evaluate_groups, pair.metric, pair.labels)
        reached = [
            100
            * np.mean(
                [
                    metric(found, classes=pair.classes, groups=everything)
                    for found in plan.predictions.values()
                ]
            )
            for plan in pair.plans
        ]
        plans = [plan for seed in pair.seeds() for plan in pair.advise(AUTO, SHOWN, seed)]
        top = pair.advise(TOP, SHOWN, pair.seeds()[0])
        full = max(range(len(pair.plans)), key=lambda i: pair.plans[i].share)
        own = float(np.mean([reached[i] for i in plans]))
        heads = ", ".join(str(head) for head in dict.fromkeys(pair.plans[i].head for i in plans))
        gaps.append(own - reached[full])
        told = [f"{value:.1f}" for value in (own, reached[top[0]], reached[full])]
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


def write_page(
    found: Mapping[str, Sequence[str]],
    after: str,
    columns: Sequence[str],
    pairs: Sequence[Pair],
    tuned: Sequence[CellRecord],
) -> str:
    """Write the page.

    Args:
        found: a row of the table by its adviser.
        after: what `auto` lost at `SHOWN` on pairs that came after its rule.
        columns: of the table.
        pairs: that were judged.
        tuned: all records of tuning.
    """

    def reached_by(plan: str) -> str:
        values = [
            f"{100 * record['result']['last']['value']:.1f}"
            for cell, record in tuned
            if (cell["values"]["model"], cell["values"]["task"]) == (BASE, MANY)
            and record["result"]["plan"]["notation"] == plan
        ]
        return " and ".join(values)

    later = [pair.name for pair in pairs if came_after(pair.name)]
    lost = {name: row[1 + BUDGETS.index(SHOWN)] for name, row in found.items()}
    tasks: dict[str, list[str]] = {}
    for model, task in sorted(pair.name for pair in pairs):
        tasks.setdefault(model, []).append(task)
    listed = "; ".join(f"{model}: {', '.join(some)}" for model, some in tasks.items())
    reached, gaps = list_pairs(pairs)
    counts = sorted({len(pair.plans) for pair in pairs})
    as_good = sum(gap >= -0.5 for gap in gaps)
    parts = [
        f"""Written by `{COMMAND}`, from the records in `bench/advice/trials`.""",
        f"""{counts[0]} to {counts[-1]} plans of different depth and width were tuned on 640
        examples ({MANY}: 1,000) for three epochs, with two seeds, on {len(pairs)} pairs of a model
        and a task ({listed}; {MANY} is the part of GoEmotions with one label that is not neutral).
        An adviser names a state; its plan is the one within the budget whose head is nearest to
        that state, and of those the widest. Regret is the number of points of the task's metric by
        which this plan is behind the best plan of the grid. The scan that an adviser needs counts
        towards the budget. The best plan is chosen on one half of the validation examples and one
        seed, and both plans are judged on the other half and the other seed, over many splits into
        halves, so a regret may be below 0. The intervals (95 %) are bootstraps over tasks, pairs
        and examples; since six tasks are few, they are probably a little too narrow.""",
        f"""**What `auto` does.** It puts the head at two thirds of the depth, or above, at a state
        where a cross-fitted head is better beyond noise, if a scan shows one. It scans if that
        takes no more than a quarter of the budget. At half of full fine-tuning, `auto` lost
        {lost["auto"]} points, two thirds alone {lost["two thirds"]}, the top {lost[TOP]}, the
        middle {lost["the middle"]}, the best state by `head_quality`
        {lost["held-out quality of a head"]}, by the debiased ν
        {lost["debiased variability ratio ν"]}, by the published ν {lost["variability ratio ν"]},
        by LOES {lost["LOES"]}, and a random plan {lost["any plan"]}. It was at least as good as
        full fine-tuning, within 0.5 points, on {as_good} of {len(pairs)} pairs, and
        {np.mean(gaps):+.1f} points from it on average. With a budget of three quarters, the top
        lost the fewest points, {found[TOP][1 + BUDGETS.index(0.75)]}.""",
        f"""**Why not the best state by a score.** No score lost fewer points than two thirds of the
        depth, a rule that looks at no example, and with a smaller budget a scan takes too much of
        it. A better head below two thirds does not change the rule: scores that point further down
        lost points by that, most of all on 27 classes, where a head on the frozen states is best
        near the bottom. The rule was made from the first thirteen pairs. On those that came
        after ({", ".join(" × ".join(name) for name in sorted(later))}) it lost {after}.
        "{ELSEWHERE}" is judged on pairs that it was not fitted to: for each pair it follows the
        adviser that lost the fewest points on other models and other tasks. It lost
        {lost[ELSEWHERE]}.""",
        f"""**Where it fails.** With {MANY} the two small models were better with the head at the
        top, from a budget of a quarter of full fine-tuning on; all-mpnet-base-v2, whose grid is not
        complete there, was better near two thirds: (5, 9, 9) reached {reached_by("(5, 9, 9)")}
        points, (9, 12, 12) {reached_by("(9, 12, 12)")}, one figure per seed. A rule by the number
        of classes was tried and dropped: it would have been based on the small models alone. None
        of these models is a decoder.""",
        """**What else was seen.** MiniLM on CoLA stays at chance with nearly every plan, so that
        pair does not distinguish the advisers. The same happens when only the head is tuned on
        models that were trained on averaged states. Some plans with an early head end at chance
        with one seed and far above with the other. No pair has a state above two thirds that a scan
        showed to be better, so they do not test that part of the rule.""",
        """**What was tried instead.** A race trained two or three plans for an epoch and finished
        one, within the same budget as the plan of `auto`, its scan included. Over six pairs it
        differed by -5.8 ± 9.8 points from `auto` (95 %): what it spent on trying was missing for
        tuning blocks, and one epoch says little about the last. On six blocks a budget of half of
        full fine-tuning was too small for it. It was removed.""",
    ]
    made, what, auto, limits, fails, more, tried = (
        fill(" ".join(part.split()), 108) for part in parts
    )
    picture = f"![points lost at {SHOWN:.0%} of full fine-tuning](advice.svg)"
    headings = ["model", "task", "metric", "head", "`auto`", "the top", "full"]
    by_pair = f"At {SHOWN:.0%} of full fine-tuning, on all validation examples, mean of two seeds:"
    sections = [
        "# Whose advice to follow",
        *(made, what, picture, make_table(columns, found.values()), auto, limits),
        *(fails, more, tried),
        *(by_pair, make_table(headings, reached)),
    ]
    return "\n\n".join(sections) + "\n"


def make_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a table of Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Read the records, and write the page and its picture; or write the task of many classes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="the page")
    parser.add_argument("--emotions", type=Path, nargs=2, help="GoEmotions, and where to write")
    asked = parser.parse_args()
    if asked.emotions is not None:
        make_emotions(*asked.emotions)
    if asked.write is None:
        return
    tuned, scanned = read_records(TRIALS)
    pairs = [pair for pair in collect_pairs(tuned, scanned) if AUTO in pair.best]

    def tabulate(names: Container[tuple[str, str]]) -> tuple[list[str], dict[str, list[str]]]:
        some = [
            [
                cell
                for cell in cells
                if (cell[0]["values"]["model"], cell[0]["values"]["task"]) in names
            ]
            for cells in (tuned, scanned)
        ]
        table = tabulate_regrets(*some)
        return list(map(str, table.columns)), {str(r[0]): list(map(str, r)) for r in table.rows}

    whole = {pair.name for pair in pairs}
    columns, found = tabulate(whole)
    _, of_later = tabulate({name for name in whole if came_after(name)})
    draw(list(found.values()), asked.write.with_suffix(".svg"))
    after = of_later[AUTO][1 + BUDGETS.index(SHOWN)]
    asked.write.write_text(write_page(found, after, columns, pairs, tuned))


if __name__ == "__main__":
    main()
