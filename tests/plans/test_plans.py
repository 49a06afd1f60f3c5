"""Plans: every strategy, its edges, and the notation in and out."""

from dataclasses import asdict

import pytest
from hypothesis import given, strategies as st

from inputs import expect_refused
from layerscout.plans import (
    BEST_HEAD,
    STRATEGIES,
    LoRA,
    ModelShape,
    Parameters,
    Plan,
    apply_method,
    check_tied,
    make_plan,
)

# Entry 0 is no block; blocks 1..12. 9 and 2 are the ends, 1 and 5 come twice.
RANKING = (None, 3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.5, 5.0, 8.0)


def shape(weights):
    L = len(weights)
    counts = Parameters(embeddings=100, blocks=(10,) * L, head=5, total=105 + 10 * len({*weights}))
    return ModelShape(
        "albert",
        L,
        4,
        16,
        50,
        counts,
        queries=4,
        keys=4,
        gated=False,
        fused=False,
        first_normed=None,
        weights=tuple(weights),
        norms=(16,) * L,
        linear=(72,) * L,
    )


@pytest.mark.parametrize(
    ("strategy", "notation"),
    {
        "full": "(1, 12, 12)",
        "top:1": "(12, 12, 12)",
        "top:3": "(10, 12, 12)",
        "top:12": "(1, 12, 12)",
        "best-down:3@top": "(6, 8, 12)",
        "best-down:3@best": "(6, 8, 8)",
        "best-down:99@best": "(1, 8, 8)",
        "best-down:all@top": "(1, 8, 12)",
        "best-down:all@best": "(1, 8, 8)",
        "best-up": "(9, 12, 12)",
        "best-up:2@head": "(9, 10, 10)",
        "best-up:2@top": "(9, 10, 12)",
        "best-up:99@head": "(9, 12, 12)",
        "middle-down:2@top": "(6, 7, 12)",
        "middle-down:2@middle": "(6, 7, 7)",
        "middle-down:99@middle": "(1, 7, 7)",
        "rank:3": "blocks:6,8,12@12",
        "rank:4": "blocks:5-6,8,12@12",  # 5, 9 and 11 tie
        "rank-bottom:1": "(2, 2, 12)",  # 2 and 4 tie
        "rank-bottom:3": "blocks:2,4,7@12",
        "head:8": "head:8",
        "blocks:3,7-9@12": "blocks:3,7-9@12",
        "blocks:9,7,8,3,3@12": "blocks:3,7-9@12",
        "blocks:3-5@7": "(3, 5, 7)",
        "(3, 5, 7)": "(3, 5, 7)",
        "3,5,7": "(3, 5, 7)",
        " Best-Down:2@TOP ": "(7, 8, 12)",
        "( 3,5 , 7 )": "(3, 5, 7)",
    }.items(),
)
def test_every_strategy(strategy, notation):
    plan = make_plan(strategy, 12, best=8, ranking=RANKING)
    assert plan.notation == notation
    assert make_plan(notation, 12) == plan
    assert Plan.from_dict(plan.as_dict()).on(12) == plan


def test_the_middle_of_an_odd_and_of_the_smallest_model():
    assert make_plan("middle-down:1@top", 5).tuned == (3,)
    assert make_plan("middle-down:3@middle", 1).notation == "(1, 1, 1)"


def test_full_is_full_however_it_is_written():
    for strategy in ("full", "top:24", "(1, 24, 24)", "blocks:1-24@24", "best-down:all@top"):
        plan = make_plan(strategy, 24, best=24)
        assert (plan.embeddings, plan.cut) == (True, None)
    for strategy in ("(1, 14, 14)", "(1, 14, 24)", "(2, 24, 24)", "best-down:all@best", "head:24"):
        plan = make_plan(strategy, 24, best=14)
        assert not plan.embeddings and plan.cut is not None


@pytest.mark.parametrize(
    ("strategy", "tuned", "notation"),
    [
        ("emb+rank:2", (8, 10), "emb+blocks:8,10@12"),
        ("emb+(3, 5, 12)", (3, 4, 5), "emb+(3, 5, 12)"),
        ("EMB + top:1", (12,), "emb+(12, 12, 12)"),
        ("emb+blocks:1,3@5", (1, 3), "emb+blocks:1,3@5"),
        ("emb+head:8", (), "emb+head:8"),
        ("emb+full", tuple(range(1, 13)), "(1, 12, 12)"),
    ],
)
def test_a_plan_may_name_the_embeddings(strategy, tuned, notation):
    """As the released code of Lodha et al. 2023 trained: they, and the blocks that rank first."""
    ranking = [None, *(float(block in (8, 10)) for block in range(1, 13))]
    plan = make_plan(strategy, 12, ranking=ranking)
    assert (plan.tuned, plan.notation, plan.cut) == (tuned, notation, None) and plan.embeddings
    assert make_plan(notation, 12) == plan == Plan.from_dict(plan.as_dict()).on(12)


def test_embeddings_are_named_where_that_says_something():
    expect_refused("shorter model; write truncate:5 + full", make_plan, "emb+(1, 5, 5)", 12)
    words = "lora never tunes the embeddings, got emb"
    expect_refused(words, apply_method, make_plan("emb+top:2", 12), LoRA(), 12)
    assert not apply_method(make_plan("emb+full", 12), LoRA(), 12).embeddings
    for misspelt in ("emb+", "emb+emb", "emb+tip:1", "emb+auto", "embed+top:1"):
        expect_refused("", make_plan, misspelt, 12)


def test_the_cut_is_below_the_lowest_tuned_block():
    cuts = {s: make_plan(s, 12).cut for s in ("(1, 3, 12)", "blocks:5,7@9", "head:8", "top:1")}
    assert cuts == {"(1, 3, 12)": 0, "blocks:5,7@9": 4, "head:8": 8, "top:1": 11}


@given(blocks=st.integers(1, 30), data=st.data())
def test_the_notation_of_any_plan_reads_back(blocks, data):
    head = data.draw(st.integers(1, blocks))
    plan = Plan(data.draw(st.sets(st.integers(1, head))), head).on(blocks)
    assert make_plan(plan.notation, blocks) == plan


MISTAKES = {
    "": "unknown strategy ''",
    "everything": "unknown strategy",
    "tpo:3": "did you mean 'top:k'",
    "top": "top is written top:k",
    "top:all": "top is written top:k",
    "top:0": "count from 1",
    "top:13": "1..12 … top:13",
    "rank:13": "1..12 … rank:13",
    "head:0": "count from 1",
    "head:13": "1..12 … got 13",
    "head:ℓ": "where k and ℓ are numbers",
    "best-down@top": "best-down:k@top or … best-down:all@top",
    "best-down:3": "best-down:k@top or",
    "best-down:3@head": "best-down:k@top or",
    "best-up:all@top": "best-up:k@head",
    "best-up:2": "best-up:k@head",
    "auto": "layerscout plan",
    "blocks:3-1@4": "lowest to the highest … got 3 to 1",
    "blocks:1-2-3@4": "blocks:3,7-9@12",
    "blocks:@4": "blocks:3,7-9@12",
    "blocks:0@4": "1..4",
    "blocks:5@4": "1..4 … got 5",
    "blocks:3@13": "1..12 … got 13",
    "(5, 3, 8)": "got 5 to 3",
    "(5, 9, 8)": "1..8 … got 5 to 9",
    "(0, 3, 8)": "got 0 to 3",
    "(1, 2, 999999999)": "1..12",
    "blocks:1-999999999@12": "1..12",
    "(1, 2": "unknown strategy",
    "1, 2)": "unknown strategy",
    "top:-1": "top is written",
    "top:²": "top is written",
    "to\np": "unknown strategy",
    f"top:{'9' * 5000}": "top is written",
    f"(1, 2, {'9' * 5000})": "unknown strategy",
    "9" * 5000: "unknown strategy",
}


@pytest.mark.parametrize("strategy", MISTAKES, ids=lambda strategy: repr(strategy[:20]))
def test_a_mistake_is_one_line(strategy):
    line = expect_refused(MISTAKES[strategy], make_plan, strategy, 12, best=8, ranking=RANKING)
    assert len(line) < 500


GAPS = (None, None, 2.0, float("nan"), 1.0)


@pytest.mark.parametrize(
    ("strategies", "blocks", "known", "words"),
    [
        ("best-up best-up:1@head best-up:1@top", 12, {"best": 12}, "use head:12"),
        ("best-up best-down:1@top best-down:all@best", 12, {}, "top:k"),
        ("rank:2 rank-bottom:2", 12, {}, "needs a block score such as fisher"),
        ("best-down:1@top", 12, {"best": 13}, "1..12, got 13"),
        ("rank:3", 4, {"ranking": GAPS}, "3 of them defined; got 5 and 2"),
        ("rank:1", 12, {"ranking": GAPS}, "13 entries"),
    ],
)
def test_what_the_scan_does_not_have_is_asked_for(strategies, blocks, known, words):
    for strategy in strategies.split():
        expect_refused(words, make_plan, strategy, blocks, **known)
    assert make_plan("best-down:2@top", 12, best=12) == make_plan("top:2", 12)


def test_blocks_without_a_score_are_never_ranked():
    assert make_plan("rank:2", 4, ranking=GAPS).tuned == (2, 4)
    assert make_plan("rank-bottom:1", 4, ranking=GAPS).tuned == (4,)


@pytest.mark.parametrize(
    ("tuned", "head", "words"),
    [
        ((), 0, "at least 1, got 0"),
        ((), 13, "1..12 … got 13"),
        ((2, 4), 3, "1..3, the blocks below the head; got 4"),
        ((4,), 3, "got 4; put the head at 4 or above"),
        ("12", 3, "must be whole numbers"),
        (None, 3, "must be whole numbers"),
        ([True], 3, "must be whole numbers"),
        ([1], True, "must be whole numbers"),
        ([1.0], 3, "must be whole numbers"),
    ],
)
def test_plans_check_themselves(tuned, head, words):
    expect_refused(words, lambda: Plan(tuned, head).on(12))


def test_every_strategy_has_a_meaning_and_most_make_a_plan():
    for name, meaning in STRATEGIES.items():
        assert meaning
        strategy = name.replace(":k", ":2").replace("ℓ", "4").replace("(b, t, h)", "(1, 2, 3)")
        if name not in ("auto", BEST_HEAD):
            assert 1 <= make_plan(strategy, 12, best=8, ranking=RANKING).head <= 12


# --- Shared weights ----------------------------------------------------------------------------


ONE, TWO = [0] * 6, [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("weights", "plans", "words"),
    [
        (range(6), "top:1 (2,3,5) head:1", None),
        (ONE, "full (1,4,4) head:3 head:6", None),
        (ONE, "top:1 (1,3,6) (2,4,4)", "tunes block … and freezes block … --untie"),
        (TWO, "top:3 head:1 head:2 head:3 head:5 head:6", None),
        (TWO, "top:2", "tunes block 5 and freezes block 4"),
        # 6 blocks in 2 groups: 4 of them would be spread 0 0 1 1.
        (TWO, "head:4", "head at 4 of 6 blocks … --untie"),
    ],
)
def test_blocks_that_share_weights_are_treated_alike(weights, plans, words):
    for plan in plans.split():
        if words is None:
            assert check_tied(make_plan(plan, 6), weights) is None
        else:
            expect_refused(words, check_tied, make_plan(plan, 6), weights)


# --- Shapes ------------------------------------------------------------------------------------


def test_a_shape_reads_back():
    written = asdict(shape([0, 0, 1])) | {"name": "a model"}
    assert ModelShape.from_dict(written) == shape([0, 0, 1])


COUNTS = asdict(shape([0, 1]).parameters)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": ...}, "lacks 'weights'"),
        ({"gated": ...}, "lacks 'gated'"),
        ({"parameters": ...}, "lacks 'parameters'"),
        ({"blocks": 3}, "3 blocks, but counts of 2"),
        ({"hidden_size": -16}, ""),
        ({"hidden_size": 16.0}, ""),
        ({"feed_forward": 0}, ""),
        ({"vocabulary": "30"}, ""),
        ({"blocks": True}, ""),
        ({"weights": [0, -1]}, ""),
        ({"weights": 3}, ""),
        ({"parameters": [3]}, ""),
        ({"parameters": {"block": 7}}, ""),
        ({"parameters": {**COUNTS, "head": -1}}, ""),
        ({"parameters": {**COUNTS, "blocks": [1, -1]}}, ""),
        ({"parameters": {**COUNTS, "total": None}}, ""),
    ],
)
def test_a_shape_that_cannot_be_is_scanned_again(changes, words):
    whole = asdict(shape([0, 1])) | changes
    written = {name: value for name, value in whole.items() if value is not ...}
    expect_refused(f"{words} … scan again", ModelShape.from_dict, written)


@pytest.mark.parametrize("blocks", [2, 4])
@pytest.mark.parametrize("tuned", [(), (1,), (2,), (1, 2)])
def test_plans_that_mean_the_same_are_equal(tuned, blocks):
    plan = Plan(tuned, 2)
    full = len(tuned) == blocks
    same = [plan.on(blocks), plan.on(blocks).on(blocks), Plan(tuned, 2, full).on(blocks)]
    assert set(same) == {same[0]} and bool(same[0].embeddings) is full
    # What only a model's depth decides is settled by it.
    assert (plan == same[0]) is not full
