"""Sweeps: words in a recipe that stand for many edits of a model."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from layerscout.runtime import (
    InputError,
)

# Words that stand for one edit for each block, or run of blocks, of whatever model is at hand.
SWEEPS: Mapping[str, str] = {
    "incremental": "draw all blocks above block k anew, for k from 0 to L",
    "incremental:K,...": "the same for these k alone",
    "localized:n": "draw n neighbouring blocks anew, or all others, wherever they may lie",
    "single": "draw one block anew, for each block, and none",
    "permutations:n": "put the blocks in n random orders",
}


# Of a model's blocks, in one sweep.
MOST_ORDERS = 1000


SWEEP = re.compile(
    r"(incremental)(?::([0-9]+(?:,[0-9]+)*))?|(localized|permutations):([0-9]+)|(single)"
)


def swept(written: str | None, blocks: int) -> dict[str, dict[str, Any]]:
    """Give the edits that a sweep stands for on a model of L = `blocks` blocks.

    Args:
        written: edits, or a sweep of `SWEEPS`.
        blocks: L.

    Returns:
        By edit what tables may call it: `kept`, how many blocks at the bottom stay as they were, or
        `change`, `first` and `last`.

    Raises:
        InputError: if the model is not deep enough.
    """
    found = SWEEP.fullmatch(written or "")
    if found is None:
        return {written or "": {}}
    incremental, named, kind, number, _ = found.groups()
    if incremental:
        kept = sorted(map(int, named.split(","))) if named else range(blocks + 1)
        if max(kept) > blocks:
            raise InputError(f"{written} keeps more blocks than there are, {blocks}; use fewer")
        return {f"reinit:{k + 1}-{blocks}" if k < blocks else "": {"kept": k} for k in kept}
    if kind == "permutations" and int(number) > MOST_ORDERS:
        raise InputError(f"{written} are too many orders; take {MOST_ORDERS} at the most")
    if kind == "permutations":
        return {f"permute:{seed}": {"permutation": seed} for seed in range(int(number))}
    if kind == "localized":
        n = int(number)
        if not 1 <= n < blocks:
            raise InputError(f"{written} needs more than {n} blocks, got {blocks}; use fewer")
        spans = [(first, first + n - 1) for first in range(1, blocks - n + 2)]
        edits = itertools.product((("reinit", "reinitialised"), ("preserve", "preserved")), spans)
        return {
            f"{verb}:{first}-{last}": {"change": change, "first": first, "last": last}
            for (verb, change), (first, last) in edits
        }
    every = {f"reinit:{k}": {"change": "reinitialised", "first": k} for k in range(1, blocks + 1)}
    return {"": {"change": "none"}} | every
