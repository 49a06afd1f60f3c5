"""Several states at once, each on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
Item = TypeVar("Item")


def map_at_once(compute: Callable[[Item], T], items: Sequence[Item]) -> Iterator[T]:
    """Yield what is computed of each item, in order, on as many threads as torch uses.

    The products of a single state are too small for several threads; several states are not. On two
    cores the threads of NumPy's and of SciPy's linear algebra even kept each other waiting: solving
    a head on 1,000 examples of 768 features took twice the processor's time that one thread does.
    """
    import torch
    from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    own: Any = {"initializer": torch.set_num_threads, "initargs": (1,)}  # of each thread
    try:
        with threadpool_limits(1), ThreadPoolExecutor(min(threads, len(items)), **own) as pool:
            yield from pool.map(compute, items)
    finally:
        torch.set_num_threads(threads)  # what threads that start later will have, too
