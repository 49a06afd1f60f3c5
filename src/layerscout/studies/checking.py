"""Checking a recipe whole: every fault at once, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pydantic
from pydantic import BaseModel

from layerscout.plans import (
    make_method,
)
from layerscout.runtime import (
    InputError,
    unknown,
)
from layerscout.scores import SCORES
from layerscout.studies.arguments import VERBS, Reading, TaskFile
from layerscout.studies.measures import MEASURED, OF_STATES, SCORED
from layerscout.studies.recipe import DERIVED, READ, FigureSpec, Grid, Recipe, TableSpec, called


def read_recipe(content: Mapping[str, Any], name: str = "the recipe") -> Recipe:
    """Make a recipe of what YAML gave, and check all of it.

    Raises:
        InputError: with every fault that it has, a line each.
    """
    faults: list[str] = []
    recipe = None
    try:
        recipe = Recipe.model_validate(content)
    except pydantic.ValidationError as error:
        faults += [_fault(one) for one in error.errors()]
    grids = content.get("grids")
    listed = grids.items() if isinstance(grids, Mapping) else ()
    known = {str(key): grid for key, grid in listed if isinstance(grid, Mapping)}
    for key, grid in known.items():
        faults += [f"grids.{key}.{fault}" for fault in _grid_faults(grid)]
    faults += _reference_faults(content, known)
    if recipe is not None and not faults:
        return recipe
    faults = list(dict.fromkeys(faults))
    number = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    raise InputError(f"{name} has {number}:", *(f"- {fault}" for fault in faults))


def _fault(one: Any) -> str:
    """Write a fault that pydantic found."""
    where = ".".join(str(part) for part in one["loc"])
    if one["type"] == "extra_forbidden":
        *above, key = one["loc"]
        known = _model_at(above).model_fields
        told = str(unknown("key", str(key), known))
        return f"{'.'.join(map(str, above))}: {told}" if above else told
    return f"{where}: {_said(one)}"


def _said(one: Any) -> str:
    if one["type"] == "extra_forbidden":  # in the only mapping among the arguments of a verb
        return str(unknown("key", str(one["loc"][-1]), TaskFile.model_fields))
    if one["type"] == "value_error":  # ours, which names the value
        return str(one["msg"]).removeprefix("Value error, ")
    return f"{one['msg']}, got {one['input']!r:.60}"


def _model_at(path: Sequence[Any]) -> type[BaseModel]:
    """Give the model that an entry of a recipe is read by."""
    match [str(part) for part in path]:
        case ["grids", _]:
            return Grid
        case ["tables", _]:
            return TableSpec
        case ["figures", _]:
            return FigureSpec
    return Recipe


def _grid_faults(grid: Mapping[str, Any]) -> Iterator[str]:
    """Find what is wrong with the arguments of a grid's verb, each value by itself."""
    model = VERBS.get(str(grid.get("verb", "tune")))
    axes, settings = grid.get("axes") or {}, grid.get("settings") or {}
    if model is None or not isinstance(axes, Mapping) or not isinstance(settings, Mapping):
        return
    for name, values in axes.items():
        if name in settings:
            yield f"axes.{name}: it is among the settings too; leave it out there"
        single = list(values.values()) if isinstance(values, Mapping) else values
        if not isinstance(single, list) or not single:
            if isinstance(single, list) or not isinstance(values, list | Mapping):
                yield f"axes.{name}: an axis is a list of one or more values, got {values!r:.60}"
            continue
        labels = [called(value) for value in single]
        if isinstance(values, list) and len(set(labels)) < len(labels):
            twice = next(label for label in labels if labels.count(label) > 1)
            yield f"axes.{name}: {twice} is there twice; leave one out"
        for value in single:
            yield from (f"axes.{name}{fault}" for fault in _value_faults(model, name, value))
    for name, value in settings.items():
        yield from (f"settings.{name}{fault}" for fault in _value_faults(model, name, value))
    given = {*map(str, axes), *map(str, settings)}
    if grid.get("of"):
        for name in sorted(given.intersection(READ)):
            yield f"{name}: it is that of the tuned models, which `of` names; leave it out"
    if grid.get("verb", "tune") == "tune":
        if "plan" not in given:
            yield "plan: a grid of tune needs a plan, as an axis or a setting"
        if "learning_rate" in given and grid.get("rates"):
            yield "rates: learning_rate says it too; leave one out"
        options = settings.get("method_options")
        if isinstance(options, Mapping) and isinstance(settings.get("method"), str):
            with_method = settings["method"]
            try:
                make_method(with_method, **options)
            except (InputError, TypeError) as error:
                yield f"settings.method_options: {error}"
    for needed in ("model", "task"):
        if needed not in given and not grid.get("of"):
            yield f"{needed}: a grid needs a {needed}, as an axis or a setting"
    rates, plans = grid.get("rates"), axes.get("plan", [settings.get("plan")])
    written = list(plans.values()) if isinstance(plans, Mapping) else plans
    for plan in rates if isinstance(rates, Mapping) else ():
        if plan != "other" and isinstance(written, list) and plan not in written:
            yield f"rates: {unknown('plan of the grid', str(plan), map(str, written))}"
    for name in ("model", "task"):
        if given.intersection([name]) and settings.get(name, "") is None:
            yield f"settings.{name}: it is empty; name one"
        if isinstance(axes.get(name), list) and None in axes[name]:
            yield f"axes.{name}: it has an empty value; name one"


def _value_faults(model: type[Reading], name: str, value: Any) -> Iterator[str]:
    if name not in model.model_fields:
        yield f": {unknown('argument', str(name), model.model_fields)}"
        return
    try:
        model.model_validate({name: value})
    except pydantic.ValidationError as error:
        # A value that may be of several kinds is told about once.
        yield f": {_said(error.errors()[-1])}"


def _reference_faults(
    content: Mapping[str, Any], grids: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Find names that stand for nothing."""
    tuned = [name for name, grid in grids.items() if grid.get("verb", "tune") == "tune"]
    for name, grid in grids.items():
        verb, of = grid.get("verb", "tune"), grid.get("of")
        if of is not None and verb == "tune":
            yield f"grids.{name}.of: tune starts from a checkpoint, not from a tuned model"
        elif of is not None and str(of) not in tuned:
            yield f"grids.{name}.of: {unknown('grid of tune', str(of), tuned)}"
        elif of is not None and verb == "scan":
            kept = _checkpoints(grids[str(of)])
            if missing := [epoch for epoch in _checkpoints(grid) if epoch not in kept]:
                yield (
                    f"grids.{name}.settings.checkpoints: epochs {missing} are not kept by {of}; "
                    "name them among its checkpoints"
                )
        elif of is None and verb in ("compare", "evaluate"):
            yield f"grids.{name}.of: {verb} needs tuned models; name the grid that tunes them"
    for kind in ("tables", "figures"):
        specs = content.get(kind)
        for number, spec in enumerate(specs if isinstance(specs, list) else ()):
            named = spec.get("grid") if isinstance(spec, Mapping) else None
            if named is not None and str(named) not in grids:
                yield f"{kind}.{number}.grid: {unknown('grid', str(named), grids)}"
            if isinstance(spec, Mapping):
                for fault in _shown_faults(kind, spec, grids):
                    yield f"{kind}.{number}.{fault}"


# What a table or a figure may go by besides axes; `state` and its like are the column `at`.
_PLACES = ("at", "state", "block", "epoch", "checkpoint")
_SHOWN = (*_PLACES, *DERIVED, *READ, "learning_rate", "measure", "grid", "family")
_SWEPT = ("kept", "change", "first", "last", "permutation")


def _shown_faults(
    kind: str, spec: Mapping[str, Any], grids: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Find names of axes and measures that stand for nothing, and means over unlike things."""
    axes = {str(axis) for grid in grids.values() for axis in grid.get("axes") or {}}
    known = {*axes, *_SHOWN, *_SWEPT}
    values = _names(spec.get("value", "metric"))
    for entry in ("rows", "columns", "color", "panels", "x", "where"):
        for name in _names(spec.get(entry)):
            measure = entry == "x" and kind == "figures" and spec.get("kind") == "fit"
            if name not in known and not measure:
                yield f"{entry}: {unknown('axis', name, sorted(known))}"
    for name in values:
        base, colon, key = name.rpartition(":")
        prefixes = {m.partition(":")[0] for m in SCORED}
        if (colon and (base not in prefixes or key not in SCORES)) or (
            not colon and name not in SCORES and name not in MEASURED
        ):
            yield f"value: {unknown('measure', name, [*MEASURED, *SCORED])}"
    if kind == "tables" and spec.get("kind", "means") == "means":
        headed = {*_names(spec.get("rows", "plan")), *_names(spec.get("columns", "task"))}
        if len(values) > 1 and "measure" not in headed:
            yield "value: a mean over several measures says nothing; add measure to columns"
        wide = [v for v in values if v in SCORES or v in OF_STATES or v.startswith("rank:")]
        if wide and not headed.intersection(_PLACES):
            yield f"value: {wide[0]} is of every state; add state to rows or columns"


def _names(written: Any) -> list[str]:
    if isinstance(written, str):
        return [written]
    return [str(one) for one in written] if isinstance(written, list | Mapping) else []


def _checkpoints(grid: Mapping[str, Any]) -> list[Any]:
    settings = grid.get("settings")
    found = settings.get("checkpoints") if isinstance(settings, Mapping) else None
    return found if isinstance(found, list) else []
