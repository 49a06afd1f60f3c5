"""What to type next: the command of a verb for the model and the data of an earlier one."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerscout.models import read_token
from layerscout.pages.evaluation import (
    advise_more_rows,
    count_removable,
    find_failure,
    have_one_class,
)
from layerscout.pages.words import format_plain
from layerscout.plans import (
    METHODS,
    Pooling,
    Settings,
    TuneRequest,
    choose_epochs,
    describe_method,
    make_method,
    options_of,
    usual_pooling,
)

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


AGAIN = "Tune it again, for longer and at other learning rates:"
ON_MORE_ROWS = "Tune it again, with more rows to validate on:"
# At the same state it was better in 10 of 11 cases of the frontier, by 2 to 18 points (MiniLM), and
# worse in one, by 15 (mpnet on CoLA).
ON_THE_MEAN = "Try a head on the mean of all tokens, often a better one where no block is tuned:"
# The share of the rows that are set aside to validate on more of them.
MORE_ROWS = 0.3
# What tuning again does not take from the options that were given: it has the plan that came of
# them, trains for longer at other rates, and the data come with the settings.
SETTLED = frozenset(
    {
        *("plan", "against", "score", "budget", "max_length"),
        *("learning_rate", "epochs", "max_steps"),
    }
)


def suggest_step(content: Mapping[str, Any], folder: str) -> tuple[str, str] | None:
    """Give what to do after a tuning, an evaluation or a comparison, and the command for it.

    The command is run where the first one was, since names of files are as they were given then.

    Args:
        content: of `result.json`, `evaluate.json` or `compare.json`.
        folder: where that is.

    Returns:
        None after a scan, whose advice has its own command, and where nothing follows.
    """
    match content["verb"]:
        case "tune" if _may_read_mean(content):
            changed = {"--classifier": "mean-linear"}
            return ON_THE_MEAN, _repeat(
                describe_tuning(content), content, changed, f"{folder}-mean"
            )
        case "tune" if find_failure(content):
            return _tune_again({**content, "tuning": describe_tuning(content)}, folder)
        case "tune" if content["saved_as"] == "checkpoint":
            command = write_command(
                "evaluate", content, "--edit", "truncate", model=f"{folder}/model"
            )
            return "See how many blocks the tuned model can do without:", command
        case "evaluate":
            return _follow_evaluation(content)
        case "compare":
            # A comparison reads the first token by default, a scan what suits the model.
            settings = {k: v for k, v in content["settings"].items() if k != "pooling"}
            of = {**content, "model": content["models"][0], "settings": settings}
            return "Score every layer for the task:", write_command("scan", of)
    return None


def _follow_evaluation(content: Mapping[str, Any]) -> tuple[str, str] | None:
    """Suggest to save the shortest model that will do, or to find which blocks matter.

    That needs both maps at once: an evaluation does not know what an earlier one has found. A model
    that has learnt nothing is tuned again first.
    """
    if find_failure(content):
        if have_one_class(content):
            return None
        tuned = Path(content["model"]["name"])
        again = tuned.parent if content.get("tuning") and tuned.name == "model" else tuned
        return _tune_again(content, str(again))
    name, removable = content["model"]["name"], count_removable(content)
    if removable and content.get("saved_as") == "ours":  # it has no blocks of its own
        return None
    if removable:
        head = str(content["model"]["blocks"] - removable)
        output = f"{name.rstrip('/')}-head-{head}"
        words = ["layerscout", "truncate", name, "--head", head, "-o", output]
        return "Save the model without them:", shlex.join(words)
    if "untuned" not in content["truncation"] or content["skips"] is None:
        command = write_command("evaluate", content, "--edit", "truncate", "--edit", "skip")
        return "See how many blocks the model can do without, and which matter least:", command
    return None


def describe_tuning(result: Mapping[str, Any]) -> dict[str, Any]:
    """Give what repeats a tuning, from the content of `result.json`."""
    method = str(result["method"])
    usual = describe_method(make_method(method))
    options = {
        name: value
        for name, value in (result.get("method_options") or {}).items()
        if value != usual.get(name)
    }
    given = result.get("given") or {}
    return {
        "model": str(result["model"]["name"]),
        "plan": str(result["plan"]["notation"]),
        "method": method,
        "metric": str(result["metric"]),
        "epochs": int(result["settings"]["epochs"]),
        "best_epoch": int(result["best"]["epoch"]),
        "learning_rate": float(result["runs"][result["kept"]]["learning_rate"]),
        "options": options | {k: v for k, v in given.items() if k not in SETTLED},
        "settings": result["settings"],
    }


def _tune_again(content: Mapping[str, Any], folder: str) -> tuple[str, str] | None:
    """Suggest to tune for longer, or judged on more rows.

    As before if that is known, else from this checkpoint. The result goes beside `folder`, since a
    folder that holds one is not written to. None where it was trained for longer before, its data
    are not where they were, as seen from another folder, or only other data would help.
    """
    if folder.endswith("-longer"):
        return None
    before = content.get("tuning")
    if before is None:
        words = ["--epochs", str(2 * TuneRequest.epochs), "-o", f"{folder}-longer"]
        return AGAIN, write_command("tune", content, *words)
    if not before.get("data_found", True):
        return None
    step, name, rate = AGAIN, "longer", before["learning_rate"]
    changed = train_longer(before["epochs"], rate)
    if advise_more_rows(content):
        if not _can_set_more_aside(content, before["settings"]):
            return None
        step, name = ON_MORE_ROWS, "more-rows"
        changed = {"--validation": str(MORE_ROWS), "--epochs": str(before["epochs"])}
        changed |= {"--learning-rate": f"{rate:g}"}
    return step, _repeat(before, content, changed, f"{folder}-{name}")


def _repeat(
    before: Mapping[str, Any], content: Mapping[str, Any], changed: Mapping[str, str], output: str
) -> str:
    """Write the command that repeats a tuning with some options changed.

    Args:
        before: the tuning, as of `describe_tuning`.
        content: of the tuning or the evaluation.
        changed: the options, by flag.
        output: the folder of the result.
    """
    options = {"--plan": before["plan"]}
    options |= {} if before["method"] == "full" else {"--method": before["method"]}
    words = [word for option in options.items() for word in option]
    if "class_weights" not in before["options"]:
        words += balance_classes(content["task"]["kind"], before["metric"])
    metric = find_metric(content)
    for option, value in (({"metric": metric} if metric else {}) | before["options"]).items():
        words += write_option(TuneRequest, option, value)
    words += [word for option in changed.items() for word in option]
    return write_command("tune", before, *words, "-o", output, model=before["model"])


def _may_read_mean(content: Mapping[str, Any]) -> bool:
    """Tell whether a tuning trained nothing but the family's head, on the first token of a text."""
    if content["plan"]["tuned"] or content["plan"].get("embeddings") or content["method"] != "full":
        return False
    family = content["settings"]["classifier"] == "family"
    texts = content["task"]["kind"] not in ("multiple_choice", "token_classification")
    return family and texts and find_usual_pooling(content) == "mean"


def _can_set_more_aside(content: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Tell whether a model was judged on a small share of the rows that its tuning was given.

    Args:
        content: of the tuning or the evaluation.
        settings: of the tuning.
    """
    share = settings.get("validation")
    of_tuning = settings.get("data") == content["settings"].get("data")
    return of_tuning and isinstance(share, float) and share < MORE_ROWS


def write_next_command(content: Mapping[str, Any], scan: Mapping[str, Any]) -> str:
    """Write the command that tunes by the chosen plan."""
    task, work, method = content["task"], content["work"], content["method"]
    usual_epochs = choose_epochs(Settings(), work["examples"], task["kind"], task["labels"])
    more = ["--epochs", str(work["epochs"])] if work["epochs"] != usual_epochs else []
    more += balance_classes(task["kind"], task.get("metric"))
    more += [] if method == "full" else ["--method", method]
    usual = describe_method(METHODS[method]())
    for name, value in content.get("method_options", {}).items():
        if value != usual[name]:
            more += [f"--{name.replace('_', '-')}", format_plain(value)]
    more += ["--plan", content["plan"]["notation"], *(["--untie"] if content["untie"] else [])]
    return write_command("tune", scan, *more)


def write_advice(scan: Mapping[str, Any]) -> str | None:
    """Write the command that follows the advice; None where there is none."""
    plan, task = (scan.get("advice") or {}).get("plan"), scan["task"]
    if plan is None:
        return None
    balanced = balance_classes(task["kind"], task.get("metric"))
    return write_command("tune", scan, *balanced, "--plan", plan["notation"])
