"""Checkpoints that load without layerscout, and further formats in their folders."""

from __future__ import annotations

import copy
import json
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscout.errors import (
    InputError,
    LayerscoutError,
    check_integer,
    first_line,
    make_unknown_error,
)
from layerscout.files import (
    check_no_tuning,
    make_output_folder,
    read_json,
    replace_files,
    replace_folder,
)
from layerscout.models.architecture import (
    AVERAGING,
    base_of,
    cut_config,
    has_averaging,
    head_modules,
    locate_parameters,
    shared_weights,
    usable_positions,
)
from layerscout.models.checkpoints import load_config, load_pretrained
from layerscout.models.configurations import read_config
from layerscout.models.devices import Computed, quiet_transformers
from layerscout.models.encoder import Encoder
from layerscout.models.hub import locate_checkpoint
from layerscout.models.tokens import overlap_windows
from layerscout.models.versions import name_tokenizer, save_config
from layerscout.plans import Plan, check_tied


def export(
    model: Any,
    tokenizer: Any,
    folder: str | Path,
    card: str,
    *,
    max_length: int,
    dtype: Computed = "float32",
) -> None:
    """Write a model as an ordinary checkpoint, which loads without layerscout.

    Args:
        model: any transformers model of a supported family.
        tokenizer: its tokenizer.
        folder: where it goes; a checkpoint that is there is replaced once the new one is whole.
        card: the model card, in Markdown.
        max_length: tokens of an input that it was tuned on at the most, where `truncation=True`
            of a pipeline then cuts.
        dtype: what its weights are stored in.

    Raises:
        InputError: if it cannot be written, `folder` holds anything but a checkpoint, or the model
            has a block that averages and `dtype` is a short one.
    """
    if dtype != "float32" and has_averaging(model):
        raise InputError(
            f"a model whose top block averages must be saved in float32, got {dtype}, in which it "
            "would compute something else; use --save-dtype float32"
        )
    stored = getattr(torch, dtype)
    weights = {
        name: tensor.to(stored) if tensor.is_floating_point() else tensor
        for name, tensor in model.state_dict().items()
    }
    with _write_model(model, weights, stored, folder) as temporary:
        save_tokenizer(tokenizer, model, temporary, max_length=max_length)
        (temporary / "README.md").write_text(card, encoding="utf-8")


@contextmanager
def _write_model(
    model: Any, weights: Mapping[str, Tensor], dtype: torch.dtype | None, folder: str | Path
) -> Iterator[Path]:
    """Write weights and the configuration into a folder that replaces `folder` once it is whole."""
    with quiet_transformers(), replace_folder(Path(folder)) as temporary:
        model.save_pretrained(temporary, state_dict=weights)
        config = copy.deepcopy(model.config)
        config.dtype = dtype  # as it is stored, and not as the library holds it
        save_config(config, temporary)
        yield temporary


def round_weights(model: Any, dtype: Computed) -> None:
    """Round a model's weights, which stay in float32, to what a dtype can hold."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(getattr(torch, dtype)))


def truncate(
    model: str | Path, head: int, folder: str | Path, *, untie: bool = False
) -> tuple[str, ...]:
    """Write the checkpoint that ends after block `head`: same architecture, same dtype, shorter.

    Args:
        model: a folder, a hub id, or "demo".
        head: the blocks that are kept, 1 to L − 1.
        folder: where it goes; a checkpoint that is there is replaced once the new one is whole.
        untie: give each block its own copy of weights that blocks share, as in ALBERT.

    Returns:
        Warnings: what was trained on state L and now reads state `head`, and what was left out.

    Raises:
        InputError: if there is no such model, it cannot be cut there, or `folder` cannot be
            written.
    """
    place = Path(folder).expanduser()
    if place.exists():
        check_no_tuning(place.parent, f"{place.name}/")
    encoder = Encoder.load(model, device="cpu")
    blocks = encoder.blocks
    head = check_integer("head", head, 1, blocks - 1, remedy=f"{model} has {blocks} blocks")
    local = encoder.revision is None
    if local and place.resolve() == Path(encoder.source).resolve():
        raise InputError(f"{folder} holds the model to truncate; choose another folder")
    # As the file says it, which is not how an encoder computes.
    config = read_config(encoder.name, locate_checkpoint(encoder.name))
    config.pad_token_id = encoder.model.config.pad_token_id  # which may be a borrowed one
    if encoder.averages:
        config.architectures = None  # the head reads nothing but what the block above gives
    dtype = config.dtype
    if not untie:
        check_tied(Plan((), head), shared_weights(config))
        config = cut_config(config, head)
    short, missing, warnings = _load_whole(encoder, config)
    if untie:
        from layerscout.models.edits import copy_shared_weights

        copy_shared_weights(str(model), base_of(short)[0], encoder.family, head)
    heads = [
        name
        for name in head_modules(short, locate_parameters(short))
        if not any(key.startswith(f"{name}.") for key in missing)
    ]
    if heads:
        warnings.append(
            f"the head ({', '.join(heads)}) was trained on state {blocks} and now reads state "
            f"{head}; tune it again"
        )
    weights = {k: v for k, v in short.state_dict().items() if k not in missing}
    with _write_model(short, weights, dtype, folder) as temporary:
        save_tokenizer(encoder.tokenizer, short, temporary)
    return tuple(warnings)


def _load_whole(encoder: Encoder, config: Any) -> tuple[Any, set[str], list[str]]:
    """Load a checkpoint with its own head, as `config` shortens it and in the dtype of its file.

    Returns:
        The model; the tensors that it has and the file does not, which are random; warnings.
    """
    import transformers

    name, warnings = encoder.name, list(encoder.notes)
    named = (config.architectures or ["AutoModel"])[0]
    kind: Any = getattr(transformers, named, None)
    family = getattr(getattr(kind, "config_class", None), "model_type", None)
    if named != "AutoModel" and family != config.model_type:
        kind = transformers.AutoModel
        warnings.append(
            f"{name} is of the class {named}, which transformers does not have; it is saved as the "
            "bare encoder"
        )
    config = copy.deepcopy(config)
    config.dtype = None  # so that the weights themselves are asked
    model, report = encoder.load_as(kind, config, dtype="auto")
    missing = set(report["missing_keys"])
    if encoder.averages:  # BERT's pooler is a part of the head
        missing |= {key for key in model.state_dict() if key.startswith("pooler.")}
    lacking = sorted(key for key in missing if "pooler." not in key)
    if lacking:
        raise InputError(
            f"the weights of {name} lack {len(lacking)} tensors of a {type(model).__name__}, such "
            f"as {lacking[0]}; the checkpoint is incomplete"
        )
    dropped = re.compile(rf"(^|\.){re.escape(encoder.family.blocks)}\.")
    others = sorted(key for key in report["unexpected_keys"] if not dropped.search(key))
    if others:
        warnings.append(
            f"{len(others)} tensors that a {type(model).__name__} does not have were left out, "
            f"such as {others[0]}"
        )
    return model, missing, warnings


def save_tokenizer(
    tokenizer: Any, model: Any, folder: Path, *, max_length: int | None = None
) -> None:
    """Save a tokenizer such that every version of transformers makes this model's inputs.

    Args:
        tokenizer: of the model.
        model: any transformers model.
        folder: where it goes.
        max_length: tokens of an input that the model was tuned on at the most; by default the
            tokenizer's own limit.
    """
    _prepare_tokenizer(tokenizer, model, max_length).save_pretrained(folder)
    name_tokenizer(folder)


def _prepare_tokenizer(tokenizer: Any, model: Any, max_length: int | None) -> Any:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.backend_tokenizer.no_truncation()  # of the last call, which would be saved
    tokenizer.backend_tokenizer.no_padding()
    longest = tokenizer.model_max_length if max_length is None else max_length
    tokenizer.model_max_length = min(longest, usable_positions(model.config))
    tokenizer.padding_side = "right"  # GPT-2 counts positions from the padding on
    for name in ("is_local", "local_files_only"):  # how it was loaded is not how it should be
        tokenizer.init_kwargs.pop(name, None)
    taken = signature(model.forward).parameters  # DistilBERT's offer types that no model takes
    names = [name for name in tokenizer.model_input_names if name in taken]
    tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names = names
    return tokenizer


def find_entities(
    encoder: Encoder, model: Any, texts: Sequence[str], max_length: int, *, joined: bool
) -> list[set[tuple[int, int, str]]]:
    """Ask transformers' pipeline, as users do, for the entities of texts.

    Args:
        encoder: what the model was made from.
        model: that labels words.
        texts: n of them.
        max_length: tokens of an input that the model was tuned on.
        joined: with words joined at spaces, by the class that the card then shows.

    Returns:
        Of each text where entities begin and end, without spaces around them, and their types.
    """
    from transformers import TokenClassificationPipeline

    from layerscout.models.joined_words import Words

    with warnings.catch_warnings(), encoder.autocast():
        warnings.filterwarnings("ignore", "Tokenizer does not support real words")
        find = (Words if joined else TokenClassificationPipeline)(
            model=model,
            tokenizer=_prepare_tokenizer(encoder.tokenizer, model, max_length),
            device=encoder.device,
            aggregation_strategy="first",
            stride=overlap_windows(max_length),
        )
        # As on the card for tags that the library does not know; of B- and I- it is what it does.
        find.get_tag = lambda tag: ("B" if tag[0] in "BS" else "I", tag[2:] or tag == "O")
        # A text of no token, such as a joiner of no width, is none that a decoder can run on.
        some = find.tokenizer(list(texts), truncation=True)["input_ids"]
        entities = [find(text) if ids else [] for text, ids in zip(texts, some, strict=True)]
    return [
        {_trim(text, one["start"], one["end"], one["entity_group"]) for one in some}
        for text, some in zip(texts, entities, strict=True)
    ]


def _trim(text: str, start: int, end: int, kind: str) -> tuple[int, int, str]:
    """Leave out the spaces around a part of a text: GPT-2's tokens have the one before."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip(" ")), start + len(part.rstrip(" ")), kind


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
