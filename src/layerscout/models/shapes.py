"""The classes of models with a head for a kind of task, and the sizes of what they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from layerscout.data import Kind, describe_kind
from layerscout.errors import InputError
from layerscout.models.architecture import (
    AVERAGING,
    ENDINGS,
    cut_config,
    is_linear,
    norm_parameters,
)
from layerscout.models.devices import quiet_transformers
from layerscout.models.families import FAMILIES, Family
from layerscout.plans import Classifier, ModelShape, Parameters, weight_sets


def make_unweighted(kind: Any, config: Any) -> Any:
    """Make a model of a class of transformers whose weights have shapes, and no values yet.

    Nothing is drawn for them either: on the meta device that takes most of the time.
    """
    from accelerate import init_empty_weights
    from transformers.initialization import no_init_weights

    with init_empty_weights(include_buffers=False), no_init_weights(), quiet_transformers():
        return kind.from_config(config)


def model_class(
    config: Any, kind: Kind = "classification", classifier: Classifier = "family"
) -> Any:
    """Return the Auto class that puts the family's own head for a kind of task on an encoder.

    Args:
        config: the transformers configuration of a supported family.
        kind: of the task, as `layerscout.data.task.Kind` names it.
        classifier: "mean-linear" for the class that does it for a linear layer on the mean.

    Raises:
        InputError: if the family has no head for this kind.
    """
    import transformers

    if classifier == "mean-linear":
        from layerscout.models.mean_linear import MeanLinear

        if ENDINGS[kind] != ENDINGS["classification"]:
            raise InputError(
                "the classifier mean-linear reads the mean of one text, which is not enough for "
                f"{describe_kind(kind)}; use the classifier family"
            )
        return MeanLinear
    auto = getattr(transformers, f"AutoModel{ENDINGS[kind]}")
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
    classifier: Classifier = "family",
    family: Family | None = None,
) -> ModelShape:
    """Count the parameters of a model with its family's own head, without making any weights.

    Args:
        config: the transformers configuration of a supported family; a block that averages for the
            head does not count.
        labels: outputs of the head for classes; for numbers 0 or 1, which is one output.
        kind: of the task; the head for multiple choice has one output whatever `labels` says.
        classifier: as for `model_class`.
        family: as loading found it; the table's row unless it is given.

    Raises:
        InputError: if the family has no head for this kind.
    """
    family = family or FAMILIES[config.model_type]
    blocks = config.num_hidden_layers - getattr(config, AVERAGING, False)
    config = cut_config(config, blocks)
    config.num_labels = max(1, labels)
    key = type(config), config.to_json_string(use_diff=False), kind, classifier, family
    if key in _SHAPES:
        return _SHAPES[key]
    auto = model_class(config, kind, classifier)
    with torch.device("meta"), quiet_transformers():
        model = auto.from_config(config)
    base = getattr(model, model.base_model_prefix)
    blocks = base.get_submodule(family.blocks)
    heads = tuple(f"{part}." for part in family.head_parts)
    in_head = sum(p.numel() for name, p in base.named_parameters() if name.startswith(heads))
    in_base, in_blocks, total = _count(base), _count(blocks), _count(model)
    queries, keys = count_features(config)
    # ALBERT's list is shorter than L: its groups serve several blocks each.
    weights = weight_sets(config.num_hidden_layers, len(blocks))
    sizes = (getattr(config, n, None) for n in ("intermediate_size", "hidden_dim", "n_inner"))
    _SHAPES[key] = ModelShape(
        family=config.model_type,
        blocks=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        feed_forward=int(next(filter(None, sizes), 4 * config.hidden_size)),
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
        linear=tuple(
            sum(sum(m.get_parameter("weight").shape) for m in blocks[i].modules() if is_linear(m))
            for i in weights
        ),
    )
    return _SHAPES[key]


def count_features(config: Any) -> tuple[int, int]:
    """Count the features of all queries of a token, and of all its keys, which heads may share."""
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return heads * size, (getattr(config, "num_key_value_heads", None) or heads) * size


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
