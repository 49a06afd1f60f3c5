"""How fast a tuned model is beside the full one."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from layerscout.cache import make_batch, make_batches
from layerscout.tuning.setup import TuneSetup

# On how many validation examples, and how often, the speed of the tuned and the full model is
# measured.
SPEED_EXAMPLES, SPEED_REPEATS = 128, 3


def measure_speeds(setup: TuneSetup, model: Any) -> dict[str, float]:
    """Measure how many examples the kept model and the encoder take in a second, in turns.

    The encoder stands for the full model, whose head adds next to nothing.
    """
    encoder, examples = setup.encoder, setup.validation.without_trunk()
    rows = np.linspace(0, len(examples) - 1, min(SPEED_EXAMPLES, len(examples))).astype(np.int64)
    shaped = [make_batch(encoder, examples, some) for some in make_batches(encoder, examples, rows)]
    flat = [{name: t.reshape(-1, t.shape[-1]) for name, t in one.items()} for one in shaped]
    models = {"kept_model": (model, shaped), "full_model": (encoder.model, flat)}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    with torch.inference_mode():
        for _ in range(1 + SPEED_REPEATS):
            for name, (one, inputs) in models.items():
                started = perf_counter()
                for given in inputs:
                    with encoder.autocast():  # which keeps some casts of weights while it lasts
                        one(**given)
                if encoder.device.type == "cuda":
                    torch.cuda.synchronize(encoder.device)
                seconds[name].append(perf_counter() - started)
    return {name: len(rows) / median(found[1:]) for name, found in seconds.items()}
