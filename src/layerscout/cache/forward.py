"""Running models on encoded examples, from the states at the cut where there are any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.cache.examples import Examples, make_batch, make_batches
from layerscout.cache.processes import make_accelerator
from layerscout.data import expand_choices
from layerscout.models import Encoder, base_of, resume_at, widen


def compute_logits(
    encoder: Encoder, model: Any, examples: Examples, rows: np.ndarray, *, run: Any = None
) -> Tensor:
    """Run a model of `encoder` on the examples at `rows`, from the cut if there is one.

    Args:
        encoder: what the model was made from.
        model: the model.
        examples: the encoded examples.
        rows: of the examples, (b,).
        run: called instead of the model, for example to gather gradients.

    Returns:
        (b, K), or (b, C) for examples with choices, or (w, K) for the words of the examples;
        float32 or more precise.
    """
    inputs, trunk = make_batch(encoder, examples, rows), examples.trunk
    if trunk is None:
        with encoder.autocast():
            logits = widen((model if run is None else run)(**inputs).logits)
    else:
        states = trunk.states(expand_choices(rows, examples.choices))
        logits = resume_from_states(encoder, model, inputs, states, trunk.cut, run=run)
    return examples.take_outputs(rows, logits)


def resume_from_states(
    encoder: Encoder,
    model: Any,
    inputs: Mapping[str, Tensor],
    states: Tensor,
    block: int,
    *,
    run: Any = None,
) -> Tensor:
    """Run a model of `encoder` from given states: blocks 1..`block` are skipped.

    Args:
        encoder: what the model was made from.
        model: the model.
        inputs: from `make_batch`; of the tokens that the head reads where `states` holds no others.
        states: (b C, T, d), what block `block` + 1, or the head, reads.
        block: 0 to L.
        run: as for `compute_logits`.

    Returns:
        What the model gives: of every token, (b, T, K), where words are labelled.
    """
    with (
        encoder.autocast(),
        resume_at(base_of(model)[0], encoder.family, states, block),
    ):
        return widen((model if run is None else run)(**inputs).logits)


def compute_loss(found: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean loss: cross-entropy, or the squared error if the labels are numbers.

    Args:
        found: logits, (b, K).
        labels: (b,), class ids or right choices, or numbers, which one output predicts; or bool
            (b, K), which labels each has: the cross-entropy is then the mean over them.
        weights: of class ids, (K,): the mean is of each example's loss times its class's weight.
    """
    if labels.dtype == torch.bool:
        indicators = labels.to(found.dtype).to(found.device)
        return nn.functional.binary_cross_entropy_with_logits(found, indicators)
    if labels.is_floating_point():
        numbers = labels.to(found.dtype).to(found.device)  # MPS has no float64
        return nn.functional.mse_loss(found[:, 0], numbers)
    ids = labels.to(found.device)
    if weights is None:
        return nn.functional.cross_entropy(found, ids)
    # Not divided by the weights of the batch, as torch would: then a step over several batches, or
    # processes, would not be the one over all of their examples.
    losses = nn.functional.cross_entropy(found, ids, reduction="none")
    return (losses * weights.to(losses)[ids]).mean()


def predict(encoder: Encoder, model: Any, examples: Examples) -> Tensor:
    """Return the logits of all examples in their order, (n, K) float32 on the CPU, in eval mode.

    Those of all words, (w, K), where words are labelled. Several processes share the batches.
    """
    model.eval()
    outputs = model.config.num_labels if examples.choices == 1 else examples.choices
    found = torch.zeros(len(examples.answers), outputs)
    accelerator = make_accelerator()
    own, processes = accelerator.process_index, accelerator.num_processes
    with torch.no_grad():
        for rows in make_batches(encoder, examples)[own::processes]:
            places = examples.find_answers(rows)
            found[places] = compute_logits(encoder, model, examples, rows).float().cpu()
    if processes > 1:
        found = accelerator.reduce(found.to(accelerator.device), "sum").cpu()
    return found
