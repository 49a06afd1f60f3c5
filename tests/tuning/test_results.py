"""What tuning writes: the checkpoint, the card, result.json and predictions.parquet."""

import errno
import html
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as parquet
import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from sklearn import metrics as sklearn_metrics
from sklearn.dummy import DummyClassifier
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from conftest import whole_only
from inputs import as_csv, expect_refused
from layerscout.data import Task, name_metric
from layerscout.errors import DiskError
from layerscout.models import Encoder
from layerscout.reporting import (
    render_result,
    suggest_step,
    summarise_tuning,
    write_card,
    write_report_command,
)
from tiny import EACH_FAMILY, SENTENCES
from tuned import cheaply, copied, differing, lists, load, task_of

HOSTILE = ("<script>alert(1)</script>", "[go](http://evil) *b* `c` _d_ # | ~~e~~", "x&lt;y\\*")


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- Files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [False, True])
def test_predictions_belong_to_the_rows_of_the_file(bert, tmp_path, held):
    """Row, label and logits agree with the file, the saved model and the metrics."""
    task = task_of(n=70, held=0, classes=3)
    names = [task.labels[number] for number in task.train.labels]
    texts = list(task.train.texts)
    for name, rows in {"train": slice(0, 50), "validation": slice(50, 70)}.items():
        (tmp_path / "data").mkdir(exist_ok=True)
        content = as_csv({"text": texts[rows], "label": names[rows]})
        (tmp_path / "data" / f"{name}.csv").write_text(content, encoding="utf-8")
    path = tmp_path / "data" / ("train.csv" if held else "")
    cheaply(bert, path, "(2, 3, 3)", seed=3).save(tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    assert list(found) == ["split", "row", "text", "label", "prediction", "logits"]
    read = pd.read_csv(tmp_path / "data" / ("train.csv" if held else "validation.csv"))
    assert len(found) == (5 if held else 20)
    assert (found["row"].tolist() == list(range(20))) == (not held)
    assert read["label"][found["row"]].tolist() == found["label"].tolist()
    assert read["text"][found["row"]].tolist() == found["text"].tolist()
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "model")
    inputs = tokenizer(read["text"][found["row"]].tolist(), padding=True, return_tensors="pt")
    with torch.no_grad():
        again = model(**inputs).logits.numpy()
    np.testing.assert_allclose(np.stack(found["logits"]), again, atol=1e-6, rtol=1e-5)
    predicted = [model.config.id2label[number] for number in again.argmax(axis=1)]
    assert found["prediction"].tolist() == predicted
    content = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    truth = found["label"]
    assert content["metrics"] == pytest.approx(
        {
            "accuracy": sklearn_metrics.accuracy_score(truth, predicted),
            "f1": sklearn_metrics.f1_score(truth, predicted, average="macro", zero_division=0),
            "macro_f1": sklearn_metrics.f1_score(
                truth, predicted, average="macro", zero_division=0
            ),
            "matthews_correlation": sklearn_metrics.matthews_corrcoef(truth, predicted),
        }
    )


@pytest.mark.parametrize("family", EACH_FAMILY)
def test_the_saved_model_is_the_kept_one(family, tmp_path):
    encoder = load(tmp_path / "tiny", family)
    untie = family == "albert"
    result = cheaply(encoder, task_of(), "(2, 2, 3)", untie=untie, epochs=1)
    result.save(tmp_path / "out")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "model")
    assert differing(copied(model), copied(result.model)) == set()
    assert model.config.num_hidden_layers == 3 and model.config.id2label == {0: "bad", 1: "fair"}
    inputs = encoder.batch(encoder.tokenize(SENTENCES), np.arange(16))
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs).logits, result.model(**inputs).logits)
    classify = pipeline("text-classification", str(tmp_path / "out" / "model"), top_k=None)
    told = {one["label"]: one["score"] for one in classify([SENTENCES[0]])[0]}
    alone = encoder.batch(encoder.tokenize(SENTENCES[:1]), np.array([0]))
    with torch.no_grad():
        shares = result.model(**alone).logits[0].softmax(dim=0).tolist()
    assert told == pytest.approx(dict(zip(("bad", "fair"), shares, strict=True)), abs=1e-5)


def test_long_texts_are_cut_where_they_were_in_tuning(bert, tmp_path):
    cheaply(bert, task_of(), "head:2", epochs=1, max_length=16).save(tmp_path / "out")
    folder = str(tmp_path / "out" / "model")
    assert AutoTokenizer.from_pretrained(folder).model_max_length == 16
    long = " ".join(SENTENCES * 4)  # of more tokens than the model has positions
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        logits = model(**bert.batch(bert.tokenize([long], max_length=16), np.array([0]))).logits
    classify = pipeline("text-classification", folder, top_k=None, function_to_apply="none")
    found = {one["label"]: one["score"] for one in classify([long], truncation=True)[0]}
    assert [found["bad"], found["fair"]] == pytest.approx(logits[0].tolist(), abs=1e-5)
    # Other verbs still read it at any length that it has positions for.
    assert Encoder.load(folder).states([long], max_length=160).isfinite().all()


def test_saving_again_replaces_everything(bert, tmp_path):
    first, second = (cheaply(bert, task_of(), plan) for plan in ("(2, 3, 4)", "head:2"))
    first.save(tmp_path / "out")
    before = files_in(tmp_path / "out")
    first.save(tmp_path / "out")
    assert files_in(tmp_path / "out") == before
    assert {"result.json", "predictions.parquet", "config.json", "README.md"} <= before.keys()
    second.save(tmp_path / "out")
    after = files_in(tmp_path / "out")
    assert after.keys() == before.keys()
    assert after["result.json"] != before["result.json"]
    assert len(after["model.safetensors"]) < len(before["model.safetensors"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "out"]


@pytest.mark.parametrize("writer", ["model.save_pretrained", "tokenizer.save_pretrained", ""])
def test_a_failed_export_leaves_what_was_there(bert, tmp_path, monkeypatch, writer):
    first, second = (cheaply(bert, task_of(), plan) for plan in ("(2, 3, 4)", "head:2"))
    first.save(tmp_path / "out")
    before = files_in(tmp_path / "out")

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    name, _, method = writer.partition(".")
    kind = type(getattr(second, name)) if name else parquet
    monkeypatch.setattr(kind, method or "write_table", fail)
    with pytest.raises(DiskError, match="cannot write .*No space left"):
        second.save(tmp_path / "out")
    assert files_in(tmp_path / "out") == before
    assert not list(tmp_path.rglob(".*"))


def test_the_model_is_the_users_own(bert):
    result = cheaply(bert, task_of(), "top:1")
    theirs = {tensor.data_ptr() for tensor in bert.model.state_dict().values()}
    assert not theirs & {tensor.data_ptr() for tensor in result.model.state_dict().values()}


def test_folders(bert, tmp_path, monkeypatch):
    result = cheaply(bert, task_of(), "head:2", epochs=1)
    (tmp_path / "file").write_text("")
    expect_refused("file", result.save, tmp_path / "file")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    result.save("~/deep/out")
    out = tmp_path / "home" / "deep" / "out"
    assert {path.name for path in out.iterdir()} == {
        "model",
        "result.json",
        "predictions.parquet",
    }
    assert not (tmp_path / "~").exists()


def test_no_number_loses_a_training(bert, tmp_path):
    result = cheaply(bert, task_of(), "head:2", epochs=1)
    odd = {"nan": float("nan"), "inf": [np.float32("inf")], "one": np.int64(1), "path": tmp_path}
    replace(result, content={**result.content, **odd}).save(tmp_path / "out")
    told = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert [told[name] for name in odd] == [None, [None], 1, str(tmp_path)]
    assert told["metrics"] == result.metrics


# --- Words -------------------------------------------------------------------------------------


def test_the_summary_is_computed(bert):
    for plan, words in {
        "(2, 3, 4)": "tuned 2 of 4 blocks",
        "head:2": "tuned the head only",
        "emb+head:2": "tuned embeddings and head",
    }.items():
        for keep in ("best", "last"):
            content = cheaply(bert, task_of(), plan, keep=keep).content
            share = 100 * content["flops"]["train"] / content["flops"]["full_train"]
            assert summarise_tuning(content) == (
                f"{words}, {share:.0f}% of the FLOPs of full fine-tuning, "
                f"accuracy {content[keep]['value']:.3f} {beside_majority(content, keep)}"
            )


def test_the_test_split_has_the_last_word(bert, tmp_path):
    """Nothing is chosen by it, so the summary, the card and the page show its figures."""
    task = task_of(n=24, held=8, test=lists(10))
    result = cheaply(bert, task, "(3, 4, 4)", epochs=2)
    content, test = result.content, result.content["test"]
    result.save(tmp_path)
    found = pd.read_parquet(tmp_path / "predictions.parquet")
    tested = found[found.split == "test"]
    assert list(tested.text) == lists(10)[0] and list(tested.row) == list(range(10))
    assert (found.split == "validation").sum() == 8
    right = sklearn_metrics.accuracy_score(tested.label, tested.prediction)
    assert test["metrics"]["accuracy"] == pytest.approx(right) and test["examples"] == 10
    assert sum(map(sum, test["confusion"])) == 10 and test["majority"] == 0.5
    assert f"test accuracy {right:.3f} (" in summarise_tuning(content)
    assert f"validation {content['best']['value']:.3f})" in summarise_tuning(content)
    assert "On 10 test examples, which were not used to choose anything" in write_card(content)
    assert f"| accuracy | {right:.4f} |" in write_card(content)
    assert f"test accuracy {right:.3f} (" in render_result(content)
    again = cheaply(bert, task_of(n=24, held=8), "(3, 4, 4)", epochs=2)
    assert again.content["test"] is None and again.metrics == result.metrics


def beside_majority(content, keep):
    """Say what always predicting class 0 has: half of the validation examples are of it."""
    assert content["majority"] == 0.5
    low, high = content["interval"]
    assert high - low > 0.3  # of six examples
    sure = f"95 % interval {low:.3f} to {high:.3f}: too few to judge; "
    chosen = "; selected on these rows" if keep == "best" else ""
    if content[keep]["value"] > 0.5:
        return f"({sure}always predicting the majority class scores 0.500{chosen})"
    return f"({sure}no better than always predicting the majority class, 0.500{chosen})"


def test_a_model_that_predicts_one_class_is_no_success(bert):
    """Neither the summary, nor the card, nor the page may read as if it had learnt something."""
    labels = ["good"] * 24 + ["bad"] * 6
    texts = list(task_of(n=30, held=0).train.texts)
    validation = (texts[:10], ["good"] * 8 + ["bad"] * 2)
    task = Task.from_lists(texts, labels, validation=validation)
    result = cheaply(bert, task, "head:2", epochs=3, learning_rate=1e-2)
    content, metrics = result.content, result.metrics
    assert content["metric"] == "macro_f1"
    dummy = DummyClassifier(strategy="most_frequent").fit(texts, labels)
    expected = sklearn_metrics.f1_score(
        validation[1], dummy.predict(validation[0]), average="macro"
    )
    assert content["majority"] == pytest.approx(expected)
    assert content["confusion"] in ([[0, 2], [0, 8]], [[2, 0], [8, 0]])
    assert any("predicts one class only" in line for line in content["warnings"])
    assert metrics["macro_f1"] <= expected
    noted = "; no better than always predicting the majority class, 0.444; selected on these rows)"
    assert summarise_tuning(content).endswith(noted)
    assert "| macro-F1 of always predicting the majority class | 0.4444 |" in write_card(content)
    page = render_result(content)
    assert noted in page
    assert "columns: the predicted one" in page
    wrong = [text for text, label in zip(*validation, strict=True) if label == "bad"]
    assert {one["text"] for one in content["errors"]} == set(wrong)
    shares = [one["probability"] for one in content["errors"]]
    assert shares == sorted(shares, reverse=True) and 0.5 <= shares[-1] <= shares[0] <= 1
    assert [one["row"] for one in content["errors"]] in ([8, 9], [9, 8])
    assert "The wrong predictions of which the model is most sure" in page and wrong[0] in page
    assert write_report_command("out folder") == "layerscout report 'out folder'"
    _, again = suggest_step(content, "out folder")
    assert again.startswith("layerscout tune ") and "--epochs 6 --learning-rate 0.0033," in again
    learnt = {"confusion": [[2, 0], [0, 8]], "metrics": {"macro_f1": 1.0}, "interval": [0.9, 1]}
    _, step = suggest_step(content | learnt, "out folder")
    assert step == "layerscout predict 'out folder/model' texts.csv"


@pytest.mark.parametrize(
    ("against", "name"),
    [("full", "full fine-tuning"), *whole_only(("head:4", "head:4")), ("4,4,4", "(4, 4, 4)")],
)
def test_the_summary_of_a_comparison(bert, against, name):
    options = {"against": against, "metric": "matthews_correlation", "keep": "last"}
    content = cheaply(bert, task_of(n=24, held=12), "(3, 3, 3)", **options).content
    other = content["against"]
    ours, theirs = (
        sum(one["seconds"][key] for key in ("trunk", "train")) for one in (content, other)
    )
    assert summarise_tuning(content).startswith(
        f"tuned 1 of 4 blocks, {100 * ours / theirs:.0f}% of the time of {name}, "
        f"Matthews correlation {content['last']['value']:.3f} vs {other['last']['value']:.3f} (95 %"
    )


def test_both_plans_are_judged_on_the_test_rows(bert):
    with_test = task_of(n=24, held=12, test=lists(12))
    content = cheaply(bert, with_test, "(3, 3, 3)", against="head:4").content
    alone = cheaply(bert, with_test, "head:4").content
    ours, theirs = (one["test"]["metrics"]["accuracy"] for one in (content, content["against"]))
    assert theirs == alone["test"]["metrics"]["accuracy"]
    assert f"test accuracy {ours:.3f} vs {theirs:.3f} (" in summarise_tuning(content)


def test_the_card_tells_the_facts(bert):
    result = cheaply(bert, task_of(), "(2, 2, 3)", learning_rate=[1e-3, 1e-2], seed=7)
    content, card = result.content, write_card(result.content)
    run, kept = content["runs"][content["kept"]], content["best"]
    for fact in (
        "pipeline_tag: text-classification",
        "(2, 2, 3): blocks tuned: 2; the head reads state 3; removed above it: 1 of 4 blocks",
        f"{content['parameters']['trainable']:,} were trained",
        f"learning rate {run['learning_rate']:g}, seed 7; epoch {kept['epoch']} of 2 kept",
        "12 examples",
        "On 6 validation examples",
        f"{content['flops']['train'] / content['flops']['full_train']:.0%} of full fine-tuning",
        *(
            f"| {name_metric(key, ('bad', 'fair'))} | {value:.4f} |"
            for key, value in result.metrics.items()
        ),
    ):
        assert fact in card
    assert "nan" not in card.lower()
    assert 'classify("some text", truncation=True)  # cut at 128 tokens' in card
    data = ModelCard(card).data  # as the hub reads it
    assert (data.library_name, data.base_model, data.tags) == ("transformers", None, ["layerscout"])
    assert {one.metric_type: one.metric_value for one in data.eval_results} == {
        key: pytest.approx(value, abs=1e-4) for key, value in result.metrics.items()
    }
    assert {one.dataset_split for one in data.eval_results} == {"validation"}
    fetched = content | {"model": content["model"] | {"name": "org/tiny", "revision": "abc"}}
    assert ModelCard(write_card(fetched)).data.base_model == "org/tiny"
    three = cheaply(bert, task_of(classes=3), "head:2", epochs=1)
    names = [one.metric_name for one in ModelCard(write_card(three.content)).data.eval_results]
    assert sorted(names) == sorted({name_metric(key, "abc") for key in three.metrics})
    assert "datasets:" not in card and "Chosen because: (2, 2, 3) was asked for" in card
    hub = content | {"settings": content["settings"] | {"hub": "nyu-mll/glue/sst2"}}
    assert ModelCard(write_card(hub)).data.datasets == ["nyu-mll/glue"]
    once = write_card(cheaply(bert, task_of(), "head:2", epochs=1).content)
    assert "(counted, not measured) for 1 epoch," in once and "1 epochs" not in once


@pytest.mark.parametrize(
    ("said", "passed_on"),
    [
        ("license: apache-2.0\nlanguage: [en, de]\nbase_model: org/base", None),
        ("license: other\nlicense_name: own\nlicense_link: https://a.org/own", None),
        ("license: [a b]\nlanguage: {x: y}\nbase_model: /home/me/base\ntags: [x]", {}),
        ("license: 2020-01-01", {}),
        ("a: [", {}),
    ],
)
def test_the_card_passes_on_what_that_of_the_base_says(bert, tmp_path, said, passed_on):
    content = cheaply(bert, task_of(), "head:2", epochs=1).content
    (tmp_path / "README.md").write_text(f"---\n{said}\n---\n# Base\n", encoding="utf-8")
    card = write_card(content | {"model": content["model"] | {"source": str(tmp_path)}})
    data, names = ModelCard(card).data, ("license", "license_name", "license_link", "language")
    found = {key: getattr(data, key) for key in (*names, "base_model") if getattr(data, key)}
    assert found == (yaml.safe_load(said) if passed_on is None else passed_on)


def test_the_card_is_not_turned_round(bert):
    marks = "\u202e\u2066\u200f\u061c"
    texts, labels = lists(30)
    names = [f"{marks}{label}\u2069" for label in labels]
    result = cheaply(bert, Task.from_lists(texts, names), "head:2", epochs=1)
    card = write_card(result.content)
    assert "classes bad, fair" in card and not set(marks) & set(card)
    assert result.model.config.id2label[0] == f"{marks}bad\u2069"


def test_the_card_shows_names_as_they_are(bert, tmp_path):
    """Rendered as Markdown, names of labels and of the task are text and nothing else."""
    texts = list(task_of(n=30, held=0).train.texts)
    labels = [HOSTILE[row % 3] for row in range(30)]
    name = "<img src=x> ![i](j) **t** 1 < 2"
    result = cheaply(bert, Task.from_lists(texts, labels, name=name), "head:2", epochs=1)
    result.save(tmp_path / "out")
    card = (tmp_path / "out" / "model" / "README.md").read_text(encoding="utf-8")
    front, body = re.fullmatch(r"---\n(.*?)\n---\n(.*)", card, re.DOTALL).groups()
    assert not any(hostile in front for hostile in (*HOSTILE, name))
    rendered = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(body)
    tags = set(re.findall(r"</?([a-z0-9]+)", rendered))
    assert tags <= {"h1", "ul", "li", "p", "table", "thead", "tbody", "tr", "th", "td"} | {
        "pre",
        "code",
    }
    assert rendered.count("<code") == 1
    shown = html.unescape(re.sub(r"<[^>]*>", "", rendered))
    assert all(hostile in shown for hostile in HOSTILE) and f"tuned on {name}" in shown
    config = json.loads((tmp_path / "out" / "model" / "config.json").read_text(encoding="utf-8"))
    assert sorted(config["id2label"].values()) == sorted(HOSTILE)
