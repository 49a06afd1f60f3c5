"""Running trials, one record each: in this process, or on a cluster."""

from __future__ import annotations

import itertools
import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from layerscout.cluster import Cluster, run_on_cluster
from layerscout.comparing import compare
from layerscout.data import Task
from layerscout.errors import DiskError
from layerscout.evaluating import evaluate
from layerscout.models import Encoder, resolve_device
from layerscout.plans import Plan
from layerscout.progress import WAIT_SECONDS, say
from layerscout.scanning import scan
from layerscout.studies.context import TrialContext
from layerscout.studies.trial import DRAWING, Store, Trial
from layerscout.tuning import Result, plain_json, tune

# A trial that has ended, its record, and whether the record was there before.
Ended = tuple[Trial, Mapping[str, Any], bool]
OnTrial = Callable[[Trial, Mapping[str, Any], bool], None]

# Seconds between two checks for trials that other processes are running.
PATIENCE = 1.0


class Backend(Protocol):
    """Where trials run. What it is given is pickled for other processes."""

    def ready(self) -> AbstractContextManager[Any]:
        """Prepare for a study, during which `run` may be called several times."""

    def run(
        self, context: TrialContext, groups: Sequence[Sequence[Trial]], on_trial: OnTrial
    ) -> None:
        """Run all trials, those of a group in turn, since they share data and model."""


@dataclass(frozen=True)
class Local:
    """Trials in this process.

    Attributes:
        device: as for `Encoder.load`.
    """

    device: str = "auto"

    def ready(self) -> AbstractContextManager[Any]:
        """Check the device; see `Backend`."""
        resolve_device(self.device)
        return nullcontext()

    def run(
        self, context: TrialContext, groups: Sequence[Sequence[Trial]], on_trial: OnTrial
    ) -> None:
        """Run all trials; see `Backend`."""
        run_all(replace(context, device=self.device), list(itertools.chain(*groups)), on_trial)


@dataclass(frozen=True)
class Ray:
    """Trials on the machines of a Ray cluster, which share the folder of the study.

    The trials of a group are one task; if its machine dies, another machine continues with it.
    """

    cluster: Cluster = field(default_factory=Cluster)

    def ready(self) -> AbstractContextManager[Any]:
        """Join the cluster; see `Backend`."""
        return self.cluster.join()

    def run(
        self, context: TrialContext, groups: Sequence[Sequence[Trial]], on_trial: OnTrial
    ) -> None:
        """Run all trials; see `Backend`."""
        with self.ready() as ray:
            cluster, gpus = self.cluster, self.cluster.gpus_of_task(ray)
            # Tasks run in this process's folder, but a machine may not have it.
            store = Store(context.store.folder.absolute())
            device = cluster.device if gpus or cluster.device == "cuda" else "cpu"
            work = partial(_run_group, replace(context, store=store, device=device))
            with closing(run_on_cluster(ray, work, groups, cpus=cluster.cpus, gpus=gpus)) as ended:
                for trial, record, before in itertools.chain.from_iterable(ended):
                    on_trial(trial, record, before)


def _run_group(context: TrialContext, group: Sequence[Trial]) -> list[Ended]:
    """Run the trials of a group in another process; return what to report of them."""
    ended: list[Ended] = []
    run_all(context, group, lambda *end: ended.append(end))
    return ended


def run_all(context: TrialContext, trials: Sequence[Trial], on_trial: OnTrial) -> None:
    """Run trials in turn; come back to those that another process is running."""
    waiting, idle = list(trials), 0.0
    while waiting:
        taken = []
        for trial in waiting:
            record = context.store.find_finished(trial)
            if record is not None:
                on_trial(trial, record, True)
                continue
            with context.store.lock(trial.key) as ours:
                if not ours:
                    taken.append(trial)
                    continue
                record = context.store.find_finished(trial)  # another process may just have run it
                on_trial(trial, record or run_trial(trial, context), record is not None)
        if len(taken) < len(waiting):
            idle = 0.0
        elif waiting:
            time.sleep(PATIENCE)
            idle += PATIENCE
            if idle - PATIENCE < WAIT_SECONDS <= idle:
                say(f"waiting for what another process is running (trials: {len(taken)})")
        waiting = taken


def _tune(
    context: TrialContext, trial: Trial, task: Task, options: dict[str, Any]
) -> dict[str, Any]:
    encoder = context.encoder(trial.models[0], options.pop("precision", "float32"))
    plan = Plan.from_dict(options.pop("plan"))
    folder = context.store.model(trial.key)
    if trial.keep:
        shutil.rmtree(folder, ignore_errors=True)  # what another run may have left of it
    epochs, predictions = options.pop("checkpoints", []), options.pop("predictions", False)
    result = tune(
        encoder,
        task,
        plan,
        checkpoints={
            epoch: folder / "epochs" / str(epoch) for epoch in (epochs if trial.keep else [])
        },
        measure="predictions" if predictions else "speed",
        **options,
    )
    content = plain_json(result.content)
    if trial.keep:
        result.save(folder)
    (run,), settings = content["runs"], content["settings"]
    whole = ("plan", "metric", "majority", "keep", "best", "last", "parameters", "flops")
    surroundings = ("precision", "device", "threads", "processes", "epochs", "batch_size")
    return {
        **{name: content[name] for name in (*whole, content["keep"], "warnings")},
        "seconds": content["seconds"]
        | {"example": 1 / content["examples_per_second"]["kept_model"]},
        **{name: run[name] for name in ("curve", "stopped", "diverged")},
        **{name: settings[name] for name in surroundings},
        "blocks": content["model"]["blocks"],
        "examples": settings["examples"],
        "validation_examples": settings["validation_examples"],
        "tokens_per_example": content["task"]["tokens_per_example"],
        "cut": content["trunk"]["cut"],
        "trunk_kept": content["trunk"]["kept"],
        **(_list_predictions(result) if predictions else {}),
    }


def _list_predictions(result: Result) -> dict[str, Any]:
    """List what is right for every validation example and what was predicted, classes by number.

    Of an example with several labels a list of them, of a sentence one of the tags of its words.
    """
    numbers = {name: number for number, name in enumerate(result.content["task"]["labels"])}

    def number(label: Any) -> Any:
        if isinstance(label, list):
            return [numbers[name] for name in label]
        return numbers.get(label, label)

    lists = {
        f"{name}s": list(map(number, result.predictions[name])) for name in ("label", "prediction")
    }
    kind = result.content["task"]["kind"]
    if kind == "token_classification":
        ends = np.flatnonzero(np.diff(result.predictions["row"], append=-1)) + 1
        bounds = list(pairwise([0, *ends]))
        lists = {name: [tags[a:b] for a, b in bounds] for name, tags in lists.items()}
    return lists | {"kind": kind, "label_names": list(numbers)}


def _scan(
    context: TrialContext, trial: Trial, task: Task, options: dict[str, Any]
) -> dict[str, Any]:
    return scan(
        context.encoder(trial.models[0], options.pop("precision", "float32")),
        task,
        # Most words are outside of all spans: of those of the sentences some are drawn, in balance.
        examples="auto" if task.kind == "token_classification" else "all",
        checkpoints=list(map(context.place, trial.models[1:])),
        **options,
    ).as_dict()


def _compare(
    context: TrialContext, trial: Trial, task: Task, options: dict[str, Any]
) -> dict[str, Any]:
    models, precision = map(context.place, trial.models), options.pop("precision", "float32")
    loaded = [Encoder.load(name, device=context.device, precision=precision) for name in models]
    return compare(loaded, task, **options).as_dict()


def _evaluate(
    context: TrialContext, trial: Trial, task: Task, options: dict[str, Any]
) -> dict[str, Any]:
    tuned, *original = map(context.place, trial.models)
    if "head_examples" in options:
        options["examples"] = options.pop("head_examples")
    return evaluate(
        tuned,
        task,
        original=original[0] if original else None,
        device=context.device,
        **options,
    ).as_dict()


RUN = {"tune": _tune, "scan": _scan, "compare": _compare, "evaluate": _evaluate}


def run_trial(trial: Trial, context: TrialContext) -> dict[str, Any]:
    """Run a trial, and write and return its record; what goes wrong with it is in there.

    Raises:
        InputError: if the record cannot be written.
        DiskError: if the machine cannot write. A trial that it stops has no record, so it is run
            again when the study continues.
    """
    started, result, fault = perf_counter(), None, None
    try:
        options = {**trial.arguments, "cache_limit": context.cache_limit}
        options["progress"] = context.progress
        drawing = {name: options.pop(name) for name in DRAWING if name in options}
        task = context.examples(trial.task, drawing)
        result = RUN[trial.verb](context, trial, task, options)
    except DiskError:
        raise
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
        "versions": {name: version(name) for name in ("layerscout", "torch", "transformers")},
    }
    context.store.write(record)
    return record
