"""Checkpoints of the supported families: where they are, and how they load."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from layerscout.errors import InputError, first_line
from layerscout.models.architecture import (
    AVERAGING,
    blocks_of,
    has_averaging,
    keep_family,
    usable_positions,
)
from layerscout.models.configurations import read_config
from layerscout.models.devices import Computed, quiet_transformers
from layerscout.models.families import FAMILIES, Family
from layerscout.models.hub import ADAPTER, WEIGHT_FILES, locate_checkpoint

# A folder that no checkpoint has, where transformers is made to look for an adapter.
NOWHERE = "no-adapter"


def load_checkpoint(
    name: str, folder: Path, config: Any
) -> tuple[Any, Any, Family, tuple[str, ...]]:
    """Load the weights and the tokenizer of a checkpoint, and check that they fit each other.

    Args:
        name: as the user gave it, for messages.
        folder: as `locate_checkpoint` finds it.
        config: as `read_config` reads it.

    Returns:
        The bare model (no head, and no block that averages for one) in float32, its fast tokenizer,
        its family, and what its user should know.

    Raises:
        InputError: if its family is not supported, its weights are incomplete or corrupt, or it has
            no usable tokenizer.
    """
    tokenizer = _load_tokenizer(name, folder, config)
    notes = _fit_pooler(name, config)
    model, unexpected = _load_model(name, folder, config)
    try:
        with quiet_transformers():  # as on saving, which comes after all work
            model.config.validate()
            model.config.to_json_string()
    except Exception as error:
        raise InputError(
            f"the configuration of {name} could not be saved with a tuned model: "
            f"{first_line(error)}; correct {folder / 'config.json'}"
        ) from error
    known = FAMILIES.get(config.model_type)
    if known is None or known.reads == "last":
        model.config.use_cache = False  # of keys and values, which is for generating text
    if known is None:
        from layerscout.models.guessing import guess_family

        family, guesses = guess_family(name, model)
        notes += guesses
    else:
        family = known
    keep_family(model, family)
    if has_averaging(model):
        del blocks_of(model, family)[-1]
        model.config.num_hidden_layers -= 1
    vars(model.config).pop(AVERAGING, None)
    if strays := [key for key in unexpected if f"{family.blocks}." in key]:
        raise InputError(
            f"the weights of {name} hold {len(strays)} tensors of blocks that its configuration "
            f"does not have, such as {strays[0]}; the two do not belong together"
        )
    if (folder / ADAPTER).is_file():
        notes.append(
            f"{name} holds whole weights and an {ADAPTER}: the weights are used as they are, "
            "without an adapter; if they are those of its base, merge it (merge_and_unload) and "
            "use the result"
        )
    if family.reads == "last":
        tokenizer = _fit_decoder(name, model.config, tokenizer, notes)
    if tokenizer.pad_token_id is None:
        raise InputError(f"the tokenizer of {name} has no padding token; give it one and save it")
    positions = usable_positions(model.config, family)
    tokenizer.model_max_length = min(tokenizer.model_max_length, positions)
    embedded = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > embedded:
        raise InputError(
            f"the tokenizer of {name} has {len(tokenizer)} tokens, but the model embeds only "
            f"{embedded}; they do not belong together"
        )
    return model, tokenizer, family, tuple(notes)


def _fit_pooler(name: str, config: Any) -> list[str]:
    """Give a head's pooler the size of the states, and return what was changed.

    DeBERTa's multiplies states by a matrix of `pooler_hidden_size` rows: of another size it never
    ran, so that nobody trained it, and the size is left over from the model that was changed.
    """
    size, pooler = config.hidden_size, getattr(config, "pooler_hidden_size", None)
    if pooler in (None, size):
        return []
    config.pooler_hidden_size = size
    return [
        f"pooler_hidden_size of {name} is {pooler}, which no state fits: it is taken as "
        f"hidden_size, {size}"
    ]


def find_dtype(folder: Path, config: Any) -> Computed:
    """Find what transformers would load the weights in: what the configuration or the file says."""
    stored = config.dtype
    if stored is None:
        try:
            stored = _find_stored_dtype(folder)
        except Exception:  # reported when the weights are read
            return "float32"
    dtypes: dict[Any, Computed] = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
    return dtypes.get(stored, "float32")


def _find_stored_dtype(folder: Path) -> torch.dtype:
    """Return the dtype of the first tensor in floating point in the files of weights.

    Others may come before it: positions, which earlier versions of transformers saved.
    """
    from transformers.modeling_utils import load_state_dict

    files = *sorted(folder.glob("model*.safetensors")), *sorted(folder.glob("pytorch_model*.bin"))
    held: dict[str, Tensor] = load_state_dict(str(files[0]), "meta", weights_only=True)
    return next(tensor.dtype for tensor in held.values() if tensor.is_floating_point())


def load_config(name: str) -> tuple[Any, Family]:
    """Read the transformers configuration of a checkpoint, and find its family.

    The weights are read only for a family that the table does not have, which is tried, and where
    the top block may be one that averages.

    Raises:
        InputError: if there is none, or its family is not supported.
    """
    folder = locate_checkpoint(name)
    config = read_config(name, folder)
    known = FAMILIES.get(config.model_type)
    if known is not None and not getattr(config, AVERAGING, False):
        return config, known
    model, _, family, _ = load_checkpoint(name, folder, config)
    return model.config, family


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
    if "dtype" in options:  # weights, and only these: not an adapter of peft in the same folder
        options["adapter_kwargs"] = {"subfolder": NOWHERE}
    with quiet_transformers():
        return kind.from_pretrained(
            source, revision=revision, trust_remote_code=False, local_files_only=True, **options
        )


# On a broken checkpoint transformers, tokenizers, safetensors and torch raise errors of all kinds;
# for the user it is one fault. Hence the broad clauses below.


def _load_tokenizer(name: str, folder: Path, config: Any) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = load_pretrained(AutoTokenizer, folder, config=config)
    except Exception as error:
        needed = {"protobuf", "sentencepiece"} - {d.name for d in distributions()}
        if any(folder.glob("*.model")) and not (folder / "tokenizer.json").is_file() and needed:
            raise InputError(
                f"the tokenizer of {name} is a SentencePiece model; to read it, run: "
                "pip install 'layerscout[sentencepiece]'"
            ) from error
        raise InputError(f"cannot load the tokenizer of {name}: {first_line(error)}") from error
    if not tokenizer.is_fast or len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise InputError(
            f"{name} has no fast tokenizer with a vocabulary; put its tokenizer.json there"
        )
    return tokenizer


def _fit_decoder(name: str, config: Any, tokenizer: Any, notes: list[str]) -> Any:
    """Prepare what generates text for reading it: padding, which most lack, and pairs of texts.

    Return the tokenizer to use; what the user should know of it is added to `notes`.
    """
    if tokenizer.pad_token_id is None and tokenizer.eos_token_id is not None:
        tokenizer.pad_token = tokenizer.eos_token
        notes.append(
            f"the tokenizer of {name} has no padding token; its end-of-text token "
            f"{tokenizer.eos_token} is used instead"
        )
    config.pad_token_id = tokenizer.pad_token_id  # by which heads find the last token of a text
    return tokenizer if tokenizer.pad_token_id is None else _separate_pairs(tokenizer)


def _separate_pairs(tokenizer: Any) -> Any:
    """Return a tokenizer that puts something between the texts of a pair: a line break, if need be.

    Those of decoders lay them side by side: the second text would go on in the first one's last
    word. What is between the texts stands in the tokenizer's file, so a checkpoint keeps it; but
    some of the library's classes (GPTNeoXTokenizer) make their own on loading, the plain one none.
    """
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    if tokenizer.num_special_tokens_to_add(pair=True) > tokenizer.num_special_tokens_to_add():
        return tokenizer
    texts = ("a", *tokenizer.get_vocab())  # of "a" alone a small vocabulary may make nothing
    encodings = (tokenizer(text, return_special_tokens_mask=True) for text in texts)
    encoding = next(encoding for encoding in encodings if 0 in encoding["special_tokens_mask"])
    ids, special = encoding["input_ids"], encoding["special_tokens_mask"]
    first = special.index(0)
    around = tokenizer.convert_ids_to_tokens(ids)
    start, end = around[:first], around[first + len(special) - sum(special) :]
    breaks = tokenizer("\n", add_special_tokens=False)["input_ids"]
    # Many take a line break for a space, and drop it.
    ends = (tokenizer.eos_token, tokenizer.sep_token, tokenizer.bos_token, tokenizer.pad_token)
    between = tokenizer.convert_ids_to_tokens(breaks[-1]) if breaks else next(filter(None, ends))
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=[*start, "$A", *end],
        pair=[*start, "$A", between, "$B:1", *end],
        special_tokens=[
            (token, tokenizer.convert_tokens_to_ids(token))
            for token in dict.fromkeys([*start, between, *end])
        ],
    )
    # By the first two the library would make its own, and from the files a tokenizer without it.
    made_from = ("add_bos_token", "add_eos_token", "vocab_file", "merges_file")
    options = {k: v for k, v in tokenizer.init_kwargs.items() if k not in made_from}
    options |= tokenizer.special_tokens_map  # with padding that was borrowed
    options["model_input_names"] = tokenizer.model_input_names
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **options)


def _load_model(name: str, folder: Path, config: Any) -> tuple[Any, list[str]]:
    """Load the bare model; return it, and the names of tensors that it has no place for."""
    from transformers import AutoModel

    # Weights that cannot have these sizes would fill the memory before they are found to be few.
    weights = [path for pattern in WEIGHT_FILES for path in folder.glob(pattern)]
    held = sum(path.stat().st_size for path in weights)
    try:
        blocks, width, words = config.num_hidden_layers, config.hidden_size, config.vocab_size
        least = blocks * width + words * getattr(config, "embedding_size", width)
        too_few = 0 < held < least  # a value takes at least one byte
        if not too_few:
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
        elif isinstance(error, KeyError):  # a table of activations, say
            reason = f"its configuration asks for {error!s:.60}, which transformers does not have"
        elif type(error).__name__ == "SafetensorError":
            reason += "; the file is damaged or cut short, so copy it again"
        raise InputError(f"cannot load the weights of {name}: {reason}") from error
    if too_few:
        raise InputError(
            f"the weights of {name} take {held:,} bytes, too few for the {blocks:,} blocks and "
            f"{words:,} tokens that its configuration asks for; they are truncated, or pointers of "
            "Git LFS (`git lfs pull` fetches them), or belong to another model"
        )
    # A pooler may be missing: states are read below it. Anything else would be random numbers.
    missing = sorted(k for k in loaded["missing_keys"] if not k.startswith("pooler."))
    if missing:
        raise InputError(_explain_missing(name, model, missing, loaded["unexpected_keys"]))
    for key, weights in model.named_parameters():
        ends = weights.detach().aminmax() if weights.numel() else ()  # no copy, unlike isfinite
        if not all(map(torch.isfinite, ends)):  # every state above them would be
            raise InputError(
                f"the weights of {name} are not finite: {key} holds NaN or infinity, as after a "
                "training that diverged or a damaged copy; use another checkpoint"
            )
    return model, sorted(loaded["unexpected_keys"])


def _explain_missing(name: str, model: Any, missing: list[str], unexpected: Iterable[str]) -> str:
    """Say why a checkpoint lacks tensors, from what it has in their place."""
    own = f"{model.base_model_prefix}."
    for key in unexpected:
        if key.endswith(f".{missing[0]}"):
            prefix = key.removesuffix(missing[0]).removesuffix(own)
            return (
                f"the names of the weights of {name} begin with {prefix!r:.60}, as those of a "
                "wrapped model (DataParallel, torch.compile, Lightning) or of another family do; "
                "save them again without it"
            )
        if key in ("state_dict", "model_state_dict", "model", "module"):
            return (
                f"the file of weights of {name} is one of a training, which holds them within its "
                f"{key}; save that alone"
            )
    return (
        f"the weights of {name} lack {len(missing)} tensors that its configuration asks for, such "
        f"as {missing[0]}; the checkpoint is incomplete"
    )
