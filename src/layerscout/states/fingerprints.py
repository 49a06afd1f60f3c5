"""Fingerprints: hashes of all that an encoder's states depend on, the keys of cached states."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, Shaped

from layerscout.data import Task
from layerscout.models import PER_BLOCK, Encoder, Tokens, view_bytes
from layerscout.plans import weight_sets

# The hash of what an output is computed from.
NAME = np.dtype("S16")
Names = Shaped[np.ndarray, " o"]

# Labels, names, and sizes of what lies above the cut.
_IRRELEVANT = {
    "_name_or_path",
    "architectures",
    "dtype",
    "id2label",
    "label2id",
    "n_layer",
    "n_layers",
    "num_hidden_layers",
    "problem_type",
    "transformers_version",
    "use_cache",
}


def fingerprint_encoder(encoder: Encoder, cut: int, *, versions: bool = True) -> str:
    """Hash all of an encoder that the states of single tokens at its states 0 to `cut` depend on.

    What lies above the cut does not matter, nor do names, labels or dropout. Every weight is
    hashed, about half a gigabyte per second: compute it once for several keys.

    Args:
        encoder: the encoder, in any mode.
        cut: 0 (the embedding output) to L.
        versions: whether it is another one with other versions of the libraries, which may compute
            other last digits; a configuration then counts with all that it leaves to them.

    Returns:
        A sha256 in hexadecimal.
    """
    model, family = encoder.model, encoder.family
    modules = len(model.get_submodule(family.blocks))
    blocks = list(weight_sets(encoder.blocks, modules)[:cut])  # the module that each block runs
    used = tuple(f"{family.blocks}.{block}." for block in blocks)
    other = ("pooler.", f"{family.final_norm}.", f"{family.blocks}.")
    tensors = [
        (name, tensor)
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
        if name.startswith(used) or not name.startswith(other)
    ]
    config = {
        name: value
        for name, value in (
            model.config.to_dict() if versions else model.config.to_diff_dict()
        ).items()
        if name not in _IRRELEVANT and "dropout" not in name  # eval mode has none
    }
    config |= {name: config[name][:cut] for name in PER_BLOCK if config.get(name)}
    about = {
        "format": 2,
        "versions": [torch.__version__, version("transformers")] if versions else None,
        "config": config | {"attention": model.config._attn_implementation},
        "tokenizer": [encoder.tokenizer.pad_token_id, encoder.tokenizer.model_input_names],
        "precision": encoder.precision,
        "matmul": torch.get_float32_matmul_precision(),
        "device": encoder.device.type,
        "blocks": blocks,
        "tensors": [(name, str(t.dtype), list(t.shape)) for name, t in tensors],
    }
    digest = hashlib.sha256(_serialize(about))
    for _, tensor in tensors:
        digest.update(view_bytes(tensor))
    return digest.hexdigest()


def fingerprint_task(task: Task) -> str:
    """Hash a task: its kind, its classes, and the texts, words and labels of its splits.

    Returns:
        A sha256 in hexadecimal.
    """
    digest = hashlib.sha256(_serialize({"kind": task.kind, "labels": task.labels}))
    for split in (task.train, task.validation):
        if split is None:
            continue
        for texts in (split.texts, split.pairs or []):
            digest.update(_serialize({"texts": list(texts)}))
        if split.words is not None:  # the texts alone do not say where a word ends
            digest.update(_serialize({"words": list(split.words)}))
        for array in (split.labels, split.groups):
            digest.update(b"" if array is None else np.ascontiguousarray(array).reshape(-1).data)
    return digest.hexdigest()


def hash_content(fingerprint: str, tokens: Tokens, about: Mapping[str, Any]) -> str:
    """Hash all that the states of single tokens depend on: the key of a trunk in the cache.

    Args:
        fingerprint: of the encoder.
        tokens: the n texts.
        about: what else the states depend on.

    Returns:
        A sha256 in hexadecimal.
    """
    # What is ordinary does not matter; without it, results that are there had another name.
    content = {"encoder": fingerprint, "texts": len(tokens), "ordinary": False, **about}
    digest = hashlib.sha256(_serialize(content))
    for array in (tokens.offsets, tokens.ids, tokens.types):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def name_outputs(tokens: Tokens) -> tuple[Names, Int64[np.ndarray, " o"]]:
    """Hash all that the pooled states of each text, or labelled word, depend on of the tokens.

    Returns:
        The hashes, and the text of each output, (o,).
    """
    texts = _hash_parts(tokens.offsets, tokens.ids, tokens.types, tokens.ordinary)
    if tokens.words is None:
        return texts, np.arange(len(tokens))
    owners, places, words = tokens.find_parts(np.arange(len(tokens)))
    bounds = np.flatnonzero(np.diff(words, prepend=-1, append=-1))
    return _hash_parts(bounds, places, texts[owners]), owners[bounds[:-1]]


def _hash_parts(bounds: Int64[np.ndarray, " o_and_end"], *arrays: np.ndarray) -> Names:
    """Hash what each array has between every two bounds."""
    contents = [(a.itemsize, np.ascontiguousarray(a).view(np.uint8).data) for a in arrays]

    def hash_part(start: int, stop: int) -> bytes:
        digest = hashlib.blake2b(digest_size=NAME.itemsize)
        for size, content in contents:
            digest.update(content[start * size : stop * size])
        return digest.digest()

    ends = bounds.tolist()
    return np.fromiter(map(hash_part, ends[:-1], ends[1:]), NAME, len(ends) - 1)


def _serialize(about: Mapping[str, Any]) -> bytes:
    return json.dumps(about, sort_keys=True, default=str).encode()
