"""What a study has measured, what it shows in sentences, and the command that follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd

from layerscout.data import KNOWN, SIGNED, benchmark
from layerscout.plans import TuneRequest, options_of
from layerscout.reporting import (
    name_method,
    train_longer,
    write_command,
    write_options,
    write_report_command,
)
from layerscout.studies.recipe import DERIVED, Recipe
from layerscout.studies.summaries import FIXED, tidy_records
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
    # Studies of earlier versions may ask for a table of regrets, which only a benchmark makes now.
    tables = [one for one in content["recipe"].get("tables", ()) if one.get("kind") != "regrets"]
    recipe = Recipe.model_validate({**content["recipe"], "tables": tables})
    return StudyContent(content, recipe, records, broken, tidy_records(content, records.get))


# Axes whose values are ways to tune, so that one may be better and another one cheaper.
STRATEGIES = ("plan", "method")
VERBS = {"tune": "tuned", "scan": "scanned", "compare": "compared", "evaluate": "evaluated"}
# Options that a command has in a form of its own.
APART = ("plan", "method_options", "seed", "max_length", "metric")


@dataclass(frozen=True)
class Conclusion:
    """What a study shows.

    Attributes:
        lines: sentences, the first of which says most.
        step: what to do next, and the command for it, if anything follows.
    """

    lines: list[str]
    step: tuple[str, str] | None

    def as_dict(self) -> dict[str, Any]:
        """Return what `study.json` and the page hold of it."""
        return {"conclusion": self.lines, "next": self.step and self.step[1]}


def conclude(study: StudyContent, folder: str) -> Conclusion:
    """Say which plans of a study do better than its baseline, or what else it measured.

    Args:
        study: as far as it has come.
        folder: where it is, as commands name it.
    """
    tuned = [name for name, grid in study.recipe.grids.items() if grid.verb == "tune"]
    shown = {name: lines for name in tuned if (lines := _compare_strategies(study, name))}
    lines = [
        line if len(shown) == 1 else f"{name}: {line}"
        for name, some in shown.items()
        for line in some
    ]
    step = _suggest_tuning(study)
    trials = {cell["trial"] for cell in study.content["cells"]} - {None}
    if step is None and trials - study.records.keys():
        sentence = "Update this page with the trials that are done by then:"
        step = sentence, write_report_command(folder)
    return Conclusion(lines or [_describe_measured(study)], step)


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


def _suggest_tuning(study: StudyContent) -> tuple[str, str] | None:
    """Say how to tune the best cell again, and write the command; None where nothing was tuned.

    Where that has learnt nothing, the cell that trains most is tuned for longer.
    """
    if (best := _find_best_cell(study)) is None:
        return None
    plan, record, learnt = best
    given = record["arguments"]
    place = _locate_task(record["task"], study.content.get("data"))
    content = {
        "model": {"name": record["models"][0]},
        "settings": {**place, **{k: given[k] for k in ("seed", "max_length") if k in given}},
    }
    notation = given.get("plan", {}).get("notation", plan)
    options = {"plan": "full" if plan == "full" else notation, **_select_options(given)}
    known = KNOWN.get(place.get("task", ""))
    if "metric" in given and given["metric"] != (known.metric if known else "accuracy"):
        options["metric"] = given["metric"]
    sentence = _describe_step(given)
    if not learnt:
        sentence = "Tune for longer and at other learning rates:"
        options.pop("max_steps", None)
        options |= train_longer(given.get("epochs", TuneRequest.epochs), given["learning_rate"])
    return sentence, write_command("tune", content, *write_options(options))


def _find_best_cell(study: StudyContent) -> tuple[str, Mapping[str, Any], bool] | None:
    """Return the plan of the best cell of tune, its first record, and whether it has learnt.

    The best has the largest mean over seeds on the first task; of equals it is the cheapest. Of
    several tasks the metrics cannot be compared. Where that does no better than one answer for all,
    it is the cell that trains most.
    """
    rows = select_rows(study.frame, None, ["metric"])
    records = [study.records.get(trial) for trial in rows["trial"]]
    rows = rows.assign(record=pd.Series(records, index=rows.index, dtype=object))
    rows = rows[[one is not None and one["verb"] == "tune" for one in records]]
    if rows.empty:
        return None
    rows = rows[rows["task"].map(format_value) == format_value(rows["task"].iloc[0])]
    rows = rows.assign(flops=[one["result"]["flops"]["train"] for one in rows["record"]])
    left = (*FIXED, *DERIVED, "seed", "learning_rate", "record", "flops")
    axes = [rows[name].map(format_value) for name in rows if name not in left]
    cells = rows.groupby(axes, sort=False)
    means = cells[["value", "flops"]].agg(mean).to_numpy()
    first = cells.head(1).to_dict("records")
    place = int(np.lexsort((means[:, 1], -means[:, 0]))[0])
    majority = first[place]["record"]["result"].get("majority")
    learnt = majority is None or bool(means[place, 0] > majority)
    best = first[place if learnt else int(means[:, 1].argmax())]
    return format_value(best.get("plan")), best["record"], learnt


def _describe_step(given: Mapping[str, Any]) -> str:
    """Say what the command does, and which examples of the study it cannot read again."""
    words = ["Tune the best cell again"]
    if "per_class" in given or "balanced" in given:
        words.append("on all training examples")
    elif given.get("sample_seed", given.get("seed")) != given.get("seed"):
        words.append("on another sample of training examples")
    if given.get("validation_examples", "all") != "all":
        words.append("judged on all validation examples")
    return f"{', '.join(words)}:"


def _locate_task(task: Any, data: str | None) -> dict[str, Any]:
    """Return where the data of a trial are and how they are read, as `settings` of results do."""
    if isinstance(task, Mapping):
        return {name: value for name, value in task.items() if name != "name"}
    if task not in KNOWN:
        return {"data": task}
    own = None if data is None else Path(data) / benchmark(task)
    return {"data": str(own) if own and own.is_dir() else KNOWN[task].hub, "task": task}


def _select_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Select the options of a tuning that are not as usual, in the order of their declarations."""
    usual = {n: getattr(TuneRequest, n) for n in options_of(TuneRequest) if n not in APART}
    usual |= {"method": "full", "precision": "float32"}
    chosen = {name: given.get(name, default) for name, default in usual.items()}
    options = {
        name: value for name, value in chosen.items() if value != usual[name] and value is not False
    }
    return options | name_method(given.get("method", "full"), given.get("method_options", {}))
