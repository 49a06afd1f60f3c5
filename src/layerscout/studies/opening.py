"""What every study starts from: its recipe, and the context of its trials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerscout.runtime import (
    InputError,
    check_output_folder,
)
from layerscout.studies.context import TrialContext
from layerscout.studies.loading import load_recipe
from layerscout.studies.planner import Planner
from layerscout.studies.recipe import Recipe
from layerscout.studies.store import Store


def open_study(
    recipe: Recipe | str | Path,
    output: str | Path,
    small: bool,
    changes: Mapping[str, Any] | None,
    data: str | Path | None,
    cache_limit: int,
) -> tuple[Recipe, TrialContext]:
    """Load a recipe and make the context of its trials; see `layerscout.study`."""
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe, small=small, changes=changes)
    folder = Path(output).expanduser()
    check_output_folder(folder)
    place = None if data is None else Path(data).expanduser()
    if place is not None and not place.is_dir():
        raise InputError(f"`data` must be a folder with tasks in it, got {place}")
    return recipe, TrialContext(Store(folder), place, cache_limit=cache_limit)


def check_any_runs(recipe: Recipe, planner: Planner) -> None:
    """Refuse a study of which nothing can be run."""
    cells = [cell for some in planner.cells.values() for cell in some]
    reasons = dict.fromkeys(cell.refused for cell in cells if cell.refused is not None)
    if reasons and all(cell.trial is None for cell in cells):
        raise InputError(f"nothing of {recipe.title!r} can be run: {'; '.join(reasons)}")
