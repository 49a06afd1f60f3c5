"""A plan that tunes only the head: solved from the states of one forward pass, not trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from layerscout.data import evaluate, settle_thresholds
from layerscout.errors import InputError
from layerscout.models import can_average, norm_means
from layerscout.progress import Show
from layerscout.states import (
    Examples,
    States,
    fingerprint_encoder,
    make_accelerator,
    pool_states,
)
from layerscout.tuning.resolve import Tuning
from layerscout.tuning.stepping import Epoch, Run

if TYPE_CHECKING:
    from layerscout.scores import SolvedHead


class UnsolvableError(InputError):
    """No state tells the examples apart."""


# How many parts the examples are left out in.
FOLDS = 5
# Examples that are left out altogether, by dealing few of them several times.
ENOUGH, MOST_DEALS = 500, 5


@dataclass(frozen=True, eq=False)
class Solution:
    """A solved head, and what it took.

    Attributes:
        solved: the head, on states 1 to L as `normed` says.
        normed: each mean is brought to one scale first, as an averaging block does.
        logits: of the validation examples, (n, K).
        left_out: the metric on training examples left out, by heads chosen without them.
        seconds: of the forward pass.
        cached: whether its states were found in the cache.
        warnings: what the reader of the result should know.
    """

    solved: SolvedHead
    normed: bool
    logits: np.ndarray
    left_out: float
    seconds: float
    cached: bool
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return what `result.json` holds of it."""
        return {
            "state": self.solved.state,
            "pooling": "mean-all",
            "shrinkage": self.solved.shrinkage,
            "factor": self.solved.factor,
            "folds": FOLDS,
            "left_out": self.left_out,
            "losses": {str(state): loss for state, loss in self.solved.losses.items()},
        }


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Some of the states, as a solved head reads them."""

    states: States
    numbers: Sequence[int]
    normed: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.numbers), *self.states.shape[1:])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: int) -> np.ndarray:
        state = self.states[self.numbers[at]].astype(np.float64)
        return norm_means(state) if self.normed else state


def solve(tuning: Tuning, states: Sequence[int], show: Show) -> tuple[Run, Solution]:
    """Solve a head on each of some states, and keep the best; the run is of one pass.

    Raises:
        UnsolvableError: if no state tells the examples apart.
    """
    # They load SciPy, 0.2 s of a processor, which no other plan needs.
    from layerscout.scores import find_losses, solve_head

    normed, started = can_average(tuning.encoder), perf_counter()
    pooled, cached, warnings = _pool(tuning, show)
    forward, started = perf_counter() - started, perf_counter()
    y, validation = tuning.training.answers.labels, tuning.validation.answers.labels
    chosen = _Chosen(pooled["training"], states, normed)
    metric, classes = tuning.settings.metric, len(tuning.task.labels) or None
    show("solving the head", 0, 1)
    solved = solve_head(chosen, y, _deal(y), metric=metric, classes=classes)
    if solved is None:
        raise UnsolvableError(
            f"no head can be solved for {tuning.task.name}: its {len(y)} training examples have "
            "the same state, or cannot be left out in turns; give more examples, or --epochs to "
            "train it"
        )
    # From here on states have their numbers in the model.
    losses = {states[s]: loss for s, loss in solved.losses.items()}
    solved = replace(solved, state=(state := states[solved.state]), losses=losses)
    logits = solved.head(_Chosen(pooled["validation"], [state], normed)[0])
    loss = float(find_losses(validation, logits).mean())
    thresholds = settle_thresholds(tuning.settings.threshold, validation, logits)
    value = evaluate(metric, validation, logits, thresholds=thresholds)
    run = Run(None, tuning.request.seed[0], [Epoch(1, solved.losses[state], loss, value)])
    run.seconds["train"] = perf_counter() - started
    left_out = evaluate(metric, y[solved.rows], solved.held_out)
    solution = Solution(solved, normed, logits, left_out, forward, cached, warnings)
    return run, solution


def _pool(tuning: Tuning, show: Show) -> tuple[dict[str, States], bool, tuple[str, ...]]:
    """Average the tokens of both splits at every state, or find them in the cache."""
    encoder = tuning.encoder
    splits: Mapping[str, Examples] = {
        "training": tuning.training,
        "validation": tuning.validation,
    }
    total, done = sum(len(split) for split in splits.values()), 0

    def advance(rows: np.ndarray) -> None:
        nonlocal done
        done += len(rows)
        show("all states, once", done, total, f"{done:,} of {total:,} examples")

    limit = tuning.cache_limit
    fingerprint = fingerprint_encoder(encoder, encoder.blocks) if limit else None
    states, cached, warnings = {}, True, dict[str, None]()
    with make_accelerator().main_process_first():  # the others find them in the cache
        for name, split in splits.items():
            pooled = pool_states(
                encoder,
                split.tokens,
                ("mean-all",),
                limit=limit,
                fingerprint=fingerprint,
                progress=advance,
            )
            states[name] = pooled.states["mean-all"]
            cached &= bool(pooled.cached)
            warnings |= dict.fromkeys([pooled.warning] if pooled.warning else [])
    return states, cached, tuple(warnings)


def _deal(y: np.ndarray) -> np.ndarray:
    """Deal the examples into folds, (R, n), several times if they are few.

    The only example of a class is in no fold.
    """
    from layerscout.scores import deal_groups

    deals = min(MOST_DEALS, -(-ENOUGH // len(y)))
    folds = np.stack([deal_groups(y, seed, groups=FOLDS, least=0) for seed in range(deals)])
    if y.dtype.kind == "i":
        folds = np.where(np.bincount(y)[y] == 1, -1, folds)
    return folds


def list_parameters(solution: Solution) -> dict[str, torch.Tensor]:
    """Return the parameters of a linear layer on the mean, by their names there."""
    head = solution.solved.head
    return {
        "classifier.weight": torch.from_numpy(head.weights).float(),
        "classifier.bias": torch.from_numpy(head.bias).float(),
    }
