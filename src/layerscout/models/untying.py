"""Copies of the weights that blocks share, as in ALBERT, so that each block has its own."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from torch import nn

from layerscout.models.architecture import blocks_of, count_blocks
from layerscout.models.encoder import Encoder
from layerscout.models.families import Family
from layerscout.plans import weight_sets
from layerscout.runtime import InputError


def untie_blocks(encoder: Encoder) -> Encoder:
    """Give each of ALBERT's blocks its own copy of the weights that they share.

    Raises:
        InputError: if the blocks of the encoder share nothing.
    """
    model = copy.deepcopy(encoder.model)
    copy_shared_weights(encoder.name, model, encoder.family, encoder.blocks)
    return replace(encoder, model=model)


def copy_shared_weights(name: str, model: Any, family: Family, head: int) -> None:
    """Replace the shared weights of a bare model by copies for each of its blocks 1..`head`."""
    groups, blocks = getattr(model.config, "num_hidden_groups", None), count_blocks(model)
    if groups is None or groups == blocks:
        raise InputError(f"the blocks of {name} share no weights; leave out untie")
    shared = blocks_of(model, family)
    copies = [copy.deepcopy(shared[i]) for i in weight_sets(blocks, groups)[:head]]
    path, attribute = family.blocks_place
    setattr(model.get_submodule(path), attribute, nn.ModuleList(copies))
    model.config.num_hidden_layers = model.config.num_hidden_groups = head
