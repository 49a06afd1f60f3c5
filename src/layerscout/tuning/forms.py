"""What a solved head reads of each text or word, and what it becomes the last layer of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float64

from layerscout.data import Task, describe_kind
from layerscout.errors import InputError
from layerscout.models import (
    Encoder,
    Head,
    can_average,
    choose_solved_pooling,
    norm_means,
    take_family_head,
)
from layerscout.plans import (
    BEST_HEAD,
    FULL,
    OF_TEXTS,
    Classifier,
    Method,
    Plan,
    Pooling,
    TuneRequest,
    check_tied,
)
from layerscout.tuning.plan_spec import PlanSpec, Target

# How a tuned model is written: a whole checkpoint, a classifier of sentence-transformers, a peft
# adapter, or what was trained beside it.
SavedAs = Literal["checkpoint", "sentence-transformers", "peft", "ours"]

# Rows that are read at once.
CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Form:
    """A form of solved heads.

    Attributes:
        pooling: of the tokens that the head reads.
        classifier: the kind of model that is saved.
        averages: a block of its own averages, and brings each mean to one scale.
        head: the family's, whose output layer is solved; None for a layer on the mean.
    """

    pooling: Pooling
    classifier: Classifier
    averages: bool = False
    head: Head | None = None

    def read(self, state: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n f"]:
        """Return what the solved layer is given where this is what tokens were pooled to."""
        if self.averages:
            return norm_means(state)
        if self.head is None:
            return state.astype(np.float64)
        starts = range(0, len(state), CHUNK)
        with torch.no_grad():
            parts = [self.head.read(torch.from_numpy(state[at : at + CHUNK])) for at in starts]
        read: np.ndarray = torch.cat(parts).numpy().astype(np.float64)
        return read

    @property
    def bias(self) -> bool:
        """Whether the solved layer has one."""
        return self.head is None or self.head.output[1].bias is not None

    @property
    def saved_as(self) -> SavedAs:
        """How the model is written."""
        return "checkpoint" if self.classifier == "family" else "sentence-transformers"

    @property
    def output(self) -> str:
        """The name of the solved layer in the model that is saved, where no block averages."""
        return "classifier" if self.head is None else self.head.output[0]


def choose_form(encoder: Encoder, task: Task, request: TuneRequest) -> Form | None:
    """Return the form of the heads that are solved for a task; None where heads are trained.

    That is where the family's own head reads several tokens, other than by their mean, or through
    layers that are random yet, and no layer on the mean can take its place.
    """
    normed = encoder.family.final_norm is not None
    on_mean = task.kind in OF_TEXTS and request.classifier != "family"
    if on_mean and not normed:
        averages = can_average(encoder)
        return Form("mean-all", "family" if averages else "mean-linear", averages)
    pooling = choose_solved_pooling(encoder, task.kind)
    if pooling is not None and request.classifier != "mean-linear":
        fresh, seed = request.draws_head, request.seed[0]
        head = take_family_head(encoder, task.labels, task.kind, seed=seed, fresh_head=fresh)
        if head is not None:
            return Form(pooling, "family", head=head)
    return Form("mean-normed", "mean-linear") if on_mean else None


def list_solved(
    spec: PlanSpec, plan: Plan, request: TuneRequest, target: Target, form: Form | None
) -> Sequence[int] | None:
    """Return the states on which the head of a plan is solved; None if it is trained.

    Raises:
        InputError: if only a solved head would show at which state it is best.
    """
    rule = ""
    if request.trains or target.method != FULL:
        rule = "is trained where an option such as --epochs says how"
    elif form is None:
        kind = describe_kind(target.task.kind)
        rule = f"of {target.shape.family} for {kind} is trained, since it is no layer on one state"
    if rule and spec.finds_state:
        raise InputError(
            f"{BEST_HEAD} finds its state by solving heads, but a head {rule}; name the state, as "
            f"in head:{target.encoder.blocks}, or leave such options out"
        )
    if rule or not is_solved(plan, request, target.method):
        return None
    return list_states(target) if spec.finds_state else [plan.head]


# What a training alone has whose head is trained to the end.
TRAINED = frozenset(("keep", "patience", "head_learning_rate", "preset", "trunk_dropout"))


def solves_in_end(
    spec: PlanSpec, plan: Plan, request: TuneRequest, target: Target, form: Form | None
) -> bool:
    """Return whether the head of a plan that trains blocks is solved on what they give in the end.

    Raises:
        InputError: if that was asked for and cannot be.
    """
    kind, shape, rule, remedy = target.task.kind, target.shape, "", "leave it out"
    if kind not in OF_TEXTS or (request.loss is not None and kind == "regression"):
        rule = f"classes of texts, but {target.task.name} is a task of {describe_kind(kind)}"
        used = "the squared error" if kind == "regression" else "cross-entropy"
        remedy += f", and {used} is used" if request.loss is not None else ""
    elif not (plan.tuned or plan.embeddings):
        rule = f"blocks that are tuned, but {plan.notation} tunes none"
    elif target.method.saved == "apart" or request.keep_adapter:
        rule = "blocks that are saved whole, but the method saves what it adds to them"
    elif form is None:
        rule = f"a head that can be solved, which that of {shape.family} here cannot be"
    if request.asks_solved and rule:
        option = "loss" if request.loss is not None else "head_end"
        value = getattr(request, option)
        raise InputError(f"`{option}` ({value}) needs {rule}; {remedy}")
    own = request.classifier == "family" or request.save_dtype not in (None, "float32")
    default = spec.prefers_solved and request.head_end is None
    default &= not (own or TRAINED & request.given)
    return request.asks_solved or (default and not rule)


def list_states(target: Target) -> Sequence[int]:
    """List the states on which heads can be solved."""
    states = range(1, target.encoder.blocks + 1)
    return [state for state in states if _can_cut(state, target.shape.weights)]


def is_solved(plan: Plan, request: TuneRequest, method: Method) -> bool:
    """Return whether a plan's head is solved if it has a form for that."""
    alone = not (plan.tuned or plan.embeddings)
    return alone and method == FULL and not request.trains


def _can_cut(state: int, weights: Sequence[int]) -> bool:
    """Return whether a model can end at a state, which some that share weights cannot."""
    try:
        check_tied(Plan((), state), weights)
    except InputError:
        return False
    return True
