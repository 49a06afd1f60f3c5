"""Families that the table does not have: their row is found by looking, and tried before use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from layerscout.errors import InputError, first_line
from layerscout.models.architecture import (
    NORM,
    blocks_of,
    cut_config,
    norm_parameters,
    usable_positions,
)
from layerscout.models.devices import eval_mode, quiet_transformers, use_seed
from layerscout.models.families import Family
from layerscout.models.forward import park_embeddings, resume_at, run_until
from layerscout.models.shapes import make_unweighted, model_shape
from layerscout.plans import ReadToken, block_weights

# By how much two ways to the same states may differ, beside the largest value.
TOLERANCE = 1e-5


def make_short_inputs(model: Any, tokens: int = 5) -> dict[str, Tensor]:
    """Make two inputs, each (2, T), of which the second ends in two tokens of padding."""
    words = min(model.get_input_embeddings().num_embeddings, 1000)
    ids = torch.arange(2 * tokens).reshape(2, tokens) * 7 % (words - 3) + 3
    ids = torch.where(ids == (model.config.pad_token_id or 0), 2, ids)  # positions may skip it
    seen = torch.ones_like(ids)
    seen[1, -2:] = 0
    return {"input_ids": ids.to(model.device), "attention_mask": seen.to(model.device)}


def agree(states: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Return whether two ways gave the same states."""
    return bool((states - expected).abs().max() <= tolerance * expected.abs().max())


def check_rebuilt(model: Any, family: Family, blocks: int) -> None:
    """Check that a model of the first `blocks` blocks gives their state, once saved and loaded.

    It is made from a configuration that was written and read, with the same weights, which are
    shared, and tried on two short inputs.

    Raises:
        Exception: of any kind, if it does not, or the library refuses the configuration.
    """
    from transformers import AutoModel

    config = cut_config(model.config, blocks)
    short = make_unweighted(AutoModel, type(config).from_dict(config.to_dict()))
    weights, needed = model.state_dict(), short.state_dict()
    for name, tensor in needed.items():
        if name not in weights or weights[name].shape != tensor.shape:
            raise ValueError(f"{name} would have another shape")
    short.load_state_dict({name: weights[name] for name in needed}, assign=True)
    short, inputs = short.to(model.device), make_short_inputs(model)
    seen = inputs["attention_mask"].bool()
    with eval_mode(model), eval_mode(short):
        again, state = (run_until(each, family, inputs, blocks) for each in (short, model))
    if not agree(again[seen], state[seen]):
        raise ValueError("it gives something else")


# Tokens of an input with which padding is tried a second time: windows may be as short.
LONGER = 40


def guess_family(name: str, model: Any) -> tuple[Family, list[str]]:
    """Infer how a bare model is built, and try it on two short inputs.

    Args:
        name: of the checkpoint, for messages.
        model: the bare model; it is not changed.

    Returns:
        A row as the table's, in which it is not known where adapters would stand; and what the
        user should know.

    Raises:
        InputError: if its blocks are not in one list, or a pass that is resumed at a state gives
            something else than a whole one, or its first blocks cannot be a model of their own.
    """
    refused = f"{name} is of the family {model.config.model_type}, which is not known, and "
    blocks = model.config.num_hidden_layers
    lists = [
        path
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == blocks
    ]
    try:
        if len(lists) != 1:
            raise _UnlikeError(f"its {blocks} blocks are not in one list of modules")
        inputs = make_short_inputs(model)
        family = _look(model, Family(lists[0], adapted=None, since=None), inputs)
        _try_resuming(model, family, inputs)
        _try_padding(model, inputs)
        _try_padding(model, make_short_inputs(model, LONGER))
        family, notes = _look_at_sizes(name, model, _try_positions(model, family))
        _try_cutting(model, family)
        family = _look_at_classifier(model.config, family, inputs)
    except _UnlikeError as error:
        raise InputError(f"{refused}{error}; use a model of another family") from error
    except Exception as error:  # a model may ask for anything: a language, a length, a cache
        raise InputError(
            f"{refused}it cannot be run on two short inputs ({first_line(error):.80}); use a model "
            "of another family"
        ) from error
    tried = (
        f"{name} is of a family that layerscout does not know ({model.config.model_type}); it was "
        "only checked on two short inputs"
    )
    return family, [tried, *notes]


class _UnlikeError(Exception):
    """The model does something that no known family does."""


def _look(model: Any, family: Family, inputs: Mapping[str, Tensor]) -> Family:
    """Observe what blocks take and return, and which norm follows the last one."""
    blocks = blocks_of(model, family)
    inside = tuple(f"{family.blocks}.{block}" for block in range(len(blocks)))
    calls: list[tuple[str, Any, Any]] = []  # of blocks and norms: path, first argument, output
    handles = [
        module.register_forward_hook(
            lambda _, args, output, path=path: calls.append(
                (path, args[0] if args else None, output)
            )
        )
        for path, module in model.named_modules()
        if path in inside or (NORM.search(path.rpartition(".")[2]) and not list(module.children()))
    ]
    with eval_mode(model):
        last = model(**inputs).last_hidden_state
    for handle in handles:
        handle.remove()
    states = [state for path, state, _ in calls if path in inside]
    if len(states) != len(blocks) or not all(
        isinstance(state, Tensor) and state.shape == last.shape for state in states
    ):
        raise _UnlikeError("its blocks do not each take the state first, once a pass")
    top = next(output for path, _, output in reversed(calls) if path in inside)
    tuples = isinstance(top, tuple)
    top = top[0] if tuples else top
    norms = [call for call in calls if call[0] not in inside and isinstance(call[1], Tensor)]
    final = None
    if not torch.equal(top, last):
        following = [
            path
            for path, before, after in norms
            if not path.startswith(f"{family.blocks}.")
            and torch.equal(before, top)
            and torch.equal(after, last)
        ]
        if len(following) != 1:
            raise _UnlikeError("something other than one norm follows its last block")
        final = following[0]
    shapes = [{name: p.shape for name, p in block.named_parameters()} for block in blocks]
    if any(each != shapes[-1] for each in shapes[1:]):
        raise _UnlikeError("its blocks are not alike")
    return replace(
        family,
        tuples=tuples,
        final_norm=final,
        normed_input=any(
            path.startswith(f"{inside[0]}.") and torch.equal(before, states[0])
            for path, before, _ in norms
        ),
        first_differs=shapes[0] != shapes[-1],
    )


def _try_resuming(model: Any, family: Family, inputs: Mapping[str, Tensor]) -> None:
    """Compare passes that are resumed at a state with a whole one."""
    blocks = model.config.num_hidden_layers
    with eval_mode(model):
        whole = model(**inputs).last_hidden_state
        seen = inputs["attention_mask"].bool()
        for cut in sorted({0, 1, blocks // 2, blocks - 1, blocks}):
            state = run_until(model, family, inputs, cut)
            with park_embeddings(model), resume_at(model, family, state, cut):
                resumed = model(**inputs).last_hidden_state
            if not agree(resumed[seen], whole[seen]):
                raise _UnlikeError(
                    f"a forward pass that is resumed at state {cut} differs from a whole one"
                )


def _try_padding(model: Any, inputs: Mapping[str, Tensor]) -> None:
    """Compare the padded input with the same one alone."""
    seen = int(inputs["attention_mask"][1].sum())
    with eval_mode(model):
        padded = model(**inputs).last_hidden_state[1, :seen]
        alone = {name: tensor[1:, :seen] for name, tensor in inputs.items()}
        single = model(**alone).last_hidden_state[0]
    if not agree(padded, single, 10 * TOLERANCE):
        raise _UnlikeError("padding changes the states of a text")


def _try_positions(model: Any, family: Family) -> Family:
    """Infer whether positions are counted from the padding id on, and embed as many as there are.

    Where they are, their table leaves out the row of that id, as RoBERTa's does.
    """
    words = model.get_input_embeddings()
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding) and m is not words]
    after = any(table.padding_idx is not None for table in tables)
    family = replace(family, positions_after_padding=after)
    positions = usable_positions(model.config, family)
    if any(table.num_embeddings >= positions for table in tables):
        long = make_short_inputs(model, positions)
        with eval_mode(model):  # a single text, since masks grow with the square of its length
            run_until(model, family, {name: row[:1] for name, row in long.items()}, 0)
    return family


def _try_cutting(model: Any, family: Family) -> None:
    """Compare a state with what a model of the blocks below gives."""
    try:
        check_rebuilt(model, family, max(1, model.config.num_hidden_layers // 2))
    except Exception as error:  # the library refuses configurations in many ways
        raise _UnlikeError(
            f"its first blocks cannot be used as a shorter model ({first_line(error):.80})"
        ) from error


def _look_at_sizes(name: str, model: Any, family: Family) -> tuple[Family, list[str]]:
    """Infer from how many weights a block has whether a matrix gates, which its costs count.

    Returns:
        The family, and a note where a model has other matrices than its costs count, such as
        experts.
    """
    block = blocks_of(model, family)[-1]
    weights = sum(weight.numel() for weight in block.parameters() if weight.ndim > 1)
    rows = [replace(family, gated=gated) for gated in (False, True)]
    counts = [block_weights(model_shape(model.config, 2, family=row)) for row in rows]
    counted, row = min(zip(counts, rows, strict=True), key=lambda pair: abs(pair[0] - weights))
    if abs(counted - weights) <= 0.1 * weights:
        return row, []
    return row, [
        f"the costs of {name} are rough estimates: they assume {counted:,} weights in the matrices "
        f"of a block, but it has {weights:,}"
    ]


def _look_at_classifier(config: Any, family: Family, inputs: Mapping[str, Tensor]) -> Family:
    """Infer which token's state a head reads, by its gradients, and how norms start."""
    from transformers import AutoModelForSequenceClassification

    config = cut_config(config, 1)
    config.num_labels, config.pad_token_id = 2, 0
    with use_seed(0), quiet_transformers():
        model = AutoModelForSequenceClassification.from_config(config).eval()
    base = getattr(model, model.base_model_prefix)
    text = {name: tensor[:1].cpu() for name, tensor in inputs.items()}
    tokens = text["input_ids"].shape[1]
    state = torch.randn(1, tokens, config.hidden_size, requires_grad=True)
    with resume_at(base, family, state, 1):
        logits = model(**text).logits
    (gradient,) = torch.autograd.grad(logits.sum(), state)
    read = gradient[0].abs().amax(dim=1).nonzero().flatten().tolist()
    ends: dict[int, ReadToken] = {0: "first", tokens - 1: "last"}
    norms = [p for p in norm_parameters(blocks_of(base, family)[0]) if p.ndim == 1]
    starts = [float(p.detach().mean()) for p in norms if p.any()]
    return replace(
        family,
        reads=ends.get(read[0]) if len(read) == 1 else None,
        norm_start=0.0 if norms and not starts else 1.0,
    )
