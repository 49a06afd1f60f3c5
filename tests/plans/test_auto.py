"""The choice of a plan under a budget, and the list of plans with their costs."""

import re
from dataclasses import replace
from functools import cache

import pytest
from transformers import AlbertConfig, BertConfig

from layerscout.models.architecture import model_shape
from layerscout.plans.auto import choose
from layerscout.plans.costs import Work, cost
from layerscout.plans.listing import list_strategies
from layerscout.plans.methods import Adapter, LoRA, PrefixTuning
from layerscout.plans.plan import make_plan
from layerscout.runtime.errors import InputError

ALBERT = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
METHODS = [Adapter(64), LoRA(rank=8), PrefixTuning(16)]
WORK = Work(examples=67349, validation=872, tokens=13.3, epochs=5)


@cache
def bert(**settings):
    return model_shape(BertConfig(**settings), labels=2)


@cache
def albert(groups):
    return model_shape(AlbertConfig(num_hidden_groups=groups, **ALBERT), labels=2)


def share(strategy, shape=None, best=8):
    shape = shape or bert()
    plan, full = (make_plan(s, shape.blocks, best=best) for s in (strategy, "full"))
    return cost(plan, shape, WORK).train / cost(full, shape, WORK).train


@pytest.mark.parametrize(
    ("budget", "best", "strategy"),
    [
        (1.0, 8, "best-up"),
        (0.5, 8, "best-up"),
        (0.35, 8, "best-down:1@top"),
        (0.3, 8, "best-down:3@best"),
        (0.2, 8, "best-down:2@best"),
        (0.12, 8, "best-down:1@best"),
        (0.5, 12, "best-down:5@top"),
        (1.0, 12, "best-down:12@top"),
        (0.5, None, "top:5"),
        (0.14, None, "top:1"),
        (0.5, 1, "best-down:1@best"),
    ],
)
def test_auto_takes_the_first_clause_that_fits(budget, best, strategy):
    choice = choose(bert(), WORK, best, budget)
    assert choice.strategy == strategy
    assert choice.plan == make_plan(strategy, 12, best=best)
    found = share(strategy, best=best)
    assert found <= budget
    assert choice.reason.startswith(f"{strategy} needs {100 * found:.1f} % of full fine-tuning")


def test_auto_says_why_earlier_clauses_did_not_apply():
    reason = choose(bert(), WORK, 8, 0.3).reason
    up, down = 100 * share("best-up"), 100 * share("best-down:1@top")
    assert f"; best-up needs {up:.1f} %; best-down:k@top needs {down:.1f} % or more" in reason
    assert "best-up finds no block above ℓ*" in choose(bert(), WORK, 12, 0.5).reason
    assert "there is no ℓ*" in choose(bert(), WORK, None, 0.5).reason
    assert ";" not in choose(bert(), WORK, 8, 0.5).reason


def test_the_smallest_budget_is_named_and_works():
    with pytest.raises(InputError, match=r"the least is 0\.\d+, and head:8 tunes") as caught:
        choose(bert(), WORK, 8, 0.05)
    least = float(str(caught.value).split("least is ")[1].split(",")[0])
    assert choose(bert(), WORK, 8, least).strategy == "best-down:1@best"
    with pytest.raises(InputError, match="head:12"):
        choose(bert(), WORK, None, 0.05)


@pytest.mark.parametrize("budget", [0.0, -1.0, 50.0, float("nan"), float("inf")])
def test_a_budget_is_a_share(budget):
    with pytest.raises(InputError, match="above 0 and up to 1"):
        choose(bert(), WORK, 8, budget)


def test_auto_leaves_shared_weights_together():
    choice = choose(albert(1), WORK, 8, 0.7)
    assert choice.plan.notation == "(1, 8, 8)"
    assert "best-up needs --untie; best-down:k@top needs --untie" in choice.reason
    with pytest.raises(InputError, match="the least is 0.66.*--untie"):
        choose(albert(1), WORK, 8, 0.5)
    assert choose(albert(3), WORK, 8, 0.5).plan.notation == "(9, 12, 12)"
    assert (
        choose(
            replace(albert(1), weights=tuple(range(12))),
            WORK,
            8,
            0.5,
        ).strategy
        == "best-up"
    )


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize(
    ("budget", "best"), [(0.5, 8), (0.3, 8), (0.12, 8), (0.3, 12), (0.3, None)]
)
def test_auto_weighs_the_method(method, budget, best):
    full = cost(make_plan("full", 12), bert(), WORK).train
    choice = choose(bert(), WORK, best, budget, method)
    plan = make_plan(choice.strategy, 12, best=best)
    assert (choice.plan.tuned, choice.plan.head) == (plan.tuned, plan.head)
    assert choice.plan.embeddings is False
    found = cost(plan, bert(), WORK, method).train / full
    assert found <= budget
    # The same plan costs less than with all weights, so at least what fitted then fits now.
    before = choose(bert(), WORK, best, budget).strategy
    clauses = ["best-up", "best-down@top", "best-down@best", "top"]
    now, then = (
        (-clauses.index(re.sub(":[0-9]+", "", name)), len(make_plan(name, 12, best=best).tuned))
        for name in (choice.strategy, before)
    )
    assert now >= then


def test_auto_tunes_all_blocks_but_never_the_embeddings():
    shape = bert()
    choice = choose(shape, WORK, 12, 1.0, Adapter())
    assert (choice.plan.notation, choice.plan.embeddings) == ("(1, 12, 12)", False)
    assert choice.plan.cut == 0
    with pytest.raises(InputError, match=r"head:8 tunes no block at all \(--method full\)"):
        choose(shape, WORK, 8, 0.01, Adapter())


@pytest.mark.parametrize("method", [Adapter(), PrefixTuning()], ids=lambda method: method.name)
def test_shared_weights_cannot_have_something_of_their_own(method):
    for attempt in (
        lambda: choose(albert(1), WORK, 8, 0.9, method),
        lambda: list_strategies(albert(3), WORK, 8, method=method),
    ):
        with pytest.raises(InputError, match=f"^{method.name} needs blocks.* albert .*--untie"):
            attempt()
    untied = replace(albert(1), weights=tuple(range(12)))
    assert choose(untied, WORK, 8, 0.5, method).plan.tuned


# --- The list ----------------------------------------------------------------------------------


@pytest.mark.parametrize("best", [1, 2, 8, 10, 11, 12, None])
@pytest.mark.parametrize("blocks", [12])
def test_the_list_has_each_plan_once_dearest_first(blocks, best):
    listed = list_strategies(bert(num_hidden_layers=blocks), WORK, best)
    assert listed[0].strategy == "full"
    assert len({option.plan for option in listed}) == len(listed)
    shares = [option.relative for option in listed]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], min(shares) > 0) == (1.0, True)
    for option in listed:
        assert make_plan(option.strategy, blocks, best=best) == option.plan
        assert option.cost == cost(option.plan, bert(), WORK)


def test_the_list_knows_what_each_plan_is_built_on():
    listed = {option.strategy: option for option in list_strategies(bert(), WORK, 8)}
    states = {name: option.state for name, option in listed.items()}
    assert {states[s] for s in ("best-up", "best-down:2@top", "best-up:1@head", "head:8")} == {8}
    assert {states[s] for s in ("middle-down:1@top", "middle-down:3@middle")} == {7}
    assert {states[s] for s in ("full", "top:1", "head:12")} == {12}
    assert "rank:1" not in listed
    ranking = (None, *map(float, range(12)))
    ranked = list_strategies(bert(), WORK, None, ranking, extra=("rank-bottom:2",))
    assert "rank-bottom:2" in [option.strategy for option in ranked]
    assert "best-up" not in [option.strategy for option in ranked]


def test_efficient_is_what_auto_takes_at_that_budget():
    listed = list_strategies(bert(), WORK, 8)
    assert [option.strategy for option in listed if option.efficient] == [
        "best-up",
        "best-down:1@top",
        "best-down:3@best",
        "best-down:2@best",
        "best-down:1@best",
    ]
    for option in listed:
        if option.efficient:
            assert choose(bert(), WORK, 8, option.relative).plan == option.plan


def test_models_of_few_blocks_have_few_plans():
    one = model_shape(BertConfig(num_hidden_layers=1), labels=2)
    assert [option.strategy for option in list_strategies(one, WORK, 1)] == ["full", "head:1"]
    two = model_shape(BertConfig(num_hidden_layers=2), labels=2)
    notations = [option.plan.notation for option in list_strategies(two, WORK, 1)]
    assert notations == ["(1, 2, 2)", "(1, 1, 2)", "(2, 2, 2)", "(1, 1, 1)", "head:2", "head:1"]


def test_the_list_leaves_shared_weights_together_unless_asked():
    names = [option.strategy for option in list_strategies(albert(1), WORK, 8)]
    assert names == ["full", "best-down:all@best", "head:12", "head:8"]
    asked = list_strategies(albert(1), WORK, 8, extra=("top:1",))
    assert "top:1" in [option.strategy for option in asked]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_the_list_of_a_method(method):
    listed = list_strategies(bert(), WORK, 8, method=method)
    assert {option.strategy for option in listed} == {
        option.strategy for option in list_strategies(bert(), WORK, 8) if option.plan.tuned
    }
    full = cost(make_plan("full", 12), bert(), WORK)
    for option in listed:
        assert not option.plan.embeddings
        assert option.cost == cost(option.plan, bert(), WORK, method)
        assert option.relative == option.cost.train / full.train
        if option.efficient:
            assert choose(bert(), WORK, 8, option.relative, method).plan == option.plan
    assert any(option.efficient for option in listed)
    with pytest.raises(InputError, match=f"{method.name} tunes blocks, and head:8 tunes none"):
        list_strategies(bert(), WORK, 8, extra=("head:8",), method=method)
