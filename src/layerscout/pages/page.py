"""The page for people, written from the plain dicts that the verbs write as JSON."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from typing import Any

import jinja2

from layerscout.pages.charts import moves, panels, script, similarity_maps, skips, truncation
from layerscout.pages.wording import (
    CURVES,
    agreement,
    band,
    best_by,
    certainty,
    details,
    evaluation_lines,
    examples_read,
    heading,
    leading,
    map_names,
    no_signal,
    notes,
    number,
    of_kind,
    short_names,
    split_lines,
    tau,
    tied,
    title,
    unit,
)
from layerscout.scores import SCORES

# Settings of a scan that say what is read, with what a verb takes by itself.
CARRIED: Mapping[str, Any] = {
    "task": None,
    "text": None,
    "text_pair": None,
    "label": None,
    "validation": None,
    "max_length": 128,
    "seed": 0,
}
# What only a scan takes.
CARRIED_BY_SCANS: Mapping[str, Any] = {"regression": False, "pooling": "mean", "balanced": False}
# With fewer scores than this, the others are worth a look; with more, a table of values is long.
FEW = 4

NO_ACCURACY = (
    "Scores rank the layers of this model for this task; none of them is the accuracy that tuning "
    "will give. They look at the model before training, and where they disagree they look at "
    "different things."
)


BLOCK_DIAGONAL = (
    "A block diagonal, two bright squares, means that states within each of them hold much the "
    "same and that the change is made between them."
)

COMPARISON_MEANINGS = [
    (
        "CKA",
        "Linear centred kernel alignment: 1 where two states hold the same but for a rotation and "
        "a scale, so that examples lie equally far from each other in both. Its usual, biased "
        "estimate is far above 0 for unrelated states unless there are many more examples than "
        "features (Kornblith et al. 2019; Phang et al. 2021, App. A).",
    ),
    (
        "CKA, debiased",
        "The same from the estimate of HSIC without bias (Song et al. 2012): about 0 for unrelated "
        "states, however few the examples.",
    ),
]


@dataclass(frozen=True)
class Table:
    """Cells as text under `columns`.

    Attributes:
        caption: what stands above the table.
        columns: the headings.
        rows: of cells, one for each column.
        marked: the (row, column) of cells that stand out as the best.
        words: the columns that hold words, not numbers.
        below: what stands below the first cell of each row, if anything does.
        shades: how much colour lies behind a (row, column), from −1 to 1.
        folded: whether it is hidden until it is opened.
        sortable: whether a click on a heading sorts the rows.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: frozenset[tuple[int, int]] = frozenset()
    words: frozenset[int] = frozenset()
    below: Sequence[str] = ()
    shades: Mapping[tuple[int, int], float] = field(default_factory=dict)
    folded: bool = False
    sortable: bool = False


@dataclass(frozen=True)
class Section:
    """One part of a page, shown in the order of the fields; what is empty is left out.

    Attributes:
        title: the heading.
        paragraphs: plain text.
        charts: Vega-Lite specifications, each with a `description` for those who cannot see it.
        table: a table.
        commands: what to type, each after a sentence that says what for.
        facts: names and values.
        small: whether several charts fit side by side.
        code: text that is shown as it is.
        heading: whether it starts what is told of another thing, and is shown with or without
            content.
    """

    title: str
    paragraphs: Sequence[str] = ()
    charts: Sequence[Mapping[str, Any]] = ()
    table: Table | None = None
    commands: Sequence[tuple[str, str]] = ()
    facts: Sequence[tuple[str, str]] = ()
    small: bool = False
    code: str = ""
    heading: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show but the title."""
        content = self.paragraphs or self.charts or self.table or self.commands or self.facts
        return not (content or self.code or self.heading)


def scan_page(scan: Mapping[str, Any]) -> str:
    """Write a scan (the content of `scan.json`) as one HTML page that needs nothing else."""
    return page(*_of_scan(scan), scan)


def comparison_page(content: Mapping[str, Any]) -> str:
    """Write a comparison (the content of `compare.json`) as one HTML page."""
    return page(*_of_comparison(content), content)


def evaluation_page(content: Mapping[str, Any]) -> str:
    """Write an evaluation (the content of `evaluate.json`) as one HTML page."""
    return page(*_of_evaluation(content), content)


def sections_of(content: Mapping[str, Any]) -> tuple[str, list[Section]]:
    """Give the title and the sections of what a verb wrote as JSON, by its "verb"."""
    known = {
        "scan": _of_scan,
        "compare": _of_comparison,
        "evaluate": _of_evaluation,
        "tune": _of_tuning,
    }
    return known[content["verb"]](content)


def _of_scan(scan: Mapping[str, Any]) -> tuple[str, list[Section]]:
    first = leading(scan) or next(iter(scan["scores"]))
    sections = [
        Section("Found", _findings(scan), panels(scan, [first])),
        Section("Warnings", scan.get("warnings", [])),
        *(_side_by_side(scan) if len(scan["scores"]) > 1 else ()),
        *_diagnostics(scan),
        _stability(scan),
        Section("All values", table=_values(scan)),
        *(section for key in scan["scores"] for section in _parts(scan, key)),
        Section("What the numbers mean", [NO_ACCURACY], facts=_meanings(scan)),
        Section("What to do next", commands=_next_commands(scan)),
        Section("Facts", facts=_facts(scan)),
    ]
    return f"{scan['model']['name']} on {scan['task']['name']}", sections


def _of_comparison(content: Mapping[str, Any]) -> tuple[str, list[Section]]:
    names = short_names(content)
    models = [
        (f"Model {name}", f"{model['name']} ({model['family']}, {model['blocks']} blocks)")
        for name, model in zip(names, content["models"], strict=True)
    ]
    sections = [
        Section(
            "Found",
            [*(f"{line}." for line in split_lines(content)), BLOCK_DIAGONAL],
            similarity_maps(content, "cka"),
            small=len(content["maps"]) > 1,
        ),
        Section("Warnings", content["warnings"]),
        Section("Two clusters", table=_clusters(content)),
        Section(
            "Debiased",
            ["The same without the bias that few examples bring; unrelated states have about 0."],
            similarity_maps(content, "cka_debiased"),
            small=len(content["maps"]) > 1,
        ),
        *(_map_table(content, number) for number in range(len(content["maps"]))),
        Section("What the numbers mean", facts=COMPARISON_MEANINGS),
        Section(
            "Facts",
            facts=[
                *models,
                ("Task", f"{content['task']['name']} ({content['task']['kind']})"),
                ("Validation examples", f"{content['examples']:,}"),
                *_circumstances(content),
            ],
        ),
    ]
    return f"{' and '.join(names)} on {content['task']['name']}", sections


def _of_evaluation(content: Mapping[str, Any]) -> tuple[str, list[Section]]:
    model, task = content["model"], content["task"]
    sections = [
        Section("Found", [f"{line}." for line in evaluation_lines(content)]),
        Section("Warnings", content["warnings"]),
        _cut_section(content),
        _span_section(content),
        Section("Edits", table=_edit_table(content) if content["edits"] else None),
        Section(
            "Facts",
            facts=[
                ("Model", f"{model['name']} ({model['family']}, {model['blocks']} blocks)"),
                *([("Untuned", content["original"]["name"])] if content["original"] else []),
                ("Task", f"{task['name']} ({task['kind']})"),
                ("Validation examples", f"{task['examples_used']:,}"),
                *_circumstances(content),
            ],
        ),
    ]
    return f"{model['name']} on {task['name']}", sections


def _of_tuning(content: Mapping[str, Any]) -> tuple[str, list[Section]]:
    """Show a tuned model: what it is, its runs, and every epoch of the one that counts."""
    model, task, metric = content["model"], content["task"], content["metric"].replace("_", " ")
    flops, kept = content["flops"], content[content["keep"]]
    runs = [
        [
            f"{run['learning_rate']:g}",
            str(run["seed"]),
            number(run[content["keep"]]["value"] if content["keep"] in run else None),
            run["stopped"] or "–",
        ]
        for run in content["runs"]
    ]
    epochs = [
        [str(epoch["epoch"]), *(number(epoch[key]) for key in ("training_loss", "loss", "value"))]
        for epoch in content["runs"][content["kept"]]["curve"]
    ]
    plan = content["plan"]
    sections = [
        Section(
            "Found", [f"{plan['notation']} ({content['method']}): {metric} {kept['value']:.3f}."]
        ),
        Section("Warnings", content["warnings"]),
        Section("Runs", table=Table("", ["learning rate", "seed", metric, "stopped"], runs)),
        Section(
            "Epochs",
            table=Table("", ["epoch", "training loss", "validation loss", metric], epochs),
        ),
        Section(
            "Facts",
            facts=[
                ("Model", f"{model['name']} ({model['family']}, {model['blocks']} blocks)"),
                ("Task", f"{task['name']} ({task['kind']})"),
                ("Training examples", f"{task['examples_used']:,}"),
                (
                    "Training FLOPs",
                    f"{flops['train'] / flops['full_train']:.0%} of full fine-tuning",
                ),
                ("Parameters", f"{content['parameters']['total']:,}"),
                ("Trained", f"{content['parameters']['trainable']:,}"),
            ],
        ),
    ]
    return f"{model['name']} tuned on {task['name']}", sections


def page(title: str, sections: Sequence[Section], data: Mapping[str, Any]) -> str:
    """Build one HTML page from `sections`; it loads nothing and carries `data` whole, as JSON.

    Sections that hold nothing are left out. Only the one script whose hash the page states may
    run, whatever the texts contain.
    """
    content = script()
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return _template().render(
        title=title,
        sections=[section for section in sections if not section.empty],
        data=data,
        script=content,
        script_hash=f"sha256-{digest}",
    )


def command(verb: str, scan: Mapping[str, Any], *more: str) -> str:
    """Write the command of a verb for the model and the data of a scan, as a shell reads it."""
    settings = scan["settings"]
    words = ["layerscout", verb, scan["model"]["name"], str(settings.get("data") or "DATA")]
    carried = {**CARRIED, **CARRIED_BY_SCANS} if verb == "scan" else CARRIED
    for name, usual in carried.items():
        value, option = settings.get(name, usual), f"--{name.replace('_', '-')}"
        if value != usual and option not in more:
            words += [option] if value is True else [option, str(value)]
    return shlex.join([*words, *more])


def _findings(scan: Mapping[str, Any]) -> list[str]:
    """Say in plain words which state is best, how sure that is, and what the others say."""
    key, nothing = leading(scan), no_signal(scan)
    found = [f"{nothing}."] if nothing else []
    if key is None:
        return found or ["No state could be scored: no score is defined at any of them."]
    found += [_best(scan, key), *(f"{line}." for line in certainty(scan, key, " (hollow)"))]
    if read := examples_read(scan):
        found.append(f"{read}.")
    for of in ("states", "blocks"):
        groups = best_by(scan, of)
        if sum(map(len, groups.values())) > 1:
            listed = "; ".join(
                f"{best} by {', '.join(map(title, keys))}" for best, keys in groups.items()
            )
            found.append(f"Best {of[:-1]}: {listed}.")
    return found


def _best(scan: Mapping[str, Any], key: str) -> str:
    """Say which state is best by one score, and how far the top one falls behind."""
    score, best, top = scan["scores"][key], scan["best"][key], scan["model"]["blocks"]
    name, value, last = unit(score), score["values"][best], score["values"][top]
    text = f"By the {title(key)}, {name} {best} of {top} is best: {number(value)}"
    if best == top:
        return f"{text}. That is the top {name}; nothing below it does better."
    if last is None:
        return f"{text}. The top {name} could not be scored."
    if value > 0 and last > 0:
        share = abs(value / last - 1)
        return f"{text}, {share:.0%} {score['better']} than the {number(last)} of the top {name}."
    return f"{text}, against {number(last)} at the top {name}."


def _side_by_side(scan: Mapping[str, Any]) -> list[Section]:
    """Show all scores in one table, and their curves, those of states and of blocks apart."""
    sections = [Section("All scores", table=_summary(scan))]
    for of in ("states", "blocks"):
        keys = [key for key in of_kind(scan, of) if scan["best"].get(key) is not None]
        if keys:
            paragraphs = ["Up is better in every panel: where lower is better the axis is turned."]
            if of == "blocks" and any(band(scan["scores"][key])[0] for key in keys):
                paragraphs.append("What is shaded is one standard deviation over untrained heads.")
            if any(scan["scores"][key].get("low") for key in keys):
                paragraphs.append("Intervals are shaded where a score has one.")
            if any(tied(scan, key) for key in keys):
                paragraphs.append("Hollow points cannot be told apart from the best state.")
            drawn = panels(scan, keys, small=True)
            sections.append(Section(f"Scores of {of}", [" ".join(paragraphs)], drawn, small=True))
    return sections


def _summary(scan: Mapping[str, Any]) -> Table:
    """Tabulate what each score says of the model as a whole."""
    first, top = leading(scan), scan["model"]["blocks"]
    keys = [*of_kind(scan, "states"), *of_kind(scan, "blocks")]
    agree = {key: tau(scan, first, key) if first and key != first else None for key in keys}
    compared = any(value is not None for value in agree.values())
    columns = ["Score", "Better", "Best", "Value there", "At the top"]
    columns += ["Agrees (τ)"] if compared else []
    rows = []
    for key in keys:
        score, best = scan["scores"][key], scan["best"].get(key)
        row = [
            heading(key),
            score["better"],
            "–" if best is None else f"{unit(score)} {best}",
            number(None if best is None else score["values"][best]),
            number(score["values"][top]),
        ]
        row += [_signed(agree[key])] if compared else []
        rows.append([*row, "; ".join(notes(scan, key))])
    caption = "What each score says of the model."
    if compared and first:
        caption += (
            f" Agrees: Kendall's τ with the {title(first)} over states 1 to {top}; 1 is the "
            "same order, −1 the reverse."
        )
    what = [SCORES[key].summary if key in SCORES else "" for key in keys]
    words = frozenset({1, 2, len(columns)})
    return Table(caption, [*columns, "Note"], rows, words=words, below=what)


def _diagnostics(scan: Mapping[str, Any]) -> list[Section]:
    """Show how smooth the curves are, how well they go with the probe and with each other."""
    found = scan.get("diagnostics") or {}
    smooth, fits = found.get("smoothness") or {}, found.get("against_probe") or {}
    rows = []
    for key in scan["scores"]:
        fit, zeta = fits.get(key) or {}, smooth.get(key)
        if zeta is None and not fit.get("states"):
            continue
        row = [heading(key), number(zeta)]
        if fits:
            row += [_signed(fit.get("pearson")), number(fit.get("r_squared"))]
            row += [_signed(fit.get("spearman")), number(fit.get("slope"))]
            row += [number(fit.get("intercept")), str(fit.get("states") or "–")]
        rows.append(row)
    columns, caption = (
        ["Score", "ζ"],
        "ζ: how much the curve jumps from state to state; 0 is a straight line.",
    )
    if fits:
        columns += ["ρ with the probe", "R²", "Spearman", "Slope", "Intercept", "States"]
        caption += (
            " The probe is fitted by a line in each score, over the states 1 to "
            f"{scan['model']['blocks']} that have both."
        )
    table = Table(caption, columns, rows) if rows else None
    name = "Smoothness and the probe" if fits else "Smoothness"
    agreements = [
        Section(f"Agreement on the {of}", table=_agreement(scan, of)) for of in ("states", "blocks")
    ]
    return [Section(name, table=table), *agreements]


def _agreement(scan: Mapping[str, Any], of: str) -> Table | None:
    """Tabulate Kendall's τ between all scores of states (or blocks), the larger the more colour."""
    keys = [key for key in agreement(scan, of) if scan["best"].get(key) is not None]
    if len(keys) < 2:
        return None
    matrix = [[tau(scan, one, other) for other in keys] for one in keys]
    rows = [
        [
            f"{i}. {heading(key)}",
            *("" if i == j else _signed(value) for j, value in enumerate(values, start=1)),
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
        f"Kendall's τ: 1 where two scores put the {of} in the same order from best to worst, 0 "
        "where one says nothing of the other, −1 where they reverse it."
    )
    columns = ["", *(f"{place}." for place in range(1, len(keys) + 1))]
    return Table(caption, columns, rows, shades=shades)


def _stability(scan: Mapping[str, Any]) -> Section:
    """Show how the ranks move over the checkpoints of the model."""
    found = scan.get("stability")
    if not found:
        return Section("Stability")
    names = found["checkpoints"]
    rows = []
    shown = {key: score for key, score in found["scores"].items() if any(map(any, score["ranks"]))}
    for key, score in shown.items():
        moved = zip(names, score["ranks"], score["deviation"], score["kendall"], strict=True)
        for i, (name, ranks, deviation, agrees) in enumerate(moved, start=1):
            best = ranks.index(1) if 1 in ranks else None
            row = [heading(key), f"{i}. {name}", "–" if best is None else str(best)]
            # The first one is what the others are compared with.
            rows.append([*row, *((number(deviation), _signed(agrees)) if i > 1 else ("", ""))])
    columns = ["Score", "Checkpoint", "Best", "Ranks moved", "Kendall τ"]
    table = Table(
        "Ranks moved: how far a rank lies from the one at the first checkpoint, on average.",
        columns,
        rows,
        words=frozenset({1}),
    )
    text = (
        f"The same model at {len(names)} checkpoints: each line is one entry, numbered on the "
        "right; those that were best once stand out."
    )
    return Section("Stability", [text], moves(scan), table, small=True)


def _values(scan: Mapping[str, Any]) -> Table:
    """Tabulate every score over the states, to four digits, with the best of each marked."""
    scores, top = scan["scores"], scan["model"]["blocks"]
    columns = ["State", *(heading(key) + _per_block(scores[key]) for key in scores)]
    rows = [
        [f"{state} (embeddings)" if state == 0 else str(state)]
        + [number(score["values"][state]) for score in scores.values()]
        for state in range(top + 1)
    ]
    best = [(scan["best"].get(key), column) for column, key in enumerate(scores, start=1)]
    marked = frozenset((row, column) for row, column in best if row is not None)
    caption = "To four digits; the best state of each score is marked ◆."
    return Table(caption, columns, rows, marked, folded=len(scores) > FEW)


def _per_block(score: Mapping[str, Any]) -> str:
    return " (of the block)" if score["of"] == "blocks" else ""


def _parts(scan: Mapping[str, Any], key: str) -> list[Section]:
    """Tabulate a score of blocks by its parts, such as attention, or by kinds of matrices."""
    told = details(scan["scores"][key])
    parts = told.get("parts") or told.get("by_type")
    if not parts:
        return []
    blocks = range(1, scan["model"]["blocks"] + 1)
    rows = [[str(block), *(number(values[block]) for values in parts.values())] for block in blocks]
    table = Table(
        f"The {title(key)} of each part of a block, to four digits.",
        ["Block", *map(str, parts)],
        rows,
        folded=True,
    )
    return [Section(f"{heading(key)} by part", table=table)]


def _meanings(scan: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(heading(key), SCORES[key].meaning) for key in scan["scores"] if key in SCORES]


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"


def _next_commands(scan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List what is worth trying after this scan; only what it did not do already."""
    settings, task = scan["settings"], scan["task"]
    commands = []
    if task["kind"] == "classification":
        commands = [
            (
                "List what could be tuned, and what it costs, in the folder of the scan:",
                "layerscout plan .",
            ),
            (
                "Tune what costs at most half of full fine-tuning:",
                command("tune", scan, "--plan", "auto"),
            ),
        ]
    if len(scan["scores"]) < FEW:
        everything = command("scan", scan, "--score", "all")
        commands.append(("See whether the other scores agree:", everything))
    other = "mean" if settings.get("pooling") == "cls" else "cls"
    asked = {"cls": "the first token", "mean": "the mean over the tokens"}[other]
    again = command("scan", scan, "--pooling", other)
    commands.append((f"See whether {asked} tells the same:", again))
    if task["examples_used"] < task["examples_available"]:
        every = command("scan", scan, "--examples", "all")
        commands.append((f"Use all {task['examples_available']:,} examples:", every))
    if settings.get("precision") == "float32":
        sentence = "Compute in bfloat16 if the processor has it, in about half the time:"
        commands.append((sentence, command("scan", scan, "--precision", "auto")))
    return commands


def _facts(scan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List what was scanned, and how."""
    model, task = scan["model"], scan["task"]
    return [
        ("Model", f"{model['name']} ({model['family']})"),
        ("Size", f"{model['blocks']} blocks, {model['hidden_size']} wide"),
        ("Parameters", f"{model['parameters']['total']:,}"),
        ("Task", f"{task['name']} ({task['kind']})"),
        ("Labels", ", ".join(map(str, task.get("labels") or ())) or "none"),
        ("Examples", f"{task['examples_used']:,} of {task['examples_available']:,}"),
        ("Tokens per example", f"{task['tokens_per_example']:.1f}"),
        *_circumstances(scan),
    ]


def _clusters(content: Mapping[str, Any]) -> Table:
    """Tabulate the best split of each model's states."""
    rows = []
    for name, found in zip(short_names(content), content["clusters"], strict=True):
        for key, words in (("cka", "biased"), ("cka_debiased", "debiased")):
            one = found[key]
            values = ("lower", "upper", "between", "contrast")
            told = ["–"] * 4 if one is None else [f"{one[value]:.3f}" for value in values]
            rows.append([name, words, "–" if one is None else str(one["split"]), *told])
    caption = (
        "The split of the states into a lower and an upper cluster with the largest contrast: the "
        "mean CKA of two states of one cluster, less that of states of different ones. Compare "
        "with the untuned model: states that drift apart evenly have some contrast too."
    )
    columns = ["Model", "CKA", "Lower one ends at", "Within it", "Within the upper", "Between"]
    return Table(caption, [*columns, "Contrast"], rows, words=frozenset({1}))


def _map_table(content: Mapping[str, Any], number: int) -> Section:
    """Tabulate a map, for those who want its numbers; the top state first."""
    one, name = content["maps"][number], map_names(content)[number]
    columns = ["State", *map(str, one["columns"])]
    rows = [
        [str(state), *("–" if value is None else f"{value:.2f}" for value in line)]
        for state, line in reversed(list(zip(one["rows"], one["cka"], strict=True)))
    ]
    table = Table(f"CKA, {name}.", columns, rows, folded=True)
    return Section(f"Values: {name}", table=table)


def _cut_section(content: Mapping[str, Any]) -> Section:
    title = "Cut at every state"
    if not content["truncation"]:
        return Section(title)
    text = (
        f"The {content['metric'].replace('_', ' ')} when the head reads the state that a block "
        "gives, and all blocks above are gone. Dashed: always the commonest class."
    )
    return Section(title, [text], truncation(content), _curve_table(content))


def _span_section(content: Mapping[str, Any]) -> Section:
    title = "Spans of blocks passed over"
    if not content["skips"]:
        return Section(title)
    text = (
        f"The {content['metric'].replace('_', ' ')} without the blocks from one (to the right) to "
        "another (up). The top row is the model cut below the first of them."
    )
    return Section(title, [text], skips(content), _span_table(content))


def _curve_table(content: Mapping[str, Any]) -> Table:
    """Tabulate the truncation curves."""
    found = {key: content["truncation"][key] for key in CURVES if key in content["truncation"]}
    rows = [
        [f"{state} (embeddings)" if state == 0 else str(state), *map(number, values)]
        for state, values in enumerate(zip_longest(*found.values()))
    ]
    columns = ["State", *(CURVES[key] for key in found)]
    return Table("To four digits.", columns, rows, folded=True)


def _span_table(content: Mapping[str, Any]) -> Table:
    blocks = range(1, content["model"]["blocks"] + 1)
    rows = [
        [str(last)]
        + ["" if line[last - 1] is None else f"{line[last - 1]:.3f}" for line in content["skips"]]
        for last in reversed(blocks)
    ]
    caption = "Rows: the last block passed over; columns: the first."
    return Table(caption, ["", *map(str, blocks)], rows, folded=True)


def _edit_table(content: Mapping[str, Any]) -> Table:
    names = list(content["metrics"])
    listed = [{"edit": "the whole model", "metrics": content["metrics"]}, *content["edits"]]
    rows = [[one["edit"], *(number(one["metrics"][name]) for name in names)] for one in listed]
    columns = ["Edit", *(name.replace("_", " ").capitalize() for name in names)]
    return Table("The metrics of the model under each edit.", columns, rows)


def _circumstances(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List what every verb tells: the settings that have a value, the seconds, the version."""
    seconds = [f"{name} {value:.1f}" for name, value in content["seconds"].items()]
    named = {"task": "Known task"}  # its name stands above
    return [
        *(
            (named.get(name, name.replace("_", " ").capitalize()), _setting(value))
            for name, value in content["settings"].items()
            if value is not None
        ),
        ("Seconds", ", ".join(seconds)),
        ("layerscout", content["layerscout"]),
    ]


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_setting(held)}" for name, held in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value))
    return str(value)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("layerscout.pages", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # What is undefined is null in our files; a NaN would be no JSON at all.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment.get_template("page.html")
