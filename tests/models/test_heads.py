"""The head by itself against the classifier that it is of, for every family."""

import pytest
import torch

from layerscout.models import Encoder, Head, make_classifier, make_family_head
from layerscout.plans import Plan
from tiny import SENTENCES
from tuned import copied, differing, load

NAMES = ("bad", "fair", "good")


def test_equals_the_head_of_the_classifier(encoder):
    tokens = encoder.tokenize(SENTENCES[:5])
    inputs = encoder.batch(tokens, torch.arange(5).numpy())
    whole = make_classifier(encoder, Plan((), encoder.blocks), NAMES, seed=3)
    before = copied(encoder.model)
    head = make_family_head(encoder, NAMES, seed=3)
    with torch.no_grad():
        places = torch.from_numpy(
            tokens.find_head_tokens(encoder.family.reads, encoder.tokenizer.pad_token_id)
        )
        state = encoder.cut(inputs, encoder.blocks)[torch.arange(5), places]
        torch.testing.assert_close(head.eval()(state), whole(**inputs).logits)
    sizes = {name: p.numel() for name, p in head.named_parameters()}
    assert not [name for name in sizes if "embeddings" in name or "layer." in name]
    head(state).sum().backward()
    torch.optim.SGD(head.parameters(), 1.0).step()
    assert not differing(before, copied(encoder.model))


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_tuned_head_is_drawn_anew_for_every_seed(family, tmp_path):
    # Xie et al. 2022 probe tuned models too, with five seeds (§4, §4.1, Figs. 12 and 13).
    plain = load(tmp_path, family)
    model = make_classifier(plain, Plan((), plain.blocks), NAMES, seed=3)
    for folder in (model, plain.tokenizer):
        folder.save_pretrained(tmp_path / "tuned")
    encoder = Encoder.load(tmp_path / "tuned")
    learned = Head(model, plain.family.final_norm).state_dict()
    drawn = [make_family_head(encoder, NAMES, seed=s).state_dict() for s in (3, 3, 4)]
    weights = [name for name, tensor in learned.items() if tensor.ndim > 1]
    assert len(weights) == 2  # a dense layer and the output
    for name in weights:
        first, again, other = (head[name] for head in drawn)
        assert torch.equal(first, again) and not torch.equal(first, other)
        if family == "bert" and "pooler" in name:  # drawn too, since tuning has changed it
            assert not torch.equal(first, learned[name])
    # Without a task that it has learned, a checkpoint's own parts stay.
    before = [make_family_head(plain, NAMES, seed=s).state_dict() for s in (3, 4)]
    same = {name for name in weights if torch.equal(before[0][name], before[1][name])}
    assert same == ({"model.bert.pooler.dense.weight"} if family == "bert" else set())
