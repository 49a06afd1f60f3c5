"""What to do after a verb: one step with the command for it, for page and terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerscout.pages.commands import find_metric, train_longer, write_command, write_option
from layerscout.pages.evaluation import count_removable, find_failure, have_one_class
from layerscout.plans import TuneRequest, describe_method, make_method

AGAIN = "Tune it again, for longer and at other learning rates:"

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
        case "tune" if find_failure(content):
            return AGAIN, _tune_again({**content, "tuning": describe_tuning(content)}, folder)
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
    """Suggest to try shorter models, to save the shortest that will do, or to look inside.

    A model that has learnt nothing is tuned again first.
    """
    if find_failure(content):
        if have_one_class(content):
            return None
        tuned = Path(content["model"]["name"])
        again = tuned.parent if content.get("tuning") and tuned.name == "model" else tuned
        return AGAIN, _tune_again(content, str(again))
    name, removable = content["model"]["name"], count_removable(content)
    if "untuned" not in content["truncation"]:
        command = write_command("evaluate", content, "--edit", "truncate")
        return "See how many blocks the model can do without:", command
    if removable:
        head = str(content["model"]["blocks"] - removable)
        output = f"{name.rstrip('/')}-head-{head}"
        words = ["layerscout", "truncate", name, "--head", head, "-o", output]
        return "Save the model without them:", shlex.join(words)
    if content["skips"] is None:
        command = write_command("evaluate", content, "--edit", "skip")
        return "See which blocks inside the model matter least:", command
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
        "learning_rate": float(result["runs"][result["kept"]]["learning_rate"]),
        "options": options | {k: v for k, v in given.items() if k not in SETTLED},
        "settings": result["settings"],
    }


def _tune_again(content: Mapping[str, Any], folder: str) -> str:
    """Write the command that tunes for longer: as before if that is known, else this checkpoint.

    Its result goes beside `folder`, since a folder that holds one is not written to.
    """
    before, output = content.get("tuning"), ("-o", f"{folder}-longer")
    if before is None:
        return write_command("tune", content, "--epochs", str(2 * TuneRequest.epochs), *output)
    options = {"--plan": before["plan"]}
    options |= {} if before["method"] == "full" else {"--method": before["method"]}
    words = [word for option in options.items() for word in option]
    metric = find_metric(content)
    given = {"metric": metric} if metric else {}
    if content["task"]["kind"] == "classification" and before["metric"] == "macro_f1":
        given["class_weights"] = "balanced"  # rare classes count as much in training, too
    for name, value in (given | before["options"]).items():
        words += write_option(TuneRequest, name, value)
    longer = train_longer(before["epochs"], before["learning_rate"])
    words += [word for option in longer.items() for word in option]
    return write_command("tune", before, *words, *output, model=before["model"])
