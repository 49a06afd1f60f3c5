"""The rule of `auto`: where the head belongs, the plan chosen under a budget, and the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from layerscout.errors import InputError
from layerscout.plans.costs import Cost, Work, cost, full_cost
from layerscout.plans.methods import FULL, Full, Method, apply_method, check_untied
from layerscout.plans.options import BUDGET
from layerscout.plans.plan import Choice, ModelShape, Plan, check_tied
from layerscout.plans.strategies import make_plan


@dataclass(frozen=True)
class HeadSuggestion:
    """A state that a head should read, and why."""

    state: int
    reason: str


# Of the blocks of a model, those from the top that few rows train with a contrastive loss: on
# average ahead of two blocks below two thirds of the depth, see docs/measured/board.md.
FEW_SHARE = 2 / 3
# Training FLOPs allowed, as a share of those of full fine-tuning, with many rows and with few.
USUAL_BUDGET, FEW_BUDGET = 0.5, 1.0


def choose_head_state(blocks: int, best: int | None = None, tied: Iterable[int] = ()) -> int:
    """Return the state that a head should read: at two thirds of the depth, or above.

    It is the one nearest to two thirds (the upper one of two), unless a state above it is better
    beyond noise. A better state below it does not count: the fewer blocks are below the head, the
    fewer there are to tune. From random heads, rules that put the head further down lost more
    points than two thirds did, and no score lost fewer; see docs/measured/advice.md.

    Args:
        blocks: of the model.
        best: the state that a score calls best.
        tied: states that cannot be told apart from that one.
    """
    middle = min(range(1, blocks + 1), key=lambda state: (abs(3 * state - 2 * blocks), -state))
    if best is None or best <= middle:
        return middle
    return min(state for state in (best, *tied) if state >= middle)


def suggest_default_head(blocks: int, reason: str) -> HeadSuggestion:
    """Name a state where no examples say which."""
    state = choose_head_state(blocks)
    return HeadSuggestion(state, f"{reason}: state {state} is at two thirds of the depth")


def suggest_upper_head(blocks: int) -> HeadSuggestion:
    """Name the state that a head should read where rows are few; see `choose`."""
    return HeadSuggestion(blocks, f"state {blocks}: with few examples the upper blocks train best")


def choose(
    shape: ModelShape,
    work: Work,
    named: HeadSuggestion,
    budget: float | None = None,
    method: Method = FULL,
    few: bool = False,
) -> Choice:
    """Choose a plan by the rule of `auto`.

    Of all plans that train within the budget it is one whose head is nearest to the named state,
    and of those the one that tunes the most blocks below the head, or none. This is how every
    adviser was judged in docs/measured/advice.md. Plans that tune shared weights in some blocks
    only are passed over. With few rows no more than `FEW_SHARE` of the blocks are tuned.

    Args:
        shape: the model.
        work: the data and the epochs.
        named: the state that the head should read; see `suggest_upper_head` for few rows.
        budget: training FLOPs allowed, as a share of those of full fine-tuning; see `usual_budget`.
        method: how the blocks are tuned; the share is always of full fine-tuning with all weights.
        few: rows are so few that the loss contrasts their classes; see `choose_stage_loss`.

    Raises:
        InputError: if the budget is not in (0, 1], nothing fits into it, or the method needs blocks
            that share no weights.
    """
    budget = usual_budget(few) if budget is None else BUDGET("budget", budget)
    check_untied(shape.family, shape.weights, method)
    shares = price_plans(shape, work, method)
    plan = find_nearest(shares, named.state, budget, few)
    if plan is None:
        least = ceil(1000 * min(shares.values())) / 1000
        other = "" if isinstance(method, Full) else f" with {method.name}"
        raise InputError(
            f"no plan that auto considers fits a budget of {budget:g}; the cheapest needs "
            f"{least:g}{other}"
            + (f", and head:{named.state} tunes no block at all (--method full)" if other else "")
            + ("; --untie allows more plans" if _is_tied(shape) else "")
        )
    place = f"(budget {_percent(budget)})"
    if plan.head != named.state:
        place = f"(no head nearer to state {named.state} fits the budget, {_percent(budget)})"
    share = f"{plan.notation} needs {_percent(shares[plan])} of full fine-tuning"
    return Choice(plan, plan.notation, f"{named.reason}; {share} {place}")


def price_plans(shape: ModelShape, work: Work, method: Method) -> dict[Plan, float]:
    """Return what "auto" may choose, with prices: the k blocks below a head, for every k and head.

    A head alone is possible where it is not all that is left by a method for blocks, or by weights
    that blocks share.

    Returns:
        Training FLOPs as a share of full fine-tuning's, by plan.
    """
    fewest = 0 if isinstance(method, Full) and not _is_tied(shape) else 1
    plans = [
        apply_method(Plan(tuple(range(head - k + 1, head + 1)), head), method, shape.blocks)
        for head in range(1, shape.blocks + 1)
        for k in range(fewest, head + 1)
    ]
    full = full_cost(shape, work).train
    return {
        plan: cost(plan, shape, work, method).train / full
        for plan in plans
        if is_possible(plan, shape)
    }


def usual_budget(few: bool) -> float:
    """Return the budget where none is given; for `few` see `choose`."""
    return FEW_BUDGET if few else USUAL_BUDGET


def find_nearest(
    shares: Mapping[Plan, float], state: int, budget: float, few: bool = False
) -> Plan | None:
    """Return the widest plan in a budget whose head is nearest to a state; None if none.

    For `few` see `choose`.
    """
    fitting = [plan for plan, share in shares.items() if share <= budget]
    if few:
        most = round(FEW_SHARE * max(plan.head for plan in shares))
        fitting = [plan for plan in fitting if 0 < len(plan.tuned) <= most] or fitting

    def distance(plan: Plan) -> tuple[int, int, int]:
        return abs(plan.head - state), plan.head, -len(plan.tuned)

    return min(fitting, key=distance, default=None)


def is_possible(plan: Plan, shape: ModelShape) -> bool:
    """Return whether a plan treats blocks that share weights alike; see `check_tied`."""
    try:
        check_tied(plan, shape.weights)
    except InputError:
        return False
    return True


def _is_tied(shape: ModelShape) -> bool:
    return len(set(shape.weights)) < len(shape.weights)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


# --- The list of strategies -----------------------------------------------------------------------


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
    few: bool = False,
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
        few: as for `choose`.

    Raises:
        InputError: if the method needs blocks that share no weights, or does nothing with a
            strategy that is requested.
    """
    check_untied(shape.family, shape.weights, method)
    shares = price_plans(shape, work, method)
    state = named or best or choose_head_state(shape.blocks)
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
        efficient = find_nearest(shares, state, relative, few) == plan
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
