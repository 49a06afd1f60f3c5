"""Checkpoints of the supported families: where they are, and how they load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from layerscout.models.locations import WEIGHT_FILES, locate_checkpoint
from layerscout.plans import FAMILIES, Family
from layerscout.runtime import InputError, first_line, make_unknown_error


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A loaded checkpoint: the bare model (no head) in float32, and its fast tokenizer.

    Attributes:
        source: what transformers' `from_pretrained` takes for it: a folder or a hub id.
        revision: the commit on the hub; None for a folder.
    """

    source: str
    revision: str | None
    model: Any
    tokenizer: Any
    family: Family


def load_checkpoint(name: str) -> Checkpoint:
    """Load a checkpoint from a folder, from the hub, or the one of the demo ("demo").

    Raises:
        InputError: if there is none, its family is not supported, its weights are incomplete or
            corrupt, or it has no usable tokenizer.
    """
    folder = locate_checkpoint(name)
    config = _load_config(name, folder)
    tokenizer = _load_tokenizer(name, folder)
    fit_to_tokenizer(config, tokenizer)
    if FAMILIES[config.model_type].reads == "last":
        _separate_pairs(tokenizer)
    _check_size(name, folder, config)
    model = _load_model(name, folder, config)
    embedded = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > embedded:
        raise InputError(
            f"the tokenizer of {name} has {len(tokenizer)} tokens, but the model embeds only "
            f"{embedded}; they do not belong together"
        )
    local = name == "demo" or Path(name).expanduser().is_dir()
    return Checkpoint(
        source=str(folder.resolve()) if local else name,
        revision=None if local else folder.name,  # the hub's cache names folders by commit
        model=model,
        tokenizer=tokenizer,
        family=FAMILIES[config.model_type],
    )


def load_config(name: str) -> Any:
    """Read the transformers configuration of a checkpoint, and nothing else of it.

    Raises:
        InputError: if there is none, or its family is not supported.
    """
    return _load_config(name, locate_checkpoint(name))


def load_pretrained(
    kind: Any, source: str | Path, *, revision: str | None = None, **options: Any
) -> Any:
    """Call `from_pretrained` of a class of transformers, on what is already on this machine.

    Code that comes with a checkpoint is never run.

    Args:
        kind: such as `AutoModel`.
        source: a folder or a hub id.
        revision: the commit on the hub; None for a folder.
        options: what else it takes. Models want `dtype`: by default transformers 5 loads the
            weights of a float16 checkpoint as float16.
    """
    with quiet_transformers():
        return kind.from_pretrained(
            source, revision=revision, trust_remote_code=False, local_files_only=True, **options
        )


# On a broken checkpoint transformers, tokenizers, safetensors and torch raise errors of all kinds;
# for the user it is one fault. Hence the broad clauses below.


def _load_config(name: str, folder: Path) -> Any:
    from transformers import AutoConfig

    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if "layerscout" in content:
            raise InputError(
                f"{name} holds only what a method trained; load it with layerscout.load, or give "
                f"its base, {content['base']['source']}"
            )
        family = str(content["model_type"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"cannot read the configuration of {name}: {first_line(error)}; its config.json must "
            "name the model_type"
        ) from error
    if family not in FAMILIES:
        raise make_unknown_error("model family", family, FAMILIES)
    try:
        return load_pretrained(AutoConfig, folder)
    except Exception as error:
        raise InputError(f"cannot read the configuration of {name}: {first_line(error)}") from error


def _load_tokenizer(name: str, folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = load_pretrained(AutoTokenizer, folder)
    except Exception as error:
        needed = {"protobuf", "sentencepiece"} - {d.name for d in distributions()}
        if any(folder.glob("*.model")) and not (folder / "tokenizer.json").is_file() and needed:
            raise InputError(
                f"the tokenizer of {name} is a SentencePiece model; to read it, run: "
                "pip install 'layerscout[sentencepiece]'"
            ) from error
        raise InputError(f"cannot load the tokenizer of {name}: {first_line(error)}") from error
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise InputError(
            f"{name} has no tokenizer, or one without a vocabulary; put its tokenizer.json there"
        )
    if not tokenizer.is_fast:
        raise InputError(f"{name} has no fast tokenizer; save one as tokenizer.json beside it")
    if tokenizer.pad_token_id is None:
        # Decoders are trained without padding; to borrow the end of a text for it is usual.
        if tokenizer.eos_token_id is None:
            raise InputError(
                f"the tokenizer of {name} has neither a padding token nor one that ends a text, "
                "which could stand in; give it a pad_token and save it"
            )
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def fit_to_tokenizer(config: Any, tokenizer: Any) -> None:
    """Make a decoder's configuration name the padding token that its batches have.

    The library's heads find the last token of a text by it.
    """
    if FAMILIES[config.model_type].reads == "last":
        config.pad_token_id = tokenizer.pad_token_id
        config.use_cache = False  # of keys and values, which is for generating text


def _separate_pairs(tokenizer: Any) -> None:
    """Make a tokenizer that lays the texts of a pair side by side put a line break in between.

    Those of decoders do so: the second text would go on in the first one's last word. What is
    between the texts stands in the tokenizer's file, so a checkpoint keeps it.
    """
    from tokenizers.processors import TemplateProcessing

    if tokenizer.num_special_tokens_to_add(pair=True) > tokenizer.num_special_tokens_to_add():
        return
    found = tokenizer("a", return_special_tokens_mask=True)
    ids, special = found["input_ids"], found["special_tokens_mask"]
    first = special.index(0)
    around = tokenizer.convert_ids_to_tokens(ids)
    start, end = around[:first], around[first + len(special) - sum(special) :]
    breaks = tokenizer("\n", add_special_tokens=False)["input_ids"]
    between = tokenizer.convert_ids_to_tokens(breaks[-1]) if breaks else tokenizer.eos_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=[*start, "$A", *end],
        pair=[*start, "$A", between, "$B:1", *end],
        special_tokens=[
            (token, tokenizer.convert_tokens_to_ids(token))
            for token in dict.fromkeys([*start, between, *end])
        ],
    )
    for name in ("add_bos_token", "add_eos_token"):  # by these the library would make its own
        tokenizer.init_kwargs.pop(name, None)


def _check_size(name: str, folder: Path, config: Any) -> None:
    """Refuse sizes that the weights cannot have: making them would fill the memory first."""
    weights = [path for pattern in WEIGHT_FILES for path in folder.glob(pattern)]
    held = sum(path.stat().st_size for path in weights)
    try:
        blocks, width, words = config.num_hidden_layers, config.hidden_size, config.vocab_size
        least = blocks * width + words * getattr(config, "embedding_size", width)
        if not held or least <= held:  # a value takes at least one byte
            return
    except (AttributeError, TypeError):  # reported when the model is made
        return
    raise InputError(
        f"the weights of {name} take {held:,} bytes, too few for the {blocks:,} blocks and "
        f"{words:,} tokens that its configuration asks for; they are cut short, or of another model"
    )


def _load_model(name: str, folder: Path, config: Any) -> Any:
    from transformers import AutoModel

    try:
        model, loaded = load_pretrained(
            AutoModel, folder, config=config, dtype=torch.float32, output_loading_info=True
        )
    except UnpicklingError as error:
        raise InputError(
            f"the pickled weights of {name} hold more than tensors and are not read; use a copy in "
            "safetensors"
        ) from error
    except Exception as error:
        reason = first_line(error)
        if "size mismatch" in str(error) or "mismatched" in str(error):
            reason = "they do not have the shapes that its configuration asks for"
        raise InputError(f"cannot load the weights of {name}: {reason}") from error
    strays = [k for k in loaded["unexpected_keys"] if f"{FAMILIES[config.model_type].blocks}." in k]
    if strays:
        raise InputError(
            f"the weights of {name} hold {len(strays)} tensors of blocks that its configuration "
            f"does not have, such as {min(strays)}; the two do not belong together"
        )
    # A pooler may be missing: states are read below it. Anything else would be random numbers.
    missing = sorted(k for k in loaded["missing_keys"] if not k.startswith("pooler."))
    if missing:
        raise InputError(
            f"the weights of {name} lack {len(missing)} tensors that its configuration asks for, "
            f"such as {missing[0]}; the checkpoint is incomplete"
        )
    return model


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers' own bars and reports (dropped heads, missing poolers) off the terminal."""
    from transformers.utils import logging

    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
