"""What a tuning takes of the machine: memory expected and used, and the speed of the model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Literal

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


# What a tuning does, in this order: all states of all rows, heads solved on them, states at the
# cut, steps and the validations between them, judging what is kept, writing it.
Phase = Literal["states", "solve", "trunk", "train", "judge", "save"]
PHASES: tuple[Phase, ...] = ("states", "solve", "trunk", "train", "judge", "save")


@dataclass(frozen=True)
class Deadline:
    """Until when the steps of a training may go on, if that is limited, in seconds.

    Attributes:
        begun: what `perf_counter` said when the training began.
        end: what it says when all should be done.
        share: of the time that is left for trainings, what this one may take.
        steps: expected until its last step.
        last: expected from then until its end.
        after: expected from the end of all trainings.
        slower: how many times slower than expected this machine was before.
    """

    begun: float = 0.0
    end: float = inf
    share: float = 1.0
    steps: float = 0.0
    last: float = 0.0
    after: float = 1.0
    slower: float = 1.0

    def is_over(self, done: float) -> bool:
        """Return whether no time is left for more than what follows the steps.

        That takes as long as expected, or longer as the steps do, of which a share is done. (A
        limit of time is for a single process.)
        """
        taken, follows = perf_counter() - self.begun, self.last + self.after
        # Counted as if what follows had gone at the speed before, so that few steps tell little.
        pace = (taken + self.slower * follows) / (done * self.steps + follows)
        slower = max(self.slower, pace)
        trained = self.end - slower * self.after - self.begun
        return taken > self.share * trained - slower * self.last


@dataclass(frozen=True)
class Watch:
    """Measures the phases of a tuning.

    Attributes:
        started: what `perf_counter` said when the tuning was asked for.
        limit: seconds from then on that all may take.
        seconds: by phase; also those until the work began ("load"), and of timing parts of it.
    """

    started: float
    limit: float = inf
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def elapsed(self) -> float:
        """Seconds since the tuning was asked for."""
        return perf_counter() - self.started

    @contextmanager
    def measure(self, phase: Phase | Literal["timing"]) -> Iterator[None]:
        """Add what the block takes to a phase, but for what phases within it take."""
        started, before = perf_counter(), sum(self.seconds.values())
        try:
            yield
        finally:
            within = sum(self.seconds.values()) - before
            spent = perf_counter() - started - within
            self.seconds[phase] = self.seconds.get(phase, 0.0) + spent


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


def measure_memory(device: torch.device, *, before: int | None = None) -> int | None:
    """Measure the bytes in use now, or the most at once if those of before are given.

    On CUDA those of tensors, the most since those of before were measured; on a CPU the resident
    size of the whole process, libraries and mapped files included, the most since it began. None
    if not known.
    """
    if device.type == "cuda":
        if before is not None:
            return int(torch.cuda.max_memory_allocated(device))
        torch.cuda.reset_peak_memory_stats(device)
        return int(torch.cuda.memory_allocated(device))
    status = Path("/proc/self/status")  # of Linux; Python's own `resource` knows no present size
    if device.type != "cpu" or not status.is_file():
        return None
    name = "VmRSS:" if before is None else "VmHWM:"
    lines = map(str.split, status.read_text(encoding="utf-8").splitlines())
    line = next((line for line in lines if line[:1] == [name]), None)
    # Linux adds up what its cores count only now and then: a peak was 28 pages below what was
    # in use before.
    return None if line is None else max(before or 0, 1024 * int(line[1]))


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
    most_seconds = _limit_measuring(trained)
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
        count = _count_measured(len(examples), most_seconds, once)
        repeats = [run(count)]
        spent = sum(repeats[0].values())
        while len(repeats) < SPEED_REPEATS and spent < most_seconds:
            repeats.append(run(count))
            spent += sum(repeats[-1].values())
    return {name: count / median(seconds[name] for seconds in repeats) for name in repeats[0]}


def measures_speed(measure: str, solved: bool) -> bool:
    """Return whether the speed of a model is measured.

    A head is solved in less time than that takes; how much it saves stands in its FLOPs.
    """
    return measure in ("speed", "predictions") or (measure == "all" and not solved)


def expect_measuring(each: float, examples: int, trained: float) -> float:
    """Predict the seconds that measuring the speed takes.

    Args:
        each: seconds of an example, in all models that are measured.
        examples: of the validation split.
        trained: seconds that the training took.
    """
    most_seconds = _limit_measuring(trained)
    repeat = each * _count_measured(examples, most_seconds, each)
    return each * WARMUP_EXAMPLES + repeat * min(SPEED_REPEATS, ceil(most_seconds / repeat))


def _limit_measuring(trained: float) -> float:
    """Return the seconds that measuring the speed may take after so many of training."""
    return min(MOST_SECONDS, max(LEAST_SECONDS, SPEED_SHARE * trained))


def _count_measured(examples: int, most_seconds: float, each: float) -> int:
    """Return how many of the examples are measured, where each takes so many seconds."""
    afford = int(most_seconds / SPEED_REPEATS / each)
    return min(examples, MOST_EXAMPLES, max(LEAST_EXAMPLES, afford))


def _time_passes(encoder: Encoder, model: Any, batches: Sequence[Mapping[str, Any]]) -> float:
    """Run a model on batches and return the seconds that this took."""
    started = perf_counter()
    for inputs in batches:
        with encoder.autocast():  # which keeps some casts of weights while it lasts
            model(**inputs)
    if encoder.device.type == "cuda":
        torch.cuda.synchronize(encoder.device)
    return perf_counter() - started
