"""Trainings whose head is solved in the end: what is tuned, and by which rows it is judged."""

import json
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from test_solved_heads import predict, task_by_words
from test_training_uncut import from_the_cut, uncut

from conftest import whole_only
from inputs import expect_refused
from layerscout.data import Task, balance_batches, evaluate
from layerscout.models import make_classifier
from layerscout.plans import Plan, Settings, Work, block_flops, cost, make_plan
from layerscout.reporting import (
    describe_training,
    describe_tuning,
    find_stage,
    render_result,
    summarise_tuning,
)
from layerscout.scanning import scan
from layerscout.scores import solve_apart
from layerscout.scores.solving import SHRINKAGES, solve_path
from layerscout.tuning import staging, tune
from layerscout.tuning.stepping import TEMPERATURE, Stepper, contrast
from tuned import choices_task, fitted, labels_for, load, task_of, words_task

QUICK = {"loss": "contrastive", "progress": False, "max_steps": 8, "learning_rate": 1e-3}


def contrast_by_hand(H, alike):
    """Write the loss out from Khosla et al. 2020, eq. 2, pair by pair."""
    z = H / np.linalg.norm(H, axis=1, keepdims=True)
    losses = []
    for i in range(len(z)):
        others = [a for a in range(len(z)) if a != i]
        below = np.log(sum(np.exp(z[i] @ z[a] / TEMPERATURE) for a in others))
        weights = np.array([alike(i, a) for a in others], float)
        if weights.sum():
            terms = [below - z[i] @ z[a] / TEMPERATURE for a in others]
            losses.append(weights @ terms / weights.sum())
    return np.mean(losses) if losses else 0.0


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 1, 1, 2, 0, 1]),
        np.array([0, 1, 2, 3, 4, 5]),  # no two alike
        np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1]], bool),
    ],
)
def test_the_loss_is_that_of_the_paper(labels):
    H = np.random.default_rng(0).normal(size=(6, 5))

    def alike(i, j):
        if labels.ndim == 1:
            return labels[i] == labels[j]
        both, any_ = (labels[i] & labels[j]).sum(), (labels[i] | labels[j]).sum()
        return both / any_ if any_ else 1.0

    found = contrast(torch.from_numpy(H), torch.from_numpy(labels))
    assert float(found) == pytest.approx(contrast_by_hand(H, alike), rel=1e-5)


def test_batches_have_as_many_rows_of_each_class():
    groups = [np.arange(100), np.arange(100, 103), np.array([103]), np.array([], int)]
    batches = [*islice(balance_batches(groups, 6, np.random.default_rng(0)), 60)]
    counts = np.array([[np.isin(batch, group).sum() for group in groups] for batch in batches])
    assert all(len(set(batch)) == len(batch) for batch in batches)
    assert (counts == [2, 2, 1, 0]).mean() > 0.9  # but where a turn ends within a batch
    assert set(np.concatenate(batches)) == set(range(104))
    many = [np.array([2 * k, 2 * k + 1]) for k in range(50)]
    one = next(balance_batches(many, 16, np.random.default_rng(0)))
    assert sorted(np.unique(one // 2, return_counts=True)[1]) == [2] * 8
    again = [*islice(balance_batches(groups, 6, np.random.default_rng(0)), 60)]
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))


def test_the_head_is_chosen_by_rows_that_no_stage_saw():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    parts = np.arange(60) % 2
    parts[:3] = -1
    states = [rng.normal(size=(60, 8)) + 0.5 * np.eye(8)[y] for _ in range(3)]
    solved = solve_apart(states[:2], y, parts, parts, (states[2], y), classes=3)
    assert (solved.rows == np.flatnonzero(parts >= 0)).all()
    chosen = SHRINKAGES.index(solved.shrinkage)
    raw = np.zeros((60, 3))
    for part, H in enumerate(states[:2]):
        own = parts == part
        head = solve_path(H[~own], y[~own], 3)[chosen]
        raw[own] = head(H[own]) / head(H[~own]).std()
    kept = solve_path(states[2], y, 3)[chosen]
    raw, whole = raw * kept(states[2]).std(), kept.scale(solved.factor)
    assert solved.head.weights == pytest.approx(whole.weights, rel=1e-9)
    before = solved.held_out / solved.factors[:, None]
    same = np.isclose(before, raw[solved.rows]).all(axis=1)
    assert same.mean() in (0.5, 1.0)  # of a part, the other may have chosen another
    broken = [*states[:1], np.zeros((60, 8))]
    assert solve_apart(broken, y, parts, parts, (states[2], y), classes=3) is None


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("classes", {}),
        ("several", {}),
        ("classes", {"method": "lora", "loss": None}),
        ("classes", {"class_weights": "balanced", "accumulation": 2, "loss": None}),
        ("numbers", {"loss": None, "head_start": "random"}),
    ],
)
def test_blocks_are_trained_and_the_saved_model_says_the_same(bert, kind, options, tmp_path):
    task = task_by_words(kind)
    task = replace(task, test=task.validation.take(np.arange(30)))
    options = {**QUICK, "head_end": "solved", **options}
    results = [tune(bert, task, "(2,3,3)", **options) for _ in range(2)]
    results[0].save(tmp_path)
    content = json.loads((tmp_path / "result.json").read_text())
    model, logits = predict(tmp_path / "model", task.test.texts)
    said = np.stack(results[0].predictions["logits"][-30:])
    assert np.abs(logits - said).max() < 1e-3 * said.std()
    assert (said == np.stack(results[1].predictions["logits"][-30:])).all()
    solved = content["solved"]
    assert content["saved_as"] == "checkpoint" and solved["folds"] == 2 and solved["state"] == 3
    assert solved["judged"] == len(task.train) + len(task.validation) == solved["examples"]
    trained = model.bert.encoder.layer if hasattr(model, "bert") else []
    before = bert.model.encoder.layer
    moved = [
        not torch.equal(a.attention.self.value.weight, b.attention.self.value.weight)
        for a, b in zip(trained[:3], before[:3], strict=True)
    ]
    assert moved == [False, True, True]
    assert content["free"]["examples"] == solved["judged"]
    assert content["flops"]["train"] > 0 and content["seconds"]["train"] > 0
    told = describe_tuning(content)  # judged once, at the end, which says nothing of more epochs
    assert told["best_epoch"] == told["epochs"] == content["settings"]["epochs"] > 1
    card = (tmp_path / "model" / "README.md").read_text()
    assert ("contrastive loss" in card) == (options["loss"] is not None)
    line = describe_training(content)[1]
    assert "then the head solved" in line
    assert ("; a block added that averages" in line) == (model.config.num_hidden_layers > 3)
    assert "head solved" in render_result(content)
    value = evaluate(task.metric, task.test.labels, logits)
    assert content["test"]["metrics"][task.metric] == pytest.approx(value)


def test_with_many_rows_the_validation_rows_judge(bert, monkeypatch):
    task = task_by_words()
    both = tune(bert, task, "(2,3,3)", against="(3,3,3)", **QUICK).content
    assert both["solved"]["folds"] == 1  # so that both are judged alike
    assert both["against"]["solved"]["judged"] == 60
    monkeypatch.setattr("layerscout.plans.training.STAGE_ROWS", 100)
    content = tune(bert, task, "(2,3,3)", **QUICK).content
    assert content["solved"]["folds"] == 1 and content["solved"]["judged"] == 60
    assert content["solved"]["examples"] == 60  # the training rows alone


@pytest.mark.parametrize("enough", [1000, *whole_only(100)])
def test_the_budget_and_the_flops_are_of_all_that_is_trained(bert, monkeypatch, enough):
    monkeypatch.setattr("layerscout.plans.training.STAGE_ROWS", enough)
    seen, taken = [], Stepper.step
    monkeypatch.setattr(Stepper, "step", lambda s, r, *a: seen.append(len(r)) or taken(s, r, *a))
    task, options = task_by_words(), {"epochs": 2, "budget": 1.0, "progress": False}
    content = tune(bert, task, "auto", **options).content
    said = summarise_tuning(content)
    content = (content["free"]["kept"] and content["free"]["training"]) or content
    plan, shape, flops = Plan.from_dict(content["plan"]), bert.shape(2), content["flops"]
    n, held, stages = len(task.train), len(task.validation), 3 if enough == 1000 else 1
    tokens = bert.tokenize(task.train.texts).lengths.mean()
    trunk, of_one = plan.cut * block_flops(shape, tokens), cost(plan, shape, Work(1, 0, tokens, 1))
    step, forward = of_one.train - trunk, of_one.inference - trunk
    assert sum(seen) == pytest.approx((2 if stages == 3 else 1) * 2 * n, rel=0.1)
    counted = (n + held) * (trunk + stages * forward) + sum(seen) * step
    assert flops["train"] == pytest.approx(counted, rel=0.1)
    full = cost(make_plan("full", 4), shape, Work(n, held, tokens, 2)).train
    assert flops["full_train"] == pytest.approx(full)
    assert ("of full fine-tuning (half of it for judging on two halves" in said) == (stages == 3)


@pytest.mark.whole
def test_a_plan_of_auto_is_trained_as_auto_by_name(bert, tmp_path):
    task, options = task_by_words(), {"budget": 1.0, "epochs": 2}
    found = scan(bert, task, progress=False)
    found.planning(**options).save(tmp_path)
    planned = json.loads((tmp_path / "plan.json").read_text())
    path = tmp_path / "plan.json"
    results = [
        tune(bert, task, "auto", scan=found, **options, progress=False).content,
        tune(bert, task, path, epochs=2, progress=False).content,
    ]
    named, read = (c["free"]["training"] or c for c in results)
    assert read["plan"]["notation"] == named["plan"]["notation"] == planned["plan"]["notation"]
    assert read["plan"]["reason"] == named["plan"]["reason"] == planned["reason"]
    assert read["runs"][0]["curve"] == named["runs"][0]["curve"]
    assert planned["head_end"] == results[1]["settings"]["head_end"] == "solved"
    costs = planned["cost"]["train"], results[1]["flops"]["train"], named["flops"]["train"]
    assert costs == pytest.approx([costs[0]] * 3, rel=1e-3)
    # A file without the entry is a plan that was asked for.
    path.write_text(json.dumps({key: planned[key] for key in planned.keys() - {"head_end"}}))
    trained = tune(bert, task, path, epochs=1, progress=False, measure="metric").content
    assert trained["settings"]["head_end"] == "trained"


@pytest.mark.whole
def test_both_plans_end_alike_and_it_is_said(bert):
    task, options = task_by_words(), {"max_steps": 2, "progress": False, "measure": "predictions"}
    for plan, against, more, ends, said in (
        ("auto", "top:1", {}, ("staged", "staged"), ", both heads solved"),
        ("top:1", "auto", {"head_end": "solved"}, ("staged", "staged"), ", both heads solved"),
        (
            "top:1",
            "auto",
            {"head_end": "trained"},
            ("trained", "trained"),
            "of the time of (1, 3, 3), macro",
        ),
    ):
        content = tune(bert, task, plan, against=against, budget=1.0, **options, **more).content
        assert (find_stage(content), find_stage(content["against"])) == ends
        assert said in summarise_tuning(content)
    options.pop("max_steps")
    content = tune(bert, task, "head:3", against="auto", budget=1.0, **options).content
    assert (find_stage(content), find_stage(content["against"])) == ("solved", "staged")
    assert content["against"]["runs"][0]["learning_rate"] is not None


def test_a_cached_trunk_changes_nothing(tmp_path):
    dropouts = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    encoder, plan = fitted(load(tmp_path / "bert", "bert", **dropouts), "(3, 3, 4)")
    encoder.model.double()
    found = []
    for make in (uncut, from_the_cut):
        model = make_classifier(encoder, plan, ["a", "b"], seed=3, classifier="mean-linear")
        model = model.double()
        examples = make(encoder, plan, labels_for(12), slice(0, 12))
        settings = Settings(loss="contrastive", batch_size=8)
        stepper = Stepper(encoder, model, examples, settings, {})
        with staging.passing_on(model.classifier):
            losses = [stepper.step(np.arange(12)[n::2], 1e-3) for n in (0, 1)]
        found.append((losses, {n: p.detach().clone() for n, p in stepper.trained.items()}))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-6)
    assert all(torch.allclose(found[0][1][n], p, atol=1e-9) for n, p in found[1][1].items())


def test_a_killed_stage_is_resumed_to_the_same_model(bert, tmp_path, monkeypatch):
    task, options = task_by_words(), {**QUICK, "snapshots": tmp_path / "snapshots"}
    whole = tune(bert, task, "(2,3,3)", **QUICK)
    stages = []
    train_stage = staging._train_stage

    def stop_at_the_third(*arguments):
        stages.append(arguments)
        if len(stages) == 3:
            raise KeyboardInterrupt
        return train_stage(*arguments)

    monkeypatch.setattr(staging, "_train_stage", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        tune(bert, task, "(2,3,3)", **options)
    monkeypatch.undo()
    steps = []
    taken = Stepper.step
    monkeypatch.setattr(Stepper, "step", lambda *a: steps.append(1) or taken(*a))
    resumed = tune(bert, task, "(2,3,3)", **options, resume=True)
    assert len(steps) == 8  # of the third stage alone
    for name in ("metrics", "solved", "calibration"):
        assert resumed.content[name] == whole.content[name]


REFUSED = [
    (task_of, "head:3", {}, "`loss` (contrastive) needs blocks that are tuned, but head:3 … none"),
    (words_task, "(2,3,3)", {}, "token classification; leave it out, and cross-entropy is used"),
    (choices_task, "(2,3,3)", {}, "classes of texts, but … multiple choice"),
    (
        lambda: task_by_words("numbers"),
        "(2,3,3)",
        {},
        "classes of texts, but … and the squared error is used",
    ),
    (task_of, "(2,3,3)", {"method": "adapter"}, "saved whole, but the method"),
    (task_of, "(2,3,3)", {"loss": None, "head_end": "solved", "keep": "last"}, "`keep` applies"),
    (task_of, "(2,3,3)", {"head_start": "solved"}, "`head_start` applies to a head"),
    (task_of, "(2,3,3)", {"head_end": "trained"}, "has to be solved, got `head_end` (trained)"),
    (task_of, "(2,3,3)", {"batch_size": 3}, "4 or more with `loss` … got 3"),
    (task_of, "(2,3,3)", {"loss": "triplet"}, "unknown `loss` 'triplet'"),
    (task_of, "top:1", {"loss": None, "against": "auto"}, "auto ends … top:1 with one … trained"),
]


@pytest.mark.parametrize(("make", "plan", "options", "words"), REFUSED)
def test_what_cannot_be_brought_together(bert, make, plan, options, words):
    expect_refused(words, tune, bert, make(), plan, **{**QUICK, **options})


def test_a_rate_that_comes_to_nothing_costs_no_other_one(bert, tmp_path):
    options = {**QUICK, "max_steps": 1, "warmup": 0, "learning_rate": (1e-3, 1e30)}
    options |= {"track": "tensorboard", "logs": tmp_path / "logs"}
    content = tune(bert, task_by_words(), "(2,3,3)", **options).content
    assert content["kept"] == 0 and content["runs"][1]["diverged"]
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["_2_3_3_plan-1-run-1"]


def test_one_validation_row_decides_without_numbers_that_are_none(bert):
    task = task_by_words()
    task = replace(task, validation=task.validation.take(np.array([0])))
    with np.errstate(all="raise"):
        content = tune(bert, task, "(2,3,3)", **QUICK, measure="predictions").content
    assert np.isfinite(content["calibration"]["factor"]) and content["solved"]["judged"] == 1


def test_a_class_of_one_row_is_trained_on_and_judges_nothing(bert):
    task = task_by_words()
    labels = [task.labels[y] for y in task.train.labels]
    alone = Task.from_lists([*task.train.texts, "alone"], [*labels, "rare"])
    content = tune(bert, alone, "(2,3,3)", **QUICK).content
    assert content["task"]["labels"] == ["no", "rare", "yes"]
    assert content["solved"]["examples"] == 61 and content["solved"]["judged"] == 60
    assert np.isfinite(content["calibration"]["factor"])
