"""Charts and the page for people, drawn from the plain dicts that the verbs write as JSON."""

import base64
import hashlib
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import altair as alt
import jinja2
import vl_convert

from layerscout.errors import InputError
from layerscout.files import write_files
from layerscout.scores import SCORES

# Both read well on white and on near-black.
CURVE, BEST = "#3f7fc4", "#e0701a"
MUTED, RULE = "#5b6470", "#d3d8de"
LOOK: dict[str, Any] = {  # in the page, the style sheet sets the colours of both schemes
    "view": alt.ViewConfig(stroke=None),
    "axis": alt.AxisConfig(
        gridColor=RULE,
        gridOpacity=0.6,
        domainColor=RULE,
        tickColor=RULE,
        labelColor=MUTED,
        titleColor=MUTED,
        titleFontWeight="normal",
    ),
    "title": alt.TitleConfig(anchor="start", fontSize=13, subtitleColor=MUTED),
}
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
FIT_WIDTH = alt.AutoSizeParams(type="fit-x", contains="padding")

MEANINGS = {
    "variability_ratio": (
        "ν compares the spread of the examples within a class with the spread between the classes, "
        "measured on the states before any training. The lower it is, the further apart the "
        "classes already are at that state.",
        "It ranks the layers of this model for this task; it is no accuracy. Where classes are "
        "hard to tell apart it also grows with the number of examples, so compare layers within a "
        "scan, not one scan with another.",
    ),
    "nc1": (
        "NC1 is the same ratio with every example counting alike instead of every class, so large "
        "classes weigh more. Lower is better here too.",
    ),
}

# Runs in the page. The interpreter (ast) needs no eval, so the page can forbid it.
DRAW = """
for (const figure of document.querySelectorAll("[data-chart]")) {
  const chart = JSON.parse(document.getElementById(figure.dataset.chart).textContent);
  const actions = {export: true, source: false, compiled: false, editor: false};
  vegaEmbed(figure, chart, {mode: "vega-lite", renderer: "svg", ast: true, actions});
}
"""


@dataclass(frozen=True)
class Table:
    """Cells as text under `columns`; `marked` holds the (row, column) of those that stand out."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: frozenset[tuple[int, int]] = frozenset()


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
    """

    title: str
    paragraphs: Sequence[str] = ()
    charts: Sequence[Mapping[str, Any]] = ()
    table: Table | None = None
    commands: Sequence[tuple[str, str]] = ()
    facts: Sequence[tuple[str, str]] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show but the title."""
        return not (self.paragraphs or self.charts or self.table or self.commands or self.facts)


def scan_chart(scan: Mapping[str, Any]) -> alt.ConcatChart:
    """Draw every score of a scan (the content of `scan.json`) over the states, one panel each."""
    scores = scan["scores"]
    columns = 1 if len(scores) <= 3 else 2 if len(scores) <= 8 else 3
    width, height = {1: (560, 240), 2: (380, 190), 3: (300, 160)}[columns]
    panels = [_panel(scan, key).properties(width=width, height=height) for key in scores]
    title = alt.TitleParams(
        scan["model"]["name"], subtitle=scan["task"]["name"], fontSize=16, limit=620, offset=16
    )
    chart = alt.concat(*panels, columns=columns, title=title, spacing=28, background="white")
    styled: alt.ConcatChart = chart.configure(**LOOK)
    return styled


def check_plot(path: Path) -> None:
    """Refuse a file name that no chart can be written to, before any work is done for it.

    Raises:
        InputError: if the suffix is none of .png, .svg, .pdf.
    """
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(
            f"a plot is written as .png, .svg or .pdf, got {path.name!r}; "
            f"name it {(path.name.split('.')[0] or 'plot') + '.png'!r}"
        )


def save_chart(chart: alt.TopLevelMixin, path: Path) -> None:
    """Write a chart to `path` as .png, .svg or .pdf.

    Raises:
        InputError: if `path` has another suffix or cannot be written.
    """
    check_plot(path)
    spec = chart.to_dict()
    match path.suffix.lower():
        case ".png":
            content = vl_convert.vegalite_to_png(spec, scale=2, allowed_base_urls=[])
        case ".svg":
            content = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]).encode()
        case _:
            content = vl_convert.vegalite_to_pdf(spec, allowed_base_urls=[])
    write_files({path: content})


def scan_page(scan: Mapping[str, Any]) -> str:
    """Write a scan (the content of `scan.json`) as one HTML page that needs nothing else."""
    meaning = [text for key in scan["scores"] for text in MEANINGS.get(key, ())]
    sections = [
        Section("Found", paragraphs=_findings(scan), charts=_panel_specs(scan)),
        Section("Warnings", paragraphs=scan.get("warnings", [])),
        Section("All values", table=_values(scan)),
        Section("What the numbers mean", paragraphs=meaning),
        Section("What to do next", commands=_next_commands(scan)),
        Section("Facts", facts=_facts(scan)),
    ]
    return page(f"{scan['model']['name']} on {scan['task']['name']}", sections, scan)


def page(title: str, sections: Sequence[Section], data: Mapping[str, Any]) -> str:
    """Build one HTML page from `sections`; it loads nothing and carries `data` whole, as JSON.

    Sections that hold nothing are left out. Only the one script whose hash the page states may
    run, whatever the texts contain.
    """
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _template().render(
        title=title,
        sections=[section for section in sections if not section.empty],
        data=data,
        script=script,
        script_hash=f"sha256-{digest}",
    )


def _panel(scan: Mapping[str, Any], key: str) -> alt.LayerChart:
    """Draw one score: curve, points, shaded interval where it has one, and the best marked."""
    score, best = scan["scores"][key], scan["best"].get(key)
    unit, top = _unit(score), scan["model"]["blocks"]
    low, high = score.get("low", ()), score.get("high", ())
    banded = len(low) == len(high) == len(score["values"])
    rows: list[dict[str, Any]] = [{"index": i, "value": v} for i, v in enumerate(score["values"])]
    if banded:
        rows = [row | {"low": a, "high": b} for row, a, b in zip(rows, low, high, strict=True)]
    at = alt.Chart(alt.InlineData(values=rows)).encode(_states_axis(unit, top))
    base = at.encode(_value_axis(score["better"], [*score["values"], *low, *high]))
    size = 36 if top <= 24 else 14
    layers = [
        base.mark_line(color=CURVE),
        base.mark_point(color=CURVE, filled=True, opacity=1, size=size),
    ]
    if banded:
        band = base.mark_area(color=CURVE, opacity=0.2, aria=False)
        layers.insert(0, band.encode(alt.Y("low:Q"), alt.Y2("high:Q")))
    if best is not None:
        layers += _best_layers(base.properties(data=alt.InlineData(values=[rows[best]])), scan, key)
    # A finger or a pointer need not hit a point: an invisible column answers for each.
    columns = at.mark_rule(opacity=0, strokeWidth=max(6, 260 // top), aria=False)
    names = ("value", "low", "high") if banded else ("value",)
    numbers = [alt.Tooltip(f"{name}:Q", format=".5~g") for name in names]
    layers.append(columns.encode(tooltip=[alt.Tooltip("index:Q", title=unit), *numbers]))
    return alt.LayerChart(layer=layers, title=_title(key), description=_description(scan, key))


def _best_layers(at_best: alt.Chart, scan: Mapping[str, Any], key: str) -> list[alt.Chart]:
    """Mark the best entry with a diamond and its name, written where the panel has room."""
    score, best, top = scan["scores"][key], scan["best"][key], scan["model"]["blocks"]
    align: Literal["left", "center", "right"] = "center"
    if not 0.15 * top < best < 0.85 * top:
        align = "left" if best < 0.5 * top else "right"
    below = score["better"] == "lower"
    label = at_best.mark_text(
        text=f"best: {_unit(score)} {best}",
        align=align,
        baseline="top" if below else "bottom",
        dy=9 if below else -9,
        color=BEST,
        fontWeight="bold",
        fontSize=12,
    )
    diamond = at_best.mark_point(shape="diamond", filled=True, opacity=1, size=150, color=BEST)
    return [diamond, label]


def _states_axis(unit: str, top: int) -> alt.X:
    """Lay out the states 0..L with a tick at L, however many they are."""
    ticks = list(range(0, top + 1, math.ceil(top / 12)))
    return alt.X(
        "index:Q",
        title="state (0: embeddings)" if unit == "state" else unit,
        scale=alt.Scale(domain=[0, top], nice=False, padding=10),
        axis=alt.Axis(format="d", values=ticks, grid=False),
    )


def _value_axis(better: str, values: Sequence[float | None]) -> alt.Y:
    """Choose the value scale: logarithmic where one state would flatten all the others."""
    known = [value for value in values if value is not None]
    title = f"{better} is better"
    if not known or min(known) <= 0 or max(known) <= 50 * min(known):
        return alt.Y("value:Q", title=title, scale=alt.Scale(zero=False, nice=False, padding=26))
    powers = range(math.floor(math.log10(min(known))), math.ceil(math.log10(max(known))) + 1)
    return alt.Y(
        "value:Q",
        title=f"{title} (log scale)",
        scale=alt.Scale(type="log", nice=False, padding=26),
        axis=alt.Axis(values=[10.0**power for power in powers], format="~g"),
    )


def _panel_specs(scan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Make one specification per score that takes the width of the page it stands in."""
    specs = [
        _panel(scan, key)
        .properties(width="container", height=220, background="transparent")
        .configure(font="system-ui, sans-serif", autosize=FIT_WIDTH, **LOOK)
        .to_dict()
        for key in scan["scores"]
    ]
    # The page holds no address, not even one that nothing loads.
    return [{name: value for name, value in spec.items() if name != "$schema"} for spec in specs]


def _unit(score: Mapping[str, Any]) -> str:
    return "block" if score["of"] == "blocks" else "state"


def _title(key: str) -> str:
    title = SCORES[key].title if key in SCORES else key.replace("_", " ")
    return title[:1].upper() + title[1:]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:#.4g}".removesuffix(".")


def _description(scan: Mapping[str, Any], key: str) -> str:
    """Say in one sentence what a panel shows, for those who cannot see it."""
    score, best = scan["scores"][key], scan["best"].get(key)
    text = f"{_title(key)} of {score['of']} 0 to {scan['model']['blocks']}; "
    if best is None:
        return f"{text}no {_unit(score)} could be scored."
    value = _number(score["values"][best])
    return f"{text}{score['better']} is better, {best} is best with {value}."


def _leading(scan: Mapping[str, Any]) -> str | None:
    """Choose the score that the page speaks of: the default one, else the first with a best."""
    defaults = ("variability_ratio_debiased", "variability_ratio")
    keys = [key for key in (*defaults, *scan["scores"]) if scan["best"].get(key) is not None]
    return keys[0] if keys else None


def _findings(scan: Mapping[str, Any]) -> list[str]:
    """Say in plain words which state is best, and how far the top one falls behind."""
    key, top = _leading(scan), scan["model"]["blocks"]
    if key is None:
        return ["No state could be scored: no score is defined at any of them."]
    score, best, name = scan["scores"][key], scan["best"][key], _title(key)
    unit, value, last = _unit(score), score["values"][best], score["values"][top]
    text = f"By the {name[:1].lower()}{name[1:]}, {unit} {best} of {top} is best: {_number(value)}"
    if best == top:
        return [f"{text}. That is the top {unit}; nothing below it does better."]
    if last is None:
        return [f"{text}. The top {unit} could not be scored."]
    if value > 0 and last > 0:
        share = abs(value / last - 1)
        text += f", {share:.0%} {score['better']} than the {_number(last)} of the top {unit}."
    else:
        text += f", against {_number(last)} at the top {unit}."
    return [text]


def _values(scan: Mapping[str, Any]) -> Table:
    """Tabulate every score over the states, to four digits, with the best of each marked."""
    scores, top = scan["scores"], scan["model"]["blocks"]
    columns = ["State", *(_title(key) + _per_block(scores[key]) for key in scores)]
    rows = [
        [f"{state} (embeddings)" if state == 0 else str(state)]
        + [_number(score["values"][state]) for score in scores.values()]
        for state in range(top + 1)
    ]
    best = [(scan["best"].get(key), column) for column, key in enumerate(scores, start=1)]
    marked = frozenset((row, column) for row, column in best if row is not None)
    return Table("To four digits; the best state of each score is marked ◆.", columns, rows, marked)


def _per_block(score: Mapping[str, Any]) -> str:
    return " (of the block)" if score["of"] == "blocks" else ""


def command(verb: str, scan: Mapping[str, Any], *more: str) -> str:
    """Write the command of a verb for the model and the data of a scan, as a shell reads it."""
    settings = scan["settings"]
    words = ["layerscout", verb, scan["model"]["name"], str(settings.get("data") or "DATA")]
    for name, usual in CARRIED.items():
        value = settings.get(name, usual)
        if value != usual:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join([*words, *more])


def _next_commands(scan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List what is worth trying after this scan; only what it did not do already."""
    settings, task = scan["settings"], scan["task"]
    commands = []
    if task["kind"] == "classification":
        commands = [
            (
                "List what could be tuned, and what it costs, in the folder of this page:",
                "layerscout plan .",
            ),
            (
                "Tune what costs at most half of full fine-tuning:",
                command("tune", scan, "--plan", "auto"),
            ),
        ]
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
    seconds = [f"{name} {value:.1f}" for name, value in scan["seconds"].items()]
    return [
        ("Model", f"{model['name']} ({model['family']})"),
        ("Size", f"{model['blocks']} blocks, {model['hidden_size']} wide"),
        ("Parameters", f"{model['parameters']['total']:,}"),
        ("Task", f"{task['name']} ({task['kind']})"),
        ("Labels", ", ".join(map(str, task.get("labels") or ())) or "none"),
        ("Examples", f"{task['examples_used']:,} of {task['examples_available']:,}"),
        ("Tokens per example", f"{task['tokens_per_example']:.1f}"),
        *((name.replace("_", " ").capitalize(), str(v)) for name, v in scan["settings"].items()),
        ("Seconds", ", ".join(seconds)),
        ("layerscout", scan["layerscout"]),
    ]


@cache
def _script() -> str:
    """Bundle the chart libraries and the lines that draw: the page's one script."""
    return str(vl_convert.javascript_bundle(DRAW))


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("layerscout", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # What is undefined is null in our files; a NaN would be no JSON at all.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment.get_template("page.html")
