"""The command to type next, with the model and the data of a scan."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerscout.models import read_token
from layerscout.plans import Pooling, TuneRequest, options_of, usual_pooling

# Settings of a scan that say what is read, with the default of every verb.
CARRIED: Mapping[str, Any] = {
    "task": None,
    "text": None,
    "text_pair": None,
    "label": None,
    "label_separator": None,
    "regression": False,
    "drop_missing": False,
    "sep": None,
    "validation": None,
    "max_length": 128,
    "seed": 0,
}
# Only a scan takes these; its usual pooling is the family's.
CARRIED_BY_SCANS: Mapping[str, Any] = {"pooling": None, "balanced": False}
# Only a tuning judges what it made on a test file as well.
CARRIED_BY_TUNINGS: Mapping[str, Any] = {"test": None}
# The verbs with a metric that counts.
JUDGING = ("tune", "evaluate")


def find_usual_pooling(scan: Mapping[str, Any]) -> Pooling:
    """Give the pooling that a scan of this model and task has unless it is told otherwise."""
    words = scan["task"]["kind"] == "token_classification"
    return usual_pooling(read_token(scan["model"]), words=words)


def find_metric(content: Mapping[str, Any]) -> str | None:
    """Find the metric that was asked for in place of the task's own; None if none was."""
    metric, own = content.get("metric"), content.get("task", {}).get("metric")
    return None if own is None or metric == own else metric


def balance_classes(kind: str, metric: str | None) -> list[str]:
    """Give the option with which rare classes count as much in training as they do in the metric.

    Args:
        kind: of the task.
        metric: that counts. Of classes it is macro-F1 by default where one of them is rare.
    """
    rare = kind == "classification" and metric == "macro_f1"
    return ["--class-weights", "balanced"] if rare else []


def choose_output(data: str) -> list[str]:
    """Give the option for a free output folder where tune's default one, `tuned`, has a result.

    tune refuses to replace the result of another training, so the command would not run as it
    stands.

    Args:
        data: what is tuned on, by which the folder is named.
    """
    if not os.access("tuned/result.json", os.F_OK):
        return []
    stem = Path(data).name.partition(".")[0].strip("-")
    first = f"tuned-{stem}" if stem else "tuned"
    names = itertools.chain([first], (f"{first}-{n}" for n in itertools.count(2)))
    return ["-o", next(name for name in names if not os.access(name, os.F_OK))]


def write_report_command(folder: str) -> str:
    """Write the command that draws the page of a result, as a shell reads it."""
    return shlex.join(["layerscout", "report", folder])


def write_command(verb: str, scan: Mapping[str, Any], *more: str, model: str | None = None) -> str:
    """Write the command of a verb for the model and the data of a scan, as a shell reads it.

    Args:
        verb: the verb.
        scan: the content of `scan.json`, or of `result.json` and the like.
        more: further options.
        model: another model.
    """
    settings = scan["settings"]
    name = scan["model"]["name"] if model is None else model
    words = ["layerscout", verb, name, str(settings.get("data") or "DATA")]
    carried = dict(CARRIED)
    if verb == "tune":
        carried |= CARRIED_BY_TUNINGS
        more = more if "-o" in more else (*more, *choose_output(settings.get("data") or ""))
    if verb == "scan":
        carried |= CARRIED_BY_SCANS
        carried["pooling"] = find_usual_pooling(scan)
    for name, usual in carried.items():
        value, option = settings.get(name, usual), f"--{name.replace('_', '-')}"
        if value != usual and option not in more:
            words += [option] if value is True else [option, str(value)]
    if verb in JUDGING and "--metric" not in more and (metric := find_metric(scan)):
        words += ["--metric", metric]
    return shlex.join([*words, *more])


def write_option(kind: Any, name: str, value: Any) -> list[str]:
    """Write an option of a request, or of a method in it, as the words of a command line."""
    declared = options_of(kind).get(name)
    option = (declared.flag if declared else None) or f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    return [option, ",".join(map(str, value)) if isinstance(value, list) else str(value)]


def train_longer(epochs: int, rate: float) -> dict[str, str]:
    """Give the options that train a model for longer, and at other rates than the one it had."""
    rates = ",".join(f"{float(f'{one:.2g}'):g}" for one in (rate / 3, rate, 3 * rate))
    return {"--epochs": str(max(TuneRequest.epochs, 2 * epochs)), "--learning-rate": rates}
