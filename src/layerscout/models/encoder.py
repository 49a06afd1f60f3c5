"""Pretrained encoders: tokenising, and the states of every block from one forward pass."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from layerscout.data import Kind, Split, Task, batch_by_length
from layerscout.errors import InputError, check_integer, first_line
from layerscout.models.architecture import (
    AVERAGING,
    keep_family,
    locate_parameters,
    usable_positions,
)
from layerscout.models.checkpoints import find_dtype, load_checkpoint, load_pretrained
from layerscout.models.configurations import read_config
from layerscout.models.devices import (
    Computed,
    Precision,
    eval_mode,
    resolve_device,
    resolve_precision,
    run_in_halves,
    view_bytes,
)
from layerscout.models.families import Family
from layerscout.models.forward import entering_blocks, last_state, resume_at, run_until
from layerscout.models.hub import find_dense, locate_checkpoint
from layerscout.models.pooling import make_pooler
from layerscout.models.shapes import model_shape
from layerscout.models.tokens import Tokens, tokenize_texts, tokenize_words
from layerscout.plans import MAX_LENGTH, Classifier, EditSpec, ModelShape, Pooling, ReadToken

# Tokens in one batch, padding included: enough to keep the processor busy, small enough for its
# caches (or, on an accelerator, its memory).
CPU_TOKENS = 1024
ACCELERATOR_TOKENS = 32768


@dataclass(frozen=True, eq=False)
class Encoder:
    """A pretrained encoder with its tokenizer, ready to give the states of its blocks.

    Attributes:
        name: as it was asked for.
        source: what transformers' `from_pretrained` takes for it: a folder or a hub id.
        revision: the commit on the hub; None for a folder.
        model: the bare model (no head), in eval mode, on `device`; its weights are in float32, but
            on an accelerator in `precision` where they are stored so.
        tokenizer: its fast tokenizer.
        family: where the model keeps its blocks.
        precision: what the forward pass computes in; the short ones are autocast.
        edit_spec: what was done to the blocks of the checkpoint, if anything.
        dtype: what the checkpoint's weights are stored in.
        notes: what its user should know of the checkpoint.
        averages: above these blocks the checkpoint has one that averages, for its head.
    """

    name: str
    source: str
    revision: str | None
    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    family: Family = field(repr=False)
    precision: Computed
    edit_spec: EditSpec | None = None
    dtype: Computed = "float32"
    notes: tuple[str, ...] = ()
    averages: bool = False

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
                hardware computes it faster, and nothing needs float32.

        Raises:
            InputError: if there is no such checkpoint, its family is not supported, its weights
                are incomplete or corrupt, or it has no usable tokenizer.
        """
        where = resolve_device(device)
        computed = resolve_precision(precision, where)
        folder = locate_checkpoint(str(name))
        config = read_config(str(name), folder)
        dtype = find_dtype(folder, config)
        model, tokenizer, family, notes = load_checkpoint(str(name), folder, config)
        if family.float32_only and computed != "float32":
            if precision != "auto":
                raise InputError(
                    f"{name} is of a family that does not run in {computed}; use float32"
                )
            computed = "float32"
        averages = model.config.num_hidden_layers < config.num_hidden_layers
        if averages and precision == "auto":  # so that its head can be judged
            computed = "float32"
        model = model.eval().requires_grad_(False).to(where)
        # Not float16, whose range the sums of a deep network leave.
        if where.type != "cpu" and computed == "bfloat16" and holds_exactly(model, computed):
            shorten_weights(model, computed)
        local = str(name) == "demo" or Path(name).expanduser().is_dir() or find_dense(folder)
        return cls(
            name=str(name),
            source=str(folder.resolve()) if local else str(name),
            revision=None if local else folder.name,  # the hub's cache names folders by commit
            model=model,
            tokenizer=tokenizer,
            family=family,
            precision=computed,
            dtype=dtype,
            notes=notes,
            averages=averages,
        )

    def load_as(
        self, kind: Any, config: Any, *, part: str = "weights", **options: Any
    ) -> tuple[Any, Mapping[str, Any]]:
        """Load the checkpoint again as a class of transformers, such as one with a head.

        Args:
            kind: the class.
            config: what is loaded; it is not changed.
            part: what cannot be loaded if it fails.
            options: of `from_pretrained`; `dtype` is float32 unless it is given.

        Returns:
            The model, and which tensors were missing, unexpected, or of another shape.

        Raises:
            InputError: if it cannot be loaded.
        """
        options = {"dtype": torch.float32, "revision": self.revision} | options
        try:
            model, report = load_pretrained(
                kind, self.source, config=copy.deepcopy(config), output_loading_info=True, **options
            )
        except Exception as error:  # a broken file makes the libraries raise errors of all kinds
            raise InputError(
                f"cannot load the {part} of {self.name}: {first_line(error)}"
            ) from error
        keep_family(model, self.family)
        return model, report

    @property
    def device(self) -> torch.device:
        """The device that the model is on."""
        device: torch.device = self.model.device
        return device

    @property
    def blocks(self) -> int:
        """L, the number of blocks; one that averages for the head is none of them."""
        config = self.model.config
        return int(config.num_hidden_layers) - getattr(config, AVERAGING, False)

    @property
    def dense(self) -> Path | None:
        """The folder of the checkpoint's head, where that is a linear layer on the mean."""
        return find_dense(self.source)

    @property
    def reads_mean(self) -> bool:
        """Whether the checkpoint's head is linear on the mean of the tokens."""
        return self.averages or self.dense is not None

    @property
    def editing(self) -> dict[str, Any] | None:
        """What JSON files hold of what was done to the blocks."""
        return None if self.edit_spec is None else self.edit_spec.as_dict()

    def shape(
        self, labels: int, kind: Kind = "classification", classifier: Classifier = "family"
    ) -> ModelShape:
        """Return the sizes and parameter counts with a head; see `model_shape`."""
        return model_shape(self.model.config, labels, kind, classifier, self.family)

    def tokenize(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        max_length: int = MAX_LENGTH,
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
        self._check_inputs(texts, max_length, pair=pairs is not None)
        return tokenize_texts(self.tokenizer, texts, pairs, max_length)

    def tokenize_words(
        self, sentences: Sequence[tuple[str, ...]], *, max_length: int = MAX_LENGTH
    ) -> Tokens:
        """Tokenise sentences of labelled words.

        Words that the tokenizer drops are read as its unknown token. Sentences of more than
        `max_length` tokens are cut into windows, each of which has a quarter of the one before.

        Args:
            sentences: the words of n sentences.
            max_length: tokens of a window at the most, special ones included.

        Raises:
            InputError: as `tokenize`.
        """
        self._check_inputs(sentences, max_length)
        return tokenize_words(self.tokenizer, sentences, max_length)

    def tokenize_split(self, split: Split, *, max_length: int = MAX_LENGTH) -> Tokens:
        """Tokenise the rows of a split: texts, pairs of texts, or sentences of labelled words.

        Raises:
            InputError: as `tokenize`.
        """
        if split.words is not None:
            return self.tokenize_words(split.words, max_length=max_length)
        return self.tokenize(split.texts, split.pairs, max_length=max_length)

    def _check_inputs(self, texts: Sequence[Any], max_length: int, *, pair: bool = False) -> None:
        special = self.tokenizer.num_special_tokens_to_add(pair=pair)
        # Not the tokenizer's limit: of a tuned model that is the length it was tuned at.
        limit = usable_positions(self.model.config, self.family)
        if not special < max_length <= limit:
            raise InputError(
                f"max_length must be in {special + 1}..{limit} for {self.name}, got {max_length}"
            )
        if isinstance(texts, str) or not len(texts):
            raise InputError(f"texts must be a list of one or more texts, got {texts!r:.60}")

    @property
    def token_budget(self) -> int:
        """Tokens of a batch at the most, padding included, where the encoder makes the batches."""
        return CPU_TOKENS if self.device.type == "cpu" else ACCELERATOR_TOKENS

    def batches(self, tokens: Tokens) -> list[Int64[np.ndarray, " b"]]:
        """Group the texts into batches of like length, longest first; each a list of rows."""
        return batch_by_length(tokens.lengths, self.token_budget)

    def batch(self, tokens: Tokens, rows: Int64[np.ndarray, " b"]) -> dict[str, Tensor]:
        """Pad the texts at `rows` to the longest of them: the model's inputs, each (b, T)."""
        at, real = tokens.pad(rows)
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

    def find_head_tokens(self, tokens: Tokens, reads: ReadToken) -> Int64[np.ndarray, " n"]:
        """Find the token of each text that a head on this encoder reads: its place in the text."""
        return tokens.find_head_tokens(reads, self.tokenizer.pad_token_id)

    def pool(
        self, tokens: Tokens, rows: Int64[np.ndarray, " b"], pooling: Pooling = "mean"
    ) -> Float32[Tensor, "S o d"]:
        """Run the model once over the texts at `rows` and pool every state as it passes.

        As `pool_each` for a single pooling.

        Raises:
            InputError: if a single text is more than the device's memory can hold.
        """
        return self.pool_each(tokens, rows, (pooling,))[0]

    def pool_each(
        self, tokens: Tokens, rows: Int64[np.ndarray, " b"], poolings: Sequence[Pooling]
    ) -> Float32[Tensor, "P S o d"]:
        """Run the model once over the texts at `rows` and pool every state in each of P ways.

        The tokens of each text are pooled or, where words are labelled, those of each of the
        texts' words: so many outputs, o, come back. The S = L + 1 states come back on the
        model's device; those of single tokens are never kept. It runs in eval mode and without
        autograd, whatever mode the model is in. Where the device runs out of memory, the texts are
        run in two halves.

        Raises:
            InputError: if a pooling is unknown, or a single text is more than the device's memory
                can hold.
        """
        pool = partial(self._pool, tokens, poolings)
        return torch.cat(run_in_halves(pool, rows, tokens.lengths, self.device), dim=2)

    def _pool(
        self, tokens: Tokens, poolings: Sequence[Pooling], rows: Int64[np.ndarray, " b"]
    ) -> Float32[Tensor, "P S o d"]:
        inputs = self.batch(tokens, rows)
        path = self.family.final_norm
        norm = None if path is None else self.model.get_submodule(path)
        poolers = [make_pooler(tokens, rows, pooling, self.device, norm) for pooling in poolings]
        pooled: list[Tensor] = []
        exact = torch.autocast(self.device.type, enabled=False)

        def pool(_: int, state: Float[Tensor, "b T d"]) -> None:
            with exact:
                pooled.append(torch.stack([pooler(state) for pooler in poolers]))

        with eval_mode(self.model), torch.inference_mode():
            self.visit(inputs, pool)
        return torch.stack(pooled, dim=1)

    def states(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        pooling: Pooling = "mean",
        max_length: int = MAX_LENGTH,
    ) -> Float32[Tensor, "S n d"]:
        """Return all S = L + 1 pooled states of n texts (or pairs), in their order, on the CPU.

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
        with self.autocast(), entering_blocks(self.model, self.family, look):
            last = last_state(self.model, self.family, inputs)
        if self.blocks == self.model.config.num_hidden_layers:  # else state L was read on the way
            look(self.blocks, last)

    def cut(self, inputs: Mapping[str, Tensor], block: int) -> Float[Tensor, "b T d"]:
        """Run blocks 1..`block` only and give the state that comes out, for every token.

        Args:
            inputs: as `batch` gives them.
            block: 0 (the embedding output) to L.

        Raises:
            InputError: if there is no such block.
        """
        self._check_block(block)
        with self.autocast():
            return run_until(self.model, self.family, inputs, block)

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

        Raises:
            InputError: if there is no such block.
        """
        self._check_block(block)
        with self.autocast(), resume_at(self.model, self.family, state, block):
            output: Tensor = self.model(**inputs).last_hidden_state
            return output

    def _check_block(self, block: int) -> None:
        check_integer("block", block, 0, self.blocks, remedy=f"{self.name} has {self.blocks}")

    def autocast(self) -> torch.autocast:
        """Make a context in which the device computes in `precision`."""
        dtype = torch.float16 if self.precision == "float16" else torch.bfloat16
        return torch.autocast(self.device.type, dtype=dtype, enabled=self.precision != "float32")


def holds_exactly(model: Any, dtype: Computed) -> bool:
    """Return whether weights stay the same in a dtype, whatever the configuration says."""
    short = getattr(torch, dtype)
    return all(p.to(short).to(p.dtype).equal(p) for p in model.parameters())


def shorten_weights(model: Any, dtype: Computed) -> None:
    """Hold a model's weights, but not its buffers, in a dtype: rotary frequencies need float32."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(getattr(torch, dtype))


def hash_base(encoder: Encoder, head: int) -> str:
    """Hash all weights of an encoder up to state `head`, whatever library holds them.

    Returns:
        A sha256 in hexadecimal, of names, shapes and values in float32.
    """
    named = dict(encoder.model.named_parameters(remove_duplicate=False))
    digest = hashlib.sha256()
    for name, place in sorted(locate_parameters(encoder.model).items()):
        if place == "head" or (isinstance(place, tuple) and min(place) > head):
            continue
        digest.update(f"{name} {list(named[name].shape)}\n".encode())
        digest.update(view_bytes(named[name].float()))
    return digest.hexdigest()


def describe_model(encoder: Encoder, task: Task) -> dict[str, Any]:
    """Return what the JSON files hold of a model."""
    # A head for multiple choice has one output, read for each choice; one for numbers has one too.
    outputs = 1 if task.kind in ("regression", "multiple_choice") else len(task.labels)
    return {
        "name": encoder.name,
        "source": encoder.source,
        "revision": encoder.revision,
        "editing": encoder.editing,
        "reads": encoder.family.reads,
        **asdict(encoder.shape(outputs)),
    }
