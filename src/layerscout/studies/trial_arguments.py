"""The arguments of a trial, written so that whoever means the same writes the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from layerscout.data import (
    Task,
)
from layerscout.plans import (
    Full,
    LoRA,
    Method,
    Plan,
    Preserve,
    Reinitialize,
    Settings,
    described,
    format_edits,
    make_edits,
    preset as preset_of,
    preset_rates,
)
from layerscout.runtime import (
    InputError,
)
from layerscout.studies.recipe import Grid
from layerscout.studies.trial import DRAWING


def choose_rates(
    grid: Grid, given: Mapping[str, Any], plan: Plan, method: Method, task: str
) -> Sequence[float] | None:
    """Give the learning rates of a point: of its grid, of its settings or of its preset."""
    strategy, preset = str(given["plan"]), given.get("preset")
    if "learning_rate" in grid.axes:
        return list(grid.label_values("learning_rate").values())
    named = grid.rates.get(strategy, grid.rates.get("other"))
    if named is not None:
        return named
    if "learning_rate" in given:
        return [given["learning_rate"]]
    return None if preset is None else preset_rates(preset, strategy, plan, method, task)


# Arguments of tune with what they are where nobody says otherwise.
_USUAL: Mapping[str, Any] = {
    "classifier": "family",
    "edits": "",
    "fresh_head": False,
    "keep_layer_norm": False,
    "max_length": 128,
    "precision": "float32",
    "reinit_rate_factor": 1.0,
    "trunk_dropout": False,
    "untie": False,
}


def written_out(given: Mapping[str, Any], task: Task, method: Method) -> dict[str, Any]:
    """Give the arguments of a tuning so that whoever means the same writes the same.

    Presets and defaults are written out, and what makes no difference is left out.
    """
    found = {name: value for name, value in given.items() if name not in ("score", "scan_examples")}
    asked = {f.name: found.pop(f.name) for f in fields(Settings) if found.get(f.name) is not None}
    edits = make_edits(found.pop("edits", None) or ())
    redraws = any(isinstance(one, Reinitialize | Preserve) for one in edits)
    preset, released = found.pop("preset", None), bool(found.pop("as_released", False))
    ours: dict[str, Any] = {}
    if preset is not None:
        n = found.get("examples", "all")
        if found.get("per_class"):
            n = sum(found["per_class"])
        elif n == "all":
            n = task.train.examples
        paper = preset_of(preset, task=task.name, examples=n, as_released=released)
        ours = dict(paper.settings)
        found.setdefault("classifier", paper.classifier)
        if "epochs" in asked:
            ours.pop("max_steps", None)
    if not redraws and (found.get("keep_layer_norm") or found.get("reinit_rate_factor", 1) != 1):
        raise InputError(
            "`keep_layer_norm` and `reinit_rate_factor` are for blocks that are drawn anew; give "
            "edits such as reinit:9-12"
        )
    if found.get("classifier") == "mean-linear" and isinstance(method, LoRA):
        raise InputError("LoRA has no classifier mean-linear; use another method or classifier")
    settings = asdict(Settings(**ours | asked))
    if settings["max_steps"] is not None:
        if "epochs" in asked:
            raise InputError("`epochs` and `max_steps` both say how long to train; give one")
        del settings["epochs"]
    found |= {name: value for name, value in settings.items() if value is not None}
    found |= {
        "edits": format_edits(edits),
        "method": method.name,
        "method_options": described(method),
    }
    if released and redraws:
        found["as_released"] = True
    return {name: value for name, value in found.items() if value != _USUAL.get(name, found)}


def check_readable(given: Mapping[str, Any], method: Method) -> None:
    """Refuse a tuning that leaves no model for the grids that read it.

    Args:
        given: its arguments, written out.
        method: how blocks are tuned.

    Raises:
        InputError: if it does not leave what they ask for.
    """
    head = given.get("classifier", _USUAL["classifier"])
    if head != "family" or not isinstance(method, Full | LoRA):
        raise InputError(
            f"{method.name} with the classifier {head} leaves no whole checkpoint for the grids "
            "that read it (of); use the method full or lora and the classifier family"
        )
    epochs = given.get("checkpoints")
    if not epochs:
        return
    if isinstance(method, LoRA):
        raise InputError("LoRA keeps no checkpoints of epochs; use the method full")
    if max(epochs) > given.get("epochs", max(epochs)):
        raise InputError(
            f"the checkpoints {epochs} are to be kept of {given['epochs']} epochs; name epochs up "
            "to that"
        )


def normalise_drawing(arguments: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Say which examples are read, and nothing that makes no difference."""
    found = {name: arguments[name] for name in DRAWING if arguments.get(name) is not None}
    if found.get("examples") == "all":
        del found["examples"]
    if found.get("balanced") is False:
        del found["balanced"]
    if {"examples", "per_class", "balanced"} & found.keys():
        found.setdefault("sample_seed", seed)
    else:
        found.pop("sample_seed", None)
    return found
