"""Tokenised texts, laid end to end, and how batches of them are padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int32, Int64, UInt8
from torch import Tensor

from layerscout.plans import ReadToken


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

    def find_read(self, reads: ReadToken, padding: int) -> Int64[np.ndarray, " n"]:
        """Find the token of each text that a head reads: its place in the text, (n,).

        Args:
            reads: the first token, or the last one that is not the padding token.
            padding: the id of that token, which may also end texts, as a decoder's often does. A
                text of nothing else has its first token read.
        """
        if reads == "first" or not len(self):
            return np.zeros(len(self), dtype=np.int64)
        places = np.arange(len(self.ids)) - np.repeat(self.offsets[:-1], self.lengths)
        places[self.ids == padding] = 0
        return np.maximum.reduceat(places, self.offsets[:-1])

    def keep(self, places: Int64[np.ndarray, " n"]) -> Tokens:
        """Give one token of each text, by its place there, as n texts of one token."""
        at = self.offsets[:-1] + places
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

    def find_last(self, rows: Int64[np.ndarray, " b"]) -> Int64[np.ndarray, " b"]:
        """Find the last ordinary token of each text at `rows`: its place in the text."""
        at, real = self.pad(rows)
        used = real & self.ordinary[at]
        last: Int64[np.ndarray, " b"] = used.shape[1] - 1 - used[:, ::-1].argmax(axis=1)
        return last

    def mean_weights(self, rows: Int64[np.ndarray, " b"]) -> Float32[np.ndarray, "b T"]:
        """Give the weights with which mean-pooling adds up the tokens of a padded batch."""
        at, real = self.pad(rows)
        used = real & self.ordinary[at]
        weights: Float32[np.ndarray, "b T"] = used / used.sum(axis=1, keepdims=True)
        return weights.astype(np.float32)


def take_tokens(
    state: Float[Tensor, "b T d"], places: Int64[np.ndarray, " b"]
) -> Float[Tensor, "b d"]:
    """Take the state of one token of each text, by its place there."""
    return state[torch.arange(len(state)), torch.from_numpy(places)]


def tokenize_texts(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int
) -> Tokens:
    """Tokenise n texts, or n pairs of texts, cut to `max_length` tokens; see `Encoder.tokenize`."""
    parts = []
    # Of an empty text, where the tokenizer adds nothing: a model needs a token to run on.
    known = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    filler = next(token for token in known if token is not None)
    for start in range(0, len(texts), 1000):  # what the library gives back is kept for few at once
        stop = start + 1000
        batch = tokenizer(
            list(texts[start:stop]),
            None if pairs is None else list(pairs[start:stop]),
            truncation=True,
            max_length=max_length,
            return_attention_mask=False,
        )
        parts.append(_concatenate(batch.encodings, filler))
    return Tokens(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.types for part in parts]),
        np.concatenate([part.ordinary for part in parts]),
        np.cumsum(np.concatenate([[0], *(part.lengths for part in parts)])),
        sum(part.truncated for part in parts),
        sum(part.empty for part in parts),
    )


def _concatenate(encodings: Sequence[Any], filler: int) -> Tokens:
    """Lay the tokenizer's encodings end to end; one without a token becomes `filler`."""
    masks = [~np.array(e.special_tokens_mask or [1], dtype=bool) for e in encodings]
    return Tokens(
        np.fromiter(chain.from_iterable(e.ids or [filler] for e in encodings), dtype=np.int32),
        np.fromiter(chain.from_iterable(e.type_ids or [0] for e in encodings), dtype=np.uint8),
        np.concatenate([mask if mask.any() else ~mask for mask in masks]),
        np.cumsum([0, *map(len, masks)]),
        truncated=sum(bool(e.overflowing) for e in encodings),
        empty=sum(not mask.any() for mask in masks),
    )
