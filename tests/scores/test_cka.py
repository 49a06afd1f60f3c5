"""CKA of two states, of neighbours and of all against the definitions, and clusters."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from layerscout.errors import InputError
from layerscout.scores import SCORES, cka_map, find_clusters, small_sample_warning
from reference import similarity as naive

SEEDS = st.integers(0, 10**6)


class Kept(np.ndarray):
    """States of which some texts at a time are read."""

    def take(self, rows):
        return self[:, rows]


def kept(states):
    return np.asarray(states).view(Kept)


def similarity(X, Y):
    """Return both estimates of the CKA of two states."""
    found = cka_map(kept([X]), kept([Y]))
    return found.biased[0][0], found.debiased[0][0]


# --- Two states ---------------------------------------------------------------------------------


def related(seed, n, d1, d2, shared=2, condition=1.0):
    """Two states far from the origin that have some directions in common, skewed."""
    rng = np.random.default_rng(seed)
    common = rng.exponential(size=(n, shared))

    def state(d):
        mixed = common @ rng.normal(size=(shared, d)) + rng.standard_t(5, size=(n, d))
        return mixed * np.logspace(0, -condition, d) + 5 * rng.normal(size=d)

    return state(d1), state(d2)


@given(
    seed=SEEDS,
    n=st.sampled_from([4, 5, 12, 40, 41, 90]),
    d1=st.sampled_from([1, 3, 20]),
    d2=st.sampled_from([1, 20, 30]),
    condition=st.sampled_from([0.0, 6.0]),
)
def test_equals_the_definitions(seed, n, d1, d2, condition):
    X, Y = related(seed, n, d1, d2, condition=condition)
    biased, debiased = similarity(X, Y)
    assert biased == pytest.approx(naive.cka(X, Y), rel=1e-8)
    expected = naive.cka(X, Y, naive.hsic_unbiased)
    assert debiased == pytest.approx(expected, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("n", [4, 5, 7])
def test_the_debiased_one_takes_four_examples_at_a_time(n):
    X, Y = related(n, n, 3, 5)
    expected = naive.cka(X, Y, naive.hsic_by_tuples)
    assert similarity(X, Y)[1] == pytest.approx(expected, rel=1e-9)


@given(seed=SEEDS, n=st.sampled_from([10, 200]), scale=st.sampled_from([1e-140, 1e-3, 37.5, 1e140]))
def test_invariant_under_rotation_one_scale_shift_order_and_exchange(seed, n, scale):
    X, Y = related(seed, n, 6, 9)
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    order = rng.permutation(n)
    expected = similarity(X, Y)
    for changed, other in (
        (X @ rotation, Y),
        (X * scale, Y),
        (X + 100 * rng.normal(size=6), Y),
        (X[order], Y[order]),
        (Y, X),
    ):
        biased, debiased = similarity(changed, other)
        assert biased == pytest.approx(expected[0], rel=1e-8)
        assert debiased == pytest.approx(expected[1], rel=1e-8, abs=1e-9)


@pytest.mark.parametrize(("n", "d"), [(4, 3), (30, 100), (500, 8)])
def test_a_state_is_like_itself_and_its_image(n, d):
    X, _ = related(3, n, d, 1)
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))
    for Y in (X, -3 * X @ rotation + 1):
        biased, debiased = similarity(X, Y)
        assert biased == pytest.approx(1, abs=1e-12) and biased <= 1
        assert debiased == pytest.approx(1, abs=1e-9)


def test_unrelated_states_look_alike_only_to_the_biased_one():
    rng = np.random.default_rng(0)
    found = [similarity(rng.normal(size=(60, 768)), rng.normal(size=(60, 768))) for _ in range(30)]
    assert np.mean([biased for biased, _ in found]) == pytest.approx(0.93, abs=0.005)
    debiased = np.array([debiased for _, debiased in found])
    assert abs(debiased.mean()) < 3 * debiased.std() / 30**0.5
    assert debiased.std() < 0.05
    # A negative value is an answer: without those the mean would not be 0.
    assert (debiased < 0).any()


def test_undefined_where_a_state_does_not_vary_or_examples_are_few():
    X, Y = related(0, 50, 6, 6)
    for still in (np.full((50, 6), 0.1), np.zeros((50, 6)), np.full((50, 6), 1e100)):
        assert similarity(X, still) == similarity(still, X) == (None, None)
    # What float32 cannot tell apart does not vary either.
    wobbling = np.float32(0.7) * (1 + np.float32(1e-7) * X.astype(np.float32).clip(-1, 1))
    assert similarity(X, wobbling)[0] is None
    assert similarity(X, X + 1e5)[0] == pytest.approx(1)
    biased, debiased = similarity(X[:3], Y[:3])
    assert biased == pytest.approx(naive.cka(X[:3], Y[:3])) and debiased is None
    assert similarity(X[:1], Y[:1]) == (None, None)
    # Every pair of examples is alike.
    biased, debiased = similarity(np.eye(50), X)
    assert biased is not None and debiased is None


def test_constant_stretched_and_duplicated_features_and_one_feature():
    X, Y = related(0, 80, 6, 4)
    biased, debiased = similarity(X, Y)
    assert similarity(X * [30, 1, 1, 1, 1, 1], Y)[0] != pytest.approx(biased, rel=0.01)
    constant = np.column_stack([X, np.full(80, 7.0)])
    assert similarity(constant, Y)[0] == pytest.approx(biased, rel=1e-12)
    assert similarity(np.column_stack([X, X]), Y)[1] == pytest.approx(debiased, rel=1e-12)
    correlation = np.corrcoef(X[:, 0], Y[:, 0])[0, 1]
    assert similarity(X[:, :1], Y[:, :1])[0] == pytest.approx(correlation**2, rel=1e-9)


@pytest.mark.parametrize(
    ("n", "d", "noise"), [(60, 768, "0.93"), (499, 50, "0.09"), (60, 200, "0.77")]
)
def test_warns_when_examples_are_few(n, d, noise):
    warning = small_sample_warning(n, d)
    assert f"{n} examples of {d} features, independent noise scores {noise};" in warning
    assert small_sample_warning(10 * d, d) is None
    pairs = np.random.default_rng(0).normal(size=(10, 2, n, d))
    reached = np.mean([similarity(X, Y)[0] for X, Y in pairs])
    assert float(noise) == pytest.approx(reached, abs=0.01)


# --- Neighbours ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(30, 20), (200, 20)])
def test_change_compares_neighbours(n, d):
    rng = np.random.default_rng(n)
    states = rng.normal(size=(5, n, d)).astype(np.float32)
    for i in range(1, 5):
        states[i] = states[i - 1] @ rng.normal(size=(d, d)) / d**0.5 + i * states[i]
    states[2] = 3 * states[1] + 1
    values, details = SCORES["cka_change"].compute(states, 0)
    assert values[0] is details["debiased"][0] is None
    for i in range(1, 5):
        before, after = states[i - 1 : i + 1].astype(np.float64)
        assert values[i] == pytest.approx(1 - naive.cka(before, after), rel=1e-6, abs=1e-9)
        expected = 1 - naive.cka(before, after, naive.hsic_unbiased)
        assert details["debiased"][i] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert values[2] == pytest.approx(0, abs=1e-9)
    assert values[3] > 0.1
    # Around a state that does not vary, and where the first states do not count.
    states[2] = 0.3
    for first, undefined in ((0, [0, 2, 3]), (3, [0, 1, 2, 3])):
        values, details = SCORES["cka_change"].compute(states, first)
        assert [i for i, v in enumerate(values) if v is None] == undefined
        assert [i for i, v in enumerate(details["debiased"]) if v is None] == undefined


# --- All states ----------------------------------------------------------------------------------


def drifting(seed, S, n, d):
    """States that share less and less with the first one."""
    rng = np.random.default_rng(seed)
    states = [rng.normal(size=(n, d))]
    for _ in range(S - 1):
        states.append(0.8 * states[-1] @ rng.normal(size=(d, d)) / d**0.5 + rng.normal(size=(n, d)))
    return np.array([state + rng.normal(size=d) for state in states], dtype=np.float32)


@pytest.fixture(params=["whole", "small tiles"])
def way(request, monkeypatch):
    """Add up in one part, and in many."""
    if request.param == "small tiles":
        monkeypatch.setattr("layerscout.scores.cka.TILE_BYTES", 8)
        monkeypatch.setattr("layerscout.scores.cka.CHUNK", 7)


@pytest.mark.parametrize("n", [5, 23, 90])
def test_every_entry_equals_the_definition(way, n):
    X, Y = drifting(1, 4, n, 6), drifting(2, 3, n, 9)
    for rows, columns in ((X, Y), (X, None), (Y, X)):
        found = cka_map(kept(rows), None if columns is None else kept(columns))
        others = rows if columns is None else columns
        for s, one in enumerate(rows.astype(float)):
            for t, other in enumerate(others.astype(float)):
                assert found.biased[s][t] == pytest.approx(naive.cka(one, other), rel=1e-6)
                expected = naive.cka(one, other, naive.hsic_unbiased)
                assert found.debiased[s][t] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_map_of_one_model_is_symmetric_with_ones_on_the_diagonal(way):
    found = cka_map(kept(drifting(3, 5, 40, 7)))
    biased, debiased = np.array(found.biased), np.array(found.debiased)
    np.testing.assert_allclose(biased, biased.T)
    np.testing.assert_allclose(debiased, debiased.T, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(biased), 1)
    np.testing.assert_allclose(np.diagonal(debiased), 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, None])
def test_a_state_that_is_not_finite_or_does_not_vary_has_no_similarity(way, value):
    states = drifting(7, 3, 30, 5)
    expected = cka_map(kept(states[[0, 2]]))
    if value is None:
        states[1] = states[1][0]  # as the first token's embedding
    else:
        states[1, 3, 2] = value
    found = cka_map(kept(states))
    assert found.biased[1] == found.debiased[1] == (None,) * 3
    assert found.biased[0][2] == pytest.approx(expected.biased[0][1])


def test_other_numbers_of_examples_are_refused():
    states = drifting(7, 3, 20, 5)
    with pytest.raises(InputError, match="the same examples, got 20 and 19"):
        cka_map(kept(states), kept(states[:, 1:]))


def test_progress_is_told_to_the_end(way):
    told = []
    states = kept(drifting(8, 3, 200, 5))
    cka_map(states, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == list(range(1, told[-1][1] + 1))


# --- Clusters ----------------------------------------------------------------------------------


def block_diagonal(lower, upper, within=0.9, between=0.2):
    S = np.full((lower + upper,) * 2, between)
    S[:lower, :lower] = S[lower:, lower:] = within
    np.fill_diagonal(S, 1)
    return S


@pytest.mark.parametrize(("lower", "upper"), [(2, 2), (5, 8), (9, 3)])
def test_two_blocks_are_found(lower, upper):
    found = find_clusters(block_diagonal(lower, upper).tolist())
    assert found.split == lower - 1  # states count from 0
    assert [found.lower, found.upper] == pytest.approx([0.9, 0.9])
    assert found.between == pytest.approx(0.2)
    assert found.contrast == pytest.approx(0.7)


def test_the_best_split_by_trying_all():
    rng = np.random.default_rng(9)
    S = rng.uniform(size=(9, 9))
    S = (S + S.T) / 2
    np.fill_diagonal(S, 1)
    contrasts = {}
    for k in range(2, 8):
        within = [S[i, j] for i in range(9) for j in range(i) if (i < k) == (j < k)]
        between = [S[i, j] for i in range(9) for j in range(i) if (i < k) != (j < k)]
        contrasts[k - 1] = np.mean(within) - np.mean(between)
    found = find_clusters(S.tolist())
    assert found.split == max(contrasts, key=contrasts.__getitem__)
    assert found.contrast == pytest.approx(max(contrasts.values()))


def test_states_that_do_not_vary_are_left_out():
    S = [[None] * 8] + [[None, *line] for line in block_diagonal(3, 4).tolist()]
    assert find_clusters(S).split == 3
    assert find_clusters([line[:4] for line in S[:4]]) is None


def test_clusters_are_told_from_an_even_drift():
    """Independently: all shuffles of four states, of which only the three neighbours matter."""
    S = block_diagonal(2, 2)
    assert find_clusters(S.tolist()).p == pytest.approx(1 / 3, abs=0.05)
    assert find_clusters(block_diagonal(5, 8).tolist()).p == 0.001
    apart = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    drift = find_clusters((0.8**apart).tolist())
    assert drift.contrast > 0.2 and drift.p == 1


def test_equal_states_have_no_contrast():
    found = find_clusters(np.ones((5, 5)).tolist())
    assert found.p == 1
    assert found.contrast == pytest.approx(0)
    assert found.split == 1
