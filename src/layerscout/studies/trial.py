"""Trials, one run of a verb each: their arguments, their keys, and the records that they leave."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from layerscout.data import Task
from layerscout.errors import InputError
from layerscout.files import make_output_folder, read_json, remove_stale_temporaries, write_files
from layerscout.plans import (
    Method,
    TuneRequest,
    format_edits,
    make_request,
    options_of,
)
from layerscout.studies.summaries import MEASURED, UNLIKE_OURS

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
        parts = [FORMAT, self.verb, list(self.contents), dict(self.arguments)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Store:
    """The folder of a study, with a file for each trial that ended.

    Files appear whole under their names, so several processes and machines can share it.
    """

    folder: Path

    def path(self, key: str) -> Path:
        """Where the record of a trial stands."""
        return self.folder / "trials" / f"{key}.json"

    def model(self, key: str) -> Path:
        """Where the model of a trial of tune stands, if it was kept."""
        return self.folder / "models" / key

    def read(self, key: str) -> dict[str, Any] | None:
        """Return a record; None where there is none, or not a whole one."""
        try:
            record = read_json(self.path(key))
        except (OSError, ValueError):
            return None
        return record if is_whole(record, key) else None

    def find_finished(self, trial: Trial) -> dict[str, Any] | None:
        """Return the record of a trial that need not run again, or None."""
        record = self.read(trial.key)
        if record is not None and trial.keep and record["status"] == "done":
            kept = self.model(trial.key) / "model" / "config.json"
            return record if kept.is_file() else None
        return record

    def is_broken(self, key: str) -> bool:
        """Return whether there is a record that cannot be read."""
        return self.path(key).exists() and self.read(key) is None

    def write(self, record: Mapping[str, Any]) -> None:
        """Write a record.

        Raises:
            InputError: if it cannot be written.
        """
        self._make_folder()
        text = json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n"
        write_files({self.path(record["key"]): text})

    def remove_stale_temporaries(self) -> None:
        """Remove what killed runs have left half-written."""
        for folder in (self.folder, self.folder / "trials"):
            remove_stale_temporaries(folder)

    def _make_folder(self) -> Path:
        """Make the folder of the records, without a look at all of them each time."""
        folder = self.folder / "trials"
        return folder if folder.is_dir() else make_output_folder(folder)

    def forget_failed(self, keys: Iterable[str]) -> None:
        """Remove the records of those trials that failed."""
        for key in keys:
            record = self.read(key)
            if record is not None and record["status"] == "failed":
                self.path(key).unlink(missing_ok=True)

    @contextmanager
    def lock(self, key: str) -> Iterator[bool]:
        """Lock a trial for this process; False while another process has it.

        Where the file system knows no locks, two may run the same trial, which leaves one record.
        """
        from filelock import FileLock, Timeout

        path = self._make_folder() / f".{key}.lock"
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        except (OSError, NotImplementedError):
            yield True
            return
        try:
            yield True
        finally:
            lock.release()
            # Of two that hold the removed file and a new one, each finds the record. Without a
            # record the file stays: see `lock_folder`.
            if self.path(key).exists():
                with suppress(OSError):
                    path.unlink()


def is_whole(record: Any, key: str) -> bool:
    """Return whether a record has what those that were written have."""
    if not isinstance(record, dict) or record.get("key") != key:
        return False
    status, numbers = record.get("status"), isinstance(record.get("seconds"), float)
    known = record.get("verb") in MEASURED and isinstance(record.get("versions"), dict) and numbers
    if status == "failed":
        return known and isinstance(record.get("error"), str)
    if not known or status != "done" or not isinstance(record.get("result"), dict):
        return False
    try:
        return all(True for _ in MEASURED[record["verb"]](record, {}))
    except UNLIKE_OURS:
        return False


# Settings that are None unless they are asked for, and what None means.
_USUAL_SETTINGS: Mapping[str, Any] = {"accumulation": 1, "batching": "length"}

# Arguments with these values are left out of the key of a tuning.
_USUAL: Mapping[str, Any] = {
    **{field.name: field.default for field in fields(TuneRequest)},
    **_USUAL_SETTINGS,
    **{"classifier": "family", "edits": "", "precision": "float32"},
    "predictions": False,
}

# Given apart, or of no use for the training itself.
_APART = ("plan", "score", "scan_examples", "learning_rate", "preset", "as_released")


def spell_out(
    given: Mapping[str, Any], task: Task, method: Method, *, full: bool
) -> dict[str, Any]:
    """Return the arguments of a tuning, written alike wherever they mean the same.

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
    training = {
        name: value
        for name, value in asdict(settings).items()
        if value is not None and value != _USUAL_SETTINGS.get(name)
    }
    if "max_steps" in training:
        del training["epochs"]
    others = {name: value for name, value in given.items() if name not in _APART}
    others |= {"classifier": classifier, "edits": format_edits(request.edits)}
    others |= {"method": method.name, "method_options": asdict(method)}
    if request.as_released and request.reinitialises:
        others["as_released"] = True
    return {
        name: value for name, value in others.items() if name not in _USUAL or value != _USUAL[name]
    } | training


def check_readable(given: Mapping[str, Any], method: Method) -> None:
    """Raise if a tuning leaves no model for the grids that read it.

    Args:
        given: its arguments, written out.
        method: how blocks are tuned.

    Raises:
        InputError: if it does not leave what they ask for.
    """
    if method.saved == "apart":
        raise InputError(
            f"{method.name} saves no whole model for the grids that read it (of); use the method "
            "full or lora"
        )
    epochs = given.get("checkpoints")
    if not epochs:
        return
    if given.get("classifier", "family") != "family":
        raise InputError("checkpoints of epochs need the classifier family; leave one out")
    if method.saved == "merged":
        raise InputError("LoRA keeps no checkpoints of epochs; use the method full")
    if max(epochs) > given.get("epochs", max(epochs)):
        raise InputError(
            f"checkpoints {epochs} go beyond the {given['epochs']} epochs trained; name epochs up "
            f"to {given['epochs']}"
        )
