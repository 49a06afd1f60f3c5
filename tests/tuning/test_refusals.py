"""What tune refuses, before any example is read where the request alone shows it."""

from pathlib import Path

import pytest

from inputs import expect_refused
from layerscout import scanning
from layerscout.models import Encoder
from layerscout.plans import Plan
from telling import numbers_task
from tuned import cheaply, choices_task, several_task, task_of, words_task


@pytest.fixture
def nothing_is_read(monkeypatch):
    """Let reading an example, or a scan, be an error of another kind."""
    monkeypatch.setattr(Encoder, "tokenize", None)
    monkeypatch.setattr(scanning, "scan", None)


NUMBERS = [
    ("learning_rate", 0.0, "above 0 … 0.0"),
    ("learning_rate", [1e-3, -1.0], "above 0 … -1.0"),
    ("learning_rate", [], "one number or several"),
    ("learning_rate", [1e-3, 1e-3], "different"),
    ("learning_rate", float("nan"), "above 0 … nan"),
    ("learning_rate", float("inf"), "above 0 … inf"),
    ("learning_rate", "fast", "takes numbers … 'fast'"),
    ("learning_rate", 10**400, "above 0"),
    ("seed", -1, "in 0.. … -1"),
    ("seed", 0.5, "0.5"),
    ("seed", [1, 1], "different"),
    ("seed", 2**64, str(2**64)),
    ("seed", True, "whole number … True"),
    ("epochs", 0, "epochs … 0"),
    ("epochs", 2.0, "whole number … 2.0"),
    ("epochs", True, "whole number … True"),
    ("metric", "acuracy", "'accuracy'"),
    ("metric", "", "unknown metric ''"),
    ("keep", "worst", "best, lowest-loss, last"),
    ("examples", "auto", "whole number … 'auto'"),
    ("max_length", "128", "whole number … '128'"),
    ("cache_limit", -1, "bytes, 0 or more"),
    ("cache_limit", "20GB", "bytes … '20GB'; 20 * 10**9 is 20 GB"),
    ("budget", float("nan"), "above 0 and up to 1 … nan"),
    ("budget", float("inf"), "above 0 and up to 1 … inf"),
    ("budget", 0, "above 0 and up to 1 … 0"),
    ("budget", 5, "above 0 and up to 1 … 5"),
    ("budget", "half", "above 0 and up to 1 … 'half'"),
    ("max_grad_norm", float("inf"), "above 0 … inf"),
    ("max_grad_norm", 0, "max_grad_norm … 0"),
    ("max_grad_norm", "1", "max_grad_norm … 1"),
    ("batch_size", 0, "batch_size … 0"),
    ("patience", 0, "patience … 0"),
    ("warmup", -0.1, "warmup … -0.1"),
    ("warmup", 1.5, "warmup … 1.5"),
    ("weight_decay", -0.1, "weight_decay … -0.1"),
    ("weight_decay", float("inf"), "weight_decay … inf"),
    ("warmup", "x", "below 1 … 'x'"),
    ("score", "variability", "did you mean 'variability_ratio'"),
]


@pytest.mark.usefixtures("nothing_is_read")
@pytest.mark.parametrize(("name", "value", "words"), NUMBERS)
def test_values_out_of_range(bert, name, value, words):
    expect_refused(words, cheaply, bert, task_of(), "(2, 3, 4)", **{name: value})


@pytest.mark.usefixtures("nothing_is_read")
@pytest.mark.parametrize(
    "options", [{"seed": [0, 1]}, {"learning_rate": [1e-3, 1e-4]}, {"against": "top:1"}]
)
def test_checkpoints_of_several_trainings(monkeypatch, tmp_path, options):
    monkeypatch.setattr(Encoder, "load", None)
    options |= {"checkpoints": {1: tmp_path / "1"}}
    expect_refused("a single training", cheaply, "bert", task_of(), "best-down:1@top", **options)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("examples", 100, "at most 12"), ("max_length", 1000, "1000")],
)
def test_values_that_only_the_model_and_the_data_rule_out(bert, name, value, words):
    expect_refused(words, cheaply, bert, task_of(), "(2, 3, 4)", **{name: value})


@pytest.mark.usefixtures("nothing_is_read")
@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("tpo:2", "did you mean"),
        ("race", "unknown strategy 'race'"),
        ("x" * 1000, "unknown strategy"),
        ("head:5", "1..4 … 5"),
        ("(2, 4, 3)", "1..3, the blocks below the head; got 2 to 4; put the head at 4"),
        (Plan((1,), 6), "1..4 … got 6"),
        ("best-dwon:2", "best"),
        ("best-down:2@tpo", "best-down is written"),
        ("rank:2", "needs a block score such as fisher … --score fisher"),
        (Path("nowhere.json"), "cannot read the plan"),
        (None, "a plan must be … got None"),
        (3, "a plan must be … got 3"),
    ],
)
def test_plans_that_cannot_be_used(bert, plan, words):
    expect_refused(words, cheaply, bert, task_of(), plan)
    if plan is not None:
        expect_refused(words, cheaply, bert, task_of(), "auto", against=plan)
        expect_refused(words, cheaply, bert, task_of(), "best-down:1@top", against=plan)


@pytest.mark.usefixtures("nothing_is_read")
@pytest.mark.parametrize(
    ("plan", "options", "words"),
    [
        *(
            (
                plan,
                {"method": method},
                f"{method} tunes blocks, but head:2 tunes none; use --method",
            )
            for plan in ("head:2", Plan([], 2))
            for method in ("adapter", "lora", "prefix-tuning")
        ),
        ("full", {"keep_layer_norm": True}, "apply only to re-initialised blocks"),
        ("full", {"reinit_rate_factor": 5.0}, "apply only to re-initialised blocks"),
        ("full", {"edits": "reinit:1", "reinit_rate_factor": 0.0}, "above 0"),
        ("skip:1 + top:1", {"edits": "skip:2"}, "got both"),
        ("full", {"edits": "reinit:1", "seed": [0, 1]}, "with a single seed"),
        ("full", {"edits": "skip:5"}, "skip:5 must name blocks"),
        ("(4, 4, 4)", {"edits": "skip:2"}, "must be in 1..3"),
        (
            "top:1",
            {"edits": "skip:2", "method": "lora", "keep_adapter": True},
            "untied or edited",
        ),
        (
            "top:1",
            {"classifier": "mean-linear", "method": "lora", "keep_adapter": True},
            "needs a model that transformers can load",
        ),
    ],
)
def test_options_that_do_not_go_with_the_plan(bert, plan, options, words):
    expect_refused(words, cheaply, bert, task_of(), plan, **options)


@pytest.mark.usefixtures("nothing_is_read")
@pytest.mark.parametrize("plan", ["top:1", "blocks:2@3", Plan((4,), 4), "plan.json"])
def test_options_that_no_plan_depends_on(bert, tmp_path, monkeypatch, plan):
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text('{"tuned": [4], "head": 4}')
    name = plan.notation if isinstance(plan, Plan) else plan
    words = f"`budget` applies only to the plan auto, got {name}; leave it out"
    expect_refused(words, cheaply, bert, task_of(), plan, budget=0.3)
    words = f"`budget` … got {name} and rank:1; leave it out"
    expect_refused(words, cheaply, bert, task_of(), plan, against="rank:1", budget=0.3)
    words = f"`score` applies only to plans that follow from a scan, … got {name}; leave it out"
    expect_refused(words, cheaply, bert, task_of(), plan, score="nc1")


KNOWN = "known: pearson_spearman, pearson, spearman"


@pytest.mark.usefixtures("nothing_is_read")
@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        (lambda: numbers_task(20), {"metric": "accuracy"}, f"'accuracy' … {KNOWN}"),
        (lambda: numbers_task(20), {"metric": "mse"}, "unknown metric 'mse'"),
        (choices_task, {"metric": "f1"}, "'f1' … known: accuracy"),
        (words_task, {"threshold": 0.3}, "threshold … several labels"),
        (words_task, {"classifier": "mean-linear"}, "mean-linear … token classification"),
        (several_task, {"threshold": 1.5}, "between 0 and 1"),
        (lambda: numbers_task(20), {"class_weights": "balanced"}, "`class_weights` … single class"),
    ],
)
def test_options_that_do_not_go_with_the_task(bert, task, options, words):
    expect_refused(words, cheaply, bert, task(), "top:1", **options)
