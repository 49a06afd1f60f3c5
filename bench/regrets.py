"""Whose advice to follow: what tuning an advised plan loses against the best plan of a grid.

An adviser names a state: a score its best one, or a rule one by the number of blocks. Its plan is
the one of the grid within the budget whose head is nearest to that state, and of those the one that
tunes the most blocks. Its regret is the metric of the best plan within the budget less that of its
own. The best plan is chosen by one half of the validation examples and one seed; both plans are
judged by the other half and another seed, so that neither gains by luck, and a regret may be
negative. Regrets are means over halvings and over the order of the seeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from layerscout.data import evaluate_groups
from layerscout.models import read_token
from layerscout.plans import choose_head_state, usual_pooling
from layerscout.reporting import Table
from layerscout.scanning import name_head
from layerscout.scores import DEFAULT, RETIRED, SCORES, Score, name_score

# Training FLOPs, and those of the scan that an adviser needs, as shares of full fine-tuning's.
BUDGETS = (0.1, 0.25, 0.5, 0.75)
# Samples of tasks, pairs and validation examples, drawn with replacement, that intervals are made
# from, and the halvings of each; the halvings of the examples as they are.
DRAWS, HALVINGS, MANY_HALVINGS = 200, 4, 100
# Plans that a pair must have to be judged, as a share of those of other pairs.
MOST = 2 / 3
# What `auto` names, the mean rank over all scores, and the adviser that lost least elsewhere.
AUTO, RANKS, ELSEWHERE = "auto", "mean rank of all scores", "the best adviser elsewhere"
# The share of its budget that `auto` spent on a scan at the most, when it made one of its own.
SCAN_SHARE = 0.25
# What is expected of a plan that is drawn among all that fit.
ANY = "any plan"

# What needs no scan: the state by the number of blocks.
RULES: Mapping[str, Callable[[int], int]] = {
    "the top": lambda blocks: blocks,
    "two thirds": choose_head_state,
    "the middle": lambda blocks: blocks // 2,
    "a quarter": lambda blocks: max(1, round(blocks / 4)),
}

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
        """The number of classes; 0 for numbers."""
        return 0 if self.labels.dtype.kind == "f" else int(self.labels.max()) + 1

    def seeds(self) -> list[int]:
        """Return the seeds that every plan was tuned with."""
        return sorted(set.intersection(*(set(plan.predictions) for plan in self.plans)))

    def list_fitting(self, budget: float) -> list[int]:
        """List which plans fit into a budget."""
        return [i for i, plan in enumerate(self.plans) if plan.share <= budget]

    def advise(self, adviser: str, budget: float, seed: int) -> Sequence[int]:
        """Return which plan an adviser leads to, or which ones alike; none if nothing fits.

        Args:
            adviser: a score, a rule, or what is made of them.
            budget: a share of full fine-tuning.
            seed: of the scan.
        """
        if adviser == ANY:
            return self.list_fitting(budget)
        if adviser in RULES:
            state = RULES[adviser](self.blocks)
        elif adviser == AUTO and self.scan_share > SCAN_SHARE * budget:
            state = choose_head_state(self.blocks)
        elif adviser not in self.best:  # not scanned
            return []
        else:
            state = self.best[adviser].get(seed) or self.blocks  # the top, if it names none
            budget -= self.scan_share

        def distance(i: int) -> tuple[int, int]:
            return abs(self.plans[i].head - state), -self.plans[i].tuned

        return sorted(self.list_fitting(budget), key=distance)[:1]

    def judge(
        self, seed: int, rows: NDArray[np.int64], halves: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the metric of every plan, tuned with a seed, on two halves of rows, (2, P)."""
        plans = len(self.plans)
        predicted = np.stack([plan.predictions[seed] for plan in self.plans])[:, rows]
        groups = plans * halves + np.arange(plans)[:, None]
        labels = np.broadcast_to(self.labels[rows], predicted.shape)
        return evaluate_groups(
            self.metric, labels.ravel(), predicted.ravel(), self.classes, groups.ravel()
        ).reshape(2, plans)


def tabulate_regrets(tuned: Iterable[CellRecord], scanned: Iterable[CellRecord]) -> Table:
    """Return a row for each adviser: its regret at every budget, in points, with 95 % intervals.

    Args:
        tuned: cells of grids of tune and their records, which hold predictions.
        scanned: cells of grids of scan and their records.
    """
    headings = ["adviser", *(f"points lost at {budget:.0%}" for budget in BUDGETS), "pairs"]
    pairs = collect_pairs(tuned, scanned)
    if not pairs:
        return Table("", headings, [], sortable=True)
    scored = list(dict.fromkeys(name for pair in pairs for name in pair.best))
    advisers = [*scored, *RULES, ANY]
    rng = np.random.default_rng(0)
    lost = [
        (0, *regret)
        for pair in pairs
        for regret in list_regrets(pair, advisers, rng, MANY_HALVINGS, resample=False)
    ]
    lost += [
        (number, *regret)
        for number in range(1, DRAWS + 1)
        for pair in draw_pairs(pairs, rng)
        for regret in list_regrets(pair, advisers, rng, HALVINGS)
    ]
    columns = ["sample", "model", "task", "adviser", "budget", "regret"]
    regrets = pd.DataFrame(lost, columns=columns)
    # `auto` was made from the pairs elsewhere.
    chosen = choose_elsewhere(regrets, [*(name for name in scored if name != AUTO), *RULES])
    if chosen:
        advisers.append(ELSEWHERE)
        places = zip(*(regrets[name] for name in ("model", "task", "budget")), strict=True)
        followed = np.array([chosen.get(place) for place in places]) == regrets["adviser"]
        regrets = pd.concat([regrets, regrets[followed].assign(adviser=ELSEWHERE)])
    means = regrets.pivot_table("regret", "sample", ["adviser", "budget"], aggfunc=mean)
    rows = []
    for name in advisers:
        shown = [_format_regret(means.get((name, budget))) for budget in BUDGETS]
        known = sum(name not in scored or name in pair.best for pair in pairs)
        rows.append([name_score(name), *shown, str(known)])
    return Table("", headings, rows, sortable=True)


def list_regrets(
    pair: Pair,
    advisers: Sequence[str],
    rng: np.random.Generator,
    halvings: int,
    *,
    resample: bool = True,
) -> Iterator[tuple[str, str, str, float, float]]:
    """Yield what following each adviser loses at each budget, with model and task in front.

    Examples are drawn and halved, and every two seeds take turns to choose and to judge. Left out
    are advisers without a plan, as where the scan alone costs more than the budget.

    Args:
        pair: the pair.
        advisers: who is followed.
        rng: draws.
        halvings: how many.
        resample: draw examples with replacement. Copies of one stay in one half.
    """
    n, seeds = len(pair.labels), pair.seeds()
    rows = rng.integers(n, size=n) if resample else np.arange(n)
    orders = list(permutations(seeds, 2))
    first, on_one, on_other = np.array([seed for seed, _ in orders] * halvings), [], []
    for _ in range(halvings):
        halves = (rng.permutation(n) % 2)[rows]
        metrics = {seed: pair.judge(seed, rows, halves) for seed in seeds}
        on_one += [metrics[seed][0] for seed, _ in orders]
        on_other += [metrics[other][1] for _, other in orders]
    chosen, judged = np.array(on_one), np.array(on_other)
    for adviser, budget in product(advisers, BUDGETS):
        advised = {seed: pair.advise(adviser, budget, seed) for seed in seeds}
        if all(advised.values()):
            fitting = pair.list_fitting(budget)
            best = np.take(fitting, chosen[:, fitting].argmax(axis=1))
            lost = float(judged[np.arange(len(best)), best].sum())
            for seed, plans in advised.items():
                lost -= float(judged[first == seed][:, plans].sum()) / len(plans)
            yield *pair.name, adviser, budget, lost / len(best)


def choose_elsewhere(
    regrets: pd.DataFrame, advisers: Sequence[str]
) -> dict[tuple[str, str, float], str]:
    """Choose an adviser for each pair by what following it lost on other models and other tasks.

    Pairs that share the model or the task have no say, so that nothing is fitted to what judges it.

    Args:
        regrets: a row for each of `list_regrets`; sample 0 holds the examples as they are.
        advisers: to choose from; of equals the first.

    Returns:
        By model, task and budget; pairs without others are missing.
    """
    whole = regrets[(regrets["sample"] == 0) & regrets["adviser"].isin(advisers)]
    names = regrets[["model", "task"]].drop_duplicates().itertuples(index=False)
    chosen = {}
    for model, task in names:
        elsewhere = whole[(whole["model"] != model) & (whole["task"] != task)]
        for budget, others in elsewhere.groupby("budget"):
            lost = others.groupby("adviser")["regret"].agg(["size", mean])
            lost = lost[lost["size"] == lost["size"].max()]
            best = lost["mean"].reindex(advisers).idxmin()
            chosen[model, task, float(str(budget))] = str(best)
    return chosen


def _format_regret(by_sample: pd.Series | None) -> str:
    """Format the mean regret in points, and its 95 % interval over the samples after the first."""
    if by_sample is None or pd.isna(by_sample[0]):
        return "–"
    value, *drawn = 100 * by_sample.dropna()
    low, high = np.percentile(drawn, [2.5, 97.5])
    return f"{value:.1f} ({low:.1f} to {high:.1f})"


def draw_pairs(pairs: Sequence[Pair], rng: np.random.Generator) -> list[Pair]:
    """Draw as many tasks as there are, and of each as many pairs as it has, with replacement.

    Pairs of one task share their validation examples and what is particular to the task. Drawing
    tasks alone, or pairs alone, gave narrower intervals on the first 13 pairs.
    """
    by_task = defaultdict(list)
    for pair in pairs:
        by_task[pair.name[1]].append(pair)
    groups = list(by_task.values())
    drawn = [groups[i] for i in rng.integers(len(groups), size=len(groups))]
    return [group[i] for group in drawn for i in rng.integers(len(group), size=len(group))]


def collect_pairs(tuned: Iterable[CellRecord], scanned: Iterable[CellRecord]) -> list[Pair]:
    """Bring together what was tuned and what was scanned of each model and task.

    Of scans with several poolings the one with the family's usual pooling counts, which is what
    users get. A pair needs a scan, two plans or more that share two seeds or more, and `MOST` of
    the plans that other pairs with so many blocks have: a study on its way would choose the best of
    a few.
    """
    # By pair and seed, the parts "best" and "scores" of all scans; by pair, plan and seed, results.
    scans: dict[Any, Any] = defaultdict(lambda: defaultdict(lambda: {"best": {}, "scores": {}}))
    plans: dict[Any, Any] = defaultdict(lambda: defaultdict(dict))
    for cell, record in scanned:
        name, seed, result = *_name_trial(cell), record["result"]
        usual = usual_pooling(read_token(result.get("model", {})))
        if result.get("settings", {}).get("pooling", usual) == usual:
            for part, by_score in scans[name][seed].items():
                by_score.update(result.get(part, {}))
    for cell, record in tuned:
        name, seed, result = *_name_trial(cell), record["result"]
        # Not words or several labels: intervals would be of sentences, and metrics of other counts.
        if "predictions" in result and not isinstance(result["predictions"][0], list):
            plan = result["plan"]
            plans[name][plan["head"], len(plan["tuned"]), plan["notation"]][seed] = result
    pairs = []
    for name, by_plan in plans.items():
        most = max(map(len, by_plan.values()))
        whole = {plan: seeds for plan, seeds in by_plan.items() if len(seeds) == most}
        if name in scans and len(whole) > 1:
            pairs.append(_make_pair(name, whole, scans[name]))
    pairs = [pair for pair in pairs if len(pair.seeds()) > 1]
    most_plans: dict[int, int] = defaultdict(int)
    for pair in pairs:
        most_plans[pair.blocks] = max(most_plans[pair.blocks], len(pair.plans))
    return [pair for pair in pairs if len(pair.plans) >= MOST * most_plans[pair.blocks]]


def _name_trial(cell: Mapping[str, Any]) -> tuple[tuple[str, str], int]:
    """Return the pair that a cell belongs to, and its seed."""
    values = cell["values"]
    return (str(values["model"]), str(values["task"])), int(values.get("seed", 0))


def _make_pair(
    name: tuple[str, str],
    plans: Mapping[tuple[int, int, str], Mapping[int, Mapping[str, Any]]],
    scans: Mapping[int, Mapping[str, Any]],
) -> Pair:
    tuned = [
        Tuned(
            head,
            blocks,
            mean(r["flops"]["train"] / r["flops"]["full_train"] for r in by_seed.values()),
            {seed: np.array(result["predictions"]) for seed, result in by_seed.items()},
        )
        for (head, blocks, _), by_seed in plans.items()
    ]
    result = next(iter(next(iter(plans.values())).values()))
    keys = [
        key
        for scan in scans.values()
        for key in scan["best"]
        if key in RETIRED or SCORES[key].of == "states"
    ]
    best = {key: {s: scan["best"].get(key) for s, scan in scans.items()} for key in keys}
    for combined, find in ((AUTO, _find_named), (RANKS, _rank_states)):
        states = {seed: find(scan["scores"], result["blocks"]) for seed, scan in scans.items()}
        if any(states.values()):
            best[combined] = states
    pass_over = result["examples"] * result["flops"]["full_inference"]
    scan_share = pass_over / result["flops"]["full_train"]
    labels = np.array(result["labels"])
    return Pair(name, result["blocks"], result["metric"], labels, tuned, best, scan_share)


def _find_named(scores: Mapping[str, Any], blocks: int) -> int | None:
    """Return the state that `auto` names by a scan; None if that lacks the default score."""
    score = scores.get(DEFAULT)
    return None if score is None else name_head(DEFAULT, Score.from_dict(score), blocks).state


def _rank_states(scores: Mapping[str, Any], blocks: int) -> int | None:
    """Return the state whose mean rank over all scores of states is best; of ties the lowest."""
    signs = {"lower": 1.0, "higher": -1.0}
    ranks = [
        rankdata(
            [
                np.inf if value is None else signs[score["better"]] * value
                for value in score["values"][1 : blocks + 1]
            ]
        )
        for score in scores.values()
        if score["of"] == "states"
    ]
    return int(np.mean(ranks, axis=0).argmin()) + 1 if ranks else None
