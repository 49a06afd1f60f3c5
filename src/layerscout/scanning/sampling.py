"""The training examples of a scan: which are drawn, and when there are enough of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from layerscout.data import Split, Task, draw_words, number_texts, sample
from layerscout.errors import InputError
from layerscout.plans import ScanRequest, choose_head_state, first_state
from layerscout.scanning.extraction import Extracted, Extractor, ReadingForecast
from layerscout.scanning.scoring import Sample, estimate_states
from layerscout.scores import (
    SCORES,
    Estimate,
    Quality,
    Source,
    class_weights,
    deal_groups,
    decide_best,
    find_rare,
    measure_gaps,
)

# What "auto" reads where no score says when there are enough.
AUTO_EXAMPLES = 5000

# What "auto" reads first, and how many times as many by each further look, until the best state is
# decided. Of SST-2 MiniLM read 10,800 rows so, 16,500 by doubling, and 11,800 by a quarter more at
# each look (means of eight seeds); what it found was within 1 % of the best each time.
FIRST_LOOK, GROWTH = 500, 2**0.5

# States this close to the best one are as good.
CLOSE = 0.02

# Held-out words that probes are judged by at the most, drawn like those that are scanned: `O` would
# drown the rest.
HELD_OUT_WORDS = 5000


@dataclass(frozen=True, eq=False)
class ScanContext:
    """What the scores of a scan are computed from.

    Attributes:
        task: the task.
        keys: of the scores.
        request: the options.
        extractor: the encoder, and how it reads.
    """

    task: Task
    keys: Sequence[str]
    request: ScanRequest
    extractor: Extractor

    def select(self, *sources: Source) -> list[str]:
        """Return the keys of the scores that are computed from these sources."""
        return [key for key in self.keys if SCORES[key].source in sources]

    def held_out(self) -> Split:
        """Return the held-out examples.

        Raises:
            InputError: if there are none.
        """
        if self.task.validation is None:
            raise InputError(
                f"{self.task.name} has no held-out examples, and too few to set a tenth aside (at "
                "least 2 examples of each class always stay in training); use --validation FILE"
            )
        return self.task.validation

    @property
    def available(self) -> int:
        """How many training examples could be drawn."""
        train = self.task.train
        if not self.request.balanced or train.labels.ndim == 2 or train.words:
            return len(train.labels)
        return len(self.task.labels) * int(np.bincount(train.labels).min())

    def draw(self, size: int | None) -> np.ndarray:
        """Draw `size` examples, None for all; more of them contain the fewer, but for rounding.

        Where words are labelled, they are what is drawn, with a balance over their tags.
        """
        request = self.request
        if self.task.train.words is not None:
            if request.balanced or request.per_class is not None:
                raise InputError(
                    "words are always drawn in balance over their tags; leave out --balanced "
                    "and --per-class"
                )
            return draw_words(self.task.train, size, request.seed)
        return sample(
            self.task.train,
            len(self.task.labels),
            examples=size,
            balanced=request.balanced,
            per_class=request.per_class,
            seed=request.seed,
        )

    def list_sizes(self) -> list[int]:
        """Return the sizes that "auto" goes through."""
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
        extracted: tokens, moments or kept states.
        sample: what belongs to the kept states.
        known: by key, the score by which "auto" had enough, as of `score_states`.
        looks: how often "auto" looks at the most.
        reason: why there are so many.
        left_out: the classes that are left out of sums.
    """

    split: Split
    extracted: Extracted
    sample: Sample | None = None
    known: Mapping[str, Sequence[Estimate | None]] = field(default_factory=dict)
    looks: int = 1
    reason: str | None = None
    left_out: tuple[int, ...] = ()


def draw_sample(context: ScanContext) -> Sampled:
    """Read the training examples as far as the scores need it: their states, sums or tokens."""
    request, train, size = context.request, context.task.train, context.request.examples
    # Sums over classes do not tell the labels of an example apart.
    several = context.task.kind == "multi_label_classification"
    keeps = context.select("state", "states", "probes", *(("moments",) if several else ()))
    grows = size == "auto" and request.per_class is None
    decides = (key for key in context.keys if SCORES[key].jackknife)
    decide = next((key for key in decides if SCORES[key].together or not several), None)
    if keeps and grows and decide is not None:
        return _read_until_decided(context, decide)
    if grows:
        size = min(max(AUTO_EXAMPLES, 2 * len(context.task.labels)), context.available)
    rows = context.draw(None if isinstance(size, str) else size)
    if keeps:
        return _keep_states(context, rows)[0]
    rare, classes = tuple[int, ...](), None
    if context.select("moments"):
        rare = find_rare(train.labels[rows], None, 2)
        rows = rows[~np.isin(train.labels[rows], rare)]
        # Of the tags of words some may be missing.
        labels = np.unique(train.labels[rows], return_inverse=True)[1].reshape(-1)
        classes = labels, class_weights(torch.from_numpy(np.bincount(labels)))
    extracted = context.extractor.read(train, rows, "scanning", classes=classes)
    return Sampled(take_rows(train, rows), extracted, left_out=rare)


def _read_until_decided(context: ScanContext, decide: str) -> Sampled:
    """Read more and more examples, until the score of a key says that there are enough."""
    train, sizes = context.task.train, context.list_sizes()
    # More reading brings enough examples of all classes but these.
    examples = number_examples(train, np.arange(len(train.labels)))
    rare = find_rare(train.labels, examples, SCORES[decide].fewest)
    if isinstance(context.extractor.show, ReadingForecast):
        context.extractor.show.most = sizes[-1] / sizes[0]
    kept: Kept | None = None
    for size in sizes:
        sampled, kept = _keep_states(context, context.draw(size), kept)
        if isinstance(context.extractor.show, ReadingForecast):
            context.extractor.show.over = True  # later looks read fewer, new rows
        assert sampled.sample is not None, "its states were kept"
        reason = None
        with context.extractor.timed("scores"), suppress(InputError):  # with more there are enough
            states = sampled.extracted.states[context.extractor.poolings[0]]
            results = estimate_states(decide, states, sampled.sample, rare)
            sampled = replace(sampled, known={decide: results})
            share = size / sizes[-1]
            reason = _decide(decide, results, len(sizes), context.request.within, share)
        if reason is not None:
            break
    else:
        balanced = context.available < len(train.labels)
        reason = "the rarest class has no more" if balanced else "these are all there are"
    return replace(sampled, looks=len(sizes), reason=reason)


def _decide(
    key: str, results: Sequence[Estimate | None], looks: int, within: float, share: float
) -> str | None:
    """Say why a share of the examples is enough; None if it takes more of them."""
    decision = decide_best(results, SCORES[key].better, looks, CLOSE)
    best = decision.best
    top = None if best is None else results[best]
    if best is None or top is None:
        return None
    if decision.decided:
        return f"state {best} differs from all others beyond noise"
    if SCORES[key].better == "lower":
        close = f"the states that are tied with state {best} lie within {CLOSE:.0%} of it"
        return close if decision.close else None
    # All heads may give the majority's answer until more examples teach them something.
    majority = top.majority if isinstance(top, Quality) else None
    if majority is not None and top.value is not None and top.value <= majority:
        return None
    head = choose_head_state(len(results) - 1, best, decision.rest)
    headed = results[head]
    head = best if headed is None or headed.value is None else head
    if share == 1 or find_rivals(results, head, looks, within / 100, share):
        return None  # of all there are no more
    points = f"{within:g} point{'' if within == 1 else 's'}"
    return (
        f"more of them could not show a state above state {head}, where the head belongs, to be "
        f"better by more than {points}"
    )


def find_rivals(
    results: Sequence[Estimate | None], state: int, looks: int, within: float, share: float
) -> list[int]:
    """Return the states above one that all examples may yet show to be better, and by how much.

    Of n out of N examples, the difference of two states is D, and the interval around it D ± h. All
    N give at most D + h √(1 − n/N), with an interval of ± h √(n/N), which a difference must exceed
    to be seen. This holds for all states and looks together with a chance of 95 %, but for what a
    score gains from more rows at one state and not at another, as heads do.

    Args:
        results: of states 0..L, over the same examples; None for a state that is not scored.
        state: the one that the others are compared with.
        looks: how often such states may be looked for.
        within: how much better does not matter, in units of the score: 0.01 is a point of accuracy.
        share: n/N.
    """
    upper = [None if other < state else result for other, result in enumerate(results)]
    return [
        other
        for other, gap in enumerate(measure_gaps(upper, state, looks))
        if gap is not None
        and gap.half_width * (1 - share) ** 0.5 - gap.difference
        > max(within, gap.half_width * share**0.5)
    ]


# The rows that were read, in that order, and what was kept of them.
Kept = tuple[np.ndarray, Extracted]


def _keep_states(
    context: ScanContext, rows: np.ndarray, kept: Kept | None = None
) -> tuple[Sampled, Kept]:
    """Read rows and keep their states; those that were kept before are not read again."""
    task, extractor, seed = context.task, context.extractor, context.request.seed
    new = rows if kept is None else np.setdiff1d(rows, kept[0])
    if kept is None or len(new):
        more = extractor.read(task.train, new, f"scanning {len(rows):,}", keep=True)
        kept = (new, more) if kept is None else (np.concatenate([kept[0], new]), kept[1] + more)
    by_row = np.argsort(kept[0], kind="stable")
    order = by_row[np.searchsorted(kept[0][by_row], rows)]
    split, lengths = take_rows(task.train, rows), kept[1].lengths
    examples = number_examples(task.train, rows)
    states = {pooling: states.take(order) for pooling, states in kept[1].states.items()}
    lengths = lengths if task.train.words is not None else lengths[order]
    shared = Sample(
        split.labels,
        deal_groups(split.labels, seed, examples),
        seed,
        examples,
        first=first_state(extractor.poolings[0]),
        metric=choose_row_metric(task),
        picks=task.kind == "multiple_choice",
        clusters=context.request.clusters,
    )
    return Sampled(split, replace(kept[1], lengths=lengths, states=states), shared), kept


def number_examples(split: Split, rows: np.ndarray) -> np.ndarray | None:
    """Return the example of each of some rows, or words; None where each is one of its own.

    Choices of one example belong together, words of a sentence, and rows with the same text: what
    is fitted to one of them knows the others.
    """
    own: np.ndarray
    if split.words is not None:
        own = number_texts(split)[split.sentences[rows]]
    elif split.groups is not None:
        own = split.groups[rows]
    else:
        own = number_texts(split.take(rows))
        if own.max() in (0, len(own) - 1):
            return None
    return own


def take_rows(split: Split, rows: np.ndarray) -> Split:
    """Return rows of a split, or words of its sentences, as a split with a label for each.

    Words of one sentence are a group, which no fold tears apart.

    Args:
        split: texts, or sentences of labelled words.
        rows: of the texts, or of all words, ascending.
    """
    if split.words is None:
        return split.take(rows)
    sentences = split.sentences[rows]
    places = rows - split.bounds[sentences]
    words = [split.words[s][place] for s, place in zip(sentences, places, strict=True)]
    return Split(words, None, split.labels[rows], groups=sentences)


def draw_held_out(split: Split, seed: int) -> np.ndarray:
    """Return the held-out rows that probes are judged by: all texts, or some words."""
    if split.words is None:
        return np.arange(len(split))
    size = None if len(split.labels) <= HELD_OUT_WORDS else HELD_OUT_WORDS
    return draw_words(split, size, seed)


def choose_row_metric(task: Task) -> str:
    """Choose what heads on single rows are judged by: the task's metric, if it is of rows.

    Spans are of sentences, of which a scan reads some words; every tag then counts alike.
    """
    return "macro_f1" if task.metric.startswith("entity") else task.metric
