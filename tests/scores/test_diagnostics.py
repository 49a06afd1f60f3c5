"""Smoothness, score against probe, agreement and movement of ranks, against loops."""

import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from layerscout.errors import InputError
from layerscout.scores import (
    Score,
    against_probe,
    agreement,
    rank_movement,
    ranks,
    smoothness,
)
from reference import diagnostics as naive

# Few different values, so that ties are common.
ENTRIES = st.lists(st.integers(-4, 4).map(float), min_size=4, max_size=14)
SOMETIMES = st.one_of(st.none(), st.integers(-3, 3).map(float))
BETTER = st.sampled_from(["lower", "higher"])


@given(
    values=ENTRIES,
    scale=st.sampled_from([1.0, -3.0, 1e-200, 1e13, 1e200]),
    shift=st.sampled_from([0.0, 5.0]),
)
def test_smoothness_equals_the_formula_at_any_scale(values, scale, shift):
    assume(len(set(values[1:])) > 1)
    expected = naive.smoothness(values)
    changed = [scale * (v + shift) for v in values]
    assert smoothness(changed) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_smoothness_of_a_line_is_zero_and_state_0_does_not_count():
    assert smoothness([None, 1.0, 2.0, 3.0, 4.0]) == pytest.approx(0, abs=1e-12)
    # z = ±1 by the population deviation: one second difference of size 4 · (2/3) / (√2 · 2/3).
    assert smoothness([9.9, 1.0, -1.0, 1.0]) == pytest.approx((4 / (8 / 9) ** 0.5) ** 2)


@pytest.mark.parametrize(
    "values",
    [[], [1.0], [1.0, 2.0, 3.0], [1.0, 2.0, None, 4.0, 5.0], [5.0, *[0.1] * 4], [None] * 13],
)
def test_smoothness_undefined(values):
    assert smoothness(values) is None


@given(seed=st.integers(0, 10**6), n=st.integers(3, 24), scale=st.sampled_from([1e-9, 1.0, 1e13]))
def test_the_line_through_a_probe(seed, n, scale):
    rng = np.random.default_rng(seed)
    x = scale * rng.lognormal(size=n + 1)
    y = 0.9 - 0.05 * x / scale + 0.03 * rng.normal(size=n + 1)
    fit = against_probe(x.tolist(), y.tolist())
    intercept, slope, explained = naive.line(x[1:] / scale, y[1:])
    assert fit.states == n
    assert fit.intercept == pytest.approx(intercept, rel=1e-8, abs=1e-8)
    assert fit.slope == pytest.approx(slope / scale, rel=1e-8)
    assert fit.r_squared == pytest.approx(explained, abs=1e-9)
    assert fit.pearson == pytest.approx(np.corrcoef(x[1:], y[1:])[0, 1], abs=1e-9)
    order = [[sum(v < w for v in z[1:]) for w in z[1:]] for z in (x, y)]
    assert fit.spearman == pytest.approx(np.corrcoef(*order)[0, 1], abs=1e-9)


def test_only_states_that_have_both_are_fitted_and_ties_have_their_mean_rank():
    fit = against_probe([50.0, 1.0, 2.0, None, 3.0, 9.0], [50.0, 2.0, 4.0, 7.0, 6.0, None])
    assert (fit.states, fit.slope) == (3, pytest.approx(2))
    assert fit.intercept == pytest.approx(0, abs=1e-12)
    assert fit.pearson == fit.spearman == pytest.approx(1)
    fit = against_probe([None, 1.0, 2.0, 2.0, 3.0], [None, 4.0, 5.0, 6.0, 7.0])
    assert fit.spearman == pytest.approx(np.corrcoef([1, 2.5, 2.5, 4], [1, 2, 3, 4])[0, 1])


def test_probe_undefined():
    nothing = {"pearson", "r_squared", "slope", "intercept", "spearman"}
    for score, probe, states in (
        ([None, 1.0, 2.0, None], [0.0, 1.0, 2.0, 3.0], 2),
        ([0.0, 0.1, 0.1, 0.1], [0.0, 1.0, 2.0, 3.0], 3),
        ([None] * 4, [None] * 4, 0),
        ([], [], 0),
    ):
        fit = asdict(against_probe(score, probe))
        assert fit.pop("states") == states
        assert {k for k, v in fit.items() if v is None} == nothing
    flat = asdict(against_probe([0.0, 1.0, 2.0, 3.0], [0.0, 0.7, 0.7, 0.7]))
    line = {"slope": 0.0, "intercept": 0.7, "states": 3}
    assert flat == dict.fromkeys(nothing) | line
    with pytest.raises(InputError, match="got 3 and 2"):
        against_probe([None, 1.0, 2.0], [None, 1.0])


@given(st.lists(SOMETIMES, max_size=12), BETTER)
def test_ranks_count_what_is_ahead(values, better):
    found = ranks(values, better)
    assert len(found) == len(values)
    for i, value in enumerate(values):
        if i == 0 or value is None:
            assert found[i] is None
        else:
            assert found[i] == naive.rank(values, better, i)


def test_agreement_aligns_directions():
    scores = {
        "ratio": Score("states", "lower", (0.0, 4.0, 3.0, 1.0, 2.0)),
        "gain": Score("states", "higher", (9.0, 1.0, 2.0, 4.0, 3.0)),
        "against": Score("states", "higher", (0.0, 4.0, 3.0, 1.0, 2.0)),
        "flat": Score("states", "lower", (None, 1.0, 1.0, 1.0, 1.0)),
        "gone": Score("states", "lower", (None,) * 5),
        "fisher": Score("blocks", "higher", (None, 1.0, 2.0, 3.0, 4.0)),
    }
    found = agreement(scores)
    assert found.best == {"ratio": 3, "gain": 3, "against": 1, "flat": 1, "gone": None}
    assert found.kendall["ratio"]["gain"] == found.kendall["gain"]["ratio"] == pytest.approx(1)
    assert found.kendall["ratio"]["ratio"] == pytest.approx(1)
    assert found.kendall["ratio"]["against"] == pytest.approx(-1)
    assert set(found.kendall) == set(found.kendall["gone"]) == set(found.best)
    for name in found.kendall:
        assert found.kendall["flat"][name] is found.kendall["gone"][name] is None
    assert agreement(scores, of="blocks").best == {"fisher": 4}


@given(
    st.integers(4, 12).flatmap(
        lambda size: st.tuples(*[st.lists(SOMETIMES, min_size=size, max_size=size)] * 2)
    ),
    BETTER,
    BETTER,
)
def test_agreement_counts_pairs(values, better_a, better_b):
    a, b = (tuple(v) for v in values)
    both = [(x, y) for x, y in zip(a[1:], b[1:], strict=True) if None not in (x, y)]
    scores = {"a": Score("states", better_a, a), "b": Score("states", better_b, b)}
    found = agreement(scores).kendall["a"]["b"]
    if any(len(set(column)) < 2 for column in zip(*both, strict=True)) or not both:
        assert found is None
    else:
        sign = 1 if better_a == better_b else -1
        expected = sign * naive.kendall(*zip(*both, strict=True))
        assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("checkpoints", "places", "deviation", "kendall"),
    [
        (
            [(None, 3.0, 2.0, 1.0), (None, 30.0, 20.0, 10.0), (None, 1.0, 2.0, 3.0)],
            ((None, 1, 2, 3), (None, 1, 2, 3), (None, 3, 2, 1)),
            (0, 0, 4 / 3),
            (1, 1, -1),
        ),
        (  # blocks 2 and 3, ranked 1 and 2 at the start and 2 and 1 now
            [(None, 5.0, 4.0, 3.0, None), (None, None, 1.0, 2.0, 9.0)],
            ((None, 1, 2, 3, None), (None, None, 3, 2, 1)),
            (0, 1),
            (1, -1),
        ),
        ([(None, 2.0, 2.0), (None, 7.0, 7.0)], ((None, 1, 2),) * 2, (0, 0), (None, None)),
        ([(None, None), (None, 1.0)], ((None, None), (None, 1)), (None, None), (None, None)),
        ([], (), (), ()),
    ],
)
def test_ranks_that_move(checkpoints, places, deviation, kendall):
    found = rank_movement(checkpoints, "higher")
    assert found.ranks == places
    assert found.deviation == pytest.approx(deviation)
    assert found.kendall == pytest.approx(kendall)


def test_checkpoints_of_models_of_another_depth_are_refused():
    with pytest.raises(InputError, match="got 3 and 2"):
        rank_movement([(None, 1.0, 2.0), (None, 1.0)], "lower")


@given(st.lists(st.lists(st.integers(0, 5).map(float), min_size=7, max_size=7), min_size=1), BETTER)
def test_movement_stays_in_its_bounds(checkpoints, better):
    found = rank_movement(checkpoints, better)
    assert found.deviation[0] == 0
    # At most half the blocks' number on average, when the order is turned round.
    assert all(0 <= moved <= 3 for moved in found.deviation)
    assert all(tau is None or math.isfinite(tau) for tau in found.kendall)
