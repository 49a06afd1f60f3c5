"""Edits: what is done to the blocks of a model before it is tuned or judged.

An edit counts blocks as those before it left them: in "skip:3-4 + truncate:8" the eight blocks
that stay are 1, 2 and 5 to 10.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from layerscout.errors import InputError, check_integer, make_unknown_error
from layerscout.plans.papers import WeightInit
from layerscout.plans.plan import EMBEDDINGS, ranges
from layerscout.plans.strategies import read_ranges

EDITS: Mapping[str, str] = {
    "truncate:ℓ": "remove the blocks above block ℓ",
    "skip:i-j": "leave out blocks i to j",
    "reinit:i-j": "re-initialise blocks i to j",
    "preserve:i-j": "re-initialise all other blocks",
    "permute:seed": "put the blocks in a random order, or in a given one, as in permute:2,1,3",
}


@dataclass(frozen=True)
class Edit:
    """An edit of the blocks, made by `make_edits`.

    Attributes:
        name: a key of `EDITS`, up to its colon.
        numbers: the blocks, sorted; of truncate the last one that stays; of permute a seed, or the
            block that comes to each place.
    """

    name: str
    numbers: tuple[int, ...]

    @property
    def notation(self) -> str:
        """The edit as text."""
        listed = ",".join(map(str, self.numbers))
        return f"{self.name}:{listed if self.name == 'permute' else ranges(self.numbers)}"


@dataclass(frozen=True)
class EditSpec:
    """Edits with all that their outcome depends on.

    Attributes:
        edits: one after the other.
        blocks: L, of the model before.
        seed: draws weights.
        weight_init: how.
    """

    edits: tuple[Edit, ...]
    blocks: int
    seed: int = 0
    weight_init: WeightInit = WeightInit()  # noqa: RUF009  (frozen)

    def as_dict(self) -> dict[str, Any]:
        """Return what the JSON files hold."""
        arrangement = arrange(self.edits, self.blocks)
        return {
            "edits": format_edits(self.edits),
            "blocks": self.blocks,
            "seed": self.seed,
            **asdict(self.weight_init),
            "order": list(arrangement.order),
            "fresh": sorted(arrangement.fresh),
        }

    @property
    def fresh(self) -> frozenset[int]:
        """The blocks, as they are counted afterwards, which were re-initialised."""
        return arrange(self.edits, self.blocks).fresh

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> EditSpec:
        """Read what `as_dict` gave.

        Raises:
            InputError: if an edit is unknown or misspelt.
        """
        weight_init = WeightInit(content["keep_layer_norm"], content["as_released"])
        blocks = check_integer("blocks", content["blocks"], 1)
        seed = check_integer("seed", content["seed"], 0)
        return cls(make_edits(content["edits"]), blocks, seed, weight_init)


@dataclass(frozen=True)
class Arrangement:
    """What edits make of the blocks 1..L.

    Attributes:
        order: the block that stands at each place from 1 on.
        fresh: the places whose blocks are re-initialised.
        permuted: whether blocks changed places.
    """

    order: tuple[int, ...]
    fresh: frozenset[int]
    permuted: bool


def make_edits(written: str | Edit | Sequence[Edit]) -> tuple[Edit, ...]:
    """Read edits from text such as "reinit:9-12" or "skip:3-4 + truncate:8".

    Args:
        written: text, or what this returned; nothing but blanks means none.

    Raises:
        InputError: if an edit is unknown or misspelt.
    """
    if isinstance(written, str):
        return tuple(map(_read, written.split("+"))) if written.strip() else ()
    given = [written] if isinstance(written, Edit) else written
    edits = tuple(edit for edit in given if isinstance(edit, Edit))
    if len(edits) < len(given):
        raise InputError(f"edits must be text such as 'skip:3-4', got {written!r:.60}")
    return edits


def split_edits(written: str) -> tuple[str, str]:
    """Split text such as "reinit:9-12 + top:3" into the edits and the plan, which comes last.

    The plan may be one of embeddings too, "emb+top:3".
    """
    edits, _, plan = written.rpartition("+")
    before, _, last = edits.rpartition("+")
    if last.strip().lower() == EMBEDDINGS:
        edits, plan = before, f"{last.strip()}+{plan.strip()}"
    return edits, plan.strip()


def format_edits(edits: Sequence[Edit]) -> str:
    """Write edits as text that `make_edits` reads."""
    return " + ".join(edit.notation for edit in edits)


def arrange(edits: Sequence[Edit], blocks: int) -> Arrangement:
    """Work out what edits, one after the other, make of a model of L = `blocks` blocks.

    Raises:
        InputError: if an edit reaches beyond the blocks that are there, leaves none, or undoes what
            another one is for.
    """
    standing = list(range(1, blocks + 1))
    fresh: set[int] = set()
    decided: dict[int, str] = {}  # what set the weights of a block, by its first number
    permuted = False
    for edit in edits:
        if edit.name == "permute":
            if permuted:
                raise InputError(
                    f"blocks can be permuted only once, got {format_edits(edits):.80}; give a "
                    "single permute"
                )
            standing = [standing[block - 1] for block in _order_blocks(edit, len(standing))]
            permuted = True
            continue
        if edit.numbers[-1] > len(standing):
            raise InputError(
                f"{edit.notation:.60} must name blocks in 1..{len(standing)}, which are left at "
                f"that point, got {edit.numbers[-1]}"
            )
        named = [standing[number - 1] for number in edit.numbers]
        others = [block for block in standing if block not in named]
        if edit.name in ("reinit", "preserve"):
            drawn, changed = (named, named) if edit.name == "reinit" else (others, standing)
            for at, block in enumerate(standing, start=1):
                if block in decided and block in changed:
                    raise InputError(
                        f"{edit.notation} sets the weights of block {at}, but {decided[block]} "
                        "already sets them; give only one of them"
                    )
            decided |= dict.fromkeys(changed, edit.notation)
            fresh.update(drawn)
            continue
        left = others if edit.name == "skip" else standing[: edit.numbers[0]]
        if removed := decided.keys() & (set(standing) - set(left)):
            raise InputError(
                f"{edit.notation} removes a block whose weights {decided[min(removed)]} sets; "
                "leave out one of them"
            )
        if not left:
            raise InputError(
                f"a model needs a block, but {edit.notation} skips all {blocks}; keep one"
            )
        standing = left
    places = enumerate(standing, start=1)
    return Arrangement(
        tuple(standing), frozenset(at for at, block in places if block in fresh), permuted
    )


def _order_blocks(edit: Edit, blocks: int) -> Sequence[int]:
    """Return the block that comes to each place of a model of so many blocks."""
    if len(edit.numbers) > 1:
        if len(edit.numbers) != blocks:
            raise InputError(
                f"a permutation must name all {blocks} blocks once, got {len(edit.numbers)} "
                f"numbers in {edit.notation:.60}; name each block, or give a seed, as in permute:1"
            )
        return edit.numbers
    import numpy as np  # nothing else of the plans needs it, and `--help` loads the plans

    rng, drawn = np.random.default_rng(edit.numbers[0]), np.arange(1, blocks + 1)
    while blocks > 1 and (np.diff(drawn) == 1).all():  # which would be no change
        drawn = 1 + rng.permutation(blocks)
    return [int(block) for block in drawn]


def _read(written: str) -> Edit:
    text = written.strip().lower()
    name, _, argument = (part.strip() for part in text.partition(":"))
    forms = {form.split(":")[0]: form for form in EDITS}
    if name not in forms:
        raise make_unknown_error("edit", text[:60], EDITS)
    spans: list[tuple[int, int]] | None = None
    if name not in ("truncate", "permute"):
        spans = read_ranges(argument)
    elif re.fullmatch("[0-9]{1,18}", argument):
        return Edit(name, (check_integer(name, int(argument), 0 if name == "permute" else 1),))
    elif name == "permute" and re.fullmatch(r"[0-9]{1,9}(\s*,\s*[0-9]{1,9})+", argument):
        order = tuple(map(int, argument.split(",")))
        if sorted(order) != list(range(1, len(order) + 1)):
            raise InputError(
                "a permutation must name every block from 1 on once, got "
                f"{argument:.60}; for a random order give a seed, as in permute:1"
            )
        return Edit(name, order)
    if spans is None:
        raise InputError(f"{name} must be written {forms[name]}, with numbers; got {text!r:.60}")
    for low, high in spans:
        if not 1 <= low <= high <= 10**6:
            raise InputError(
                "a span of blocks must start at 1 or above and must not end before its start, got "
                f"{low}-{high} in {text!r:.60}"
            )
    return Edit(name, tuple(sorted({b for low, high in spans for b in range(low, high + 1)})))
