"""Plans: which blocks are tuned and where the head reads; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from numbers import Integral
from typing import Any

from layerscout.errors import InputError, check_integer

# Stands before any of these but auto, such as "emb+rank:3": tune the embeddings too.
EMBEDDINGS = "emb"


@dataclass(frozen=True)
class Parameters:
    """Parameter counts of a model with a classification head.

    Attributes:
        embeddings: what lies in neither block nor head (relative-position tables, projections and
            embedding norms too).
        blocks: each block, 1..L (ModernBERT's first one has a norm less than the others).
        head: everything after the last state.
        total: the whole model; weights that blocks share, as in ALBERT, count once.
    """

    embeddings: int
    blocks: tuple[int, ...]
    head: int
    total: int


@dataclass(frozen=True)
class ModelShape:
    """The sizes of an encoder, as its configuration has them.

    Attributes:
        queries: features of all queries of a token together.
        keys: features of all its keys together; fewer where heads share them.
        gated: the feed-forward layers have a third matrix, which gates.
        fused: query, key and value are one matrix.
        first_normed: the first block that norms what its attention is given; None for none.
        weights: which set of weights each block 1..L uses; they differ but in ALBERT.
        norms: the parameters of the norms of each block.
        linear: the features that go into and come out of all linear layers of each block.
    """

    family: str
    blocks: int
    hidden_size: int
    feed_forward: int
    vocabulary: int
    parameters: Parameters
    queries: int
    keys: int
    gated: bool
    fused: bool
    first_normed: int | None
    weights: tuple[int, ...]
    norms: tuple[int, ...]
    linear: tuple[int, ...]

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> ModelShape:
        """Read what `dataclasses.asdict` and JSON made of a shape; further entries are ignored.

        Raises:
            InputError: if an entry is missing or out of range, or the entries do not fit each
                other.
        """
        try:
            counts = {**written["parameters"], "blocks": tuple(written["parameters"]["blocks"])}
            entries = {field.name: written[field.name] for field in fields(cls)}
            entries |= {name: tuple(written[name]) for name in ("weights", "norms", "linear")}
            shape = cls(**entries | {"parameters": Parameters(**counts)})
        except KeyError as error:
            raise InputError(f"the model of this scan lacks {error}; scan again") from error
        except TypeError as error:
            raise InputError(
                "the model of this scan has broken counts of parameters; scan again"
            ) from error
        for name in ("blocks", "hidden_size", "feed_forward", "vocabulary", "queries", "keys"):
            check_integer(name, entries[name], 1, remedy="scan again")
        by_block = (shape.parameters.blocks, shape.weights, shape.norms, shape.linear)
        for count in (*counts.pop("blocks"), *counts.values(), *chain(*by_block[1:])):
            check_integer("parameters", count, 0, remedy="scan again")
        if any(len(each) != shape.blocks for each in by_block):
            raise InputError(
                f"the model of this scan has {shape.blocks} blocks, but counts of "
                f"{len(shape.parameters.blocks)}; scan again"
            )
        return shape


@dataclass(frozen=True)
class Plan:
    """Tune the blocks `tuned` and the head, which reads state `head`; the rest is frozen.

    Blocks above `head` do not exist any more.

    Attributes:
        tuned: block numbers in 1..`head`, in any order; kept sorted. None of them: head only.
        head: the state that the head reads.
        embeddings: whether the embeddings are tuned too. None stands for what blocks and head say:
            they are in (1, L, L), full fine-tuning, and in nothing else.

    Raises:
        InputError: if a tuned block is not in 1..`head`, or `head` is below 1.
    """

    tuned: Collection[int]
    head: int
    embeddings: bool | None = None

    def __post_init__(self) -> None:
        """Sort the blocks and check them."""
        listed = isinstance(self.tuned, Collection) and not isinstance(self.tuned, str | bytes)
        numbers = [*self.tuned, self.head] if listed else [None]
        if not all(isinstance(n, Integral) and not isinstance(n, bool) for n in numbers):
            raise InputError(
                "a plan's blocks and head must be whole numbers, got "
                f"tuned={self.tuned!r:.60}, head={self.head!r:.60}"
            )
        if not isinstance(self.embeddings, bool | None):
            raise InputError(f"`embeddings` must be true or false, got {self.embeddings!r:.60}")
        tuned, head = sorted({int(block) for block in self.tuned}), int(self.head)
        object.__setattr__(self, "tuned", tuple(tuned))
        object.__setattr__(self, "head", head)
        if self.embeddings is None and len(tuned) < head:
            object.__setattr__(self, "embeddings", False)
        if head < 1:
            raise InputError(f"`head` must be at least 1, got {head}")
        if tuned and not 1 <= tuned[0] <= tuned[-1] <= head:
            outside = ranges([block for block in tuned if not 1 <= block <= head])
            raise make_outside_error(f"{outside:.60}", tuned[-1], head)

    def on(self, blocks: int) -> Plan:
        """Return the plan for a model of L = `blocks` blocks: checked, with `embeddings` settled.

        Plans that mean the same on that model are equal then. One of blocks 1 to a head below L
        stays as it is: the embeddings are not in it, whatever the depth.

        Raises:
            InputError: if the head is above the model's blocks.
        """
        if self.head > blocks:
            raise InputError(
                f"`head` must be in 1..{blocks}, the model's blocks, got {self.head}; use "
                f"{blocks} for the top one"
            )
        if len(self.tuned) < self.head or self.embeddings:
            return self
        if self.head < blocks:
            return self if self.embeddings is None else replace(self, embeddings=None)
        return self if self.embeddings is False else replace(self, embeddings=True)

    def tunes_all(self, blocks: int) -> bool:
        """Whether it is full fine-tuning of an encoder of L = `blocks` blocks."""
        return self.head == len(self.tuned) == blocks and bool(self.on(blocks).embeddings)

    @property
    def cut(self) -> int | None:
        """The highest state that training leaves as it is; None if the embeddings are tuned."""
        if self.embeddings:
            return None
        return min(self.tuned) - 1 if self.tuned else self.head

    @property
    def notation(self) -> str:
        """The plan as text that `make_plan` reads: "(12, 14, 24)", "head:8", "blocks:3,7-9@12".

        "emb+" stands before it where the embeddings are tuned though some blocks are not.
        """
        tuned = tuple(self.tuned)
        before = f"{EMBEDDINGS}+" if self.embeddings and len(tuned) < self.head else ""
        if not tuned:
            return f"{before}head:{self.head}"
        if tuned[-1] - tuned[0] + 1 == len(tuned):
            return f"{before}({tuned[0]}, {tuned[-1]}, {self.head})"
        return f"{before}blocks:{ranges(tuned)}@{self.head}"

    def _repr_svg_(self) -> str:
        """Draw the blocks up to the head for notebooks, those that are tuned in colour."""
        side, gap = 24, 28
        cells = "".join(
            f'<rect x="{gap * (block - 1) + 1}" y="1" width="{side}" height="{side}" rx="3" '
            f'stroke="#5b6470" fill="{"#e0701a" if block in self.tuned else "#ffffff"}"/>'
            f'<text x="{gap * (block - 1) + 13}" y="18" text-anchor="middle">{block}</text>'
            for block in range(1, self.head + 1)
        )
        end = gap * self.head + 2
        note = "head; blocks in colour are tuned" if self.tuned else "head"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{end + 240}" height="28" role="img" '
            f'font-family="sans-serif" font-size="13" aria-label="{self.notation}">'
            f'<rect width="100%" height="100%" fill="#ffffff"/>{cells}'
            f'<text x="{end}" y="18">{note}</text></svg>'
        )

    def as_dict(self) -> dict[str, Any]:
        """Return `tuned`, `head` and `notation`, as the JSON files hold them.

        And `embeddings`, where they are tuned though some blocks are not.
        """
        content = {"tuned": list(self.tuned), "head": self.head, "notation": self.notation}
        named = self.embeddings and len(self.tuned) < self.head
        return content | ({"embeddings": True} if named else {})

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Plan:
        """Read what `as_dict` gave.

        Raises:
            InputError: if it is not a plan, or the notation is that of another one.
        """
        plan = cls(content["tuned"], content["head"], content.get("embeddings"))
        if content.get("notation", plan.notation) != plan.notation:
            raise InputError(
                f"`notation` must match the blocks and the head, {plan.notation:.60}, got "
                f"{content['notation']!r:.60}; leave it out"
            )
        return plan


@dataclass(frozen=True)
class Choice:
    """What was chosen: a plan, the strategy it comes from, and why."""

    plan: Plan
    strategy: str
    reason: str


def check_embeddings(plan: Plan, blocks: int) -> None:
    """Raise for a plan of embeddings whose notation would be that of one without them.

    Raises:
        InputError: if it tunes all of the model but the blocks above the head.
    """
    if plan.embeddings and len(plan.tuned) == plan.head < blocks:
        raise InputError(
            "tuning the embeddings and every block up to the head is full fine-tuning of a shorter "
            f"model; write truncate:{plan.head} + full instead of {EMBEDDINGS}+{plan.notation}"
        )


def check_tied(plan: Plan, weights: Sequence[int]) -> None:
    """Raise unless the plan treats blocks that share weights, as ALBERT's do, alike.

    They must be all tuned or all frozen. And a model cut at the head must find the weights of each
    block again: ALBERT spreads its G groups evenly over n blocks, block i taking group
    ⌊(i − 1) G / n⌋, so the groups that are left must lie evenly in what is left.

    Args:
        plan: of a model of L blocks.
        weights: the set of weights that each block 1..L uses.

    Raises:
        InputError: otherwise; copying the weights ("untie") solves that.
    """
    blocks, weights = len(weights), tuple(weights[: plan.head])
    remedy = "copy the shared weights first with --untie (in Python: untie=True)"
    tuned = {weights[block - 1] for block in plan.tuned}
    for block, group in enumerate(weights, start=1):
        if group in tuned and block not in plan.tuned:
            shared = next(b for b in plan.tuned if weights[b - 1] == group)
            raise InputError(
                f"blocks that share their weights must be tuned together, got {plan.notation}, "
                f"which tunes block {shared} and freezes block {block}; {remedy}"
            )
    groups, head = len(set(weights)), plan.head
    if weights != weight_sets(head, groups):
        raise InputError(
            "a model whose blocks share weights can be cut only where the shorter model would "
            f"share them in the same way, got a head at {head} of {blocks} blocks; {remedy}"
        )


def weight_sets(blocks: int, groups: int) -> tuple[int, ...]:
    """Return the set of weights, from 0, that each of ALBERT's blocks uses: a few sets serve all.

    The expression is that of ALBERT's forward pass, whose rounding it shares.
    """
    return tuple(int(block / (blocks / groups)) for block in range(blocks))


def find_runs(numbers: Collection[int]) -> list[tuple[int, int]]:
    """Find the first and the last of sorted numbers that follow each other."""
    known = frozenset(numbers)
    starts = [number for number in numbers if number - 1 not in known]
    ends = [number for number in numbers if number + 1 not in known]
    return list(zip(starts, ends, strict=True))


def ranges(blocks: Collection[int]) -> str:
    """Write sorted block numbers as "3,7-9"."""
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in find_runs(blocks))


def make_outside_error(got: str, highest: int, head: int) -> InputError:
    """Build the error for tuned blocks that are not below the head."""
    remedy = f"put the head at {highest} or above" if highest > head else "blocks count from 1"
    return InputError(
        f"tuned blocks must be in 1..{head}, the blocks below the head; got {got}; {remedy}"
    )
