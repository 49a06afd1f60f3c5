"""What models of the supported families are made of: their classes, parts and sizes."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from layerscout.data import Kind, describe_kind
from layerscout.models.families import FAMILIES, Family
from layerscout.models.quiet import quiet_transformers
from layerscout.plans import Classifier, ModelShape, Parameters, weight_sets
from layerscout.runtime import InputError

# The attribute of a bare model that holds its family: what is in the configuration is saved.
_FAMILY = "layerscout_family"

# The kinds of task that only some families have a head for, as the library's classes name them.
_SOME_HAVE = {"multiple_choice": "MultipleChoice", "token_classification": "TokenClassification"}


def family_of(model: Any) -> Family:
    """Give the family of a transformers model: what `keep_family` noted, or the table's row.

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
    found: Family | None = getattr(base_of(model)[0], _FAMILY, None) or FAMILIES.get(name)
    if found is None:
        raise InputError(
            f"{type(model).__name__} is of a family that layerscout does not know ({name}), so it "
            "cannot find the blocks; layerscout.Encoder.load tries such a model from its folder, "
            "and says why if it does not work"
        )
    return found


def keep_family(model: Any, family: Family) -> None:
    """Note in a model which family it is of; copies of the model keep that.

    Of a family that the table does not have, the row depends on the checkpoint's configuration.
    """
    setattr(base_of(model)[0], _FAMILY, family)


def base_of(model: Any) -> tuple[Any, str]:
    """Give the bare model inside one with a head, and what its parameters' names begin with."""
    prefix = model.base_model_prefix
    if hasattr(model, prefix):
        return getattr(model, prefix), f"{prefix}."
    return model, ""


def blocks_of(base: Any, family: Family) -> Any:
    """Give the list of the blocks' modules of a bare model.

    Raises:
        InputError: if it is not where its family has it.
    """
    try:
        return base.get_submodule(family.blocks)
    except AttributeError as error:
        raise InputError(
            f"{type(base).__name__} does not keep its blocks in {family.blocks}, as its family "
            "does; use one of transformers' own classes"
        ) from error


def labels_words(model: Any) -> bool:
    """Tell whether a transformers model has a head that labels every token."""
    return type(model).__name__.endswith(f"For{_SOME_HAVE['token_classification']}")


def count_blocks(model: Any) -> int:
    """Count the blocks that a transformers model has: in ALBERT those that it runs."""
    if getattr(model.config, "num_hidden_groups", None):
        return int(model.config.num_hidden_layers)
    return len(blocks_of(base_of(model)[0], family_of(model)))


def model_class(config: Any, kind: Kind = "classification", head: Classifier = "family") -> Any:
    """Give the Auto class that puts the family's own head for a kind of task on an encoder.

    Args:
        config: the transformers configuration of a supported family.
        kind: of the task, as `layerscout.data.task.Kind` names it.
        head: "mean-linear" for the class that does it for a linear layer on the mean.

    Raises:
        InputError: if the family has no head for this kind.
    """
    import transformers

    if head == "mean-linear":
        from layerscout.models.mean_linear import MeanLinear

        if kind in _SOME_HAVE:
            raise InputError(
                "the classifier mean-linear reads the mean of one text, which is not enough for "
                f"{describe_kind(kind)}; use the classifier family"
            )
        return MeanLinear
    if kind not in _SOME_HAVE:
        return transformers.AutoModelForSequenceClassification
    auto = getattr(transformers, f"AutoModelFor{_SOME_HAVE[kind]}")
    classes: Mapping[Any, Any] = auto._model_mapping
    if type(config) not in classes:
        known = transformers.CONFIG_MAPPING
        having = [name for name in FAMILIES if known[name] in classes]
        raise InputError(
            f"transformers has no head for {describe_kind(kind)} in the family "
            f"{config.model_type}; use a model of {', '.join(having)}"
        )
    # ELECTRA's can be configured to read other tokens than the first, padding among them.
    if kind == "multiple_choice" and getattr(config, "summary_type", "first") != "first":
        raise InputError(
            "a head for multiple choice must read the first token, got "
            f"summary_type={config.summary_type!r}; set it to 'first' in the model's config.json"
        )
    return auto


# What was counted once: a tuning asks for the same shape four times, and a study in every trial.
_SHAPES: dict[tuple[Any, ...], ModelShape] = {}


def model_shape(
    config: Any,
    labels: int,
    kind: Kind = "classification",
    head: Classifier = "family",
    family: Family | None = None,
) -> ModelShape:
    """Count the parameters of a model with its family's own head, without making any weights.

    Args:
        config: the transformers configuration of a supported family.
        labels: outputs of the head for classes; for numbers 0 or 1, which is one output.
        kind: of the task; the head for multiple choice has one output whatever `labels` says.
        head: as for `model_class`.
        family: as loading found it; the table's row unless it is given.

    Raises:
        InputError: if the family has no head for this kind.
    """
    family = family or FAMILIES[config.model_type]
    config = copy.deepcopy(config)
    config.num_labels = max(1, labels)
    key = type(config), config.to_json_string(use_diff=False), kind, head, family
    if key not in _SHAPES:
        _SHAPES[key] = _count_shape(config, model_class(config, kind, head), family)
    return _SHAPES[key]


def _count_shape(config: Any, auto: Any, family: Family) -> ModelShape:
    with torch.device("meta"), quiet_transformers():
        model = auto.from_config(config)
    base = getattr(model, model.base_model_prefix)
    blocks = base.get_submodule(family.blocks)
    after = [m for name in family.head_parts if (m := _find_module(base, name)) is not None]
    queries, keys = count_features(config)
    L, total = config.num_hidden_layers, _count(model)
    # ALBERT's list is shorter than L: its groups serve several blocks each.
    weights = weight_sets(L, len(blocks))
    in_base, in_blocks, in_head = _count(base), _count(blocks), sum(map(_count, after))
    return ModelShape(
        family=config.model_type,
        blocks=L,
        hidden_size=config.hidden_size,
        feed_forward=_feed_forward(config),
        vocabulary=config.vocab_size,
        parameters=Parameters(
            embeddings=in_base - in_blocks - in_head,
            blocks=tuple(_count(blocks[i]) for i in weights),
            head=total - in_base + in_head,
            total=total,
        ),
        queries=queries,
        keys=keys,
        gated=family.gated,
        fused=family.fused,
        first_normed=(2 if family.first_differs else 1) if family.normed_input else None,
        weights=weights,
        norms=tuple(sum(p.numel() for p in norm_parameters(blocks[i])) for i in weights),
        linear=tuple(_linear(blocks[i]) for i in weights),
    )


def count_features(config: Any) -> tuple[int, int]:
    """Count the features of all queries of a token, and of all its keys, which heads may share."""
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return heads * size, (getattr(config, "num_key_value_heads", None) or heads) * size


def shared_weights(config: Any) -> tuple[int, ...]:
    """Give which set of weights each block 1..L uses, from a configuration; see `weight_sets`."""
    blocks = int(config.num_hidden_layers)
    return weight_sets(blocks, getattr(config, "num_hidden_groups", None) or blocks)


def norm_parameters(block: nn.Module) -> list[nn.Parameter]:
    """List the weights and biases of the norms of a block."""
    return [parameter for name, parameter in block.named_parameters() if is_norm(name)]


UNLIMITED = 2**31  # positions, where they are not counted

# What a configuration lists for each block: whether it attends to everything or to a window,
# whether it rotates positions.
PER_BLOCK = ("layer_types", "mlp_layer_types", "no_rope_layers")

# GPT-2 calls its norms ln_1 and ln_2.
NORM = re.compile(r"norm|\bln_", re.IGNORECASE)


def is_norm(name: str) -> bool:
    """Tell by the name of a block's parameter whether it is one of a norm."""
    return NORM.search(name) is not None


def is_linear(module: nn.Module) -> bool:
    """Tell whether a module multiplies by a matrix: linear layers, and GPT-2's own kind of them.

    Not those made from them, such as PhiMoE's routers: peft refuses to adapt these.
    """
    from transformers.pytorch_utils import Conv1D

    return type(module) in (nn.Linear, Conv1D)


def _linear(block: nn.Module) -> int:
    weights = [m.get_parameter("weight") for m in block.modules() if is_linear(m)]
    return sum(sum(weight.shape) for weight in weights)


def _feed_forward(config: Any) -> int:
    names = ("intermediate_size", "hidden_dim", "n_inner")
    given = [getattr(config, name, None) for name in names]
    return int(next(filter(None, given), 4 * config.hidden_size))


def _find_module(base: Any, path: str) -> Any:
    """Give a module of a bare model by its path; None where there is none."""
    try:
        return base.get_submodule(path)
    except AttributeError:
        return None


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def make_config(
    family: str, blocks: int, hidden_size: int, feed_forward: int, vocabulary: int
) -> Any:
    """Make the configuration of a model of a family that has these sizes."""
    from transformers import AutoConfig

    return AutoConfig.for_model(
        family,
        num_hidden_layers=blocks,
        hidden_size=hidden_size,
        num_attention_heads=max(1, hidden_size // 64),
        intermediate_size=feed_forward,
        vocab_size=vocabulary,
    )


def cut_config(config: Any, head: int) -> Any:
    """Give a copy of a transformers configuration for the model cut at state `head`."""
    config = copy.deepcopy(config)
    if groups := getattr(config, "num_hidden_groups", None):  # ALBERT's sets of weights
        config.num_hidden_groups = weight_sets(config.num_hidden_layers, groups)[head - 1] + 1
    config.num_hidden_layers = head
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
