"""What a scan found, in words: read from the content of `scan.json`, for page and terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from layerscout.scores import DEFAULT, SCORES

# From this signal fraction on, the class means are not what keeps a ratio from being measured.
CLEAR = 0.5

# Where the labels of Fisher information come from.
MODES: Mapping[str, str] = {
    "true": "labels drawn from the model",
    "empirical": "the given labels",
    "as_released": "as the published code computes it",
}


def title(key: str) -> str:
    """Name a score within a sentence."""
    return SCORES[key].title if key in SCORES else key.replace("_", " ")


def heading(key: str) -> str:
    """Name a score at the start of a line."""
    name = title(key)
    return name[:1].upper() + name[1:]


def unit(score: Mapping[str, Any]) -> str:
    """Say what an entry of a score is: a state or a block."""
    return "block" if score["of"] == "blocks" else "state"


def number(value: float | None) -> str:
    """Write a value with four digits."""
    return "–" if value is None else f"{value:#.4g}".removesuffix(".")


def details(score: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give what else a score has to tell; older scans have nothing."""
    return score.get("details") or {}


def refusal(score: Mapping[str, Any]) -> str | None:
    """Say why a score has no values, if it was refused."""
    reason = details(score).get("refused")
    return None if reason is None else str(reason)


def defined(score: Mapping[str, Any]) -> list[float]:
    """Give the values that there are."""
    return [value for value in score["values"] if value is not None]


def stretched(values: Sequence[float]) -> bool:
    """Tell whether one entry would flatten all the others on a linear scale."""
    return bool(values) and min(values) > 0 and max(values) > 50 * min(values)


def heights(score: Mapping[str, Any]) -> list[float | None]:
    """Put the values on a scale from 0, the worst entry, to 1, the best, whatever the direction.

    The scale is that of the entries 1..L; what entry 0 has beyond it is cut off.
    """
    known = [value for value in score["values"][1:] if value is not None]
    scale = math.log if stretched(known) else float
    ends = [scale(value) for value in (min(known), max(known))] if known else [0.0, 0.0]
    worst, best = ends if score["better"] == "higher" else ends[::-1]

    def height(value: float | None) -> float | None:
        if value is None or not known:
            return None
        within = scale(min(max(value, min(known)), max(known)))
        return (within - worst) / (best - worst) if best != worst else 0.5

    return [height(value) for value in score["values"]]


def band(score: Mapping[str, Any]) -> tuple[Sequence[float | None], Sequence[float | None]]:
    """Give the lower and upper ends to shade: the interval, or one deviation over the heads."""
    values, low, high = score["values"], score.get("low") or (), score.get("high") or ()
    if len(low) == len(high) == len(values):
        return low, high
    spread = details(score).get("spread") or ()
    if len(spread) != len(values) or all(width is None for width in spread):
        return (), ()
    pairs = list(zip(values, spread, strict=True))
    return (
        [None if value is None or width is None else value - width for value, width in pairs],
        [None if value is None or width is None else value + width for value, width in pairs],
    )


def of_kind(scan: Mapping[str, Any], of: str) -> list[str]:
    """Give the keys of the scores of states, or of blocks."""
    return [key for key, score in scan["scores"].items() if score["of"] == of]


def leading(scan: Mapping[str, Any]) -> str | None:
    """Choose the score that is spoken of: the default one, else the first with a best state."""
    order = [DEFAULT, "variability_ratio", *of_kind(scan, "states"), *of_kind(scan, "blocks")]
    return next((key for key in order if scan["best"].get(key) is not None), None)


def tied(scan: Mapping[str, Any], key: str) -> list[int]:
    """Give the states among 1..L that cannot be told apart from the best one."""
    best = scan["best"].get(key)
    apart = details(scan["scores"][key]).get("separable_from_best") or ()
    return [
        state
        for state, told in enumerate(apart)
        if told is not None and not told and state not in (0, best)
    ]


def counted(entries: Sequence[int]) -> str:
    """Write numbers in ascending order, those that follow each other as a range: 1, 3–5."""
    starts = [e for e in entries if e - 1 not in entries]
    ends = [e for e in entries if e + 1 not in entries]
    runs = [
        str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}–{b}"
        for a, b in zip(starts, ends, strict=True)
    ]
    return ", ".join(runs)


def no_signal(scan: Mapping[str, Any]) -> str | None:
    """Say that the default score finds no signal anywhere, if that is so."""
    score = scan["scores"].get(DEFAULT)
    if score is None or defined(score) or refusal(score):
        return None
    used, remedy = (
        scan["task"]["examples_used"],
        "--score variability_ratio ranks them all the same",
    )
    if any(share is not None and share > CLEAR for share in details(score)["signal_fraction"]):
        return f"{used:,} examples show that classes lie apart, but not how far; {remedy}"
    return f"No state's classes can be told apart beyond noise with {used:,} examples; {remedy}"


def certainty(scan: Mapping[str, Any], key: str, shown: str = "") -> list[str]:
    """Say how much of the best state is signal, and which others it is not told apart from.

    Args:
        scan: the content of `scan.json`.
        key: of the score.
        shown: how the figure marks the others.
    """
    score, best = scan["scores"][key], scan["best"].get(key)
    if best is None:
        return []
    lines = []
    fractions = details(score).get("signal_fraction")
    if fractions and fractions[best] is not None:
        share = min(fractions[best], 1.0)
        lines.append(
            f"{share:.0%} of the distance between the class means of state {best} is signal, the "
            "rest is noise"
        )
    rest = tied(scan, key)
    if rest:
        states = "State" if len(rest) == 1 else "States"
        lines.append(f"{states} {counted(rest)}{shown} cannot be told apart from state {best}")
    elif told_apart(score, best) and not examples_read(scan):
        lines.append(f"State {best} is told apart from all others")
    if fractions:
        unseen = [s for s, v in enumerate(score["values"]) if v is None and s > 0]
        if unseen:
            states = "State" if len(unseen) == 1 else "States"
            verb = "has" if len(unseen) == 1 else "have"
            lines.append(
                f"{states} {counted(unseen)} {verb} no value: too few examples to measure one"
            )
    return lines


def told_apart(score: Mapping[str, Any], best: int) -> bool:
    """Tell whether every other state 1..L has a value and is told apart from the best one."""
    apart = list(details(score).get("separable_from_best") or ())
    others = apart[1:best] + apart[best + 1 :]
    return bool(others) and all(others)


def best_by(scan: Mapping[str, Any], of: str) -> dict[int, list[str]]:
    """Group the scores of states (or blocks) by their best entry, the commonest one first."""
    groups: dict[int, list[str]] = {}
    for key in of_kind(scan, of):
        best = scan["best"].get(key)
        if best is not None:
            groups.setdefault(best, []).append(key)
    return dict(sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])))


def tau(scan: Mapping[str, Any], one: str, other: str) -> float | None:
    """Look up Kendall's τ of two scores; None for one of states and one of blocks."""
    value: float | None = agreement(scan, scan["scores"][one]["of"]).get(one, {}).get(other)
    return value


def agreement(scan: Mapping[str, Any], of: str) -> Mapping[str, Mapping[str, float | None]]:
    """Give Kendall's τ by two scores of states (or blocks); empty where there is none."""
    found = (scan.get("diagnostics") or {}).get(f"agreement_of_{of}") or {}
    table: Mapping[str, Mapping[str, float | None]] = found.get("kendall") or {}
    return table


def examples_read(scan: Mapping[str, Any]) -> str | None:
    """Say why so many examples were read, if they were counted by what they show."""
    because, task = scan["settings"].get("examples_because"), scan["task"]
    if because is None:
        return None
    return f"{task['examples_used']:,} of {task['examples_available']:,} examples: {because}"


def notes(scan: Mapping[str, Any], key: str) -> list[str]:
    """Say what the reader of one score should know: refused, undefined, or how it was computed."""
    score = scan["scores"][key]
    told, values = details(score), score["values"]
    if reason := refusal(score):
        return [f"refused: {reason}"]
    found = []
    # State 0 of the first token is the same everywhere, and there is no block 0.
    missing = [entry for entry in range(1, len(values)) if values[entry] is None]
    if len(missing) == len(values) - 1:
        found.append("undefined everywhere")
    elif missing:
        plural = "s" if len(missing) > 1 else ""
        found.append(f"undefined at {unit(score)}{plural} {counted(missing)}")
    if told.get("majority") is not None:
        found.append(f"the majority class alone: {number(told['majority'])}")
    if told.get("mode") is not None:
        found.append(MODES.get(told["mode"], str(told["mode"])))
    error = deviation(scan, key)
    if error is not None:
        found.append(f"±{error:.2g} at the best")
    return [*found, *map(str, told.get("notes") or ())]


def deviation(scan: Mapping[str, Any], key: str) -> float | None:
    """Give the standard error, or the deviation over heads, of a score at its best entry."""
    best, told = scan["best"].get(key), details(scan["scores"][key])
    errors = told.get("standard_error") or told.get("spread")
    if best is None or not errors:
        return None
    value: float | None = errors[best]
    return value


def sparkline(score: Mapping[str, Any], width: int, marks: str = "▁▂▃▄▅▆▇█", gap: str = " ") -> str:
    """Draw a curve in one line, higher being better; several entries share a mark if need be.

    Args:
        score: whose values are drawn.
        width: characters at most; a mark then stands for the best of its entries.
        marks: from the worst to the best.
        gap: where nothing is defined.
    """
    found = heights(score)
    share = math.ceil(len(found) / width)
    bounds = [*range(0, len(found), share), len(found)]
    line = ""
    for start, end in pairwise(bounds):
        known = [height for height in found[start:end] if height is not None]
        line += marks[min(int(len(marks) * max(known)), len(marks) - 1)] if known else gap
    return line


# The share of what a model has above the commonest class that it may lose by being cut.
LOST = 0.02

# What a truncation curve is of, as Phang et al. 2021 call it and in words.
CURVES: Mapping[str, str] = {
    "untuned": "UNTUNED: head as it was",
    "tuned": "TUNED: head tuned again",
    "tuned_original": "TUNEDORIG: untuned model",
}


def short_names(content: Mapping[str, Any]) -> list[str]:
    """Name the models of a comparison by as many last parts of their names as tell them apart."""
    paths = [PurePath(str(model["name"])).parts for model in content["models"]]
    # What `tune` writes is called model; the folder around it says more.
    paths = [path[:-1] if path[-1:] == ("model",) and len(path) > 1 else path for path in paths]
    names: list[str] = []
    for parts in range(1, max(map(len, paths)) + 1):
        names = ["/".join(path[-parts:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    if len(set(names)) < len(names):  # one of them is there twice
        return [f"{number}. {name}" for number, name in enumerate(names, start=1)]
    return names


def map_names(content: Mapping[str, Any]) -> list[str]:
    """Name the maps of a comparison."""
    names = short_names(content)
    pairs = [one["of"] for one in content["maps"]]
    return [names[i] if i == j else f"{names[i]} and {names[j]}" for i, j in pairs]


def split_lines(content: Mapping[str, Any]) -> list[str]:
    """Say of each model of a comparison where its states fall into two clusters, and how far."""
    lines = []
    for name, found, model in zip(
        short_names(content), content["clusters"], content["models"], strict=True
    ):
        one, debiased = found["cka"], found["cka_debiased"]
        if one is None:
            lines.append(f"{name}: too few states vary to look for clusters")
            continue
        first = 1 if content["pooling"] == "cls" else 0
        spans = f"states {first} to {one['split']} and {one['split'] + 1} to {model['blocks']}"
        told = (
            f"CKA {one['lower']:.2f} and {one['upper']:.2f} within them and {one['between']:.2f} "
            f"between, contrast {one['contrast']:.2f}"
        )
        told += "" if debiased is None else f" (debiased {debiased['contrast']:.2f})"
        if min(one["lower"], one["upper"]) > one["between"]:
            lines.append(f"{name}: {spans} are the two clusters that differ most, {told}")
        else:
            lines.append(f"{name}: no two clusters; the best split, {spans}, has {told}")
    return lines


def evaluation_lines(content: Mapping[str, Any]) -> list[str]:
    """Say in words what an evaluation found."""
    metric, name = content["metric"], content["metric"].replace("_", " ")
    whole, majority = content["metrics"][metric], content["majority"] or 0.0
    lines = [f"The whole model: {name} {number(whole)}"]
    if content["task"]["kind"] == "classification":
        lines[0] += f"; always the commonest class has {number(majority)}"
    if whole <= majority:
        return [*lines, "It has learnt nothing of the task, so what is left of it says nothing"]
    if curve := content["truncation"].get("untuned"):
        shortest = _shortest(curve, whole - LOST * (whole - majority))
        top = len(curve) - 1
        if shortest < top:
            blocks = "top block" if shortest == top - 1 else f"{top - shortest} top blocks"
            lines.append(
                f"With the head as it was tuned, the {blocks} can go and {name} is still "
                f"{number(curve[shortest])}"
            )
        else:
            lines.append(
                f"With the head as it was tuned, no top block can go: without block {top} {name} "
                f"is {number(curve[top - 1])}"
            )
    singles = [
        (line[i], i + 1) for i, line in enumerate(content["skips"] or ()) if line[i] is not None
    ]
    if len(singles) > 1:
        (low, worst), (high, least) = min(singles), max(singles)
        lines.append(
            f"Without a single one of its blocks {name} lies between {number(low)} (block {worst}) "
            f"and {number(high)} (block {least})"
        )
    return lines


def _shortest(curve: Sequence[float | None], enough: float) -> int:
    """Give the lowest state from which on all have enough."""
    top = len(curve) - 1
    while top > 0 and (value := curve[top - 1]) is not None and value >= enough:
        top -= 1
    return top
