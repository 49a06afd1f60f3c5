"""The memory that training by a plan takes, by counting."""

from __future__ import annotations

from dataclasses import dataclass

from layerscout.plans.costs import distinct_parameters, new_parameters, trainable_parameters
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

FLOAT32 = 4  # bytes of a number; weights, gradients and moments are never shorter


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
class Memory:
    """Bytes that training by a plan takes.

    Attributes:
        weights: the whole encoder, copies of the blocks (and embeddings) that the plan tunes, the
            head, and what the method adds.
        gradients: of the trained parameters.
        optimiser: the two moments of AdamW.
        kept: the trained parameters of the best epoch, and of the best runs before.
        activations: what a step keeps for its gradients, and what is computed meanwhile; or what a
            validation batch needs, where that is more.
        finished: the encoder, and the tuned model with weights of its own once training is over.
    """

    weights: int
    gradients: int
    optimiser: int
    kept: int
    activations: int
    finished: int

    @property
    def total(self) -> int:
        """The most that there is at once.

        A step frees activations as it makes gradients: from block to block one gives way to the
        other, so the larger of the two counts. Gradients, moments and activations are gone when the
        tuned model gets weights of its own.
        """
        step = max(self.gradients, self.activations)
        training = self.weights + self.optimiser + self.kept + step
        return max(training, self.finished + self.kept)


def peak_memory(plan: Plan, shape: ModelShape, step: Step, method: Method = FULL) -> Memory:
    """Count the memory that training by a plan takes at the most.

    A number of every token is kept for the gradients wherever they need it. Of a frozen block above
    a tuned one these are, with d features, q of all queries and f in the feed-forward layer, what
    its two norms are given (2 d), queries, keys and values (3 q, since keys that heads share are
    repeated for each), what attention gives (q, if its products are fused), and what goes into the
    activation function (f; 3 f if the layer is gated). A tuned block also keeps what goes into its
    other linear layers, 2 d + f, and 2 d more where its norms are RMSNorms, which transformers
    writes out. LoRA keeps the same, the norms apart, and r features for every linear layer; an
    adapter of m features d + 3 m, twice; P virtual tokens 2 P q a text. The blocks below the cut
    keep nothing, and the states at the cut are mapped from a file. Attention itself keeps
    `Step.matrices`: where it is not fused (MPNet, DeBERTa and Gemma 2; other families on a CPU if
    they have dropout in attention), they grow with the square of the length.

    An estimate, for float32. Of BERT, Llama and GPT-2 with several blocks above the cut, the bytes
    of all tensors that lived at once during a step were 5 % less to 5 % more than the activations
    counted here; of ModernBERT, MPNet, GPT-NeoX, Phi-3 and nomic-bert 13 % less to 9 % more. With a
    single block it counts up to 20 % too much, and with adapters up to 30 % too little. Not
    modelled: Gemma's further norms and capped weights (up to 20 % more), DeBERTa's products with
    relative positions (v3 up to 20 % more, v1 twice as much), and what allocators do not give back
    (glibc's: about as much as the activations once more). In bfloat16 it counts up to 30 % too
    much: only a part of the activations is shorter.

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
    trained = trainable_parameters(plan, shape, method)
    counts, every = shape.parameters, range(1, shape.blocks + 1)
    encoder = counts.embeddings + distinct_parameters(shape, every)
    copied = distinct_parameters(shape, plan.tuned) + (counts.embeddings if plan.embeddings else 0)
    added = new_parameters(plan, shape, method)
    left = counts.embeddings + distinct_parameters(shape, range(1, plan.head + 1)) + counts.head
    tokens = step.texts * step.tokens
    working = max(4 * shape.queries, 2 * shape.feed_forward)  # computed and not yet given up
    computed = _count_kept(plan, shape, step, method) + FLOAT32 * tokens * working
    scored = FLOAT32 * step.scored * (2 * shape.hidden_size + working)
    return Memory(
        weights=FLOAT32 * (encoder + copied + counts.head + added),
        gradients=FLOAT32 * trained,
        optimiser=2 * FLOAT32 * trained,
        kept=FLOAT32 * trained * step.copies,
        activations=max(computed, scored),
        finished=FLOAT32 * (encoder + left + added),
    )


def _count_kept(plan: Plan, shape: ModelShape, step: Step, method: Method) -> int:
    """Count the bytes that a step keeps for its gradients."""
    d, q, normed = shape.hidden_size, shape.queries, shape.first_normed is not None
    head = 3 * d if normed else d  # a final norm keeps what it is given, normed and gives
    if not plan.tuned:
        return FLOAT32 * step.texts * head
    attention = (4 if step.fused else 3) * q
    if shape.fused and shape.gated:
        # Queries and keys are rotated, and what they were before stays, since it holds the values.
        attention += 2 * q
    feed_forward = (step.activation + (2 if shape.gated else 0)) * shape.feed_forward
    dropped = step.mask / FLOAT32 * d
    # Below the lowest adapter nothing needs a gradient, unless a norm is trained there.
    spared = attention if isinstance(method, Adapter) and not normed else 0
    blocks = plan.head - (plan.cut or 0)
    numbers = (
        blocks * (2 * d + attention + feed_forward + 2 * dropped)
        + len(plan.tuned) * _count_more(shape, step, method)
        - spared
        + (2 * d + dropped if plan.embeddings else 0)
        + head
        + (blocks - (1 if spared else 0)) * step.matrices * step.tokens
    )
    return int(FLOAT32 * step.texts * step.tokens * numbers)


def _count_more(shape: ModelShape, step: Step, method: Method) -> float:
    """Count the numbers, per token, that a tuned block keeps and a frozen one does not."""
    d, q = shape.hidden_size, shape.queries
    inputs = 2 * d + shape.feed_forward + (0 if step.fused else q)  # of linear layers
    norms = 2 * d if shape.gated and not shape.fused else 0  # of RMSNorms
    match method:
        case Full():
            return inputs + norms
        case Adapter():
            return 2 * (d + 3 * method.bottleneck) + norms
        case LoRA():
            layers = (2 if shape.fused else 4) + (3 if shape.gated else 2)
            return inputs + layers * method.rank
        case PrefixTuning():
            return 2 * method.virtual_tokens * q / step.tokens
