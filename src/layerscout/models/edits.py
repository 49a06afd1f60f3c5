"""Edits on models: in place with an undo, or on a copy that shares what stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain
from math import erf
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.errors import InputError, check_integer
from layerscout.models.architecture import (
    NORM,
    PER_BLOCK,
    base_of,
    blocks_of,
    count_blocks,
    family_of,
    has_averaging,
    locate_parameters,
    shared_weights,
)
from layerscout.models.devices import widen
from layerscout.models.encoder import Encoder
from layerscout.models.families import Family
from layerscout.plans import (
    Arrangement,
    Edit,
    EditSpec,
    WeightInit,
    arrange,
    format_edits,
    make_edits,
    weight_sets,
)


def edit(
    model: Any,
    edits: str | Edit | Sequence[Edit],
    *,
    seed: int = 0,
    weight_init: WeightInit = WeightInit(),  # noqa: B008  (frozen)
) -> Undo:
    """Edit the blocks of a transformers model in place.

    Blocks that are re-initialised are replaced by copies, so undoing restores the model bit for
    bit; of what was done to it since, only whether it is in training mode is kept. DeBERTa-v2's
    convolution is removed when block 1 is skipped, and otherwise stays at the first place; it is
    never re-initialised. A ModernBERT without its block 1 at the first place can be run but not
    saved, since its checkpoints have no norm before the attention of the first block; neither can
    a model whose blocks have moved and use their own numbers, as in GPT-2 with
    `scale_attn_by_inverse_layer_idx`.

    Args:
        model: of a supported family, bare or with any head.
        edits: see `make_edits`.
        seed: draws weights; a block's are the same whatever else is drawn.
        weight_init: how weights are drawn.

    Returns:
        What undoes it: call `close()`, or use it in a `with` statement. Of several edits the last
        one is undone first.

    Raises:
        InputError: if the edits do not fit each other or the model.
    """
    seed = check_integer("seed", seed, 0)
    base, family = base_of(model)[0], family_of(model)
    arrangement = arrange_blocks(base, make_edits(edits))
    path, attribute = family.blocks_place
    parent, config = base.get_submodule(path), base.config
    blocks = base.get_submodule(family.blocks)
    order = arrangement.order
    sets = shared_weights(config)
    # In ALBERT a module serves several blocks; everywhere else each has its own.
    firsts = {sets[block - 1]: (at, block) for at, block in reversed(list(enumerate(order, 1)))}
    modules = [
        _reinitialize_block(blocks[group], block, seed, weight_init, family.norm_start)
        if at in arrangement.fresh
        else blocks[group]
        for group, (at, block) in sorted(firsts.items(), key=lambda item: item[1])
    ]
    changed: list[tuple[Any, str, Any]] = [
        (parent, attribute, nn.ModuleList(modules)),
        (config, "num_hidden_layers", len(order)),
    ]
    if getattr(config, "num_hidden_groups", None):
        changed.append((config, "num_hidden_groups", len(modules)))
    changed += [
        (config, name, [listed[block - 1] for block in order])
        for name in PER_BLOCK
        if (listed := getattr(config, name, None))
    ]
    convolution = family.convolution
    if convolution and getattr(parent, convolution) is not None and 1 not in order:
        changed += [(parent, convolution, None), (config, "conv_kernel_size", 0)]
    earlier = [(owner, name, getattr(owner, name)) for owner, name, _ in changed]
    training = parent.training

    def restore() -> None:
        if getattr(parent, attribute) is blocks:
            return
        if getattr(parent, attribute) is not changed[0][2]:
            raise InputError("the model was edited again since; undo the later edit first")
        for owner, name, value in earlier:
            setattr(owner, name, value)
        if parent.training != training:
            blocks.train(parent.training)

    for owner, name, value in changed:
        setattr(owner, name, value)
    return Undo(restore)


class Undo(AbstractContextManager["Undo"]):
    """An edit of a model that can be undone: by `close`, or at the end of a `with` statement.

    Attributes:
        close: undoes the edit; a second time does nothing.
    """

    def __init__(self, close: Callable[[], None]) -> None:
        """Keep what undoes it."""
        self.close = close

    def __exit__(self, *_: object) -> None:
        self.close()


def apply_edits(encoder: Encoder, spec: EditSpec) -> Encoder:
    """Return an encoder with edited blocks; weights that stay are shared with the one given.

    Args:
        encoder: it is not changed.
        spec: what is done, and how.

    Raises:
        InputError: as `edit`, or if no checkpoint of the family could hold the blocks.
    """
    from layerscout.models.guessing import check_rebuilt

    order = arrange_blocks(encoder.model, spec.edits).order
    tensors = chain(encoder.model.parameters(), encoder.model.buffers())
    model = copy.deepcopy(encoder.model, {id(tensor): tensor for tensor in tensors})
    edit(model, spec.edits, seed=spec.seed, weight_init=spec.weight_init)
    try:
        if list(order) != list(range(1, encoder.blocks + 1)):
            check_rebuilt(model, encoder.family, len(order))
    except Exception as error:  # the library refuses configurations in many ways
        raise InputError(
            f"{encoder.name} with its blocks in another order would compute something else after "
            f"saving and loading, got {format_edits(spec.edits):.80}; keep the order of the blocks"
        ) from error
    return replace(encoder, model=model.requires_grad_(False), edit_spec=spec)


def list_reinitialized(model: Any, spec: EditSpec) -> frozenset[str]:
    """Name the parameters of the blocks that were re-initialised, in a model made of them.

    Args:
        model: of any head, perhaps with adapters in it.
        spec: what was done.
    """
    fresh, places = spec.fresh, locate_parameters(model)
    return frozenset(
        name
        for name, place in places.items()
        if isinstance(place, tuple) and not fresh.isdisjoint(place)
    )


def arrange_blocks(base: Any, edits: Sequence[Edit]) -> Arrangement:
    """Arrange the blocks of a bare model, which stays as it is.

    Raises:
        InputError: if the edits do not fit each other or the model, or blocks that share weights
            cannot do what they say.
    """
    sets = shared_weights(base.config)
    arrangement = arrange(edits, len(sets))
    top = len(arrangement.order)
    if (arrangement.order[-1] < len(sets) or top in arrangement.fresh) and has_averaging(base):
        raise InputError(
            f"block {len(sets)} averages for the head and must stay on top as it is, got "
            f"{format_edits(edits):.80}; edit the blocks below it"
        )
    if len(set(sets)) == len(sets):
        return arrangement
    groups = [sets[block - 1] for block in arrangement.order]
    fresh = {groups[at - 1] for at in arrangement.fresh}
    torn = any(group in fresh and at not in arrangement.fresh for at, group in enumerate(groups, 1))
    names = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    uneven = tuple(names[group] for group in groups) != weight_sets(len(groups), len(names))
    if arrangement.permuted or torn or uneven:
        raise InputError(
            "blocks that share their weights cannot change places, must be re-initialised "
            "together, and can be left out only where the shorter model would share them in the "
            f"same way, got {format_edits(edits):.80}; in tuning, copy the shared weights first "
            "with --untie (in Python: untie=True)"
        )
    return arrangement


def _reinitialize_block(
    block: nn.Module, number: int, seed: int, weight_init: WeightInit, norm_start: float
) -> nn.Module:
    """Copy a block with weights of its own, drawn by the seed and its number."""
    fresh = copy.deepcopy(block)
    for parameter in fresh.parameters():  # the same draw, whatever the rest is held in
        parameter.data = widen(parameter.data)
    state = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0]
    generator = torch.Generator().manual_seed(int(state >> np.uint64(1)))
    with torch.no_grad():
        for name, parameter in fresh.named_parameters():
            _reinitialize_parameter(name, parameter, generator, weight_init, norm_start)
    return fresh


def _reinitialize_parameter(
    name: str,
    parameter: Tensor,
    generator: torch.Generator,
    weight_init: WeightInit,
    norm_start: float,
) -> None:
    bias = name.endswith("bias")
    if NORM.search(name):
        if not weight_init.keep_layer_norm:
            parameter.fill_(0.0 if bias else norm_start)
    elif weight_init.draws_biases or not bias:
        cut, wide = weight_init.cut, weight_init.deviation * 2**0.5
        # By the inverse of the distribution function: ten times as fast as torch.nn.init's way.
        drawn, share = torch.empty(parameter.shape, dtype=torch.float32), erf(cut / wide)
        drawn.uniform_(-share, share, generator=generator).erfinv_().mul_(wide)
        parameter.copy_(drawn.clamp_(-cut, cut))


def untie_blocks(encoder: Encoder) -> Encoder:
    """Return each of ALBERT's blocks its own copy of the weights that they share.

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
