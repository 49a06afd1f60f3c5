"""Set up before layerscout is imported: no network, few threads; and what tests share."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"
# Tests run side by side; a thread each is enough, also for the processes that they start, and to
# read tiny checkpoints by threads takes longer.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
# Tests take the processor for granted, but for those that `make test-accelerator` runs.
if "TEST_ACCELERATOR" not in os.environ:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

# Whoever starts the tests with SIGINT ignored (nohup, `&` in a script, some CI runners) hands that
# on to the processes that tests start and press Ctrl-C in: Python then leaves it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadlines: time never decides a test. `make test-whole` tries each property more often.
settings.register_profile("quick", deadline=None, max_examples=8)
settings.register_profile("whole", deadline=None, max_examples=50)
settings.load_profile("quick")

SHARED = Path(__file__).resolve().parents[2] / "shared"
MODELS = ("all-MiniLM-L6-v2", "stacked-minilm-12")


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures, and with them torch, but not where others run the tests."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        gc.disable()
        config.pluginmanager.import_plugin("common")


def pytest_collection_finish() -> None:
    """Look for garbage in what tests make, and not in all modules again and again."""
    gc.freeze()
    gc.enable()


def real(kind: str, name: str) -> Path:
    """Return a real model or task, or skip the test that asks for it."""
    path = SHARED / kind / name
    if not path.is_dir():
        pytest.skip(f"the real {kind}/{name} is not here (looked in ../shared)")
    return path


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


def shell(command: str, where: Path, cache: Path, python: str | Path = sys.executable) -> str:
    """Run a command where the layerscout that is tested, or another one, is the first on the path.

    Args:
        command: a line of a shell, or more.
        where: the folder.
        cache: of states.
        python: of an environment; what the one that tests has does not count in another one.
    """
    left_out = "MAKE" if python == sys.executable else ("MAKE", "PYTHONPATH")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
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
