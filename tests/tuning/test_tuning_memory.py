"""What a tuning says of memory: before it, in warnings, and in `result.json`."""

import sys

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
    assert machine.measure_memory(device, peak=True) == 7
    [warning] = machine.warn_of_memory(device, 9 * 10**9)
    assert "take 9 GB of memory, and cuda has 8 GB" in warning
    assert asked == [device, device]
    assert machine.warn_of_memory(device, 8 * 10**9) == []


def test_other_devices_say_nothing():
    device = torch.device("meta")
    assert machine.measure_memory(device) is machine.measure_memory(device, peak=True) is None
    assert machine.warn_of_memory(device, 10**30) == []
