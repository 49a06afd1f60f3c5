"""What a model is made of: its family, blocks and head, and where each parameter lies."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from layerscout.data import Kind
from layerscout.errors import InputError
from layerscout.models.families import FAMILIES, Family
from layerscout.plans import (
    Plan,
    make_plan,
    ranges,
    weight_sets,
)

# The attribute of a bare model that holds its family: what is in the configuration is saved.
_FAMILY = "layerscout_family"

# What the names of the library's classes with a head for a kind of task end with.
ENDINGS: Mapping[Kind, str] = {
    "classification": "ForSequenceClassification",
    "multi_label_classification": "ForSequenceClassification",
    "regression": "ForSequenceClassification",
    "token_classification": "ForTokenClassification",
    "multiple_choice": "ForMultipleChoice",
}

# In a configuration: the top block is none of the encoder's, but averages for a head on the mean.
AVERAGING = "layerscout_averaging"

# By how much the mean is more than the state that a block adds to it.
_LARGE = 2.0**24

UNLIMITED = 2**31  # positions, where they are not counted

# What a configuration lists for each block: whether it attends to everything or to a window,
# whether it rotates positions.
PER_BLOCK = ("layer_types", "mlp_layer_types", "no_rope_layers")

# The names of norms and of their weights: GPT-2 calls them ln_1 and ln_2.
NORM = re.compile(r"norm|\bln_", re.IGNORECASE)


def family_of(model: Any) -> Family:
    """Return the family of a transformers model: what `keep_family` noted, or the table's row.

    Raises:
        InputError: if it is not a transformers model of a known family.
    """
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):  # a wrapper, such as peft's, has other names
        raise InputError(
            f"the model must be a model of transformers, got {type(model).__name__}; pass it "
            "before it is wrapped"
        )
    name = str(model.config.model_type)
    family: Family | None = getattr(base_of(model)[0], _FAMILY, None) or FAMILIES.get(name)
    if family is None:
        raise InputError(
            f"{type(model).__name__} is of a family that layerscout does not know ({name}), so it "
            "cannot find the blocks; layerscout.Encoder.load tries such a model from its folder, "
            "and says why if it does not work"
        )
    return family


def keep_family(model: Any, family: Family) -> None:
    """Note in a model which family it is of; copies of the model keep that.

    Of a family that the table does not have, the row depends on the checkpoint's configuration.
    """
    setattr(base_of(model)[0], _FAMILY, family)


def base_of(model: Any) -> tuple[Any, str]:
    """Return the bare model inside one with a head, and what its parameters' names begin with."""
    prefix = model.base_model_prefix
    if hasattr(model, prefix):
        return getattr(model, prefix), f"{prefix}."
    return model, ""


def blocks_of(base: Any, family: Family) -> Any:
    """Return the list of the blocks' modules of a bare model."""
    return base.get_submodule(family.blocks)


def labels_words(model: Any) -> bool:
    """Return whether a transformers model has a head that labels every token."""
    return type(model).__name__.endswith(ENDINGS["token_classification"])


def count_blocks(model: Any) -> int:
    """Count the blocks that a transformers model has: in ALBERT those that it runs."""
    if getattr(model.config, "num_hidden_groups", None):
        return int(model.config.num_hidden_layers)
    return len(blocks_of(base_of(model)[0], family_of(model)))


def shared_weights(config: Any) -> tuple[int, ...]:
    """Return which set of weights each block 1..L uses, from a configuration; see `weight_sets`."""
    blocks = int(config.num_hidden_layers)
    return weight_sets(blocks, getattr(config, "num_hidden_groups", None) or blocks)


def norm_parameters(block: nn.Module) -> list[nn.Parameter]:
    """List the weights and biases of the norms of a block."""
    return [parameter for name, parameter in block.named_parameters() if NORM.search(name)]


def is_linear(module: nn.Module) -> bool:
    """Return whether a module multiplies by a matrix: linear layers, and GPT-2's own kind of them.

    Not those made from them, such as PhiMoE's routers: peft refuses to adapt these.
    """
    from transformers.pytorch_utils import Conv1D

    return type(module) in (nn.Linear, Conv1D)


def averaging_weights(block: nn.Module, family: Family, heads: int) -> dict[str, Tensor]:
    """Return weights with which a block gives every token the normed mean over all tokens.

    Without queries and keys attention is alike on all that the mask shows; values are the states.

    Args:
        block: of a family that has `averaged`.
        family: of its model.
        heads: of its attention.
    """
    assert family.averaged is not None and family.adapted is not None
    eyes = {f"{family.averaged[0]}.weight": 1.0, f"{family.adapted[0]}.weight": _LARGE}
    weights = {}
    for name, parameter in block.named_parameters():
        weights[name] = torch.zeros_like(parameter)
        if name in eyes:
            _, d = parameter.shape
            # Of a single matrix for all three, each head has query, key and value in turn.
            parts = weights[name].view(heads, -1, d // heads, d)
            parts[:, -1] = eyes[name] * torch.eye(d).view(heads, d // heads, d)
        elif NORM.search(name) and name.endswith("weight"):
            weights[name].fill_(1.0)
    return weights


def has_averaging(model: Any) -> bool:
    """Return whether the top block of a transformers model averages, as its configuration says.

    If it was trained since, it is a block like the others.
    """
    family = family_of(model)
    if family.averaged is None or not getattr(model.config, AVERAGING, False):
        return False
    block = blocks_of(base_of(model)[0], family)[-1]
    expected = averaging_weights(block, family, model.config.num_attention_heads)
    return all(parameter.equal(expected[name]) for name, parameter in block.named_parameters())


def cut_config(config: Any, head: int) -> Any:
    """Return a copy of a transformers configuration for the model cut at state `head`."""
    config = copy.deepcopy(config)
    if groups := getattr(config, "num_hidden_groups", None):  # ALBERT's sets of weights
        config.num_hidden_groups = weight_sets(config.num_hidden_layers, groups)[head - 1] + 1
    config.num_hidden_layers = head
    vars(config).pop(AVERAGING, None)
    for name in PER_BLOCK:
        if getattr(config, name, None):
            setattr(config, name, getattr(config, name)[:head])
    return config


def usable_positions(config: Any, family: Family | None = None) -> int:
    """Count the tokens that the position table of a configuration has room for.

    Args:
        config: the transformers configuration.
        family: as loading found it; the table's row unless it is given.
    """
    family = family or FAMILIES.get(config.model_type)
    positions = int(getattr(config, "max_position_embeddings", None) or UNLIMITED)
    if family is not None and family.positions_after_padding:
        positions -= config.pad_token_id + 1
    return positions


Place = str | tuple[int, ...]


def locate_parameters(model: Any) -> dict[str, Place]:
    """Find where each parameter of a transformers model lies.

    Returns:
        By name: "embeddings", "head", or the numbers of its blocks (several in ALBERT). What lies
        in neither block nor head counts as embeddings: the relative positions of DeBERTa and MPNet,
        DeBERTa-v2's norm and convolution beside the blocks, the projections of ELECTRA and ALBERT.
        Weights that the head is tied to lie where the encoder has them.

    Raises:
        InputError: if it is not a transformers model of a supported family.
    """
    family = family_of(model)
    base, prefix = base_of(model)
    heads = tuple(f"{part}." for part in family.head_parts)
    sets = weight_sets(count_blocks(model), len(blocks_of(base, family)))
    named = list(model.named_parameters(remove_duplicate=False))
    places: dict[str, Place] = {}
    for name, _ in named:
        inner = name.removeprefix(prefix)
        if not name.startswith(prefix) or inner.startswith(heads):
            places[name] = "head"
        elif inner.startswith(f"{family.blocks}."):
            group = int(inner.removeprefix(f"{family.blocks}.").split(".")[0])
            places[name] = tuple(i for i, own in enumerate(sets, start=1) if own == group)
        else:
            places[name] = "embeddings"
    inside = {id(parameter): places[name] for name, parameter in named if places[name] != "head"}
    return {name: inside.get(id(parameter), "head") for name, parameter in named}


def head_modules(model: Any, places: Mapping[str, Place]) -> list[str]:
    """Name the modules that make up the head, in full."""
    prefix = base_of(model)[1]
    parts = [f"{prefix}{part}" for part in family_of(model).head_parts]

    def name_module(name: str) -> str:
        return next((p for p in parts if name.startswith(f"{p}.")), name.split(".")[0])

    names = [name for name, place in places.items() if place == "head"]
    return list(dict.fromkeys(map(name_module, names)))


def fit_plan(model: Any, plan: Plan | str) -> tuple[Plan, dict[str, Place]]:
    """Check a plan against a whole model; give it for this model, and where the parameters lie.

    Raises:
        InputError: if the plan does not fit the model, or tears apart blocks that share weights.
    """
    if has_averaging(model):
        raise InputError(
            "a head on the mean cannot be trained further, got a "
            f"{type(model).__name__} whose top block averages for it; start from layerscout.build "
            "with the folder, which leaves both out"
        )
    places = locate_parameters(model)
    blocks = count_blocks(model)
    plan = (plan if isinstance(plan, Plan) else make_plan(plan, blocks)).on(blocks)
    if plan.head != blocks:
        raise InputError(
            f"the head must be on the model's top block, {blocks}, got a plan with the head at "
            f"{plan.head}; cut the model with layerscout.build, or load it with num_hidden_layers="
            f"{plan.head}"
        )
    tuned, matched = set(plan.tuned), set[int]()
    for place in places.values():
        if isinstance(place, tuple) and not tuned.isdisjoint(place):
            matched.update(place)
    if tuned < matched:
        raise InputError(
            f"blocks that share their weights must be tuned together, got {plan.notation}, which "
            f"leaves out {ranges(sorted(matched - tuned))}; give each its own with "
            "layerscout.build(..., untie=True)"
        )
    return plan, places


def tunes(plan: Plan, place: Place) -> bool:
    """Return whether a plan trains the parameters of a place."""
    if place == "head":
        return True
    if place == "embeddings":
        return bool(plan.embeddings)
    return not set(plan.tuned).isdisjoint(place)


def tied_to_embeddings(model: Any, places: Mapping[str, Place]) -> list[str]:
    """List the parameters of the head that are the embeddings' too."""
    prefix = base_of(model)[1]
    return [n for n, place in places.items() if not n.startswith(prefix) and place != "head"]


@dataclass(frozen=True, repr=False)
class Frozen:
    """What `freeze` did to a model.

    Attributes:
        trained: names of the parameters that are trained, each tensor once.
        frozen: names of the others.
        summary: the same in one line: how many, and which parts of the model they are.
    """

    trained: tuple[str, ...]
    frozen: tuple[str, ...]
    summary: str

    def __repr__(self) -> str:
        return self.summary


def freeze(model: Any, plan: Plan | str) -> Frozen:
    """Make a transformers model train what the plan tunes, and nothing else.

    The model may be bare or have any head, which is trained. Weights that the head shares with
    the embeddings, as the output of a masked-language model does, are treated as embeddings.

    Args:
        model: of a supported family, with as many blocks as the plan's head says; nothing but
            `requires_grad` of its parameters is changed.
        plan: a plan, or a strategy that needs no scan, such as "top:3" or "(7, 9, 12)".

    Returns:
        What is trained and what is frozen.

    Raises:
        InputError: if the plan does not fit the model, or nothing would be trained.
    """
    plan, places = fit_plan(model, plan)
    named = dict(model.named_parameters())
    trained = tuple(name for name in named if tunes(plan, places[name]))
    if not trained:
        raise InputError(
            f"{plan.notation} tunes only the head, and {type(model).__name__} has none; tune "
            "blocks too, or take a model with a head"
        )
    for name, parameter in named.items():
        parameter.requires_grad_(name in trained)
    parts = ["embeddings"] if plan.embeddings else []
    parts += [f"blocks {ranges(plan.tuned)}"] if plan.tuned else []
    parts += ["head"] if any(places[name] == "head" for name in trained) else []
    sizes = sum(named[name].numel() for name in trained), sum(p.numel() for p in named.values())
    tied = tied_to_embeddings(model, places)
    return Frozen(
        trained,
        tuple(name for name in named if name not in set(trained)),
        f"trains {len(trained)} of {len(named)} tensors, {sizes[0]:,} of {sizes[1]:,} parameters: "
        + ", ".join(parts)
        + (f"; {tied[0]} is tied to the frozen embeddings" if tied and not plan.embeddings else ""),
    )
