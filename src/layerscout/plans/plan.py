"""Plans: which blocks are tuned and where the head reads; nothing here imports torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from math import isfinite
from numbers import Integral
from typing import Any

from layerscout.errors import InputError, check_integer, make_unknown_error

STRATEGIES: Mapping[str, str] = {
    "full": "every block and the embeddings, head at the top: ordinary fine-tuning",
    "top:k": "the k top blocks, head at the top",
    "best-down:k@top": "k blocks from ℓ* down, head at the top",
    "best-down:k@best": "k blocks from ℓ* down, head at ℓ*",
    "best-down:all@top": "blocks 1 to ℓ*, head at the top",
    "best-down:all@best": "blocks 1 to ℓ*, head at ℓ*",
    "best-up": "every block above ℓ*, head at the top",
    "best-up:k@head": "k blocks above ℓ*, head on the highest of them",
    "best-up:k@top": "k blocks above ℓ*, head at the top",
    "middle-down:k@top": "k blocks from the middle one down, head at the top",
    "middle-down:k@middle": "k blocks from the middle one down, head at the middle one",
    "rank:k": "the k best blocks by a block score, head at the top",
    "rank-bottom:k": "the k worst blocks by a block score, head at the top",
    "head:ℓ": "only the head, at state ℓ",
    "blocks:3,7-9@12": "exactly these blocks, head at state 12",
    "(b, t, h)": "blocks b to t, head at state h",
    "auto": "within the budget: the head nearest to its best place, and the blocks below it",
}

# Stands before any of these but auto, such as "emb+rank:3": tune the embeddings too.
EMBEDDINGS = "emb"

# No model has 10⁹ blocks, and Python refuses to read numbers of thousands of digits.
_NUMBER = "[0-9]{1,9}"
_TRIPLE = re.compile(rf"(\()?\s*({_NUMBER})\s*,\s*({_NUMBER})\s*,\s*({_NUMBER})\s*(?(1)\)|)")
_RANGE = rf"{_NUMBER}(?:\s*-\s*{_NUMBER})?"
_RANGES = re.compile(rf"{_RANGE}(?:\s*,\s*{_RANGE})*")
_BLOCKS = re.compile(rf"blocks:\s*({_RANGES.pattern})\s*@\s*({_NUMBER})")
_NAMED = re.compile(rf"([a-z-]+)(?::({_NUMBER}|all))?(?:@([a-z]+))?")


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
            raise _outside(f"{outside:.60}", tuned[-1], head)

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
        runs = list(_runs(self.tuned))
        some = self.embeddings and len(self.tuned) < self.head
        before = f"{EMBEDDINGS}+" if some else ""
        if not runs:
            return f"{before}head:{self.head}"
        if len(runs) == 1:
            return f"{before}({runs[0][0]}, {runs[0][1]}, {self.head})"
        return f"{before}blocks:{ranges(self.tuned)}@{self.head}"

    def as_dict(self) -> dict[str, Any]:
        """Return `tuned`, `head` and `notation`, as the JSON files hold them.

        And `embeddings`, where they are tuned though some blocks are not.
        """
        content = {"tuned": list(self.tuned), "head": self.head, "notation": self.notation}
        return content | ({"embeddings": True} if split_embeddings(self.notation)[0] else {})

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


def require_text(plan: Any) -> str:
    """Return a plan that is text.

    Raises:
        InputError: if it is anything else.
    """
    if not isinstance(plan, str):
        raise InputError(
            f"a plan must be a Plan, or text such as 'top:2' or '(7, 9, 12)', got {plan!r:.60}"
        )
    return plan


def split_embeddings(written: str) -> tuple[bool, str]:
    """Return whether "emb+" stands before a plan that is text, and give what is left of it."""
    first, _, plan = written.partition("+")
    named = first.strip().lower() == EMBEDDINGS
    return named, plan.strip() if named else written


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


def make_plan(
    strategy: str,
    blocks: int,
    *,
    best: int | None = None,
    ranking: Sequence[float | None] | None = None,
) -> Plan:
    """Turn a strategy or a notation into the plan for a model of L = `blocks` blocks.

    How far a plan reaches down from ℓ* or up from it is clamped to the model; what the user says
    outright is not. The strategies are those of Xie et al. 2022, §3.2, and of `STRATEGIES`.

    Args:
        strategy: one of `STRATEGIES` but "auto", such as "best-down:3@top", or what
            `Plan.notation` gives; with "emb+" before it the embeddings are tuned too.
        blocks: L.
        best: ℓ*, the best state by a score; None if there is none.
        ranking: a block score's values, entry ℓ block ℓ and entry 0 None; higher is better.

    Raises:
        InputError: if the strategy is unknown, does not fit the model, or needs a best state or a
            ranking that is not given.
    """
    text = require_text(strategy).strip().lower()
    embeddings, text = split_embeddings(text)
    if embeddings:
        plan = make_plan(text, blocks, best=best, ranking=ranking)
        plan = replace(plan, embeddings=True)
        check_embeddings(plan, blocks)
        return plan
    if triple := _TRIPLE.fullmatch(text):
        bottom, top, head = map(int, triple.groups()[1:])
        return _plan([(bottom, top)], head, blocks)
    if listed := _BLOCKS.fullmatch(text):
        return _plan(read_ranges(listed[1]) or [], int(listed[2]), blocks)
    named = _NAMED.fullmatch(text)
    if not named:
        raise _misspelt(text)
    name, count, place = named.groups()
    k = int(count) if count and count != "all" else None
    if k == 0:
        raise InputError(
            f"strategies count from 1, got {text!r}; use head:{blocks} to tune only the head"
        )
    match name, count, place:
        case "full", None, None:
            return _plan([(1, blocks)], blocks, blocks)
        case "top", str(), None if k:
            _check_count(k, blocks, text)
            return _plan([(blocks - k + 1, blocks)], blocks, blocks)
        case "head", str(), None if k:
            return _plan([], k, blocks)
        case "best-down", str(), "top" | "best":
            return _plan_down(_require_best(best, blocks, text), k, place, blocks)
        case "middle-down", str(), "top" | "middle":
            return _plan_down(blocks // 2 + 1, k, place, blocks)
        case ("best-up", None, None) | ("best-up", str(), "head" | "top") if k or not count:
            return _up(_require_best(best, blocks, text), k, place, blocks)
        case "rank" | "rank-bottom", str(), None if k:
            _check_count(k, blocks, text)
            return _plan_by_rank(ranking, k, text, blocks)
    raise _misspelt(text)


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


def ranges(blocks: Collection[int]) -> str:
    """Write sorted block numbers as "3,7-9"."""
    runs = _runs(blocks)
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


def _runs(blocks: Collection[int]) -> Iterator[tuple[int, int]]:
    """Return the first and the last of every run of neighbours; `blocks` are sorted."""
    known = frozenset(blocks)
    starts = [block for block in blocks if block - 1 not in known]
    ends = [block for block in blocks if block + 1 not in known]
    return zip(starts, ends, strict=True)


def read_ranges(written: str) -> list[tuple[int, int]] | None:
    """Read the ends of the ranges of "3,7-9", in their order; None if it is something else."""
    if not _RANGES.fullmatch(written):
        return None
    ends = (part.split("-") for part in written.split(","))
    return [(int(end[0]), int(end[-1])) for end in ends]


def _plan(tuned: Sequence[tuple[int, int]], head: int, blocks: int) -> Plan:
    """Check before anything is spelt out, since a user may write a billion blocks."""
    plan = Plan((), head).on(blocks)
    for low, high in tuned:
        if low > high:
            raise InputError(
                f"tuned blocks must be written from the lowest to the highest, got {low} to "
                f"{high}; swap them"
            )
        if not 1 <= low <= high <= head:
            raise _outside(f"{low} to {high}", high, head)
    spelt = (block for low, high in tuned for block in range(low, high + 1))
    return replace(plan, tuned=tuple(spelt), embeddings=None).on(blocks)


def _outside(got: str, highest: int, head: int) -> InputError:
    remedy = f"put the head at {highest} or above" if highest > head else "blocks count from 1"
    return InputError(
        f"tuned blocks must be in 1..{head}, the blocks below the head; got {got}; {remedy}"
    )


def _plan_down(start: int, k: int | None, place: str, blocks: int) -> Plan:
    low = max(1, start - k + 1) if k else 1
    return _plan([(low, start)], blocks if place == "top" else start, blocks)


def _up(best: int, k: int | None, place: str | None, blocks: int) -> Plan:
    if best == blocks:
        raise InputError(
            f"best-up tunes the blocks above ℓ*, but ℓ* is {best}, the top one; use head:{blocks}"
        )
    high = min(best + k, blocks) if k else blocks
    return _plan([(best + 1, high)], high if place == "head" else blocks, blocks)


def _plan_by_rank(
    ranking: Sequence[float | None] | None, k: int, strategy: str, blocks: int
) -> Plan:
    if ranking is None:
        raise InputError(
            f"{strategy} needs a block score such as fisher, but there is none; use --score fisher "
            "in a scan, or top:k, or name the blocks (blocks:3,7-9@12)"
        )
    sign = 1.0 if strategy.startswith("rank-bottom") else -1.0
    ranked = [(sign * v, i) for i, v in enumerate(ranking) if v is not None and isfinite(v) and i]
    if len(ranking) != blocks + 1 or len(ranked) < k:
        raise InputError(
            f"{strategy} needs a block score with {blocks + 1} entries, {k} of them defined; got "
            f"{len(ranking)} and {len(ranked)}; use top:k"
        )
    return Plan([block for _, block in sorted(ranked)[:k]], blocks).on(blocks)


def _check_count(k: int, blocks: int, strategy: str) -> None:
    if k > blocks:
        raise InputError(
            f"k must be in 1..{blocks}, the model's blocks, got {strategy}; use full for all"
        )


def _require_best(best: int | None, blocks: int, strategy: str) -> int:
    if best is None:
        raise InputError(
            f"{strategy} needs a best state, but the score found none; use --score "
            "variability_ratio, or top:k, which needs none"
        )
    if not 1 <= best <= blocks:
        raise InputError(
            f"the best state must be in 1..{blocks}, got {best}; scan this model again"
        )
    return int(best)


def _misspelt(text: str) -> InputError:
    name = re.split("[:@]", text)[0]
    if name == "auto":
        return InputError(
            "auto compares costs and needs a scan; use layerscout plan (in Python: scan.plan())"
        )
    forms = [form for form in STRATEGIES if re.split("[:@]", form)[0] == name]
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    if not forms:
        return make_unknown_error("strategy", shown, STRATEGIES)
    return InputError(
        f"{name} is written {' or '.join(forms)}, where k and ℓ are numbers; got {shown!r}"
    )
