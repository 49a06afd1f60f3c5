"""The families of models: a row for each says where its parts are and what is particular."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from layerscout.errors import InputError
from layerscout.plans import Adapter, Method, PrefixTuning, ReadToken


@dataclass(frozen=True)
class Family:
    """Where a family of models keeps what layerscout has to find, and how its blocks are built.

    Attributes:
        blocks: path, from the bare model, of the list whose modules are called once a block.
        layers: within a module of that list, the list of the layers that it holds, if it does.
        convolution: beside that list, the module that runs next to block 1, if there is one.
        final_norm: path, from the bare model, of a norm after the last block; its input is state L.
        adapted: the modules of a layer that the two adapters follow: where attention is projected,
            before its dropout, and where the feed-forward layers end, after theirs; None where
            that is not known.
        averaged: where a block can be made to average the tokens: the module of a layer that gives
            attention's values, and what the head for classes applies to its dense layer.
        prefixed: the module of a layer whose keys and values a prefix extends; None where
            prefix-tuning is not possible.
        tuples: a block gives a tuple whose first entry is the state.
        positions_after_padding: positions are counted from the padding id on, so that many
            entries of the position table cannot be used.
        float32_only: its forward pass runs in nothing shorter.
        normed_input: a block norms what its attention is given.
        gated: the feed-forward layers have a third matrix, which gates.
        fused: query, key and value are one matrix.
        reads: the token that the family's head for classes reads: decoders' the last one; None if
            it reads several.
        first_differs: block 1 has no norm before its attention, as all others have, so that no
            other block can stand in its place.
        norm_start: the weight with which a norm changes no scale.
        since: the first version of transformers that gives the same tokens and logits, of 4.46,
            4.48, 4.51, 4.57, 5.0 and that in use, for which None stands: Gemma 2 has no caps on
            attention from 4.48 to 5.0, and OLMo 2 no head. Until 4.51 the head of a decoder reads
            the token before the first padding token, which a text may hold where the end-of-text
            token is used for padding.
        rotations: where transformers 4 looks for the base of the angles by which positions are
            rotated, of blocks that see everything and of those that see a window, and for the share
            of the features that are.
    """

    blocks: str = "encoder.layer"
    layers: str | None = None
    convolution: str | None = None
    final_norm: str | None = None
    adapted: tuple[str, str] | None = ("attention.output.dense", "output.dropout")
    averaged: tuple[str, Literal["tanh", "gelu", "relu"]] | None = None
    prefixed: str | None = None
    tuples: bool = False
    positions_after_padding: bool = False
    float32_only: bool = False
    normed_input: bool = False
    gated: bool = False
    fused: bool = False
    reads: ReadToken | None = "first"
    first_differs: bool = False
    norm_start: float = 1.0
    since: str | None = "4.46"
    rotations: tuple[str, str, str] = ("rope_theta", "", "partial_rotary_factor")

    @property
    def head_parts(self) -> tuple[str, ...]:
        """Paths of what belongs to the head, where the bare model has it."""
        return ("pooler",) if self.final_norm is None else ("pooler", self.final_norm)

    @property
    def blocks_place(self) -> tuple[str, str]:
        """Path of the module that holds the list of blocks, and the list's name there."""
        owner, _, name = self.blocks.rpartition(".")
        return owner, name


_BERT = Family(averaged=("attention.self.value", "tanh"), prefixed="attention.self")
_ROBERTA = replace(_BERT, positions_after_padding=True)

# Where the norm of what attention gave stands, and of what the feed-forward layers gave.
_NORMED_OUTPUT = ("post_attention_layernorm", "post_feedforward_layernorm")


# The decoder from which most others differ in little.
_LLAMA = Family(
    "layers",
    final_norm="norm",
    adapted=("self_attn.o_proj", "mlp"),
    prefixed="self_attn",
    normed_input=True,
    gated=True,
    reads="last",
    since="4.51",
)

# Norms stand at both ends of what is added, with weights of 0 for a scale of 1.
_GEMMA = replace(_LLAMA, adapted=_NORMED_OUTPUT, prefixed=None, norm_start=0.0, since=None)


# By the `model_type` of the configuration. A prefix is left out where attention also depends on
# the distance between query and key, which a virtual token does not have (DeBERTa, MPNet), or is
# limited to a window (ModernBERT, Gemma). Rotated positions are no hindrance: a learnt key is one
# that was rotated already, as in a cache of keys and values. Adapters stand right before something
# is added in all families. A block averages where its norms come after what is added, and without
# queries and keys positions do nothing, as they do in MPNet; in ALBERT all blocks are one.
FAMILIES: Mapping[str, Family] = {
    "albert": Family(
        "encoder.albert_layer_groups",
        layers="albert_layers",
        adapted=("attention.dense", "ffn_output"),
        prefixed="attention",
    ),
    "bert": _BERT,
    "camembert": _ROBERTA,
    # Its mask is float32's lowest number, which bfloat16 cannot hold.
    "deberta": Family(
        averaged=("attention.self.in_proj", "gelu"), tuples=True, float32_only=True, fused=True
    ),
    "deberta-v2": Family(
        convolution="conv", averaged=("attention.self.value_proj", "gelu"), tuples=True
    ),
    "distilbert": Family(
        "transformer.layer",
        adapted=("attention.out_lin", "ffn"),
        averaged=("attention.v_lin", "relu"),
        prefixed="attention",
    ),
    "electra": replace(_BERT, averaged=("attention.self.value", "gelu")),
    "eurobert": replace(_LLAMA, reads="first", since=None),
    "gemma2": _GEMMA,
    "gemma3_text": replace(
        _GEMMA,
        since="4.57",
        rotations=("rope_theta", "rope_local_base_freq", "partial_rotary_factor"),
    ),
    "gpt2": replace(
        _LLAMA,
        blocks="h",
        final_norm="ln_f",
        adapted=("attn.c_proj", "mlp"),
        prefixed="attn",
        gated=False,
        fused=True,
    ),
    "gpt_neox": replace(
        _LLAMA,
        final_norm="final_layer_norm",
        adapted=("attention.dense", "post_mlp_dropout"),
        prefixed="attention",
        gated=False,
        fused=True,
        rotations=("rotary_emb_base", "", "rotary_pct"),
    ),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "modernbert": Family(
        "layers",
        final_norm="final_norm",
        adapted=("attn.Wo", "mlp"),
        normed_input=True,
        gated=True,
        fused=True,
        first_differs=True,
        since="4.48",
        rotations=("global_rope_theta", "local_rope_theta", "partial_rotary_factor"),
    ),
    "mpnet": Family(
        adapted=("attention.attn.o", "output.dropout"), tuples=True, positions_after_padding=True
    ),
    "nomic_bert": Family(
        "layers",
        adapted=("self_attn.o_proj", "post_mlp_dropout"),
        averaged=("self_attn.v_proj", "tanh"),
        prefixed="self_attn",
        gated=True,
        since=None,
    ),
    "olmo2": replace(_LLAMA, adapted=_NORMED_OUTPUT, normed_input=False, since=None),
    "phi3": replace(_LLAMA, adapted=("self_attn.o_proj", "resid_mlp_dropout"), fused=True),
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "xlm-roberta-xl": Family(
        final_norm="encoder.LayerNorm",
        adapted=("attention.output.dense", "output.dense"),
        prefixed="attention.self",
        positions_after_padding=True,
        normed_input=True,
    ),
}


def read_token(model: Mapping[str, Any]) -> ReadToken | None:
    """Return the token that a head on a model reads, from what scan.json holds of the model."""
    row = FAMILIES.get(str(model.get("family")))  # scans of earlier versions hold no `reads`
    return model.get("reads") if row is None else row.reads


def check_family(family: str, method: Method) -> None:
    """Raise if a family of models cannot have a method.

    Raises:
        InputError: if it is prefix-tuning, and the attention of the family is not the usual one; or
            adapters, and the family is not of the table.
    """
    row = FAMILIES.get(family)
    if isinstance(method, Adapter) and (row is None or row.adapted is None):
        raise InputError(
            "adapters need a family for which layerscout knows where to insert them, got "
            f"{family}; use --method full or lora"
        )
    if isinstance(method, PrefixTuning) and (row is None or row.prefixed is None):
        raise InputError(
            "prefix-tuning needs attention without relative positions and without windows, got "
            f"{family}; use --method full, adapter or lora"
        )
