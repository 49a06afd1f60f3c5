"""What `scan.json` holds of each score, and what follows from it: the best state, ties, heights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from layerscout.pages.formats import format_entries, start_line
from layerscout.scores import DEFAULT, SCORES

# The scores that may lead a report, the first of them that has a best state.
LEADING = (DEFAULT, "variability_ratio_debiased", "variability_ratio")


def name_score(key: str) -> str:
    """Name a score within a sentence."""
    return SCORES[key].title if key in SCORES else key.replace("_", " ")


def title_score(key: str) -> str:
    """Name a score at the start of a line."""
    return start_line(name_score(key))


def name_entry(score: Mapping[str, Any]) -> str:
    """Say what an entry of a score is: a state or a block."""
    return "block" if score["of"] == "blocks" else "state"


def get_details(score: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the further details of a score; older scans have none."""
    return score.get("details") or {}


def get_refusal(score: Mapping[str, Any]) -> str | None:
    """Say why a score has no values, if it was refused."""
    reason = get_details(score).get("refused")
    return None if reason is None else str(reason)


def list_scores(scan: Mapping[str, Any], of: str) -> list[str]:
    """Give the keys of the scores of states, or of blocks."""
    return [key for key, score in scan["scores"].items() if score["of"] == of]


def choose_leading(scan: Mapping[str, Any]) -> str | None:
    """Choose the score that leads the report: the default, else the first with a best state."""
    keys = [*list_scores(scan, "states"), *list_scores(scan, "blocks")]
    order = [*LEADING, *keys]
    return next((key for key in order if scan["best"].get(key) is not None), None)


def find_tied(scan: Mapping[str, Any], key: str) -> list[int]:
    """Give the states among 1..L that cannot be told apart from the best one."""
    best = scan["best"].get(key)
    apart = get_details(scan["scores"][key]).get("separable_from_best") or ()
    return [
        state
        for state, separable in enumerate(apart)
        if separable is not None and not separable and state not in (0, best)
    ]


def describe_tie(best: int, tied: Iterable[int]) -> str:
    """Say that some states are tied with the best one: the words of scan, plan and page."""
    return f"states {format_entries(sorted((best, *tied)))} are tied within noise"


def group_by_best(scan: Mapping[str, Any], of: str) -> dict[int, list[str]]:
    """Group the scores of states (or blocks) by their best entry, the most frequent one first."""
    groups: dict[int, list[str]] = {}
    for key in list_scores(scan, of):
        best = scan["best"].get(key)
        if best is not None:
            groups.setdefault(best, []).append(key)
    return dict(sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])))


def get_error(scan: Mapping[str, Any], key: str) -> float | None:
    """Give the standard error, or the deviation over heads, of a score at its best entry."""
    best, details = scan["best"].get(key), get_details(scan["scores"][key])
    errors = details.get("standard_error") or details.get("spread")
    if best is None or not errors:
        return None
    value: float | None = errors[best]
    return value


def get_agreement(scan: Mapping[str, Any], of: str) -> Mapping[str, Mapping[str, float | None]]:
    """Give Kendall's τ by two scores of states (or blocks); empty if it was not computed."""
    found = (scan.get("diagnostics") or {}).get(f"agreement_of_{of}") or {}
    table: Mapping[str, Mapping[str, float | None]] = found.get("kendall") or {}
    return table


def get_tau(scan: Mapping[str, Any], one: str, other: str) -> float | None:
    """Look up Kendall's τ of two scores; None for one of states and one of blocks."""
    value: float | None = get_agreement(scan, scan["scores"][one]["of"]).get(one, {}).get(other)
    return value


def get_band(score: Mapping[str, Any]) -> tuple[Sequence[float | None], Sequence[float | None]]:
    """Give the lower and upper ends to shade: the interval, or one deviation over the heads."""
    values, low, high = score["values"], score.get("low") or (), score.get("high") or ()
    if len(low) == len(high) == len(values):
        return low, high
    spread = get_details(score).get("spread") or ()
    if len(spread) != len(values) or all(width is None for width in spread):
        return (), ()
    pairs = list(zip(values, spread, strict=True))
    return (
        [None if value is None or width is None else value - width for value, width in pairs],
        [None if value is None or width is None else value + width for value, width in pairs],
    )


def needs_log(values: Sequence[float]) -> bool:
    """Say whether one entry would flatten all the others on a linear scale."""
    return bool(values) and min(values) > 0 and max(values) > 50 * min(values)


def scale_heights(score: Mapping[str, Any]) -> list[float | None]:
    """Put the values on a scale from 0, the worst entry, to 1, the best, whatever the direction.

    The scale is that of the entries 1..L; entry 0 is clipped to it.
    """
    known = [value for value in score["values"][1:] if value is not None]
    scale = math.log if needs_log(known) else float
    ends = [scale(value) for value in (min(known), max(known))] if known else [0.0, 0.0]
    worst, best = ends if score["better"] == "higher" else ends[::-1]

    def height(value: float | None) -> float | None:
        if value is None or not known:
            return None
        within = scale(min(max(value, min(known)), max(known)))
        return (within - worst) / (best - worst) if best != worst else 0.5

    return [height(value) for value in score["values"]]


def draw_sparkline(
    score: Mapping[str, Any], width: int, marks: str = "▁▂▃▄▅▆▇█", gap: str = " "
) -> str:
    """Draw a curve in one line, higher being better; several entries share a mark if need be.

    Args:
        score: whose values are drawn.
        width: characters at most; a mark then stands for the best of its entries.
        marks: from the worst to the best.
        gap: where nothing is defined.
    """
    heights = scale_heights(score)
    share = math.ceil(len(heights) / width)
    bounds = [*range(0, len(heights), share), len(heights)]
    line = ""
    for start, end in pairwise(bounds):
        known = [height for height in heights[start:end] if height is not None]
        line += marks[min(int(len(marks) * max(known)), len(marks) - 1)] if known else gap
    return line
