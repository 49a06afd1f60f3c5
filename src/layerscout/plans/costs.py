"""What a plan costs: its parameters and FLOPs, by counting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from layerscout.plans.methods import (
    FULL,
    Adapter,
    Full,
    LoRA,
    Method,
    PrefixTuning,
    check_tunes_blocks,
)
from layerscout.plans.plan import ModelShape, Plan, make_plan
from layerscout.runtime import InputError


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
                "training needs 1 or more examples, tokens in each, and more than 0 epochs; got "
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


def cost(plan: Plan, shape: ModelShape, work: Work, method: Method = FULL) -> Cost:
    """Count what training by a plan costs, a multiply-add being two FLOPs.

    Per token, a block's forward pass is u = 2 (2 d q + 2 d k + 2 d f), with 3 d f where it is
    gated, and its attention products are a = 4 T q more, whatever a mask leaves out of them.
    Queries have q features and keys k: both d, but where heads share keys or have a width of their
    own. The gradients of a block's weights and of its input cost u each, and those of the attention
    products 2 a. A frozen block above a tuned one has no weight gradient; the lowest tuned block
    does not pass gradients through query, key and value, which saves s = 2 d (q + 2 k), unless the
    embeddings are tuned too or it norms its input first. The blocks below it run forward only.

    Where a method freezes the weights of a block, there are no gradients of them; what the method
    adds costs v forward and 2 v backward. With v per token, and what the lowest tuned block saves:

    - adapters of bottleneck m: v = 8 d m. Nothing below the first one needs a gradient, and neither
      does its own input: s + 2 d q + 2 a + 2 d m; nothing, if the block norms its input first,
      since the norms are trained;
    - LoRA of rank r: v = 2 r times the features into and out of all linear layers. The inputs of
      query, key and value need no gradient: s + 6 r d, or s + 2 r d if they are one matrix;
    - prefix-tuning with P virtual tokens: v = 4 P q, the longer attention products. The queries
      need no gradient: s + 2 (T + P) q.

    An estimate for examples of equal length. A head is small and reads one token: it counts as a
    matrix of all its parameters. Look-ups, norms and activations count nothing, and neither do the
    projections of ELECTRA's and ALBERT's embeddings. DeBERTa's products with relative positions are
    not modelled: in batches of 32 the count misses 2 to 6 % of v1 (32 to 128 tokens) and 16 to 11 %
    of v3, but a plan's share of full fine-tuning is off by 3 % at the most; under other methods it
    misses 2 to 7 % and 17 to 10 %, and the share is off by 5 %. GPT-NeoX runs attention and
    feed-forward layers side by side, so that its lowest tuned block spares more under LoRA and
    prefix-tuning: the count is 1 to 10 % too high.

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
    added = T * _count_added(plan, shape, method)

    trunk = cut * block
    forward = (plan.head - cut) * block + head + added
    backward = (plan.head - cut) * (dense + 2 * products) + head + 2 * added
    if isinstance(method, Full):
        backward += tuned * dense
    if tuned:
        backward += head - T * _count_spared(plan, shape, T, method)
    rows = work.examples + work.validation
    return Cost(
        train=float(
            (1 if work.cached else work.epochs) * rows * trunk
            + work.epochs * (rows * forward + work.examples * backward)
        ),
        inference=float(trunk + forward - (added if isinstance(method, LoRA) else 0)),
        trainable=trainable_parameters(plan, shape, method),
        total=_total(plan, shape, method),
    )


def full_cost(shape: ModelShape, work: Work) -> Cost:
    """Count what full fine-tuning costs; see `cost`."""
    return cost(make_plan("full", shape.blocks), shape, work)


def trunk_flops(plan: Plan, shape: ModelShape, work: Work) -> float:
    """Count what running the trunk of a plan once over all examples takes; part of `cost`."""
    plan = plan.on(shape.blocks)
    rows = work.examples + work.validation
    return rows * (plan.cut or 0) * block_flops(shape, work.tokens)


def block_flops(shape: ModelShape, tokens: float) -> float:
    """Count the FLOPs of one block on one example, forward."""
    return float(sum(_forward(shape, tokens)))


def block_weights(shape: ModelShape) -> int:
    """Count the weights in the matrices of a block: those of attention, and two or three more."""
    d, f = shape.hidden_size, shape.feed_forward
    return 2 * d * (shape.queries + shape.keys) + (3 if shape.gated else 2) * d * f


def distinct_parameters(shape: ModelShape, blocks: Iterable[int]) -> int:
    """Count the parameters of these blocks, those that they share once."""
    return _distinct(shape, blocks, shape.parameters.blocks)


def new_parameters(plan: Plan, shape: ModelShape, method: Method) -> int:
    """Count the parameters that the model has more of while it is tuned."""
    added = _new(plan, shape, method)
    if isinstance(method, LoRA):
        added += method.rank * _distinct(shape, plan.tuned, shape.linear)
    return added


def _forward(shape: ModelShape, tokens: float) -> tuple[float, float]:
    """Count the FLOPs of a block on one example: of its matrices, and of its attention."""
    return tokens * 2 * block_weights(shape), tokens * 4 * tokens * shape.queries


def _count_added(plan: Plan, shape: ModelShape, method: Method) -> int:
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
            return tuned * 4 * method.virtual_tokens * shape.queries


def _count_spared(plan: Plan, shape: ModelShape, tokens: float, method: Method) -> float:
    """Count the FLOPs, per token, that the lowest tuned block need not spend on gradients."""
    d, q = shape.hidden_size, shape.queries
    inputs = 2 * d * (q + 2 * shape.keys)  # of query, key and value
    # Where a norm that is trained comes before them, its gradient needs theirs.
    normed = shape.first_normed is not None and (plan.cut or 0) + 1 >= shape.first_normed
    match method:
        case Full():
            return 0 if plan.embeddings or normed else inputs
        case Adapter():
            return 0 if normed else inputs + 2 * d * q + 8 * tokens * q + 2 * d * method.bottleneck
        case LoRA():
            # A LoRA of one matrix for query, key and value has one input, not three.
            return inputs + 2 * method.rank * d * (1 if shape.fused else 3)
        case PrefixTuning():
            return inputs + 2 * (tokens + method.virtual_tokens) * q


def trainable_parameters(plan: Plan, shape: ModelShape, method: Method) -> int:
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
            return tuned * 2 * P * shape.keys
        case Full() | LoRA():
            return 0


def _distinct(shape: ModelShape, blocks: Iterable[int], counts: Sequence[int]) -> int:
    """Sum what is counted by block over these blocks, shared weights once."""
    return sum({shape.weights[block - 1]: counts[block - 1] for block in blocks}.values())
