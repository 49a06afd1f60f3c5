"""Scoring the kept states of an encoder, several at once, and how far the best one is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Int64

from layerscout.errors import InputError
from layerscout.plans import Pooling, choose_head_state, first_state
from layerscout.scores import (
    SCORES,
    Debiased,
    Estimate,
    Moments,
    Quality,
    Score,
    State,
    average_labels,
    deal_groups,
    find_rare,
    find_rare_labels,
    find_separable,
    measure_gaps,
)
from layerscout.states import States

# Names of rare classes that a warning lists for a score.
NAMED = 5

T = TypeVar("T")

# An entry of a score: its value, alone or with its replicates, None where it is undefined, or why
# the whole score is refused.
Entry = Estimate | float | InputError | None


@dataclass(frozen=True, eq=False)
class Sample:
    """What the examples of a scan have in common, whatever the state.

    Attributes:
        labels: class ids, int64 (n,), or targets, float64 (n,), or which of K labels each example
            has, bool (n, K).
        groups: (n,), the groups of `grouping.deal_groups`.
        seed: of what a score draws.
        examples: (n,), or None; rows with the same number are the choices of one example.
        first: the first state that is scored: 1 where state 0 is the same for every example.
        metric: of the task.
        picks: the rows are choices, and the metric is of the ones picked.
        clusters: as for `mutual_information`.
    """

    labels: np.ndarray
    groups: Int64[np.ndarray, " n"]
    seed: int
    examples: Int64[np.ndarray, " n"] | None
    first: int
    metric: str | None = None
    picks: bool = False
    clusters: int | None = None

    def state(self, states: States, s: int) -> State | None:
        """Return state s; None if it is not scored or holds values that are not finite."""
        if s < self.first:
            return None
        array = states[s]
        if not np.isfinite(array).all():
            return None
        return State(
            array,
            self.labels,
            self.groups,
            self.seed,
            self.examples,
            self.metric,
            self.picks,
            self.clusters,
        )

    def leave_out(self, classes: Sequence[int]) -> Callable[[State], State]:
        """Make what takes the rows of some classes out of a state of the sample.

        The other classes are numbered anew, and their examples dealt into groups anew. Without
        classes it gives the state itself, so that scores share what they compute of it.
        """
        if not classes:
            return lambda state: state
        rows = np.flatnonzero(~np.isin(self.labels, classes))
        labels = np.unique(self.labels[rows], return_inverse=True)[1].reshape(-1)
        examples = None if self.examples is None else self.examples[rows]
        groups = deal_groups(labels, self.seed, examples)
        return lambda state: replace(
            state, states=state.states[rows], labels=labels, groups=groups, examples=examples
        )

    def take_label(self, label: int) -> Callable[[State], State]:
        """Make what reads a state of the sample for the classes of having a label, 1, or not, 0."""
        labels = self.labels[:, label].astype(np.int64)
        groups = deal_groups(labels, self.seed, self.examples)
        return lambda state: replace(state, labels=labels, groups=groups, metric=None)


def score_entry(key: str, state: State) -> Entry:
    """Compute a score of one state."""
    row = SCORES[key]
    try:
        return row.compute(state) if row.jackknife else row.of_state(state)
    except InputError as reason:
        return reason
    except np.linalg.LinAlgError:  # which odd states may drive a decomposition to
        return None


def refuse_score(key: str, blocks: int, reason: InputError) -> Score:
    """Make the score that has no values and says why."""
    return SCORES[key].score([None] * (blocks + 1), {"refused": str(reason)})


def estimate_states(
    key: str, states: States, sample: Sample, left_out: Sequence[int] = ()
) -> list[Estimate | None]:
    """Compute a score that has jackknife replicates; None for states that are not scored.

    Args:
        key: of the score.
        states: the kept states.
        sample: what belongs to them.
        left_out: the classes whose examples do not count.

    Raises:
        InputError: if another class has too few examples for it.
    """
    select = sample.leave_out(left_out)

    def estimate(s: int) -> Estimate | None:
        state = sample.state(states, s)
        entry = None if state is None else score_entry(key, select(state))
        if isinstance(entry, InputError):
            raise entry
        return entry if isinstance(entry, Estimate) else None

    return list(_map_states(states, estimate))


def score_states(
    states: States,
    sample: Sample,
    keys: Sequence[str],
    *,
    looks: int = 1,
    known: Mapping[str, Sequence[Estimate | None]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[str, Score], list[int]]:
    """Compute the scores of the sources "moments", "state" and "states".

    A score is computed without the classes that have too few examples for it, which its details
    name, as long as two others are left. Where examples have several labels, most scores are means
    over these, of the classes of having a label or not, without the labels that have too few
    examples of either, or no value at some state. One that refuses all the same does not keep the
    others from being computed: its values are all None, and its details say why.

    Args:
        states: the kept states.
        sample: what belongs to them.
        keys: of the scores.
        looks: how often the examples were looked at before there were enough.
        known: by key, what `estimate_states` gave of these states already.
        progress: called with the states done and all states.

    Returns:
        The scores, and the states that hold values that are not finite, which none of them scores.
    """
    known = known or {}
    of_states = [key for key in keys if SCORES[key].source in ("moments", "state")]
    several = sample.labels.dtype.kind == "b"
    by_label = [key for key in of_states if several and not SCORES[key].together]
    single = [key for key in of_states if key not in by_label]
    find = {key: find_rare_labels if key in by_label else find_rare for key in of_states}
    rare = {key: find[key](sample.labels, sample.examples, SCORES[key].fewest) for key in of_states}
    left_out = {rare[key] for key in single if key not in known}
    selections = {classes: sample.leave_out(classes) for classes in left_out}
    labels = {
        label: sample.take_label(label)
        for label in range(sample.labels.shape[1] if by_label else 0)
        if any(label not in rare[key] for key in by_label)
    }

    def score_state(s: int) -> Mapping[str, Any]:
        state = sample.state(states, s)
        if state is None:
            if s >= sample.first:
                broken.append(s)
            return {}
        parts = {classes: select(state) for classes, select in selections.items()}
        entries: dict[str, Any] = {
            key: known[key][s] if key in known else score_entry(key, parts[rare[key]])
            for key in single
        }
        for label, select in labels.items():
            classes_of_label = select(state)
            for key in by_label:
                if label not in rare[key]:
                    entry = score_entry(key, classes_of_label)
                    entries.setdefault(key, {})[label] = entry
        return entries

    broken: list[int] = []
    rows: list[Mapping[str, Any]] = []
    for row in _map_states(states, score_state):
        rows.append(row)
        if progress:
            progress(len(rows), len(states))
    scores = {key: _score(key, [row.get(key) for row in rows], looks, rare[key]) for key in single}
    for key in by_label:
        by_state = [row.get(key) for row in rows]
        scores[key] = _average_labels(key, by_state, rare[key], sample.labels.shape[1])
    for key in keys:
        if SCORES[key].source != "states":
            continue
        if broken:
            reason = InputError(f"states {sorted(broken)} hold values that are not finite")
            scores[key] = refuse_score(key, len(states) - 1, reason)
        else:
            scores[key] = SCORES[key].of_blocks(states, sample.first)
    return scores, sorted(broken)


def score_moments(
    moments: Moments, keys: Sequence[str], pooling: Pooling
) -> tuple[dict[str, Score], list[int]]:
    """Compute scores of the source "moments".

    Returns:
        The scores, and the states that hold values that are not finite.
    """
    scores = {key: SCORES[key].of_moments(moments) for key in keys}
    if first_state(pooling) > 0:
        scores = {key: score.without_embeddings() for key, score in scores.items()}
    finite = moments.total.isfinite().all(dim=2).all(dim=1)
    return scores, (~finite).nonzero().flatten().tolist()


def warn_of_rare_classes(
    scores: Mapping[str, Score], names: Sequence[str], what: str = "classes"
) -> list[str]:
    """Warn once of all classes, or labels, that scores were computed without; nothing if of none.

    Args:
        scores: by key.
        names: of the classes or labels.
        what: the word for them.
    """
    few: dict[int, list[str]] = {}
    without: list[str] = []
    several = any("labels" in score.details for score in scores.values())
    for key, score in scores.items():
        if score.details.get("left_out"):
            few.setdefault(max(1 + several, SCORES[key].fewest), []).append(key)
        if several and (undefined := score.details.get("undefined")):
            without.append(f"{_list_names(names, undefined)} from {key}")
    parts = [
        f"{_list_names(names, scores[keys[0]].details['left_out'])} from {', '.join(keys)} (fewer "
        f"than {fewest}{' with the label, or without' if several else ''})"
        for fewest, keys in sorted(few.items())
    ]
    warnings = []
    if parts:
        warnings.append(
            f"{what} with too few examples were left out: {'; '.join(parts)}; use more examples, "
            f"or other scores, which use all {what}"
        )
    if without:
        warnings.append(
            f"labels that have no value at some state were left out: {'; '.join(without)}; use "
            "more examples"
        )
    return warnings


def _list_names(names: Sequence[str], numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - NAMED} more" if len(numbers) > NAMED else ""
    return ", ".join(repr(names[k]) for k in numbers[:NAMED]) + more


def _average_labels(
    key: str, by_state: Sequence[Mapping[int, Entry] | None], rare: Sequence[int], labels: int
) -> Score:
    """Average a score over the labels that have a value at every state that is scored.

    There is no interval: labels share their examples, and each has groups of its own.

    Args:
        key: of the score.
        by_state: the entries of each label that is not rare; None for states without a score.
        rare: the labels that it is computed without.
        labels: how many there are.
    """
    blocks, fewest = len(by_state) - 1, max(2, SCORES[key].fewest)
    if len(rare) == labels:
        reason = InputError(
            f"no label has {fewest} or more examples with it and as many without it; use more"
        )
        return refuse_score(key, blocks, reason)
    values: list[dict[int, float | None] | None] = []
    for entries in by_state:
        known: dict[int, float | None] = {}
        for label, entry in (entries or {}).items():
            if isinstance(entry, InputError):
                return refuse_score(key, blocks, entry)
            known[label] = entry.value if isinstance(entry, Estimate) else entry
        values.append(None if entries is None else known)
    means, defined, undefined = average_labels(values)
    if undefined and not defined:
        reason = InputError("no label has a value at every state; use more examples")
        return refuse_score(key, blocks, reason)
    details: dict[str, Any] = {"labels": len(defined)}
    if rare:
        details["left_out"] = list(rare)
    if undefined:
        details["undefined"] = undefined
    return SCORES[key].score(means, details)


def _score(key: str, entries: Sequence[Entry], looks: int, left_out: Sequence[int]) -> Score:
    """Make a score of its values; with intervals, and what is tied, where there are replicates."""
    values: list[float | None] = []
    for entry in entries:
        if isinstance(entry, InputError):
            return refuse_score(key, len(entries) - 1, entry)
        values.append(entry.value if isinstance(entry, Estimate) else entry)
    score = SCORES[key].score(values, {"left_out": list(left_out)} if left_out else None)
    if not SCORES[key].jackknife:
        return score
    results = [entry if isinstance(entry, Estimate) else None for entry in entries]
    ends = [(None, None) if r is None else r.interval() for r in results]
    best = score.best()
    details: dict[str, Any] = {**score.details, "level": 0.95}
    if any(isinstance(r, Debiased) for r in results):
        details["signal_fraction"] = [getattr(r, "signal_fraction", None) for r in results]
    heads = [r for r in results if isinstance(r, Quality) and r.value is not None]
    if best is not None:
        apart = details["separable_from_best"] = find_separable(results, best, looks)
        tied = [s for s in range(1, len(apart)) if apart[s] is False]
        named = choose_head_state(len(apart) - 1, best, tied)
        details["named"] = best if score.values[named] is None else named
        if heads:  # in points of the metric, by which a state may fall behind
            details |= {"metric": heads[0].metric, "majority": heads[0].majority}
            for name, state in (("behind_best", best), ("behind_named", details["named"])):
                gaps = measure_gaps(results, state, looks)
                details[name] = [gap and [gap.difference, gap.half_width] for gap in gaps]
    low, high = zip(*ends, strict=True)
    return replace(score, low=low, high=high, details=details)


def _map_states(states: States, score: Callable[[int], T]) -> Iterator[T]:
    """Yield `score(s)` for every state in order, on as many threads as torch uses.

    The products of a single state are too small for several threads; several states are not.
    """
    from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    own: Any = {"initializer": torch.set_num_threads, "initargs": (1,)}  # of each thread
    try:
        with threadpool_limits(1), ThreadPoolExecutor(min(threads, len(states)), **own) as pool:
            yield from pool.map(score, range(len(states)))
    finally:
        torch.set_num_threads(threads)  # what threads that start later will have, too
