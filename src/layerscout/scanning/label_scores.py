"""Scores of examples that may have several labels: label by label, then the mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layerscout.runtime import InputError
from layerscout.scanning.sample import Entry, Sample, refuse_score, score_entry
from layerscout.scores import (
    SCORES,
    Estimate,
    Score,
    State,
    average_labels,
    find_rare_labels,
)

# Entries of one state, by the score's key and by label.
ByLabel = Mapping[str, Mapping[int, Entry]]


@dataclass(frozen=True, eq=False)
class LabelScores:
    """Scores of examples that may have several labels, computed label by label and averaged.

    Attributes:
        rare: by key, the labels that the score is computed without.
        selections: what reads a state for the classes of each other label.
    """

    rare: Mapping[str, tuple[int, ...]]
    selections: Mapping[int, Callable[[State], State]]

    @classmethod
    def of(cls, sample: Sample, keys: Sequence[str]) -> LabelScores:
        """Choose the labels of each score, by key."""
        rare = {
            key: find_rare_labels(sample.labels, sample.examples, SCORES[key].fewest)
            for key in keys
        }
        labels = range(sample.labels.shape[1] if keys else 0)
        asked = [label for label in labels if any(label not in rare[key] for key in keys)]
        return cls(rare, {label: sample.take_label(label) for label in asked})

    def score(self, state: State) -> ByLabel:
        """Compute the scores of one state."""
        found: dict[str, dict[int, Entry]] = {key: {} for key in self.rare}
        for label, select in self.selections.items():
            classes = select(state)
            for key, rare in self.rare.items():
                if label not in rare:
                    found[key][label] = score_entry(key, classes)
        return found

    def average(self, rows: Sequence[ByLabel]) -> dict[str, Score]:
        """Average over the labels that have a value at every state that is scored.

        There is no interval: labels share their examples, and each has groups of its own.

        Args:
            rows: what `score` gave of each state; nothing of states that are not scored.
        """
        return {key: self._average(key, [row.get(key) for row in rows]) for key in self.rare}

    def _average(self, key: str, by_state: Sequence[Mapping[int, Entry] | None]) -> Score:
        blocks, fewest = len(by_state) - 1, max(2, SCORES[key].fewest)
        if set(self.selections) <= set(self.rare[key]):
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
        if self.rare[key]:
            details["left_out"] = list(self.rare[key])
        if undefined:
            details["undefined"] = undefined
        return SCORES[key].score(means, details)
