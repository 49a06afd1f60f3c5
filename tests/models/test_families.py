"""A new family is a row of the table: nothing else has to know it."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
)

import layerscout as ls
from layerscout.models import FAMILIES, Encoder, eval_mode, make_trainable, unload
from layerscout.plans import Work, cost, make_method, make_plan
from telling import telling_task
from tiny import SENTENCES, tiny_checkpoint
from tuned import cheaply, copied, differing


class TrunkConfig(BertConfig):
    """A configuration under a type that layerscout has never heard of."""

    model_type = "trunk-bert"


class TrunkModel(BertModel):
    """BERT with its blocks at another path."""

    config_class = TrunkConfig

    def __init__(self, config, add_pooling_layer=True):
        super().__init__(config, add_pooling_layer)
        self.trunk = self._modules.pop("encoder")

    @property
    def encoder(self):
        return self.trunk


class TrunkClassifier(BertForSequenceClassification):
    """Its classifier."""

    config_class = TrunkConfig

    def __init__(self, config):
        super().__init__(config)
        self.bert = TrunkModel(config)
        self.post_init()


@pytest.fixture(scope="module")
def new_family(tmp_path_factory):
    """Make transformers know the classes, layerscout the row; give a checkpoint."""
    folder = tmp_path_factory.mktemp("families") / "trunk-bert"
    AutoConfig.register("trunk-bert", TrunkConfig)
    AutoModel.register(TrunkConfig, TrunkModel)
    AutoModelForSequenceClassification.register(TrunkConfig, TrunkClassifier)
    tiny_checkpoint(folder, "bert")
    content = json.loads((folder / "config.json").read_text())
    config = TrunkConfig(**{k: v for k, v in content.items() if k != "model_type"})
    torch.manual_seed(0)
    TrunkModel(config).save_pretrained(folder)
    with pytest.MonkeyPatch.context() as patch:
        table = {**FAMILIES, "trunk-bert": replace(FAMILIES["bert"], blocks="trunk.layer")}
        for name, module in list(sys.modules.items()):
            if name.startswith("layerscout.") and "FAMILIES" in vars(module):
                patch.setattr(module, "FAMILIES", table)
        yield folder


@pytest.fixture
def encoder(new_family):
    return Encoder.load(new_family)


def test_it_is_scanned_truncated_and_edited(encoder, new_family, tmp_path):
    inputs = encoder.batch(encoder.tokenize(SENTENCES), np.arange(4))
    with eval_mode(encoder.model):
        expected = encoder.model(**inputs, output_hidden_states=True).hidden_states
        for cut, state in enumerate(expected):
            torch.testing.assert_close(encoder.cut(inputs, cut), state)
            torch.testing.assert_close(encoder.resume(inputs, state, cut), expected[-1])
    scan = ls.scan(encoder, telling_task(n=60), scores=["variability_ratio"], progress=False)
    assert scan.model["family"] == "trunk-bert"
    assert None not in scan.scores["variability_ratio"].values
    ls.truncate(new_family, 2, tmp_path / "short")
    short = Encoder.load(tmp_path / "short")
    torch.testing.assert_close(short.states(SENTENCES), encoder.states(SENTENCES)[:3])
    with ls.edit(encoder.model, "skip:2 + reinit:3"):
        assert encoder.blocks == 3
    assert encoder.blocks == 4


@pytest.mark.parametrize("method", ["full", "adapter", "lora", "prefix-tuning"])
def test_it_is_tuned_by_every_method(encoder, method):
    result = cheaply(encoder, telling_task(n=40), "(3, 4, 4)", method=method, epochs=1)
    assert result.content["parameters"]["trainable"] > 0
    plan, shape = make_plan("(3, 4, 4)", 4), encoder.shape(2)
    found = cost(plan, shape, Work(1, 0, 8, 1), make_method(method))
    assert found.trainable == result.content["parameters"]["trainable"]
    if method in ("adapter", "prefix-tuning"):
        before = copied(ls.build(encoder, "top:2"))
        model = make_trainable(ls.build(encoder, "top:2"), "top:2", method).model
        assert not differing(before, copied(unload(model)))
