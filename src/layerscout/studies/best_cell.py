"""The best cell of a study, and the command that tunes it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import mean
from typing import Any

from layerscout.data import KNOWN, benchmark
from layerscout.pages import train_longer, write_command
from layerscout.plans import METHODS, TuneRequest, describe_method, options_of
from layerscout.studies.recipe import DERIVED
from layerscout.studies.study_content import StudyContent
from layerscout.studies.summaries import FIXED
from layerscout.studies.tables import format_value, select_rows

# Options that a command has in a form of its own.
_APART = ("plan", "method_options", "seed", "max_length", "metric")


@dataclass(frozen=True)
class BestCell:
    """The best cell of tune.

    Attributes:
        plan: as the recipe writes it.
        record: of its trial with the first seed.
        learnt: whether it does better than one answer for all.
    """

    plan: str
    record: Mapping[str, Any]
    learnt: bool


def find_best_cell(study: StudyContent) -> BestCell | None:
    """Give the cell with the best mean over seeds on the first task; of equals the cheapest.

    Of several tasks the metrics cannot be compared. Where that has learnt nothing, it is the cell
    that trains most. None where nothing was tuned.
    """
    found = select_rows(study.frame, None, ["metric"])
    left = (*FIXED, *DERIVED, "seed", "learning_rate")
    axes = [name for name in found if name not in left]
    cells: dict[tuple[str, ...], list[tuple[float, str, Mapping[str, Any]]]] = {}
    first = None
    for row in found.to_dict("records"):
        record = study.records.get(row["trial"])
        task = format_value(row.get("task"))
        if record is not None and record["verb"] == "tune" and task == (first := first or task):
            cell = cells.setdefault(tuple(format_value(row[name]) for name in axes), [])
            cell.append((row["value"], format_value(row.get("plan")), record))
    if not cells:
        return None

    def rank(cell: list[tuple[float, str, Mapping[str, Any]]]) -> tuple[float, float]:
        flops = [record["result"]["flops"]["train"] for _, _, record in cell]
        return mean(value for value, _, _ in cell), -mean(flops)

    best = max(cells.values(), key=rank)
    majority = best[0][-1]["result"].get("majority")
    learnt = majority is None or rank(best)[0] > majority
    if not learnt:
        best = min(cells.values(), key=lambda cell: rank(cell)[1])
    _, plan, tuned = best[0]
    return BestCell(plan, tuned, learnt)


def suggest_tuning(best: BestCell, data: str | None) -> tuple[str, str]:
    """Say how to tune a cell again, and give the command; of one that learnt nothing, for longer.

    Args:
        best: the cell.
        data: the folder of known tasks that the study was given.
    """
    given, place = best.record["arguments"], _locate_task(best.record["task"], data)
    content = {
        "model": {"name": best.record["models"][0]},
        "settings": {**place, **{k: given[k] for k in ("seed", "max_length") if k in given}},
    }
    notation = given.get("plan", {}).get("notation", best.plan)
    options = {"--plan": "full" if best.plan == "full" else notation, **_list_options(given)}
    known = KNOWN.get(place.get("task", ""))
    if "metric" in given and given["metric"] != (known.metric if known else "accuracy"):
        options["--metric"] = given["metric"]
    step = _describe_step(given)
    if not best.learnt:
        step = "Tune for longer and at other learning rates:"
        options.pop("--max-steps", None)
        options |= train_longer(given.get("epochs", TuneRequest.epochs), given["learning_rate"])
    words = [word for option in options.items() for word in option if word]
    return step, write_command("tune", content, *words)


def _describe_step(given: Mapping[str, Any]) -> str:
    """Say what the command does, and which examples of the study it cannot read again."""
    other = []
    if "per_class" in given or "balanced" in given:
        other.append("on all training examples")
    elif given.get("sample_seed", given.get("seed")) != given.get("seed"):
        other.append("on another sample of training examples")
    if given.get("validation_examples", "all") != "all":
        other.append("judged on all validation examples")
    return f"{', '.join(['Tune the best cell again', *other])}:"


def _locate_task(task: Any, data: str | None) -> dict[str, Any]:
    """Give where the data of a trial are and how they are read, as `settings` of results do."""
    if isinstance(task, Mapping):
        return {name: value for name, value in task.items() if name != "name"}
    if task not in KNOWN:
        return {"data": task}
    own = None if data is None else Path(data) / benchmark(task)
    return {"data": str(own) if own and own.is_dir() else KNOWN[task].hub, "task": task}


def _list_options(given: Mapping[str, Any]) -> dict[str, str]:
    """List the options of a tuning that are not as usual; those without a value are empty."""
    usual = {one.name: one.default for one in fields(TuneRequest)}
    asked = {
        **{
            f"--{name.replace('_', '-')}" if known.flag is None else known.flag: (name, usual[name])
            for name, known in options_of(TuneRequest).items()
            if name not in _APART
        },
        "--precision": ("precision", "float32"),
    }
    found = {
        option: "" if given[name] is True else format_value(given[name])
        for option, (name, default) in asked.items()
        if given.get(name, default) != default and given[name] is not False
    }
    if (method := given.get("method", "full")) == "full":
        found.pop("--method", None)
    plain = describe_method(METHODS[method]())
    return found | {
        f"--{name.replace('_', '-')}": format_value(value)
        for name, value in given.get("method_options", {}).items()
        if value != plain.get(name)
    }
