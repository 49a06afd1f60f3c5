"""What a tuning returns: the model, the facts about it, and the files that hold both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from layerscout.plans import Plan
from layerscout.runtime import (
    InputError,
    LayerscoutError,
    make_output_folder,
    read_json,
    replace_files,
)
from layerscout.tuning.card import model_card
from layerscout.tuning.snapshots import Snapshots


@dataclass(frozen=True, eq=False)
class Result:
    """A tuned model, and all facts about it.

    Attributes:
        model: the transformers model of the epoch that counts, in eval mode.
        tokenizer: its tokenizer.
        content: what `result.json` holds.
        predictions: row in the validation file, label, prediction and logits of every example.
        write: writes the model into a folder, with this text as its card.
        snapshots: those of the training, which are removed once the result is saved.
    """

    model: Any
    tokenizer: Any
    content: Mapping[str, Any]
    predictions: Mapping[str, Sequence[Any] | np.ndarray]
    write: Callable[[Path, str], None]
    snapshots: Snapshots | None = None

    @property
    def plan(self) -> Plan:
        """What was tuned."""
        return Plan.from_dict(self.content["plan"])

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric of the kept model on the validation split, by name."""
        return dict(self.content["metrics"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader of the figures should know."""
        return tuple(self.content["warnings"])

    def save(self, folder: str | Path) -> None:
        """Write `model/`, `result.json` and `predictions.parquet` into `folder`.

        `model/` is an ordinary checkpoint with a model card: `from_pretrained` of transformers'
        Auto class for the task loads it, and, but for multiple choice, `pipeline`. Earlier files
        are replaced once the new ones are whole.

        Raises:
            InputError: if something cannot be written.
        """
        import pandas as pd

        folder = make_output_folder(Path(folder).expanduser())
        written = json.dumps(plain_json(self.content), indent=1, allow_nan=False) + "\n"
        # All files exist under other names before any takes its place, so that a disk that fills up
        # half-way cannot leave a new result.json beside an old model.
        with replace_files(folder / "result.json", folder / "predictions.parquet") as temporary:
            temporary[0].write_text(written, encoding="utf-8")
            pd.DataFrame(self.predictions).to_parquet(temporary[1], index=False)
            self.write(folder / "model", model_card(self.content))
        (folder / "run.yaml").unlink(missing_ok=True)  # it repeats an earlier run on the terminal
        if self.snapshots is not None:
            self.snapshots.discard()


class AlreadyDoneError(LayerscoutError):
    """There is nothing to resume: the result of the training is there."""


def name_training(about: Mapping[str, Any]) -> str:
    """Name what is trained on what and how, by its hash."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def check_earlier_result(folder: Path, training: str, *, resume: bool) -> None:
    """Refuse a folder with the result of another training, which would be lost.

    Args:
        folder: where the result of this training goes.
        training: its name; see `name_training`.
        resume: whether it is to be continued.

    Raises:
        InputError: if there is the result of another one.
        AlreadyDoneError: if `resume` is asked for and its own result is there.
    """
    if not (folder / "result.json").exists():
        return
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        if read_json(folder / "result.json")["settings"]["training"] == training:
            if resume:
                raise AlreadyDoneError(
                    f"{folder} holds the result of this training; there is nothing to resume"
                )
            return
    raise InputError(
        f"{folder} holds the result of another training; --overwrite replaces it, or name another "
        "folder with -o"
    )


def plain_json(content: Any) -> Any:
    """Turn values into what JSON can hold: null for numbers that are not finite.

    A training must not be lost to a single number that JSON has no name for.
    """
    match content:
        case Mapping():
            return {str(key): plain_json(value) for key, value in content.items()}
        case list() | tuple():
            return [plain_json(value) for value in content]
        case None | bool() | str():
            return content
        case Integral():
            return int(content)
        case Real():
            return float(content) if isfinite(content) else None
    return str(content)
