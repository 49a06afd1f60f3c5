"""What a study has measured, and what it shows in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd

from layerscout.data import SIGNED
from layerscout.studies.recipe import Recipe
from layerscout.studies.summaries import tidy_records
from layerscout.studies.tables import (
    Contest,
    compare_with_baseline,
    format_rounded,
    format_value,
    select_rows,
)
from layerscout.studies.trial import Store


@dataclass(frozen=True)
class StudyContent:
    """What a study has measured so far.

    Attributes:
        content: the content of `study.json`.
        recipe: the recipe.
        records: by the key of their trial; None where there is none, or a broken one.
        broken: how many records cannot be read.
        frame: the tidy rows.
    """

    content: Mapping[str, Any]
    recipe: Recipe
    records: Mapping[str, dict[str, Any] | None]
    broken: int
    frame: pd.DataFrame

    def list_done(
        self, verb: str, grid: str | None = None
    ) -> list[tuple[Mapping[str, Any], dict[str, Any]]]:
        """Return the cells of a verb, or of one grid, whose trial is done, each with its record."""
        cells = [(cell, self.records.get(cell["trial"])) for cell in self.content["cells"]]
        return [
            (cell, record)
            for cell, record in cells
            if grid in (None, cell["grid"])
            and record is not None
            and (record["status"], record["verb"]) == ("done", verb)
        ]


def load_study(content: Mapping[str, Any], folder: Path) -> StudyContent:
    """Read the records of a study, each once."""
    store = Store(folder)
    keys = dict.fromkeys(cell["trial"] for cell in content["cells"] if cell["trial"] is not None)
    records = {key: store.read(key) for key in keys}
    broken = sum(record is None and store.is_broken(key) for key, record in records.items())
    recipe = Recipe.model_validate(content["recipe"])
    return StudyContent(content, recipe, records, broken, tidy_records(content, records.get))


# Axes whose values are ways to tune, so that one may be better and another one cheaper.
STRATEGIES = ("plan", "method")
VERBS = {"tune": "tuned", "scan": "scanned", "compare": "compared", "evaluate": "evaluated"}


def conclude(study: StudyContent) -> list[str]:
    """Say which plans of a study do better than its baseline, or what else it measured.

    Returns:
        Sentences, the first of which says most.
    """
    tuned = [name for name, grid in study.recipe.grids.items() if grid.verb == "tune"]
    shown = {name: lines for name in tuned if (lines := _compare_strategies(study, name))}
    lines = [
        line if len(shown) == 1 else f"{name}: {line}"
        for name, some in shown.items()
        for line in some
    ]
    return lines or [_describe_measured(study)]


def _compare_strategies(study: StudyContent, grid: str) -> list[str]:
    """Compare the plans, or else the methods, of a grid; nothing where fewer than two are done."""
    rows = select_rows(study.frame, grid, ["share"])
    several = (axis for axis in STRATEGIES if axis in rows and rows[axis].nunique() > 1)
    if (axis := next(several, None)) is None:
        return []
    by = rows["value"].groupby(rows[axis].map(format_value), sort=False)
    shares = {str(name): mean(values) for name, values in by}
    costly = max(shares, key=lambda one: shares[one])
    baseline = next(one for one in (study.recipe.baseline, "full", costly) if one in shares)
    contests = compare_with_baseline(study.frame, grid, axis, baseline, study.records)
    if not contests:
        return []
    # By task the best metric of a trial, and that of one answer for all if it is known.
    rows = select_rows(study.frame, grid, ["metric", "majority"])
    places = [rows["task"].map(format_value), rows["measure"]]
    best = rows["value"].groupby(places, sort=False).max().unstack()
    best = best.reindex(columns=["metric", "majority"])
    unlearnt = best.index[best["metric"] <= best["majority"]]
    if len(unlearnt) == len(best):
        reached, always = map(format_rounded, best.max())
        return [
            f"No {axis} has learnt the task: the best trial reaches {reached}, and always "
            f"giving the same answer reaches {always}, so the differences mean nothing."
        ]
    # Differences are in points of a share, unless some metric is not a share.
    metrics = {record["result"].get("metric") for _, record in study.list_done("tune", grid)}
    unit = "" if metrics & {None, *SIGNED} else "points"
    lines = _describe_contests(contests, shares, baseline, axis, unit)
    if len(unlearnt):
        lines.append(
            f"No {axis} does better than always giving the same answer on "
            f"{', '.join(unlearnt)}, so the differences there are noise."
        )
    return lines


def _describe_contests(
    contests: Sequence[Contest], shares: Mapping[str, float], baseline: str, axis: str, unit: str
) -> list[str]:
    """Name what does better than the baseline; if nothing does, what is cheaper and nearest."""

    def write(value: float) -> str:
        return f"{100 * value:.1f}" if unit else f"{value:.3f}"

    def describe(one: Contest) -> str:
        cost, size = shares[one.name] / shares[baseline], write(abs(one.difference.mean))
        more = "more" if one.difference.mean > 0 else "less"
        gain = f"{size} {unit} {more}" if unit else f"{size} {more} of the metric"
        interval = f"no interval: {one.over}"
        if one.difference.low is not None and one.difference.high is not None:
            ends = [
                f"{'−' if end < 0 else '+'}{write(abs(end))}"
                for end in (one.difference.low, one.difference.high)
            ]
            interval = f"95 % interval {' to '.join(ends)}, over {one.over}"
        return (
            f"{'under 1%' if cost < 0.005 else f'{cost:.0%}'} of its training FLOPs for "
            f"{gain if float(size) else 'no difference'} ({interval})"
        )

    if ahead := [one for one in contests if (one.difference.low or 0) > 0]:
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


def _describe_measured(study: StudyContent) -> str:
    """Say what was run on what, and where its figures stand, where no strategies are compared."""
    parts = []
    for verb, past in VERBS.items():
        if cells := [cell["values"] for cell, _ in study.list_done(verb)]:
            numbers = {
                axis: len({str(values[axis]) for values in cells if axis in values})
                for axis in ("model", "task")
            }
            on = " on ".join(_count(number, axis) for axis, number in numbers.items() if number)
            parts.append(f"{past} {on} ({_count(len(cells), 'trial')})")
    if not parts:
        return "No trial is done yet, so there is nothing to conclude."
    listed = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    titles = [one.title for one in study.recipe.tables]
    titles += [one.title for one in study.recipe.figures]
    return f'{listed[0].upper()}{listed[1:]}: see "{titles[0] if titles else "Trials"}".'


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"
