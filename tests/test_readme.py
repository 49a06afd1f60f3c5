"""The commands of README do what it says, in the order in which they stand."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# What needs the network is marked; `make test` is what runs this test.
LEFT_OUT = re.compile(r"# network$|^make test$")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def commands():
    lines = [line.strip() for block in blocks("bash") for line in block.splitlines()]
    return [line for line in lines if line and not LEFT_OUT.search(line)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Give a folder with somebody's reviews.csv in it."""
    folder = tmp_path_factory.mktemp("somebody")
    lines = [f"this is a {('good', 'bad')[row % 2]} film, number {row}" for row in range(40)]
    rows = [f'"{line}",{("positive", "negative")[row % 2]}' for row, line in enumerate(lines)]
    (folder / "reviews.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return folder


def environment():
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def test_there_is_something_to_run():
    assert "make demo" in commands()
    assert any(command.startswith("layerscout scan demo reviews.csv") for command in commands())
    assert len(blocks("python")) == 1


@pytest.mark.parametrize("command", commands())
def test_command(command, folder):
    if command.startswith("make") and not shutil.which("make"):
        pytest.skip("make is not installed")
    where = ROOT if command.startswith("make") else folder
    done = subprocess.run(
        command, shell=True, cwd=where, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "best" in done.stdout
    if "-o " in command:
        assert (folder / command.split("-o ")[1].split()[0] / "scan.html").stat().st_size > 1000


def test_python(folder):
    script = blocks("python")[0]
    done = subprocess.run(
        [sys.executable, "-c", script + "\nprint(shorter.config.num_hidden_layers, scan.best())"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    depth, best = done.stdout.split()[-2:]
    assert depth == best
    assert (folder / "reviews.png").stat().st_size > 1000


def test_links_lead_somewhere():
    targets = [t for t in re.findall(r"\]\(([^)]+)\)", README) if "://" not in t]
    assert targets
    assert [t for t in targets if not (ROOT / t).is_file()] == []
