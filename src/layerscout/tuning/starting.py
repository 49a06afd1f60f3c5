"""Where a training starts from: the last layer of the head solved on what it is given."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.data import smooth_shares
from layerscout.models import find_output, locate_parameters
from layerscout.states import Examples, read_inputs
from layerscout.tuning.resolve import Tuning
from layerscout.tuning.solving import deal
from layerscout.tuning.stepping import weigh_classes

# The deviation of what the head's dense layer gives, and its mean where a rectifier follows.
DEVIATION, ABOVE = 0.5, 1.0
# Answers that a start is solved on, about: more of them cost more than they tell.
ENOUGH = 10_000
# How far logits of a start go from how frequent classes are towards those of the solved head. One
# that is solved fully leaves the features no reason to move.
SHARE = 0.3


# Parameters of heads that were solved, and whether rows could be told apart, by what they are for.
Starts = dict[tuple[int, ...], tuple[bool, list[Tensor]]]


def solve_once(
    starts: Starts,
    key: tuple[int, ...],
    tuning: Tuning,
    model: Any,
    training: Examples,
    rows: np.ndarray | None = None,
) -> bool:
    """Do what `solve_start` does, once for a key: all of its models are the same until then."""
    parameters = [p for layer in list_head_layers(model) for p in layer.parameters()]
    if key not in starts:
        apart = solve_start(tuning, model, training, rows)
        starts[key] = apart, [p.detach().clone() for p in parameters]
    with torch.no_grad():
        for p, solved in zip(parameters, starts[key][1], strict=True):
            p.copy_(solved)
    return starts[key][0]


def solve_start(
    tuning: Tuning, model: Any, training: Examples, rows: np.ndarray | None = None
) -> bool:
    """Solve the last layer of a model that is to be trained, in place.

    A dense layer before it passes the features on, one by one, brought to one deviation.

    Args:
        tuning: of the model.
        model: as it would start otherwise, with what its method adds.
        training: what it is trained on; of words, with one answer for each.
        rows: those of it that it is trained on, sorted; all if None.

    Returns:
        Whether rows can be told apart; otherwise the last layer is as it was.
    """
    from layerscout.scores import solve_head

    encoder, (*dense, last) = tuning.encoder, list_head_layers(model)
    rows = np.arange(len(training)) if rows is None else rows
    answered = len(training.answers) * len(rows) / len(training)
    rows = rows[:: max(1, ceil(answered / ENOUGH))]
    if len(dense) == 1 and encoder.family.final_norm is None:
        states = read_inputs(encoder, model, training, rows, dense[0], last).flatten(0, -2)
        averaged = encoder.family.averaged
        pass_on(dense[0], states, ABOVE if averaged and averaged[1] != "tanh" else 0.0)
    inputs = read_inputs(encoder, model, training, rows, last, last).numpy()
    answers, bias = training.find_answers(rows), last.bias is not None
    y, examples = training.answers.labels[answers], training.answers.rows[answers]
    own = np.unique(examples, return_inverse=True)[1]
    solved = solve_head(
        [inputs],
        y,
        deal(y, own, words=training.answers.tags is not None),
        metric=tuning.settings.metric,
        classes=len(tuning.task.labels) or None,
        bias=bias,
    )
    if solved is None:
        return False
    head = solved.head if y.dtype.kind == "f" else solved.head.scale(SHARE)
    with torch.no_grad():
        last.weight.copy_(torch.from_numpy(head.weights))
        if bias:
            start = torch.from_numpy(head.bias)
            if y.dtype.kind != "f" and inputs.ndim == 2:  # no choice is the more frequent one
                start += (1 - SHARE) * torch.from_numpy(_find_base(y, len(start)))
            if tuning.settings.class_weights:  # as if all classes were as frequent
                start += weigh_classes(training, model).log()
            last.bias.copy_(start)
    return True


def _find_base(y: np.ndarray, outputs: int) -> np.ndarray:
    """Return the logits that say how frequent each class or label is."""
    shares = smooth_shares(y, outputs)
    base: np.ndarray = np.log(shares / (1 - shares) if y.dtype.kind == "b" else shares)
    return base


def list_head_layers(model: Any) -> list[nn.Linear]:
    """Return the linear layers of a head that are trained, the one that gives its outputs last."""
    places, output = locate_parameters(model), find_output(model)[1]
    weights = [
        name
        for name, parameter in model.named_parameters()
        if places[name] == "head" and parameter.requires_grad and parameter.ndim == 2
    ]
    layers = [model.get_submodule(name.removesuffix(".weight")) for name in weights]
    return [*(layer for layer in layers if layer is not output), output]


def pass_on(dense: nn.Linear, states: Tensor, mean: float) -> None:
    """Make a layer bring every feature to one mean and to `DEVIATION`, as these states have it."""
    wide = states.double()
    before, deviation = wide.mean(dim=0), wide.std(dim=0, correction=0)
    factors = torch.where(deviation > 1e-6 * before.abs(), DEVIATION / deviation, 0.0)
    with torch.no_grad():
        dense.weight.copy_(factors.diag())
        dense.bias.copy_(mean - factors * before)
