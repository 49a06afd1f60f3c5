"""What a scan says of its scores, in words: the best state, ties, and how certain they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from layerscout.data import name_metric
from layerscout.reporting.words import (
    FOR_JUDGING,
    count_read,
    count_rows,
    format_entries,
    format_number,
    name_constant_answer,
    name_labels,
    read_more,
    start_line,
)
from layerscout.scores import DEFAULT, name_score

# The scores that may lead a report, the first of them that has a best state.
LEADING = (DEFAULT, "variability_ratio_debiased", "variability_ratio")


# What the marks of ties mean: of two states with one value one may be tied and the other not.
TIED = (
    "tied with the best within noise, by the differences on the same examples, which vary less "
    "for some states than for others of the same value"
)


def title_score(key: str) -> str:
    """Name a score at the start of a line."""
    return start_line(name_score(key))


def get_details(score: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the further details of a score; older scans have none."""
    return score.get("details") or {}


def list_scores(scan: Mapping[str, Any], of: str) -> list[str]:
    """Return the keys of the scores of states, or of blocks."""
    return [key for key, score in scan["scores"].items() if score["of"] == of]


def choose_leading(scan: Mapping[str, Any]) -> str | None:
    """Choose the score that leads the report: the default, else the first with a best state."""
    keys = [*list_scores(scan, "states"), *list_scores(scan, "blocks")]
    order = [*LEADING, *keys]
    return next((key for key in order if scan["best"].get(key) is not None), None)


def find_tied(scan: Mapping[str, Any], key: str) -> list[int]:
    """Return the states among 1..L that cannot be told apart from the best one."""
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


def get_error(scan: Mapping[str, Any], key: str) -> float | None:
    """Return the standard error, or the deviation over heads, of a score at its best entry."""
    best, details = scan["best"].get(key), get_details(scan["scores"][key])
    errors = details.get("standard_error") or details.get("spread")
    if best is None or not errors:
        return None
    value: float | None = errors[best]
    return value


def get_agreement(scan: Mapping[str, Any], of: str) -> Mapping[str, Mapping[str, float | None]]:
    """Return Kendall's τ by two scores of states (or blocks); empty if it was not computed."""
    agreement = (scan.get("diagnostics") or {}).get(f"agreement_of_{of}") or {}
    table: Mapping[str, Mapping[str, float | None]] = agreement.get("kendall") or {}
    return table


def get_band(score: Mapping[str, Any]) -> tuple[Sequence[float | None], Sequence[float | None]]:
    """Return the lower and upper ends to shade: the interval, or one deviation over the heads."""
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
    """Return whether one entry would flatten all the others on a linear scale."""
    return bool(values) and min(values) > 0 and max(values) > 50 * min(values)


def draw_sparkline(score: Mapping[str, Any], width: int) -> str:
    """Draw a curve in one line, higher being better; several entries share a mark if need be.

    The scale is that of the entries 1..L, logarithmic where one would flatten the others; entry 0
    is clipped to it.

    Args:
        score: whose values are drawn.
        width: characters at most; a mark then stands for the best of its entries.
    """
    values = score["values"]
    known = [value for value in values[1:] if value is not None]
    scale = math.log if needs_log(known) else float
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    turned = score["better"] == "lower"

    def draw(some: Sequence[float | None]) -> str:
        within = [scale(min(max(value, low), high)) for value in some if value is not None]
        if not known or not within:
            return " "
        best = min(within) if turned else max(within)
        worst, top = (scale(high), scale(low)) if turned else (scale(low), scale(high))
        height = (best - worst) / (top - worst) if top != worst else 0.5
        return "▁▂▃▄▅▆▇█"[min(int(8 * height), 7)]

    share = math.ceil(len(values) / width)
    return "".join(draw(values[start : start + share]) for start in range(0, len(values), share))


# From this signal fraction on, noise in the class means is not what keeps a ratio from being
# measured.
CLEAR = 0.5
# Where the labels of Fisher information come from.
MODES: Mapping[str, str] = {
    "true": "labels drawn from the model",
    "empirical": "the given labels",
    "as_released": "as the published code computes it",
}


def describe_scan(scan: Mapping[str, Any], keys: Sequence[str], mark: str) -> list[str]:
    """Say which state is best, how certain that is, and what the other scores say.

    Args:
        scan: the content of `scan.json`.
        keys: the scores to speak of, usually the leading one.
        mark: how the figure marks what cannot be told apart from the best, such as "(hollow)".
    """
    nothing = describe_no_signal(scan)
    lines = [] if nothing is None else [nothing]
    if choose_leading(scan) is None:
        return lines or ["No state could be scored: every score is undefined at all of them."]
    for key in keys:
        if scan["best"].get(key) is not None:
            lines += [_describe_best(scan, key, mark), *_describe_certainty(scan, key)]
    if (reason := scan["settings"].get("examples_because")) is not None:
        lines.append(f"{count_read(scan['task'])}: {reason}.")
    for of in ("states", "blocks"):
        groups: dict[int, list[str]] = {}
        for key in list_scores(scan, of):
            if (best := scan["best"].get(key)) is not None:
                tied = " (tied)" if find_tied(scan, key) else ""
                groups.setdefault(best, []).append(f"{name_score(key)}{tied}")
        if sum(map(len, groups.values())) > 1 and len(keys) < len(scan["scores"]):
            # What most scores call best comes first.
            ranked = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
            listed = "; ".join(f"{best} by {', '.join(names)}" for best, names in ranked)
            lines.append(f"Best {of[:-1]}: {listed}.")
    return lines


def describe_undefined(scan: Mapping[str, Any]) -> list[str]:
    """Say why scores name no best where they are undefined; a warning says why one was refused."""
    lines = []
    for key, score in scan["scores"].items():
        if scan["best"].get(key) is None and "undefined_because" in get_details(score):
            missing = [n for n, value in enumerate(score["values"]) if n and value is None]
            lines.append(f"{title_score(key)} is {_describe_missing(score, missing)}.")
    return lines


def _describe_missing(score: Mapping[str, Any], missing: Sequence[int]) -> str:
    """Say at which entries a score is undefined, why, and whether they are too many for a best."""
    entries, reason = len(score["values"]) - 1, get_details(score).get("undefined_because")
    plural = "s" if len(missing) > 1 else ""
    where = f"at {score['of'][:-1]}{plural} {format_entries(missing)}"
    text = f"undefined {'everywhere' if len(missing) == entries else where}"
    text += f": {reason}" if reason else ""
    return f"{text}; so it names no best" if entries > 2 * (entries - len(missing)) > 0 else text


def describe_advice(scan: Mapping[str, Any]) -> list[str]:
    """Say what to tune, where the head belongs, what that costs, and why; older scans say nothing.

    The command for it is that of `write_advice`.
    """
    advice, blocks = scan.get("advice"), scan["model"]["blocks"]
    if advice is None:
        return []
    reason = f"Why: {advice['because']}."
    if advice["plan"] is None:
        return [f"The head belongs on state {advice['head']} of {blocks}.", reason]
    tuned, head = advice["plan"]["tuned"], advice["plan"]["head"]
    what = f"block{'s' if len(tuned) > 1 else ''} {format_entries(tuned)}" if tuned else "no block"
    text = f"Tune {what} with the head on state {head} of {blocks}: "
    text += f"{advice['relative']:.0%} of the training cost of full fine-tuning"
    if len(advice.get("stages") or ()) > 1:
        text += FOR_JUDGING
    if (cut := blocks - head) > 0:
        text += f", and a model without the {'block' if cut == 1 else f'{cut} blocks'} above"
    if head == advice["head"]:
        return [f"{text}.", reason]
    nearest = f"No head nearer to state {advice['head']} fits the budget."
    return [f"{text}.", reason, nearest]


def describe_no_signal(scan: Mapping[str, Any]) -> str | None:
    """Say that the leading score finds no signal anywhere, if that is so.

    That is the first of `LEADING` that was computed: no head reads more than the majority class,
    or no ratio has a value.
    """
    key = next((key for key in LEADING if key in scan["scores"]), None)
    if key is None or get_details(scan["scores"][key]).get("refused"):
        return None
    score, task = scan["scores"][key], scan["task"]
    details, read, names = get_details(score), count_rows(task), name_labels(task["kind"])
    if (majority := details.get("majority")) is not None:
        if any(low is not None and low > majority for low in score["low"][1:]):
            return None
        line = f"With {read}, no state is shown to do better than always predicting "
        line += f"{name_constant_answer(task['kind'])} ({format_number(majority)})"
        more = read_more(scan)
        return f"{line}." if more is None else f"{line}; --examples {more[0]} reads {more[1]}."
    if any(value is not None for value in score["values"]) or "signal_fraction" not in details:
        return None
    remedy = "--score variability_ratio ranks the states anyway"
    if any(share is not None and share > CLEAR for share in details["signal_fraction"]):
        return f"{read} show that the {names} differ, but not by how much; {remedy}."
    return f"With {read}, no state separates the {names} beyond noise; {remedy}."


def _describe_best(scan: Mapping[str, Any], key: str, mark: str) -> str:
    """Say which state is best by one score, or that several are tied, and where the top one is."""
    score, best, top = scan["scores"][key], scan["best"][key], scan["model"]["blocks"]
    name, value, last = score["of"][:-1], score["values"][best], score["values"][top]
    judged, tied = _name_judge(scan, key), find_tied(scan, key)
    by = f"{name_score(key)}{f' ({judged})' if judged else ''}"
    text = f"{name.capitalize()} {best} of {top} is best by {by}: {format_number(value)}"
    if tied:
        most = "highest" if score["better"] == "higher" else "lowest"
        text = f"No {name} is clearly best by {by}: {describe_tie(best, tied)} {mark}. "
        text += f"{name.capitalize()} {best} of {top} has the {most} value, {format_number(value)}"
        if top in (best, *tied):
            where = "it is" if best == top else f"{format_number(last)} at"
            return f"{text}; {where} the top {name}."
    if best == top:
        return f"{text}. That is the top {name}; none below it does better."
    if last is None:
        return f"{text}. The top {name} could not be scored."
    if value > 0 and last > 0:
        share = abs(value / last - 1)
        compared = f"{share:.0%} {score['better']} than the {format_number(last)}"
        return f"{text}, {compared} of the top {name}."
    return f"{text}, against {format_number(last)} at the top {name}."


def _name_judge(scan: Mapping[str, Any], key: str) -> str:
    """Say what judges the heads of a score, if it is one of heads that says so."""
    metric, kind = get_details(scan["scores"][key]).get("metric"), scan["task"]["kind"]
    if metric is None:
        return ""
    name = name_metric(metric)
    if kind == "token_classification":
        return (
            "macro-F1 over the tags of single words" if metric == "macro_f1" else f"{name} on words"
        )
    if kind == "multi_label_classification" and key == LEADING[0]:
        return f"{name}, with each label predicted as often as it occurs"
    return name


def _describe_certainty(scan: Mapping[str, Any], key: str) -> list[str]:
    """Say how much of the best state is signal, and whether it is told apart from all others."""
    best, details, lines = scan["best"][key], get_details(scan["scores"][key]), []
    fractions = details.get("signal_fraction")
    if fractions and fractions[best] is not None:
        lines.append(
            f"{min(fractions[best], 1.0):.0%} of the distance between the class means of state "
            f"{best} is signal; the rest is noise."
        )
    apart = list(details.get("separable_from_best") or ())
    others = apart[1:best] + apart[best + 1 :]
    if others and all(others) and scan["settings"].get("examples_because") is None:
        lines.append(f"State {best} differs from all others beyond noise.")
    return lines


def list_notes(scan: Mapping[str, Any], key: str) -> list[str]:
    """Say what the reader of one score should know: refused, undefined, or how it was computed."""
    score = scan["scores"][key]
    details, values = get_details(score), score["values"]
    if reason := details.get("refused"):
        return [f"refused: {reason}"]
    notes = []
    # State 0 of the first token is the same everywhere, and there is no block 0.
    missing = [entry for entry in range(1, len(values)) if values[entry] is None]
    if missing:
        notes.append(_describe_missing(score, missing))
    if details.get("majority") is not None:
        always = name_constant_answer(scan["task"]["kind"])
        notes.append(f"always predicting {always}: {format_number(details['majority'])}")
    if judged := _name_judge(scan, key):
        notes.append(f"judged by {judged}")
    if details.get("mode") is not None:
        notes.append(MODES.get(details["mode"], str(details["mode"])))
    if (error := get_error(scan, key)) is not None:
        notes.append(f"±{error:.2g} at the best")
    return [*notes, *map(str, details.get("notes") or ())]
