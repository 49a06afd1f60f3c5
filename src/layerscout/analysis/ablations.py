"""Ablations of a tuned model: its head reads every state, and every span of blocks is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscout.cache import Examples, make_batch, make_batches, resume_from_states
from layerscout.data import expand_choices
from layerscout.models import Encoder, eval_mode, find_read_token, take_tokens
from layerscout.runtime import Show

# The ablations that `edits` may name: every state that the head could read, every span of blocks.
ABLATIONS = ("truncate", "skip")


@dataclass(frozen=True, eq=False)
class Ablated:
    """Logits of all n examples, or of all n words, in the columns of the model.

    Attributes:
        truncated: (L + 1, n, K), where the head reads each state.
        skipped: by the first and the last block passed over, (n, K); where the last one is L, it is
            the head that reads the state below.
    """

    truncated: np.ndarray
    skipped: Mapping[tuple[int, int], np.ndarray]

    def take(self, columns: list[int] | slice) -> Ablated:
        """Return the logits in these columns of the model."""
        skipped = {span: logits[:, columns] for span, logits in self.skipped.items()}
        return Ablated(self.truncated[:, :, columns], skipped)


def ablate(encoder: Encoder, model: Any, data: Examples, spans: bool, show: Show) -> Ablated:
    """Read every state with the head, and pass every span of blocks over if asked.

    One forward pass gives all states. A span is passed over by starting behind it, at the state
    below it: what lies below never runs again.
    """
    L, n, reads = encoder.blocks, len(data.answers), find_read_token(model)
    outputs = model.config.num_labels if data.choices == 1 else data.choices
    read, places = data, None
    if reads is not None:
        places = encoder.find_read(data.tokens, reads)
        read = replace(data, tokens=data.tokens.keep(places))
    truncated = np.zeros((L + 1, n, outputs), dtype=np.float32)
    inner = [(i, j) for i in range(1, L + 1) for j in range(i, L)] if spans else []
    skipped = {span: np.zeros((n, outputs), dtype=np.float32) for span in inner}
    grouped = make_batches(encoder, data)
    for done, rows in enumerate(grouped):
        show("judging", done, len(grouped))
        states: list[Tensor] = []
        answers = data.find_answers(rows)
        with eval_mode(model), torch.inference_mode():
            texts = expand_choices(rows, data.choices)
            flat = encoder.batch(data.tokens, texts)
            pick = partial(_pick, places=None if places is None else places[texts])
            # Whole states are kept for spans alone, which go on from them.
            encoder.visit(
                flat,
                lambda _, state: states.append(  # noqa: B023  (it is called here)
                    state if spans else pick(state)  # noqa: B023
                ),
            )
            inputs = make_batch(encoder, read, rows)
            for s, state in enumerate(states):
                seen = pick(state) if spans else state
                found = resume_from_states(encoder, model, inputs, seen, L)
                truncated[s, answers] = data.take_outputs(rows, found).float().cpu()
            inputs = make_batch(encoder, data, rows)
            for i, j in inner:
                found = resume_from_states(encoder, model, inputs, states[i - 1], j)
                skipped[i, j][answers] = data.take_outputs(rows, found).float().cpu()
    if spans:
        skipped |= {(i, L): truncated[i - 1] for i in range(1, L + 1)}
    return Ablated(truncated, skipped)


def _pick(state: Tensor, places: np.ndarray | None) -> Tensor:
    """Give the states of the tokens at these places, one of each text; all where there are none."""
    return state if places is None else take_tokens(state, places)[:, None]
