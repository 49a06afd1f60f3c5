"""A whole training from the cut against one that cuts nothing, in float64."""

import pytest
import torch

from layerscout.data import Targets
from layerscout.models import make_classifier
from layerscout.plans import Settings
from layerscout.states import Examples, Trunk
from layerscout.tuning.training import train
from tiny import EACH_FAMILY, SENTENCES
from tuned import NAMES, NO_DROPOUT, fitted, labels_for, load, without_key_biases


def uncut(encoder, plan, labels, rows):
    """Make examples of which every step runs the whole model."""
    return Examples(encoder.tokenize(SENTENCES[rows]), Targets.of(labels), None)


def from_the_cut(encoder, plan, labels, rows):
    """Make examples with states at the cut, in the precision of the model."""
    tokens = encoder.tokenize(SENTENCES[rows])

    def read(at):
        with torch.no_grad():
            return encoder.cut(encoder.batch(tokens, at), plan.cut)

    trunk = Trunk(plan.cut, None, False, True, 0.0, 0, None, read)
    return Examples(tokens, Targets.of(labels), trunk)


@pytest.mark.parametrize("family", EACH_FAMILY)
def test_training_from_the_cut_is_training_of_the_whole(family, tmp_path):
    names = {
        "distilbert": ("dropout", "attention_dropout", "seq_classif_dropout"),
        "gpt2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
        "gpt_neox": ("attention_dropout", "hidden_dropout"),
        "phi3": ("attention_dropout", "resid_pdrop", "embd_pdrop"),
        "modernbert": ("attention_dropout", "embedding_dropout", "mlp_dropout"),
    }
    grouped = ("eurobert", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "olmo2")
    names |= dict.fromkeys(grouped, ("attention_dropout",))
    settings = dict.fromkeys(names.get(family, NO_DROPOUT), 0.0)
    encoder, plan = fitted(load(tmp_path / family, family, **settings), "(3, 3, 4)")
    encoder.model.double()
    found = []
    for make in (uncut, from_the_cut):
        model = make_classifier(encoder, plan, NAMES, seed=3).double()
        run, kept = train(
            encoder,
            model,
            make(encoder, plan, labels_for(12), slice(0, 12)),
            make(encoder, plan, labels_for(4, 1), slice(12, 16)),
            learning_rate=1e-3,
            seed=0,
            settings=Settings(epochs=2, batch_size=4),
        )
        found.append((run.curve, without_key_biases(kept)))
    (curve, whole), (from_cut_curve, from_cut) = found
    assert [epoch.training_loss for epoch in from_cut_curve] == pytest.approx(
        [epoch.training_loss for epoch in curve], rel=1e-6
    )
    assert whole and all(torch.allclose(from_cut[n], whole[n], atol=1e-9) for n in whole)
