"""The tables of a scan, from the content of `scan.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerscout.pages.content import Table
from layerscout.pages.formats import format_number, format_signed, format_state
from layerscout.pages.scores import (
    choose_leading,
    draw_sparkline,
    get_details,
    get_error,
    get_refusal,
    get_tau,
    list_scores,
    name_entry,
    name_score,
    title_score,
)
from layerscout.pages.wording import list_notes
from layerscout.scores import SCORES

# Characters of a curve in one line, so that a row of all there is to say of a score fits in 80.
CURVE = 16


def tabulate_scores(scan: Mapping[str, Any]) -> Table:
    """Tabulate what each score says of the model as a whole."""
    first, top = choose_leading(scan), scan["model"]["blocks"]
    keys = [*list_scores(scan, "states"), *list_scores(scan, "blocks")]
    agree = {key: get_tau(scan, first, key) if first and key != first else None for key in keys}
    compared = any(value is not None for value in agree.values())
    columns = ["Score", "Better", "Best", "Its value", "Value at the top"]
    columns += ["Agrees (τ)"] if compared else []
    rows = []
    for key in keys:
        score, best = scan["scores"][key], scan["best"].get(key)
        row = [
            title_score(key),
            score["better"],
            "–" if best is None else f"{name_entry(score)} {best}",
            format_number(None if best is None else score["values"][best]),
            format_number(score["values"][top]),
        ]
        row += [format_signed(agree[key])] if compared else []
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
                note = "refused" if get_refusal(score) else "undefined"
            ends = [None if best is None else score["values"][best], score["values"][-1]]
            rows.append(
                [
                    key,
                    "↑" if score["better"] == "higher" else "↓",
                    "–" if best is None else str(best),
                    *("–" if value is None else f"{value:.3g}" for value in ends),
                    draw_sparkline(score, CURVE),
                    note,
                ]
            )
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
