"""The papers' settings and rates, against their tables."""

import pytest

from inputs import expect_refused
from layerscout.plans import (
    PRESETS,
    Adapter,
    Full,
    LoRA,
    Settings,
    TuneRequest,
    make_plan,
    preset,
    preset_rates,
)
from layerscout.plans.papers import AS_RELEASED

TABLE_4 = {
    "full": (1e-6, 5e-6, 8e-6, 1e-5, 2e-5),
    "top:3": (8e-6, 1e-5, 2e-5, 3e-5, 5e-5),
    "best-down:3@top": (8e-6, 1e-5, 2e-5, 3e-5, 5e-5),
    "best-down:3@best": (8e-6, 1e-5, 2e-5, 3e-5, 5e-5),
    "best-down:all@best": (5e-6, 1e-5, 5e-5, 1e-4),
    "best-up": (1e-6, 3e-6, 1e-5, 3e-5),
}
TABLE_5 = {
    "full": (1e-5, 3e-5, 1e-4),
    "top:3": (3e-5, 1e-4, 3e-4),
    "best-down:3@best": (3e-5, 1e-4, 3e-4),
    "best-down:all@best": (1e-5, 3e-5, 1e-4),
    "best-up": (1e-5, 3e-5, 1e-4),
}


def rates(strategy, method, task="sst2", name="xie2022"):
    plan = make_plan(strategy, 24, best=14).on(24)
    return preset_rates(name, strategy, plan, method, task)


def test_rates():
    for method, table in ((Full(), TABLE_4), (Adapter(), TABLE_5)):
        assert {strategy: rates(strategy, method) for strategy in table} == table
    assert rates("head:14", Full(), "qqp") == (3e-4,)
    assert rates("head:14", Full(), "reviews") == (1e-3,)
    assert rates("top:3", LoRA()) is None
    assert rates("top:3", Full(), name="phang2021") == (1e-5,)
    assert rates("full", Full(), name="tamkin2020") == (2e-5,)
    assert rates("full", Full(), name="lodha2023") == (5e-5,)


@pytest.mark.parametrize("presets", [PRESETS, AS_RELEASED])
def test_papers_shuffle_plainly(presets):
    """None of them sorts by length: "batch size" and no more is what they say."""
    for paper in presets.values():
        assert Settings(**paper.settings).batching == "shuffled"
    assert Settings().batching is None


@pytest.mark.parametrize(
    ("name", "released", "expected"),
    [
        # Xie App. B, Phang §2, Tamkin §2, Lodha Table 1; each batch is a step.
        ("phang2021", False, {"step_size": 4, "warmup": 1000, "keep": "last", "max_steps": 10_000}),
        ("xie2022", False, {"step_size": 8, "warmup": 0.06, "keep": "best", "schedule": "linear"}),
        ("tamkin2020", False, {"step_size": 8, "warmup": 0, "schedule": "constant"}),
        ("tamkin2020", True, {"schedule": "linear", "max_grad_norm": 1.0, "epochs": 3}),
        ("lodha2023", False, {"step_size": 16, "warmup": 0, "weight_decay": 0.01, "keep": "last"}),
        ("lodha2023", True, {"batch_size": 16, "accumulation": 2, "step_size": 32, "epochs": 10}),
        ("lodha2023", True, {"warmup": 10_000, "max_grad_norm": 1.0, "keep": "lowest-loss"}),
        ("lodha2023", True, {"weight_decay": 0.01}),
    ],
)
def test_settings_are_those_of_the_papers(name, released, expected):
    request = TuneRequest(plan="top:3", preset=name, as_released=released)
    settings, classifier = request.settle("rte", 400, "accuracy", "classification", "ab")
    # The five epochs of Tamkin et al. for few examples are of the text alone.
    assert {option: getattr(settings, option) for option in expected} == expected
    plain = name == "tamkin2020" and not released
    assert classifier == ("mean-linear" if plain else "family")


def test_epochs_depend_on_the_task():
    def epochs(name, task="sst2", examples=5000, full=True):
        return preset(name, task=task, examples=examples, full=full).settings.get("epochs")

    assert [epochs("xie2022", task) for task in ("sst2", "mnli", "qqp")] == [20, 10, 10]
    # Xie et al. 2022, App. B.2: "10 for full-fine-tuning on MNLI and QQP and 20 for all the other".
    assert [epochs("xie2022", task, full=False) for task in ("sst2", "mnli", "qqp")] == [20] * 3
    request = TuneRequest(plan="top:3", preset="xie2022")
    found = [
        request.settle("mnli", 5000, "accuracy", "classification", "abc", full=full)[0].epochs
        for full in (True, False)
    ]
    assert found == [10, 20]
    assert [epochs("tamkin2020", examples=n) for n in (500, 501)] == [5, 3]
    assert epochs("lodha2023") == 10
    assert epochs("phang2021") is None


def test_what_cannot_be_is_refused():
    released = {"task": "rte", "examples": 5000, "as_released": True}
    expect_refused("tamkin2020", preset, "phang2021", **released)
    expect_refused("xie2022", TuneRequest, preset="xie2021")
