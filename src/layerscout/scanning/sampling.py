"""The training examples of a scan: which are drawn, and when there are enough of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from layerscout.cache import States
from layerscout.data import Split, Task, draw_words, sample
from layerscout.models import Tokens
from layerscout.plans import Pooling, ScanRequest, first_state
from layerscout.runtime import InputError
from layerscout.scanning.extraction import (
    Extractor,
    stream_moments,
    warn_of_dropped_words,
)
from layerscout.scanning.rows import choose_row_metric, count_rows, take_rows, tokenize_rows
from layerscout.scanning.scoring import Sample, estimate_states
from layerscout.scores import (
    SCORES,
    Debiased,
    Decision,
    Estimate,
    Moments,
    Quality,
    class_weights,
    deal_groups,
    decide_best,
    decide_within,
    find_rare,
)

# What "auto" reads where no score says when there are enough.
AUTO_EXAMPLES = 5000

# What "auto" reads first, and how many times as many by each further look, until the best state is
# decided. Of SST-2 MiniLM read 10,800 rows so, 16,500 by doubling, and 11,800 by a quarter more at
# each look (means of eight seeds); what it found was within 1 % of the best each time.
FIRST_LOOK, GROWTH = 500, 2**0.5

# States this close to the best one are as good.
CLOSE = 0.02


@dataclass(frozen=True)
class Sampling:
    """Which of the training examples of a task are read."""

    task: Task
    request: ScanRequest

    @property
    def available(self) -> int:
        """Count the examples that could be drawn."""
        train = self.task.train
        if not self.request.balanced or train.labels.ndim == 2 or train.words:
            return count_rows(train)
        return len(self.task.labels) * int(np.bincount(train.labels).min())

    def draw(self, size: int | None) -> np.ndarray:
        """Draw `size` examples, None for all; more of them contain the fewer, but for rounding.

        Where words are labelled, they are what is drawn, with a balance over their tags.
        """
        if self.task.train.words is not None:
            if self.request.balanced or self.request.per_class is not None:
                raise InputError(
                    "words are always drawn in balance over their tags; leave out --balanced "
                    "and --per-class"
                )
            return draw_words(self.task.train, size, self.request.seed)
        return sample(
            self.task.train,
            len(self.task.labels),
            examples=size,
            balanced=self.request.balanced,
            per_class=self.request.per_class,
            seed=self.request.seed,
        )

    def draw_fixed(self) -> np.ndarray:
        """Draw what was asked for, where "auto" means a fixed number."""
        if self.request.examples != "auto" or self.request.per_class is not None:
            size = self.request.examples
            return self.draw(None if isinstance(size, str) else size)
        least = 2 * len(self.task.labels)
        return self.draw(min(max(AUTO_EXAMPLES, least), self.available))

    def list_sizes(self) -> Sequence[int] | None:
        """List the sizes that "auto" goes through; None if the size is given."""
        if self.request.examples != "auto" or self.request.per_class is not None:
            return None
        first = max(FIRST_LOOK, 8 * len(self.task.labels))
        # New words come with sentences that have been read, which run again at every look.
        growth = 2 if self.task.train.words is not None else GROWTH
        sizes = [min(first, self.available)]
        while sizes[-1] < self.available:
            sizes.append(min(int(first * growth ** len(sizes)), self.available))
        return sizes


@dataclass(frozen=True, eq=False)
class Sampled:
    """The training examples that were read, and what the forward pass gave.

    Attributes:
        split: the examples, as of `take_rows`.
        lengths: tokens of each; where examples are words, of the texts that they are in.
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
    known: Mapping[str, Sequence[Estimate | None]] = field(default_factory=dict)
    looks: int = 1
    because: str | None = None
    notes: tuple[str, ...] = ()


def tokenize_sample(extractor: Extractor, sampling: Sampling) -> Sampled:
    """Read the examples without running the encoder, for scores that do not look at states."""
    train, rows = sampling.task.train, sampling.draw_fixed()
    tokens = tokenize_rows(extractor, train, rows)
    return _describe(take_rows(train, rows), tokens)


def stream_sample(extractor: Extractor, sampling: Sampling) -> Sampled:
    """Add up the moments of the examples as they come, in memory that does not grow with them."""
    rows = sampling.draw_fixed()
    split = take_rows(sampling.task.train, rows)
    tokens = tokenize_rows(extractor, sampling.task.train, rows)
    # Of the tags of words some may be missing.
    labels = np.unique(split.labels, return_inverse=True)[1].reshape(-1)
    weights = class_weights(torch.from_numpy(np.bincount(labels)))
    moments = stream_moments(extractor, tokens, labels, weights)
    return replace(_describe(split, tokens), moments=moments)


def _describe(split: Split, tokens: Tokens) -> Sampled:
    notes = tuple(warn_of_dropped_words(tokens))
    return Sampled(split, tokens.lengths, tokens.truncated, tokens.empty, notes=notes)


def keep_sample(extractor: Extractor, sampling: Sampling, *, decide: str | None) -> Sampled:
    """Keep the pooled states of the examples.

    Args:
        extractor: what reads them.
        sampling: which ones; "auto" looks at more and more of them.
        decide: the score with replicates by which "auto" has enough; None for a fixed number.
    """
    sizes = None if decide is None else sampling.list_sizes()
    grown = _GrowingSample(extractor, sampling.task)
    if decide is None or sizes is None:
        return grown.extend(sampling.draw_fixed(), sampling.request.seed)
    # More reading brings enough examples of all classes but these.
    train = sampling.task.train
    groups = train.groups if train.words is None else train.sentences
    rare = find_rare(train.labels, groups, SCORES[decide].fewest)
    for size in sizes:
        sampled = grown.extend(sampling.draw(size), sampling.request.seed)
        assert sampled.sample is not None, "its states were kept"
        found, close = None, ""
        with extractor.timed("scores"), suppress(InputError):  # with more examples there are enough
            states = sampled.states[extractor.poolings[0]]
            results = estimate_states(decide, states, sampled.sample, rare)
            sampled = replace(sampled, known={decide: results})
            found, close = _decide(results, len(sizes), sampling.request.within)
        if found is not None and found.decided:
            because = f"state {found.best} differs from all others beyond noise"
        elif found is not None and found.close:
            because = close
        elif size == sizes[-1]:
            balanced = sampling.available < count_rows(train)
            because = "the rarest class has no more" if balanced else "these are all there are"
        else:
            continue
        return replace(sampled, looks=len(sizes), because=because)
    raise AssertionError("the last size ends the loop")


def _decide(results: Sequence[Estimate | None], looks: int, within: float) -> tuple[Decision, str]:
    """Find the best state, and say what "close" means for this kind of score."""
    if any(isinstance(result, Debiased) for result in results):
        found = decide_best(results, looks, tolerance=CLOSE)
        words = f"the states that are tied with state {found.best} lie within {CLOSE:.0%} of it"
        return found, words
    found = decide_within(results, looks, within / 100)
    points, last = f"{within:g} point{'' if within == 1 else 's'}", len(results) - 1
    if found.best is not None and not _beats_majority(results[found.best]):
        # All heads may give the majority's answer until more examples teach them something.
        found = replace(found, close=False)
    words = f"none of states 1–{last} can be more than {points} above state {found.best}"
    return found, words


def _beats_majority(result: Estimate | None) -> bool:
    """Tell whether a head reads more than the majority class, if it is one."""
    if not isinstance(result, Quality) or result.value is None or result.majority is None:
        return True
    return result.value > result.majority


class _GrowingSample:
    """The kept states of the rows that were read so far; each row is read once."""

    def __init__(self, extractor: Extractor, task: Task) -> None:
        self._extractor, self._task = extractor, task
        self._rows = np.empty(0, np.int64)
        self._lengths = np.empty(0, np.int64)
        self._truncated = self._empty = 0
        self._states: dict[Pooling, States] = {}
        self._warnings: dict[str, None] = {}

    def extend(self, rows: np.ndarray, seed: int) -> Sampled:
        """Read those of `rows` that are new, and give what was kept of all of them."""
        extractor = self._extractor
        new = np.setdiff1d(rows, self._rows)
        if len(new):
            tokens = tokenize_rows(extractor, self._task.train, new)
            found = extractor.extract(tokens, f"scanning {len(rows):,}")
            for pooling, states in found.states.items():
                before = self._states.get(pooling)
                self._states[pooling] = states if before is None else before + states
            if found.warning:
                self._warnings[found.warning] = None
            self._rows = np.concatenate([self._rows, new])
            self._lengths = np.concatenate([self._lengths, tokens.lengths])
            self._truncated += tokens.truncated
            self._empty += tokens.empty
            self._warnings |= dict.fromkeys(warn_of_dropped_words(tokens))
        by_row = np.argsort(self._rows, kind="stable")
        order = by_row[np.searchsorted(self._rows[by_row], rows)]
        split = take_rows(self._task.train, rows)
        words = self._task.train.words is not None
        return Sampled(
            split,
            self._lengths if words else self._lengths[order],
            self._truncated,
            self._empty,
            states={pooling: states.take(order) for pooling, states in self._states.items()},
            sample=Sample(
                split.labels,
                deal_groups(split.labels, seed, split.groups),
                seed,
                split.groups,
                first=first_state(extractor.poolings[0]),
                metric=choose_row_metric(self._task),
                picks=self._task.kind == "multiple_choice",
            ),
            notes=tuple(self._warnings),
        )
