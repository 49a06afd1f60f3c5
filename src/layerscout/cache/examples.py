"""Encoded examples: tokens, labels and the states at the cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from layerscout.cache.processes import Team
from layerscout.cache.trunk_source import Reads
from layerscout.cache.trunks import DEFAULT_LIMIT, Trunk, run_trunk
from layerscout.data import Targets, batch_by_length, expand_choices
from layerscout.models import Encoder, Tokens, find_read_token
from layerscout.plans import Classifier, Plan


@dataclass(frozen=True, eq=False)
class Examples:
    """n tokenised examples with their targets, and their states at the cut, if any.

    Where words are labelled, an example is a sentence, or a window of a long one.

    Attributes:
        tokens: n C texts, those of an example one after another; if only the head is tuned and
            reads one state of each, a token that stands for it.
        answers: what is right for the n examples, or for all of their words.
        trunk: the states of the same texts.
    """

    tokens: Tokens
    answers: Targets
    trunk: Trunk | None

    def __len__(self) -> int:
        return len(self.tokens) // self.choices

    @property
    def choices(self) -> int:
        """C, 1 but for multiple choice."""
        return self.answers.choices

    def find_answers(self, rows: np.ndarray) -> np.ndarray:
        """Number the answers of the examples at `rows`: the examples, or all of their words."""
        return rows if self.choices > 1 else self.tokens.find_outputs(rows)

    def labels_of(self, rows: np.ndarray) -> Tensor:
        """Give the labels of the examples at `rows`, or of all of their words."""
        return torch.from_numpy(self.answers.labels[self.find_answers(rows)])

    def take_outputs(self, rows: np.ndarray, logits: Tensor) -> Tensor:
        """Take from the logits of the examples at `rows` those that have a label."""
        return logits if self.choices > 1 else self.tokens.take_outputs(rows, logits)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, or of its longest choice, (n,)."""
        longest: np.ndarray = self.tokens.lengths.reshape(-1, self.choices).max(axis=1)
        return longest

    @classmethod
    def prepare(
        cls,
        encoder: Encoder,
        plan: Plan,
        tokens: Tokens,
        answers: Targets,
        *,
        head: Classifier = "family",
        limit: int = DEFAULT_LIMIT,
        spare: Trunk | None = None,
        progress: Callable[[np.ndarray], None] | None = None,
        team: Team | None = None,
    ) -> Examples:
        """Run the trunk of a plan over examples, or read its states from the cache.

        Args:
            encoder: the model before the cut.
            plan: for this encoder; see `Plan.on`.
            tokens: the n C texts of the examples.
            answers: what is right for them.
            head: the classifier, which may read only one token's state, or the mean of all.
            limit: see `run_trunk`.
            spare: see `run_trunk`.
            progress: see `run_trunk`.
            team: see `run_trunk`.
        """
        if plan.cut is None:
            return cls(tokens, answers, None)
        reads = None if plan.tuned else _find_read(encoder, tokens, head)
        states = run_trunk(
            encoder,
            tokens,
            plan.cut,
            reads=reads,
            limit=limit,
            spare=spare,
            progress=progress,
            team=team,
        )
        if reads == "mean":
            tokens = tokens.keep(np.zeros(len(tokens), dtype=np.int64))
        elif reads is not None:
            tokens = tokens.keep(encoder.find_read(tokens, reads))
        return cls(tokens, answers, states)


def _find_read(encoder: Encoder, tokens: Tokens, head: Classifier) -> Reads | None:
    """Tell what a head on frozen states reads of each text; None if it reads every token."""
    if tokens.words is not None:
        return None
    if head == "family":
        return find_read_token(encoder.model)
    # A norm before the mean is not one after it.
    return "mean" if encoder.family.final_norm is None else None


def make_batch(encoder: Encoder, examples: Examples, rows: np.ndarray) -> dict[str, Tensor]:
    """Return a model's inputs for the examples at `rows`: (b, T), or (b, C, T) with choices."""
    inputs = encoder.batch(examples.tokens, expand_choices(rows, examples.choices))
    if examples.choices == 1:
        return inputs
    shape = (len(rows), examples.choices, -1)
    return {name: tensor.reshape(shape) for name, tensor in inputs.items()}


def make_batches(
    encoder: Encoder, examples: Examples, rows: np.ndarray | None = None
) -> list[np.ndarray]:
    """Group the examples at `rows`, or all, by length, as `Encoder.batches` does texts."""
    rows = np.arange(len(examples)) if rows is None else rows
    budget = max(1, encoder.token_budget // examples.choices)
    return [rows[part] for part in batch_by_length(examples.lengths[rows], budget)]
