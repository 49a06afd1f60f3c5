"""What a tuning takes of the machine: memory expected and used, and the speed of the model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from layerscout.models import Encoder, describe_step
from layerscout.plans import peak_memory
from layerscout.states import make_accelerator, make_batch, make_batches
from layerscout.tuning.resolve import Tuning

# On how many validation examples, and how often at the most, the speed of the tuned and the full
# model is measured; and about how long that may take: a tenth of the training, within limits. On
# two cores a base model runs through 128 examples eight times in two minutes, and a head on cached
# means is trained in less than a second.
LEAST_EXAMPLES, MOST_EXAMPLES, SPEED_REPEATS = 8, 128, 3
SPEED_SHARE, LEAST_SECONDS, MOST_SECONDS = 0.1, 0.5, 5.0
WARMUP_EXAMPLES = 2


def expect_memory(tuning: Tuning) -> int:
    """Predict the bytes that training the plans takes at the most, on each of several processes."""
    encoder, training, validation = tuning.encoder, tuning.training, tuning.validation
    examples = min(tuning.settings.batch_size, len(training))
    texts = -(-examples // make_accelerator().num_processes) * training.answers.choices
    longest = int(validation.tokens.lengths.max())
    predicted = []
    for rated in tuning.plans:
        step = describe_step(
            encoder,
            texts=texts,
            tokens=int(training.tokens.lengths.max()),
            scored=min(encoder.token_budget, longest * len(validation.tokens)),
            copies=1 + (len(rated.rates) > 1) + (len(tuning.request.seed) > 1),
        )
        predicted.append(peak_memory(rated.choice.plan, tuning.shape, step, tuning.method))
    return max(predicted)


def warn_of_memory(device: torch.device, predicted: int) -> list[str]:
    """Warn if a device has fewer bytes of memory than are expected to be needed."""
    there = _measure_device(device)
    if there is None or predicted <= there:
        return []
    return [
        f"training is expected to take {predicted / 1e9:.3g} GB of memory, and "
        f"{device.type} has {there / 1e9:.3g} GB; lower --batch-size or --max-length, or "
        "tune fewer blocks"
    ]


def measure_memory(device: torch.device, *, peak: bool = False) -> int | None:
    """Measure the bytes in use: now, or the most that there were at once; None if not known.

    On CUDA those of tensors, the most since those of the time before were last measured; on a CPU
    the resident size of the whole process, libraries and mapped files included, the most since it
    began.
    """
    if device.type == "cuda":
        if peak:
            return int(torch.cuda.max_memory_allocated(device))
        torch.cuda.reset_peak_memory_stats(device)
        return int(torch.cuda.memory_allocated(device))
    status = Path("/proc/self/status")  # of Linux; Python's own `resource` knows no present size
    if device.type != "cpu" or not status.is_file():
        return None
    name = "VmHWM:" if peak else "VmRSS:"
    lines = map(str.split, status.read_text(encoding="utf-8").splitlines())
    line = next((line for line in lines if line[:1] == [name]), None)
    return None if line is None else 1024 * int(line[1])


def _measure_device(device: torch.device) -> int | None:
    """Return the bytes of memory that the device has; None where that is not known."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    if device.type != "cpu" or "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return None
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container
    if limit.is_file() and (text := limit.read_text(encoding="utf-8").strip()).isdigit():
        there = min(there, int(text))
    return there if there > 0 else None


def measure_speeds(
    tuning: Tuning, model: Any, full: Any | None, trained: float
) -> dict[str, float]:
    """Measure how many examples the kept model takes in a second, in turns with the full one.

    Args:
        tuning: what is read.
        model: the kept one.
        full: the encoder's model, whose head would add next to nothing; None to measure no other.
        trained: seconds that its training took.
    """
    most_seconds = min(MOST_SECONDS, max(LEAST_SECONDS, SPEED_SHARE * trained))
    examples, encoder = tuning.validation, tuning.encoder

    def run(count: int) -> dict[str, float]:
        rows = np.linspace(0, len(examples) - 1, count).astype(np.int64)
        batches = make_batches(encoder, examples, rows)
        shaped = [make_batch(encoder, examples, part) for part in batches]
        seconds = {"kept_model": _time_passes(encoder, model, shaped)}
        if full is not None:
            flat = [{name: t.reshape(-1, t.shape[-1]) for name, t in b.items()} for b in shaped]
            seconds["full_model"] = _time_passes(encoder, full, flat)
        return seconds

    with torch.inference_mode():
        # What runs first is slower: it does not count, and says for how many there is time.
        first = min(WARMUP_EXAMPLES, len(examples))
        once = sum(run(first).values()) / first
        afford = int(most_seconds / SPEED_REPEATS / once)
        count = min(len(examples), MOST_EXAMPLES, max(LEAST_EXAMPLES, afford))
        repeats = [run(count)]
        spent = sum(repeats[0].values())
        while len(repeats) < SPEED_REPEATS and spent < most_seconds:
            repeats.append(run(count))
            spent += sum(repeats[-1].values())
    return {name: count / median(seconds[name] for seconds in repeats) for name in repeats[0]}


def _time_passes(encoder: Encoder, model: Any, batches: Sequence[Mapping[str, Any]]) -> float:
    """Run a model on batches and return the seconds that this took."""
    started = perf_counter()
    for inputs in batches:
        with encoder.autocast():  # which keeps some casts of weights while it lasts
            model(**inputs)
    if encoder.device.type == "cuda":
        torch.cuda.synchronize(encoder.device)
    return perf_counter() - started
