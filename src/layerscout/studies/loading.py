"""Reading recipes: shipped ones and YAML files, with changes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from layerscout.runtime import (
    InputError,
    unknown,
)
from layerscout.studies.arguments import VERBS, Reading
from layerscout.studies.checking import read_recipe
from layerscout.studies.recipe import READ, Grid, Recipe


def shipped() -> list[str]:
    """Name the recipes that come with the package."""
    folder = resources.files("layerscout.studies") / "recipes"
    return sorted(
        f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")
    )


def recipe_text(name: str | Path) -> str:
    """Give the text of a recipe, shipped or one's own.

    Raises:
        InputError: if there is none.
    """
    if str(name) in shipped():
        return (resources.files("layerscout.studies") / "recipes" / f"{name}.yaml").read_text(
            "utf-8"
        )
    path = Path(name)
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        raise unknown("recipe", str(name), shipped())
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        told = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"cannot read the recipe {path}: {told}") from error


class _Loader(yaml.SafeLoader):
    """Reads plain data, 1e-4 as the number that YAML 1.2 says it is, and no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Read a mapping whose keys differ."""
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            told = f"{twice!s:.60} is there twice"
            raise yaml.constructor.ConstructorError(None, None, told, node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+"),
    list("-+0123456789"),
)


def read_value(text: str) -> Any:
    """Read a value as a recipe writes it.

    Raises:
        InputError: if it is no YAML.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(
            f"a value is written as in YAML, such as 3, [0, 1] or top:2, got {text!r:.60}"
        ) from error


def load_recipe(
    name: str | Path, *, small: bool = False, changes: Mapping[str, Any] | None = None
) -> Recipe:
    """Read a recipe and check all of it.

    Args:
        name: of a shipped recipe, or a YAML file.
        small: with what its small variant changes.
        changes: by path, such as {"axes.seed": [0, 1]}; see `changed`.

    Raises:
        InputError: with every fault that it has, a line each.
    """
    text = recipe_text(name)
    try:
        content = yaml.load(text, Loader=_Loader)
        json.dumps(content)  # which goes in circles where anchors do
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        told = getattr(error, "problem", None) or "it cannot be parsed"
        raise InputError(f"{name} is no YAML{where}: {told}") from error
    if not isinstance(content, dict) or not isinstance(content.get("grids"), dict):
        raise InputError(f"{name} is no recipe: it needs `title` and `grids`; see --show")
    if small:
        if not content.get("small"):
            raise InputError(f"{name} has no small variant; leave out --small")
        for path, value in _items(content, "small"):
            content = changed(content, path, value)
    for path, value in (changes or {}).items():
        content = changed(content, path, value)
    return read_recipe(content, str(name))


def _items(content: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    found = content[key]
    if not isinstance(found, Mapping):
        raise InputError(f"`{key}` must be names with values, got {found!r:.60}")
    return [(str(path), value) for path, value in found.items()]


def changed(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Give a recipe's content with something changed.

    Args:
        content: what YAML gave.
        path: "grids.NAME.axes.seed"; or "axes.seed", "settings.epochs" or just "model" for all
            grids that take it; or another entry of a recipe, such as "baseline".
        value: what stands there then; an axis takes a list, or a single value.

    Raises:
        InputError: if there is no such place.
    """
    content = deepcopy(content)
    first, *rest = path.split(".")
    if first in Recipe.model_fields and first != "grids" and not rest:
        content[first] = value
        return content
    grids = {name: grid for name, grid in content["grids"].items() if isinstance(grid, dict)}
    if first == "grids":
        if not rest or rest[0] not in grids:
            raise unknown("grid", rest[0] if rest else "", grids)
        grids = {rest[0]: grids[rest[0]]}
        first, *rest = rest[1:] or [""]
        if first in Grid.model_fields and not rest:
            (grid,) = grids.values()
            grid[first] = value
            return content
    if first in ("pilot", "rates") and not rest:
        for grid in grids.values():
            if grid.get("verb", "tune") == "tune":
                grid[first] = value
        return content
    where = first if first in ("axes", "settings") else None
    name = ".".join(rest) if where else ".".join([first, *rest])
    taken = 0
    for grid in grids.values():
        known = VERBS.get(str(grid.get("verb", "tune")), Reading).model_fields
        axes = grid.get("axes") or {}
        if name not in known or (name in READ and grid.get("of")):
            continue
        taken += 1
        if name in axes or where == "axes":
            grid["axes"] = {**axes, name: value if isinstance(value, list | dict) else [value]}
            if name in (grid.get("settings") or {}):
                grid["settings"] = {k: v for k, v in grid["settings"].items() if k != name}
        else:
            grid["settings"] = {**(grid.get("settings") or {}), name: value}
    if not taken:
        names = {n for model in VERBS.values() for n in model.model_fields}
        raise unknown("place in the recipe", path, sorted(names))
    return content
