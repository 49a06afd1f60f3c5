"""A plan that tunes only the head: solved from the states of one forward pass, not trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from layerscout.data import (
    Split,
    Targets,
    make_targets,
    number_texts,
    require_validation,
)
from layerscout.errors import InputError
from layerscout.models import Encoder
from layerscout.plans import ranges
from layerscout.progress import Show
from layerscout.states import (
    States,
    find_states,
    fingerprint_encoder,
    follow_first,
    make_accelerator,
    pool_states,
)
from layerscout.tuning.forms import Form
from layerscout.tuning.resolve import Tuning
from layerscout.tuning.stepping import Epoch, Run, judge_logits

if TYPE_CHECKING:
    from layerscout.scores import LinearHead, SolvedHead


class UnsolvableError(InputError):
    """No state tells the examples apart."""


# How many parts the examples are left out in.
FOLDS = 5
# Examples that are left out altogether, by dealing few of them several times.
ENOUGH, MOST_DEALS = 500, 5
# Words that are enough to choose a head by, where others judge it: every fold costs six heads.
CHOOSING = 10_000


@dataclass(frozen=True, eq=False)
class Judged:
    """Labelled rows, and what heads that were solved without them say.

    Attributes:
        split: the rows.
        which: the split that each answer is from.
        logits: (n, K).
        folds: that the rows were left out in; 1 where they were left out at once.
        raw: logits without a factor.
        factor: on those of the model that is kept.
        factors: on those of each row, (n,), found without the row.
        trained: by steps, and not solved.
        dealt: the fold of each row, or of each word, where there are several.
    """

    split: Split
    which: Sequence[str]
    logits: np.ndarray
    folds: int
    raw: np.ndarray
    factor: float
    factors: np.ndarray
    trained: bool = False
    dealt: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Solution:
    """A solved head, and what it took.

    Attributes:
        solved: the head, on states 1 to L as its form reads them, from all labelled rows but test
            rows.
        form: what it reads, and what it is the last layer of.
        judged: what is reported of it.
        pooled: what it was solved from.
        warnings: what the reader of the result should know.
    """

    solved: SolvedHead
    form: Form
    judged: Judged
    pooled: Pooled
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return what `result.json` holds of it."""
        return {
            "state": self.solved.state,
            "pooling": self.form.pooling,
            "averaging": self.form.averages,
            "shrinkage": self.solved.shrinkage,
            "penalty": self.solved.penalty,
            "factor": self.solved.factor,
            "examples": self.pooled.examples,
            "judged": self.judged.split.examples,
            "folds": self.judged.folds,
            "losses": {str(state): loss for state, loss in self.solved.losses.items()},
        }


@dataclass(frozen=True, eq=False)
class Pooled:
    """The pooled tokens of the labelled rows, from one pass for whatever is solved.

    Attributes:
        splits: the states of training and validation, by name.
        examples: how many they are of.
        seconds: of the forward pass.
        cached: whether the states were found in the cache.
        fingerprint: of the encoder, by which the cache has them; None where it is off.
        warnings: what the reader of the result should know.
    """

    splits: Mapping[str, States]
    examples: int
    seconds: float
    cached: bool
    warnings: tuple[str, ...]
    fingerprint: str | None = None


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Some of the states of rows, as a solved head reads them."""

    splits: Sequence[States]
    numbers: Sequence[int]
    form: Form
    choices: int

    @property
    def shape(self) -> tuple[int, ...]:
        rows = sum(split.shape[1] for split in self.splits)
        return (len(self.numbers), rows, self.splits[0].shape[2])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: int) -> np.ndarray:
        state = np.concatenate([split[self.numbers[at]] for split in self.splits])
        read = self.form.read(state)
        return read if self.choices == 1 else read.reshape(-1, self.choices, read.shape[1])


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
    started = perf_counter()
    split = tuning.task.train.join(require_validation(tuning.task))
    answers = _answer(tuning, split)
    folds = deal_texts(split, answers)
    folds = _leave_out_enough(split, folds) if beside else folds
    solved = _solve(tuning, list(pooled.splits.values()), states, answers, folds)
    if beside:
        judged = replace(solve_beside(tuning, pooled, states)[1], factor=solved.factor)
    else:
        judged = judge_left_out(tuning, solved, split, folds[0])
    epoch = judge_solved(tuning, judged, solved.losses[solved.state])
    run = Run(None, tuning.request.seed[0], [epoch])
    run.seconds["train"] = perf_counter() - started
    form = find_form(tuning)
    return run, Solution(solved, form, judged, pooled, _warn_of_states(pooled, states))


def judge_solved(tuning: Tuning, judged: Judged, training_loss: float) -> Epoch:
    """Return what the solving of a head ended with: loss and metric of the rows that judge it."""
    from layerscout.scores import find_losses

    right, logits = _answer(tuning, judged.split), judged.logits
    loss = float(find_losses(right.labels, logits).mean())
    return Epoch(1, training_loss, loss, judge_logits(tuning.settings, right, logits))


def judge_left_out(tuning: Tuning, solved: SolvedHead, split: Split, dealt: np.ndarray) -> Judged:
    """Judge all rows that were left out in folds, (n,), by the heads solved without them."""
    rows = solved.rows
    sizes = len(tuning.training.answers), len(tuning.validation.answers)
    which = np.repeat(["training", "validation"], sizes)[rows].tolist()
    raw, parts = solved.held_out / solved.factors[:, None], len(np.unique(dealt[rows]))
    if len(rows) < len(dealt):  # of texts that have one class each
        split = split.take(rows)
    factors = solved.factor, solved.factors
    return Judged(split, which, solved.held_out, parts, raw, *factors, dealt=dealt[rows])


def solve_beside(
    tuning: Tuning, pooled: Pooled, states: Sequence[int]
) -> tuple[SolvedHead, Judged]:
    """Solve a head on the training rows, and judge the validation rows by it.

    Raises:
        UnsolvableError: if no state tells the training rows apart.
    """
    training, validation = tuning.task.train, require_validation(tuning.task)
    answers = _answer(tuning, training)
    folds = _leave_out_enough(training, deal_texts(training, answers))
    solved = _solve(tuning, [pooled.splits["training"]], states, answers, folds)
    states, choices = [solved.state], answers.choices
    chosen = _Chosen([pooled.splits["validation"]], states, find_form(tuning), choices)
    logits, factor = solved.head(chosen[0]), solved.factor
    rows = validation, ["validation"] * len(logits), logits, 1
    return solved, Judged(*rows, logits / factor, factor, np.full(len(logits), factor))


def solve_without(
    tuning: Tuning, pooled: Pooled, states: Sequence[int], parts: np.ndarray
) -> tuple[SolvedHead, Judged]:
    """Judge the labelled rows of each part by a head that is solved on the others.

    Args:
        tuning: what they are solved for.
        pooled: the states.
        states: those that are tried.
        parts: of each labelled row, from 0, or −1 for rows that are judged by none.

    Where those, such as one of each class, cannot judge each other, state and shrinkage are the
    best by the rows of the other parts.

    Raises:
        UnsolvableError: if no state tells the rows apart.
    """
    try:
        return _solve_nested(tuning, pooled, states, parts)
    except UnsolvableError:
        split = tuning.task.train.join(require_validation(tuning.task))
        answers, every = _answer(tuning, split), list(pooled.splits.values())
        solved = _solve(tuning, every, states, answers, parts[None])
        return solved, judge_left_out(tuning, solved, split, parts)


def _solve_nested(
    tuning: Tuning, pooled: Pooled, states: Sequence[int], parts: np.ndarray
) -> tuple[SolvedHead, Judged]:
    """Judge each part by a head that is chosen and solved by the others; see `solve_without`."""
    split = tuning.task.train.join(require_validation(tuning.task))
    every, form = pooled.splits["training"] + pooled.splits["validation"], find_form(tuning)
    parted, said = np.argsort(parts, kind="stable"), []
    for part in range(parts.max() + 1):
        own, others = np.flatnonzero(parts == part), np.flatnonzero(parts != part)
        kept = split.take(others)
        answers = _answer(tuning, kept)
        folds = deal_texts(kept, answers)
        solved = _solve(tuning, [every.take(others)], states, answers, folds)
        chosen = _Chosen([every.take(own)], [solved.state], form, 1)
        said.append(solved.head(chosen[0]))
    rows, parted = np.flatnonzero(parts >= 0), parted[parts[parted] >= 0]
    logits = np.concatenate(said)[np.argsort(parted)]
    which, ones = ["training"] * len(rows), np.ones(len(rows))
    return solved, Judged(split.take(rows), which, logits, len(said), logits, 1.0, ones)


def find_form(tuning: Tuning) -> Form:
    """Return the form of the heads that are solved."""
    assert tuning.form is not None, "there are such heads"
    return tuning.form


def read_labelled(
    tuning: Tuning, pooled: Pooled, state: int, parts: int
) -> tuple[np.ndarray, Targets, np.ndarray, np.ndarray]:
    """Return all labelled rows as a head on a state reads them, answers, folds, and other parts.

    These are dealt as the folds are, `parts` of them.
    """
    split = tuning.task.train.join(require_validation(tuning.task))
    answers = _answer(tuning, split)
    rows = _Chosen(list(pooled.splits.values()), [state], find_form(tuning), answers.choices)
    return rows[0], answers, deal_texts(split, answers), deal_texts(split, answers, parts)


def _answer(tuning: Tuning, split: Split) -> Targets:
    return make_targets(split, tuning.task.kind, tuning.task.labels)


def _solve(
    tuning: Tuning,
    pooled: Sequence[States],
    states: Sequence[int],
    answers: Targets,
    folds: np.ndarray,
) -> SolvedHead:
    """Solve a head on each of some states for these answers; states keep their numbers."""
    from layerscout.scores import solve_head

    form = find_form(tuning)
    chosen = _Chosen(pooled, states, form, answers.choices)
    metric, classes = tuning.settings.metric, len(tuning.task.labels) or None
    balanced = tuning.settings.class_weights is not None
    solve = partial(solve_head, chosen, answers.labels, folds, metric=metric, classes=classes)
    solved = follow_first(partial(solve, bias=form.bias, balanced=balanced, tags=answers.tags))
    if solved is None:
        raise UnsolvableError(
            f"no head can be solved for {tuning.task.name}: its {len(answers)} labelled examples "
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
    """Pool the tokens of both splits at every state, or find them in the cache."""
    started, pooling = perf_counter(), find_form(tuning).pooling
    splits, limit = [tuning.training, tuning.validation], tuning.cache_limit
    tokens, encoder = splits[0].tokens + splits[1].tokens, tuning.encoder
    own = fingerprint_encoder(encoder, encoder.blocks) if limit else None
    with make_accelerator().main_process_first():  # the others find them in the cache
        pooled = pool_states(encoder, tokens, (pooling,), limit=limit, fingerprint=own, show=show)
    states, end = pooled.states[pooling], splits[0].tokens.outputs
    parts = {
        "training": states.take(np.arange(end)),
        "validation": states.take(np.arange(end, states.shape[1])),
    }
    warnings = () if pooled.warning is None else (pooled.warning,)
    show("solving the head", 0, 1)
    seconds = perf_counter() - started
    return Pooled(parts, sum(map(len, splits)), seconds, bool(pooled.cached), warnings, own)


def recall(
    encoder: Encoder,
    fingerprint: str,
    form: Form,
    head: tuple[int, LinearHead],
    max_length: int,
    texts: Sequence[str],
) -> tuple[np.ndarray, np.ndarray]:
    """Return which of some texts have states in the cache, and what a solved head says of these.

    Args:
        encoder: that the head was solved for.
        fingerprint: of the encoder.
        form: of the head.
        head: its state, and what was solved.
        max_length: tokens of a text at the most.
        texts: n of them.
    """
    tokens, (state, solved) = encoder.tokenize(texts, max_length=max_length), head
    found, states = find_states(fingerprint, tokens, form.pooling)
    if not len(found):
        return found, np.zeros((0, len(solved.bias)))
    return found, solved(form.read(states[state]))


def deal_texts(split: Split, answers: Targets, groups: int = FOLDS) -> np.ndarray:
    """Deal answers, those of one text or of the same choices together; see `deal`."""
    own = number_texts(split, answers.choices)
    if answers.choices > 1:  # which of them is right is no class
        return deal(np.zeros(len(answers)), own, groups=groups)
    if answers.tags is not None:
        return deal(answers.labels, own[answers.tags.sentences], words=True, groups=groups)
    return deal(answers.labels, own, groups=groups)


def _leave_out_enough(split: Split, folds: np.ndarray) -> np.ndarray:
    """Return folds of rows, (R, n), or of words, of which so many stay as a choice needs."""
    if split.words is None:
        return folds
    return np.where(folds < count_folds(folds.shape[1]), folds, -1)


def count_folds(words: int) -> int:
    """Return how many folds of so many words are enough to choose a head by."""
    return max(2, min(FOLDS, -(-CHOOSING * FOLDS // words)))


def count_deals(examples: int) -> int:
    """Return how often so many examples are dealt into folds."""
    return min(MOST_DEALS, -(-ENOUGH // examples))


def deal(
    labels: np.ndarray, own: np.ndarray, *, words: bool = False, groups: int = FOLDS
) -> np.ndarray:
    """Deal rows into folds, (R, n), several times if they are few.

    Rows with the same number, from 0, stay together. Those with the only number that has a class
    are in no fold; words are in one all the same, since a sentence has many besides.
    """
    from layerscout.scores import count_examples, deal_groups

    deals = range(count_deals(len(labels) if words else int(own.max()) + 1))
    folds = np.stack([deal_groups(labels, n, own, groups=groups, least=0) for n in deals])
    if labels.dtype.kind == "i" and not words:
        only = own[count_examples(labels, own)[labels] == 1]
        folds[:, np.isin(own, only)] = -1
    return folds


def list_parameters(solution: Solution, output: str | None = None) -> dict[str, torch.Tensor]:
    """Return the parameters of the layer that was solved, by their names in the model.

    Args:
        solution: the head.
        output: the name of the layer, where the model has another than the form's.
    """
    head, name = solution.solved.head, output or solution.form.output
    found = {f"{name}.weight": torch.from_numpy(head.weights).float()}
    if solution.form.bias:
        found[f"{name}.bias"] = torch.from_numpy(head.bias).float()
    return found
