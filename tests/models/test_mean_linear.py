"""The linear classifier on the mean: what it computes, trains and saves, for every family."""

import numpy as np
import pytest
import torch

from layerscout.data import Targets
from layerscout.models import (
    load_tuned,
    locate_parameters,
    make_classifier,
    make_trainable,
    save_trained,
)
from layerscout.plans import make_plan
from layerscout.states import Examples, compute_logits
from tiny import SENTENCES
from tuned import NAMES, cheaply, copied, differing, fitted, labels_for, load, task_of


@pytest.mark.parametrize("notation", ["(3, 3, 3)", "full"])
def test_it_is_linear_in_the_mean_of_the_tokens(encoder, notation):
    encoder, plan = fitted(encoder, notation)
    model = make_classifier(encoder, plan, NAMES, classifier="mean-linear")
    tokens = encoder.tokenize(SENTENCES)
    rows = np.arange(5)
    inputs = encoder.batch(tokens, rows)
    with torch.no_grad():
        found = model(**inputs).logits
        states = encoder.cut(inputs, plan.head)
        if encoder.family.final_norm:
            states = encoder.model.get_submodule(encoder.family.final_norm)(states)
    layer = model.classifier
    for row, length in enumerate(tokens.lengths[:5]):
        mean = states[row, :length].mean(dim=0)
        assert torch.allclose(found[row], layer.weight @ mean + layer.bias, atol=1e-5)


def test_the_layer_alone_is_new(encoder):
    model = make_classifier(
        encoder, make_plan("full", encoder.blocks), NAMES, classifier="mean-linear"
    )
    head = {name for name, place in locate_parameters(model).items() if place == "head"}
    final = f"encoder.{encoder.family.final_norm}."
    norm = {name for name, _ in model.named_parameters() if name.startswith(final)}
    assert head == {"classifier.weight", "classifier.bias"} | norm
    shape = encoder.shape(len(NAMES), classifier="mean-linear")
    assert shape.parameters.total == sum(p.numel() for p in model.parameters())
    assert shape.parameters.head == 16 * 3 + 3 + 16 * len(norm)
    own = encoder.model.state_dict()
    for name, tensor in model.state_dict().items():
        if name.startswith("encoder."):
            assert torch.equal(tensor, own[name.removeprefix("encoder.")])


@pytest.mark.parametrize("notation", ["(3, 4, 4)", "head:3"])
def test_from_the_cut_it_gives_the_same(encoder, notation):
    encoder, plan = fitted(encoder, notation)
    model = make_classifier(encoder, plan, NAMES, classifier="mean-linear")
    tokens, labels, rows = encoder.tokenize(SENTENCES[:6]), labels_for(6), np.arange(6)
    cut = Examples.prepare(encoder, plan, tokens, Targets.of(labels), classifier="mean-linear")
    alone = not plan.tuned and encoder.family.final_norm is None
    assert cut.trunk is not None and cut.trunk.reads == ("mean" if alone else None)
    with torch.no_grad():
        found = compute_logits(encoder, model, cut, rows)
        whole = compute_logits(encoder, model, Examples(tokens, Targets.of(labels), None), rows)
    assert torch.allclose(found, whole, atol=1e-5)


@pytest.mark.parametrize(
    ("plan", "method"),
    [("full", "full"), ("(3, 3, 3)", "full"), ("(3, 3, 3)", "adapter"), ("(3, 3, 3)", "lora")],
)
def test_what_is_saved_is_loaded_again(tmp_path, method, plan):
    bert = load(tmp_path / "bert")
    result = cheaply(bert, task_of(), plan, classifier="mean-linear", method=method)
    assert result.content["settings"]["classifier"] == "mean-linear"
    result.save(tmp_path / "out")
    card = (tmp_path / "out" / "model" / "README.md").read_text()
    assert ("layerscout.load" if method == "adapter" else "SentenceTransformer") in card
    assert not differing(copied(load_tuned(tmp_path / "out" / "model")[1]), copied(result.model))


def test_a_folder_of_the_former_form_is_still_loaded(tmp_path):
    bert = load(tmp_path / "bert")
    model = make_classifier(bert, make_plan("(3, 3, 3)", 4), NAMES, classifier="mean-linear")
    trainable = make_trainable(model, "top:1", "full")
    options = {"classifier": "mean-linear", "max_length": 64}
    save_trained(trainable, bert, tmp_path / "former", **options)
    assert not differing(copied(load_tuned(tmp_path / "former")[1]), copied(model))


def test_tamkins_preset_asks_for_it(tmp_path):
    bert = load(tmp_path / "bert")
    options = {"preset": "tamkin2020", "epochs": 1, "learning_rate": None, "batch_size": None}
    settings = cheaply(bert, task_of(), "top:1", **options).content["settings"]
    assert settings["classifier"] == "mean-linear" and settings["schedule"] == "constant"
    assert settings["batch_size"] == 8 and settings["epochs"] == 1 and settings["keep"] == "last"
