"""Tuning after edits: what is trained, at which rate, and what the files say of it."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import layerscout as ls
from inputs import expect_refused
from layerscout.errors import UnfinishedError
from layerscout.models import Encoder, apply_edits, make_classifier
from layerscout.plans import EditSpec, Settings, make_edits
from layerscout.tuning.training import train
from tiny import tiny_checkpoint
from tuned import cheaply, copied, differing, examples_of, labels_for, task_of

TASK = task_of(n=16, held=6)


def test_an_edited_model_is_tuned_and_loads_everywhere(bert, tmp_path):
    found = cheaply(bert, TASK, "top:1", edits="skip:2 + reinit:3")
    assert found.plan.notation == "(3, 3, 3)"  # blocks are counted as the edits left them
    found.save(tmp_path)
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["model"]["editing"] == {
        "edits": "skip:2 + reinit:3",
        "blocks": 4,
        "seed": 0,
        "keep_layer_norm": False,
        "as_released": False,
        "order": [1, 3, 4],
        "fresh": [3],
    }
    assert content["model"]["blocks"] == 3
    assert "skip:2 + reinit:3" in (tmp_path / "model" / "README.md").read_text()
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    texts = list(TASK.validation.texts)
    with torch.no_grad():
        logits = again(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    np.testing.assert_allclose(logits, np.array(list(found.predictions["logits"])), atol=1e-5)


def test_what_is_not_tuned_stays_as_the_edits_left_it(bert):
    found = cheaply(bert, TASK, "(3, 3, 4)", edits="reinit:2")
    expected = apply_edits(bert, EditSpec(make_edits("reinit:2"), 4)).model.state_dict()
    tuned = {
        name.removeprefix("bert."): tensor
        for name, tensor in found.model.state_dict().items()
        if name.startswith("bert.") and "pooler" not in name
    }
    assert {name for name in tuned if not torch.equal(tuned[name], expected[name])} <= {
        name for name in tuned if name.startswith("encoder.layer.2.")
    }


def test_the_whole_head_is_drawn_where_blocks_are(bert):
    assert cheaply(bert, TASK, "full", edits="reinit:4", epochs=1).content["settings"]["fresh_head"]
    for options in ({"edits": "skip:2"}, {"edits": "reinit:4", "as_released": True}):
        found = cheaply(bert, TASK, "full", epochs=1, **options)
        assert not found.content["settings"]["fresh_head"]


def test_blocks_drawn_anew_may_learn_faster(bert):
    """One step of Adam moves by the rate: five times as far in the block that was drawn."""
    encoder = apply_edits(bert, EditSpec(make_edits("reinit:3"), 4))
    plan = ls.Plan(range(1, 5), 4).on(4)
    examples = examples_of(encoder, plan, labels_for(4))

    def moved(factors):
        model = make_classifier(encoder, plan, ("bad", "fair", "good"))
        before = copied(model)
        train(
            encoder,
            model,
            examples,
            examples,
            learning_rate=1e-3,
            seed=0,
            settings=Settings(epochs=1, batch_size=4, schedule="constant", warmup=0),
            factors={name: factors for name in before if "layer.2." in name},
        )
        after = model.state_dict()
        return {name: (after[name] - before[name]).abs().max().item() for name in before}

    slow, fast = moved(1.0), moved(5.0)
    for name, distance in slow.items():
        if "key.bias" in name:  # whose gradient is rounding
            continue
        expected = 5 * distance if "layer.2." in name else distance
        assert fast[name] == pytest.approx(expected, rel=1e-3), name


def test_the_factor_reaches_the_blocks_that_were_drawn(bert, monkeypatch):
    from layerscout.tuning import stages

    given = []
    whole = stages.train

    def noted(*arguments, **options):
        given.append(options["factors"])
        return whole(*arguments, **options)

    monkeypatch.setattr(stages, "train", noted)
    cheaply(bert, TASK, "full", edits="permute:2,1,3,4 + reinit:1", reinit_rate_factor=5, epochs=1)
    assert set(given[0].values()) == {5.0}
    assert all(".layer.0." in name for name in given[0])
    cheaply(bert, TASK, "top:1", edits="reinit:1", epochs=1)
    assert given[1] == {}


def test_edits_may_stand_before_the_plan(bert):
    one = cheaply(bert, TASK, "reinit:3 + skip:1 + top:1", epochs=1)
    other = cheaply(bert, TASK, "top:1", edits="reinit:3 + skip:1", epochs=1)
    assert one.plan == other.plan
    assert one.content["model"]["editing"] == other.content["model"]["editing"]
    assert not differing(copied(one.model), copied(other.model))


def test_a_plan_in_a_folder_with_a_plus_is_a_file(bert, tmp_path):
    path = tmp_path / "a+b" / "plan.json"
    path.parent.mkdir()
    path.write_text(json.dumps(ls.Plan([4], 4).as_dict()))
    assert cheaply(bert, TASK, str(path), epochs=1).plan.notation == "(4, 4, 4)"


def test_the_seed_draws_the_weights(bert):
    blocks = [
        cheaply(bert, TASK, "top:1", edits="reinit:1", seed=seed, epochs=1).model.state_dict()
        for seed in (0, 0, 1)
    ]
    name = "bert.encoder.layer.0.output.dense.weight"
    assert torch.equal(blocks[0][name], blocks[1][name])
    assert not torch.equal(blocks[0][name], blocks[2][name])


def test_adapters_over_an_edited_base_are_loaded_again(tmp_path):
    base = Encoder.load(tiny_checkpoint(tmp_path / "base", "bert"))
    found = cheaply(base, TASK, "top:1", method=ls.Adapter(4), edits="permute:3 + skip:2")
    found.save(tmp_path / "out")
    again = ls.load(tmp_path / "out" / "model").model
    assert not differing(copied(found.model), copied(again))


def test_a_training_of_other_edits_is_not_resumed(bert, tmp_path, monkeypatch):
    from layerscout.tuning import run as tuning

    monkeypatch.setattr(tuning, "make_result", lambda *_, **__: 1 / 0)
    folder = tmp_path / "snapshots"
    with pytest.raises(UnfinishedError):
        cheaply(bert, TASK, "top:1", edits="reinit:4", snapshots=folder)
    expect_refused(
        "only the same training can be resumed … edits",
        *(cheaply, bert, TASK, "top:1"),
        edits="reinit:4",
        keep_layer_norm=True,
        snapshots=folder,
        resume=True,
    )


def test_a_scan_from_before_the_edits_is_warned_of(bert):
    scan = ls.scan(bert, TASK, progress=False, scores="variability_ratio", examples="all")
    found = cheaply(bert, TASK, "best-down:1@top", scan=scan, edits="reinit:4", epochs=1)
    assert any("without the present edits of its blocks" in warning for warning in found.warnings)
