"""What a scan found, in words: read from the content of `scan.json`, for page and terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from layerscout.data import name_metric
from layerscout.pages.commands import balance_classes, write_command
from layerscout.pages.formats import format_entries, format_number
from layerscout.pages.naming import count_read, count_rows, name_labels, name_majority, read_more
from layerscout.pages.scores import (
    LEADING,
    choose_leading,
    describe_tie,
    find_tied,
    get_details,
    get_error,
    get_refusal,
    group_by_best,
    name_entry,
    name_score,
    title_score,
)

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
        elif not get_refusal(scan["scores"][key]) and not nothing:
            name = name_entry(scan["scores"][key])
            lines.append(f"{title_score(key)} is undefined at every {name}.")
    lines += _describe_examples(scan)
    for of in ("states", "blocks"):
        groups = group_by_best(scan, of)
        if sum(map(len, groups.values())) > 1 and len(keys) < len(scan["scores"]):
            listed = "; ".join(
                f"{best} by {', '.join(_name_tied(scan, key) for key in some)}"
                for best, some in groups.items()
            )
            lines.append(f"Best {of[:-1]}: {listed}.")
    return lines


def describe_refusals(scan: Mapping[str, Any]) -> list[str]:
    """Say why scores were refused, unless a warning has said so."""
    reasons = {key: get_refusal(score) for key, score in scan["scores"].items()}
    return [
        f"{title_score(key)} was refused: {reason}."
        for key, reason in reasons.items()
        if reason and not any(reason in warning for warning in scan["warnings"])
    ]


def describe_advice(scan: Mapping[str, Any]) -> list[str]:
    """Say what to tune, where the head belongs, what that costs, and why; older scans say nothing.

    The command for it is that of `write_advice`.
    """
    advice, blocks = scan.get("advice"), scan["model"]["blocks"]
    if advice is None:
        return []
    because = f"Why: {advice['because']}."
    if advice["plan"] is None:
        return [f"The head belongs on state {advice['head']} of {blocks}.", because]
    tuned, head = advice["plan"]["tuned"], advice["plan"]["head"]
    what = f"block{'s' if len(tuned) > 1 else ''} {format_entries(tuned)}" if tuned else "no block"
    text = f"Tune {what} with the head on state {head} of {blocks}: "
    text += f"{advice['relative']:.0%} of the training cost of full fine-tuning"
    if (cut := blocks - head) > 0:
        text += f", and a model without the {'block' if cut == 1 else f'{cut} blocks'} above"
    if head == advice["head"]:
        return [f"{text}.", because]
    nearest = f"No head nearer to state {advice['head']} fits the budget."
    return [f"{text}.", because, nearest]


def write_advice(scan: Mapping[str, Any]) -> str | None:
    """Write the command that follows the advice; None where there is none."""
    plan, task = (scan.get("advice") or {}).get("plan"), scan["task"]
    if plan is None:
        return None
    balanced = balance_classes(task["kind"], task.get("metric"))
    return write_command("tune", scan, *balanced, "--plan", plan["notation"])


def describe_no_signal(scan: Mapping[str, Any]) -> str | None:
    """Say that the leading score finds no signal anywhere, if that is so.

    That is the first of `LEADING` that was computed: no head reads more than the majority class,
    or no ratio has a value.
    """
    key = next((key for key in LEADING if key in scan["scores"]), None)
    if key is None or get_refusal(scan["scores"][key]):
        return None
    score, task = scan["scores"][key], scan["task"]
    details, read, names = get_details(score), count_rows(task), name_labels(task["kind"])
    if (majority := details.get("majority")) is not None:
        if any(low is not None and low > majority for low in score["low"][1:]):
            return None
        found = f"With {read}, no state is shown to do better than always predicting "
        found += f"{name_majority(task['kind'])} ({format_number(majority)})"
        more = read_more(scan)
        return f"{found}." if more is None else f"{found}; --examples {more[0]} reads {more[1]}."
    if any(value is not None for value in score["values"]) or "signal_fraction" not in details:
        return None
    remedy = "--score variability_ratio ranks the states anyway"
    if any(share is not None and share > CLEAR for share in details["signal_fraction"]):
        return f"{read} show that the {names} differ, but not by how much; {remedy}."
    return f"With {read}, no state separates the {names} beyond noise; {remedy}."


def _describe_best(scan: Mapping[str, Any], key: str, mark: str) -> str:
    """Say which state is best by one score, or that several are tied, and where the top one is."""
    score, best, top = scan["scores"][key], scan["best"][key], scan["model"]["blocks"]
    name, value, last = name_entry(score), score["values"][best], score["values"][top]
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


def _name_tied(scan: Mapping[str, Any], key: str) -> str:
    """Name a score, and whether other states are tied with its best one."""
    return f"{name_score(key)}{' (tied)' if find_tied(scan, key) else ''}"


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
    score, best = scan["scores"][key], scan["best"][key]
    lines = []
    fractions = get_details(score).get("signal_fraction")
    if fractions and fractions[best] is not None:
        share = min(fractions[best], 1.0)
        lines.append(
            f"{share:.0%} of the distance between the class means of state {best} is signal; the "
            "rest is noise."
        )
    if _is_separated(score, best) and not _describe_examples(scan):
        lines.append(f"State {best} differs from all others beyond noise.")
    if fractions:
        # A state that no score could measure has values that are not finite, as a warning says.
        others = [one["values"] for name, one in scan["scores"].items() if name != key]
        unseen = [
            s
            for s, v in enumerate(score["values"])
            if v is None and s > 0 and any(values[s] is not None for values in others)
        ]
        if unseen:
            verb = "has" if len(unseen) == 1 else "have"
            lines.append(
                f"{_name_states(unseen)} {verb} no value: too few examples to measure one."
            )
    return lines


def _name_states(states: Sequence[int]) -> str:
    return f"State{'' if len(states) == 1 else 's'} {format_entries(states)}"


def _is_separated(score: Mapping[str, Any], best: int) -> bool:
    """Say whether every other state 1..L has a value and is told apart from the best one."""
    apart = list(get_details(score).get("separable_from_best") or ())
    others = apart[1:best] + apart[best + 1 :]
    return bool(others) and all(others)


def _describe_examples(scan: Mapping[str, Any]) -> list[str]:
    """Say why the scan stopped at so many examples, if it chose their number itself."""
    because = scan["settings"].get("examples_because")
    return [] if because is None else [f"{count_read(scan['task'])}: {because}."]


def list_notes(scan: Mapping[str, Any], key: str) -> list[str]:
    """Say what the reader of one score should know: refused, undefined, or how it was computed."""
    score = scan["scores"][key]
    details, values = get_details(score), score["values"]
    if reason := get_refusal(score):
        return [f"refused: {reason}"]
    found = []
    # State 0 of the first token is the same everywhere, and there is no block 0.
    missing = [entry for entry in range(1, len(values)) if values[entry] is None]
    if len(missing) == len(values) - 1:
        found.append("undefined everywhere")
    elif missing:
        plural = "s" if len(missing) > 1 else ""
        found.append(f"undefined at {name_entry(score)}{plural} {format_entries(missing)}")
    if details.get("majority") is not None:
        always = name_majority(scan["task"]["kind"])
        found.append(f"always predicting {always}: {format_number(details['majority'])}")
    if judged := _name_judge(scan, key):
        found.append(f"judged by {judged}")
    if details.get("mode") is not None:
        found.append(MODES.get(details["mode"], str(details["mode"])))
    error = get_error(scan, key)
    if error is not None:
        found.append(f"±{error:.2g} at the best")
    return [*found, *map(str, details.get("notes") or ())]
