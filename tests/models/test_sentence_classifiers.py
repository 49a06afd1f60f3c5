"""A linear head on the mean as a folder for sentence-transformers: who loads it, and as what."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

import layerscout as ls
from inputs import expect_refused
from layerscout.data import Task
from layerscout.models import (
    Encoder,
    add_formats,
    export_mean,
    load_tuned,
    load_tuned_classifier,
    make_classifier,
    truncate,
)
from layerscout.plans import make_plan
from tiny import FAMILIES as TINY, SENTENCES, change_json, inputs_of, logits_of, tiny_checkpoint
from tuned import NAMES, cheaply, task_of

WORDS = " ".join(SENTENCES).split()
TEXTS = [" ".join(WORDS[row : row + 1 + row % 12]) for row in range(30)] + ["a " * 300]
FILES = {
    *("README.md", "config.json", "modules.json", "1_Pooling/config.json"),
    *(f"0_Transformer/{name}" for name in ("config.json", "model.safetensors")),
    *(f"0_Transformer/{name}" for name in ("tokenizer.json", "tokenizer_config.json")),
    *("2_Dense/config.json", "2_Dense/model.safetensors"),
}
EACH = [pytest.param(name, marks=() if name == "mpnet" else pytest.mark.whole) for name in TINY]


def saved(folder, family="mpnet", labels=NAMES, kind="classification", head=3):
    """Export a classifier whose head is drawn; its base stays beside it."""
    encoder = Encoder.load(tiny_checkpoint(folder / "base", family), device="cpu")
    plan = make_plan(f"head:{head}", encoder.blocks)
    options = {"kind": kind, "classifier": "mean-linear"}
    model = make_classifier(encoder, plan, labels, **options)
    with torch.no_grad():
        for name, drawn in zip(("weight", "bias"), drawn_head(len(labels)), strict=True):
            getattr(model.classifier, name).copy_(torch.from_numpy(drawn))
    export_mean(model, encoder.tokenizer, folder / "model", "card", max_length=64)
    return encoder, folder / "model"


def drawn_head(outputs):
    rng = np.random.default_rng(0)
    return rng.normal(size=(outputs, 16)), rng.normal(size=outputs)


def expected_logits(encoder, inputs, head=3, outputs=3):
    """Compute the logits in float64, from the states of the base."""
    with torch.no_grad():
        states = encoder.cut(inputs, head)
        if encoder.family.final_norm:
            states = encoder.model.get_submodule(encoder.family.final_norm)(states)
    shown = inputs["attention_mask"].double().numpy()[:, :, None]
    means = (states.double().numpy() * shown).sum(axis=1) / shown.sum(axis=1)
    weights, bias = drawn_head(outputs)
    return means @ weights.T + bias


def assert_close(found, expected):
    """A thousandth of their spread is what forms of a model may differ by; this is well below."""
    assert np.abs(np.asarray(found) - expected).max() <= 1e-5 * max(expected.std(), 1)


def tokenize(encoder, pairs=None):
    return encoder.tokenizer(
        TEXTS, pairs, padding=True, truncation=True, max_length=64, return_tensors="pt"
    )


@pytest.fixture(scope="module")
def mpnet(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("sentences"))


# what it is


def test_a_folder_without_pickles_and_with_labels(mpnet):
    _, folder = mpnet
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == FILES
    parts = json.loads((folder / "modules.json").read_text())
    assert [part["type"].rpartition(".") for part in parts] == [
        ("sentence_transformers.models", ".", name) for name in ("Transformer", "Pooling", "Dense")
    ]
    assert [part["path"] for part in parts] == ["0_Transformer", "1_Pooling", "2_Dense"]
    for place in ("", "0_Transformer"):
        content = json.loads((folder / place / "config.json").read_text())
        assert content["id2label"] == {"0": "bad", "1": "fair", "2": "good"}
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert [name for name, value in pooling.items() if value is True] == [
        "pooling_mode_mean_tokens"
    ]
    assert AutoTokenizer.from_pretrained(folder / "0_Transformer").model_max_length == 64


def test_transformers_draws_no_head_for_it(mpnet):
    for read in (
        AutoModelForSequenceClassification.from_pretrained,
        lambda folder: pipeline("text-classification", str(folder)),
    ):
        with pytest.raises(ValueError, match="has model type `sentence-transformers`"):
            read(mpnet[1])


@pytest.mark.parametrize("family", EACH)
@pytest.mark.parametrize("pairs", [None, TEXTS[::-1]])
def test_sentence_transformers_gives_the_logits(family, pairs, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    encoder, folder = saved(tmp_path, family)
    model = library.SentenceTransformer(str(folder), device="cpu")
    found = model.encode(TEXTS if pairs is None else list(zip(TEXTS, pairs, strict=True)))
    assert_close(found, expected_logits(encoder, tokenize(encoder, pairs)))


@pytest.mark.whole
@pytest.mark.parametrize("family", ["mpnet", "llama"])
def test_one_graph_from_tokens_to_logits(family, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    encoder, folder = saved(tmp_path, family)
    assert add_formats(folder, ["sentence-transformers-classifier", "onnx"]) == ()
    session = runtime.InferenceSession(str(folder / "onnx" / "model.onnx"))
    inputs = AutoTokenizer.from_pretrained(folder / "0_Transformer")(
        TEXTS, padding=True, truncation=True, return_tensors="pt"
    )
    [found] = session.run(["logits"], {name: part.numpy() for name, part in inputs.items()})
    assert_close(found, expected_logits(encoder, tokenize(encoder)))


# what layerscout makes of it


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("classification", NAMES),
        ("multi_label_classification", NAMES),
        ("regression", ("stars",)),
    ],
)
def test_it_is_loaded_as_it_was_tuned(kind, labels, tmp_path):
    encoder, folder = saved(tmp_path, "bert", labels, kind)
    model = load_tuned(folder)[1]
    assert list(model.config.id2label.values()) == list(labels) and not model.training
    inputs = inputs_of(encoder)
    expected = expected_logits(encoder, inputs, outputs=len(labels))
    assert_close(logits_of(model, inputs), expected)
    loaded = Encoder.load(folder, device="cpu")
    assert loaded.blocks == 3 and loaded.reads_mean and loaded.notes == ()
    assert torch.equal(loaded.cut(inputs, 3), encoder.cut(inputs, 3))
    assert_close(logits_of(load_tuned_classifier(loaded, kind), inputs), expected)
    other = "regression" if kind == "multi_label_classification" else "multi_label_classification"
    expect_refused("the task is one of", load_tuned_classifier, loaded, other)
    expect_refused("not enough for", load_tuned_classifier, loaded, "token_classification")


def test_the_other_verbs_read_it(mpnet, tmp_path):
    base, folder = mpnet
    task = task_of(classes=3)
    found = ls.evaluate(folder, task, progress=False, edits=["truncate", "skip:2"])
    assert found.content["saved_as"] == "sentence-transformers"
    rows = zip(found.predictions["edit"], found.predictions["logits"], strict=True)
    logits = np.stack([row for edit, row in rows if edit == "truncate:2"])
    texts = base.tokenize(list(task.validation.texts))
    expected = expected_logits(base, base.batch(texts, np.arange(6)), head=2)
    assert_close(logits, expected)
    options = {"progress": False, "tune_heads": True, "edits": "truncate"}
    expect_refused("reads all tokens … leave out", ls.evaluate, folder, task, **options)
    scan = ls.scan(folder, task, progress=False, scores=("nc1",))
    assert len(scan.scores["nc1"].values) == 4
    truncated = truncate(folder, 2, tmp_path / "short")
    assert "the linear head of" in truncated[0] and len(truncated) == 1
    short = Encoder.load(tmp_path / "short")
    assert not short.reads_mean and short.blocks == 2
    expect_refused("holds the model to truncate", truncate, folder, 2, folder)
    result = cheaply(folder, task, "top:1", epochs=1)
    assert any("the whole head starts anew" in line for line in result.warnings)
    result.save(tmp_path / "tuned")
    AutoModelForSequenceClassification.from_pretrained(tmp_path / "tuned" / "model")


def test_a_broken_head_is_refused(tmp_path):
    _, folder = saved(tmp_path)
    change_json(folder / "0_Transformer" / "config.json", id2label={"0": "a", "1": "b"})
    words = "cannot load the head of … save the model again"
    expect_refused(words, load_tuned, folder)
    (folder / "2_Dense" / "model.safetensors").unlink()
    expect_refused(words, load_tuned, folder)


def test_it_replaces_its_like_and_has_no_encoder_alone(tmp_path):
    _, folder = saved(tmp_path)
    (folder / "onnx").mkdir()
    saved(tmp_path)
    assert not (folder / "onnx").exists()
    words = "is the encoder without its head … leave it out"
    expect_refused(words, add_formats, folder, ["sentence-transformers"])


@pytest.mark.whole
@pytest.mark.parametrize("tags", [None, "|"])
def test_its_card_says_how_to_use_it(tags, tmp_path, capsys):
    pytest.importorskip("sentence_transformers")
    task = task_of(n=40)
    if tags:
        labels = [["bad"], ["good"], ["bad", "good"], []] * 10
        task = Task.from_lists([f"a {word}" for word in WORDS[:40]], labels)
    options = {"threshold": "tuned"} if tags else {}
    base = tiny_checkpoint(tmp_path / "base", "mpnet")
    ls.tune(base, task, "head:2", progress=False, **options).save(tmp_path)
    card = (tmp_path / "model" / "README.md").read_text()
    usage = card.split("```python\n")[1].split("```")[0]
    capsys.readouterr()
    exec(usage.replace("path/to/this/folder", str(tmp_path / "model")), {})
    assert capsys.readouterr().out.strip()
    assert "library_name: sentence-transformers" in card
