"""Classifiers that train by adapters, LoRA or prefix-tuning, and how these are taken out again."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from layerscout.models.checkpoints import is_norm, shared_weights
from layerscout.models.surgery import (
    base_of,
    family_of,
    freeze,
    locate_parameters,
    lora_config,
    use_seed,
)
from layerscout.plans import (
    FAMILIES,
    Adapter,
    Full,
    LoRA,
    Method,
    Plan,
    PrefixTuning,
    applied,
    check_family,
    check_tunes_blocks,
    check_untied,
    make_method,
    make_plan,
)
from layerscout.runtime import InputError, check_integer

DROPOUT = 0.1  # inside an adapter
SPREAD = 0.02  # of what new weights are drawn from
_ATTENTION = "layerscout_prefix"  # under which transformers knows the attention with a prefix


class Bottleneck(nn.Module):
    """x + up(dropout(relu(down(x)))), each token by itself. Houlsby et al. 2019, §2.1."""

    def __init__(self, width: int, method: Adapter) -> None:
        """Draw the weights for d = `width` features."""
        super().__init__()
        self.down = nn.Linear(width, method.bottleneck)
        self.dropout = nn.Dropout(DROPOUT)
        self.up = nn.Linear(method.bottleneck, width)
        nn.init.normal_(self.down.weight, std=SPREAD)
        nn.init.normal_(self.up.weight, std=0.0 if method.adapter_init == "identity" else SPREAD)
        nn.init.zeros_(self.down.bias)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """Adapt what a module gave."""
        added: Tensor = self.up(self.dropout(torch.relu(self.down(x))))
        return x + added

    def after(self, _: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor:
        """Be the forward hook of the module that this one follows."""
        adapted: Tensor = self(output)
        return adapted


class Adapters(nn.Module):
    """The two adapters of a layer, and the norms as they were before they were trained with them.

    A hook is a method of a module of the model, so that a copy of the model has copies of all.
    """

    def __init__(self, layer: nn.Module, after: tuple[str, str], width: int, method: Adapter):
        """Hook new adapters to two modules of the layer."""
        super().__init__()
        self.attention = Bottleneck(width, method)
        self.feed_forward = Bottleneck(width, method)
        for number, norm in enumerate(_norms(layer)):
            self.register_buffer(f"norm_{number}", norm.detach().clone(), persistent=False)
        hooks = (self.attention.after, self.feed_forward.after)
        self.handles = [
            layer.get_submodule(name).register_forward_hook(hook)
            for name, hook in zip(after, hooks, strict=True)
        ]

    def take_out(self, layer: nn.Module) -> None:
        """Leave the layer as it was before."""
        for handle in self.handles:
            handle.remove()
        del layer.adapters
        with torch.no_grad():
            for norm, earlier in zip(_norms(layer), self.buffers(recurse=False), strict=True):
                norm.copy_(earlier)


class Prefix(nn.Module):
    """Keys and values, (P, d) each, of P virtual tokens. Li and Liang 2021, §4."""

    def __init__(self, tokens: int, width: int) -> None:
        """Draw them."""
        super().__init__()
        self.key = nn.Parameter(SPREAD * torch.randn(tokens, width))
        self.value = nn.Parameter(SPREAD * torch.randn(tokens, width))


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
    """Show that the models of a configuration can be tuned by a method as a plan says.

    Args:
        config: the transformers configuration of a supported family.
        plan: for this model, or for the one that was cut at its head.
        method: any method.

    Raises:
        InputError: if the plan tunes no block, the family or the sharing of weights rules the
            method out, or there are more virtual tokens than positions.
    """
    check_tunes_blocks(plan, method)
    if isinstance(method, Full | LoRA):
        return
    family = config.model_type
    check_family(family, method)
    if isinstance(method, PrefixTuning):
        _check_positions(config, method)
    weights = shared_weights(config)[: plan.head]
    check_untied(family, weights, method)


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
            "the model has adapters or prefixes already; take them out with layerscout.unload"
        )
    if not isinstance(plan, Plan):
        plan = make_plan(plan, int(model.config.num_hidden_layers))
    check_method(model.config, plan, method)
    freeze(model, plan)  # which shows that the plan fits
    if isinstance(method, Full):
        return Equipped(model, plan, method)
    plan = applied(plan, method, int(model.config.num_hidden_layers))
    with use_seed(seed):
        if isinstance(method, LoRA):
            return Equipped(model, plan, method, _wrapped(model, plan, method))
        layers = list(_layers(model, plan))
        head = {name for name, place in locate_parameters(model).items() if place == "head"}
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in head)
        for layer in layers:
            if isinstance(method, Adapter):
                _adapt(model.config, layer, method)
            else:
                _prefix(model.config, layer, method)
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
            adapters.take_out(layer)
            found += 1
        if isinstance(own.get("prefix"), Prefix):
            del layer.prefix
            layer.config = base_of(model)[0].config
            found += 1
    vars(model).pop("save_pretrained", None)  # which `load` has put in the way
    if not found:
        raise InputError("the model has neither adapters nor prefixes, so none can be taken out")
    return model


def merge_lora(equipped: Equipped) -> Any:
    """Add what LoRA learnt to the weights, in place.

    Returns:
        The plain transformers model: the names are those before, and no peft is in it.

    Raises:
        InputError: if the method is not LoRA.
    """
    return peft_model(equipped).merge_and_unload()


def _check_positions(config: Any, method: PrefixTuning) -> None:
    positions = int(config.max_position_embeddings)
    if FAMILIES[config.model_type].positions_after_padding:
        positions -= config.pad_token_id + 1
    remedy = f"so many positions this {config.model_type} has"
    check_integer("virtual_tokens", method.virtual_tokens, 1, positions, remedy)


def _layers(model: Any, plan: Plan) -> Iterator[nn.Module]:
    """Give the layers of the tuned blocks; in ALBERT a block may hold several."""
    family = family_of(model)
    blocks = base_of(model)[0].get_submodule(family.blocks)
    for block in plan.tuned:
        module = blocks[block - 1]
        yield from [module] if family.layers is None else module.get_submodule(family.layers)


def _norms(layer: nn.Module) -> list[nn.Parameter]:
    return [parameter for name, parameter in layer.named_parameters() if is_norm(name)]


def _adapt(config: Any, layer: Any, method: Adapter) -> None:
    norms = _norms(layer)
    adapters = Adapters(layer, FAMILIES[config.model_type].adapted, config.hidden_size, method)
    layer.adapters = adapters.to(norms[0].device).train(layer.training)
    for norm in norms:
        norm.requires_grad_(True)


def _prefix(config: Any, layer: Any, method: PrefixTuning) -> None:
    from transformers import AttentionInterface

    attention = layer.get_submodule(FAMILIES[config.model_type].prefixed)
    device = next(attention.parameters()).device
    prefix = Prefix(method.virtual_tokens, config.hidden_size)
    attention.prefix = prefix.to(device).train(layer.training)
    AttentionInterface.register(_ATTENTION, attend_with_prefix)
    # Of its own, since the model builds its masks by the implementation that its own one names.
    attention.config = copy.copy(attention.config)
    attention.config._attn_implementation = _ATTENTION


def attend_with_prefix(
    module: Any,
    query: Float[Tensor, "b h T s"],
    key: Float[Tensor, "b h T s"],
    value: Float[Tensor, "b h T s"],
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend to the virtual tokens of a module's prefix, and then to the text, as ever.

    It is what transformers calls in place of its own; the mask is true or 0 for what is seen.
    """
    from transformers import AttentionInterface

    prefix: Prefix = module.prefix
    batch, heads, _, size = key.shape

    def before(text: Tensor, virtual: Tensor) -> Tensor:
        split = virtual.to(text.dtype).view(-1, heads, size).transpose(0, 1)
        return torch.cat([split.expand(batch, -1, -1, -1), text], dim=2)

    if attention_mask is not None:
        seen = True if attention_mask.dtype == torch.bool else 0.0
        tokens = len(prefix.key)
        attention_mask = nn.functional.pad(attention_mask, (tokens, 0), value=seen)
    attend = AttentionInterface()["sdpa"]
    found: tuple[Tensor, Tensor | None] = attend(
        module,
        query,
        before(key, prefix.key),
        before(value, prefix.value),
        attention_mask,
        **options,
    )
    return found


def _wrapped(model: Any, plan: Plan, method: LoRA) -> Any:
    config = lora_config(model, plan, r=method.rank, lora_alpha=method.lora_alpha)
    from peft import get_peft_model

    with warnings.catch_warnings():  # peft asks for what transformers will soon rename
        warnings.simplefilter("ignore", FutureWarning)
        wrapper = get_peft_model(model, config)
    return wrapper.train(model.training)


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
