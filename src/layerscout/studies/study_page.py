"""The page of a study: its figures, tables and sections, from its records."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscout.reporting import Section, Table, draw_similarity, draw_skips, draw_truncation
from layerscout.studies.charts import COSTS, draw_figure, draw_strategies
from layerscout.studies.conclusions import StudyContent
from layerscout.studies.recipe import FigureSpec, Grid, TableSpec, list_names
from layerscout.studies.summaries import FIXED
from layerscout.studies.tables import (
    collect_trials,
    compare_with_baseline,
    correlate_values,
    format_rounded,
    format_value,
    summarise,
)
from layerscout.yaml import write_yaml

if TYPE_CHECKING:
    import altair as alt

# A page with more rows would be slow; the file has them all.
LISTED = 2000
OVER = "Quality over"
JOINED = (
    "Every point is a strategy, as a mean over its seeds; the dashed line joins those that no "
    "cheaper strategy matches."
)


def build_study(
    study: StudyContent,
    tables: Sequence[tuple[str, Table]],
    figures: Mapping[str, Sequence[alt.LayerChart]],
    conclusion: Sequence[str],
) -> list[Section]:
    """Return the sections of the page, the conclusion first."""
    recipe = write_yaml(study.content["recipe"])
    return [
        Section("Overview", [*conclusion, *_describe_progress(study)], heading=True),
        Section("Warnings", _list_warnings(study)),
        *(
            Section(
                title,
                [JOINED] if title.startswith(OVER) else [],
                [chart.properties(height=230) for chart in charts],
                small=len(charts) > 1,
            )
            for title, charts in figures.items()
        ),
        *(Section(title, table=table) for title, table in tables),
        *_show_contests(study),
        *_show_evaluations(study),
        Section("Trials", table=_tabulate_trials(study.frame)),
        Section("Recipe", code=recipe),
        Section("Environment", facts=_list_facts(study)),
    ]


def _describe_progress(study: StudyContent) -> list[str]:
    """Say what the study reproduces, how many trials are done, and how long they took."""
    states = Counter("waiting" if r is None else r["status"] for r in study.records.values())
    states["refused"] = sum(cell["trial"] is None for cell in study.content["cells"])
    listed = [
        f"{states[name]:,} {name}"
        for name in ("done", "failed", "waiting", "refused")
        if states[name]
    ]
    seconds = sum(record["seconds"] for record in study.records.values() if record)
    took = f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
    took = f"{seconds:.0f} seconds" if seconds < 90 else took
    lines = [f"After {study.recipe.credits}."] if study.recipe.source else []
    return [*lines, f"Trials: {', '.join(listed)}; {took} of work."]


def _list_warnings(study: StudyContent) -> list[str]:
    """Say what failed, was refused or is broken, and what the trials warned of."""
    failed: Counter[str] = Counter()
    warned: Counter[str] = Counter()
    for record in filter(None, study.records.values()):
        if record["status"] == "failed":
            failed[record["error"]] += 1
        else:
            warned.update(list(dict.fromkeys(record["result"].get("warnings") or ())))
    refused = Counter(c["refused"] for c in study.content["cells"] if c.get("refused"))
    lines = [
        f"{number} failed: {error}; --retry-failed runs them again."
        for error, number in failed.most_common(5)
    ]
    lines += [f"{number} could not be run: {why}." for why, number in refused.most_common(5)]
    if study.broken:
        lines.append(
            f"Records that are cut short or broken: {study.broken}; running the study again "
            "repairs them."
        )
    baseline, grids = study.recipe.baseline, study.recipe.grids.values()
    if baseline and not any(_find_axis(study, grid) for grid in grids if grid.verb == "tune"):
        lines.append(
            f"Nothing is compared with the baseline {baseline}: it is not a value of any axis."
        )
    return lines + [
        f"{warning} ({number} trial{'s' if number > 1 else ''})"
        for warning, number in warned.most_common(5)
    ]


def draw_study(study: StudyContent) -> dict[str, list[alt.LayerChart]]:
    """Draw the figures of the recipe, and quality over cost where strategies are compared."""
    figures: dict[str, list[alt.LayerChart]] = {}
    for spec in study.recipe.figures:
        panels = dict.fromkeys(["model", *list_names(spec.panels)])
        known = [name for name in panels if name in study.frame or name == "measure"]
        if spec.kind == "maps":
            figures[spec.title] = _draw_maps(study, spec)
        elif spec.kind == "skips":
            figures[spec.title] = [
                draw_skips(record["result"]).properties(title=_name_evaluation(cell["values"]))
                for cell, record in study.list_done("evaluate", spec.grid)
                if record["result"]["skips"]
            ]
        else:
            figures[spec.title] = draw_figure(study.frame, spec, known)
    for name, grid in study.recipe.grids.items():
        if grid.verb == "tune" and {"plan", "method"} & grid.axes.keys():
            of_grid = "" if len(study.recipe.grids) == 1 else f", {name}"
            for cost, (_, _, called) in COSTS.items():
                charts = draw_strategies(study.frame, name, cost)
                figures[f"{OVER} {called}{of_grid}"] = charts
    return {title: charts for title, charts in figures.items() if charts}


def _draw_maps(study: StudyContent, spec: FigureSpec) -> list[alt.LayerChart]:
    """Draw the CKA maps of a grid of compare, under the names that the study has for models."""
    charts: list[alt.LayerChart] = []
    for cell, record in study.list_done("compare", spec.grid):
        models = record["result"]["models"]
        if names := cell["values"].get("models"):
            models = [model | {"name": n} for model, n in zip(models, names, strict=True)]
        charts += draw_similarity({**record["result"], "models": models}, "cka")
    return charts


def _name_evaluation(values: Mapping[str, Any]) -> str:
    axes = [axis for axis in ("model", "task", "seed") if axis in values]
    return ", ".join(f"{axis} {format_value(values[axis])}" for axis in axes)


def tabulate_study(study: StudyContent) -> list[tuple[str, Table]]:
    """Return the tables of the recipe with their titles, those without a row left out."""
    tables = []
    frame = study.frame
    several = "model" in frame and frame["model"].nunique() > 1
    for spec in study.recipe.tables:
        rows, columns = list_names(spec.rows), list_names(spec.columns)
        if spec.kind == "correlations":
            table = _tabulate_correlations(frame, spec)
        else:
            if several and "model" not in (*rows, *columns):
                # Where there are many columns already, the model has rows.
                (rows if "measure" in columns else columns).insert(0, "model")
            spec = spec.model_copy(update={"rows": rows, "columns": columns})
            table = summarise(frame, spec)
        tables.append((spec.title, table))
    return [(title, table) for title, table in tables if table.rows]


def _tabulate_correlations(frame: pd.DataFrame, spec: TableSpec) -> Table:
    of, over = str(spec.rows), str(spec.columns)
    headings = [f"{of}s compared", "Spearman (p)", "Pearson (p)", "n"]
    agreed = []
    if of in frame and over in frame:
        agreed = correlate_values(frame, grid=spec.grid, value=str(spec.value), of=of, over=over)
    rows = [
        [
            one.pair,
            f"{one.spearman:.2f} ({one.spearman_p:.2f})",
            f"{one.pearson:.2f} ({one.pearson_p:.2f})",
            str(one.n),
        ]
        for one in agreed
    ]
    return Table("", headings, rows, sortable=True)


def _find_axis(study: StudyContent, grid: Grid) -> str | None:
    """Name the axis of a grid that the baseline is a value of."""
    axes = [str(axis) for axis in study.frame if axis in grid.axes]
    baseline = study.recipe.baseline
    return next((a for a in axes if baseline in set(study.frame[a].map(format_value))), None)


def _show_contests(study: StudyContent) -> list[Section]:
    """Compare the values of an axis with the baseline."""
    baseline = study.recipe.baseline
    sections = []
    for name, grid in study.recipe.grids.items():
        axis = _find_axis(study, grid)
        if grid.verb != "tune" or axis is None or baseline is None:
            continue
        rows = []
        for one in compare_with_baseline(study.frame, name, axis, baseline, study.records):
            ends = one.difference.low, one.difference.high
            interval = "–" if None in ends else " to ".join(map(_format_difference, ends))
            p = "–" if one.wilcoxon is None else f"{one.wilcoxon:.3f}"
            better = f"{one.better} of {one.difference.n}"
            mean = _format_difference(one.difference.mean)
            rows.append([one.name, mean, interval, p, better, f"{one.pairs}"])
        caption = (
            f"Difference of the metric from {baseline}, in pairs of trials that differ only in the "
            f"{axis}, averaged over seeds and then over models and tasks. The 95 % interval is "
            "over models and tasks; if there is only one of these, it is over its seeds, and over "
            "validation examples if their predictions were kept. p is from the Wilcoxon "
            "signed-rank test, which needs at least five pairs."
        )
        columns = [axis, "difference", "95 % interval", "p", "better in", "pairs"]
        if rows:
            table = Table(caption, columns, rows, sortable=True)
            sections.append(Section(f"Against {baseline}", table=table))
    return sections


def _show_evaluations(study: StudyContent) -> list[Section]:
    """Show the curves and maps of evaluations."""
    sections = []
    drawn = any(spec.kind == "skips" for spec in study.recipe.figures)
    for cell, record in study.list_done("evaluate"):
        result, name = record["result"], _name_evaluation(cell["values"])
        charts = [draw_truncation(result)] if result["truncation"] else []
        charts += [draw_skips(result)] if result["skips"] and not drawn else []
        if charts:
            sections.append(Section(f"Evaluation: {name}", charts=charts, small=len(charts) > 1))
    return sections


def _tabulate_trials(frame: pd.DataFrame) -> Table:
    """List the points of the grids with their metric and time."""
    trials = collect_trials(frame)
    axes = [name for name in frame.columns if name not in FIXED]
    if "learning_rate" in trials:
        unchosen = trials["selected"].map({True: "", False: " (rate not chosen)"})
        trials = trials.assign(status=trials["status"] + unchosen)
    rows = [
        [
            *(format_value(trial[axis]) for axis in axes),
            trial["status"],
            format_rounded(trial["metric"]),
            format_rounded(trial["seconds"]),
            format_value(trial["trial"])[:12],
        ]
        for trial in trials[:LISTED].to_dict("records")
    ]
    caption = f"{len(trials):,} points of the grids; click on a heading to sort."
    if len(trials) > LISTED:
        caption += f" Only the first {LISTED:,} are shown; summary.csv has all."
    columns = [*axes, "status", "metric", "seconds", "trial"]
    words = frozenset(range(len(axes) + 1)) | {len(columns) - 1}
    return Table(caption, columns, rows, words=words, sortable=True)


def _list_facts(study: StudyContent) -> list[tuple[str, str]]:
    """List the versions and the machines that the trials ran with."""
    done = [r for r in study.records.values() if r is not None and r["status"] == "done"]
    versions = dict.fromkeys(
        ", ".join(f"{name} {number}" for name, number in sorted(record["versions"].items()))
        for record in done
    )
    machines = dict.fromkeys(
        f"{r['result']['device']}, {r['result']['precision']}, {r['result']['threads']} threads"
        for r in done
        if r["verb"] == "tune"
    )
    return [
        ("layerscout", study.content["layerscout"]),
        ("Trials made with", "; ".join(versions) or "–"),
        ("Trained on", "; ".join(machines) or "–"),
        ("Reported on", f"Python {platform.python_version()}, pandas {version('pandas')}"),
    ]


def _format_difference(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}".replace("-", "−")
