"""The strategies worth a look for a model, with what each costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from layerscout.plans.auto import choose_head_state, find_nearest, is_possible, price_plans
from layerscout.plans.costs import Cost, Work, cost, full_cost
from layerscout.plans.methods import FULL, Full, Method, apply_method, check_untied
from layerscout.plans.plan import ModelShape, Plan
from layerscout.plans.strategies import make_plan


@dataclass(frozen=True)
class ListedStrategy:
    """A strategy with its cost.

    Attributes:
        strategy: as `make_plan` reads it.
        plan: what it stands for.
        cost: of the plan.
        relative: training FLOPs over those of full fine-tuning.
        efficient: whether `choose` takes this plan when the budget is just its cost.
        state: the state it is built on: ℓ*, the middle one, or where the head reads.
    """

    strategy: str
    plan: Plan
    cost: Cost
    relative: float
    efficient: bool
    state: int


def list_strategies(
    shape: ModelShape,
    work: Work,
    best: int | None,
    ranking: Sequence[float | None] | None = None,
    extra: Iterable[str] = (),
    method: Method = FULL,
    named: int | None = None,
) -> list[ListedStrategy]:
    """List the strategies worth a look for a model, the dearest first and equal plans once.

    Plans that tune shared weights in some blocks only are left out, and so are those that tune no
    block where the method is for blocks.

    Args:
        shape: the model.
        work: the data and the epochs.
        best: ℓ*, or None.
        ranking: a block score's values, as `make_plan` takes them.
        extra: strategies to list besides, tied weights or not.
        method: how the blocks are tuned.
        named: the state that `choose` is given; ℓ* unless it is another.

    Raises:
        InputError: if the method needs blocks that share no weights, or does nothing with a
            strategy that is requested.
    """
    check_untied(shape.family, shape.weights, method)
    shares, state = (
        price_plans(shape, work, method),
        named or best or choose_head_state(shape.blocks),
    )
    full = full_cost(shape, work).train
    ranked = sum(value is not None for value in ranking or ())

    def make(strategy: str) -> Plan:
        plan = make_plan(strategy, shape.blocks, best=best, ranking=ranking)
        return apply_method(plan, method, shape.blocks)

    listed: dict[Plan, ListedStrategy] = {}
    for strategy in (*_worth_listing(shape.blocks, best, ranked), *extra):
        plan = make(strategy)
        idle = not plan.tuned and not isinstance(method, Full)
        if plan in listed or (strategy not in extra and (idle or not is_possible(plan, shape))):
            continue
        counted = cost(plan, shape, work, method)
        relative = counted.train / full
        efficient = find_nearest(shares, state, relative) == plan
        built_on = {"best": best, "middle": shape.blocks // 2 + 1}.get(strategy.split("-")[0])
        listed[plan] = ListedStrategy(
            strategy, plan, counted, relative, efficient, built_on or plan.head
        )
    return sorted(listed.values(), key=lambda option: -option.relative)


def _worth_listing(blocks: int, best: int | None, ranked: int) -> Iterator[str]:
    """Name strategies, with so many blocks ranked; the first name of a plan is what is shown."""
    yield "full"
    few = range(1, min(3, blocks) + 1)
    if best is not None and best < blocks:
        yield "best-up"
        yield from (f"best-up:{k}@{place}" for k in few for place in ("top", "head"))
    yield from (f"top:{k}" for k in few)
    if best is not None:
        counts = (*few[:best], "all")
        yield from (f"best-down:{k}@{place}" for k in counts for place in ("top", "best"))
        yield f"head:{best}"
    yield from (f"middle-down:{k}@{place}" for k in few for place in ("top", "middle"))
    yield from (f"rank:{k}" for k in few[:ranked])
    yield f"head:{blocks}"
