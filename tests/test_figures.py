"""Charts and the page: what they show, what they must never do with hostile text."""

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from layerscout.errors import InputError
from layerscout.figures import (
    Section,
    Table,
    check_plot,
    page,
    save_chart,
    scan_chart,
    scan_page,
)

CURVE = [13.93, 12.231234567890123, 5.38, 6.99, 12.65, 10.8, 10.75]
HOSTILE = (
    """</script><script>alert(1)</script><img src="https://x.example/a.png" onerror='a'>{{7*7}}🦊"""
)


def score(values: list[float | None], better: str = "lower", of: str = "states", **more: Any):
    return {"of": of, "better": better, "values": values, "low": [], "high": [], **more}


def scan(
    scores: Mapping[str, Any] | None = None,
    best: Mapping[str, int | None] | None = None,
    **more: Any,
) -> dict[str, Any]:
    scores = scores or {"variability_ratio": score(CURVE)}
    blocks = len(next(iter(scores.values()))["values"]) - 1
    return {
        "layerscout": "0.1.0",
        "verb": "scan",
        "model": {
            "name": "tiny",
            "source": "tiny",
            "family": "bert",
            "blocks": blocks,
            "hidden_size": 384,
            "parameters": {"embeddings": 1, "blocks": [2], "head": 3, "total": 22713216},
        },
        "task": {
            "name": "reviews",
            "kind": "classification",
            "labels": ["bad", "good"],
            "metric": "accuracy",
            "examples_used": 2000,
            "examples_available": 67349,
            "tokens_per_example": 13.34,
        },
        "settings": {"pooling": "mean", "max_length": 128, "precision": "float32", "seed": 0},
        "scores": scores,
        "best": {"variability_ratio": 2} if best is None else best,
        "warnings": [],
        "seconds": {"forward": 3.21, "scores": 0.1},
    } | more


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
        if tag not in ("meta", "link", "img", "br"):
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((*self.open[-1], data))

    def inside(self, *tags: str) -> str:
        return "".join(text for tag, _, text in self.texts if tag in tags)

    def json(self, name: str) -> Any:
        """The content of a JSON data block; HTMLParser hands script content over as it stands."""
        [content] = [text for _, attributes, text in self.texts if attributes.get("id") == name]
        return json.loads(content)

    def cells(self) -> list[str]:
        return [text.strip() for tag, _, text in self.texts if tag == "td" and text.strip()]


def layers(chart: Mapping[str, Any], mark: str, **properties: Any) -> list[Mapping[str, Any]]:
    """The layers of one panel that draw `mark` with these properties."""
    return [
        layer
        for layer in chart["layer"]
        if layer["mark"]["type"] == mark and properties.items() <= layer["mark"].items()
    ]


def rows(chart: Mapping[str, Any], layer: Mapping[str, Any]) -> list[dict[str, Any]]:
    data = layer.get("data", chart.get("data"))
    return data["values"] if "values" in data else chart["datasets"][data["name"]]


def test_the_page_loads_nothing_from_anywhere():
    html = scan_page(scan())
    for tag, attributes in Page(html).elements:
        assert tag not in {"link", "iframe", "object", "embed", "base", "img"}
        assert not {"src", "href", "srcset", "action", "data"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
    style = Page(html).inside("style")
    assert "url(" not in style and "@import" not in style
    assert "$schema" not in json.dumps(Page(html).json("chart-1-1"))


def test_the_page_allows_its_one_script_and_no_other():
    html = Page(scan_page(scan()))
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
    hostile = scan(warnings=[HOSTILE])
    hostile["model"]["name"] = hostile["task"]["name"] = HOSTILE
    hostile["task"]["labels"] = [HOSTILE, "good"]
    hostile["settings"]["max_length"] = HOSTILE
    plain, attacked = Page(scan_page(scan(warnings=["w"]))), Page(scan_page(hostile))
    tags = [tag for tag, _ in plain.elements]
    assert [tag for tag, _ in attacked.elements] == tags
    assert f"{HOSTILE} on {HOSTILE}" in attacked.inside("h1")
    assert HOSTILE in attacked.inside("p") and HOSTILE in attacked.inside("dd")
    assert attacked.json("data") == hostile


def test_the_page_holds_the_values_as_given():
    given = scan()
    html = Page(scan_page(given))
    assert html.json("data") == given
    chart = html.json("chart-1-1")
    [line] = layers(chart, "line")
    assert rows(chart, line) == [{"index": i, "value": v} for i, v in enumerate(CURVE)]


def test_the_page_says_what_was_found():
    text = Page(scan_page(scan())).inside("p")
    assert "By the variability ratio ν, state 2 of 6 is best: 5.380" in text
    assert "50% lower than the 10.75 of the top state" in text


@pytest.mark.parametrize(
    ("values", "better", "best", "says"),
    [
        ([3.0, 2.0, 1.0], "lower", 2, "That is the top state"),
        ([3.0, 1.0, None], "lower", 1, "The top state could not be scored"),
        ([0.1, 0.6, 0.4], "higher", 1, "50% higher than the 0.4000 of the top state"),
        ([-3.0, -1.0, -2.0], "higher", 1, "against -2.000 at the top state"),
    ],
)
def test_the_finding_fits_the_case(values: list[float | None], better: str, best: int, says: str):
    given = scan({"logme": score(values, better)}, {"logme": best})
    assert says in Page(scan_page(given)).inside("p")


def test_the_default_score_leads_whatever_the_order():
    scores = {"nc1": score([3.0, 1.0, 2.0]), "variability_ratio": score([3.0, 2.0, 1.0])}
    text = Page(scan_page(scan(scores, {"nc1": 1, "variability_ratio": 2}))).inside("p")
    assert "By the variability ratio ν, state 2 of 2" in text


def test_the_table_marks_the_best_and_shows_gaps():
    given = scan(
        {"variability_ratio": score([None, 2.0, 12345.678, 0.5])}, {"variability_ratio": 3}
    )
    html = Page(scan_page(given))
    assert html.cells() == ["–", "2.000", "1.235e+04", "0.5000"]
    best = [text.strip() for _, a, text in html.texts if a.get("class") == "best" and text.strip()]
    assert best == ["0.5000"]
    assert [text for _, a, text in html.texts if a.get("aria-label") == "best"] == ["◆"]
    scopes = [attributes.get("scope") for tag, attributes in html.elements if tag == "th"]
    assert scopes == ["col", "col", "row", "row", "row", "row"]


def test_nothing_scored_is_said_and_drawn_without_a_mark():
    given = scan({"variability_ratio": score([None] * 5)}, {"variability_ratio": None})
    html = Page(scan_page(given))
    assert "No state could be scored" in html.inside("p")
    assert not layers(html.json("chart-1-1"), "text")
    assert scan_chart(given).to_dict()["concat"]


@pytest.mark.parametrize(
    ("changes", "there", "absent"),
    [
        (
            {},
            ["layerscout plan .", "--plan auto", "--pooling cls", "--examples all", "--precision"],
            ["--task", "--max-length"],
        ),
        (
            {"task": "sst2", "text": "a b", "max_length": 64, "seed": 0},
            ["--task sst2 --text 'a b' --max-length 64 --plan auto"],
            ["--seed"],
        ),
        (
            {"pooling": "cls", "precision": "auto", "examples_used": 67349},
            ["--pooling mean"],
            ["--pooling cls", "--examples all", "--precision"],
        ),
    ],
)
def test_only_what_was_not_done_is_advised(
    changes: dict[str, Any], there: list[str], absent: list[str]
):
    given = scan()
    for key, value in changes.items():
        given["task" if key == "examples_used" else "settings"][key] = value
    commands = Page(scan_page(given)).inside("code")
    assert all(command in commands for command in there)
    assert not any(command in commands for command in absent)


def test_tuning_is_advised_for_classes_only():
    given = scan()
    given["task"]["kind"] = "multiple_choice"
    assert "--plan" not in Page(scan_page(given)).inside("code")


def test_a_name_in_a_command_stays_one_word():
    given = scan()
    given["model"]["name"] = "a'; rm -rf $HOME"
    commands = Page(scan_page(given)).inside("code").split("layerscout ")
    [line] = [command for command in commands if "--plan" in command]
    assert shlex.split(line)[:2] == ["tune", given["model"]["name"]]


def test_warnings_stand_on_the_page_only_when_there_are_any():
    assert "Warnings" not in Page(scan_page(scan())).inside("h2")
    given = scan(warnings=["n is small"])
    assert "Warnings" in Page(scan_page(given)).inside("h2")
    assert "n is small" in Page(scan_page(given)).inside("p")
    del given["warnings"]
    assert "Warnings" not in Page(scan_page(given)).inside("h2")


def panels(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    chart = scan_chart(given).to_dict()
    return [{"datasets": chart["datasets"], **panel} for panel in chart["concat"]]


def test_the_best_state_is_marked_with_its_value_and_name():
    [panel] = panels(scan())
    [diamond] = layers(panel, "point", shape="diamond")
    [label] = layers(panel, "text", text="best: state 2")
    assert rows(panel, diamond) == rows(panel, label) == [{"index": 2, "value": 5.38}]


def test_undefined_values_are_gaps_not_zeros():
    values = [None, 2.0, None, 1.0, 3.0]
    [panel] = panels(scan({"variability_ratio": score(values)}, {"variability_ratio": 3}))
    [line] = layers(panel, "line")
    assert [row["value"] for row in rows(panel, line)] == values
    assert "invalid" not in line["mark"], "Vega-Lite breaks a line at null unless told otherwise"


def test_an_interval_is_shaded_only_where_there_is_one():
    low, high = [1.0, None, 2.0], [3.0, None, 4.0]
    with_band = score([2.0, None, 3.0], low=low, high=high)
    given = scan({"a": with_band, "b": score([2.0, None, 3.0])}, {"a": 2, "b": 2})
    shaded, plain = panels(given)
    [band] = layers(shaded, "area")
    assert [(row["low"], row["high"]) for row in rows(shaded, band)] == list(
        zip(low, high, strict=True)
    )
    assert (band["encoding"]["y"]["field"], band["encoding"]["y2"]["field"]) == ("low", "high")
    assert not layers(plain, "area")


@pytest.mark.parametrize(("count", "blocks", "columns"), [(1, 4, 1), (4, 12, 2), (15, 48, 3)])
def test_every_score_has_a_panel_over_the_same_states(count: int, blocks: int, columns: int):
    scores = {
        f"s{i}": score([1.0 + i + j for j in range(blocks + 1)], ("lower", "higher")[i % 2])
        for i in range(count)
    }
    given = scan(scores, {key: (1, blocks)[i % 2] for i, key in enumerate(scores)})
    assert scan_chart(given).to_dict()["columns"] == columns
    drawn = panels(given)
    assert [panel["title"] for panel in drawn] == [f"S{i}" for i in range(count)]
    for i, panel in enumerate(drawn):
        [line] = layers(panel, "line")
        assert line["encoding"]["y"]["title"] == f"{('lower', 'higher')[i % 2]} is better"
        x = line["encoding"]["x"]
        assert x["scale"]["domain"] == [0, blocks]
        assert x["axis"]["values"][-1] == blocks and len(x["axis"]["values"]) <= 13


def test_a_score_of_blocks_speaks_of_blocks():
    given = scan({"fisher": score([None, 1.0, 4.0, 2.0], "higher", "blocks")}, {"fisher": 2})
    [panel] = panels(given)
    assert layers(panel, "text", text="best: block 2")
    assert layers(panel, "line")[0]["encoding"]["x"]["title"] == "block"
    html = Page(scan_page(given))
    assert (
        "block 2 of 3 is best: 4.000, 100% higher than the 2.000 of the top block"
        in html.inside("p")
    )


def test_the_scale_is_logarithmic_only_where_one_state_dwarfs_the_others():
    def scale(values: list[float | None]) -> str:
        [panel] = panels(scan({"a": score(values)}, {"a": 1}))
        return layers(panel, "line")[0]["encoding"]["y"]["scale"].get("type", "linear")

    assert scale([1.0, 2.0, 40.0]) == "linear"
    assert scale([1.0, 2.0, 4000.0]) == "log"
    assert scale([0.0, 2.0, 4000.0]) == "linear", "zero has no logarithm"


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG\r\n\x1a\n"), (".PDF", b"%PDF-"), (".svg", b"<svg ")]
)
def test_charts_are_written_by_suffix(tmp_path: Path, suffix: str, start: bytes):
    path = tmp_path / f"scan{suffix}"
    save_chart(scan_chart(scan()), path)
    assert path.read_bytes().startswith(start)
    if suffix == ".svg":
        assert "best: state 2" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["scan.jpg", "scan", "scan.png.gz"])
def test_another_suffix_is_refused(tmp_path: Path, name: str):
    for refuse in (check_plot, lambda path: save_chart(scan_chart(scan()), path)):
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
    html = Page(page("A & B", sections, {"verb": "report", "x": "<"}))
    assert html.inside("h1") == "A & B"
    assert html.inside("h2") == "FirstSecond"
    assert html.cells() == ["<2>", "4"] and html.inside("dd") == "<v>"
    assert html.json("data") == {"verb": "report", "x": "<"}
    assert "figure" not in [tag for tag, _ in html.elements]


def test_a_number_that_is_none_does_not_reach_the_page():
    given = scan()
    given["seconds"]["forward"] = float("nan")
    with pytest.raises(ValueError, match="not JSON compliant"):
        scan_page(given)
