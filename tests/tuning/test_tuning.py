"""Tuning end to end: what is told, grids, the work that is done, and what cannot be done."""

import json
from collections import Counter
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import AutoModelForSequenceClassification

from conftest import whole_only
from inputs import as_csv, expect_refused
from layerscout.data import Task
from layerscout.errors import LayerscoutError
from layerscout.models import Encoder, base_of, make_classifier
from layerscout.plans import (
    FULL,
    Adapter,
    LoRA,
    Plan,
    PrefixTuning,
    Settings,
    default_learning_rate,
    make_plan,
)
from layerscout.tuning import judging, stages, tune
from layerscout.tuning.stepping import Epoch, Run
from tuned import NO_DROPOUT, cheaply, copied, differing, lists, load, task_of


def values(result):
    return [[epoch["loss"] for epoch in run["curve"]] for run in result.content["runs"]]


# --- What comes out ----------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["best", "last"])
def test_what_is_told(bert, keep):
    grid = {"learning_rate": [1e-3, 1e-2], "seed": [3, 4]}
    result = cheaply(bert, task_of(), "(2, 2, 3)", epochs=3, keep=keep, measure="all", **grid)
    content = json.loads(json.dumps(result.content, allow_nan=False))
    asked = {"strategy": "(2, 2, 3)", "reason": "(2, 2, 3) was asked for"}
    assert content["plan"] == {"tuned": [2], "head": 3, "notation": "(2, 2, 3)"} | asked
    assert (content["verb"], content["method"], content["metric"]) == ("tune", "full", "accuracy")
    runs, kept = content["runs"], content["runs"][content["kept"]]
    pairs = [(run["learning_rate"], run["seed"]) for run in runs]
    assert pairs == [(1e-3, 3), (1e-3, 4), (1e-2, 3), (1e-2, 4)]
    for run in runs:
        curve = {epoch["epoch"]: epoch["value"] for epoch in run["curve"]}
        losses = {epoch["epoch"]: epoch["loss"] for epoch in run["curve"]}
        assert list(curve) == [1, 2, 3] and run["last"] == {"epoch": 3, "value": curve[3]}
        best = max(curve, key=lambda epoch: (curve[epoch], -losses[epoch]))
        assert run["best"] == {"epoch": best, "value": curve[best]}
    assert (content["best"], content["last"]) == (kept["best"], kept["last"])
    assert content["keep"] == keep and result.metrics["accuracy"] == content[keep]["value"]
    parameters = [(p.numel(), p.requires_grad) for p in result.model.parameters()]
    assert content["parameters"] == {
        "total": sum(count for count, _ in parameters),
        "trainable": sum(count for count, trained in parameters if trained),
    }
    flops = content["flops"]
    assert 0 < flops["train"] < flops["full_train"]
    assert flops["inference"] < flops["full_inference"]
    assert content["seconds"].keys() == {"trunk", "train", "evaluate", "free"}
    assert all(value > 0 for value in content["seconds"].values())
    assert content["examples_per_second"].keys() == {"kept_model", "full_model"}
    assert content["trunk"]["kept"] and content["trunk"]["cut"] == 1
    told = {"epochs": 3, "batch_size": 4, "keep": keep, "examples": 12, "validation_examples": 6}
    assert content["settings"].items() >= {**told, "trunk_dropout": False}.items()
    assert content["against"] is None and content["warnings"] == []
    assert result.plan.on(4) == Plan((2,), 3).on(4) and not result.model.training


def test_the_model_is_that_of_the_epoch_that_counts(bert):
    """What it says of the validation texts gives the loss in the curve."""
    task = task_of(classes=3)
    for keep in ("best", "last"):
        result = cheaply(bert, task, "(3, 3, 4)", epochs=4, keep=keep, learning_rate=2e-2)
        run = result.content["runs"][0]
        expected = run["curve"][run[keep]["epoch"] - 1]["loss"]
        logits = torch.from_numpy(np.stack(result.predictions["logits"]))
        trained = logits / result.content["calibration"]["factor"]
        found = cross_entropy(trained, torch.from_numpy(task.validation.labels)).item()
        assert found == pytest.approx(expected, abs=1e-6)
        inputs = bert.tokenizer(list(task.validation.texts), padding=True, return_tensors="pt")
        with torch.no_grad():
            again = result.model(**inputs).logits
        torch.testing.assert_close(again, logits, rtol=1e-4, atol=1e-5)


def test_the_encoder_and_the_random_states_stay(bert):
    before = copied(bert.model)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    task, plan = task_of(n=16), "best-down:all@top"
    options = {"score": "variability_ratio", "fresh_head": True}
    one = cheaply(bert, task, plan, seed=5, **options)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.random.get_state()[1].tolist() == numpy_state  # noqa: NPY002
    assert differing(copied(bert.model), before) == set() and not bert.model.training
    torch.rand(3)
    again = cheaply(bert, task, plan, seed=5, **options)
    assert values(one) == values(again)
    assert differing(copied(one.model), copied(again.model)) == set()
    assert values(cheaply(bert, task, plan, seed=6, **options)) != values(one)


def test_names_of_files_do(bert, tmp_path):
    path = tmp_path / "task.csv"
    texts, labels = lists(40)
    path.write_text(as_csv({"text": texts, "label": labels}), encoding="utf-8")
    result = tune(bert.source, str(path), "top:1", epochs=1, progress=False)
    assert result.content["settings"]["data"] == str(path)
    assert result.content["runs"][0]["learning_rate"] == 3.2e-3  # 5e-5 × 1024 / 16
    assert result.content["task"]["name"] == "task"


@pytest.mark.parametrize(
    ("plan", "width", "method", "rate"),
    [
        ("head:2", 1024, FULL, 1e-3),
        ("full", 1024, FULL, 2e-5),
        ("(1, 3, 3)", 1024, FULL, 5e-5),
        ("(1, 3, 3)", 768, FULL, 6.7e-5),
        ("full", 384, FULL, 5.3e-5),
        ("head:4", 16, FULL, 6.4e-2),
        ("top:2", 1024, Adapter(), 3e-4),
        ("full", 512, Adapter(), 6e-4),
        ("top:2", 512, LoRA(), 1e-3),
        ("full", 1024, LoRA(), 5e-4),
        ("top:2", 1024, PrefixTuning(), 1e-2),
        ("full", 512, PrefixTuning(), 2e-2),
    ],
)
def test_the_rate_goes_by_plan_width_and_method(plan, width, method, rate):
    assert default_learning_rate(make_plan(plan, 4), width, method) == rate


@pytest.mark.parametrize("method", ["full", "lora", "adapter", "prefix-tuning"])
def test_the_head_learns_at_its_own_rate(bert, method, monkeypatch):
    moved, whole = {}, stages.train

    def noted(encoder, model, *arguments, **options):
        before = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
        found = whole(encoder, model, *arguments, **options)
        after = dict(model.named_parameters())
        moved.update({n: (after[n] - p).abs().max().item() for n, p in before.items()})
        return found

    monkeypatch.setattr(stages, "train", noted)
    # The first step of AdamW moves a weight by its rate, however large the gradient is.
    step = {"epochs": 1, "batch_size": 12, "warmup": 0, "schedule": "constant"}
    cheaply(bert, task_of(), "top:1", method=method, head_learning_rate=0.05, **step)
    head = {name for name in moved if "classifier" in name or "pooler" in name}
    assert head and len(head) < len(moved)
    for name, distance in moved.items():
        # Gradients of rounding, or none: those of keys' biases, and LoRA's A while B is 0.
        if distance > 1e-6 and "key.bias" not in name:
            assert distance == pytest.approx(0.05 if name in head else 1e-3, rel=0.02), name
    assert max(moved[name] for name in head) > 0.04


def test_a_part_of_the_examples(bert):
    task = task_of(n=30)
    result = cheaply(bert, task, "head:4", examples=10, max_length=5)
    assert result.content["settings"]["examples"] == 10
    assert result.content["task"]["examples_used"] == 10
    assert result.content["task"]["examples_available"] == 30
    # Of those that are trained on and those that judge: the user has one file.
    [cut] = [warning for warning in result.warnings if "longer than 5 tokens" in warning]
    assert " of 16 inputs were longer" in cut


# --- Grids -------------------------------------------------------------------------------------


def canned(monkeypatch, outcomes):
    """Let runs end with the values told, one a run; None for a run without an epoch.

    The bias of the classifier that a run keeps is its number.
    """
    left = iter(enumerate(outcomes))

    def train(encoder, model, training, validation, *, learning_rate, seed, **_):
        number, value = next(left)
        curve = () if value is None else (Epoch(1, 0.5, 0.5, abs(value)),)
        failed = value is None or value < 0
        stopped = "the loss was nan at step 7 of 9" if failed else None
        run = Run(learning_rate, seed, curve, stopped, failed, {"train": 1.0, "evaluate": 1.0})
        return run, {"classifier.bias": torch.full((2,), float(number))} if curve else {}

    monkeypatch.setattr(stages, "train", train)


@pytest.mark.parametrize(
    ("outcomes", "kept"),
    [
        ((0.9, 0.1, 0.1, 0.5, 0.4, 0.6), 5),  # the best mean, not the best run
        ((0.5, 0.5, 0.5, 0.5, 0.5, 0.5), 0),  # ties to the earlier
        ((0.9, None, 0.9, 0.2, 0.3, 0.3), 4),  # a rate that is not reliable comes last
        ((0.1, 0.2, 0.3, 0.4, -0.6, 0.4), 4),  # failed after a good epoch, which counts
        *whole_only(
            ((0.5, 0.6, 0.7, 0.6, 0.5, 0.6), 2),
            ((None, None, None, None, 0.1, None), 4),
        ),
    ],
)
def test_the_rate_with_the_best_mean_counts(bert, monkeypatch, outcomes, kept):
    canned(monkeypatch, outcomes)
    rates, seeds = [1e-3, 1e-4], [0, 1, 2]
    result = cheaply(bert, task_of(), "head:4", learning_rate=rates, seed=seeds)
    assert len(result.content["runs"]) == 6 and result.content["kept"] == kept
    bias = result.model.classifier.bias / result.content["calibration"]["factor"]
    assert bias.tolist() == pytest.approx([kept, kept])
    assert result.content["best"] == {"epoch": 1, "value": abs(outcomes[kept])}
    runs = result.content["runs"]
    assert ["best" in run for run in runs] == [value is not None for value in outcomes]
    failed = [value is None or value < 0 for value in outcomes]
    assert [run["diverged"] for run in runs] == failed
    assert len([w for w in result.warnings if "step 7 of 9" in w]) == sum(failed)
    json.dumps(result.content, allow_nan=False)


def test_no_run_came_through(bert, monkeypatch):
    with pytest.raises(LayerscoutError) as real:
        cheaply(bert, task_of(), "(4, 4, 4)", learning_rate=1e38, warmup=0.0)
    for word in ("(4, 4, 4)", "1e+38", "step 2 of 6", "lower"):
        assert word in str(real.value)
    canned(monkeypatch, [None, None])
    with pytest.raises(LayerscoutError, match=r"head:4.*0\.5 .*step 7 of 9.*lower"):
        cheaply(bert, task_of(), "head:4", learning_rate=[0.5, 0.6])


def test_numbers_of_numpy_are_numbers(bert, tmp_path):
    numbers = {"epochs": np.int64(1), "batch_size": np.int32(4), "budget": np.float32(0.5)}
    numbers |= {"learning_rate": np.float32(1e-3), "seed": np.array([3]), "examples": np.int64(10)}
    numbers |= {"max_length": np.int64(16), "cache_limit": 1e6, "warmup": np.float32(0.5)}
    cheaply(bert, task_of(), "auto", **numbers).save(tmp_path)
    told = json.loads((tmp_path / "result.json").read_text())["settings"]
    assert (told["epochs"], told["examples"], told["cache_limit"]) == (1, 10, 10**6)


# --- Held out ----------------------------------------------------------------------------------


def test_a_tenth_is_set_aside(bert):
    texts, labels = lists(60)
    task = Task.from_lists(texts, labels)
    results = [cheaply(bert, task, "head:4", seed=seed, epochs=1) for seed in (1, 1, [2, 1])]
    rows = [result.predictions["row"].tolist() for result in results]
    assert len(rows[0]) == 6 and rows[0] == rows[1] != rows[2]
    for result, row in zip(results, rows, strict=True):
        assert [labels[at] for at in row] == result.predictions["label"]
        assert result.content["settings"]["examples"] == 54
    told = [result.content["settings"] for result in results]
    assert [one["validation"] for one in told] == [0.1, 0.1, 0.1]
    assert [one["validation_seed"] for one in told] == [1, 1, 2]
    assert "validation" not in cheaply(bert, task_of(), "head:4").content["settings"]


# --- Against -----------------------------------------------------------------------------------


def test_against_full(bert):
    result = cheaply(bert, task_of(), "head:4", against="full", seed=[0, 1])
    alone = cheaply(bert, task_of(), "full", seed=[0, 1])
    other = result.content["against"]
    asked = {"strategy": "full", "reason": "full was asked for"}
    assert other["plan"] == {"tuned": [1, 2, 3, 4], "head": 4, "notation": "(1, 4, 4)"} | asked
    for key in ("plan", "best", "last", "kept", "parameters", "flops"):
        assert other[key] == alone.content[key]
    assert [run["curve"] for run in other["runs"]] == [
        run["curve"] for run in alone.content["runs"]
    ]
    assert result.plan.tuned == () and other["seconds"]["trunk"] == 0 and not other["trunk"]["kept"]


# --- The trunk ---------------------------------------------------------------------------------


def test_the_papers_dropout_in_frozen_blocks(bert, cache, tmp_path):
    plan = "(4, 4, 4)"
    live = cheaply(bert, task_of(), plan, trunk_dropout=True)
    assert not cache.exists()
    trunk = live.content["trunk"]
    assert live.content["settings"]["trunk_dropout"] and not trunk["kept"] and trunk["bytes"] == 0
    kept = cheaply(bert, task_of(), plan)
    assert values(live) != values(kept)
    assert live.content["flops"]["train"] > kept.content["flops"]["train"]
    # Validation has none: the kept model gives the last loss again.
    inputs = bert.tokenizer(list(task_of().validation.texts), padding=True, return_tensors="pt")
    last = cheaply(bert, task_of(), plan, trunk_dropout=True, keep="last")
    with torch.no_grad():
        logits = last.model(**inputs).logits / last.content["calibration"]["factor"]
    loss = cross_entropy(logits, torch.from_numpy(task_of().validation.labels)).item()
    assert values(last)[0][-1] == pytest.approx(loss, abs=1e-6)
    # A model that has no dropout trains alike.
    still = load(tmp_path / "still", **NO_DROPOUT)
    one, other = (cheaply(still, task_of(), plan, trunk_dropout=which) for which in (True, False))
    assert values(one)[0] == pytest.approx(values(other)[0], abs=1e-5)


@pytest.fixture(scope="module")
def cached(bert, tmp_path_factory):
    """Return the result of a tuning whose trunk is kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERSCOUT_CACHE", str(tmp_path_factory.mktemp("cache")))
        return cheaply(bert, task_of(), "(3, 3, 4)")


@pytest.mark.parametrize("fault", ["limit", "off", "file"])
def test_a_cache_that_keeps_nothing(bert, cached, tmp_path, monkeypatch, fault):
    assert cached.warnings == () and cached.content["trunk"]["kept"]
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("LAYERSCOUT_CACHE", str(tmp_path / ("file" if fault == "file" else "new")))
    limit = {"limit": {"cache_limit": 10}, "off": {"cache_limit": 0}, "file": {}}[fault]
    result = cheaply(bert, task_of(), "(3, 3, 4)", **limit)
    assert values(result)[0] == pytest.approx(values(cached)[0], abs=1e-5)
    assert not result.content["trunk"]["kept"]
    assert result.content["flops"]["train"] > cached.content["flops"]["train"]
    assert bool(result.warnings) == (fault != "off")
    assert all("in every epoch" in warning for warning in result.warnings)


def test_half_the_bytes_in_bfloat16(bert, cached):
    low = Encoder.load(bert.source, device="cpu", precision="bfloat16")
    results = [cached, cheaply(low, task_of(), "(3, 3, 4)")]
    whole, half = (result.content["trunk"]["bytes"] for result in results)
    lengths = [
        bert.tokenize(s.texts).lengths.sum() for s in (task_of().train, task_of().validation)
    ]
    assert whole == 2 * half == sum(lengths) * 16 * 4
    assert results[1].content["settings"]["precision"] == "bfloat16"
    assert values(results[1])[0] == pytest.approx(values(results[0])[0], abs=0.05)
    assert values(results[1]) != values(results[0])
    assert {p.dtype for p in results[1].model.parameters()} == {torch.float32}


@pytest.fixture
def tokens_run(bert, monkeypatch):
    """Count the tokens that enter a matrix of each block, of the encoder and of classifiers."""
    counts, handles = Counter(), []

    def watch(model, name):
        blocks = base_of(model)[0].get_submodule(bert.family.blocks)
        for number, block in enumerate(blocks, start=1):
            matrix = next(module for module in block.modules() if isinstance(module, nn.Linear))

            def count(_, arguments, key=(name, number)):
                counts[key] += arguments[0].shape[:-1].numel()

            handles.append(matrix.register_forward_pre_hook(count))
        return model

    def watched(*arguments, **options):
        return watch(make_classifier(*arguments, **options), "classifier")

    monkeypatch.setattr(stages, "make_classifier", watched)
    monkeypatch.setattr(judging, "measure_speeds", lambda *_: {"kept_model": 1.0})
    watch(bert.model, "encoder")
    yield counts
    for handle in handles:
        handle.remove()


def test_the_trunk_runs_once_and_the_rest_in_every_epoch(bert, tokens_run):
    # Texts of one length, so that there is no padding.
    texts = [f"the {a} {b}" for a in ("old", "cat", "stone") for b in ("near", "film", "music")]
    labels = ["x", "y", "x"] * 3
    task = Task.from_lists(texts, labels, validation=(texts[:4], labels[:4]))
    length = set(bert.tokenize(texts).lengths.tolist())
    assert len(length) == 1
    tokens = length.pop()
    once, epochs, runs = (9 + 4) * tokens, 2, 4

    def tuned(plan, rates, **options):
        tokens_run.clear()
        options = {"epochs": epochs, "seed": [0, 1]} | options
        cheaply(bert, task, plan, learning_rate=rates, **options)
        return dict(tokens_run)

    # Every run's epochs, and the kept model on the validation examples at the end.
    above = runs * epochs * once + 4 * tokens
    trunk = {("encoder", 1): once, ("encoder", 2): once}
    # Block 4 is frozen above the tuned one: it runs as often.
    rest = {("classifier", 3): above, ("classifier", 4): above}
    assert tuned("(3, 3, 4)", [1e-3, 1e-4]) == trunk | rest
    assert tuned("(3, 3, 4)", [1e-2, 1e-5]) == rest
    assert tuned("(3, 3, 3)", [1e-2, 1e-5]) == {("classifier", 3): above}
    assert tuned("head:3", [1e-3, 1e-4]) == trunk | {("encoder", 3): once}
    assert tuned("head:3", [1e-2, 1e-5], seed=[2, 3]) == {}
    every = {("classifier", block): above for block in range(1, 5)}
    assert tuned("full", [1e-3, 1e-4]) == tuned("(3, 3, 4)", [1e-3, 2e-3], trunk_dropout=True)
    assert dict(tokens_run) == every


def test_settings_are_those_of_the_runs(bert, monkeypatch):
    seen = []

    def train(*arguments, settings, **options):
        seen.append(settings)
        return original(*arguments, settings=settings, **options)

    original = stages.train
    monkeypatch.setattr(stages, "train", train)
    options = {
        "epochs": 1, "batch_size": 3, "warmup": 0.5, "weight_decay": 0.25, "max_grad_norm": 2.0,
        "patience": 7, "keep": "last", "metric": "f1",
    }  # fmt: skip
    result = cheaply(bert, task_of(), "head:4", **options)
    assert [asdict(settings) for settings in seen] == [asdict(Settings(**options))]
    assert result.content["settings"].items() >= options.items()
    assert result.content["metric"] == "f1"
    assert result.content["last"]["value"] == result.metrics["f1"]


def test_checkpoints_of_epochs_are_of_one_whole_training(bert, tmp_path):
    one = partial(cheaply, bert, task_of(), "top:1", epochs=2)
    folders = {1: tmp_path / "1", 2: tmp_path / "2"}
    result = one(checkpoints=folders, keep="last")
    load_one = AutoModelForSequenceClassification.from_pretrained
    first, last = (load_one(folder).state_dict() for folder in folders.values())
    kept = result.model.state_dict()
    for name in ("classifier.weight", "classifier.bias"):  # only the result is calibrated
        kept[name] /= result.content["calibration"]["factor"]
        torch.testing.assert_close(kept[name], last[name])
        kept[name] = last[name]
    assert all(torch.equal(last[name], kept[name]) for name in kept)
    assert not all(torch.equal(first[name], kept[name]) for name in kept)
    single = "need a single training"
    later = "epochs of the training, in 1..2, got 3, 9; train for longer, or name other epochs"
    for words, options in (
        (single, {"seed": [0, 1]}),
        (single, {"learning_rate": [1e-3, 1e-4]}),
        (single, {"against": "full"}),
        (single, {"preset": "xie2022", "learning_rate": None}),
        ("need whole models, which lora", {"method": "lora"}),
        ("epochs count from 1", {"checkpoints": {0: tmp_path / "0"}}),
        (later, {"checkpoints": {n: tmp_path / str(n) for n in (2, 3, 9)}}),
    ):
        expect_refused(words, one, **{"checkpoints": folders, **options})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    expect_refused("holds more than a checkpoint", one, checkpoints={1: tmp_path / "full"})


def test_an_epoch_that_training_stopped_before_is_not_saved_in_silence(bert, tmp_path):
    folders = {n: tmp_path / str(n) for n in (1, 9)}
    options = {"epochs": 9, "patience": 1, "learning_rate": 1e-30, "checkpoints": folders}
    result = cheaply(bert, task_of(), "head:4", **options)
    assert folders[1].exists() and not folders[9].exists()
    assert "the model of epoch 9 was not saved" in " ".join(result.warnings)


def test_the_metric_alone_needs_no_pass_of_what_is_compared(bert, monkeypatch):
    task = replace(task_of(), test=task_of(n=8).train)
    monkeypatch.setattr(judging, "predict", None)
    content = cheaply(bert, task, "head:2", against="head:3", measure="metric").content
    assert content["test"] is content["against"]["test"] is None


def test_without_measuring_nothing_is_run_again(bert):
    whole, lean = (cheaply(bert, task_of(), "top:1", measure=m) for m in ("all", "metric"))
    assert lean.content["examples_per_second"] is None and lean.predictions == {}
    metric = lean.content["metric"]
    assert lean.metrics == {metric: whole.metrics[metric]}
    assert lean.content["runs"][0]["curve"] == whole.content["runs"][0]["curve"]
