"""Classifiers that train by a method: all weights, adapters, LoRA or prefixes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never

from torch import nn

from layerscout.models.adapters import Adapters, add_adapters
from layerscout.models.architecture import (
    base_of,
    blocks_of,
    count_blocks,
    family_of,
    shared_weights,
)
from layerscout.models.devices import use_seed
from layerscout.models.families import check_family
from layerscout.models.freezing import freeze, train_only
from layerscout.models.lora import wrap_with_lora
from layerscout.models.places import fit_plan
from layerscout.models.prefixes import Prefix, add_prefix, check_virtual_tokens
from layerscout.plans import (
    Adapter,
    Full,
    LoRA,
    Method,
    Plan,
    PrefixTuning,
    apply_method,
    check_tunes_blocks,
    check_untied,
    make_method,
    make_plan,
)
from layerscout.runtime import InputError


@dataclass(frozen=True, eq=False)
class Equipped:
    """A classifier that trains by a method; a deep copy shares nothing with it.

    Attributes:
        model: the transformers model, whose trained parameters ask for gradients.
        plan: with the blocks that the method tunes.
        method: how.
        wrapper: with LoRA, the peft model around it.
    """

    model: Any
    plan: Plan
    method: Method
    wrapper: Any = None


def check_method(config: Any, plan: Plan, method: Method) -> None:
    """Check that the models of a configuration can be tuned by a method as a plan says.

    Args:
        config: the transformers configuration of a supported family.
        plan: for this model, or for the one that was cut at its head.
        method: any method.

    Raises:
        InputError: if the plan tunes no block, the family or the sharing of weights rules the
            method out, or there are more virtual tokens than positions.
    """
    check_tunes_blocks(plan, method)
    check_family(config.model_type, method)
    if isinstance(method, PrefixTuning):
        check_virtual_tokens(config, method)
    weights = shared_weights(config)[: plan.head]
    check_untied(config.model_type, weights, method)


def equip(model: Any, plan: Plan | str, method: Method | str, *, seed: int = 0) -> Equipped:
    """Make a classifier train by a method, and nothing else; it is changed in place.

    The head is always trained, the embeddings by full tuning alone. Adapters stand before
    something is added to what they give: behind the output projection of attention and behind the
    feed-forward layers. In most families a norm follows the sum; in ModernBERT, which has its
    norms before attention and before the feed-forward layers, the sum is the state itself. The
    norms of the tuned blocks are trained with them. No parameter that was there changes its name,
    but with LoRA, for as long as `merge_lora` has not run.

    Args:
        model: as `make_classifier` or `build` gives it, cut at the plan's head.
        plan: a plan, or a strategy that needs no scan, such as "top:3".
        method: a method, or the name of one.
        seed: draws the new weights.

    Returns:
        The model with what belongs to it.

    Raises:
        InputError: as `check_method` and `freeze`, or if the model has adapters or prefixes.
    """
    method = method if isinstance(method, Method) else make_method(method)
    family_of(model)
    if any(isinstance(module, Adapters | Prefix) for module in model.modules()):
        raise InputError(
            "the model already has adapters or prefixes; remove them with layerscout.unload"
        )
    blocks = count_blocks(model)
    plan = plan if isinstance(plan, Plan) else make_plan(plan, blocks)
    check_method(model.config, plan, method)
    if isinstance(method, Full):
        freeze(model, plan)
        return Equipped(model, plan, method)
    found = fit_plan(model, plan)[1]
    plan = apply_method(plan, method, blocks)
    with use_seed(seed):
        if isinstance(method, LoRA):
            return Equipped(model, plan, method, wrap_with_lora(model, plan, method))
        train_only(model, {name for name, place in found.items() if place == "head"})
        for layer in _layers(model, plan):
            match method:
                case Adapter():
                    add_adapters(model.config, layer, method)
                case PrefixTuning():
                    add_prefix(model.config, layer, method)
                case _:
                    assert_never(method)
    return Equipped(model, plan, method)


def unload(model: Any) -> Any:
    """Take adapters and prefixes out of a model, in place; its blocks are the base's again.

    Norms are restored bit for bit. The head stays as it was trained.

    Args:
        model: as `load` gives it, or the `Equipped` one's.

    Returns:
        The model.

    Raises:
        InputError: if it has none.
    """
    family_of(model)
    found = 0
    for layer in list(model.modules()):
        own = dict(layer.named_children())
        if isinstance(adapters := own.get("adapters"), Adapters):
            adapters.remove_from(layer)
            found += 1
        if isinstance(own.get("prefix"), Prefix):
            del layer.prefix
            layer.config = base_of(model)[0].config
            found += 1
    vars(model).pop("save_pretrained", None)  # `load` replaced it by one that refuses
    if not found:
        raise InputError("the model has neither adapters nor prefixes, so none can be removed")
    return model


def merge_lora(equipped: Equipped) -> Any:
    """Add what LoRA learnt to the weights, in place.

    Returns:
        The plain transformers model: the names are those before, and no peft is in it.

    Raises:
        InputError: if the method is not LoRA.
    """
    return peft_model(equipped).merge_and_unload()


def peft_model(equipped: Equipped) -> Any:
    """Give the peft model around one that LoRA tunes.

    Raises:
        InputError: if the method is not LoRA.
    """
    if equipped.wrapper is None:
        raise InputError(
            f"only LoRA is merged or kept by peft, got the method {equipped.method.name}; "
            "adapters and prefixes are saved with save_trained"
        )
    return equipped.wrapper


def _layers(model: Any, plan: Plan) -> Iterator[nn.Module]:
    """Give the layers of the tuned blocks; in ALBERT a block may hold several."""
    family = family_of(model)
    blocks = blocks_of(base_of(model)[0], family)
    for block in plan.tuned:
        module = blocks[block - 1]
        yield from [module] if family.layers is None else module.get_submodule(family.layers)
