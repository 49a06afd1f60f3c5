"""The head by itself against the classifier that it is of, for every family."""

import pytest
import torch

from layerscout.models.classifiers import make_classifier
from layerscout.models.heads import make_family_head
from layerscout.plans.plan import Plan
from tiny import EACH_FAMILY, SENTENCES
from tuned import load

NAMES = ("bad", "fair", "good")


@pytest.mark.parametrize("family", EACH_FAMILY)
def test_equals_the_head_of_the_classifier(family, tmp_path):
    encoder = load(tmp_path, family)
    tokens = encoder.tokenize(SENTENCES[:5])
    inputs = encoder.batch(tokens, torch.arange(5).numpy())
    whole = make_classifier(encoder, Plan((), encoder.blocks), NAMES, seed=3)
    before = {name: tensor.clone() for name, tensor in encoder.model.state_dict().items()}
    head = make_family_head(encoder, NAMES, seed=3)
    with torch.no_grad():
        places = torch.from_numpy(
            tokens.find_read(encoder.family.reads, encoder.tokenizer.pad_token_id)
        )
        state = encoder.cut(inputs, encoder.blocks)[torch.arange(5), places]
        torch.testing.assert_close(head.eval()(state), whole(**inputs).logits)
    sizes = {name: p.numel() for name, p in head.named_parameters()}
    assert not [name for name in sizes if "embeddings" in name or "layer." in name]
    head(state).sum().backward()
    torch.optim.SGD(head.parameters(), 1.0).step()
    after = encoder.model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
