"""Snapshots: what was written comes back, and a kill at any moment leaves a whole one."""

import json

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from inputs import expect_refused
from layerscout.runtime import DiskError
from layerscout.tuning import snapshots
from layerscout.tuning.snapshot_files import hash_state
from layerscout.tuning.snapshots import Snapshots

ABOUT = {"plan": "(5, 6, 6)", "learning rates": [1e-3], "data": "abc"}


def numbers(seed):
    return {"head.weight": torch.randn(2, 3, generator=torch.Generator().manual_seed(seed))}


def opened(folder, about=ABOUT, resume=False, overwrite=False):
    return Snapshots.open(folder / "training", about, resume=resume, overwrite=overwrite)


def same(left, right):
    assert left.keys() == right.keys()
    return all(torch.equal(left[name], right[name]) for name in left)


def test_what_was_written_comes_back(tmp_path):
    kept = opened(tmp_path)
    assert kept.of("run-0").load() is None
    state = {"done": 7, "random": {"bits": 2**100}, "curve": [0.25]}
    kept.of("run-0").save(1, 1, state, numbers(0), numbers(1))
    found = opened(tmp_path, resume=True).of("run-0").load()
    assert found.state == state
    assert same(found.parameters, numbers(0)) and same(found.optimizer, numbers(1))
    assert same(found.kept, numbers(0))


def test_the_best_epoch_is_kept_while_others_pass(tmp_path):
    kept = opened(tmp_path)
    for epoch, best in ((1, 1), (2, 2), (3, 2), (4, 2)):
        kept.of("run-0").save(epoch, best, {"epoch": epoch}, numbers(epoch), numbers(10))
    found = kept.of("run-0").load()
    assert found.state == {"epoch": 4}
    assert same(found.parameters, numbers(4)) and same(found.kept, numbers(2))
    # Those of the epoch before are what the next ones are written over.
    names = ("optimizer-3", "optimizer-4", "parameters-2", "parameters-3", "parameters-4")
    assert files_in(tmp_path) == [*(f"{name}.safetensors" for name in names), "state.json"]


def test_a_file_that_no_snapshot_needs_is_written_over(tmp_path):
    run, inodes = opened(tmp_path).of("run-0"), []
    for epoch in range(1, 7):
        run.save(epoch, epoch, {"epoch": epoch}, numbers(epoch), numbers(10 * epoch))
        found = run.load()
        assert same(found.parameters, numbers(epoch)) and same(found.kept, numbers(epoch))
        assert same(found.optimizer, numbers(10 * epoch))
        inodes.append((run.folder / f"optimizer-{epoch}.safetensors").stat().st_ino)
    assert len(set(inodes)) == 2 and inodes[0] == inodes[2] == inodes[4]


@pytest.mark.parametrize("spoilt", ["cut", "broken", "other"])
def test_a_file_of_something_else_is_not_written_over(tmp_path, spoilt):
    run = opened(tmp_path).of("run-0")
    for epoch in (1, 2):
        run.save(epoch, epoch, {"epoch": epoch}, numbers(epoch), numbers(10 * epoch))
    spare = run.folder / "optimizer-1.safetensors"
    match spoilt:
        case "cut":
            spare.write_bytes(b"")
        case "broken":
            spare.write_bytes(b"\xff" * 64)
        case "other":
            save_file({"a": torch.zeros(3)}, spare)
    run.save(3, 3, {"epoch": 3}, numbers(3), numbers(30))
    found = run.load()
    assert same(found.parameters, numbers(3)) and same(found.optimizer, numbers(30))


def files_in(folder):
    return sorted(path.name for path in (folder / "training" / "run-0").iterdir())


def test_of_a_run_that_is_over_only_what_counts_stays(tmp_path):
    kept = opened(tmp_path)
    kept.of("run-0").save(1, 1, {}, numbers(1), numbers(10))
    kept.of("run-0").save(2, 1, {"over": True}, {}, {})
    found = kept.of("run-0").load()
    assert not found.parameters and not found.optimizer and same(found.kept, numbers(1))
    assert files_in(tmp_path) == ["parameters-1.safetensors", "state.json"]
    kept.of("run-1").save(1, None, {"over": True}, {}, {})
    assert not kept.of("run-1").load().kept


def test_a_kill_before_the_end_leaves_the_snapshot_before(tmp_path, monkeypatch):
    kept = opened(tmp_path)
    kept.of("run-0").save(1, 1, {"epoch": 1}, numbers(1), numbers(10))

    def killed(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(snapshots, "write_files", killed)
    with pytest.raises(KeyboardInterrupt):
        kept.of("run-0").save(2, 2, {"epoch": 2}, numbers(2), numbers(20))
    found = kept.of("run-0").load()
    assert found.state == {"epoch": 1} and same(found.parameters, numbers(1))
    assert same(found.optimizer, numbers(10))


def test_an_unfinished_training_is_not_overwritten(tmp_path):
    kept = opened(tmp_path)
    opened(tmp_path, ABOUT | {"plan": "other"})  # nothing was finished that could be lost
    opened(tmp_path)
    kept.of("run-0").save(1, 1, {}, numbers(1), numbers(10))
    line = "holds this training, which was not finished; continue it with --resume, or start again"
    expect_refused(line, opened, tmp_path)
    opened(tmp_path, resume=True).discard()
    assert not (tmp_path / "training").exists()
    opened(tmp_path)


def test_another_training_is_not_resumed(tmp_path):
    opened(tmp_path).of("run-0").save(1, 1, {}, numbers(1), numbers(10))
    about = ABOUT | {"plan": "(1, 6, 6)"}
    refused = "only the same … plan (5, 6, 6), got (1, 6, 6); give the same, or drop it with --ov"
    for overwrite in (False, True):
        expect_refused(refused, opened, tmp_path, about, True, overwrite)
    refused = "another training … plan (5, 6, 6), got (1, 6, 6); drop it with --overwrite, or name"
    assert "--resume" not in expect_refused(refused, opened, tmp_path, about)


@pytest.mark.parametrize("broken", [False, True])
def test_an_unfinished_training_is_dropped_when_asked(tmp_path, broken):
    opened(tmp_path).of("run-0").save(1, 1, {}, numbers(1), numbers(10))
    if broken:
        (tmp_path / "training" / "training.json").write_text("{")
    assert opened(tmp_path, ABOUT | {"plan": "other"}, overwrite=True).of("run-0").load() is None
    [left] = (tmp_path / "training").iterdir()
    assert json.loads(left.read_text())["plan"] == "other"


def test_broken_snapshots_are_refused(tmp_path):
    kept = opened(tmp_path)
    kept.of("run-0").save(1, 1, {"curve": [0.75]}, numbers(1), numbers(10))
    folder = tmp_path / "training" / "run-0"
    state = (folder / "state.json").read_text()
    files = '"files": {"parameters": null, "optimizer": null, "kept": "../kept"}'
    numberless = '"loss": NaN, "files": {"parameters": null, "optimizer": null, "kept": null}'
    for inside in ('"files": 3', '"files": {}', files):
        told = json.loads('{"checksums": {"../kept": 0}' + f", {inside}}}")
        told["sha256"] = hash_state(told)
        (folder / "state.json").write_text(json.dumps(told))
        expect_refused("state.json", kept.of("run-0").load)
    altered = state.replace("0.75", "0.35")
    for broken in ("", "[]", "{}", f"{{{numberless}}}", altered, state.replace("sha256", "sha")):
        (folder / "state.json").write_text(broken)
        expect_refused("state.json", kept.of("run-0").load)
    (folder / "state.json").write_text(state)
    path = folder / json.loads(state)["files"]["optimizer"]
    path.write_bytes(path.read_bytes()[:-8])
    expect_refused("optimizer-1", kept.of("run-0").load)
    (tmp_path / "training" / "training.json").write_text("{")
    expect_refused("training.json", opened, tmp_path, resume=True)


@pytest.mark.parametrize("part", ["parameters", "optimizer"])
def test_a_flipped_bit_in_a_snapshot_is_seen(tmp_path, part):
    kept = opened(tmp_path).of("run-0")
    kept.save(1, 1, {}, numbers(1), numbers(10))
    kept.save(2, 1, {}, numbers(2), numbers(20))
    assert same(kept.load().kept, numbers(1))
    [path] = (tmp_path / "training" / "run-0").glob(f"{part}-2.*")
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)
    expect_refused(f"{part}-2", kept.load)


def test_what_a_kill_leaves_before_the_first_snapshot_is_nobody_s(tmp_path):
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / ".training-ab12cd34.layerscout-part.json").touch()
    opened(tmp_path)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "thesis.txt").write_text("mine")
    for resume in (True, False):
        expect_refused("folder of their own", opened, tmp_path, resume=resume)
    assert (tmp_path / "training" / "thesis.txt").read_text() == "mine"


def test_a_full_disk_keeps_the_snapshot_before(tmp_path, monkeypatch):
    kept = opened(tmp_path).of("run-0")
    kept.save(1, 1, {"epoch": 1}, numbers(1), numbers(10))

    def full(*_):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(DiskError, match="make room and run it again, resuming from the snapshot"):
        kept.save(2, 2, {"epoch": 2}, numbers(2), numbers(20))
    assert kept.load().state == {"epoch": 1}


def test_other_surroundings_are_noted(tmp_path):
    def surrounded(threads):
        folder, around = tmp_path / "training", {"threads": threads}
        return Snapshots.open(folder, ABOUT, resume=True, surroundings=around)

    (none,) = surrounded(1).notes
    assert "nothing to resume" in none
    surrounded(1).of("run-0").save(1, 1, {}, numbers(1), numbers(10))
    assert surrounded(1).notes == ()
    (note,) = surrounded(2).notes
    assert "threads 2 after 1" in note
