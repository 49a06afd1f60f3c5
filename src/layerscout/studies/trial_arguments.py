"""The arguments of a trial, written so that whoever means the same writes the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from layerscout.data import (
    Task,
)
from layerscout.errors import InputError
from layerscout.plans import (
    Method,
    Plan,
    TuneRequest,
    describe_method,
    format_edits,
    make_request,
    options_of,
    preset_rates,
)
from layerscout.studies.context import TrialContext
from layerscout.studies.recipe import Grid
from layerscout.studies.trial import DRAWING, Trial


def list_rates(
    grid: Grid, given: Mapping[str, Any], plan: Plan, method: Method, task: str
) -> Sequence[float] | None:
    """Return the learning rates of a point: of its grid, of its settings or of its preset."""
    strategy, preset = str(given["plan"]), given.get("preset")
    if "learning_rate" in grid.axes:
        return list(grid.label_values("learning_rate").values())
    named = grid.rates.get(strategy, grid.rates.get("other"))
    if named is not None:
        return named
    if "learning_rate" in given:
        return [given["learning_rate"]]
    return None if preset is None else preset_rates(preset, strategy, plan, method, task)


# Settings that are None unless they are asked for, and what None means.
_USUAL_SETTINGS: Mapping[str, Any] = {"accumulation": 1, "batching": "length"}

# What is the usual way to write "not asked for" in the key of a trial.
_USUAL: Mapping[str, Any] = {
    **{f.name: f.default for f in fields(TuneRequest)},
    **_USUAL_SETTINGS,
    **{"classifier": "family", "edits": "", "precision": "float32"},
    "predictions": False,
}

# Given apart, or of no use for the training itself.
_APART = ("plan", "score", "scan_examples", "learning_rate", "preset", "as_released")


def spell_out(
    given: Mapping[str, Any], task: Task, method: Method, *, full: bool
) -> dict[str, Any]:
    """Write the arguments of a tuning so that whoever means the same writes the same.

    Presets and defaults are written out, and what is not asked for is left out.

    Args:
        given: the arguments.
        task: what is tuned on.
        method: how.
        full: as for `TuneRequest.settle`.

    Raises:
        InputError: if they do not go together; see `TuneRequest`.
    """
    options = {name: given[name] for name in options_of(TuneRequest) if name in given}
    request = make_request(TuneRequest, options)
    examples = given.get("examples", "all")
    if given.get("per_class"):
        examples = sum(given["per_class"])
    elif examples == "all":
        examples = task.train.examples
    settings, classifier = request.settle(
        task.name, examples, given["metric"], task.kind, task.labels, full=full
    )
    trained = {
        name: value
        for name, value in asdict(settings).items()
        if value is not None and value != _USUAL_SETTINGS.get(name)
    }
    if "max_steps" in trained:
        del trained["epochs"]
    found = {name: value for name, value in given.items() if name not in _APART}
    found |= {"classifier": classifier, "edits": format_edits(request.edits)}
    found |= {"method": method.name, "method_options": describe_method(method)}
    if request.as_released and request.reinitialises:
        found["as_released"] = True
    usual = {name: value for name, value in found.items() if value != _USUAL.get(name, found)}
    return {name: value for name, value in usual.items() if name not in trained} | trained


def check_readable(given: Mapping[str, Any], method: Method) -> None:
    """Refuse a tuning that leaves no model for the grids that read it.

    Args:
        given: its arguments, written out.
        method: how blocks are tuned.

    Raises:
        InputError: if it does not leave what they ask for.
    """
    head = given.get("classifier", _USUAL["classifier"])
    if head != "family" or method.saved == "apart":
        raise InputError(
            f"{method.name} with the classifier {head} saves no whole checkpoint for the grids "
            "that read it (of); use the method full or lora and the classifier family"
        )
    epochs = given.get("checkpoints")
    if not epochs:
        return
    if method.saved == "merged":
        raise InputError("LoRA keeps no checkpoints of epochs; use the method full")
    if max(epochs) > given.get("epochs", max(epochs)):
        raise InputError(
            f"checkpoints {epochs} go beyond the {given['epochs']} epochs trained; name epochs up "
            f"to {given['epochs']}"
        )


def normalise_drawing(arguments: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return what determines which examples are read, and leave out what makes no difference."""
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


def make_trial(
    context: TrialContext,
    verb: str,
    models: tuple[Any, ...],
    task: Any,
    arguments: Mapping[str, Any],
    seed: int,
    *,
    keep: bool = False,
) -> Trial:
    """Make a trial, after a check that its models, its task and its examples are there.

    Args:
        context: loads models and tasks.
        verb: as for `Trial`, and so are the others.
        models: as for `Trial`.
        task: as for `Trial`.
        arguments: as for `Trial`; those that are None are left out.
        seed: draws the examples where `sample_seed` does not.
        keep: as for `Trial`.

    Raises:
        InputError: if something of it cannot be loaded, or there are too few examples.
    """
    drawing = normalise_drawing(arguments, seed)
    context.check_examples(task, drawing)
    rest = {
        name: value
        for name, value in arguments.items()
        if name not in DRAWING and value is not None
    }
    if rest.get("max_length") == _USUAL["max_length"]:  # of every verb
        del rest["max_length"]
    contents = [*map(context.content, models), context.task_content(task)]
    return Trial(verb, models, task, rest | drawing, tuple(contents), keep)
