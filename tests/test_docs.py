"""The pages say what is so: the tutorial runs, options come from the code, links lead somewhere."""

import ast
import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from typer.main import get_command

from conftest import shell, whole_only
from layerscout.cli import app
from test_house import ROOMS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def run_blocks(page, where, cache, about=("",), replaced=("", ""), python=sys.executable):
    """Run the blocks of a page that tell of one of some things, and return what they print."""
    text = (DOCS / f"{page}.md").read_text().replace(*replaced)
    shown = ""
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if not any(word in block for word in about):
            continue
        if language == "bash":
            shown += shell(block, where, cache, python)
        elif language == "python":
            (where / "block.py").write_text(block)
            shown += shell("python block.py", where, cache, python)
    return shown


@pytest.mark.whole
def test_the_tutorial_does_what_it_says(tmp_path, cache):
    shown = run_blocks("tutorial", tmp_path, cache)
    # What it quotes is what came out, but for numbers that differ from machine to machine.
    assert "◀ best" in shown and "plan (3, 4, 4): state 4: a linear head there scores 0." in shown
    assert re.search(
        r"tuned 2 of 6 blocks, 38% of the FLOPs of full fine-tuning, accuracy 0\.", shown
    )
    assert "'label': 'acceptable'" in shown or "'label': 'unacceptable'" in shown


def write_posts_and_news(folder):
    texts = {"sound": "the sound is fine", "delivery": "it came late", "price": "a bargain"}
    having = [[name for k, name in enumerate(texts) if row >> k & 1] for row in range(40)]
    rows = [f'"{", ".join(texts[one] for one in some)}",{"|".join(some)}' for some in having]
    (folder / "posts.csv").write_text("text,labels\n" + "\n".join(rows) + "\n")
    sentences = [
        f"{('Ann', 'Bob')[row % 2]} B-PER\nlives O\nin O\n{('Bonn', 'Rome')[row // 2 % 2]} B-LOC\n"
        for row in range(40)
    ]
    (folder / "news.conll").write_text("\n".join(sentences))


@pytest.mark.whole
def test_several_labels_and_words_from_a_file_to_pipeline(tmp_path, cache):
    write_posts_and_news(tmp_path)
    several = run_blocks("data", tmp_path, cache, ["posts-tuned"])
    assert "Metrics of each label" in several and "micro-F1" in several
    assert re.fullmatch(r"\[('(sound|delivery|price)'(, )?)+\]", several.splitlines()[-1])
    words = run_blocks("data", tmp_path, cache, ["news-tuned"])
    assert "sentences, 3 tags" in words and "Metrics of each type of entity" in words


@pytest.mark.whole
def test_a_tuned_model_predicts_and_is_served(tmp_path, cache):
    shown = run_blocks("predict", tmp_path, cache, ['.save("tuned")', "pipeline("])
    assert (tmp_path / "demo.parquet").is_file() and re.search(r"'label': '\w+'", shown)
    block = next(part for part in (DOCS / "predict.md").read_text().split("```") if "HTTP" in part)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "serve.py").write_text(block.removeprefix("python").replace("8000", str(port)))
    with subprocess.Popen([sys.executable, "serve.py"], cwd=tmp_path) as server:
        request = Request(f"http://127.0.0.1:{port}", b'["they laughed", "they laugheded"]')
        try:
            answers = json.load(ask(request, server))
        finally:
            server.kill()
    assert [set(answer) for answer in answers] == [{"acceptable", "unacceptable"}] * 2
    assert all(sum(answer.values()) == pytest.approx(1) for answer in answers)


def ask(request, server):
    """Send a request to a server as soon as it listens."""
    while server.poll() is None:
        try:
            return urlopen(request, timeout=60)
        except URLError:
            time.sleep(0.5)
    raise AssertionError("the server has ended")


@pytest.mark.whole
def test_a_figure_of_a_paper_and_its_report(tmp_path, cache):
    shown = run_blocks("study", tmp_path, cache, ["study xie2022-scores --small"])
    assert "pearson" in shown and "demo" in shown
    page = tmp_path / "xie2022-scores-small" / "report.html"
    page.unlink()
    shell("layerscout report xie2022-scores-small", tmp_path, cache)
    assert "Probing over the variability ratio" in page.read_text(encoding="utf-8")


def test_options_are_those_of_the_code(tmp_path):
    command = f"{sys.executable} -m typer layerscout.cli.entry utils docs --name layerscout"
    shell(f"{command} --title 'All options' --output {tmp_path / 'cli.md'}", ROOT, tmp_path)
    assert (tmp_path / "cli.md").read_text() == (DOCS / "cli.md").read_text(), "run make docs"


@pytest.mark.whole
@pytest.mark.parametrize(("maker", "page"), [("families", "families"), ("coverage", "papers")])
def test_pages_are_those_of_the_code(tmp_path, maker, page):
    shell(f"{sys.executable} bench/{maker}.py --write {tmp_path / 'page.md'}", ROOT, tmp_path)
    made = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert made == (DOCS / f"{page}.md").read_text(encoding="utf-8"), "run make docs"


def test_pages_are_built_without_a_warning(tmp_path):
    pytest.importorskip("mkdocstrings")
    shell(f"{sys.executable} -m mkdocs build --strict -d {tmp_path}", ROOT, tmp_path)
    assert (tmp_path / "tutorial" / "index.html").exists()


def test_every_public_name_is_in_the_python_reference():
    stub = ast.parse((ROOT / "src" / "layerscout" / "__init__.pyi").read_text())
    public = {alias.name for node in stub.body for alias in getattr(node, "names", [])}
    reference = re.findall(
        r"^::: layerscout\.(\w+)", (DOCS / "python.md").read_text(), re.MULTILINE
    )
    assert public and public == set(reference) - {"plans", "data"}


def test_every_verb_has_a_page():
    verbs = get_command(app).commands
    told = "".join(path.read_text() for path in DOCS.glob("*.md") if path.name != "cli.md")
    assert [verb for verb in sorted(verbs) if not re.search(rf"layerscout\*? {verb}\b", told)] == []


def test_architecture_names_every_room():
    text = (DOCS / "architecture.md").read_text()
    assert [room for room in ROOMS if f"`{room}`" not in text] == []


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_that_pages_for_contributors_name_are_there(page):
    named = re.findall(r"`([\w/]+/\w*\.(?:py|pyi|yaml))`", (ROOT / page).read_text())
    places = (ROOT, ROOT / "src", ROOT / "src" / "layerscout")
    assert len(named) >= 5
    assert [name for name in named if not any((at / name).exists() for at in places)] == []


def test_links_of_the_repository_lead_to_files():
    links = re.findall(r"\]\(([^)#:]+)[#)]", (ROOT / "CONTRIBUTING.md").read_text())
    assert links and [link for link in links if not (ROOT / link).exists()] == []


def test_every_fault_has_its_test():
    lines = [line for line in (DOCS / "faults.md").read_text().splitlines() if line[:2] == "| "]
    named = [re.findall(r"`(\w+\.py)::(\w+)`", line) for line in lines[1:]]
    assert len(named) > 20 and all(named)
    found = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    for file, test in (one for some in named for one in some):
        assert f"def {test}(" in found.get(file, ""), f"{file}::{test}"


def test_names_in_contributing_are_in_the_code():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    names = re.findall(r"`([A-Z]{3,}|make_plan)`", text)
    assert len(names) >= 5
    assert [name for name in names if name.rpartition(".")[2] not in code] == []


@pytest.mark.parametrize(
    ("begun", "completed"),
    [
        ("layerscout scan demo demo --score cca,nc", ["cca,nc1"]),
        *whole_only(
            ("layerscout sc", ["scan"]),
            ("layerscout study tamkin2020-e", ["tamkin2020-epochs"]),
            (
                "layerscout scan demo demo --task co",
                ["cola", "copa", "cosmos_qa", "conll2003", "copa@lodha2023"],
            ),
        ),
    ],
)
def test_the_shell_completes_what_is_begun(tmp_path, cache, monkeypatch, begun, completed):
    monkeypatch.setenv("_LAYERSCOUT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", begun)
    monkeypatch.setenv("COMP_CWORD", str(len(begun.split()) - 1))
    assert shell("layerscout", tmp_path, cache).split() == completed


@pytest.mark.whole
def test_the_notebook_runs(tmp_path, cache):
    content = json.loads((DOCS / "example.ipynb").read_text())
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    cells = ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]
    shown = [
        f"{body}\nprint(repr(({last})))" for body, _, last in (c.rpartition("\n") for c in cells)
    ]
    (tmp_path / "notebook.py").write_text("\n".join(shown))
    printed = shell("python notebook.py", tmp_path, cache)
    assert (
        "best-down:1@best" in printed
        and "<Result: (2, 4, 4) of demo on demo, accuracy 0.9" in printed
    )
