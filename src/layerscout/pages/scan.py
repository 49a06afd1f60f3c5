"""The page of a scan: its sections, from the content of `scan.json`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from layerscout.pages.commands import find_usual_pooling, write_command
from layerscout.pages.content import Section
from layerscout.pages.curves import draw_moves, draw_panel
from layerscout.pages.diagnostics import (
    tabulate_agreement,
    tabulate_checkpoints,
    tabulate_diagnostics,
)
from layerscout.pages.formats import list_circumstances
from layerscout.pages.naming import count_read, list_task, read_more
from layerscout.pages.scan_tables import tabulate_parts, tabulate_scores, tabulate_values
from layerscout.pages.scores import (
    choose_leading,
    find_tied,
    get_band,
    list_scores,
    title_score,
)
from layerscout.pages.wording import describe_advice, describe_scan, write_advice
from layerscout.scores import SCORES

# With fewer scores than this, the others are worth a look; with more, a table of values is long.
FEW = 4

NO_ACCURACY = (
    "Scores rank the layers of this model for this task; none of them predicts the accuracy after "
    "tuning. They describe the model before training, and where they disagree, they measure "
    "different things."
)


def build_scan(scan: Mapping[str, Any], folder: str) -> tuple[str, list[Section]]:
    """Give the title and the sections of a scan."""
    scores = scan["scores"]
    first = choose_leading(scan) or next(iter(scores))
    fitted = (scan.get("diagnostics") or {}).get("against_probe")
    meanings = [(title_score(key), SCORES[key].meaning) for key in scores if key in SCORES]
    sections = [
        _show_advice(scan),
        Section("Found", describe_scan(scan, [first], "(hollow)"), [draw_panel(scan, first)]),
        Section("Warnings", scan.get("warnings", [])),
        *(_show_scores(scan) if len(scores) > 1 else ()),
        Section(
            "Smoothness and the probe" if fitted else "Smoothness", table=tabulate_diagnostics(scan)
        ),
        *(
            Section(f"Agreement on the {of}", table=tabulate_agreement(scan, of))
            for of in ("states", "blocks")
        ),
        _show_stability(scan),
        Section("All values", table=tabulate_values(scan, folded=len(scores) > FEW)),
        *(
            Section(f"{title_score(key)} by part", table=tabulate_parts(scan, key))
            for key in scores
        ),
        Section("What the numbers mean", [NO_ACCURACY], facts=meanings),
        Section("What to do next", commands=_list_commands(scan, folder)),
        Section("Facts", facts=_list_facts(scan)),
    ]
    return f"{scan['model']['name']} on {scan['task']['name']}", sections


def _show_advice(scan: Mapping[str, Any]) -> Section:
    """Show what to do, before what it rests on."""
    command = write_advice(scan)
    commands = [] if command is None else [("Tune this plan:", command)]
    return Section("Advice", describe_advice(scan), commands=commands)


def _show_scores(scan: Mapping[str, Any]) -> list[Section]:
    """Show all scores in one table, and their curves, those of states and of blocks apart."""
    sections = [Section("All scores", table=tabulate_scores(scan))]
    for of in ("states", "blocks"):
        keys = [key for key in list_scores(scan, of) if scan["best"].get(key) is not None]
        if not keys:
            continue
        lines = ["Up is better in every panel: where lower is better, the axis is reversed."]
        if of == "blocks" and any(get_band(scan["scores"][key])[0] for key in keys):
            lines.append("The shaded band is one standard deviation over untrained heads.")
        if any(scan["scores"][key].get("low") for key in keys):
            lines.append("The intervals of scores that have them are shaded.")
        if any(find_tied(scan, key) for key in keys):
            lines.append("Hollow points are tied with the best state within noise.")
        charts = [draw_panel(scan, key, small=True) for key in keys]
        sections.append(Section(f"Scores of {of}", [" ".join(lines)], charts, small=True))
    return sections


def _show_stability(scan: Mapping[str, Any]) -> Section:
    """Show how the ranks move over the checkpoints of the model."""
    if not scan.get("stability"):
        return Section("Stability")
    text = (
        f"The same model at {len(scan['stability']['checkpoints'])} checkpoints: each line is one "
        "state or block, numbered on the right; those that were best at some checkpoint are "
        "highlighted."
    )
    table = tabulate_checkpoints(scan["stability"])
    return Section("Stability", [text], draw_moves(scan), table, small=True)


# The pooling that takes one token, by the usual one of a family; and what poolings give.
_SINGLE = {"mean": "cls", "last": "last"}
_WORDS = {
    "cls": "the first token",
    "first": "the first token",
    "last": "the last token",
    "mean": "the mean over the tokens",
}


def _list_commands(scan: Mapping[str, Any], folder: str) -> list[tuple[str, str]]:
    """List what is worth trying after this scan; only what it did not do already."""
    settings = scan["settings"]
    commands = [
        (
            "List what could be tuned and what it costs:",
            shlex.join(["layerscout", "plan", folder]),
        )
    ]
    if len(scan["scores"]) < FEW:
        everything = write_command("scan", scan, "--score", "all")
        commands.append(("See whether the other scores agree:", everything))
    usual, words = find_usual_pooling(scan), "words_used" in scan["task"]
    single = "first" if words else _SINGLE[usual]
    other = "mean" if settings.get("pooling", usual) != "mean" else single
    asked = f"{_WORDS[other]} of a word" if words else _WORDS[other]
    again = write_command("scan", scan, "--pooling", other)
    commands.append((f"See whether {asked} gives the same picture:", again))
    if more := read_more(scan):
        commands.append((f"Read {more[1]}:", write_command("scan", scan, "--examples", more[0])))
    if settings.get("precision") == "float32":
        sentence = "Compute in bfloat16, in about half the time if the processor supports it:"
        commands.append((sentence, write_command("scan", scan, "--precision", "auto")))
    return commands


def _list_facts(scan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List what was scanned, and how."""
    model, task = scan["model"], scan["task"]
    return [
        ("Model", f"{model['name']} ({model['family']})"),
        ("Size", f"{model['blocks']} blocks, {model['hidden_size']} wide"),
        ("Parameters", f"{model['parameters']['total']:,}"),
        ("Task", list_task(task)),
        ("Labels", ", ".join(map(str, task.get("labels") or ())) or "none"),
        ("Read", count_read(task)),
        ("Tokens per input", f"{task['tokens_per_example']:.1f}"),
        *list_circumstances(scan),
    ]
