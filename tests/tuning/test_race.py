"""A race of plans: what it tries, which plan it finishes, and that it resumes."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from transformers import BertConfig

from inputs import expect_refused
from layerscout.models.architecture import model_shape
from layerscout.plans.auto import Named, choose
from layerscout.plans.costs import Work, cost, full_cost
from layerscout.plans.methods import FULL, LoRA
from layerscout.plans.plan import Plan
from layerscout.plans.race import list_candidates, price_race
from layerscout.scores.decisions import Gap
from layerscout.scores.head_quality import Quality
from layerscout.tuning import race as racing, sweep as sweeping
from layerscout.tuning.card import model_card
from tuned import cheaply, load, task_of

WORK = Work(examples=2000, validation=500, tokens=20.0, epochs=5)
OPTIONS = {"epochs": 3, "budget": 0.9, "learning_rate": 1e-3}


@cache
def base():
    return model_shape(BertConfig(), labels=2)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return load(tmp_path_factory.mktemp("bert"))


def priced(plan, epochs):
    return cost(plan, base(), replace(WORK, epochs=epochs)).train


@pytest.mark.parametrize("budget", [0.25, 0.4, 0.5, 0.75, 1.0])
def test_every_plan_for_an_epoch_and_one_to_its_end_fit(budget):
    named = Named(8, "")
    plans = list_candidates(base(), WORK, named, budget, FULL)
    assert [plan.head for plan in plans] in ([8, 12, 6], [8, 12])
    assert len({len(plan.tuned) for plan in plans if len(plan.tuned) < plan.head}) <= 1
    worst = max(
        sum(priced(plan, 1) for plan in plans) + priced(won, 5) - priced(won, 1) for won in plans
    )
    assert price_race(plans, base(), WORK, FULL) == pytest.approx(worst)
    assert worst <= budget * full_cost(base(), WORK).train
    alone = choose(base(), WORK, named, budget).plan
    assert len(plans) == 2 or 2 * len(plans[0].tuned) >= len(alone.tuned)
    wider = [Plan(tuple(range(max(1, p.tuned[0] - 1), p.head + 1)), p.head) for p in plans]
    limit = budget * full_cost(base(), WORK).train
    assert wider == plans or price_race(wider, base(), WORK, FULL) > limit


def test_heads_of_a_race_are_different_states():
    heads = [p.head for p in list_candidates(base(), WORK, Named(12, ""), 1.0, FULL)]
    assert heads == [12, 8, 6]
    assert list_candidates(base(), WORK, Named(8, ""), 0.1, FULL) == []
    lora = list_candidates(base(), WORK, Named(8, ""), 0.9, LoRA(rank=4))
    assert [p.head for p in lora] == [8, 12, 6]


def judged_as(monkeypatch, values, half=0.01):
    """Let plans be judged by these values, in the order of the race."""
    given = iter(values)
    monkeypatch.setattr(racing, "_judge", lambda *_: Quality(next(given), None, 0.5))
    monkeypatch.setattr(
        racing,
        "measure_gaps",
        lambda found, guide: [
            None if one is None else Gap(found[guide].value - one.value, half) for one in found
        ],
    )
    monkeypatch.setattr(Quality, "interval", lambda one: (one.value - half, one.value + half))


@pytest.mark.parametrize(
    ("values", "won"),
    [((0.7, 0.8), 1), ((0.7, 0.709), 0), ((0.3, 0.45), 0), ((0.9, 0.6), 0)],
)
def test_the_first_plan_is_left_only_for_a_better_one_above_chance(bert, monkeypatch, values, won):
    judged_as(monkeypatch, values)
    content = cheaply(bert, task_of(), "race", **OPTIONS).content
    tried = content["race"]["tried"]
    assert [one["value"] for one in tried] == list(values)
    assert (content["race"]["won"], content["race"]["epochs"]) == (won, 1)
    assert content["plan"]["notation"] == tried[won]["plan"]["notation"]
    reason = content["plan"]["reason"]
    assert ("; (3, 4, 4) beat (2, 3, 3) by " in reason) == (won > 0)
    assert ("; none clearly beat (2, 3, 3)" in reason) == (won == 0)
    assert all(one["plan"]["notation"] in reason for one in tried)
    assert f"{tried[0]['plan']['notation']} ({values[0]:.4f})" in model_card(content)


def test_what_is_finished_is_what_it_would_have_been_alone(bert, monkeypatch):
    judged_as(monkeypatch, (0.6, 0.9))
    raced = cheaply(bert, task_of(), "race", **OPTIONS)
    alone = cheaply(bert, task_of(), raced.content["plan"]["notation"], **OPTIONS)
    curves = [one.content["runs"][0]["curve"] for one in (raced, alone)]
    assert curves[0] == curves[1] and len(curves[0]) == 3
    for name, values in alone.predictions.items():
        np.testing.assert_array_equal(raced.predictions[name], values)
    shares = [one.content["flops"]["train"] for one in (raced, alone)]
    assert shares[1] < shares[0] <= 0.9 * raced.content["flops"]["full_train"]


def test_what_was_decided_stays_after_a_kill(bert, monkeypatch, tmp_path):
    judged_as(monkeypatch, (0.6, 0.9))
    whole = cheaply(bert, task_of(), "race", **OPTIONS)
    judged_as(monkeypatch, (0.6, 0.9))
    original, seen = sweeping.train, []

    def killed(*arguments, until, **options):
        seen.append(until)
        if until is None:
            original(*arguments, until=2, **options)
            raise KeyboardInterrupt
        return original(*arguments, until=until, **options)

    monkeypatch.setattr(sweeping, "train", killed)
    folder = tmp_path / "snapshots"
    with pytest.raises(KeyboardInterrupt):
        cheaply(bert, task_of(), "race", snapshots=folder, **OPTIONS)
    assert seen == [1, 1, None]
    monkeypatch.setattr(sweeping, "train", original)
    judged_as(monkeypatch, ())  # nothing is judged again
    again = cheaply(bert, task_of(), "race", snapshots=folder, resume=True, **OPTIONS)
    for part in ("race", "metrics", "plan"):
        assert again.content[part] == whole.content[part]
    curves = [one.content["runs"][0]["curve"] for one in (again, whole)]
    assert curves[0] == curves[1]


def test_a_plan_that_diverges_is_out_of_the_race(bert, monkeypatch):
    original, number = racing.run_sweep, iter(range(9))

    def broken(*arguments, **options):
        if next(number) == 0:
            raise sweeping.NothingFinishedError("diverged")
        return original(*arguments, **options)

    monkeypatch.setattr(racing, "run_sweep", broken)
    content = cheaply(bert, task_of(), "race", **OPTIONS).content
    assert content["race"]["tried"][0]["value"] is None and content["race"]["won"] > 0

    def failing(*_, **__):
        raise sweeping.NothingFinishedError("no run finished")

    monkeypatch.setattr(racing, "run_sweep", failing)
    with pytest.raises(sweeping.NothingFinishedError, match="no run finished"):
        cheaply(bert, task_of(), "race", **OPTIONS)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"budget": 0.05}, "is too small for a race of two plans; raise it"),
        ({"learning_rate": (1e-3, 1e-4)}, "one learning rate, one seed and no preset"),
        ({"seed": (0, 1)}, "one learning rate, one seed and no preset"),
        ({"epochs": 1}, "got 1 epoch; use --epochs 2 or more"),
        ({"against": "race"}, "use --plan race --against full"),
        ({"checkpoints": {1: "x"}}, "`checkpoints` need a single training"),
    ],
)
def test_what_a_race_cannot_be_is_refused(bert, tmp_path, options, rule):
    if "checkpoints" in options:
        options = {"checkpoints": {1: tmp_path / "x"}}
    expect_refused(rule, cheaply, bert, task_of(), "race", **{**OPTIONS, **options})
