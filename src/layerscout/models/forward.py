"""Forward passes that stop, start or look at a block: the library's own code, through hooks.

A family's forward is never written again: masks, rotary and relative positions stay its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from layerscout.models.architecture import blocks_of
from layerscout.models.families import Family


def run_until(model: Any, family: Family, inputs: Mapping[str, Tensor], block: int) -> Tensor:
    """Run blocks 1..`block` of a bare model only and give the state that comes out, (b, T, d)."""
    if block == model.config.num_hidden_layers:
        return last_state(model, family, inputs)

    def stop(passed: int, state: Tensor) -> None:
        if passed == block:
            raise _ReachedError(state)

    try:
        with entering_blocks(model, family, stop):
            model(**inputs)
    except _ReachedError as reached:
        state: Tensor = reached.args[0]
        return state
    raise RuntimeError(f"{type(model).__name__} never entered block {block + 1}")


class _ReachedError(Exception):
    """Leaves the model's forward with the wanted state."""


@contextmanager
def entering_blocks(
    model: Any, family: Family, visit: Callable[[int, Tensor], None]
) -> Iterator[None]:
    """Call `visit(ℓ, state ℓ)` as each block is entered, ℓ = 0..L−1 blocks having been passed.

    What a block receives, and not what the one before it gave, is the state: DeBERTa-v2 may have a
    convolution in between. Calls are counted because ALBERT enters the same module L times.
    """
    entered = 0

    def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
        nonlocal entered
        entered += 1
        visit(entered - 1, args[0])

    # transformers' own `output_hidden_states` can name layers, but DeBERTa-v2 and MPNet ignore that
    # (seen in 5.23), and no family stops early.
    handles = [block.register_forward_pre_hook(hook) for block in blocks_of(model, family)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def last_state(model: Any, family: Family, inputs: Mapping[str, Tensor]) -> Tensor:
    """Run the model and give state L: its output, or what its final norm was given."""
    if family.final_norm is None:
        last: Tensor = model(**inputs).last_hidden_state
        return last
    seen: list[Tensor] = []
    norm = model.get_submodule(family.final_norm)
    handle = norm.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    try:
        model(**inputs)
    finally:
        handle.remove()
    return seen[0]


@contextmanager
def resume_at(model: Any, family: Family, state: Tensor, block: int) -> Iterator[None]:
    """Make blocks 1..`block` of a bare model do nothing, and what follows them start at `state`.

    Args:
        model: the bare model, or the one inside a classifier.
        family: its family.
        state: (b, T, d), of the inputs that the model is called on within the context.
        block: 0 (what is passed over is the embeddings) to the number of blocks.
    """
    # Feeding the state as `inputs_embeds` past the embeddings would not do: DistilBERT asks its
    # embeddings for more.
    entered = 0

    def resumed(forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
            nonlocal entered
            entered += 1
            if entered > block:
                start = state if entered == block + 1 else hidden_states
                return forward(start, *args, **kwargs)
            return (state, None) if family.tuples else state

        return run

    replaced = list(blocks_of(model, family))
    forwards = [resumed(module.forward) for module in replaced]
    if family.convolution and block > 0:
        owner = model.get_submodule(family.blocks_place[0])
        if (convolution := getattr(owner, family.convolution)) is not None:  # is part of state 1
            replaced.append(convolution)
            forwards.append(lambda before, after, mask: after)
    before = [module.__dict__.get("forward") for module in replaced]
    try:
        for module, forward in zip(replaced, forwards, strict=True):
            module.forward = forward
        yield
    finally:
        for module, forward in zip(replaced, before, strict=True):
            if forward is None:
                del module.forward
            else:
                module.forward = forward


@contextmanager
def park_embeddings(*models: Any) -> Iterator[None]:
    """Keep word embeddings, which these models share, in the host's memory meanwhile.

    Whatever is looked up is 0: passes that are resumed at a state do not read it. 256 thousand
    words of 2,304 features take 2.4 GB, which an accelerator has better use for.
    """
    tables = [model.get_input_embeddings() for model in models]
    device, width = tables[0].weight.device, tables[0].weight.shape[1]
    parked, before = tables[0].weight.data.cpu(), [t.__dict__.get("forward") for t in tables]

    def look_up(ids: Tensor) -> Tensor:
        return torch.zeros(*ids.shape, width, dtype=parked.dtype, device=device)

    try:
        for table in tables:
            table.weight.data = torch.empty(0, width, dtype=parked.dtype, device=device)
            table.forward = look_up
        yield
    finally:
        # What cannot fail comes first: the device may have no memory left.
        for table, forward in zip(tables, before, strict=True):
            table.weight.data = parked
            del table.forward
            if forward is not None:
                table.forward = forward
        whole = parked.to(device)
        for table in tables:
            table.weight.data = whole
