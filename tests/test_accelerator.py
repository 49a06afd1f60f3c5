"""What an accelerator must give as well: the figures of the processor, to rounding.

`make test-accelerator` runs these; all other tests run on the processor.
"""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, BertModel

import layerscout as ls
from telling import telling_task
from tiny import tiny_checkpoint
from tuned import NO_DROPOUT, cheaply, copied, differing

pytestmark = [
    pytest.mark.accelerator,
    pytest.mark.skipif(not torch.accelerator.is_available(), reason="needs an accelerator"),
]
KEYS = ("head_quality", "variability_ratio", "variability_ratio_debiased", "logme", "cca", "knn")
FAMILIES = ("bert", "deberta-v2", "modernbert", "llama")


@pytest.fixture(scope="module")
def device():
    return str(torch.accelerator.current_accelerator())


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    settings = NO_DROPOUT if request.param == "bert" else {}
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "m", request.param, **settings)


@pytest.fixture(scope="module")
def task():
    return telling_task(n=200, validation=0.2)


def test_a_scan_is_the_processor_s(folder, task, device):
    options = {"scores": KEYS, "examples": "all", "progress": False}
    here = ls.scan(ls.Encoder.load(folder, device=device), task, **options).table()
    there = ls.scan(ls.Encoder.load(folder, device="cpu"), task, **options).table()
    here, there = (found.select_dtypes("number") for found in (here, there))
    np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("plan", ["full", "(3, 3, 4)", "top:2", "head:3"])
def test_training_goes_the_same_way(folder, task, device, plan):
    """Without dropout; with a small rate, so that rounding is not carried far."""
    curves = []
    for place in (device, "cpu"):
        encoder = ls.Encoder.load(folder, device=place)
        run = cheaply(encoder, task, plan, learning_rate=1e-4).content["runs"][0]
        curves.append([(epoch["training_loss"], epoch["loss"]) for epoch in run["curve"]])
    np.testing.assert_allclose(*curves, rtol=2e-3)


def test_the_same_seed_gives_the_same_model(tmp_path, task, device):
    folder = tiny_checkpoint(tmp_path / "m", "bert")
    encoders = [ls.Encoder.load(folder, device=device) for _ in range(2)]
    one, other = (cheaply(encoder, task, "top:2", seed=3).model for encoder in encoders)
    assert not differing(copied(one), copied(other))


def test_the_saved_model_answers_as_recorded(folder, tmp_path, task, device):
    result = cheaply(ls.Encoder.load(folder, device=device), task, "(3, 3, 3)")
    result.save(tmp_path / "out")
    found = ls.evaluate(tmp_path / "out" / "model", task, device="cpu", progress=False)
    recorded = json.loads((tmp_path / "out" / "result.json").read_text())["metrics"]
    assert found.metrics == pytest.approx(recorded, abs=0.03)  # a text of 40 may flip
    AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "model")


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("plan", ["full", "top:3"])
def test_every_precision_learns(tmp_path, task, device, precision, plan):
    folder = tiny_checkpoint(tmp_path / "m", "bert", **NO_DROPOUT)
    encoder = ls.Encoder.load(folder, device=device, precision=precision)
    result = cheaply(encoder, task, plan, epochs=6)
    assert result.metrics["accuracy"] > 0.8


def test_classes_are_compared_and_gradients_taken(folder, task, device):
    here, there = (
        ls.scan(
            ls.Encoder.load(folder, device=place), task, scores=("fisher",), progress=False
        ).table()
        for place in (device, "cpu")
    )
    here, there = (found.select_dtypes("number") for found in (here, there))
    np.testing.assert_allclose(here, there, rtol=1e-2, atol=1e-3)
    compared = ls.compare(ls.Encoder.load(folder, device=device), task, progress=False)
    assert "NaN" not in json.dumps(compared.as_dict())


@pytest.mark.parametrize("plan", ["full", "(7, 8, 12)", "top:1", "(7, 8, 8)", "head:8"])
def test_the_memory_is_the_predicted_one(tmp_path, device, plan):
    """Of a base-size model, to a tenth."""
    folder = tiny_checkpoint(tmp_path / "m", "bert")
    torch.manual_seed(0)
    BertModel(BertConfig()).save_pretrained(folder)
    texts = [" ".join(["the old cat sleeps on the warm stone"] * 12)] * 64
    held_out = (texts[:8], ["a", "b"] * 4)
    task = ls.Task.from_lists(texts, ["a", "b"] * 32, validation=held_out)
    encoder = ls.Encoder.load(folder, device=device)
    options = {"epochs": 2, "batch_size": 16, "progress": False, "measure": "metric"}
    memory = ls.tune(encoder, task, plan, **options).content["memory"]
    assert memory["predicted"] == pytest.approx(memory["used"], rel=0.1)
