"""What the examples of a scan have in common, and one score of one of their states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from layerscout.cache import States
from layerscout.runtime import InputError
from layerscout.scores import SCORES, Estimate, Score, State, deal_groups

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

    @property
    def several(self) -> bool:
        """Whether an example may have several labels."""
        return self.labels.dtype.kind == "b"

    def state(self, states: States, s: int) -> State | None:
        """Give state s; None if it is not scored or holds values that are not finite."""
        if s < self.first:
            return None
        found = states[s]
        if not np.isfinite(found).all():
            return None
        return State(
            found,
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
        return row.of_state(state) if row.jackknife is None else row.jackknife(state)
    except InputError as reason:
        return reason
    except np.linalg.LinAlgError:  # which odd states may drive a decomposition to
        return None


def refuse_score(key: str, blocks: int, reason: InputError) -> Score:
    """Make the score that has no values and says why."""
    return SCORES[key].score([None] * (blocks + 1), {"refused": str(reason)})
