"""From amounts of weights to scores of blocks and of their parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import mean, stdev
from typing import Any

from layerscout.models.architecture import NORM, locate_parameters
from layerscout.plans import ranges

Values = tuple[float | None, ...]
Combine = Callable[[Sequence[float]], float]

# Parts of a block, by the first pattern that is found in a weight's name within the block: the
# norms first, as BERT's are within its "attention" and DistilBERT has an "output_layer_norm".
PARTS: Mapping[str, re.Pattern[str]] = {
    "norms": NORM,
    "attention": re.compile(r"\b(attention|attn|self_attn)\b"),
    "feed_forward": re.compile(r"\b(intermediate|output|ffn|ffn_output|mlp)\b"),
    "other": re.compile(""),
}


@dataclass(frozen=True)
class BlockScores:
    """A score of every block, by one head or as the mean over several random ones.

    Attributes:
        values: L + 1 entries; entry 0, the embeddings, is None, and so is what is undefined.
        spread: the standard deviation over the seeds; None where there is a single one.
        by_seed: `values` of each seed.
        parts: the same score of the attention, the feed-forward layers, the norms and the
            rest of each block; None unless it was asked for.
        notes: how the values are to be read.
        warnings: why they may mean nothing.
    """

    values: Values
    spread: Values
    by_seed: tuple[Values, ...]
    parts: Mapping[str, Values] | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def score_blocks(
    model: Any,
    amounts: Sequence[Mapping[str, float]],
    combine: Combine,
    *,
    parts: bool,
    notes: Sequence[str] = (),
) -> BlockScores:
    """Combine the amounts of the weights of each block, and of its parts, and average over seeds.

    Args:
        model: the weights are of its blocks.
        amounts: of each seed, by the weight's name.
        combine: amounts of several weights to a score.
        parts: score the parts of each block too.
        notes: how the values are to be read.
    """
    inside = {k: place for k, place in locate_parameters(model).items() if isinstance(place, tuple)}
    by_seed = tuple(_by_block(each, inside, combine) for each in amounts)
    shared = dict.fromkeys(place for place in inside.values() if len(place) > 1)
    present = [part for part in PARTS if any(part_of(name) == part for name in inside)]
    return BlockScores(
        values=_over_seeds(by_seed, mean),
        spread=_over_seeds(by_seed, lambda v: stdev(v) if len(v) > 1 else None),
        by_seed=by_seed,
        parts={
            part: _over_seeds([_by_block(each, inside, combine, part) for each in amounts], mean)
            for part in present
        }
        if parts
        else None,
        notes=(
            *(f"blocks {ranges(s)} share their weights and have one value" for s in shared),
            *notes,
        ),
    )


def _by_block(
    amounts: Mapping[str, float],
    inside: Mapping[str, tuple[int, ...]],
    combine: Combine,
    part: str | None = None,
) -> Values:
    """Combine the amounts of one seed for every block; None where there are none, or not finite."""
    blocks = max(map(max, inside.values()))
    lists: list[list[float]] = [[] for _ in range(blocks + 1)]
    for name, amount in amounts.items():
        if part in (None, part_of(name)):
            for block in inside[name]:
                lists[block].append(amount)
    values = [combine(several) if several else None for several in lists]
    return tuple(v if v is not None and isfinite(v) else None for v in values)


def _over_seeds(
    by_seed: Sequence[Values], statistic: Callable[[Sequence[float]], float | None]
) -> Values:
    """Apply a statistic to each entry; undefined where one of the seeds is."""
    entries = []
    for several in zip(*by_seed, strict=True):
        defined = [v for v in several if v is not None]
        entries.append(statistic(defined) if len(defined) == len(several) else None)
    return tuple(entries)


def part_of(name: str) -> str:
    """Find which part of its block, a key of `PARTS`, a weight belongs to.

    Args:
        name: of the parameter, in full; what comes before a number is not of the block.
    """
    inner = re.split(r"\.\d+\.", name)[-1]
    return next(part for part, pattern in PARTS.items() if pattern.search(inner))
