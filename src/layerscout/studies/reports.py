"""Reports: one page of a study, or of whatever the verbs wrote, and its tables and figures."""

from __future__ import annotations

import itertools
import json
import platform
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
import yaml

from layerscout.pages import (
    Section,
    Table,
    build_sections,
    draw_similarity,
    fit_page,
    place_side_by_side,
    render_page,
    save_chart,
    specify_skips,
    specify_truncation,
)
from layerscout.runtime import InputError, make_output_folder, read_json, write_files
from layerscout.studies.charts import figure, pareto
from layerscout.studies.recipe import FigureSpec, Grid, Recipe, TableSpec
from layerscout.studies.store import Store
from layerscout.studies.summaries import (
    UNLIKE_OURS,
    Summary,
    TextTable,
    agreements,
    contests,
    rounded,
    shown,
    summarise,
    tidy,
    trials_of,
)

if TYPE_CHECKING:
    import altair as alt

# A page with more rows would be slow; the file has them all.
LISTED = 2000
# The names of tables and figures of a study, without what says their kind.
NUMBERED = "[0-9][0-9]-*"


def report(
    folders: str | Path | Sequence[str | Path],
    output: str | Path | None = None,
    *,
    figures: Literal["svg", "png", "pdf"] | None = None,
) -> list[Path]:
    """Write one page of what the verbs wrote into some folders.

    Args:
        folders: one or several, of studies, scans, comparisons, evaluations or tuned models.
        output: where `report.html` is written, and `summary.csv` and `tables` of a study; None for
            the first of the folders.
        figures: write every figure as a file too.

    Returns:
        What was written.

    Raises:
        InputError: if a folder holds nothing to report, or something cannot be written.
    """
    listed = [folders] if isinstance(folders, str | Path) else list(folders)
    places = list({(at := Path(one).expanduser()).resolve(): at for one in listed}.values())
    if not places:
        raise InputError("there is nothing to report; name a folder that a verb wrote")
    output = places[0] if output is None else Path(output).expanduser()
    sections: list[Section] = []
    files: dict[Path, str] = {}
    drawn: dict[str, list[alt.LayerChart]] = {}
    titles, contents = [], []
    read = [(folder, content) for folder in places for content in _contents(folder)]
    studies = _named([folder for folder, content in read if content["verb"] == "study"], output)
    for folder, content in read:
        try:
            if content["verb"] == "study":
                found, name = _Report(content, folder), studies[folder]
                sections += found.sections()
                files |= found.files(output if len(studies) == 1 else output / name)
                several = f"{name}: " if len(studies) > 1 else ""
                drawn |= {f"{several}{title}": charts for title, charts in found.charts.items()}
                titles.append(found.recipe.title)
                contents.append({name: content[name] for name in ("layerscout", "verb", "recipe")})
            else:
                title, parts = build_sections(content)
                sections += [Section(title, heading=True), *parts]
                titles.append(title)
                contents.append(content)
        except UNLIKE_OURS as error:
            raise InputError(
                f"what {folder} holds is not what layerscout writes ({error!r:.80}); run the verb "
                "again"
            ) from error
    make_output_folder(output)
    one = contents[0] if len(contents) == 1 else {"verb": "report", "reports": contents}
    name = titles[0] if len(titles) == 1 else f"{len(titles)} reports"
    files[output / "report.html"] = render_page(name, sections, one)
    for path in {path.parent for path in files}:
        make_output_folder(path)
    write_files(files)
    written = [output / "report.html", *(path for path in files if path.name != "report.html")]
    for number, (title, charts) in enumerate(drawn.items(), start=1):
        if figures is not None and charts:
            path = make_output_folder(output / "figures") / f"{number:02}-{_slug(title)}.{figures}"
            sized = [chart.properties(width=300, height=220) for chart in charts]
            save_chart(place_side_by_side(sized, min(3, len(sized))), path)
            written.append(path)
    if len(studies) == 1 and output.resolve() == next(iter(studies)).resolve():  # it is ours
        _forget(output / "tables", ("md", "tex"), written)
        if figures is not None:
            _forget(output / "figures", ("svg", "png", "pdf"), written)
    return written


def _named(folders: Sequence[Path], output: Path) -> dict[Path, str]:
    """Name studies for their parts of a report, no two alike and none into another's folder."""
    names: dict[Path, str] = {}
    for folder in folders:
        stem = folder.resolve().name or "study"
        taken = {*names.values()}
        others = {one.resolve() for one in folders if one != folder}
        several = itertools.chain([stem], (f"{stem}-{n}" for n in itertools.count(2)))
        names[folder] = next(
            name
            for name in several
            if name not in taken and (output / name).resolve() not in others
        )
    return names


def _forget(folder: Path, kinds: Sequence[str], written: Sequence[Path]) -> None:
    """Remove what an earlier report wrote of a recipe that has changed since."""
    for kind in kinds:
        for left in folder.glob(f"{NUMBERED}.{kind}"):
            if left not in written:
                with suppress(OSError):  # a folder, or another process was first
                    left.unlink()


def _contents(folder: Path) -> list[dict[str, Any]]:
    """Read what the verbs wrote into a folder."""
    names = ("study.json", "scan.json", "result.json", "compare.json", "evaluate.json")
    found = []
    for name in names:
        path = folder / name
        if not path.exists():
            continue
        try:
            content = read_json(path)
            content["verb"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not what layerscout writes; run the verb again") from error
        found.append(content)
    if not found:
        raise InputError(
            f"{folder} holds none of {', '.join(names)}; name a folder that a verb wrote"
        )
    return found


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower())[:60].strip("-") or "figure"


class _Report:
    """What a page tells of a study."""

    def __init__(self, content: Mapping[str, Any], folder: Path) -> None:
        self.content, self.store = content, Store(folder)
        self.recipe = Recipe.model_validate(content["recipe"])
        self._records: dict[str, dict[str, Any] | None] = {}
        self.frame = tidy(content, self.read)
        self.charts = self._draw()
        self.tables = self._tables()

    def read(self, key: str) -> dict[str, Any] | None:
        """Give a record; each file is read once."""
        if key not in self._records:
            self._records[key] = self.store.read(key)
        return self._records[key]

    # --- Files -----------------------------------------------------------------------------------

    def files(self, output: Path) -> dict[Path, str]:
        """Give what is written beside the page."""
        found = {output / "summary.csv": self.frame.to_csv(index=False, lineterminator="\n")}
        for number, table in enumerate(self.tables, start=1):
            name = f"{number:02}-{_slug(table.title)}"
            text = table if isinstance(table, TextTable) else table.written()
            found[output / "tables" / f"{name}.md"] = text.markdown()
            found[output / "tables" / f"{name}.tex"] = text.latex()
        return found

    # --- Parts -----------------------------------------------------------------------------------

    def sections(self) -> list[Section]:
        """Give the sections of the page."""
        found = [
            Section("Overview", self._overview(), heading=True),
            Section("Warnings", self._warnings()),
        ]
        for title, charts in self.charts.items():
            note = []
            if title.startswith("Quality over training cost"):
                note = [
                    "Every point is a strategy, the mean over its seeds; the dashed line joins "
                    "those that nothing cheaper reaches."
                ]
            specs = [fit_page(chart.properties(height=230)) for chart in charts]
            found.append(Section(title, note, specs, small=len(specs) > 1))
        found += [Section(table.title, table=_as_table(table)) for table in self.tables]
        found += self._contests()
        found += self._verbs()
        found.append(Section("Trials", table=self._trials()))
        found.append(
            Section(
                "Recipe",
                code=yaml.safe_dump(self.content["recipe"], sort_keys=False, allow_unicode=True),
            )
        )
        found.append(Section("Environment", facts=self._facts()))
        return found

    def _states(self) -> Counter[str]:
        counted: Counter[str] = Counter()
        seen: set[str] = set()
        for cell in self.content["cells"]:
            key = cell["trial"]
            if key is None:
                counted["refused"] += 1
            elif key not in seen:
                seen.add(key)
                record = self.read(key)
                counted["waiting" if record is None else record["status"]] += 1
        return counted

    def _overview(self) -> list[str]:
        counted = self._states()
        told = []
        if self.recipe.source:
            told.append(f"After {self.recipe.source}.")
        seconds = sum(record["seconds"] for record in self._records.values() if record)
        parts = [
            f"{counted[name]:,} {name}"
            for name in ("done", "failed", "waiting", "refused")
            if counted[name]
        ]
        told.append(f"Trials: {', '.join(parts)}; {_duration(seconds)} of work.")
        return told

    def _warnings(self) -> list[str]:
        found = []
        failed = [r for r in self._records.values() if r is not None and r["status"] == "failed"]
        for error, number in Counter(record["error"] for record in failed).most_common(5):
            found.append(f"{number} failed: {error}; --retry-failed runs them again.")
        refused = Counter(cell["refused"] for cell in self.content["cells"] if cell.get("refused"))
        found += [f"{number} could not be run: {why}." for why, number in refused.most_common(5)]
        broken = sum(1 for key, r in self._records.items() if r is None and self.store.broken(key))
        if broken:
            found.append(
                f"Records that are cut short or broken: {broken}; running the study again mends "
                "them."
            )
        grids = [grid for grid in self.recipe.grids.values() if grid.verb == "tune"]
        if self.recipe.baseline is not None and not any(map(self._compared, grids)):
            found.append(
                f"Nothing is compared with the baseline {self.recipe.baseline}: it is no value of "
                "an axis."
            )
        told: Counter[str] = Counter()
        for record in self._records.values():
            if record is not None and record["status"] == "done":
                told.update(set(record["result"].get("warnings") or ()))
        found += [
            f"{warning} ({number} trial{'s' if number > 1 else ''})"
            for warning, number in told.most_common(5)
        ]
        return found

    def _draw(self) -> dict[str, list[alt.LayerChart]]:
        found: dict[str, list[alt.LayerChart]] = {}
        for spec in self.recipe.figures:
            if spec.kind == "maps":
                found[spec.title] = self._maps(spec)
                continue
            panels = [spec.panels] if isinstance(spec.panels, str) else spec.panels
            panels = [
                name
                for name in dict.fromkeys(["model", *panels])
                if name in self.frame or name == "measure"
            ]
            found[spec.title] = figure(self.frame, spec, panels)
        for name, grid in self.recipe.grids.items():
            if grid.verb == "tune" and {"plan", "method"} & grid.axes.keys():
                found[
                    "Quality over training cost"
                    + ("" if len(self.recipe.grids) == 1 else f", {name}")
                ] = pareto(self.frame, name)
        return {title: charts for title, charts in found.items() if charts}

    def _maps(self, spec: FigureSpec) -> list[alt.LayerChart]:
        """Draw the CKA maps of a grid of compare, under the names that the study has for models."""
        charts: list[alt.LayerChart] = []
        for cell in self.content["cells"]:
            record = self.read(cell["trial"]) if cell["trial"] else None
            if record is None or record["status"] != "done" or record["verb"] != "compare":
                continue
            if spec.grid is None or cell["grid"] == spec.grid:
                charts += draw_similarity(self._named(record, cell), "cka")
        return charts

    def _named(self, record: Mapping[str, Any], cell: Mapping[str, Any]) -> dict[str, Any]:
        names = cell["values"].get("models") or [
            model["name"] for model in record["result"]["models"]
        ]
        models = [
            model | {"name": name}
            for model, name in zip(record["result"]["models"], names, strict=True)
        ]
        return {**record["result"], "models": models}

    def _tables(self) -> list[Summary | TextTable]:
        found: list[Summary | TextTable] = []
        for spec in self.recipe.tables:
            if spec.kind == "correlations":
                found += self._correlations(spec)
                continue
            rows, columns = self._headed(spec)
            table = summarise(
                self.frame,
                title=spec.title,
                grid=spec.grid,
                value=spec.value,
                rows=rows,
                columns=columns,
                spread=spec.spread,
                where=spec.where,
            )
            if table.rows:
                found.append(table)
        return found

    def _correlations(self, spec: TableSpec) -> list[TextTable]:
        rows, columns, value = str(spec.rows), str(spec.columns), str(spec.value)
        if rows not in self.frame or columns not in self.frame:
            return []
        agreed = agreements(self.frame, grid=spec.grid, value=value, of=rows, over=columns)
        head = [f"{rows}s compared", "Spearman (p)", "Pearson (p)", "n"]
        lines = [
            [
                one.pair,
                f"{one.spearman:.2f} ({one.spearman_p:.2f})",
                f"{one.pearson:.2f} ({one.pearson_p:.2f})",
                str(one.n),
            ]
            for one in agreed
        ]
        return [TextTable(spec.title, head, lines)] if lines else []

    def _headed(self, spec: TableSpec) -> tuple[list[str], list[str]]:
        """Give the axes of rows and columns; where there are several models, with the model."""
        rows = [spec.rows] if isinstance(spec.rows, str) else list(spec.rows)
        columns = [spec.columns] if isinstance(spec.columns, str) else list(spec.columns)
        if "model" in (*rows, *columns) or self.frame.get("model", pd.Series()).nunique() < 2:
            return rows, columns
        if "measure" in columns:  # which are many already
            return ["model", *rows], columns
        return rows, ["model", *columns]

    def _compared(self, grid: Grid) -> str | None:
        """Name the axis of a grid that the baseline is a value of."""
        axes = [str(axis) for axis in self.frame if axis in grid.axes]
        baseline = self.recipe.baseline
        return next((a for a in axes if baseline in set(self.frame[a].map(shown))), None)

    def _contests(self) -> list[Section]:
        baseline = self.recipe.baseline
        found = []
        for name, grid in self.recipe.grids.items():
            axis = self._compared(grid)
            if grid.verb != "tune" or axis is None or baseline is None:
                continue
            rows = [
                [
                    one.name,
                    _signed(one.difference.mean),
                    "–"
                    if one.difference.low is None
                    else f"{_signed(one.difference.low)} to {_signed(one.difference.high)}",
                    "–" if one.wilcoxon is None else f"{one.wilcoxon:.3f}",
                    f"{one.better} of {one.difference.n}",
                    f"{one.pairs}",
                ]
                for one in contests(self.frame, name, axis, baseline)
            ]
            caption = (
                f"Difference of the metric from {baseline}, in pairs of trials that differ in the "
                f"{axis} alone; averaged over seeds, then over models and tasks, with the 95 % "
                "interval over those. p is that of the Wilcoxon signed-rank test over them, which "
                "takes five."
            )
            columns = [axis, "difference", "95 % interval", "p", "better in", "pairs"]
            if rows:
                found.append(
                    Section(
                        f"Against {baseline}", table=Table(caption, columns, rows, sortable=True)
                    )
                )
        return found

    def _verbs(self) -> list[Section]:
        """Show the curves and maps of evaluations and comparisons that no figure shows."""
        found = []
        for cell in self.content["cells"]:
            record = self.read(cell["trial"]) if cell["trial"] else None
            if record is None or record["status"] != "done" or record["verb"] != "evaluate":
                continue
            result = record["result"]
            name = ", ".join(
                f"{axis} {shown(cell['values'][axis])}"
                for axis in ("model", "task", "seed")
                if axis in cell["values"]
            )
            charts = (specify_truncation(result) if result["truncation"] else []) + (
                specify_skips(result) if result["skips"] else []
            )
            if charts:
                found.append(Section(f"Evaluation: {name}", charts=charts, small=len(charts) > 1))
        return found

    def _trials(self) -> Table:
        rows = trials_of(self.frame)
        axes = [
            name
            for name in self.frame.columns
            if name not in ("measure", "at", "value", "trial", "selected", "status")
        ]
        columns = [*axes, "status", "metric", "seconds", "trial"]
        lines = [
            [
                *(shown(row.get(axis)) for axis in axes),
                row["status"]
                + ("" if row["selected"] or "learning_rate" not in row else " (rate not chosen)"),
                rounded(row.get("metric")),
                rounded(row.get("seconds")),
                shown(row["trial"])[:12],
            ]
            for row in rows[:LISTED]
        ]
        caption = f"{len(rows):,} points of the grids; click on a heading to sort."
        if len(rows) > LISTED:
            caption += f" The first {LISTED:,} are here, summary.csv has all."
        words = frozenset(range(len(axes) + 1)) | {len(columns) - 1}
        return Table(caption, columns, lines, words=words, sortable=True)

    def _facts(self) -> list[tuple[str, str]]:
        done = [r for r in self._records.values() if r is not None and r["status"] == "done"]
        versions = Counter(json.dumps(record["versions"], sort_keys=True) for record in done)
        told = [", ".join(f"{k} {v}" for k, v in json.loads(one).items()) for one in versions]
        surroundings = Counter(
            f"{r['result']['device']}, {r['result']['precision']}, {r['result']['threads']} threads"
            for r in done
            if r["verb"] == "tune"
        )
        return [
            ("layerscout", self.content["layerscout"]),
            ("Trials made with", "; ".join(told) or "–"),
            ("Trained on", "; ".join(surroundings) or "–"),
            ("Reported on", f"Python {platform.python_version()}, pandas {version('pandas')}"),
        ]


def _as_table(table: Summary | TextTable) -> Table:
    """Give a table for the page, sortable."""
    if isinstance(table, TextTable):
        return Table("", table.head, table.lines, sortable=True)
    text = table.written()
    told = {
        "deviation": " ± standard deviation",
        "error": " ± standard error",
        "interval": " with the 95 % interval",
    }
    n = sorted({cell.n for cell in table.cells.values()})
    caption = "One trial each." if n == [1] else "No trial."
    if n and n[-1] > 1:
        trials = f"{n[0]}" if len(n) == 1 else f"{n[0]} to {n[-1]}"
        caption = f"Means of {trials} trials{told.get(table.spread, '')}."
    return Table(caption, text.head, text.lines, sortable=True)


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}".replace("-", "−")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
