"""Speed: FLOPs a second, as this machine trains or as it has trained."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter

import torch

from layerscout.plans import ModelShape, block_flops
from layerscout.studies.store import Store
from layerscout.studies.trial import Trial

# A step is timed for so many seconds.
_SECONDS = 1.0


def measure_speed(shape: ModelShape, tokens: float, device: str = "cpu") -> float:
    """Time training steps of a block of this size, in FLOPs a second.

    Args:
        shape: of the model.
        tokens: mean length of a text.
        device: as torch knows it.
    """
    batch, length = 32, max(2, round(tokens))
    layer = torch.nn.TransformerEncoderLayer(
        shape.hidden_size,
        max(1, shape.hidden_size // 64),
        shape.feed_forward,
        batch_first=True,
        device=device,
    )
    states = torch.randn(batch, length, shape.hidden_size, device=device, requires_grad=True)
    weights = torch.randn_like(states)  # the plain sum of normed states has no gradient at all

    def step() -> None:
        (layer(states) * weights).sum().backward()
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)

    step()
    started, steps = perf_counter(), 0
    while steps < 3 or perf_counter() - started < _SECONDS:
        step()
        steps += 1
    return 3 * batch * steps * block_flops(shape, length) / (perf_counter() - started)


def read_speed(store: Store, trials: Iterable[tuple[Trial, float]]) -> float | None:
    """Give the FLOPs a second of the trials of tune that have a record; None where none has.

    Args:
        store: of the records.
        trials: with the FLOPs of each.
    """
    flops = seconds = 0.0
    for trial, counted in trials:
        record = store.read(trial.key) if trial.verb == "tune" else None
        if record is not None and record["status"] == "done":
            flops += counted
            seconds += record["seconds"]
    return flops / seconds if seconds > 1 else None
