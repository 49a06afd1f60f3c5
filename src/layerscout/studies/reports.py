"""Reports: one page of studies, or of what the other verbs wrote, and its tables and figures."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from layerscout.data import pair_predictions
from layerscout.errors import InputError
from layerscout.files import check_output_folder, make_output_folder, read_json, write_files
from layerscout.reporting import (
    Section,
    Table,
    build_sections,
    build_side_by_side,
    describe_side_by_side,
    name_apart,
    place_side_by_side,
    render_page,
    save_chart,
    write_latex,
    write_markdown,
)
from layerscout.studies.conclusions import conclude, load_study
from layerscout.studies.study_page import build_study, draw_study, tabulate_study
from layerscout.studies.summaries import UNLIKE_OURS

if TYPE_CHECKING:
    import altair as alt

# The files that a report is made from.
READ = ("study.json", "scan.json", "result.json", "compare.json", "evaluate.json")
# The names of tables and figures of a study, without the suffix.
NUMBERED = "[0-9][0-9]-*"


@dataclass(frozen=True)
class Reported:
    """What a report wrote, and what it says first.

    Attributes:
        written: the page, and the files beside it.
        lines: its conclusion in sentences; empty where it has none.
        tables: of a single study.
    """

    written: list[Path] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


@dataclass
class _Report:
    """What a report holds, part by part.

    Attributes:
        names: of the folders, where there are several.
        titles: of the parts.
        sections: of the page.
        contents: what the page carries as JSON.
        files: what is written beside the page.
        figures: titles and the charts under each.
        side_by_side: of two results, the conclusion and how they compare on the same rows.
        reported: what is said of it on the terminal.
    """

    names: Mapping[Path, str]
    titles: list[str] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    contents: list[Mapping[str, Any]] = field(default_factory=list)
    files: dict[Path, str] = field(default_factory=dict)
    figures: list[tuple[str, Sequence[alt.LayerChart]]] = field(default_factory=list)
    side_by_side: dict[str, Any] = field(default_factory=dict)
    reported: Reported = field(default_factory=Reported)

    def begin_side_by_side(
        self, folders: Sequence[Path], contents: Sequence[Mapping[str, Any]]
    ) -> None:
        """Begin with how two results of one verb differ."""
        paired = contents[0]["verb"] in ("tune", "evaluate")
        pair = pair_predictions(folders, contents) if paired else None
        names = name_apart([folder.resolve().parts for folder in folders])
        self.sections += build_side_by_side(contents, names, pair)
        self.reported = Reported(lines=describe_side_by_side(contents, names, pair))
        self.side_by_side = {"conclusion": self.reported.lines, "pair": pair}

    def add_study(self, content: Mapping[str, Any], folder: Path, place: Path, start: str) -> None:
        """Add a study, whose tables go to `place` and whose figures' titles begin with `start`."""
        study = load_study(content, folder)
        tables, figures = tabulate_study(study), draw_study(study)
        conclusion = conclude(study)
        self._add_part(folder, study.recipe.title, build_study(study, tables, figures, conclusion))
        kept = {name: content[name] for name in ("layerscout", "verb", "recipe")}
        self.contents.append({**kept, "conclusion": conclusion})
        self.reported = Reported([], conclusion, [table for _, table in tables])
        rows = study.frame.to_csv(index=False, lineterminator="\n")
        self.files[place / "summary.csv"] = rows
        for number, (title, table) in enumerate(tables, start=1):
            path = place / "tables" / f"{number:02}-{_slug(title)}"
            self.files[path.with_suffix(".md")] = write_markdown(table)
            self.files[path.with_suffix(".tex")] = write_latex(table)
        self.figures += [
            (f"{start}{title}", [chart.properties(width=300, height=220) for chart in charts])
            for title, charts in figures.items()
        ]

    def add_result(self, content: Mapping[str, Any], folder: Path) -> None:
        """Add what another verb wrote into a folder."""
        title, parts = build_sections(content, str(folder))
        self._add_part(folder, title, [Section(title, heading=True), *parts])
        self.contents.append(content)
        start = self.names.get(folder, "")
        self.figures += [(f"{start} {part.title}", part.charts) for part in parts if part.charts]

    def _add_part(self, folder: Path, title: str, sections: Sequence[Section]) -> None:
        """Add sections, the folder named in the first: two runs may have the same title."""
        self.titles.append(title)
        first, *others = sections
        if (name := self.names.get(folder)) is not None:
            first = replace(first, title=f"{name}: {first.title}")
        self.sections += [first, *others]

    def render(self) -> str:
        """Render the page."""
        if len(self.titles) == 1:
            return render_page(self.titles[0], self.sections, self.contents[0])
        title = f"{len(self.titles)} reports"
        if self.side_by_side:
            title = " and ".join(dict.fromkeys(self.titles))
        content = {"verb": "report", "reports": self.contents, **self.side_by_side}
        return render_page(title, self.sections, content)


def report(
    folders: str | Path | Sequence[str | Path],
    output: str | Path | None = None,
    *,
    figures: Literal["svg", "png", "pdf"] | None = None,
) -> list[Path]:
    """Write one page of what the verbs wrote into some folders.

    Args:
        folders: one or several, of studies, scans, comparisons, evaluations or tuned models.
        output: where `report.html` is written, and `summary.csv` and `tables` of a study; by
            default the folder, or `report` for several, whose own pages it would replace.
        figures: write every figure as a file too.

    Returns:
        What was written.

    Raises:
        InputError: if a folder holds nothing to report, or something cannot be written.
    """
    return write_report(folders, output, figures=figures).written


def write_report(
    folders: str | Path | Sequence[str | Path],
    output: str | Path | None = None,
    *,
    figures: Literal["svg", "png", "pdf"] | None = None,
) -> Reported:
    """Write a report as `report` does; return its conclusion and the tables of a study too."""
    listed = [folders] if isinstance(folders, str | Path) else list(folders)
    # Path.resolve raises an error of no system for a link that leads to itself.
    places = list({os.path.realpath(at := Path(one).expanduser()): at for one in listed}.values())
    if not places:
        raise InputError("there is nothing to report; name an output folder of layerscout")
    if output is None:
        output = places[0] if len(places) == 1 else Path("report")
    output = Path(output).expanduser()
    read = [(folder, content) for folder in places for content in _read_contents(folder)]
    check_output_folder(output, "report.html")
    if figures is not None:
        check_output_folder(output / "figures")
    studies = _name_studies([at for at, content in read if content["verb"] == "study"], output)
    names = name_apart([place.resolve().parts for place in places])
    report = _Report(dict(zip(places, names, strict=True)) if len(places) > 1 else {})
    verbs = {content["verb"] for _, content in read}
    if len(read) == 2 and len(verbs) == 1 and not studies:
        with _reading(*(folder for folder, _ in read)):
            report.begin_side_by_side(*map(list, zip(*read, strict=True)))
    for folder, content in read:
        with _reading(folder):
            if content["verb"] != "study":
                report.add_result(content, folder)
            elif len(studies) == 1:
                report.add_study(content, folder, output, "")
            else:
                name = studies[folder]
                report.add_study(content, folder, output / name, f"{name}: ")
    page = output / "report.html"
    with _reading(*places):
        files = {**report.files, page: report.render()}
    for path in {path.parent for path in files}:
        make_output_folder(path)
    write_files(files)
    written = [page, *report.files]
    if figures is not None:
        written += _save_figures(report.figures, output / "figures", figures)
    if len(studies) == 1 and output.resolve() == next(iter(studies)).resolve():  # it is ours
        _remove_stale(output / "tables", ("md", "tex"), written)
        if figures is not None:
            _remove_stale(output / "figures", ("svg", "png", "pdf"), written)
    shown = report.reported if len(read) == 1 or report.side_by_side else Reported()
    return replace(shown, written=written)


@contextmanager
def _reading(*folders: Path) -> Iterator[None]:
    """Raise InputError where a file is unlike what the verbs write."""
    try:
        yield
    except InputError:
        raise
    except UNLIKE_OURS as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else repr(error)
        raise InputError(
            f"the files in {' or '.join(map(str, folders))} are not what layerscout writes "
            f"({reason:.80}); run the command again"
        ) from error


def _read_contents(folder: Path) -> list[dict[str, Any]]:
    """Read what the verbs wrote into a folder."""
    contents = []
    for path in (folder / name for name in READ):
        if not path.exists():
            continue
        try:
            content = read_json(path)
            content["verb"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not what layerscout writes; run the verb again") from error
        contents.append(content)
    if not contents:
        raise InputError(
            f"{folder} holds none of {', '.join(READ)}; name an output folder of layerscout"
        )
    return contents


def _name_studies(folders: Sequence[Path], output: Path) -> dict[Path, str]:
    """Name studies for their parts of a report, no two alike and none into another's folder."""
    names: dict[Path, str] = {}
    for folder in folders:
        stem = folder.resolve().name or "study"
        others = {one.resolve() for one in folders if one != folder}
        several = itertools.chain([stem], (f"{stem}-{n}" for n in itertools.count(2)))
        names[folder] = next(
            name
            for name in several
            if name not in names.values() and (output / name).resolve() not in others
        )
    return names


def _save_figures(
    figures: Sequence[tuple[str, Sequence[alt.LayerChart]]], folder: Path, kind: str
) -> list[Path]:
    """Write every figure as a file; return the paths."""
    written = []
    for number, (title, charts) in enumerate(figures, start=1):
        path = make_output_folder(folder) / f"{number:02}-{_slug(title)}.{kind}"
        save_chart(place_side_by_side(charts, min(3, len(charts))), path)
        written.append(path)
    return written


def _remove_stale(folder: Path, kinds: Sequence[str], written: Sequence[Path]) -> None:
    """Remove what an earlier report wrote for a recipe that has changed since."""
    for kind in kinds:
        for left in folder.glob(f"{NUMBERED}.{kind}"):
            if left not in written:
                with suppress(OSError):  # a folder, or another process was first
                    left.unlink()


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower())[:60].strip("-") or "figure"
