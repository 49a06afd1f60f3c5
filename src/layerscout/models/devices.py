"""Where and how models run: device, precision, seed, without dropout, without words."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.errors import InputError, first_line, make_unknown_error

T = TypeVar("T")

Computed = Literal["float32", "bfloat16", "float16"]
Precision = Literal["float32", "bfloat16", "float16", "auto"]


def resolve_device(name: str) -> torch.device:
    """Find the device of a name; "auto" stands for the best one that is there.

    Raises:
        InputError: if there is none.
    """
    if name == "auto":
        if torch.cuda.is_available():
            # `accelerate launch` starts a process per device and numbers them in LOCAL_RANK.
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()  # which a device without memory ("meta") cannot
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        # PyTorch's line names all of its back ends after the first sentence.
        reason = first_line(error).split(". ")[0]
        raise InputError(f"the device {name!r} cannot be used here: {reason}") from error
    return device


def resolve_precision(precision: Precision, device: torch.device) -> Computed:
    """Choose what "auto" stands for: bfloat16 where the hardware has it and it is faster.

    Raises:
        InputError: if there is no such precision, or the processor does not compute it.
    """
    if precision not in get_args(Precision):
        raise make_unknown_error("precision", precision, get_args(Precision))
    cpu: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    half = cpu.get("avx512_fp16") or cpu.get("amx_fp16")
    if precision == "float16" and device.type == "cpu" and not half:
        raise InputError("float16 is not computed by this processor; use bfloat16, float32 or auto")
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    # Measured: the vector instructions (avx512_bf16) double the speed on AMD's processors; on those
    # of Intel that have no matrix units they take longer than float32.
    faster = cpu.get("amx_bf16") or (cpu.get("avx512_bf16") and "AMD" in cpu.get("cpu_name", ""))
    return "bfloat16" if device.type == "cpu" and faster else "float32"


def run_in_halves(
    run: Callable[[np.ndarray], T], rows: np.ndarray, lengths: np.ndarray, device: torch.device
) -> list[T]:
    """Run something on the texts at `rows`; in two halves where the device runs out of memory.

    Raises:
        InputError: if a single text is more than the memory can hold.
    """
    try:
        return [run(rows)]
    except torch.OutOfMemoryError as error:
        if len(rows) == 1:
            raise InputError(
                f"a text of {lengths[rows[0]]} tokens does not fit into the memory of {device}; "
                "lower --max-length or use --device cpu"
            ) from error
    # Not in the except clause, whose traceback would keep the failed tensors alive.
    halves = np.array_split(rows, 2)
    return [part for half in halves for part in run_in_halves(run, half, lengths, device)]


def widen(tensor: Tensor, *, copy: bool = False) -> Tensor:
    """Return a tensor in float32, or in its own dtype if that is more precise."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32), copy=copy)


def view_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor, to be hashed."""
    view: memoryview = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
    return view


@contextmanager
def use_seed(seed: int) -> Iterator[None]:
    """Draw by `seed` within, and leave torch's random state of all devices as it was."""
    with ExitStack() as stack:
        devices = list(range(torch.cuda.device_count()))
        stack.enter_context(torch.random.fork_rng(devices=devices))
        if torch.backends.mps.is_available():
            stack.enter_context(torch.random.fork_rng(devices=[0], device_type="mps"))
        torch.manual_seed(seed)
        yield


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers' own bars and reports (dropped heads, missing poolers) off the terminal."""
    from transformers.utils import logging

    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)  # an error is raised, too, and its report is long
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Switch dropout and autograd off, and back on where they were."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
