"""Reading recipes, shipped ones and YAML files, with changes, and checking them whole.

pydantic checks each entry by itself, and every fault is told at once, a line each; what goes with
what is checked here once none of them has a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any

import pydantic

from layerscout.errors import InputError, make_unknown_error
from layerscout.plans import make_method
from layerscout.studies.arguments import VERBS, Reading, describe_fault, find_fault
from layerscout.studies.recipe import (
    DERIVED,
    PLACES,
    READ,
    FigureSpec,
    Grid,
    Recipe,
    TableSpec,
    list_names,
    list_places,
)
from layerscout.yaml import read_yaml

_SHIPPED = resources.files("layerscout.studies") / "recipes"

# What tables and figures may show beside axes and places: what cells have, and sweeps add.
_SHOWN = (*DERIVED, *READ, "learning_rate", "measure", "grid", "family")
# The entries of tables and figures that name axes.
_AXES = ("rows", "columns", "color", "panels", "x", "where")
_FROM_SWEEPS = ("kept", "change", "first", "last", "permutation")


def list_recipes() -> list[str]:
    """Name the recipes that come with the package."""
    names = (file.name for file in _SHIPPED.iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def read_recipe_text(name: str | Path) -> str:
    """Return the text of a recipe, by the name of a shipped one or by its path.

    Raises:
        InputError: if it cannot be read.
    """
    if str(name) in list_recipes():
        return (_SHIPPED / f"{name}.yaml").read_text("utf-8")
    path = Path(name)
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        raise make_unknown_error("recipe", str(name), list_recipes())
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"cannot read the recipe {path}: {reason}") from error


def read_value(text: str) -> Any:
    """Read a value as a recipe writes it.

    Raises:
        InputError: if it is not valid YAML.
    """
    try:
        return read_yaml(text)
    except InputError as error:
        raise InputError(
            f"a value must be valid YAML, such as 3, [0, 1] or top:2, got {text!r:.60}"
        ) from error


def load_recipe(
    name: str | Path, *, small: bool = False, changes: Mapping[str, Any] | None = None
) -> Recipe:
    """Read a recipe and check all of it.

    Args:
        name: the name of a shipped recipe, or a YAML file.
        small: apply what its small variant changes.
        changes: by path, such as {"axes.seed": [0, 1]}; see `apply_change`.

    Raises:
        InputError: with every fault that it has, a line each.
    """
    text = read_recipe_text(name)
    try:
        content = read_yaml(text)
    except InputError as error:
        raise InputError(f"{name} is {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("grids"), dict):
        raise InputError(f"{name} is not a recipe: it needs `title` and `grids`; see --show")
    variant: Any = {}
    if small:
        variant = content.get("small")
        if not variant:
            raise InputError(f"{name} has no small variant; leave out --small")
        if not isinstance(variant, Mapping):
            raise InputError(f"`small` must be names with values, got {variant!r:.60}")
    for path, value in (*variant.items(), *(changes or {}).items()):
        content = apply_change(content, str(path), value)
    return make_recipe(content, str(name))


def apply_change(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of a recipe's content with one entry changed.

    Args:
        content: what YAML gave.
        path: "grids.NAME.axes.seed"; or "axes.seed", "settings.epochs" or just "model" for all
            grids that take it; or another entry of a recipe, such as "baseline".
        value: the new value; an axis takes a list, or a single value. None takes the entry out,
            so that the default holds.

    Raises:
        InputError: if there is no such place.
    """
    content = deepcopy(content)
    first, *rest = path.split(".")
    if first != "grids" and path in Recipe.model_fields:
        content[path] = value
        return content
    grids = {name: grid for name, grid in content["grids"].items() if isinstance(grid, dict)}
    entry, own = path, {"pilot", "rates"}
    if first == "grids":
        name = rest[0] if rest else ""
        if name not in grids:
            raise make_unknown_error("grid", name, grids)
        grids, entry, own = {name: grids[name]}, ".".join(rest[1:]), set(Grid.model_fields)
    if entry in own:
        for grid in grids.values():
            if first == "grids" or grid.get("verb", "tune") == "tune":
                grid[entry] = value
                if value is None:
                    del grid[entry]
        return content
    taken = [_set_argument(grid, entry, value) for grid in grids.values()]
    if not any(taken):
        names = {name for model in VERBS.values() for name in model.model_fields}
        raise make_unknown_error("place in the recipe", path, sorted(names))
    return content


def _set_argument(grid: dict[str, Any], entry: str, value: Any) -> bool:
    """Set an axis or a setting of a grid, if its verb takes it."""
    place, _, name = entry.partition(".")
    if place not in ("axes", "settings"):
        place, name = "", entry
    known = VERBS.get(str(grid.get("verb", "tune")), Reading).model_fields
    if name not in known or (name in READ and grid.get("of")):
        return False
    axes, settings = grid.get("axes") or {}, grid.get("settings") or {}
    if not (isinstance(axes, dict) and isinstance(settings, dict)):
        return True  # such a grid stays as it is: the check of the whole recipe refuses it
    if value is None:
        grid["axes"] = {k: v for k, v in axes.items() if k != name}
        grid["settings"] = {k: v for k, v in settings.items() if k != name}
    elif name in axes or place == "axes":
        grid["axes"] = {**axes, name: value if isinstance(value, list | dict) else [value]}
        if name in settings:
            grid["settings"] = {k: v for k, v in settings.items() if k != name}
    else:
        grid["settings"] = {**settings, name: value}
    return True


def make_recipe(content: Mapping[str, Any], name: str = "the recipe") -> Recipe:
    """Make a recipe from what YAML gave, and check all of it.

    Raises:
        InputError: with every fault of its entries, a line each; if there is none, with what does
            not go together.
    """
    try:
        recipe = Recipe.model_validate(content)
        faults = list(_find_faults(recipe))
    except pydantic.ValidationError as error:
        faults = list(map(_describe, error.errors()))
    except UnicodeEncodeError as error:  # in pydantic, as it reports a fault
        half = error.object[error.start]
        faults = [f"a text holds half of a surrogate pair, {half!a}; remove it"]
    faults = list(dict.fromkeys(faults))
    if not faults:
        return recipe
    if len(faults) == 1:
        raise InputError(f"{name} has a fault: {faults[0]}")
    raise InputError(f"{name} has {len(faults)} faults:", *(f"- {fault}" for fault in faults))


def _describe(fault: Any) -> str:
    """Describe a fault that pydantic found, with its place."""
    place = fault["loc"]
    model: type[pydantic.BaseModel] = Recipe
    if len(place) > 1:
        parts: dict[str, type[pydantic.BaseModel]] = {
            "grids": Grid,
            "tables": TableSpec,
            "figures": FigureSpec,
        }
        model = parts.get(place[0], Recipe)
    if fault["type"] == "extra_forbidden":
        place = place[:-1]
    where = ".".join(map(str, place))
    return (f"{where}: " if where else "") + describe_fault(fault, model)


def _find_faults(recipe: Recipe) -> Iterator[str]:
    """Find what is wrong with the arguments of verbs, and with what goes with what."""
    for key, grid in recipe.grids.items():
        of_grid = [*_argument_faults(grid), *_source_faults(grid, recipe.grids)]
        yield from (f"grids.{key}.{fault}" for fault in of_grid)
    yield from _reference_faults(recipe)


def _list_arguments(grid: Grid) -> Iterator[tuple[str, str, Any]]:
    """Yield the place, the name and the value of each argument of a grid's verb."""
    for name in grid.axes:
        yield from (("axes", name, value) for value in grid.label_values(name).values())
    yield from (("settings", name, value) for name, value in grid.settings.items())


def _argument_faults(grid: Grid) -> Iterator[str]:
    """Find what is wrong with the arguments of a grid's verb."""
    for place, name, value in _list_arguments(grid):
        if name in ("model", "task") and value is None:
            yield f"{place}.{name}: the value is empty; give one"
        elif fault := find_fault(grid.verb, name, value):
            yield f"{place}.{name}: {fault}"
    for name in grid.axes:
        if name in grid.settings:
            yield f"axes.{name}: also given under settings; remove it there"
    needed = {"tune": ("plan", "model", "task"), "scan": ("model", "task")}.get(grid.verb, ())
    for name in needed:
        if name not in grid.argument_names and (name == "plan" or not grid.of):
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


def _tuning_faults(grid: Grid) -> Iterator[str]:
    """Find what does not go together in a grid of tune."""
    if grid.rates and "learning_rate" in grid.argument_names:
        yield "rates: give rates here or as learning_rate, not both"
    plans = [value for _, name, value in _list_arguments(grid) if name == "plan"]
    for plan in grid.rates if plans else ():
        if plan != "other" and plan not in plans:
            yield f"rates: {make_unknown_error('plan of the grid', str(plan), map(str, plans))}"
    method, options = grid.settings.get("method"), grid.settings.get("method_options")
    if isinstance(method, str) and isinstance(options, Mapping):
        try:
            make_method(method, **options)
        except (InputError, TypeError) as error:
            yield f"settings.method_options: {error}"


def _source_faults(grid: Grid, grids: Mapping[str, Grid]) -> Iterator[str]:
    """Find what is wrong with the grid whose models a grid reads."""
    if grid.of is None:
        if grid.verb in ("compare", "evaluate"):
            yield f"of: {grid.verb} needs tuned models; name the grid that tunes them"
        return
    for name in sorted(grid.argument_names.intersection(READ)):
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


def _checkpoints(grid: Grid) -> list[Any]:
    epochs = grid.settings.get("checkpoints")
    return epochs if isinstance(epochs, list) else []


def _reference_faults(recipe: Recipe) -> Iterator[str]:
    """Find grids and axes in tables and figures that there are not."""
    grids = recipe.grids
    known = sorted({*(a for g in grids.values() for a in g.axes), *PLACES, *_SHOWN, *_FROM_SWEEPS})
    specs: dict[str, Any] = {f"tables.{n}": spec for n, spec in enumerate(recipe.tables)}
    specs |= {f"figures.{n}": spec for n, spec in enumerate(recipe.figures)}
    for where, spec in specs.items():
        parts = {where: spec, f"{where}.dashed": getattr(spec, "dashed", None)}
        for place, part in parts.items():
            if part is None:
                continue
            if part.grid is not None and part.grid not in grids:
                yield f"{place}.grid: {make_unknown_error('grid', part.grid, grids)}"
            for entry in filter(part.model_fields_set.__contains__, _AXES):
                if entry == "x" and getattr(part, "kind", None) == "fit":
                    continue  # which may be a measure
                for name in list_names(getattr(part, entry) or ()):
                    if name not in known:
                        yield f"{place}.{entry}: {make_unknown_error('axis', name, known)}"
        if fault := _mixed_checkpoints(spec, grids):
            yield f"{where}: {fault}"


def _mixed_checkpoints(spec: TableSpec | FigureSpec, grids: Mapping[str, Grid]) -> str | None:
    """Say what is a mean over the checkpoints of a training, which says nothing."""
    read = grids.values() if spec.grid is None else [grids[spec.grid]] if spec.grid in grids else []
    several = any(grid.verb == "scan" and _checkpoints(grid) for grid in read)
    shown = {n for entry in _AXES for n in list_names(getattr(spec, entry, None) or ())}
    if several and "checkpoint" not in shown:
        for name in list_names(spec.value):
            if "checkpoint" in list_places(name):
                return (
                    f"{name} has a value per checkpoint here; show checkpoint, or name one under "
                    "where"
                )
    return None
