"""What to type next: the command of a verb for the model and the data of an earlier one."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from layerscout.data import HELD_OUT
from layerscout.models import read_token
from layerscout.plans import (
    MAX_LENGTH,
    METHODS,
    TRAINING,
    Pooling,
    TuneRequest,
    options_of,
    usual_pooling,
)
from layerscout.reporting.evaluation import (
    EXCHANGED,
    advise_more_rows,
    find_failure,
    have_one_class,
)
from layerscout.reporting.words import find_stage, format_plain, is_left_out

Content = Mapping[str, Any]

# Settings of a scan that say what is read, with the default of every verb; first those that other
# rows need as well.
TEXTS: Content = {"text": None, "text_pair": None}
COLUMNS: Content = {
    "task": None,
    **TEXTS,
    "label": None,
    "label_separator": None,
    "regression": False,
}
CARRIED: Content = {
    **COLUMNS,
    "drop_missing": False,
    "drop_rare": None,
    "merge_rare": None,
    "sep": None,
    "encoding": None,
    "validation": None,
    "max_length": MAX_LENGTH,
    "seed": 0,
}

# The share of the rows that are set aside to validate on more of them.
MORE_ROWS = 0.3

# What tuning again does not take from the options that were given: it has the plan that came of
# them, trains for longer at other rates, and the data come with the settings. A limit of time would
# leave no more of it than before.
SETTLED = frozenset(
    {
        *("plan", "against", "score", "budget", "max_length"),
        *("learning_rate", "epochs", "max_steps", "time"),
    }
)


def find_usual_pooling(scan: Content) -> Pooling:
    """Return the pooling that a scan of this model and task has unless it is told otherwise."""
    words = scan["task"]["kind"] == "token_classification"
    return usual_pooling(read_token(scan["model"]), words=words)


def balance_classes(kind: str, metric: str | None) -> dict[str, str]:
    """Return the option with which rare classes count as much in training as they do in the metric.

    Args:
        kind: of the task.
        metric: that counts. Of classes it is macro-F1 by default where one of them is rare.
    """
    rare = kind == "classification" and metric == "macro_f1"
    return {"class_weights": "balanced"} if rare else {}


def choose_output(data: str) -> list[str]:
    """Return the option for a free output folder where tune's default one, `tuned`, has a result.

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


def write_command(verb: str, scan: Content, *more: str, model: str | None = None) -> str:
    """Write the command of a verb for the model and the data of a scan, as a shell reads it.

    Args:
        verb: the verb.
        scan: the content of `scan.json`, or of `result.json` and the like.
        more: further options.
        model: another model.
    """
    settings = scan["settings"]
    data = str(settings.get("data") or "DATA")
    words = ["layerscout", verb, scan["model"]["name"] if model is None else model, data]
    carried = dict(CARRIED)
    if verb == "tune":
        carried["test"] = None  # only a tuning judges what it made on a test file as well
        if settings.get("validation") == HELD_OUT:  # which it sets aside by itself
            del carried["validation"]
        more = more if "-o" in more else (*more, *choose_output(settings.get("data") or ""))
    if verb == "scan":
        carried |= {"pooling": find_usual_pooling(scan), "balanced": False}
    words += _carry(settings, {k: v for k, v in carried.items() if _write_flag(k) not in more})
    metric = find_metric(scan)
    if verb in ("tune", "evaluate") and metric and "--metric" not in more:
        words += ["--metric", metric]
    return shlex.join([*words, *more])


def _carry(settings: Content, usual: Content) -> list[str]:
    """Write the options of some settings that are not as usual."""
    words = []
    for name, default in usual.items():
        if (value := settings.get(name, default)) != default:
            words += [_write_flag(name)] if value is True else [_write_flag(name), str(value)]
    return words


def _write_flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def find_metric(content: Content) -> str | None:
    """Return the metric that was asked for in place of the task's own; None if none was."""
    metric, own = content.get("metric"), content.get("task", {}).get("metric")
    return None if own is None or metric == own else metric


def write_options(options: Content) -> list[str]:
    """Write options of a tuning, or of a method in it, as the words of a command line."""
    words = []
    for name, value in options.items():
        declared = options_of(TuneRequest).get(name)
        words.append((declared.flag if declared else None) or _write_flag(name))
        words += [] if value is True else [format_plain(value)]
    return words


def train_longer(epochs: int, rate: float) -> dict[str, Any]:
    """Return the options that train for longer, and at other rates than the one there was."""
    rates = [float(f"{one:.2g}") for one in (rate / 3, rate, 3 * rate)]
    return {"epochs": max(TuneRequest.epochs, 2 * epochs), "learning_rate": rates}


def name_method(method: str, options: Content) -> dict[str, Any]:
    """Return the options that name a method and what of it is not as usual."""
    usual = asdict(METHODS[method]())
    unusual = {name: value for name, value in options.items() if value != usual.get(name)}
    return unusual if method == "full" else {"method": method, **unusual}


def write_advice(scan: Content) -> str | None:
    """Write the command that follows the advice of a scan; None where there is none."""
    plan, task = (scan.get("advice") or {}).get("plan"), scan["task"]
    if plan is None:
        return None
    options = balance_classes(task["kind"], task.get("metric")) | _name_plan(scan["advice"])
    return write_command("tune", scan, *write_options(options))


def _name_plan(chosen: Content) -> dict[str, Any]:
    """Return the options that train the plan of a `plan.json`, or of an advice, as it says."""
    return {"plan": chosen["plan"]["notation"], **_name_end(chosen)}


def _name_end(chosen: Content) -> dict[str, Any]:
    """Return the option that ends a training with a solved head, if it does."""
    for name in ("loss", "head_end"):  # the former implies the latter
        if chosen.get(name):
            return {name: chosen[name]}
    return {}


def write_next_command(content: Content, scan: Content) -> str:
    """Write the command that tunes by the plan that was chosen (the content of `plan.json`)."""
    task, method, epochs = content["task"], content["method"], content["epochs"]
    options = {
        **({} if epochs is None else {"epochs": epochs}),
        **balance_classes(task["kind"], task.get("metric")),
        **name_method(method, content.get("method_options", {})),
        **_name_plan(content),
        **({"untie": True} if content["untie"] else {}),
    }
    return write_command("tune", scan, *write_options(options))


def describe_tuning(result: Content) -> dict[str, Any]:
    """Return what repeats a tuning, from the content of `result.json`."""
    method, given = str(result["method"]), result.get("given") or {}
    options = name_method(method, result.get("method_options") or {})
    options.pop("method", None)
    stage, settled, epochs = find_stage(result), SETTLED, int(result["settings"]["epochs"])
    there = result["task"]["examples_used"]
    if stage == "staged" and "loss" not in given:
        options |= _name_end({"head_end": "solved", "loss": result["settings"].get("loss")})
    elif stage == "solved":  # what else was given is of a training that was not kept
        settled, epochs = SETTLED | TRAINING | {"head_end"}, 1
    # Others are judged once, or had no time for all rows: more epochs might help them.
    curved = stage == "trained" and result.get("examples", there) == there
    return {
        "model": str(result["model"]["name"]),
        "plan": str(result["plan"]["notation"]),
        "method": method,
        "metric": str(result["metric"]),
        "epochs": epochs,
        "best_epoch": int(result["best"]["epoch"]) if curved else epochs,
        "learning_rate": result["runs"][result["kept"]]["learning_rate"],
        "options": options | {k: v for k, v in given.items() if k not in settled},
        "kept_free": bool((result.get("free") or {}).get("kept")),
        "settings": result["settings"],
    }


def suggest_step(content: Content, folder: str) -> tuple[str, str] | None:
    """Return what to do after a tuning, an evaluation or a comparison, and the command for it.

    The command is run where the first one was, since names of files are as they were given then.

    Args:
        content: of `result.json`, `evaluate.json` or `compare.json`.
        folder: where that is.

    Returns:
        None after a scan, whose advice has its own command, and where nothing follows.
    """
    verb = content["verb"]
    if verb == "scan":
        command = write_advice(content)
        return None if command is None else ("Tune this plan:", command)
    if verb == "compare":
        # A comparison reads the first token by default, a scan what suits the model.
        settings = {k: v for k, v in content["settings"].items() if k != "pooling"}
        of_first = {**content, "model": content["models"][0], "settings": settings}
        return "Score every layer for the task:", write_command("scan", of_first)
    if verb == "tune":
        content = {**content, "tuning": describe_tuning(content)}
    else:  # a tuning again goes beside the one that it repeats
        tuned = Path(content["model"]["name"])
        inside = content.get("tuning") and tuned.name == "model"
        folder = str(tuned.parent if inside else tuned)
    failure = find_failure(content)
    if _is_solved(content) and (verb == "tune" or failure):
        if failure == EXCHANGED or content["tuning"].get("kept_free"):
            return None
        sentence = "See whether tuning blocks as well is better:"
        return _tune_anew(content, sentence, "-o", f"{folder}-tuned")
    if failure == EXCHANGED:
        return _start_head_anew(content, folder)
    if failure:
        return _tune_again(content, folder)
    return list_uses(content, folder)[0]


def list_uses(content: Content, folder: str) -> list[tuple[str, str]]:
    """List what to do with a model, each a sentence and what to type; nothing if it learnt nothing.

    Args:
        content: of `result.json` or `evaluate.json`.
        folder: where the former is.
    """
    if find_failure(content):
        return []
    name = f"{folder}/model" if content["verb"] == "tune" else content["model"]["name"]
    kind, two = content["task"]["kind"], "text_pair" in (content["task"].get("columns") or ())
    pairs = {"multiple_choice": ", [['one end', 'another']]"}.get(kind, ", ['its second']" * two)
    python = f"print(layerscout.load({name!r}).predict(['some text']{pairs}))"
    rows = "rows.conll" if kind == "token_classification" else "rows.csv"
    columns, texts = (_carry(content["settings"], usual) for usual in (COLUMNS, TEXTS))
    test = shlex.join(["layerscout", "evaluate", name, rows, *columns])
    before = content.get("tuning") or content
    tested = before["settings"].get("data") != content["settings"].get("data")
    return [
        ("Use it on new texts:", shlex.join(["layerscout", "predict", name, "texts.csv", *texts])),
        ("Use it in Python:", f"import layerscout; {python}"),
        *([] if tested else [("Test it on new labelled rows:", test)]),
    ]


def _is_solved(content: Content) -> bool:
    """Return whether a tuning solved the head alone: it has no rate."""
    tuning = content.get("tuning")
    return tuning is not None and tuning["learning_rate"] is None


def _tune_anew(content: Content, sentence: str, *words: str) -> tuple[str, str] | None:
    """Tune the base of a solved head on the same data; None if these are not where they were."""
    before = content["tuning"]
    data = {**content, "settings": before["settings"]}
    options = write_options(before["options"])
    command = write_command("tune", data, *options, *words, model=before["model"])
    return (sentence, command) if before.get("data_found", True) else None


def _start_head_anew(content: Content, folder: str) -> tuple[str, str] | None:
    """Tune again from a new head, where the one that there was takes classes for one another.

    None where that was done already, so that the data must be at fault.
    """
    before = content.get("tuning")
    if {"fresh_head", "classifier"} & (before or {}).get("options", {}).keys():
        return None
    sentence = "Correct id2label in its config.json, or tune it again from a new head:"
    same = {} if before is None else {name: before[name] for name in ("epochs", "learning_rate")}
    return sentence, _repeat(content, {"fresh_head": True} | same, f"{folder}-fresh")


def _tune_again(content: Content, folder: str) -> tuple[str, str] | None:
    """Repeat a tuning that is not seen to have learnt the task: with more rows, or for longer.

    As before if that is known, else from this checkpoint. The result goes beside `folder`, since a
    folder that holds one is not written to. None where it was trained for longer before, its data
    are not where they were, as seen from another folder, or only other data could show what has
    been learnt.
    """
    before = content.get("tuning")
    one_class = content["verb"] == "evaluate" and have_one_class(content)
    if one_class or folder.endswith("-longer") or not (before or {}).get("data_found", True):
        return None
    sentence = "Tune it again, for longer and at other learning rates:"
    if before is None or advise_more_rows(content) is None or is_left_out(content):
        longer: dict[str, Any] = {"epochs": 2 * TuneRequest.epochs}
        if before is not None:
            longer = train_longer(before["epochs"], before["learning_rate"])
        return sentence, _repeat(content, longer, f"{folder}-longer")
    # Only if a small share of the same rows was set aside.
    share = before["settings"].get("validation")
    same = before["settings"].get("data") == content["settings"].get("data")
    if not (same and isinstance(share, float) and share < MORE_ROWS):
        return None
    kept = {"epochs": before["epochs"], "learning_rate": before["learning_rate"]}
    command = _repeat(content, {"validation": MORE_ROWS} | kept, f"{folder}-more-rows")
    return "Tune it again, with more rows to validate on:", command


def _repeat(content: Content, changed: Content, output: str) -> str:
    """Write the command that repeats a tuning, if it is known, with some options changed."""
    if (before := content.get("tuning")) is None:
        return write_command("tune", content, *write_options(changed), "-o", output)
    options = {"plan": before["plan"], **name_method(before["method"], {})}
    if "class_weights" not in before["options"]:
        options |= balance_classes(content["task"]["kind"], before["metric"])
    if metric := find_metric(content):
        options["metric"] = metric
    words = write_options(options | before["options"] | dict(changed))
    return write_command("tune", before, *words, "-o", output, model=before["model"])
