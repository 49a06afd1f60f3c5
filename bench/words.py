"""Judge the advice on words and on several labels, from what was tuned and scanned.

    python bench/words.py --write docs/measured/words.md

`bench/words/trials` are the records of `layerscout study bench/words/recipe.yaml`, six hours of one
core.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

import layerscout as ls
from layerscout.data import Tags
from layerscout.data.words import count_spans
from layerscout.reporting import save_chart
from layerscout.scanning import name_head
from layerscout.scores import DEFAULT, Score
from measuring import given, options
from writing import table, write_rows

HERE = Path(__file__).parent / "words"
PLANS, RATES, ORDERS = (HERE / f"{name}.csv" for name in ("plans", "rates", "orders"))
TASKS = ("sst2", "rte", "go_emotions", "wnut17")
BUDGET = 0.5  # the default of `auto`
SEEDS = 2
DRAWS = 2000

INTRODUCTION = """# Does the advice hold for words and for several labels?

WNUT 17 (entities) and GoEmotions (28 labels for a text), 500 to 1,500 training rows, a small and a
base model; full fine-tuning and other plans beside the one that the scan leads to.

- **Entities: yes.** The advised plan is as good as full fine-tuning for little more than a third of
  its training FLOPs; no plan within half of them is better, and heads alone lose 9 points or more.
- **28 labels, few texts: no.** Full fine-tuning is 4 points better on MiniLM and 19 on mpnet. On
  mpnet most of that is the head, which reads the first token: with a linear head on the mean
  (`--classifier mean-linear`) the advised plan comes within 3 points of full fine-tuning.
- **Words peak lower than sentences** on the base model: by the default score at state 4 of 12, the
  sentences of SST-2 at 9, pairs of RTE at 7, emotions at 6. On the small one all peak at 3 of 6.
- **Heads of words and of several labels need their own learning rate**: with the head at the rate
  of the blocks, mpnet tuned in full found no entity at all; with the default rate it reaches
  58.3.
- **Mean or first token of a word** makes no difference that these plans could settle.
- Two models of one kind, one task each, two seeds: intervals are over validation rows alone.
"""


Record = Mapping[str, Any]


def read_records(folder: Path) -> list[Record]:
    """Read the records of the study."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


# --- Curves --------------------------------------------------------------------------------------


def average_curves(records: Sequence[Record]) -> dict[tuple[str, str, str], np.ndarray]:
    """Return every score of states by model, task and key, averaged over seeds, (L + 1,)."""
    found: dict[tuple[str, str, str], list[list[float]]] = {}
    for record in records:
        if record["verb"] != "scan" or record["arguments"].get("pooling", "mean") != "mean":
            continue
        for key, score in record["result"]["scores"].items():
            values = [np.nan if v is None else v for v in score["values"]]
            found.setdefault((record["models"][0], record["task"], key), []).append(values)
    return {name: np.mean(curves, axis=0) for name, curves in found.items()}


def draw_curves(curves: Mapping[tuple[str, str, str], np.ndarray], path: Path) -> None:
    """Draw the default score by its state."""
    values = [
        {"model": _shorten(model), "task": task, "state": state, "value": float(value)}
        for (model, task, key), curve in curves.items()
        if key == DEFAULT
        for state, value in enumerate((curve - curve.min()) / (curve.max() - curve.min()))
    ]
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_line(point={"size": 12})
        .encode(
            x=alt.X("state:Q", axis=alt.Axis(tickMinStep=1), title="state"),
            y=alt.Y("value:Q", title=DEFAULT, axis=alt.Axis(values=[0, 1])),
            color=alt.Color("task:N", sort=list(TASKS), title=None),
        )
        .properties(width=280, height=140)
        .facet(column=alt.Column("model:N", title=None))
        .resolve_scale(x="independent")
    )
    save_chart(chart, path)


def _shorten(model: str) -> str:
    return model.rsplit("/", 1)[-1]


# --- Tuned plans ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Tried:
    """A plan that was tuned.

    Attributes:
        notation: of the plan.
        head: the state that its head reads.
        tuned: how many blocks.
        share: of the FLOPs of full fine-tuning.
        counts: by seed, of every validation example or sentence what is right, predicted and true,
            (seeds, n, 3), which make a micro-F1.
    """

    notation: str
    head: int
    tuned: int
    share: float
    counts: np.ndarray

    def value(self, rows: np.ndarray | slice = slice(None)) -> float:
        """Return the metric in points: the mean over seeds."""
        sums = self.counts[:, rows].sum(axis=1)
        return 100 * float((2 * sums[:, 0] / np.maximum(1, sums[:, 1:].sum(axis=1))).mean())


@dataclass(frozen=True)
class Grid:
    """Plans of one model that were tuned on one task, with heads of one kind.

    Attributes:
        model: its hub id.
        task: its name.
        head: "family", "mean-linear", or "slow": the family's at the rate of the blocks.
    """

    model: str
    task: str
    head: str

    @classmethod
    def of(cls, record: Record) -> "Grid":
        """Name the grid of a record."""
        arguments = record["arguments"]
        slow = "slow" if "head_learning_rate" in arguments else "family"
        return cls(record["models"][0], record["task"], arguments.get("classifier", slow))


def group_records(records: Sequence[Record], verb: str) -> dict[Grid, list[Record]]:
    """Return the records of a verb by grid; scans have the family's head."""
    found: dict[Grid, list[Record]] = {}
    for record in records:
        if record["verb"] == verb:
            found.setdefault(Grid.of(record), []).append(record)
    return found


def collect_plans(
    records: Sequence[Record], names: Mapping[str, Sequence[str]]
) -> dict[Grid, list[Tried]]:
    """Return the plans that were tuned with both seeds."""
    plans = {}
    for grid, some in group_records(records, "tune").items():
        by_plan: dict[str, list[Record]] = {}
        for record in some:
            by_plan.setdefault(record["result"]["plan"]["notation"], []).append(record)
        whole = [each for each in by_plan.values() if len(each) == SEEDS]
        plans[grid] = [_make_tried(each, names[grid.task]) for each in whole]
    return plans


def _make_tried(records: Sequence[Record], names: Sequence[str]) -> Tried:
    result = records[0]["result"]
    plan, flops = result["plan"], result["flops"]
    counts = [count_micro(one["result"], names) for one in records]
    share = flops["train"] / flops["full_train"]
    return Tried(plan["notation"], plan["head"], len(plan["tuned"]), share, np.stack(counts))


def count_micro(result: Mapping[str, Any], names: Sequence[str]) -> np.ndarray:
    """Count what is right, predicted and true of every example, or spans of every sentence."""
    labels, predicted = result["labels"], result["predictions"]
    if result["metric"] == "entity_f1":
        sentences = np.repeat(np.arange(len(labels)), [len(tags) for tags in labels])
        tags = Tags(tuple(names), sentences)
        flat = [np.array([tag for row in side for tag in row]) for side in (labels, predicted)]
        counts: np.ndarray = count_spans(tags, *flat, sentences).sum(axis=1)
        return counts
    pairs = zip(labels, predicted, strict=True)
    return np.array([[len({*a} & {*b}), len(b), len(a)] for a, b in pairs], dtype=np.float64)


def compare_plans(
    grid: Grid, plans: Sequence[Tried], scans: Sequence[Record]
) -> tuple[list[str], list[list[str]]]:
    """Compare the plan that a scan leads to with every other one, in points of micro-F1.

    Returns:
        what stands on the page, and what is kept of each plan.
    """
    blocks = max(plan.head for plan in plans)
    named = [
        name_head(DEFAULT, Score.from_dict(scan["result"]["scores"][DEFAULT]), blocks).state
        for scan in scans
    ]
    advised = [_follow(plans, state) for state in named]
    rng, n = np.random.default_rng(0), plans[0].counts.shape[1]
    draws = [rng.integers(n, size=n) for _ in range(DRAWS)]
    own = [np.mean([one.value(rows) for one in advised]) for rows in draws]
    ours = float(np.mean([one.value() for one in advised]))
    heads = {"family": "", "mean-linear": ", mean-linear"}
    name = [grid.task, f"{_shorten(grid.model)}{heads[grid.head]}"]
    kept, apart = [], {}
    for plan in sorted(plans, key=lambda plan: (plan.head, plan.tuned)):
        drawn = [plan.value(at) - mine for at, mine in zip(draws, own, strict=True)]
        low, high = np.percentile(drawn, [2.5, 97.5])
        apart[plan.notation] = f"{plan.value() - ours:+.1f} ({low:+.1f} to {high:+.1f})"
        figures = [f"{plan.share:.0%}", f"{plan.value():.1f}", apart[plan.notation]]
        kept.append([*name, plan.notation, *figures, "yes" if plan in advised else ""])
    full = max(plans, key=lambda plan: plan.share).notation
    best = max((p for p in plans if p.share <= BUDGET), key=lambda plan: plan.value()).notation
    first = advised[0]
    shown = [*name, first.notation, f"{first.share:.0%}", f"{ours:.1f}", apart[full]]
    return [*shown, f"{best}: {apart[best]}"], kept


def _follow(plans: Sequence[Tried], state: int) -> Tried:
    fitting = [plan for plan in plans if plan.share <= BUDGET]
    return min(fitting, key=lambda plan: (abs(plan.head - state), -plan.tuned))


def compare_rates(
    plans: Mapping[Grid, Sequence[Tried]], tunings: Mapping[Grid, Sequence[Record]]
) -> list[list[str]]:
    """Compare heads that learn at the rate of the blocks with those that learn faster."""
    rng, rows = np.random.default_rng(0), []
    for grid in (grid for grid in plans if grid.head == "slow"):
        fast = {plan.notation: plan for plan in plans.get(replace(grid, head="family"), ())}
        [theirs] = plans[grid]
        ours, n = fast[theirs.notation], theirs.counts.shape[1]
        draws = [rng.integers(n, size=n) for _ in range(DRAWS)]
        gains = [ours.value(draw) - theirs.value(draw) for draw in draws]
        low, high = np.percentile(gains, [2.5, 97.5])
        gain = f"{ours.value() - theirs.value():+.1f} ({low:+.1f} to {high:+.1f})"
        rate = f"{tunings[grid][0]['arguments']['head_learning_rate']:g}"
        values = [f"{theirs.value():.1f}", f"{ours.value():.1f}"]
        rows.append([grid.task, _shorten(grid.model), rate, *values, gain])
    return rows


def compare_poolings(
    plans: Mapping[Grid, Sequence[Tried]], scans: Mapping[Grid, Sequence[Record]]
) -> list[list[str]]:
    """Compare how the mean of a word's tokens and its first one order plans of equal width."""
    rows = []
    for grid, tried in plans.items():
        found = scans[replace(grid, head="family")]
        poolings = {scan["arguments"].get("pooling") for scan in found}
        if grid.head != "family" or not {"mean", "first"} <= poolings:
            continue
        pairs = [
            (a, b)
            for a, b in combinations(tried, 2)
            if a.tuned == b.tuned and a.tuned and a.value() != b.value()
        ]
        for key in found[0]["result"]["scores"]:
            cells = []
            for pooling in ("mean", "first"):
                right = [
                    _orders(r["result"]["scores"][key], a, b)
                    for r in found
                    if r["arguments"].get("pooling") == pooling
                    for a, b in pairs
                ]
                known = [one for one in right if one is not None]
                cells.append(f"{100 * np.mean(known):.0f}" if known else "")
            rows.append([key, _shorten(grid.model), *cells])
    return rows


def _orders(score: Mapping[str, Any], one: Tried, other: Tried) -> bool | None:
    values = [score["values"][plan.head] for plan in (one, other)]
    if None in values or values[0] == values[1]:
        return None
    better = (values[0] > values[1]) == (score["better"] == "higher")
    return better == (one.value() > other.value())


# --- The page ------------------------------------------------------------------------------------


def page(picture: Path, tags: Sequence[str]) -> str:
    """Write the page and the tables that it has no room for, and draw its picture."""
    records = read_records(HERE / "trials")
    draw_curves(average_curves(records), picture)
    plans = collect_plans(records, {"wnut17": tags, "go_emotions": ()})
    scans, tunings = (group_records(records, verb) for verb in ("scan", "tune"))
    shown, kept = [], []
    for grid in sorted(plans, key=astuple, reverse=True):
        if grid.head != "slow" and len(plans[grid]) > 1:
            found = scans[replace(grid, head="family")]
            means = [r for r in found if r["arguments"].get("pooling", "mean") == "mean"]
            row, rows = compare_plans(grid, plans[grid], means)
            shown.append(row)
            kept += rows
    columns = ("task", "model", "plan", "training FLOPs", "micro-F1", "less the advised", "advised")
    every = write_rows(PLANS, columns, kept)
    columns = ("task", "model", "rate of the blocks", "head at it", "faster head", "gain")
    rates = write_rows(RATES, columns, compare_rates(plans, tunings))
    columns = ("score", "model", "mean of a word's tokens", "first token")
    orders = write_rows(ORDERS, columns, compare_poolings(plans, scans))
    heads = [
        "task",
        "model",
        "advised",
        "training FLOPs",
        "micro-F1",
        "full fine-tuning is ahead by",
    ]
    return f"""{INTRODUCTION}
{table([*heads, f"best within {BUDGET:.0%}, ahead by"], shown)}

Micro-F1 in points, mean of two seeds, with 95 % intervals over validation rows.

![The default score by state, from its least to its most]({picture.name})

`head_quality` by state, from its least to its most; of words the macro-F1 over tags of single
words, drawn in balance, of several labels the micro-F1.

Every plan: {every}. A head at the rate of the blocks and a faster one: {rates}. How many of 100
pairs of plans of equal width each score orders as tuning does, by pooling of a word: {orders}.

`python bench/words.py --write docs/measured/words.md` makes this page from `bench/words/trials`,
the records of `layerscout study bench/words/recipe.yaml` (six hours of one core).
"""


def main() -> None:
    parser = options(__doc__ or "")
    arguments = given(parser)
    tags = ls.Task.load(arguments.shared / "data" / "wnut17").labels
    written = page(arguments.write.with_suffix(".svg"), tags)
    arguments.write.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
