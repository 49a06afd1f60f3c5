"""From a scan to a tuned checkpoint with the real models on real tasks."""

import json

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    pipeline,
)

import layerscout as ls
from conftest import MODELS, real
from layerscout.models import Encoder
from layerscout.scores import DEFAULT

pytestmark = [pytest.mark.real, pytest.mark.whole]


def task_of(name, training=48, held=16):
    """Return a real task with few of its rows."""
    task = ls.Task.load(real("data", name), task=name)
    rows = {"train": np.arange(training), "validation": np.arange(held)}
    parts = {split: getattr(task, split).take(at) for split, at in rows.items()}
    return ls.Task(task.name, task.kind, task.labels, task.metric, columns=task.columns, **parts)


@pytest.mark.parametrize("task", ["sst2", "cola", "rte"])
@pytest.mark.parametrize("model", MODELS)
def test_scan_plan_tune(model, task, tmp_path):
    encoder, loaded = Encoder.load(real("models", model)), task_of(task)
    scan = ls.scan(encoder, loaded, progress=False)
    # So few rows are better off with the free head, which is not compared here.
    options = {"epochs": 1, "measure": "predictions", "progress": False}
    # By a score few rows, too, have the plan of many.
    result = ls.tune(encoder, loaded, "auto", scan=scan, score="head_quality", **options)
    assert result.content["plan"]["head"] == scan.name_head().state
    result.save(tmp_path)
    content = json.loads((tmp_path / "result.json").read_text())
    # The budget is of one training; reading all rows for the head weighs beside a single epoch.
    assert 0 < content["flops"]["train"] <= 0.6 * content["flops"]["full_train"]
    texts, pairs = loaded.validation.texts[:4], loaded.validation.pairs
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    inputs = tokenizer(
        texts,
        pairs and pairs[:4],
        padding=True,
        truncation=True,
        max_length=128,
        return_tensors="pt",
    )
    with torch.no_grad():
        again = model(**inputs).logits
    # Batches of other lengths pad otherwise, which rounds otherwise.
    assert np.allclose(again, result.predictions["logits"][:4], atol=1e-3)
    answers = pipeline("text-classification", str(tmp_path / "model"))(texts[0])
    assert answers[0]["label"] in loaded.labels


def test_numbers_of_stsb(tmp_path):
    encoder, task = Encoder.load(real("models", MODELS[0])), task_of("stsb", training=150)
    options = {"batch_size": 8, "measure": "predictions", "progress": False}
    result = ls.tune(encoder, task, epochs=2, **options)
    result.save(tmp_path)
    content = json.loads((tmp_path / "result.json").read_text())
    assert (content["metric"], content["settings"]["score"]) == ("pearson_spearman", DEFAULT)
    assert content["best"]["value"] > 0.3
    found, held = result.predictions["prediction"][:4], task.validation
    ask = pipeline("text-classification", str(tmp_path / "model"))
    pairs = zip(held.texts[:4], held.pairs[:4], strict=True)
    told = [ask({"text": text, "text_pair": pair})["score"] for text, pair in pairs]
    assert told == pytest.approx(found.tolist(), abs=1e-3)


def test_choices_of_copa(tmp_path):
    encoder, task = Encoder.load(real("models", MODELS[0])), task_of("copa", training=120, held=40)
    options = {"examples": 50, "measure": "predictions", "progress": False}
    result = ls.tune(encoder, task, epochs=2, **options)
    result.save(tmp_path)
    assert result.content["task"]["examples_used"] == 50
    assert result.content["settings"]["validation_examples"] == 20
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    loaded = AutoModelForMultipleChoice.from_pretrained(tmp_path / "model")
    held = task.validation
    inputs = tokenizer(held.texts[:8], held.pairs[:8], padding=True, return_tensors="pt")
    with torch.no_grad():
        again = loaded(**{name: tensor.unflatten(0, (4, 2)) for name, tensor in inputs.items()})
    assert np.allclose(again.logits, result.predictions["logits"][:4], atol=1e-3)


METHODS = {"adapter": ls.Adapter(32), "lora": ls.LoRA(4), "prefix-tuning": ls.PrefixTuning(4)}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("task", "plan"), [("rte", "top:2"), ("cola", "(2, 3, 3)"), ("cola", "(1, 6, 6)")]
)
def test_a_method_tunes_what_the_plan_says(task, method, plan, tmp_path):
    encoder, loaded = Encoder.load(real("models", "all-MiniLM-L6-v2")), task_of(task)
    before = {name: tensor.clone() for name, tensor in encoder.model.state_dict().items()}
    result = ls.tune(encoder, loaded, plan, method=METHODS[method], epochs=1, progress=False)
    result.save(tmp_path)
    after = encoder.model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    if method == "lora":
        again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    else:
        again = ls.load(tmp_path / "model").model
    split = loaded.validation
    pairs = None if split.pairs is None else split.pairs[:4]
    inputs = encoder.batch(encoder.tokenize(split.texts[:4], pairs), np.arange(4))
    with torch.no_grad():
        found = again(**inputs).logits
    assert np.allclose(found, result.predictions["logits"][:4], atol=1e-3)


def test_a_tuned_model_is_compared_and_judged(tmp_path):
    folder, task = real("models", "all-MiniLM-L6-v2"), task_of("sst2", training=64, held=48)
    ls.tune(folder, task, "full", epochs=1, progress=False).save(tmp_path)
    compared = ls.compare([tmp_path / "model", folder], task, progress=False)
    same, across = np.array(compared.maps[0]["cka"]), np.array(compared.maps[1]["cka"])
    assert np.allclose(np.diagonal(same)[1:].astype(float), 1)
    assert across[1, 1] > 0.9 > across[6, 1]  # little training leaves the lower blocks alone
    judged = ls.evaluate(tmp_path / "model", task, edits=("truncate", "skip"), progress=False)
    curve, skips = judged.content["truncation"]["untuned"], judged.content["skips"]
    assert curve[6] == judged.metrics["accuracy"]
    assert [line[5] for line in skips] == curve[:6]  # what is left is the model cut there
