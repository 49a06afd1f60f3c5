"""The states of a text's tokens, or of a word's, made into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from layerscout.models.tokens import Tokens, take_tokens
from layerscout.plans import Pooling
from layerscout.runtime import InputError, make_unknown_error

Pooler = Callable[[Float[Tensor, "b T d"]], Float32[Tensor, "o d"]]


def make_pooler(
    tokens: Tokens, rows: Int64[np.ndarray, " b"], pooling: Pooling, device: torch.device
) -> Pooler:
    """Make what pools a state of the texts at `rows`: one vector for each text or labelled word.

    Raises:
        InputError: if there is no such pooling, or it is not for texts, or not for words.
    """
    if pooling not in get_args(Pooling):
        raise make_unknown_error("pooling", pooling, get_args(Pooling))
    if tokens.words is not None:
        return _pool_words(tokens, rows, pooling, device)
    match pooling:
        case "mean":
            weights = torch.from_numpy(tokens.mean_weights(rows)).to(device)
            return lambda state: torch.bmm(weights[:, None], state.float()).squeeze(1)
        case "cls":
            return lambda state: state[:, 0].float()
        case "last":
            last = tokens.find_last(rows)
            return lambda state: take_tokens(state, last).float()
        case "first":
            raise InputError(
                "the pooling first is for labelled words; for texts use mean, last or cls"
            )


def _pool_words(
    tokens: Tokens, rows: Int64[np.ndarray, " b"], pooling: Pooling, device: torch.device
) -> Pooler:
    texts, places, words = (torch.from_numpy(part).to(device) for part in tokens.find_parts(rows))
    begins = words.diff(prepend=words.new_tensor([-1])) != 0
    ends = words.diff(append=words.new_tensor([-1])) != 0
    match pooling:
        case "mean":
            counts = torch.bincount(words)[:, None]

            def average(state: Float[Tensor, "b T d"]) -> Float32[Tensor, "w d"]:
                found = torch.zeros(len(counts), state.shape[2], device=device)
                return found.index_add_(0, words, state[texts, places].float()) / counts

            return average
        case "first":
            return lambda state: state[texts[begins], places[begins]].float()
        case "last":
            return lambda state: state[texts[ends], places[ends]].float()
        case "cls":
            raise InputError("the pooling cls is for texts; for words use mean, first or last")
