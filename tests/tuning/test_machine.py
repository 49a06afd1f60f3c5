"""What a tuning takes of the machine: memory, and how long measuring the speed takes."""

import sys
from types import SimpleNamespace

import pytest
import torch

import layerscout as ls
from layerscout.tuning import machine
from tuned import task_of

SINGLE = {"plan": "full", "batch_size": 1, "examples": 8}
OPTIONS = {"plan": "top:2", "examples": 32, "epochs": 1, "measure": "metric", "progress": False}


@pytest.fixture(scope="module")
def task():
    return ls.Task.load("demo")


def test_the_result_has_what_was_expected_and_what_was_used(tiny):
    found = ls.tune(tiny, task_of(n=32), **OPTIONS).content["memory"]
    assert found["predicted"] > 0
    if sys.platform != "linux":
        assert found["used"] is found["before"] is None
        return
    import resource

    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert 0 < found["before"] <= found["used"] <= 1.01 * peak


@pytest.mark.whole
def test_several_runs_keep_more_copies(task):
    one = ls.tune("demo", task, **OPTIONS | SINGLE).content["memory"]
    options = OPTIONS | SINGLE | {"learning_rate": (1e-4, 1e-3)}
    found = ls.tune("demo", task, **options).content
    # Learning from a single text, the runs are what takes memory, and one more is kept.
    trained = 4 * found["parameters"]["trainable"]
    assert found["memory"]["predicted"] == one["predicted"] + trained


def test_too_little_memory_is_warned_of(tiny, monkeypatch):
    monkeypatch.setattr(machine.os, "sysconf", lambda name: 1)
    found = ls.tune(tiny, task_of(n=32), **OPTIONS).content
    assert "GB of memory, and cpu has 1e-09 GB; lower --batch-size" in found["warnings"][-1]


def test_cuda_is_asked_for_tensors_alone(monkeypatch):
    device, asked = torch.device("cuda", 1), []
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda of: asked.append(of) or 7)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda of: asked.append(of) or (1, 8 * 10**9))
    assert machine.measure_memory(device, before=0) == 7
    [warning] = machine.warn_of_memory(device, 9 * 10**9)
    assert "take 9 GB of memory, and cuda has 8 GB" in warning
    assert asked == [device, device]
    assert machine.warn_of_memory(device, 8 * 10**9) == []


@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells")
def test_the_most_in_use_is_no_less_than_what_was_in_use_before():
    assert machine.measure_memory(torch.device("cpu"), before=10**15) == 10**15
    assert machine.measure_memory(torch.device("cpu"), before=0) > 10**6


def test_other_devices_say_nothing():
    device = torch.device("meta")
    assert machine.measure_memory(device) is machine.measure_memory(device, before=0) is None
    assert machine.warn_of_memory(device, 10**30) == []


# --- Speed


def fake_setup(examples):
    return SimpleNamespace(encoder=None, validation=range(examples))


@pytest.fixture
def numbers_for_batches(monkeypatch):
    """Let a batch be the numbers of its rows."""
    monkeypatch.setattr(machine, "make_batches", lambda *given: [given[-1]])
    monkeypatch.setattr(machine, "make_batch", lambda *given: {"rows": torch.tensor(given[-1])})


@pytest.mark.usefixtures("numbers_for_batches")
@pytest.mark.parametrize(
    ("slow", "trained", "passes", "rate"),
    [
        (1e-3, 100, [2, 128, 128, 128], 1000),  # as many as there may be
        (0.1, 1, [2, 8], 10),  # half a second allows no second round of eight
        (0.1, 20, [2, 8, 8, 8], 10),  # a tenth of the training
        (0.1, 1000, [2, 16, 16, 16], 10),  # five seconds are enough
    ],
)
def test_measuring_the_speed_takes_about_a_tenth_of_the_training(
    monkeypatch, slow, trained, passes, rate
):
    found = []

    def spend(encoder, model, batches):
        found.append(sum(len(one["rows"]) for one in batches))
        return slow * found[-1]

    monkeypatch.setattr(machine, "SPEED_REPEATS", 3)
    monkeypatch.setattr(machine, "_time_passes", spend)
    setup = fake_setup(1000)
    assert machine.measure_speeds(setup, "kept", None, trained) == {
        "kept_model": pytest.approx(rate)
    }
    assert found == passes


@pytest.mark.usefixtures("numbers_for_batches")
def test_the_full_model_runs_on_the_same_examples(monkeypatch):
    runs = []

    def spend(encoder, model, batches):
        runs.append((model, sum(one["rows"].numel() for one in batches)))
        return {"kept": 0.01, "full": 0.04}[model] * runs[-1][1]

    monkeypatch.setattr(machine, "_time_passes", spend)
    speeds = machine.measure_speeds(fake_setup(5), "kept", "full", 1.0)
    assert speeds == {"kept_model": pytest.approx(100), "full_model": pytest.approx(25)}
    assert runs[2:4] == [("kept", 5), ("full", 5)]
