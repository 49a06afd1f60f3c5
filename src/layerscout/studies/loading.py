"""Reading recipes: shipped ones and YAML files, with changes."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any

from layerscout.errors import InputError, make_unknown_error
from layerscout.studies.arguments import VERBS, Reading
from layerscout.studies.checking import make_recipe
from layerscout.studies.recipe import READ, Grid, Recipe
from layerscout.yaml import read_yaml

_SHIPPED = resources.files("layerscout.studies") / "recipes"


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
