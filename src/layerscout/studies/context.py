"""What trials that are run one after another share: loaded models and tasks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from layerscout.data import (
    KNOWN,
    Kind,
    Split,
    Task,
    benchmark,
    draw_examples,
    ensure_validation,
    require_validation,
    sample,
)
from layerscout.errors import InputError
from layerscout.files import sha256_of
from layerscout.models import (
    FAMILIES,
    Encoder,
    list_checkpoint_files,
    load_config,
    make_config,
    model_shape,
)
from layerscout.plans import MAX_LENGTH, ModelShape
from layerscout.progress import Show
from layerscout.states import DEFAULT_LIMIT, fingerprint_task
from layerscout.studies.trial import DRAWING, Store, Trial

# The configurations of the models in the papers: family, blocks, width, feed-forward, vocabulary.
MODELS: Mapping[str, tuple[str, int, int, int, int]] = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": ("llama", 30, 576, 1536, 49_152),
    "albert/albert-large-v2": ("albert", 24, 1024, 4096, 30_000),
    "bert-base-cased": ("bert", 12, 768, 3072, 28_996),
    "bert-base-uncased": ("bert", 12, 768, 3072, 30_522),
    "google/electra-base-discriminator": ("electra", 12, 768, 3072, 30_522),
    "microsoft/deberta-base": ("deberta", 12, 768, 3072, 50_265),
    "roberta-base": ("roberta", 12, 768, 3072, 50_265),
    "roberta-large": ("roberta", 24, 1024, 4096, 50_265),
    "sentence-transformers/all-MiniLM-L6-v2": ("bert", 6, 384, 1536, 30_522),
    "sentence-transformers/all-mpnet-base-v2": ("mpnet", 12, 768, 3072, 30_527),
}

# Examples to train on and to validate on, and the mean number of tokens of a text in round
# numbers, inputs cut at 128: the official sizes, and what WordPiece made of parts of them.
_SIZES: Mapping[str, tuple[int, int, int]] = {
    "boolq": (9_427, 3_270, 110),
    "cb": (250, 56, 75),
    "cola": (8_551, 1_043, 11),
    "copa": (400, 100, 21),
    "cosmos_qa": (25_262, 2_985, 110),
    "go_emotions": (43_410, 5_426, 19),
    "hellaswag": (39_905, 10_042, 100),
    "mnli": (392_702, 9_815, 40),
    "mrpc": (3_668, 408, 53),
    "multirc": (27_243, 4_848, 128),
    "qnli": (104_743, 5_463, 49),
    "qqp": (363_846, 40_430, 30),
    "rte": (2_490, 277, 67),
    "sst2": (67_349, 872, 13),
    "stsb": (5_749, 1_500, 29),
    "wic": (5_428, 638, 23),
    "wnut17": (3_394, 1_009, 31),
    "wnli": (635, 71, 37),
    "wsc": (554, 104, 35),
    "yelp_polarity": (560_000, 38_000, 115),
}
TASKS: Mapping[str, tuple[int, int, int]] = {
    name: _SIZES[benchmark(name)] for name in KNOWN if benchmark(name) in _SIZES
}

CHOICES: Mapping[str, int] = {"copa": 2, "cosmos_qa": 4, "hellaswag": 4}
# The mean number of words of a sentence.
WORDS: Mapping[str, int] = {"wnut17": 18}


@dataclass
class TrialContext:
    """What trials that are run one after another share: loaded models and tasks.

    Attributes:
        store: of the records.
        data: a folder with known tasks by name, which goes before the hub.
        device: as for `Encoder.load`.
        cache_limit: bytes that the cache may hold.
        pretend: for models and tasks of known size that are not at hand, something of that size
            will do.
        assumed: the models and tasks for which something else stands.
        progress: shows that of a trial, where it runs in this process.
    """

    store: Store
    data: Path | None = None
    device: str = "auto"
    cache_limit: int = DEFAULT_LIMIT
    pretend: bool = False
    assumed: set[str] = field(default_factory=set)
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
            try:
                self._tasks[name] = ensure_validation(self._load(given), 0)
            except InputError:
                if not (self.pretend and isinstance(given, str) and given in TASKS):
                    raise
                self._tasks[name] = stand_in_task(given)
                self.assumed.add(given)
        return self._tasks[name]

    def stands_in(self, given: Any) -> bool:
        """Return whether a model or a task is not at hand, so that another stands for it."""
        return isinstance(given, str) and given in self.assumed

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
            try:
                config, family = load_config(name[0])
            except InputError:
                if not self.pretend or name[0] not in MODELS:
                    raise
                self.assumed.add(name[0])
                known = MODELS[name[0]]
                config, family = make_config(*known), FAMILIES[known[0]]
            self._shapes[name] = model_shape(config, labels, kind, family=family)
        return self._shapes[name]

    def task_content(self, given: Any) -> str:
        """Hash what a task is.

        Raises:
            InputError: if it cannot be loaded.
        """
        name = json.dumps(given, sort_keys=True)
        task = self.task(given)
        if self.stands_in(given):
            return str(given)
        if name not in self._fingerprints:
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
        self.shape(given)
        if self.stands_in(given):
            return str(given)
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


def stand_in_task(name: str) -> Task:
    """Return a task of the size of one of `TASKS`, without its texts."""
    known, (training, validation, _) = KNOWN[name], TASKS[name]
    choices = CHOICES.get(benchmark(name), 1)
    per_row, classes = WORDS.get(name, 1), len(known.labels)

    def split(n: int) -> Split:
        labels: np.ndarray = np.arange(n * per_row) % max(1, classes)
        if known.kind == "multi_label_classification":
            labels = np.eye(classes, dtype=bool)[labels]
        if known.kind == "regression":
            labels = np.arange(n, dtype=np.float64)
        if choices > 1:
            labels = np.tile(np.arange(choices) == 0, n).astype(np.int64)
        groups = np.repeat(np.arange(n), choices) if choices > 1 else None
        words = [("",) * per_row] * n if known.kind == "token_classification" else None
        return Split([""] * (n * choices), None, labels, groups, words=words)

    splits = split(training), split(validation)
    return Task(name, known.kind, known.labels, known.metric, *splits, {})
