"""Sweeps: words in a recipe that stand for many edits of a model."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from math import factorial
from typing import Any

from layerscout.errors import InputError
from layerscout.plans import Permute, arrange

# Each stands for an edit for each block, or run of blocks, of the model at hand.
SWEEPS: Mapping[str, str] = {
    "incremental": "re-initialise all blocks above block k, for k from 0 to L",
    "incremental:K,...": "the same for these k alone",
    "localized:n": "re-initialise n neighbouring blocks, or all others, at every place",
    "single": "re-initialise one block, for each block, and none",
    "permutations:n": "put the blocks in n random orders, all of them different",
}

# Of a model's blocks, in one sweep.
MOST_ORDERS = 1000

_SWEEP = re.compile(
    r"(incremental)(?::([0-9]+(?:,[0-9]+)*))?|(localized|permutations):([0-9]+)|(single)"
)


def is_sweep(written: str) -> bool:
    """Whether edits are written as a sweep."""
    return _SWEEP.fullmatch(written) is not None


def expand_sweep(written: str | None, blocks: int) -> dict[str, dict[str, Any]]:
    """Return the edits that a sweep stands for on a model of L = `blocks` blocks.

    Args:
        written: edits, or a sweep of `SWEEPS`.
        blocks: L.

    Returns:
        By edit the values that tables may show: `kept`, how many blocks at the bottom stay as they
        were, or `permutation`, or `change`, `first` and `last`.

    Raises:
        InputError: if the model is not deep enough.
    """
    match = _SWEEP.fullmatch(written or "")
    if match is None:
        return {written or "": {}}
    incremental, named, kind, number, _ = match.groups()
    if incremental:
        kept = sorted(map(int, named.split(","))) if named else range(blocks + 1)
        if max(kept) > blocks:
            raise InputError(f"{written} keeps more blocks than there are, {blocks}; use fewer")
        return {f"reinit:{k + 1}-{blocks}" if k < blocks else "": {"kept": k} for k in kept}
    if kind == "permutations":
        if int(number) > MOST_ORDERS:
            raise InputError(f"{written} asks for too many orders; use at most {MOST_ORDERS}")
        seeds = _draw_orders(int(number), blocks)
        return {f"permute:{seed}": {"permutation": seed} for seed in seeds}
    if kind == "localized":
        n = int(number)
        if not 1 <= n < blocks:
            raise InputError(f"{written} needs more than {n} blocks, got {blocks}; use fewer")
        return {
            f"{verb}:{first}-{first + n - 1}": {
                "change": change,
                "first": first,
                "last": first + n - 1,
            }
            for verb, change in (("reinit", "reinitialised"), ("preserve", "preserved"))
            for first in range(1, blocks - n + 2)
        }
    single = {f"reinit:{k}": {"change": "reinitialised", "first": k} for k in range(1, blocks + 1)}
    return {"": {"change": "none"}} | single


def _draw_orders(number: int, blocks: int) -> list[int]:
    """Return the first seeds whose orders of the blocks differ, as far as there are so many orders.

    Seeds 2 and 9 put six blocks in the same order.
    """
    seeds: dict[tuple[int, ...], int] = {}
    # The order as it was is never drawn, unless there is no other.
    wanted = min(number, max(1, factorial(blocks) - 1))
    draw = itertools.count()
    while len(seeds) < wanted:
        seed = next(draw)
        seeds.setdefault(arrange((Permute(seed),), blocks).order, seed)
    return list(seeds.values())
