"""The training examples of a scan: which are drawn, and what one forward pass makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from time import perf_counter
from typing import Literal

import numpy as np
import torch

from layerscout.cache import PooledStates, States, fingerprint_encoder, pool_states
from layerscout.data import Split, Task, sample
from layerscout.models import Encoder, Pooling, Tokens
from layerscout.runtime import InputError, Show
from layerscout.scanning.scoring import Sample, estimate_states
from layerscout.scores import Debiased, Moments, class_weights, deal_groups, decide_best

# What "auto" reads where no score says when there are enough.
AUTO_EXAMPLES = 5000

# What "auto" reads first; then twice as many, and so on, until the best state is decided.
FIRST_LOOK = 500

# States this close to the best one are as good.
CLOSE = 0.02

# Examples whose pooled states are held until they enter the moments together.
CHUNK = 512


@dataclass(frozen=True, eq=False)
class Reader:
    """What reads texts: an encoder, and how.

    Attributes:
        encoder: the encoder.
        poolings: how the states of a text's tokens become one; the first is what is scored.
        max_length: tokens kept of an input.
        cache_limit: bytes that kept states may take on disk.
        show: shows the progress.
        seconds: by kind of work, added to as it is done.
    """

    encoder: Encoder
    poolings: tuple[Pooling, ...]
    max_length: int
    cache_limit: int
    show: Show
    seconds: dict[str, float] = field(default_factory=dict)

    def tokens(self, split: Split) -> Tokens:
        """Tokenise a split."""
        with self.timed("tokenize"):
            return self.encoder.tokenize(split.texts, split.pairs, max_length=self.max_length)

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of the encoder, which takes a while; None where nothing is kept on disk."""
        return fingerprint_encoder(self.encoder, self.encoder.blocks) if self.cache_limit else None

    def kept(self, tokens: Tokens, stage: str) -> PooledStates:
        """Give the kept states of some texts, in all poolings."""
        with _bar(tokens, self.show, stage) as advance, self.timed("forward"):
            return pool_states(
                self.encoder,
                tokens,
                self.poolings,
                limit=self.cache_limit,
                fingerprint=self.fingerprint,
                progress=advance,
            )

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """Add the seconds that pass within to those of a kind of work."""
        started = perf_counter()
        try:
            yield
        finally:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + perf_counter() - started


@dataclass(frozen=True)
class Drawing:
    """Which of the training examples are read."""

    task: Task
    examples: int | Literal["all", "auto"]
    balanced: bool
    per_class: Sequence[int] | None
    seed: int

    def __post_init__(self) -> None:
        if self.examples not in ("all", "auto") and not isinstance(self.examples, Integral):
            raise InputError(
                f"examples must be a whole number, 'all' or 'auto', got {self.examples!r}"
            )

    @property
    def available(self) -> int:
        """Count the examples that could be drawn."""
        if not self.balanced:
            return len(self.task.train)
        return len(self.task.labels) * int(np.bincount(self.task.train.labels).min())

    def rows(self, size: int | None) -> np.ndarray:
        """Draw `size` examples, None for all; more of them contain the fewer, but for rounding."""
        return sample(
            self.task.train,
            len(self.task.labels),
            examples=size,
            balanced=self.balanced,
            per_class=self.per_class,
            seed=self.seed,
        )

    def fixed(self) -> np.ndarray:
        """Draw what was asked for, where "auto" means a fixed number."""
        if self.examples != "auto" or self.per_class is not None:
            return self.rows(None if isinstance(self.examples, str) else int(self.examples))
        least = 2 * len(self.task.labels)
        return self.rows(min(max(AUTO_EXAMPLES, least), self.available))

    def growing(self) -> Sequence[int] | None:
        """List the sizes that "auto" goes through; None if the size is given."""
        if self.examples != "auto" or self.per_class is not None:
            return None
        sizes = [min(max(FIRST_LOOK, 8 * len(self.task.labels)), self.available)]
        while sizes[-1] < self.available:
            sizes.append(min(2 * sizes[-1], self.available))
        return sizes


@dataclass(frozen=True, eq=False)
class Reading:
    """The training examples that were read, and what the forward pass gave.

    Attributes:
        split: the examples.
        lengths: tokens of each, (n,).
        truncated, empty: as in `Tokens`, of all that was tokenised.
        moments: where they were added up as they came.
        states: where they were kept, by pooling.
        sample: what belongs to the kept states.
        known: by key, the score by which "auto" had enough, as of `score_states`.
        looks: how often "auto" looks at the most.
        because: why there are so many.
        notes: warnings.
    """

    split: Split
    lengths: np.ndarray
    truncated: int
    empty: int
    moments: Moments | None = None
    states: Mapping[Pooling, States] = field(default_factory=dict)
    sample: Sample | None = None
    known: Mapping[str, Sequence[Debiased | None]] = field(default_factory=dict)
    looks: int = 1
    because: str | None = None
    notes: tuple[str, ...] = ()


def cut_inputs(
    truncated: int, texts: int, max_length: int, *, what: str = "inputs", by: str = ""
) -> list[str]:
    """Warn of inputs that were cut; nothing where none was."""
    if not truncated:
        return []
    return [
        f"{truncated:,} of {texts:,} {what} were longer than {max_length} tokens{by} and were cut "
        "(--max-length)"
    ]


def tokenized(reader: Reader, drawing: Drawing) -> Reading:
    """Read the examples without running the encoder, for scores that do not look at states."""
    split = drawing.task.train.take(drawing.fixed())
    tokens = reader.tokens(split)
    return Reading(split, tokens.lengths, tokens.truncated, tokens.empty)


def streamed(reader: Reader, drawing: Drawing) -> Reading:
    """Add up the moments of the examples as they come, in memory that does not grow with them."""
    split = drawing.task.train.take(drawing.fixed())
    tokens = reader.tokens(split)
    weights = class_weights(torch.from_numpy(np.bincount(split.labels)))
    moments = summed(reader, tokens, split.labels, weights)
    return Reading(split, tokens.lengths, tokens.truncated, tokens.empty, moments)


def summed(reader: Reader, tokens: Tokens, labels: np.ndarray, weights: torch.Tensor) -> Moments:
    """Add up the moments of some texts.

    Args:
        reader: what reads them; its first pooling counts.
        tokens: of n texts, 1 or more.
        labels: their class ids, (n,).
        weights: as of `Moments`.
    """
    moments, encoder = None, reader.encoder
    with _bar(tokens, reader.show, "scanning") as advance:
        for chunk in _chunks(encoder.batches(tokens)):
            with reader.timed("forward"):
                parts = []
                for rows in chunk:
                    parts.append(encoder.pool(tokens, rows, reader.poolings[0]))
                    advance(rows)
                states = torch.cat(parts, dim=1)
                if encoder.device.type == "cuda":  # or its time would be counted elsewhere
                    torch.cuda.synchronize(encoder.device)
            if encoder.device.type == "mps":  # which has no float64
                states = states.cpu()
            with reader.timed("scores"):
                if moments is None:
                    moments = Moments.empty(states.mean(dim=1), weights)
                moments.add_(states, torch.from_numpy(labels[np.concatenate(chunk)]))
    assert moments is not None, "there are texts"
    return moments


def kept_states(reader: Reader, drawing: Drawing, *, decide: str | None) -> Reading:
    """Keep the pooled states of the examples.

    Args:
        reader: what reads them.
        drawing: which ones; "auto" looks at more and more of them.
        decide: the score with replicates by which "auto" has enough; None for a fixed number.
    """
    sizes = None if decide is None else drawing.growing()
    store = _Store(reader, drawing.task.train)
    if decide is None or sizes is None:
        return store.reading(drawing.fixed(), drawing.seed)
    for size in sizes:
        reading = store.reading(drawing.rows(size), drawing.seed)
        assert reading.sample is not None, "its states were kept"
        found = None
        with reader.timed("scores"), suppress(InputError):  # with more examples there are enough
            results = estimate_states(decide, reading.states[reader.poolings[0]], reading.sample)
            reading = replace(reading, known={decide: results})
            found = decide_best(results, looks=len(sizes), tolerance=CLOSE)
        if found is not None and found.decided:
            because = f"state {found.best} is told apart from all others"
        elif found is not None and found.close:
            because = (
                f"the states that are not told apart from state {found.best} lie within "
                f"{CLOSE:.0%} of it"
            )
        elif size == sizes[-1]:
            because = "these are all there are"
        else:
            continue
        return replace(reading, looks=len(sizes), because=because)
    raise AssertionError("the last size ends the loop")


class _Store:
    """The kept states of the rows that were read so far; each row is read once."""

    def __init__(self, reader: Reader, train: Split) -> None:
        self._reader, self._train = reader, train
        self._rows = np.empty(0, np.int64)
        self._lengths = np.empty(0, np.int64)
        self._truncated = self._empty = 0
        self._states: dict[Pooling, States] = {}
        self._warnings: dict[str, None] = {}

    def reading(self, rows: np.ndarray, seed: int) -> Reading:
        """Read those of `rows` that are new, and give what was kept of all of them."""
        reader = self._reader
        new = np.setdiff1d(rows, self._rows)
        if len(new):
            tokens = reader.tokens(self._train.take(new))
            found = reader.kept(tokens, f"scanning {len(rows):,}")
            for pooling, states in found.states.items():
                before = self._states.get(pooling)
                self._states[pooling] = states if before is None else before + states
            if found.warning:
                self._warnings[found.warning] = None
            self._rows = np.concatenate([self._rows, new])
            self._lengths = np.concatenate([self._lengths, tokens.lengths])
            self._truncated += tokens.truncated
            self._empty += tokens.empty
        by_row = np.argsort(self._rows, kind="stable")
        order = by_row[np.searchsorted(self._rows[by_row], rows)]
        split = self._train.take(rows)
        return Reading(
            split,
            self._lengths[order],
            self._truncated,
            self._empty,
            states={pooling: states.take(order) for pooling, states in self._states.items()},
            sample=Sample(
                split.labels,
                deal_groups(split.labels, seed, split.groups),
                seed,
                split.groups,
                first=1 if reader.poolings[0] == "cls" else 0,
            ),
            notes=tuple(self._warnings),
        )


@contextmanager
def _bar(tokens: Tokens, show: Show, stage: str) -> Iterator[Callable[[np.ndarray], None]]:
    """Show the texts done and their rate; the time left follows the tokens, since the longest
    texts come first.
    """
    total, texts, started = int(tokens.lengths.sum()), len(tokens), perf_counter()
    done = passed = 0

    def advance(rows: np.ndarray) -> None:
        nonlocal done, passed
        done += int(tokens.lengths[rows].sum())
        passed += len(rows)
        rate = passed / (perf_counter() - started)
        show(stage, done, total, f"{passed:,} of {texts:,} examples, {rate:,.0f}/s")

    show(stage, 0, total)
    yield advance


def _chunks(batches: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Put batches together until they have `CHUNK` rows: a product of d × d pays for many rows."""
    chunk: list[np.ndarray] = []
    for rows in batches:
        chunk.append(rows)
        if sum(map(len, chunk)) >= CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
