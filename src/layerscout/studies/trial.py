"""Trials: one run of a verb each, named by all that it depends on, and the records they leave."""

from __future__ import annotations

import hashlib
import json
import shutil
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from layerscout.analysis import compare, evaluate
from layerscout.cache import DEFAULT_LIMIT, task_fingerprint
from layerscout.data import KNOWN, Task, answers, drawn, held_out, sample, validated
from layerscout.models import Encoder, checkpoint_files, load_config, model_shape, sized_config
from layerscout.plans import Classifier, ModelShape, Plan, make_method
from layerscout.runtime import InputError, output_folder, read_json, sha256_of, tidy, write_files
from layerscout.scanning import Options, scan
from layerscout.studies.stand_ins import MODELS, TASKS, stand_in_task
from layerscout.studies.summaries import UNLIKE_OURS, measured
from layerscout.tuning import plain_json, tune

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
        """Give a record; None where there is none, or not a whole one."""
        try:
            record = read_json(self.path(key))
        except (OSError, ValueError):
            return None
        return record if _whole(record, key) else None

    def ended(self, trial: Trial) -> dict[str, Any] | None:
        """Give the record of a trial that need not run again, or None."""
        record = self.read(trial.key)
        if record is not None and trial.keep and record["status"] == "done":
            kept = self.model(trial.key) / "model" / "config.json"
            return record if kept.is_file() else None
        return record

    def broken(self, key: str) -> bool:
        """Tell whether there is a record that cannot be read."""
        return self.path(key).exists() and self.read(key) is None

    def write(self, record: Mapping[str, Any]) -> None:
        """Write a record.

        Raises:
            InputError: if it cannot be written.
        """
        self._made()
        text = json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n"
        write_files({self.path(record["key"]): text})

    def tidy(self) -> None:
        """Remove what killed runs have left half-written."""
        for folder in (self.folder, self.folder / "trials"):
            tidy(folder)

    def _made(self) -> Path:
        """Make the folder of the records, without a look at all of them each time."""
        folder = self.folder / "trials"
        return folder if folder.is_dir() else output_folder(folder)

    def forget_failed(self, keys: Iterable[str]) -> None:
        """Remove the records of those trials that failed."""
        for key in keys:
            record = self.read(key)
            if record is not None and record["status"] == "failed":
                self.path(key).unlink(missing_ok=True)

    @contextmanager
    def claimed(self, key: str) -> Iterator[bool]:
        """Be the one who runs a trial; False while another process does.

        Where the file system knows no locks, two may run the same trial, which leaves one record.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self._made() / f".{key}.lock")
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
            with suppress(OSError):
                Path(lock.lock_file).unlink()
            lock.release()


@dataclass
class Desk:
    """What trials that are run one after another share: loaded models and tasks.

    Attributes:
        store: of the records.
        data: a folder with known tasks by name, which goes before the hub.
        device: as for `Encoder.load`.
        cache_limit: bytes that the cache may hold.
        pretend: for models and tasks of known size that cannot be had, something of that size
            will do.
    """

    store: Store
    data: Path | None = None
    device: str = "auto"
    cache_limit: int = DEFAULT_LIMIT
    pretend: bool = False
    _encoders: dict[tuple[Any, ...], Encoder] = field(default_factory=dict)
    _tasks: dict[str, Task] = field(default_factory=dict)
    _drawn: dict[str, Task] = field(default_factory=dict)
    _fingerprints: dict[str, str] = field(default_factory=dict)
    _configs: dict[str, Any] = field(default_factory=dict)
    _stand_ins: set[str] = field(default_factory=set)
    _origins: dict[str, str] = field(default_factory=dict)
    _shapes: dict[tuple[Any, ...], ModelShape] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process without what was loaded."""
        return Desk, (self.store, self.data, self.device, self.cache_limit, self.pretend)

    # --- What trials are made of -----------------------------------------------------------------

    def task(self, given: Any) -> Task:
        """Load a task, or give the one that is loaded.

        Raises:
            InputError: if it cannot be loaded.
        """
        name = json.dumps(given, sort_keys=True)
        if name not in self._tasks:
            try:
                self._tasks[name] = validated(self._load(given), 0)
            except InputError:
                if not (self.pretend and isinstance(given, str) and given in TASKS):
                    raise
                self._tasks[name] = stand_in_task(given)
                self._stand_ins.add(given)
        return self._tasks[name]

    @property
    def assumed(self) -> tuple[str, ...]:
        """Name the models and tasks that are not at hand."""
        return tuple(sorted(self._stand_ins))

    def stands_in(self, given: Any) -> bool:
        """Tell whether a model or a task is not at hand, so that another stands for it."""
        return isinstance(given, str) and given in self._stand_ins

    def remember(self, trials: Iterable[Trial]) -> None:
        """Know from which checkpoints these trials of tune start."""
        self._origins.update({trial.key: trial.models[0] for trial in trials})

    def origin(self, given: Any) -> Any:
        """Give the checkpoint that a model of a trial was tuned from, or the model itself."""
        return self._origins.get(given["trial"]) if isinstance(given, Mapping) else given

    def _load(self, given: Any) -> Task:
        if isinstance(given, Mapping):
            options = {key: value for key, value in given.items() if key not in ("name", "data")}
            loaded = Task.load(given["data"], **options)
            return loaded if given.get("name") is None else replace(loaded, name=given["name"])
        if given in KNOWN:  # a folder of that name elsewhere is written as {data: ./cola}
            own = None if self.data is None else self.data / given
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
            self._drawn = {name: _drawn(self.task(given), drawing)}
        return self._drawn[name]

    def encoder(self, given: Any, precision: str = "float32") -> Encoder:
        """Load an encoder, or give the one that is loaded.

        Raises:
            InputError: if it cannot be loaded.
        """
        name = (self.place(given), precision)
        if name not in self._encoders:
            self._encoders = {name: Encoder.load(name[0], device=self.device, precision=precision)}  # type: ignore[arg-type]
        return self._encoders[name]

    def place(self, given: Any) -> str:
        """Give what `Encoder.load` takes for a model of a trial."""
        if isinstance(given, Mapping):
            folder = self.store.model(given["trial"])
            epoch = given.get("epoch")
            return str(folder / "model" if epoch is None else folder / "epochs" / str(epoch))
        return str(given)

    def shape(
        self, given: Any, task: Task | None = None, head: Classifier = "family"
    ) -> ModelShape:
        """Give the sizes of a checkpoint, with a head for a task or for two classes.

        Raises:
            InputError: if it cannot be found.
        """
        labels, kind = (2, "classification") if task is None else (len(task.labels), task.kind)
        name = (self.place(given), labels, kind, head)
        if name not in self._shapes:
            if name[0] not in self._configs:
                self._configs[name[0]] = self._config(name[0])
            self._shapes[name] = model_shape(self._configs[name[0]], labels, kind, head)
        return self._shapes[name]

    def _config(self, name: str) -> Any:
        try:
            return load_config(name)
        except InputError:
            if not self.pretend or name not in MODELS:
                raise
            self._stand_ins.add(name)
            return sized_config(*MODELS[name])

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
            # Rates of probes go by the name of a known task, and verbs judge by its metric.
            known = task.name if task.name in KNOWN else ""
            self._fingerprints[name] = f"{task_fingerprint(task)} {known} {task.metric}"
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
            for path in checkpoint_files(str(given)):
                digest.update(f"{path.name} {sha256_of(path)}\n".encode())
            self._fingerprints[given] = digest.hexdigest()
        return self._fingerprints[given]

    # --- Running ---------------------------------------------------------------------------------

    def perform(self, trial: Trial) -> dict[str, Any]:
        """Run a trial, and write and give its record; what goes wrong with it is in there.

        Raises:
            InputError: if the record cannot be written.
        """
        started, result, fault = perf_counter(), None, None
        try:
            result = RUN[trial.verb](self, trial)
        except Exception as error:
            fault = {
                "error": f"{type(error).__name__}: {error}",
                "traceback": traceback.format_exc(),
            }
        record = {
            "key": trial.key,
            "status": "done" if fault is None else "failed",
            "verb": trial.verb,
            "models": list(trial.models),
            "task": trial.task,
            "arguments": dict(trial.arguments),
            "result": result,
            **(fault or {}),
            "seconds": perf_counter() - started,
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": _versions(),
        }
        self.store.write(record)
        return record


def _whole(record: Any, key: str) -> bool:
    """Tell whether a record has what those that were written have."""
    if not isinstance(record, dict) or record.get("key") != key:
        return False
    status, numbers = record.get("status"), isinstance(record.get("seconds"), float)
    known = record.get("verb") in RUN and isinstance(record.get("versions"), dict) and numbers
    if status == "failed":
        return known and isinstance(record.get("error"), str)
    if not known or status != "done" or not isinstance(record.get("result"), dict):
        return False
    try:
        return all(True for _ in measured(record, {}))
    except UNLIKE_OURS:
        return False


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("layerscout", "torch", "transformers")}


def _drawn(task: Task, drawing: Mapping[str, Any]) -> Task:
    """Draw training examples by the trial's seed, and validation examples by seed 0."""
    seed, examples = drawing.get("sample_seed", 0), drawing.get("examples", "all")
    if drawing.get("per_class") or drawing.get("balanced"):
        rows = sample(
            task.train,
            len(task.labels),
            examples=None if examples == "all" else examples,
            balanced=bool(drawing.get("balanced")),
            per_class=drawing.get("per_class"),
            seed=seed,
        )
        task = replace(task, train=task.train.take(rows))
    else:
        task = drawn(task, examples, seed)
    held = held_out(task)
    wanted = drawing.get("validation_examples", "all")
    if wanted == "all" or wanted >= len(answers(held, task.kind)):
        return task
    other = drawn(replace(task, train=held), wanted, 0)
    return replace(task, validation=other.train)


def _tune(desk: Desk, trial: Trial) -> dict[str, Any]:
    given = dict(trial.arguments)
    drawing = {name: given.pop(name) for name in DRAWING if name in given}
    method = make_method(given.pop("method", "full"), **given.pop("method_options", {}))
    encoder = desk.encoder(trial.models[0], given.pop("precision", "float32"))
    plan = Plan.from_dict(given.pop("plan"))
    folder = desk.store.model(trial.key)
    if trial.keep:
        shutil.rmtree(folder, ignore_errors=True)  # what another run may have left of it
    epochs = given.pop("checkpoints", [])
    result = tune(
        encoder,
        desk.examples(trial.task, drawing),
        plan,
        method=method,
        cache_limit=desk.cache_limit,
        checkpoints={
            epoch: folder / "epochs" / str(epoch) for epoch in (epochs if trial.keep else [])
        },
        measure=False,
        progress=False,
        **given,
    )
    content = plain_json(result.content)
    if trial.keep:
        result.save(folder)
    (run,), settings = content["runs"], content["settings"]
    told = ("plan", "metric", "keep", "best", "last", "parameters", "flops", "seconds", "warnings")
    surroundings = ("precision", "device", "threads", "processes", "epochs", "batch_size")
    return {
        **{name: content[name] for name in told},
        **{name: run[name] for name in ("curve", "stopped", "diverged")},
        **{name: settings[name] for name in surroundings},
        "blocks": content["model"]["blocks"],
        "examples": settings["examples"],
        "validation_examples": settings["validation_examples"],
        "tokens_per_example": content["task"]["tokens_per_example"],
        "cut": content["trunk"]["cut"],
        "trunk_kept": content["trunk"]["kept"],
    }


def _scan(desk: Desk, trial: Trial) -> dict[str, Any]:
    given = dict(trial.arguments)
    drawing = {name: given.pop(name) for name in DRAWING if name in given}
    names = ("probe", "fisher_mode", "as_released", "head_seeds")
    options = {name: given.pop(name) for name in names if name in given}
    encoder = desk.encoder(trial.models[0], given.pop("precision", "float32"))
    found = scan(
        encoder,
        desk.examples(trial.task, drawing),
        examples="all",
        options=Options(**options),
        checkpoints=[desk.place(one) for one in trial.models[1:]],
        cache_limit=desk.cache_limit,
        progress=False,
        **given,
    )
    return found.as_dict()


def _compare(desk: Desk, trial: Trial) -> dict[str, Any]:
    given = dict(trial.arguments)
    drawing = {name: given.pop(name) for name in DRAWING if name in given}
    models = [desk.place(one) for one in trial.models]
    precision = given.pop("precision", "float32")
    loaded = [Encoder.load(one, device=desk.device, precision=precision) for one in models]
    task = desk.examples(trial.task, drawing)
    return compare(loaded, task, cache_limit=desk.cache_limit, progress=False, **given).as_dict()


def _evaluate(desk: Desk, trial: Trial) -> dict[str, Any]:
    given = dict(trial.arguments)
    drawing = {name: given.pop(name) for name in DRAWING if name in given}
    first, *others = [desk.place(one) for one in trial.models]
    task = desk.examples(trial.task, drawing)
    found = evaluate(
        first,
        task,
        original=others[0] if others else None,
        device=desk.device,
        cache_limit=desk.cache_limit,
        progress=False,
        **given,
    )
    return found.as_dict()


RUN = {"tune": _tune, "scan": _scan, "compare": _compare, "evaluate": _evaluate}
