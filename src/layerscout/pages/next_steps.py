"""What to do after a verb: one step with the command for it, for page and terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerscout.pages.commands import (
    balance_classes,
    find_metric,
    find_usual_pooling,
    train_longer,
    write_command,
    write_option,
)
from layerscout.pages.evaluation import (
    advise_more_rows,
    count_removable,
    find_failure,
    have_one_class,
)
from layerscout.plans import TuneRequest, describe_method, make_method

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
