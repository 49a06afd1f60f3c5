"""Judge who advises best where a head reads and which blocks are tuned, on the board's rows.

    python bench/board_advice.py --write docs/measured/advice.md

writes the page, its picture beside it, and `bench/board/advice.csv`, from board_scan.py's lines,
the board's records, and what is kept of two former benchmarks: `random_starts.jsonl`, plans trained
from random heads on 640 rows (1,000 of emotions27), and `starts.csv`, the same plans from both
starts.

An adviser names a state; its plan is the one whose head is nearest to it, and of those the widest.
Its regret is how far that plan is behind the best one, which is chosen on other rows, and from
random heads with another seed, so that a regret may be below 0.
"""

import argparse
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from board import AUTO, FREE, HERE, LOSSES, MINILM, MPNET, PLANS, RECORDS
from board_scan import NAMED, SCANS, Cell, halve
from layerscout.plans import choose_head_state
from layerscout.reporting import save_chart
from layerscout.scores import name_score
from measuring import estimate, read_records, spread
from writing import read_rows, table, write_rows

OLD, STARTS, TABLE = (HERE / name for name in ("random_starts.jsonl", "starts.csv", "advice.csv"))
ANY, ELSEWHERE, TOP, THIRDS = "any of them", "the best elsewhere", "the top", "two thirds"
RULES: Mapping[str, Callable[[int], int]] = {
    TOP: lambda blocks: blocks,
    THIRDS: choose_head_state,
    "the middle": lambda blocks: blocks // 2,
}
BUDGET = 0.5  # of full fine-tuning's FLOPs, from random heads; a scan counts towards it
# Plans of the board by the share of the blocks; the first is what `auto` trains with few rows.
KINDS: Mapping[str, Mapping[str, str]] = {
    "upper two thirds": {MINILM: "(3,6,6)", MPNET: "(5,12,12)"},
    "upper third": {MINILM: "(5,6,6)", MPNET: "(9,12,12)"},
    "two blocks below two thirds": {MINILM: "(3,4,4)", MPNET: "(7,8,8)"},
    "all blocks": {MINILM: "(1,6,6)"},
}
RULE = f"contrastive, {next(iter(KINDS))}"


@dataclass(frozen=True, eq=False)
class Grid:
    """What some models reached on a task, and which of them each adviser leads to.

    Attributes:
        model: all of them begin with.
        task: they were made for.
        values: of each model on parts of the test rows (and with seeds), (V, P). What is chosen on
            part v is judged on part V - 1 - v, with which it shares nothing.
        advised: the number of a model by adviser, for each part.
    """

    model: str
    task: str
    values: np.ndarray
    advised: Mapping[str, Sequence[int]]

    def lose(self, adviser: str) -> float:
        """Return how far what an adviser leads to is behind the best, in points."""
        judged, parts = self.values[::-1], np.arange(len(self.values))
        best = judged[parts, self.values.argmax(axis=1)]
        own = judged.mean(axis=1) if adviser == ANY else judged[parts, self.advised[adviser]]
        return 100 * float(np.mean(best - own))


Plans = Sequence[tuple[int, int]]  # the head of each, and how many blocks it tunes


def follow(plans: Plans, state: int) -> int:
    """Return which plan is nearest to a state."""
    return min(range(len(plans)), key=lambda p: (abs(plans[p][0] - state), -plans[p][1]))


def advise(plans: Plans, states: Mapping[str, int | None], blocks: int) -> dict[str, list[int]]:
    """Return which plan each adviser leads to, in both halves; the top where it names no state."""
    named = {**states, **{name: rule(blocks) for name, rule in RULES.items()}}
    return {name: [follow(plans, state or blocks)] * 2 for name, state in named.items()}


def read_solved() -> Iterator[Grid]:
    """Return the heads that are solved on each state, cell by cell."""
    chosen = {cell: own[FREE].get("plan") for cell, own in read_board().items() if FREE in own}
    for line in read_records(SCANS):
        cell, states, values = tuple(line["cell"]), line["states"], np.array(line["values"])
        plans = [(state + 1, 0) for state in range(values.shape[1])]
        if free := chosen.get(cell):
            states[FREE] = int(free.removeprefix("head:"))
        yield Grid(*cell[:2], values, advise(plans, states, len(plans)))


def read_board() -> dict[Cell, dict[str, Mapping[str, Any]]]:
    """Return the record of each contender, by cell."""
    found: dict[Cell, dict[str, Mapping[str, Any]]] = {}
    for one in read_records(RECORDS):
        cell = one["model"], one["task"], one["size"], one["draw"]
        found.setdefault(cell, {})[one["contender"]] = one
    return found


def judge(records: Iterable[Mapping[str, Any]]) -> np.ndarray:
    """Return how often each is right on each half of the test rows, (2, P)."""
    letters = [[[*one[name]] for name in ("truth", "predictions")] for one in records]
    both = np.array(letters)
    return halve(both[:, 0] == both[:, 1])


def read_trained(loss: str) -> Iterator[Grid]:
    """Return the plans that were trained with a loss, of each cell with two or more heads."""
    scans = {tuple(line["cell"]): line for line in read_records(SCANS)}
    for cell, contenders in read_board().items():
        # All blocks were trained with other settings, and for few of the cells.
        named = [f"{loss} {plan}" for plan in PLANS[cell[0]]]
        names = [name for name in named if name in contenders]
        bounds = [[int(one) for one in name.split("(")[1][:-1].split(",")] for name in names]
        plans = [(head, top - bottom + 1) for bottom, top, head in bounds]
        if cell in scans and len({head for head, _ in plans}) > 1:
            states, blocks = scans[cell]["states"], len(scans[cell]["values"][0])
            values = judge(contenders[name] for name in names)
            yield Grid(*cell[:2], values, advise(plans, states, blocks))


def read_random() -> Iterator[Grid]:
    """Return the plans that were trained from random heads; parts are halves with each seed."""
    for line in read_records(OLD):
        heads, tuned, shares, values = zip(*line["plans"], strict=True)
        plans, left = [*zip(heads, tuned, strict=True)], BUDGET - line["scan"]
        beside = [
            p if share <= left else (10**6, 0) for p, share in zip(plans, shares, strict=True)
        ]
        blocks = line["blocks"]
        advised = {
            name: [follow(beside, state or blocks) for state in states for _ in range(2)]
            for name, states in line["states"].items()
        }
        advised |= {name: [follow(plans, rule(blocks))] * 4 for name, rule in RULES.items()}
        yield Grid(line["model"], line["task"], np.array(values).T, advised)


def read_rules() -> Iterator[Grid]:
    """Return what was trained in each cell with plans, by the share of blocks and the loss."""
    for (model, task, *_), contenders in read_board().items():
        kinds = {
            f"{loss}, {kind}": f"{loss} {own[model]}"
            for loss, (kind, own) in product(LOSSES, KINDS.items())
            if model in own
        }
        names = [k for k, name in {**kinds, FREE: FREE, AUTO: AUTO}.items() if name in contenders]
        if RULE in names:
            values = judge(contenders[kinds.get(kind, kind)] for kind in names)
            yield Grid(model, task, values, {kind: [p] * 2 for p, kind in enumerate(names)})


def average(grids: Iterable[Grid], lose: Callable[[Grid], float]) -> list[float]:
    """Average a figure of grids by task."""
    by_task: dict[str, list[float]] = {}
    for grid in grids:
        by_task.setdefault(grid.task, []).append(lose(grid))
    return [float(np.mean(own)) for own in by_task.values()]


def choose_elsewhere(grids: Sequence[Grid], grid: Grid) -> str | None:
    """Return who lost the least with other models on other tasks, of those that are known here."""
    others = [one for one in grids if one.model != grid.model and one.task != grid.task]
    known = [
        name
        for name in grid.advised
        if name not in (AUTO, NAMED) and others and all(name in one.advised for one in others)
    ]
    return min(known, key=lambda name: np.mean([g.lose(name) for g in others]), default=None)


def find_regrets(grids: Sequence[Grid]) -> dict[str, tuple[list[float], int]]:
    """Return what each adviser lost by task, and in how many cells."""
    found = {}
    for name in dict.fromkeys(name for grid in grids for name in (*grid.advised, ANY)):
        own = [grid for grid in grids if name in grid.advised or name == ANY]
        found[name] = average(own, lambda grid, name=name: grid.lose(name)), len(own)
    chosen = {id(grid): name for grid in grids if (name := choose_elsewhere(grids, grid))}
    own = [grid for grid in grids if id(grid) in chosen]
    if own:
        found[ELSEWHERE] = average(own, lambda grid: grid.lose(chosen[id(grid)])), len(own)
    return found


# --- The page ------------------------------------------------------------------------------------

NU = "variability_ratio"
SHOWN = (FREE, "head_quality", "codelength", "variability_ratio_debiased", NU, NAMED, THIRDS, TOP)

PAGE = """\
# Whose advice to follow

Which state should a head read, and where should blocks be tuned? An adviser names a state: a score
its best one, a rule one by the depth. These points are lost by following it, against the best of
what was made, chosen on other rows; ± is the half width of a 95 % t-interval over tasks.

{losses}

{lines}

![points lost by adviser, a panel for each question](advice.svg)

`python bench/board_advice.py --write docs/measured/advice.md` writes this from the board's records,
its scans (`bench/board_scan.py` adds what is missing) and two older benchmarks; every adviser is in
{table}.
The few plans of the board (two or three of MiniLM, four of mpnet-base) were trained from solved
heads for 40 steps, contrasts at half the rate that they have now. From random heads there are 11 to
16 plans, trained on 640 rows for three epochs with two seeds, within half of full fine-tuning's
FLOPs, to which a scan counts. The best elsewhere is chosen for each cell by what it lost with other
models on other tasks. The online code length is not computed any more: it took a fit for every
doubling of the rows, and was nowhere clearly ahead of what is followed by default.
"""


def write(path: Path) -> None:
    """Write the page, its picture and the table."""
    # And what is followed there by default.
    questions = {
        "reading a solved head": (FREE, [*read_solved()]),
        "tuning by contrast, few rows": (TOP, [*read_trained("contrastive")]),
        "tuning by cross-entropy, few rows": (TOP, [*read_trained("cross-entropy")]),
        "tuning from a random head": (THIRDS, [*read_random()]),
    }
    found = {question: find_regrets(grids) for question, (_, grids) in questions.items()}
    rules = [*read_rules()]
    rows = [
        [question, name_score(name), *(f"{one:.2f}" for one in estimate(lost)), len(lost), cells]
        for question, by_name in {**found, "choosing a training": find_regrets(rules)}.items()
        for name, (lost, cells) in by_name.items()
    ]
    columns = ["question", "adviser", "points lost", "±", "tasks", "cells"]
    draw([row for row in rows if row[0] in found], path.with_suffix(".svg"))
    losses = [
        [name_score(name), *(spread(own[name][0]) if name in own else "" for own in found.values())]
        for name in (*SHOWN, ANY, ELSEWHERE)
    ]
    counts = [
        f"{question}: {len(grids)} cells, {len({grid.task for grid in grids})} tasks"
        for question, (_, grids) in questions.items()
    ]
    lines = [compare(questions), name_better(questions), tell_rules(rules), tell_starts()]
    text = PAGE.format(
        losses=table(["points lost", *counts], losses),
        lines="\n".join(fill(line) for line in lines),
        table=write_rows(TABLE, columns, rows),
    )
    path.write_text(text, "utf-8")


Questions = Mapping[str, tuple[str, Sequence[Grid]]]


def find_gaps(grids: Sequence[Grid], one: str, other: str) -> list[float]:
    """Return by task how much more one adviser loses than another, where both are known."""
    both = [grid for grid in grids if {one, other} <= grid.advised.keys()]
    return average(both, lambda grid: grid.lose(one) - grid.lose(other))


def compare(questions: Questions) -> str:
    """Say whether ν loses less than two thirds of the depth."""
    told = [f"{name} {spread(find_gaps(own, NU, THIRDS))}" for name, (_, own) in questions.items()]
    return f"- **Does ν lose less than two thirds?** It loses more by: {', '.join(told)}"


def name_better(questions: Questions) -> str:
    """Name who clearly loses less than what is followed by default."""
    told = []
    for question, (used, grids) in questions.items():
        gaps = {name: find_gaps(grids, name, used) for name in grids[0].advised}
        less = [
            f"{name_score(name)} {spread(own)}"
            for name, own in gaps.items()
            if own and sum(estimate(own)) < 0
        ]
        told.append(f"{question} (by default {used}): {', '.join(less) or 'none'}")
    return f"- **Who clearly loses less than what is followed by default?** {'; '.join(told)}"


def tell_rules(grids: Sequence[Grid]) -> str:
    """Say what the rule of `auto` loses, against all that was trained in the same cells."""
    found = find_regrets(grids)
    names = [name for name in (RULE, AUTO, ELSEWHERE, FREE, ANY) if name in found]
    told = ", ".join(f"{name} {spread(found[name][0])} ({found[name][1]})" for name in names)
    return f"- **What does `auto` lose from few rows**, and in how many cells? {told}"


def tell_starts() -> str:
    """Say what the start gains, and what is gained by what is read, where plan and steps are."""
    rows = [row for row in read_rows(STARTS) if row["task"] != "cola" and row["steps"] == "100"]
    told, drawn = [], []
    for head in ("mean-linear", "family"):
        own = [row for row in rows if row["head"] == head]
        for column, how in (("soft", "in part"), ("solved", "wholly")):
            gains = [float(row[column]) - float(row["random"]) for row in own if row[column]]
            told.append(f"{head}, {how} {spread(gains)} ({len(gains)} cells)")
        drawn.append(np.array([float(row["random"]) for row in own]))
    return (
        "- **Which half is the start?** The same plan and steps gain, with a head solved instead "
        f"of drawn: {', '.join(told)}. A drawn head on the mean instead of the family's: "
        f"{spread(drawn[0] - drawn[1])} (± over cells, without CoLA)"
    )


def fill(line: str) -> str:
    return textwrap.fill(f"{line}.", 100, subsequent_indent="  ")


def draw(rows: Sequence[Sequence[str | int]], path: Path) -> None:
    """Draw what each adviser lost, a panel for each question."""
    values = [
        {"where": where, "adviser": name, "lost": float(lost), "half": float(half)}
        for where, name, lost, half, *_ in rows
    ]
    ends = {"low": "datum.lost - datum.half", "high": "datum.lost + datum.half"}
    base = alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y("adviser:N", sort=alt.EncodingSortField("lost", op="mean"), title=None)
    )
    lines = (
        base.transform_calculate(**ends)
        .mark_rule(clip=True)
        .encode(
            x=alt.X("low:Q", title="points lost", scale=alt.Scale(domain=[-5, 20])), x2="high:Q"
        )
    )
    layers = lines + base.mark_point(filled=True, size=50).encode(x="lost:Q")
    save_chart(layers.properties(width=190).facet("where:N", columns=4), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", type=Path, required=True)
    write(parser.parse_args().write)


if __name__ == "__main__":
    main()
