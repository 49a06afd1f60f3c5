"""What a trunk's states are computed from, and how they lie in a file."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor
from torch.nn.functional import embedding

from layerscout.cache.fingerprints import fingerprint_encoder, hash_content
from layerscout.data import batch_by_length
from layerscout.models import Encoder, Tokens, eval_mode, take_tokens
from layerscout.plans import ReadToken
from layerscout.runtime import InputError

# The one state of a text that is kept, where a head reads no more: a token's, or the mean of all.
Reads = ReadToken | Literal["mean"]

# How each precision is stored. NumPy has no bfloat16: its bits go as integers.
_STORED = {
    "float32": (torch.float32, np.float32),
    "bfloat16": (torch.bfloat16, np.uint16),
    "float16": (torch.float16, np.float16),
}


@dataclass(frozen=True, eq=False)
class TrunkSource:
    """What a trunk's states are computed from, and how they lie in a file.

    The file holds (t, d) numbers and nothing else: the kept states of one text after another, the
    longest text first, equal ones in their order, which is the order of the encoder's batches.
    """

    encoder: Encoder
    tokens: Tokens
    cut: int
    reads: Reads | None

    @property
    def kept(self) -> Int64[np.ndarray, " n"]:
        """The number of states that are kept of each text."""
        lengths = self.tokens.lengths
        return lengths if self.reads is None else np.ones_like(lengths)

    @cached_property
    def _places(self) -> Int64[np.ndarray, " n"] | None:
        """Where in each text the token stands that is kept; None where it is not one token."""
        # Once for all batches: it looks at every token of every text.
        if self.reads is None or self.reads == "mean":
            return None
        return self.encoder.find_read(self.tokens, self.reads)

    @property
    def shape(self) -> tuple[int, int]:
        """(t, d) of the file."""
        return int(self.kept.sum()), self.encoder.model.config.hidden_size

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return self.size_of(np.arange(len(self.tokens)))

    def size_of(self, rows: Int64[np.ndarray, " b"]) -> int:
        """Count the bytes of the states of some texts."""
        numbers = int(self.kept[rows].sum()) * self.shape[1]
        return numbers * np.dtype(_STORED[self.encoder.precision][1]).itemsize

    def describe(self, digest: str, seconds: float) -> dict[str, Any]:
        """Return the description of the file, whose hash is `digest`."""
        return {
            "kind": "trunk",
            "model": self.encoder.name,
            "cut": self.cut,
            "reads": self.reads,
            "texts": len(self.tokens),
            "shape": self.shape,
            "dtype": self.encoder.precision,
            "bytes": self.bytes,
            "sha256": digest,
            "seconds": seconds,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def states(self, rows: Int64[np.ndarray, " b"]) -> Float32[Tensor, "b T d"]:
        """Compute what `reader` would read, with the same rounding."""
        state = self._compute(rows) if self.reads is None else self._compute_read(rows)
        return state.to(_STORED[self.encoder.precision][0]).float()

    def _compute_read(self, rows: Int64[np.ndarray, " b"]) -> Float[Tensor, "b 1 d"]:
        """Compute the states that the head reads, one of each text.

        In batches: a caller counts one token per text.
        """
        parts = batch_by_length(self.tokens.lengths[rows], self.encoder.token_budget)
        state = torch.cat([self._compute(rows[part]) for part in parts])
        return state[torch.from_numpy(np.argsort(np.concatenate(parts))).to(state.device)]

    def _compute(self, rows: Int64[np.ndarray, " b"]) -> Float[Tensor, "b T d"]:
        with eval_mode(self.encoder.model):
            state = self.encoder.cut(self.encoder.batch(self.tokens, rows), self.cut)
        if self.reads == "mean":
            real = torch.from_numpy(self.tokens.pad(rows)[1]).to(state.device)[:, :, None]
            return (state * real).sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True)
        if self._places is None:
            return state
        return take_tokens(state, self._places[rows])[:, None]

    def numbers(self, rows: Int64[np.ndarray, " b"]) -> np.ndarray:
        """Compute what is kept of the texts as it is stored, (t of `rows`, d).

        If the device runs out of memory, the texts are run in two halves.
        """
        try:
            state = self._compute(rows)
        except torch.OutOfMemoryError as error:
            if len(rows) == 1:
                raise InputError(
                    f"a text of {self.tokens.lengths[rows[0]]} tokens does not fit into the "
                    f"memory of {self.encoder.device}; lower --max-length or use --device cpu"
                ) from error
        else:
            dtype, stored = _STORED[self.encoder.precision]
            real = np.arange(state.shape[1]) < self.kept[rows][:, None]
            flat = state[torch.from_numpy(real).to(state.device)].to(dtype).cpu()
            return flat.view(torch.uint8).numpy().view(stored)
        # Not in the except clause, whose traceback would keep the failed tensors alive.
        return np.concatenate([self.numbers(half) for half in np.array_split(rows, 2)])

    def reader(self, path: Path) -> Callable[[Int64[np.ndarray, " b"]], Tensor]:
        """Map the file and return a function that reads the states of some rows from it."""
        dtype, stored = _STORED[self.encoder.precision]
        mapped = np.memmap(path, dtype=stored, mode="r", shape=self.shape)
        with warnings.catch_warnings():  # torch has no read-only tensors; this one is only read
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            numbers = torch.from_numpy(mapped).view(dtype)
        kept, device = self.kept, self.encoder.device
        order = np.argsort(-self.tokens.lengths, kind="stable")
        starts = np.empty_like(kept)
        starts[order] = np.cumsum(kept[order]) - kept[order]

        def read(rows: Int64[np.ndarray, " b"]) -> Float32[Tensor, "b T d"]:
            # Padding reads the tokens of the next text, or the last token at the end of the file.
            at = starts[rows][:, None] + np.arange(kept[rows].max())
            np.minimum(at, len(numbers) - 1, out=at)
            return embedding(torch.from_numpy(at), numbers).to(device).float()

        return read

    def key(self) -> str:
        """Hash all that the states depend on."""
        fingerprint = fingerprint_encoder(self.encoder, self.cut)
        return hash_content(fingerprint, self.tokens, {"reads": self.reads})
