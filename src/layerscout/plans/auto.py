"""The rule of `auto`: the plan that is chosen under a budget of training FLOPs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil

from layerscout.plans.costs import Work, cost, full_cost
from layerscout.plans.methods import FULL, Full, Method, apply_method, check_untied
from layerscout.plans.plan import ModelShape, Plan, check_tied, make_plan
from layerscout.runtime import InputError, check_number


@dataclass(frozen=True)
class Choice:
    """What was chosen: a plan, the strategy it comes from, and why."""

    plan: Plan
    strategy: str
    reason: str


@dataclass(frozen=True)
class Clause:
    """A clause of the rule, with its possible plans by strategy, k descending.

    Attributes:
        shares: the training FLOPs of each plan as a share of full fine-tuning's.
        tied: some plans are not possible, since they separate blocks that share weights.
    """

    name: str
    shares: Mapping[str, float]
    tied: bool

    def refusal(self) -> str:
        """Say why the budget let no plan of this clause through."""
        if self.shares:
            more = " or more" if len(self.shares) > 1 else ""
            return f"{self.name} needs {_percent(min(self.shares.values()))}{more}"
        return f"{self.name} {'needs --untie' if self.tied else 'finds no block above ℓ*'}"


def choose(
    shape: ModelShape,
    work: Work,
    best: int | None,
    budget: float = 0.5,
    method: Method = FULL,
) -> Choice:
    """Choose a plan by the rule of `auto`, which predicts nothing.

    It is the first of best-up, best-down:k@top, best-down:k@best and top:k, with k as large as
    fits, that trains within the budget. The order is that of the results in Xie et al. 2022,
    Table 6. Plans that tune shared weights in some blocks only are passed over.

    Args:
        shape: the model.
        work: the data and the epochs.
        best: ℓ*; None if no state is better than the others, which leaves top:k.
        budget: training FLOPs allowed, as a share of those of full fine-tuning.
        method: how the blocks are tuned; the share is always of full fine-tuning with all weights.

    Raises:
        InputError: if the budget is not in (0, 1], nothing fits into it, or the method needs blocks
            that share no weights.
    """
    budget = check_budget(budget)
    check_untied(shape.family, shape.weights, method)
    clauses = list_clauses(shape, work, best, method)
    strategy = find_first(clauses, budget)
    if strategy is None:
        least = min(share for clause in clauses for share in clause.shares.values())
        other = "" if isinstance(method, Full) else f" with {method.name}"
        raise InputError(
            f"no plan of auto fits into a budget of {budget:g}; the least is "
            f"{ceil(1000 * least) / 1000:g}{other}, and head:{best or shape.blocks} tunes no block "
            f"at all{' (--method full)' if other else ''}"
            + ("; --untie allows more plans" if any(clause.tied for clause in clauses) else "")
        )
    taken = next(i for i, clause in enumerate(clauses) if strategy in clause.shares)
    share = _percent(clauses[taken].shares[strategy])
    reason = [f"{strategy} needs {share} of full fine-tuning (budget {_percent(budget)})"]
    reason += [clause.refusal() for clause in clauses[:taken]]
    if best is None:
        reason.append("there is no ℓ*: no state has a value, or none is told apart from the rest")
    plan = apply_method(make_plan(strategy, shape.blocks, best=best), method, shape.blocks)
    return Choice(plan, strategy, "; ".join(reason))


def check_budget(budget: float) -> float:
    """Give the budget of "auto".

    Raises:
        InputError: if it is not in (0, 1].
    """
    rule = "a share of full fine-tuning's training FLOPs, above 0 and up to 1"
    return check_number("budget", budget, rule, lambda share: 0 < share <= 1, "0.5 is half of them")


def list_clauses(shape: ModelShape, work: Work, best: int | None, method: Method) -> list[Clause]:
    """List the clauses of the rule in their order; see `choose`."""
    L = shape.blocks
    strategies = {"top:k": [f"top:{k}" for k in range(L, 0, -1)]}
    if best is not None:
        down = [f"best-down:{k}@" for k in range(best, 0, -1)]
        strategies = {
            "best-up": ["best-up"] if best < L else [],
            "best-down:k@top": [f"{strategy}top" for strategy in down],
            "best-down:k@best": [f"{strategy}best" for strategy in down],
        } | strategies
    full = full_cost(shape, work).train
    clauses = []
    for name, listed in strategies.items():
        plans = {strategy: make_plan(strategy, L, best=best) for strategy in listed}
        shares = {
            strategy: cost(plan, shape, work, method).train / full
            for strategy, plan in plans.items()
            if is_possible(plan, shape)
        }
        clauses.append(Clause(name, shares, tied=len(shares) < len(plans)))
    return clauses


def find_first(clauses: Iterable[Clause], budget: float) -> str | None:
    """Give the first strategy of the clauses that fits into a budget; None if there is none."""
    fitting = (s for clause in clauses for s, share in clause.shares.items() if share <= budget)
    return next(fitting, None)


def is_possible(plan: Plan, shape: ModelShape) -> bool:
    """Tell whether a plan treats blocks that share weights alike; see `check_tied`."""
    try:
        check_tied(plan, shape.weights)
    except InputError:
        return False
    return True


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
