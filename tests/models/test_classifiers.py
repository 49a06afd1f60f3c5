"""Heads of classifiers: from which outputs a new one starts, and that a tuned one is kept."""

import numpy as np
import pytest
import torch

from layerscout.data import make_targets
from layerscout.models import Encoder, make_classifier
from layerscout.plans import make_plan
from tiny import inputs_of, logits_of, tiny_checkpoint
from tuned import NAMES, cheaply, differing, several_task, task_of, words_task

SHARES = np.array([0.9, 0.06, 0.04])


@pytest.mark.parametrize("kind", ["multi_label_classification", "token_classification"])
def test_a_new_head_starts_from_how_often_labels_occur(encoder, kind):
    """Without its last weights it predicts just that; with zeros it said ½ of every label."""
    plan = make_plan("top:1", encoder.blocks)
    try:
        plain = make_classifier(encoder, plan, NAMES, kind=kind)
    except Exception:
        pytest.skip("the library has no such head")
    model = make_classifier(encoder, plan, NAMES, kind=kind, shares=SHARES)
    biases = [
        name
        for name, p in model.named_parameters()
        if name.endswith("bias") and not torch.equal(p, plain.get_parameter(name))
    ]
    if not biases:  # decoders have none
        last = [m for m in model.modules() if getattr(m, "out_features", None) == len(NAMES)]
        assert [m.bias for m in last] == [None]
        return
    [bias] = biases
    weight = model.get_parameter(bias.removesuffix("bias") + "weight")
    weight.data.zero_()
    logits = logits_of(model, inputs_of(encoder, 2))
    several = kind == "multi_label_classification"
    found = logits.sigmoid() if several else logits.softmax(dim=-1)
    np.testing.assert_allclose(found.numpy(), np.broadcast_to(SHARES, found.shape), rtol=1e-5)


@pytest.mark.parametrize("task", [several_task(), words_task()], ids=["labels", "words"])
def test_a_head_that_was_tuned_goes_on_from_where_it_was(tmp_path, task):
    base = Encoder.load(tiny_checkpoint(tmp_path / "base", "bert"), device="cpu")
    cheaply(base, task, "full", epochs=1).save(tmp_path / "out")
    tuned = Encoder.load(tmp_path / "out" / "model", device="cpu")
    plan = make_plan("full", tuned.blocks)
    shares = np.full(len(task.labels), 0.01)
    one, other = (
        make_classifier(tuned, plan, task.labels, kind=task.kind, shares=some).state_dict()
        for some in (None, shares)
    )
    assert not differing(one, other)


def test_shares_are_those_of_training():
    several, words = several_task(), words_task()
    found = make_targets(several.train, several.kind).count_shares(several)
    counts = several.train.labels.sum(axis=0)
    np.testing.assert_allclose(found, (counts + 0.5) / (len(several.train) + 1))
    found = make_targets(words.train, words.kind, words.labels).count_shares(words)
    counts = [np.count_nonzero(words.train.labels == k) for k in range(len(words.labels))]
    np.testing.assert_allclose(found, (np.array(counts) + 0.5) / (len(words.train.labels) + 1))
    one = task_of()
    assert make_targets(one.train, one.kind).count_shares(one) is None  # as the papers start
