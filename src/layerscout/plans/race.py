"""The plans of a race: what is tried for an epoch under a budget, which holds the trying too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from layerscout.plans.auto import Named, choose, is_possible, name_state
from layerscout.plans.costs import Work, cost, full_cost
from layerscout.plans.methods import Method, apply_method
from layerscout.plans.plan import ModelShape, Plan

# Plans that are tried. Each one takes an epoch from the budget, so from the width of all.
MOST = 3

# Epochs after which the race is decided.
TRIED = 1


def list_candidates(
    shape: ModelShape,
    work: Work,
    named: Named,
    budget: float,
    method: Method,
    spent: float = 0.0,
) -> list[Plan]:
    """List what a race tries: the same number of blocks below heads at several states.

    The first head reads the named state, the others the top, two thirds and half of the depth. What
    has to fit is every plan for an epoch, and the dearest of them to its end. Plans are as wide as
    fits. If that is less than half of what `choose` would tune, fewer are tried, but never one.

    Args:
        shape: the model.
        work: the data and the epochs.
        named: the state that the head should read.
        budget: training FLOPs allowed, as a share of those of full fine-tuning.
        method: how the blocks are tuned.
        spent: what the scan took of the budget.

    Returns:
        The plans, the one that is named first; none if no two fit.
    """
    states = (named.state, shape.blocks, name_state(shape.blocks), max(1, shape.blocks // 2))
    heads = list(dict.fromkeys(states))[:MOST]
    limit = (budget - spent) * full_cost(shape, work).train
    alone = len(choose(shape, work, named, budget, method, spent).plan.tuned)
    for count in range(len(heads), 1, -1):
        for plans in _widen(shape, heads[:count], method):
            if price_race(plans, shape, work, method) > limit:
                continue
            if count == 2 or 2 * len(plans[0].tuned) >= alone:
                return plans
            break
    return []


def price_race(
    plans: Sequence[Plan], shape: ModelShape, work: Work, method: Method, won: Plan | None = None
) -> float:
    """Give the training FLOPs of a race: every plan for `TRIED` epochs, and one to its end.

    Args:
        plans: that are tried.
        shape: the model.
        work: the data and all epochs.
        method: how the blocks are tuned.
        won: the one that is finished; the dearest unless it is given.
    """
    tried = replace(work, epochs=TRIED)
    first = {plan: cost(plan, shape, tried, method).train for plan in plans}
    rest = {plan: cost(plan, shape, work, method).train - first[plan] for plan in plans}
    return sum(first.values()) + (max(rest.values()) if won is None else rest[won])


def _widen(shape: ModelShape, heads: Sequence[int], method: Method) -> Iterator[list[Plan]]:
    """Give possible plans with these heads, the widest first."""
    for k in range(shape.blocks, 0, -1):
        plans = [
            apply_method(Plan(tuple(range(max(1, h - k + 1), h + 1)), h), method, shape.blocks)
            for h in heads
        ]
        if all(is_possible(plan, shape) for plan in plans):
            yield plans
