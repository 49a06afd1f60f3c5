"""`--threads`, and how threads wait."""

import os
import subprocess
import sys

import torch
from threadpoolctl import threadpool_info

from layerscout.cli.threads import VARIABLES, wait_passively


def test_threads_are_limited(run, two_threads, tiny, reviews, tmp_path):
    """In torch and in linear algebra."""
    code, _, errors = run("scan", tiny, reviews, "--threads", 1, "-o", tmp_path / "out")
    assert (code, errors) == (0, "")
    assert {pool["num_threads"] for pool in threadpool_info()} == {torch.get_num_threads()} == {1}


def test_a_limit_holds_for_libraries_that_are_loaded_later():
    code = (
        "from layerscout.cli.threads import limit_threads; limit_threads(1)\n"
        "import scipy.linalg, sklearn.linear_model, threadpoolctl\n"
        "print({pool['num_threads'] for pool in threadpoolctl.threadpool_info()})"
    )
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True)
    assert done.stdout.strip() == "{1}", done.stderr


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
