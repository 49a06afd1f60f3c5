"""A linear head on the mean of the tokens as an ordinary classifier, with a block that averages."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from layerscout.data import Kind, describe_kind
from layerscout.errors import InputError
from layerscout.models.architecture import (
    ENDINGS,
    averaging_weights,
    base_of,
    blocks_of,
    locate_parameters,
)
from layerscout.models.classifiers import count_averaging, make_classifier, unshare_weights
from layerscout.models.encoder import Encoder
from layerscout.models.shapes import count_features
from layerscout.plans import Plan

# What the head's first layer makes of normed values, so that tanh leaves them as they are.
_SMALL = 2.0**-12
# From there on GELU leaves values as they are, in float32.
_HIGH = 8.0


def norm_means(means: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
    """Bring rows to mean 0 and deviation 1, as a norm of layers does; constant ones become 0."""
    centred = np.asarray(means, np.float64)
    centred = centred - centred.mean(axis=1, keepdims=True)
    # What rounding leaves of a constant row is no deviation.
    deviation = centred.std(axis=1, keepdims=True)
    lowest = np.abs(means).max(axis=1, keepdims=True) * np.finfo(np.float32).eps
    return np.where(deviation > lowest, centred / np.where(deviation > 0, deviation, 1), 0)


def can_average(encoder: Encoder) -> bool:
    """Return whether a block of an encoder's family can average all tokens, and its head be linear.

    `make_averaging_classifier` then makes a classifier of it.
    """
    config = encoder.model.config
    square = count_features(config) == (config.hidden_size, config.hidden_size)
    # Which some of DeBERTa's first version have: it mixes the heads of attention once more.
    mixed = getattr(config, "talking_head", False)
    return encoder.family.averaged is not None and square and not mixed


def find_linear_head(model: Any) -> tuple[Tensor, Tensor]:
    """Return weights (K, d) and biases (K,) of a head on the mean that a block averages.

    They are those of normed means, whatever the family's head does to stay linear.
    """
    places, named = locate_parameters(model), dict(model.named_parameters())
    head = (named[name].detach() for name in places if places[name] == "head")
    dense, shift, out, start = (part.cpu().double() for part in head)  # MPS has no float64
    return (out @ dense).float(), (out @ shift + start).float()


def make_averaging_classifier(
    encoder: Encoder,
    state: int,
    labels: Sequence[str],
    kind: Kind,
    weights: Float[np.ndarray, "K d"],
    bias: Float[np.ndarray, " K"],
) -> Any:
    """Make a linear head on the normed mean of the tokens a classifier that the library can load.

    It is the model cut at a state, with one block more and the family's head. The block attends to
    all tokens of the mask alike, so that each token holds their mean after its norm; the head's
    first layer keeps to where its activation is linear. It is saved in float32 alone, and
    `layerscout_averaging` in its configuration says that its top block is none of the encoder's.

    Args:
        encoder: where embeddings and blocks come from; nothing is shared.
        state: whose mean over all tokens of the mask is read, 1 to L.
        labels: class names by id; none or one for numbers.
        kind: of a task that labels texts.
        weights: of what `norm_means` makes of the means.
        bias: of the outputs.

    Returns:
        The transformers model, in float32, on the encoder's device and in eval mode; its logits are
        `norm_means(means) @ weights.T + bias`.

    Raises:
        InputError: if no block of the encoder can average, or `kind` has other heads.
    """
    if not can_average(encoder):
        raise InputError(
            f"no block of {encoder.name} can be made to average the tokens exactly, since it is of "
            f"the family {encoder.model.config.model_type}; use the classifier mean-linear"
        )
    if ENDINGS[kind] != ENDINGS["classification"]:
        raise InputError(
            f"a head on the mean of the tokens labels texts, which is not enough for "
            f"{describe_kind(kind)}; use the classifier family"
        )
    model = make_classifier(encoder, Plan((), state), labels, kind=kind, fresh_head=True)
    model, config = unshare_weights(model).requires_grad_(False), model.config
    if hasattr(config, "pooler_hidden_act"):  # DeBERTa's
        config.pooler_hidden_act = "gelu"
    blocks = blocks_of(base_of(model)[0], encoder.family)
    block = copy.deepcopy(blocks[-1])
    block.load_state_dict(averaging_weights(block, encoder.family, config.num_attention_heads))
    blocks.append(block)
    count_averaging(config)
    places, named = locate_parameters(model), dict(model.named_parameters())
    # Of the dense layer, and of the one that has an output for each class.
    dense, shift, out, start = (named[name] for name in places if places[name] == "head")
    assert encoder.family.averaged is not None
    tanh = encoder.family.averaged[1] == "tanh"
    scale, above = (_SMALL, 0.0) if tanh else (1.0, _HIGH + math.sqrt(config.hidden_size))
    scaled = (weights / scale).astype(np.float32)
    with torch.no_grad():
        dense.copy_(scale * torch.eye(len(dense)))
        shift.fill_(above)
        out.copy_(torch.from_numpy(scaled))
        start.copy_(torch.from_numpy(bias - above * scaled.sum(axis=1, dtype=np.float64)))
    return model
