"""Trials: one run of a verb each, named by all that it depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Of the keys and the records; another number, and every trial is run again.
FORMAT = 1


# What says which examples are read, for every verb alike.
DRAWING = ("examples", "per_class", "balanced", "sample_seed", "validation_examples")


@dataclass(frozen=True)
class Trial:
    """One run of a verb.

    Attributes:
        verb: "tune", "scan", "compare" or "evaluate".
        models: what is read, in the verb's order: names of checkpoints, or of trials of tune as
            {"trial": key}.
        task: a name, or the arguments of `Task.load`.
        arguments: all else that it depends on, as JSON holds it.
        contents: hashes of the models and of the task, which stand for them in the key.
        keep: leave the tuned model in the folder of the study, for other trials.
    """

    verb: str
    models: tuple[Any, ...]
    task: Any
    arguments: Mapping[str, Any]
    contents: tuple[str, ...]
    keep: bool = False

    @property
    def key(self) -> str:
        """Name the trial by all that its result depends on, a sha256 in hexadecimal."""
        told = [FORMAT, self.verb, list(self.contents), dict(self.arguments)]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
