"""Whose advice to follow: what tuning an advised plan loses against the best plan of a grid.

An adviser names a state: a score its best one, or a rule one by the number of blocks. Its plan is
the one of the grid within the budget whose head is nearest to that state, and of those the one that
tunes the most blocks. Its regret is the metric of the best plan within the budget less that of its
own. The best plan is chosen by one half of the validation examples and one seed; both plans are
judged by the other half and another seed, so that neither gains by luck, and a regret may be
negative. Regrets are means over halvings and over the order of the seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from layerscout.data import evaluate_groups
from layerscout.models import read_token
from layerscout.pages import Table
from layerscout.plans import name_state, pays_for_scan, usual_pooling
from layerscout.scanning import name_head
from layerscout.scores import DEFAULT, SCORES, Score

# Training FLOPs, and those of the scan that an adviser needs, as shares of full fine-tuning's.
BUDGETS = (0.1, 0.25, 0.5, 0.75)
# Samples of tasks, pairs and validation examples, drawn with replacement, that intervals are made
# from, and the halvings of each; the halvings of the examples as they are.
DRAWS, HALVINGS, MANY_HALVINGS = 200, 4, 100
# Plans that a pair must have to be judged, as a share of those of other pairs.
MOST = 2 / 3
# What `auto` names, the mean rank over all scores, and the adviser that lost least elsewhere.
AUTO, RANKS, ELSEWHERE = "auto", "mean rank of all scores", "the best adviser elsewhere"
# What is expected of a plan that is drawn among all that fit.
ANY = "any plan"

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
        name: of the model and of the task.
        blocks: of the model.
        metric: a key of `layerscout.data.METRICS`.
        labels: of the validation examples.
        plans: all that have the same seeds.
        best: by adviser and seed, the state that it names; None where it names none.
        scan_share: FLOPs of the scan over those of full fine-tuning.
    """

    name: tuple[str, str]
    blocks: int
    metric: str
    labels: NDArray[np.int64]
    plans: Sequence[Tuned]
    best: Mapping[str, Mapping[int, int | None]]
    scan_share: float

    @property
    def classes(self) -> int:
        """How many classes there are; 0 for numbers."""
        return 0 if self.labels.dtype.kind == "f" else int(self.labels.max()) + 1

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

    def advise(self, adviser: str, budget: float, seed: int) -> Sequence[int]:
        """Give which plan an adviser leads to, or which ones alike; none if nothing fits.

        Args:
            adviser: a score, a rule, or what is made of them.
            budget: a share of full fine-tuning.
            seed: of the scan.
        """
        if adviser == ANY:
            return self.list_fitting(budget)
        if adviser in RULES:
            advised = self.choose(RULES[adviser](self.blocks), budget)
        elif adviser == AUTO and not pays_for_scan(self.scan_share, budget):
            advised = self.choose(name_state(self.blocks), budget)
        elif adviser not in self.best:  # not scanned
            advised = None
        else:
            state = self.best[adviser].get(seed) or self.blocks  # the top, if it names none
            advised = self.choose(state, budget - self.scan_share)
        return [] if advised is None else [advised]

    def judge(
        self, seed: int, rows: NDArray[np.int64], halves: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Give the metric of every plan, tuned with a seed, on two halves of some rows, (2, P)."""
        plans = len(self.plans)
        predicted = np.stack([plan.predictions[seed] for plan in self.plans])[:, rows]
        groups = plans * halves + np.arange(plans)[:, None]
        labels = np.broadcast_to(self.labels[rows], predicted.shape)
        return evaluate_groups(
            self.metric, labels.ravel(), predicted.ravel(), self.classes, groups.ravel()
        ).reshape(2, plans)


@dataclass(frozen=True)
class Draw:
    """Examples of a pair, halved in several ways, with every order of two seeds.

    Attributes:
        pair: the pair.
        seeds: of the scan and of the training that chooses the best plan (T,).
        chosen: the metric of every plan on a first half, with that seed (T, P).
        judged: the metric of every plan on the second half, with another seed (T, P).
    """

    pair: Pair
    seeds: NDArray[np.int64]
    chosen: NDArray[np.float64]
    judged: NDArray[np.float64]

    @classmethod
    def of(
        cls, pair: Pair, rng: np.random.Generator, halvings: int, *, resample: bool = True
    ) -> Draw:
        """Draw examples, halve them, and judge all plans with every two seeds in turn.

        Args:
            pair: the pair.
            rng: draws.
            halvings: how many.
            resample: draw examples with replacement. Copies of one stay in one half.
        """
        n = len(pair.labels)
        rows = rng.integers(n, size=n) if resample else np.arange(n)
        orders = list(permutations(pair.seeds(), 2))
        chosen, judged = [], []
        for _ in range(halvings):
            halves = (rng.permutation(n) % 2)[rows]
            found = {seed: pair.judge(seed, rows, halves) for seed in pair.seeds()}
            chosen += [found[one][0] for one, _ in orders]
            judged += [found[other][1] for _, other in orders]
        first = np.array([one for one, _ in orders] * halvings)
        return cls(pair, first, np.array(chosen), np.array(judged))

    def measure_regret(self, adviser: str, budget: float) -> float | None:
        """Give what an adviser's plan loses within a budget on average; None if it has none."""
        fitting = self.pair.list_fitting(budget)
        advised = {seed: self.pair.advise(adviser, budget, seed) for seed in self.pair.seeds()}
        if not all(advised.values()):  # nothing fits
            return None
        best = np.take(fitting, self.chosen[:, fitting].argmax(axis=1))
        lost = float(self.judged[np.arange(len(best)), best].sum())
        for seed, plans in advised.items():
            judged = self.judged[self.seeds == seed]
            lost -= sum(float(judged[:, i].sum()) for i in plans) / len(plans)
        return lost / len(best)


# What needs no scan: the state by the number of blocks.
RULES: Mapping[str, Callable[[int], int]] = {
    "the top": lambda blocks: blocks,
    "two thirds": name_state,
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
    scored = dict.fromkeys(name for pair in pairs for name in pair.best)
    rng = np.random.default_rng(0)
    whole = [Draw.of(pair, rng, MANY_HALVINGS, resample=False) for pair in pairs]
    draws = [
        [Draw.of(pair, rng, HALVINGS) for pair in draw_pairs(pairs, rng)] for _ in range(DRAWS)
    ]
    followed: dict[str, list[str | Mapping[tuple[str, str], str]]]
    followed = {name: [name] * len(BUDGETS) for name in (*scored, *RULES, ANY)}
    others = [*(name for name in scored if name != AUTO), *RULES]  # `auto` was made from them
    elsewhere = [choose_elsewhere(whole, others, budget) for budget in BUDGETS]
    if any(elsewhere):
        followed[ELSEWHERE] = [*elsewhere]
    rows = []
    for name, advisers in followed.items():
        cells = [
            estimate_regret(whole, draws, adviser, budget)
            for adviser, budget in zip(advisers, BUDGETS, strict=True)
        ]
        title = SCORES[name].title if name in SCORES else name
        shown = [
            "–" if cell is None else f"{cell[0]:.1f} ({cell[1]:.1f} to {cell[2]:.1f})"
            for cell in cells
        ]
        known = sum(name not in scored or name in pair.best for pair in pairs)
        rows.append([title, *shown, str(known)])
    return Table("", headings, rows, sortable=True)


def collect_pairs(tuned: Iterable[CellRecord], scanned: Iterable[CellRecord]) -> list[Pair]:
    """Bring together what was tuned and what was scanned of each model and task.

    Of scans with several poolings the one with the family's usual pooling counts, which is what
    users get. A pair needs a scan, two plans or more that share two seeds or more, and `MOST` of
    the plans that other pairs with so many blocks have: a study on its way would choose the best of
    a few.
    """
    scans: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for cell, record in scanned:
        made = record["result"]
        usual = usual_pooling(read_token(made.get("model", {})))
        if made.get("settings", {}).get("pooling", usual) != usual:
            continue
        seeds = scans.setdefault(_name_pair(cell), {})
        seed = int(cell["values"].get("seed", 0))
        seeds[seed] = _merge_scans(seeds.get(seed, {}), made)
    plans: dict[tuple[str, str], dict[Any, dict[int, Mapping[str, Any]]]] = {}
    for cell, record in tuned:
        found = record["result"]
        # Not words or several labels: intervals would be of sentences, and metrics of other counts.
        if "predictions" in found and not isinstance(found["predictions"][0], list):
            plan = (found["plan"]["head"], len(found["plan"]["tuned"]), found["plan"]["notation"])
            by_seed = plans.setdefault(_name_pair(cell), {}).setdefault(plan, {})
            by_seed[int(cell["values"].get("seed", 0))] = found
    pairs = []
    for name, by_plan in plans.items():
        most = max(map(len, by_plan.values()))
        whole = {plan: seeds for plan, seeds in by_plan.items() if len(seeds) == most}
        if name in scans and len(whole) > 1:
            pairs.append(_make_pair(name, whole, scans[name]))
    pairs = [pair for pair in pairs if len(pair.seeds()) > 1]
    most_plans = {
        pair.blocks: max(len(other.plans) for other in pairs if other.blocks == pair.blocks)
        for pair in pairs
    }
    return [pair for pair in pairs if len(pair.plans) >= MOST * most_plans[pair.blocks]]


def draw_pairs(pairs: Sequence[Pair], rng: np.random.Generator) -> list[Pair]:
    """Draw as many tasks as there are, and of each as many pairs as it has, with replacement.

    Pairs of one task share their validation examples and what is particular to the task. Drawing
    tasks alone, or pairs alone, gave narrower intervals on the first 13 pairs.
    """
    by_task: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_task.setdefault(pair.name[1], []).append(pair)
    groups = list(by_task.values())
    drawn = [groups[i] for i in rng.integers(len(groups), size=len(groups))]
    return [group[i] for group in drawn for i in rng.integers(len(group), size=len(group))]


def choose_elsewhere(
    draws: Sequence[Draw], advisers: Iterable[str], budget: float
) -> dict[tuple[str, str], str]:
    """Choose an adviser for each pair by what following it lost on other models and other tasks.

    Pairs that share the model or the task have no say, so that nothing is fitted to what judges it.

    Args:
        draws: one for each pair.
        advisers: to choose from.
        budget: a share of full fine-tuning.

    Returns:
        By the name of a pair; those without others are missing.
    """
    lost = {
        adviser: {
            draw.pair.name: regret
            for draw in draws
            if (regret := draw.measure_regret(adviser, budget)) is not None
        }
        for adviser in advisers
    }
    chosen = {}
    for name in (draw.pair.name for draw in draws):
        others = {
            adviser: [
                regret
                for other, regret in by_pair.items()
                if other[0] != name[0] and other[1] != name[1]
            ]
            for adviser, by_pair in lost.items()
        }
        most = max(map(len, others.values()), default=0)
        means = {
            adviser: mean(found) for adviser, found in others.items() if 0 < len(found) == most
        }
        if means:
            chosen[name] = min(means, key=lambda adviser: means[adviser])
    return chosen


def estimate_regret(
    whole: Sequence[Draw],
    draws: Sequence[Sequence[Draw]],
    adviser: str | Mapping[tuple[str, str], str],
    budget: float,
) -> tuple[float, float, float] | None:
    """Give the mean regret of an adviser, in points, and the ends of its 95 % interval.

    The adviser may be another one for each pair, by its name. None where it has no plan in any
    pair, as where the scan alone costs more than the budget.

    Args:
        whole: the examples as they are, a draw for each pair.
        draws: bootstrap samples.
        adviser: whose plans are followed.
        budget: a share of full fine-tuning.
    """

    def average(pairs: Sequence[Draw]) -> float | None:
        regrets = [
            draw.measure_regret(one, budget)
            for draw in pairs
            if (one := adviser if isinstance(adviser, str) else adviser.get(draw.pair.name))
        ]
        known = [one for one in regrets if one is not None]
        return 100 * mean(known) if known else None

    value = average(whole)
    if value is None:
        return None
    drawn = [one for pairs in draws if (one := average(pairs)) is not None]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return value, float(low), float(high)


def _name_pair(cell: Mapping[str, Any]) -> tuple[str, str]:
    return str(cell["values"]["model"]), str(cell["values"]["task"])


def _merge_scans(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    """Join the scores of two scans of the same model, task and seed."""
    return {part: {**one.get(part, {}), **other.get(part, {})} for part in ("best", "scores")}


def _make_pair(
    name: tuple[str, str],
    plans: Mapping[Any, Mapping[int, Mapping[str, Any]]],
    scans: Mapping[int, Mapping[str, Any]],
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
    for combined, find in ((AUTO, _find_named), (RANKS, _rank_states)):
        found_states = {seed: find(scan, some["blocks"]) for seed, scan in scans.items()}
        if any(found_states.values()):
            best[combined] = found_states
    pass_over = some["examples"] * some["flops"]["full_inference"]
    return Pair(
        name,
        some["blocks"],
        some["metric"],
        np.array(some["labels"]),
        found,
        best,
        pass_over / some["flops"]["full_train"],
    )


def _find_named(scan: Mapping[str, Any], blocks: int) -> int | None:
    """Give the state that `auto` names by a scan; None if that lacks the default score."""
    written = scan.get("scores", {}).get(DEFAULT)
    return None if written is None else name_head(DEFAULT, Score.from_dict(written), blocks).state


def _rank_states(scan: Mapping[str, Any], blocks: int) -> int | None:
    """Give the state whose mean rank over all scores of states is best; of ties the lowest."""
    ranks = [
        rankdata([_place(score, state) for state in range(1, blocks + 1)])
        for score in scan.get("scores", {}).values()
        if score["of"] == "states"
    ]
    return int(np.mean(ranks, axis=0).argmin()) + 1 if ranks else None


def _place(score: Mapping[str, Any], state: int) -> float:
    """Give a value of which less is better; a state without one comes last."""
    value = score["values"][state]
    if value is None:
        return float("inf")
    return float(value if score["better"] == "lower" else -value)
