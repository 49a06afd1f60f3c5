"""`--threads`, and the line that advises fewer."""

import psutil
import pytest
import torch

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
