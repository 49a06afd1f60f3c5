"""What a solved head reads of each text or word, and what it becomes the last layer of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64

from layerscout.data import Kind, Task
from layerscout.errors import InputError
from layerscout.models import (
    Encoder,
    Head,
    can_average,
    choose_head_pooling,
    norm_means,
    take_family_head,
)
from layerscout.plans import Classifier, Pooling, TuneRequest

# The kinds of task whose heads read the mean of all tokens unless another is asked for.
OF_MEANS: tuple[Kind, ...] = ("classification", "multi_label_classification", "regression")
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
    def output(self) -> str:
        """The name of the solved layer in the model that is saved, where no block averages."""
        return "classifier" if self.head is None else self.head.output[0]


def choose_form(encoder: Encoder, task: Task, request: TuneRequest) -> Form | None:
    """Return the form of the heads that are solved for a task; None where heads are trained.

    That is where the family's own head reads several tokens, or through layers that are random yet.
    """
    normed = encoder.family.final_norm is not None  # which a mean of states would have to be first
    if task.kind in OF_MEANS and request.classifier != "family" and not normed:
        averages = can_average(encoder)
        return Form("mean-all", "family" if averages else "mean-linear", averages)
    if request.classifier == "mean-linear":
        return None
    try:
        pooling = choose_head_pooling(encoder, task.kind)
    except InputError:
        return None
    fresh, seed = request.draws_head, request.seed[0]
    head = take_family_head(encoder, task.labels, task.kind, seed=seed, fresh_head=fresh)
    return None if head is None else Form(pooling, "family", head=head)
