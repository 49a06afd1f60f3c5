"""What a model is made of, as far as planning needs to know; nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameters:
    """Parameter counts of a model with a classification head.

    Attributes:
        embeddings: what lies in neither block nor head (relative-position tables, projections and
            embedding norms too).
        blocks: each block, 1..L (ModernBERT's first one has a norm less than the others).
        head: everything after the last state.
        total: the whole model; weights that blocks share, as in ALBERT, count once.
    """

    embeddings: int
    blocks: tuple[int, ...]
    head: int
    total: int


@dataclass(frozen=True)
class ModelShape:
    """The sizes of an encoder, as its configuration tells them."""

    family: str
    blocks: int
    hidden_size: int
    feed_forward: int
    vocabulary: int
    parameters: Parameters
