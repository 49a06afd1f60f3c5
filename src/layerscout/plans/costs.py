"""What a plan costs: its parameters and FLOPs, by counting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from layerscout.errors import InputError
from layerscout.plans.methods import (
    FULL,
    Adapter,
    Full,
    LoRA,
    Method,
    PrefixTuning,
    apply_method,
    check_tunes_blocks,
)
from layerscout.plans.plan import ModelShape, Plan
from layerscout.plans.strategies import make_plan
from layerscout.plans.training import Settings


@dataclass(frozen=True)
class Work:
    """What is trained on, and for how long.

    Attributes:
        examples: of the training split.
        validation: examples scored after every epoch.
        tokens: mean length of an example, special tokens included.
        epochs: passes over the training split; the last one may be cut short.
        cached: the states below the tuned blocks are computed once, not in every epoch.
        readings: passes over all examples for a head that is solved in the end, in place of a
            validation after every epoch; None where there are epochs.

    Raises:
        InputError: if there is nothing to train on.
    """

    examples: int
    validation: int
    tokens: float
    epochs: float
    cached: bool = True
    readings: int | None = None

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        examples: int,
        texts: int,
        validation: int,
        tokens: float,
        cached: bool = True,
    ) -> Work:
        """Count what a training by some settings is.

        Args:
            settings: of the training.
            examples: of the training split, by which steps are counted.
            texts: of these examples: several of each where they have choices.
            validation: texts of the validation split.
            tokens: as in `Work`.
            cached: as in `Work`.
        """
        return cls(texts, validation, tokens, settings.count_epochs(examples), cached)

    def __post_init__(self) -> None:
        numbers = self.examples >= 1 and self.validation >= 0 and self.epochs > 0
        if not numbers or not 0 < self.tokens < inf:
            raise InputError(
                "training needs 1 or more examples, tokens in each, and more than 0 epochs; got "
                f"{self.examples}, {self.tokens:g} and {self.epochs}"
            )

    def end_solved(self, stages: Sequence[float]) -> Work:
        """Return what it is if the head is solved in the end, after stages as of `share_stages`."""
        return replace(self, epochs=sum(stages) * self.epochs, readings=len(stages))

    @property
    def scored(self) -> float:
        """The examples that run forward alone, each as often as it does."""
        if self.readings is None:
            return self.epochs * self.validation
        return self.readings * (self.examples + self.validation)


@dataclass(frozen=True)
class Step:
    """The largest step of a training on one device, and what a model keeps for its gradients.

    Attributes:
        texts: of the batch; an example of multiple choice is several.
        tokens: of the longest text, which the others are padded to.
        scored: tokens of the largest batch of a validation, padding included.
        copies: how often the trained parameters are kept: of the best epoch, and of the best runs
            before.
        matrices: T × T matrices that attention keeps of each text in each block: the mask where
            its products are fused, else some for every head.
        fused: attention keeps what it gives, not what it weighs by.
        activation: how many tensors of f features the activation function keeps.
        mask: bytes kept for each number that dropout between layers may drop; 0 without dropout.
    """

    texts: int
    tokens: int
    scored: int = 0
    copies: int = 1
    matrices: int = 1
    fused: bool = True
    activation: int = 1
    mask: int = 0


@dataclass(frozen=True)
class Cost:
    """The cost of a plan.

    Attributes:
        train: FLOPs of the whole training, with validation and what a solved head is read from.
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
    counts, cut, tuned = shape.parameters, plan.cut or 0, len(plan.tuned)
    dense, products = T * 2 * block_weights(shape), T * 4 * T * shape.queries
    block, head = dense + products, 2 * counts.head
    per_token, spared, trainable, new = _count_method(plan, shape, T, method)
    added = T * per_token

    trunk = cut * block
    forward = (plan.head - cut) * block + head + added
    backward = (plan.head - cut) * (dense + 2 * products) + head + 2 * added
    if isinstance(method, Full):
        backward += tuned * dense
    if tuned:
        backward += head - T * spared
    stepped = work.epochs * work.examples
    run = stepped + work.scored
    once = work.examples + work.validation if work.cached else run
    left = _distinct(shape, range(1, plan.head + 1), counts.blocks)
    return Cost(
        train=float(once * trunk + run * forward + stepped * backward),
        inference=float(trunk + forward - (added if isinstance(method, LoRA) else 0)),
        trainable=trainable,
        total=counts.embeddings + left + counts.head + new,
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
    return float(tokens * 2 * block_weights(shape) + tokens * 4 * tokens * shape.queries)


def block_weights(shape: ModelShape) -> int:
    """Count the weights in the matrices of a block: those of attention, and two or three more."""
    d, f = shape.hidden_size, shape.feed_forward
    return 2 * d * (shape.queries + shape.keys) + (3 if shape.gated else 2) * d * f


def peak_memory(plan: Plan, shape: ModelShape, step: Step, method: Method = FULL) -> int:
    """Count the bytes that training by a plan takes at the most: four for every number.

    While it trains these are the encoder, copies of what the plan tunes, the head and what the
    method adds; two moments of each trained parameter, and its kept copies; and gradients or
    activations, whichever is more, since a step frees these as it makes those. Once it has trained:
    the encoder and the tuned model with weights of its own.

    A token keeps numbers for the gradients wherever they need it. Of a frozen block above a tuned
    one these are, with d features, q of all queries and f in the feed-forward layer, what its two
    norms are given (2 d), queries, keys and values (3 q, since keys that heads share are repeated
    for each), what attention gives (q, if its products are fused), and what goes into the
    activation function (f; 3 f if the layer is gated). The blocks below the cut keep nothing.
    Attention keeps `Step.matrices`: where it is not fused, they grow with the square of the length.

    An estimate, for float32; docs/costs.md says how far it was off, and what is not modelled.

    Args:
        plan: for this model.
        shape: the model.
        step: the largest step.
        method: how the blocks are tuned.

    Raises:
        InputError: if the plan does not fit the model or the method.
    """
    plan = apply_method(plan, method, shape.blocks)
    check_tunes_blocks(plan, method)
    counts, d, q = shape.parameters, shape.hidden_size, shape.queries
    _, _, trained, new = _count_method(plan, shape, step.tokens, method)
    encoder, left, tuned = (
        counts.embeddings * whole + _distinct(shape, blocks, counts.blocks)
        for whole, blocks in (
            (1, range(1, shape.blocks + 1)),
            (1, range(1, plan.head + 1)),
            (bool(plan.embeddings), plan.tuned),
        )
    )
    added = counts.head + new
    if isinstance(method, LoRA):
        added += method.rank * _distinct(shape, plan.tuned, shape.linear)
    working = max(4 * q, 2 * shape.feed_forward)  # computed and not yet given up
    computed = step.texts * (_count_kept(plan, shape, step, method) + step.tokens * working)
    activations = max(computed, step.scored * (2 * d + working))
    training = tuned + 2 * trained + max(trained, activations)
    return int(4 * (encoder + added + step.copies * trained + max(training, left)))


def _count_kept(plan: Plan, shape: ModelShape, step: Step, method: Method) -> float:
    """Count the numbers that a step keeps of a text for its gradients."""
    d, q, normed = shape.hidden_size, shape.queries, shape.first_normed is not None
    head = 3 * d if normed else d  # a final norm keeps what it is given, normed and gives
    if not plan.tuned:
        return head
    # Where queries and keys are rotated, what they were before stays, since it holds the values.
    attention = (4 if step.fused else 3) * q + (2 * q if shape.fused and shape.gated else 0)
    feed_forward = (step.activation + (2 if shape.gated else 0)) * shape.feed_forward
    dropped = step.mask / 4 * d
    frozen = 2 * d + attention + feed_forward + 2 * dropped
    inputs = 2 * d + shape.feed_forward + (0 if step.fused else q)  # of linear layers
    norms = 2 * d if shape.gated and not shape.fused else 0  # of RMSNorms
    match method:
        case Full():
            more: float = inputs + norms
        case Adapter(bottleneck=m):
            more = 2 * (d + 3 * m) + norms
        case LoRA(rank=r):
            more = inputs + r * ((2 if shape.fused else 4) + (3 if shape.gated else 2))
        case PrefixTuning(virtual_tokens=P):
            more = 2 * P * q / step.tokens
    # Below the lowest adapter nothing needs a gradient, unless a norm is trained there.
    spared = isinstance(method, Adapter) and not normed
    blocks = plan.head - (plan.cut or 0)
    return step.tokens * (
        blocks * frozen
        + len(plan.tuned) * more
        + (2 * d + dropped if plan.embeddings else 0)
        + head
        + (blocks - spared) * step.matrices * step.tokens
        - spared * attention
    )


def _count_method(
    plan: Plan, shape: ModelShape, tokens: float, method: Method
) -> tuple[int, float, int, int]:
    """Count what a method adds and trains.

    Returns:
        Per token, the FLOPs that it adds to the tuned blocks forward, and those of gradients that
        the lowest of them spares; the parameters that are trained, head included; and those that
        the tuned model has more of. Those of a LoRA are as shared as its blocks are, and are merged
        in the end.
    """
    counts, d, q, tuned = shape.parameters, shape.hidden_size, shape.queries, len(plan.tuned)
    inputs = 2 * d * (q + 2 * shape.keys)  # of query, key and value
    # Where a norm that is trained comes before them, its gradient needs theirs.
    normed = shape.first_normed is not None and (plan.cut or 0) + 1 >= shape.first_normed
    added, new = 0, 0
    spared: float = inputs
    match method:
        case Full():
            spared = 0 if plan.embeddings or normed else inputs
            trained = _distinct(shape, plan.tuned, counts.blocks)
            trained += counts.embeddings if plan.embeddings else 0
        case Adapter(bottleneck=m):
            added = tuned * 8 * d * m
            spared = 0 if normed else inputs + 2 * d * q + 8 * tokens * q + 2 * d * m
            new = tuned * 2 * (2 * d * m + m + d)
            trained = _distinct(shape, plan.tuned, shape.norms) + new
        case LoRA(rank=r):
            added = sum(2 * r * shape.linear[block - 1] for block in plan.tuned)
            # A LoRA of one matrix for query, key and value has one input, not three.
            spared = inputs + 2 * r * d * (1 if shape.fused else 3)
            trained = r * _distinct(shape, plan.tuned, shape.linear)
        case PrefixTuning(virtual_tokens=P):
            added = tuned * 4 * P * q
            spared = inputs + 2 * (tokens + P) * q
            trained = new = tuned * 2 * P * shape.keys
    return added, spared, counts.head + trained, new


def _distinct(shape: ModelShape, blocks: Iterable[int], counts: Sequence[int]) -> int:
    """Sum what is counted by block over these blocks, shared weights once."""
    return sum({shape.weights[block - 1]: counts[block - 1] for block in blocks}.values())
