"""Tiny random checkpoints of every supported family, with tokenizers made on the spot."""

import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    TokenizersBackend,
)

POSITIONS = 160  # tokens that fit into a sequence, in every family

SENTENCES = (
    "the old cat sleeps on the warm stone near the river",
    "two small birds were singing loudly in the garden this morning",
    "she never liked the film, but the music was wonderful",
    "he has written a long and rather boring letter to his sister",
    "what a brilliant, touching and surprisingly funny story!",
    "the acting is weak and the plot makes no sense at all",
    "Nobody in the village remembered who built the stone bridge.",
    "Is there any reason to wait until Monday?",
    "They walked slowly because the road was wet, narrow and dark.",
    "We counted 12 apples, 7 pears and 345 nuts in 1998.",
    "the children have been playing outside since early morning",
    "an unhappy ending does not make a thoughtful film worse",
    "A man is reading a newspaper while a woman is playing the piano.",
    "The committee hasn't decided whether the meeting will be cancelled.",
    "it's hard to believe that anyone would enjoy this mess",
    "every student who studies quietly passes the exam",
)


@dataclass(frozen=True)
class _Family:
    """How a family's checkpoints are made: the tokenizer of its real ones, and its settings."""

    pieces: Literal["wordpiece", "bytes", "unigram"]
    special: tuple[str, ...]  # in the order of their ids: the padding token's is not 0 everywhere
    # What stands between the two texts of a pair; a decoder's: what stands around a text.
    ends: Literal["[SEP]", "</s></s>", "first", "none"] = "[SEP]"
    type_ids: bool = True
    settings: dict[str, Any] = field(default_factory=dict)


_BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_DEBERTA = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
_MODERN = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
_ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_ALBERT = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
_MPNET = ("<s>", "<pad>", "</s>", "[UNK]", "<mask>")
_DECODER = ("<unk>", "<s>", "</s>", "<pad>")
_PAIR, _ONE_TYPE = "</s></s>", {"type_vocab_size": 1}
_SMALL = {"embedding_size": 8}
# Relative positions only, as in the published DeBERTa checkpoints.
_DISENTANGLED = {
    "relative_attention": True,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
    "type_vocab_size": 0,
}
_DEBERTA_V3 = {"position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True}
_DEBERTA_V3 |= _DISENTANGLED
_CONVOLUTION = _DEBERTA_V3 | {"conv_kernel_size": 3, "conv_act": "gelu"}
# Windows of 4 tokens to each side, so that short texts already tell the two kinds apart.
_MIXED = {"global_attn_every_n_layers": 3, "local_attention": 8}

# Decoders: nothing is put around a text but where a family begins every one with a token. Heads of
# queries share two heads of keys. Windows of 4 tokens, in every other block of some, tell short
# texts apart already. GPT-2's tokenizer has no padding token of its own.
_DROPPING = {"attention_dropout": 0.1}
_GROUPED = _DROPPING | {"num_key_value_heads": 2, "head_dim": 4}
_WINDOWS = {"sliding_window": 4}
_WIDE = _GROUPED | {"head_dim": 8}  # queries of more features than a state
_PHI = _DROPPING | {"num_key_value_heads": 2, "resid_pdrop": 0.1}

# By the name that the family has in a config, but for one.
_TABLE = {
    "bert": _Family("wordpiece", _BERT),
    "roberta": _Family("bytes", _ROBERTA, _PAIR, False, _ONE_TYPE),
    "xlm-roberta": _Family("unigram", _ROBERTA, _PAIR, False, _ONE_TYPE),
    "albert": _Family("unigram", _ALBERT, settings=_SMALL | {"num_hidden_groups": 1}),
    "electra": _Family("wordpiece", _BERT, settings=_SMALL),
    "deberta": _Family("bytes", _DEBERTA, settings=_DISENTANGLED),
    "deberta-v2": _Family("unigram", _DEBERTA, settings=_DEBERTA_V3),
    # The convolution beside the first block is what v2-xlarge has over v3.
    "deberta-v2-conv": _Family("unigram", _DEBERTA, settings=_CONVOLUTION),
    "distilbert": _Family("wordpiece", _BERT, type_ids=False),
    "mpnet": _Family("wordpiece", _MPNET, _PAIR, False),
    "modernbert": _Family("bytes", _MODERN, type_ids=False, settings=_MIXED),
    "camembert": _Family("unigram", _ROBERTA, _PAIR, False, _ONE_TYPE),
    "xlm-roberta-xl": _Family("unigram", _ROBERTA, _PAIR, False, _ONE_TYPE),
    "eurobert": _Family(
        "bytes", _MODERN, type_ids=False, settings=_DROPPING | {"classifier_pooling": "bos"}
    ),
    "nomic_bert": _Family("wordpiece", _BERT, settings={"head_dim": 4}),
    "llama": _Family("bytes", _DECODER, "first", False, _GROUPED),
    "mistral": _Family("bytes", _DECODER, "first", False, _GROUPED | _WINDOWS),
    "qwen2": _Family(
        "bytes", _DECODER, "none", False, _GROUPED | _WINDOWS | {"use_sliding_window": True}
    ),
    "qwen3": _Family("bytes", _DECODER, "none", False, _WIDE),
    # No shorter windows: in float64 the library makes NaN of padding that sees no token at all.
    "gemma2": _Family("bytes", _DECODER, "first", False, _WIDE | {"sliding_window": 32}),
    "gemma3_text": _Family("bytes", _DECODER, "first", False, _WIDE | _WINDOWS),
    "gpt2": _Family("bytes", ("<unk>", "</s>"), "none", False),
    "gpt_neox": _Family("bytes", _DECODER, "none", False, _DROPPING | {"hidden_dropout": 0.1}),
    "olmo2": _Family("bytes", _DECODER, "none", False, _GROUPED),
    "phi3": _Family("bytes", _DECODER, "first", False, _PHI),
}

FAMILIES: tuple[str, ...] = tuple(_TABLE)

# To parametrise by family. The architectures differ most between absolute positions, relative
# positions, windows of attention with a norm above the blocks, and decoders: every change is tested
# with one of each, all others in the whole suite.
FIRST_FAMILIES = ("bert", "deberta-v2", "modernbert", "llama")
EACH_FAMILY = [
    pytest.param(name, marks=() if name in FIRST_FAMILIES else pytest.mark.whole)
    for name in FAMILIES
]


def tiny_checkpoint(
    folder: Path,
    family: str,
    *,
    blocks: int = 4,
    width: int = 16,
    seed: int = 0,
    classes: int | None = None,
    **settings: Any,
) -> Path:
    """Save a random model of a family and its tokenizer; returns the folder.

    Weights, biases and norms are random and large enough for the states to differ from block to
    block. Dropout is 0.1 everywhere, so a model left in training mode gives itself away.

    Args:
        folder: made when it is missing.
        family: one of `FAMILIES`.
        blocks: how many blocks the model has.
        width: features of a state, a multiple of 4.
        seed: the same seed gives the same weights.
        classes: with a classification head for so many classes; without: the bare encoder.
        settings: what else the family's config takes, such as `num_hidden_groups` for ALBERT.
    """
    tokenizer = tiny_tokenizer(family)
    config = _config(family, tokenizer, blocks, width, settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if classes is None:
            model = AutoModel.from_config(config)
        else:
            config.num_labels = classes
            model = AutoModelForSequenceClassification.from_config(config)
        _shake(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _config(
    family: str, tokenizer: TokenizersBackend, blocks: int, width: int, settings: dict[str, Any]
) -> PreTrainedConfig:
    """Build the config under the names that the family uses for its sizes."""
    row, model_type = _TABLE[family], family.removesuffix("-conv")
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": POSITIONS,
        "initializer_range": 0.3,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if model_type in ("roberta", "camembert", "xlm-roberta", "xlm-roberta-xl", "mpnet"):
        # These count positions from the padding token's id + 1.
        sizes["max_position_embeddings"] = POSITIONS + tokenizer.pad_token_id + 1
    if model_type == "distilbert":
        sizes |= {"dim": width, "n_layers": blocks, "n_heads": 4, "hidden_dim": 2 * width}
        sizes |= {"dropout": 0.1, "attention_dropout": 0.1}
    else:
        sizes |= {"hidden_size": width, "num_hidden_layers": blocks, "num_attention_heads": 4}
        sizes |= {"intermediate_size": 2 * width}
    decoder = row.ends in ("first", "none")
    if decoder or model_type == "eurobert":
        sizes["bos_token_id"] = None
        for name, token in (("bos", "<s>"), ("eos", "</s>")):
            if token in row.special:
                sizes[f"{name}_token_id"] = row.special.index(token)
    if model_type in ("qwen2", "gemma2", "gemma3_text"):
        kinds = ("sliding_attention", "full_attention")
        sizes["layer_types"] = [kinds[block % 2] for block in range(blocks)]
    if model_type == "eurobert":
        sizes |= {"eos_token_id": tokenizer.sep_token_id, "mask_token_id": tokenizer.mask_token_id}
    if model_type == "gpt2":
        sizes["n_inner"] = 2 * width
        del sizes["intermediate_size"]
    if model_type == "modernbert":
        sizes |= {"attention_dropout": 0.1, "embedding_dropout": 0.1, "mlp_dropout": 0.1}
        names = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id")
        ids = (tokenizer.cls_token_id, tokenizer.sep_token_id) * 2
        sizes |= dict(zip(names, ids, strict=True))
    elif not decoder and model_type not in ("distilbert", "eurobert"):
        sizes |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    return AutoConfig.for_model(model_type, **(sizes | row.settings | settings))


def _shake(model: PreTrainedModel) -> None:
    """Move every bias and norm off its start of zeros and ones."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))


def tiny_tokenizer(family: str) -> TokenizersBackend:
    """Build the family's kind of tokenizer from `SENTENCES`; it knows fewer than 400 tokens."""
    row = _TABLE[family]
    if row.ends in ("first", "none"):
        named = {"unk": "<unk>", "eos": "</s>"}
        named |= {"bos": "<s>"} if "<s>" in row.special else {}
        named["pad"] = "<pad>" if "<pad>" in row.special else "</s>"
    else:
        named = {name: _find(row, name) for name in ("pad", "unk", "cls", "sep", "mask")}
    names = ["input_ids", "token_type_ids", "attention_mask"]
    if not row.type_ids:
        names.remove("token_type_ids")
    return TokenizersBackend(
        tokenizer_object=_built(family),
        model_input_names=names,
        model_max_length=POSITIONS,
        **{f"{name}_token": token for name, token in named.items()},
    )


def _find(row: _Family, name: str) -> str:
    """Look up the token of a role by its usual spellings."""
    spellings = {"cls": ("[CLS]", "<s>"), "sep": ("[SEP]", "</s>")}
    usual = spellings.get(name, (f"[{name.upper()}]", f"<{name}>"))
    return next(token for token in row.special if token in usual)


@cache
def _built(family: str) -> Tokenizer:
    row = _TABLE[family]
    build = {"wordpiece": _wordpiece, "bytes": _bytes, "unigram": _unigram}[row.pieces]
    tokenizer = build(list(row.special), _find(row, "unk"))
    if row.ends != "none":
        tokenizer.post_processor = _post_processor(row, family)
    return tokenizer


# The WordPiece and Unigram trainers break ties by the order of a hash table, so another run gives
# other ids. Only byte-level BPE is trained; the other two get their pieces from these lists.
_TEXT = " ".join(SENTENCES)
_LETTERS = sorted(set(_TEXT + _TEXT.lower()) - {" "})
_WORDS = sorted(set(re.findall(r"\b[a-z]{2,6}\b", _TEXT)))
_ENDINGS = ["ed", "ing", "ly", "er"]


def _wordpiece(special: list[str], unknown: str) -> Tokenizer:
    pieces = special + _LETTERS + _WORDS + [f"##{text}" for text in _LETTERS + _ENDINGS]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(special)
    return tokenizer


def _bytes(special: list[str], _: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=390, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def _unigram(special: list[str], unknown: str) -> Tokenizer:
    scored = [(token, 0.0) for token in special] + [("▁", -4.0)]
    scored += [(f"▁{word}", -5.0) for word in _WORDS]
    scored += [(ending, -6.0) for ending in _ENDINGS] + [(letter, -8.0) for letter in _LETTERS]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=special.index(unknown)))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(special)
    return tokenizer


def _post_processor(row: _Family, family: str) -> processors.PostProcessor:
    """Build what puts the special tokens around one text and between two, as the family has it."""
    if row.ends == "first":  # side by side, as Llama's do
        return processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B:1", special_tokens=[("<s>", row.special.index("<s>"))]
        )
    first, last = _find(row, "cls"), _find(row, "sep")
    first_id, last_id = row.special.index(first), row.special.index(last)
    if family == "roberta":
        ends = (last, last_id), (first, first_id)
        return processors.RobertaProcessing(*ends, add_prefix_space=False)
    second, between = (1, last) if row.ends == "[SEP]" else (0, f"{last} {last}")
    return processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {between} $B:{second} {last}:{second}",
        special_tokens=[(first, first_id), (last, last_id)],
    )


def inputs_of(encoder: Any, texts: int = 5) -> dict[str, torch.Tensor]:
    """Make a batch of the first sentences for a model."""
    return encoder.batch(encoder.tokenize(SENTENCES[:texts]), np.arange(texts))


def logits_of(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Run a classifier in eval mode."""
    with torch.no_grad():
        return model.eval()(**batch).logits


def is_norm(name):
    """Return whether a parameter of this name is one of a norm."""
    return re.search(r"norm|\bln_", name, re.IGNORECASE) is not None


def trains(model: Any) -> set[str]:
    """Name the parameters that ask for gradients."""
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def change_json(path: Path, **entries: Any) -> Path:
    """Write other entries into a JSON file; `...` leaves one out. Return its folder."""
    content = json.loads(path.read_text()) | entries
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not ...}))
    return path.parent
