"""Plans: every strategy, its edges, and the notation in and out."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given, strategies as st

from layerscout.errors import InputError
from layerscout.plans import (
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
    with pytest.raises(InputError, match=r"shorter model; write truncate:5 \+ full"):
        make_plan("emb+(1, 5, 5)", 12)
    with pytest.raises(InputError, match="lora never tunes the embeddings, got emb"):
        apply_method(make_plan("emb+top:2", 12), LoRA(), 12)
    assert not apply_method(make_plan("emb+full", 12), LoRA(), 12).embeddings
    for misspelt in ("emb+", "emb+emb", "emb+tip:1", "emb+auto", "embed+top:1"):
        with pytest.raises(InputError):
            make_plan(misspelt, 12)


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
    "top:13": "1..12.*top:13",
    "rank:13": "1..12.*rank:13",
    "head:0": "count from 1",
    "head:13": "1..12.*got 13",
    "head:ℓ": "where k and ℓ are numbers",
    "best-down@top": "best-down:k@top or .*best-down:all@top",
    "best-down:3": "best-down:k@top or",
    "best-down:3@head": "best-down:k@top or",
    "best-up:all@top": "best-up:k@head",
    "best-up:2": "best-up:k@head",
    "auto": "layerscout plan",
    "blocks:3-1@4": "lowest to the highest.*got 3 to 1",
    "blocks:1-2-3@4": "blocks:3,7-9@12",
    "blocks:@4": "blocks:3,7-9@12",
    "blocks:0@4": "1..4",
    "blocks:5@4": "1..4.*got 5",
    "blocks:3@13": "1..12.*got 13",
    "(5, 3, 8)": "got 5 to 3",
    "(5, 9, 8)": "1..8.*got 5 to 9",
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
    with pytest.raises(InputError, match=MISTAKES[strategy]) as caught:
        make_plan(strategy, 12, best=8, ranking=RANKING)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_best_state_at_the_top_leaves_nothing_above():
    for strategy in ("best-up", "best-up:1@head", "best-up:1@top"):
        with pytest.raises(InputError, match="use head:12"):
            make_plan(strategy, 12, best=12)
    assert make_plan("best-down:2@top", 12, best=12) == make_plan("top:2", 12)


def test_what_the_scan_does_not_have_is_asked_for():
    for strategy in ("best-up", "best-down:1@top", "best-down:all@best"):
        with pytest.raises(InputError, match="top:k"):
            make_plan(strategy, 12)
    for strategy in ("rank:2", "rank-bottom:2"):
        with pytest.raises(InputError, match="needs a block score such as fisher"):
            make_plan(strategy, 12)
    with pytest.raises(InputError, match="1..12, got 13"):
        make_plan("best-down:1@top", 12, best=13)


def test_blocks_without_a_score_are_never_ranked():
    values = (None, None, 2.0, float("nan"), 1.0)
    assert make_plan("rank:2", 4, ranking=values).tuned == (2, 4)
    assert make_plan("rank-bottom:1", 4, ranking=values).tuned == (4,)
    with pytest.raises(InputError, match="3 of them defined; got 5 and 2"):
        make_plan("rank:3", 4, ranking=values)
    with pytest.raises(InputError, match="13 entries"):
        make_plan("rank:1", 12, ranking=values)


def test_plans_check_themselves():
    with pytest.raises(InputError, match="at least 1, got 0"):
        Plan((), 0)
    with pytest.raises(InputError, match="1..3, the blocks below the head; got 4"):
        Plan((2, 4), 3)
    with pytest.raises(InputError, match="1..12.*got 13"):
        Plan((), 13).on(12)
    for tuned, head in (("12", 3), (None, 3), ([True], 3), ([1], True), ([1.0], 3)):
        with pytest.raises(InputError, match="must be whole numbers"):
            Plan(tuned, head)
    with pytest.raises(InputError, match="got 4; put the head at 4 or above"):
        Plan((4,), 3)


def test_every_strategy_has_a_meaning_and_most_make_a_plan():
    for name, meaning in STRATEGIES.items():
        assert meaning
        strategy = name.replace(":k", ":2").replace("ℓ", "4").replace("(b, t, h)", "(1, 2, 3)")
        if name != "auto":
            assert 1 <= make_plan(strategy, 12, best=8, ranking=RANKING).head <= 12


# --- Shared weights ----------------------------------------------------------------------------


def test_blocks_of_their_own_are_never_tied():
    for strategy in ("top:1", "(2, 3, 5)", "head:1"):
        assert check_tied(make_plan(strategy, 6), range(6)) is None


def test_blocks_that_share_weights_are_tuned_together():
    one = [0] * 6
    for strategy in ("full", "(1, 4, 4)", "head:3", "head:6"):
        assert check_tied(make_plan(strategy, 6), one) is None
    for strategy in ("top:1", "(1, 3, 6)", "(2, 4, 4)"):
        with pytest.raises(InputError, match="tunes block .* and freezes block .*--untie"):
            check_tied(make_plan(strategy, 6), one)
    two = [0, 0, 0, 1, 1, 1]
    assert check_tied(make_plan("top:3", 6), two) is None
    with pytest.raises(InputError, match="tunes block 5 and freezes block 4"):
        check_tied(make_plan("top:2", 6), two)


def test_a_cut_model_finds_the_weights_of_each_block_again():
    # 6 blocks in 2 groups: 4 of them would be spread 0 0 1 1.
    two = [0, 0, 0, 1, 1, 1]
    for head in (1, 2, 3, 5, 6):
        assert check_tied(make_plan(f"head:{head}", 6), two) is None
    with pytest.raises(InputError, match="head at 4 of 6 blocks.*--untie"):
        check_tied(make_plan("head:4", 6), two)


# --- Shapes ------------------------------------------------------------------------------------


def test_a_shape_reads_back():
    written = asdict(shape([0, 0, 1])) | {"name": "a model"}
    assert ModelShape.from_dict(written) == shape([0, 0, 1])


@pytest.mark.parametrize("missing", ["weights", "gated", "parameters"])
def test_an_older_scan_is_made_again(missing):
    written = asdict(shape([0, 1]))
    del written[missing]
    with pytest.raises(InputError, match=f"lacks '{missing}'; scan again"):
        ModelShape.from_dict(written)


def test_a_shape_that_does_not_fit_itself():
    written = asdict(replace(shape([0, 1]), blocks=3))
    with pytest.raises(InputError, match="3 blocks, but counts of 2; scan again"):
        ModelShape.from_dict(written)
    with pytest.raises(InputError, match="scan again"):
        ModelShape.from_dict(asdict(shape([0, 1])) | {"parameters": {"block": 7}})


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("hidden_size", -16),
        ("hidden_size", 16.0),
        ("feed_forward", 0),
        ("vocabulary", "30"),
        ("blocks", True),
        ("weights", [0, -1]),
        ("weights", 3),
        ("parameters", [3]),
    ],
)
def test_a_shape_out_of_range(part, value):
    whole = asdict(replace(shape([0, 1]), vocabulary=30))
    assert ModelShape.from_dict(whole).blocks == 2
    with pytest.raises(InputError, match="scan again"):
        ModelShape.from_dict(whole | {part: value})
    counts = whole["parameters"]
    for broken in ({"head": -1}, {"blocks": [1, -1]}, {"total": None}):
        with pytest.raises(InputError, match="scan again"):
            ModelShape.from_dict(whole | {"parameters": counts | broken})


@pytest.mark.parametrize("blocks", [2, 4])
@pytest.mark.parametrize("tuned", [(), (1,), (2,), (1, 2)])
def test_plans_that_mean_the_same_are_equal(tuned, blocks):
    plan = Plan(tuned, 2)
    full = len(tuned) == blocks
    same = [plan.on(blocks), plan.on(blocks).on(blocks), Plan(tuned, 2, full).on(blocks)]
    assert set(same) == {same[0]} and bool(same[0].embeddings) is full
    # What only a model's depth decides is settled by it.
    assert (plan == same[0]) is not full
