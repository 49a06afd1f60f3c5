"""A Ray cluster: joining one, and work that is done again when a machine dies."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from layerscout.runtime.errors import InputError, LayerscoutError, first_line

Item = TypeVar("Item")
Result = TypeVar("Result")

# How often a piece of work is given to another machine after those that had it died.
RETRIES = 5

# Cores of a piece of work unless told otherwise; small batches gain little from more.
CORES = 4

# The least share of an accelerator that Ray can give.
LEAST_SHARE = 0.0001

# How long a cluster may take to answer, in seconds.
PATIENCE = 10.0


@contextmanager
def join_cluster(address: str | None = None) -> Iterator[Any]:
    """Join a cluster, or start one on this machine, and leave it at the end.

    In a process that has joined one already, that one is taken and stays.

    Args:
        address: HOST:PORT or ray://HOST:PORT of a cluster, or "auto" for the one that runs on this
            machine; None for what the variable RAY_ADDRESS says, or else a new one here.

    Raises:
        InputError: if Ray is not installed, or no cluster answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody asked to send any
    try:
        import ray
    except ImportError as error:
        raise InputError(
            "a cluster needs Ray, which is not installed; pip install 'layerscout[ray]'"
        ) from error
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address is not None and address not in ("auto", "local"):
        _check_answers(address)
    new: dict[str, Any] = {"include_dashboard": False} if address in (None, "local") else {}
    try:
        ray.init(
            address=address or "local", logging_level=logging.ERROR, log_to_driver=False, **new
        )
    except Exception as error:  # of many kinds, depending on what is amiss
        raise InputError(
            f"no Ray cluster at {address or 'this machine'} could be joined "
            f"({first_line(error):.160}); start "
            "one with ray start --head, or leave --address out for one on this machine"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def check_resources(cpus: int | None, gpus: float | None, device: str) -> None:
    """Show that a piece of work can take these; see `run_on_cluster` and `choose_gpus`.

    Raises:
        InputError: if it cannot.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(
            f"on a cluster `device` is auto, cpu or cuda, got {device}; the cluster says which "
            "accelerators a process gets"
        )
    if device == "cpu" and gpus:
        raise InputError(f"work on the cpu takes no GPUs, got {gpus:g}; leave one out")
    if gpus is not None and gpus != 0 and not (LEAST_SHARE <= gpus <= 1 or gpus == gpus // 1 > 1):
        raise InputError(
            f"`gpus` must be 0, a share of one from {LEAST_SHARE:f} on or a whole number, got "
            f"{gpus:g}"
        )
    if cpus is not None and cpus < 1:
        raise InputError(f"`cpus` must be 1 or more, got {cpus}")


def _check_answers(address: str) -> None:
    """Refuse an address where nothing listens, for which Ray would wait minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(
            f"--address is HOST:PORT, ray://HOST:PORT or auto, got {address}; ray start --head "
            "tells it"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"no Ray cluster answers at {address} ({error}); start one with ray start --head, or "
            "leave --address out for one on this machine"
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
    """Do a piece of work for each item on the machines of a cluster; give what comes of it.

    A piece whose machine dies is done again on another one. Close what is given when no more of it
    is wanted (`contextlib.closing`), which cancels the rest.

    Args:
        ray: as `join_cluster` gives it.
        work: what is done; it travels by pickle, as do the items.
        items: what it is done for.
        cpus: cores that a piece takes, and threads that it computes with; None for `CORES`, or
            all of a machine with fewer.
        gpus: accelerators that it takes; a part of one is shared.
        in_order: give the results in the order of the items, instead of as they come.

    Raises:
        LayerscoutError: if a piece fails, or the cluster has no such machine.
    """
    cpus = _room(ray, cpus, gpus)
    options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": RETRIES}
    remote = ray.remote(**options)(_piece)
    here, shared = str(Path.cwd()), ray.put(work)
    # What is held here stays in the memory of the cluster, so nothing is that was given.
    places = {remote.remote(shared, item, here, cpus): at for at, item in enumerate(items)}
    waiting, held, at = list(places), {}, 0
    try:
        while waiting:
            ready, waiting = ray.wait(waiting)
            while ready:
                one = ready.pop()
                place = places.pop(one)
                held[place if in_order else at] = one
                del one
                while at in held:
                    yield _result(ray, held.pop(at))
                    at += 1
    finally:
        if ray.is_initialized():  # or cancelling would start a cluster
            for one in waiting:
                with suppress(Exception):
                    ray.cancel(one, force=True)


def _result(ray: Any, one: Any) -> Any:
    """Give what a piece of work gave, or raise what it raised."""
    try:
        return ray.get(one)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ray.exceptions.RayError):
            raise LayerscoutError(
                f"the cluster cannot do the work ({first_line(error.cause):.160}); its machines "
                "need the same layerscout"
            ) from error
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise LayerscoutError(
            f"processes of the cluster died {RETRIES + 1} times with the same work, perhaps for "
            "want of memory; the same command goes on"
        ) from error


def choose_gpus(ray: Any, gpus: float | None, device: str) -> float:
    """Settle how many accelerators a piece of work gets: one, where there are any.

    Args:
        ray: as `join_cluster` gives it.
        gpus: what was asked for.
        device: "cpu" for none.
    """
    if gpus is not None:
        return gpus
    return 0.0 if device == "cpu" else min(1.0, max(cards for _, cards in _machines(ray)))


def _machines(ray: Any) -> list[tuple[int, float]]:
    """Give the cores and accelerators of each machine of a cluster."""
    found = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [(int(one.get("CPU", 0)), float(one.get("GPU", 0))) for one in found]


def _room(ray: Any, cpus: int | None, gpus: float) -> int:
    """Give the cores of a piece of work; refuse one that no machine has room for.

    It would wait for ever.
    """
    found = _machines(ray)
    if cpus is None:
        cpus = min(CORES, max([cores for cores, has in found if has >= gpus] or [1]))
    if not any(cpus <= cores and gpus <= has for cores, has in found):
        told = ", one with ".join(f"{cores} cores and {has:g} GPUs" for cores, has in found)
        raise InputError(
            f"no machine of the cluster has the {cpus} cores and {gpus:g} GPUs of a trial; there "
            f"is one with {told}"
        )
    return cpus


def _piece(work: Callable[[Item], Result], item: Item, folder: str, cpus: int) -> Result:
    """Do the work on a machine of the cluster, in the folder of the process that asked for it."""
    import torch

    with suppress(OSError):
        os.chdir(folder)
    torch.set_num_threads(cpus)
    return work(item)
