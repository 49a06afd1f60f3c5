"""Where a training starts from: the last layer of the head solved on what it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.models import locate_parameters
from layerscout.states import Examples, read_inputs
from layerscout.tuning.resolve import Tuning
from layerscout.tuning.solving import deal
from layerscout.tuning.stepping import weigh_classes

# The deviation of what the head's dense layer gives, and its mean where a rectifier follows.
DEVIATION, ABOVE = 0.5, 1.0
# Answers that a start is solved on, about: more of them cost more than they tell.
ENOUGH = 10_000
# By how much the logits of a start are less than those of the solved head.
SHARE = 1.0


def solve_start(tuning: Tuning, model: Any, training: Examples) -> bool:
    """Solve the last layer of a model that is to be trained, in place.

    A dense layer before it passes the features on, one by one, brought to one deviation.

    Args:
        tuning: of the model.
        model: as it would start otherwise, with what its method adds.
        training: what it is trained on; of words, with one answer for each.

    Returns:
        Whether rows can be told apart; otherwise the last layer is as it was.
    """
    from layerscout.scores import solve_head

    encoder, (*dense, last) = tuning.encoder, list_head_layers(model)
    rows = np.arange(0, len(training), -(-len(training.answers) // ENOUGH))
    if len(dense) == 1 and encoder.family.final_norm is None:
        states = read_inputs(encoder, model, training, rows, dense[0], last).flatten(0, -2)
        averaged = encoder.family.averaged
        pass_on(dense[0], states, ABOVE if averaged and averaged[1] != "tanh" else 0.0)
    inputs = read_inputs(encoder, model, training, rows, last, last).numpy()
    answers, bias = training.find_answers(rows), last.bias is not None
    y, examples = training.answers.labels[answers], training.answers.rows[answers]
    solved = solve_head(
        [inputs],
        y,
        deal(y, np.unique(examples, return_inverse=True)[1]),
        metric=tuning.settings.metric,
        classes=len(tuning.task.labels) or None,
        bias=bias,
    )
    if solved is None:
        return False
    head = solved.head.scale(SHARE)
    with torch.no_grad():
        last.weight.copy_(torch.from_numpy(head.weights))
        if bias:
            start = torch.from_numpy(head.bias)
            if tuning.settings.class_weights:  # as if all classes were as frequent
                start += weigh_classes(training, model).log()
            last.bias.copy_(start)
    return True


def list_head_layers(model: Any) -> list[nn.Linear]:
    """Return the linear layers of a head that are trained, the one that gives its outputs last."""
    places = locate_parameters(model)
    weights = [
        name
        for name, parameter in model.named_parameters()
        if places[name] == "head" and parameter.requires_grad and parameter.ndim == 2
    ]
    return [model.get_submodule(name.removesuffix(".weight")) for name in weights]


def pass_on(dense: nn.Linear, states: Tensor, mean: float) -> None:
    """Make a layer bring every feature to one mean and to `DEVIATION`, as these states have it."""
    wide = states.double()
    before, deviation = wide.mean(dim=0), wide.std(dim=0, correction=0)
    factors = torch.where(deviation > 1e-6 * before.abs(), DEVIATION / deviation, 0.0)
    with torch.no_grad():
        dense.weight.copy_(factors.diag())
        dense.bias.copy_(mean - factors * before)
