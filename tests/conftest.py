"""Set up before layerscout is imported: no network, shapes checked, few threads."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
# Tests run side by side; a thread each is enough, also for the processes that they start.
os.environ["OMP_NUM_THREADS"] = "1"
# Tests take the processor for granted, but for those that `make test-accelerator` runs.
if "TEST_ACCELERATOR" not in os.environ:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

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
install_import_hook(SHAPED, "beartype.beartype")

# Whoever starts the tests with SIGINT ignored (nohup, `&` in a script, some CI runners) hands that
# on to the processes that tests start and press Ctrl-C in: Python then leaves it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)
# No deadlines: time never decides a test. `make test-whole` tries each property more often.
settings.register_profile("quick", deadline=None, max_examples=8)
settings.register_profile("whole", deadline=None, max_examples=50)
settings.load_profile("quick")

SHARED = Path(__file__).resolve().parents[2] / "shared"
MODELS = ("all-MiniLM-L6-v2", "stacked-minilm-12")


def real(kind: str, name: str) -> Path:
    """Return a real model or task, or skip the test that asks for it."""
    path = SHARED / kind / name
    if not path.is_dir():
        pytest.skip(f"the real {kind}/{name} is not here (looked in ../shared)")
    return path


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
    if machine := sys.modules.get("layerscout.tuning.machine"):
        monkeypatch.setattr(machine, "SPEED_REPEATS", 1)
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


def whole_only(*cases: Any) -> list[Any]:
    """Leave further cases of a parametrised test to the whole suite."""
    values = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*some, marks=pytest.mark.whole) for some in values]


def start(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
    """Start the command line as a process of its own."""
    main = "from layerscout.cli import main; main()"
    command = [sys.executable, "-c", main, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def shell(command: str, where: Path, cache: Path) -> str:
    """Run a command where the layerscout that is tested is the first on the path."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = kept | {"PATH": path, "LAYERSCOUT_CACHE": str(cache)}
    done = subprocess.run(
        command, shell=True, cwd=where, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def truncate(path: Path) -> None:
    """Cut off the end of a file."""
    os.truncate(path, path.stat().st_size - 4)


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


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
