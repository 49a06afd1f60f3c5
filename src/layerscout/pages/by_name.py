"""How well a tuned model does on every class, label, tag or type of span by itself, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerscout.pages.content import Section, Table
from layerscout.pages.formats import format_decimals, start_line
from layerscout.pages.naming import name_label

# Rows that are shown at the most.
SHOWN = 30


def choose_split(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the content with the figures of the test examples in place of validation, if any."""
    return {**content, **(content.get("test") or {})}


def show_by_name(content: Mapping[str, Any]) -> Section:
    """Show that table on a page."""
    table = tabulate_by_name(content)
    return Section("By name" if table is None else f"By {table.columns[0].lower()}", table=table)


def show_confusion(content: Mapping[str, Any]) -> Section:
    """Show which classes were taken for which, shaded by the share of the row; if that is known."""
    table, names = choose_split(content).get("confusion"), content["task"].get("labels") or ()
    if not table or len(names) > SHOWN:
        return Section("Confusions")
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
    return Section("Confusions", table=Table(caption, ["", *names], rows, shades=shades))


def tabulate_by_name(content: Mapping[str, Any]) -> Table | None:
    """Tabulate `by_name` of `result.json` or `evaluate.json`, the most frequent names first.

    None where it is empty, as for numbers, or not there, as in older files.
    """
    content = choose_split(content)
    found, thresholds = content.get("by_name") or {}, content.get("thresholds") or {}
    if not found:
        return None
    spans = "entity_f1" in content["metrics"]
    name = "type of entity" if spans else name_label(content["task"]["kind"])
    ranked = sorted(found, key=lambda one: -found[one]["support"])
    rows = [
        [
            one,
            *(format_decimals(found[one][value]) for value in ("precision", "recall", "f1")),
            f"{found[one]['support']:,}",
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
