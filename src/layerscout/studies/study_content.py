"""What a study has measured so far: its `study.json`, the records of its trials, and tidy rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from layerscout.studies.recipe import Recipe
from layerscout.studies.store import Store
from layerscout.studies.summaries import tidy_records


@dataclass(frozen=True)
class StudyContent:
    """What a study has measured so far.

    Attributes:
        content: the content of `study.json`.
        recipe: the recipe.
        records: by the key of their trial; None where there is none, or a broken one.
        broken: how many records cannot be read.
        frame: the tidy rows.
    """

    content: Mapping[str, Any]
    recipe: Recipe
    records: Mapping[str, dict[str, Any] | None]
    broken: int
    frame: pd.DataFrame

    def list_done(self, verb: str) -> list[tuple[Mapping[str, Any], dict[str, Any]]]:
        """Give the cells of a verb whose trial is done, each with its record."""
        cells = [(cell, self.records.get(cell["trial"])) for cell in self.content["cells"]]
        return [
            (cell, record)
            for cell, record in cells
            if record is not None and record["status"] == "done" and record["verb"] == verb
        ]


def load_study(content: Mapping[str, Any], folder: Path) -> StudyContent:
    """Read the records of a study, each once."""
    store = Store(folder)
    keys = dict.fromkeys(cell["trial"] for cell in content["cells"] if cell["trial"] is not None)
    records = {key: store.read(key) for key in keys}
    broken = sum(record is None and store.is_broken(key) for key, record in records.items())
    recipe = Recipe.model_validate(content["recipe"])
    return StudyContent(content, recipe, records, broken, tidy_records(content, records.get))
