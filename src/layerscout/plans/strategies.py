"""Strategies: plans as users write them, from "top:2" to "best-down:3@top" and "(7, 9, 12)"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from layerscout.errors import InputError, make_unknown_error
from layerscout.plans.plan import EMBEDDINGS, Plan, check_embeddings, make_outside_error

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
    "head:best": "only the head, at the best state",
    "blocks:3,7-9@12": "exactly these blocks, head at state 12",
    "(b, t, h)": "blocks b to t, head at state h",
    "auto": "within the budget: the head nearest to its best place, and the blocks below it",
}

# Tuning finds its state by itself: the one whose head is best on examples left out.
BEST_HEAD = "head:best"

# No model has 10⁹ blocks, and Python refuses to read numbers of thousands of digits.
_NUMBER = "[0-9]{1,9}"
_TRIPLE = re.compile(rf"(\()?\s*({_NUMBER})\s*,\s*({_NUMBER})\s*,\s*({_NUMBER})\s*(?(1)\)|)")
_RANGE = rf"{_NUMBER}(?:\s*-\s*{_NUMBER})?"
_RANGES = re.compile(rf"{_RANGE}(?:\s*,\s*{_RANGE})*")
_BLOCKS = re.compile(rf"blocks:\s*({_RANGES.pattern})\s*@\s*({_NUMBER})")
_NAMED = re.compile(rf"([a-z-]+)(?::({_NUMBER}|all))?(?:@([a-z]+))?")


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
    if text == BEST_HEAD:
        raise InputError(
            f"{BEST_HEAD} is found by tune, which solves a head on every state; use head:{blocks} "
            "for the top one"
        )
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
        case "top" | "rank" | "rank-bottom", str(), None if k and k > blocks:
            raise InputError(
                f"k must be in 1..{blocks}, the model's blocks, got {text}; use full for all"
            )
        case "full", None, None:
            return _plan([(1, blocks)], blocks, blocks)
        case "top", str(), None if k:
            return _plan([(blocks - k + 1, blocks)], blocks, blocks)
        case "head", str(), None if k:
            return _plan([], k, blocks)
        case "best-down", str(), "top" | "best":
            return _plan_down(_require_best(best, blocks, text), k, place, blocks)
        case "middle-down", str(), "top" | "middle":
            return _plan_down(blocks // 2 + 1, k, place, blocks)
        case ("best-up", None, None) | ("best-up", str(), "head" | "top") if k or not count:
            return _plan_up(_require_best(best, blocks, text), k, place, blocks)
        case "rank" | "rank-bottom", str(), None if k:
            return _plan_by_rank(ranking, k, text, blocks)
    raise _misspelt(text)


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
            raise make_outside_error(f"{low} to {high}", high, head)
    spelt = (block for low, high in tuned for block in range(low, high + 1))
    return replace(plan, tuned=tuple(spelt), embeddings=None).on(blocks)


def _plan_down(start: int, k: int | None, place: str, blocks: int) -> Plan:
    low = max(1, start - k + 1) if k else 1
    return _plan([(low, start)], blocks if place == "top" else start, blocks)


def _plan_up(best: int, k: int | None, place: str | None, blocks: int) -> Plan:
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
            "auto compares costs, so it needs the model and the data; use layerscout plan or tune "
            "(in Python: scan.plan() or layerscout.tune)"
        )
    forms = [form for form in STRATEGIES if re.split("[:@]", form)[0] == name]
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    if not forms:
        return make_unknown_error("strategy", shown, STRATEGIES)
    return InputError(
        f"{name} is written {' or '.join(forms)}, where k and ℓ are numbers; got {shown!r}"
    )
