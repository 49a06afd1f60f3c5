"""Pooling: from the states of tokens to one of each text or labelled word."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn

from layerscout.errors import InputError
from layerscout.models.tokens import Tokens
from layerscout.plans import Pooling

Pooler = Callable[[Float[Tensor, "b T d"]], Float32[Tensor, "o d"]]


def take_tokens(
    state: Float[Tensor, "b T d"], places: Int64[np.ndarray, " b"]
) -> Float[Tensor, "b d"]:
    """Take the state of one token of each text, by its place there."""
    return state[torch.arange(len(state)), torch.from_numpy(places)]


def make_pooler(
    tokens: Tokens,
    rows: Int64[np.ndarray, " b"],
    pooling: Pooling,
    device: torch.device,
    norm: nn.Module | None = None,
) -> Pooler:
    """Make what pools a state of the texts at `rows`: one vector for each text or labelled word.

    Args:
        tokens: of texts.
        rows: of them.
        pooling: how.
        device: where states are.
        norm: of each token's state, where the mean is of normed ones.

    Raises:
        InputError: if there is no such pooling, or it is not for texts, or not for words.
    """
    if tokens.words is not None:
        return _pool_words(tokens, rows, pooling, device)
    match pooling:
        case "mean" | "mean-all" | "mean-normed":
            at, used = tokens.pad(rows)
            if pooling == "mean":  # without the tokens that the tokenizer adds
                used = used & tokens.ordinary[at]
            means = (used / used.sum(axis=1, keepdims=True)).astype(np.float32)
            weights = torch.from_numpy(means).to(device)

            def average(state: Float[Tensor, "b T d"]) -> Float32[Tensor, "b d"]:
                if pooling == "mean-normed" and norm is not None:
                    own = next(norm.parameters(), state).dtype
                    state = norm.forward(state.to(own))  # which no hook sees
                return torch.bmm(weights[:, None], state.float()).squeeze(1)

            return average
        case "cls":
            return lambda state: state[:, 0].float()
        case "last":
            last = tokens.find_last(rows)
            return lambda state: take_tokens(state, last).float()
        case _:
            raise InputError(
                f"texts are pooled by mean, mean-all, mean-normed, last or cls, got {pooling}"
            )


def _pool_words(
    tokens: Tokens, rows: Int64[np.ndarray, " b"], pooling: Pooling, device: torch.device
) -> Pooler:
    texts, places, words = (torch.from_numpy(part).to(device) for part in tokens.find_parts(rows))
    begins = words.diff(prepend=words.new_tensor([-1])) != 0
    ends = words.diff(append=words.new_tensor([-1])) != 0
    match pooling:
        case "mean":
            numbers = begins.cumsum(0) - 1
            counts = torch.bincount(numbers)[:, None]

            def average(state: Float[Tensor, "b T d"]) -> Float32[Tensor, "w d"]:
                sums = torch.zeros(len(counts), state.shape[2], device=device)
                return sums.index_add_(0, numbers, state[texts, places].float()) / counts

            return average
        case "first":
            return lambda state: state[texts[begins], places[begins]].float()
        case "last":
            return lambda state: state[texts[ends], places[ends]].float()
        case _:
            raise InputError(f"words are pooled by mean, first or last, got {pooling}")
