"""What an evaluation found (the content of `evaluate.json`), in words and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from layerscout.data import REPEATED, name_metric
from layerscout.reporting.content import Table
from layerscout.reporting.words import (
    describe_interval,
    format_decimals,
    format_number,
    format_state,
    name_constant_answer,
    name_label,
    name_measure,
    start_line,
)

# What a truncation curve shows: UNTUNED, TUNED and TUNEDORIG of Phang et al. 2021. Their first
# name is that of the head alone, and beside an untuned model it misleads.
TRUNCATIONS: Mapping[str, str] = {
    "untuned": "tuned head, unchanged",
    "tuned": "head tuned again at each state",
    "tuned_original": "untuned model, head tuned at each state",
}
# The share of what a model has above the majority baseline that it may lose by being truncated.
LOST = 0.02
# Where the best epoch came before this share of them, training for longer cannot help.
EARLY = 2 / 3
# What is left after an edit of a model that has learnt nothing.
_SO = "so what is left after an edit says nothing."
UNCLEAR = f"It is not clearly better than always giving the same answer, {_SO}"


def describe_evaluation(content: Mapping[str, Any]) -> list[str]:
    """Say in words what an evaluation found."""
    metric, name = content["metric"], name_measure(content)
    whole, majority = content["metrics"][metric], content["majority"] or 0.0
    first = f"The whole model: {name} {format_number(whole)}"
    kind = content["task"]["kind"]
    if interval := describe_interval(content):
        first += f" ({interval})"
    if content["majority"] is not None and kind != "regression":
        first += (
            f"; always predicting {name_constant_answer(kind)} scores {format_number(majority)}"
        )
    seen = content.get("seen")
    if seen and _only_chose(seen, content["task"]["examples_used"]):
        first += "; tuning chose by these rows, which flatters the figures a little"
    if failure := find_failure(content):
        advice = advise_more_rows(content)
        return [f"{first}.", failure, *([] if advice is None else [advice])]
    return [f"{first}.", *_describe_truncation(content), *_describe_skips(content)]


def _only_chose(seen: Mapping[str, int], rows: int) -> bool:
    """Return whether a tuning chose by these rows; if it trained on them, a warning says so."""
    return seen["chosen"] > REPEATED * rows >= seen["training"]


def find_failure(content: Mapping[str, Any]) -> str | None:
    """Say that a model has learnt nothing, or not so that it could be seen; None if it has."""
    whole, majority = content["metrics"][content["metric"]], content["majority"] or 0.0
    confusion = content.get("confusion") or []
    predicted = [n for n, column in enumerate(zip(*confusion, strict=True)) if any(column)]
    if len(predicted) == 1 and sum(map(any, confusion)) > 1:
        one = content["task"]["labels"][predicted[0]]
        return f"It predicts {one!r:.60} for everything and has not learnt the task, {_SO}"
    if whole <= majority and have_one_class(content):
        return f"All examples have the same label, which cannot show what it has learnt, {_SO}"
    if whole <= majority:
        return f"It has not learnt the task, {_SO}"
    if content.get("interval") and content["interval"][0] <= majority:
        return UNCLEAR
    return None


def advise_more_rows(content: Mapping[str, Any]) -> str | None:
    """Advise more rows where noise alone may set a model apart and more epochs cannot help.

    Args:
        content: of `evaluate.json`; of `result.json`, with its `describe_tuning` as "tuning".
    """
    tuning = content.get("tuning") or {}
    epochs = tuning.get("epochs", 1)
    best = tuning.get("best_epoch", epochs)
    if best >= EARLY * epochs or find_failure(content) != UNCLEAR:
        return None
    return (
        f"Its best epoch was {best} of {epochs}, so training for longer will not help; validate on "
        "more rows, or train on more."
    )


def have_one_class(content: Mapping[str, Any]) -> bool:
    """Return whether all judged examples have one class, as in a file of a few rows."""
    return sum(map(any, content.get("confusion") or [])) == 1


def count_removable(content: Mapping[str, Any]) -> int | None:
    """Count the top blocks that the head as tuned can do without; None where that is unknown."""
    curve, majority = content["truncation"].get("untuned"), content["majority"] or 0.0
    whole = content["metrics"][content["metric"]]
    if not curve or find_failure(content):
        return None
    return len(curve) - 1 - _find_shortest(curve, whole - LOST * (whole - majority))


def _describe_truncation(content: Mapping[str, Any]) -> list[str]:
    """Say how many blocks the head as tuned can do without."""
    curve = content["truncation"].get("untuned")
    if not curve:
        return []
    name, removable, top = name_measure(content), count_removable(content), len(curve) - 1
    shortest = top - (removable or 0)
    if shortest == top:
        return [
            f"With the tuned head unchanged, no top block can be removed: without block {top} the "
            f"{name} is {format_number(curve[top - 1])}."
        ]
    blocks = "top block" if shortest == top - 1 else f"{top - shortest} top blocks"
    return [
        f"With the tuned head unchanged, the {blocks} can be removed, and the {name} is still "
        f"{format_number(curve[shortest])}."
    ]


def _describe_skips(content: Mapping[str, Any]) -> list[str]:
    """Say how much a single block matters."""
    lines = enumerate(content["skips"] or (), start=1)
    singles = [(line[i - 1], i) for i, line in lines if line[i - 1] is not None]
    if len(singles) < 2:
        return []
    (low, worst), (high, least) = min(singles), max(singles)
    return [
        f"Without one of its blocks, the {name_measure(content)} lies between "
        f"{format_number(low)} (block {worst}) and {format_number(high)} (block {least})."
    ]


def _find_shortest(curve: Sequence[float | None], enough: float) -> int:
    """Return the lowest state from which on all reach `enough`."""
    top = len(curve) - 1
    while top > 0 and (value := curve[top - 1]) is not None and value >= enough:
        top -= 1
    return top


def tabulate_truncation(content: Mapping[str, Any]) -> Table:
    """Tabulate the truncation curves."""
    curves = {k: content["truncation"][k] for k in TRUNCATIONS if k in content["truncation"]}
    rows = [
        [format_state(state), *map(format_number, values)]
        for state, values in enumerate(zip_longest(*curves.values()))
    ]
    caption = f"The {name_measure(content)} to four digits."
    return Table(caption, ["State", *(TRUNCATIONS[key] for key in curves)], rows, folded=True)


def tabulate_edits(content: Mapping[str, Any]) -> Table:
    """Tabulate the metrics of the model under each edit."""
    classes = content["task"].get("labels") or ()
    # Of over two classes `f1` is `macro_f1`, and stands here once.
    names = {name_metric(key, classes): key for key in content["metrics"]}
    listed = [{"edit": "the whole model", "metrics": content["metrics"]}, *content["edits"]]
    rows = [
        [one["edit"], *(format_number(one["metrics"][key]) for key in names.values())]
        for one in listed
    ]
    columns = ["Edit", *map(start_line, names)]
    return Table("The model's metrics under each edit.", columns, rows)


def tabulate_spans(content: Mapping[str, Any]) -> Table:
    """Tabulate what is left of the metric without each span of blocks."""
    blocks = range(1, content["model"]["blocks"] + 1)
    rows = [
        [str(last)]
        + [
            "" if line[last - 1] is None else format_decimals(line[last - 1])
            for line in content["skips"]
        ]
        for last in reversed(blocks)
    ]
    caption = "Rows: the last skipped block; columns: the first one."
    return Table(caption, ["", *map(str, blocks)], rows, folded=True)


# Rows that are shown at the most.
SHOWN = 30


def choose_judged_split(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content with the figures of the test examples in place of validation, if any."""
    return {**content, **(content.get("test") or {})}


def tabulate_by_name(content: Mapping[str, Any]) -> Table | None:
    """Tabulate `by_name` of `result.json` or `evaluate.json`, the most frequent names first.

    None where it is empty, as for numbers, or not there, as in older files.
    """
    content = choose_judged_split(content)
    names, thresholds = content.get("by_name") or {}, content.get("thresholds") or {}
    if not names:
        return None
    spans = "entity_f1" in content["metrics"]
    name = "type of entity" if spans else name_label(content["task"]["kind"])
    ranked = sorted(names, key=lambda one: -names[one]["support"])
    rows = [
        [
            one,
            *(format_decimals(names[one][value]) for value in ("precision", "recall", "f1")),
            f"{names[one]['support']:,}",
            *([format_decimals(thresholds[one])] if thresholds else ()),
        ]
        for one in ranked[:SHOWN]
    ]
    caption = f"Metrics of each {name}; support: how often it occurs."
    if len(ranked) > SHOWN:
        caption += f" The {SHOWN} most frequent of {len(ranked)}."
    columns = [start_line(name), "Precision", "Recall", "F1", "Support"]
    columns += ["Threshold"] if thresholds else []
    return Table(caption, columns, rows)


def tabulate_confusion(content: Mapping[str, Any]) -> Table | None:
    """Tabulate which classes were taken for which, shaded by the share of the row."""
    table, names = (
        choose_judged_split(content).get("confusion"),
        content["task"].get("labels") or (),
    )
    if not table or len(names) > SHOWN:
        return None
    shades = {
        (row, column + 1): count / max(1, sum(counts))
        for row, counts in enumerate(table)
        for column, count in enumerate(counts)
    }
    rows = [
        [name, *(f"{count:,}" for count in counts)]
        for name, counts in zip(names, table, strict=True)
    ]
    word = name_label(content["task"]["kind"])
    caption = f"Rows: the true {word}; columns: the predicted one. Shading: the share of the row."
    return Table(caption, ["", *names], rows, shades=shades)
