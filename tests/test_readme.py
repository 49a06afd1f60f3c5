"""The commands of README do what it says, in the order in which they stand."""

import re
import shutil
from pathlib import Path

import pytest

from conftest import shell
from tiny import tiny_checkpoint

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# What needs the network is marked; `make test` is what runs this test.
LEFT_OUT = re.compile(r"# network$|^make test$")


# Of which the commands are run on a small stand-in.
DECODER = "decoder-"

# What the sections on other kinds of labels are about.
OTHERS = re.compile("posts|news")

STUDIES = "layerscout (study|report scores)"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def commands(*, others=False):
    lines = [line.strip() for block in blocks("bash") for line in block.splitlines()]
    lines = [line for line in lines if line and not LEFT_OUT.search(line) and DECODER not in line]
    return [line for line in lines if bool(OTHERS.search(line)) == others]


def commands_of_decoder():
    (block,) = (block for block in blocks("bash") if DECODER in block)
    return [line.removesuffix("# network").strip() for line in block.splitlines()]


def run(command, where):
    """Run a command where the layerscout that is tested is the first on the path."""
    return shell(command, ROOT if command.startswith("make") else where, where / "cache")


@pytest.mark.whole
def test_make(tmp_path):
    made = [command for command in commands() if command.startswith("make")]
    assert made == ["make demo"]
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    shown = run("make demo", tmp_path)
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
def test_a_decoder_from_scan_to_pipeline(tmp_path):
    write_reviews(tmp_path)
    tiny_checkpoint(tmp_path / "tiny-llama", "llama")
    named = "HuggingFaceTB/SmolLM2-135M-Instruct"
    for command in commands_of_decoder():
        shown = run(command.replace(named, "./tiny-llama"), tmp_path)
    assert "with LoRA (rank 8)" in shown
    (script,) = (script for script in blocks("python") if DECODER in script)
    (tmp_path / "classify.py").write_text(script)
    said = run("python classify.py", tmp_path)
    assert len(re.findall(r"'label': '(positive|negative)'", said)) == 2


@pytest.mark.whole
def test_the_way_from_a_csv_to_a_tuned_model(tmp_path):
    write_reviews(tmp_path)
    verbs = [command for command in commands() if not command.startswith("make")]
    order = ["tune", "tune", "scan", "plan", "tune", "predict", "evaluate", "report", "study"]
    assert [command.split()[1] for command in verbs] == [*order, "report"]
    shown = [run(command.replace("--time 5m", "--time 100s"), tmp_path) for command in verbs[:8]]
    assert "left out" in shown[0] and "best" in shown[2]
    assert "next: layerscout tune" in shown[3] and "tuned" in shown[4]
    assert "wrote november.predictions.csv" in shown[5]
    assert "the whole model: accuracy" in shown[6].lower()
    assert "accuracy" in shown[7].lower() and (tmp_path / "plans" / "report.html").is_file()
    assert (tmp_path / "reviews-scan" / "scan.html").stat().st_size > 1000
    scripts = [one for one in blocks("python") if DECODER not in one and not OTHERS.search(one)]
    for number, script in enumerate(scripts):
        (tmp_path / f"{number}.py").write_text(script)
    said = [run(f"python {number}.py", tmp_path) for number in range(2)]
    assert len(scripts) == 2
    assert re.search(r"'label': '(positive|negative)'", said[0])
    assert "accuracy" in said[1] and "blocks " in said[1].splitlines()[-1]
    assert (tmp_path / "reviews.png").stat().st_size > 1000
    assert (tmp_path / "reviews-out" / "model" / "config.json").is_file()


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
def test_several_labels_and_words_from_a_file_to_pipeline(tmp_path):
    write_posts_and_news(tmp_path)
    shown = [run(command, tmp_path) for command in commands(others=True)]
    assert len(shown) == 3
    assert "Metrics of each label" in shown[0] and "micro-F1" in shown[0]
    assert " words of " in shown[1] and "sentences, 3 tags" in shown[1]
    assert "Metrics of each type of entity" in shown[2]
    several, words = (script for script in blocks("python") if OTHERS.search(script))
    for name, script, answers in (
        ("posts", several, r"\[('(sound|delivery|price)'(, )?)+\]"),
        ("news", words, r"\[(\('(PER|LOC)', '[a-z ]+'\)(, )?)+\]"),
    ):
        (tmp_path / f"{name}.py").write_text(script)
        assert re.fullmatch(answers, run(f"python {name}.py", tmp_path).splitlines()[-1])


@pytest.mark.whole
def test_a_figure_of_a_paper_and_its_report(tmp_path):
    study, report = (command for command in commands() if re.search(STUDIES, command))
    shown = run(study, tmp_path)
    assert "pearson" in shown and "demo" in shown
    page = tmp_path / "scores" / "report.html"
    page.unlink()
    run(report, tmp_path)
    assert "Probing over the variability ratio" in page.read_text(encoding="utf-8")


def test_links_lead_somewhere():
    """All are absolute, so that they work where the package index shows this file, too."""
    links = re.findall(r"\]\(([^)]+)\)", README)
    start = "https://(?:github|raw.githubusercontent).com/layerscout/layerscout/(?:blob/)?main/(.+)"
    targets = [found[1] if (found := re.fullmatch(start, link)) else link for link in links]
    assert targets
    assert [t for t in targets if not (ROOT / t).is_file()] == []
