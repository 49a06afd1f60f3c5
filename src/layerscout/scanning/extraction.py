"""Reading rows with an encoder: tokens, and pooled states, kept or added up as they come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch

from layerscout.data import Split
from layerscout.models import Cut, Encoder, Tokens, warn_of_unknown_tokens
from layerscout.plans import Pooling
from layerscout.progress import WAIT_SECONDS, Show, follow_examples, say, write_duration
from layerscout.states import States, check_limit, fingerprint_encoder, pool_states

if TYPE_CHECKING:
    from layerscout.scores import Moments

# Examples whose pooled states are held until they enter the moments together.
CHUNK = 512

# Seconds of reading after which it is known how long all of it takes.
KNOWN_SECONDS = 2.0

# The class ids of some rows, (n,), and the weights of `Moments`.
Classes = tuple[np.ndarray, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Extracted:
    """What reading some rows gave; the sum of two is what reading both gives.

    Attributes:
        lengths: tokens of each text; where words are read, of the texts that they are in.
        cut, empty, dropped: as in `Tokens`.
        machines: the device and the precision of each machine that read some.
        states: by pooling, where they were kept.
        moments: where they were added up.
        warnings: what the reader of the scores should know.
        passed: texts that the encoder ran on, now or when states were kept, and its seconds.
    """

    lengths: np.ndarray
    cut: Cut
    empty: int
    dropped: int
    machines: frozenset[tuple[str, str]]
    states: Mapping[Pooling, States] = field(default_factory=dict)
    moments: Moments | None = None
    warnings: tuple[str, ...] = ()
    passed: tuple[int, float] = (0, 0.0)

    def __add__(self, other: Extracted) -> Extracted:
        """Return what was read of the rows of this, followed by those of the other."""
        moments = self.moments
        if moments is not None and other.moments is not None:
            moments = moments + other.moments
        return Extracted(
            np.concatenate([self.lengths, other.lengths]),
            self.cut.join(other.cut),
            self.empty + other.empty,
            self.dropped + other.dropped,
            self.machines | other.machines,
            {pooling: states + other.states[pooling] for pooling, states in self.states.items()},
            moments,
            tuple(dict.fromkeys(self.warnings + other.warnings)),
            (self.passed[0] + other.passed[0], self.passed[1] + other.passed[1]),
        )


@dataclass
class ReadingForecast:
    """Progress that says once how long a scan takes, if that is more than some seconds.

    Attributes:
        show: shows the progress.
        most: how many times the rows that are read first a scan may have to read.
        began: when rows were first read, and how much was then done; None before.
        over: all is said, or there is nothing to say.
    """

    show: Show
    most: float = 1.0
    began: tuple[float, float] | None = None
    over: bool = False

    def __call__(self, stage: str, done: float, total: float, note: str = "") -> None:
        """Show it, `done` of `total` in tokens: the longest texts come first."""
        self.show(stage, done, total, note)
        # Rows whose states were kept are not read again, and scoring says nothing of reading.
        if self.over or not stage.startswith("scanning"):
            return
        if self.began is None:
            self.began = perf_counter(), done
        elapsed, read = perf_counter() - self.began[0], done - self.began[1]
        if not read or (done < total and elapsed < KNOWN_SECONDS):
            return
        self.over = True
        expected = elapsed * total / read
        if expected * self.most > WAIT_SECONDS:
            whole = write_duration(expected * self.most)
            more = f", or {whole} if it has to read every row" if self.most > 1 else ""
            say(f"reading takes about {write_duration(expected)}{more}")


@dataclass(frozen=True, eq=False)
class Extractor:
    """An encoder, and how it turns texts into pooled states.

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

    def __post_init__(self) -> None:
        """Check the limit, which every verb that reads states passes to here."""
        check_limit("cache_limit", self.cache_limit)

    def tokenize(self, split: Split) -> Tokens:
        """Tokenise a split."""
        with self.timed("tokenize"):
            return self.encoder.tokenize_split(split, max_length=self.max_length)

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of the encoder, which takes a while; None where nothing is kept on disk."""
        return fingerprint_encoder(self.encoder, self.encoder.blocks) if self.cache_limit else None

    def read(
        self,
        split: Split,
        rows: np.ndarray | None,
        stage: str,
        *,
        classes: Classes | None = None,
        keep: bool = False,
    ) -> Extracted:
        """Read rows of a split; the encoder runs only to keep states or to add up moments.

        Args:
            split: texts, or sentences of labelled words.
            rows: of the texts, or of all words, ascending; None for all.
            stage: what the progress calls it.
            classes: of the rows, whose moments are added up.
            keep: keep the states in all poolings for the next scan.
        """
        if rows is not None:
            split, rows = narrow(split, rows)
        tokens = self.tokenize(split)
        if rows is not None and split.words is not None:
            tokens = tokens.select(rows)
        states: Mapping[Pooling, States] = {}
        moments, passed = None, (0, 0.0)
        warnings = warn_of_unknown_tokens(tokens, self.encoder.tokenizer)
        if keep:
            with self.timed("forward"):
                pooled = pool_states(
                    self.encoder,
                    tokens,
                    self.poolings,
                    limit=self.cache_limit,
                    fingerprint=self.fingerprint,
                    show=self.show,
                    stage=stage,
                )
            states, warnings = pooled.states, [*filter(None, [pooled.warning]), *warnings]
            passed = pooled.passed
        elif classes is not None:
            before = self.seconds.get("forward", 0.0)
            moments = self._add_up(tokens, classes, stage)
            passed = len(tokens), self.seconds["forward"] - before
        return Extracted(
            tokens.lengths,
            tokens.cut,
            tokens.empty,
            tokens.dropped,
            frozenset([(self.encoder.device.type, self.encoder.precision)]),
            states,
            moments,
            tuple(warnings),
            passed,
        )

    def _add_up(self, tokens: Tokens, classes: Classes, stage: str) -> Moments:
        """Add up the moments of one or more texts, or of the words that are labelled in them."""
        from layerscout.scores import Moments

        moments, encoder, (labels, weights) = None, self.encoder, classes
        advance = follow_examples(self.show, stage, tokens.lengths)
        for chunk in _group_batches(encoder.batches(tokens)):
            with self.timed("forward"):
                parts = []
                for rows in chunk:
                    parts.append(encoder.pool(tokens, rows, self.poolings[0]))
                    advance(tokens.lengths[rows])
                states = torch.cat(parts, dim=1)
                if encoder.device.type == "cuda":  # or its time would be counted elsewhere
                    torch.cuda.synchronize(encoder.device)
            if encoder.device.type == "mps":  # which has no float64
                states = states.cpu()
            with self.timed("scores"):
                if moments is None:
                    moments = Moments.empty(states.mean(dim=1), weights)
                rows = np.concatenate([tokens.find_outputs(batch) for batch in chunk])
                moments.add_(states, torch.from_numpy(labels[rows]))
        assert moments is not None, "there are texts"
        return moments

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """Add the seconds that pass within to those of a kind of work."""
        started = perf_counter()
        try:
            yield
        finally:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + perf_counter() - started


def narrow(split: Split, rows: np.ndarray) -> tuple[Split, np.ndarray]:
    """Return the texts, or sentences, that some rows are of, and the rows' numbers among these.

    Args:
        split: texts, or sentences of labelled words.
        rows: of the texts, or of all words, ascending.
    """
    if split.words is None:
        return split.take(rows), np.arange(len(rows))
    of_words = split.sentences[rows]
    sentences, own = np.unique(of_words, return_inverse=True)
    part = split.take(sentences)
    return part, rows - split.bounds[of_words] + part.bounds[own.reshape(-1)]


def _group_batches(batches: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Put batches together until they have `CHUNK` rows: a product of d × d pays for many rows."""
    chunk: list[np.ndarray] = []
    for rows in batches:
        chunk.append(rows)
        if sum(map(len, chunk)) >= CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
