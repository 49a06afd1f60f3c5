"""How smooth and how stable the scores of a scan are and how well they agree, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from layerscout.pages.content import Table
from layerscout.pages.formats import format_number, format_signed
from layerscout.pages.scores import get_agreement, get_tau, title_score


def tabulate_diagnostics(scan: Mapping[str, Any]) -> Table | None:
    """Tabulate how smooth the curves are and how well they predict the probe; None without."""
    found = scan.get("diagnostics") or {}
    smooth, fits = found.get("smoothness") or {}, found.get("against_probe") or {}
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
    return Table(caption, columns, rows) if rows else None


def tabulate_agreement(scan: Mapping[str, Any], of: str) -> Table | None:
    """Tabulate Kendall's τ between all scores of states (or blocks), shaded by its size."""
    keys = [key for key in get_agreement(scan, of) if scan["best"].get(key) is not None]
    if len(keys) < 2:
        return None
    matrix = [[get_tau(scan, one, other) for other in keys] for one in keys]
    rows = [
        [
            f"{i}. {title_score(key)}",
            *("" if i == j else format_signed(value) for j, value in enumerate(values, start=1)),
        ]
        for i, (key, values) in enumerate(zip(keys, matrix, strict=True), start=1)
    ]
    shades = {
        (i, j): float(value)
        for i, values in enumerate(matrix)
        for j, value in enumerate(values, start=1)
        if value is not None and i + 1 != j
    }
    caption = (
        f"Kendall's τ: 1 if two scores put the {of} in the same order from best to worst, 0 if "
        "their orders are unrelated, −1 if one is the reverse of the other."
    )
    columns = ["", *(f"{place}." for place in range(1, len(keys) + 1))]
    return Table(caption, columns, rows, shades=shades)


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


def tabulate_stability(stability: Mapping[str, Any]) -> Table:
    """Tabulate for each score how far its ranks have moved at the last checkpoint."""
    rows = []
    for key, score in stability["scores"].items():
        best = [_name_first(ranks) for ranks in score["ranks"]]
        moved, agrees = (
            "–" if value is None else f"{value:.2g}"
            for value in (score["deviation"][-1], score["kendall"][-1])
        )
        ends = best if len(best) <= 6 else [best[0], "..", best[-1]]
        rows.append([key, " ".join(ends), moved, agrees])
    columns = [f"over {len(stability['checkpoints'])} checkpoints", "best", "ranks moved", "τ"]
    return Table("", columns, rows)


def _name_first(ranks: Sequence[int | None]) -> str:
    """Name the entry with rank 1."""
    return str(ranks.index(1)) if 1 in ranks else "–"
