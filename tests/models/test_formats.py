"""Further formats of a checkpoint: what their own libraries make of them."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from inputs import expect_refused
from layerscout.errors import LayerscoutError
from layerscout.models import Encoder, add_formats, check_formats, truncate
from tiny import SENTENCES, change_json, tiny_checkpoint

TEXTS = list(SENTENCES[:5])


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert", "llama"])
def test_a_folder_of_sentence_transformers(family, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    folder = tiny_checkpoint(tmp_path / "model", family, classes=3)
    add_formats(folder, ["sentence-transformers"])
    found = library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder)(**inputs).last_hidden_state
    weights = inputs["attention_mask"].float()
    if family == "llama":  # the last token
        weights[:, :-1] -= weights[:, 1:]
    expected = (states * weights[:, :, None]).sum(dim=1) / weights.sum(dim=1, keepdim=True)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    # It is still a checkpoint of transformers, head and all, and of layerscout.
    assert AutoModelForSequenceClassification.from_pretrained(folder).config.num_labels == 3
    assert Encoder.load(folder, device="cpu").blocks == 4


def test_the_pooling_of_the_base_is_kept(tmp_path):
    base = tiny_checkpoint(tmp_path / "base", "bert")
    (base / "1_Pooling").mkdir()
    given = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True}
    (base / "1_Pooling" / "config.json").write_text(json.dumps(given))
    for _ in range(2):  # the folder that this adds is replaced with the rest
        truncate(base, 2, tmp_path / "short")
        add_formats(tmp_path / "short", ["sentence-transformers"], base=base)
    assert json.loads((tmp_path / "short" / "1_Pooling" / "config.json").read_text()) == given


LEFT_OUT = [
    ({"modules.json": []}, ""),
    ({"modules.json": ["Transformer", "1_Pooling"]}, ""),
    ({"modules.json": ["Transformer", "1_Pooling", "2_Dense"]}, "gets no Dense of … pooling"),
    ({"modules.json": ["Transformer", "1_Pooling", "2_Normalize"]}, "Normalize of … encode(..., "),
    ({"modules.json": ["Transformer", "1_LSTM", "2_Pooling"]}, "gets no LSTM, Pooling of"),
    ({"config_sentence_transformers.json": {"prompts": {"query": "", "document": ""}}}, ""),
    ({"config_sentence_transformers.json": {"prompts": {"query": "q: "}}}, "gets no prompts of"),
]


@pytest.mark.parametrize(("files", "words"), LEFT_OUT)
def test_what_a_base_has_on_top_of_its_pooling_is_said(tiny, tmp_path, files, words):
    base, model = tmp_path / "base", tmp_path / "model"
    shutil.copytree(tiny, base)
    shutil.copytree(tiny, model)
    for name, content in files.items():
        if isinstance(content, list):
            content = [
                {"idx": n, "path": path if n else "", "type": f"a.models.{path.split('_')[-1]}"}
                for n, path in enumerate(content)
            ]
        (base / name).write_text(json.dumps(content))
    warned = add_formats(model, ["sentence-transformers"], base=base)
    assert len(warned) == bool(words)
    assert all(word in " ".join(warned) for word in words.split(" … "))
    (base / "modules.json").write_text("[")
    words = "cannot read … modules.json … correct or remove it"
    expect_refused(words, add_formats, model, ["sentence-transformers"], base=base)


def test_what_cannot_be_added(tmp_path, monkeypatch):
    expect_refused("unknown format 'onx' … did you mean", check_formats, ["onx"])
    expect_refused("no config.json", add_formats, tmp_path, ["sentence-transformers"])
    monkeypatch.setattr("layerscout.models.formats.find_spec", lambda name: None)
    expect_refused("pip install 'layerscout[onnx]'", check_formats, ["onnx"])
    assert check_formats(["sentence-transformers"] * 2) == ("sentence-transformers",)


@pytest.mark.whole
@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_a_graph_predicts_what_the_model_does(family, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    folder = tiny_checkpoint(tmp_path / "model", family, classes=3)
    # With extra outputs, as some published configurations ask for them, and the graph has not.
    change_json(folder / "config.json", output_hidden_states=True, output_attentions=True)
    add_formats(folder, ["onnx"])
    session = runtime.InferenceSession(str(folder / "onnx" / "model.onnx"))
    inputs = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    [found] = session.run(None, {name: part.numpy() for name, part in inputs.items()})
    with torch.no_grad():
        expected = AutoModelForSequenceClassification.from_pretrained(folder)(**inputs).logits
    assert [output.name for output in session.get_outputs()] == ["logits"]
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


def test_a_graph_that_is_off_is_left_out(tmp_path, monkeypatch):
    folder = tiny_checkpoint(tmp_path / "model", "bert", classes=3)
    monkeypatch.setattr("layerscout.models.formats.find_spec", lambda name: sys)
    write = lambda model, inputs, file: file.write_bytes(b"graph")  # noqa: E731
    monkeypatch.setattr("layerscout.models.formats._export_graph", write)
    for off, message in ((0.1, r"are off by 0\.1"), (float("nan"), "are off by nan")):
        monkeypatch.setattr("layerscout.models.formats._compare", lambda *_, off=off: off)
        with pytest.raises(LayerscoutError, match=message):
            add_formats(folder, ["onnx"])
        assert not (folder / "onnx" / "model.onnx").exists()
