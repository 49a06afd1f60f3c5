"""Trainings that were stopped and go on: to the same bit as if nothing had happened."""

import gc
import json
from contextlib import suppress
from dataclasses import replace
from functools import partialmethod
from itertools import count
from pathlib import Path

import pytest
import torch

from conftest import whole_only
from inputs import expect_refused
from layerscout.errors import DiskError, InputError, UnfinishedError
from layerscout.files import lock_folder
from layerscout.models import make_classifier
from layerscout.plans import Settings
from layerscout.tuning import stepping as module
from layerscout.tuning.snapshots import RunSnapshots, Snapshots
from layerscout.tuning.stepping import pick_epoch
from layerscout.tuning.training import train
from tuned import NAMES, cheaply, copied, differing, examples_of, fitted, labels_for, task_of


class StoppedError(Exception):
    """What stands for a kill."""


def training(encoder, folder, notation="(3, 4, 4)", stop=None, rows=12, **settings):
    """Train with snapshots, up to a step; gives the run and what was kept."""
    encoder, plan = fitted(encoder, notation)
    Snapshots.open(folder, {"plan": notation}, resume=True)
    snapshots = RunSnapshots(folder / "run-1")

    def advance(done, _):
        if done == stop:
            raise StoppedError

    return train(
        encoder,
        make_classifier(encoder, plan, NAMES),
        examples_of(encoder, plan, labels_for(rows)),
        examples_of(encoder, plan, labels_for(4, 1), first=12),
        learning_rate=1e-2,
        seed=3,
        settings=Settings(**{"epochs": 4, "batch_size": 4, **settings}),
        advance=advance,
        snapshots=snapshots,
    )


PATIENT = {"epochs": 12, "patience": 2, "warmup": 0.0, "schedule": "constant"}


@pytest.mark.parametrize(
    ("notation", "precision", "settings"),
    [
        ("(3, 4, 4)", "float32", {}),
        ("full", "float32", {"keep": "last"}),
        ("head:3", "float32", {"max_steps": 8, "warmup": 3}),
        ("(3, 4, 4)", "float16", {"max_grad_norm": 1.0}),  # whose scale a snapshot must hold too
        ("(3, 4, 4)", "float32", PATIENT),
        *whole_only(
            ("(3, 4, 4)", "float32", {"keep": "last"}),
            ("(3, 4, 4)", "float32", {"max_steps": 8, "warmup": 3}),
            ("full", "float32", {}),
            ("full", "float32", {"max_steps": 8, "warmup": 3}),
            ("head:3", "float32", {}),
            ("head:3", "float32", {"keep": "last"}),
        ),
    ],
)
def test_it_goes_on_as_if_nothing_had_happened(bert, tmp_path, notation, precision, settings):
    """3 steps an epoch, 12 in all: stopped before the first snapshot, and within later epochs."""
    encoder = replace(bert, precision=precision)
    expected, kept = training(encoder, tmp_path / "whole", notation, **settings)
    assert all(torch.isfinite(p).all() for p in kept.values())
    state = json.loads((tmp_path / "whole" / "run-1" / "state.json").read_text())
    assert (state["scaler"].get("scale", 0) > 0) == (precision == "float16")
    epochs = len(expected.curve)
    assert epochs == (3 if "max_steps" in settings else epochs if settings == PATIENT else 4)
    assert (expected.stopped is not None and epochs < 12) == (settings == PATIENT)
    for stop in (2, 5, 3 * epochs - 1 if settings == PATIENT else 8):
        with pytest.raises(StoppedError):
            training(encoder, tmp_path / "stopped", notation, stop=stop, **settings)
    torch.rand(1000)  # what was drawn after the snapshot is drawn again all the same
    before = torch.get_rng_state()
    run, found = training(encoder, tmp_path / "stopped", notation, **settings)
    assert torch.equal(before, torch.get_rng_state())
    assert (run.curve, run.stopped) == (expected.curve, expected.stopped)
    assert not differing(found, kept)


def test_a_finished_run_is_not_run_again(bert, tmp_path):
    expected, kept = training(bert, tmp_path / "whole")
    run, found = training(bert, tmp_path / "whole", stop=1)
    assert run == expected and not differing(found, kept)
    files = [path.name for path in (tmp_path / "whole" / "run-1").iterdir()]
    assert sorted(files) == [
        f"parameters-{pick_epoch(run.curve, 'best').epoch}.safetensors",
        "state.json",
    ]


@pytest.mark.parametrize("step", [1, 4])
def test_a_diverged_run_stays_so(bert, tmp_path, monkeypatch, step):
    """In its first epoch, where nothing is kept, and in its second."""
    exploding = lambda at, *_: 1e38 if at == step else 0.1  # noqa: E731
    monkeypatch.setattr(module, "learning_rate_at", exploding)
    expected, kept = training(bert, tmp_path / "whole")
    assert expected.diverged and len(expected.curve) == (step > 3) and bool(kept) == (step > 3)
    monkeypatch.undo()
    again, found = training(bert, tmp_path / "whole", stop=1)
    assert again == expected and not differing(found, kept)


def test_a_scale_of_something_else_is_not_taken(bert, tmp_path):
    with pytest.raises(StoppedError):
        training(bert, tmp_path / "stopped", stop=5)
    path = tmp_path / "stopped" / "run-1" / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"scaler": 3}))
    half = replace(bert, precision="float16")
    expect_refused("delete the snapshots", training, half, tmp_path / "stopped")


def test_tune_goes_on(bert, tmp_path, monkeypatch):
    """Two runs; the second one is stopped, and the first is not trained again."""
    snapshots, options = tmp_path / "snapshots", {"seed": [0, 1], "epochs": 3}
    expected = cheaply(bert, task_of(), "(4, 4, 4)", **options)
    true, calls = module.learning_rate_at, []

    def counted(*arguments):
        calls.append(arguments[0])
        if len(calls) == 14:
            raise StoppedError
        return true(*arguments)

    monkeypatch.setattr(module, "learning_rate_at", counted)
    with pytest.raises(StoppedError):
        cheaply(bert, task_of(), "(4, 4, 4)", snapshots=snapshots, **options)
    resumed = options | {"snapshots": snapshots, "resume": True}
    for words, task, plan, given in (
        ("only the same … (4, 4, 4) … (3, 4, 4)", task_of(), "(3, 4, 4)", resumed),
        ("only the same … epochs 3, got 4", task_of(), "(4, 4, 4)", resumed | {"epochs": 4}),
        ("only the same … measure", task_of(), "(4, 4, 4)", resumed | {"measure": "speed"}),
        ("only the same … training examples", task_of(n=14), "(4, 4, 4)", resumed),
        (
            "holds another training … epochs 3, got 2; drop it with --overwrite",
            *(task_of(), "(4, 4, 4)", {"snapshots": snapshots}),
        ),
    ):
        expect_refused(words, cheaply, bert, task, plan, **given)
    monkeypatch.setattr(module, "learning_rate_at", true)
    result = cheaply(bert, task_of(), "(4, 4, 4)", **resumed)
    curves = [[run["curve"] for run in r.content["runs"]] for r in (result, expected)]
    assert curves[0] == curves[1]
    assert not differing(copied(result.model), copied(expected.model))
    result.save(tmp_path / "out")
    assert not snapshots.exists()


@pytest.mark.parametrize("against", [None, "(3, 4, 4)"])
def test_a_fault_keeps_what_was_reached(bert, tmp_path, monkeypatch, against):
    """A disk that is full is none of the model's: the snapshots stay, be it in the second plan."""
    true, saved = RunSnapshots.save, []

    def full(self, *arguments, **options):
        saved.append(self.folder)
        if len(saved) == (3 if against is None else 5):  # 3 epochs a plan
            raise InputError("cannot write: the disk is full")
        true(self, *arguments, **options)

    options = {"epochs": 3, "against": against, "snapshots": tmp_path / "snapshots"}
    monkeypatch.setattr(RunSnapshots, "save", full)
    expect_refused("the disk is full", cheaply, bert, task_of(), "(4, 4, 4)", **options)
    assert (tmp_path / "snapshots" / "plan-1-run-1" / "state.json").exists()
    monkeypatch.undo()
    result = cheaply(bert, task_of(), "(4, 4, 4)", **options, resume=True)
    assert (result.content["against"] is None) == (against is None)
    assert len(result.content["runs"][0]["curve"]) == 3


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("result.write_card", "but saving it failed (ValueError: no such card); its weights stay"),
        ("result.plain_json", "but saving it failed (ValueError: no such card); its weights stay"),
        ("run.judge", "but judging it failed (ValueError: no such card); its weights stay in"),
        ("run.make_result", "but judging it failed (ValueError: no such card)"),
    ],
)
def test_whatever_fails_in_the_end_a_trained_model_is_kept(
    bert, tmp_path, monkeypatch, place, words
):
    """And is finished from there, without another step."""

    def fail(*_, **__):
        raise ValueError("no such card\nadvice for others")

    options = {"snapshots": tmp_path / "out" / "snapshots"}
    with monkeypatch.context() as patch, pytest.raises(UnfinishedError) as caught:
        patch.setattr(f"layerscout.tuning.{place}", fail)
        cheaply(bert, task_of(), "(4, 4, 4)", **options).save(tmp_path / "out")
    assert words in str(caught.value) and "--resume" in str(caught.value)
    assert not (tmp_path / "out" / "model").exists()
    monkeypatch.setattr(module.Stepper, "step", fail)
    result = cheaply(bert, task_of(), "(4, 4, 4)", **options, resume=True)
    result.save(tmp_path / "out")
    assert not options["snapshots"].exists() and (tmp_path / "out" / "result.json").exists()
    assert (tmp_path / "out" / "model" / "model.safetensors").exists()


def test_a_second_plan_that_diverges_leaves_the_first(bert, tmp_path, monkeypatch):
    calls = []

    def exploding(*_):
        calls.append(0)
        return 0.1 if len(calls) <= 6 else 1e38  # 3 steps an epoch, 2 epochs of the first plan

    monkeypatch.setattr(module, "learning_rate_at", exploding)
    options = {"against": "(3, 4, 4)", "snapshots": tmp_path / "snapshots"}
    result = cheaply(bert, task_of(), "(4, 4, 4)", **options)
    assert result.content["against"] is None and len(result.content["runs"]) == 1
    assert any("the plan to compare with failed" in warning for warning in result.warnings)


def test_two_trainings_cannot_share_a_folder_until_the_result_is_saved(bert, tmp_path):
    folder, task = tmp_path / "out" / "snapshots", task_of()
    refused = "another process is using … name another folder"
    with lock_folder(folder):
        expect_refused(refused, cheaply, bert, task, "top:1", snapshots=folder)
        assert not folder.exists()
    result = cheaply(bert, task, "top:1", snapshots=folder)
    expect_refused(refused, cheaply, bert, task, "top:1", snapshots=folder, resume=True)
    result.save(tmp_path / "out")
    assert not folder.exists()
    with lock_folder(folder):
        pass
    result = cheaply(bert, task, "top:1", snapshots=folder)
    del result  # without a result to save, nobody needs the lock
    gc.collect()
    with lock_folder(folder):
        pass


def test_a_kill_while_a_result_is_saved_leaves_no_result_of_another_model(
    bert, tmp_path, monkeypatch
):
    """Stopped before the first change of a file or folder, the second and so on, until the end."""
    rates = (1e-3, 1e-2)
    first, second = (
        cheaply(bert, task_of(), "top:1", learning_rate=rate, measure="predictions")
        for rate in rates
    )
    true = {name: getattr(Path, name) for name in ("replace", "rename", "unlink")}
    second.save(tmp_path / "whole")
    weights = (tmp_path / "whole" / "model" / "model.safetensors").read_bytes()

    def rate_of(folder):
        content = json.loads((folder / "result.json").read_text())
        return content["runs"][0]["learning_rate"]

    pairs = []
    for moment in count():
        folder, calls = tmp_path / str(moment), []
        first.save(folder)

        def change(path, name, *arguments, calls=calls, moment=moment, **options):
            if len(calls) >= moment:  # whatever is cleared up after a fault, a kill does not
                raise KeyboardInterrupt
            calls.append(name)
            return true[name](path, *arguments, **options)

        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            for name in true:
                patch.setattr(Path, name, partialmethod(change, name))
            second.save(folder)
            break
        model = folder / "model" / "model.safetensors"
        is_second = model.exists() and model.read_bytes() == weights
        rate = rate_of(folder) if (folder / "result.json").exists() else None
        pairs.append((rate, is_second))
        if rate is not None:
            assert (rate == rates[1]) == is_second
            assert (folder / "predictions.parquet").exists()
    assert rate_of(folder) == rates[1] and (None, True) in pairs and (rates[0], False) in pairs


def test_a_model_that_cannot_take_its_place_leaves_the_earlier_result(bert, tmp_path, monkeypatch):
    first, second = (
        cheaply(bert, task_of(), "top:1", learning_rate=rate, measure="metric")
        for rate in (1e-3, 1e-2)
    )
    first.save(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    true = Path.rename

    def full(path, target):
        if Path(target).name == "model" and ".earlier" not in path.name:
            raise OSError(28, "No space left on device")
        return true(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", full)
        with pytest.raises(DiskError, match="make room"):
            second.save(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
