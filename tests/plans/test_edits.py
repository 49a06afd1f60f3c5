"""Edits as text and values, and what they make of a row of blocks."""

import pytest
from hypothesis import given, strategies as st

from inputs import expect_refused
from layerscout.plans import Edit, EditSpec, WeightInit, arrange, format_edits, make_edits, ranges

BLOCKS = st.sets(st.integers(1, 12), min_size=1).map(lambda blocks: ranges(sorted(blocks)))
EDIT = st.one_of(
    st.builds("truncate:{}".format, st.integers(1, 12)),
    st.builds("{}:{}".format, st.sampled_from(("skip", "reinit", "preserve")), BLOCKS),
    st.builds("permute:{}".format, st.integers(0, 99)),
    st.permutations(range(1, 5)).map(lambda order: f"permute:{','.join(map(str, order))}"),
)


@given(st.lists(EDIT, max_size=4))
def test_what_is_written_is_read_again(edits: list[str]) -> None:
    written = " + ".join(edits)
    assert format_edits(make_edits(written)) == written


@pytest.mark.parametrize(
    ("written", "edits"),
    [
        ("", ()),
        ("reinit:9-12", (Edit("reinit", (9, 10, 11, 12)),)),
        (" REINIT: 9 - 12 ", (Edit("reinit", (9, 10, 11, 12)),)),
        ("skip:3-4+truncate:8", (Edit("skip", (3, 4)), Edit("truncate", (8,)))),
        ("preserve:1,3-4,3", (Edit("preserve", (1, 3, 4)),)),
        ("permute:7", (Edit("permute", (7,)),)),
        ("permute:2,1,3", (Edit("permute", (2, 1, 3)),)),
    ],
)
def test_notation(written: str, edits: tuple[Edit, ...]) -> None:
    assert make_edits(written) == make_edits(edits) == edits


@pytest.mark.parametrize(
    ("written", "order", "fresh"),
    [
        ("", (1, 2, 3, 4, 5, 6), ()),
        ("truncate:4", (1, 2, 3, 4), ()),
        ("skip:2-3", (1, 4, 5, 6), ()),
        # Each counts the blocks as those before it left them.
        ("skip:3-4 + truncate:3", (1, 2, 5), ()),
        ("truncate:3 + skip:3", (1, 2), ()),
        ("reinit:2,5-6", (1, 2, 3, 4, 5, 6), (2, 5, 6)),
        ("preserve:2-3", (1, 2, 3, 4, 5, 6), (1, 4, 5, 6)),
        ("preserve:1-6", (1, 2, 3, 4, 5, 6), ()),
        ("permute:6,5,4,3,2,1", (6, 5, 4, 3, 2, 1), ()),
        ("reinit:1 + permute:6,5,4,3,2,1", (6, 5, 4, 3, 2, 1), (6,)),
        ("permute:6,5,4,3,2,1 + reinit:1", (6, 5, 4, 3, 2, 1), (1,)),
        ("reinit:5 + skip:1-2", (3, 4, 5, 6), (3,)),
        ("reinit:1-2 + reinit:3", (1, 2, 3, 4, 5, 6), (1, 2, 3)),
        ("permute:1", (5, 1, 3, 2, 6, 4), ()),
    ],
)
def test_arrangement(written: str, order: tuple[int, ...], fresh: tuple[int, ...]) -> None:
    spec = EditSpec(make_edits(written), 6, 5, WeightInit(as_released=True))
    arrangement = arrange(spec.edits, 6)
    assert (arrangement.order, arrangement.fresh) == (order, set(fresh))
    assert spec.fresh == set(fresh)
    assert EditSpec.from_dict(spec.as_dict()) == spec


def test_a_seed_draws_the_same_order_and_another_one_another() -> None:
    orders = [arrange(make_edits(f"permute:{seed}"), 12).order for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[2]) == list(range(1, 13))


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("cut:3", "unknown edit"),
        ("skip", "skip must be written skip:i-j"),
        ("skip:4-3", "a span of blocks must start at 1"),
        ("skip:0-3", "a span of blocks must start at 1"),
        ("skip:1-99999999", "a span of blocks must start at 1"),
        ("reinit:all", "reinit must be written reinit:i-j"),
        ("truncate:0", "`truncate` must be a whole number from 1 on"),
        ("truncate:7", "truncate:7 must name blocks in 1..6"),
        ("truncate:1,2", "truncate must be written"),
        ("skip:5-7", "skip:5-7 must name blocks in 1..6"),
        ("skip:1-6", "a model needs a block"),
        ("permute:", "permute must be written"),
        ("permute:1,2,2", "must name every block from 1 on once"),
        ("permute:2,1", "must name all 6 blocks once, got 2 numbers"),
        ("permute:1 + permute:2", "blocks can be permuted only once"),
        ("reinit:1-3 + reinit:3", "reinit:1-3 already sets them"),
        ("preserve:1-3 + reinit:2", "preserve:1-3 already sets them"),
        ("reinit:2 + preserve:1", "reinit:2 already sets them"),
        ("reinit:1 + preserve:1", "reinit:1 already sets them"),
        ("preserve:3-4 + truncate:4", "removes a block whose weights preserve:3-4 sets"),
        ("preserve:1-5 + skip:1", "removes a block whose weights preserve:1-5 sets"),
        ("reinit:5-6 + truncate:5", "removes a block whose weights reinit:5-6 sets"),
        ("reinit:2 + skip:2", "removes a block whose weights reinit:2 sets"),
        ("skip:3-4 + skip:5", "skip:5 must name blocks in 1..4"),
        ("skip:3 + + skip:5", "unknown edit"),
        (["skip:3"], "edits must be text"),
    ],
)
def test_what_cannot_be_done_is_refused(written: str, line: str) -> None:
    expect_refused(line, lambda: arrange(make_edits(written), 6))
