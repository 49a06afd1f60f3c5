"""The sections of each verb's page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from layerscout.reporting.comparison import (
    choose_estimate,
    count_compared,
    describe_clusters,
    name_maps,
    shorten_names,
    tabulate_clusters,
    tabulate_map,
)
from layerscout.reporting.content import Section
from layerscout.reporting.evaluation import (
    advise_more_rows,
    describe_evaluation,
    offer_macro_f1,
    tabulate_by_name,
    tabulate_calibration,
    tabulate_confusion,
    tabulate_edits,
    tabulate_epochs,
    tabulate_errors,
    tabulate_runs,
    tabulate_solved,
    tabulate_spans,
    tabulate_truncation,
)
from layerscout.reporting.figures import (
    draw_epochs,
    draw_more,
    draw_moves,
    draw_panel,
    draw_reliability,
    draw_similarity,
    draw_skips,
    draw_truncation,
)
from layerscout.reporting.next_steps import (
    describe_tuning,
    list_uses,
    suggest_step,
    write_command,
)
from layerscout.reporting.scan import (
    tabulate_agreement,
    tabulate_checkpoints,
    tabulate_diagnostics,
    tabulate_parts,
    tabulate_scores,
    tabulate_values,
)
from layerscout.reporting.scores import (
    TIED,
    choose_leading,
    describe_advice,
    describe_scan,
    find_tied,
    get_band,
    list_scores,
    title_score,
)
from layerscout.reporting.words import (
    compare_with_free,
    count_examples,
    count_fitted,
    count_judged,
    count_read,
    describe_free,
    describe_more,
    describe_quality,
    find_stage,
    list_circumstances,
    list_costs,
    list_model,
    list_task,
    name_constant_answer,
    name_examples,
    name_measure,
    read_more,
    start_line,
)
from layerscout.scores import SCORES

# With fewer scores than this, the others are worth a look; with more, a table of values is long.
FEW = 4
NO_ACCURACY = (
    "Scores rank the layers of this model for this task; none of them predicts the accuracy after "
    "tuning. They describe the model before training, and where they disagree, they measure "
    "different things."
)


Content = Mapping[str, Any]
# The title, what was found, the sections between the warnings and the facts, and the facts.
Parts = tuple[str, Section, list[Section], list[tuple[str, str]]]


def build_sections(content: Content, folder: str = ".") -> tuple[str, list[Section]]:
    """Return the title and the sections of what a verb wrote as JSON.

    Args:
        content: of the file.
        folder: where it is, as commands name it.
    """
    title, first, parts, facts = BUILDERS[content["verb"]](content, folder)
    step = suggest_step(content, folder)
    commands = [] if step is None else [step]
    opening = [replace(first, commands=commands)]
    if content["verb"] == "scan":  # what to do, before what it rests on
        opening = [Section("Advice", describe_advice(content), commands=commands), first]
    warnings = Section("Warnings", content.get("warnings", []))
    return title, [*opening, warnings, *parts, Section("Facts", facts=facts)]


def _build_scan(scan: Content, folder: str) -> Parts:
    scores, model, task = scan["scores"], scan["model"], scan["task"]
    first = choose_leading(scan) or next(iter(scores))
    fitted = (scan.get("diagnostics") or {}).get("against_probe")
    smooth = "Smoothness and the probe" if fitted else "Smoothness"
    meanings = [(title_score(key), SCORES[key].meaning) for key in scores if key in SCORES]
    parts = [
        *(_show_scores(scan, first) if len(scores) > 1 else ()),
        Section(smooth, table=tabulate_diagnostics(scan)),
        Section("Agreement on the states", table=tabulate_agreement(scan, "states")),
        Section("Agreement on the blocks", table=tabulate_agreement(scan, "blocks")),
        *([_show_stability(scan)] if scan.get("stability") else ()),
        Section("All values", table=tabulate_values(scan, folded=len(scores) > FEW)),
        *(
            Section(f"{title_score(key)} by part", table=tabulate_parts(scan, key))
            for key in scores
        ),
        Section("What the numbers mean", [NO_ACCURACY], facts=meanings),
        Section("What to do next", commands=_list_commands(scan, folder)),
    ]
    facts = [
        ("Model", f"{model['name']} ({model['family']})"),
        ("Size", f"{model['blocks']} blocks, {model['hidden_size']} wide"),
        ("Parameters", f"{model['parameters']['total']:,}"),
        ("Task", list_task(task)),
        ("Labels", ", ".join(map(str, task.get("labels") or ())) or "none"),
        ("Read", count_read(task)),
        ("Tokens per input", f"{task['tokens_per_example']:.1f}"),
        *list_circumstances(scan),
    ]
    lines, charts = describe_scan(scan, [first], "(hollow)"), [draw_panel(scan, first)]
    lines += [f"Hollow: {TIED}."] if find_tied(scan, first) else []
    return f"{model['name']} on {task['name']}", Section("Found", lines, charts), parts, facts


def _show_scores(scan: Content, first: str) -> list[Section]:
    """Show all scores in one table, and the curves of all but the first, which leads the page."""
    sections = [Section("All scores", table=tabulate_scores(scan))]
    for of in ("states", "blocks"):
        known = (key for key in list_scores(scan, of) if scan["best"].get(key) is not None)
        keys = [key for key in known if key != first]
        if not keys:
            continue
        lines = ["Up is better in every panel: where lower is better, the axis is reversed."]
        if of == "blocks" and any(get_band(scan["scores"][key])[0] for key in keys):
            lines.append("The shaded band is one standard deviation over untrained heads.")
        if any(scan["scores"][key].get("low") for key in keys):
            lines.append("The intervals of scores that have them are shaded.")
        if any(find_tied(scan, key) for key in keys):
            lines.append(f"Hollow: {TIED}.")
        charts = [draw_panel(scan, key, small=True) for key in keys]
        sections.append(Section(f"Scores of {of}", [" ".join(lines)], charts, small=True))
    return sections


def _show_stability(scan: Content) -> Section:
    """Show how the ranks move over the checkpoints of the model."""
    text = (
        f"The same model at {len(scan['stability']['checkpoints'])} checkpoints: each line is one "
        "state or block, numbered on the right; those that were best at some checkpoint are "
        "highlighted."
    )
    table = tabulate_checkpoints(scan["stability"])
    return Section("Stability", [text], draw_moves(scan), table, small=True)


def _list_commands(scan: Content, folder: str) -> list[tuple[str, str]]:
    """List what is worth trying after this scan; only what it did not do already."""
    plan = shlex.join(["layerscout", "plan", folder])
    commands = [("List what could be tuned and what it costs:", plan)]
    if len(scan["scores"]) < FEW:
        everything = write_command("scan", scan, "--score", "all")
        commands.append(("See whether the other scores agree:", everything))
    if more := read_more(scan):
        commands.append((f"Read {more[1]}:", write_command("scan", scan, "--examples", more[0])))
    return commands


BLOCK_DIAGONAL = (
    "Two bright squares on the diagonal mean that the states within each square are similar, and "
    "that most of the change happens between the squares."
)
# What is said of the estimate that does not lead.
OTHERS = {
    "cka": ("Debiased", "The same estimate without the bias that few examples cause."),
    "cka_debiased": (
        "Biased",
        "The usual estimate. With so few examples, it is far above 0 even for unrelated states.",
    ),
}
MEANINGS = [
    (
        "CKA",
        "Linear centred kernel alignment: 1 if two states are the same up to a rotation and a "
        "scale, so that the examples lie at the same relative distances in both. Its usual, biased "
        "estimate is far above 0 for unrelated states unless there are many more examples than "
        "features (Kornblith et al. 2019; Phang et al. 2021, App. A).",
    ),
    (
        "Debiased CKA",
        "The same from the unbiased estimate of HSIC (Song et al. 2012): about 0 for unrelated "
        "states, however few the examples.",
    ),
]


def _build_comparison(content: Content, folder: str) -> Parts:
    names, small, key = shorten_names(content), len(content["maps"]) > 1, choose_estimate(content)
    title, text = OTHERS[key]
    other = "cka_debiased" if key == "cka" else "cka"
    lines = [*describe_clusters(content), BLOCK_DIAGONAL]
    first = Section("Found", lines, draw_similarity(content, key), small=small)
    parts = [
        Section("Two clusters", table=tabulate_clusters(content)),
        Section(title, [text], draw_similarity(content, other), small=small),
        *(
            Section(f"Values: {name}", table=tabulate_map(one, name, key))
            for name, one in zip(name_maps(content), content["maps"], strict=True)
        ),
        Section("What the numbers mean", facts=MEANINGS),
    ]
    models = zip(names, content["models"], strict=True)
    facts = [
        *((f"Model {name}", list_model(model)) for name, model in models),
        ("Task", list_task(content["task"])),
        ("Compared on", count_compared(content)),
        *list_circumstances(content),
    ]
    return f"{' and '.join(names)} on {content['task']['name']}", first, parts, facts


def _build_evaluation(content: Content, folder: str) -> Parts:
    model, task, metric = content["model"], content["task"], name_measure(content)
    parts = [*_show_names(content), _show_uses(content, folder)]
    if content["truncation"]:
        text = (
            f"The {metric} when the head reads the output of a block and all blocks above it are "
            f"removed. Dashed: always predicting {name_constant_answer(task['kind'])}."
        )
        charts, table = [draw_truncation(content)], tabulate_truncation(content)
        parts.append(Section("Truncated at every state", [text], charts, table))
    if content["skips"]:
        text = (
            f"The {metric} without a span of blocks, from its first (horizontal axis) to its last "
            "(vertical axis). The top row is the model truncated below the first one."
        )
        charts, table = [draw_skips(content)], tabulate_spans(content)
        parts.append(Section("Skipped spans of blocks", [text], charts, table))
    if content["edits"]:
        parts.append(Section("Edits", table=tabulate_edits(content)))
    facts = [
        ("Model", list_model(model)),
        *([("Untuned", content["original"]["name"])] if content["original"] else []),
        ("Task", list_task(task)),
        ("Validated on", count_examples(task)),
        *list_circumstances(content),
    ]
    first = Section("Found", describe_evaluation(content))
    parts.append(_show_calibration(content))
    return f"{model['name']} on {task['name']}", first, parts, facts


def _build_tuned(content: Content, folder: str) -> Parts:
    model, task, plan = (content[name] for name in ("model", "task", "plan"))
    stage, method = find_stage(content), content["method"]
    how = [method] if method != "full" else []  # which reads as full fine-tuning
    how += ["head solved"] if stage != "trained" else []
    by = f" ({', '.join(how)})" if how else ""
    lines = [f"{plan['notation']}{by}: {describe_quality(content)}."]
    lines += filter(None, [describe_free(content), offer_macro_f1(content)])
    if advice := advise_more_rows({**content, "tuning": describe_tuning(content)}):
        lines.append(advice)
    words, better = compare_with_free(content)
    if words:
        lines.insert(1 if better else 0, f"{start_line(words)}.")
    if stage == "solved":
        training = [Section("Solved heads", table=tabulate_solved(content))]
    else:
        training = [Section("Runs", table=tabulate_runs(content))]
    if stage == "trained":
        charts, table = [draw_epochs(content)], tabulate_epochs(content)
        training.append(Section("Epochs", charts=charts, table=table))
    parts = [
        *_show_names(content),
        _show_uses(content, folder),
        *training,
        Section("Errors", table=tabulate_errors(content)),
        _show_calibration(content),
        _show_more(content),
    ]
    test, examples = content.get("test"), name_examples(task["kind"])
    facts = [
        ("Model", list_model(model)),
        ("Task", list_task(task)),
        ("Trained on", count_fitted(content)),
        ("Judged on", count_judged(content)),
        *([("Tested on", f"{test['examples']:,} {examples}")] if test else []),
        *((start_line(name), value) for name, value in list_costs(content).items()),
    ]
    return f"{model['name']} tuned on {task['name']}", Section("Found", lines), parts, facts


def _show_names(content: Content) -> list[Section]:
    """Show how well a model does on every label by itself, and which were taken for which."""
    table = tabulate_by_name(content)
    title = "By name" if table is None else f"By {table.columns[0].lower()}"
    return [Section(title, table=table), Section("Confusions", table=tabulate_confusion(content))]


def _show_uses(content: Content, folder: str) -> Section:
    """Show what to do with a model; what comes next stands at the top already."""
    step = suggest_step(content, folder)
    return Section("Use the model", commands=[u for u in list_uses(content, folder) if u != step])


def _show_more(content: Content) -> Section:
    """Show what more labelled texts would bring."""
    said = [f"{start_line(line)}." for line in filter(None, [describe_more(content)])]
    return Section("What more would bring", said, draw_more(content))


def _show_calibration(content: Content) -> Section:
    """Show how far probabilities can be believed."""
    charts, table = draw_reliability(content), tabulate_calibration(content)
    return Section("Probabilities", charts=charts, table=table)


BUILDERS = {
    "scan": _build_scan,
    "compare": _build_comparison,
    "evaluate": _build_evaluation,
    "tune": _build_tuned,
}
