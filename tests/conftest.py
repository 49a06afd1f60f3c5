"""Set up before layerscout is imported: no network, shapes checked, few threads."""

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

from inputs import Write, writer

# The modules with shapes in their signatures.
SHAPED = ("moments", "scores", "checkpoints", "encoder", "trunks")
install_import_hook([f"layerscout.{name}" for name in SHAPED], "beartype.beartype")

# Tests run side by side; a thread each is enough. No deadlines: time never decides a test.
torch.set_num_threads(1)
settings.register_profile("layerscout", deadline=None, max_examples=40)
settings.load_profile("layerscout")

SHARED = Path(__file__).resolve().parents[2] / "shared"
MODELS = ("all-MiniLM-L6-v2", "stacked-minilm-12")


def real(kind: str, name: str) -> Path:
    """Give a real model or task, or skip the test that asks for it."""
    path = SHARED / kind / name
    if not path.is_dir():
        pytest.skip(f"the real {kind}/{name} is not here (looked in ../shared)")
    return path


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a tiny random BERT checkpoint."""
    from tiny import tiny_checkpoint

    return tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "bert", "bert")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write text or bytes to a file in a folder of this test's own."""
    return writer(tmp_path)
