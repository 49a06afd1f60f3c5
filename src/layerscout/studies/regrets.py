"""Whose advice to follow: what tuning an advised plan loses against the best plan of a grid.

An adviser names a state; its plan is the one of the grid within the budget whose head is nearest to
that state, and of those the one that tunes the most blocks. Its regret is the metric of the best
plan within the budget less that of its own. The best plan is chosen by one half of the validation
examples and one seed; both plans are judged by the other half and another seed, so that neither
gains by luck, and a regret may be negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscout.data import METRICS
from layerscout.pages import Table
from layerscout.scores import SCORES

# Training FLOPs, and those of the scan that an adviser needs, as shares of full fine-tuning's.
BUDGETS = (0.1, 0.25, 0.5, 0.75)
# Halvings of the validation examples, each resampled: what intervals are made from.
DRAWS = 100

# A cell of a grid, and the record of its trial.
CellRecord = tuple[Mapping[str, Any], Mapping[str, Any]]


@dataclass(frozen=True)
class Tuned:
    """A plan of the grid, tuned with every seed.

    Attributes:
        head: the state that the head reads.
        tuned: how many blocks were tuned.
        share: training FLOPs over those of full fine-tuning.
        predictions: of all validation examples, by seed.
    """

    head: int
    tuned: int
    share: float
    predictions: Mapping[int, NDArray[np.int64]]


@dataclass(frozen=True)
class Pair:
    """A model and a task.

    Attributes:
        blocks: of the model.
        metric: a key of `layerscout.data.METRICS`.
        labels: of the validation examples.
        plans: all that have the same seeds.
        best: by adviser and seed, the state that it names; None where it names none.
        scan_share: FLOPs of the scan over those of full fine-tuning.
    """

    blocks: int
    metric: str
    labels: NDArray[np.int64]
    plans: Sequence[Tuned]
    best: Mapping[str, Mapping[int, int | None]]
    scan_share: float

    def seeds(self) -> list[int]:
        """Give the seeds that every plan was tuned with."""
        common = set.intersection(*(set(plan.predictions) for plan in self.plans))
        return sorted(common)

    def list_fitting(self, budget: float) -> list[int]:
        """List which plans fit into a budget."""
        return [i for i, plan in enumerate(self.plans) if plan.share <= budget]

    def choose(self, state: int, budget: float) -> int | None:
        """Give which plan a state leads to within a budget; None if nothing fits."""

        def distance(i: int) -> tuple[int, int]:
            return abs(self.plans[i].head - state), -self.plans[i].tuned

        return min(self.list_fitting(budget), key=distance, default=None)

    def judge(self, seed: int, rows: NDArray[np.int64]) -> list[float]:
        """Give the metric of every plan, tuned with a seed, on some of the examples."""
        metric, labels = METRICS[self.metric], self.labels[rows]
        classes = int(self.labels.max()) + 1
        return [metric(labels, plan.predictions[seed][rows], classes) for plan in self.plans]


@dataclass(frozen=True)
class Draw:
    """A halving of a pair's validation examples, each half drawn from with replacement.

    Attributes:
        pair: the pair.
        seed: of the scan, and of the training that chooses the best plan.
        chosen: the metric of every plan on the first half, with that seed.
        judged: the metric of every plan on the second half, with another one.
    """

    pair: Pair
    seed: int
    chosen: Sequence[float]
    judged: Sequence[float]

    @classmethod
    def of(cls, pair: Pair, rng: np.random.Generator) -> Draw:
        """Draw seeds and examples, and judge all plans."""
        one, other = rng.permutation(pair.seeds())[:2].tolist()
        halves = np.array_split(rng.permutation(len(pair.labels)), 2)
        first, second = (rng.choice(half, len(half)) for half in halves)
        return cls(pair, one, pair.judge(one, first), pair.judge(other, second))

    def measure_regret(self, adviser: str, budget: float) -> float | None:
        """Give what an adviser's plan loses within a budget; None if it has none."""
        pair = self.pair
        fitting = pair.list_fitting(budget)
        if not fitting:
            return None
        best = max(fitting, key=lambda i: self.chosen[i])
        if adviser == "any plan":
            return self.judged[best] - mean(self.judged[i] for i in fitting)
        if adviser in RULES:
            advised = pair.choose(RULES[adviser](pair.blocks), budget)
        else:
            # Without a best state `auto` tunes the top.
            state = pair.best.get(adviser, {}).get(self.seed) or pair.blocks
            advised = pair.choose(state, budget - pair.scan_share)
        return None if advised is None else self.judged[best] - self.judged[advised]


# What needs no scan: the state by the number of blocks.
RULES: Mapping[str, Callable[[int], int]] = {
    "the top": lambda blocks: blocks,
    "two thirds": lambda blocks: round(2 * blocks / 3),
    "the middle": lambda blocks: blocks // 2,
    "a quarter": lambda blocks: max(1, round(blocks / 4)),
}


def tabulate_regrets(tuned: Iterable[CellRecord], scanned: Iterable[CellRecord]) -> Table:
    """Give a row for each adviser: its regret at every budget, in points, with 95 % intervals.

    Args:
        tuned: cells of grids of tune and their records, which hold predictions.
        scanned: cells of grids of scan and their records.
    """
    headings = ["adviser", *(f"points lost at {budget:.0%}" for budget in BUDGETS), "pairs"]
    if not (pairs := collect_pairs(tuned, scanned)):
        return Table("", headings, [], sortable=True)
    advisers = dict.fromkeys([*(name for pair in pairs for name in pair.best), *RULES, "any plan"])
    rng = np.random.default_rng(0)
    # Each draw takes pairs with replacement, and examples of each: both are chance.
    draws = [
        [Draw.of(pairs[i], rng) for i in rng.integers(len(pairs), size=len(pairs))]
        for _ in range(DRAWS)
    ]
    rows = []
    for name in advisers:
        cells = [estimate_regret(draws, name, budget) for budget in BUDGETS]
        title = SCORES[name].title if name in SCORES else name
        shown = [
            "–" if cell is None else f"{cell[0]:.1f} ({cell[1]:.1f} to {cell[2]:.1f})"
            for cell in cells
        ]
        rows.append([title, *shown, str(len(pairs))])
    return Table("", headings, rows, sortable=True)


def collect_pairs(tuned: Iterable[CellRecord], scanned: Iterable[CellRecord]) -> list[Pair]:
    """Bring together what was tuned and what was scanned of each model and task.

    A pair needs a scan, and two plans or more that share two seeds or more.
    """
    scans: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for cell, record in scanned:
        seeds = scans.setdefault(_name_pair(cell), {})
        seeds[int(cell["values"].get("seed", 0))] = record["result"]
    plans: dict[tuple[str, str], dict[Any, dict[int, Mapping[str, Any]]]] = {}
    for cell, record in tuned:
        found = record["result"]
        if "predictions" in found:
            plan = (found["plan"]["head"], len(found["plan"]["tuned"]), found["plan"]["notation"])
            by_seed = plans.setdefault(_name_pair(cell), {}).setdefault(plan, {})
            by_seed[int(cell["values"].get("seed", 0))] = found
    pairs = []
    for name, by_plan in plans.items():
        most = max(map(len, by_plan.values()))
        whole = {plan: seeds for plan, seeds in by_plan.items() if len(seeds) == most}
        if name in scans and len(whole) > 1:
            pairs.append(_make_pair(whole, scans[name]))
    return [pair for pair in pairs if len(pair.seeds()) > 1]


def estimate_regret(
    draws: Sequence[Sequence[Draw]], adviser: str, budget: float
) -> tuple[float, float, float] | None:
    """Give the mean regret of an adviser, in points, and the ends of its 95 % interval.

    None where the adviser has no plan in any pair, as where the scan alone costs more than the
    budget.
    """
    found = []
    for pairs in draws:
        regrets = [draw.measure_regret(adviser, budget) for draw in pairs]
        if known := [one for one in regrets if one is not None]:
            found.append(100 * mean(known))
    if not found:
        return None
    low, high = np.percentile(found, [2.5, 97.5])
    return float(np.mean(found)), float(low), float(high)


def _name_pair(cell: Mapping[str, Any]) -> tuple[str, str]:
    return str(cell["values"]["model"]), str(cell["values"]["task"])


def _make_pair(
    plans: Mapping[Any, Mapping[int, Mapping[str, Any]]], scans: Mapping[int, Mapping[str, Any]]
) -> Pair:
    found = [
        Tuned(
            head,
            tuned,
            mean(one["flops"]["train"] / one["flops"]["full_train"] for one in by_seed.values()),
            {seed: np.array(one["predictions"]) for seed, one in by_seed.items()},
        )
        for (head, tuned, _), by_seed in plans.items()
    ]
    some = next(iter(next(iter(plans.values())).values()))
    keys = [key for scan in scans.values() for key in scan["best"] if SCORES[key].of == "states"]
    best = {key: {s: scan["best"].get(key) for s, scan in scans.items()} for key in keys}
    pass_over = some["examples"] * some["flops"]["full_inference"]
    return Pair(
        some["blocks"],
        some["metric"],
        np.array(some["labels"]),
        found,
        best,
        pass_over / some["flops"]["full_train"],
    )
