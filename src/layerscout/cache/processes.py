"""The processes that `accelerate launch` started, or this one alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from layerscout.runtime import InputError


@dataclass(frozen=True)
class Team:
    """Processes that run a trunk together and share a file system; by default a single one.

    Attributes:
        own: the number of this process, from 0.
        size: how many there are.
        meet: sends a value and returns those of all processes, in their order; waits for all.
    """

    own: int = 0
    size: int = 1
    meet: Callable[[Any], list[Any]] = lambda said: [said]


def make_accelerator() -> Any:
    """Make an accelerator that leaves placement and precision to the encoder.

    Raises:
        InputError: if mixed precision was set elsewhere.
    """
    from accelerate import Accelerator, InitProcessGroupKwargs

    # The other processes wait while the first one scans; the default timeout is 10 minutes.
    patient = InitProcessGroupKwargs(timeout=timedelta(days=7))
    try:
        accelerator = Accelerator(
            device_placement=False, mixed_precision="no", kwargs_handlers=[patient]
        )
    except ValueError as error:
        raise InputError(
            "another Accelerator in this process uses mixed precision; tune in a separate process, "
            'with precision="bfloat16" if you want that'
        ) from error
    accelerator.gradient_accumulation_steps = 1  # `accelerate launch` may set it
    return accelerator


def join_team() -> Team:
    """Return the processes that `accelerate launch` started."""
    from accelerate.utils import gather_object

    accelerator = make_accelerator()
    return Team(
        accelerator.process_index, accelerator.num_processes, lambda said: gather_object([said])
    )


def is_first_process() -> bool:
    """Return whether this is the only process, or the first of several."""
    return bool(make_accelerator().is_main_process)
