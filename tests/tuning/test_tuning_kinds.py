"""Tuning for numbers and for multiple choice: losses, cuts, figures, and what others can load."""

import json
import math
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch.nn.functional import cross_entropy
from transformers import (
    MODEL_FOR_MULTIPLE_CHOICE_MAPPING,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    pipeline,
)

from conftest import whole_only
from inputs import as_csv, expect_refused
from layerscout.data import Task, make_targets, shuffle_batches
from layerscout.models import Encoder, base_of, make_classifier, resume_at
from layerscout.plans import Settings
from layerscout.reporting import summarise_tuning, write_card
from layerscout.states import Examples, make_batch, make_batches, predict
from layerscout.tuning.stepping import compute_loss
from layerscout.tuning.training import train
from telling import numbers_task
from tiny import EACH_FAMILY, SENTENCES, tiny_checkpoint
from tuned import (
    ROOM,
    cheaply,
    choices_task,
    copied,
    differing,
    fitted,
    load,
    prepared,
    several_task,
    without_key_biases,
    words_task,
)

CHOOSING = {config.model_type for config in MODEL_FOR_MULTIPLE_CHOICE_MAPPING}
HAVING = [family for family in EACH_FAMILY if family.values[0].split("-conv")[0] in CHOOSING]


KINDS = {
    "regression": lambda: numbers_task(18, validation=0.3),
    "multiple_choice": lambda: choices_task(choices=3),
    "words": words_task,
    "several": several_task,
}


def by_hand(encoder, split, choices):
    """Return what the library's models take, from the texts."""
    inputs = encoder.tokenizer(
        list(split.texts), split.pairs and list(split.pairs), padding=True, return_tensors="pt"
    )
    known = encoder.batch(encoder.tokenize(["a"]), np.array([0]))
    shape = (-1,) if choices == 1 else (-1, choices)
    return {name: inputs[name].unflatten(0, shape) for name in known}


# --- Training ----------------------------------------------------------------------------------


def labels_by_hand(task, tokens, rows, width):
    """Return the labels as the library's models take them: of words at their first tokens."""
    if task.kind != "token_classification":
        labels = torch.from_numpy(make_targets(task.train, task.kind, task.labels).labels[rows])
        return labels if task.kind == "multiple_choice" else labels.float()
    labels = torch.full((len(rows), width), -100)
    for at, row in enumerate(rows):
        own = tokens.words[tokens.offsets[row] : tokens.offsets[row + 1]]
        for word in np.unique(own[own >= 0]):
            labels[at, np.flatnonzero(own == word)[0]] = int(task.train.labels[word])
    return labels


@pytest.mark.parametrize("kind", KINDS)
def test_equals_a_plain_training_loop(still, kind):
    """With the loss that the library's own model gives for these labels."""
    task, plan = KINDS[kind](), fitted(still, "(2, 3, 4)")[1]
    examples = prepared(still, plan, task.train, task)
    start = partial(make_classifier, still, plan, task.labels, seed=7, kind=task.kind)
    run, kept = train(
        still, start(), examples, examples, learning_rate=1e-3, seed=7,
        settings=Settings(epochs=2, batch_size=5, warmup=0.0, keep="last", metric=task.metric),
    )  # fmt: skip
    model = start()
    parameters = [p for p in model.parameters() if p.requires_grad]
    steps = 2 * math.ceil(len(examples) / 5)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.0, foreach=False)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    choices = 3 if kind == "multiple_choice" else 1
    inputs = by_hand(still, task.train, choices)
    longest = inputs["attention_mask"].reshape(len(examples), choices, -1).sum(dim=2).amax(dim=1)
    order, means = np.random.default_rng(7), []
    for _ in range(2):
        total, answers = 0.0, 0
        for rows in shuffle_batches(longest.numpy(), 5, order):
            part = {name: tensor[rows] for name, tensor in inputs.items()}
            labels = labels_by_hand(task, examples.tokens, rows, longest.max())
            loss = model(**part, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            count = int((labels >= 0).sum()) if kind == "words" else len(rows)
            total, answers = total + loss.item() * count, answers + count
        means.append(total / answers)
    assert [epoch.training_loss for epoch in run.curve] == pytest.approx(means, abs=1e-5)
    expected = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    if choices > 1:  # added to all of them alike, so that its gradient is rounding error
        kept, expected = ({**one, "classifier.bias": 0} for one in (kept, expected))
    near = {"rtol": 0, "atol": 2e-5}
    if kind in ("words", "several"):  # gradients near 0, whose rounding AdamW makes large
        near = {"rtol": 1e-3, "atol": 3e-5}
    torch.testing.assert_close(without_key_biases(kept), without_key_biases(expected), **near)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plan", ["(2, 3, 4)", "head:3"])
def test_tuning_from_the_cache_is_tuning_without_it(bert, kind, plan):
    # Batches of other shapes round differently on some processors, which AdamW's first steps scale
    # up to the learning rate: at the usual ones logits differed by 1.4e-5.
    task, rates = KINDS[kind](), {"learning_rate": 1e-4, "head_learning_rate": 1e-4}
    kept, none = (cheaply(bert, task, plan, cache_limit=limit, **rates) for limit in (ROOM, 0))
    assert kept.content["trunk"]["kept"] and not none.content["trunk"]["kept"]
    curves = [result.content["runs"][0]["curve"] for result in (kept, none)]
    for one, other in zip(*curves, strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    logits = [np.stack(result.predictions["logits"]) for result in (kept, none)]
    if kind == "multiple_choice":  # what is added to all choices alike has no gradient but rounding
        logits = [one - one.mean(axis=1, keepdims=True) for one in logits]
    np.testing.assert_allclose(*logits, atol=1e-5)


def test_the_losses_by_hand():
    found, numbers = torch.tensor([[1.0], [4.0]]), torch.tensor([2.0, 1.0], dtype=torch.float64)
    assert compute_loss(found, numbers).item() == (1 + 9) / 2
    assert compute_loss(found, numbers).dtype == torch.float32
    two = torch.tensor([[0.0, math.log(3)]])
    assert compute_loss(two, torch.tensor([1])).item() == pytest.approx(math.log(4 / 3))


def test_examples_with_choices(bert):
    """Batches are of examples, alike by their longest choice, and predictions in their order."""
    task = choices_task(n=30, choices=3)
    plan = fitted(bert, "full")[1]
    examples = prepared(bert, plan, task.train, task)
    assert len(examples) == 30 and len(examples.tokens) == 90
    assert examples.lengths.tolist() == [
        examples.tokens.lengths[3 * row : 3 * row + 3].max() for row in range(30)
    ]
    together = np.concatenate(make_batches(bert, examples))
    assert sorted(together) == list(range(30))
    model = make_classifier(bert, plan, (), kind=task.kind)
    inputs = make_batch(bert, examples, np.array([7, 2]))
    assert inputs["input_ids"].shape[:2] == (2, 3)
    found = predict(bert, model, examples)
    with torch.no_grad():
        whole = model(**by_hand(bert, task.train, 3)).logits
    assert found.shape == (30, 3)
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", HAVING)
def test_choices_from_the_cut_are_those_of_the_whole(family, tmp_path):
    encoder = load(tmp_path, family)
    encoder.model.double()
    task, rows = choices_task(choices=2), np.array([4, 0, 5])
    labels = torch.from_numpy(make_targets(task.train, task.kind).labels[rows])
    for notation in ("(2, 3, 4)", "head:3", "(1, 2, 2)"):
        fit, plan = fitted(encoder, notation)
        model = make_classifier(fit, plan, (), seed=3, kind=task.kind).double().eval()
        tokens = fit.tokenize(task.train.texts, task.train.pairs)
        examples = Examples(tokens, make_targets(task.train, task.kind), None)
        inputs = make_batch(fit, examples, rows)
        whole = model(**inputs).logits
        flat = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
        state = fit.cut(flat, plan.cut)
        with resume_at(base_of(model)[0], fit.family, state, plan.cut):
            found = model(**inputs).logits
        torch.testing.assert_close(found, whole, rtol=1e-9, atol=1e-9)
        gradients = []
        for each in (whole, found):
            model.zero_grad(set_to_none=True)
            cross_entropy(each, labels).backward()
            gradients.append({n: p.grad for n, p in model.named_parameters() if p.requires_grad})
        still = {name for name, gradient in gradients[0].items() if not gradient.any()}
        # What is added to all choices alike says nothing about which of them is right.
        assert still <= {"classifier.bias"}
        torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)


# --- What comes out ----------------------------------------------------------------------------


def test_numbers(bert, tmp_path):
    task = numbers_task(40)
    result = cheaply(bert, task, "(2, 2, 3)", epochs=3, seed=3)
    result.save(tmp_path)
    found = pd.read_parquet(tmp_path / "predictions.parquet")
    assert list(found) == ["split", "row", "text", "label", "prediction", "logits"]
    assert len(found) == 4
    assert found["label"].tolist() == task.train.labels[found["row"]].tolist()
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert (model.config.problem_type, model.config.num_labels) == ("regression", 1)
    assert model.config.id2label == {0: "score"} and model.config.num_hidden_layers == 3
    texts = [task.train.texts[row] for row in found["row"]]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    with torch.no_grad():
        again = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.numpy()
    np.testing.assert_allclose(np.stack(found["logits"]), again, atol=1e-6, rtol=1e-5)
    assert found["prediction"].tolist() == [logits[0] for logits in found["logits"]]
    told = pipeline("text-classification", str(tmp_path / "model"))(texts)
    assert [one["score"] for one in told] == pytest.approx(found["prediction"].tolist(), abs=1e-5)
    content = json.loads((tmp_path / "result.json").read_text())
    pearson = stats.pearsonr(found["label"], found["prediction"]).statistic
    spearman = stats.spearmanr(found["label"], found["prediction"]).statistic
    squares = np.square(found["label"] - found["prediction"]).mean()
    assert content["metrics"] == pytest.approx(
        {
            "pearson": pearson,
            "spearman": spearman,
            "pearson_spearman": (pearson + spearman) / 2,
            "mean_squared_error": squares,
        },
        abs=1e-6,
    )
    assert content["metric"] == "pearson_spearman"
    assert f"off by {squares**0.5:.3g}, root mean square" in summarise_tuning(content)
    curve = content["runs"][0]["curve"]
    best = content["best"]["epoch"]
    assert content["best"]["value"] == content["metrics"]["pearson_spearman"]
    assert best == max(range(3), key=lambda at: (curve[at]["value"], -at)) + 1
    assert curve[best - 1]["loss"] == pytest.approx(squares, rel=1e-5)
    assert content["settings"]["validation"] == 0.1 and content["settings"]["examples"] == 36
    parameters = [p.numel() for p in result.model.parameters()]
    assert content["parameters"]["total"] == sum(parameters)


@pytest.mark.parametrize("family", HAVING)
def test_choices(family, tmp_path):
    encoder = load(tmp_path / "tiny", family)
    task = choices_task(choices=3)
    before = copied(encoder.model)
    result = cheaply(encoder, task, "(2, 2, 3)", untie=family == "albert", epochs=1)
    assert differing(copied(encoder.model), before) == set()
    result.save(tmp_path / "out")
    model, report = AutoModelForMultipleChoice.from_pretrained(
        tmp_path / "out" / "model", output_loading_info=True
    )
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert differing(copied(model), copied(result.model)) == set()
    config = json.loads((tmp_path / "out" / "model" / "config.json").read_text())
    assert config.get("problem_type") is None and model.config.num_hidden_layers == 3
    found = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    assert found["row"].tolist() == list(range(6))
    assert found["label"].tolist() == make_targets(task.validation, task.kind).labels.tolist()
    with torch.no_grad():
        again = model(**by_hand(encoder, task.validation, 3)).logits.numpy()
    np.testing.assert_allclose(np.stack(found["logits"]), again, atol=1e-5, rtol=1e-4)
    assert found["prediction"].tolist() == again.argmax(axis=1).tolist()
    content = result.content
    assert content["metrics"] == {"accuracy": (found["label"] == found["prediction"]).mean()}
    total = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in result.model.parameters() if p.requires_grad)
    assert content["parameters"] == {"total": total, "trainable": trained}
    told = {key: content["task"][key] for key in ("examples_used", "examples_available", "choices")}
    assert told == {"examples_used": 12, "examples_available": 12, "choices": 3}
    assert (content["settings"]["examples"], content["settings"]["validation_examples"]) == (12, 6)
    assert content["task"]["validation_examples"] == 6
    lengths = encoder.tokenize(task.train.texts, task.train.pairs).lengths
    assert content["task"]["tokens_per_example"] == pytest.approx(lengths.sum() / 12)


def test_a_head_that_a_checkpoint_brings_is_taken(tmp_path):
    folder = tiny_checkpoint(tmp_path / "one", "roberta")
    AutoModelForMultipleChoice.from_pretrained(folder).save_pretrained(tmp_path / "two")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "two")
    encoder = Encoder.load(tmp_path / "two", device="cpu")
    theirs = AutoModelForMultipleChoice.from_pretrained(tmp_path / "two")
    plan = fitted(encoder, "head:4")[1]
    kind = "multiple_choice"
    assert differing(copied(make_classifier(encoder, plan, (), kind=kind)), copied(theirs)) == set()
    fresh = make_classifier(encoder, plan, (), kind=kind, fresh_head=True)
    drawn = {"roberta.pooler.dense.weight", "classifier.weight"}
    assert drawn <= differing(copied(fresh), copied(theirs))


def test_families_without_a_head_for_choices(tmp_path, monkeypatch):
    encoder = load(tmp_path / "deberta", "deberta")
    monkeypatch.setattr(Encoder, "tokenize", None)
    line = expect_refused("multiple choice … deberta;", cheaply, encoder, choices_task(), "top:1")
    for family in ("albert", "bert", "deberta-v2", "xlm-roberta"):
        assert family in line
    assert "deberta," not in line
    odd = load(tmp_path / "electra", "electra", summary_type="mean")
    expect_refused("first token … 'mean'", cheaply, odd, choices_task(), "top:1")


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        ("regression", "auto"),
        ("multiple_choice", "best-down:1@best"),
        ("multiple_choice", "rank:1"),
        *whole_only(("multiple_choice", "auto"), ("regression", "best-down:1@best")),
        *whole_only(("regression", "rank:1")),
    ],
)
def test_plans_that_a_scan_decides(bert, kind, plan):
    """Without a scan, one is made by a score that the task has."""
    task = numbers_task(60) if kind == "regression" else choices_task(n=30)
    expected = "head_quality"
    options = {"budget": 0.9, "score": expected} if plan == "auto" else {}
    if plan == "rank:1":
        options["score"] = expected = "weight_snr"
    result = cheaply(bert, task, plan, **options)
    assert result.content["settings"]["score"] == expected and result.content["plan"]["tuned"]
    assert result.content["settings"]["best"] is not None


def test_another_metric_for_numbers(bert):
    result = cheaply(bert, numbers_task(20), "head:2", metric="spearman")
    assert result.content["best"]["value"] == result.metrics["spearman"]


def test_examples_are_counted_whole(bert):
    result = cheaply(bert, choices_task(n=20, choices=3), "head:2", examples=8)
    assert result.content["task"]["examples_used"] == 8
    assert result.content["task"]["examples_available"] == 20
    expect_refused("at most 20", cheaply, bert, choices_task(n=20), "head:2", examples=21)


# --- Cards -------------------------------------------------------------------------------------


def test_the_card_of_choices_says_how_to_ask(bert, tmp_path, capsys):
    result = cheaply(bert, choices_task(choices=3), "head:2", epochs=1)
    card = write_card(result.content)
    assert "pipeline_tag: multiple-choice" in card and "endings, one of 3 choices" in card
    assert "text-classification" not in card and "classes" not in card
    result.save(tmp_path)
    code = re.search(r"```python\n(.*?)\n```", card, re.DOTALL)[1]
    exec(code.replace("path/to/this/folder", str(tmp_path / "model")), {})
    assert capsys.readouterr().out.strip() in {"choice 1", "choice 2", "choice 3"}


def test_the_card_of_numbers_says_how_to_ask(bert, tmp_path):
    texts = list(SENTENCES) * 2
    columns = {"sentence1": texts, "sentence2": texts[::-1], "label": np.arange(32) / 8}
    (tmp_path / "pairs.csv").write_text(as_csv(columns))
    task = Task.load(tmp_path / "pairs.csv", regression=True)
    result = cheaply(bert, task, "head:2", epochs=1)
    card = write_card(result.content)
    assert "pairs, a number" in card and "| mean squared error |" in card
    result.save(tmp_path / "out")
    code = re.search(r"```python\n(.*?)\n```", card, re.DOTALL)[1]
    names = {}
    exec(code.replace("path/to/this/folder", str(tmp_path / "out" / "model")), names)
    told = names["score"]({"text": texts[0], "text_pair": texts[-1]})
    row = result.predictions["row"][0]
    told = names["score"]({"text": texts[row], "text_pair": texts[::-1][row]})
    assert told["score"] == pytest.approx(float(result.predictions["prediction"][0]), abs=1e-5)
