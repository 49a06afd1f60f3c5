"""Tuning for a label a word and for several labels a text: cuts, caches, exports, figures."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import f1_score
from transformers import (
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    pipeline,
)

from conftest import whole_only
from inputs import expect_refused
from layerscout.data import Tags, make_targets
from layerscout.data.words import find_spans
from layerscout.evaluating import evaluate
from layerscout.models import load_tuned, make_classifier
from layerscout.reporting import build_sections, write_card
from layerscout.states import Examples, compute_logits, predict
from layerscout.tuning import stages
from layerscout.tuning.stepping import compute_loss
from tiny import EACH_FAMILY
from tuned import (
    ROOM,
    TAGS,
    cheaply,
    fitted,
    load,
    prepared,
    run_card,
    several_task,
    task_of,
    words_task,
)

LABELLING = {config.model_type for config in MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING}
HAVING = [
    pytest.param(*family.values, marks=family.marks)
    for family in EACH_FAMILY
    if family.values[0].split("-conv")[0] in LABELLING
]
PLANS = ("(2, 3, 4)", "head:3", "(1, 2, 2)")
KINDS = {"words": words_task, "several": several_task}


@pytest.mark.parametrize("family", HAVING)
def test_words_from_the_cut_are_those_of_the_whole(family, tmp_path):
    encoder = load(tmp_path, family)
    task, rows = words_task(), np.array([4, 0, 5])
    for notation in PLANS:
        fit, plan = fitted(encoder, notation)
        model = make_classifier(fit, plan, TAGS, seed=3, kind=task.kind)
        kept = prepared(fit, plan, task.train, task, max_length=12)
        whole = replace(kept, trunk=None)
        found, expected = (compute_logits(fit, model, one, rows) for one in (kept, whole))
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
        assert len(found) == len(kept.labels_of(rows))
        # The library's own model on the same tokens, word for word.
        inputs = fit.batch(kept.tokens, rows)
        logits, at = model(**inputs).logits, 0
        for place, row in enumerate(rows):
            own = kept.tokens.words[kept.tokens.offsets[row] : kept.tokens.offsets[row + 1]]
            ids = kept.tokens.ids[kept.tokens.offsets[row] : kept.tokens.offsets[row + 1]]
            blank = [piece == "▁" for piece in fit.tokenizer.convert_ids_to_tokens(ids.tolist())]
            for word in np.unique(own[own >= 0]):
                first = next(n for n in np.flatnonzero(own == word) if not blank[n])
                torch.testing.assert_close(logits[place, first], expected[at], atol=1e-5, rtol=1e-4)
                at += 1


@whole_only
@pytest.mark.parametrize("family", HAVING)
def test_every_family_that_labels_words_is_tuned_saved_and_asked(family, tmp_path):
    encoder, _ = fitted(load(tmp_path / "base", family), "(3, 3, 3)")
    task = words_task()
    result, none = (cheaply(encoder, task, "(3, 3, 3)", cache_limit=limit) for limit in (ROOM, 0))
    assert result.content["trunk"]["kept"] and not none.content["trunk"]["kept"]
    both = [np.stack(one.predictions["logits"]) for one in (result, none)]
    np.testing.assert_allclose(*both, atol=1e-5)
    result.save(tmp_path / "tuned")
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "tuned" / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tuned" / "model")
    assert [model.config.id2label[k] for k in range(3)] == list(TAGS)
    made = tokenizer(list(task.validation.texts), padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model.eval()(**made).logits
    answers = make_targets(task.validation, task.kind, TAGS)
    tokens = encoder.tokenize_split(task.validation)
    expected = Examples(tokens, answers, None).take_outputs(np.arange(len(tokens)), logits)
    found = np.stack(result.predictions["logits"])
    np.testing.assert_allclose(found, expected.numpy(), atol=3e-5, rtol=1e-4)
    again = evaluate(tmp_path / "tuned" / "model", task, progress=False)
    assert again.metrics == pytest.approx(result.metrics)


@pytest.mark.parametrize(
    "kind, plan, options, rate",
    [
        ("words", "top:1", {}, 0.19),  # 3e-3 × 1024 / 16
        ("several", "top:1", {}, 0.19),
        ("words", "top:1", {"head_learning_rate": 1e-4}, 1e-4),
        ("words", "head:4", {}, 1e-3),
        ("words", "top:1", {"preset": "lodha2023"}, 1e-3),
        ("texts", "top:1", {}, 1e-3),
    ],
)
def test_the_head_of_labels_learns_faster_than_blocks(bert, kind, plan, options, rate, monkeypatch):
    factors, whole = [], stages.train

    def noted(encoder, model, *arguments, **given):
        factors.append(given["factors"].get("classifier.weight", 1.0))
        return whole(encoder, model, *arguments, **given)

    monkeypatch.setattr(stages, "train", noted)
    cheaply(bert, {**KINDS, "texts": task_of}[kind](), plan, epochs=1, **options)
    assert 1e-3 * factors[0] == pytest.approx(rate)


def test_the_loss_of_several_labels_by_hand():
    logits = torch.tensor([[0.0, 2.0], [-1.0, 1.0]])
    labels = torch.tensor([[True, False], [False, True]])
    p = torch.sigmoid(logits)
    chosen = torch.where(labels, p, 1 - p)
    assert compute_loss(logits, labels).item() == pytest.approx(-chosen.log().mean().item())


def test_words_are_saved_with_their_tags_and_answer_in_a_pipeline(bert, tmp_path):
    task = words_task(n=40)
    result = cheaply(bert, task, "(3, 4, 4)", epochs=12, learning_rate=3e-3)
    result.save(tmp_path / "tuned")
    content = json.loads((tmp_path / "tuned" / "result.json").read_text())
    assert content["task"]["kind"] == "token_classification"
    assert content["task"]["examples_used"] == 40
    assert content["task"]["words_used"] == len(task.train.labels)
    assert set(content["metrics"]) >= {"entity_f1", "entity_precision", "entity_recall"}
    assert set(content["by_name"]) == {"long"}
    facts = dict(build_sections(content)[1][-1].facts)
    assert facts["Judged on"] == f"{len(task.validation)} validation sentences"
    table = pd.read_parquet(tmp_path / "tuned" / "predictions.parquet")
    assert len(table) == len(task.validation.labels)
    bounds = task.validation.bounds
    assert table["row"].tolist() == task.validation.sentences.tolist()
    assert table["word"].tolist() == [word for count in np.diff(bounds) for word in range(count)]
    assert table["label"].tolist() == [TAGS[tag] for tag in task.validation.labels]
    card = (tmp_path / "tuned" / "model" / "README.md").read_text()
    assert "pipeline_tag: token-classification" in card
    assert f"40 sentences with {content['task']['words_used']} words, read in windows of" in card
    row = content["by_name"]["long"]
    assert f"| long | {row['precision']:.3f} | {row['recall']:.3f} | {row['f1']:.3f} |" in card
    assert f"| entity F1 | {content['metrics']['entity_f1']:.4f} |" in card
    ask = run_card(card, tmp_path / "tuned" / "model")["label"]
    found = ask("the brilliant sister sleeps")
    assert {entity["entity_group"] for entity in found} <= {"long"}
    # Pieces of a word are one answer, whatever all but the first say.
    assert all(" " + word["word"] in " the brilliant sister sleeps" for word in found)
    # Of a text longer than what it was tuned on, and than its positions, the end is read as well.
    long = "the brilliant sister sleeps " * 100
    assert max(word["end"] for word in ask(long, ignore_labels=[])) > 0.9 * len(long)
    assert ask.tokenizer.model_max_length == content["settings"]["max_length"] == 128
    for tags in (TAGS, ("O", "B", "I"), ("O", "B-long", "I-long", "E-long", "S-long")):
        card = write_card({**content, "task": {**content["task"], "labels": tags}})
        check_joining(ask, re.findall(r"label.get_tag = (.*)", card), tags)


def check_joining(ask, joining, tags):
    """Check that the pipeline, joining words as a card says, joins them to the spans we judge."""
    assert len(joining) == (tags != TAGS)
    if joining:
        ask.get_tag = eval(joining[0])
    ids = np.random.default_rng(0).integers(0, 3, 300)
    if len(tags) > 3:  # an E- or S- that something follows is well-formed alone: end spans so
        ends = (ids > 0) & (np.append(ids[1:], 0) != 2)
        ids = np.where(ends, np.where(ids == 1, 4, 3), ids)
    words = [
        {"entity": tags[tag], "score": 1.0, "word": "word", "start": place, "end": place}
        for place, tag in enumerate(ids)
    ]
    _, *spans = find_spans(Tags(tags, np.zeros(len(ids), np.int64)), ids)
    groups = [one for one in ask.group_entities(words) if one["entity_group"] != "O"]
    assert [(one["start"], one["end"]) for one in groups] == list(zip(*spans, strict=True))


@pytest.mark.parametrize("threshold", ["tuned", None])
def test_the_card_of_several_labels_applies_the_thresholds(bert, tmp_path, threshold):
    task = several_task()
    result = cheaply(bert, task, "(3, 4, 4)", threshold=threshold, epochs=1)
    result.save(tmp_path / "tuned")
    card = write_card(result.content).replace("some text", task.validation.texts[0])
    named = run_card(card, tmp_path / "tuned" / "model")
    assert sorted(named["labels"]) == sorted(result.predictions["prediction"][0])
    assert "pipeline_tag: text-classification" in card and "| micro-F1 |" in card
    config = json.loads((tmp_path / "tuned" / "model" / "config.json").read_text())
    assert result.content["thresholds"] == config.get("thresholds")
    for name, row in result.content["by_name"].items():
        cells = f"| {name} | {row['precision']:.3f} | {row['recall']:.3f} | {row['f1']:.3f} |"
        cells += f" {row['support']} |"
        if threshold is not None:
            cells += f" {config['thresholds'][name]:.3f} |"
        assert f"{cells}\n" in card


def test_several_labels_are_saved_with_their_thresholds(bert, tmp_path):
    task = several_task()
    plain = cheaply(bert, task, "(3, 4, 4)")
    result = cheaply(bert, task, "(3, 4, 4)", threshold="tuned")
    assert result.metrics["micro_f1"] >= plain.metrics["micro_f1"]
    result.save(tmp_path / "tuned")
    config = json.loads((tmp_path / "tuned" / "model" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    assert set(config["thresholds"]) == set(task.labels)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "tuned" / "model")
    assert model.config.problem_type == "multi_label_classification"
    again = evaluate(tmp_path / "tuned" / "model", task, progress=False)
    assert again.metrics == pytest.approx(result.metrics)
    asked = pipeline("text-classification", str(tmp_path / "tuned" / "model"), top_k=None)
    scores = {one["label"]: one["score"] for one in asked([task.validation.texts[0]])[0]}
    expected = 1 / (1 + np.exp(-result.predictions["logits"][0]))
    assert scores == pytest.approx(dict(zip(task.labels, expected, strict=True)), abs=1e-4)


def test_texts_that_lack_some_labels_are_judged_by_all_of_the_model(bert, tmp_path):
    task = several_task()
    result = cheaply(bert, task, "(3, 4, 4)", threshold=0.48)
    result.save(tmp_path / "tuned")

    def without(split):
        return replace(split, labels=split.labels[:, 1:])

    parts = {"train": without(task.train), "validation": without(task.validation)}
    fewer = replace(task, labels=task.labels[1:], **parts)
    found = evaluate(tmp_path / "tuned" / "model", fewer, progress=False)
    # The threshold, and so its texts, are those of the logits before they were calibrated.
    factor = result.content["calibration"]["factor"]
    predicted = np.stack(result.predictions["logits"]) / factor > np.log(0.48 / 0.52)
    true = task.validation.labels.copy()
    true[:, 0] = False
    assert predicted.any() and not predicted.all()
    expected = f1_score(true, predicted, average="micro")
    assert found.metrics["micro_f1"] == pytest.approx(expected)
    assert found.content["by_name"][task.labels[0]]["support"] == 0


@pytest.mark.parametrize("method", ["adapter", "lora"])
def test_other_methods_label_words(bert, method, tmp_path):
    task = words_task()
    result = cheaply(bert, task, "(3, 4, 4)", method=method, keep_adapter=method == "lora")
    result.save(tmp_path / "tuned")
    out = tmp_path / "tuned" / "model"
    if method == "adapter":
        model = load_tuned(out, device="cpu")[1]
        answers = make_targets(task.validation, task.kind, TAGS)
        examples = Examples(bert.tokenize_split(task.validation), answers, None)
        logits = predict(bert, model, examples).numpy()
        np.testing.assert_allclose(logits, np.stack(result.predictions["logits"]), atol=1e-5)
    else:
        written = json.loads((out / "adapter_config.json").read_text())
        assert written["task_type"] == "TOKEN_CLS"
        names = run_card(write_card(result.content), out, bert.source)
        assert type(names["base"]).__name__ == "BertForTokenClassification"
        assert [names["base"].config.id2label[k] for k in range(3)] == list(TAGS)
    card = (out / "README.md").read_text()
    assert "pipeline_tag: token-classification" in card
    assert f"library_name: {'peft' if method == 'lora' else 'layerscout'}" in card


def test_the_card_of_an_adapter_with_several_labels(bert, tmp_path):
    result = cheaply(bert, several_task(), "(3, 4, 4)", method="lora", keep_adapter=True)
    result.save(tmp_path / "tuned")
    out = tmp_path / "tuned" / "model"
    card = write_card(result.content)
    assert "library_name: peft" in card and "pipeline_tag: text-classification" in card
    model = run_card(card, out, bert.source)["model"]
    assert model.config.problem_type == "multi_label_classification"


def test_families_without_a_head_for_words(tmp_path):
    lacking = [name for name in ("olmo2", "phi3", "gemma2") if name not in LABELLING]
    if not lacking:
        pytest.skip("every family has one")
    encoder = load(tmp_path, lacking[0])
    expect_refused("no head for token classification", cheaply, encoder, words_task(), "top:1")
