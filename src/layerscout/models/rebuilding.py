"""Models made again from configuration and weights, as loading what was saved makes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from layerscout.models.forward import eval_mode
from layerscout.models.quiet import quiet_transformers

# By how much two ways to the same states may differ, beside the largest value.
TOLERANCE = 1e-5


def make_short_inputs(model: Any, tokens: int = 5) -> dict[str, Tensor]:
    """Make two inputs, each (2, T), of which the second ends in two tokens of padding."""
    words = min(model.get_input_embeddings().num_embeddings, 1000)
    ids = torch.arange(2 * tokens).reshape(2, tokens) * 7 % (words - 3) + 3
    ids = torch.where(ids == (model.config.pad_token_id or 0), 2, ids)  # positions may skip it
    seen = torch.ones_like(ids)
    seen[1, -2:] = 0
    return {"input_ids": ids.to(model.device), "attention_mask": seen.to(model.device)}


def agree(found: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Tell whether two ways gave the same states."""
    return bool((found - expected).abs().max() <= tolerance * expected.abs().max())


def make_unweighted(kind: Any, config: Any) -> Any:
    """Make a model of a class of transformers whose weights have shapes, and no values yet.

    Nothing is drawn for them either: on the meta device that takes most of the time.
    """
    from accelerate import init_empty_weights
    from transformers.initialization import no_init_weights

    with init_empty_weights(include_buffers=False), no_init_weights(), quiet_transformers():
        return kind.from_config(config)


def rebuild(model: Any, config: Any) -> Any:
    """Make a bare model from a configuration that was written and read, with another's weights.

    The weights are shared, so that it takes no memory worth mentioning.

    Raises:
        Exception: of any kind, if the configuration is refused or asks for other weights.
    """
    from transformers import AutoModel

    again = make_unweighted(AutoModel, type(config).from_dict(config.to_dict()))
    weights, wanted = model.state_dict(), again.state_dict()
    for name, tensor in wanted.items():
        if name not in weights or weights[name].shape != tensor.shape:
            raise ValueError(f"{name} would have another shape")
    again.load_state_dict({name: weights[name] for name in wanted}, assign=True)
    return again.to(model.device)


def survives_saving(model: Any) -> bool:
    """Tell whether a bare model gives the same once it is saved and loaded, on two short inputs."""
    inputs = make_short_inputs(model)
    try:
        again = rebuild(model, model.config)
    except Exception:  # the library refuses configurations in many ways
        return False
    seen = inputs["attention_mask"].bool()
    with eval_mode(model), eval_mode(again):
        found = again(**inputs).last_hidden_state[seen]
        return agree(found, model(**inputs).last_hidden_state[seen])
