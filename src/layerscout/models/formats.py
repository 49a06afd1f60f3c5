"""Further formats beside a checkpoint: for sentence-transformers, and ONNX."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

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
from layerscout.models.architecture import AVERAGING, ENDINGS
from layerscout.models.averaging import find_linear_head
from layerscout.models.checkpoints import load_config, load_pretrained
from layerscout.models.configurations import read_config
from layerscout.models.devices import quiet_transformers
from layerscout.models.encoder import Encoder
from layerscout.models.hub import find_dense, locate_checkpoint
from layerscout.models.sentence_classifiers import POOLING, describe_pooling, write_parts
from layerscout.models.tuned_classifiers import load_tuned_classifier, read_kind

SENTENCES, CLASSIFIER, ONNX = FORMATS = (
    "sentence-transformers",
    "sentence-transformers-classifier",
    "onnx",
)

# What is saved of a model: whole with its family's own head, or one for choices; with a block that
# averages for the head; as a classifier of sentence-transformers; or what was trained alone.
Saved = Literal["family", "choices", "averaging", "mean", "parameters"]

# Why a model cannot have a format, and what to do instead.
_APART = "needs a whole model, but this tuning saves only the trained parameters; leave it out"
_REFUSED: Mapping[tuple[str, Saved], str] = {
    (SENTENCES, "mean"): "is the encoder without its head, but this model is one of "
    "sentence-transformers with its head; leave it out",
    **dict.fromkeys(
        [(CLASSIFIER, "family"), (CLASSIFIER, "choices")],
        "needs a linear head on the mean of the tokens, which this model does not have; use a plan "
        "such as head:best, or the classifier mean-linear",
    ),
    (ONNX, "choices"): "cannot have a model of multiple choice; leave it out",
    **{(name, "parameters"): _APART for name in FORMATS},
}

GRAPH = Path("onnx") / "model.onnx"

# What logits may differ by; the dtype is float32 in both.
TOLERANCE = 1e-4

# The graph is made from the first two, which must differ in length, and checked on the others.
_TEXTS = (
    ["a short text", "another text, which has some more words in it"],
    ["yes"],
    ["one two three " * 8, "what a story", "it came late, but it came"],
)


def check_formats(names: Sequence[str], saved: Saved | None = None) -> tuple[str, ...]:
    """Check that formats are known, their libraries are installed, and a model can have them.

    Args:
        names: of the formats.
        saved: what is saved of the model, if that is known.

    Raises:
        InputError: if one is not, or the model cannot have it.
    """
    for name in names:
        if name not in FORMATS:
            raise make_unknown_error("format", name, FORMATS)
        if saved is not None and (name, saved) in _REFUSED:
            raise InputError(f"the format {name} {_REFUSED[name, saved]}")
    if {SENTENCES, CLASSIFIER} <= {*names}:
        raise InputError(
            f"the formats {SENTENCES} and {CLASSIFIER} are the same files without and with the "
            "head; give one of them"
        )
    needed = ("onnx", "onnxscript", "onnxruntime") if ONNX in names else ()
    if any(find_spec(library) is None for library in needed):
        raise InputError(
            "the format onnx needs libraries that are not installed; run: "
            "pip install 'layerscout[onnx]'"
        )
    return tuple(dict.fromkeys(names))


def add_formats(
    folder: str | Path, names: Sequence[str], *, base: str | Path | None = None
) -> tuple[str, ...]:
    """Add formats to the folder of a model, which stays what it is.

    sentence-transformers gets the encoder without its head, with a pooling: that of `base`, or
    else the mean of the tokens, of a decoder the last one. sentence-transformers-classifier has a
    head on the mean. onnx has the whole model, from tokens to logits.

    Args:
        folder: of a model, such as `model/` of a tuning.
        names: of the formats.
        base: the model that it was made from, of which the pooling is kept if it has one.

    Returns:
        Warnings: what else the base has for sentence-transformers, which is not kept.

    Raises:
        InputError: if there is no such format, its libraries are not installed, the model cannot
            have it, or `folder` holds none.
        LayerscoutError: if a format cannot be made of this model; the others are written.
    """
    path, warned = Path(folder).expanduser(), list[str]()
    formats = check_formats(names)
    check_formats(names, saved := _find_saved(path))
    if SENTENCES in formats:
        warned += _add_sentence_transformers(path, base)
    if CLASSIFIER in formats and saved != "mean":  # which it is already
        encoder = Encoder.load(path, device="cpu")
        head = find_linear_head(load_tuned_classifier(encoder, read_kind(encoder.model.config)))
        write_parts(path, describe_pooling(encoder.model.config.hidden_size), dense=head)
    if ONNX in formats:  # last, since it may fail
        _add_onnx(path)
    return tuple(warned)


def _find_saved(folder: Path) -> Saved:
    """Find what a folder holds.

    Raises:
        InputError: if it holds no model.
    """
    place = locate_checkpoint(str(folder))
    config = read_config(str(folder), place)
    if find_dense(place) is not None:
        return "mean"
    if getattr(config, AVERAGING, False):
        return "averaging"
    kind = (config.architectures or [""])[0]
    return "choices" if kind.endswith(ENDINGS["multiple_choice"]) else "family"


def _add_sentence_transformers(folder: Path, base: str | Path | None) -> list[str]:
    config, family = load_config(str(folder))
    own = None if base is None else locate_checkpoint(str(base))
    takes = "lasttoken" if family.reads == "last" else "mean_tokens"
    pooling = _read_object(own, POOLING) or describe_pooling(config.hidden_size, takes)
    write_parts(folder, pooling)
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


def _load_whole(folder: Path) -> tuple[Any, Any]:
    """Load the tokenizer of a folder, and its model in eval mode and float32, with any head.

    Raises:
        LayerscoutError: if transformers has no such class.
    """
    import transformers
    from transformers import AutoTokenizer

    place = locate_checkpoint(str(folder))
    config = read_config(str(folder), place)
    if find_dense(place) is not None:
        encoder = Encoder.load(folder, device="cpu")
        return encoder.tokenizer, load_tuned_classifier(encoder, read_kind(config))
    kind = (config.architectures or [""])[0]
    if not hasattr(transformers, kind):
        raise LayerscoutError(f"{folder} is a {kind or 'model of no class'}, not exported to ONNX")
    tokenizer = load_pretrained(AutoTokenizer, folder, config=config)
    options = {"config": config, "dtype": torch.float32}
    return tokenizer, load_pretrained(getattr(transformers, kind), folder, **options).eval()


def _add_onnx(folder: Path) -> None:
    make_output_folder(folder / GRAPH.parent)
    with replace_files(folder / GRAPH) as (temporary,):
        try:
            tokenizer, model = _load_whole(folder)
            model.config.use_cache = False  # of keys and values, which is for generating text
            traced, *checked = (
                dict(tokenizer(texts, padding=True, return_tensors="pt")) for texts in _TEXTS
            )
            _export_graph(model, traced, temporary)
            off = float(np.max([_compare(model, inputs, temporary) for inputs in checked]))
        except LayerscoutError:
            raise
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
