"""What trials that are run one after another share: loaded models and tasks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from layerscout.data import (
    KNOWN,
    Kind,
    Task,
    benchmark,
    draw_examples,
    ensure_validation,
    require_validation,
    sample,
)
from layerscout.files import sha256_of
from layerscout.models import Encoder, list_checkpoint_files, load_config, model_shape
from layerscout.plans import MAX_LENGTH, ModelShape
from layerscout.progress import Show
from layerscout.states import DEFAULT_LIMIT, fingerprint_task
from layerscout.studies.trial import DRAWING, Store, Trial


@dataclass
class TrialContext:
    """What trials that are run one after another share: loaded models and tasks.

    Attributes:
        store: of the records.
        data: a folder with known tasks by name, which goes before the hub.
        device: as for `Encoder.load`.
        cache_limit: bytes that the cache may hold.
        pretend: whether trials are planned as if all had run, for an estimate.
        progress: shows that of a trial, where it runs in this process.
    """

    store: Store
    data: Path | None = None
    device: str = "auto"
    cache_limit: int = DEFAULT_LIMIT
    pretend: bool = False
    progress: bool | Show = False
    _encoders: dict[tuple[str, str], Encoder] = field(default_factory=dict)
    _tasks: dict[str, Task] = field(default_factory=dict)
    _drawn: dict[str, Task] = field(default_factory=dict)
    _checked: set[str] = field(default_factory=set)
    _fingerprints: dict[str, str] = field(default_factory=dict)
    _shapes: dict[tuple[str, int, Kind], ModelShape] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process without what was loaded."""
        return TrialContext, (self.store, self.data, self.device, self.cache_limit, self.pretend)

    def task(self, given: Any) -> Task:
        """Load a task, or return the one that is loaded.

        Raises:
            InputError: if it cannot be loaded.
        """
        name = json.dumps(given, sort_keys=True)
        if name not in self._tasks:
            self._tasks[name] = ensure_validation(self._load(given), 0)
        return self._tasks[name]

    def _load(self, given: Any) -> Task:
        if isinstance(given, Mapping):
            options = {key: value for key, value in given.items() if key not in ("name", "data")}
            task = Task.load(given["data"], **options)
            return task if given.get("name") is None else replace(task, name=given["name"])
        if given in KNOWN:  # a folder of that name elsewhere is written as {data: ./cola}
            own = None if self.data is None else self.data / benchmark(given)
            return Task.load(own if own and own.is_dir() else KNOWN[given].hub, task=given)
        return Task.load(given)

    def examples(self, given: Any, drawing: Mapping[str, Any]) -> Task:
        """Load a task with the examples that are read of it.

        Args:
            given: as `Trial.task`.
            drawing: values of `DRAWING`.

        Raises:
            InputError: if there are not so many.
        """
        name = json.dumps([given, dict(drawing)], sort_keys=True)
        if name not in self._drawn:
            self._drawn = {name: _draw_examples(self.task(given), drawing)}
        return self._drawn[name]

    def encoder(self, given: Any, precision: str = "float32") -> Encoder:
        """Load an encoder, or return the one that is loaded.

        Raises:
            InputError: if it cannot be loaded.
        """
        name = (self.place(given), precision)
        if name not in self._encoders:
            self._encoders = {name: Encoder.load(name[0], device=self.device, precision=precision)}  # type: ignore[arg-type]
        return self._encoders[name]

    def place(self, given: Any) -> str:
        """Return what `Encoder.load` takes for a model of a trial."""
        if isinstance(given, Mapping):
            folder = self.store.model(given["trial"])
            epoch = given.get("epoch")
            return str(folder / "model" if epoch is None else folder / "epochs" / str(epoch))
        return str(given)

    def shape(self, given: Any, task: Task | None = None) -> ModelShape:
        """Return the sizes of a checkpoint, with a head for a task or for two classes.

        Raises:
            InputError: if it cannot be found.
        """
        kind: Kind = "classification" if task is None else task.kind
        labels = 2 if task is None else len(task.labels)
        name = (self.place(given), labels, kind)
        if name not in self._shapes:
            config, family = load_config(name[0])
            self._shapes[name] = model_shape(config, labels, kind, family=family)
        return self._shapes[name]

    def task_content(self, given: Any) -> str:
        """Hash what a task is.

        Raises:
            InputError: if it cannot be loaded.
        """
        name = json.dumps(given, sort_keys=True)
        if name not in self._fingerprints:
            task = self.task(given)
            # Rates of probes depend on the name of a known task, and verbs use its metric.
            known = task.name if task.name in KNOWN else ""
            self._fingerprints[name] = f"{fingerprint_task(task)} {known} {task.metric}"
        return self._fingerprints[name]

    def content(self, given: Any) -> str:
        """Hash what a model is: its files, or the trial that made it.

        Raises:
            InputError: if it cannot be found.
        """
        if isinstance(given, Mapping):
            return str(given["trial"]) + (f" {given['epoch']}" if "epoch" in given else "")
        self.shape(given)  # which says what is wrong with it
        if given not in self._fingerprints:
            digest = hashlib.sha256()
            for path in list_checkpoint_files(str(given)):
                digest.update(f"{path.name} {sha256_of(path)}\n".encode())
            self._fingerprints[given] = digest.hexdigest()
        return self._fingerprints[given]

    def make_trial(
        self,
        verb: str,
        models: tuple[Any, ...],
        task: Any,
        arguments: Mapping[str, Any],
        seed: int,
        *,
        keep: bool = False,
    ) -> Trial:
        """Make a trial, after a check that its models, its task and its examples are there.

        Args:
            verb: as for `Trial`, and so are the others.
            models: as for `Trial`.
            task: as for `Trial`.
            arguments: as for `Trial`; those that are None are left out.
            seed: draws the examples where `sample_seed` does not.
            keep: as for `Trial`.

        Raises:
            InputError: if something of it cannot be loaded, or there are too few examples.
        """
        rest = {name: value for name, value in arguments.items() if value is not None}
        # What says which examples are read, without what makes no difference.
        drawing = {name: rest.pop(name) for name in DRAWING if name in rest}
        for name, usual in (("examples", "all"), ("balanced", False)):
            if drawing.get(name) == usual:
                del drawing[name]
        # How many there are does not depend on the seed, so one draw stands for those of all seeds.
        sample_seed = drawing.pop("sample_seed", seed)
        name = json.dumps([task, drawing], sort_keys=True)
        if drawing.keys() - {"validation_examples"}:
            drawing["sample_seed"] = sample_seed
        if name not in self._checked:
            self.examples(task, drawing)
            self._checked.add(name)
        if rest.get("max_length") == MAX_LENGTH:
            del rest["max_length"]
        contents = (*map(self.content, models), self.task_content(task))
        return Trial(verb, models, task, rest | drawing, contents, keep)


def _draw_examples(task: Task, drawing: Mapping[str, Any]) -> Task:
    """Draw training examples by the trial's seed, and validation examples by seed 0."""
    seed, examples = drawing.get("sample_seed", 0), drawing.get("examples", "all")
    per_class, balanced = drawing.get("per_class"), bool(drawing.get("balanced"))
    if per_class or balanced:
        shares = {"examples": None if examples == "all" else examples, "per_class": per_class}
        rows = sample(task.train, len(task.labels), balanced=balanced, seed=seed, **shares)
        task = replace(task, train=task.train.take(rows))
    else:
        task = draw_examples(task, examples, seed)
    held = require_validation(task)
    number = drawing.get("validation_examples", "all")
    if number == "all" or number >= held.examples:
        return task
    drawn = draw_examples(replace(task, train=held), number, 0)
    return replace(task, validation=drawn.train)
