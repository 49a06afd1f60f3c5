"""Where the trials of a study run: in processes of this machine, or on a cluster."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from layerscout.runtime import (
    LayerscoutError,
    check_resources,
    choose_gpus,
    join_cluster,
    run_on_cluster,
)
from layerscout.studies.context import TrialContext
from layerscout.studies.runners import run_trial
from layerscout.studies.store import Store
from layerscout.studies.trial import Trial

# What is told of each trial that ends: it, its record, and whether it was there before.
Told = Callable[[Trial, Mapping[str, Any], bool], None]

# How long to wait for trials that another process has taken, between two looks, in seconds.
PATIENCE = 1.0


class Backend(Protocol):
    """Where trials run. What it is given travels to other processes by pickle."""

    def ready(self) -> AbstractContextManager[Any]:
        """Get ready for a study, within which `run` is called any number of times."""

    def run(self, context: TrialContext, groups: Sequence[Sequence[Trial]], told: Told) -> None:
        """Run all trials, those of a group one after another, since they share what they read."""


@dataclass(frozen=True)
class Local:
    """Trials on this machine, in one process for each device.

    Attributes:
        devices: as for `Encoder.load`.
    """

    devices: tuple[str, ...] = ("auto",)

    def ready(self) -> AbstractContextManager[Any]:
        """Get ready for a study; see `Backend`."""
        return nullcontext()

    def run(self, context: TrialContext, groups: Sequence[Sequence[Trial]], told: Told) -> None:
        """Run all trials; see `Backend`."""
        if len(self.devices) == 1:
            work_through(
                replace(context, device=self.devices[0]), list(itertools.chain(*groups)), told
            )
            return
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor, as_completed
        from concurrent.futures.process import BrokenProcessPool

        spawning = multiprocessing.get_context("spawn")
        devices = spawning.Queue()
        for device in self.devices:
            devices.put(device)
        pool = ProcessPoolExecutor(
            len(self.devices), spawning, initializer=_set_up, initargs=(context, devices)
        )
        try:
            for done in as_completed([pool.submit(_work_off, group) for group in groups]):
                for trial, record, before in done.result():
                    told(trial, record, before)
        except BrokenProcessPool as error:
            raise LayerscoutError(
                "a process of the study died, perhaps for want of memory; the same command goes on"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


_context: TrialContext | None = None


def _set_up(context: TrialContext, devices: Any) -> None:
    global _context
    _context = replace(context, device=devices.get())


def _work_off(group: Sequence[Trial]) -> list[tuple[Trial, Mapping[str, Any], bool]]:
    assert _context is not None, "_set_up has run"
    return _on_machine(_context, group)


def work_through(context: TrialContext, trials: Sequence[Trial], told: Told) -> None:
    """Run trials one after another; those that another process has taken are looked at again."""
    waiting = list(trials)
    while waiting:
        taken = []
        for trial in waiting:
            record = context.store.finished(trial)
            if record is not None:
                told(trial, record, True)
                continue
            with context.store.lock(trial.key) as ours:
                if not ours:
                    taken.append(trial)
                    continue
                record = context.store.finished(trial)  # another process may just have been through
                told(trial, record or run_trial(trial, context), record is not None)
        if len(taken) == len(waiting):
            time.sleep(PATIENCE)
        waiting = taken


@dataclass(frozen=True)
class Ray:
    """Trials on the machines of a Ray cluster, which share the folder of the study.

    Trials of a group are one piece of work; where its machine dies, another one goes on with it.

    Attributes:
        address: of a cluster; see `layerscout.runtime.ray.join_cluster`.
        cpus: cores, and threads, of a trial; see `layerscout.runtime.ray.run_on_cluster`.
        gpus: accelerators of a trial, such as 0.5; None for one where there are any.
        device: "auto", "cpu" or "cuda".
    """

    address: str | None = None
    cpus: int | None = None
    gpus: float | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        check_resources(self.cpus, self.gpus, self.device)

    def ready(self) -> AbstractContextManager[Any]:
        """Join the cluster; see `Backend`."""
        return join_cluster(self.address)

    def run(self, context: TrialContext, groups: Sequence[Sequence[Trial]], told: Told) -> None:
        """Run all trials; see `Backend`."""
        with self.ready() as ray:
            gpus = choose_gpus(ray, self.gpus, self.device)
            elsewhere = replace(
                context,
                store=Store(context.store.folder.absolute()),
                device=self.device if gpus or self.device == "cuda" else "cpu",
            )
            work = partial(_on_machine, elsewhere)
            with closing(run_on_cluster(ray, work, groups, cpus=self.cpus, gpus=gpus)) as parts:
                for ended in parts:
                    for one in ended:
                        told(*one)


def _on_machine(
    context: TrialContext, group: Sequence[Trial]
) -> list[tuple[Trial, Mapping[str, Any], bool]]:
    ended: list[tuple[Trial, Mapping[str, Any], bool]] = []
    work_through(context, group, lambda *one: ended.append(one))
    return ended
