"""Loading from the hub, against the fake one in `hub.py`: nothing else is ever asked."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from hub import hub
from tiny import SENTENCES, tiny_checkpoint

# What every process starts with: addresses off this machine are noted and refused before anything
# is sent, and what went wrong is told as text.
PRELUDE = """
import json, sys

elsewhere = set()

def guard(event, arguments):
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    else:
        return
    if host != "127.0.0.1":
        elsewhere.add(str(host))
        raise ConnectionRefusedError(f"{host} is not the fake hub")

sys.addaudithook(guard)
answers = {}

def refusal(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None
"""
# What a library still asks in a thread of its own is waited for, so that it is noted too.
EPILOGUE = """
import threading
for thread in threading.enumerate():
    if thread is not threading.main_thread() and not thread.daemon:
        thread.join()
print(json.dumps({"elsewhere": sorted(elsewhere), **answers}))
"""

GLUE_CARD = """---
configs:
- config_name: cola
  data_files: [{split: train, path: cola/train-*}]
- config_name: sst2
  data_files:
  - {split: train, path: sst2/train-*}
  - {split: validation, path: sst2/validation-*}
  - {split: test, path: sst2/test-*}
dataset_info:
- config_name: cola
  features:
  - {name: sentence, dtype: string}
  - {name: label, dtype: int64}
  - {name: idx, dtype: int32}
- config_name: sst2
  features:
  - {name: sentence, dtype: string}
  - {name: label, dtype: {class_label: {names: {'0': negative, '1': positive}}}}
  - {name: idx, dtype: int32}
---
"""


class Malicious:
    """Unpickled without `weights_only`, this makes a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.trace),)


def write_split(path: Path, labels: list[int], column: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [SENTENCES[row % len(SENTENCES)] + f" ({row})" for row in range(len(labels))]
    rows = pa.array(range(len(labels)), pa.int32())
    table = pa.table({column: texts, "label": pa.array(labels, pa.int64()), "idx": rows})
    pq.write_table(table, path)


def write_models(folder: Path, trace: Path) -> dict[str, Path]:
    """Make one checkpoint as safetensors, and the same pickled, malicious, and in both forms."""
    safe = tiny_checkpoint(folder / "safe", "bert")
    others = {name: folder / name for name in ("pickled", "malicious", "both", "gated")}
    for other in others.values():
        shutil.copytree(safe, other)
    for name in ("pickled", "malicious"):
        (others[name] / "model.safetensors").unlink()
    weights = load_file(safe / "model.safetensors")
    torch.save(weights, others["pickled"] / "pytorch_model.bin")
    for name in ("malicious", "both"):
        bad = weights | {"embeddings.word_embeddings.weight": Malicious(trace)}
        torch.save(bad, others[name] / "pytorch_model.bin")
    return {f"org/{name}": path for name, path in {"safe": safe, **others}.items()}


def write_datasets(folder: Path) -> dict[str, Path]:
    splits = {
        "glue/sst2/train": ([0, 1, 1] * 10, "sentence"),
        "glue/sst2/validation": ([0, 1] * 5, "sentence"),
        # The hub's test splits of GLUE have no labels: -1 stands for each of them.
        "glue/sst2/test": ([-1] * 4, "sentence"),
        "glue/cola/train": ([0, 1] * 3, "sentence"),
        "reviews/data/train": ([0, 1, 2] * 8, "text"),
        "reviews/data/validation": ([0, 1, 2] * 2, "text"),
        "reviews/data/unlabelled": ([-1] * 4, "text"),
    }
    for name, (labels, column) in splits.items():
        write_split(folder / f"{name}-00000-of-00001.parquet", labels, column)
    (folder / "glue" / "README.md").write_text(GLUE_CARD)
    reviews = folder / "reviews"
    return {"nyu-mll/glue": folder / "glue", "org/reviews": reviews, "org/gated": reviews}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """Run the hub; return it, the folders behind it, and the trace that must never appear."""
    folder = tmp_path_factory.mktemp("hub")
    trace = folder / "trace"
    models = write_models(folder / "models", trace)
    with hub(models, write_datasets(folder / "datasets"), gated={"org/gated"}) as running:
        yield SimpleNamespace(hub=running, models=models, trace=trace)


def ask(environment: dict[str, str], code: str) -> dict[str, Any]:
    """Run code in a new process; returns what it put into `answers`, and `elsewhere`."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code + EPILOGUE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        pytest.fail(done.stderr)
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.fixture(scope="module")
def online(served: Any, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return what one process got, where it keeps its cache, and what it requested."""
    home, before = tmp_path_factory.mktemp("home"), len(served.hub.requests)
    code = f"""
import torch
from layerscout.data import Task
from layerscout.models import Encoder

for name in ("glue/sst2", "nyu-mll/glue/sst2", "org/reviews"):
    task = Task.load(name)
    answers[name] = [list(task.labels), task.train.labels.tolist(), list(task.train.texts)[0]]
    answers[name].append(None if task.validation is None else task.validation.labels.tolist())
    answers["warnings"] = task.warnings
answers["tasks"] = {{
    name: refusal(Task.load, name)
    for name in ("org/nothing", "nothing", "glue/sst3", "nyu-mll/glue", "org/gated")
}}
texts = ["the old cat sleeps", "a boring film"]
local = Encoder.load({str(served.models["org/safe"])!r}).states(texts)
for name in ("org/safe", "org/both", "org/pickled"):
    answers[name] = torch.equal(Encoder.load(name).states(texts), local)
answers["encoders"] = {{
    name: refusal(Encoder.load, name) for name in ("org/malicious", "org/nothing", "org/gated")
}}
"""
    answers = ask(served.hub.environment(home), code)
    requests = served.hub.requests[before:]
    return SimpleNamespace(answers=answers, home=home, requests=requests)


def test_tasks_load_by_their_hub_names(online: Any) -> None:
    answers, errors = online.answers, online.answers["tasks"]
    names, first = ["negative", "positive"], SENTENCES[0] + " (0)"
    for name in ("glue/sst2", "nyu-mll/glue/sst2"):
        assert answers[name] == [names, [0, 1, 1] * 10, first, [0, 1] * 5]
    assert answers["org/reviews"] == [["0", "1", "2"], [0, 1, 2] * 8, first, [0, 1, 2] * 2]
    assert "splits of org/reviews that are not read: unlabelled" in answers["warnings"]
    check_lines(errors.values())
    assert "'org/nothing' doesn't exist" in errors["org/nothing"][1]
    assert "gated" in errors["org/gated"][1]
    # Only the configuration that was asked for is fetched.
    assert not any("/cola/train" in line for line in online.requests)


def test_encoders_load_by_their_hub_names(online: Any) -> None:
    answers, errors = online.answers, online.answers["encoders"]
    assert answers["org/safe"] and answers["org/both"] and answers["org/pickled"]
    # "both" has good safetensors beside malicious pickled weights: those are not even fetched.
    pickled = [line for line in online.requests if line.endswith("/pytorch_model.bin")]
    assert pickled and not any("/org/both/" in line for line in pickled)
    check_lines(errors.values())
    assert "gated" in errors["org/gated"][1]


def test_malicious_weights_never_run(online: Any, served: Any) -> None:
    assert not served.trace.exists()
    kind, text = online.answers["encoders"]["org/malicious"]
    assert kind == "InputError"
    assert "weights_only" not in text  # torch's own advice is to let the pickled code run


def test_nothing_else_is_asked(online: Any) -> None:
    # A conversion of pickled weights would begin with the list of commits.
    assert not any("/commits/" in line or "/discussions" in line for line in online.requests)
    # `datasets` asks its viewer, whose address it derives from the hub's.
    assert set(online.answers["elsewhere"]) <= {"datasets-server.127.0.0.1"}


@pytest.mark.whole
def test_what_was_loaded_before_loads_offline(online: Any, served: Any) -> None:
    before = len(served.hub.requests)
    code = """
from layerscout.data import Task
from layerscout.models import Encoder
answers["labels"] = list(Task.load("glue/sst2").labels)
answers["blocks"] = Encoder.load("org/safe").blocks
answers["errors"] = [refusal(Task.load, "org/new"), refusal(Encoder.load, "org/new")]
"""
    answers = ask(served.hub.environment(online.home) | {"HF_HUB_OFFLINE": "1"}, code)
    assert (answers["labels"], answers["blocks"]) == (["negative", "positive"], 4)
    check_lines(answers["errors"])
    assert served.hub.requests[before:] == [] and answers["elsewhere"] == []


@pytest.mark.whole
def test_a_hub_that_is_down_is_told_in_one_line(tmp_path: Path) -> None:
    with hub({}, {}) as running:
        environment = running.environment(tmp_path)
    code = """
import time
time.sleep = lambda _: None  # the library waits longer and longer between its five attempts
from layerscout.data import Task
from layerscout.models import Encoder
answers["errors"] = [refusal(Task.load, "glue/sst2"), refusal(Encoder.load, "org/safe")]
"""
    answers = ask(environment, code)
    check_lines(answers["errors"])
    assert answers["elsewhere"] == []


def check_lines(errors: Iterable[list[str]]) -> None:
    """Check that errors, as `refusal` gives them, are ones that a user is meant to see."""
    for kind, text in errors:
        assert kind == "InputError", text
        assert text and "\n" not in text and len(text) < 500
