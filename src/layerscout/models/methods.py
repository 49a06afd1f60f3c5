"""Classifiers that train by a method: all weights, adapters, LoRA or prefixes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layerscout.errors import InputError, check_integer, first_line
from layerscout.models.adapters import (
    Adapters,
    Prefix,
    add_adapters,
    add_prefix,
    check_virtual_tokens,
)
from layerscout.models.architecture import (
    Place,
    base_of,
    blocks_of,
    count_blocks,
    family_of,
    fit_plan,
    freeze,
    head_modules,
    is_linear,
    labels_words,
    shared_weights,
    tied_to_embeddings,
    tunes,
)
from layerscout.models.devices import use_seed
from layerscout.models.encoder import Encoder
from layerscout.models.families import check_family
from layerscout.plans import (
    Adapter,
    Full,
    LoRA,
    Method,
    Plan,
    PrefixTuning,
    Step,
    apply_method,
    check_peft,
    check_tunes_blocks,
    check_untied,
    make_method,
    make_plan,
)

# Options of peft's LoraConfig that say what is adapted or trained, which is what a plan says.
DECIDED = (
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    *("target_parameters", "trainable_token_indices", "modules_to_save", "layer_replication"),
)


def lora_config(model: Any, plan: Plan | str, r: int = 8, **options: Any) -> Any:
    """Make the configuration with which peft adapts the blocks that the plan tunes.

    Every linear layer of these blocks is named in full. The modules of the head are trained whole,
    the embeddings never.

    Args:
        model: as for `freeze`; it is not changed.
        plan: a plan, or a strategy that needs no scan, such as "top:3" or "(7, 9, 12)".
        r: rank of the adapters.
        options: what else `peft.LoraConfig` takes, such as `lora_alpha`; `task_type` is "SEQ_CLS",
            or "TOKEN_CLS" for a model that labels words, unless it is given.

    Returns:
        The `peft.LoraConfig`, for `peft.get_peft_model`.

    Raises:
        InputError: if the plan does not fit the model or tunes no block, an option would change
            what is trained, the head shares weights with the embeddings, or there is no peft.
    """
    check_peft()
    from peft import LoraConfig

    plan, places = fit_plan(model, plan)
    _check_lora(model, plan, places, r, options)
    modules = dict(model.named_modules())
    adapted = {name: places.get(f"{name}.weight") for name in modules if is_linear(modules[name])}
    # peft compares how names end: in a bare decoder the norm after the blocks is called as those
    # within, and cannot be saved by its name; with a head its name is longer.
    saved = [
        part
        for part in head_modules(model, places)
        if sum(name.endswith(part) for name in modules) == 1
    ]
    # In full, not by `layers_to_transform`: peft 0.21 refuses that with "all-linear", fails with it
    # on a bare ModernBERT, and knows no layer but 0 of an ALBERT.
    try:
        return LoraConfig(
            r=int(r),
            target_modules=[
                name
                for name, place in adapted.items()
                if isinstance(place, tuple) and tunes(plan, place)
            ],
            modules_to_save=saved or None,
            **({"task_type": "TOKEN_CLS" if labels_words(model) else "SEQ_CLS"} | options),
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"peft refuses these options: {first_line(error)}") from error


def _wrap_with_lora(model: Any, plan: Plan, method: LoRA) -> Any:
    """Put the peft model around one, in which the blocks that the plan tunes have a LoRA."""
    config = lora_config(model, plan, r=method.rank, lora_alpha=method.lora_alpha)
    from peft import get_peft_model

    with warnings.catch_warnings():
        # peft 0.21 asks for an attribute that transformers 5 deprecates, and corrects how GPT-2's
        # matrices lie with a warning.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.filterwarnings("ignore", "fan_in_fan_out is set to False")
        wrapper = get_peft_model(model, config)
    return wrapper.train(model.training)


def _check_lora(
    model: Any, plan: Plan, places: Mapping[str, Place], r: int, options: Mapping[str, Any]
) -> None:
    if not plan.tuned:
        raise InputError(
            f"LoRA adapts the blocks of a plan, and {plan.notation} tunes none; use "
            "layerscout.freeze, or tune blocks"
        )
    check_integer("r", r, 1, remedy="it is the rank of the adapters")
    decided = [
        name for name in options if name in DECIDED or (name, options[name]) == ("bias", "all")
    ]
    if decided:
        raise InputError(
            f"what is trained follows from the plan, got {decided[0]}="
            f"{options[decided[0]]!r}; leave it out"
        )
    if tied := tied_to_embeddings(model, places):
        raise InputError(
            f"peft cannot train a head that is tied to the embeddings, got {tied[0]} of "
            f"{type(model).__name__}; use layerscout.freeze"
        )


@dataclass(frozen=True, eq=False)
class TrainableModel:
    """A classifier that trains by a method; a deep copy shares nothing with it.

    Attributes:
        model: the transformers model, whose trained parameters ask for gradients.
        plan: with the blocks that the method tunes.
        method: how.
        wrapper: with LoRA, the peft model around it, whose `merge_and_unload` adds to the weights
            what was learnt, and returns the plain model.
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


def make_trainable(
    model: Any, plan: Plan | str, method: Method | str, *, seed: int = 0
) -> TrainableModel:
    """Make a classifier train by a method, and nothing else; it is changed in place.

    The head is always trained, the embeddings by full tuning alone. Adapters stand before
    something is added to what they give: behind the output projection of attention and behind the
    feed-forward layers. In most families a norm follows the sum; in ModernBERT, which has its
    norms before attention and before the feed-forward layers, the sum is the state itself. The
    norms of the tuned blocks are trained with them. No parameter that was there changes its name,
    but with LoRA, for as long as it is not merged.

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
    family = family_of(model)
    if any(isinstance(module, Adapters | Prefix) for module in model.modules()):
        raise InputError(
            "the model already has adapters or prefixes; remove them with layerscout.unload"
        )
    blocks = count_blocks(model)
    plan = plan if isinstance(plan, Plan) else make_plan(plan, blocks)
    check_method(model.config, plan, method)
    if isinstance(method, Full):
        freeze(model, plan)
        return TrainableModel(model, plan, method)
    places = fit_plan(model, plan)[1]
    plan = apply_method(plan, method, blocks)
    with use_seed(seed):
        if isinstance(method, LoRA):
            return TrainableModel(model, plan, method, _wrap_with_lora(model, plan, method))
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(places[name] == "head")
        modules = blocks_of(base_of(model)[0], family)
        for block in plan.tuned:
            module = modules[block - 1]
            # In ALBERT a block may hold several layers.
            layers = [module] if family.layers is None else module.get_submodule(family.layers)
            for layer in layers:
                if isinstance(method, Adapter):
                    add_adapters(model.config, layer, method)
                else:
                    add_prefix(model.config, layer, method)
    return TrainableModel(model, plan, method)


def unload(model: Any) -> Any:
    """Take adapters and prefixes out of a model, in place; its blocks are the base's again.

    Norms are restored bit for bit. The head stays as it was trained.

    Args:
        model: as `load` gives it, or the `TrainableModel` one's.

    Returns:
        The model.

    Raises:
        InputError: if it has none.
    """
    family_of(model)
    changed = False
    for layer in list(model.modules()):
        own = dict(layer.named_children())
        if isinstance(adapters := own.get("adapters"), Adapters):
            adapters.remove_from(layer)
            changed = True
        if isinstance(own.get("prefix"), Prefix):
            del layer.prefix
            layer.config = base_of(model)[0].config
            changed = True
    vars(model).pop("save_pretrained", None)  # `load` replaced it by one that refuses
    if not changed:
        raise InputError("the model has neither adapters nor prefixes, so none can be removed")
    return model


def describe_step(
    encoder: Encoder, texts: int, tokens: int, *, scored: int = 0, copies: int = 1
) -> Step:
    """Describe a step of training on models that are made from an encoder; see `Step`."""
    config, device = encoder.model.config, encoder.device
    # The settings by which blocks drop numbers: not those of embeddings and heads.
    drops = [
        name
        for name, value in config.to_dict().items()
        if "drop" in name
        and isinstance(value, float)
        and value > 0
        and not any(part in name for part in ("emb", "classif", "summary"))
    ]
    names = ("hidden_act", "activation_function", "hidden_activation", "activation")
    activation = next((getattr(config, name) for name in names if hasattr(config, name)), None)
    # native_dropout, on CUDA, keeps booleans; elsewhere it is a product with a mask of numbers,
    # and the fused attention of CPUs has no dropout at all (torch 2.13).
    short = device.type == "cuda"
    weighs_apart = any("att" in name for name in drops)
    fused = config._attn_implementation == "sdpa" and (short or not weighs_apart)
    return Step(
        texts=texts,
        tokens=tokens,
        scored=scored,
        copies=copies,
        # The mask; or, for every head, the weights, and with dropout its mask and what it leaves.
        matrices=1 if fused else config.num_attention_heads * (3 if weighs_apart else 1),
        fused=fused,
        activation=4 if activation == "gelu_new" else 1,  # it is written out
        mask=(1 if short else 4) if any("att" not in name for name in drops) else 0,
    )
