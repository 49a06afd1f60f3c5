"""Where the trials of a study run: in processes of this machine, or on a cluster."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from layerscout.runtime import Cluster, LayerscoutError, run_on_cluster
from layerscout.studies.context import TrialContext
from layerscout.studies.runners import run_trial
from layerscout.studies.store import Store
from layerscout.studies.trial import Trial

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
    """Trials on this machine, in one process for each device.

    Attributes:
        devices: as for `Encoder.load`.
    """

    devices: tuple[str, ...] = ("auto",)

    def ready(self) -> AbstractContextManager[Any]:
        """Prepare for a study; see `Backend`."""
        return nullcontext()

    def run(
        self, context: TrialContext, groups: Sequence[Sequence[Trial]], on_trial: OnTrial
    ) -> None:
        """Run all trials; see `Backend`."""
        if len(self.devices) == 1:
            context = replace(context, device=self.devices[0])
            run_all(context, list(itertools.chain(*groups)), on_trial)
            return
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor, as_completed
        from concurrent.futures.process import BrokenProcessPool

        spawning = multiprocessing.get_context("spawn")
        devices = spawning.Queue()
        for device in self.devices:
            devices.put(device)
        pool = ProcessPoolExecutor(
            len(self.devices), spawning, initializer=_take_device, initargs=(context, devices)
        )
        try:
            for done in as_completed([pool.submit(_run_group_here, group) for group in groups]):
                for trial, record, before in done.result():
                    on_trial(trial, record, before)
        except BrokenProcessPool as error:
            raise LayerscoutError(
                "a process of the study died, perhaps for lack of memory; run the same command "
                "to continue"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


# What a process of `Local` works with; the initialiser of a pool cannot return anything.
_context: TrialContext | None = None


def _take_device(context: TrialContext, devices: Any) -> None:
    global _context
    _context = replace(context, device=devices.get())


def _run_group_here(group: Sequence[Trial]) -> list[Ended]:
    assert _context is not None, "_take_device has run"
    return _run_group(_context, group)


def run_all(context: TrialContext, trials: Sequence[Trial], on_trial: OnTrial) -> None:
    """Run trials in turn; come back to those that another process is running."""
    waiting = list(trials)
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
        if len(taken) == len(waiting):
            time.sleep(PATIENCE)
        waiting = taken


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
    run_all(context, group, lambda *one: ended.append(one))
    return ended
