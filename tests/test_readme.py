"""The commands of README do what it says, in the order in which they stand."""

import re
import shutil
from pathlib import Path

import pytest

from conftest import shell
from installed import install
from test_docs import run_blocks
from tiny import tiny_checkpoint

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# What needs the network is marked; `make test` is what runs this test.
LEFT_OUT = re.compile(r"# network|^make test ")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def commands():
    lines = [line.strip() for block in blocks("bash") for line in block.splitlines()]
    return [line.partition("  #")[0] for line in lines if not LEFT_OUT.search(line)]


@pytest.mark.whole
def test_make(tmp_path):
    made = [command for command in commands() if command.startswith("make")]
    assert made == ["make demo"]
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    shown = shell("make demo", ROOT, tmp_path / "cache")
    told = shown.splitlines()[-4:]
    ways = "counting words", "free head", "tuned ", "full fine-tuning"
    assert all(line.startswith(way) for line, way in zip(told, ways, strict=True))
    assert all(re.search(r" 0\.\d{3} +\d+\.\d$", line) for line in told)


def write_reviews(folder):
    lines = [f"this is a {('good', 'bad')[row % 2]} film, number {row}" for row in range(40)]
    rows = [f'"{line}",{("positive", "negative")[row % 2]}' for row, line in enumerate(lines)]
    for name in ("reviews", "november"):
        (folder / f"{name}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")


@pytest.mark.whole
def test_the_way_from_a_csv_to_predictions(tmp_path):
    write_reviews(tmp_path)
    python = install(tmp_path / "installed")

    def run(command):
        return shell(command, tmp_path, tmp_path / "cache", python)

    verbs = [command for command in commands() if not command.startswith("make")]
    order = ["tune", "predict", "evaluate", "scan", "plan", "tune", "report"]
    assert [command.split()[1] for command in verbs] == order
    shown = [run(command.replace("--time 5m", "--time 100s")) for command in verbs]
    assert "accuracy" in shown[0] and "counting words" in shown[0] and "more examples" in shown[0]
    assert "wrote november.predictions.csv" in shown[1]
    assert "the whole model: accuracy" in shown[2].lower()
    assert (
        "best" in shown[3]
        and "next, tune this plan: layerscout tune" in shown[4]
        and "tuned" in shown[5]
    )
    assert "accuracy" in shown[6].lower() and (tmp_path / "plans" / "report.html").is_file()
    for number, script in enumerate(blocks("python")):
        (tmp_path / f"{number}.py").write_text(script)
    said = [run(f"python {number}.py") for number in range(2)]
    assert re.search(r"'label': '(positive|negative)'", said[0])
    assert re.search(r"accuracy.*'(positive|negative)'", said[1])
    assert re.search(r"^\[\[0\.\d+ 0\.\d+\]\]$", said[1], re.MULTILINE)
    assert (tmp_path / "reviews-out" / "model" / "config.json").is_file()


@pytest.mark.whole
def test_a_decoder_from_scan_to_pipeline(tmp_path, cache):
    python = install(tmp_path / "env", "peft")
    rows = [
        f"a {('good', 'bad')[row % 2]} film {row},{('yes', 'no')[row % 2]}" for row in range(40)
    ]
    (tmp_path / "reviews.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    tiny_checkpoint(tmp_path / "tiny-llama", "llama")
    model = ("HuggingFaceTB/SmolLM2-135M-Instruct", "./tiny-llama")
    shown = run_blocks("methods", tmp_path, cache, ["decoder-"], model, python)
    assert "with LoRA (rank 8)" in shown
    assert len(re.findall(r"'label': '(yes|no)'", shown.splitlines()[-1])) == 2


def test_it_is_short_and_installs_the_torch_that_is_tested():
    assert len(README.splitlines()) <= 110
    (torch,) = re.findall(r"pip install (torch==\S+)", README)
    assert torch in (ROOT / "constraints.txt").read_text().split()


def list_anchors(page):
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_lead_somewhere():
    """All are absolute, so that they work where the package index shows this file, too."""
    links = re.findall(r"\]\(([^)]+)\)", README)
    start = "https://github.com/layerscout/layerscout/blob/main/"
    assert links and [link for link in links if not link.startswith(start)] == []
    targets = [link.removeprefix(start).partition("#") for link in links]
    assert [file for file, _, _ in targets if not (ROOT / file).is_file()] == []
    assert [at for file, _, at in targets if at and at not in list_anchors(ROOT / file)] == []
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    (back,) = re.findall(r"github.com/layerscout/layerscout#([\w-]+)\)", tutorial)
    assert back in list_anchors(ROOT / "README.md")
