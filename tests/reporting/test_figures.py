"""Charts and the page: what they show, what they must never do with hostile text."""

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import altair as alt
import pytest

from conftest import whole_only
from inputs import expect_refused
from layerscout.errors import InputError
from layerscout.reporting import (
    Section,
    Table,
    build_sections,
    check_plot,
    plot,
    render_page,
    render_result,
    title_score,
)
from layerscout.reporting.scores import draw_sparkline
from layerscout.reporting.words import format_entries
from scan_content import CURVE, full, scan, score, without_quality

HOSTILE = (
    """</script><script>alert(1)</script><img src="https://x.example/a.png" onerror='a'>{{7*7}}🦊"""
)


MAP = {
    "of": [0, 0],
    "rows": [0],
    "columns": [0, 1],
    "cka": [[1.0, 0.5]],
    "cka_debiased": [[1.0, 0.4]],
}
COMPARED = SimpleNamespace(
    as_dict=lambda: {
        "verb": "compare",
        "models": [{"name": "tiny", "hidden_size": 4}],
        "task": {},
        "examples": 900,
        "maps": [MAP],
    }
)


class Page(HTMLParser):
    """What a browser would see: elements with attributes, and the text inside each kind."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "br", "dfn"):  # a term is part of its paragraph
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag != "dfn":
            assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((*self.open[-1], data))

    def inside(self, *tags: str) -> str:
        return "".join(text for tag, _, text in self.texts if tag in tags)

    def json(self, name: str) -> Any:
        """Return the content of a JSON data block, which HTMLParser hands over as it stands."""
        [content] = [text for _, attributes, text in self.texts if attributes.get("id") == name]
        return json.loads(content)

    def cells(self) -> list[str]:
        return [text.strip() for tag, _, text in self.texts if tag == "td" and text.strip()]


def layers(chart: Mapping[str, Any], mark: str, **properties: Any) -> list[Mapping[str, Any]]:
    """Return the layers of a panel that draw `mark` with these properties."""
    return [
        layer
        for layer in chart["layer"]
        if layer["mark"]["type"] == mark and properties.items() <= layer["mark"].items()
    ]


def rows(chart: Mapping[str, Any], layer: Mapping[str, Any]) -> list[dict[str, Any]]:
    data = layer.get("data", chart.get("data"))
    return data["values"] if "values" in data else chart["datasets"][data["name"]]


def test_the_page_loads_nothing_from_anywhere():
    html = render_result(scan())
    for tag, attributes in Page(html).elements:
        assert tag not in {"link", "iframe", "object", "embed", "base", "img"}
        assert not {"src", "href", "srcset", "action", "data"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
    style = Page(html).inside("style")
    assert "url(" not in style and "@import" not in style
    assert "$schema" not in json.dumps(Page(html).json("chart-1-1"))


def test_the_page_allows_its_one_script_and_no_other():
    html = Page(render_result(scan()))
    [policy] = [
        attributes["content"]
        for tag, attributes in html.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in (policy or "").split(";"))
    assert rules["default-src"] == "'none'"
    [script] = [text for tag, a, text in html.texts if tag == "script" and "type" not in a]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert "data-chart" in script


def test_hostile_names_stay_text():
    plain, hostile = full(), full()
    hostile["warnings"] = [HOSTILE]
    plain["warnings"] = ["w"]
    hostile["model"]["name"] = hostile["task"]["name"] = HOSTILE
    hostile["task"]["labels"] = [HOSTILE, "good"]
    hostile["settings"]["max_length"] = HOSTILE
    hostile["settings"]["examples_because"] = plain["settings"]["examples_because"] = HOSTILE
    hostile["stability"]["checkpoints"][1] = HOSTILE
    hostile["scores"]["mutual_information"]["details"]["refused"] = HOSTILE
    hostile["scores"]["fisher"]["details"]["notes"] = [HOSTILE]
    hostile["scores"]["fisher"]["details"]["parts"][HOSTILE] = [None] * 13
    del hostile["scores"]["fisher"]["details"]["parts"]["attention"]
    expected, attacked = Page(render_result(plain)), Page(render_result(hostile))
    assert [tag for tag, _ in attacked.elements] == [tag for tag, _ in expected.elements]
    assert f"{HOSTILE} on {HOSTILE}" in attacked.inside("h1")
    assert HOSTILE in attacked.inside("p") and HOSTILE in attacked.inside("dd")
    assert attacked.json("data") == hostile


@pytest.mark.parametrize(("values", "best"), [(CURVE, 2), ([None, 2.0, None, 1.0, 3.0], 3)])
def test_the_page_holds_the_values_as_given(values: list[float | None], best: int):
    given = scan({"variability_ratio": score(values)}, {"variability_ratio": best})
    html = Page(render_result(given))
    assert html.json("data") == given
    [line] = layers(html.json("chart-1-1"), "line")
    drawn = rows(html.json("chart-1-1"), line)
    assert drawn == [{"index": i, "value": v} for i, v in enumerate(values)]
    assert "invalid" not in line["mark"], "Vega-Lite breaks a line at null unless told otherwise"


def paragraphs(given: Mapping[str, Any]) -> str:
    return "".join(text for one in build_sections(given)[1] for text in one.paragraphs)


def of_one(values: list[float | None], best: int | None, better: str = "lower") -> dict[str, Any]:
    return scan({"logme": score(values, better)}, {"logme": best})


def ratio(values: list[float | None] | None = None, **details: Any) -> dict[str, Any]:
    """A scan of all scores, led by the debiased ratio; with other values or details of it."""
    given = without_quality()
    leading = given["scores"]["variability_ratio_debiased"]
    leading["details"] |= details
    if values is not None:
        leading |= {"values": values, "low": [], "high": []}
        given["best"]["variability_ratio_debiased"] = None
    return given


OLD = {key: v for key, v in score([3.0, 2.0, 1.0]).items() if key not in ("low", "high")}
ALL_APART, NONE_APART = "differs from all others beyond noise", "from all others beyond noise"


@pytest.mark.parametrize(
    ("given", "says", "not_said"),
    [
        (of_one(CURVE, 2), "State 2 of 6 is best by LogME: 5.380, 50% lower than the 10.75", None),
        (of_one([3.0, 2.0, 1.0], 2), "That is the top state", None),
        (of_one([3.0, 1.0, None], 1), "The top state could not be scored", None),
        (of_one([0.1, 0.6, 0.4], 1, "higher"), "50% higher than the 0.4000 of the top state", None),
        (of_one([-3.0, -1.0, -2.0], 1, "higher"), "against -2.000 at the top state", None),
        # The default score leads whatever the order.
        (
            scan(
                {"nc1": score([3.0, 1.0, 2.0]), "variability_ratio": score([3.0, 2.0, 1.0])},
                {"nc1": 1, "variability_ratio": 2},
            ),
            "State 2 of 2 is best by variability ratio ν",
            None,
        ),
        # Older scans have no details.
        (scan({"nc1": OLD, "logme": OLD}, {"nc1": 2, "logme": 2}), "State 2 of 2 is best", None),
        (
            ratio(),
            "95% of the distance between the class means of state 8 is signal",
            ALL_APART,
        ),
        (ratio(separable_from_best=[i != 8 for i in range(13)]), f"State 8 {ALL_APART}.", "hollow"),
        (
            ratio(separable_from_best=[None] * 8 + [False] + [None] * 4),
            "is signal",
            NONE_APART,
        ),
        # The embeddings are never the best, so nobody asks whether they could be.
        (
            ratio(separable_from_best=[False, *(i != 8 for i in range(1, 13))]),
            f"State 8 {ALL_APART}.",
            None,
        ),
        # Where the leading score finds no signal, another one leads.
        (
            ratio([None] * 13),
            "2,000 examples show that the classes differ, but not by how much",
            None,
        ),
        (
            ratio([None] * 13, signal_fraction=[0.4] * 13),
            "With 2,000 examples, no state separates the classes beyond noise; --score "
            "variability_ratio ranks the states anyway.State 8 of 12 is best by variability ratio",
            None,
        ),
        # The scores are grouped by the state that they call best.
        (
            full(),
            "12 by numerical rank, online code length, LOES; 9 by ridge regression, LogME;",
            None,
        ),
        (
            full(),
            "Best block: 1 by gradient norm, saliency, change of the states (1 − CKA);",
            None,
        ),
        (scan(), "State 2 of 6 is best", "Best state"),
        (scan(warnings=["n is small"]), "n is small", None),
    ],
)
def test_the_finding_fits_the_case(given: dict[str, Any], says: str, not_said: str | None):
    text = paragraphs(given).replace("\n", "")
    assert says in text and (not_said is None or not_said not in text)


def test_the_table_marks_the_best_and_shows_gaps():
    given = scan(
        {"variability_ratio": score([None, 2.0, 12345.678, 0.5])}, {"variability_ratio": 3}
    )
    html = Page(render_result(given))
    assert html.cells() == ["–", "2.000", "1.235e+04", "0.5000"]
    best = [text.strip() for _, a, text in html.texts if a.get("class") == "best" and text.strip()]
    assert best == ["0.5000"]
    assert [text for _, a, text in html.texts if a.get("aria-label") == "best"] == ["◆"]
    scopes = [attributes.get("scope") for tag, attributes in html.elements if tag == "th"]
    assert scopes == ["col", "col", "row", "row", "row", "row"]


@pytest.mark.parametrize("reason", [None, "too few of class 'b'"])
def test_nothing_scored_is_said_and_drawn_without_a_mark(reason: str | None):
    undefined = score([None] * 5, details={"refused": reason})
    given = scan({"cca": undefined, "ridge": undefined}, {"cca": None, "ridge": None})
    html = Page(render_result(given))
    assert "No state could be scored" in html.inside("p")
    assert not layers(html.json("chart-1-1"), "text")
    assert draw(given)["concat"]
    assert (f"refused: {reason}" if reason else "undefined everywhere") in html.cells()


ADVICE = {
    "head": 2,
    "because": "state 2: a linear head there scores <b>",
    "plan": {"tuned": [1, 2], "head": 2, "notation": "(1, 2, 2)"},
    "relative": 0.3,
}


def test_the_page_opens_with_the_advice():
    html = render_result(scan(advice=ADVICE))
    found = sections(html)
    assert next(iter(found)) == "Advice"
    text = found["Advice"].inside("p")
    assert "Tune blocks 1, 2 with the head on state 2 of 6: 30% of the training cost" in text
    assert "Why: state 2: a linear head there scores <b>." in text
    assert found["Advice"].inside("code") == "layerscout tune tiny DATA --plan '(1, 2, 2)'"
    assert "Advice" not in sections(render_result(scan())), "of an older scan"


FIRST = ["layerscout plan .", "--plan '(1, 2, 2)'", "--examples all"]


@pytest.mark.parametrize(
    ("changes", "there", "absent"),
    [
        ({}, [*FIRST, "--score all"], ["--task", "--max-length", "--pooling"]),
        (
            {"task": "sst2", "text": "a b", "max_length": 64, "seed": 0},
            ["--task sst2 --text 'a b' --max-length 64 --plan '(1, 2, 2)'"],
            ["--seed"],
        ),
        ({"examples_used": 67349}, [], ["--examples all"]),
        # `tune` refuses numbers without the flag, so its command carries it too.
        (
            {"pooling": "cls", "balanced": True, "regression": True},
            ["--regression --pooling cls --balanced --examples all", "tune tiny DATA --regression"],
            ["True"],
        ),
        ({"all": True}, [], ["--score all"]),
    ],
)
def test_only_what_was_not_done_is_advised(
    changes: dict[str, Any], there: list[str], absent: list[str]
):
    given = full() if "all" in changes else scan(advice=ADVICE)
    for key, value in changes.items():
        given["task" if key == "examples_used" else "settings"][key] = value
    commands = Page(render_result(given)).inside("code")
    assert all(command in commands for command in there)
    assert not any(command in commands for command in absent)


def test_a_name_in_a_command_stays_one_word():
    given = scan(advice=ADVICE)
    given["model"]["name"] = "a'; rm -rf $HOME"
    commands = Page(render_result(given)).inside("code").split("layerscout ")
    [line] = [command for command in commands if "--plan" in command]
    assert shlex.split(line)[:2] == ["tune", given["model"]["name"]]


def test_warnings_stand_on_the_page_only_when_there_are_any():
    given = scan(warnings=["n is small"])
    assert "Warnings" in sections(render_result(given))
    del given["warnings"]
    for without in (scan(), given):
        assert "Warnings" not in sections(render_result(without))


def draw(given: Mapping[str, Any], path: Path | None = None) -> dict[str, Any]:
    """Return the chart of every score of a scan."""
    return plot(SimpleNamespace(as_dict=lambda: given), path).to_dict()


def panels(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    chart = draw(given)
    # What the panels share stands above them.
    shared = {name: chart[name] for name in ("data", "datasets") if name in chart}
    return [{**shared, **panel} for panel in chart["concat"]]


def test_the_best_state_is_marked_with_its_value_and_name():
    [panel] = panels(scan())
    [diamond] = layers(panel, "point", shape="diamond")
    [label] = layers(panel, "text", text="best: state 2")
    assert rows(panel, diamond) == rows(panel, label) == [{"index": 2, "value": 5.38}]


HEADS = [None, 1.0, 4.0]


@pytest.mark.parametrize(
    ("banded", "plain", "ends"),
    [
        (
            score([2.0, None, 3.0], low=[1.0, None, 2.0], high=[3.0, None, 4.0]),
            score([2.0, None, 3.0]),
            [(1.0, 3.0), (None, None), (2.0, 4.0)],
        ),
        # One deviation over untrained heads; a single one has none.
        (
            score(HEADS, "higher", "blocks", details={"spread": [None, 0.5, 1.0]}),
            score(HEADS, "higher", "blocks", details={"spread": [None] * 3}),
            [(None, None), (0.5, 1.5), (3.0, 5.0)],
        ),
    ],
)
def test_an_interval_is_shaded_only_where_there_is_one(banded, plain, ends):
    shaded, bare = panels(scan({"a": banded, "b": plain}, {"a": 2, "b": 2}))
    [band] = layers(shaded, "area")
    assert [(row["low"], row["high"]) for row in rows(shaded, band)] == ends
    [bars] = [bar for bar in layers(shaded, "rule") if "y2" in bar["encoding"]]
    for layer in (band, bars):
        assert layer["encoding"]["y"]["field"] == "low"
        assert layer["encoding"]["y2"]["field"] == "high"
    assert not layers(bare, "area")


@pytest.mark.parametrize(
    ("count", "blocks", "columns"), [(1, 4, 1), (4, 12, 2), *whole_only((15, 48, 3))]
)
def test_every_score_has_a_panel_over_the_same_states(count: int, blocks: int, columns: int):
    scores = {
        f"s{i}": score([1.0 + i + j for j in range(blocks + 1)], ("lower", "higher")[i % 2])
        for i in range(count)
    }
    given = scan(scores, {key: (1, blocks)[i % 2] for i, key in enumerate(scores)})
    assert draw(given)["columns"] == columns
    drawn = panels(given)
    assert [panel["title"] for panel in drawn] == [f"S{i}" for i in range(count)]
    for i, panel in enumerate(drawn):
        [line] = layers(panel, "line")
        y = line["encoding"]["y"]
        assert y["title"] == ("lower is better (axis reversed)", "higher is better")[i % 2]
        assert y["scale"]["reverse"] == (i % 2 == 0), "up is better in every panel"
        x = line["encoding"]["x"]
        assert x["scale"]["domain"] == [0, blocks]
        assert x["axis"]["values"][-1] == blocks and len(x["axis"]["values"]) <= 13


def test_a_chart_has_the_scores_the_size_and_the_title_that_are_asked_for():
    given = SimpleNamespace(as_dict=full)
    chart = plot(given, score="knn,fisher", size=(300, 120), title="Mine").to_dict()
    assert [panel["title"] for panel in chart["concat"]] == [*map(title_score, ("knn", "fisher"))]
    assert {(panel["width"], panel["height"]) for panel in chart["concat"]} == {(300, 120)}
    assert chart["title"] == "Mine"
    expect_refused("score of this scan", plot, given, score="fishr")
    expect_refused("`score` … for a scan", plot, COMPARED, score="knn")


def test_a_notebook_shows_a_chart_without_a_network():
    chart = plot(COMPARED)
    assert chart._repr_mimebundle_()["image/svg+xml"].startswith("<svg")
    with alt.renderers.enable("json"):  # which the user chose
        assert "image/svg+xml" not in chart.properties(title="Mine")._repr_mimebundle_()


def test_the_cells_of_a_map_are_square():
    [drawn] = plot(COMPARED).to_dict()["concat"]
    assert drawn["width"] == 2 * drawn["height"] == 220


def test_a_score_of_blocks_speaks_of_blocks():
    given = scan({"fisher": score([None, 1.0, 4.0, 2.0], "higher", "blocks")}, {"fisher": 2})
    [panel] = panels(given)
    assert layers(panel, "text", text="best: block 2")
    x = layers(panel, "line")[0]["encoding"]["x"]
    assert x["title"] == "block" and x["scale"]["domain"] == [1, 3], "counted from one"
    assert x["axis"]["values"] == [1, 2, 3]
    html = Page(render_result(given))
    assert "Block 2 of 3 is best by Fisher information: 4.000, 100% higher" in html.inside("p")
    assert "than the 2.000 of the top block" in html.inside("p")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.0, 2.0, 40.0], "linear"),
        ([1.0, 2.0, 4000.0], "log"),
        ([0.0, 2.0, 4000.0], "linear"),  # zero has no logarithm
    ],
)
def test_the_scale_is_logarithmic_only_where_one_state_dwarfs_the_others(values, kind):
    given = {"a": score(values), "b": score(values, "higher")}
    for panel, turned in zip(panels(scan(given, {"a": 1, "b": 2})), (True, False), strict=True):
        scale = layers(panel, "line")[0]["encoding"]["y"]["scale"]
        assert (scale.get("type", "linear"), scale["reverse"]) == (kind, turned)


@pytest.mark.parametrize("blocks", [1, 7, 13, 48, *whole_only(2, 4, 6, 11, 12, 24)])
def test_the_top_state_always_has_a_tick(blocks: int):
    content = score([*map(float, range(blocks + 1))])
    for count, most in ((1, 13), (4, 7)):  # several panels stand beside each other, and are small
        keys = [f"s{i}" for i in range(count)]
        panel, *_ = panels(scan(dict.fromkeys(keys, content), dict.fromkeys(keys, 1)))
        ticks = layers(panel, "line")[0]["encoding"]["x"]["axis"]["values"]
        assert ticks[0] == 0 and ticks[-1] == blocks
        assert ticks == sorted(set(ticks)) and len(ticks) <= most


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG\r\n\x1a\n"), (".PDF", b"%PDF-"), (".svg", b"<svg ")]
)
def test_charts_are_written_by_suffix(tmp_path: Path, suffix: str, start: bytes):
    path = tmp_path / f"scan{suffix}"
    draw(scan(), path)
    assert path.read_bytes().startswith(start)
    if suffix == ".svg":
        assert "best: state 2" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["scan.jpg", "scan", "scan.png.gz"])
def test_another_suffix_is_refused(tmp_path: Path, name: str):
    for refuse in (check_plot, lambda path: draw(scan(), path)):
        with pytest.raises(
            InputError, match=rf"\.png, \.svg or \.pdf, got '{name}'; name it 'scan"
        ):
            refuse(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_page_of_sections_leaves_out_what_is_empty():
    table = Table("Numbers", ["a", "b"], [["1", "<2>"], ["3", "4"]], frozenset({(1, 1)}))
    sections = [
        Section("First", ["Hello"]),
        Section("Nothing"),
        Section("Second", table=table, facts=[("k", "<v>")]),
    ]
    html = Page(render_page("A & B", sections, {"verb": "report", "x": "<"}))
    assert html.inside("h1") == "A & B"
    assert html.inside("h2") == "FirstSecond"
    assert html.cells() == ["<2>", "4"] and html.inside("dd") == "<v>"
    assert html.json("data") == {"verb": "report", "x": "<"}
    assert "figure" not in [tag for tag, _ in html.elements]


def test_a_number_that_is_none_does_not_reach_the_page():
    given = scan()
    given["seconds"]["forward"] = float("nan")
    with pytest.raises(ValueError, match="not JSON compliant"):
        render_result(given)


def sections(html: str) -> dict[str, Page]:
    """Return the parts of a page by their headings."""
    parts = html.split("<section ")[1:]
    found = [Page("<section " + part.split("</section>")[0] + "</section>") for part in parts]
    return {part.inside("h2"): part for part in found}


def table(part: Page) -> list[list[str]]:
    """Return the rows of a section's table as text, without marks and what stands below."""
    lines: list[list[str]] = []
    for tag, attributes, text in part.texts:
        if tag == "th" and attributes.get("scope") == "row":
            lines.append([text.strip()])
        elif tag == "td" and text.strip():
            lines[-1].append(text.strip())
    return lines


@pytest.fixture(scope="module")
def all_scores() -> str:
    """Return the page of a scan with every score."""
    return render_result(full())


def test_all_scores_stand_in_one_table(all_scores: str):
    found = {row[0]: row[1:] for row in table(sections(all_scores)["All scores"])}
    assert len(found) == 20
    assert found["Canonical correlation"] == ["higher", "state 8", "0.6600", "0.4388", "+0.40"]
    assert found["Weight signal-to-noise"] == ["higher", "block 4", "7.000", "2.092", "–"]
    assert found["Nearest neighbours"][-1] == "undefined everywhere"
    assert found["Mutual information"][-1].startswith("refused: mutual information needs 20")
    assert "always predicting the majority class: 0.5278" in found["Probe"][-1]
    assert "±0.006 at the best" in found["Probe"][-1]
    assert "labels drawn from the model" in found["Fisher information"][-1]


def test_the_curves_of_states_and_of_blocks_stand_apart(all_scores: str):
    parts = sections(all_scores)
    titles = {
        name: [
            json.loads(text)["title"]
            for tag, attributes, text in parts[name].texts
            if tag == "script" and attributes.get("type") == "application/json"
        ]
        for name in ("Scores of states", "Scores of blocks")
    }
    assert len(titles["Scores of states"]) == 12, "two have no best state, and one leads the page"
    assert titles["Scores of blocks"] == [
        "Fisher information",
        "Gradient norm",
        "Saliency",
        "Weight signal-to-noise",
        "Change of the states (1 − CKA)",
    ]
    labels = [a["aria-label"] for tag, a in Page(all_scores).elements if tag == "figure"]
    assert len(labels) == 1 + 12 + 5 + 3 and all(labels)


def test_states_that_are_not_told_apart_are_hollow_and_named():
    html = Page(render_result(without_quality()))
    chart = html.json("chart-1-1")
    [rings] = [layer for layer in chart["layer"] if layer.get("name") == "hollow"]
    assert [row["index"] for row in rows(chart, rings)] == [7, 9]
    assert "states 7–9 are tied within noise (hollow)" in html.inside("p")
    assert "tied with it within noise: 7, 9" in chart["description"]
    tooltip = chart["layer"][-1]["encoding"]["tooltip"]
    shown = ["index", "value", "low", "high", "signal", "apart"]
    assert [entry["field"] for entry in tooltip] == shown


def test_the_probe_is_set_against_the_scores(all_scores: str):
    found = {row[0]: row[1:] for row in table(sections(all_scores)["Smoothness and the probe"])}
    assert found["LogME"] == ["0.7000", "-0.93", "0.8649", "-0.95", "-0.01230", "0.9100", "12"]
    assert found["Probe"] == ["0.7000", *["–"] * 6]
    given = full()
    del given["diagnostics"]["against_probe"]
    part = sections(render_result(given))["Smoothness"]
    assert table(part)[0] == ["Held-out quality of a head", "0.7000"]


def test_agreement_is_shaded_by_how_strong_it_is(all_scores: str):
    parts = sections(all_scores)
    part = parts["Agreement on the states"]
    assert (
        "\n".join(row[0] for row in table(part))
        == """1. Held-out quality of a head
2. Debiased variability ratio ν
3. Variability ratio ν
4. Neural collapse NC1
5. Canonical correlation
6. Ridge regression
7. LogME
8. H-score
9. Numerical rank
10. Online code length
11. LOES
12. Entropy of the states
13. Probe"""
    )
    shades = {
        text: (attributes["class"], attributes["style"])
        for tag, attributes, text in part.texts
        if tag == "td" and "style" in attributes
    }
    assert shades["+0.85"] == ("more", "--share: 0.85")
    assert shades["-0.50"] == ("less", "--share: 0.50")
    assert len(table(parts["Agreement on the blocks"])) == 5


def test_ranks_are_followed_over_checkpoints(all_scores: str):
    part = sections(all_scores)["Stability"]
    rows_of_fisher = [row for row in table(part) if row[0] == "Fisher information"]
    assert rows_of_fisher == [
        ["Fisher information", "1. checkpoint-0", "12"],
        ["Fisher information", "2. checkpoint-1000", "10", "0.3333", "+0.94"],
        ["Fisher information", "3. checkpoint-2000", "5", "0.6667", "+0.88"],
    ]
    [chart] = [
        json.loads(text)
        for tag, _, text in part.texts
        if tag == "script" and "Fisher" in json.loads(text)["title"]
    ]
    drawn = rows(chart, layers(chart, "line")[0])
    assert len(drawn) == 3 * 12 and {row["checkpoint"] for row in drawn} == {1, 2, 3}
    y = layers(chart, "line")[0]["encoding"]["y"]
    assert y["scale"]["reverse"] and y["scale"]["domain"] == [1, 12]
    assert "Stability" not in sections(render_result(scan()))


def test_a_score_that_no_checkpoint_defines_is_left_out_of_the_stability():
    given, none = full(), [None] * 3
    undefined = {"values": [[None] * 13] * 3, "ranks": [[None] * 13] * 3}
    shown = {title_score(key) for key in given["stability"]["scores"]}
    given["stability"]["scores"]["knn"] = undefined | {"deviation": none, "kendall": none}
    part = sections(render_result(given))["Stability"]
    assert len(shown) == 3 and {row[0] for row in table(part)} == shown


def test_the_parts_of_a_score_can_be_opened(all_scores: str):
    parts = sections(all_scores)
    assert "Show the table" in parts["Fisher information by part"].inside("summary")
    assert len(table(parts["Weight signal-to-noise by part"])) == 12
    assert len(table(parts["All values"])) == 13 and parts["All values"].inside("summary")
    assert not sections(render_result(scan()))["All values"].inside("summary")


def test_the_scores_there_are_are_explained(all_scores: str):
    explained = sections(all_scores)["What the numbers mean"]
    assert len([tag for tag, _ in explained.elements if tag == "dt"]) == 17
    alone = sections(render_result(scan()))["What the numbers mean"]
    assert alone.inside("dt") == "Variability ratio ν"
    assert "grows with the number of examples" in alone.inside("dd")


@pytest.mark.parametrize("blocks", [1, *whole_only(24)])
def test_a_scan_of_every_depth_can_be_drawn(blocks: int):
    given = full(blocks)
    assert Page(render_result(given)).json("data") == json.loads(json.dumps(given))
    assert len(panels(given)) == 18, "knn and mutual information have no best state"


@pytest.mark.parametrize(
    ("entries", "written"),
    [
        ([], ""),
        ([3], "3"),
        ([3, 4], "3, 4"),
        ([1, 3, 4, 5, 9], "1, 3–5, 9"),
        ([0, 1, 2, 3], "0–3"),
    ],
)
def test_neighbouring_states_are_counted_together(entries: list[int], written: str):
    assert format_entries(entries) == written


@pytest.mark.parametrize(
    ("values", "better", "line"),
    [
        ([0.0, 1.0, 2.0, 3.0], "higher", "▁▁▅█"),
        ([9.0, 3.0, 2.0, 1.0], "lower", "▁▁▅█"),
        ([None, 1.0, None, 3.0], "higher", " ▁ █"),
        ([None, 2.0, 2.0, 2.0], "higher", " ▅▅▅"),
        ([5.0, None, None, None], "higher", "    "),
        ([1.0, 1.0, 10.0, 100.0], "higher", "▁▁▅█"),
        ([0.0, 1.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0], "higher", "▁█▁▁▁"),
    ],
)
def test_a_curve_in_one_line(values: list[float | None], better: str, line: str):
    assert draw_sparkline(score(values, better), 5) == line
