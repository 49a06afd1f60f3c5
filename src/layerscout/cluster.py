"""A Ray cluster: joining one, and running work again when a machine dies."""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from layerscout.errors import InputError, LayerscoutError, first_line
from layerscout.progress import announce_waiting

Item = TypeVar("Item")
Result = TypeVar("Result")

# How often a task is given to another machine after the machines that had it died.
RETRIES = 5

# Default cores of a task; small batches gain little from more.
CORES = 4

# Tasks that are sent for each one that the machines have room for; what waits is held in memory.
AHEAD = 4

# The smallest share of an accelerator that Ray can assign.
LEAST_SHARE = 0.0001

# Seconds that a cluster may take to answer.
PATIENCE = 10.0


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster, and what each task on it takes.

    Attributes:
        address: HOST:PORT or ray://HOST:PORT of a cluster, or "auto" for the one that runs on this
            machine; None for the value of the variable RAY_ADDRESS, or else a new one here.
        cpus: cores and threads of a task; None for `CORES`, or all cores of smaller machines.
        gpus: accelerators of a task, such as 0.5; None for one where there are any.
        device: "auto", "cpu" or "cuda".

    Raises:
        InputError: if a task cannot take these.
    """

    address: str | None = None
    cpus: int | None = None
    gpus: float | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        cpus, gpus, device = self.cpus, self.gpus, self.device
        if device not in ("auto", "cpu", "cuda"):
            raise InputError(
                f"on a cluster `device` must be auto, cpu or cuda, got {device}; the cluster "
                "assigns accelerators to processes"
            )
        if device == "cpu" and gpus:
            raise InputError(f"work on the cpu takes no GPUs, got {gpus:g}; leave one out")
        if gpus and not (LEAST_SHARE <= gpus <= 1 or gpus == gpus // 1 > 1):
            raise InputError(
                f"`gpus` must be 0, a share of at least {LEAST_SHARE:f} or a whole number, got "
                f"{gpus:g}"
            )
        if cpus is not None and cpus < 1:
            raise InputError(f"`cpus` must be 1 or more, got {cpus}")

    @contextmanager
    def join(self) -> Iterator[Any]:
        """Join the cluster, or start one on this machine; yield Ray, and leave it at the end.

        A process that has already joined a cluster uses that one and stays in it.

        Raises:
            InputError: if Ray is not installed, or no cluster answers.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray sends statistics by default
        try:
            import ray
        except ImportError as error:
            raise InputError(
                "a cluster needs Ray, which is not installed; pip install 'layerscout[ray]'"
            ) from error
        if ray.is_initialized():
            yield ray
            return
        address = self.address or os.environ.get("RAY_ADDRESS") or "local"
        if address not in ("auto", "local"):
            _check_answers(address)
        new: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
        # Something listens; if it is no cluster, Ray tries for minutes.
        waiting = announce_waiting(
            f"waiting for the Ray cluster at {address}; if there is none, stop this, and start one "
            "with ray start --head, or leave out --address and unset RAY_ADDRESS"
        )
        try:
            with waiting if address != "local" else nullcontext():
                ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **new)
        except Exception as error:  # Ray raises many types, depending on the cause
            place = "this machine" if address == "local" else address
            raise InputError(
                f"cannot join a Ray cluster at {place} ({first_line(error):.160}); start one with "
                "ray start --head, or leave --address out for one on this machine"
            ) from error
        try:
            yield ray
        finally:
            ray.shutdown()

    @contextmanager
    def spread(self) -> Iterator[tuple[Callable[..., Generator[Any]], str]]:
        """Join the cluster; yield what works on items there, in their order, and the device.

        Raises:
            InputError: as `join`.
        """
        with self.join() as ray:
            gpus = self.gpus_of_task(ray)
            device = "cpu" if gpus == 0 and self.device == "auto" else self.device
            yield partial(run_on_cluster, ray, cpus=self.cpus, gpus=gpus, in_order=True), device

    def gpus_of_task(self, ray: Any) -> float:
        """Return the accelerators of a task: by default one, or what the machines have of one."""
        if self.gpus is not None:
            return self.gpus
        return 0.0 if self.device == "cpu" else min(1.0, max(gpus for _, gpus in _machines(ray)))


def _check_answers(address: str) -> None:
    """Raise if nothing listens at an address; `ray.init` would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError, ValueError) as error:
        raise InputError(
            f"no Ray cluster answers at {address} ({error}); start one with ray start --head, "
            "which prints its HOST:PORT, or leave --address out for one on this machine"
        ) from error


def run_on_cluster(
    ray: Any,
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    cpus: int | None = None,
    gpus: float = 0,
    in_order: bool = False,
) -> Generator[Result]:
    """Run a task for each item on the machines of a cluster; yield the results.

    A task whose machine dies runs again on another one. No more items are taken than keep the
    machines busy, so that few are in memory at a time. Close the generator when no more results are
    needed (`contextlib.closing`): that cancels the other tasks.

    Args:
        ray: from `Cluster.join`.
        work: the task; it is pickled, like the items.
        items: what it is called with.
        cpus: see `Cluster`.
        gpus: accelerators of a task; a part of one is shared.
        in_order: yield results in the order of the items instead of as they are finished.

    Raises:
        LayerscoutError: if a task fails, or the cluster has no machine large enough.
    """
    cpus = _settle_cores(ray, cpus, gpus)
    remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(_run_task)
    here, shared = str(Path.cwd()), ray.put(work)
    free = ray.available_resources()
    busy = free.get("CPU", 0) < cpus or free.get("GPU", 0) < gpus
    waiting: deque[Any] = deque()
    rest = iter(items)

    def send() -> None:
        room = AHEAD * _count_places(ray, cpus, gpus) - len(waiting)
        for item in islice(rest, max(room, 0)):
            waiting.append(remote.remote(shared, item, here, cpus))

    try:
        send()
        if busy and waiting:
            with announce_waiting(
                "the cores or GPUs of the Ray cluster were all in use, so its first result may "
                "have to wait until other work is done; ray status shows what runs"
            ):
                ray.wait(list(waiting))
        while waiting:
            if not in_order:
                [ready], _ = ray.wait(list(waiting))
                waiting.remove(ready)
                waiting.appendleft(ready)
                del ready
            # The cluster keeps a result in memory as long as anything here refers to it: without
            # the last reference, the sums of a scan are freed as they are merged.
            yield _fetch_result(ray, waiting.popleft())
            send()
    finally:
        if ray.is_initialized():  # or cancelling would start a cluster
            for task in waiting:
                with suppress(Exception):
                    ray.cancel(task, force=True)


def _fetch_result(ray: Any, task: Any) -> Any:
    """Return what a task returned, or raise what it raised."""
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ray.exceptions.RayError):
            raise LayerscoutError(
                f"the cluster cannot do the work ({first_line(error.cause):.160}); its machines "
                "need the same version of layerscout"
            ) from error
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise LayerscoutError(
            f"processes of the cluster died {RETRIES + 1} times with the same work, perhaps for "
            "lack of memory; run the same command to continue"
        ) from error


def _machines(ray: Any) -> list[tuple[int, float]]:
    """Return the cores and accelerators of each machine of a cluster."""
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [(int(resources.get("CPU", 0)), float(resources.get("GPU", 0))) for resources in alive]


def _count_places(ray: Any, cpus: int, gpus: float) -> int:
    """Return how many tasks the machines of a cluster have room for; a new one counts at once."""
    room = [min(cores // cpus, int(has / gpus) if gpus else cores) for cores, has in _machines(ray)]
    return max(1, sum(room))


def _settle_cores(ray: Any, cpus: int | None, gpus: float) -> int:
    """Return the cores of a task; raise if no machine has them: Ray would wait forever."""
    machines = _machines(ray)
    if cpus is None:
        cpus = min(CORES, max([cores for cores, has in machines if has >= gpus] or [1]))
    if not any(cpus <= cores and gpus <= has for cores, has in machines):
        sizes = ", one with ".join(f"{cores} cores and {has:g} GPUs" for cores, has in machines)
        raise InputError(
            f"no machine of the cluster has the {cpus} cores and {gpus:g} GPUs of a task; there is "
            f"one with {sizes}"
        )
    return cpus


def _run_task(work: Callable[[Item], Result], item: Item, folder: str, cpus: int) -> Result:
    """Do the work on a machine of the cluster, in the folder of the process that requested it."""
    import torch

    with suppress(OSError):
        os.chdir(folder)
    torch.set_num_threads(cpus)
    return work(item)
