"""Heads that are solved in place of trained: which, how good, and what is saved of them."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from conftest import whole_only
from inputs import expect_refused
from layerscout.data import Task, evaluate, find_interval
from layerscout.models import Encoder
from layerscout.reporting import describe_calibration, describe_more, render_result
from layerscout.scanning import scan
from layerscout.scores import deal_groups, solve_head
from layerscout.states import pool_states
from layerscout.tuning import tune
from tiny import SENTENCES, tiny_checkpoint
from tuned import task_of


def task_by_words(kind="classes", n=60):
    """Make a task whose labels depend on how often a word occurs."""
    rng = np.random.default_rng(0)
    words = sorted(set(" ".join(SENTENCES).split()))
    texts, counts = [], []
    for _ in range(2 * n):
        drawn = rng.choice(words, rng.integers(4, 9))
        texts.append(" ".join(drawn))
        counts.append(int((drawn == words[3]).sum() + 2 * (drawn < words[9]).mean() > 0.6))
    labels = {
        "classes": [("no", "yes")[c] for c in counts],
        "numbers": [c + len(t) / 50 for c, t in zip(counts, texts, strict=True)],
        "several": [["a"] * c + ["b"] * (len(t) % 2) for c, t in zip(counts, texts, strict=True)],
    }[kind]
    held = (texts[n:], labels[n:])
    return Task.from_lists(
        texts[:n], labels[:n], name=kind, validation=held, regression=kind == "numbers"
    )


def predict(folder, texts):
    """Run a saved model as any user of transformers would."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        return model, model(**inputs).logits.double().numpy()


def solve_again(encoder, task, *splits):
    """Solve a head on some splits of a task, from the formula's own functions."""
    texts = [text for split in splits for text in split.texts]
    y = np.concatenate([split.labels for split in splits])
    tokens = encoder.tokenize_split(replace(splits[0], texts=texts, labels=y, origin=None))
    H = pool_states(encoder, tokens, ("mean-all",), limit=0).states["mean-all"]
    H = np.asarray(H, np.float64)
    H -= H.mean(axis=-1, keepdims=True)
    H /= H.std(axis=-1, keepdims=True)
    deals = min(5, -(-500 // len(y)))
    folds = np.stack([deal_groups(y, seed, groups=5, least=0) for seed in range(deals)])
    return H, y, solve_head(H[1:], y, folds, metric=task.metric)


@pytest.mark.parametrize("kind", ["classes", "numbers", "several"])
def test_the_saved_model_is_the_head_solved_on_all_labelled_rows(bert, kind, tmp_path):
    task = task_by_words(kind)
    task = replace(task, test=task.validation.take(np.arange(20)))
    result = tune(bert, task, "head:best", progress=False)
    result.save(tmp_path)
    content = json.loads((tmp_path / "result.json").read_text())
    solved, run = content["solved"], content["runs"][0]
    assert content["saved_as"] == "checkpoint" and content["settings"]["save_dtype"] == "float32"
    assert run["learning_rate"] is None and len(run["curve"]) == 1
    assert (
        content["plan"]["head"]
        == solved["state"]
        == int(min(solved["losses"], key=solved["losses"].get))
    )
    H, y, again = solve_again(bert, task, task.train, task.validation)
    assert again.state + 1 == solved["state"] and again.shrinkage == solved["shrinkage"]
    model, logits = predict(tmp_path / "model", [*task.train.texts, *task.validation.texts])
    expected = again.head(H[solved["state"]])
    assert np.abs(logits - expected).max() < 5e-3 * expected.std()
    assert model.config.num_hidden_layers == solved["state"] + 1
    card = (tmp_path / "model" / "README.md").read_text().splitlines()
    assert [line[:7] for line in card if "that averages" in line or "FLOPs" in line] == [
        "- Train",
        "- Cost:",
    ]

    # What is reported is of rows left out, whichever split they are from.
    assert (solved["examples"], solved["judged"], solved["folds"]) == (120, 120, 5)
    value = evaluate(task.metric, y, again.held_out)
    assert content["metrics"][task.metric] == pytest.approx(value, abs=1e-3)
    more = content["more"]["texts"]
    assert (more["state"], more["examples"], more["more"]) == (solved["state"], 120, 100)
    assert f"- Outlook: {describe_more(content)}" in card
    assert "What more would bring" in render_result(content)
    low, high = content["interval"]
    wide = find_interval(task.metric, y, again.held_out, folds=5)
    assert (low, high) == pytest.approx(wide, abs=1e-3)
    rows = pd.read_parquet(tmp_path / "predictions.parquet")
    assert rows["split"].tolist() == ["training"] * 60 + ["validation"] * 60 + ["test"] * 20
    assert rows["row"].tolist() == [*range(60), *range(60), *range(20)]
    left_out = rows[rows["split"] != "test"]
    column = "prediction" if kind == "numbers" else "logits"
    said = np.stack(left_out[column]).reshape(120, -1)
    np.testing.assert_allclose(said, again.held_out, atol=5e-3)


def test_rows_of_one_text_are_left_out_together(bert):
    """Of labels that nothing tells, a head that has seen a text in the other split knows all."""
    texts = list(task_by_words(n=40).train.texts)
    labels = np.random.default_rng(0).permutation(["x", "y"] * 20).tolist()
    more = [f"{text} {text}" for text in texts[:10]]
    task = Task.from_lists(texts, labels, validation=(texts + more, [*labels, *["y"] * 10]))
    assert "validation rows are also training rows" in task.warnings[0]
    content = tune(bert, task, "head:2", progress=False).content
    assert content["solved"]["judged"] == 90
    assert content["metrics"]["accuracy"] < 0.65
    # So no figure is too good, and each is of rows that are left out of all.
    assert not any("also training rows" in line for line in content["warnings"])
    assert content["majority"] == pytest.approx(50 / 90)
    said, after = describe_calibration(content), content["calibration"]["validation"]["after"]
    assert "(expected calibration error, left out)" in said
    assert f"log loss {after['nll']:.3f}" in said
    page = render_result(content)
    assert "of the left-out rows" in page and "mean of a bin (left out)" in page
    # Rows of one file have one numbering; of two, it is said which.
    named = re.compile(r">(training|validation) \d+<")
    assert named.search(page)
    settings = content["settings"] | {"validation": 0.1}
    assert not named.search(render_result(content | {"settings": settings}))


@pytest.mark.parametrize("labels", [[n % 12 for n in range(24)], list("abab"), [[], ["a"], ["b"]]])
def test_few_rows_are_enough_for_a_head_that_is_solved(bert, labels):
    texts = task_by_words("numbers").train.texts[: len(labels)]
    task = Task.from_lists(texts, labels)
    result = tune(bert, task, "head:best", progress=False)
    solved = result.content["solved"]
    assert solved["examples"] == solved["judged"] == len(labels)
    assert sorted(result.predictions["text"]) == sorted(texts)
    # And for what is trained: of few rows, one is held out.
    content = tune(bert, task, "head:2", progress=False, epochs=1, measure="metric").content
    assert content["settings"]["validation_examples"] == max(1, len(labels) // 10)


def test_a_head_alone_is_solved_unless_an_option_says_how_to_train(bert):
    task = task_of()
    options = {"progress": False, "measure": "metric"}
    for solved in ({}, {"class_weights": "balanced"}):
        content = tune(bert, task, "head:2", **options, **solved).content
        assert content["solved"]["losses"].keys() == {"2"}
    for trained in ({"epochs": 1}, {"learning_rate": 1e-3}, {"classifier": "family", "epochs": 1}):
        content = tune(bert, task, "head:2", **options, **trained).content
        assert content["solved"] is None and content["runs"][0]["learning_rate"]
    assert tune(bert, task, "top:1", epochs=1, **options).content["solved"] is None


def test_what_a_scan_has_read_is_not_run_again_nor_what_a_solved_head_has(bert, monkeypatch):
    """A head reads the mean of all tokens, and a scan that of ordinary ones."""
    task, ran, pool_each = task_by_words(), [], Encoder.pool_each

    def count(self, tokens, rows, poolings):
        ran.extend(rows)
        return pool_each(self, tokens, rows, poolings)

    monkeypatch.setattr(Encoder, "pool_each", count)
    scan(bert, task, examples="all", progress=False)
    scanned = len(ran)
    new = set(task.validation.texts) - set(task.train.texts)
    assert scanned == len(set(task.train.texts))
    content = tune(bert, task, "head:best", progress=False, measure="metric").content
    assert len(ran) == scanned + len(new) and content["trunk"]["cached"] == (not new)
    swapped = replace(task, train=task.validation, validation=task.train)
    scan(bert, swapped, examples="all", progress=False)
    again = tune(bert, swapped, "head:best", progress=False, measure="metric")
    assert again.content["trunk"]["cached"] and len(ran) == scanned + len(new)


def test_a_solved_head_beside_a_trained_plan(bert):
    """Each is judged on the same examples, whichever is kept."""
    task = task_by_words("numbers")
    solved = tune(bert, task, "head:3", progress=False, measure="metric")
    both = tune(bert, task, "head:best", against="full", progress=False)
    other, settings = both.content["against"], both.content["settings"]
    assert both.content["solved"]["losses"]["3"] == solved.content["solved"]["losses"]["3"]
    assert other["solved"] is None and other["runs"][0]["learning_rate"]
    assert settings["epochs"] == len(other["runs"][0]["curve"]) > 1

    # It is solved on all labelled rows, and judged by one that has seen no validation row.
    alone = solve_again(bert, task, task.train)[2]
    said = alone.head(solve_again(bert, task, task.validation)[0][alone.state + 1])
    value = evaluate(task.metric, task.validation.labels, said)
    assert both.content["metrics"][task.metric] == pytest.approx(value, abs=1e-3)
    assert both.content["solved"]["examples"] == 120 and both.content["solved"]["folds"] == 1
    assert set(both.predictions["split"]) == {"validation"}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_test_rows_are_judged_by_the_model_that_is_saved(precision, tmp_path):
    """It averages in float32, whatever the encoder computed its states in."""
    encoder = Encoder.load(tiny_checkpoint(tmp_path, "electra"), device="cpu", precision=precision)
    task = task_by_words()
    task = replace(task, test=task.validation)
    result = tune(encoder, task, "head:best", progress=False)
    result.save(tmp_path / "out")
    rows = pd.read_parquet(tmp_path / "out" / "predictions.parquet").query("split == 'test'")
    model, logits = predict(tmp_path / "out" / "model", rows["text"])
    np.testing.assert_allclose(np.stack(rows["logits"]), logits, atol=1e-3 * logits.std())
    counted = result.content["parameters"]["total"]
    assert counted == sum(parameter.numel() for parameter in model.parameters())


def test_a_head_to_compare_with_is_never_rounded(bert):
    task = task_by_words("numbers")
    task = replace(task, test=task.validation)
    options = {"progress": False, "against": "head:3", "save_dtype": "float16"}
    other = tune(bert, task, "(4, 4, 4)", **options).content["against"]
    alone = tune(bert, task, "head:3", progress=False).content
    assert other["test"]["metrics"] == pytest.approx(alone["test"]["metrics"])


def test_what_cannot_be_compared_with_leaves_the_trained_plan(bert, tmp_path):
    task = Task.from_lists(["a cat"] * 8, ["x", "y"] * 4)
    options = {"progress": False, "measure": "metric", "snapshots": tmp_path / "snapshots"}
    result = tune(bert, task, "(4, 4, 4)", against="head:best", **options)
    assert result.content["against"] is None
    assert "no head can be solved" in " ".join(result.warnings)
    result.save(tmp_path / "out")
    expect_refused("no head can be solved", tune, bert, task, "head:best", **options)
    assert not (tmp_path / "snapshots").exists()


@pytest.mark.parametrize(
    "family", ["mpnet", *whole_only("albert", "modernbert", "eurobert", "xlm-roberta-xl")]
)
def test_where_no_block_can_average_it_is_one_of_sentence_transformers(family, tmp_path):
    import layerscout

    base = tiny_checkpoint(tmp_path / family, family)
    task = task_by_words()
    task = replace(task, test=task.validation)
    tune(base, task, "head:3", progress=False).save(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert content["saved_as"] == "sentence-transformers" and content["solved"]["state"] == 3
    total = content["parameters"]["total"]
    rows = pd.read_parquet(tmp_path / "out" / "predictions.parquet").query("split == 'test'")
    model = layerscout.load(tmp_path / "out" / "model").model
    assert total == sum(parameter.numel() for parameter in model.parameters())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "model" / "0_Transformer")
    inputs = tokenizer(list(rows["text"]), padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits.double().numpy()
    np.testing.assert_allclose(logits, np.stack(rows["logits"]), atol=1e-3)
    words = "the format sentence-transformers is the encoder without its head"
    options = {"progress": False, "formats": ["sentence-transformers"]}
    expect_refused(words, tune, base, task, "head:3", **options)


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        (task_of(), {"epochs": 2}, "where an option such as --epochs says how"),
        (task_of(), {"save_dtype": "float16"}, "saved in float32 … leave it out"),
        (task_of(), {"checkpoints": {1: "none"}}, "`checkpoints` need epochs"),
        (task_of(), {"method": "adapter"}, "tunes none; use --method full"),
        (Task.from_lists(["a cat"] * 40, ["x", "y"] * 20), {}, "no head can be solved"),
    ],
)
def test_what_cannot_be_solved_is_one_line(bert, task, options, words):
    expect_refused(words, tune, bert, task, "head:best", progress=False, **options)
