"""Snapshots: what was written comes back, and a kill at any moment leaves a whole one."""

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from inputs import expect_refused
from layerscout.errors import DiskError
from layerscout.plans import Settings
from layerscout.tuning.snapshots import RunSnapshots, Snapshots
from layerscout.tuning.stepping import Epoch, Run

ABOUT = {"plan": "(5, 6, 6)", "learning rates": [1e-3], "data": "abc"}


def opened(folder, about=ABOUT, resume=False, overwrite=False):
    return Snapshots.open(folder / "training", about, resume=resume, overwrite=overwrite)


class Training:
    """A run of the smallest model, whose every epoch is one step and reaches a value."""

    def __init__(self, folder, *, seed=0, about=ABOUT):
        self.snapshots = RunSnapshots(opened(folder, about, resume=True).folder / "run-0")
        self.run = Run(0.1, seed)
        torch.manual_seed(seed)
        head = torch.nn.Linear(3, 2)
        self.stepper = SimpleNamespace(
            settings=Settings(),
            order=np.random.default_rng(seed),
            done=0,
            kept={},
            trained=dict(head.named_parameters()),
            optimizer=torch.optim.AdamW(head.parameters(), lr=0.1),
            scaler=torch.amp.GradScaler("cpu", enabled=False),
            accelerator=SimpleNamespace(is_main_process=True, process_index=0, num_processes=1),
            encoder=SimpleNamespace(device=torch.device("cpu")),
        )

    def train(self, value, over=False):
        run, stepper, trained = self.run, self.stepper, self.stepper.trained
        rows = torch.from_numpy(stepper.order.normal(size=(4, 3))).float() + torch.rand(4, 3)
        (rows @ trained["weight"].T + trained["bias"]).square().mean().backward()
        stepper.optimizer.step()
        stepper.done += 1
        run.curve.append(Epoch(len(run.curve) + 1, 0.5, 0.25, value))
        if value >= max(epoch.value for epoch in run.curve):
            stepper.kept = {name: p.detach().clone() for name, p in trained.items()}
        self.snapshots.save(run, stepper, over=over)

    def facts(self):
        """List all that a training continues from, but for the state of random numbers."""
        moments = {
            f"{name}/{key}": value
            for name, p in self.stepper.trained.items()
            for key, value in self.stepper.optimizer.state[p].items()
        }
        parts = (self.stepper.trained, self.stepper.kept, moments)
        tensors = [{name: tensor.tolist() for name, tensor in part.items()} for part in parts]
        return self.stepper.done, list(self.run.curve), self.run.seconds, *tensors

    def files(self):
        return sorted(path.name for path in self.snapshots.folder.iterdir())


def restored(folder, seed=1):
    training = Training(folder, seed=seed)
    training.snapshots.restore(training.run, training.stepper)
    return training


def test_what_was_written_comes_back_and_goes_on(tmp_path):
    training = Training(tmp_path)
    assert restored(tmp_path).run.curve == []  # there is none yet
    for epoch, value in enumerate((0.5, 0.9, 0.7, 0.8), start=1):
        training.train(value)
        again = restored(tmp_path)
        assert again.facts() == training.facts()
        kept = {f"parameters-{min(epoch, 2)}", f"parameters-{epoch}", f"optimizer-{epoch}"}
        assert training.files() == [*(f"{name}.safetensors" for name in sorted(kept)), "state.json"]


def test_of_a_run_that_is_over_only_what_counts_stays(tmp_path):
    training = Training(tmp_path)
    training.train(0.9)
    training.train(0.5, over=True)
    again = restored(tmp_path)
    assert again.run.curve == training.run.curve
    assert again.stepper.kept.keys() == training.stepper.kept.keys()
    assert again.facts()[4] == training.facts()[4]
    assert training.files() == ["parameters-1.safetensors", "state.json"]


def test_a_run_that_is_over_before_its_first_epoch_keeps_nothing(tmp_path):
    training = Training(tmp_path)
    training.run.diverge("the loss was nan at step 1 of 4")
    training.snapshots.save(training.run, training.stepper, over=True)
    again = restored(tmp_path)
    assert again.run.diverged and not again.stepper.kept and training.files() == ["state.json"]


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("value", [0.5, 0.9])
@pytest.mark.parametrize("call", ["replace", "unlink"])
def test_a_kill_between_any_two_changes_leaves_a_whole_snapshot(
    tmp_path, monkeypatch, call, value, over
):
    """Stopped before the first change of a file, the second and so on, until nothing is left."""
    true = getattr(Path, call)
    for moment in count():
        training = Training(tmp_path / str(moment))
        training.train(0.7)
        before, calls = training.facts(), []

        def killed(*arguments, calls=calls, moment=moment, **options):
            if len(calls) == moment:
                raise KeyboardInterrupt
            calls.append(arguments)
            return true(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Path, call, killed)
            try:
                training.train(value, over=over)
                break
            except KeyboardInterrupt:
                pass
        again = restored(tmp_path / str(moment))
        expected = before if len(again.run.curve) == 1 else training.facts()
        if over and len(again.run.curve) == 2:  # nothing is trained any more
            assert again.facts()[1] == expected[1] and again.facts()[4] == expected[4]
        else:
            assert again.facts() == expected
    assert moment > 0


def test_an_unfinished_training_is_not_overwritten(tmp_path):
    opened(tmp_path)
    opened(tmp_path, ABOUT | {"plan": "other"})  # nothing was finished that could be lost
    opened(tmp_path)
    Training(tmp_path).train(0.5)
    line = "holds this training, which was not finished; continue it with --resume, or start again"
    expect_refused(line, opened, tmp_path)
    opened(tmp_path, resume=True).discard()
    assert not (tmp_path / "training").exists()
    opened(tmp_path)


def test_another_training_is_not_resumed(tmp_path):
    Training(tmp_path).train(0.5)
    about = ABOUT | {"plan": "(1, 6, 6)"}
    refused = "only the same … plan (5, 6, 6), got (1, 6, 6); give the same, or drop it with --ov"
    for overwrite in (False, True):
        expect_refused(refused, opened, tmp_path, about, True, overwrite)
    refused = "another training … plan (5, 6, 6), got (1, 6, 6); drop it with --overwrite, or name"
    assert "--resume" not in expect_refused(refused, opened, tmp_path, about)


@pytest.mark.parametrize("broken", [False, True])
def test_an_unfinished_training_is_dropped_when_asked(tmp_path, broken):
    Training(tmp_path).train(0.5)
    if broken:
        (tmp_path / "training" / "training.json").write_text("{")
    opened(tmp_path, ABOUT | {"plan": "other"}, overwrite=True)
    [left] = (tmp_path / "training").iterdir()
    assert json.loads(left.read_text())["plan"] == "other"


def test_broken_snapshots_are_refused(tmp_path):
    training = Training(tmp_path)
    training.train(0.5)
    path = training.snapshots.folder / "state.json"
    written = path.read_text()
    for broken in ("", "[]", '{"loss": NaN}'):
        path.write_text(broken)
        expect_refused("state.json cannot be read … delete the folder", restored, tmp_path)
    changes = {
        "random": [],
        "epoch": "x",
        "curve": [],
        "order": {},
        "kept": "1/../../kept",
        "seconds": 3,
    }
    for name, value in changes.items():
        path.write_text(json.dumps(json.loads(written) | {name: value}))
        expect_refused("a snapshot cannot be used … delete the snapshots", restored, tmp_path)
    path.write_text(written)
    for part in ("optimizer-1", "parameters-1"):
        tensors = path.with_name(f"{part}.safetensors")
        whole = tensors.read_bytes()
        tensors.write_bytes(whole[:-8])
        expect_refused(f"{part}.safetensors cannot be read", restored, tmp_path)
        tensors.write_bytes(whole)
    save_file({"other": torch.zeros(1)}, tensors)
    expect_refused("its parameters are not the trained ones", restored, tmp_path)
    (tmp_path / "training" / "training.json").write_text("{")
    expect_refused("training.json", opened, tmp_path, resume=True)


@pytest.mark.parametrize("name", ["thesis.txt", ".training-ab12cd34.layerscout-part.json"])
def test_a_folder_of_something_else_is_left_alone(tmp_path, name):
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / name).write_text("mine")
    if name == "thesis.txt":
        for resume in (True, False):
            expect_refused("folder of their own", opened, tmp_path, resume=resume)
        assert (tmp_path / "training" / name).read_text() == "mine"
    else:  # a kill left it before the first snapshot
        opened(tmp_path)


def test_a_full_disk_keeps_the_snapshot_before(tmp_path, monkeypatch):
    training = Training(tmp_path)
    training.train(0.5)

    def full(*_):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    before = training.facts()
    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(DiskError, match="make room and run it again, resuming from the snapshot"):
        training.train(0.6)
    assert restored(tmp_path).facts() == before


def test_a_disk_that_is_full_from_the_start_loses_no_weights(tmp_path, monkeypatch):
    training = Training(tmp_path)
    spare = tmp_path / "spare"
    spare.mkdir()
    monkeypatch.setattr("layerscout.tuning.snapshots.gettempdir", lambda: str(spare))
    full = ["training"]

    def save(tensors, path):
        if any(name in Path(path).parts for name in full):
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        save_file(tensors, path)

    monkeypatch.setattr("safetensors.torch.save_file", save)
    with pytest.raises(
        DiskError, match="with --resume once .*spare.*, which hold the weights, are"
    ):
        training.train(0.5, over=True)
    [saved] = spare.glob("*/run-0")
    (tmp_path / "training" / "run-0").rmdir()
    saved.rename(tmp_path / "training" / "run-0")
    back = restored(tmp_path)
    assert back.run.curve == training.run.curve
    assert all(torch.equal(back.stepper.kept[k], v) for k, v in training.stepper.kept.items())
    saved.parent.rmdir()
    full.append("spare")  # as where it is the same disk
    with pytest.raises(DiskError, match="make room and run it again$"):
        Training(tmp_path / "other").train(0.5)
    assert not any(spare.iterdir())


def test_other_versions_of_libraries_are_a_warning(tmp_path):
    about = ABOUT | {"versions of libraries": {"torch": "2.8"}}
    Training(tmp_path, about=about).train(0.5)
    newer = ABOUT | {"versions of libraries": {"torch": "2.9"}}
    [note] = opened(tmp_path, newer, resume=True).notes
    assert 'versions of libraries {"torch": "2.8"} and goes on with {"torch": "2.9"}' in note
    assert opened(tmp_path, about, resume=True).notes == ()
    expect_refused("holds this training, which was not finished", opened, tmp_path, newer)
