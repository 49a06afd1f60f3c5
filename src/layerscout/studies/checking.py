"""Checking a recipe whole: every fault at once, a line each.

pydantic checks each entry by itself. What goes with what is checked here on the content as it was
written, since pydantic compares entries only once none of them has a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic

from layerscout.errors import InputError, make_unknown_error
from layerscout.plans import make_method
from layerscout.studies.arguments import VERBS, describe_fault, find_fault
from layerscout.studies.recipe import (
    DERIVED,
    MOST_POINTS,
    PLACES,
    READ,
    FigureSpec,
    Grid,
    Recipe,
    TableSpec,
    list_places,
)

# What tables and figures may show beside axes and places: what cells have, and sweeps add.
_SHOWN = (*DERIVED, *READ, "learning_rate", "measure", "grid", "family")
_FROM_SWEEPS = ("kept", "change", "first", "last", "permutation")

# The models that the entries of these parts of a recipe are read by.
_PARTS: Mapping[Any, type[pydantic.BaseModel]] = {
    "grids": Grid,
    "tables": TableSpec,
    "figures": FigureSpec,
}


@dataclass(frozen=True)
class _Written:
    """A grid as it was written, as far as it can be read.

    Attributes:
        verb: the verb, known or not.
        of: the grid whose models it reads.
        axes: the values of each axis.
        settings: the value of each setting.
        rates: learning rates by plan.
        whole: whether all axes and settings could be read.
    """

    verb: str
    of: Any
    axes: Mapping[str, list[Any]]
    settings: Mapping[str, Any]
    rates: Mapping[Any, Any]
    whole: bool

    @classmethod
    def read(cls, grid: Mapping[str, Any]) -> _Written:
        axes = {
            str(name): list(values.values()) if isinstance(values, Mapping) else values
            for name, values in _mapping(grid.get("axes")).items()
        }
        return cls(
            str(grid.get("verb", "tune")),
            grid.get("of"),
            {
                name: values[:MOST_POINTS] if isinstance(values, list) else []
                for name, values in axes.items()
            },
            {str(name): value for name, value in _mapping(grid.get("settings")).items()},
            _mapping(grid.get("rates")),
            all(isinstance(grid.get(part, {}), Mapping) for part in ("axes", "settings")),
        )

    @property
    def arguments(self) -> Iterator[tuple[str, str, Any]]:
        """The place, the name and the value of each argument."""
        for name, values in self.axes.items():
            yield from (("axes", name, value) for value in values)
        yield from (("settings", name, value) for name, value in self.settings.items())

    @property
    def given(self) -> set[str]:
        """The names of all arguments."""
        return {*self.axes, *self.settings}


def _mapping(written: Any) -> Mapping[Any, Any]:
    return written if isinstance(written, Mapping) else {}


def make_recipe(content: Mapping[str, Any], name: str = "the recipe") -> Recipe:
    """Make a recipe from what YAML gave, and check all of it.

    Raises:
        InputError: with every fault that it has, a line each.
    """
    faults: list[str] = []
    recipe = None
    try:
        recipe = Recipe.model_validate(content)
    except pydantic.ValidationError as error:
        faults += map(_describe, error.errors())
    except UnicodeEncodeError as error:  # in pydantic, as it reports a fault
        half = error.object[error.start]
        faults.append(f"a text holds half of a surrogate pair, {half!a}; remove it")
    grids = {
        str(key): _Written.read(grid)
        for key, grid in _mapping(content.get("grids")).items()
        if isinstance(grid, Mapping)
    }
    for key, grid in grids.items():
        of_grid = (*_argument_faults(grid), *_source_faults(grid, grids))
        faults += (f"grids.{key}.{fault}" for fault in of_grid)
    faults += _reference_faults(content, grids)
    if recipe is not None and not faults:
        return recipe
    faults = list(dict.fromkeys(faults))
    if len(faults) == 1:
        raise InputError(f"{name} has a fault: {faults[0]}")
    raise InputError(f"{name} has {len(faults)} faults:", *(f"- {fault}" for fault in faults))


def _describe(fault: Any) -> str:
    """Describe a fault that pydantic found, with its place."""
    place = fault["loc"]
    model = _PARTS.get(place[0], Recipe) if len(place) > 1 else Recipe
    if fault["type"] == "extra_forbidden":
        place = place[:-1]
    where = ".".join(map(str, place))
    return (f"{where}: " if where else "") + describe_fault(fault, model)


def _argument_faults(grid: _Written) -> Iterator[str]:
    """Find what is wrong with the arguments of a grid's verb."""
    if grid.verb not in VERBS or not grid.whole:
        return
    for place, name, value in grid.arguments:
        if name in ("model", "task") and value is None:
            yield f"{place}.{name}: the value is empty; give one"
        elif fault := find_fault(grid.verb, name, value):
            yield f"{place}.{name}: {fault}"
    for name in grid.axes:
        if name in grid.settings:
            yield f"axes.{name}: also given under settings; remove it there"
    needed = {"tune": ("plan", "model", "task"), "scan": ("model", "task")}.get(grid.verb, ())
    for name in needed:
        if name not in grid.given and (name == "plan" or not grid.of):
            yield f"{name}: a grid of {grid.verb} needs a {name}, as an axis or a setting"
    if grid.verb == "tune":
        yield from _tuning_faults(grid)
    if grid.verb == "evaluate":
        edits = grid.settings.get("edits", "truncate")
        heads = [name for name in ("tune_heads", "original") if grid.settings.get(name)]
        if heads and "truncate" not in ([edits] if isinstance(edits, str) else edits or ()):
            yield (
                f"settings.{heads[0]}: heads are tuned again at every state; add the edit truncate"
            )


def _tuning_faults(grid: _Written) -> Iterator[str]:
    """Find what does not go together in a grid of tune."""
    if grid.rates and "learning_rate" in grid.given:
        yield "rates: give rates here or as learning_rate, not both"
    plans = [value for _, name, value in grid.arguments if name == "plan"]
    for plan in grid.rates if plans else ():
        if plan != "other" and plan not in plans:
            yield f"rates: {make_unknown_error('plan of the grid', str(plan), map(str, plans))}"
    method, options = grid.settings.get("method"), grid.settings.get("method_options")
    if isinstance(method, str) and isinstance(options, Mapping):
        try:
            make_method(method, **options)
        except (InputError, TypeError) as error:
            yield f"settings.method_options: {error}"


def _source_faults(grid: _Written, grids: Mapping[str, _Written]) -> Iterator[str]:
    """Find what is wrong with the grid whose models a grid reads."""
    if grid.of is None:
        if grid.verb in ("compare", "evaluate"):
            yield f"of: {grid.verb} needs tuned models; name the grid that tunes them"
        return
    for name in sorted(grid.given.intersection(READ)):
        yield f"{name}: it comes with the tuned models that `of` names; leave it out"
    tuned = [name for name, other in grids.items() if other.verb == "tune"]
    if grid.verb == "tune":
        yield "of: tune starts from a checkpoint, not from a tuned model"
    elif str(grid.of) not in tuned:
        yield f"of: {make_unknown_error('grid of tune', str(grid.of), tuned)}"
    elif grid.verb == "scan":
        kept = _checkpoints(grids[str(grid.of)])
        if missing := [epoch for epoch in _checkpoints(grid) if epoch not in kept]:
            yield (
                f"settings.checkpoints: {grid.of} does not keep epochs {missing}; name them among "
                "its checkpoints"
            )


def _checkpoints(grid: _Written) -> list[Any]:
    epochs = grid.settings.get("checkpoints")
    return epochs if isinstance(epochs, list) else []


def _reference_faults(content: Mapping[str, Any], grids: Mapping[str, _Written]) -> Iterator[str]:
    """Find grids and axes in tables and figures that there are not."""
    axes = {axis for grid in grids.values() for axis in grid.axes}
    known = sorted({*axes, *PLACES, *_SHOWN, *_FROM_SWEEPS})
    for kind in ("tables", "figures"):
        specs = content.get(kind)
        for number, spec in enumerate(specs if isinstance(specs, list) else ()):
            spec, where = _mapping(spec), f"{kind}.{number}"
            yield from _unknown_names(spec, where, grids, known)
            if dashed := _mapping(spec.get("dashed")):
                yield from _unknown_names(dashed, f"{where}.dashed", grids, known)
            if fault := _mixed_checkpoints(spec, grids):
                yield f"{where}: {fault}"


def _unknown_names(
    spec: Mapping[Any, Any], where: str, grids: Mapping[str, _Written], known: Sequence[str]
) -> Iterator[str]:
    """Find grids and axes in a part of a table or figure that there are not."""
    grid = spec.get("grid")
    if grid is not None and str(grid) not in grids:
        yield f"{where}.grid: {make_unknown_error('grid', str(grid), grids)}"
    for entry in ("rows", "columns", "color", "panels", "x", "where"):
        if entry == "x" and spec.get("kind") == "fit":
            continue  # which may be a measure
        for name in _names(spec.get(entry)):
            if name not in known:
                yield f"{where}.{entry}: {make_unknown_error('axis', name, known)}"


def _mixed_checkpoints(spec: Mapping[Any, Any], grids: Mapping[str, _Written]) -> str | None:
    """Say what is a mean over the checkpoints of a training, which says nothing."""
    read = [grids.get(str(spec["grid"]))] if "grid" in spec else grids.values()
    several = any(grid and grid.verb == "scan" and _checkpoints(grid) for grid in read)
    entries = ("rows", "columns", "x", "color", "panels", "where")
    if not several or any("checkpoint" in _names(spec.get(entry)) for entry in entries):
        return None
    mixed = (name for name in _names(spec.get("value")) if "checkpoint" in list_places(name))
    name = next(mixed, None)
    if name is None:
        return None
    return f"{name} has a value per checkpoint here; show checkpoint, or name one under where"


def _names(written: Any) -> list[str]:
    if isinstance(written, str):
        return [written]
    return [str(name) for name in written] if isinstance(written, list | Mapping) else []
