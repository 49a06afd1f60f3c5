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


def test_batches_are_those_of_the_papers():
    """Xie App. B, Phang §2, Tamkin §2, Lodha Table 1; each batch is a step."""
    sizes = {name: Settings(**one.settings).step_size for name, one in PRESETS.items()}
    assert sizes == {"xie2022": 8, "phang2021": 4, "tamkin2020": 8, "lodha2023": 16}


def test_epochs_depend_on_the_task():
    def epochs(name, task="sst2", examples=5000, full=True):
        return preset(name, task=task, examples=examples, full=full).settings.get("epochs")

    assert [epochs("xie2022", task) for task in ("sst2", "mnli", "qqp")] == [20, 10, 10]
    # Xie et al. 2022, App. B.2: "10 for full-fine-tuning on MNLI and QQP and 20 for all the other".
    assert [epochs("xie2022", task, full=False) for task in ("sst2", "mnli", "qqp")] == [20] * 3
    asked = TuneRequest(plan="top:3", preset="xie2022")
    found = [
        asked.settle("mnli", 5000, "accuracy", "classification", "abc", full=full)[0].epochs
        for full in (True, False)
    ]
    assert found == [10, 20]
    assert [epochs("tamkin2020", examples=n) for n in (500, 501)] == [5, 3]
    assert epochs("lodha2023") == 10
    assert epochs("phang2021") is None
    assert PRESETS["phang2021"].settings["max_steps"] == 10_000


def test_as_released():
    def released(name, **more):
        return preset(name, task="rte", examples=5000, as_released=True, **more)

    assert released("tamkin2020").classifier == "family"
    few = preset("tamkin2020", task="rte", examples=500, as_released=True)
    assert few.settings["epochs"] == 3  # the five of App. E are of the text alone
    assert released("tamkin2020").settings["max_grad_norm"] == 1.0
    lodha = Settings(**released("lodha2023").settings)
    assert (lodha.batch_size, lodha.accumulation, lodha.step_size) == (16, 2, 32)
    assert (lodha.warmup, lodha.max_grad_norm, lodha.keep) == (10_000, 1.0, "lowest-loss")
    assert (lodha.epochs, lodha.weight_decay) == (10, 0.01)
    expect_refused("tamkin2020", released, "phang2021")


def test_unknown_presets_are_refused():
    expect_refused("xie2022", TuneRequest, preset="xie2021")
