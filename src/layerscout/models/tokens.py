"""Tokenised texts, laid end to end, and how batches of them are padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64, UInt8


@dataclass(frozen=True, eq=False)
class Tokens:
    """n tokenised texts (or pairs), laid end to end without padding; t tokens in all.

    Attributes:
        ids: (t,), the token ids.
        types: (t,), which text of a pair a token belongs to; all 0 where the model does not ask.
        ordinary: (t,), true for the tokens that mean-pooling averages: those that the tokenizer
            did not add itself. A text that has none counts all of its tokens.
        offsets: (n + 1,), where each text begins and the last one ends.
        truncated: how many texts were longer than the maximal length.
        empty: how many texts have no ordinary token.
    """

    ids: Int32[np.ndarray, " t"]
    types: UInt8[np.ndarray, " t"]
    ordinary: Bool[np.ndarray, " t"]
    offsets: Int64[np.ndarray, " texts_and_end"]
    truncated: int
    empty: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64[np.ndarray, " n"]:
        """Tokens of each text, (n,)."""
        return np.diff(self.offsets)

    def first(self) -> Tokens:
        """Give the first token of each text, as n texts of one token."""
        at = self.offsets[:-1]
        return replace(
            self,
            ids=self.ids[at],
            types=self.types[at],
            ordinary=np.ones(len(self), dtype=bool),
            offsets=np.arange(len(self) + 1),
        )

    def pad(
        self, rows: Int64[np.ndarray, " b"]
    ) -> tuple[Int64[np.ndarray, "b T"], Bool[np.ndarray, "b T"]]:
        """Lay out a padded batch: where each entry's token stands, and which are not padding."""
        lengths = self.lengths[rows]
        steps = np.arange(lengths.max())
        real = steps < lengths[:, None]
        return np.where(real, self.offsets[rows][:, None] + steps, 0), real

    def mean_weights(self, rows: Int64[np.ndarray, " b"]) -> Float32[np.ndarray, "b T"]:
        """Give the weights with which mean-pooling adds up the tokens of a padded batch."""
        at, real = self.pad(rows)
        used = real & self.ordinary[at]
        weights: Float32[np.ndarray, "b T"] = used / used.sum(axis=1, keepdims=True)
        return weights.astype(np.float32)


def tokenize_texts(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int
) -> Tokens:
    """Tokenise n texts, or n pairs of texts, cut to `max_length` tokens; see `Encoder.tokenize`."""
    parts = []
    for start in range(0, len(texts), 1000):  # what the library gives back is kept for few at once
        stop = start + 1000
        batch = tokenizer(
            list(texts[start:stop]),
            None if pairs is None else list(pairs[start:stop]),
            truncation=True,
            max_length=max_length,
            return_attention_mask=False,
        )
        parts.append(_concatenate(batch.encodings))
    return Tokens(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.types for part in parts]),
        np.concatenate([part.ordinary for part in parts]),
        np.cumsum(np.concatenate([[0], *(part.lengths for part in parts)])),
        sum(part.truncated for part in parts),
        sum(part.empty for part in parts),
    )


def _concatenate(encodings: Sequence[Any]) -> Tokens:
    """Lay the tokenizer's encodings end to end."""
    masks = [~np.array(e.special_tokens_mask, dtype=bool) for e in encodings]
    return Tokens(
        np.fromiter(chain.from_iterable(e.ids for e in encodings), dtype=np.int32),
        np.fromiter(chain.from_iterable(e.type_ids for e in encodings), dtype=np.uint8),
        np.concatenate([mask if mask.any() else ~mask for mask in masks]),
        np.cumsum([0, *map(len, masks)]),
        truncated=sum(bool(e.overflowing) for e in encodings),
        empty=sum(not mask.any() for mask in masks),
    )
