"""Trackers that runs report to, through accelerate."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layerscout.runtime import InputError, LayerscoutError, make_unknown_error

# The trackers, and the option of each that names a run.
TRACKERS: Mapping[str, str | None] = {
    "tensorboard": None,
    "mlflow": "run_name",
    "wandb": "name",
    "trackio": "name",
}

Log = Callable[[Mapping[str, float], int], None]


def check_tracker(name: str) -> None:
    """Show that a tracker can be used here.

    Raises:
        InputError: if there is no such tracker, or it is not installed.
    """
    if name not in TRACKERS:
        raise make_unknown_error("tracker", str(name), TRACKERS)
    from accelerate.tracking import get_available_trackers

    if name not in {str(kind.value) for kind in get_available_trackers()}:
        raise InputError(f"the tracker {name} is not installed; run: pip install {name}")


@contextmanager
def tracking(name: str | None, folder: Path, run: str, config: Mapping[str, Any]) -> Iterator[Log]:
    """Give what logs values at a step to a run of a tracker, which begins with the first of them.

    Args:
        name: a key of `TRACKERS`; None for no tracker.
        folder: where those that write files write them.
        run: what the run is called.
        config: what is told of the run, by name.
    """
    if name is None:
        yield lambda values, step: None
        return
    from accelerate import Accelerator

    option = TRACKERS[name]
    # TensorBoard names runs by their folders.
    own = folder if option else folder / re.sub(r"[^\w.=+-]+", "_", run)
    opened: list[Any] = []  # a run that was finished before has nothing to log

    def log(values: Mapping[str, float], step: int) -> None:
        if not opened:
            own.mkdir(parents=True, exist_ok=True)
            options: dict[str, Any] = {"log_with": name, "project_dir": str(own)}
            accelerator = Accelerator(device_placement=False, mixed_precision="no", **options)
            plain = {k: v for k, v in config.items() if isinstance(v, bool | int | float | str)}
            try:
                own_options = {name: {option: run}} if option else {}
                accelerator.init_trackers("layerscout", plain, own_options)
            except Exception as error:  # of whatever kind the tracker's own are
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise LayerscoutError(
                    f"the tracker {name} cannot start a run: {reason}; check its settings and "
                    "continue with --resume, or leave out --track"
                ) from error
            opened.append(accelerator)
        opened[0].log(dict(values), step=step)

    try:
        yield log
    finally:
        for accelerator in opened:
            for tracker in accelerator.trackers:
                tracker.finish()
