"""What runs report to trackers."""

import importlib.util
import json

import pytest

from inputs import expect_refused
from layerscout.errors import LayerscoutError
from layerscout.tuning import tune
from layerscout.tuning.run_options import TRACKERS, check_tracker, tracking
from tuned import cheaply, load, task_of

tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None,
    reason="tensorboard is not installed (pip install tensorboard)",
)


def scalars(folder):
    """Read what TensorBoard shows: the steps and values of every curve, by its name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def test_names(monkeypatch):
    from accelerate import tracking as module

    expect_refused(
        "unknown tracker 'tensorbord' … did you mean", check_tracker, "track", "tensorbord"
    )
    monkeypatch.setattr(module, "get_available_trackers", list)
    for name in TRACKERS:
        expect_refused(f"not installed … pip install {name}", check_tracker, "track", name)


def test_no_tracker_writes_nothing(tmp_path):
    with tracking(None, tmp_path / "logs", "run", {}) as log:
        log({"loss": 1.0}, 1)
    assert not (tmp_path / "logs").exists()


def test_a_tracker_that_does_not_begin_costs_one_line(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no server\nhere")

    monkeypatch.setattr("accelerate.Accelerator.init_trackers", refuse)
    with (
        pytest.raises(LayerscoutError, match="wandb cannot start a run: no server; check"),
        tracking("wandb", tmp_path, "a run", {}) as log,
    ):
        log({"loss": 1.0}, 1)


@tensorboard
def test_a_solved_head_is_reported_once(bert, tmp_path):
    options = {"progress": False, "measure": "metric", "track": "tensorboard"}
    logs = tmp_path / "logs"
    content = tune(bert, task_of(), "head:2", logs=logs, **options).content
    [epoch] = content["runs"][0]["curve"]
    [folder] = logs.iterdir()
    assert "solved" in folder.name
    assert scalars(folder / "layerscout")[content["metric"]] == [(1, pytest.approx(epoch["value"]))]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "settings", "written"),
    [
        ("wandb", {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}, "wandb/offline-run-*/*.wandb"),
        ("trackio", {"TRACKIO_DIR": "runs"}, "runs/layerscout.db"),
        (
            "mlflow",
            {"MLFLOW_TRACKING_URI": "mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"},
            "mlruns/*/*/metrics/loss",
        ),
    ],
)
def test_trackers_that_are_installed_offline(name, settings, written, tmp_path, monkeypatch):
    if importlib.util.find_spec(name) is None:  # trackio reads its settings when it is imported
        pytest.skip(f"{name} is not installed (pip install 'layerscout[{name}]')")
    monkeypatch.chdir(tmp_path)
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    with tracking(name, tmp_path / "logs", "a run", {"seed": 0}) as log:
        log({"loss": 0.5}, 3)
    assert list(tmp_path.glob(written))


@tensorboard
def test_what_is_logged_is_there_after_an_error(tmp_path):
    with (
        pytest.raises(KeyboardInterrupt),
        tracking("tensorboard", tmp_path, "(3, 4, 4), seed 0", {"seed": 0, "plan": None}) as log,
    ):
        log({"loss": 0.5}, 3)
        raise KeyboardInterrupt
    [folder] = tmp_path.iterdir()
    assert scalars(folder / "layerscout") == {"loss": [(3, 0.5)]}


@tensorboard
def test_a_curve_for_every_run(tmp_path):
    """12 examples by 4 are 3 steps an epoch."""
    options = {"learning_rate": [1e-3, 1e-2], "track": "tensorboard"}
    result = cheaply(load(tmp_path / "bert"), task_of(), "top:1", logs=tmp_path / "logs", **options)
    folders = sorted((tmp_path / "logs").iterdir())
    assert len(folders) == len(result.content["runs"]) == 2
    rates = [folder.name.split("rate_")[1].split("_")[0] for folder in folders]
    curves = {f"{run['learning_rate']:g}": run["curve"] for run in result.content["runs"]}
    for rate, folder in zip(rates, folders, strict=True):
        shown = scalars(folder / "layerscout")
        keys = {"training_loss": "training_loss", "validation_loss": "loss", "accuracy": "value"}
        assert shown.keys() == keys.keys()
        for name, key in keys.items():
            expected = [(3 * epoch["epoch"], epoch[key]) for epoch in curves[rate]]
            assert shown[name] == [(step, pytest.approx(value)) for step, value in expected]


@tensorboard
def test_by_the_command_line(run, tiny, reviews, tmp_path):
    out = tmp_path / "out"
    options = ("--plan", "top:1", "--epochs", 1, "--track", "tensorboard", "-o", out)
    code, _, errors = run("tune", tiny, reviews, *options)
    assert (code, errors) == (0, "")
    [folder] = (out / "logs").iterdir()
    value = json.loads((out / "result.json").read_text())["best"]["value"]
    assert scalars(folder / "layerscout")["accuracy"] == [(3, pytest.approx(value))]
