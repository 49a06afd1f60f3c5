"""Tokenised examples with the states at the cut, and what a model makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.cache.trunks import DEFAULT_LIMIT, Team, Trunk, run_trunk
from layerscout.data import batch_by_length, expand_choices
from layerscout.models import Encoder, Tokens, base_of, reads_first_token, resume_at
from layerscout.plans import Classifier, Plan
from layerscout.runtime import InputError


@dataclass(frozen=True, eq=False)
class Examples:
    """n tokenised examples with what is right for them, and their states at the cut, if any.

    Attributes:
        tokens: n C texts, those of an example one after another; where the head alone is tuned,
            the tokens that it reads.
        labels: class ids or right choices, int64 (n,), or targets, float64 (n,).
        trunk: the states of the same texts.
        choices: C, 1 but for multiple choice.
    """

    tokens: Tokens
    labels: np.ndarray
    trunk: Trunk | None
    choices: int = 1

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, (n,); of its longest choice where it has several."""
        longest: np.ndarray = self.tokens.lengths.reshape(-1, self.choices).max(axis=1)
        return longest

    @classmethod
    def prepare(
        cls,
        encoder: Encoder,
        plan: Plan,
        tokens: Tokens,
        labels: np.ndarray,
        *,
        choices: int = 1,
        head: Classifier = "family",
        limit: int = DEFAULT_LIMIT,
        spare: Trunk | None = None,
        progress: Callable[[np.ndarray], None] | None = None,
        team: Team | None = None,
    ) -> Examples:
        """Run the trunk of a plan over examples, or find in the cache what it gave.

        Args:
            encoder: the model before the cut.
            plan: for this encoder; see `Plan.on`.
            tokens: the n C texts of the examples.
            labels: what is right for the n examples.
            choices: C.
            head: what reads the last state, be it of the first token alone.
            limit: see `run_trunk`.
            spare: see `run_trunk`.
            progress: see `run_trunk`.
            team: see `run_trunk`.
        """
        if plan.cut is None:
            return cls(tokens, labels, None, choices)
        family = head == "family" and reads_first_token(encoder.model)
        first_only = family and not plan.tuned
        states = run_trunk(
            encoder,
            tokens,
            plan.cut,
            first_only=first_only,
            limit=limit,
            spare=spare,
            progress=progress,
            team=team,
        )
        return cls(tokens.first() if first_only else tokens, labels, states, choices)


def compute_logits(
    encoder: Encoder, model: Any, examples: Examples, rows: np.ndarray, *, run: Any = None
) -> Tensor:
    """Run a model of `encoder` on the examples at `rows`, from the cut on where there is one.

    Args:
        encoder: what the model was made from.
        model: the model.
        examples: what is read.
        rows: of the examples, (b,).
        run: what is called in the model's place, such as one that gathers gradients.

    Returns:
        (b, K), or (b, C) for examples with choices; float32 or more precise.
    """
    inputs, trunk = make_batch(encoder, examples, rows), examples.trunk
    if trunk is None:
        with encoder.autocast():
            return _wide((model if run is None else run)(**inputs).logits)
    states = trunk.states(expand_choices(rows, examples.choices))
    return resume_from_states(encoder, model, inputs, states, trunk.cut, run=run)


def resume_from_states(
    encoder: Encoder,
    model: Any,
    inputs: Mapping[str, Tensor],
    states: Tensor,
    block: int,
    *,
    run: Any = None,
) -> Tensor:
    """Run a model of `encoder` from a state on: blocks 1..`block` are passed over.

    Args:
        encoder: what the model was made from.
        model: the model.
        inputs: from `make_batch`; of the first tokens alone where `states` holds no others.
        states: (b C, T, d), what block `block` + 1, or the head, reads.
        block: 0 to L.
        run: as for `compute_logits`.

    Returns:
        As `compute_logits`.
    """
    with (
        encoder.autocast(),
        resume_at(base_of(model)[0], encoder.family, states, block),
    ):
        return _wide((model if run is None else run)(**inputs).logits)


def _wide(found: Tensor) -> Tensor:
    return found.to(torch.promote_types(found.dtype, torch.float32))


def make_batch(encoder: Encoder, examples: Examples, rows: np.ndarray) -> dict[str, Tensor]:
    """Give a model's inputs for the examples at `rows`: (b, T), or (b, C, T) with choices."""
    inputs = encoder.batch(examples.tokens, expand_choices(rows, examples.choices))
    if examples.choices == 1:
        return inputs
    shape = (len(rows), examples.choices, -1)
    return {name: tensor.reshape(shape) for name, tensor in inputs.items()}


def make_batches(
    encoder: Encoder, examples: Examples, rows: np.ndarray | None = None
) -> list[np.ndarray]:
    """Group the examples at `rows`, or all, by like length, as `Encoder.batches` does texts."""
    rows = np.arange(len(examples)) if rows is None else rows
    budget = max(1, encoder.token_budget // examples.choices)
    return [rows[part] for part in batch_by_length(examples.lengths[rows], budget)]


def compute_loss(found: Tensor, labels: Tensor) -> Tensor:
    """Give the mean loss: cross-entropy, or the squared error where the labels are numbers.

    Args:
        found: logits, (b, K).
        labels: (b,), class ids or right choices, or numbers, which one output predicts.
    """
    if labels.is_floating_point():
        numbers = labels.to(found.dtype).to(found.device)  # not every device has float64
        return nn.functional.mse_loss(found[:, 0], numbers)
    return nn.functional.cross_entropy(found, labels.to(found.device))


def predict(encoder: Encoder, model: Any, examples: Examples) -> Tensor:
    """Give the logits of all examples in their order, (n, K) float32 on the CPU, in eval mode.

    Several processes share the batches.
    """
    model.eval()
    outputs = model.config.num_labels if examples.choices == 1 else examples.choices
    found = torch.zeros(len(examples), outputs)
    accelerator = make_accelerator()
    own, processes = accelerator.process_index, accelerator.num_processes
    with torch.no_grad():
        for rows in make_batches(encoder, examples)[own::processes]:
            found[rows] = compute_logits(encoder, model, examples, rows).float().cpu()
    if processes > 1:
        found = accelerator.reduce(found.to(accelerator.device), "sum").cpu()
    return found


def make_accelerator() -> Any:
    """Make the accelerator, which leaves placement and precision to the encoder.

    Raises:
        InputError: if mixed precision was set elsewhere.
    """
    from accelerate import Accelerator, InitProcessGroupKwargs

    # While the first of several processes scans and runs the trunk, the others wait.
    patient = InitProcessGroupKwargs(timeout=timedelta(days=7))
    try:
        accelerator = Accelerator(
            device_placement=False, mixed_precision="no", kwargs_handlers=[patient]
        )
    except ValueError as error:
        raise InputError(
            "another Accelerator of this process uses mixed precision; tune in a process of its "
            'own, with precision="bfloat16" if that is wanted'
        ) from error
    accelerator.gradient_accumulation_steps = 1  # whatever the environment says
    return accelerator


def join_team() -> Team:
    """Give the processes that `accelerate launch` started."""
    from accelerate.utils import gather_object

    accelerator = make_accelerator()
    return Team(
        accelerator.process_index, accelerator.num_processes, lambda said: gather_object([said])
    )


def is_first_process() -> bool:
    """Tell whether this is the only process, or the one of several that has the say."""
    return bool(make_accelerator().is_main_process)
