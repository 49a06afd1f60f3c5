"""Plans under a method: what is settled, what is refused, and the method that a plan.json names."""

import json

import pytest

from inputs import expect_refused
from layerscout.models import Encoder
from layerscout.plans import FULL, Adapter, LoRA, Plan, PrefixTuning, TuneRequest, Work
from layerscout.scores import DEFAULT
from layerscout.tuning.plan_spec import Target, choose_plan, read_plan, settle_plan
from layerscout.tuning.resolve import resolve
from tuned import cheaply, load, task_of

WORK = Work(examples=100, validation=10, tokens=12.0, epochs=3)
METHODS = [Adapter(4), LoRA(2), PrefixTuning(3)]


def target(encoder, method):
    shape = encoder.shape(2)
    return Target(encoder, task_of(), shape, method, None, "variability_ratio")


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize(
    "plan", ["full", "(1, 4, 4)", Plan(range(1, 5), 4), Plan(range(1, 5), 4, embeddings=False)]
)
def test_only_full_tunes_the_embeddings(bert, method, plan):
    choice = settle_plan(read_plan(plan), target(bert, method))
    assert choice.plan == Plan(range(1, 5), 4, embeddings=False)
    assert choice.plan.cut == 0
    if plan == "full":
        assert settle_plan(read_plan(plan), target(bert, FULL)).plan.embeddings


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_auto_goes_by_the_cost_of_the_method(bert, method):
    fits = {
        kind: len(choose_plan(target(bert, kind), WORK, 0.5).plan.tuned) for kind in (FULL, method)
    }
    assert fits[method] > fits[FULL]


@pytest.mark.parametrize("plan", ["auto", "top:1", "best-down:1@top"])
def test_what_a_model_cannot_have_is_refused_before_anything_is_read(
    albert, tmp_path, monkeypatch, plan
):
    monkeypatch.setattr(Encoder, "tokenize", None)
    words = "needs blocks with weights of their own … this albert … --untie"
    for method in (Adapter(4), PrefixTuning(3)):
        expect_refused(f"{method.name} {words}", cheaply, albert, task_of(), plan, method=method)
    words = "prefix-tuning needs attention … windows, got mpnet; use --method full"
    mpnet = load(tmp_path / "mpnet", "mpnet")
    expect_refused(words, cheaply, mpnet, task_of(), plan, method=PrefixTuning())


def test_lora_keeps_shared_weights_together(albert):
    assert settle_plan(read_plan("full"), target(albert, LoRA())).plan.cut == 0
    expect_refused(
        "must be tuned together … --untie", settle_plan, read_plan("top:1"), target(albert, LoRA())
    )


FEW, MANY = ("(2, 4, 4)", "contrastive"), ("(3, 3, 3)", None)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, FEW),
        ({"measure": "all"}, FEW),
        ({"against": "top:1"}, FEW),
        ({"plan": "head:2", "against": "auto"}, FEW),
        ({"score": DEFAULT}, MANY),
        ({"score": DEFAULT, "loss": "contrastive"}, (MANY[0], "contrastive")),
        ({"batch_size": 2}, MANY),
        ({"head_start": "solved"}, MANY),
        ({"head_end": "trained"}, MANY),
    ],
)
def test_few_rows_are_planned_alike_whatever_is_measured(bert, asked, expected):
    more = {"measure": "predictions"} | asked
    halves = more.pop("measure") == "all"
    request = TuneRequest(**{"plan": "auto"} | more)
    tuning = resolve(request, bert, task_of(), None, 0, False, halves=halves)
    planned = tuning.plans["plan" in asked].choice.plan.notation
    assert (planned, tuning.settings.loss) == expected


@pytest.mark.parametrize("loss", ["contrastive", None, "absent"])
def test_a_file_says_what_is_lowered(bert, tmp_path, loss):
    content = PLAN | {"head_end": "solved"} | ({} if loss == "absent" else {"loss": loss})
    (tmp_path / "plan.json").write_text(json.dumps(content))
    tuning = resolve(TuneRequest(plan=tmp_path / "plan.json"), bert, task_of(), None, 0, False)
    assert tuning.settings.loss == (None if loss == "absent" else loss)


# --- plan.json -------------------------------------------------------------------------------

PLAN = {"plan": {"tuned": [2], "head": 4}}


@pytest.mark.parametrize(
    ("content", "method"),
    [
        (PLAN, None),
        (PLAN["plan"], None),
        (PLAN | {"method": "full"}, FULL),
        (PLAN | {"method": "lora"}, LoRA()),
        (PLAN | {"method": "adapter", "method_options": {"bottleneck": 7}}, Adapter(7)),
    ],
)
def test_the_method_of_a_file(tmp_path, content, method):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(content))
    assert read_plan(path).method == read_plan(str(path)).method == method


@pytest.mark.parametrize("plan", ["top:1", "auto", Plan([2], 4)])
def test_other_plans_name_no_method(plan):
    assert read_plan(plan).method is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "adaptor"}, "unknown method 'adaptor' … adapter"),
        ({"method": 3}, "unknown method"),
        ({"method": "lora", "method_options": {"bottleneck": 7}}, "`bottleneck` … adapter"),
        ({"method": "lora", "method_options": {"rank": 0}}, "`rank`"),
        ({"method": "lora", "method_options": [8]}, "is not a plan; write one with"),
        ({"method": "lora", "method_options": {"method": "x"}}, "is not a plan; write one with"),
    ],
)
def test_a_method_that_cannot_be_is_refused(tmp_path, change, words):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLAN | change))
    expect_refused(words, read_plan, path)
