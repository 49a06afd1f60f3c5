"""What the sections of the benchmarks of the scores read, and how often they repeat."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

import layerscout as ls
from layerscout.data import Split
from layerscout.models import Encoder, Tokens
from layerscout.scanning import Sample, score_states
from layerscout.scores.grouping import deal_groups
from layerscout.states import DEFAULT_LIMIT, States, pool_states
from measuring import drawn, synchronize

SMALL, DEEP = "all-MiniLM-L6-v2", "stacked-minilm-12"


@dataclass(frozen=True, eq=False)
class Texts:
    """What an encoder reads, in the batches of a scan."""

    encoder: Encoder
    split: Split

    @cached_property
    def tokens(self) -> Tokens:
        return self.encoder.tokenize(self.split.texts)

    @cached_property
    def batches(self) -> list[dict[str, torch.Tensor]]:
        return [self.encoder.batch(self.tokens, rows) for rows in self.encoder.batches(self.tokens)]

    def forward(self) -> None:
        """Run the bare model."""
        with torch.inference_mode():
            for inputs in self.batches:
                self.encoder.model(**inputs)

    @cached_property
    def states(self) -> States:
        return pool_states(self.encoder, self.tokens, limit=DEFAULT_LIMIT).states["mean"]

    @cached_property
    def sample(self) -> Sample:
        labels = self.split.labels
        return Sample(labels, deal_groups(labels, 0), 0, None, first=0)

    def scores(self, keys: Sequence[str]) -> dict[str, ls.scores.Score]:
        return score_states(self.states, self.sample, keys)[0]


@dataclass(frozen=True, eq=False)
class Bench:
    """What the sections read, and how often.

    Attributes:
        device: that models run on.
        examples: that scores of states are computed from.
        few: what the peer and the published procedure read.
        many: rows of the data that `--examples auto` may draw from; None for all.
        held_out: what Fisher information is computed from.
    """

    shared: Path
    random: Path
    device: str
    examples: int
    few: int
    many: int | None
    held_out: int
    repeats: int
    ranker: Path | None
    all_rows: bool

    @cached_property
    def task(self) -> ls.Task:
        task = ls.Task.load(self.shared / "data" / "sst2")
        if self.many is None:
            return task
        return replace(task, train=task.train.take(np.arange(self.many)))

    def model(self, name: str) -> Path:
        return self.shared / "models" / name

    @cached_property
    def texts(self) -> Texts:
        """What most sections read: many examples, by random weights."""
        return Texts(Encoder.load(self.random, device=self.device), drawn(self.task, self.examples))


def middle(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} s"


def clocked(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - started
