"""Classifiers as sentence-transformers has them: encoder, mean of the tokens, linear layer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from layerscout.files import make_output_folder, replace_files, replace_folder
from layerscout.models.devices import quiet_transformers
from layerscout.models.exports import save_tokenizer, write_weights
from layerscout.models.hub import DENSE, TRANSFORMER
from layerscout.models.shapes import make_unweighted

# The names of files are those that sentence-transformers and the hub look for.
POOLING = Path("1_Pooling") / "config.json"
# What stands in the place of a family, so that no class of transformers takes the folder for one of
# its own and draws a head for it.
FORM = "sentence-transformers"
# What a pooling may take; text-embeddings-inference wants each of the first four.
_POOLINGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")


def describe_pooling(width: int, takes: str = "mean_tokens") -> dict[str, Any]:
    """Describe a pooling of states of a width, by the names that all versions of the library read.

    Args:
        width: of the states.
        takes: one of "mean_tokens" and "lasttoken".
    """
    modes = {f"pooling_mode_{name}": name == takes for name in _POOLINGS}
    return {"word_embedding_dimension": width, **modes}


def write_parts(
    folder: Path,
    pooling: Mapping[str, Any],
    *,
    transformer: str = "",
    dense: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Write what sentence-transformers reads of a folder besides its transformer.

    Args:
        folder: of the model.
        pooling: as `describe_pooling` gives it.
        transformer: its folder in `folder`; empty if it is the same.
        dense: weights (K, d) and biases (K,) of a linear layer on what is pooled.
    """
    paths = {"Transformer": transformer, "Pooling": POOLING.parent.name}
    contents: dict[Path, Any] = {POOLING: pooling}
    if dense is not None:
        weights, bias = dense
        paths["Dense"] = DENSE
        contents[Path(DENSE) / "config.json"] = {
            "in_features": weights.shape[1],
            "out_features": weights.shape[0],
            "bias": True,
            "activation_function": "torch.nn.modules.linear.Identity",
        }
        contents[Path(DENSE) / "model.safetensors"] = save(
            {"linear.weight": weights.contiguous(), "linear.bias": bias}, {"format": "pt"}
        )
    # It comes last: with it the folder is one of sentence-transformers.
    contents[Path("modules.json")] = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{name}"}
        for n, (name, path) in enumerate(paths.items())
    ]
    for file in contents:
        make_output_folder((folder / file).parent)
    with replace_files(*(folder / file for file in contents)) as temporary:
        for file, content in zip(temporary, contents.values(), strict=True):
            if not isinstance(content, bytes):
                content = f"{json.dumps(content, indent=2)}\n".encode()
            file.write_bytes(content)


def export_mean(
    model: Any, tokenizer: Any, folder: str | Path, card: str, *, max_length: int
) -> None:
    """Write a linear classifier on the mean as a folder for sentence-transformers, in float32.

    `SentenceTransformer(folder).encode` gives its logits. transformers refuses the folder.

    Args:
        model: a `MeanLinear`.
        tokenizer: its tokenizer.
        folder: where it goes; an earlier model is replaced once the new one is whole.
        card: the model card, in Markdown.
        max_length: tokens of a text that it was tuned on at the most.
    """
    from transformers import AutoModel

    encoder, config = model.encoder, model.config
    weights = encoder.state_dict()
    # The library would draw a pooler that is missing, and say so.
    weights |= {
        name: torch.zeros(tensor.shape)
        for name, tensor in make_unweighted(AutoModel, config).state_dict().items()
        if name not in weights
    }
    named = {"model_type": FORM, "id2label": config.id2label, "label2id": config.label2id}
    with quiet_transformers(), replace_folder(Path(folder)) as temporary:
        inner = temporary / TRANSFORMER
        inner.mkdir()
        write_weights(encoder, weights, torch.float32, inner)
        save_tokenizer(tokenizer, encoder, inner, max_length=max_length)
        layer = model.classifier
        dense = layer.weight.detach().cpu(), layer.bias.detach().cpu()
        pooling = describe_pooling(config.hidden_size)
        write_parts(temporary, pooling, transformer=TRANSFORMER, dense=dense)
        (temporary / "config.json").write_text(f"{json.dumps(named, indent=2)}\n", "utf-8")
        (temporary / "README.md").write_text(card, encoding="utf-8")
