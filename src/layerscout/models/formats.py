"""Further formats of a checkpoint, written into its folder: sentence-transformers and ONNX."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscout.models.checkpoints import load_config, load_pretrained
from layerscout.models.locations import locate_checkpoint
from layerscout.models.quiet import quiet_transformers
from layerscout.runtime import (
    InputError,
    LayerscoutError,
    first_line,
    make_output_folder,
    make_unknown_error,
    read_json,
    replace_files,
)

# The folder and file names are those that sentence-transformers and the hub look for.
POOLING, GRAPH = Path("1_Pooling") / "config.json", Path("onnx") / "model.onnx"

# What logits may differ by; the dtype is float32 in both.
TOLERANCE = 1e-4

# The graph is made from the first two, which must differ in length, and checked on the others.
_TRACED = ("a short text", "another text, which has some more words in it")
_CHECKED = (("yes",), ("one two three " * 8, "what a story", "it came late, but it came"))


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
) -> None:
    """Add formats to the folder of a checkpoint, which stays an ordinary one of transformers.

    sentence-transformers gets the encoder without its head, with a pooling: that of `base`, or
    else the mean of the tokens, of a decoder the last one. onnx has the whole model.

    Args:
        folder: of a checkpoint, such as `model/` of a tuning.
        names: of "sentence-transformers" and "onnx".
        base: the model that it was made from, of which the pooling is kept if it has one.

    Raises:
        InputError: if there is no such format, its libraries are not installed, or `folder` holds
            no checkpoint.
        LayerscoutError: if a format cannot be made of this model; the others are written.
    """
    path = Path(folder).expanduser()
    for name in sorted(check_formats(names), reverse=True):  # onnx last, which may fail
        FORMATS[name](path, base)


def _add_sentence_transformers(folder: Path, base: str | Path | None) -> None:
    config, family = load_config(str(folder))
    pooling = _find_pooling(base) or {
        # The names that all versions of the library read.
        "word_embedding_dimension": config.hidden_size,
        "pooling_mode_mean_tokens": family.reads != "last",
        "pooling_mode_lasttoken": family.reads == "last",
    }
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.{kind}"}
        for number, (path, kind) in enumerate(
            (("", "models.Transformer"), (POOLING.parent.name, "models.Pooling"))
        )
    ]
    make_output_folder(folder / POOLING.parent)
    with replace_files(folder / POOLING, folder / "modules.json") as temporary:
        for file, content in zip(temporary, (pooling, modules), strict=True):
            file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _find_pooling(base: str | Path | None) -> Mapping[str, Any] | None:
    """Read the pooling of a model that sentence-transformers made; None if it has none."""
    found = None if base is None else locate_checkpoint(str(base)) / POOLING
    return None if found is None or not found.is_file() else read_json(found)


def _add_onnx(folder: Path, base: str | Path | None) -> None:
    import transformers
    from transformers import AutoTokenizer

    config, _ = load_config(str(folder))
    kind = (config.architectures or [""])[0]
    if kind.endswith("ForMultipleChoice") or not hasattr(transformers, kind):
        raise LayerscoutError(f"{folder} is a {kind or 'model of no class'}, not exported to ONNX")
    tokenizer = load_pretrained(AutoTokenizer, folder)
    model = load_pretrained(getattr(transformers, kind), folder, dtype=torch.float32).eval()
    model.config.use_cache = False  # of keys and values, which is for generating text
    make_output_folder(folder / GRAPH.parent)
    with replace_files(folder / GRAPH) as (temporary,):
        try:
            _export_graph(model, _tokenize(tokenizer, _TRACED), temporary)
            checked = [_tokenize(tokenizer, texts) for texts in _CHECKED]
            off = float(np.max([_compare(model, one, temporary) for one in checked]))
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


def _tokenize(tokenizer: Any, texts: Sequence[str]) -> dict[str, Tensor]:
    return dict(tokenizer(list(texts), padding=True, return_tensors="pt"))


def _export_graph(model: Any, inputs: Mapping[str, Tensor], file: Path) -> None:
    """Let torch write the graph of a model, for any number and length of texts."""
    any_size = dict.fromkeys(range(2), torch.export.Dim.DYNAMIC)
    with torch.no_grad(), quiet_transformers(), _quiet_exporter():
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


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Keep off the terminal what torch 2.13 deprecates of its own, and operators of torchvision."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _compare(model: Any, inputs: Mapping[str, Tensor], file: Path) -> float:
    """Give by how much the first output of a graph differs from the model's, at the most."""
    from onnxruntime import InferenceSession

    session = InferenceSession(str(file), providers=["CPUExecutionProvider"])
    found = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})[0]
    with torch.no_grad():
        expected = next(iter(model(**inputs).values())).numpy()
    return float(np.abs(np.asarray(found) - expected).max())


FORMATS: Mapping[str, Callable[[Path, str | Path | None], None]] = {
    "sentence-transformers": _add_sentence_transformers,
    "onnx": _add_onnx,
}
