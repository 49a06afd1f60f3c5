"""Scores against the formulas, and what must not change them; all of them on plain arrays."""

import warnings
from pkgutil import iter_modules

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import layerscout as ls
from inputs import expect_refused
from layerscout.errors import InputError
from layerscout.scores import (
    SCORES,
    Score,
    State,
    arrays as scores,
    deal_groups,
    read_score_keys,
)
from reference import naive
from reference.material import examples

DEBIASED = "variability_ratio_debiased"

# The published ratios, which sums answer.
KEYS = ("nc1", "variability_ratio")
# All that plain arrays have, and those of them that take numbers to predict.
ON_ARRAYS = [
    key
    for key, row in SCORES.items()
    if row.source in ("moments", "state") and key != "head_quality"
]
OF_NUMBERS = [key for key in ON_ARRAYS if SCORES[key].numbers]
SEEDED = (DEBIASED, "cca", "ridge", "mutual_information")


@pytest.mark.parametrize(
    ("values", "best"),
    [
        ((0.1, 0.5, 0.3, 0.9, 0.8), 2),
        ((None, None, 0.5, 0.3, None), 3),  # half of them
        ((0.1, None, None, 0.3, None), None),  # fewer
        ((0.1, None, None, None, None), None),
    ],
)
def test_a_score_with_fewer_than_half_its_values_names_no_best(values, best):
    row = SCORES["variability_ratio_debiased"]
    found = row.score(values)
    assert found.best() == best
    assert found.details.get("undefined_because") == (row.undefined if None in values[1:] else None)


def test_no_module_hides_a_public_name():
    assert not {module.name for module in iter_modules(ls.scores.__path__)} & set(ls.scores.__all__)


def by_key(key, H, y):
    return getattr(scores, key)(H, y)


@pytest.mark.parametrize("key", KEYS)
@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([30, 60, 200]),
    d=st.sampled_from([1, 2, 6, 40]),
    K=st.sampled_from([2, 3, 7]),
    skew=st.booleans(),
    signal=st.sampled_from([0.0, 0.1, 3.0]),
)
def test_equals_the_formula(key, seed, n, d, K, skew, signal):
    H, y = examples(seed, n, d, K, signal, skew=skew)
    expected = getattr(naive, key)(H, y)
    assert by_key(key, H, y) == pytest.approx(expected, rel=1e-6)


def values(key, H, y, groups):
    """Return the score of a state, and the ends of its interval where it has one; NaN for None."""
    row, state = SCORES[key], State(H, y, groups)
    low_and_high = row.compute(state).interval() if key == DEBIASED else ()
    return np.array([row.of_state(state), *low_and_high], dtype=float)


# What does not see a shift of all states, and how close the others are.
CENTRED = (*KEYS, DEBIASED, "cca", "ridge", "h_score")
TOLERANCE = {key: {"abs": 1e-7} for key in ("cca", "ridge")}
TOLERANCE |= {key: {"rel": 1e-7} for key in (*KEYS, DEBIASED)}


@pytest.mark.parametrize("key", [*CENTRED, "logme", "numerical_rank", "knn"])
@given(seed=st.integers(0, 10**6), K=st.sampled_from([2, 4]), d=st.sampled_from([3, 6, 20, 60]))
def test_invariant_under_rotation_shift_one_scale_order_and_names(key, seed, K, d):
    H, y = examples(seed, 120, d, K, 2.0)
    rng, groups = np.random.default_rng(seed), deal_groups(y, seed)
    rotation, _ = np.linalg.qr(rng.normal(size=(d, d)))
    order, ids = rng.permutation(len(y)), rng.permutation(groups.max() + 1)
    changes = [
        (H @ rotation, y, groups),
        (H * 37.5, y, groups),
        (H[order], y[order], groups[order]),
        (H, rng.permutation(K)[y], groups),
    ]
    if key in CENTRED:
        changes.append((H + rng.normal(size=d), y, groups))
    if key == DEBIASED:
        changes.append((H, y, ids[groups]))
    if key == "knn":
        changes.append((H * rng.uniform(1e-6, 1e6, (len(y), 1)), y, groups))
    tolerance = TOLERANCE.get(key, {"rel": 1e-6})
    expected = pytest.approx(values(key, H, y, groups), nan_ok=True, **tolerance)
    for changed in changes:
        assert values(key, *changed) == expected


@pytest.mark.parametrize("key", ["cca", "ridge", "knn"])
@given(seed=st.integers(0, 10**6))
def test_invariant_under_scale_and_shift_of_numbers(key, seed):
    H, _ = examples(seed, 120, 5)
    y = H[:, 0] + np.random.default_rng(seed).standard_t(4, size=120)
    groups = deal_groups(y, seed)
    expected = values(key, H, y, groups)
    assert values(key, H, 3 * y - 7, groups) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("key", [*KEYS, "cca", "logme", "numerical_rank"])
def test_not_invariant_under_other_maps(key):
    H, y = examples(0, 300)
    shifted = key in ("logme", "numerical_rank")
    changed = H + 5 if shifted else H * np.array([1e6, 1, 1, 1, 1, 1])
    assert by_key(key, changed, y) != pytest.approx(by_key(key, H, y), rel=0.01)


@pytest.mark.parametrize("key", KEYS)
def test_weak_directions_are_kept_and_none_are_invented(key):
    rng = np.random.default_rng(3)
    # Three class means, the third direction 1e-4 as long as the first: its square is near the
    # rounding of float32, and the remaining 297 directions of Σ_b are rounding alone.
    centres = np.zeros((3, 300))
    centres[0, 0], centres[1, 0], centres[2, 1] = 1, -1, 1e-4
    y = np.arange(90) % 3
    H = centres[y] + 1e-5 * rng.normal(size=(90, 300))
    assert by_key(key, H, y) == pytest.approx(getattr(naive, key)(H, y), rel=1e-6)


@pytest.mark.parametrize("key", KEYS)
def test_means_that_are_one_have_no_ratio_and_classes_without_spread_have_0(key):
    y = np.arange(8) % 2
    assert by_key(key, np.full((8, 3), 0.1), y) is None
    assert by_key(key, np.tile([[1.0, 5.0], [3.0, -1.0]], (4, 1)), np.arange(8) // 4) is None
    assert by_key(key, np.eye(2)[y], y) == pytest.approx(0.0, abs=1e-14)


@pytest.mark.parametrize("key", ON_ARRAYS)
@pytest.mark.parametrize(
    ("H", "y", "rule"),
    [
        (np.zeros((4, 2)), [0, 0, 0, 0], "2 or more classes"),
        (np.zeros((4, 2)), [0, 0, 0, 1], "the smallest of 1"),
        (np.zeros((4, 2)), [0, 1], r"\(n,\), got \(4, 2\) and \(2,\)"),
        (np.zeros((4, 2)), [[0], [0], [1], [1]], r"got \(4, 2\) and \(4, 1\)"),
        (np.zeros((4, 2)), [0, 0, 1, np.nan], "got NaN"),
        (np.zeros(4), [0, 0, 1, 1], r"\(n, d\)"),
        (np.array([[0.0], [np.nan], [1], [2]]), [0, 0, 1, 1], "finite"),
        (np.array([[0.0], [-np.inf], [1], [2]]), [0, 0, 1, 1], "finite"),
        (np.zeros((0, 2)), [], r"1 or more rows and features, .* got \(0, 2\)"),
        (np.zeros((4, 0)), [0, 0, 1, 1], r"1 or more rows and features, .* got \(4, 0\)"),
        (np.zeros((4, 2)), [0, 1, 2, 3], "4 examples in 4 classes, the smallest of 1"),
        (np.full((4, 2), 1e80), [0, 0, 1, 1], "scale them"),
        (np.full((4, 2), 1e-80), [0, 0, 1, 1], "scale them"),
        ([[1, 2], [3], [4], [5]], [0, 0, 1, 1], "real numbers"),
        ([["a"], ["b"], ["c"], ["d"]], [0, 0, 1, 1], "real numbers"),
        (np.zeros((4, 2)) * 1j, [0, 0, 1, 1], "complex"),
        (np.zeros((4, 2)), ["a", None, "a", "b"], "of one type"),
    ],
)
def test_refuses_what_has_no_answer(key, H, y, rule):
    with pytest.raises(InputError, match=rule) as refused:
        by_key(key, H, y)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", ON_ARRAYS)
@pytest.mark.parametrize("seed", range(3))
def test_a_score_needs_the_examples_that_its_row_says(key, seed):
    fewest = SCORES[key].fewest
    H, y = examples(seed, n=60 + (fewest or 2))
    y = np.repeat([0, 2, 1], [30, 30, fewest or 2])
    assert by_key(key, H, y) is not None or key == DEBIASED
    if fewest == 8:
        with pytest.raises(InputError, match="8 .* of every class|8 in all"):
            by_key(key, H[:-1], y[:-1])
    if fewest:
        with pytest.raises(InputError, match="of every class"):
            by_key(key, H[: 60 + 7], y[: 60 + 7])


@pytest.mark.parametrize("key", OF_NUMBERS)
@pytest.mark.parametrize(
    ("H", "y", "rule"),
    [
        (np.zeros((3, 2)), ["a", "b", "c"], "targets must be an array of real numbers"),
        (np.zeros((3, 2)), [1, 2, 3j], "complex"),
        (np.zeros((3, 2)), [1, 2, np.inf], "got NaN or infinity"),
        (np.zeros((3, 2)), [1, 2], r"\(n,\)"),
        (np.zeros((0, 2)), [], "1 or more rows"),
        (np.zeros((3, 2)), [0, 0, 1e90], "targets .* scale them"),
    ],
)
def test_refuses_numbers_without_an_answer(key, H, y, rule):
    with pytest.raises(InputError, match=rule) as refused:
        getattr(scores, key)(H, y, regression=True)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", OF_NUMBERS)
def test_numbers_are_predicted(key):
    H, _ = examples(1, n=150)
    y = H @ np.arange(6) + np.random.default_rng(0).normal(size=150)
    score = getattr(scores, key)
    state = State(H, y, deal_groups(y, 0))
    assert score(H, y, regression=True) == pytest.approx(SCORES[key].of_state(state), rel=1e-12)
    # Whole numbers are numbers too where regression is asked for, and classes where it is not.
    whole = np.round(y / np.ptp(y) * 3).astype(int)
    found = score(H, whole, regression=True)
    assert found == pytest.approx(score(H, whole.astype(float), regression=True), rel=1e-12)
    assert found != pytest.approx(score(H, whole % 2), rel=1e-3)


@pytest.mark.parametrize("key", SEEDED)
def test_the_seed_draws_what_is_drawn(key):
    H, y = examples(2, n=150, signal=1.0)
    values = [getattr(scores, key)(H, y, seed=seed) for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize("key", ON_ARRAYS)
def test_labels_and_states_are_of_any_type(key):
    H, y = examples(1, n=150, signal=4.0)
    H = H.astype(np.float32).astype(np.float64)
    expected = by_key(key, H, y)
    for labels in (
        y.tolist(),
        torch.from_numpy(y),
        torch.from_numpy(y).to(torch.bfloat16),
        y.astype(np.uint8),
        y + 0.5,
        np.array(["no", "so-so", "yes"])[y],
        np.array(["no", "so-so", "yes"])[y].astype(object),
        [(b"a", b"b", b"c")[label] for label in y],
    ):
        assert by_key(key, H, labels) == expected
    for states in (H.tolist(), torch.from_numpy(H).requires_grad_(), H.astype(np.float32)):
        assert by_key(key, states, y) == pytest.approx(expected, rel=1e-6)
    low = torch.from_numpy(H).to(torch.bfloat16).requires_grad_()
    assert by_key(key, low, y) == by_key(key, low.detach().double().numpy(), y)
    assert by_key(key, H, y == 1) == by_key(key, H, np.where(y == 1, "yes", "no"))


@pytest.mark.parametrize("key", ON_ARRAYS)
def test_what_is_given_stays_as_it_was(key):
    H, y = examples(1, n=150)
    states, labels = H.copy(), y.copy()
    states.flags.writeable = labels.flags.writeable = False
    by_key(key, states, labels)
    assert (states == H).all() and (labels == y).all()


def awkward():
    """Examples that something is wrong with, by what it is."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 2
    H = rng.normal(size=(240, 6)) + y[:, None]
    rare = np.concatenate([np.zeros(50, int), [1] * 3, [2] * 2])
    return {
        "a thousand classes": (rng.normal(size=(2000, 8)), np.arange(2000) % 1000),
        "classes of 2 and 3": (rng.normal(size=(55, 8)), rare),
        "constant features": (np.column_stack([H, np.full((240, 2), 0.1)]), y),
        "duplicated columns": (np.column_stack([H, H, 3 * H]), y),
        "no variance": (np.full((240, 5), 0.1), y),
        "all zero": (np.zeros((240, 5)), y),
        "n < d": (rng.normal(size=(40, 100)) + y[:40, None], y[:40]),
        "one feature": (H[:, :1], y),
        "the same states in both classes": (np.repeat(H[:120], 2, axis=0), y),
        "no spread within the classes": (np.eye(2)[y], y),
        "one class at zero": (H * y[:, None], y),
        "far from the origin": (H + 1e8, y),
        "two examples a class": (H[:4], y[:4]),
        "a feature 30 times": (np.repeat(H[:, :1], 30, axis=1), y),
        "a feature of a few rows": (np.where(np.arange(240) < 20, 1.0, 0.0)[:, None] * H, y),
        "one feature an example": (np.eye(240), y),
        "large": (H * 1e60, y),
        "small": (H * 1e-60, y),
    }


# What refuses; every other score has an answer, be it that it is undefined.
REFUSED = {
    "a thousand classes": {DEBIASED, "cca", "ridge", "mutual_information"},
    "classes of 2 and 3": {DEBIASED, "cca", "ridge", "mutual_information"},
    "two examples a class": {DEBIASED, "cca", "ridge", "mutual_information"},
}
# Where there is nothing to tell classes by, so that scores that compare states are undefined.
UNDEFINED = {"no variance", "all zero"}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("case", awkward())
def test_awkward_examples_have_an_answer_or_a_clear_refusal(case):
    H, y = awkward()[case]
    found = {}
    for key in ON_ARRAYS:
        if key in REFUSED.get(case, ()):
            line = expect_refused("", by_key, key, H, y)
            assert "examples" in line or "rows" in line or "classes" in line
        else:
            found[key] = by_key(key, H, y)
    assert all(value is None or np.isfinite(value) for value in found.values())
    undefined = {key for key, value in found.items() if value is None}
    if case in UNDEFINED:
        assert undefined == set(ON_ARRAYS) - {"mutual_information"}
        assert found["mutual_information"] == 0
    elif case == "the same states in both classes":
        assert undefined == {DEBIASED, *KEYS}
    elif case in ("no spread within the classes", "one feature an example"):
        assert undefined == {DEBIASED}
    elif case == "one class at zero":
        assert undefined == {"numerical_rank"}
    elif case == "far from the origin":  # where all states point the same way
        assert undefined == {"knn"}
    else:
        assert not undefined


@pytest.mark.parametrize("key", OF_NUMBERS)
@pytest.mark.parametrize(
    "case", ["n < d", "one feature", "duplicated columns", "no variance", "constant features"]
)
def test_awkward_states_have_an_answer_for_numbers_too(key, case):
    H, _ = awkward()[case]
    y = np.random.default_rng(0).normal(size=len(H))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        value = getattr(scores, key)(H, y, regression=True)
    assert (value is None) == (case == "no variance")
    assert getattr(scores, key)(H, np.zeros(len(y)), regression=True) is None


def test_keys_are_read_from_text_and_lists():
    assert read_score_keys("nc1, cca,nc1", numbers=False) == ["nc1", "cca"]
    assert read_score_keys(("probe", "logme"), numbers=True) == ["probe", "logme"]
    assert read_score_keys("all", numbers=False) == list(SCORES)
    left = read_score_keys("all", numbers=True)
    assert set(SCORES) - set(left) == {
        *KEYS, DEBIASED, "h_score", "numerical_rank", "mutual_information",
    }  # fmt: skip
    line = expect_refused("compares classes", read_score_keys, "cca,h_score", numbers=True)
    assert line.startswith("h_score") and all(key in line for key in OF_NUMBERS)
    expect_refused("unknown score 'lgme' … 'logme'", read_score_keys, "cca,lgme", numbers=False)


def test_best_is_among_the_blocks_and_ties_go_down():
    assert Score("states", "lower", (0.1, 3.0, 2.0, 2.0)).best() == 2
    assert Score("states", "higher", (9.0, 3.0, 5.0, 5.0)).best() == 2
    assert Score("states", "lower", (0.1, None, 7.0)).best() == 2
    assert Score("states", "lower", (0.1, None, None)).best() is None
