"""`--threads`, how threads wait, and the line that advises fewer."""

import os
import subprocess
import sys

import psutil
import pytest
import torch
from threadpoolctl import threadpool_info

from layerscout.cli.threads import VARIABLES, advise_threads, wait_passively

ADVICE = "other processes keep 2.0 of 2 cores busy; --threads 1 may be faster"


@pytest.fixture
def busy(monkeypatch, two_threads):
    """Compute with two threads on two cores that others need."""
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval, percpu: [100.0, 100.0])


def test_threads_are_limited(run, busy, tiny, reviews, tmp_path):
    """In torch and in linear algebra; and nothing is advised then."""
    code, _, errors = run("scan", tiny, reviews, "--threads", 1, "-o", tmp_path / "out")
    assert code == 0 and "--threads" not in errors
    assert {pool["num_threads"] for pool in threadpool_info()} == {torch.get_num_threads()} == {1}
    assert advise_threads() == ""


def test_fewer_threads_are_advised_in_one_line(run, busy, tiny, reviews, tmp_path):
    for model, more, code, times in (
        (tiny, (), 0, 1),
        (tiny, ("-q",), 0, 0),
        (tmp_path / "none", ("--backend", "ray"), 2, 0),  # what a cluster computes
    ):
        ended, _, errors = run("scan", model, reviews, *more, "-o", tmp_path / "out")
        assert (ended, errors.count(ADVICE)) == (code, times), errors


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


def test_waiting_is_passive_unless_the_environment_says_how(monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OPENBLAS_THREAD_TIMEOUT"):
        monkeypatch.setenv(name, "")  # so that it is as before in the end
        monkeypatch.delenv(name)
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == "4"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "20")
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "active"
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == "20"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
    wait_passively()
    assert "OMP_WAIT_POLICY" not in os.environ
