"""A training's start: what the last layer is given, what is solved on it, and what a run keeps."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from conftest import whole_only
from layerscout import scores
from layerscout.data import Task
from layerscout.plans import TuneRequest
from layerscout.states import make_batch, predict, read_inputs
from layerscout.tuning import tune
from layerscout.tuning.resolve import resolve
from layerscout.tuning.stages import compute_trunk, start_model
from layerscout.tuning.starting import list_head_layers, solve_start
from telling import numbers_task
from tuned import ROOM, cheaply, choices_task, load, several_task, task_of, words_task

TASKS = {
    "classes": lambda: task_of(40, classes=3),
    "words": words_task,
    "several": several_task,
    "numbers": lambda: numbers_task(40, validation=0.3),
    "choices": lambda: choices_task(30, choices=3),
}


def start(encoder, task, plan="top:1", **options):
    """Return a tuning, the model that its run starts from, and what that is trained on."""
    request = TuneRequest(plan=plan, epochs=1, **options)
    tuning = resolve(request, encoder, task, None, ROOM, False)
    plan = tuning.plans[0].choice.plan
    training, _ = compute_trunk(tuning, plan, (tuning.training, tuning.validation), lambda *_: None)
    return tuning, start_model(tuning, plan, 0).model, training


def give_last(encoder, model, examples):
    """Return what the last layer was given, from the library's forward on the whole of each row."""
    last, rows = list_head_layers(model)[-1], []
    given = []
    handle = last.register_forward_pre_hook(lambda _, args: given.append(args[0]))
    for row in range(len(examples)):
        inputs = make_batch(encoder, examples, np.array([row]))
        with torch.no_grad():
            logits = model(**inputs).logits
        own = given.pop()
        if examples.choices > 1:
            rows.append(own[None])
        elif own.ndim == 3 and logits.ndim == 3:  # words
            rows.append(examples.take_outputs(np.array([row]), own))
        else:
            rows.append(own[:, -1] if own.ndim == 3 else own)  # of decoders all tokens; no padding
    handle.remove()
    return torch.cat(rows).double().numpy()


@pytest.mark.parametrize(
    ("family", "kind", "options"),
    [
        ("bert", "classes", {}),
        ("bert", "classes", {"classifier": "mean-linear"}),
        ("bert", "words", {}),
        ("bert", "choices", {"method": "prefix-tuning"}),
        ("llama", "classes", {"method": "adapter"}),
        *whole_only(
            ("bert", "numbers", {"method": "lora"}),
            ("bert", "several", {}),
            ("distilbert", "classes", {}),
            ("electra", "choices", {}),
            ("roberta", "classes", {"method": "lora"}),
            ("mpnet", "numbers", {}),
            ("modernbert", "classes", {}),
            ("modernbert", "words", {}),
            ("albert", "several", {"untie": True}),
            ("llama", "several", {}),
            ("gpt2", "numbers", {}),
        ),
    ],
)
def test_the_start_is_linear_in_what_the_last_layer_is_given(family, kind, options, tmp_path):
    encoder, task = load(tmp_path, family), TASKS[kind]()
    tuning, model, training = start(encoder, task, **options)
    assert solve_start(tuning, model, training)
    last, y = list_head_layers(model)[-1], training.answers.labels
    given = give_last(encoder, model.eval(), tuning.training)
    weights = last.weight.detach().double().numpy()
    bias = 0.0 if last.bias is None else last.bias.detach().double().numpy()
    logits = (given @ weights.T + bias).reshape(len(y), -1)
    found = predict(encoder, model, training).numpy()
    np.testing.assert_allclose(found, logits, rtol=1e-3, atol=1e-3 * logits.std())
    assert np.isfinite(logits).all() and weights.any()


def test_a_training_goes_on_from_the_solved_head(bert):
    """At a rate that changes nothing, the first epoch is the solved head, for every seed."""
    task = numbers_task(60, validation=0.3)

    def tune(**options):
        fixed = {"learning_rate": 1e-9, "epochs": 1, "classifier": "mean-linear"}
        return cheaply(bert, task, "top:1", **(fixed | options)).content

    solved = tune(head_start="solved")
    assert solved["settings"]["head_start"] == "solved"
    value, again = (
        each["runs"][0]["best"]["value"] for each in (solved, tune(head_start="solved", seed=3))
    )
    assert value == pytest.approx(again, rel=1e-4)
    drawn = tune()
    assert drawn["settings"]["head_start"] == "random"
    loss, other = (each["runs"][0]["curve"][0]["training_loss"] for each in (solved, drawn))
    assert loss < 0.7 * other
    # A head alone is trained, too, where its start is said.
    alone = cheaply(bert, task, "head:4", epochs=None, head_start="solved", max_steps=2).content
    assert alone["solved"] is None and alone["runs"][0]["learning_rate"] == 1e-3


def test_class_weights_start_as_if_all_classes_were_as_frequent(bert):
    task, biases = task_of(40, classes=2), []
    keep = np.array([0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 1, 3, 5])
    task = replace(task, train=task.train.take(keep))
    for weights in (None, "balanced"):
        tuning, model, training = start(bert, task, class_weights=weights)
        solve_start(tuning, model, training)
        biases.append(list_head_layers(model)[-1].bias.detach().numpy())
    counts = np.bincount(training.answers.labels)
    np.testing.assert_allclose(biases[1] - biases[0], np.log(15 / (2 * counts)), rtol=1e-5)


def test_of_many_examples_every_so_many_are_read(bert, monkeypatch):
    tuning, model, training = start(bert, words_task(), head_start="solved")
    assert tuning.head_learning_rate is None  # a head that is drawn has a higher one than blocks
    assert replace(tuning, request=TuneRequest()).head_learning_rate > 0.1
    monkeypatch.setattr("layerscout.tuning.starting.ENOUGH", len(training.answers) // 2 + 1)
    rows, last = np.arange(0, len(training), 2), list_head_layers(model)[-1]
    given = read_inputs(bert, model, training, rows, last, last).numpy()
    own = training.find_answers(rows)
    np.testing.assert_allclose(given, give_last(bert, model, tuning.training)[own], atol=1e-4)
    assert solve_start(tuning, model, training)


def test_where_no_state_tells_examples_apart_the_head_starts_at_random(bert):
    task = Task.from_lists(["one text"] * 12, ["bad", "good"] * 6, validation=0.5)
    found = [
        cheaply(
            bert, task, "top:1", epochs=1, head_start=start, classifier="mean-linear", seed=(0, 1)
        ).content
        for start in ("random", "solved")
    ]
    assert found[0]["runs"][0]["curve"] == found[1]["runs"][0]["curve"]
    said = "no state tells the training examples apart, so the head of (4, 4, 4) started at random"
    assert [each["warnings"].count(said) for each in found] == [0, 1]


@pytest.mark.parametrize("kind", ["classes", "several"])
def test_a_start_lies_between_how_frequent_classes_are_and_the_solved_head(bert, kind, monkeypatch):
    task, layers = TASKS[kind](), {}
    for share in (0.0, 0.25, 1.0):
        monkeypatch.setattr("layerscout.tuning.starting.SHARE", share)
        tuning, model, training = start(bert, task)
        solve_start(tuning, model, training)
        last = list_head_layers(model)[-1]
        layers[share] = torch.cat([last.weight, last.bias[:, None]], dim=1).detach().numpy()
    np.testing.assert_allclose(layers[0.25], 0.75 * layers[0.0] + 0.25 * layers[1.0], atol=1e-5)
    y, start_bias = training.answers.labels, layers[0.0][:, -1]
    assert not layers[0.0][:, :-1].any()
    if kind == "several":
        shares, found = y.mean(axis=0), 1 / (1 + np.exp(-start_bias))
    else:
        shares, found = np.bincount(y) / len(y), np.exp(start_bias) / np.exp(start_bias).sum()
    np.testing.assert_allclose(found, shares, atol=0.03)


@pytest.mark.parametrize(
    ("plan", "options"),
    [("(3, 4, 4)", {"head_start": "solved"}), ("auto", {"budget": 1.0, "score": "head_quality"})],
)
def test_a_start_is_solved_once_for_all_rates(bert, monkeypatch, plan, options):
    calls, solve = [], scores.solve_head
    monkeypatch.setattr(scores, "solve_head", lambda *a, **o: calls.append(1) or solve(*a, **o))
    options |= {"max_steps": 2, "progress": False, "measure": "metric"}
    both, alone = (
        tune(bert, task_of(), plan, learning_rate=rates, **options).content["runs"]
        for rates in ([1e-4, 1e-3], [1e-3])
    )
    assert len(calls) == 1 + 1
    assert both[1]["curve"] == alone[0]["curve"]
