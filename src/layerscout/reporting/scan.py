"""The tables of a scan and of planning, from the content of `scan.json` and `plan.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from layerscout.plans import METHODS
from layerscout.progress import write_duration
from layerscout.reporting.content import Table
from layerscout.reporting.scores import (
    choose_leading,
    draw_sparkline,
    get_agreement,
    get_details,
    get_error,
    list_notes,
    list_scores,
    title_score,
)
from layerscout.reporting.words import (
    format_number,
    format_plain,
    format_signed,
    format_state,
    name_examples,
)
from layerscout.scores import SCORES, name_score

# Characters of a curve in one line, so that a row of all there is to say of a score fits in 80.
CURVE = 16


def tabulate_scores(scan: Mapping[str, Any]) -> Table:
    """Tabulate what each score says of the model as a whole."""
    first, top = choose_leading(scan), scan["model"]["blocks"]
    keys = [*list_scores(scan, "states"), *list_scores(scan, "blocks")]
    agreement = get_agreement(scan, scan["scores"][first]["of"]).get(first, {}) if first else {}
    agree = {key: value for key, value in agreement.items() if key != first}
    compared = any(value is not None for value in agree.values())
    columns = ["Score", "Better", "Best", "Its value", "Value at the top"]
    columns += ["Agrees (τ)"] if compared else []
    rows = []
    for key in keys:
        score, best = scan["scores"][key], scan["best"].get(key)
        row = [
            title_score(key),
            score["better"],
            "–" if best is None else f"{score['of'][:-1]} {best}",
            format_number(None if best is None else score["values"][best]),
            format_number(score["values"][top]),
        ]
        row += [format_signed(agree.get(key))] if compared else []
        rows.append([*row, "; ".join(list_notes(scan, key))])
    caption = "What each score says about the model."
    if compared and first:
        caption += (
            f" Agrees: Kendall's τ with the {name_score(first)} over states 1 to {top}; 1 is the "
            "same order, −1 the reverse."
        )
    what = [SCORES[key].summary if key in SCORES else "" for key in keys]
    words = frozenset({1, 2, len(columns)})
    return Table(caption, [*columns, "Note"], rows, words=words, below=what)


def tabulate_scores_briefly(scan: Mapping[str, Any]) -> Table:
    """Tabulate the scores in 80 columns: by their keys, each with its curve in one line."""
    rows = []
    for of in ("states", "blocks"):
        keys = list_scores(scan, of)
        if keys and len(keys) < len(scan["scores"]):
            rows.append([f"of {of}", *[""] * 6])
        for key in keys:
            score, best = scan["scores"][key], scan["best"].get(key)
            error = get_error(scan, key)
            note = "" if error is None else f"±{error:.2g}"
            if best is None:
                known = any(value is not None for value in score["values"][1:])
                note = "refused" if get_details(score).get("refused") else "undefined"
                note = f"mostly {note}" if known else note
            arrow = "↑" if score["better"] == "higher" else "↓"
            ends = [None if best is None else score["values"][best], score["values"][-1]]
            values = ["–" if value is None else f"{value:.3g}" for value in ends]
            where = "–" if best is None else str(best)
            rows.append([key, arrow, where, *values, draw_sparkline(score, CURVE), note])
    columns = ["score", "", "best", "value", "top", "curve", ""]
    return Table("", columns, rows, words=frozenset({1, 5, 6}))


def tabulate_values(scan: Mapping[str, Any], *, folded: bool) -> Table:
    """Tabulate every score over the states, to four digits, with the best of each marked."""
    scores, top = scan["scores"], scan["model"]["blocks"]
    per_block = {key: " (of the block)" if s["of"] == "blocks" else "" for key, s in scores.items()}
    columns = ["State", *(title_score(key) + per_block[key] for key in scores)]
    rows = [
        [format_state(state), *(format_number(score["values"][state]) for score in scores.values())]
        for state in range(top + 1)
    ]
    best = [(scan["best"].get(key), column) for column, key in enumerate(scores, start=1)]
    marked = frozenset((row, column) for row, column in best if row is not None)
    caption = "To four digits; the best state of each score is marked ◆."
    return Table(caption, columns, rows, marked, folded=folded)


def tabulate_parts(scan: Mapping[str, Any], key: str) -> Table | None:
    """Tabulate a score of blocks by its parts, such as attention, or by kinds of matrices."""
    details = get_details(scan["scores"][key])
    parts = details.get("parts") or details.get("by_type")
    if not parts:
        return None
    rows = [
        [str(block), *(format_number(values[block]) for values in parts.values())]
        for block in range(1, scan["model"]["blocks"] + 1)
    ]
    caption = f"The {name_score(key)} of each part of a block, to four digits."
    return Table(caption, ["Block", *map(str, parts)], rows, folded=True)


def tabulate_diagnostics(scan: Mapping[str, Any]) -> Table | None:
    """Tabulate how smooth the curves are and how well they predict the probe; None without."""
    diagnostics = scan.get("diagnostics") or {}
    smooth, fits = diagnostics.get("smoothness") or {}, diagnostics.get("against_probe") or {}
    rows = []
    for key in scan["scores"]:
        fit, zeta = fits.get(key) or {}, smooth.get(key)
        if zeta is None and not fit.get("states"):
            continue
        row = [title_score(key), format_number(zeta)]
        if fits:
            row += [format_signed(fit.get("pearson")), format_number(fit.get("r_squared"))]
            row += [format_signed(fit.get("spearman")), format_number(fit.get("slope"))]
            row += [format_number(fit.get("intercept")), str(fit.get("states") or "–")]
        rows.append(row)
    columns = ["Score", "ζ"]
    caption = "ζ: how much the curve jumps from state to state; 0 is a straight line."
    if fits:
        columns += ["ρ with the probe", "R²", "Spearman", "Slope", "Intercept", "States"]
        caption += (
            " The probe is fitted as a linear function of each score, over those states 1 to "
            f"{scan['model']['blocks']} that have both."
        )
    return Table(caption, columns, rows, folded=True) if rows else None


def tabulate_agreement(scan: Mapping[str, Any], of: str) -> Table | None:
    """Tabulate Kendall's τ between all scores of states (or blocks), shaded by its size."""
    agreement = get_agreement(scan, of)
    keys = [key for key in agreement if scan["best"].get(key) is not None]
    if len(keys) < 2:
        return None
    rows: list[list[str]] = []
    shades: dict[tuple[int, int], float] = {}
    for i, key in enumerate(keys):
        values = [None if other == key else agreement[key].get(other) for other in keys]
        cells = ["" if i == j else format_signed(value) for j, value in enumerate(values)]
        rows.append([f"{i + 1}. {title_score(key)}", *cells])
        shades |= {(i, j): float(v) for j, v in enumerate(values, start=1) if v is not None}
    caption = (
        f"Kendall's τ: 1 if two scores put the {of} in the same order from best to worst, 0 if "
        "their orders are unrelated, −1 if one is the reverse of the other."
    )
    columns = ["", *(f"{place}." for place in range(1, len(keys) + 1))]
    return Table(caption, columns, rows, shades=shades, folded=True)


def tabulate_checkpoints(stability: Mapping[str, Any]) -> Table:
    """Tabulate the best entry of each score at each checkpoint, and how far the ranks moved."""
    names = stability["checkpoints"]
    rows = []
    for key, score in stability["scores"].items():
        if not any(map(any, score["ranks"])):
            continue
        moved = zip(names, score["ranks"], score["deviation"], score["kendall"], strict=True)
        for i, (name, ranks, deviation, agrees) in enumerate(moved, start=1):
            row = [title_score(key), f"{i}. {name}", _name_first(ranks)]
            # The first one is what the others are compared with.
            row += [format_number(deviation), format_signed(agrees)] if i > 1 else ["", ""]
            rows.append(row)
    return Table(
        "Ranks moved: how far ranks are from those at the first checkpoint, on average.",
        ["Score", "Checkpoint", "Best", "Ranks moved", "Kendall τ"],
        rows,
        words=frozenset({1}),
    )


def _name_first(ranks: Sequence[int | None]) -> str:
    """Name the entry with rank 1."""
    return str(ranks.index(1)) if 1 in ranks else "–"


def tabulate_plans(content: Mapping[str, Any], full: Mapping[str, Any]) -> Table:
    """Tabulate the strategies in 80 columns; the chosen plan is marked.

    Args:
        content: the content of `plan.json`.
        full: the cost of full fine-tuning, which the shares are of.
    """
    rows: list[list[str]] = []
    marked, timed = set(), content["seconds"] is not None
    for option in content["options"]:
        cost, value = option["cost"], option["value"]
        millions = cost["trainable"] / 1e6
        if option["plan"] == content["plan"]:
            marked.add((len(rows), 1))
        rows.append(
            [
                option["strategy"],
                option["plan"]["notation"],
                f"{millions:.1f}M" if millions >= 1 else f"{1000 * millions:.0f}k",
                f"{cost['trainable'] / full['total']:.0%}",
                f"{option['relative']:.1%}",
                write_duration(option["seconds"]) if timed else f"{1 / option['relative']:.1f}x",
                f"{cost['inference'] / full['inference']:.0%}",
                f"{'-' if value is None else f'{value:.3g}'} @{option['state']:>2}",
                "◆" if option["efficient"] else "",
            ]
        )
    columns = ["strategy", "plan", "trained", "", "train", "time" if timed else "cheaper"]
    columns += ["infer", "score", ""]
    return Table("", columns, rows, frozenset(marked), frozenset({1}), mark="")


def explain_plans(content: Mapping[str, Any], score: str | None) -> list[str]:
    """Explain the columns of the table of strategies.

    Args:
        content: the content of `plan.json`.
        score: the name of the one that the table shows, if any.
    """
    speed = "at the speed at which the states of the scan were computed"
    return [
        "(b, t, h): tune blocks b to t, with the head on state h, the output of block h",
        "train, infer: FLOPs, as a share of full fine-tuning's",
        "blocks below b run once, not in every epoch; where b is 1 there are none",
        *([] if content["seconds"] is None else [f"time: about, of the training alone, {speed}"]),
        *([] if score is None else [f"score: {score} @ the state that the plan is built on"]),
        "◆ what auto chooses when the budget is exactly the cost of that plan",
    ]


def describe_training_cost(content: Mapping[str, Any]) -> list[str]:
    """Say what training the plans are for."""
    work, examples = content["work"], name_examples(content["task"]["kind"])
    line = (
        f"training on {work['examples']:,} {examples} of {work['tokens']:.0f} tokens for "
        f"{work['epochs']} epochs, validating on {work['validation']:,} after each"
    )
    options = (content.get("method_options") or {}).items()
    listed = ", ".join(f"{name.replace('_', ' ')} {format_plain(value)}" for name, value in options)
    return [f"method {content['method']}: {listed}", line] if listed else [line]


def describe_untying(content: Mapping[str, Any]) -> list[str]:
    """Say that weights have to be untied for a plan or a method, if so."""
    if not content["untie"]:
        return []
    what = "method" if METHODS[content["method"]].untied else "plan"
    return [f"this {what} separates blocks that share weights; --untie gives each its own copy"]
