"""Studies on tiny models: each trial once, whatever stops them, with the costs that were told."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from conftest import start, truncate
from inputs import expect_refused
from layerscout.errors import DiskError
from layerscout.models import Encoder
from layerscout.studies import (
    Store,
    Trial,
    TrialContext,
    estimate,
    estimates,
    make_recipe,
    report,
    runners,
    study,
    trial as trials,
)
from layerscout.studies.cells import group_trials
from layerscout.studies.conclusions import load_study
from layerscout.studies.study_page import draw_study
from layerscout.tuning import judging
from studying import QUICK, recipe, records, run

GRIDS = {
    "tuned": {"settings": QUICK | {"plan": "full", "learning_rate": 1e-3}},
    "seen": {
        "verb": "scan",
        "of": "tuned",
        "settings": {"scores": ["variability_ratio", "fisher"]},
    },
    "compared": {"verb": "compare", "of": "tuned", "settings": {"original": True}},
    "judged": {
        "verb": "evaluate",
        "of": "tuned",
        "settings": {
            "edits": ["truncate", "skip"],
            "original": True,
            "head_epochs": 1,
            "head_learning_rate": 1e-3,
        },
    },
}


@pytest.fixture(autouse=True)
def speed(monkeypatch):
    """Spare estimates the timing of a block, which takes seconds for a large model."""
    monkeypatch.setattr(estimates, "measure_speed", lambda shape, tokens: 1e9)


@pytest.fixture
def small(tiny, reviews):
    """Return what makes a recipe that tunes a tiny model on reviews."""
    return partial(recipe, tiny, reviews)


@pytest.fixture(scope="module")
def finished(tiny, reviews, tmp_path_factory):
    """Return the folder of a study of four tunings that ran to its end."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERSCOUT_CACHE", str(folder / "cache"))
        run(recipe(tiny, reviews), folder / "study")
    return folder / "study"


@pytest.fixture
def copy(finished, tmp_path):
    """Return a copy of that folder, to do something to."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_a_study_runs_every_trial_once(small, tmp_path, monkeypatch):
    loaded, load = [], Encoder.load
    monkeypatch.setattr(Encoder, "load", lambda *a, **o: loaded.append(a) or load(*a, **o))
    wanted = small()
    found, ran = run(wanted, tmp_path / "a")
    assert len(loaded) == 1  # for trials in a row
    assert len(ran) == len(set(ran)) == len(records(tmp_path / "a")) == 4
    assert all(record["status"] == "done" for record in records(tmp_path / "a").values())
    resolved = [cell.values["resolved"] for cell in found.cells]
    assert resolved == [*["(4, 4, 4)"] * 2, *["(1, 4, 4)"] * 2]
    again, ran = run(wanted, tmp_path / "a")
    assert ran == [] and again.cells == found.cells
    # Another recipe that has some of the same trials, in another order, runs only the others.
    other = small(axes={"seed": [2, 1], "plan": ["full", "(4, 4, 4)"]})
    _, ran = run(other, tmp_path / "a")
    assert len(ran) == 2
    content = json.loads((tmp_path / "a" / "study.json").read_text())
    assert content["verb"] == "study" and len(content["cells"]) == 4


def test_records_are_those_of_tune(small, tiny, reviews, tmp_path):
    import layerscout as ls

    wanted = small(axes={"plan": ["top:2"], "seed": [3]})
    run(wanted, tmp_path)
    (record,) = records(tmp_path).values()
    context = TrialContext(Store(tmp_path))
    task = context.examples({"data": str(reviews)}, {"examples": 32, "sample_seed": 0})
    options = {"seed": 3, "epochs": 2, "batch_size": 16, "learning_rate": 1e-3}
    result = ls.tune(str(tiny), task, "top:2", progress=False, **options)
    assert record["result"]["curve"] == result.content["runs"][0]["curve"]
    assert record["result"]["parameters"] == result.content["parameters"]
    assert record["result"]["flops"] == result.content["flops"]


def test_a_stopped_study_ends_with_the_same_records(small, tmp_path):
    wanted = small(axes={"plan": ["best-down:1@top", "top:1"], "seed": [0, 1]})
    run(wanted, tmp_path / "whole")
    for stop in (1, 3):
        ended = []

        def told(trial, record, before, ended=ended, stop=stop):
            ended.append(trial)
            if len(ended) == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            study(wanted, tmp_path / "stopped", progress=False, on_trial=told)
    run(wanted, tmp_path / "stopped")
    assert records(tmp_path / "stopped") == records(tmp_path / "whole")
    assert not list((tmp_path / "stopped").rglob(".*"))


def write(wanted, folder):
    """Write a recipe into a file."""
    path = folder / "mine.yaml"
    path.write_text(json.dumps(wanted.model_dump(exclude_defaults=True)))
    return path


@pytest.mark.whole
def test_a_killed_study_goes_on(small, tmp_path, finished):
    wanted, killed = small(), tmp_path / "killed"
    process = start("study", write(wanted, tmp_path), "-o", killed, env=os.environ)
    deadline = time.time() + 120
    while len(list(killed.glob("trials/[!.]*.json"))) < 2 and time.time() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(records(killed)) >= 2
    run(wanted, killed)
    assert records(killed) == records(finished)


def test_a_report_lists_warnings_in_order_and_counts_records_that_were_cut_short(copy):
    warnings = [f"warning {letter}" for letter in "edbac"]
    store = Store(copy)
    for key in records(copy):
        record = store.read(key)
        store.write(record | {"result": record["result"] | {"warnings": [*warnings, warnings[1]]}})
    truncate(store.path(key))
    report(copy)
    page = (copy / "report.html").read_text()
    assert "Records that are cut short or broken: 1;" in page
    places = [page.index(f"{warning} (3 trials)") for warning in warnings]
    assert places == sorted(places)


@pytest.mark.whole
def test_two_processes_share_the_work(small, tmp_path):
    wanted = small(axes={"plan": ["top:1", "top:2", "full"], "seed": [0, 1, 2]})
    path = write(wanted, tmp_path)
    both = [start("study", path, "-o", tmp_path / "two") for _ in range(2)]
    told = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    lines = [line for text in told for line in text.splitlines() if line.startswith("tune")]
    assert len(lines) == 9  # none was run twice
    run(wanted, tmp_path / "one")
    assert records(tmp_path / "two") == records(tmp_path / "one")


def test_a_failed_trial_is_kept_and_the_rest_go_on(small, tmp_path, monkeypatch):
    tune = runners.tune

    def broken(*arguments, **options):
        if options["seed"] == 1:
            raise RuntimeError("it broke <b>here</b>")
        return tune(*arguments, **options)

    monkeypatch.setattr(runners, "tune", broken)
    grids = {"compared": GRIDS["compared"], "seen": GRIDS["seen"]}
    wanted = small(axes={"plan": ["top:1"], "seed": [0, 1]}, grids=grids)
    found, ran = run(wanted, tmp_path)
    failed = [record for record in records(tmp_path).values() if record["status"] == "failed"]
    assert len(failed) == 1 and len(ran) == 4
    assert failed[0]["error"] == "RuntimeError: it broke <b>here</b>"
    assert "in broken" in failed[0]["traceback"]
    # Its model is not read by the other grids.
    read = [cell for cell in found.cells if cell.grid != "tuned"]
    assert [cell.values.get("seed") for cell in read] == [None, "0"]
    _, ran = run(wanted, tmp_path)
    assert ran == []  # not again unless that is asked for
    monkeypatch.setattr(runners, "tune", tune)
    _, ran = run(wanted, tmp_path, retry_failed=True)
    assert len(ran) == 3  # it, its scan, and the comparison of both
    assert {record["status"] for record in records(tmp_path).values()} == {"done"}


def test_a_record_that_is_broken_is_run_again(small, copy):
    before, store = records(copy), Store(copy)
    cut, other, third, whole = before
    truncate(store.path(cut))
    store.path(other).write_text('{"key": "another", "status": "done"}')
    record = store.read(third)
    result = record["result"]
    hollow = ({"curve": 3}, {"flops": {}}, {"flops": {**result["flops"], "full_train": 0}})
    for change in (
        *({"status": [1]}, {"result": None}, {"versions": 3}, {"verb": "dance"}, {"result": {}}),
        *({"result": result | one} for one in hollow),
    ):
        store.path(third).write_text(json.dumps(record | change))
        assert store.is_broken(third), change
    assert store.is_broken(cut) and store.is_broken(other) and not store.is_broken(whole)
    # A record under a name that is not its own belongs to another trial.
    shutil.copy(store.path(whole), store.path("0" * 64))
    assert store.read("0" * 64) is None
    store.path("0" * 64).unlink()
    _, again = run(small(), copy)
    assert sorted(again) == sorted([cut, other, third])
    assert records(copy) == before


def test_a_lock_file_goes_only_once_the_record_stands(copy):
    store = Store(copy)
    key = next(iter(records(copy)))
    record, path = store.read(key), copy / "trials" / f".{key}.lock"
    store.path(key).unlink()
    with store.lock(key) as ours:
        assert ours
        with Store(copy).lock(key) as theirs:
            assert not theirs
    assert path.exists()  # whoever opened it before, and whoever opens it now, have one lock
    with store.lock(key):
        store.write(record)
    assert not path.exists() and store.read(key) == record


def test_what_killed_runs_left_is_removed_in_time(small, tmp_path):
    (tmp_path / "trials").mkdir()
    names = ("left-ab12cd34", "fresh-ab12cd34")
    left, fresh = (tmp_path / "trials" / f".{name}.layerscout-part.json" for name in names)
    beside = tmp_path / ".study-ab12cd34.layerscout-part.json"
    for path in (left, fresh, beside):
        path.write_text("{")
    for path in (left, beside):
        os.utime(path, (0, 0))
    run(small(axes={"plan": ["top:1"]}), tmp_path)
    assert fresh.exists() and not left.exists() and not beside.exists()


def test_a_study_on_its_way_does_not_forget_what_it_knew(small, tmp_path, monkeypatch):
    wanted = small(axes={"plan": ["top:1", "best-down:1@best"]})
    run(wanted, tmp_path)
    before = (tmp_path / "study.json").read_bytes()
    for path in (tmp_path / "trials").glob("*.json"):
        path.unlink()

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "write", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(wanted, tmp_path)
    assert (tmp_path / "study.json").read_bytes() == before


def test_a_full_disk_ends_the_study_in_a_line(small, tmp_path, monkeypatch):
    write = Store.write

    def full(store, record):
        if len(list((tmp_path / "trials").glob("*.json"))) == 2:
            monkeypatch.setattr(trials, "write_files", no_space)
        write(store, record)

    def no_space(contents):
        from layerscout.files import replace_files

        with replace_files(*contents):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "write", full)
    wanted = small()
    with pytest.raises(DiskError, match="No space left on device"):
        run(wanted, tmp_path)
    assert len(records(tmp_path)) == 2
    monkeypatch.undo()
    os.environ.setdefault("LAYERSCOUT_CACHE", str(tmp_path / "cache"))
    _, ran = run(wanted, tmp_path)
    assert len(ran) == 2


def test_a_trial_that_a_full_disk_stops_has_no_record(small, tmp_path, monkeypatch):
    def full(*_):
        raise DiskError("cannot write the model: No space left on device")

    monkeypatch.setitem(runners.RUN, "tune", full)
    with pytest.raises(DiskError, match="No space left on device"):
        run(small(), tmp_path)
    assert records(tmp_path) == {}  # so the same command runs it


def test_a_pilot_tries_the_rates_with_one_seed(small, tmp_path):
    axes = {"plan": ["top:1"], "seed": [0, 1, 2]}
    pilot = {"rates": {"other": [1e-3, 3e-2]}, "pilot": True}
    wanted = small(axes=axes, settings={"learning_rate": None}, tuned=pilot)
    found, ran = run(wanted, tmp_path)
    assert len(ran) == 4  # two rates with seed 0, and the better of them with the others
    values = {
        cell.values["learning_rate"]: found.store.read(cell.trial.key)["result"]["best"]["value"]
        for cell in found.cells
        if cell.values["seed"] == "0"
    }
    best = max(values, key=values.get)
    assert {c.values["learning_rate"] for c in found.cells if c.values["seed"] != "0"} == {best}


def test_plans_follow_from_a_scan_that_runs_once(tiny, telling, tmp_path):
    axes = {"plan": ["best-down:1@best", "best-down:2@top", "best-up"], "seed": [0, 1]}
    wanted = recipe(tiny, telling, axes=axes, settings={"score": "variability_ratio"})
    found, _ = run(wanted, tmp_path)
    scans = [r for r in records(tmp_path).values() if r["verb"] == "scan"]
    assert len(scans) == 1
    best = scans[0]["result"]["best"]["variability_ratio"]
    assert scans[0]["result"]["task"]["examples_used"] == 32
    plans = {cell.values["plan"]: cell for cell in found.cells}
    assert plans["best-down:1@best"].values["resolved"] == f"({best}, {best}, {best})"
    assert plans["best-down:1@best"].values["best"] == best
    if best == 4:
        assert plans["best-up"].trial is None and "head:4" in plans["best-up"].refused
    axes = {"plan": ["best-down:1@best"]}
    whole = recipe(
        tiny, telling, axes=axes, settings={"score": "variability_ratio", "scan_examples": "all"}
    )
    run(whole, tmp_path / "whole")
    (scan,) = [r for r in records(tmp_path / "whole").values() if r["verb"] == "scan"]
    assert scan["result"]["task"]["examples_used"] == 270  # a tenth is held out


def test_what_is_impossible_is_told_before_anything_runs(small, tmp_path):
    axes = {"plan": ["head:9", "head:2"], "method": ["full", "lora"], "edits": [None, "reinit:9"]}
    found = estimate(small(axes=axes), tmp_path)
    refused = {
        (cell.values["plan"], cell.values["method"], cell.values["edits"]): cell.refused
        for cell in found.cells
    }
    assert "must be in 1..4" in refused["head:9", "full", "none"]
    assert refused["head:2", "full", "none"] is None
    assert "head:2 tunes none" in refused["head:2", "lora", "none"]
    assert "reinit:9" in refused["head:2", "full", "reinit:9"]
    assert not (tmp_path / "trials").exists()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"method": "adapter"}, "adapter saves no whole model"),
        ({"classifier": "mean-linear", "checkpoints": [1]}, "need the classifier family"),
        ({"method": "lora", "checkpoints": [1]}, "LoRA keeps no checkpoints of epochs"),
        ({"checkpoints": [1, 3], "epochs": 2}, "[1, 3] go beyond the 2 epochs"),
    ],
)
def test_a_tuning_that_leaves_nothing_to_read_is_refused(small, tmp_path, settings, told):
    grids = {"seen": {"verb": "scan", "of": "tuned", "settings": {"scores": "fisher"}}}
    asked = {"axes": {"plan": ["full"]}, "settings": settings}
    expect_refused(told, run, small(**asked, grids=grids), tmp_path)
    assert not (tmp_path / "trials").exists()
    estimate(small(**asked), tmp_path)  # where nobody reads it


def test_tuned_models_are_read_by_the_other_verbs(small, tiny, tmp_path):
    more = {name: grid for name, grid in GRIDS.items() if name != "tuned"}
    axes = {"plan": ["full"], "seed": [0, 1]}
    figures = [{"title": "Skips", "kind": "skips", "grid": "judged"}]
    wanted = small(axes=axes, grids=more, figures=figures)
    found, _ = run(wanted, tmp_path)
    failed = [r["error"] for r in records(tmp_path).values() if r["status"] == "failed"]
    assert failed == []
    by = {name: [cell for cell in found.cells if cell.grid == name] for name in GRIDS}
    assert [len(by[name]) for name in GRIDS] == [2, 2, 1, 2]
    compared = found.store.read(by["compared"][0].trial.key)["result"]
    assert len(compared["maps"]) == 6  # of two tuned models and the untuned one
    assert by["compared"][0].values["models"] == [
        "model tiny, seed 0",
        "model tiny, seed 1",
        f"model {tiny}, untuned",
    ]
    judged = found.store.read(by["judged"][1].trial.key)["result"]
    read = load_study(found.as_dict(), tmp_path)
    # Phang et al. 2021, Figure 4: a map of first and last skipped blocks for each model.
    maps = [chart.to_dict() for chart in draw_study(read)["Skips"]]
    assert [one["title"] for one in maps] == [
        f"model tiny, task reviews, seed {seed}" for seed in (0, 1)
    ]
    frame = read.frame  # Xie et al. 2022, Table 10
    took = frame[frame.measure == "inference_seconds"]
    assert list(took.grid) == ["judged"] * 2 and (took.value > 0).all()
    tuned = found.store.read(by["tuned"][1].trial.key)["result"]
    assert judged["metrics"]["accuracy"] == pytest.approx(tuned["best"]["value"])
    assert judged["truncation"]["untuned"][4] == pytest.approx(tuned["best"]["value"])
    # A model that was removed is made again, and nothing else is.
    kept = found.store.model(by["tuned"][0].trial.key) / "model" / "config.json"
    kept.unlink()
    _, ran = run(wanted, tmp_path)
    assert ran == [by["tuned"][0].trial.key] and kept.exists()


def test_edits_are_swept_to_fit_the_model(small, tmp_path):
    found, _ = run(small(axes={"edits": ["incremental"], "plan": ["full"]}), tmp_path)
    assert [cell.values["kept"] for cell in found.cells] == [0, 1, 2, 3, 4]
    assert [cell.values["edits"] for cell in found.cells][3:] == ["reinit:4-4", "none"]
    assert [record["status"] for record in records(tmp_path).values()] == ["done"] * 5


def test_every_order_of_blocks_has_examples_of_its_own(small, tmp_path):
    # Tamkin et al. 2020, App. C: "we randomly sample a different dataset for each trial index".
    axes = {"edits": ["permutations:2"], "plan": ["full"]}
    for seeds, expected in (({}, {"0": 0, "1": 1}), ({"seed": 5}, {"0": 5, "1": 5})):
        settings = {"examples": 16, "sample_seed": None, **seeds}
        wanted = small(axes=axes, settings=settings)
        found = {
            cell.values["permutation"]: cell.trial.arguments
            for cell in estimate(wanted, tmp_path).cells
        }
        assert {str(k): one["seed"] for k, one in found.items()} == expected
        assert {str(k): one["sample_seed"] for k, one in found.items()} == expected


def test_full_is_full_however_it_is_written(tiny, reviews, tmp_path):
    """Xie et al. 2022, App. B.2: ten epochs are those of full tuning on MNLI and QQP."""
    task = {"data": str(reviews), "name": "mnli"}
    plans = ["full", "(1, 4, 4)", "top:4", "top:3", "blocks:1-4@4"]
    axes = {"model": [str(tiny)], "task": [task], "plan": plans}
    grid = {"axes": axes, "settings": {"preset": "xie2022", "learning_rate": 1e-5}}
    found = estimate(make_recipe({"title": "a study", "grids": {"tuned": grid}}), tmp_path)
    epochs = {cell.values["plan"]: cell.trial.arguments["epochs"] for cell in found.cells}
    assert epochs == {"full": 10, "(1, 4, 4)": 10, "top:4": 10, "top:3": 20, "blocks:1-4@4": 10}


def test_heads_are_tuned_on_as_many_examples_as_asked(small, tmp_path, monkeypatch):
    asked = []

    def noted(*arguments, **options):
        asked.append(options.get("examples"))
        raise ValueError("enough is known")

    monkeypatch.setattr(runners, "evaluate", noted)
    heads = {"tune_heads": True, "edits": ["truncate"]}
    # The last one has no heads to tune, as Table 10 of Xie et al. 2022, whose trials failed.
    for judged in (heads | {"examples": "all"}, heads | {"examples": 20}, heads, {"examples": 20}):
        grids = {"judged": {"verb": "evaluate", "of": "tuned", "settings": {"edits": [], **judged}}}
        run(small(axes={"plan": ["head:4"]}, grids=grids), tmp_path)
    assert asked == ["all", 20, None, None]


def test_blocks_are_passed_as_often_as_the_costs_say(tiny, telling, tmp_path, monkeypatch):
    """Every trunk once: the forward passes of all strategies are those of the plans alone."""
    from transformers.models.bert.modeling_bert import BertAttention

    passed, forward = [], BertAttention.forward

    def counting(module, states, *rest, **more):
        passed.append(len(states))
        return forward(module, states, *rest, **more)

    monkeypatch.setattr(BertAttention, "forward", counting)
    # Measuring the speed passes some examples through again, which no cost counts.
    monkeypatch.setattr(judging, "measure_speeds", lambda *_: {"kept_model": 1.0})
    plans = ["best-down:1@best", "best-down:1@top", "top:1", "top:2", "full"]
    wanted = recipe(tiny, telling, axes={"plan": plans, "seed": [0, 1]})
    found, _ = run(wanted, tmp_path)
    n, held, epochs, L = 32, 30, 2, 4
    expected = L * n  # the scan
    cuts = set()
    for cell in {cell.trial.key: cell for cell in found.cells}.values():
        plan = cell.trial.arguments["plan"]
        cut = 0 if plan["embeddings"] else min(plan["tuned"]) - 1
        cuts |= {cut}
        expected += epochs * (n + held) * (plan["head"] - cut)
    expected += sum(cut * (n + held) for cut in cuts)
    assert sum(passed) == expected


def test_trials_that_share_a_trunk_stand_beside_each_other():
    def trial(plan, seed, task="t"):
        arguments = {"plan": plan | {"embeddings": False}, "seed": seed}
        return Trial("tune", ("m",), task, arguments, ("m", task))

    low, high = {"tuned": [2], "head": 4}, {"tuned": [4], "head": 4}
    given = [trial(plan, s, t) for s in (0, 1) for t in "ab" for plan in (low, high)]
    found = group_trials(given)
    assert [len(group) for group in found] == [2, 2, 2, 2]
    assert all(len({t.task for t in group}) == 1 for group in found)


def test_a_key_stands_for_all_that_a_result_depends_on():
    trial = Trial("tune", ("m",), "t", {"seed": 0, "plan": "x"}, ("1", "2"))
    same = [
        replace(trial, models=("other name",)),
        replace(trial, task="another name"),
        replace(trial, keep=True),
        replace(trial, arguments={"plan": "x", "seed": 0}),
    ]
    others = [
        replace(trial, verb="scan"),
        replace(trial, contents=("1", "3")),
        replace(trial, contents=("2", "1")),
        replace(trial, arguments={"seed": 1, "plan": "x"}),
        replace(trial, arguments={"seed": 0}),
    ]
    assert {one.key for one in same} == {trial.key}
    assert len({one.key for one in (trial, *others)}) == 6


def test_contents_go_by_what_is_in_the_files(tiny, reviews, tmp_path):
    shutil.copytree(tiny, tmp_path / "copy")
    context = TrialContext(Store(tmp_path))
    assert context.content(str(tiny)) == context.content(str(tmp_path / "copy"))
    config = tmp_path / "copy" / "config.json"
    config.write_text(config.read_text().replace("0.1", "0.2", 1))
    assert TrialContext(Store(tmp_path)).content(str(tmp_path / "copy")) != context.content(
        str(tiny)
    )
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    one.write_text(reviews.read_text())
    two.write_text(reviews.read_text().replace("good", "fine"))
    whole = context.task_content({"data": str(reviews)})
    assert context.task_content({"data": str(one), "name": "other"}) == whole
    assert context.task_content({"data": str(two)}) != whole


def test_an_estimate_counts_what_the_trials_will(small, tmp_path, copy):
    wanted = small()
    before = estimate(wanted, tmp_path)
    assert len(before.trials) == 4 and not before.done
    found, ran = run(wanted, copy)
    assert ran == []
    after = estimate(wanted, copy)
    assert after.done == before.trials.keys() and after.flops([]) == 0
    for cell in found.cells:
        one = before.trials[cell.trial.key]
        counted = found.store.read(cell.trial.key)["result"]["flops"]["train"]
        assert one.flops + one.trunk == pytest.approx(counted, rel=0.05)  # some texts' mean length
    prices = list(before.trials.values())
    alone = sum(one.flops + one.trunk for one in prices)
    shared = sum({one.shared: one.trunk for one in prices}.values())
    whole = before.flops(before.trials)
    assert whole == pytest.approx(sum(one.flops for one in prices) + shared) and whole < alone


def test_data_comes_from_a_folder_or_is_refused(small, tmp_path, tiny, reviews):
    folder = tmp_path / "data" / "sst2"
    folder.mkdir(parents=True)
    lines = reviews.read_text().splitlines()[1:]
    rows = [
        f"{text},{int(label == 'good')}" for text, label in (line.rsplit(",", 1) for line in lines)
    ]
    (folder / "train.csv").write_text("sentence,label\n" + "\n".join(rows) + "\n")
    context = TrialContext(Store(tmp_path), tmp_path / "data")
    assert context.task("sst2").labels == ("negative", "positive")
    expect_refused("`data` must be a folder", run, small(), tmp_path, data="nowhere")
    wanted = recipe(tiny, tmp_path / "none.csv", axes={"plan": ["full"]})
    expect_refused("can be run: no such file", estimate, wanted, tmp_path)


def test_epochs_of_a_training_are_scanned(small, tmp_path):
    scans = {"verb": "scan", "of": "tuned", "settings": {"scores": "fisher", "checkpoints": [1, 2]}}
    kept, axes = {"checkpoints": [1, 2], "keep": "last"}, {"plan": ["full"]}
    wanted = small(axes=axes, settings=kept, grids={"ranked": scans})
    found, _ = run(wanted, tmp_path)
    tuned, ranked = found.cells
    moved = found.store.read(ranked.trial.key)["result"]["stability"]
    assert len(moved["checkpoints"]) == 3 and moved["scores"]["fisher"]["deviation"][0] == 0.0
    folder = found.store.model(tuned.trial.key)
    last = (folder / "epochs" / "2" / "model.safetensors").read_bytes()
    assert last == (folder / "model" / "model.safetensors").read_bytes()
    assert last != (folder / "epochs" / "1" / "model.safetensors").read_bytes()


def test_what_means_the_same_has_one_key(small, tmp_path):
    def keys(plan="full", **settings):
        wanted = small(axes={"plan": [plan]}, settings=settings)
        return [cell.trial.key for cell in estimate(wanted, tmp_path).cells]

    same = [
        {"method": "full", "max_length": 128, "keep_layer_norm": False, "metric": "accuracy"},
        {"reinit_rate_factor": 1.0, "edits": "", "warmup": 0.06, "keep": "best", "seed": 0},
        {"classifier": "family", "trunk_dropout": False, "predictions": False},
        {"schedule": "linear"},
        {"batching": "length", "accumulation": 1},
        {"trunk_dropout": True},  # of blocks that are frozen, and none are
    ]
    assert {tuple(keys(**one)) for one in same} == {tuple(keys())}
    assert keys("top:1", trunk_dropout=True) != keys("top:1")
    assert keys(edits="reinit: 3-4") == keys(edits="reinit:3-4")
    written = {"weight_decay": 0.01, "warmup": 0.0, "keep": "last"}
    assert keys(preset="lodha2023") == keys(**written, batching="shuffled")
    assert keys(preset="lodha2023", batching="length") == keys(**written)
    others = [{"max_length": 64}, {"keep": "last"}, {"metric": "f1"}, {"seed": 1}]
    others.append({"edits": "skip:2"})
    assert len({tuple(keys(**one)) for one in ({}, *others)}) == 6


def test_a_trial_that_another_grid_has_is_kept_for_those_who_read_it(small, tmp_path):
    judged = {"verb": "evaluate", "of": "again", "settings": {"edits": ["truncate"]}}
    wanted = small(axes={"plan": ["full"]})
    content = wanted.model_dump(exclude_defaults=True)
    content["grids"] |= {"again": content["grids"]["tuned"], "judged": judged}
    found, _ = run(make_recipe(content), tmp_path)
    states = {found.store.read(c.trial.key)["status"] for c in found.cells}
    assert states == {"done"} and len(found.cells) == 3


def test_models_of_other_plans_are_compared_apart(small, tmp_path):
    axes = {"plan": ["full", "top:1"], "seed": [0, 1]}
    grids = {"compared": {"verb": "compare", "of": "tuned"}}
    wanted = small(axes=axes, grids=grids)
    found = estimate(wanted, tmp_path)
    compared = [cell for cell in found.cells if cell.grid == "compared"]
    assert [cell.values["plan"] for cell in compared] == ["full", "top:1"]
    assert [len(cell.trial.models) for cell in compared] == [2, 2]
