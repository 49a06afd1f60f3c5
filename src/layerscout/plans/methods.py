"""Ways to tune the blocks of a plan: all of their weights, or a few new ones beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from layerscout.errors import InputError, make_unknown_error
from layerscout.plans.options import COUNT, RATE, Options, check_known, option
from layerscout.plans.plan import Plan

# What is left of a training: the blocks with their own weights; the same, once what was trained is
# merged into them; or what was trained, apart from its base.
Saved = Literal["whole", "merged", "apart"]

# What every method says of itself:
#     saved: how it is saved.
#     untied: it gives each block something of its own, so that blocks may not share weights.
#     rate: the usual peak learning rate at 1,024 features; None where it depends on the plan.
#     words: how the blocks were trained, in a model card, with the options filled in.


@dataclass(frozen=True)
class Full:
    """Every weight of the blocks; with `full` plans the embeddings too."""

    name: ClassVar[str] = "full"
    saved: ClassVar[Saved] = "whole"
    untied: ClassVar[bool] = False
    rate: ClassVar[float | None] = None
    words: ClassVar[str] = ""


@dataclass(frozen=True)
class Adapter(Options):
    """Bottleneck adapters, two in each block, with the norms of the blocks. Houlsby et al. 2019.

    Each adds up(dropout(relu(down(x)))) to x, once what attention gave is projected and once what
    the feed-forward layers gave, in both cases before it is added to what went round them.
    """

    bottleneck: int = option(256, partial(COUNT, remedy="256 is usual"))
    """Width of the adapter's bottleneck."""
    adapter_init: Literal["bert", "identity"] = option("bert")
    """How adapters start: bert draws both projections from N(0, 0.02²) (Xie et al. 2022, App. B.2);
    identity sets the up-projection to zero, so that the model starts unchanged."""
    name: ClassVar[str] = "adapter"
    saved: ClassVar[Saved] = "apart"
    untied: ClassVar[bool] = True
    rate: ClassVar[float | None] = 3e-4
    words: ClassVar[str] = " with adapters (bottleneck {bottleneck})"


@dataclass(frozen=True)
class LoRA(Options):
    """Low-rank changes of every linear layer of the blocks, by peft; merged when it is done."""

    rank: int = option(8, partial(COUNT, remedy="8 is usual"))
    """Rank of LoRA's matrices."""
    lora_alpha: float = option(16.0, RATE)
    """Scale of LoRA's updates, which are multiplied by alpha / rank."""
    name: ClassVar[str] = "lora"
    saved: ClassVar[Saved] = "merged"
    untied: ClassVar[bool] = False
    rate: ClassVar[float | None] = 5e-4
    words: ClassVar[str] = " with LoRA (rank {rank})"

    def __post_init__(self) -> None:
        """Check the options, and that peft is there: before any work is done for it."""
        super().__post_init__()
        check_peft()


@dataclass(frozen=True)
class PrefixTuning(Options):
    """Trainable keys and values that the attention of the blocks sees before those of the text."""

    virtual_tokens: int = option(16, partial(COUNT, remedy="16 is usual"))
    """Number of virtual tokens in each block."""
    name: ClassVar[str] = "prefix-tuning"
    saved: ClassVar[Saved] = "apart"
    untied: ClassVar[bool] = True
    rate: ClassVar[float | None] = 1e-2
    words: ClassVar[str] = " with prefix-tuning ({virtual_tokens} virtual tokens)"


FULL = Full()

Method = Full | Adapter | LoRA | PrefixTuning

METHODS: Mapping[str, type[Method]] = {
    kind.name: kind for kind in (Full, Adapter, LoRA, PrefixTuning)
}


def check_peft() -> None:
    """Raise unless peft is installed.

    Raises:
        InputError: with the command that installs it.
    """
    if find_spec("peft") is None:
        raise InputError(
            "LoRA needs peft, which is not installed; run: pip install 'layerscout[peft]'"
        )


def make_method(method: Method | str, **options: Any) -> Method:
    """Return a method by its name and options; those that are None count as not given.

    Args:
        method: a key of `METHODS`, or a method, which takes no options.
        options: of the method, by name.

    Raises:
        InputError: if there is no such method, or it does not take an option or its value.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(method, str) and method in METHODS:
        kind = METHODS[method]
        known = [field.name for field in fields(kind)]
    elif isinstance(method, Method):
        kind, known = type(method), []
    else:
        raise make_unknown_error("method", str(method), METHODS)
    for name in given:
        if name not in known:
            owner = [key for key, other in METHODS.items() if name in other.__dataclass_fields__]
            raise InputError(
                f"`{name}` is an option of {' and '.join(owner) or 'no method'}, not of the method "
                f"{kind.name}; leave it out"
            )
    return method if isinstance(method, Method) else kind(**given)


def check_method_name(name: str, value: Any) -> Any:
    """Check the name of a method, which becomes one together with its options."""
    return value if isinstance(value, Method) else check_known(name, value, METHODS)


def apply_method(plan: Plan, method: Method, blocks: int) -> Plan:
    """Return a plan as the method follows it, on a model of so many blocks.

    Only full fine-tuning trains the embeddings: the others leave them even in (1, L, L).

    Raises:
        InputError: if the plan names the embeddings, and the method leaves them.
    """
    plan = plan.on(blocks)
    if plan.embeddings and len(plan.tuned) < plan.head and not isinstance(method, Full):
        raise InputError(
            f"{method.name} never tunes the embeddings, got {plan.notation}; use the method full, "
            "or leave out emb+"
        )
    return plan if isinstance(method, Full) else replace(plan, embeddings=False)


def check_untied(family: str, weights: Sequence[int], method: Method) -> None:
    """Raise if each block would get something of its own, but blocks share their weights.

    LoRA follows the weights instead, and so does full fine-tuning.

    Args:
        family: of the model.
        weights: which set of weights each block uses; see `ModelShape`.
        method: any method.

    Raises:
        InputError: if the method is of that kind, and blocks share weights, as ALBERT's do.
    """
    if method.untied and len(set(weights)) < len(weights):
        raise InputError(
            f"{method.name} needs blocks with weights of their own, but the blocks of this "
            f"{family} share theirs; copy them first with --untie (in Python: untie=True)"
        )


def check_tunes_blocks(plan: Plan, method: Method) -> None:
    """Raise for a plan that leaves the method nothing to do.

    Raises:
        InputError: if it tunes no block; full fine-tuning still tunes the head.
    """
    if not isinstance(method, Full) and not plan.tuned:
        raise InputError(
            f"{method.name} tunes blocks, but {plan.notation} tunes none; use --method full"
        )
