"""`--threads`, how threads wait, and the line that advises fewer."""

import os
import subprocess
import sys

import psutil
import pytest
import torch
from threadpoolctl import threadpool_info

from layerscout.cli.threads import VARIABLES, advise_threads, limit_threads, wait_passively

ADVICE = "other processes keep 2.0 of 2 cores busy; --threads 1 may be faster"


@pytest.fixture
def busy(monkeypatch, two_threads):
    """Compute with two threads on two cores that others need."""
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval, percpu: [100.0, 100.0])


def test_threads_are_limited(run, busy, tiny, reviews, tmp_path):
    code, _, errors = run("scan", tiny, reviews, "--threads", 1, "-o", tmp_path / "out")
    assert code == 0, errors
    assert torch.get_num_threads() == 1
    assert "--threads" not in errors


def test_fewer_threads_are_advised_in_one_line(run, busy, tiny, reviews, tmp_path):
    code, _, errors = run("scan", tiny, reviews, "-o", tmp_path / "out")
    assert code == 0, errors
    assert errors.count(ADVICE) == 1
    code, _, errors = run("scan", tiny, reviews, "-q", "-o", tmp_path / "out")
    assert code == 0
    assert ADVICE not in errors


def test_nothing_is_advised_for_what_a_cluster_computes(run, busy, reviews, tmp_path):
    _, _, errors = run("scan", tmp_path / "none", reviews, "--backend", "ray")
    assert "there is no model folder" in errors
    assert ADVICE not in errors


def test_a_limit_holds_for_torch_and_for_linear_algebra(two_threads):
    limit_threads(1)
    assert torch.get_num_threads() == 1
    assert {pool["num_threads"] for pool in threadpool_info()} == {1}


def test_a_limit_holds_for_libraries_that_are_loaded_later():
    code = (
        "from layerscout.cli.threads import limit_threads; limit_threads(1)\n"
        "import scipy.linalg, sklearn.linear_model, threadpoolctl\n"
        "print({pool['num_threads'] for pool in threadpoolctl.threadpool_info()})"
    )
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True)
    assert done.stdout.strip() == "{1}", done.stderr


@pytest.mark.parametrize(
    ("cores", "said"),
    [
        ([0.0, 3.0], ""),
        ([40.0, 5.0], ""),  # half a core is no reason
        ([100.0, 12.0], "other processes keep 1.1 of 2 cores busy; --threads 1 may be faster"),
        ([100.0, 100.0], "other processes keep 2.0 of 2 cores busy; --threads 1 may be faster"),
        ([100.0, 100.0, 0.0, 0.0], ""),
        ([100.0] * 3 + [0.0], "other processes keep 3.0 of 4 cores busy; --threads 1 may be"),
    ],
)
def test_fewer_threads_are_advised_where_others_need_the_cores(
    cores, said, two_threads, monkeypatch
):
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval, percpu: cores)
    advice = advise_threads()
    assert advice == said if not said else advice.startswith(said)


def test_nothing_is_advised_where_one_thread_was_asked_for(two_threads, monkeypatch):
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval, percpu: [100.0, 100.0])
    limit_threads(1)
    assert advise_threads() == ""


def test_waiting_is_passive_unless_the_environment_says_how(monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that it is as before in the end
        monkeypatch.delenv(name)
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "active"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
    wait_passively()
    assert "OMP_WAIT_POLICY" not in os.environ
