"""Scoring the kept states of an encoder, several at once, and how far the best one is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Int64

from layerscout.cache import States
from layerscout.runtime import InputError
from layerscout.scores import (
    DEFAULT,
    SCORES,
    Debiased,
    Score,
    State,
    cka_change,
    interval,
    separable,
    small_sample_warning,
)

# An entry of a score: its value, None where it is undefined, or why the whole score is refused.
Entry = float | InputError | None

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Sample:
    """What the examples of a scan have in common, whatever the state.

    Attributes:
        labels: class ids, int64 (n,), or targets, float64 (n,).
        groups: (n,), the groups of `variability.stratified_groups`.
        seed: of what a score draws.
        examples: (n,), or None; rows with the same number are the choices of one example.
        first: the first state that is scored: 1 where state 0 is the same for every example.
    """

    labels: np.ndarray
    groups: Int64[np.ndarray, " n"]
    seed: int
    examples: Int64[np.ndarray, " n"] | None
    first: int

    def state(self, states: States, s: int) -> State | None:
        """Give state s; None if it is not scored or holds values that are not finite."""
        if s < self.first:
            return None
        found = states[s]
        if not np.isfinite(found).all():
            return None
        return State(found, self.labels, self.groups, self.seed, self.examples)


def debiased_states(states: States, sample: Sample) -> list[Debiased | None]:
    """Compute the debiased ν of every state; None for those that are not scored.

    Raises:
        InputError: if a class has too few examples for it.
    """

    def one(s: int) -> Debiased | None:
        state = sample.state(states, s)
        return None if state is None else state.debiased

    return list(_over_states(states, one))


def score_states(
    states: States,
    sample: Sample,
    keys: Sequence[str],
    *,
    looks: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[str, Score], list[int]]:
    """Compute the scores of the sources "moments", "state" and "states".

    A score that refuses these examples does not keep the others from being computed: its values
    are all None, and its details say why.

    Args:
        states: the kept states.
        sample: what belongs to them.
        keys: of the scores.
        looks: how often the examples were looked at before there were enough.
        progress: called with the states done and all states.

    Returns:
        The scores, and the states that hold values that are not finite, which none of them scores.
    """
    single = [key for key in keys if SCORES[key].source in ("moments", "state")]

    def one(s: int) -> tuple[dict[str, Entry], Debiased | None]:
        state = sample.state(states, s)
        if state is None:
            if s >= sample.first:
                broken.append(s)
            return dict.fromkeys(single), None
        entries = {key: _entry(key, state) for key in single}
        kept = DEFAULT in single and not isinstance(entries[DEFAULT], InputError)
        return entries, state.debiased if kept else None

    broken: list[int] = []
    rows: list[dict[str, Entry]] = []
    results: list[Debiased | None] = []
    for entries, result in _over_states(states, one):
        rows.append(entries)
        results.append(result)
        if progress:
            progress(len(rows), len(states))
    scores = {key: _score(key, [row[key] for row in rows]) for key in single}
    if DEFAULT in scores and "refused" not in scores[DEFAULT].details:
        scores[DEFAULT] = _with_intervals(scores[DEFAULT], results, looks)
    if "cka_change" in keys:
        scores["cka_change"] = _changes(states, sample, broken)
    return scores, sorted(broken)


def refused(key: str, blocks: int, reason: InputError) -> Score:
    """Make the score that has no values and says why."""
    return _score(key, [reason] * (blocks + 1))


def _entry(key: str, state: State) -> Entry:
    try:
        return SCORES[key].of_state(state)
    except InputError as reason:
        return reason
    except np.linalg.LinAlgError:  # which odd states may drive a decomposition to
        return None


def _score(key: str, entries: Sequence[Entry]) -> Score:
    reason = next((entry for entry in entries if isinstance(entry, InputError)), None)
    values = tuple(None if isinstance(entry, InputError) or reason else entry for entry in entries)
    details = {} if reason is None else {"refused": str(reason)}
    return Score(SCORES[key].of, SCORES[key].better, values, details=details)


def _with_intervals(score: Score, results: Sequence[Debiased | None], looks: int) -> Score:
    ends = [(None, None) if r is None or r.value is None else interval(r) for r in results]
    best = score.best()
    details: dict[str, Any] = {
        "signal_fraction": [None if r is None else r.signal_fraction for r in results],
        "level": 0.95,
    }
    if best is not None:
        details["separable_from_best"] = separable(results, best, looks)
    return Score(
        score.of,
        score.better,
        score.values,
        tuple(low for low, _ in ends),
        tuple(high for _, high in ends),
        details,
    )


def _changes(states: States, sample: Sample, broken: Sequence[int]) -> Score:
    if broken:
        reason = InputError(f"states {sorted(broken)} hold values that are not finite")
        return refused("cka_change", len(states) - 1, reason)
    _, n, d = states.shape
    change = cka_change(states)
    # Where state 0 is the same for every example, block 1 has no change.
    blank = [None] * (sample.first + 1)
    biased, debiased = ([*blank, *each[len(blank) :]] for each in (change.values, change.debiased))
    note = small_sample_warning(n, d)
    details = {"debiased": debiased} | ({} if note is None else {"warnings": [note]})
    return Score("blocks", "higher", tuple(biased), details=details)


def _over_states(states: States, one: Callable[[int], T]) -> Iterator[T]:
    """Yield `one(s)` for every state in order, on as many threads as torch uses.

    The products of a single state are too small for several threads; several states are not.
    """
    threads = min(torch.get_num_threads(), len(states))
    with _single_threaded(), ThreadPoolExecutor(threads, initializer=_alone) as pool:
        yield from pool.map(one, range(len(states)))


def _alone() -> None:
    torch.set_num_threads(1)  # of this thread only


@contextmanager
def _single_threaded() -> Iterator[None]:
    from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(threads)  # what threads that start later will have, too
