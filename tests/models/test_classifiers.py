"""Heads of classifiers: from which outputs a new one starts, and that a tuned one is kept."""

import numpy as np
import pytest
import torch

from inputs import expect_refused
from layerscout.data import make_targets
from layerscout.errors import InputError
from layerscout.models import (
    Encoder,
    build,
    export,
    make_classifier,
    match_columns,
    note_classes,
    scale_logits,
)
from layerscout.plans import make_plan
from tiny import change_json, inputs_of, logits_of, tiny_checkpoint
from tuned import NAMES, cheaply, copied, differing, several_task, task_of, words_task

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


KINDS = ("classification", "token_classification", "multiple_choice")


def test_logits_are_scaled_in_the_last_layer(encoder):
    """XLM-RoBERTa lists its pooler after its classifier, which a factor then missed."""
    plan, texts = make_plan("top:1", encoder.blocks), inputs_of(encoder, 2)
    for kind in KINDS:
        choices = kind == "multiple_choice"
        inputs = {name: values[:, None] if choices else values for name, values in texts.items()}
        try:
            model = make_classifier(encoder, plan, NAMES, kind=kind)
        except InputError:  # the library has no such head
            continue
        before = logits_of(model, inputs)
        scale_logits(model, 0.5)
        torch.testing.assert_close(logits_of(model, inputs), before / 2)


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


ORDER, TURNED = ("b", "c", "a"), [2, 0, 1]  # where a, b, c are among them


def with_head(encoder, folder, kind="classification", names=ORDER):
    """Save an encoder with a head for these classes; return the model, and it loaded again."""
    model = make_classifier(encoder, make_plan("full", encoder.blocks), names, kind=kind, seed=1)
    export(model, encoder.tokenizer, folder, "", max_length=32, dtype="float32")
    return model, Encoder.load(folder, device="cpu")


@pytest.mark.parametrize(
    "kind", ["classification", "multi_label_classification", "token_classification"]
)
def test_rows_of_a_head_follow_the_names_of_the_classes(encoder, tmp_path, kind):
    try:
        model, tuned = with_head(encoder, tmp_path / "out", kind)
    except InputError:
        pytest.skip("the library has no such head")
    plan = make_plan("full", encoder.blocks)
    again, same, new = (
        make_classifier(tuned, plan, names, kind=kind)
        for names in (("a", "B", "c"), ORDER, ("a", "b", "d"))
    )
    inputs = inputs_of(encoder, 2)
    first = logits_of(model, inputs)
    torch.testing.assert_close(logits_of(again, inputs), first[..., TURNED])
    torch.testing.assert_close(logits_of(same, inputs), first)
    columns, note = match_columns("x", again.config, ORDER, kind)
    assert columns == [1, 2, 0] and note is None
    changed = differing(copied(model), copied(new))
    assert changed == differing(copied(model), copied(again))  # the output layer alone
    assert note_classes(tuned, ("c", "b", "a"), kind, 0) == []
    assert note_classes(encoder, ORDER, kind, 0) == []


GENERIC = ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.parametrize(
    ("theirs", "ours", "places", "words"),
    [
        (("neutral", "GOOD", "bad"), ("bad", "good", "Neutral"), [2, 1, 0], ""),
        (GENERIC, ("bad", "fair", "good"), [0, 1, 2], "LABEL_0 as bad, LABEL_1 as fair"),
        (("bad", "fair", "good"), ("0", "1", "2"), [0, 1, 2], "bad as 0, fair as 1, good as 2"),
        (GENERIC, ("1", "2", "3"), [0, 1, 2], "LABEL_0 as 1, LABEL_1 as 2"),
        (GENERIC, ("0", "1", "2"), [0, 1, 2], ""),
        (("class 0", "class 1", "class 2"), GENERIC, [0, 1, 2], ""),
        (("2", "1", "0"), ("0", "1", "2"), [2, 1, 0], ""),
        (("1", "2", "3"), ("2", "3", "1"), [1, 2, 0], ""),
        (("1", "2", "3"), ("0", "1", "2"), [0, 1, 2], "1 as 0, 2 as 1, 3 as 2"),
        (("bad", "fair", "good"), ("a", "b", "c"), None, "other classes (bad, fair, good)"),
        (("bad", "fair", "good"), ("bad", "fair", "best"), None, "other classes (bad, fair, good)"),
        (("LABEL_2", "LABEL_0", "LABEL_1"), ("0", "1", "2"), [1, 2, 0], ""),
        (("LABEL_3", "LABEL_1", "LABEL_2"), ("1", "2", "3"), [1, 2, 0], ""),
        (("LABEL_2", "LABEL_1", "LABEL_0"), ("1", "2", "3"), None, "starts anew"),
        (("Bad", "bad", "good"), ("bad", "good", "Bad"), [1, 2, 0], ""),
    ],
)
def test_other_matches_are_said(bert, tmp_path, theirs, ours, places, words):
    model, tuned = with_head(bert, tmp_path / "out", names=theirs)
    started = make_classifier(tuned, make_plan("full", 4), ours).classifier.weight
    before = model.classifier.weight
    notes = note_classes(tuned, ours, "classification", 0)
    assert [words in note and "out" in note for note in notes] == [True] * bool(words)
    if places is None:
        assert not torch.isin(started, before).any()
        expect_refused(
            "must be those of the task", match_columns, "x", model.config, ours, "classification"
        )
    else:
        assert torch.equal(started, before[places])
        columns, note = match_columns("x", model.config, ours, "classification")
        assert columns == places and (note is None) == (not words)


def test_names_that_only_label2id_has_are_read(bert, tmp_path):
    model, _ = with_head(bert, tmp_path / "out")
    config = {"id2label": dict(enumerate(GENERIC)), "label2id": {"c": 0, "a": 1, "b": 2}}
    change_json(tmp_path / "out" / "config.json", **config)
    tuned = Encoder.load(tmp_path / "out", device="cpu")
    started = make_classifier(tuned, make_plan("full", 4), ("a", "b", "c")).classifier.weight
    assert torch.equal(started, model.classifier.weight[[1, 2, 0]])


def test_build_says_what_it_does_with_a_head_for_other_classes(bert, tmp_path, caplog):
    with_head(bert, tmp_path / "out")
    for labels, words in ((["c", "b", "a"], ""), (None, ""), (["x", "y", "z"], "starts anew")):
        caplog.clear()
        build(tmp_path / "out", "full", labels=labels, num_labels=3)
        assert [words in line for line in caplog.messages] == [True] * bool(words)
