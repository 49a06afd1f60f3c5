"""Further formats beside a checkpoint: for sentence-transformers, and ONNX."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscout.errors import (
    InputError,
    LayerscoutError,
    first_line,
    make_unknown_error,
)
from layerscout.files import (
    make_output_folder,
    read_json,
    replace_files,
)
from layerscout.models.architecture import (
    AVERAGING,
)
from layerscout.models.checkpoints import load_config, load_pretrained
from layerscout.models.configurations import read_config
from layerscout.models.devices import quiet_transformers
from layerscout.models.hub import locate_checkpoint

FORMATS = ("sentence-transformers", "onnx")

# The folder and file names are those that sentence-transformers and the hub look for.
POOLING, GRAPH = Path("1_Pooling") / "config.json", Path("onnx") / "model.onnx"

# What logits may differ by; the dtype is float32 in both.
TOLERANCE = 1e-4

# The graph is made from the first two, which must differ in length, and checked on the others.
_TEXTS = (
    ["a short text", "another text, which has some more words in it"],
    ["yes"],
    ["one two three " * 8, "what a story", "it came late, but it came"],
)


def check_formats(names: Sequence[str]) -> tuple[str, ...]:
    """Check that formats are known and their libraries are installed.

    Raises:
        InputError: if one is not.
    """
    for name in names:
        if name not in FORMATS:
            raise make_unknown_error("format", name, FORMATS)
    needed = ("onnx", "onnxscript", "onnxruntime") if "onnx" in names else ()
    if any(find_spec(library) is None for library in needed):
        raise InputError(
            "the format onnx needs libraries that are not installed; run: "
            "pip install 'layerscout[onnx]'"
        )
    return tuple(dict.fromkeys(names))


def add_formats(
    folder: str | Path, names: Sequence[str], *, base: str | Path | None = None
) -> tuple[str, ...]:
    """Add formats to the folder of a checkpoint, which stays an ordinary one of transformers.

    sentence-transformers gets the encoder without its head, with a pooling: that of `base`, or
    else the mean of the tokens, of a decoder the last one. onnx has the whole model.

    Args:
        folder: of a checkpoint, such as `model/` of a tuning.
        names: of "sentence-transformers" and "onnx".
        base: the model that it was made from, of which the pooling is kept if it has one.

    Returns:
        Warnings: what else the base has for sentence-transformers, which is not kept.

    Raises:
        InputError: if there is no such format, its libraries are not installed, or `folder` holds
            no checkpoint.
        LayerscoutError: if a format cannot be made of this model; the others are written.
    """
    path = Path(folder).expanduser()
    formats, warned = check_formats(names), list[str]()
    if "sentence-transformers" in formats:
        warned += _add_sentence_transformers(path, base)
    if "onnx" in formats:  # last, since it may fail
        _add_onnx(path)
    return tuple(warned)


def _add_sentence_transformers(folder: Path, base: str | Path | None) -> list[str]:
    config, family = load_config(str(folder))
    own = None if base is None else locate_checkpoint(str(base))
    pooling = _read_object(own, POOLING) or {
        # The names that all versions of the library read.
        "word_embedding_dimension": config.hidden_size,
        "pooling_mode_mean_tokens": family.reads != "last",
        "pooling_mode_lasttoken": family.reads == "last",
    }
    library, place = "sentence_transformers.models", POOLING.parent.name
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{library}.Transformer"},
        {"idx": 1, "name": "1", "path": place, "type": f"{library}.Pooling"},
    ]
    make_output_folder(folder / POOLING.parent)
    with replace_files(folder / POOLING, folder / "modules.json") as temporary:
        for file, content in zip(temporary, (pooling, modules), strict=True):
            file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    warned = _list_left_out(own, str(base))
    if _read_object(folder, "config.json").get(AVERAGING):
        warned.append(
            "sentence-transformers gets the means of the tokens after a norm, since the top block "
            f"of {folder} averages"
        )
    return warned


def _read_object(folder: Path | None, name: str | Path) -> Any:
    """Read a JSON file of sentence-transformers in the folder of a base, None if there is none."""
    if folder is None or not (folder / name).is_file():
        return None
    try:
        return read_json(folder / name)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {folder / name}: {error}; correct or remove it") from error


def _list_left_out(folder: Path | None, base: str) -> list[str]:
    """Say what a base has on top of its pooling: it was trained on states that are others now."""
    parts = _read_object(folder, "modules.json")
    prompts = _read_object(folder, "config_sentence_transformers.json")
    named = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    names = [
        str(part.get("type")).rpartition(".")[2]
        for part in named
        if part.get("path") not in ("", POOLING.parent.name)
    ]
    if isinstance(prompts, dict) and any(dict(prompts.get("prompts") or {}).values()):
        names.append("prompts")
    if not names:
        return []
    remedy = "vectors are those of the pooling"
    if "Normalize" in names:
        remedy += "; encode(..., normalize_embeddings=True) normalises them"
    return [f"sentence-transformers gets no {', '.join(names)} of {base}: {remedy}"]


def _add_onnx(folder: Path) -> None:
    import transformers
    from transformers import AutoTokenizer

    config = read_config(str(folder), locate_checkpoint(str(folder)))
    kind = (config.architectures or [""])[0]
    if kind.endswith("ForMultipleChoice") or not hasattr(transformers, kind):
        raise LayerscoutError(f"{folder} is a {kind or 'model of no class'}, not exported to ONNX")
    make_output_folder(folder / GRAPH.parent)
    with replace_files(folder / GRAPH) as (temporary,):
        try:
            tokenizer = load_pretrained(AutoTokenizer, folder, config=config)
            options = {"config": config, "dtype": torch.float32}
            model = load_pretrained(getattr(transformers, kind), folder, **options).eval()
            model.config.use_cache = False  # of keys and values, which is for generating text
            traced, *checked = (
                dict(tokenizer(texts, padding=True, return_tensors="pt")) for texts in _TEXTS
            )
            _export_graph(model, traced, temporary)
            off = float(np.max([_compare(model, inputs, temporary) for inputs in checked]))
        except Exception as error:  # torch's exporter raises errors of all kinds
            raise LayerscoutError(
                f"{folder} cannot be exported to ONNX: {first_line(error)}; the checkpoint itself "
                "is whole"
            ) from error
        if not off <= TOLERANCE:
            raise LayerscoutError(
                f"the logits of the ONNX graph of {folder} are off by {off:.2g}, more than "
                f"{TOLERANCE:g}, so it is left out; the checkpoint itself is complete"
            )


def _export_graph(model: Any, inputs: Mapping[str, Tensor], file: Path) -> None:
    """Let torch write the graph of a model, for any number and length of texts."""
    any_size = dict.fromkeys(range(2), torch.export.Dim.DYNAMIC)
    # What torch 2.13 deprecates of its own, operators of torchvision, and constants of DeBERTa that
    # onnxscript 0.7 does not fold, are not the user's.
    for library in ("torch.onnx", "onnxscript"):
        logging.getLogger(library).setLevel(logging.ERROR)
    with torch.no_grad(), quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs = list(model(**inputs).keys())
        program = torch.onnx.export(
            model,
            kwargs=dict(inputs),
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes=dict.fromkeys(inputs, any_size),
            dynamo=True,
            verbose=False,
        )
    assert program is not None, "dynamo gives a program"
    program.save(str(file))


def _compare(model: Any, inputs: Mapping[str, Tensor], file: Path) -> float:
    """Return by how much the first output of a graph differs from the model's, at the most."""
    from onnxruntime import InferenceSession

    session = InferenceSession(str(file), providers=["CPUExecutionProvider"])
    outputs = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})[0]
    with torch.no_grad():
        expected = next(iter(model(**inputs).values())).numpy()
    return float(np.abs(np.asarray(outputs) - expected).max())
