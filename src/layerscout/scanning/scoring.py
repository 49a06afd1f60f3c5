"""Scoring the kept states of an encoder, several at once, and how far the best one is decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int64

from layerscout.data import name_some
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
    map_at_once,
    measure_gaps,
)
from layerscout.states import States

# An entry of a score: its value, alone or with its replicates, None where it is undefined, or why
# the whole score is refused.
Entry = Estimate | float | InputError | None

# The entries of a state: by score, and by the label, or the classes left out, of the examples.
Row = dict[tuple[str, int | tuple[int, ...]], Entry]


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
        rows: of the states that were read, (n,); None for all.
    """

    labels: np.ndarray
    groups: Int64[np.ndarray, " n"]
    seed: int
    examples: Int64[np.ndarray, " n"] | None
    first: int
    metric: str | None = None
    picks: bool = False
    clusters: int | None = None
    rows: Int64[np.ndarray, " n"] | None = None

    def read(self, states: States, s: int) -> np.ndarray | None:
        """Read state s; None if it is not scored or holds values that are not finite."""
        state = states[s] if s >= self.first else None
        return None if state is None or not np.isfinite(state).all() else state

    def state(self, read: np.ndarray) -> State:
        """Return a state that was read with what belongs to it."""
        return State(
            read if self.rows is None else read[self.rows],
            self.labels,
            self.groups,
            self.seed,
            self.examples,
            self.metric,
            self.picks,
            self.clusters,
        )

    def leave_out(self, classes: Sequence[int]) -> Sample:
        """Return the sample without some classes.

        The others are numbered anew, and their examples dealt into groups anew.
        """
        if not classes:
            return self
        rows = np.flatnonzero(~np.isin(self.labels, classes))
        labels = np.unique(self.labels[rows], return_inverse=True)[1].reshape(-1)
        examples = None if self.examples is None else self.examples[rows]
        groups = deal_groups(labels, self.seed, examples)
        return replace(self, labels=labels, groups=groups, examples=examples, rows=rows)

    def take_label(self, label: int) -> Sample:
        """Return the sample with the classes of having a label, 1, or not, 0."""
        labels = self.labels[:, label].astype(np.int64)
        groups = deal_groups(labels, self.seed, self.examples)
        return replace(self, labels=labels, groups=groups, metric=None)


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
    part = sample.leave_out(left_out)

    def estimate(s: int) -> Estimate | None:
        state = sample.read(states, s)
        entry = None if state is None else score_entry(key, part.state(state))
        if isinstance(entry, InputError):
            raise entry
        return entry if isinstance(entry, Estimate) else None

    return list(map_at_once(estimate, range(len(states))))


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
    rare: dict[str, tuple[int, ...]] = {}
    # The scores of each part of the sample: of a label, or of all classes but the rare ones.
    wanted: dict[int | tuple[int, ...], list[str]] = {}
    labels: dict[str, list[int]] = {}
    for key in of_states:
        find = find_rare_labels if key in by_label else find_rare
        rare[key] = find(sample.labels, sample.examples, SCORES[key].fewest)
        if key in by_label:
            labels[key] = [k for k in range(sample.labels.shape[1]) if k not in rare[key]]
        if key not in known:
            for part in labels.get(key, [rare[key]]):
                wanted.setdefault(part, []).append(key)
    parts = {
        part: sample.take_label(part) if isinstance(part, int) else sample.leave_out(part)
        for part in wanted
    }

    def score_state(s: int) -> Row | None:
        read = sample.read(states, s)
        if read is None:
            return None
        entries: Row = {}
        for part, of_part in parts.items():
            state = of_part.state(read)  # which scores share, as they do what they compute of it
            entries |= {(key, part): score_entry(key, state) for key in wanted[part]}
        return entries

    rows = []
    for row in map_at_once(score_state, range(len(states))):
        rows.append(row)
        if progress:
            progress(len(rows), len(states))
    broken = [s for s, row in enumerate(rows) if row is None and s >= sample.first]
    scores = {}
    for key in of_states:
        if key in by_label:
            scores[key] = _average_labels(key, rows, labels[key], rare[key])
        else:
            computed = (None if row is None else row[key, rare[key]] for row in rows)
            scores[key] = _score(key, known.get(key) or list(computed), looks, rare[key])
    for key in keys:
        if SCORES[key].source == "states" and broken:
            reason = InputError(f"states {broken} hold values that are not finite")
            scores[key] = refuse_score(key, len(states) - 1, reason)
        elif SCORES[key].source == "states":
            scores[key] = SCORES[key].of_blocks(states, sample.first)
    return scores, broken


def score_moments(
    moments: Moments, keys: Sequence[str], pooling: Pooling, left_out: Sequence[int] = ()
) -> tuple[dict[str, Score], list[int]]:
    """Compute scores of the source "moments", for which some classes may have been left out.

    Returns:
        The scores, and the states that hold values that are not finite.
    """
    scores = {key: SCORES[key].of_moments(moments) for key in keys}
    if left_out:
        details = {"left_out": list(left_out)}
        scores = {key: replace(score, details=details) for key, score in scores.items()}
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

    def list_names(numbers: Sequence[int]) -> str:
        return name_some([names[k] for k in numbers])

    either = any("labels" in score.details for score in scores.values())
    for key, score in scores.items():
        if score.details.get("left_out"):
            few.setdefault(max(2, SCORES[key].fewest), []).append(key)
    left_out = [
        f"{list_names(scores[keys[0]].details['left_out'])} from {', '.join(keys)} (fewer "
        f"than {fewest}{' with the label, or without' if either else ''})"
        for fewest, keys in sorted(few.items())
    ]
    undefined = [
        f"{list_names(score.details['undefined'])} from {key}"
        for key, score in scores.items()
        if "undefined" in score.details
    ]
    warnings = []
    if left_out:
        warnings.append(
            f"{what} with too few examples were left out: {'; '.join(left_out)}; use more examples"
            f"{', or other scores, which need fewer' if max(few) > 2 else ''}"
        )
    if undefined:
        warnings.append(
            f"labels that have no value at some state were left out: {'; '.join(undefined)}; use "
            "more examples"
        )
    return warnings


def _average_labels(
    key: str, rows: Sequence[Row | None], labels: Sequence[int], rare: Sequence[int]
) -> Score:
    """Average a score over the labels that have a value at every state that is scored.

    There is no interval: labels share their examples, and each has groups of its own.

    Args:
        key: of the score.
        rows: the entries of each state; None for states that are not scored.
        labels: that it is computed of.
        rare: the others.
    """
    blocks, fewest = len(rows) - 1, max(2, SCORES[key].fewest)
    if not labels:
        reason = InputError(
            f"no label has {fewest} or more examples with it and as many without it; use more"
        )
        return refuse_score(key, blocks, reason)
    by_state: list[dict[int, float | None] | None] = []
    for row in rows:
        entries = {label: row[key, label] for label in labels} if row else {}
        for entry in entries.values():
            if isinstance(entry, InputError):
                return refuse_score(key, blocks, entry)
        by_state.append({k: _value_of(entry) for k, entry in entries.items()} or None)
    means, defined, undefined = average_labels(by_state)
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
    for entry in entries:
        if isinstance(entry, InputError):
            return refuse_score(key, len(entries) - 1, entry)
    values = [_value_of(entry) for entry in entries]
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


def _value_of(entry: Any) -> float | None:
    value: float | None = entry.value if isinstance(entry, Estimate) else entry
    return value
