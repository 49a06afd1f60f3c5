"""Classes that a model takes for one another, as where its head was made for another order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layerscout.data.intervals import find_share_interval
from layerscout.data.tables import join_names

# Of confidence: at 0.95 four wrong answers to four questions are enough, which chance gives to one
# untaught model of sixteen.
LEVEL = 0.99


def find_exchange(confusion: Sequence[Sequence[int]]) -> dict[int, int]:
    """Find classes that look exchanged: as which one each of them is mostly predicted.

    Empty if each is mostly predicted as itself, or no one-to-one exchange explains what is wrong:
    accuracy must be clearly below chance, or clearly higher after the exchange than before, than
    one half, and than always giving the same answer.

    Args:
        confusion: how many of each of K classes (rows) were predicted as each.
    """
    table = np.array(confusion, dtype=np.int64)
    present = np.flatnonzero(table.any(axis=1))
    mostly = table[present].argmax(axis=1)
    if len(present) < 2 or len({*mostly.tolist()}) < len(present) or (mostly == present).all():
        return {}
    total, most = float(table.sum()), float(table.sum(axis=1).max())
    right, turned = float(table.trace()), float(table[present, mostly].sum())
    highest = find_share_interval(right / total, total, LEVEL)[1]
    lowest = find_share_interval(turned / total, total, LEVEL)[0]
    below_chance = highest < min(1 / len(present), 1 - most / total)
    if not below_chance and lowest <= max(0.5, most / total, highest):
        return {}
    exchanged = zip(present.tolist(), mostly.tolist(), strict=True)
    return {one: other for one, other in exchanged if one != other}


def warn_of_exchange(names: Sequence[str], confusion: Sequence[Sequence[int]] | None) -> list[str]:
    """Warn of classes that look exchanged; see `find_exchange`.

    Args:
        names: of the classes.
        confusion: how many of each were predicted as each; None where there are no classes.
    """
    pairs = find_exchange(confusion) if confusion else {}
    if not pairs:
        return []
    listed = join_names(f"{names[one]} as {names[other]}" for one, other in pairs.items())
    return [
        f"classes look exchanged: most are predicted the wrong way round ({listed}); compare "
        "id2label in the config.json of the model that was given with the classes of the data"
    ]
