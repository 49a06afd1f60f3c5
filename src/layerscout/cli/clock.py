"""When the program was started, from which `--time` and what a verb took count."""

from time import perf_counter, process_time

_began: list[float] = []


def begin() -> None:
    """Remember when the program was started: the interpreter was at work before this call."""
    _began[:] = [perf_counter() - process_time()]


def read_begin() -> float:
    """Return what `perf_counter` said then; what it says now where no program was started."""
    return _began[0] if _began else perf_counter()
