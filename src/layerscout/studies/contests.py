"""How the values of an axis compare with a baseline, and how they correlate with each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from statistics import mean
from typing import Any

import pandas as pd
from scipy import stats

from layerscout.studies.recipe import DERIVED
from layerscout.studies.summaries import FIXED
from layerscout.studies.tables import Mean, average, format_value, select_rows


@dataclass(frozen=True)
class Agreement:
    """How two values of an axis agree over another axis, with two-sided p-values."""

    pair: str
    n: int
    spearman: float
    spearman_p: float
    pearson: float
    pearson_p: float


def correlate_values(
    frame: pd.DataFrame, *, grid: str | None, value: str, of: str, over: str
) -> list[Agreement]:
    """Correlate the means of every two values of an axis over those of another one.

    Tamkin et al. 2020, Table 1. Pairs with fewer than 3 common values, or no spread, are left out.

    Args:
        frame: as `tidy_records` gives it.
        grid: which one; None for all.
        value: a measure.
        of: the axis whose values are compared, such as "task"; models are kept apart.
        over: the axis that is run over, such as "permutation".
    """
    found = select_rows(frame, grid, [value])
    means: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in found.to_dict("records"):
        at = means.setdefault((format_value(row["model"]), format_value(row[of])), {})
        at.setdefault(format_value(row[over]), []).append(float(row["value"]))
    agreed = []
    several = len({model for model, _ in means}) > 1
    for (model, a), (other, b) in combinations(means, 2):
        common = [key for key in means[model, a] if key in means[other, b]]
        x = [mean(means[model, a][key]) for key in common]
        y = [mean(means[other, b][key]) for key in common]
        if model != other or len(common) < 3 or min(len(set(x)), len(set(y))) < 2:
            continue
        name = f"{a}, {b}" + (f" ({model})" if several else "")
        rank, line = stats.spearmanr(x, y), stats.pearsonr(x, y)
        agreed.append(
            Agreement(
                name,
                len(common),
                float(rank.statistic),
                float(rank.pvalue),
                float(line.statistic),
                float(line.pvalue),
            )
        )
    return agreed


@dataclass(frozen=True)
class Contest:
    """How a value of an axis does against the baseline.

    Attributes:
        name: of the value.
        difference: from the baseline, in pairs with all else equal, averaged over seeds and then
            over the rest (models and tasks), with the interval over the rest.
        pairs: trials that were compared.
        wilcoxon: the two-sided p of the signed-rank test over the rest; None for fewer than 5,
            where nothing could be significant.
        better: in how many of the rest the difference is above 0.
    """

    name: str
    difference: Mean
    pairs: int
    wilcoxon: float | None
    better: int


def compare_with_baseline(
    frame: pd.DataFrame, grid: str, axis: str, baseline: str
) -> list[Contest]:
    """Compare every value of an axis with a baseline, in pairs of trials that differ in it alone.

    Args:
        frame: as `tidy_records` gives it.
        grid: of tune.
        axis: such as "plan".
        baseline: a value of it.
    """
    found = select_rows(frame, grid, ["metric"])
    left = (*FIXED, *DERIVED, "grid", "seed", "learning_rate", axis)
    rest = [name for name in found if name not in left]
    by: dict[str, dict[Any, dict[str, float]]] = {}
    for row in found.to_dict("records"):
        place = tuple(format_value(row[name]) for name in rest)
        by.setdefault(str(row[axis]), {}).setdefault(place, {})[str(row["seed"])] = float(
            row["value"]
        )
    base = by.get(baseline, {})
    contested = []
    for name, places in by.items():
        if name == baseline:
            continue
        differences, pairs = [], 0
        for place, seeds in places.items():
            both = [
                value - base[place][seed]
                for seed, value in seeds.items()
                if seed in base.get(place, {})
            ]
            if both:
                differences.append(mean(both))
                pairs += len(both)
        if differences:
            p = None
            if len(differences) >= 5 and any(differences):
                p = float(stats.wilcoxon(differences).pvalue)
            better = sum(one > 0 for one in differences)
            contested.append(Contest(name, average(differences), pairs, p, better))
    return contested
