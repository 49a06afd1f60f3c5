"""What the records of a study hold, as tidy rows.

Nothing here runs anything; it reads what `study.json` and the records of trials hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pandas as pd

from layerscout.plans import rank_rate
from layerscout.scores import ranks
from layerscout.studies.recipe import DERIVED

# Columns of `summary.csv` that are not axes.
FIXED = ("measure", "at", "checkpoint", "value", "selected", "trial", "status")


def tidy_records(
    study: Mapping[str, Any], read: Callable[[str], Mapping[str, Any] | None]
) -> pd.DataFrame:
    """Give a row for every value that the trials of a study measured.

    Args:
        study: the content of `study.json`.
        read: gives the record of a trial by its key, or None.

    Returns:
        `grid`, a column for every axis (and what follows from one), and `FIXED`: the measure, the
        state, block or epoch it is of, the epoch of the checkpoint where several were scanned (0
        before training), its value, whether the learning rate is the one that was chosen, the
        trial, and "done", "failed", "refused" or "waiting".
    """
    records: dict[str, Mapping[str, Any] | None] = {}
    for cell in study["cells"]:
        if cell["trial"] is not None and cell["trial"] not in records:
            records[cell["trial"]] = read(cell["trial"])
    chosen = _find_chosen(study["cells"], records)
    rows: list[dict[str, Any]] = []
    for number, cell in enumerate(study["cells"]):
        record = records.get(cell["trial"])
        shared = {"grid": cell["grid"], **cell["values"]}
        shared.pop("models", None)
        status = "refused" if cell["trial"] is None else "waiting"
        status = status if record is None else record["status"]
        told = {"selected": number in chosen, "trial": cell["trial"], "status": status}
        if status != "done" or record is None:
            rows.append(shared | dict.fromkeys(FIXED) | told)
            continue
        values = list_measures(record, cell["values"])
        for measure, at, value in chain([("seconds", None, record["seconds"])], values):
            place = at if isinstance(at, Place) else Place(at, None)
            rows.append(shared | {"measure": measure, **place._asdict(), "value": value} | told)
    axes = dict.fromkeys(["grid", *(name for row in rows for name in row if name not in FIXED)])
    return pd.DataFrame(rows, columns=[*axes, *FIXED])


def _find_chosen(
    cells: Sequence[Mapping[str, Any]], records: Mapping[str, Mapping[str, Any] | None]
) -> set[int]:
    """Number the cells whose learning rate has the best mean over the seeds that came through."""
    left = ("seed", "learning_rate", *DERIVED)
    points: list[Point] = []
    found = set()
    for number, cell in enumerate(cells):
        values = cell["values"]
        if "learning_rate" not in values:
            found.add(number)
            continue
        rest = (cell["grid"], *((k, v) for k, v in values.items() if k not in left))
        points.append((number, rest, values["learning_rate"], get_metric(records[cell["trial"]])))
    return found.union(*choose_rates(points))


# What is chosen from, all that a rate is chosen for, the rate, and the metric that it gave.
Point = tuple[Any, Any, Any, float | None]


def choose_rates(points: Iterable[Point]) -> list[list[Any]]:
    """Choose for everything that a rate is chosen for the one with the best mean over seeds.

    Returns:
        What was to be chosen from of the best rate, in a list each; see `choose_rate`.
    """
    sweeps: dict[Any, dict[Any, list[tuple[Any, float | None]]]] = {}
    for one, rest, rate, value in points:
        sweeps.setdefault(rest, {}).setdefault(rate, []).append((one, value))
    return [
        choose_rate([([one for one, _ in some], [v for _, v in some]) for some in rates.values()])
        for rates in sweeps.values()
    ]


def choose_rate(rates: Sequence[tuple[Any, Sequence[float | None]]]) -> Any:
    """Give the entry of the learning rate with the best mean over seeds.

    One with which more seeds came through goes first, and of equal ones the first.

    Args:
        rates: an entry for each rate, with the metric of every seed, None where it has none.
    """
    return max(rates, key=lambda rate: rank_rate(rate[1]))[0]


def get_metric(record: Mapping[str, Any] | None) -> float | None:
    """Give the metric of the epoch that counts of a trial of tune; None where it did not end."""
    if record is None or record["status"] != "done" or record["verb"] != "tune":
        return None
    result = record["result"]
    value: float | None = result[result["keep"]]["value"]
    return value


Measured = Iterator[tuple[str, Any, float | None]]


class Place(NamedTuple):
    """What a value is of, where several checkpoints of a model were scanned.

    Attributes:
        at: the state or block; of what is averaged over them, the number of the checkpoint.
        checkpoint: the epoch after which it was kept; 0 is the model before its training.
    """

    at: Any
    checkpoint: int | None


# What comes of files that lack something or hold another type.
UNLIKE_OURS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration)


def list_measures(record: Mapping[str, Any], values: Mapping[str, Any]) -> Measured:
    """Give what a trial that is done measured: the measure, the state or epoch, and the value.

    Args:
        record: of the trial.
        values: of the axes at its point of the grid.
    """
    return _MEASURED[record["verb"]](record, values)


def _measure_tune(record: Mapping[str, Any], _: Mapping[str, Any]) -> Measured:
    result = record["result"]
    flops, seconds = result["flops"], result["seconds"]
    yield "metric", None, get_metric(record)
    yield "majority", None, result.get("majority")  # records of earlier versions have none
    yield "epoch", None, result[result["keep"]]["epoch"]
    yield "train_seconds", None, seconds["train"] + seconds["evaluate"]
    yield "flops", None, flops["train"]
    yield "share", None, flops["train"] / flops["full_train"]
    yield "example_seconds", None, seconds.get("example")  # earlier records have none
    yield "inference_share", None, flops["inference"] / flops["full_inference"]
    yield "parameters", None, result["parameters"]["total"]
    yield "trainable", None, result["parameters"]["trainable"]
    for epoch in result["curve"]:
        yield "metric_by_epoch", epoch["epoch"], epoch["value"]
        yield "loss_by_epoch", epoch["epoch"], epoch["loss"]


def _measure_scan(record: Mapping[str, Any], _: Mapping[str, Any]) -> Measured:
    result = record["result"]
    diagnostics, stability = result.get("diagnostics") or {}, result.get("stability") or {}
    # The models are the one before its training, and the same after some epochs.
    epochs = [0, *(model["epoch"] for model in record["models"][1:])] if stability else [None]
    for key, score in result["scores"].items():
        moved = stability.get("scores", {}).get(key)
        shown = moved["values"] if moved else [score["values"]]
        for epoch, values in zip(epochs, shown, strict=True):
            for measure, found in (key, values), (f"rank:{key}", ranks(values, score["better"])):
                for at, value in enumerate(found):
                    if value is not None:
                        yield measure, Place(at, epoch), value
        yield f"best:{key}", None, result["best"].get(key)
        yield f"smoothness:{key}", None, diagnostics.get("smoothness", {}).get(key)
        for name, value in (diagnostics.get("against_probe", {}).get(key) or {}).items():
            if name in ("pearson", "spearman", "r_squared", "slope"):
                yield f"{name}:{key}", None, value
        for at, value in enumerate(moved["deviation"] if moved else ()):
            yield f"deviation:{key}", Place(at, epochs[at]), value


def _measure_compare(record: Mapping[str, Any], values: Mapping[str, Any]) -> Measured:
    result = record["result"]
    names = values.get("models") or [model["name"] for model in result["models"]]
    for name, found in zip(names, result["clusters"], strict=True):
        if found["cka"] is not None:
            yield "contrast", name, found["cka"]["contrast"]
            yield "split", name, found["cka"]["split"]
    for one in result["maps"]:
        first, second = (names[number].partition(", seed ") for number in one["of"])
        if one["of"][0] != one["of"][1] and first[:2] == second[:2] and first[1]:
            for row, line in zip(one["rows"], one["cka"], strict=True):
                if row in one["columns"]:
                    yield "same_state", row, line[one["columns"].index(row)]


def _measure_evaluate(record: Mapping[str, Any], _: Mapping[str, Any]) -> Measured:
    result = record["result"]
    yield "metric", None, result["metrics"][result["metric"]]
    yield "majority", None, result["majority"]
    yield "inference_seconds", None, result.get("seconds", {}).get("evaluate")
    for name, curve in (result["truncation"] or {}).items():
        for at, value in enumerate(curve or ()):
            if value is not None:
                yield name, at, value
    for first, line in enumerate(result["skips"] or (), start=1):
        for last, value in enumerate(line, start=1):
            if value is not None:
                yield "skip", str(first) if first == last else f"{first}-{last}", value


_MEASURED: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Measured]] = {
    "tune": _measure_tune,
    "scan": _measure_scan,
    "compare": _measure_compare,
    "evaluate": _measure_evaluate,
}
