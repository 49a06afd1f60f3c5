"""How many threads compute, and how they wait for each other."""

from __future__ import annotations

import os

# What linear algebra reads when it is loaded, as SciPy's and scikit-learn's is late.
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def wait_passively() -> None:
    """Let threads sleep while they wait for each other; call it before NumPy is imported.

    By default OpenMP's threads spin, and two processes with as many threads as there are cores keep
    each other from the work: on two cores, two runs at once took 108 s where one took 31 s, and
    44 s with this; one run alone took as long as before. Those of NumPy's linear algebra spin for
    20 ms after every product, in the way of SciPy's, which have a pool of their own: a head solved
    from kept states took 38 s of the processor in place of 11 s. What is set in the environment
    counts.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # the least, as a power of 2 of ticks
    if "GOMP_SPINCOUNT" not in os.environ:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def limit_threads(threads: int) -> None:
    """Compute with so many threads, in PyTorch and in linear algebra, whenever that is loaded."""
    import torch
    from threadpoolctl import threadpool_limits

    os.environ.update(dict.fromkeys(VARIABLES, str(threads)))
    torch.set_num_threads(threads)
    threadpool_limits(threads)
