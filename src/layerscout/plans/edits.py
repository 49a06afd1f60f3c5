"""Edits: what is done to the blocks of a model before it is tuned or judged.

An edit counts blocks as those before it left them: in "skip:3-4 + truncate:8" the eight blocks
that stay are 1, 2 and 5 to 10.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

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
class Truncate:
    """Remove the blocks above block `head`.

    Attributes:
        head: the last block that stays. Phang et al. 2021, §4.
    """

    head: int

    def __post_init__(self) -> None:
        """Check it."""
        object.__setattr__(self, "head", check_integer("truncate", self.head, 1))

    @property
    def notation(self) -> str:
        """The edit as text."""
        return f"truncate:{self.head}"


@dataclass(frozen=True)
class _BlockEdit:
    """An edit of some blocks, kept sorted."""

    blocks: Collection[int]
    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Sort the blocks and check them."""
        if not _is_list(self.blocks) or not self.blocks:
            raise InputError(
                f"an edit must name blocks by number, got {self.blocks!r:.60}; name some"
            )
        blocks = {check_integer("block", block, 1) for block in self.blocks}
        object.__setattr__(self, "blocks", tuple(sorted(blocks)))

    @property
    def notation(self) -> str:
        """The edit as text."""
        return f"{self.name}:{ranges(self.blocks)}"


class Skip(_BlockEdit):
    """Pass blocks over: each takes what the one before them gave. Phang et al. 2021, §4.1."""

    name = "skip"


class Reinitialize(_BlockEdit):
    """Re-initialise blocks. Tamkin et al. 2020, §2, App. B."""

    name = "reinit"


class Preserve(_BlockEdit):
    """Re-initialise all blocks but these. Tamkin et al. 2020, §4."""

    name = "preserve"


@dataclass(frozen=True)
class Permute:
    """Change the places of the blocks. Tamkin et al. 2020, §5.

    Attributes:
        seed: draws the order; the same for models of as many blocks.
        order: the block that comes to each place, in place of a drawn order.
    """

    seed: int = 0
    order: Sequence[int] | None = None

    def __post_init__(self) -> None:
        """Check the seed and the order."""
        object.__setattr__(self, "seed", check_integer("seed", self.seed, 0, 2**63 - 1))
        if self.order is None:
            return
        order = tuple(check_integer("order", block, 1) for block in self.order)
        if sorted(order) != list(range(1, len(order) + 1)):
            raise InputError(
                "a permutation must name every block from 1 on once, got "
                f"{','.join(map(str, order)):.60}; for a random order give a seed, as in permute:1"
            )
        object.__setattr__(self, "order", order)

    @property
    def notation(self) -> str:
        """The edit as text."""
        if self.order is None:
            return f"permute:{self.seed}"
        return f"permute:{','.join(map(str, self.order))}"

    def on(self, blocks: int) -> tuple[int, ...]:
        """Return the block that comes to each place of a model of so many blocks.

        Raises:
            InputError: if the order is that of another number of blocks.
        """
        if self.order is None:
            import numpy as np  # nothing else of the plans needs it, and `--help` loads the plans

            rng, drawn = np.random.default_rng(self.seed), np.arange(blocks)
            while blocks > 1 and (drawn == np.arange(blocks)).all():  # which would be no change
                drawn = rng.permutation(blocks)
            return tuple(int(block) + 1 for block in drawn)
        if len(self.order) != blocks:
            raise InputError(
                f"a permutation must name all {blocks} blocks once, got {len(self.order)} numbers "
                f"in {self.notation:.60}; name each block, or give a seed, as in permute:1"
            )
        return tuple(self.order)


Edit = Truncate | Skip | Reinitialize | Preserve | Permute


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
        written: text, or edits already; nothing but blanks means none.

    Raises:
        InputError: if an edit is unknown or misspelt.
    """
    if isinstance(written, Edit):
        return (written,)
    if not isinstance(written, str):
        edits = [edit for edit in written if isinstance(edit, Edit)] if _is_list(written) else []
        if not _is_list(written) or len(edits) < len(written):
            raise InputError(
                f"edits must be text such as 'skip:3-4' or a list of edits, got {written!r:.60}"
            )
        return tuple(edits)
    return tuple(map(_read, written.split("+"))) if written.strip() else ()


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
        count, removed, drawn, kept = len(standing), [], [], []
        if isinstance(edit, Truncate | _BlockEdit):
            highest = edit.head if isinstance(edit, Truncate) else max(edit.blocks)
            if highest > count:
                raise InputError(
                    f"{edit.notation:.60} must name blocks in 1..{count}, which are left at that "
                    f"point, got {highest}"
                )
        match edit:
            case Truncate(head):
                removed = standing[head:]
            case Skip(skipped):
                removed = [standing[block - 1] for block in skipped]
            case Reinitialize(named):
                drawn = [standing[block - 1] for block in named]
            case Preserve(named):
                kept = [standing[block - 1] for block in named]
                drawn = [block for block in standing if block not in kept]
            case Permute():
                if permuted:
                    raise InputError(
                        f"blocks can be permuted only once, got {format_edits(edits):.80}; give a "
                        "single permute"
                    )
                standing = [standing[block - 1] for block in edit.on(count)]
                permuted = True
        for block in removed:
            if block in decided:
                raise InputError(
                    f"{edit.notation} removes a block whose weights {decided[block]} sets; leave "
                    "out one of them"
                )
        for at, block in enumerate(standing, start=1):
            if block in decided and block in (*drawn, *kept):
                raise InputError(
                    f"{edit.notation} sets the weights of block {at}, but {decided[block]} already "
                    "sets them; give only one of them"
                )
        standing = [block for block in standing if block not in removed]
        if not standing:
            raise InputError(
                f"a model needs a block, but {edit.notation} skips all {blocks}; keep one"
            )
        fresh.update(drawn)
        decided |= dict.fromkeys((*drawn, *kept), edit.notation)
    places = enumerate(standing, start=1)
    return Arrangement(
        tuple(standing), frozenset(at for at, block in places if block in fresh), permuted
    )


def _is_list(given: Any) -> bool:
    return isinstance(given, Collection) and not isinstance(given, str | bytes)


def _read(written: str) -> Edit:
    text = written.strip().lower()
    name, _, argument = (part.strip() for part in text.partition(":"))
    forms = {form.split(":")[0]: form for form in EDITS}
    if name not in forms:
        raise make_unknown_error("edit", text[:60], EDITS)
    numbers: Any = None
    match name:
        case "truncate" if re.fullmatch("[0-9]{1,9}", argument):
            return Truncate(int(argument))
        case "permute" if re.fullmatch("[0-9]{1,18}", argument):
            return Permute(int(argument))
        case "permute" if re.fullmatch(r"[0-9]{1,9}(\s*,\s*[0-9]{1,9})+", argument):
            return Permute(order=tuple(map(int, argument.split(","))))
        case "skip" | "reinit" | "preserve":
            numbers = read_ranges(argument)
    if numbers is None:
        raise InputError(f"{name} must be written {forms[name]}, with numbers; got {text!r:.60}")
    blocks: list[int] = []
    for low, high in numbers:
        if not 1 <= low <= high <= 10**6:
            raise InputError(
                "a span of blocks must start at 1 or above and must not end before its start, got "
                f"{low}-{high} in {text!r:.60}"
            )
        blocks += range(low, high + 1)
    kinds = {kind.name: kind for kind in (Skip, Reinitialize, Preserve)}
    return kinds[name](blocks)
