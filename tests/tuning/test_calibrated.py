"""The factor on the logits of trained models: in every form, and on every kind of task."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from layerscout import load as load_saved
from layerscout.data import Targets
from layerscout.evaluating import evaluate
from layerscout.models import find_output
from layerscout.reporting import describe_calibration, render_result
from layerscout.scores import TRAINED, calibrate, find_losses, measure_calibration
from layerscout.tuning.calibration import calibrate_trained
from layerscout.tuning.stepping import compute_loss
from tuned import cheaply, choices_task, run_card, several_task, task_of, words_task

FORMS = {
    "checkpoint": {},
    "merged LoRA": {"method": "lora"},
    "LoRA": {"method": "lora", "keep_adapter": True},
    "adapter": {"method": "adapter"},
    "mean-linear": {"classifier": "mean-linear"},
    "bfloat16": {"save_dtype": "bfloat16"},
}


@pytest.fixture
def halved(monkeypatch):
    """Let every factor be a half, or one and a half, by which nothing is left to chance."""

    def halve(factor):
        from layerscout.tuning import judging

        constant = lambda answers, raw: (factor, np.full(len(raw), factor))  # noqa: E731
        monkeypatch.setattr(judging, "calibrate_trained", constant)

    return halve


@pytest.mark.parametrize("form", FORMS)
def test_the_saved_model_has_the_factor(bert, halved, form, tmp_path):
    task, results = task_of(held=60), {}
    for factor in (1.0, 0.5):
        halved(factor)
        results[factor] = cheaply(bert, task, "top:1", epochs=1, **FORMS[form])
    before, after = (np.stack(result.predictions["logits"]) for result in results.values())
    near = {"rtol": 1e-2, "atol": 1e-3} if form == "bfloat16" else {"rtol": 1e-4, "atol": 1e-6}
    np.testing.assert_allclose(after, 0.5 * before, **near)
    if form != "bfloat16":
        assert (after.argmax(axis=1) == before.argmax(axis=1)).all()
    results[0.5].save(tmp_path)
    if form in ("adapter", "mean-linear"):
        model = load_saved(tmp_path / "model").model
    elif form == "LoRA":
        card = (tmp_path / "model" / "README.md").read_text()
        model = run_card(card, tmp_path / "model", bert.source)["model"].eval()
    else:
        model = AutoModelForSequenceClassification.from_pretrained(
            tmp_path / "model", dtype=torch.float32
        )
    texts = list(results[0.5].predictions["text"])
    with torch.no_grad():
        logits = model(**bert.tokenizer(texts, padding=True, return_tensors="pt")).logits
    np.testing.assert_allclose(logits, after, rtol=1e-4, atol=1e-5)


def test_what_is_reported_of_test_rows(bert, halved, tmp_path):
    halved(0.5)
    task = replace(task_of(), test=task_of(held=300).validation)
    result = cheaply(bert, task, "head:4", epochs=1)
    after = np.stack(result.predictions["logits"])[6:]
    assert len(after) == 300
    result.save(tmp_path)
    content = json.loads((tmp_path / "result.json").read_text())
    for when, logits in (("before", after / 0.5), ("after", after)):
        measured = measure_calibration(task.test.labels, logits)
        for name in ("nll", "ece", "brier"):
            found = content["calibration"]["test"][when][name]
            assert found == pytest.approx(measured[name], abs=1e-6)
    assert "Probabilities" in render_result(content)
    assert "0.5" in describe_calibration(content)
    again = evaluate(tmp_path / "model", task_of(held=300), progress=False).content
    for name in ("nll", "ece", "brier"):
        expected = content["calibration"]["test"]["after"][name]
        assert again["calibration"][name] == pytest.approx(expected, abs=1e-5)
    assert "Its probabilities" in render_result(again) or "so what is left" in render_result(again)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (several_task, {"threshold": "tuned"}),
        (several_task, {"threshold": 0.3}),
        (several_task, {}),
        (words_task, {}),
        (choices_task, {}),
    ],
)
def test_no_prediction_changes_and_thresholds_move(bert, halved, make, options):
    results = []
    for factor in (1.0, 1.5):
        halved(factor)
        results.append(cheaply(bert, make(), "(4, 4, 4)", epochs=1, **options))
    before, after = results
    assert list(after.predictions["prediction"]) == list(before.predictions["prediction"])
    assert after.metrics == pytest.approx(before.metrics)
    least = [result.content["thresholds"] for result in results]
    for name, p in (least[0] or {}).items():
        if p < 0.01:  # everything has the label: it lies below all logits, wherever they are
            assert least[1][name] < 0.01
            continue
        assert least[1][name] == pytest.approx(1 / (1 + (1 / p - 1) ** 1.5))
    known = after.content["calibration"]
    assert known["factor"] == 1.5 and known["rows"] == len(after.predictions["prediction"])


def test_numbers_have_no_probabilities(bert):
    rng = np.random.default_rng(0)
    plain = task_of()
    numbers = [replace(s, labels=rng.normal(size=len(s))) for s in (plain.train, plain.validation)]
    task = replace(
        plain,
        kind="regression",
        labels=(),
        metric="pearson",
        train=numbers[0],
        validation=numbers[1],
    )
    result = cheaply(bert, task, "head:4", epochs=1)
    assert result.content["calibration"] is None
    assert describe_calibration(result.content) is None


def test_a_fitted_factor_keeps_to_rows_it_was_not_found_on(bert):
    """What is said of the validation rows is by factors of other folds, bounded however few."""
    for held in (2, 6, 40):
        known = cheaply(bert, task_of(held=held), "top:1", learning_rate=1e-2)
        known = known.content["calibration"]
        assert 1 / 51 < known["factor"] < 51 and known["rows"] == held
        assert known["test"] is None and np.isfinite(known["validation"]["after"]["nll"])


def test_no_factor_owes_anything_to_the_row_it_is_judged_on():
    rng = np.random.default_rng(0)
    y, logits = rng.integers(0, 3, 40), rng.normal(size=(40, 3))
    factor, factors = calibrate_trained(Targets.of(y), logits)
    assert factor == calibrate(y, logits, TRAINED)
    logits[0] *= 9
    changed = calibrate_trained(Targets.of(y), logits)[1] != factors
    assert not changed[0] and changed.sum() == 32  # all four of the other folds


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers"])
def test_both_losses_are_one_rule(kind):
    rng = np.random.default_rng(1)
    logits, y = rng.normal(size=(40, 3)), rng.integers(0, 3, 40)
    if kind != "classes":
        y = rng.random((40, 3)) < 0.4 if kind == "labels" else rng.normal(size=40)
    logits = logits[:, :1] if kind == "numbers" else logits
    loss = compute_loss(torch.from_numpy(logits), torch.from_numpy(y)).item()
    assert find_losses(y, logits).mean() == pytest.approx(loss, rel=1e-12)


def test_the_output_layer_is_the_last_of_a_head(bert):
    result = cheaply(bert, task_of(), "head:4", epochs=1)
    assert find_output(result.model)[0] == "classifier"
