"""What to do after a verb: one step with the command for it, for page and terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from layerscout.pages.commands import write_command
from layerscout.pages.evaluation import count_removable


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
    """Suggest to try shorter models, to save the shortest that will do, or to look inside."""
    name, removable = content["model"]["name"], count_removable(content)
    if "untuned" not in content["truncation"]:
        command = write_command("evaluate", content, "--edit", "truncate")
        return "See how many blocks the model can do without:", command
    if removable is None:  # it has learnt nothing
        return None
    if removable:
        head = str(content["model"]["blocks"] - removable)
        output = f"{name.rstrip('/')}-head-{head}"
        words = ["layerscout", "truncate", name, "--head", head, "-o", output]
        return "Save the model without them:", shlex.join(words)
    if content["skips"] is None:
        command = write_command("evaluate", content, "--edit", "skip")
        return "See which blocks inside the model matter least:", command
    return None
