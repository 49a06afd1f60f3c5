"""Fixtures of all tests; shapes are checked in what they import of layerscout."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
from beartype import beartype

from inputs import Write, writer
from tiny import EACH_FAMILY, tiny_checkpoint

# The modules with shapes in their signatures are found, not listed: a list does not move with them.
# Tests hand wrong words to these on purpose, whose own checks are what must refuse them.
OWN_CHECKS = {"gradient_batches", "gradients", "pooled"}
SOURCE = Path(__file__).resolve().parents[1] / "src"
SHAPED = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in sorted(SOURCE.glob("layerscout/*/*.py"))
    if "\nfrom jaxtyping import" in path.read_text(encoding="utf-8") and path.stem not in OWN_CHECKS
]
assert len(SHAPED) > 20
# Each tuning calls these thousands of times; who calls them is checked.
OFTEN = {"Tridiagonal", "LinearHead", "_place_absent"}


class OnlyShapes(jaxtyping._import_hook.JaxtypingTransformer):
    """Leaves out what names no shape: mypy checks that, and here every call would take longer."""

    def visit(self, node: ast.AST) -> ast.AST:
        """Go past functions and classes without shapes, to those within them."""
        if isinstance(node, ast.Module):
            shapes = [r"\[[\w.| ]+, '"]
            for each in node.body:
                if isinstance(each, ast.Assign) and re.search(shapes[0], ast.unparse(each.value)):
                    shapes.append(rf"\b{ast.unparse(each.targets[0])}\b")  # which stands for one
            self.shape = re.compile("|".join(shapes))
        elif getattr(node, "name", None) in OFTEN:
            return node
        elif isinstance(node, ast.FunctionDef):
            if not self.shape.search(f"{ast.unparse(node.args)} {ast.unparse(node.returns or [])}"):
                return self.generic_visit(node)
        elif isinstance(node, ast.ClassDef):
            fields = (each for each in node.body if isinstance(each, ast.AnnAssign))
            if not any(self.shape.search(ast.unparse(each)) for each in fields):
                return self.generic_visit(node)
        return super().visit(node)


jaxtyping._import_hook.JaxtypingTransformer = OnlyShapes
# Modules with checks are kept compiled under this name.
check_shapes = beartype
jaxtyping.install_import_hook(SHAPED, "common.check_shapes")

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny random BERT checkpoint."""
    from tiny import tiny_checkpoint

    return tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "bert", "bert")


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Load a tiny BERT, which nobody changes."""
    from tuned import load

    return load(tmp_path_factory.mktemp("tiny") / "bert")


@pytest.fixture(scope="session")
def still(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Load a tiny BERT without dropout."""
    from tuned import NO_DROPOUT, load

    return load(tmp_path_factory.mktemp("tiny") / "still", **NO_DROPOUT)


@pytest.fixture(scope="session")
def albert(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Load a tiny ALBERT, whose blocks share their weights."""
    from tuned import load

    return load(tmp_path_factory.mktemp("tiny") / "albert", "albert")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write text or bytes to a file in a folder of this test's own."""
    return writer(tmp_path)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep what a test caches in a folder of its own, and return that folder."""
    monkeypatch.setenv("LAYERSCOUT_CACHE", str(tmp_path / "cache"))
    # Of the speed of this machine a test wants no good figure.
    for module, name, least in (
        ("layerscout.tuning.machine", "SPEED_REPEATS", 1),
        ("layerscout.studies.estimates", "_SECONDS", 0.0),
    ):
        if module in sys.modules:
            monkeypatch.setattr(sys.modules[module], name, least)
    return tmp_path / "cache"


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute with two threads until the test ends."""
    from layerscout.cli.threads import VARIABLES, limit_threads

    for name in VARIABLES:
        monkeypatch.setenv(name, "2")  # so that they are as before in the end
    before = torch.get_num_threads()
    limit_threads(2)
    yield
    limit_threads(before)


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int | str, str, str]]:
    """Run the command line here and return its exit code, standard output and standard error."""
    from layerscout import cli

    def run(*arguments: Any, columns: int = 80) -> tuple[int | str, str, str]:
        monkeypatch.setattr(sys, "argv", ["layerscout", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        output = capsys.readouterr()
        return ended.value.code or 0, output.out, output.err

    return run


@pytest.fixture(scope="session")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a CSV of 96 made-up reviews of two classes."""
    import numpy as np

    from tiny import SENTENCES

    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    rng = np.random.default_rng(0)
    words = " ".join(SENTENCES).replace(",", "").replace('"', "").split()
    lines = ["text,label"]
    for row in range(96):
        lines.append(f"{' '.join(rng.choice(words, 12))},{('bad', 'good')[row % 2]}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a CSV of 300 made-up reviews whose words tell their two classes apart."""
    from telling import telling_task

    split = telling_task().train
    path = tmp_path_factory.mktemp("data") / "telling.csv"
    rows = zip(split.texts, split.labels, strict=True)
    lines = (f"{text},{('bad', 'good')[label]}\n" for text, label in rows)
    path.write_text("text,label\n" + "".join(lines))
    return path


@pytest.fixture(scope="session", params=EACH_FAMILY)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny random checkpoint of each family; no test changes it."""
    return tiny_checkpoint(tmp_path_factory.mktemp("families") / request.param, request.param)


@pytest.fixture(scope="session")
def encoder(folder: Path) -> Any:
    """Return its encoder, which a test leaves as it was."""
    from layerscout.models import Encoder

    return Encoder.load(folder, device="cpu")
