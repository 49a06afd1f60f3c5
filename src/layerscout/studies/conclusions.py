"""What a study shows, in sentences, and the command that follows from it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from layerscout.data import SIGNED
from layerscout.studies.best_cell import find_best_cell, suggest_tuning
from layerscout.studies.study_content import StudyContent
from layerscout.studies.tables import (
    Contest,
    compare_with_baseline,
    format_rounded,
    format_value,
    select_rows,
)

# Axes whose values are ways to tune, so that one may be better and another one cheaper.
STRATEGIES = ("plan", "method")
VERBS = {"tune": "tuned", "scan": "scanned", "compare": "compared", "evaluate": "evaluated"}


@dataclass(frozen=True)
class Conclusion:
    """What a study shows.

    Attributes:
        lines: sentences, the first of which says most.
        step: what to do next, and the command for it.
    """

    lines: list[str]
    step: tuple[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Give what `study.json` and the page hold of it."""
        return {"conclusion": self.lines, "next": self.step[1]}


def conclude(study: StudyContent, folder: str) -> Conclusion:
    """Say which plans of a study do better than its baseline, or what else it measured.

    Args:
        study: as far as it has come.
        folder: where it is, as commands name it.
    """
    found = {
        name: lines
        for name, grid in study.recipe.grids.items()
        if grid.verb == "tune" and (lines := _compare_strategies(study, name))
    }
    lines = [
        line if len(found) == 1 else f"{name}: {line}"
        for name, some in found.items()
        for line in some
    ]
    best = find_best_cell(study)
    if best is None:
        command = shlex.join(["layerscout", "report", folder])
        step = "Update this page with the trials that are done by then:", command
    else:
        step = suggest_tuning(best, study.content.get("data"))
    return Conclusion(lines or _describe_measured(study), step)


def _compare_strategies(study: StudyContent, grid: str) -> list[str]:
    """Compare the plans, or else the methods, of a grid; nothing where fewer than two are done."""
    found = select_rows(study.frame, grid, ["share"])
    for axis in STRATEGIES:
        if axis not in found:
            continue
        rows = list(zip(found[axis].map(format_value), found["value"], strict=True))
        shares = {one: mean(v for other, v in rows if other == one) for one, _ in rows}
        if len(shares) < 2:
            continue
        usual = [one for one in (study.recipe.baseline, "full") if one is not None]
        costly = sorted(shares, key=lambda one: -shares[one])
        baseline = next(one for one in (*usual, *costly) if one in shares)
        contests = compare_with_baseline(study.frame, grid, axis, baseline, study.records)
        if not contests:
            return []
        unlearnt, some = _find_unlearnt(study, grid)
        if unlearnt and not some:
            return [_describe_unlearnt(study, grid, axis)]
        lines = _describe_contests(contests, shares, baseline, axis, _find_unit(study, grid))
        if unlearnt:
            lines.append(
                f"No {axis} does better than always giving the same answer on "
                f"{', '.join(unlearnt)}, so the differences there are noise."
            )
        return lines
    return []


def _find_unit(study: StudyContent, grid: str) -> str:
    """Give the unit of differences: points of a share, or none where some metric is not a share."""
    metrics = {
        record["result"].get("metric")
        for cell, record in study.list_done("tune")
        if cell["grid"] == grid
    }
    return "" if metrics & {None, *SIGNED} else "points"


def _describe_contests(
    contests: Sequence[Contest],
    shares: Mapping[str, float],
    baseline: str,
    axis: str,
    unit: str,
) -> list[str]:
    """Name what does better than the baseline; if nothing does, what is cheaper and nearest."""

    def describe(one: Contest) -> str:
        cost = shares[one.name] / shares[baseline]
        cost_words = "under 1%" if cost < 0.005 else f"{cost:.0%}"
        return (
            f"{cost_words} of its training FLOPs for {_describe_difference(one, unit)} "
            f"({_describe_interval(one, unit)})"
        )

    ahead = [one for one in contests if (one.difference.low or 0) > 0]
    if ahead:
        best = max(ahead, key=lambda one: one.difference.mean)
        lines = [f"{best.name} beats {baseline}: it takes {describe(best)}."]
        if len(contests) > 1:
            lines.append(
                f"It was chosen as the best of {len(contests)} {axis}s on these same examples, so "
                "its result is a little too good."
            )
        if not best.rows and "seed" in best.over:
            lines.append(
                "The interval covers only the seeds, which share their validation examples; with "
                "predictions: true in the settings of the recipe, it covers these examples, too."
            )
        return lines
    behind = all(one.difference.high is not None and one.difference.high < 0 for one in contests)
    cheaper = [one for one in contests if shares[one.name] < shares[baseline]]
    near = max(cheaper or contests, key=lambda one: one.difference.mean)
    line = f"{'Nothing beats' if behind else 'Nothing clearly beats'} {baseline}; {near.name} "
    line += f"takes {describe(near)}"
    if near.difference.high is None or near.difference.high >= 0:
        line += ", so which of the two is better is unclear"
    return [f"{line}."]


def _describe_difference(one: Contest, unit: str) -> str:
    size = _format_size(abs(one.difference.mean), unit)
    if not float(size):
        return "no difference"
    more = "more" if one.difference.mean > 0 else "less"
    return f"{size} {unit} {more}" if unit else f"{size} {more} of the metric"


def _describe_interval(one: Contest, unit: str) -> str:
    low, high = one.difference.low, one.difference.high
    if low is None or high is None:
        return f"no interval: {one.over}"
    ends = (f"{'−' if end < 0 else '+'}{_format_size(abs(end), unit)}" for end in (low, high))
    return f"95 % interval {' to '.join(ends)}, over {one.over}"


def _format_size(value: float, unit: str) -> str:
    return f"{100 * value:.1f}" if unit else f"{value:.3f}"


def _find_unlearnt(study: StudyContent, grid: str) -> tuple[list[str], bool]:
    """Name the tasks on which no trial does better than one answer for all, and if others do."""
    found = select_rows(study.frame, grid, ["metric", "majority"])
    by: dict[str, dict[str, list[float]]] = {}
    for row in found.to_dict("records"):
        task = by.setdefault(format_value(row["task"]), {})
        task.setdefault(str(row["measure"]), []).append(float(row["value"]))
    unlearnt = [
        task
        for task, values in by.items()
        if "majority" in values and max(values["metric"]) <= max(values["majority"])
    ]
    return unlearnt, len(unlearnt) < len(by)


def _describe_unlearnt(study: StudyContent, grid: str, axis: str) -> str:
    found = select_rows(study.frame, grid, ["metric", "majority"])
    best, always = (found[found["measure"] == one]["value"].max() for one in ("metric", "majority"))
    return (
        f"No {axis} has learnt the task: the best trial reaches {format_rounded(best)}, and always "
        f"giving the same answer reaches {format_rounded(always)}, so the differences mean nothing."
    )


def _describe_measured(study: StudyContent) -> list[str]:
    """Say what was run on what, and where its figures stand, where no strategies are compared."""
    parts = []
    for verb, past in VERBS.items():
        cells = [cell["values"] for cell, _ in study.list_done(verb)]
        if not cells:
            continue
        axes = [
            _count({str(values[axis]) for values in cells if axis in values}, axis)
            for axis in ("model", "task")
        ]
        parts.append(f"{past} {' on '.join(filter(None, axes))} ({_count(cells, 'trial')})")
    if not parts:
        return ["No trial is done yet, so there is nothing to conclude."]
    recipe = study.recipe
    titles = [*(one.title for one in recipe.tables), *(one.title for one in recipe.figures)]
    look = titles[0] if titles else "Trials"
    return [
        f"This study {_join(parts)}. It compares no plans or methods, so it names no winner; look "
        f'first at "{look}".'
    ]


def _count(things: Any, name: str) -> str:
    number = len(things)
    return "" if not number else f"{number:,} {name}{'' if number == 1 else 's'}"


def _join(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
