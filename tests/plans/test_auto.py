"""The choice of a plan under a budget, and the list of plans with their costs."""

from dataclasses import replace
from functools import cache

import pytest
from transformers import AlbertConfig, BertConfig

from layerscout.errors import InputError
from layerscout.models import model_shape
from layerscout.plans import (
    FULL,
    Adapter,
    HeadSuggestion,
    LoRA,
    PrefixTuning,
    Work,
    choose,
    choose_head_state,
    cost,
    list_strategies,
    make_plan,
    suggest_default_head,
    suggest_upper_head,
)

ALBERT = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
METHODS = [Adapter(64), LoRA(rank=8), PrefixTuning(16)]
WORK = Work(examples=67349, validation=872, tokens=13.3, epochs=5)


@cache
def bert(**settings):
    return model_shape(BertConfig(**settings), labels=2)


@cache
def albert(groups):
    return model_shape(AlbertConfig(num_hidden_groups=groups, **ALBERT), labels=2)


def at(state):
    return HeadSuggestion(state, f"state {state}: because")


def share(strategy, shape=None, method=FULL):
    shape = shape or bert()
    plan, full = (make_plan(s, shape.blocks) for s in (strategy, "full"))
    return cost(plan, shape, WORK, method).train / cost(full, shape, WORK).train


@pytest.mark.parametrize("state", [1, 5, 8, 12])
@pytest.mark.parametrize("budget", [0.04, 0.12, 0.3, 0.5, 1.0])
def test_auto_takes_the_nearest_head_and_then_the_most_blocks(budget, state):
    choice = choose(bert(), WORK, at(state), budget)
    plan, found = choice.plan, share(choice.plan.notation)
    assert found <= budget and choice.strategy == plan.notation
    assert choice.reason.startswith(
        f"state {state}: because; {plan.notation} needs {100 * found:.1f} % of full fine-tuning"
    )
    # Neither a head that is nearer nor one more block below it fits.
    away = abs(plan.head - state)
    for head in range(state - away + 1, min(12, state + away - 1) + 1):
        assert share(f"head:{head}") > budget
    if len(plan.tuned) < plan.head:
        lowest = plan.head - len(plan.tuned)
        assert share(f"({lowest}, {plan.head}, {plan.head})") > budget
    assert plan.tuned == tuple(range(plan.head - len(plan.tuned) + 1, plan.head + 1))


@pytest.mark.parametrize(
    ("budget", "plan"),
    [(0.1, "(5, 5, 5)"), (0.2, "(12, 12, 12)"), (0.5, "(8, 12, 12)"), (1.0, "(5, 12, 12)")],
)
def test_of_few_rows_auto_tunes_the_upper_blocks_within_the_budget(budget, plan):
    assert choose(bert(), WORK, at(12), budget, few=True).plan == make_plan(plan, 12)


def test_few_rows_have_no_budget_unless_one_is_given():
    assert choose(bert(), WORK, suggest_upper_head(12), few=True).plan.notation == "(5, 12, 12)"
    assert choose(bert(), WORK, at(8)).plan == choose(bert(), WORK, at(8), 0.5).plan
    assert choose(albert(1), WORK, at(12), few=True).plan.notation == "(1, 8, 8)"


def test_auto_says_which_head_did_not_fit():
    choice = choose(bert(), WORK, at(12), share("head:9"))
    assert choice.plan.notation == "head:9"
    assert "no head nearer to state 12 fits the budget, " in choice.reason


def test_the_smallest_budget_is_named_and_works():
    with pytest.raises(InputError, match=r"the cheapest needs 0\.\d+$") as caught:
        choose(bert(), WORK, at(8), 0.001)
    least = float(str(caught.value).split("cheapest needs ")[1])
    assert choose(bert(), WORK, at(8), least).plan.notation == "head:1"


def test_a_head_goes_to_two_thirds_or_above_where_more_is_read():
    assert [choose_head_state(blocks) for blocks in (1, 2, 4, 5, 6, 12)] == [1, 1, 3, 3, 4, 8]
    assert choose_head_state(12, 8) == choose_head_state(12, 3) == 8
    assert choose_head_state(12, 3, [6, 11]) == 8, "the best is below"
    assert choose_head_state(12, 12) == 12
    assert choose_head_state(12, 12, [3, 7]) == 12, "these are below"
    assert choose_head_state(12, 12, [9, 11]) == 9 and choose_head_state(12, 11, [8, 9]) == 8
    assert suggest_default_head(12, "why") == HeadSuggestion(
        8, "why: state 8 is at two thirds of the depth"
    )


@pytest.mark.parametrize("budget", [0.0, -1.0, 50.0, float("nan"), float("inf")])
def test_a_budget_is_a_share(budget):
    with pytest.raises(InputError, match="above 0 and up to 1"):
        choose(bert(), WORK, at(8), budget)


def test_auto_leaves_shared_weights_together():
    choice = choose(albert(1), WORK, at(8), 0.7)
    assert choice.plan.notation == "(1, 8, 8)"
    with pytest.raises(InputError, match="the cheapest needs 0.0.*--untie"):
        choose(albert(1), WORK, at(8), 0.01)
    assert choose(albert(1), WORK, at(8), 0.5).plan.notation == "(1, 6, 6)"
    untied = replace(albert(1), weights=tuple(range(12)))
    assert len(choose(untied, WORK, at(8), 0.5).plan.tuned) < 8


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize(("budget", "state"), [(0.5, 8), (0.3, 8), (0.12, 8), (0.3, 12)])
def test_auto_weighs_the_method(method, budget, state):
    choice = choose(bert(), WORK, at(state), budget, method)
    assert choice.plan.embeddings is False and choice.plan.tuned
    found = cost(choice.plan, bert(), WORK, method).train
    assert found <= budget * cost(make_plan("full", 12), bert(), WORK).train
    # The same plan costs less than with all weights, so at least what fitted then fits now.
    before = choose(bert(), WORK, at(state), budget).plan
    assert abs(choice.plan.head - state) <= abs(before.head - state)
    assert choice.plan.head != before.head or len(choice.plan.tuned) >= len(before.tuned)


def test_auto_tunes_all_blocks_but_never_the_embeddings():
    shape = bert()
    choice = choose(shape, WORK, at(12), 1.0, Adapter())
    assert (choice.plan.notation, choice.plan.embeddings) == ("(1, 12, 12)", False)
    assert choice.plan.cut == 0
    with pytest.raises(InputError, match=r"head:8 tunes no block at all \(--method full\)"):
        choose(shape, WORK, at(8), 0.01, Adapter())


@pytest.mark.parametrize("method", [Adapter(), PrefixTuning()], ids=lambda method: method.name)
def test_shared_weights_cannot_have_something_of_their_own(method):
    for attempt in (
        lambda: choose(albert(1), WORK, at(8), 0.9, method),
        lambda: list_strategies(albert(3), WORK, 8, method=method),
    ):
        with pytest.raises(InputError, match=f"^{method.name} needs blocks.* albert .*--untie"):
            attempt()
    untied = replace(albert(1), weights=tuple(range(12)))
    assert choose(untied, WORK, at(8), 0.5, method).plan.tuned


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


@pytest.mark.parametrize("few", [False, True])
def test_efficient_is_what_auto_takes_at_that_budget(few):
    state = 12 if few else 8
    listed = list_strategies(bert(), WORK, 8, named=state, few=few)
    efficient = [option.strategy for option in listed if option.efficient]
    assert ("best-down:3@best" in efficient) != few and ("top:3" in efficient) == few
    for option in listed:
        taken = choose(bert(), WORK, at(state), option.relative, few=few).plan == option.plan
        assert taken == option.efficient
    above = list_strategies(bert(), WORK, 8, named=12)
    assert "top:2" in [option.strategy for option in above if option.efficient]


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
            assert choose(bert(), WORK, at(8), option.relative, method).plan == option.plan
    assert any(option.efficient for option in listed)
    with pytest.raises(InputError, match=f"{method.name} tunes blocks, but head:8 tunes none"):
        list_strategies(bert(), WORK, 8, extra=("head:8",), method=method)
