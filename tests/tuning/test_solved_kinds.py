"""Solved heads beside those on means: of words, and of the token that a family's head reads."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from conftest import whole_only
from inputs import expect_refused
from layerscout.data import evaluate, make_targets
from layerscout.scores import deal_groups, solve_head
from layerscout.states import pool_states
from layerscout.tuning import solving, tune
from layerscout.tuning.solving import deal
from tuned import choices_task, load, task_of, words_task


def judge_words(folder, words):
    """Run a saved model on each sentence; take what it says at the first piece of each word."""
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for sentence in words:
        text, options = " ".join(sentence), {"return_offsets_mapping": True}
        inputs = tokenizer(text, return_tensors="pt", **options)
        ends = inputs.pop("offset_mapping")[0, :, 1].tolist()
        with torch.no_grad():
            logits = model(**inputs).logits[0].double().numpy()
        starts = np.cumsum([0, *(len(word) + 1 for word in sentence[:-1])])
        first = [next(n for n, end in enumerate(ends) if end > start) for start in starts]
        found.append(logits[first])
    return model, np.concatenate(found)


def test_heads_of_many_words_are_chosen_by_some_folds_where_others_judge(bert, monkeypatch):
    asked = []

    def solve_some(states, y, folds, **options):
        asked.append(folds)
        return solve_head(states, y, folds, **options)

    monkeypatch.setattr("layerscout.scores.solve_head", solve_some)
    task, options = words_task(40, 20), {"progress": False, "max_steps": 1, "learning_rate": 1e-9}
    words = len(task.train.labels)
    for enough, count in ((words, 5), (words // 2, 3), (1, 2)):
        monkeypatch.setattr(solving, "CHOOSING", enough)
        free = tune(bert, task, "top:1", **options).content["free"]
        [beside] = asked
        assert [*np.unique(beside)] == [*range(-1 if count < 5 else 0, count)]
        assert beside.shape[1] == words and free["examples"] == len(task.validation.labels)
        asked.clear()
    tune(bert, task, "head:best", progress=False)  # which is judged by all words left out
    assert all([*np.unique(folds)] == [*range(5)] for folds in asked)


@pytest.mark.parametrize(
    "family",
    ["bert", "modernbert", *whole_only("distilbert", "electra", "deberta")],
)
def test_the_saved_head_of_words_is_the_solved_one(family, tmp_path):
    brought = {"classes": 2} if family == "modernbert" else {}  # with a dense layer that is its own
    encoder, task = load(tmp_path / family, family, **brought), words_task(60, 30)
    task = replace(task, test=task.validation)
    result = tune(encoder, task, "head:best", progress=False)
    result.save(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    solved = content["solved"]
    assert content["saved_as"] == "checkpoint" and solved["pooling"] == "first"
    assert solved["examples"] == solved["judged"] == 90 and solved["folds"] == 5
    model, logits = judge_words(tmp_path / "out" / "model", task.test.words)
    assert model.config.num_hidden_layers == solved["state"] == content["plan"]["head"]
    assert content["parameters"]["total"] == sum(p.numel() for p in model.parameters())
    rows = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    tested = np.stack(rows[rows["split"] == "test"]["logits"])
    np.testing.assert_allclose(logits, tested, atol=1e-3 * tested.std())

    # The head once more: on all words, the folds being of sentences.
    split = task.train.join(task.validation)
    answers = make_targets(split, task.kind, task.labels)
    tokens = encoder.tokenize_split(split)
    states = pool_states(encoder, tokens, ("first",), limit=0).states["first"]
    if family == "modernbert":
        read = model.get_submodule("head").double()
        norm = encoder.model.final_norm
        states = [norm(torch.from_numpy(state)).double() for state in states]
        states = [read(state).detach().numpy() for state in states]
    y, sentences = answers.labels, answers.tags.sentences
    deals = range(-(-500 // len(y)))
    folds = np.stack([deal_groups(y, n, sentences, groups=5, least=0) for n in deals])
    again = solve_head([*states][1:], y, folds, metric="entity_f1", classes=3, tags=answers.tags)
    assert again.state + 1 == solved["state"] and again.shrinkage == solved["shrinkage"]
    np.testing.assert_allclose(
        model.classifier.weight.detach().numpy(), again.head.weights, rtol=1e-3, atol=1e-3
    )
    left_out = np.stack(rows[rows["split"] != "test"]["logits"])
    np.testing.assert_allclose(left_out, again.held_out, atol=5e-3 * left_out.std())
    value = evaluate("entity_f1", y, left_out, tags=answers.tags)
    assert content["metrics"]["entity_f1"] == pytest.approx(value)


def test_words_of_rare_tags_and_single_sentences(bert):
    task = words_task(30, 10)
    rare = task.train.labels.copy()
    rare[rare == 2], rare[5] = 1, 2  # a tag of one word
    train = replace(task.train, labels=rare)
    content = tune(bert, replace(task, train=train), "head:best", progress=False).content
    assert np.isfinite(list(content["solved"]["losses"].values())).all()
    one = replace(task, train=task.train.take(np.array([0])))
    alone = tune(bert, one, "head:2", progress=False, against="(4, 4, 4)", epochs=1)
    assert "no head can be solved" not in " ".join(alone.warnings)


def test_words_of_tags_that_one_sentence_has_each(bert):
    """No word is kept aside."""
    sentences = [("a", "cat"), ("the", "dog", "sat"), ("we", "went"), ("red",), ("one", "house")]
    tags = [0, 0, 0, 1, 2]

    def split(own):
        words = [sentences[n] for n in own]
        labels = np.repeat([tags[n] for n in own], list(map(len, words)))
        return replace(base.train, texts=list(map(" ".join, words)), words=words, labels=labels)

    base = words_task(2, 1)
    task = replace(base, train=split([0, 1, 3]), validation=split([2, 4]))
    result = tune(bert, task, "head:best", progress=False)
    content = result.content
    assert content["solved"]["judged"] == 5 and len(result.predictions["word"]) == 10
    assert np.isfinite(list(content["solved"]["losses"].values())).all()


def test_a_text_with_a_class_of_its_own_is_never_left_out():
    """Whether or not another text has two labels; and of words any is."""
    own = np.repeat(np.arange(12), 2)
    labels = own % 2
    labels[own == 11] = 2
    for other in (0, 1):  # of the last row of text 0
        labels[1] = other
        folds = deal(labels, own)
        assert ((folds < 0) == (own == 11)).all()
        assert (folds[:, ::2] == folds[:, 1::2]).all()
        assert (deal(labels, own, words=True) >= 0).all()
    labels[1] = 3  # what is in a fold with a text is not learnt from without it
    assert ((deal(labels, own) < 0) == np.isin(own, [0, 11])).all()


def test_words_that_are_all_alike_are_one_line(bert):
    task = words_task(20, 10)
    splits = [
        replace(split, texts=["cat"] * len(split), words=[("cat",)] * len(split), labels=labels)
        for split, labels in ((task.train, np.arange(20) % 2), (task.validation, np.arange(10) % 2))
    ]
    task = replace(task, train=splits[0], validation=splits[1])
    expect_refused("no head can be solved", tune, bert, task, "head:best", progress=False)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {}),
        ("bert", {"classifier": "family"}),
        ("modernbert", {"classes": 2, "classifier_pooling": "mean"}),
        *whole_only(
            ("modernbert", {"classes": 2}),
            ("eurobert", {"classes": 2, "classifier_pooling": "mean"}),
            ("gpt2", {}),
            ("gemma2", {}),
        ),
    ],
)
def test_the_saved_head_of_a_family_is_the_solved_one(family, options, tmp_path):
    """On the token that it reads, or on the mean of all."""
    asked = {name: options[name] for name in options if name == "classifier"}
    brought = {name: options[name] for name in options.keys() - asked}
    encoder, task = load(tmp_path / family, family, **brought), task_of(60, 30, classes=3)
    task = replace(task, test=task.validation)
    tune(encoder, task, "head:best", progress=False, **asked).save(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    decoder = family in ("llama", "gpt2", "gemma2")
    read = {"mean": "mean-normed", None: "last" if decoder else "cls"}
    assert content["solved"]["pooling"] == read[options.get("classifier_pooling")]
    assert content["settings"]["classifier"] == "family" and content["saved_as"] == "checkpoint"
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "model").eval()
    assert content["parameters"]["total"] == sum(p.numel() for p in model.parameters())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "model")
    rows = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    tested = np.stack(rows[rows["split"] == "test"]["logits"])
    given = []
    layer = [m for m in model.modules() if isinstance(m, torch.nn.Linear)][-1]
    layer.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))

    def run(text):
        with torch.no_grad():
            said = model(**tokenizer(text, return_tensors="pt")).logits[0].double().numpy()
        read = given.pop()[0].double().numpy()
        return said, read[-1] if read.ndim == 2 else read

    logits = np.stack([run(text)[0] for text in task.test.texts])
    np.testing.assert_allclose(logits, tested, atol=2e-3 * tested.std())

    # The head once more, from what the saved model's own layer is given.
    split = task.train.join(task.validation)
    H = np.stack([run(text)[1] for text in split.texts])
    y, numbers = split.labels, {text: n for n, text in enumerate(dict.fromkeys(split.texts))}
    folds = deal(y, np.array([numbers[text] for text in split.texts]))
    bias = layer.bias is not None
    again = solve_head([H], y, folds, metric="accuracy", classes=3, bias=bias)
    assert again.shrinkage == content["solved"]["shrinkage"]
    assert bias != decoder
    np.testing.assert_allclose(
        H @ layer.weight.detach().double().numpy().T,
        H @ again.head.weights.T,
        atol=1e-2 * tested.std(),
    )


def test_the_saved_head_of_choices_is_the_solved_one(bert, tmp_path):
    task = choices_task(60, 30, choices=3)
    task = replace(task, test=task.validation)
    tune(bert, task, "head:best", progress=False).save(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert content["solved"]["examples"] == content["solved"]["judged"] == 90
    assert content["more"]["texts"]["examples"] == 90
    rows = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    assert rows["split"].tolist() == ["training"] * 60 + ["validation"] * 30 + ["test"] * 30
    model = AutoModelForMultipleChoice.from_pretrained(tmp_path / "out" / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "model")
    test = task.test
    inputs = tokenizer(test.texts, list(test.pairs), padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**{k: v.reshape(30, 3, -1) for k, v in inputs.items()}).logits.numpy()
    tested = np.stack(rows[rows["split"] == "test"]["logits"])
    np.testing.assert_allclose(logits, tested, atol=1e-3 * tested.std())
    assert not model.classifier.bias.any()


def test_examples_with_the_same_choices_are_left_out_together(bert):
    """Which is right is drawn: who has seen an example knows its copy's answer, and no other."""
    task = choices_task(8, 3, choices=3)
    train, order = task.train, np.arange(24).reshape(8, 3)[:, [1, 2, 0]].ravel()
    content = tune(
        bert, replace(task, validation=train.take(order)), "head:best", progress=False
    ).content
    assert content["solved"]["judged"] == 16
    assert content["metrics"]["accuracy"] < 0.5


def test_a_head_behind_random_layers_is_trained(tmp_path):
    """RoBERTa's encoder brings no dense layer for classes."""
    encoder = load(tmp_path, "roberta")
    options = {"progress": False, "measure": "metric", "classifier": "family"}
    assert tune(encoder, task_of(), "head:2", **options).content["solved"] is None
    expect_refused("head:best finds its state", tune, encoder, task_of(), "head:best", **options)
