"""The free head beside a training: what is compared, what `auto` keeps, and what is said of it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_solved_heads import predict, solve_again, task_by_words

from inputs import expect_refused
from layerscout.data import Task, evaluate, find_difference
from layerscout.errors import InputError, LayerscoutError
from layerscout.reporting import describe_free, suggest_step, tabulate_by_name
from layerscout.tuning import tune
from layerscout.tuning.free import is_better, is_trusted
from tiny import tiny_checkpoint
from tuned import load, task_of

# A rate at which nothing is learnt.
IDLE = {"progress": False, "epochs": 1, "learning_rate": 1e-9}


@pytest.mark.parametrize(
    ("difference", "interval", "losses", "better"),
    [
        (0.1, (0.02, 0.18), (0.5, 0.6), True),
        (0.1, (-0.02, 0.22), (0.5, 0.6), False),
        (0.1, (-0.02, 0.22), (0.5, 0.4), True),
        (0.0, None, (0.5, 0.4), True),
        (0.0, (-0.1, 0.1), (0.5, 0.5), False),
        (-0.1, (-0.2, 0.1), (0.5, 0.4), False),
    ],
)
def test_what_is_better_than_the_free_head(difference, interval, losses, better):
    assert is_better(difference, interval, losses) is better


@pytest.mark.parametrize(
    ("loss", "folds", "interval", "trusted"),
    [
        ("contrastive", 2, (-0.2, 0.1), True),
        ("contrastive", 2, (-0.2, -0.01), False),
        ("contrastive", 2, None, False),
        ("contrastive", 1, (-0.2, 0.1), False),
        (None, 2, (-0.2, 0.1), False),
    ],
)
def test_few_rows_that_were_contrasted_have_to_be_clearly_behind(loss, folds, interval, trusted):
    assert is_trusted(loss, folds, interval) is trusted


@pytest.mark.parametrize(
    ("options", "behind", "kept"),
    [({}, False, False), ({}, True, True), ({"max_steps": 2}, False, True)],
)
def test_auto_keeps_a_usual_training_of_few_rows_unless_it_is_clearly_behind(
    bert, monkeypatch, options, behind, kept
):
    monkeypatch.setattr("layerscout.tuning.free.is_better", lambda *_: False)
    monkeypatch.setattr("layerscout.tuning.free.is_trusted", lambda *_: not behind)
    task = task_of(30)
    content = tune(bert, task, "auto", progress=False, **options).content
    assert content["free"]["kept"] is kept and content["settings"]["loss"] == "contrastive"
    said = "the free head is kept, solved" if kept else "it is kept, since trainings of few"
    assert said in describe_free(content)
    if not kept:  # pairs gained nothing
        rows = [replace(split, pairs=split.texts) for split in (task.train, task.validation)]
        task = replace(task, train=rows[0], validation=rows[1])
        assert tune(bert, task, "auto", progress=False).content["free"]["kept"]


@pytest.mark.parametrize("kind", ["numbers", "several"])
def test_both_are_judged_on_rows_that_neither_saw(bert, kind):
    task = task_by_words(kind)
    result = tune(bert, task, "top:1", **IDLE)
    free, metric = result.content["free"], result.content["metric"]
    y, alone = task.validation.labels, solve_again(bert, task, task.train)[2]
    head = alone.head(solve_again(bert, task, task.validation)[0][alone.state + 1])
    assert (free["state"], free["shrinkage"]) == (alone.state + 1, alone.shrinkage)
    assert free["value"] == pytest.approx(evaluate(metric, y, head), abs=0.02)
    column = "prediction" if kind == "numbers" else "logits"
    trained = np.stack(list(result.predictions[column])).reshape(len(y), -1)
    assert free["trained"] == pytest.approx(evaluate(metric, y, trained))
    difference, interval = find_difference(metric, y, (head, trained))
    assert free["difference"] == pytest.approx(difference, abs=0.02)
    assert free["interval"] == pytest.approx(interval, abs=0.05)
    more = result.content["more"]["texts"]
    assert (more["state"], more["examples"]) == (free["state"], 120)
    # Whatever was asked for by name is kept.
    assert not free["kept"] and free["training"] is None and result.content["solved"] is None
    assert ("no better" in describe_free(result.content)) is not free["better"]


def test_a_fault_beside_a_training_is_not_taken_for_states_that_are_alike(bert, monkeypatch):
    def fail(*_):
        raise InputError("the cache cannot be read")

    monkeypatch.setattr("layerscout.tuning.free.pool", fail)
    expect_refused("the cache cannot be read", tune, bert, task_by_words(), "top:1", **IDLE)


def test_auto_keeps_the_free_head_where_no_training_is_better(bert, tmp_path):
    task = task_by_words("numbers")
    options = {**IDLE, "snapshots": tmp_path / "snapshots", "head_end": "trained"}
    result = tune(bert, task, "auto", **options)
    # Stopped before it was saved, it comes to the same.
    result.snapshots.lock.close()
    result = tune(bert, task, "auto", **options, resume=True)
    result.save(tmp_path / "out")
    assert not (tmp_path / "snapshots").exists()
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    free, solved = content["free"], content["solved"]
    assert free["kept"] and not free["better"]
    assert free["training"]["plan"]["tuned"] and free["training"]["runs"][0]["learning_rate"]
    assert content["plan"]["strategy"] == "auto" and content["plan"]["head"] == solved["state"]
    assert solved["examples"] == solved["judged"] == 120
    assert content["settings"]["save_dtype"] == "float32" and content["saved_as"] == "checkpoint"
    assert content["flops"]["train"] > free["training"]["flops"]["train"]
    expected = solve_again(bert, task, task.train, task.validation)
    _, logits = predict(tmp_path / "out" / "model", [*task.train.texts, *task.validation.texts])
    np.testing.assert_allclose(logits, expected[2].head(expected[0][solved["state"]]), atol=5e-3)
    assert len(pd.read_parquet(tmp_path / "out" / "predictions.parquet")) == 120
    assert "so the free head is kept, solved on all 120" in describe_free(content)
    for losses, better, said in (([0.5, 0.6], False, "higher"), ([0.6, 0.5], True, "lower")):
        near = {"difference": 0.01, "interval": (-0.1, 0.1), "losses": losses, "better": better}
        words = f"its loss is {said}, {losses[1]:.4f} against {losses[0]:.4f}"
        told = describe_free({**content, "free": {**free, **near}})
        assert words in told and "is better" not in told and ("at least level" in told) is better
    card = (tmp_path / "out" / "model" / "README.md").read_text()
    assert "a training that was no better" in card
    assert suggest_step(content, "out") is None


def test_auto_keeps_the_free_head_where_all_training_diverges(bert, tmp_path):
    task, options = task_by_words("numbers"), {**IDLE, "learning_rate": 1e38}
    result = tune(bert, task, "auto", **options, snapshots=tmp_path / "snapshots")
    result.save(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    alone = tune(bert, task, "head:best", progress=False, cache_limit=0).content
    assert content["solved"] == alone["solved"] and content["metrics"] == alone["metrics"]
    assert content["plan"]["strategy"] == "auto" and content["free"] is None
    [line] = [line for line in content["warnings"] if "the free head is kept" in line]
    assert "no run of" in line and line.endswith("use a lower --learning-rate")
    assert not (tmp_path / "snapshots").exists()
    # What was asked for by name is no other plan, nor is what only the training can have.
    for plan, asked in (("top:1", {}), ("auto", {"classifier": "family"})):
        with pytest.raises(LayerscoutError, match="use a lower --learning-rate"):
            tune(bert, task, plan, **options, **asked)


def test_where_no_head_can_be_solved_nothing_is_compared(bert):
    task = Task.from_lists(["a cat"] * 8, ["x", "y"] * 4)
    content = tune(bert, task, "auto", **IDLE, head_end="trained").content
    assert content["free"] is None and describe_free(content) is None
    one_of_another = Task.from_lists([*[""] * 7, "a cat"], ["x", "y"] * 4)
    for alike in (task, one_of_another):
        rule = "have one text for each class … or `head_end` trained"
        expect_refused(rule, tune, bert, alike, **IDLE)


def test_two_rows_of_each_class_judge_in_halves_and_one_row_judges_nothing(bert):
    """A tenth would leave classes with one row, and a half has one of each class."""
    names = [f"class {n}" for n in range(10)]
    texts = [f"{word} {name}" for name in names for word in ("cat", "dog")]
    task = Task.from_lists([*texts, "one", "two"], [*np.repeat(names, 2).tolist(), "x", "y"])
    assert "2 of 12 classes of task have one row each" in task.warnings[0]
    content = tune(bert, task, "auto", progress=False, max_steps=2).content
    solved, free = content["solved"], content["free"]
    assert (solved["examples"], solved["judged"]) == (22, 20) and free["examples"] == 20
    assert free["folds"] == 2 and 0 <= free["value"] <= 1
    support = {name: row["support"] for name, row in content["by_name"].items()}
    assert support == dict.fromkeys(names, 2) | {"x": 0, "y": 0}
    rows = {row[0]: row[1:] for row in tabulate_by_name(content).rows}
    assert rows["x"] == ["–", "–", "–", "0"]


@pytest.mark.parametrize(
    "asked",
    [
        {"formats": ("sentence-transformers",)},
        {"classifier": "family"},
        {"save_dtype": "bfloat16"},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_what_only_the_training_can_have_keeps_it(asked, tmp_path):
    model = tiny_checkpoint(tmp_path, "mpnet")
    content = tune(model, task_by_words("numbers"), "auto", **IDLE, **asked).content
    assert not content["free"]["better"] and not content["free"]["kept"]
    assert content["solved"] is None and "no better" in describe_free(content)


def test_a_decoder_is_compared_with_the_head_that_its_family_has(tmp_path):
    encoder, task = load(tmp_path / "gpt2", "gpt2"), task_of(held=30)
    free = tune(encoder, task, "auto", **IDLE, head_end="trained").content["free"]
    assert free["kept"] and free["examples"] == 30
