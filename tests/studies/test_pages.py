"""The pages in a browser: what is drawn, what a reader can do, and that nothing is fetched."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from conftest import whole_only
from layerscout.comparing import compare
from layerscout.evaluating import evaluate
from layerscout.reporting import render_result
from layerscout.studies import Cell, Store, Study, Trial, make_recipe, read_value, report
from scan_content import full, scan, score
from studying import record, tuned
from tuned import cheaply, task_of

browsing = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# By itself a browser asks its maker for this and that.
SWITCHES = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PAGES = ("scan", "compare", "evaluate", "study", "report")
SCRIPT, IMAGE = "<script>alert(1)</script>", "<img src=x onerror=alert(2)>"
TIP = "#vg-tooltip-element.visible"
POINTS = ":is(.mark-symbol, .mark-rect).role-mark path"

Browse = Callable[..., AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Start the browser that is installed, or skip."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium is installed: looked for {', '.join(NAMES)}")
    with browsing.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*SWITCHES])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write a page of every kind, with script and image tags for names."""
    base, task = tmp_path_factory.mktemp("pages"), task_of(n=24, held=17)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERSCOUT_CACHE", str(base / "cache"))
        cheaply(tiny, task, "top:1", epochs=1).save(base / "tune")
        model = base / "tune" / "model"
        edits = ("truncate", "skip", "skip:2")
        evaluated = evaluate(model, task, edits=edits, progress=False).content
        compared = compare([model, tiny], task, progress=False).as_dict()
    scanned = full(6)
    for content in (scanned, evaluated, compared):
        content["task"]["name"] = SCRIPT
        content["warnings"].append(IMAGE)
    scanned["model"]["name"] = SCRIPT
    found = {}
    for verb, content in {"scan": scanned, "compare": compared, "evaluate": evaluated}.items():
        (base / verb).mkdir()
        (base / verb / f"{verb}.json").write_text(json.dumps(content))
        found[verb] = base / verb / f"{verb}.html"
        found[verb].write_text(render_result(content), encoding="utf-8")
    studied = made_up_study(base / "study", evaluated, compared)
    found["study"] = report(studied.store.folder)[0]
    folders = [base / name for name in ("study", "scan", "tune", "compare", "evaluate")]
    found["report"] = report(folders, base / "report")[0]
    return found


RECIPE = f"""
title: "Made up {SCRIPT}"
grids:
  tuned:
    axes:
      model: [2-blocks, "{SCRIPT}", tiny]
      task: [cola]
      plan: [full, "top:2", "top:1"]
      seed: [0, 1]
    settings: {{preset: xie2022}}
  scanned:
    verb: scan
    axes: {{model: [tiny, "{SCRIPT}"], task: [cola]}}
    settings: {{scores: [variability_ratio, probe]}}
  compared: {{verb: compare, of: tuned}}
  evaluated: {{verb: evaluate, of: tuned}}
baseline: full
tables: [{{title: Metric of the plans, grid: tuned}}]
figures:
  - {{title: Metric of the plans, kind: points, grid: tuned, x: blocks, color: model}}
  - {{title: Every trial, kind: strip, grid: tuned, x: plan}}
  - {{title: Probing by state, grid: scanned, x: state, value: probe, color: model}}
  - {{title: Probing over the ratio, kind: fit, grid: scanned, x: variability_ratio, value: probe}}
  - {{title: Maps, kind: maps, grid: compared}}
  - {{title: Skips, kind: skips, grid: evaluated}}
"""
TUNED_BLOCKS = {"full": 12, "top:2": 2, "top:1": 1}
VERSIONS = {"layerscout": "0.1.0", "torch": "2.6.0", "transformers": "5.0.0"}


def made_up_study(folder: Path, evaluated: dict[str, Any], compared: dict[str, Any]) -> Study:
    """Make the folder of a study of every verb; a trial failed, and a point was refused."""
    store, cells = Store(folder), []

    def add(grid: str, verb: str, values: dict[str, Any], content: Any, error: str = "") -> None:
        trial = Trial(verb, ("tiny",), "cola", values, (grid,))
        cells.append(Cell(grid, values, trial))
        seconds = 3.0 * 7 ** (len(cells) % 5)
        ended = record(verb, content, key=trial.key, seconds=seconds, versions=VERSIONS)
        lost = {"status": "failed", "result": None, "error": error, "traceback": error}
        store.write(ended | (lost if error else {}))

    recipe = make_recipe(read_value(RECIPE))
    for m, model in enumerate(recipe.grids["tuned"].axes["model"]):
        for p, (plan, blocks) in enumerate(TUNED_BLOCKS.items()):
            for seed in (0, 1):
                values = {"model": model, "task": "cola", "plan": plan, "seed": str(seed)}
                if model == "2-blocks" and plan == "top:2":
                    cells.append(Cell("tuned", values, None, f"no room for {IMAGE}"))
                    continue
                values |= {"resolved": f"{blocks} blocks", "blocks": blocks}
                values |= {"learning_rate": ("2e-05", "0.0001", "0.001")[p]}
                lost = model == "tiny" and plan == "top:1" and seed == 1
                metric = 0.71 - 0.11 * m - 0.05 * p + 0.013 * seed
                error = f"RuntimeError: {SCRIPT}" if lost else ""
                add("tuned", "tune", values, tuned(metric, (1.0, 0.3, 0.2)[p]), error)
    for m, model in enumerate(recipe.grids["scanned"].axes["model"]):
        ratios = [None, 6.1, 5.2, 4.4 + m, 3.9, 4.6]
        scores = {
            "variability_ratio": score(ratios),
            "probe": score([0.5, 0.6, 0.66, 0.71, 0.75 - 0.2 * m, 0.7], "higher"),
        }
        content = scan(scores, {"variability_ratio": 4, "probe": 4 - m})
        add("scanned", "scan", {"model": model, "task": "cola", "seed": "0"}, content)
    names = [f"model {SCRIPT}, seed 0", "model tiny, untuned"]
    add("compared", "compare", {"task": "cola", "models": names}, compared)
    add("evaluated", "evaluate", {"model": SCRIPT, "task": "cola", "seed": "0"}, evaluated)
    study = Study(recipe, tuple(cells), store)
    (folder / "study.json").write_text(json.dumps(study.as_dict()))
    return study


@contextmanager
def opened(chromium: Any, path: Path, width: int = 1100) -> Iterator[tuple[Any, list[str]]]:
    """Open a page and wait until it is drawn; gives also the list of what must not happen."""
    faults: list[str] = []

    def asked(url: str) -> None:
        if url != path.as_uri() and not url.startswith(("data:", "blob:")):
            faults.append(f"asked for {url}")

    def said(kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            faults.append(f"{kind}: {text}")

    def interrupted(dialog: Any) -> None:
        faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page = chromium.new_page(viewport={"width": width, "height": 800})
    page.set_default_timeout(60_000)
    page.on("request", lambda request: asked(request.url))
    page.on("console", lambda message: said(message.type, message.text))
    page.on("pageerror", lambda error: faults.append(f"uncaught: {error}"))
    page.on("dialog", interrupted)
    try:
        page.goto(path.as_uri())
        page.wait_for_function(
            "[...document.querySelectorAll('[data-chart]')].every(one => one.querySelector('svg'))"
        )
        yield page, faults
    finally:
        page.close()
        assert not faults, faults


@pytest.fixture(scope="module")
def browse(chromium: Any, pages: dict[str, Path]) -> Iterator[Browse]:
    """Return pages by their names, each opened once for all tests."""
    with ExitStack() as stack:

        @cache
        def open_page(name: str) -> tuple[Any, list[str]]:
            return stack.enter_context(opened(chromium, pages[name]))

        @contextmanager
        def visit(name: str) -> Iterator[Any]:
            page, faults = open_page(name)
            yield page
            told, faults[:] = list(faults), []
            assert not told, told

        yield visit


@pytest.mark.whole
def test_what_must_not_happen_is_noticed(chromium, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(
        "<img src='http://127.0.0.1:9/a.png'>"
        "<script>console.warn('w'); alert('a'); setTimeout(() => console.log(gone))</script>"
    )
    with pytest.raises(AssertionError) as caught, opened(chromium, path) as (page, _):
        page.wait_for_timeout(50)
    for fault in ("asked for http://127.0.0.1:9/a.png", "warning: w", "dialog: a", "uncaught: "):
        assert fault in str(caught.value)


@pytest.mark.parametrize("name", ["scan", *whole_only(*PAGES[1:])])
def test_every_chart_is_drawn_whole(browse: Browse, name: str):
    with browse(name) as page:
        charts = page.locator("[data-chart]")
        drawn = charts.evaluate_all(DRAWN)
        assert len(drawn) >= 2
        assert [one for one in drawn if not one["marks"] or one["cut"]] == []


# How many marks of a chart have a size, and which of its words leave the picture.
DRAWN = """charts => charts.map(chart => {
  const box = one => one.getBoundingClientRect(), svg = chart.querySelector("svg"), all = box(svg);
  const marks = [...svg.querySelectorAll(".role-mark :is(path, line, text)")];
  const outside = ({left, right, top, bottom}) =>
    left < all.left - 1 || right > all.right + 1 || top < all.top - 1 || bottom > all.bottom + 1;
  const words = [...svg.querySelectorAll("text")].filter(
    one => box(one).width && outside(box(one)));
  return {
    chart: chart.dataset.chart,
    marks: marks.filter(one => box(one).width + box(one).height).length,
    cut: words.map(one => one.textContent),
  };
})"""


@pytest.mark.whole
@pytest.mark.parametrize("name", PAGES)
def test_a_point_tells_its_values(browse: Browse, name: str):
    with browse(name) as page:
        sections = page.locator("section", has=page.locator("[data-chart]"))
        assert sections.count() >= 2
        for section in sections.all():
            told = hover(page, section.locator("[data-chart]").last.locator(POINTS).last)
            assert re.search(r"[0-9]", told)
            assert not re.search("null|undefined|NaN|Infinity", told)


def hover(page: Any, point: Any) -> str:
    """Return what a tooltip tells of a point, and see that it goes away with the pointer."""
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    told = page.locator(TIP).inner_text()
    page.mouse.move(0, 0)
    page.locator(TIP).wait_for(state="detached")
    return " ".join(told.split())


@pytest.mark.whole
def test_a_point_tells_its_own_values(browse: Browse):
    with browse("study") as page:
        section = page.locator("section", has=heading(page, "Metric of the plans"))
        charts = section.locator("[data-chart]")
        first, named, last = (charts.nth(number).locator(POINTS) for number in range(3))
        assert hover(page, first.first).startswith("blocks 12 model 2-blocks strategy full")
        told = hover(page, named.nth(1))
        assert f"model {SCRIPT} strategy top:2 plan 2 blocks metric 0.5565" in told
        # One seed of two failed, so there is no interval.
        assert hover(page, last.last).endswith("metric 0.39 low – high – trials 1")


@pytest.mark.whole
def test_no_point_of_a_study_lies_under_something_else(browse: Browse):
    with browse("study") as page:
        covered = page.locator(".mark-symbol.role-mark path").evaluate_all(
            """points => points.map(point => {
              point.scrollIntoView({block: "center"});
              const {x, y, width, height} = point.getBoundingClientRect();
              return document.elementFromPoint(x + width / 2, y + height / 2) !== point;
            })"""
        )
        assert len(covered) > 40
        assert covered.count(True) == 0


def heading(page: Any, name: str) -> Any:
    return page.get_by_role("heading", name=name, exact=True)


@pytest.mark.parametrize("name", PAGES)
def test_scripts_in_names_stay_text(browse: Browse, name: str):
    with browse(name) as page:
        assert page.evaluate("[...document.scripts].filter(one => !one.type).length") == 1
        assert page.evaluate("document.images.length") == 0
        text = page.locator("main").inner_text()
        assert SCRIPT in text and IMAGE in text
        if name == "study":
            assert SCRIPT in page.locator("[data-chart] .role-title-text").all_text_contents()
            assert f"1 failed: RuntimeError: {SCRIPT}" in text
            assert f"2 could not be run: no room for {IMAGE}" in text


def as_number(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.whole
@pytest.mark.parametrize(
    ("column", "key"),
    [
        ("metric", as_number),
        ("seconds", as_number),
        ("learning_rate", as_number),
        ("plan", ["full", "top:1", "top:2"].index),
        ("model", [SCRIPT, "2-blocks", "tiny"].index),
    ],
)
def test_a_click_on_a_heading_sorts(browse: Browse, column: str, key: Callable[[str], float]):
    with browse("study") as page:
        table = page.locator("section", has=heading(page, "Trials")).locator("table")
        names = [name.strip() for name in table.locator("thead th").all_text_contents()]

        def rows() -> list[list[str]]:
            texts = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))"
            return table.locator("tbody tr").evaluate_all(texts)

        def column_now() -> list[str]:
            return [row[names.index(column)] for row in rows()]

        before, button = rows(), table.get_by_role("button", name=column, exact=True)
        known = [text for text in column_now() if text != "–"]
        missing = ["–"] * (len(before) - len(known))
        assert len(set(known)) >= 3
        up = sorted(known, key=key) + missing
        for press, order, state in (
            (button.click, up, "ascending"),
            (button.click, sorted(known, key=key, reverse=True) + missing, "descending"),
            (lambda: page.keyboard.press("Enter"), up, "ascending"),
        ):
            press()
            assert column_now() == order
            assert sorted(rows()) == sorted(before)
            [sorted_by] = table.locator("[aria-sort]").all()
            assert sorted_by.get_attribute("aria-sort") == state
            assert sorted_by.inner_text().strip() == column


@pytest.mark.whole
@pytest.mark.parametrize("name", PAGES)
def test_a_phone_need_not_scroll_sideways(chromium, pages, name: str):
    with opened(chromium, pages[name], width=375) as (page, _):
        width = "document.documentElement.scrollWidth"
        assert page.evaluate(width) <= 375
        drawn = page.locator("[data-chart]").evaluate_all(DRAWN)
        assert [one for one in drawn if not one["marks"] or one["cut"]] == []
        page.locator("section > details").evaluate_all("all => all.forEach(one => one.open = true)")
        assert page.evaluate(width) <= 375


@pytest.mark.whole
@pytest.mark.parametrize("name", PAGES)
def test_words_can_be_read_in_both_schemes(browse: Browse, name: str):
    with browse(name) as page:
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            back = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert luminance(back) < 0.02 if scheme == "dark" else luminance(back) > 0.9
            pairs = page.evaluate(COLOURS)
            assert len(pairs) > 20
            faint = [pair for pair in pairs if contrast(*pair[:2]) < 3]
            assert faint == []


# The colour of every word, what lies behind it, and the word.
COLOURS = """() => {
  const style = getComputedStyle, behind = one => {
    const colour = style(one).backgroundColor;
    return colour === "rgba(0, 0, 0, 0)" ? behind(one.parentElement) : colour;
  };
  const charts = [...document.querySelectorAll("[data-chart] svg text")].map(
    one => [style(one).fill, behind(one.closest("figure")), one.textContent]);
  const words = [...document.querySelectorAll(":is(h1, h2, p, th, td, dt, dd, pre)")].map(
    one => [style(one).color, behind(one), one.textContent]);
  return [...charts, ...words.filter(([, back]) => back.startsWith("rgb("))];
}"""


def luminance(colour: str) -> float:
    """Return the relative luminance of "rgb(r, g, b)", as WCAG 2 defines it."""
    parts = [int(part) / 255 for part in re.findall("[0-9]+", colour)[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.whole
@pytest.mark.parametrize("name", PAGES)
def test_charts_and_tables_are_printed(browse: Browse, name: str):
    visible = """all => all.map(one => one.clientHeight > 20 && one.checkVisibility(
      {opacityProperty: true, visibilityProperty: true}))"""
    with browse(name) as page:
        page.emulate_media(media="print")
        charts = page.locator("[data-chart] svg.marks").evaluate_all(visible)
        assert len(charts) == page.locator("[data-chart]").count()
        tables = page.locator("section > .scroll table").evaluate_all(visible)
        assert charts and tables and all(charts + tables)
        # On paper nothing can be scrolled to or clicked on.
        overflow = "all => all.map(one => getComputedStyle(one).overflowX)"
        assert set(page.locator(".scroll").evaluate_all(overflow)) == {"visible"}
        assert not page.locator("[data-chart] summary").first.is_visible()
        page.emulate_media(media="screen")
