"""Pretrained encoders: tokenising, and the states of every block from one forward pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import signature
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int32, Int64, UInt8
from torch import Tensor, nn

from layerscout.data import batch_by_length
from layerscout.models.checkpoints import load_checkpoint, model_shape
from layerscout.plans import Classifier, EditSpec, Family, ModelShape
from layerscout.runtime import InputError, first_line, unknown

Pooling = Literal["mean", "cls"]
Computed = Literal["float32", "bfloat16", "float16"]
Precision = Literal["float32", "bfloat16", "float16", "auto"]

# Tokens in one batch, padding included: enough to keep the processor busy, small enough for its
# caches (or, on an accelerator, its memory).
CPU_TOKENS = 1024
ACCELERATOR_TOKENS = 32768


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


@dataclass(frozen=True, eq=False)
class Encoder:
    """A pretrained encoder with its tokenizer, ready to give the states of its blocks.

    Attributes:
        name: as it was asked for.
        source: what transformers' `from_pretrained` takes for it: a folder or a hub id.
        revision: the commit on the hub; None for a folder.
        model: the bare model (no head), in float32 and eval mode, on `device`.
        tokenizer: its fast tokenizer.
        family: where the model keeps its blocks.
        precision: what the forward pass computes in; the short ones are autocast over float32
            weights.
        edit_spec: what was done to the blocks of the checkpoint, if anything.
    """

    name: str
    source: str
    revision: str | None
    model: Any
    tokenizer: Any
    family: Family
    precision: Computed
    edit_spec: EditSpec | None = None

    @classmethod
    def load(
        cls, name: str | Path, *, device: str = "auto", precision: Precision = "float32"
    ) -> Encoder:
        """Load an encoder from a local directory, from the hub, or the one of the demo ("demo").

        Nothing is asked of the network for a local directory. Code that comes with a checkpoint
        is never run, and pickled weights are read as plain tensors only.

        Args:
            name: a directory, a hub id such as "roberta-large", or "demo".
            device: "auto" (CUDA, then MPS, then CPU) or any name that torch knows.
            precision: "float32", "bfloat16", "float16", or "auto" for bfloat16 where the
                hardware computes it faster.

        Raises:
            InputError: if there is no such checkpoint, its family is not supported, its weights
                are incomplete or corrupt, or it has no usable tokenizer.
        """
        where = resolve_device(device)
        settled = _precision(precision, where)
        loaded = load_checkpoint(str(name))
        if loaded.family.float32_only and settled != "float32":
            if precision != "auto":
                raise InputError(
                    f"{name} is of a family that does not run in {settled}; use float32"
                )
            settled = "float32"
        return cls(
            name=str(name),
            source=loaded.source,
            revision=loaded.revision,
            model=loaded.model.eval().requires_grad_(False).to(where),
            tokenizer=loaded.tokenizer,
            family=loaded.family,
            precision=settled,
        )

    @property
    def device(self) -> torch.device:
        """The device that the model is on."""
        device: torch.device = self.model.device
        return device

    @property
    def blocks(self) -> int:
        """L, the number of blocks."""
        return int(self.model.config.num_hidden_layers)

    def shape(
        self, labels: int, kind: str = "classification", head: Classifier = "family"
    ) -> ModelShape:
        """Give the sizes and parameter counts with a head; see `model_shape`."""
        return model_shape(self.model.config, labels, kind, head)

    def tokenize(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, max_length: int = 128
    ) -> Tokens:
        """Tokenise texts, or pairs of texts, with the tokenizer's own special tokens.

        Args:
            texts: n texts.
            pairs: the n second texts, if the input is a pair.
            max_length: tokens that are kept of an input, special ones included; the longer text
                of a pair is cut first.

        Raises:
            InputError: if the model has fewer positions than `max_length`, or that leaves no room
                for a single ordinary token.
        """
        limit = self._positions()
        special = self.tokenizer.num_special_tokens_to_add(pair=pairs is not None)
        if not special < max_length <= limit:
            raise InputError(
                f"max_length must be in {special + 1}..{limit} for {self.name}, got {max_length}"
            )
        if isinstance(texts, str) or isinstance(pairs, str):
            raise InputError("texts must be a list of texts, got a single one; put it in a list")
        if not len(texts):
            raise InputError("there are no texts to tokenise")
        parts = []
        for start in range(0, len(texts), 1000):
            stop = start + 1000
            batch = self.tokenizer(
                list(texts[start:stop]),
                None if pairs is None else list(pairs[start:stop]),
                truncation=True,
                max_length=max_length,
                return_attention_mask=False,
            )
            parts.append(_flat(batch.encodings))
        return Tokens(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.types for part in parts]),
            np.concatenate([part.ordinary for part in parts]),
            np.cumsum(np.concatenate([[0], *(part.lengths for part in parts)])),
            sum(part.truncated for part in parts),
            sum(part.empty for part in parts),
        )

    @property
    def token_budget(self) -> int:
        """Tokens of a batch at the most, padding included, where the encoder makes the batches."""
        return CPU_TOKENS if self.device.type == "cpu" else ACCELERATOR_TOKENS

    def batches(self, tokens: Tokens) -> list[Int64[np.ndarray, " b"]]:
        """Group the texts into batches of like length, longest first; each a list of rows."""
        return batch_by_length(tokens.lengths, self.token_budget)

    def batch(self, tokens: Tokens, rows: Int64[np.ndarray, " b"]) -> dict[str, Tensor]:
        """Pad the texts at `rows` to the longest of them: the model's inputs, each (b, T)."""
        at, real = _padded(tokens, rows)
        padding = self.tokenizer.pad_token_id
        inputs = {
            "input_ids": np.where(real, tokens.ids[at], padding).astype(np.int64),
            "attention_mask": real.astype(np.int64),
        }
        # DistilBERT's tokenizer offers types too, but the model does not take them.
        if (
            "token_type_ids" in self.tokenizer.model_input_names
            and "token_type_ids" in signature(self.model.forward).parameters
        ):
            inputs["token_type_ids"] = np.where(real, tokens.types[at], 0).astype(np.int64)
        return {k: torch.from_numpy(v).to(self.device) for k, v in inputs.items()}

    def pool(
        self, tokens: Tokens, rows: Int64[np.ndarray, " b"], pooling: Pooling = "mean"
    ) -> Float32[Tensor, "S b d"]:
        """Run the model once over the texts at `rows` and pool every state as it passes.

        As `pool_each` for a single pooling.

        Raises:
            InputError: if a single text is more than the device's memory can hold.
        """
        return self.pool_each(tokens, rows, (pooling,))[0]

    def pool_each(
        self, tokens: Tokens, rows: Int64[np.ndarray, " b"], poolings: Sequence[Pooling]
    ) -> Float32[Tensor, "P S b d"]:
        """Run the model once over the texts at `rows` and pool every state in each of P ways.

        The S = L + 1 states come back on the model's device; those of single tokens are never
        kept. It runs in eval mode and without autograd, whatever mode the model is in. Where the
        device runs out of memory, the texts are run in two halves.

        Raises:
            InputError: if a single text is more than the device's memory can hold.
        """
        try:
            return self._pooled(tokens, rows, poolings)
        except torch.OutOfMemoryError as error:
            if len(rows) == 1:
                raise InputError(
                    f"a text of {tokens.lengths[rows[0]]} tokens does not fit into the memory of "
                    f"{self.device}; lower --max-length or use --device cpu"
                ) from error
        # Not in the except clause, whose traceback would keep the failed tensors alive.
        halves = [self.pool_each(tokens, half, poolings) for half in np.array_split(rows, 2)]
        return torch.cat(halves, dim=2)

    def _pooled(
        self, tokens: Tokens, rows: Int64[np.ndarray, " b"], poolings: Sequence[Pooling]
    ) -> Float32[Tensor, "P S b d"]:
        inputs = self.batch(tokens, rows)
        weights = self._mean_weights(tokens, rows)
        found: list[Tensor] = []
        exact = torch.autocast(self.device.type, enabled=False)

        def pool(_: int, state: Float[Tensor, "b T d"]) -> None:
            with exact:
                ways = [
                    state[:, 0].float()
                    if pooling == "cls"
                    else torch.bmm(weights[:, None], state.float()).squeeze(1)
                    for pooling in poolings
                ]
                found.append(torch.stack(ways))

        with eval_mode(self.model), torch.inference_mode():
            self.visit(inputs, pool)
        return torch.stack(found, dim=1)

    def states(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        pooling: Pooling = "mean",
        max_length: int = 128,
    ) -> Float32[Tensor, "S n d"]:
        """Give all S = L + 1 pooled states of n texts (or pairs), in their order, on the CPU.

        Raises:
            InputError: as `tokenize`.
        """
        tokens = self.tokenize(texts, pairs, max_length=max_length)
        states = torch.empty(self.blocks + 1, len(tokens), self.model.config.hidden_size)
        for rows in self.batches(tokens):
            states[:, rows] = self.pool(tokens, rows, pooling).cpu()
        return states

    def visit(self, inputs: Mapping[str, Tensor], look: Callable[[int, Tensor], None]) -> None:
        """Run the model once and call `look(ℓ, state ℓ)` for ℓ = 0..L as each state is there.

        Args:
            inputs: as `batch` gives them.
            look: is given states (b, T, d), of every token.
        """
        with _entering_blocks(self, look), self.autocast():
            last = self._last_state(lambda: self.model(**inputs).last_hidden_state)
        look(self.blocks, last)

    def cut(self, inputs: Mapping[str, Tensor], block: int) -> Float[Tensor, "b T d"]:
        """Run blocks 1..`block` only and give the state that comes out, for every token.

        Args:
            inputs: as `batch` gives them.
            block: 0 (the embedding output) to L.
        """
        self._check_block(block)
        if block == self.blocks:
            with self.autocast():
                return self._last_state(lambda: self.model(**inputs).last_hidden_state)

        def stop(passed: int, state: Tensor) -> None:
            if passed == block:
                raise _ReachedError(state)

        try:
            with _entering_blocks(self, stop), self.autocast():
                self.model(**inputs)
        except _ReachedError as reached:
            return reached.state
        raise RuntimeError(f"{self.name} never entered block {block + 1}")

    def resume(
        self, inputs: Mapping[str, Tensor], state: Float[Tensor, "b T d"], block: int
    ) -> Float[Tensor, "b T d"]:
        """Run blocks `block` + 1..L on a state from `cut`, and what follows them.

        The model's own forward runs, so masks and positions are the family's; blocks 1..`block`
        are passed over. Gradients flow into `state` where it asks for them.

        Args:
            inputs: the same as for `cut`.
            state: the state of every token after `block`.
            block: 0 to L.
        """
        self._check_block(block)
        with self.autocast(), resume_at(self.model, self.family, state, block):
            output: Tensor = self.model(**inputs).last_hidden_state
            return output

    def _check_block(self, block: int) -> None:
        if not 0 <= block <= self.blocks:
            raise InputError(f"a cut of {self.name} must be in 0..{self.blocks}, got {block}")

    def autocast(self) -> torch.autocast:
        """Make a context in which the device computes in `precision`."""
        dtype = torch.float16 if self.precision == "float16" else torch.bfloat16
        return torch.autocast(self.device.type, dtype=dtype, enabled=self.precision != "float32")

    def _last_state(self, run: Callable[[], Tensor]) -> Tensor:
        """Run the model and give state L: its output, or what its final norm was given."""
        if self.family.final_norm is None:
            return run()
        seen: list[Tensor] = []
        norm = self.model.get_submodule(self.family.final_norm)
        handle = norm.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        try:
            run()
        finally:
            handle.remove()
        return seen[0]

    def _mean_weights(
        self, tokens: Tokens, rows: Int64[np.ndarray, " b"]
    ) -> Float32[Tensor, "b T"]:
        at, real = _padded(tokens, rows)
        used = real & tokens.ordinary[at]
        weights = used / used.sum(axis=1, keepdims=True)
        return torch.from_numpy(weights.astype(np.float32)).to(self.device)

    def _positions(self) -> int:
        """Give the longest input that both the tokenizer and the position table allow."""
        config = self.model.config
        positions = int(config.max_position_embeddings)
        if self.family.positions_after_padding:
            positions -= config.pad_token_id + 1
        return min(positions, int(self.tokenizer.model_max_length))


def _padded(
    tokens: Tokens, rows: Int64[np.ndarray, " b"]
) -> tuple[Int64[np.ndarray, "b T"], Bool[np.ndarray, "b T"]]:
    """Lay out a padded batch: where each entry's token stands, and which entries are no padding."""
    lengths = tokens.lengths[rows]
    steps = np.arange(lengths.max())
    real = steps < lengths[:, None]
    return np.where(real, tokens.offsets[rows][:, None] + steps, 0), real


def _flat(encodings: Sequence[Any]) -> Tokens:
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


class _ReachedError(Exception):
    """Leaves the model's forward once the wanted state is there."""

    def __init__(self, state: Tensor) -> None:
        super().__init__()
        self.state = state


@contextmanager
def _entering_blocks(encoder: Encoder, visit: Callable[[int, Tensor], None]) -> Iterator[None]:
    """Call `visit(ℓ, state ℓ)` as each block is entered, ℓ = 0..L−1 blocks having been passed.

    What a block receives, and not what the one before it gave, is the state: DeBERTa-v2 may have a
    convolution in between. Calls are counted because ALBERT enters the same module L times.
    """
    entered = 0

    def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
        nonlocal entered
        entered += 1
        visit(entered - 1, args[0])

    blocks = encoder.model.get_submodule(encoder.family.blocks)
    handles = [block.register_forward_pre_hook(hook) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def resume_at(model: Any, family: Family, state: Tensor, block: int) -> Iterator[None]:
    """Make blocks 1..`block` of a bare model do nothing, and what follows them start at `state`.

    Args:
        model: the bare model, or the one inside a classifier.
        family: its family.
        state: (b, T, d), of the inputs that the model is called on within the context.
        block: 0 (what is passed over is the embeddings) to the number of blocks.
    """
    entered = 0

    def resumed(forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
            nonlocal entered
            entered += 1
            if entered > block:
                start = state if entered == block + 1 else hidden_states
                return forward(start, *args, **kwargs)
            return (state, None) if family.tuples else state

        return run

    replaced = list(model.get_submodule(family.blocks))
    forwards = [resumed(module.forward) for module in replaced]
    if family.convolution and block > 0:
        owner = model.get_submodule(family.blocks_place[0])
        if (convolution := getattr(owner, family.convolution)) is not None:  # is part of state 1
            replaced.append(convolution)
            forwards.append(lambda before, after, mask: after)
    before = [module.__dict__.get("forward") for module in replaced]
    try:
        for module, forward in zip(replaced, forwards, strict=True):
            module.forward = forward
        yield
    finally:
        for module, forward in zip(replaced, before, strict=True):
            if forward is None:
                del module.forward
            else:
                module.forward = forward


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Switch dropout and autograd off, and back on where they were."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def resolve_device(name: str) -> torch.device:
    """Give the device of a name, or of "auto" the best one that is there.

    Raises:
        InputError: if there is none.
    """
    if name == "auto":
        if torch.cuda.is_available():
            # Of several processes on a machine, each has its own.
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()  # which a device without memory ("meta") cannot
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"the device {name!r} cannot be used here: {first_line(error)}") from error
    return device


def _precision(asked: Precision, device: torch.device) -> Computed:
    """Settle "auto": bfloat16 where it is computed natively and was measured to be faster."""
    known = ("float32", "bfloat16", "float16", "auto")
    if asked not in known:
        raise unknown("precision", asked, known)
    cpu: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    half = cpu.get("avx512_fp16") or cpu.get("amx_fp16")
    if asked == "float16" and device.type == "cpu" and not half:
        raise InputError("float16 is not computed by this processor; use bfloat16, float32 or auto")
    if asked != "auto":
        return asked
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    # The vector instructions (avx512_bf16) double the speed on AMD's processors; on those of Intel
    # that have no matrix units they take longer than float32.
    faster = cpu.get("amx_bf16") or (cpu.get("avx512_bf16") and "AMD" in cpu.get("cpu_name", ""))
    return "bfloat16" if device.type == "cpu" and faster else "float32"
