"""What a plan costs: parameters and FLOPs by counting, and the rule that chooses under a budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

from layerscout.plans.methods import (
    FULL,
    Adapter,
    Full,
    LoRA,
    Method,
    PrefixTuning,
    applied,
    check_tunes_blocks,
    check_untied,
)
from layerscout.plans.plan import ModelShape, Plan, check_tied, make_plan
from layerscout.runtime import InputError, real

# Families whose query, key and value are one matrix; a LoRA of it has one input, not three.
FUSED = ("deberta", "modernbert")


@dataclass(frozen=True)
class Work:
    """What is trained on, and for how long.

    Attributes:
        examples: of the training split.
        validation: examples scored after every epoch.
        tokens: mean length of an example, special tokens included.
        epochs: passes over the training split; the last one may be cut short.
        cached: the states below the tuned blocks are computed once, not in every epoch.

    Raises:
        InputError: if there is nothing to train on.
    """

    examples: int
    validation: int
    tokens: float
    epochs: float
    cached: bool = True

    def __post_init__(self) -> None:
        numbers = self.examples >= 1 and self.validation >= 0 and self.epochs > 0
        if not numbers or not 0 < self.tokens < inf:
            raise InputError(
                "training needs at least 1 example, 1 token in each and some epochs; got "
                f"{self.examples}, {self.tokens:g} and {self.epochs}"
            )


@dataclass(frozen=True)
class Cost:
    """The cost of a plan.

    Attributes:
        train: FLOPs of the whole training, validation after every epoch included.
        inference: FLOPs of one example through the model that the plan leaves.
        trainable: parameters that are trained.
        total: parameters of the model that the plan leaves, with those that the method adds; LoRA's
            are merged in the end.
    """

    train: float
    inference: float
    trainable: int
    total: int


@dataclass(frozen=True)
class Choice:
    """What the rule of `auto` chose: a plan, the strategy it comes from, and why."""

    plan: Plan
    strategy: str
    reason: str


@dataclass(frozen=True)
class Option:
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


def cost(plan: Plan, shape: ModelShape, work: Work, method: Method = FULL) -> Cost:
    """Count what training by a plan costs, a multiply-add being two FLOPs.

    Per token, a block's forward pass is u = 2 (4 d² + 2 d f), with 3 d f where it is gated, and its
    attention products are a = 4 T d more. The gradients of its weights and of its input cost u
    each, and those of the attention products 2 a. A frozen block above a tuned one has no weight
    gradient; the lowest tuned block does not pass gradients through query, key and value, which
    saves 6 d², unless the embeddings are tuned too or it norms its input first. The blocks below it
    run forward only.

    Where a method freezes the weights of a block, there are no gradients of them; what the method
    adds costs v forward and 2 v backward. With v per token, and what the lowest tuned block saves:

    - adapters of bottleneck m: v = 8 d m. Nothing below the first one needs a gradient, and neither
      does its own input: 8 d² + 2 a + 2 d m; nothing, if the block norms its input first, since
      the norms are trained;
    - LoRA of rank r: v = 2 r times the features into and out of all linear layers. The inputs of
      query, key and value need no gradient: 6 d² + 6 r d, or 6 d² + 2 r d if they are one matrix;
    - prefix-tuning with P virtual tokens: v = 4 P d, the longer attention products. The queries
      need no gradient: 6 d² + 2 (T + P) d.

    An estimate for examples of equal length. A head is small and reads one token: it counts as a
    matrix of all its parameters. Look-ups, norms and activations count nothing, and neither do the
    projections of ELECTRA's and ALBERT's embeddings. DeBERTa's products with relative positions are
    not modelled: in batches of 32 the count misses 2 to 6 % of v1 (32 to 128 tokens) and 16 to 11 %
    of v3, but a plan's share of full fine-tuning is off by 3 % at the most; under other methods it
    misses 2 to 7 % and 17 to 10 %, and the share is off by 5 %.

    Args:
        plan: for this model.
        shape: the model.
        work: the data and the epochs.
        method: how the blocks are tuned.

    Raises:
        InputError: if the plan does not fit the model or the method.
    """
    plan = plan.on(shape.blocks)
    check_tunes_blocks(plan, method)
    T = work.tokens
    dense, products = _forward(shape, T)
    block, head = dense + products, 2 * shape.parameters.head
    cut, tuned = plan.cut or 0, len(plan.tuned)
    added = T * _added(plan, shape, method)

    trunk = cut * block
    forward = (plan.head - cut) * block + head + added
    backward = (plan.head - cut) * (dense + 2 * products) + head + 2 * added
    if isinstance(method, Full):
        backward += tuned * dense
    if tuned:
        backward += head - T * _spared(plan, shape, T, method)
    rows = work.examples + work.validation
    return Cost(
        train=float(
            (1 if work.cached else work.epochs) * rows * trunk
            + work.epochs * (rows * forward + work.examples * backward)
        ),
        inference=float(trunk + forward - (added if isinstance(method, LoRA) else 0)),
        trainable=_trainable(plan, shape, method),
        total=_total(plan, shape, method),
    )


def trunk_flops(plan: Plan, shape: ModelShape, work: Work) -> float:
    """Count what running the trunk of a plan once over all examples takes; part of `cost`."""
    plan = plan.on(shape.blocks)
    rows = work.examples + work.validation
    return rows * (plan.cut or 0) * block_flops(shape, work.tokens)


def block_flops(shape: ModelShape, tokens: float) -> float:
    """Count the FLOPs of one block on one example, forward."""
    return float(sum(_forward(shape, tokens)))


def _forward(shape: ModelShape, tokens: float) -> tuple[float, float]:
    """Count the FLOPs of a block on one example: of its matrices, and of its attention."""
    d, f = shape.hidden_size, shape.feed_forward
    dense = tokens * 2 * (4 * d**2 + (3 if shape.gated else 2) * d * f)
    return dense, tokens * 4 * tokens * d


def _added(plan: Plan, shape: ModelShape, method: Method) -> int:
    """Count the FLOPs, per token and forward pass, of what a method adds to the tuned blocks."""
    d, tuned = shape.hidden_size, len(plan.tuned)
    match method:
        case Full():
            return 0
        case Adapter():
            return tuned * 8 * d * method.bottleneck
        case LoRA():
            return sum(2 * method.rank * shape.linear[block - 1] for block in plan.tuned)
        case PrefixTuning():
            return tuned * 4 * method.virtual_tokens * d


def _spared(plan: Plan, shape: ModelShape, tokens: float, method: Method) -> float:
    """Count the FLOPs, per token, that the lowest tuned block need not spend on gradients."""
    d = shape.hidden_size
    # The gated family norms the input of every block but the first, and the gradient of that norm
    # needs those of query, key and value.
    normed = shape.gated and bool(plan.cut)
    match method:
        case Full():
            return 0 if plan.embeddings or normed else 6 * d**2
        case Adapter():
            return 0 if normed else 8 * d**2 + 8 * tokens * d + 2 * d * method.bottleneck
        case LoRA():
            return 6 * d**2 + 2 * method.rank * d * (1 if shape.family in FUSED else 3)
        case PrefixTuning():
            return 6 * d**2 + 2 * (tokens + method.virtual_tokens) * d


def _trainable(plan: Plan, shape: ModelShape, method: Method) -> int:
    """Count the parameters that are trained; those of a LoRA are as shared as its blocks are."""
    counts = shape.parameters
    match method:
        case Full():
            embeddings = counts.embeddings if plan.embeddings else 0
            return counts.head + embeddings + _distinct(shape, plan.tuned, counts.blocks)
        case Adapter():
            norms = _distinct(shape, plan.tuned, shape.norms)
            return counts.head + norms + _new(plan, shape, method)
        case LoRA():
            return counts.head + method.rank * _distinct(shape, plan.tuned, shape.linear)
        case PrefixTuning():
            return counts.head + _new(plan, shape, method)


def _total(plan: Plan, shape: ModelShape, method: Method) -> int:
    counts = shape.parameters
    blocks = _distinct(shape, range(1, plan.head + 1), counts.blocks)
    return counts.embeddings + blocks + counts.head + _new(plan, shape, method)


def _new(plan: Plan, shape: ModelShape, method: Method) -> int:
    """Count the parameters that the model has more of once it is tuned."""
    d, tuned = shape.hidden_size, len(plan.tuned)
    match method:
        case Adapter(bottleneck=m):
            return tuned * 2 * (2 * d * m + m + d)
        case PrefixTuning(virtual_tokens=P):
            return tuned * 2 * P * d
        case _:
            return 0


def _distinct(shape: ModelShape, blocks: Iterable[int], counts: Sequence[int]) -> int:
    """Sum what is counted by block over these blocks, shared weights once."""
    return sum({shape.weights[block - 1]: counts[block - 1] for block in blocks}.values())


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
        method: how the blocks are tuned; what it is compared with is full fine-tuning as it is.

    Raises:
        InputError: if the budget is not in (0, 1], nothing fits into it, or the method needs blocks
            that share no weights.
    """
    budget = checked_budget(budget)
    check_untied(shape.family, shape.weights, method)
    clauses = _clauses(shape, work, best, method)
    strategy = _first(clauses, budget)
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
    reason += (
        ["there is no ℓ* to go by: none has a value, or none is told apart from the rest"]
        if best is None
        else []
    )
    plan = applied(make_plan(strategy, shape.blocks, best=best), method, shape.blocks)
    return Choice(plan, strategy, "; ".join(reason))


def checked_budget(budget: float) -> float:
    """Give the budget of "auto".

    Raises:
        InputError: if it is not in (0, 1].
    """
    rule = "a share of full fine-tuning's training FLOPs, above 0 and up to 1"
    return real("budget", budget, rule, lambda share: 0 < share <= 1, "0.5 is half of them")


def options(
    shape: ModelShape,
    work: Work,
    best: int | None,
    ranking: Sequence[float | None] | None = None,
    extra: Iterable[str] = (),
    method: Method = FULL,
) -> list[Option]:
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

    Raises:
        InputError: if the method needs blocks that share no weights, or does nothing with a
            strategy that is asked for.
    """
    check_untied(shape.family, shape.weights, method)
    clauses = _clauses(shape, work, best, method)
    full = cost(make_plan("full", shape.blocks), shape, work).train
    ranked = sum(value is not None for value in ranking or ())

    def made(strategy: str) -> Plan:
        plan = make_plan(strategy, shape.blocks, best=best, ranking=ranking)
        return applied(plan, method, shape.blocks)

    found: dict[Plan, Option] = {}
    for strategy in (*_worth_listing(shape.blocks, best, ranked), *extra):
        plan = made(strategy)
        idle = not plan.tuned and not isinstance(method, Full)
        if plan in found or (strategy not in extra and (idle or not _possible(plan, shape))):
            continue
        counted = cost(plan, shape, work, method)
        relative = counted.train / full
        first = _first(clauses, relative)
        efficient = first is not None and made(first) == plan
        middle = shape.blocks // 2 + 1
        built_on = {"best": best, "middle": middle}.get(strategy.split("-")[0]) or plan.head
        found[plan] = Option(strategy, plan, counted, relative, efficient, built_on)
    return sorted(found.values(), key=lambda option: -option.relative)


@dataclass(frozen=True)
class _Clause:
    """A clause of the rule of `auto`: the shares of full of its possible plans, k descending.

    Attributes:
        tied: some plans are not possible, since they part blocks that share weights.
    """

    name: str
    shares: Mapping[str, float]
    tied: bool

    def refusal(self) -> str:
        if self.shares:
            more = " or more" if len(self.shares) > 1 else ""
            return f"{self.name} needs {_percent(min(self.shares.values()))}{more}"
        return f"{self.name} {'needs --untie' if self.tied else 'finds no block above ℓ*'}"


def _clauses(shape: ModelShape, work: Work, best: int | None, method: Method) -> list[_Clause]:
    L = shape.blocks
    named = {"top:k": [f"top:{k}" for k in range(L, 0, -1)]}
    if best is not None:
        down = [f"best-down:{k}@" for k in range(best, 0, -1)]
        named = {
            "best-up": ["best-up"] if best < L else [],
            "best-down:k@top": [f"{strategy}top" for strategy in down],
            "best-down:k@best": [f"{strategy}best" for strategy in down],
        } | named
    full = cost(make_plan("full", L), shape, work).train
    clauses = []
    for name, strategies in named.items():
        plans = {strategy: make_plan(strategy, L, best=best) for strategy in strategies}
        shares = {
            strategy: cost(plan, shape, work, method).train / full
            for strategy, plan in plans.items()
            if _possible(plan, shape)
        }
        clauses.append(_Clause(name, shares, tied=len(shares) < len(plans)))
    return clauses


def _first(clauses: Iterable[_Clause], budget: float) -> str | None:
    fitting = (s for clause in clauses for s, share in clause.shares.items() if share <= budget)
    return next(fitting, None)


def _possible(plan: Plan, shape: ModelShape) -> bool:
    try:
        check_tied(plan, shape.weights)
    except InputError:
        return False
    return True


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


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
