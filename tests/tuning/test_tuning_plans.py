"""Tuning by every kind of plan: of a scan, from disk, of shared weights; and bad ones."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from inputs import expect_refused
from layerscout import scanning
from layerscout.data import Task
from layerscout.errors import InputError
from layerscout.models import Encoder
from layerscout.plans import Plan
from layerscout.scores import DEFAULT
from tuned import cheaply, copied, differing, lists, load, task_of


@pytest.fixture(scope="module")
def scan(bert):
    return scanning.scan(bert, task_of(), progress=False)


@pytest.fixture
def scans(monkeypatch):
    """Collect the scans that are made."""
    made = []

    def scan(*arguments, **options):
        made.append(original(*arguments, **options))
        return made[-1]

    original = scanning.scan
    monkeypatch.setattr(scanning, "scan", scan)
    return made


@pytest.mark.parametrize("plan", ["best-down:2@best", "auto", "best-up:1@top"])
def test_plans_of_a_scan(bert, scan, scans, plan):
    fixed = with_best(scan, 2)
    assert fixed.best() == 2
    more = {"budget": 0.9, "score": DEFAULT} if plan == "auto" else {}
    result = cheaply(bert, task_of(), plan, scan=fixed, **more)
    assert scans == []
    expected = {"best-down:2@best": (1, 2), "best-up:1@top": (3,), "auto": (1, 2, 3)}
    assert result.plan.tuned == expected[plan]


def with_best(scan, state):
    """Return a scan whose every score has its best value at a state."""
    return replace(scan, scores={k: replace_best(s, state) for k, s in scan.scores.items()})


def replace_best(score, state):
    sign = -1.0 if score.better == "lower" else 1.0
    values = tuple(sign * (at == state) for at in range(5))
    return replace(score, values=values, low=(), high=(), details={})


def test_without_a_scan_the_training_rows_that_are_left_are_scanned(bert, scans):
    texts, labels = lists(40)
    options = {"seed": 2, "score": "variability_ratio"}
    result = cheaply(bert, Task.from_lists(texts, labels), "best-down:1@best", **options)
    assert len(scans) == 1
    assert scans[0].task["examples_used"] == scans[0].task["examples_available"] == 36
    assert result.plan.on(4) == scans[0].plan("best-down:1@best", score="variability_ratio").on(4)
    assert scans[0].settings["validation"] == 0.1
    options |= {"examples": 10, "against": "best-down:1@top"}
    cheaply(bert, Task.from_lists(texts, labels), "top:1", **options)
    assert scans[1].task["examples_used"] == 10


@pytest.mark.parametrize(
    "plan", [Plan([3, 2], 4), "(2, 3, 4)", "2,3,4", "blocks:2-3@4", "middle-down:2@top"]
)
def test_plans_that_need_no_scan(bert, scans, plan):
    result = cheaply(bert, task_of(), plan, epochs=1)
    assert result.content["plan"]["notation"] == "(2, 3, 4)" and scans == []


@pytest.mark.parametrize("name", ["plan.json", "best.json", "auto-plan.json"])
def test_plans_from_disk(bert, scan, scans, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    scan.planning("middle-down:2@top").save(".")
    Path("plan.json").rename(name)
    path = {"plan.json": name, "best.json": Path(name), "auto-plan.json": tmp_path / name}[name]
    result = cheaply(bert, task_of(), path, epochs=1)
    assert result.content["plan"]["notation"] == "(2, 3, 4)" and scans == []


def test_the_plan_of_a_result_from_disk(bert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cheaply(bert, task_of(), "top:1", epochs=1).save("out")
    assert cheaply(bert, task_of(), "out/result.json", epochs=1).plan.tuned == (4,)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"plan": 3}',
        '{"plan": {"tuned": [1]}}',
        '{"plan": {"tuned": [1], "head": "4"}}',
        '{"plan": {"tuned": null, "head": 2}}',
        '{"plan": {"tuned": [3], "head": 2}}',
        '{"plan": {"tuned": [3], "head": 5}}',
        '{"plan": {"tuned": [0], "head": 4}}',
        '{"plan": {"tuned": [true], "head": 4}}',
        '{"plan": {"tuned": [1], "head": 2}, "task": [1]}',
        '{"plan": {"tuned": [1], "head": 2}, "model": "bert"}',
        '{"plan": {"tuned": [1], "head": 2}, "reason": 3}',
        '{"plan": {"tuned": [1], "head": 2}, "strategy": ["top:1"]}',
        "[" * 100_000 + "]" * 100_000,
    ],
    ids=lambda content: content[:50],
)
def test_broken_plans_from_disk(bert, tmp_path, content):
    path = tmp_path / "plan.json"
    path.write_text(content)
    line = expect_refused("", cheaply, bert, task_of(), path)
    assert "is not a plan; write one" in line or "tuned" in line or "`head` must be" in line


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (
            {"embeddings": True, "notation": "(1, 1, 2)"},
            "must match the blocks and the head, … emb+(1, 1, 2), got",
        ),
        ({"embeddings": "no"}, "`embeddings` must be true or false, got 'no'"),
        (
            {"notation": "(3, 4, 4)"},
            "must match … (1, 1, 2), got '(3, 4, 4)'",
        ),
        ({"notation": 3}, "must match … got 3"),
        ({"tuned": [*range(1, 10**5)], "head": 10**5}, "1..4 … got 100000"),
        ({"tuned": [*range(2, 10**5, 2)], "head": 10**5}, "1..4"),
        ({"tuned": [*range(1, 10**5)]}, "got 3-99999; put the head at 99999 or above"),
        ({"tuned": [*range(1, 10**5, 2)]}, "1..2"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_plans_that_contradict_themselves(bert, tmp_path, written, words):
    (tmp_path / "plan.json").write_text(json.dumps({"tuned": [1], "head": 2, **written}))
    expect_refused(words, cheaply, bert, task_of(), tmp_path / "plan.json")


def test_folders_of_plans_and_of_scans(bert, scan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fixed = with_best(scan, 2)
    fixed.save("top")
    expect_refused("cannot read the plan top: Is a dir", cheaply, bert, task_of(), Path("top"))
    for where in ("top", Path("top", "scan.json")):
        result = cheaply(bert, task_of(), "best-down:1@top", scan=where, epochs=1)
        assert result.plan.tuned == (2,)
    expect_refused("no scan.json", cheaply, bert, task_of(), "auto", scan="elsewhere")
    expect_refused("block score", cheaply, bert, task_of(), "rank:2", scan=fixed)
    expect_refused("follow from a scan", cheaply, bert, task_of(), "top:1", scan=fixed, score="nc1")
    monkeypatch.setattr(Encoder, "tokenize", None)
    for plan in ("auto", "best-down:1@top"):
        words = "unknown score of this scan 'ridge'"
        expect_refused(words, cheaply, bert, task_of(), plan, scan=fixed, score="ridge")


def test_a_scan_for_a_rank_finds_the_best_state_too(bert, monkeypatch):
    asked = []

    def refuse(*_, scores, **__):
        asked.append(scores)
        raise InputError("no")

    monkeypatch.setattr(scanning, "scan", refuse)
    for score, plan in (("fisher", "rank:1"), ("nc1", "best-up")):
        expect_refused("no", cheaply, bert, task_of(), plan, score=score)
    assert asked == [("fisher", DEFAULT), ("nc1",)]


def test_shared_weights(albert, tmp_path):
    for plan in ("(4, 4, 4)", Plan((2, 3), 3), "best-down:1@top"):
        expect_refused("--untie", cheaply, albert, task_of(), plan)
    expect_refused("share no weights", cheaply, load(tmp_path), task_of(), "top:1", untie=True)
    before = copied(albert.model)
    result = cheaply(albert, task_of(), "(3, 3, 3)", untie=True)
    assert differing(copied(albert.model), before) == set()
    whole = cheaply(albert, task_of(), "full", epochs=1).content["parameters"]["total"]
    block = albert.shape(2).parameters.blocks[0]
    assert result.content["parameters"]["total"] == whole + 2 * block
    result.save(tmp_path / "out")
    again = Encoder.load(tmp_path / "out" / "model")
    assert again.blocks == 3 and again.model.config.num_hidden_groups == 3


@pytest.mark.parametrize("plan", ["auto", "best-down:1@top"])
def test_a_scan_made_with_shared_weights_serves_the_untied_model(albert, plan):
    scan = scanning.scan(albert, task_of(), progress=False)
    fixed = with_best(scan, 3)
    more = {"budget": 0.6, "score": DEFAULT} if plan == "auto" else {}
    result = cheaply(albert, task_of(), plan, scan=fixed, untie=True, epochs=1, **more)
    assert result.plan.head == (3 if plan == "auto" else 4) and 3 in result.plan.tuned


# --- Of another model, or another task ------------------------------------------------------------


def test_a_plan_file_tells_why(bert, scan, tmp_path):
    scan.planning("auto", budget=0.9).save(tmp_path)
    result = cheaply(bert, task_of(), tmp_path / "plan.json")
    written = json.loads((tmp_path / "plan.json").read_text())
    told = result.content["plan"]
    assert (told["strategy"], told["reason"]) == (written["strategy"], written["reason"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"blocks": 2}, "blocks=2 … blocks=4"),
        ({"hidden_size": 32}, "hidden_size=32 … hidden_size=16"),
        ({"family": "roberta"}, "family … roberta … bert"),
    ],
)
def test_plans_and_scans_of_another_model_are_refused(bert, scan, tmp_path, changes, words):
    other = replace(scan, model={**scan.model, **changes})
    expect_refused(words, cheaply, bert, task_of(), "best-down:1@best", scan=other)
    plan = {"plan": {"tuned": [1], "head": 2}, "model": other.model}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    expect_refused(words, cheaply, bert, task_of(), tmp_path / "plan.json")


CHANGED = "which were changed since"


def test_weights_texts_and_labels_that_were_changed_in_place_are_a_warning(
    bert, tiny, write, tmp_path
):
    folder, rows = tmp_path / "model", "text,label\n" + "a cat,x\na bird,y\n" * 8
    shutil.copytree(tiny, folder)
    path = write("data.csv", rows)
    scan = scanning.scan(folder, path, scores=DEFAULT, progress=False)
    scan.save(tmp_path / "scan")
    scan.planning("top:1").save(tmp_path)
    plans = [("top:1", scan), ("top:1", tmp_path / "scan"), (tmp_path / "plan.json", None)]

    def told(**options):
        results = [cheaply(folder, Task.load(path), plan, scan=of, **options) for plan, of in plans]
        return [" ".join(w for w in result.warnings if CHANGED in w) for result in results]

    assert told() == ["", "", ""]
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith("layer.3.output.dense.weight"))
    save_file(weights | {name: weights[name] + 1}, folder / "model.safetensors", {"format": "pt"})
    lines = told()
    assert all(f"is for other weights of {folder}, {CHANGED}; scan it again" in x for x in lines)
    assert not any("other texts" in line for line in lines)
    plans = plans[:1]
    assert told(edits="reinit:4") == [""]  # whose weights are others anyway
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    write("data.csv", rows.replace("bird", "dog"))
    words = f"the scan is for other texts of data, {CHANGED}; scan them again"
    assert told() == [words]
    write("data.csv", rows.replace(",x", ",z").replace(",y", ",x"))
    assert told() == [words.replace("texts", "labels")]


def test_another_checkpoint_and_another_task_are_a_warning(bert, scan):
    model = {**scan.model, "source": "elsewhere", "name": "cousin"}
    other = replace(with_best(scan, 2), model=model, task={**scan.task, "name": "other"})
    result = cheaply(bert, task_of(), "best-down:1@best", scan=other)
    said = " ".join(result.warnings)
    assert "the scan is for cousin" in said and "the scan is for the task other" in said


def test_embeddings_train_in_full_and_where_they_are_named(bert, tmp_path):
    plan = Plan((1, 2, 3, 4), 4, embeddings=False)
    expect_refused("full fine-tuning … embeddings … leave", cheaply, bert, task_of(), plan)
    plan = Plan((1, 2, 3), 3, embeddings=True)
    expect_refused("write truncate:3 + full", cheaply, bert, task_of(), plan)
    expect_refused("adapter never", cheaply, bert, task_of(), "emb+top:1", method="adapter")
    result = cheaply(bert, task_of(), "emb+(4, 4, 4)")
    weights, before = result.model.state_dict(), bert.model.state_dict()
    for name, same in (
        ("embeddings.word_embeddings.weight", False),
        ("encoder.layer.1.output.dense.weight", True),
        ("encoder.layer.3.output.dense.weight", False),
    ):
        assert torch.equal(weights[f"bert.{name}"], before[name]) == same, name
    counts = bert.shape(2).parameters
    expected = counts.embeddings + counts.blocks[3] + counts.head
    assert result.content["parameters"]["trainable"] == expected
    assert result.content["plan"]["notation"] == "emb+(4, 4, 4)"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"plan": result.content["plan"]}))
    assert cheaply(bert, task_of(), path).content["plan"]["embeddings"]


def test_plans_of_embeddings_may_follow_from_a_scan(bert):
    found = cheaply(bert, task_of(), "emb+rank:1", score="weight_snr")
    assert found.content["plan"]["notation"].startswith("emb+(")
    assert "reinit:4" in str(cheaply(bert, task_of(), "reinit:4 + emb+top:1").content["model"])


def test_auto_scans_only_for_a_score_and_pays_for_no_scan(bert, scan, scans, monkeypatch):
    """It has the whole budget, whether a scan was brought along, made for it, or not made."""
    monkeypatch.setattr("layerscout.plans.training.STAGE_ROWS", 10)
    plain, brought, made = (
        cheaply(bert, task_of(), "auto", epochs=3, budget=0.9, **options).content
        for options in ({}, {"scan": scan}, {"score": DEFAULT})
    )
    assert len(scans) == 1 and made["seconds"]["scan"] > 0
    assert "scan" not in plain["seconds"] and "scan" not in brought["seconds"]
    assert plain["plan"]["reason"].startswith("there is no scan: state 3 is at two thirds")
    assert made["plan"] == brought["plan"] and "(budget 90.0 %)" in made["plan"]["reason"]
    # A scan that another plan rests on is used, since it is there.
    cheaply(bert, task_of(), "best-down:1@top", against="auto", head_end="trained", epochs=1)
    assert len(scans) == 2


def test_auto_counts_the_trunk_where_it_is_not_kept(bert, scan):
    fixed = with_best(scan, 3)
    shares = {option.strategy: option.relative for option in fixed.planning(epochs=5).options}
    options = {"scan": fixed, "epochs": 5, "budget": shares["best-down:1@best"] + 0.01}
    strategies = [
        cheaply(bert, task_of(), "auto", **options, **more).content["plan"]["strategy"]
        for more in ({}, {"trunk_dropout": True})
    ]
    assert strategies == ["(3, 3, 3)", "head:2"]


def test_what_accelerate_was_told_elsewhere_changes_nothing(bert, monkeypatch):
    plain = cheaply(bert, task_of(), "top:1").content["runs"][0]["curve"]
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    assert cheaply(bert, task_of(), "top:1").content["runs"][0]["curve"] == plain
