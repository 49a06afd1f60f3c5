"""How long measuring the speed of a tuned model takes."""

from types import SimpleNamespace

import pytest
import torch

from layerscout.tuning import machine


def fake_setup(examples):
    return SimpleNamespace(encoder=None, validation=range(examples))


@pytest.fixture(autouse=True)
def numbers_for_batches(monkeypatch):
    """Let a batch be the numbers of its rows."""
    monkeypatch.setattr(machine, "make_batches", lambda encoder, examples, rows: [rows])
    monkeypatch.setattr(
        machine, "make_batch", lambda encoder, examples, rows: {"rows": torch.tensor(rows)}
    )


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


def test_the_full_model_runs_on_the_same_examples(monkeypatch):
    runs = []

    def spend(encoder, model, batches):
        runs.append((model, sum(one["rows"].numel() for one in batches)))
        return {"kept": 0.01, "full": 0.04}[model] * runs[-1][1]

    monkeypatch.setattr(machine, "_time_passes", spend)
    speeds = machine.measure_speeds(fake_setup(5), "kept", "full", 1.0)
    assert speeds == {"kept_model": pytest.approx(100), "full_model": pytest.approx(25)}
    assert runs[2:4] == [("kept", 5), ("full", 5)]
