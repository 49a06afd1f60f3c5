"""What the records of a study hold, as tidy rows.

Nothing here runs anything; it reads what `study.json` and the records of trials hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from layerscout.plans import rank_rate
from layerscout.reporting import title_score
from layerscout.scores import SCORES, ranks
from layerscout.studies.recipe import DERIVED

# Columns of `summary.csv` that are not axes.
FIXED = ("measure", "at", "checkpoint", "value", "selected", "trial", "status")


class Value(NamedTuple):
    """A value that a trial measured.

    Attributes:
        measure: its name; None, and no other field, where a trial has measured nothing.
        at: the state, block or epoch it is of; of what is averaged over states, the number of the
            checkpoint.
        checkpoint: where several checkpoints of a model were scanned, the epoch after which it was
            kept; 0 is the model before its training.
        value: the number; None where there is none.
    """

    measure: str | None
    at: Any
    checkpoint: int | None
    value: float | None


def tidy_records(
    study: Mapping[str, Any], read: Callable[[str], Mapping[str, Any] | None]
) -> pd.DataFrame:
    """Return a row for every value that the trials of a study measured.

    Args:
        study: the content of `study.json`.
        read: returns the record of a trial by its key, or None.

    Returns:
        `grid`, a column for every axis (and what follows from one), and `FIXED`: the fields of
        `Value`, whether the learning rate is the one that was chosen, the trial, and "done",
        "failed", "refused" or "waiting". The index numbers the points of the grids.
    """
    cells = study["cells"]
    keys = dict.fromkeys(cell["trial"] for cell in cells)
    records = {key: None if key is None else read(key) for key in keys}
    trials = [
        (
            (
                grid,
                "learning_rate" in values,
                *list_axes(values, "seed", "learning_rate", "models"),
            ),
            values.get("learning_rate"),
            get_metric(records[cell["trial"]]),
        )
        for cell in cells
        for grid, values in [(cell["grid"], cell["values"])]
    ]
    chosen = set(choose_rates(trials))
    rows: list[dict[str, Any]] = []
    for number, cell in enumerate(cells):
        record = records[cell["trial"]]
        status = "refused" if cell["trial"] is None else "waiting"
        status = status if record is None else record["status"]
        shared = {"point": number, "grid": cell["grid"], **cell["values"]}
        shared.pop("models", None)
        trial = {"selected": number in chosen, "trial": cell["trial"], "status": status}
        measured: Iterable[Value] = [Value(None, None, None, None)]
        if status == "done" and record is not None:
            took = Value("seconds", None, None, record["seconds"])
            measured = (took, *MEASURED[record["verb"]](record, cell["values"]))
        rows += [shared | value._asdict() | trial for value in measured]
    axes = (name for row in rows for name in row if name not in FIXED)
    columns = dict.fromkeys(["point", "grid", *axes, *FIXED])
    return pd.DataFrame(rows, columns=[*columns]).set_index("point")


def list_axes(values: Mapping[str, Any], *without: str) -> tuple[tuple[str, Any], ...]:
    """List the values by which a point of a grid differs from others, without some axes."""
    apart = (*without, *DERIVED)
    return tuple((name, value) for name, value in values.items() if name not in apart)


def choose_rates(trials: Sequence[tuple[Any, Any, float | None]]) -> list[int]:
    """Choose the learning rates with the best mean over seeds, and return their trials' numbers.

    A rate with which more seeds came through goes first, and of equal ones the first.

    Args:
        trials: what the rate is chosen for, the rate, and the metric that it gave, None where the
            trial did not end.
    """
    points: dict[Any, dict[Any, list[int]]] = {}
    for number, (point, rate, _) in enumerate(trials):
        points.setdefault(point, {}).setdefault(rate, []).append(number)

    def rank(numbers: list[int]) -> tuple[int, float]:
        return rank_rate([trials[number][2] for number in numbers])

    return [number for rates in points.values() for number in max(rates.values(), key=rank)]


def get_metric(record: Mapping[str, Any] | None) -> float | None:
    """Return the metric of the epoch that counts of a trial of tune; None where it did not end."""
    if record is None or record["status"] != "done" or record["verb"] != "tune":
        return None
    result = record["result"]
    value: float | None = result[result["keep"]]["value"]
    return value


# What comes of files that lack something or hold another type.
UNLIKE_OURS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration)


def _measure_tune(record: Mapping[str, Any], _: Mapping[str, Any]) -> Iterator[Value]:
    result = record["result"]
    flops, seconds = result["flops"], result["seconds"]
    whole = {
        "metric": get_metric(record),
        "majority": result.get("majority"),  # records of earlier versions have none
        "epoch": result[result["keep"]]["epoch"],
        "train_seconds": seconds["train"] + seconds["evaluate"],
        "flops": flops["train"],
        "share": flops["train"] / flops["full_train"],
        "example_seconds": seconds.get("example"),  # earlier records have none
        "inference_share": flops["inference"] / flops["full_inference"],
        "parameters": result["parameters"]["total"],
        "trainable": result["parameters"]["trainable"],
    }
    yield from (Value(measure, None, None, value) for measure, value in whole.items())
    for epoch in result["curve"]:
        yield Value("metric_by_epoch", epoch["epoch"], None, epoch["value"])
        yield Value("loss_by_epoch", epoch["epoch"], None, epoch["loss"])


def _measure_scan(record: Mapping[str, Any], _: Mapping[str, Any]) -> Iterator[Value]:
    result = record["result"]
    diagnostics, stability = result.get("diagnostics") or {}, result.get("stability") or {}
    # The models are the one before its training, and the same after some epochs.
    epochs = [0, *(model["epoch"] for model in record["models"][1:])] if stability else [None]
    for key, score in result["scores"].items():
        moved = stability.get("scores", {}).get(key)
        by_epoch = moved["values"] if moved else [score["values"]]
        for epoch, values in zip(epochs, by_epoch, strict=True):
            yield from _measure_states(key, values, epoch)
            yield from _measure_states(f"rank:{key}", ranks(values, score["better"]), epoch)
        yield Value(f"best:{key}", None, None, result["best"].get(key))
        yield Value(f"smoothness:{key}", None, None, diagnostics.get("smoothness", {}).get(key))
        for name, value in (diagnostics.get("against_probe", {}).get(key) or {}).items():
            if name in ("pearson", "spearman", "r_squared", "slope"):
                yield Value(f"{name}:{key}", None, None, value)
        for at, value in enumerate(moved["deviation"] if moved else ()):
            yield Value(f"deviation:{key}", at, epochs[at], value)


def _measure_states(
    measure: str, values: Iterable[float | None], epoch: int | None = None
) -> Iterator[Value]:
    for at, value in enumerate(values):
        if value is not None:
            yield Value(measure, at, epoch, value)


def _measure_compare(record: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[Value]:
    result = record["result"]
    names = values.get("models") or [model["name"] for model in result["models"]]
    for name, clusters in zip(names, result["clusters"], strict=True):
        if clusters["cka"] is not None:
            yield Value("contrast", name, None, clusters["cka"]["contrast"])
            yield Value("split", name, None, clusters["cka"]["split"])
    for cka in result["maps"]:
        first, second = (names[number].partition(", seed ") for number in cka["of"])
        if cka["of"][0] != cka["of"][1] and first[:2] == second[:2] and first[1]:
            for row, line in zip(cka["rows"], cka["cka"], strict=True):
                if row in cka["columns"]:
                    yield Value("same_state", row, None, line[cka["columns"].index(row)])


def _measure_evaluate(record: Mapping[str, Any], _: Mapping[str, Any]) -> Iterator[Value]:
    result = record["result"]
    yield Value("metric", None, None, result["metrics"][result["metric"]])
    yield Value("majority", None, None, result["majority"])
    seconds = result.get("seconds", {}).get("evaluate")
    yield Value("inference_seconds", None, None, seconds)
    for name, curve in (result["truncation"] or {}).items():
        yield from _measure_states(name, curve or ())
    for first, line in enumerate(result["skips"] or (), start=1):
        for last, value in enumerate(line, start=1):
            if value is not None:
                span = str(first) if first == last else f"{first}-{last}"
                yield Value("skip", span, None, value)


MEASURED: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Iterator[Value]]] = {
    "tune": _measure_tune,
    "scan": _measure_scan,
    "compare": _measure_compare,
    "evaluate": _measure_evaluate,
}


def name_measure(measure: str) -> str:
    """Name a measure on an axis, such as "rank of Fisher information"."""
    kind, _, key = measure.rpartition(":")
    name = title_score(key) if key in SCORES else key.replace("_", " ")
    return f"{kind} of {name}" if kind else name


def name_values(rows: Sequence[Mapping[str, Any]]) -> str:
    """Name the axis of the values."""
    measures = list(dict.fromkeys(str(row["measure"]) for row in rows))
    return name_measure(measures[0]) if len(measures) == 1 else "value"


def name_place(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say what the column "at" of rows counts."""
    measure = str(rows[0]["measure"])
    if measure.endswith("_by_epoch"):
        return "epoch"
    if measure.startswith("deviation"):
        return "checkpoint"
    key = measure.rpartition(":")[2]
    return "block" if key == "skip" or (key in SCORES and SCORES[key].of == "blocks") else "state"


def name_family(plan: str) -> str:
    """Name the kind of a strategy, however many blocks it tunes."""
    head, _, rest = plan.partition(":")
    place = rest.partition("@")[2]
    return f"{head}@{place}" if place else head
