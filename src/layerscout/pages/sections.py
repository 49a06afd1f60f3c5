"""The sections of each verb's page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from layerscout.pages.charts import (
    draw_epochs,
    draw_moves,
    draw_panel,
    draw_similarity,
    draw_skips,
    draw_truncation,
)
from layerscout.pages.comparison import (
    choose_estimate,
    count_compared,
    describe_clusters,
    name_maps,
    shorten_names,
    tabulate_clusters,
    tabulate_map,
)
from layerscout.pages.content import Section, Table
from layerscout.pages.evaluation import (
    SHOWN,
    advise_more_rows,
    choose_split,
    describe_evaluation,
    tabulate_by_name,
    tabulate_edits,
    tabulate_spans,
    tabulate_truncation,
)
from layerscout.pages.next_steps import (
    describe_tuning,
    find_usual_pooling,
    write_advice,
    write_command,
)
from layerscout.pages.scan import (
    tabulate_agreement,
    tabulate_checkpoints,
    tabulate_diagnostics,
    tabulate_parts,
    tabulate_scores,
    tabulate_values,
)
from layerscout.pages.scores import (
    choose_leading,
    describe_advice,
    describe_scan,
    find_tied,
    get_band,
    list_scores,
    title_score,
)
from layerscout.pages.tuned import tabulate_epochs, tabulate_runs
from layerscout.pages.words import (
    count_examples,
    count_read,
    describe_reached,
    describe_speed,
    format_decimals,
    list_circumstances,
    list_model,
    list_task,
    name_examples,
    name_label,
    name_majority,
    name_measure,
    read_more,
)
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


def build_comparison(content: Mapping[str, Any]) -> tuple[str, list[Section]]:
    """Give the title and the sections of a comparison."""
    names = shorten_names(content)
    small = len(content["maps"]) > 1
    key = choose_estimate(content)
    title, text = OTHERS[key]
    models = zip(names, content["models"], strict=True)
    sections = [
        Section(
            "Found",
            [*describe_clusters(content), BLOCK_DIAGONAL],
            draw_similarity(content, key),
            small=small,
        ),
        Section("Warnings", content["warnings"]),
        Section("Two clusters", table=tabulate_clusters(content)),
        Section(
            title,
            [text],
            draw_similarity(content, "cka_debiased" if key == "cka" else "cka"),
            small=small,
        ),
        *(
            Section(f"Values: {name}", table=tabulate_map(one, name, key))
            for name, one in zip(name_maps(content), content["maps"], strict=True)
        ),
        Section("What the numbers mean", facts=MEANINGS),
        Section(
            "Facts",
            facts=[
                *((f"Model {name}", list_model(model)) for name, model in models),
                ("Task", list_task(content["task"])),
                ("Compared on", count_compared(content)),
                *list_circumstances(content),
            ],
        ),
    ]
    return f"{' and '.join(names)} on {content['task']['name']}", sections


def build_evaluation(content: Mapping[str, Any]) -> tuple[str, list[Section]]:
    """Give the title and the sections of an evaluation."""
    model, task, metric = content["model"], content["task"], name_measure(content)
    sections = [
        Section("Found", describe_evaluation(content)),
        Section("Warnings", content["warnings"]),
        Section("Truncated at every state"),
        Section("Skipped spans of blocks"),
        Section("Edits"),
        show_by_name(content),
        show_confusion(content),
        Section(
            "Facts",
            facts=[
                ("Model", list_model(model)),
                *([("Untuned", content["original"]["name"])] if content["original"] else []),
                ("Task", list_task(task)),
                ("Validated on", count_examples(task)),
                *list_circumstances(content),
            ],
        ),
    ]
    if content["truncation"]:
        text = (
            f"The {metric} when the head reads the output of a block and all blocks above it are "
            f"removed. Dashed: always predicting {name_majority(task['kind'])}."
        )
        table = tabulate_truncation(content)
        sections[2] = Section(sections[2].title, [text], [draw_truncation(content)], table)
    if content["skips"]:
        text = (
            f"The {metric} without a span of blocks, from its first (horizontal axis) to its last "
            "(vertical axis). The top row is the model truncated below the first one."
        )
        table = tabulate_spans(content)
        sections[3] = Section(sections[3].title, [text], [draw_skips(content)], table)
    if content["edits"]:
        sections[4] = Section(sections[4].title, table=tabulate_edits(content))
    return f"{model['name']} on {task['name']}", sections


def build_tuned(content: Mapping[str, Any]) -> tuple[str, list[Section]]:
    """Give the title and the sections of a tuned model."""
    model, task, plan, flops = (content[name] for name in ("model", "task", "plan", "flops"))
    found = f"{plan['notation']} ({content['method']}): {describe_reached(content)}."
    advice = advise_more_rows({**content, "tuning": describe_tuning(content)})
    share, test = flops["train"] / flops["full_train"], content.get("test")
    examples = name_examples(task["kind"])
    sections = [
        Section("Found", [found] if advice is None else [found, advice]),
        Section("Warnings", content["warnings"]),
        Section("Runs", table=tabulate_runs(content)),
        Section("Epochs", charts=[draw_epochs(content)], table=tabulate_epochs(content)),
        show_by_name(content),
        show_confusion(content),
        _show_errors(content),
        Section(
            "Facts",
            facts=[
                ("Model", list_model(model)),
                ("Task", list_task(task)),
                ("Trained on", count_examples(task)),
                ("Validated on", f"{content['settings']['validation_examples']:,} {examples}"),
                *([("Tested on", f"{test['examples']:,} {examples}")] if test else []),
                ("Training FLOPs", f"{share:.0%} of full fine-tuning"),
                ("Parameters", f"{content['parameters']['total']:,}"),
                ("Trained", f"{content['parameters']['trainable']:,}"),
                *_list_costs(content),
            ],
        ),
    ]
    return f"{model['name']} tuned on {task['name']}", sections


def _show_errors(content: Mapping[str, Any]) -> Section:
    """Show the wrong predictions that the model is surest of."""
    found = choose_split(content).get("errors") or []
    rows = [
        [
            f"{one['row']:,}",
            one["label"],
            one["prediction"],
            format_decimals(one["probability"]),
            one["text"] + (f" / {one['text_pair']}" if "text_pair" in one else ""),
        ]
        for one in found
    ]
    columns = ["Row", "Label", "Predicted", "Probability", "Text"]
    caption = "The wrong predictions of which the model is most sure; rows are counted from 0."
    table = Table(caption, columns, rows, words=frozenset({1, 2, 4}), texts=True)
    return Section("Errors", table=table if rows else None)


def _list_costs(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List the time and the memory that the training took, and the speed of the model."""
    seconds, memory = content["seconds"], content["memory"].get("used")
    found = [("Time", f"{sum(seconds.values()):.1f} s: " + _join_seconds(seconds))]
    if memory is not None:
        found.append(("Memory", f"{memory / 1e9:.2f} GB at most"))
    if speed := describe_speed(content):
        found.append(("Speed of the model", speed))
    return found


def _join_seconds(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in seconds.items())


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
