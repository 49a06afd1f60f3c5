"""A plan that tunes only the head: solved from the states of one forward pass, not trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from layerscout.data import Split, evaluate, require_validation, settle_thresholds
from layerscout.errors import InputError
from layerscout.models import can_average, norm_means
from layerscout.plans import ranges
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
class Judged:
    """Labelled rows, and what heads that were solved without them say.

    Attributes:
        split: the rows.
        which: the split that each is from.
        logits: (n, K).
        folds: that the rows were left out in; 1 where they were left out at once.
        dealt: the fold of each row, where there are several.
    """

    split: Split
    which: Sequence[str]
    logits: np.ndarray
    folds: int
    dealt: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Solution:
    """A solved head, and what it took.

    Attributes:
        solved: the head, on states 1 to L as `normed` says, from all labelled rows but test rows.
        normed: each mean is brought to one scale first, as an averaging block does.
        judged: what is reported of it.
        pooled: what it was solved from.
        warnings: what the reader of the result should know.
    """

    solved: SolvedHead
    normed: bool
    judged: Judged
    pooled: Pooled
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return what `result.json` holds of it."""
        return {
            "state": self.solved.state,
            "pooling": "mean-all",
            "shrinkage": self.solved.shrinkage,
            "factor": self.solved.factor,
            "examples": self.pooled.rows,
            "judged": len(self.judged.split),
            "folds": self.judged.folds,
            "losses": {str(state): loss for state, loss in self.solved.losses.items()},
        }


@dataclass(frozen=True, eq=False)
class Pooled:
    """The means of all tokens of the labelled rows, from one pass for whatever is solved.

    Attributes:
        splits: the states of training and validation, by name.
        seconds: of the forward pass.
        cached: whether the states were found in the cache.
        warnings: what the reader of the result should know.
    """

    splits: Mapping[str, States]
    seconds: float
    cached: bool
    warnings: tuple[str, ...]

    @property
    def rows(self) -> int:
        """How many rows both splits have."""
        return sum(states.shape[1] for states in self.splits.values())


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Some of the states of rows, as a solved head reads them."""

    splits: Sequence[States]
    numbers: Sequence[int]
    normed: bool

    @property
    def shape(self) -> tuple[int, ...]:
        rows = sum(split.shape[1] for split in self.splits)
        return (len(self.numbers), rows, self.splits[0].shape[2])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: int) -> np.ndarray:
        state = np.concatenate([split[self.numbers[at]] for split in self.splits])
        return norm_means(state) if self.normed else state.astype(np.float64)


def solve(
    tuning: Tuning, pooled: Pooled, states: Sequence[int], *, beside: bool
) -> tuple[Run, Solution]:
    """Solve a head on each of some states from all labelled rows, and keep the best.

    Args:
        tuning: what it is solved for.
        pooled: the states.
        states: those that are tried.
        beside: it is judged on the validation rows, by a head that is solved on the training rows,
            since that is where trainings beside it are judged; otherwise on all rows, in folds.

    Returns:
        A run of one pass, and the head.

    Raises:
        UnsolvableError: if no state tells the examples apart.
    """
    # It loads SciPy, 0.2 s of a processor, which no other plan needs.
    from layerscout.scores import find_losses

    started, metric = perf_counter(), tuning.settings.metric
    validation = require_validation(tuning.task)
    split = tuning.task.train.join(validation)
    which = np.repeat(["training", "validation"], [len(tuning.task.train), len(validation)])
    normed, folds = can_average(tuning.encoder), _deal(split)
    solved = _solve(tuning, list(pooled.splits.values()), states, split, folds)
    left_out, parts = solved.rows, len(np.unique(folds[0, solved.rows]))
    judged = Judged(
        split.take(left_out),
        which[left_out].tolist(),
        solved.held_out,
        folds=parts,
        dealt=folds[0, left_out],
    )
    if beside:
        judged = judge_beside(tuning, pooled, states)
    labels, logits = judged.split.labels, judged.logits
    loss = float(find_losses(labels, logits).mean())
    thresholds = settle_thresholds(tuning.settings.threshold, labels, logits)
    value = evaluate(metric, labels, logits, thresholds=thresholds)
    run = Run(None, tuning.request.seed[0], [Epoch(1, solved.losses[solved.state], loss, value)])
    run.seconds["train"] = perf_counter() - started
    return run, Solution(solved, normed, judged, pooled, _warn_of_states(pooled, states))


def judge_beside(tuning: Tuning, pooled: Pooled, states: Sequence[int]) -> Judged:
    """Judge the validation rows by a head that is solved on the training rows.

    Raises:
        UnsolvableError: if no state tells the training rows apart.
    """
    training, validation = tuning.task.train, require_validation(tuning.task)
    solved = _solve(tuning, [pooled.splits["training"]], states, training, _deal(training))
    chosen = _Chosen([pooled.splits["validation"]], [solved.state], can_average(tuning.encoder))
    which = ["validation"] * len(validation)
    return Judged(validation, which, solved.head(chosen[0]), 1)


def _solve(
    tuning: Tuning,
    pooled: Sequence[States],
    states: Sequence[int],
    split: Split,
    folds: np.ndarray,
) -> SolvedHead:
    """Solve a head on each of some states of the rows of a split; states keep their numbers."""
    from layerscout.scores import solve_head

    chosen = _Chosen(pooled, states, can_average(tuning.encoder))
    metric, classes = tuning.settings.metric, len(tuning.task.labels) or None
    solved = solve_head(chosen, split.labels, folds, metric=metric, classes=classes)
    if solved is None:
        raise UnsolvableError(
            f"no head can be solved for {tuning.task.name}: its {len(split)} labelled examples "
            "have the same state, or cannot be left out in turns; give more examples, or --epochs "
            "to train it"
        )
    losses = {states[s]: loss for s, loss in solved.losses.items()}
    return replace(solved, state=states[solved.state], losses=losses)


def _warn_of_states(pooled: Pooled, states: Sequence[int]) -> tuple[str, ...]:
    """Count the states on which no head could be solved, since they have no values."""
    broken = [
        state
        for state in states
        if not all(np.isfinite(split[state]).all() for split in pooled.splits.values())
    ]
    note = f"states {ranges(broken)} have values that are not finite, so no head was solved on them"
    return (*pooled.warnings, *([note] if broken else []))


def pool(tuning: Tuning, show: Show) -> Pooled:
    """Average the tokens of both splits at every state, or find them in the cache."""
    encoder, started = tuning.encoder, perf_counter()
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
    show("solving the head", 0, 1)
    return Pooled(states, perf_counter() - started, cached, tuple(warnings))


def _deal(split: Split) -> np.ndarray:
    """Deal the rows of a split, those of one text together; see `deal`."""
    texts = [*zip(split.texts, split.pairs or split.texts, strict=True)]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return deal(split.labels, np.array([numbers[text] for text in texts]))


def deal(labels: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Deal rows into folds, (R, n), several times if they are few.

    Rows with the same number, from 0, stay together. Those of a class that has only one such number
    are in no fold.
    """
    from layerscout.scores import deal_groups

    y = labels[np.unique(own, return_index=True)[1]]
    deals = min(MOST_DEALS, -(-ENOUGH // len(y)))
    folds = np.stack([deal_groups(y, seed, groups=FOLDS, least=0) for seed in range(deals)])
    if y.dtype.kind == "i":
        folds = np.where(np.bincount(y)[y] == 1, -1, folds)
    return folds[:, own]


def list_parameters(solution: Solution) -> dict[str, torch.Tensor]:
    """Return the parameters of a linear layer on the mean, by their names there."""
    head = solution.solved.head
    return {
        "classifier.weight": torch.from_numpy(head.weights).float(),
        "classifier.bias": torch.from_numpy(head.bias).float(),
    }
