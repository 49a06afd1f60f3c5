"""How fast a tuned model is beside the full one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from layerscout.cache import make_batch, make_batches
from layerscout.models import Encoder
from layerscout.tuning.setup import TuneSetup

# On how many validation examples, and how often at the most, the speed of the tuned and the full
# model is measured; and about how long that may take: a tenth of the training, within limits. On
# two cores a base model runs through 128 examples eight times in two minutes, and a head on cached
# means is trained in less than a second.
LEAST_EXAMPLES, MOST_EXAMPLES, SPEED_REPEATS = 8, 128, 3
SPEED_SHARE, LEAST_SECONDS, MOST_SECONDS = 0.1, 0.5, 5.0
WARMUP_EXAMPLES = 2


def measure_speeds(
    setup: TuneSetup, model: Any, full: Any | None, trained: float
) -> dict[str, float]:
    """Measure how many examples the kept model takes in a second, in turns with the full one.

    Args:
        setup: what is read.
        model: the kept one.
        full: the encoder's model, whose head would add next to nothing; None to measure no other.
        trained: seconds that its training took.
    """
    most_seconds = min(MOST_SECONDS, max(LEAST_SECONDS, SPEED_SHARE * trained))
    examples = setup.validation.without_trunk()

    def run(count: int) -> dict[str, float]:
        rows = np.linspace(0, len(examples) - 1, count).astype(np.int64)
        batches = make_batches(setup.encoder, examples, rows)
        shaped = [make_batch(setup.encoder, examples, some) for some in batches]
        seconds = {"kept_model": _time_passes(setup.encoder, model, shaped)}
        if full is not None:
            flat = [{name: t.reshape(-1, t.shape[-1]) for name, t in one.items()} for one in shaped]
            seconds["full_model"] = _time_passes(setup.encoder, full, flat)
        return seconds

    with torch.inference_mode():
        # What runs first is slower: it does not count, and says for how many there is time.
        first = min(WARMUP_EXAMPLES, len(examples))
        once = sum(run(first).values()) / first
        afford = int(most_seconds / SPEED_REPEATS / once)
        count = min(len(examples), MOST_EXAMPLES, max(LEAST_EXAMPLES, afford))
        found = [run(count)]
        while len(found) < SPEED_REPEATS and _add_up(found) < most_seconds:
            found.append(run(count))
    return {name: count / median(seconds[name] for seconds in found) for name in found[0]}


def _add_up(found: Sequence[Mapping[str, float]]) -> float:
    return sum(sum(seconds.values()) for seconds in found)


def _time_passes(encoder: Encoder, model: Any, batches: Sequence[Mapping[str, Any]]) -> float:
    """Run a model on batches and give the seconds that this took."""
    started = perf_counter()
    for inputs in batches:
        with encoder.autocast():  # which keeps some casts of weights while it lasts
            model(**inputs)
    if encoder.device.type == "cuda":
        torch.cuda.synchronize(encoder.device)
    return perf_counter() - started
